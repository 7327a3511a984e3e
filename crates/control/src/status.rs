//! The state of a daemon as `status`, `stats` and `doctor` report it. Times are in seconds from now unless a name says otherwise.

use crate::rung::WakeRung;
use crate::sa::{SaStatus, Traffic};
use serde::{Deserialize, Serialize};

/// Most sessions, and most timers, in one answer: a gateway of a hundred thousand devices goes on with their packets between two.
pub const MOST: usize = 1_000;

/// Everything as it stands.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// The daemon.
    pub daemon: DaemonStatus,
    /// Client connections, by name.
    pub connections: Vec<Connection>,
    /// When the radio sleeps; absent if no connection is a client's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sleep: Option<crate::SleepStatus>,
    /// What the gateway side holds; absent if no connection has that role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Gateway>,
    /// The Host Identity Protocol; absent if no connection has that role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hip: Option<crate::HipStatus>,
    /// The access router; absent if this machine is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<crate::RouterStatus>,
    /// What leaves outside of a tunnel that should carry it. Empty: nothing does.
    #[serde(default)]
    pub in_clear: Vec<crate::InClear>,
    /// What is open for a captive portal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub portal: Option<crate::Portal>,
    /// Offloads, used or not.
    pub offloads: Vec<Offload>,
    /// What will wake the daemon, soonest first, each with its reason: the first [`MOST`]. Empty: nothing will.
    pub deadlines: Vec<DeadlineStatus>,
    /// How many more there are.
    #[serde(default, skip_serializing_if = "is_none_left")]
    pub more_deadlines: usize,
}

fn is_none_left(count: &usize) -> bool {
    *count == 0
}

/// The daemon itself.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct DaemonStatus {
    /// Release.
    pub release: String,
    /// Process id.
    pub pid: u32,
    /// Since its start, time asleep included.
    pub uptime_seconds: f64,
    /// The tunnel interface.
    pub interface: String,
    /// Its MTU, in bytes.
    pub mtu: u16,
    /// Addresses it listens on.
    pub listen: Vec<String>,
    /// Who installs DNS servers, and why that one.
    pub resolver: String,
    /// The configuration file.
    pub config: String,
    /// The radio sleeps.
    pub suspended: bool,
}

/// Which end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The device.
    Client,
    /// The gateway.
    Gateway,
}

/// What a client connection is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConnectionState {
    /// Not wanted.
    Down,
    /// Wanted, but there is no network.
    Offline,
    /// The radio sleeps; the session is kept.
    Asleep,
    /// On its way.
    Connecting,
    /// Up.
    Up,
    /// Failed; another attempt follows after a pause.
    Waiting,
}

impl ConnectionState {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Down, Self::Offline, Self::Asleep, Self::Connecting, Self::Up, Self::Waiting];

    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Offline => "offline",
            Self::Asleep => "asleep",
            Self::Connecting => "connecting",
            Self::Up => "up",
            Self::Waiting => "waiting",
        }
    }
}

/// How the session came up the last time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct LastWake {
    /// The rung that succeeded.
    pub rung: WakeRung,
    /// Milliseconds from the wake, or the first attempt.
    pub took_ms: u64,
}

/// The last failure, until the session is up again.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LastError {
    /// What and why.
    #[serde(flatten)]
    pub error: crate::Error,
    /// When it is tried again; absent if it is being tried now, or never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_in_seconds: Option<f64>,
}

/// One client connection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Connection {
    /// Its name in the configuration.
    pub name: String,
    /// Which end we are.
    pub role: Role,
    /// What it is doing.
    pub state: ConnectionState,
    /// Who the peer proved to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// The gateway as configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Outer addresses in use: `local -> remote (carrier)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Inner addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Prefixes that lead into the tunnel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<String>,
    /// Name servers from the gateway.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns: Vec<String>,
    /// Domains that those are to be asked for; none: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<String>,
    /// How the session came up the last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_wake: Option<LastWake>,
    /// The IKE SA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ike: Option<SaStatus>,
    /// The CHILD SAs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<SaStatus>,
    /// The resumption ticket.
    #[serde(default)]
    pub ticket: Ticket,
    /// What went through the tunnel in this session.
    #[serde(default)]
    pub traffic: Traffic,
    /// NAT traversal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nat: Option<Nat>,
    /// The last failure, until the session is up again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
    /// What is kept from leaving outside of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<crate::BlockStatus>,
}

/// The resumption ticket (RFC 5723) of a client connection.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Ticket {
    /// One is held.
    pub held: bool,
    /// Until it is worthless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_seconds: Option<f64>,
}

/// NAT traversal.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Nat {
    /// There is a NAT before us.
    pub local: bool,
    /// There is one before the peer.
    pub remote: bool,
    /// Between keepalives; absent if none are sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keepalive_seconds: Option<f64>,
}

/// What the gateway side holds.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Gateway {
    /// How many sessions are established.
    #[serde(default)]
    pub sessions_total: usize,
    /// The first [`MOST`] of them.
    pub sessions: Vec<Session>,
    /// There are more: ask for those `after` this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more: Option<u64>,
    /// Devices that sleep without a session, the first [`MOST`] of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<crate::AbsentDevice>,
    /// How many there are.
    #[serde(default)]
    pub absent_total: usize,
    /// Handshakes that are half open.
    pub half_open: usize,
    /// Newcomers that were refused because there were too many, since the daemon started.
    #[serde(default)]
    pub refused: u64,
    /// Inner addresses in use and there, as `used/total`, by prefix.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<String>,
    /// The servers that know users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub radius: Option<crate::RadiusStatus>,
}

/// Sessions of the gateway that a status has left out.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Sessions {
    /// The next [`MOST`].
    pub sessions: Vec<Session>,
    /// There are more: ask for those `after` this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more: Option<u64>,
}

/// One client's session at the gateway.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Session {
    /// The connection that it came in by.
    pub connection: String,
    /// The peer's identity.
    pub peer: String,
    /// Outer addresses: `local -> remote (carrier)`.
    pub path: String,
    /// Inner addresses.
    pub addresses: Vec<String>,
    /// It was resumed by ticket.
    pub resumed: bool,
    /// The IKE SA.
    pub ike: SaStatus,
    /// The CHILD SAs, with the routers that hold header keys of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<SaStatus>,
    /// Since anything authentic came from it.
    pub quiet_seconds: f64,
    /// What went through the tunnel.
    pub traffic: Traffic,
    /// What is done for its device while it sleeps; absent for a peer that does not say when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stand_in: Option<crate::StandIn>,
}

/// One offload.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Offload {
    /// Such as `tun-tso` or `udp-gso`.
    pub name: String,
    /// It is used.
    pub active: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Something that will wake the daemon.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct DeadlineStatus {
    /// Which timer.
    pub why: String,
    /// The time until it is due, in seconds.
    pub in_seconds: f64,
    /// How much later would do.
    pub slack_seconds: f64,
}

/// Counters since the start, by name: `ike.exchanges.resumed`, `esp.discards.replayed`, ... The names are stable; a reader
/// ignores those that it does not know.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Stats {
    /// The counters.
    pub counters: std::collections::BTreeMap<String, u64>,
}

/// How one check of `doctor` went.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckOutcome {
    /// Well.
    Ok,
    /// It works, but could work better.
    Warning,
    /// It cannot work.
    Failure,
    /// Not checked, and why.
    Skipped,
}

/// One check of `doctor`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Check {
    /// What was checked, a few words.
    pub name: String,
    /// How it went.
    pub outcome: CheckOutcome,
    /// What was found.
    pub found: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
}

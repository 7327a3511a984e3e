//! The Host Identity Protocol, as `status` reports it. Times are in seconds from now.

use crate::{BlockStatus, Error, SaStatus, StandIn, Traffic};
use serde::{Deserialize, Serialize};

/// This host and its peers.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct HipStatus {
    /// The connection's name in the configuration.
    pub connection: String,
    /// Our host identity tag, in the version that peers have unless they say another.
    pub hit: String,
    /// All our tags, that one first.
    #[serde(default)]
    pub identities: Vec<HipIdentity>,
    /// Our local-scope identifier, for programs that know IPv4 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lsi: Option<String>,
    /// By which names programs of this host find the peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<HipNames>,
    /// What is listened to: `ip`, `udp 10500`.
    pub carriers: Vec<String>,
    /// Anyone who proves an identity may come, not only the peers that are configured.
    pub accepts_any: bool,
    /// This host is a rendezvous server.
    #[serde(default)]
    pub rendezvous_server: bool,
    /// This host is a relay.
    #[serde(default)]
    pub relay_server: bool,
    /// Whether packets of HITs are kept in the tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<BlockStatus>,
    /// The peers that are configured, and others with an association.
    pub peers: Vec<HipPeer>,
}

/// The names of the peers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HipNames {
    /// What stands behind each.
    pub domain: String,
    /// The name server that knows them, an address of this host alone.
    pub server: String,
    /// This machine asks it about them.
    pub asked: bool,
}

/// A tag of this host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HipIdentity {
    /// The host identity tag.
    pub hit: String,
    /// The version of the protocol that is spoken with it.
    pub version: u8,
    /// What it is called here, if it is not that of the connection's `key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// How far an association is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HipState {
    /// There is none.
    #[default]
    Down,
    /// The base exchange is under way.
    Connecting,
    /// ESP flows.
    Up,
    /// It is ending.
    Closing,
}

impl HipState {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Connecting => "connecting",
            Self::Up => "up",
            Self::Closing => "closing",
        }
    }
}

/// How registration, for rendezvous or at a relay, stands between the two ends of an association.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HipRegistration {
    /// This host is registered at the peer.
    AtPeer,
    /// The peer is registered here.
    OfPeer,
    /// The peer does not register this host.
    Refused {
        /// In words.
        why: String,
    },
}

/// A peer.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct HipPeer {
    /// Its host identity tag.
    pub hit: String,
    /// The version of the protocol that it speaks.
    #[serde(default)]
    pub version: u8,
    /// What it is called here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Our tag in the association with it, or by which it is called.
    #[serde(default)]
    pub identity: String,
    /// Where it is looked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Its rendezvous servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rendezvous: Vec<String>,
    /// Its relays.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relays: Vec<String>,
    /// Its local-scope identifier, by which programs of this host reach it that know IPv4 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lsi: Option<String>,
    /// Whether one end is a rendezvous server or a relay of the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registration: Option<HipRegistration>,
    /// How far the association with it is.
    pub state: HipState,
    /// It is reached through a relay: that is where `path` leads.
    #[serde(default)]
    pub relayed: bool,
    /// Outer addresses in use: `local -> remote (carrier)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// ESP goes in UDP there; else it is IP protocol 50.
    #[serde(default)]
    pub esp_in_udp: bool,
    /// The pair of ESP SAs that sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub esp: Option<SaStatus>,
    /// Since anything authentic came from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_seconds: Option<f64>,
    /// What went through this association.
    #[serde(default)]
    pub traffic: Traffic,
    /// Its radio sleeps, as it has announced.
    #[serde(default)]
    pub asleep: bool,
    /// What is done for it while it sleeps; absent if nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stand_in: Option<StandIn>,
    /// An operator has denied it.
    #[serde(default)]
    pub denied: bool,
    /// Why it was not reached the last time, until it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Error>,
}

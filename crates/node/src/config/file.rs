//! The configuration file as it is written: one TOML document, every key documented here and nowhere else.
//!
//! `docs/configuration.md` is made from these definitions (`dormouse reference`), so the comments are the manual. This module
//! must never read another file or resolve a name: [`super::resolve`] does.

pub use super::access_router::{Repair, Router};
pub use super::audit::Audit;
pub use super::choose::Choose;
pub use super::cluster::Cluster;
pub use super::credentials::{Eap, Hidden, LocalAuth, Login, Ppk, PpkKey, RemoteAuth, Revocation, Ways};
pub use super::data_path::DataPath;
pub use super::forward::Forward;
pub use super::half_open::HalfOpen;
pub use super::hip::{
    Hip, HipAccept, HipCarrier, HipCipher, HipEspInUdp, HipGroup, HipIdentity, HipPeer, HipPuzzle,
};
pub use super::ike_words::{Childless, EspInUdp, Keepalive};
pub use super::metrics::Metrics;
pub use super::peers::{Peer, Prefix};
pub use super::radius::{Radius, RadiusServer};
pub use super::renewals::Renewals;
pub use super::resumption::{KeyExchange, Resumption, ResumptionMode};
pub use super::routes::Routes;
pub use super::spin::Spin;
pub use super::workers::Workers;
pub use super::zones::{Keys, KeysPeer, Protection, Zones};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

/// The whole file, `/etc/dormouse/dormouse.toml` unless `--config` names another.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct File {
    /// The daemon itself: where it listens and what it keeps.
    pub daemon: Daemon,
    /// When the radio sleeps.
    pub sleep: super::sleep::Sleep,
    /// Gateway: what is done for devices that sleep.
    pub standin: super::standin::StandIn,
    /// Gateway: what is put on record of those who come (docs/audit.md).
    pub audit: Audit,
    /// Gateway: the servers that know the users of connections with `remote.auth = "radius"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub radius: Option<Radius>,
    /// Gateway: what it shares with other gateways. Absent: it is the only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Cluster>,
    /// Access router: what stands between a radio and the network. Absent: this machine is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router: Option<Router>,
    /// Connections by name. A client has one for each gateway, a gateway one for each kind of client.
    pub connection: BTreeMap<String, Connection>,
}

/// The daemon itself.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Daemon {
    /// Name of the tunnel interface.
    pub interface: String,
    /// Addresses to listen on. Both wildcards by default; a family that the machine lacks is left out.
    pub listen: Vec<IpAddr>,
    /// UDP port of IKE.
    pub ike_port: u16,
    /// UDP port of NAT traversal, which IKE and ESP share.
    pub nat_t_port: u16,
    /// Requests that a peer may send without waiting for answers (IKE's window, SET_WINDOW_SIZE), 1 to 8. Each costs memory, and with one no
    /// answer is late for another.
    pub ike_window: u32,
    /// Largest packet that the tunnel interface takes, in bytes. 0: 1400, which fits ESP in UDP on an Ethernet, or where HIP alone uses it 1478, and 1458 with `lsi`, which fit over IPv4; TCP is clamped to
    /// what the path and the algorithms in use really leave, and other senders learn it by Packet Too Big.
    pub mtu: u16,
    /// Tickets, ticket keys, leases and what was learned are kept here.
    pub state_dir: PathBuf,
    /// The control socket that `dormouse` talks to.
    pub socket: PathBuf,
    /// Members of this group may use the control socket besides root. Empty: root only.
    pub group: String,
    /// The daemon becomes this user once it is set up. "root" keeps full privileges, and is only for containers and tests.
    pub user: String,
    /// What is logged: `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `info,dormouse_ike=debug`.
    pub log: String,
    /// How DNS servers from the gateway are installed.
    pub dns: DnsMode,
    /// Who gives the tunnel's interface its addresses and routes. `auto`: the daemon. `off`: another program, such as NetworkManager; daemons of which each has
    /// client connections alone can run beside each other and beside another one then, each with ports, an interface, a socket and a state directory of its own.
    pub routes: Routes,
    /// Segmentation and receive offloads on the tunnel and the UDP sockets. Each switches itself off where the kernel
    /// misbehaves; `false` never tries them.
    pub offload: bool,
    /// After a packet the daemon looks for the next one without rest for so long, at most `"10ms"`: the answer to it is on its way sooner, as nothing
    /// has to be woken for it, and a processor is kept busy meanwhile. For gateways on mains with a processor to spare; a client's battery pays for
    /// it, and it is warned of. `"50us"`, or a number of microseconds. 0: it never does.
    pub spin: Spin,
    /// What carries ESP. `user`: the daemon. `kernel`: under load the kernel, by an interface `-esp` beside the tunnel's, or the daemon does not start. `auto`:
    /// the kernel where it can; `dormouse status` says why not. What stays with the daemon: docs/how-it-works.md.
    pub data_path: DataPath,
    /// Gateway alone: threads that carry ESP in UDP of sessions under load, each session by one of them, by interfaces `-w0`, `-w1` and so on beside the tunnel's. A
    /// number, or `"auto"`: one for each processor but the first. 0: the daemon's loop carries all. Needs `data_path = "user"`; `dormouse doctor` says why there are none.
    pub workers: Workers,
    /// Where numbers can be read for Prometheus, as `GET /metrics` (docs/administrator.md): an address and port such as `"127.0.0.1:9717"`, or the path of a
    /// Unix socket. They say how many use the VPN and when, but not who. Empty: nowhere.
    pub metrics: Metrics,
    /// From where they may be read, if `metrics` is an address of which other machines can reach it: nobody else is answered there. Such an address
    /// needs this.
    #[schemars(with = "Vec<String>")]
    pub metrics_from: Vec<IpNet>,
    /// Members of this group may read them besides root, if `metrics` is a path. Empty: root only.
    pub metrics_group: String,
    /// Gateway: handshakes of callers that have not shown yet that they are there.
    pub half_open: HalfOpen,
    /// Gateway: sessions that may be held at once.
    pub session_limit: usize,
    /// Gateway: sessions of sleeping devices that are kept at once. A device that comes back to a kept session needs no exchange;
    /// beyond the limit the longest sleeper is left to its ticket. 0 keeps none.
    pub sleeper_limit: usize,
    /// Gateway, or host of HIP: no session is kept longer than this for a sleeping device.
    pub sleeper_longest: Seconds,
    /// Gateway: while it has more sessions than this, awake and asleep, it keeps none for a device that goes to sleep: that one comes
    /// back by its ticket. Absent: the number of sessions does not matter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_above: Option<usize>,
    /// Gateway: where the pool is a part of a local network, whether ARP and neighbour discovery for the clients' addresses are
    /// answered there. `auto`: they are, whether the device sleeps or not; for IPv6, the interface's `proxy_ndp` is switched on.
    pub proxy_neighbours: Proxy,
}

impl Default for Daemon {
    fn default() -> Self {
        Self {
            interface: "dormouse0".into(),
            listen: vec![IpAddr::from([0, 0, 0, 0]), IpAddr::from([0u16; 8])],
            ike_port: 500,
            nat_t_port: 4500,
            ike_window: 1,
            mtu: 0,
            state_dir: "/var/lib/dormouse".into(),
            socket: "/run/dormouse/dormouse.sock".into(),
            group: String::new(),
            user: "dormouse".into(),
            log: "info".into(),
            dns: DnsMode::Auto,
            routes: Routes::Auto,
            offload: true,
            spin: Spin::default(),
            data_path: DataPath::User,
            workers: Workers::default(),
            metrics: Metrics::Off,
            metrics_from: Vec::new(),
            metrics_group: String::new(),
            half_open: HalfOpen::default(),
            session_limit: 100_000,
            sleeper_limit: 16_384,
            sleeper_longest: Seconds(4 * 3600),
            release_above: None,
            proxy_neighbours: Proxy::Auto,
        }
    }
}

/// How DNS servers from the gateway are installed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DnsMode {
    /// systemd-resolved where it runs, else resolvconf, else `/etc/resolv.conf` (restored afterwards).
    #[default]
    Auto,
    /// DNS is left alone.
    Off,
}

/// Whether a gateway answers for its clients in local networks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Proxy {
    /// ARP and neighbour discovery for a client's address are answered on the interface whose network holds it. IPv4 must be
    /// forwarded there; for IPv6, `proxy_ndp` of the interface is switched on.
    #[default]
    Auto,
    /// Nothing is answered.
    Off,
}

/// Which end of the connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Initiates: the device.
    Client,
    /// Answers: the gateway.
    Gateway,
    /// Both, among hosts that know each other by their identities: the Host Identity Protocol.
    Hip,
}

/// One connection.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Connection {
    /// `client` or `gateway` of IKEv2, or `hip`, which has the section `hip` and of the rest only `auto` and `block`.
    pub role: Role,
    /// Client: the gateway's name or address. Of a name's addresses, in both families, the first to which there is a way is used; the
    /// others when that one does not answer, or when the device is where only they can be reached.
    pub gateway: Option<String>,
    /// Client: connect when the daemon starts, rather than on `dormouse up`. HIP: call every peer whose address is known then, rather than
    /// with the first packet for it.
    #[serde(default)]
    pub auto: bool,
    /// Client: whether what the tunnel should carry (`child.remote`) may leave outside of it, even where a local network announces routes of its own
    /// (docs/leaks.md). `off`: it may. `connected`: not from the first connection on until `dormouse down` or the daemon's orderly stop:
    /// not while the radio sleeps, the session is lost, or the daemon was killed. `always`: never, also before the first connection, at boot
    /// and without the daemon; `dormoused --unblock` ends it. Absent: `connected` where all of IPv4 or IPv6 belongs into the
    /// tunnel, which then counts for both; otherwise `off`. HIP: what is for a HIT leaves by the tunnel alone, and what is for or from one comes
    /// by it alone; absent: `connected`, which is from the daemon's start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<Block>,
    /// Client: `block` leaves out private addresses that are neighbours of this machine: printers, and its router. Not name servers
    /// among them, unless the gateway gives none.
    #[serde(default = "yes")]
    pub local_network: bool,
    /// Who we are and how we prove it.
    #[serde(default)]
    pub local: LocalAuth,
    /// Who the peer must be and how it proves it.
    #[serde(default)]
    pub remote: RemoteAuth,
    /// The connection carries no traffic, but keys of headers for access routers (`docs/wire/mlike.md`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<Keys>,
    /// HIP: this host's identity and its peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hip: Option<Hip>,
    /// A further shared secret against quantum computers (PPK).
    #[serde(default)]
    pub ppk: Ppk,
    /// The IKE SA: algorithms, lifetimes, mobility, liveness.
    #[serde(default)]
    pub ike: Ike,
    /// The CHILD SA: what is tunnelled and how it is protected.
    #[serde(default)]
    pub child: Child,
    /// Further CHILD SAs by name, `[connection.NAME.children.OTHER]`, for gateways that want one for each network. They have the keys of
    /// `child` (but `request_address`, which counts for all), come up after it, and are rekeyed and deleted one by one. A gateway takes
    /// the one that fits what its client asks for best.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub children: BTreeMap<String, Child>,
    /// Session resumption (RFC 5723).
    #[serde(default)]
    pub resumption: Resumption,
    /// Client: the wake-up ladder.
    #[serde(default)]
    pub wake: Wake,
    /// Gateway: what clients are given.
    #[serde(default)]
    pub pool: Pool,
    /// Renewal of clients' certificates through the tunnel: at a gateway with an authority of its own (`dormouse gateway init`), and at its clients
    /// (`dormouse renew`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewals: Option<Renewals>,
    /// Gateway: what becomes of the sessions that an identity has when it begins another one by full authentication.
    #[serde(default)]
    pub unique: Unique,
    /// Gateway: sessions that one identity may have at once, at all gateways that share a database; where `unique` is `replace` or `keep`, one more for a moment if it is 1.
    #[serde(default = "sessions")]
    pub sessions: u32,
    /// Gateway: clients reach no other client, of this connection or another, and no other client reaches them.
    #[serde(default)]
    pub isolate: bool,
    /// Gateway: what some clients have instead, `[[connection.NAME.peers]]`; the first entry whose `id` means a client counts. What an
    /// entry does not say is as in the connection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<Peer>,
    /// Gateway: refuse clients that no entry of `peers` means. Off, they have what the connection says.
    #[serde(default)]
    pub peers_only: bool,
}

const fn sessions() -> u32 {
    16
}

/// What becomes of the sessions that an identity has when it begins another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unique {
    /// They end: at once if the client says that it has no other session, as ours does, otherwise ten seconds later.
    #[default]
    Replace,
    /// They stay, and the new one is refused unless it comes from the same address. A client that says that it has no other session
    /// replaces them there.
    Keep,
    /// They stay beside it: several devices share one identity, and each has an address of its own.
    Never,
}

fn yes() -> bool {
    true
}

/// When what a tunnel should carry is kept from leaving outside of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Block {
    /// Never.
    Off,
    /// From the first connection on until the user or an orderly stop ends it.
    Connected,
    /// Always.
    Always,
}

/// The IKE SA.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Ike {
    /// Algorithms in order of preference, each `encryption[-integrity]-prf-group`, such as `aes256gcm16-prfsha384-x25519` or
    /// `aes256-sha256-modp2048`; additional key exchanges follow as `-ke1_mlkem768` (RFC 9370). Empty: the defaults, which follow RFC 8247
    /// and offer `x25519-ke1_mlkem768` first. AES-CCM (RFC 5282; `aes128ccm16`, `aes256ccm12`, `aes128ccm8`) is taken only where it is named.
    pub proposals: Vec<String>,
    /// New keys after this time.
    pub rekey: Seconds,
    /// Authenticate anew after this time. 0: never. A gateway tells its clients (AUTH_LIFETIME, RFC 4478) and ends the sessions of those
    /// that have not done so; it never calls them.
    pub reauth: Seconds,
    /// Keep the session when addresses change (MOBIKE, RFC 4555).
    pub mobike: bool,
    /// Addresses at which this end can be reached besides the one in use. A client of ours goes on at another of its gateway's
    /// addresses when the one in use does not answer (MOBIKE). Gateway, if empty: those in `daemon.listen`, and where that has
    /// wildcards the addresses of the interfaces with a default route.
    pub other_addresses: Vec<IpAddr>,
    /// Tell the gateway before sleeping, and come back in one round trip, where both ends are Dormouse (`docs/wire/dormancy.md`).
    /// Harmless with any other peer.
    pub dormancy: bool,
    /// Split large IKE messages (RFC 7383), so that certificates pass networks that drop IP fragments.
    pub fragmentation: bool,
    /// Largest IKE datagram when splitting, IP and UDP headers included, in bytes.
    pub fragment_size: u16,
    /// When ESP is carried in UDP. `nat`: where a NAT asks for it. `auto`: there, and wherever both ends are Dormouse, `mobike` and
    /// `dormancy` on: it costs 8 bytes a packet, and the kernel takes many datagrams at once, but packets of protocol 50 one by one.
    /// `always`: also with other peers.
    pub esp_in_udp: EspInUdp,
    /// Whether the first CHILD SA is made with the session (in IKE_AUTH) or after it (RFC 6023). `allow`: with it, and clients may have it otherwise.
    /// `never`: with it. `prefer`: after it, with gateways that can. `force`: after it; others are left, and clients that want it at once refused.
    /// Costs a round trip; some gateways ask for it, and its keys come from a key exchange of its own. A resumption brings it back at once.
    pub childless: Childless,
    /// Client: to which gateways its own may send it (RFC 5685), for maintenance or by load: names, `*.example.org`, addresses or prefixes. Whatever is
    /// here, it goes to other addresses of its gateway's own name when it logs in, and to nothing else if this is empty. Whoever it is sent to must prove to be `remote.id` by the same means; one that does not take it is left for its own again.
    pub redirects: Vec<String>,
    /// Gateway: where clients are sent that can be (RFC 5685), a name or an address; others are served as ever. Before their first exchange if all gateway
    /// connections say the same, or else when they have proved who they are. `dormouse redirect` sends those that are connected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect_to: Option<String>,
    /// Client: UDP ports at which the gateway listens for IKE, and for IKE and ESP behind NATs: its `daemon.ike_port` and `daemon.nat_t_port`.
    pub peer_ike_port: u16,
    /// See `peer_ike_port`.
    pub peer_nat_t_port: u16,
    /// Refuse paths with a NAT (RFC 4555 section 3.9): a changed address is taken for an attack. Only where no NAT can be, as between
    /// sites.
    pub no_nats_allowed: bool,
    /// Gateway: send to a client's new address only after the client has answered from there (RFC 4555 section 3.7). Costs a round trip
    /// of silence with each move; clients that the gateway does not trust could otherwise direct its traffic at others.
    pub return_routability: bool,
    /// Client: with each new session, the gateway drops what it still has of this client's identity. `false` where several devices share
    /// one identity.
    pub initial_contact: bool,
    /// An unanswered request is sent again after this time, in milliseconds; each further wait is 1.8 times as long, 15 s at most.
    pub retransmit_ms: u32,
    /// How often a request is sent before the peer is given up. A gateway that knows MOBIKE goes on until `liveness_timeout`.
    pub retransmit_tries: u32,
    /// Client: zero bits of the hardest puzzle (RFC 8019) that is solved for a gateway under load; each bit doubles the work, which the
    /// battery pays: 18 are about a second, some joules of a small device. Harder ones are left, and the gateway serves by lot. 0: none.
    pub hardest_puzzle: u8,
    /// NAT keepalives: `"auto"` finds the longest interval that keeps the mapping, `"off"` sends none, a number is seconds.
    pub keepalive: Keepalive,
    /// Check that the peer is alive after this time without a sign of it. 0: never.
    pub liveness: Seconds,
    /// Gateway: a peer that answers nothing for this long is given up.
    pub liveness_timeout: Seconds,
}

impl Default for Ike {
    fn default() -> Self {
        Self {
            proposals: Vec::new(),
            rekey: Seconds(4 * 3600),
            reauth: Seconds(0),
            mobike: true,
            other_addresses: Vec::new(),
            dormancy: true,
            fragmentation: true,
            fragment_size: 1280,
            esp_in_udp: EspInUdp::Auto,
            childless: Childless::Allow,
            redirects: Vec::new(),
            redirect_to: None,
            peer_ike_port: 500,
            peer_nat_t_port: 4500,
            no_nats_allowed: false,
            return_routability: false,
            initial_contact: true,
            retransmit_ms: 500,
            retransmit_tries: 6,
            hardest_puzzle: 18,
            keepalive: Keepalive::Auto,
            liveness: Seconds(60),
            liveness_timeout: Seconds(120),
        }
    }
}

/// A time in whole seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Seconds(pub u32);

/// The CHILD SA. Further ones of the same connection stand in `[connection.NAME.children.OTHER]`, with the same keys but for
/// `request_address`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Child {
    /// Algorithms in order of preference, each `encryption[-integrity][-group]`, such as `aes128gcm16` or
    /// `aes256-sha256-x25519`; a group gives each rekeying its own forward secrecy. Empty: the defaults, which follow RFC 8221.
    /// AES-CCM (RFC 4309; `aes128ccm16`, `aes256ccm12`, `aes128ccm8`) is taken only where it is named, and the kernel is lent none of its SAs.
    pub proposals: Vec<String>,
    /// `tunnel`, or `transport` for what the two hosts themselves say to each other, with or without NATs between them: of what `local`
    /// and `remote` name, their own two addresses. Where these do not name them, or the peer wants no transport mode, tunnel mode is
    /// used. Of several clients behind one NAT, a gateway reaches the one that came last.
    pub mode: Mode,
    /// `whole`, `zoned` or `prefer`: whether an access router may be given keys of its own for the headers (`docs/wire/mlike.md`). `authenticated`: not
    /// encrypted.
    pub protection: Protection,
    /// The zones, where `protection` is `zoned` or `prefer`.
    pub zones: Zones,
    /// Which packets it carries where another has the same selectors.
    pub choose: Choose,
    /// Our side of the tunnel: prefixes, or `dynamic` for the address that the gateway gives us. A gateway with a pool must say what its
    /// clients reach.
    pub local: Vec<Selector>,
    /// The peer's side: prefixes, or `dynamic` for the address that we give the client, which is what a gateway with a pool means if
    /// it says nothing. What a prefix here covers is not sent in clear while the connection is up (there is no tunnel in a family in which
    /// a gateway that gives addresses gives none), also where a local network has the same addresses or announces routes to them;
    /// `local` inside of it stays here. `0.0.0.0/0` and `::/0` are the exception: what the machine has a more exact route to, its own
    /// network for one, does not go through the tunnel. `0.0.0.0/1` and `128.0.0.0/1` in the place of `0.0.0.0/0` cover that too.
    pub remote: Vec<Selector>,
    /// New keys after this time.
    pub rekey: Seconds,
    /// New keys after this many bytes, 1,048,576 or more. 0: no bound but that of the algorithm.
    pub rekey_bytes: u64,
    /// Packets by which a late packet may lag and still be accepted, from 1,024 to 65,536.
    pub replay_window: u32,
    /// Extended sequence numbers.
    pub esn: bool,
    /// Pad every packet to a multiple of this many bytes, so that its length says less. 0: no more than the cipher needs.
    pub pad_to: u16,
    /// Client: ask the gateway for an address in the tunnel. `auto` asks if `local` is `dynamic`.
    pub request_address: Request,
}

impl Default for Child {
    fn default() -> Self {
        Self {
            proposals: Vec::new(),
            mode: Mode::Tunnel,
            protection: Protection::Whole,
            zones: Zones::default(),
            choose: Choose::default(),
            local: vec![Selector::Dynamic],
            remote: vec![Selector::Net(Ipv4Net::default().into()), Selector::Net(Ipv6Net::default().into())],
            rekey: Seconds(3600),
            rekey_bytes: 0,
            replay_window: 4096,
            esn: true,
            pad_to: 0,
            request_address: Request::Auto,
        }
    }
}

/// Whether to ask for an inner address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// If `local` is `dynamic`.
    Auto,
    /// An IPv4 address only.
    Ipv4,
    /// An IPv6 address only.
    Ipv6,
    /// None.
    None,
}

/// How packets are carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Whole packets inside new outer headers.
    Tunnel,
    /// Only what follows the IP header; between the two ends themselves.
    Transport,
}

/// One side of a tunnel: a prefix, a single address, or `dynamic`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub enum Selector {
    /// A prefix.
    Net(IpNet),
    /// The address that the gateway assigns.
    Dynamic,
}

impl<'de> Deserialize<'de> for Selector {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        if text == "dynamic" {
            return Ok(Self::Dynamic);
        }
        let single = || text.parse::<IpAddr>().map(IpNet::from);
        text.parse::<IpNet>().or_else(|_| single()).map(|net| Self::Net(net.trunc())).map_err(|_| {
            serde::de::Error::custom(format!(
                "'{text}' is neither a prefix such as 10.0.0.0/8, nor an address, nor \"dynamic\""
            ))
        })
    }
}

impl Serialize for Selector {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Net(net) => s.collect_str(net),
            Self::Dynamic => s.serialize_str("dynamic"),
        }
    }
}

/// The wake-up ladder: how long each rung is tried before the next.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Wake {
    /// After a packet, an answer of any kind is awaited this long before the gateway is asked.
    pub held_ms: u32,
    /// That question (a liveness probe), and a MOBIKE update, are awaited this long.
    pub probe_ms: u32,
    /// A resumption by ticket is awaited this long.
    pub ticket_ms: u32,
    /// A full exchange is awaited this long, before it is started again with growing pauses.
    pub full_ms: u32,
    /// The gateway is believed to hold a silent SA this long; after a longer sleep the first packet goes out together with a
    /// question.
    pub gateway_holds: Seconds,
    /// Packets that are held while the radio sleeps and the session comes back, 128 KiB at most.
    pub hold_packets: usize,
}

impl Default for Wake {
    fn default() -> Self {
        Self {
            held_ms: 1_000,
            probe_ms: 3_000,
            ticket_ms: 3_000,
            full_ms: 10_000,
            gateway_holds: Seconds(120),
            hold_packets: crate::hold::MOST_PACKETS,
        }
    }
}

/// Gateway: what clients are given.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Pool {
    /// Prefixes that client addresses come from. A client keeps its address across reconnects.
    #[schemars(with = "Vec<String>")]
    pub addresses: Vec<IpNet>,
    /// DNS servers for clients.
    pub dns: Vec<IpAddr>,
    /// Prefixes that clients should send through the tunnel. Empty: what the CHILD SA allows.
    #[schemars(with = "Vec<String>")]
    pub routes: Vec<IpNet>,
    /// What the daemon does so that clients reach what is behind this machine, in the families of `addresses`, while it runs. `off`: nothing; the
    /// machine's own settings count. `route`: it switches forwarding on (`net.ipv4.ip_forward`, `net.ipv6.conf.all.forwarding`; interfaces
    /// that take router advertisements go on doing so), and off at its end if it was off. `translate`: also the clients' addresses become this
    /// machine's own, by a table `inet dormouse_forward` of nftables, where no router behind it knows the way back.
    pub forward: Forward,
}

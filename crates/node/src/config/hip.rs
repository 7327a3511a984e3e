//! A connection of the Host Identity Protocol: what may be written, and what it means. The comments are the manual, as in [`super::file`];
//! [`super::directory`] has the peers. Must never look up a name.

use super::block::Blocking;
use super::directory::{Known, Lsi, Peers, Service, mapping, tag, version};
use super::file::{Connection, Keepalive, Role, Seconds};
use super::hip_algorithms as algorithms;
pub use super::hip_algorithms::{HipCipher, HipEsp, HipGroup, HipPuzzle};
use super::hip_identities as identities;
pub use super::hip_identities::{HipIdentity, identity, identity_v1};
use super::resolve::{ConfigError, ReadFile};
use dormouse_hip as hip;
use dormouse_wire::hip::Hit;
use dormouse_wire::ip::protocol;
use ipnet::Ipv4Net;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

/// The shortest registration, in seconds (RFC 8003 section 5).
const REGISTRATION_LEAST: u32 = 10;
/// The longest domain, in bytes: a peer's name has room before it.
const DOMAIN_MOST: usize = 127;
/// What a relay needs.
const BY_UDP: &str =
    "a relay is reached by UDP, in version 2: \"udp\" in hip.carriers, first or as the carrier of the peer";

/// The Host Identity Protocol, where `role` is `hip`: this host and its peers reach each other by their host identity tags (HITs), while
/// their addresses may change.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hip {
    /// Private key of this host's identity, from `dormouse hip keygen` (PEM or DER; ECDSA P-256 or P-384, or RSA of at least 2,048 bits; of
    /// version 1 RSA from 1,024 bits on, or DSA of 1,024 bits); readable by its owner only.
    pub key: PathBuf,
    /// Private key of this host's identity in version 1, if it is not to be that of `key`: RSA from 1,024 bits on, or DSA of 1,024. Without
    /// it this host has an identity in version 1 if any of its peers has that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_v1: Option<PathBuf>,
    /// More identities of this host, each with a key and so a HIT of its own, `[[connection.NAME.hip.identities]]`. Peers are called by that of `key`
    /// unless they say another; who calls by a HIT of this host gets it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<HipIdentity>,
    /// Version of the protocol, of this host and those peers that do not say another. 1 (RFC 5201) is for peers that know no other: all its hashes are
    /// SHA-1, and an attacker with much computing power can forge its identities.
    #[serde(default = "two")]
    pub version: u8,
    /// How HIP and ESP travel: `ip`: as IP protocols 139 and 50; `udp`: in UDP, which passes NATs. Only what is named here is listened to;
    /// the first one leads to peers that do not say another.
    #[serde(default = "both")]
    pub carriers: Vec<HipCarrier>,
    /// When ESP is carried in UDP. `nat`: where HIP is, because a NAT is to be passed. `auto`: also where HIP is protocol 139, if both ends
    /// are Dormouse with `auto`, have `ip` and `udp` among their `carriers`, and have answered each other in UDP: it costs 8 bytes a packet, and the
    /// kernel takes many datagrams at once, but packets of protocol 50 one by one.
    #[serde(default)]
    pub esp_in_udp: HipEspInUdp,
    /// UDP port of HIP, here and at the peers.
    #[serde(default = "port")]
    pub udp_port: u16,
    /// Who may begin an association with this host.
    #[serde(default)]
    pub accept: HipAccept,
    /// Answer I1 packets that name no HIT, of initiators that look for any host at an address of this one (opportunistic mode). They cannot
    /// authenticate the HIT that they learn.
    #[serde(default)]
    pub opportunistic: bool,
    /// ESP suites, the best first: what is offered and what is taken. Only if they are named here: `aes128-sha1`, for old peers; `aes128ccm16`,
    /// `aes128ccm8` and `aes128gcm8`, for devices whose hardware has no other; and `null-sha256`, `null-aes-cmac` and `null-aes-gmac`, which encrypt
    /// nothing: all routers on the way can read it.
    #[serde(default = "algorithms::esp")]
    pub esp: Vec<HipEsp>,
    /// Ciphers of what HIP itself encrypts, the best first: the initiator's identity, and where the two ends may be reached through a relay. Only if it is named: `null`,
    /// which encrypts nothing, for looking at HIP on the way.
    #[serde(default = "algorithms::ciphers")]
    pub ciphers: Vec<HipCipher>,
    /// Diffie-Hellman groups, the best first: what is offered and what is taken. Version 1 has `modp3072` and `modp1536` alone of them.
    #[serde(default = "algorithms::groups")]
    pub groups: Vec<HipGroup>,
    /// The puzzles that those who call this host solve first, and those that it solves.
    #[serde(default, skip_serializing_if = "HipPuzzle::is_usual")]
    pub puzzle: HipPuzzle,
    /// Tell peers all addresses of this host, and try another when the one in use does not answer (RFC 8047); at both ends. Not in UDP.
    #[serde(default)]
    pub multihoming: bool,
    /// Ask a peer whether it is there after so long without an authentic packet of it. 0: only when a peer that is sent packets sends none.
    #[serde(default)]
    pub liveness: Seconds,
    /// Keep-alives for NATs on the way, where HIP is in UDP: without them, a host that has called from behind one is not reached any more when the NAT
    /// has forgotten it. `"auto"`: after 15 seconds without another packet; but where no relay is in play, only while the radio of neither end may sleep
    /// (`[sleep]`). `"off"`: none, also where a relay is in play, which then loses this host. A number: after so many seconds, at least 15.
    #[serde(default = "auto")]
    pub keepalive: Keepalive,
    /// Rendezvous servers (RFC 8004) at which this host registers, so that others reach it through them wherever it is: names or HITs of peers
    /// with addresses. An association with each is kept while there is a network.
    #[serde(default)]
    pub rendezvous: Vec<String>,
    /// Relays (RFC 9028) at which this host registers, so that others reach it behind a NAT: names or HITs of peers with addresses and `udp` as
    /// their carrier. What begins goes through one of them, until both ends have found a direct way; where there is none, all goes through it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relays: Vec<String>,
    /// Be a relay of control and data: hosts behind NATs register at it, and HIP and ESP between them and
    /// their peers go through it, as far as they find no direct way. It cannot read what it sends on. `udp` must be one of `carriers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay_server: Option<HipRegistrar>,
    /// For how long a registration is asked for; it is renewed in time.
    #[serde(default = "day")]
    pub registration: Seconds,
    /// Be a rendezvous server: peers register at it, and what begins an association with one of
    /// them, or says that its peer has moved, goes on to where it is. No data does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rendezvous_server: Option<HipRegistrar>,
    /// Local-scope identifiers, for programs that know IPv4 only: every peer gets an address of this prefix, by which this host alone reaches
    /// it, and so does this host; `dormouse hip peers` says which. `"1.0.0.0/8"` is customary: what else is there on the Internet, as
    /// 1.1.1.1, this host does not reach then. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub lsi: Option<Ipv4Net>,
    /// With `lsi`: protocols and ports, as `tcp/22`, of programs here that know IPv4 only: what peers send there is IPv4. All others get IPv6.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lsi_services: Vec<String>,
    /// Programs of this host find a peer as `NAME.hip`, with this domain behind it: its HIT, and its local-scope identifier if there is one.
    /// The machine asks this host about names of the domain alone, where `daemon.dns` lets it (docs/hip.md). Empty: they do not.
    #[serde(default = "domain")]
    pub domain: String,
    /// A file with more peers, read again on reload; one on each line, as `HIT NAME... ADDRESS... @RENDEZVOUS... =LSI`, where the addresses or
    /// names of its rendezvous servers have an `@`, and its local-scope identifier, if it is not to be any, a `=`; what follows a `#`
    /// does not count.
    pub hosts: Option<PathBuf>,
    /// Peers, `[[connection.NAME.hip.peers]]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<HipPeer>,
}

const fn two() -> u8 {
    2
}

fn both() -> Vec<HipCarrier> {
    vec![HipCarrier::Ip, HipCarrier::Udp]
}

fn port() -> u16 {
    hip::HostConfig::default().udp_port
}

const fn auto() -> Keepalive {
    Keepalive::Auto
}

fn domain() -> String {
    "hip".to_owned()
}

const fn day() -> Seconds {
    Seconds(86_400)
}

/// Who may register at a server, for how long, and how many.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HipRegistrar {
    /// Names or HITs of the peers that may register. Empty: everyone who may begin an association.
    #[serde(default)]
    pub clients: Vec<String>,
    /// The longest registration that is granted.
    #[serde(default = "day")]
    pub longest: Seconds,
    /// How many are registered at one time.
    #[serde(default = "clients_most")]
    pub most: usize,
}

const fn clients_most() -> usize {
    10_000
}

/// How HIP and ESP travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HipCarrier {
    /// As IP protocols 139 and 50.
    Ip,
    /// Both in UDP.
    Udp,
}

/// When ESP is carried in UDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HipEspInUdp {
    /// Where HIP is, and between our own ends.
    #[default]
    Auto,
    /// Where HIP is.
    Nat,
}

/// Who may begin an association.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HipAccept {
    /// The peers that are configured, with addresses or without.
    #[default]
    Listed,
    /// Anyone who proves an identity and is not denied.
    Any,
}

/// A peer. One without addresses, rendezvous servers and relays may call, but is not called.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HipPeer {
    /// Its host identity tag, as its `dormouse hip keygen` has shown it.
    pub hit: String,
    /// What it is called here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its local-scope identifier, if `lsi` is not to choose one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lsi: Option<Ipv4Addr>,
    /// By which of this host's `identities` it is called, by name, if not by that of `key`. A program that binds to another HIT of this host's uses that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Its version of the protocol, if not `version` of the section: its tag is of 2001:10::/28 in version 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u8>,
    /// Its addresses, the best first. It is looked for at three at most at the same time.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// Its rendezvous servers, if it has any: their addresses, or names or HITs of peers. What is looked for at none of its addresses
    /// is asked for there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rendezvous: Vec<String>,
    /// Its relays, if it is behind a NAT: their addresses, or names or HITs of peers. They are asked where none of its addresses answers, by
    /// UDP.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relays: Vec<String>,
    /// How it, and its rendezvous servers, are reached, if not by the first of `carriers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carrier: Option<HipCarrier>,
    /// So long after its base exchange an association with it ends, with either end as initiator, and the next packet begins another: so it proves its identity again,
    /// and whether it is denied or still one of the peers is asked again. That of a peer that sleeps ends when it is back. 0, or absent: it does not end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Seconds>,
    /// Departures from the RFCs that it needs, all off unless named: `puzzle-hits-swapped`, `exchange-macs-swapped`, `r2-signature-2`, `esp-icv-32`,
    /// `null-iv-16`, `secret-stripped`, `one-group`, `bare`, `known-parameters-only`, `update-ids-from-1`, `close-ack-ignored`,
    /// `esp-sequence-32`, `esp-in-udp`, for which `udp` must be one of `carriers`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quirks: Vec<String>,
}

/// A connection of HIP, ready for use.
#[derive(Debug)]
pub struct ResolvedHip {
    /// Its name.
    pub name: String,
    /// Call all peers when the daemon starts.
    pub auto: bool,
    /// What is held for it.
    pub blocking: Option<Blocking>,
    /// Who we are: in each version of HIP that we speak, that of the section first; then the others.
    pub identities: Vec<hip::Identity>,
    /// The names of the others.
    pub named: BTreeMap<Hit, String>,
    /// For the key manager.
    pub config: hip::HostConfig,
    /// What is listened to.
    pub carriers: Vec<HipCarrier>,
    /// Whom it knows.
    pub peers: Peers,
    /// Local-scope identifiers, if there are to be any.
    pub lsi: Option<Lsi>,
    /// The domain of the names of its peers; empty: there is none.
    pub domain: String,
}

/// Protocols and ports as they are written.
fn services(written: &[String]) -> Result<BTreeSet<Service>, String> {
    let one = |text: &String| {
        let kind = |name: &str| match name {
            "tcp" => Some(protocol::TCP),
            "udp" => Some(protocol::UDP),
            _ => None,
        };
        let (name, port) = text.split_once('/')?;
        Some((kind(name)?, port.parse().ok().filter(|port| *port > 0)?))
    };
    let read = |text: &String| {
        one(text).ok_or_else(|| format!("\"{text}\" is none; write \"tcp/22\" or \"udp/53\""))
    };
    written.iter().map(read).collect()
}

/// Resolves the connection of HIP, if there is one.
///
/// # Errors
/// The first thing that is wrong.
pub fn resolve_hip(
    file: &super::file::File,
    read: &mut ReadFile<'_>,
) -> Result<Option<ResolvedHip>, ConfigError> {
    let mut of_hip = file.connection.iter().filter(|(_, c)| c.role == Role::Hip);
    let Some((name, c)) = of_hip.next() else { return Ok(None) };
    if let Some((second, _)) = of_hip.next() {
        let problem = format!("{name} has this role too; one host identity is one connection");
        return Err(ConfigError::new(format!("connection.{second}.role"), problem));
    }
    let Some(h) = &c.hip else {
        return Err(ConfigError::new(format!("connection.{name}.hip"), "role = \"hip\" needs this section"));
    };
    one(name, c, h, read).map(Some)
}

/// Keys of other roles, and sections of this one, where they mean nothing.
///
/// # Errors
/// Naming the key.
pub(super) fn validate(name: &str, c: &Connection) -> Result<(), ConfigError> {
    let wrong = |key: &str, problem: &str| Err(ConfigError::new(format!("connection.{name}.{key}"), problem));
    if c.role != Role::Hip {
        return match c.hip {
            Some(_) => wrong("hip", "is for role = \"hip\"; remove it, or change the role"),
            None => Ok(()),
        };
    }
    let table = |c: &Connection| toml::Table::try_from(c).unwrap_or_default();
    let bare: Connection =
        toml::from_str("role = \"hip\"").map_err(|e| ConfigError::new(name, e.message()))?;
    let (written, unsaid) = (table(c), table(&bare));
    let idle = |key: &&String| !["role", "auto", "block", "hip"].contains(&key.as_str());
    match written.keys().filter(idle).find(|key| written.get(*key) != unsaid.get(*key)) {
        Some(key) => wrong(key, "means nothing with role = \"hip\"; remove it"),
        None => super::block::validate(name, c),
    }
}

fn one(name: &str, c: &Connection, h: &Hip, read: &mut ReadFile<'_>) -> Result<ResolvedHip, ConfigError> {
    let key = |k: &str| format!("connection.{name}.hip.{k}");
    let wrong = |k: &str, problem: &dyn std::fmt::Display| ConfigError::new(key(k), problem);
    let (identities, named_ours) = identities::read(name, h, read)?;
    let Some(first) = h.carriers.first() else {
        return Err(wrong("carriers", &"at least one is needed: \"ip\" or \"udp\""));
    };
    if h.udp_port == 0 {
        return Err(wrong("udp_port", &"0 is no port; leave the line out for the usual one"));
    }
    let versions: BTreeSet<u8> = identities.iter().map(|identity| version(identity.hit())).collect();
    algorithms::check(h, &versions).map_err(|(k, problem)| wrong(k, &problem))?;
    let only_v1 = !versions.contains(&2);
    let mut peers = Peers::of(&identities);
    // Peers can be named before they are written.
    let mut through = Vec::new();
    for (i, p) in h.peers.iter().enumerate() {
        let key = |k: &str| key(&format!("peers[{i}].{k}"));
        let quirks: Result<hip::Quirks, hip::UnknownQuirk> =
            p.quirks.iter().map(|q| q.parse::<hip::Quirk>()).collect();
        let known = Known {
            hit: tag(&p.hit).map_err(|e| ConfigError::new(key("hit"), e))?,
            names: p.name.iter().cloned().collect(),
            rendezvous: Vec::new(),
            relays: Vec::new(),
            lsi: p.lsi,
            identity: match &p.identity {
                Some(text) => {
                    let of = named_ours.iter().find(|(_, name)| *name == text).map(|(hit, _)| *hit);
                    let none =
                        || ConfigError::new(key("identity"), format!("no identity is called \"{text}\""));
                    Some(of.ok_or_else(none)?)
                }
                None => None,
            },
            lifetime: p.lifetime.filter(|l| l.0 > 0).map(|l| Duration::from_secs(l.0.into())),
            quirks: quirks.map_err(|e| ConfigError::new(key("quirks"), e.to_string()))?,
            peer: hip::Peer {
                addresses: p.addresses.clone(),
                udp: p.carrier.unwrap_or(*first) == HipCarrier::Udp,
            },
        };
        if known.quirks.has(hip::Quirk::EspInUdp) && !h.carriers.contains(&HipCarrier::Udp) {
            return Err(ConfigError::new(key("quirks"), "esp-in-udp needs \"udp\" in hip.carriers"));
        }
        if known.identity.is_some_and(|ours| version(ours) != version(known.hit)) {
            return Err(ConfigError::new(key("identity"), "has another version of HIP than the peer"));
        }
        if p.carrier.is_some_and(|carrier| !h.carriers.contains(&carrier)) {
            return Err(ConfigError::new(key("carrier"), "is not one of hip.carriers"));
        }
        if !p.relays.is_empty() && (!h.carriers.contains(&HipCarrier::Udp) || version(known.hit) != 2) {
            return Err(ConfigError::new(key("relays"), BY_UDP));
        }
        through.push((known.hit, p.rendezvous.clone(), key("rendezvous"), false));
        through.push((known.hit, p.relays.clone(), key("relays"), true));
        peers.add(known, p.version.unwrap_or(h.version)).map_err(|(k, e)| ConfigError::new(key(k), e))?;
    }
    if let Some(path) = &h.hosts {
        let wrong = |e: String| ConfigError::new(key("hosts"), format!("{}: {e}", path.display()));
        let bytes = read(path, false).map_err(|e| ConfigError::new(key("hosts"), e))?;
        let text = str::from_utf8(&bytes).map_err(|e| wrong(e.to_string()))?;
        for (i, line) in text.lines().enumerate() {
            let wrong = |e: String| wrong(format!("line {}: {e}", i + 1));
            if let Some((known, servers)) = mapping(line, *first).map_err(wrong)? {
                through.push((known.hit, servers, key("hosts"), false));
                peers.add(known, h.version).map_err(|(_, e)| wrong(e))?;
            }
        }
    }
    for (hit, servers, key, relays) in through {
        peers.reach_through(hit, &servers, relays).map_err(|e| ConfigError::new(key, e))?;
    }
    let services = services(&h.lsi_services).map_err(|e| wrong("lsi_services", &e))?;
    let lsi = match h.lsi {
        Some(prefix) => Some(peers.give_lsis(prefix, services).map_err(|e| wrong("lsi", &e))?),
        None if !services.is_empty() => return Err(wrong("lsi_services", &"needs hip.lsi")),
        None => None,
    };
    if let Some(known) = peers.iter().find(|known| known.lsi.is_some() && lsi.is_none()) {
        return Err(wrong("lsi", &format!("{} has one; name their prefix here", known.hit)));
    }
    let named = |key: &str, text: &String| match (peers.called(text), tag(text)) {
        (Some(known), _) => Ok(known.hit),
        (None, Ok(hit)) => Ok(hit),
        (None, Err(_)) => Err(wrong(key, &format!("no peer is called \"{text}\""))),
    };
    let servers = |key: &str, written: &[String]| {
        let one = |server: &String| {
            let hit = named(key, server)?;
            let known = peers.get(hit).filter(|known| !known.peer.addresses.is_empty());
            let none = || wrong(key, &format!("no address of \"{server}\" is known; add it to hip.peers"));
            let known = known.ok_or_else(none)?;
            match key {
                "relays" if !known.peer.udp || version(hit) != 2 => Err(wrong(key, &BY_UDP)),
                _ => Ok(hit),
            }
        };
        written.iter().map(one).collect::<Result<BTreeSet<_>, _>>()
    };
    let (rendezvous, relays) = (servers("rendezvous", &h.rendezvous)?, servers("relays", &h.relays)?);
    if let Some(both) = rendezvous.intersection(&relays).next() {
        return Err(wrong("relays", &format!("{both} is one of hip.rendezvous; choose one of both")));
    }
    let keepalive = match h.keepalive {
        Keepalive::Auto => hip::Keepalive::Auto,
        Keepalive::Off => hip::Keepalive::Off,
        Keepalive::Every(seconds) => hip::Keepalive::Every(Duration::from_secs(seconds.into())),
    };
    if let hip::Keepalive::Every(time) = keepalive
        && time < hip::limits::KEEPALIVE
    {
        return Err(wrong("keepalive", &format!("{} s is the least", hip::limits::KEEPALIVE.as_secs())));
    }
    if h.registration.0 < REGISTRATION_LEAST {
        return Err(wrong("registration", &format!("{REGISTRATION_LEAST} s is the least")));
    }
    if h.relay_server.is_some() && (!h.carriers.contains(&HipCarrier::Udp) || only_v1) {
        return Err(wrong("relay_server", &BY_UDP));
    }
    let registrar = |key: &str, clients: &[String], longest: Seconds, max_clients| {
        let listed: Result<_, _> = clients.iter().map(|c| named(key, c)).collect();
        let permits = if clients.is_empty() { hip::Accept::Any } else { hip::Accept::Listed(listed?) };
        let longest = Duration::from_secs(longest.0.into());
        Ok(hip::Registrar { permits, longest, max_clients })
    };
    let of_rendezvous = h.rendezvous_server.as_ref();
    let of_relay = h.relay_server.as_ref();
    let of_rendezvous =
        of_rendezvous.map(|s| registrar("rendezvous_server.clients", &s.clients, s.longest, s.most));
    let of_relay = of_relay.map(|s| registrar("relay_server.clients", &s.clients, s.longest, s.most));
    let listed = || hip::Accept::Listed(peers.iter().map(|p| p.hit).collect());
    let any = h.accept == HipAccept::Any;
    let config = hip::HostConfig {
        accept: if any { hip::Accept::Any } else { listed() },
        // Version 1 is spoken with those alone for whom it was asked.
        accept_v1: if any && h.version == 1 { hip::Accept::Any } else { listed() },
        opportunistic: h.opportunistic,
        groups: h.groups.iter().map(|group| group.group()).collect(),
        difficulty: hip::config::Difficulty {
            idle: h.puzzle.idle,
            most: h.puzzle.most,
            solve: h.puzzle.solve,
            ..hip::HostConfig::default().difficulty
        },
        ciphers: h.ciphers.iter().map(|cipher| cipher.cipher()).collect(),
        esp_suites: h.esp.iter().map(|esp| esp.suite()).collect(),
        multihoming: h.multihoming,
        liveness: (h.liveness.0 > 0).then(|| Duration::from_secs(h.liveness.0.into())),
        keepalive,
        rendezvous,
        registration: Duration::from_secs(h.registration.0.into()),
        relays,
        registrar: of_rendezvous.transpose()?,
        relay_server: of_relay.transpose()?,
        udp_port: h.udp_port,
        esp_in_udp: h.esp_in_udp == HipEspInUdp::Auto
            && [HipCarrier::Ip, HipCarrier::Udp].iter().all(|carrier| h.carriers.contains(carrier)),
        ..hip::HostConfig::default()
    };
    let (auto, blocking) = (c.auto, Blocking::of(c));
    let domain = h.domain.trim_end_matches('.').to_ascii_lowercase();
    let fit = |label: &str| {
        (1..=63).contains(&label.len()) && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    if !h.domain.is_empty() && (domain.len() > DOMAIN_MOST || !domain.split('.').all(fit)) {
        return Err(wrong("domain", &format!("\"{}\" is no name of a domain, as \"hip\" is", h.domain)));
    }
    Ok(ResolvedHip {
        name: name.into(),
        auto,
        blocking,
        identities,
        named: named_ours,
        config,
        carriers: h.carriers.clone(),
        peers,
        lsi,
        domain,
    })
}

#[cfg(test)]
mod tests;

//! Zones of CHILD SAs, and connections that carry the keys of their headers (`docs/wire/mlike.md`): what may be written, what it cannot
//! mean, and what it is to IKE. Owns these keys; who holds which keys is decided by [`dormouse_ike`].

use super::file::{Child, Connection, File, Mode, Prefix, Role};
use super::resolve::{ConfigError, Resolved, identity, pattern};
use dormouse_ike::config as ike;
use dormouse_keying::{ZoneEnd, ZoneMap};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether one key protects all of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Protection {
    /// One key protects all of it, from end to end.
    #[default]
    Whole,
    /// Each zone has keys of its own if the peer wants the same zones; otherwise as `whole`.
    Prefer,
    /// Each zone has keys of its own; with a peer that does not want the same zones there is no CHILD SA.
    Zoned,
}

/// The zones of a CHILD SA whose `protection` is not `whole`, in tunnel mode and with a cipher that authenticates (AES-GCM with a whole ICV,
/// ChaCha20-Poly1305).
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Zones {
    /// Where all zones but the last end, the same at both ends: `ip-header`, `transport-header` (with TCP's options), or so many bytes from
    /// the start of the packet, as `40`; ascending, at most 7. The keys of the first zone are for routers, those of the others stay at the
    /// two ends.
    pub ends: Vec<String>,
    /// Gateway: identities of the access routers that may have the keys of the first zone, each of which has a connection with a section
    /// `keys` here. Empty: no router.
    pub routers: Vec<String>,
    /// Gateway: routers next to the one where a device is get the keys before it comes (Proactive Key Distribution). `false`: a router
    /// gets them when the device is there, from the gateway or from the router before it (Directed Key Migration).
    pub ahead: bool,
    /// Gateway: new keys are made when more routers than this have had the present ones.
    pub most_routers: usize,
}

impl Default for Zones {
    fn default() -> Self {
        let ike = ike::ZonePolicy::default();
        Self {
            ends: vec!["transport-header".into()],
            routers: Vec::new(),
            ahead: ike.proactive,
            most_routers: ike.most_routers,
        }
    }
}

/// The connection carries no traffic, but keys of headers: between a gateway and an access router, or between two routers. A router is the
/// client of its gateway, with `auto`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    /// What the peer is.
    pub peer: KeysPeer,
    /// Gateway: outer addresses of devices that are behind this router. Empty: addresses do not tell, and the router itself says which
    /// devices are behind it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub serves: Vec<Prefix>,
    /// Gateway: identities of the routers to which devices move from this one, besides those that it tells itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub neighbours: Vec<String>,
}

/// What the peer of a connection is that carries keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KeysPeer {
    /// An access router: a gateway gives it the keys of devices that are behind it or near; to a router it is a neighbour, to which and from
    /// which keys move with a device.
    Router,
    /// A gateway: it may give this router keys, and take them back.
    Gateway,
}

fn map(key: &str, ends: &[String]) -> Result<ZoneMap, ConfigError> {
    let end = |text: &String| match text.as_str() {
        "ip-header" => Ok(ZoneEnd::IpHeader),
        "transport-header" => Ok(ZoneEnd::TransportHeader),
        bytes => bytes.parse().map(ZoneEnd::At).map_err(|_| {
            let problem =
                format!("\"{bytes}\" is neither \"ip-header\", \"transport-header\" nor a number of bytes");
            ConfigError::new(key, problem)
        }),
    };
    let ends = ends.iter().map(end).collect::<Result<Vec<_>, _>>()?;
    let problem = "one to seven ends are needed: headers first, then bytes, each behind the one before";
    ZoneMap::new(ends).ok_or_else(|| ConfigError::new(key, problem))
}

/// The routers that connections of this file lead to.
///
/// # Errors
/// The first thing that is wrong.
pub(super) fn routers(file: &File) -> Result<Vec<ike::RouterRule>, ConfigError> {
    let mut rules = Vec::new();
    for (name, c) in &file.connection {
        let Some(keys) = c.keys.as_ref().filter(|keys| keys.peer == KeysPeer::Router) else { continue };
        let key = |k: &str| format!("connection.{name}.{k}");
        let ike::IdentityPattern::Exact(id) = pattern(&key("remote.id"), &c.remote.id)? else {
            return Err(ConfigError::new(key("remote.id"), "a router is one identity, not a pattern"));
        };
        let named = keys.neighbours.iter().map(|text| identity(&key("keys.neighbours"), text));
        rules.push(ike::RouterRule {
            id,
            serves: keys.serves.iter().map(|Prefix(net)| net.trunc()).collect(),
            neighbours: named.collect::<Result<_, _>>()?,
        });
    }
    Ok(rules)
}

/// The zones of one CHILD SA, whose keys stand below `key`.
///
/// # Errors
/// The first thing that is wrong.
pub(super) fn policy(
    key: &str,
    role: Role,
    ch: &Child,
    proposals: &[ike::EspProposal],
    known: &[ike::RouterRule],
) -> Result<Option<ike::ZonePolicy>, ConfigError> {
    if ch.protection == Protection::Whole {
        return Ok(None);
    }
    let key = |k: &str| format!("{key}.{k}");
    if ch.mode == Mode::Transport {
        return Err(ConfigError::new(key("protection"), "zones are for tunnel mode alone"));
    }
    if !proposals.iter().any(|proposal| proposal.integ.is_empty()) {
        let problem = "no cipher can seal zones; they need AES-GCM with a whole ICV, or ChaCha20-Poly1305";
        return Err(ConfigError::new(key("proposals"), problem));
    }
    let zones = &ch.zones;
    if role == Role::Client && !zones.routers.is_empty() {
        return Err(ConfigError::new(key("zones.routers"), "is for gateways, which give the keys"));
    }
    let rule = |text: &String| {
        let id = identity(&key("zones.routers"), text)?;
        let rule = known.iter().find(|rule| rule.id.is_same_as(&id)).cloned();
        let problem = format!("no connection with keys.peer = \"router\" has the remote.id \"{id}\"");
        rule.ok_or_else(|| ConfigError::new(key("zones.routers"), problem))
    };
    Ok(Some(ike::ZonePolicy {
        map: map(&key("zones.ends"), &zones.ends)?,
        required: ch.protection == Protection::Zoned,
        routers: zones.routers.iter().map(rule).collect::<Result<_, _>>()?,
        proactive: zones.ahead,
        most_routers: zones.most_routers,
    }))
}

/// What contradicts that a connection carries keys: the key, and why.
///
/// # Errors
/// The first thing that is wrong.
pub(super) fn validate(c: &Connection) -> Result<(), (&'static str, &'static str)> {
    let Some(keys) = &c.keys else { return Ok(()) };
    if !c.children.is_empty() {
        return Err(("children", "a connection that carries keys carries nothing else"));
    }
    if !c.pool.addresses.is_empty() {
        return Err(("pool.addresses", "a connection that carries keys has no addresses inside"));
    }
    if keys.peer == KeysPeer::Gateway && !(keys.serves.is_empty() && keys.neighbours.is_empty()) {
        return Err(("keys.serves", "serves and neighbours are said of a router, not of a gateway"));
    }
    Ok(())
}

/// What this machine is as an access router, if some connection leads to a gateway that may give it keys.
pub(crate) fn router(connections: &[Resolved]) -> Option<ike::RouterPolicy> {
    let of = |peer| {
        let these = connections.iter().filter(move |c| c.keys == Some(peer));
        these.map(|c| &c.ike.remote_id)
    };
    let gateways: Vec<_> = of(KeysPeer::Gateway).cloned().collect();
    let neighbours = of(KeysPeer::Router).filter_map(|id| id.exact().cloned()).collect();
    (!gateways.is_empty()).then(|| ike::RouterPolicy { gateways, neighbours, ..ike::RouterPolicy::default() })
}

#[cfg(test)]
mod tests {
    use super::super::{parse, resolve};
    use super::*;

    const GATEWAY: &str = "[connection.r1]\nrole = \"gateway\"\n[connection.r1.keys]\npeer = \"router\"\n\
        serves = [\"192.0.2.0/24\"]\nneighbours = [\"r2\"]\n[connection.r1.local]\nid = \"gw\"\nsecret = \"long enough\"\n\
        [connection.r1.remote]\nid = \"r1\"\n[connection.a]\nrole = \"gateway\"\n[connection.a.local]\nid = \"gw\"\n\
        secret = \"long enough\"\n[connection.a.remote]\nid = \"d\"\n[connection.a.child]\nremote = [\"10.0.0.0/8\"]\n";

    fn load(text: &str) -> Result<Vec<Resolved>, ConfigError> {
        resolve(&parse(text).expect("it parses"), &mut |_, _| Err("no files".into()))
    }

    #[test]
    fn zones_are_off_unless_configured_and_name_their_routers() {
        let one = |lines: &str| load(&format!("{GATEWAY}{lines}\n")).expect("sound");
        let zones = |resolved: &[Resolved]| resolved[0].ike.children[0].zones.clone();
        assert_eq!(zones(&one("")), None);
        let resolved = one("protection = \"zoned\"\nzones = { routers = [\"r1\"], most_routers = 2 }");
        let policy = zones(&resolved).expect("zones");
        assert!(policy.required && policy.proactive && policy.map == ZoneMap::default());
        let rule = &policy.routers[0];
        assert_eq!((rule.serves.len(), rule.neighbours.len(), policy.most_routers), (1, 1, 2));
        assert!(resolved[1].ike.children.is_empty() && resolved[1].blocking.is_none());
        assert_eq!(router(&resolved), None, "a gateway is no router");
        let forty = zones(&one("protection = \"prefer\"\nzones.ends = [\"40\"]")).expect("zones");
        assert!(!forty.required && forty.map.ends() == [ZoneEnd::At(40)]);
        let router_file = GATEWAY.replace(
            "peer = \"router\"\nserves = [\"192.0.2.0/24\"]\nneighbours = [\"r2\"]",
            "peer = \"gateway\"",
        );
        let policy = router(&load(&router_file).expect("sound")).expect("a router");
        assert!(policy.gateways.len() == 1 && policy.neighbours.is_empty());
    }

    #[test]
    fn what_zones_cannot_be_is_named() {
        for (lines, key) in [
            ("protection = \"zoned\"\nmode = \"transport\"", "connection.a.child.protection"),
            ("protection = \"zoned\"\nproposals = [\"aes128-sha256\"]", "connection.a.child.proposals"),
            ("protection = \"zoned\"\nzones.ends = []", "connection.a.child.zones.ends"),
            ("protection = \"zoned\"\nzones.ends = [\"40\", \"ip-header\"]", "connection.a.child.zones.ends"),
            ("protection = \"zoned\"\nzones.ends = [\"forty\"]", "connection.a.child.zones.ends"),
            ("protection = \"zoned\"\nzones.routers = [\"r9\"]", "connection.a.child.zones.routers"),
            ("[connection.r1.pool]\naddresses = [\"10.9.0.0/24\"]", "connection.r1.pool.addresses"),
        ] {
            assert_eq!(load(&format!("{GATEWAY}{lines}\n")).expect_err(lines).key, key);
        }
    }
}

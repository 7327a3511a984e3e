//! Zones of CHILD SAs, and connections that carry the keys of their headers (`docs/wire/mlike.md`): what may be written, what it cannot
//! mean, and what it is to IKE. Owns these keys; who holds which keys is decided by [`dormouse_ike`].

use super::file::{Child, Connection, File, Mode, Prefix, Role};
use super::resolve::{ConfigError, Resolved, identity, pattern};
use dormouse_crypto::cert::Identity;
use dormouse_ike::config as ike;
use dormouse_keying::{ZoneEnd, ZoneMap};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU16;

/// How packets are protected: what is encrypted, and whether one key protects all of it.
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
    /// Packets are authenticated and not encrypted (AES-GMAC, RFC 4543): all on the way can read them, and changed, repeated or forged ones are dropped. In `children.NAME` alone, with
    /// `choose.every` or `choose.dscp`, beside an encrypted CHILD SA for the rest; with a peer that does not say so too there is no such CHILD SA.
    Authenticated,
}

impl Protection {
    /// Whether packets may have zones.
    const fn has_zones(self) -> bool {
        matches!(self, Self::Prefer | Self::Zoned)
    }
}

/// The zones of a CHILD SA whose `protection` is `zoned` or `prefer`, in tunnel mode and with a cipher that authenticates (AES-GCM with a whole ICV,
/// ChaCha20-Poly1305).
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Zones {
    /// Where all zones but the last end, the same at both ends: `ip-header`, `transport-header` (with TCP's options), or so many bytes from
    /// the start of the packet, as `40`; ascending, at most 7. The keys of the first zone are for routers, those of the others stay at the
    /// two ends. `none`, as the first or only end, is a first zone without bytes: routers read nothing of a packet and still tell it from a forged
    /// one, which is all that `repair = "esp-arq"` needs; SNOOP has nothing to read then, and repairs nothing. A number of bytes takes no account of what is there: with `40`, the zones of paper 003, routers read the first 12 bytes of what UDP
    /// carries in IPv4 (all of a short message), and miss the options of TCP.
    pub ends: Vec<String>,
    /// Gateway: identities of the access routers that may have the keys of the first zone, each of which has a connection with a section
    /// `keys` here. Empty: no router.
    pub routers: Vec<String>,
    /// Gateway: routers next to the one where a device is get the keys before it comes (Proactive Key Distribution). `false`: a router
    /// gets them when the device is there, from the gateway or from the router before it (Directed Key Migration).
    pub ahead: bool,
    /// Gateway: new keys are made when more routers than this have had the present ones.
    pub most_routers: usize,
    /// Client: access routers with `repair = "esp-arq"` are told which packets came, and what they repeat is put in order again. Where no such router
    /// is, that costs four small packets where the device's way is a new one, and one in half a minute of traffic.
    pub reports: bool,
}

impl Default for Zones {
    fn default() -> Self {
        let ike = ike::ZonePolicy::default();
        Self {
            ends: vec!["transport-header".into()],
            routers: Vec::new(),
            ahead: ike.proactive,
            most_routers: ike.most_routers,
            reports: false,
        }
    }
}

/// The connection carries no traffic, but keys of headers: between a gateway and an access router, or between two routers. A router is the
/// client of its gateway, with `auto`. A machine takes keys only if its section `router` repairs something.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    /// What the peer is.
    pub peer: KeysPeer,
    /// Gateway: outer addresses of devices that are behind this router. Empty: addresses do not tell, and the router itself says which
    /// devices are behind it, of those whose address no other router serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub serves: Vec<Prefix>,
    /// Gateway: identities of the routers to which devices move from this one, besides those that it tells itself. `zones.routers` names
    /// them too.
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
    let end = |text: &String| {
        match text.as_str() {
        "ip-header" => Ok(ZoneEnd::IpHeader),
        "transport-header" => Ok(ZoneEnd::TransportHeader),
        "none" => Ok(ZoneEnd::At(0)),
        bytes => bytes.parse::<NonZeroU16>().map(|at| ZoneEnd::At(at.get())).map_err(|_| {
            let problem = format!(
                "\"{bytes}\" is neither \"ip-header\", \"transport-header\", a number of bytes from 1 to 65535, nor \"none\""
            );
            ConfigError::new(key, problem)
        }),
    }
    };
    let ends = ends.iter().map(end).collect::<Result<Vec<_>, _>>()?;
    let problem = "one to seven ends are needed: headers first, then bytes, each behind the one before; \"none\" \
                   stands alone, or first and before bytes";
    ZoneMap::new(ends).ok_or_else(|| ConfigError::new(key, problem))
}

/// The routers that connections of this file lead to.
///
/// # Errors
/// The first thing that is wrong.
pub(super) fn routers(file: &File) -> Result<Vec<ike::RouterRule>, ConfigError> {
    let (mut rules, lists) = (Vec::new(), lists(file));
    for (name, c) in file.connection.iter().filter(|(_, c)| c.role != Role::Hip) {
        let Some(keys) = &c.keys else { continue };
        let key = |k: &str| format!("connection.{name}.{k}");
        let ike::IdentityPattern::Exact(id) = pattern(&key("remote.id"), &c.remote.id)? else {
            let problem = "a router, or a gateway that may give keys, is one identity, not a pattern";
            return Err(ConfigError::new(key("remote.id"), problem));
        };
        if keys.peer == KeysPeer::Gateway {
            continue;
        }
        let named = keys.neighbours.iter().map(|text| identity(&key("keys.neighbours"), text));
        let neighbours: Vec<Identity> = named.collect::<Result<_, _>>()?;
        let serves: Vec<_> = keys.serves.iter().map(|Prefix(net)| net.trunc()).collect();
        let has = |list: &&Vec<Identity>, id: &Identity| list.iter().any(|other| other.is_same_as(id));
        let with: Vec<_> = lists.iter().filter(|list| has(list, &id)).collect();
        for (said, k) in [(!serves.is_empty(), "keys.serves"), (!neighbours.is_empty(), "keys.neighbours")] {
            if said && with.is_empty() {
                let problem = format!("means nothing: zones.routers of no CHILD SA here names \"{id}\"");
                return Err(ConfigError::new(key(k), problem));
            }
        }
        if let Some(other) = neighbours.iter().find(|other| !with.iter().any(|list| has(list, other))) {
            let problem = format!("\"{other}\" gets no keys: zones.routers does not name it beside \"{id}\"");
            return Err(ConfigError::new(key("keys.neighbours"), problem));
        }
        rules.push(ike::RouterRule { id, serves, neighbours });
    }
    Ok(rules)
}

/// The routers of each CHILD SA that may give some keys. What is no identity is refused where the SA is resolved.
fn lists(file: &File) -> Vec<Vec<Identity>> {
    let children = |c: &Connection| -> Vec<Child> {
        let first = c.keys.is_none().then(|| c.child.clone());
        first.into_iter().chain(c.children.values().cloned()).collect()
    };
    let of = |child: Child| -> Vec<Identity> {
        child.zones.routers.iter().filter_map(|text| text.parse().ok()).collect()
    };
    let all = file.connection.values().filter(|c| c.role == Role::Gateway).flat_map(children);
    all.filter(|child| child.protection.has_zones()).map(of).collect()
}

/// Whether something else is written than what counts where nothing is.
fn says<T: Serialize + Default>(written: &T) -> bool {
    let table = |value: &T| toml::Table::try_from(value).unwrap_or_default();
    table(written) != table(&T::default())
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
    let key = |k: &str| format!("{key}.{k}");
    if !ch.protection.has_zones() {
        let problem = "means nothing with this protection; remove it, or set \"zoned\" or \"prefer\"";
        return if says(&ch.zones) { Err(ConfigError::new(key("zones"), problem)) } else { Ok(None) };
    }
    if ch.mode == Mode::Transport {
        return Err(ConfigError::new(key("protection"), "zones are for tunnel mode alone"));
    }
    if !proposals.iter().any(|p| p.integ.is_empty() && p.encr.iter().any(|encr| encr.suits_zones())) {
        let problem = "no cipher can seal zones; they need AES-GCM with a whole ICV, or ChaCha20-Poly1305";
        return Err(ConfigError::new(key("proposals"), problem));
    }
    let zones = &ch.zones;
    let unsaid = Zones::default();
    for (said, k) in [
        (!zones.routers.is_empty(), "zones.routers"),
        (zones.ahead != unsaid.ahead, "zones.ahead"),
        (zones.most_routers != unsaid.most_routers, "zones.most_routers"),
    ] {
        if said && role == Role::Client {
            return Err(ConfigError::new(key(k), "is for gateways, which give the keys"));
        }
    }
    if zones.reports && role == Role::Gateway {
        return Err(ConfigError::new(
            key("zones.reports"),
            "is for clients, which say what came over their radio",
        ));
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
    if says(&c.child) {
        return Err(("child", "a connection that carries keys carries nothing else"));
    }
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
        [connection.r1.local]\nid = \"gw\"\nsecret = \"long enough\"\n\
        [connection.r1.remote]\nid = \"r1\"\n[connection.r2]\nrole = \"gateway\"\nkeys.peer = \"router\"\n\
        local = { id = \"gw\", secret = \"long enough\" }\nremote.id = \"r2\"\n[connection.a]\nrole = \"gateway\"\n[connection.a.local]\nid = \"gw\"\n\
        secret = \"long enough\"\n[connection.a.remote]\nid = \"d\"\n[connection.a.child]\nremote = [\"10.0.0.0/8\"]\n";

    fn load(text: &str) -> Result<Vec<Resolved>, ConfigError> {
        resolve(&parse(text).expect("it parses"), &mut |_, _| Err("no files".into()))
    }

    #[test]
    fn zones_are_off_unless_configured_and_name_their_routers() {
        let one = |lines: &str| load(&format!("{GATEWAY}{lines}\n")).expect("sound");
        let zones = |resolved: &[Resolved]| resolved[0].ike.children[0].zones.clone();
        assert_eq!(zones(&one("")), None);
        let known = GATEWAY.replace(
            "peer = \"router\"\n[",
            "peer = \"router\"\nserves = [\"192.0.2.0/24\"]\nneighbours = [\"r2\"]\n[",
        );
        let lines = "protection = \"zoned\"\nzones = { routers = [\"r1\", \"r2\"], most_routers = 2 }\n";
        let resolved = load(&(known + lines)).expect("sound");
        let policy = zones(&resolved).expect("zones");
        assert!(policy.required && policy.proactive && policy.map == ZoneMap::default());
        let rule = &policy.routers[0];
        assert_eq!((rule.serves.len(), rule.neighbours.len(), policy.most_routers), (1, 1, 2));
        assert!(resolved[1].ike.children.is_empty() && resolved[1].blocking.is_none());
        assert_eq!(router(&resolved), None, "a gateway is no router");
        let forty = zones(&one("protection = \"prefer\"\nzones.ends = [\"40\"]")).expect("zones");
        assert!(!forty.required && forty.map.ends() == [ZoneEnd::At(40)]);
        let nothing = zones(&one("protection = \"zoned\"\nzones.ends = [\"none\"]")).expect("zones");
        assert_eq!(nothing.map.ends(), [ZoneEnd::At(0)]);
        let router_file = GATEWAY
            .replace("[connection.r1.keys]\npeer = \"router\"", "[connection.r1.keys]\npeer = \"gateway\"");
        let policy = router(&load(&router_file).expect("sound")).expect("a router");
        assert!(policy.gateways.len() == 1 && policy.neighbours.len() == 1);
    }

    #[test]
    fn what_zones_cannot_be_is_named() {
        for (lines, key) in [
            ("protection = \"zoned\"\nmode = \"transport\"", "connection.a.child.protection"),
            ("protection = \"zoned\"\nproposals = [\"aes128-sha256\"]", "connection.a.child.proposals"),
            ("protection = \"zoned\"\nzones.ends = []", "connection.a.child.zones.ends"),
            ("protection = \"zoned\"\nzones.ends = [\"40\", \"ip-header\"]", "connection.a.child.zones.ends"),
            ("protection = \"zoned\"\nzones.ends = [\"forty\"]", "connection.a.child.zones.ends"),
            ("protection = \"zoned\"\nzones.ends = [\"0\"]", "connection.a.child.zones.ends"),
            (
                "protection = \"zoned\"\nzones.ends = [\"ip-header\", \"none\"]",
                "connection.a.child.zones.ends",
            ),
            ("protection = \"zoned\"\nzones.routers = [\"r9\"]", "connection.a.child.zones.routers"),
            ("[connection.r1.pool]\naddresses = [\"10.9.0.0/24\"]", "connection.r1.pool.addresses"),
            ("zones.routers = [\"r1\"]", "connection.a.child.zones"),
            ("protection = \"zoned\"\nzones.reports = true", "connection.a.child.zones.reports"),
            ("zones.reports = true", "connection.a.child.zones"),
            ("[connection.r1.child]\nrekey = 60", "connection.r1.child"),
            ("[connection.r1.children.more]", "connection.r1.children"),
        ] {
            assert_eq!(load(&format!("{GATEWAY}{lines}\n")).expect_err(lines).key, key);
        }
    }

    #[test]
    fn a_client_reports_where_it_is_told_to() {
        let reports = |zones: &str| {
            let client = GATEWAY.split("[connection.a]").next().expect("routers").to_owned()
                + "[connection.a]\nrole = \"client\"\ngateway = \"192.0.2.1\"\nremote.id = \"gw\"\n\
                   local = { id = \"d\", secret = \"long enough\" }\n[connection.a.child]\nremote = [\"10.0.0.0/8\"]\n\
                   protection = \"zoned\"\n";
            load(&(client + zones)).expect("sound")[0].reports
        };
        assert!(!reports("") && reports("zones.reports = true\n"));
    }

    /// A list that begins with a cipher for zones, or ends with one, is sound; one without is not.
    #[test]
    fn some_cipher_must_seal_zones() {
        let list = |ciphers: &str| {
            load(&format!("{GATEWAY}protection = \"zoned\"\nproposals = [{ciphers}]\n")).map(drop)
        };
        assert_eq!(list("\"aes128-sha256\", \"aes128gcm16\""), Ok(()));
        assert_eq!(list("\"chacha20poly1305\""), Ok(()));
        assert!(list("\"aes128ctr-sha256\"").is_err());
    }

    #[test]
    fn keys_that_would_do_nothing_are_refused() {
        let zoned = |routers: &str| format!("protection = \"zoned\"\nzones.routers = [{routers}]\n");
        let said = |of: &str, line: &str, routers: &str| {
            let to = |peer: &str| format!("{peer}\n{line}\n");
            let file = match of {
                "r1" => GATEWAY.replace("peer = \"router\"\n[", &(to("peer = \"router\"") + "[")),
                _ => GATEWAY.replace("keys.peer = \"router\"\n", &to("keys.peer = \"router\"")),
            };
            assert_ne!(file, GATEWAY);
            load(&(file + &zoned(routers))).map(drop).map_err(|e| e.key)
        };
        let neighbours = "neighbours = [\"r2\"]";
        assert_eq!(said("r1", neighbours, "\"r1\", \"r2\""), Ok(()));
        assert_eq!(said("r1", neighbours, "\"r1\""), Err("connection.r1.keys.neighbours".into()));
        assert_eq!(said("r1", neighbours, "\"r2\""), Err("connection.r1.keys.neighbours".into()));
        let serves = "serves = [\"192.0.2.0/24\"]";
        assert_eq!(said("r1", serves, "\"r1\""), Ok(()));
        assert_eq!(said("r1", serves, "\"r2\""), Err("connection.r1.keys.serves".into()));
        assert_eq!(
            said("r2", "keys.serves = [\"192.0.2.0/24\"]", "\"r1\""),
            Err("connection.r2.keys.serves".into())
        );
    }

    #[test]
    fn who_gives_keys_is_one_gateway() {
        let router = |id: &str| {
            load(&format!(
                "[connection.gw]\nrole = \"client\"\ngateway = \"192.0.2.1\"\nkeys.peer = \"gateway\"\n\
                 local = {{ id = \"r1\", secret = \"long enough\" }}\nremote.id = \"{id}\"\n"
            ))
            .map(drop)
            .map_err(|e| e.key)
        };
        assert_eq!(router("gw.example"), Ok(()));
        for pattern in ["*", "*.example", "*@example"] {
            assert_eq!(router(pattern), Err("connection.gw.remote.id".into()), "{pattern}");
        }
    }

    #[test]
    fn a_client_and_a_host_of_hip_are_told_what_is_not_theirs() {
        let client = |line: &str| {
            load(&format!(
                "[connection.c]\nrole = \"client\"\ngateway = \"192.0.2.1\"\nremote.id = \"gw\"\n\
                 local = {{ id = \"d\", secret = \"long enough\" }}\n[connection.c.child]\nprotection = \"zoned\"\n{line}\n"
            ))
            .map(drop)
            .map_err(|e| e.key)
        };
        assert_eq!(client("zones.ends = [\"40\"]"), Ok(()));
        for (line, key) in
            [("zones.ahead = false", "zones.ahead"), ("zones.most_routers = 1", "zones.most_routers")]
        {
            assert_eq!(client(line), Err(format!("connection.c.child.{key}")));
        }
        let hip = "[connection.h]\nrole = \"hip\"\nkeys.peer = \"router\"\n";
        assert_eq!(load(hip).expect_err("keys").key, "connection.h.keys");
    }
}

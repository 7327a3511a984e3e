//! What a gateway's configuration says of its clients and of some of them: its keys, and policies for [`dormouse_ike::admission`]. Owns their
//! meaning and what they cannot mean; who is meant is decided when a client comes.

use super::file::{Connection, Role, Seconds, Selector, Unique};
use super::resolve::{ConfigError, pattern};
use dormouse_ike::config as ike;
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::Arc;
use std::time::Duration;

/// Gateway: what the clients have that `id` means.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// Who is meant, in the notation of `remote.id`; it must be within it.
    pub id: String,
    /// Addresses and prefixes that theirs come from; of a family that is not named, those of `pool.addresses`. They are given to no
    /// others: an address belongs to the narrowest prefix that is configured for it. A single address is for one client: the
    /// first of those that the pattern matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Prefix>,
    /// What they reach behind this gateway, within what the CHILD SAs have in `local`. Empty: all of that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub local: Vec<Prefix>,
    /// As in the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<Unique>,
    /// As in the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u32>,
    /// They authenticate anew within this time, as `ike.reauth` says for the connection. 0: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Seconds>,
    /// As in the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolate: Option<bool>,
}

/// A prefix, or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub struct Prefix(pub IpNet);

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        match Selector::deserialize(d)? {
            Selector::Net(net) => Ok(Self(net)),
            Selector::Dynamic => Err(serde::de::Error::custom(
                "'dynamic' is neither a prefix such as 10.0.0.0/8 nor an address",
            )),
        }
    }
}

impl Serialize for Prefix {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&self.0)
    }
}

/// Gives a gateway's connection its policy, and a policy of their own to the clients that it names.
///
/// # Errors
/// The first thing that is wrong.
pub(super) fn policies(name: &str, c: &Connection, conn: &mut ike::Connection) -> Result<(), ConfigError> {
    let key = |k: &str| format!("connection.{name}.{k}");
    if c.role == Role::Client {
        let said = [
            ("peers", !c.peers.is_empty()),
            ("peers_only", c.peers_only),
            ("isolate", c.isolate),
            ("unique", c.unique != Unique::default()),
        ];
        return match said.into_iter().find(|(_, said)| *said) {
            Some((k, _)) => {
                Err(ConfigError::new(key(k), "is for gateways; a client's one peer is its gateway"))
            }
            None => Ok(()),
        };
    }
    if c.sessions == 0 {
        return Err(ConfigError::new(key("sessions"), "0 admits no peer; 1 is the least"));
    }
    if c.peers_only && c.peers.is_empty() {
        return Err(ConfigError::new(key("peers_only"), "admits no peer without [[peers]] entries"));
    }
    conn.answering.policy = ike::PeerPolicy {
        pool: c.pool.addresses.iter().map(IpNet::trunc).collect(),
        isolate: c.isolate,
        unique: unique(c.unique),
        sessions: c.sessions as usize,
        lifetime: conn.timing.reauthenticate,
        ..ike::PeerPolicy::default()
    };
    conn.answering.peers_only = c.peers_only;
    let rules = c.peers.iter().enumerate().map(|(i, peer)| rule(&key(&format!("peers[{i}]")), peer, conn));
    conn.answering.peers = rules.collect::<Result<_, _>>()?;
    Ok(())
}

fn unique(unique: Unique) -> ike::Unique {
    match unique {
        Unique::Replace => ike::Unique::Replace,
        Unique::Keep => ike::Unique::Keep,
        Unique::Never => ike::Unique::Never,
    }
}

fn rule(key: &str, peer: &Peer, conn: &ike::Connection) -> Result<ike::PeerRule, ConfigError> {
    let key = |k: &str| format!("{key}.{k}");
    let id = pattern(&key("id"), &peer.id)?;
    if let ike::IdentityPattern::Exact(id) = &id
        && !conn.remote_id.matches(id)
    {
        let problem =
            format!("\"{id}\" is not within remote.id (\"{}\"), and is never admitted", conn.remote_id);
        return Err(ConfigError::new(key("id"), problem));
    }
    if peer.sessions == Some(0) {
        return Err(ConfigError::new(
            key("sessions"),
            "0 admits no session: use dormouse deny; 1 is the least",
        ));
    }
    let mut theirs = conn.clone();
    theirs.answering.peers.clear();
    let named: Vec<IpNet> = peer.addresses.iter().map(|Prefix(net)| net.trunc()).collect();
    let has = |v6: bool| named.iter().any(|net| net.addr().is_ipv6() == v6);
    let (v4, v6) = (has(false), has(true));
    let policy = &mut theirs.answering.policy;
    policy.pool.retain(|net| if net.addr().is_ipv6() { !v6 } else { !v4 });
    policy.pool.extend(named);
    policy.unique = peer.unique.map_or(policy.unique, unique);
    policy.sessions = peer.sessions.map_or(policy.sessions, |n| n as usize);
    policy.isolate = peer.isolate.unwrap_or(policy.isolate);
    if let Some(lifetime) = peer.lifetime {
        policy.lifetime = (lifetime.0 > 0).then(|| Duration::from_secs(lifetime.0.into()));
    }
    let reach: Vec<IpNet> = peer.local.iter().map(|Prefix(net)| *net).collect();
    if !reach.is_empty() && !theirs.narrow(&reach) {
        let problem = "has nothing in common with what the CHILD SAs of the connection have in `local`";
        return Err(ConfigError::new(key("local"), problem));
    }
    Ok(ike::PeerRule { id, connection: Arc::new(theirs) })
}

#[cfg(test)]
mod tests {
    use super::super::{parse, resolve};
    use super::*;

    fn gateway(more: &str) -> Result<Arc<ike::Connection>, ConfigError> {
        let text = format!(
            "[connection.a]\nrole = \"gateway\"\n{more}\n[connection.a.local]\nid = \"gw.example.org\"\nsecret = \"a long secret\"\n\
             [connection.a.remote]\nid = \"*.example.org\"\n[connection.a.child]\nlocal = [\"10.0.0.0/8\", \"fd00::/16\"]\n\
             [connection.a.pool]\naddresses = [\"10.55.0.0/24\", \"fd55::/64\"]\n"
        );
        let file = parse(&text).expect("it parses");
        resolve(&file, &mut |_, _| Err("no files here".into())).map(|all| all[0].ike.clone())
    }

    fn with(peers: &str) -> String {
        format!("peers = [{peers}]")
    }

    #[test]
    fn an_entry_has_what_it_says_and_the_rest_from_its_connection() {
        let conn = gateway(&with(
            "{ id = \"joe.example.org\", addresses = [\"10.55.0.7\"], local = [\"10.1.0.0/16\"], lifetime = 60, isolate = true }",
        ))
        .unwrap();
        let theirs = &conn.answering.peers[0].connection;
        let nets = |list: &[&str]| list.iter().map(|n| n.parse().unwrap()).collect::<Vec<IpNet>>();
        assert_eq!(theirs.answering.policy.pool, nets(&["fd55::/64", "10.55.0.7/32"]));
        assert_eq!(theirs.answering.policy.lifetime, Some(Duration::from_secs(60)));
        assert!(theirs.answering.policy.isolate && !conn.answering.policy.isolate);
        assert_eq!(theirs.children[0].ts_local, [ike::SelectorSpec::Net("10.1.0.0/16".parse().unwrap())]);
        assert_eq!(conn.children[0].ts_local.len(), 2);
        assert_eq!((theirs.answering.policy.sessions, theirs.name.as_str()), (16, "a"));
    }

    #[test]
    fn what_an_entry_cannot_mean_is_named() {
        for (more, key) in [
            (with("{ id = \"joe.example.net\" }"), "connection.a.peers[0].id"),
            (with("{ id = \"*.example.org\", local = [\"192.0.2.0/24\"] }"), "connection.a.peers[0].local"),
            (with("{ id = \"*.example.org\", sessions = 0 }"), "connection.a.peers[0].sessions"),
            ("peers_only = true".into(), "connection.a.peers_only"),
            ("sessions = 0".into(), "connection.a.sessions"),
        ] {
            assert_eq!(gateway(&more).expect_err(key).key, key, "{more}");
        }
    }
}

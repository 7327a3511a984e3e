//! What must not leave outside of a client connection's tunnel, by its configuration alone: no file that the configuration names is read
//! for it, so that it is known at boot. Owns the defaults; [`super::file`] has the keys.

use super::directory::tags;
use super::file::{Block, Connection, Role, Selector};
use super::resolve::ConfigError;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Longest name of a connection that something can be held for, in bytes: it becomes a name in nftables.
const NAME_MOST: usize = 40;

/// What is held for a client's connection or one of HIP, and when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blocking {
    /// When.
    pub block: Block,
    /// What the tunnel should carry, as few prefixes as can be.
    pub carried: Vec<IpNet>,
    /// Of that, what no local network counts for: what is written as less than all of a family.
    pub exact: Vec<IpNet>,
    /// Our own side, where it lies inside of that.
    pub own: Vec<IpNet>,
    /// The local networks can be reached all the same.
    pub local_network: bool,
    /// What comes from there or is for there comes by the tunnel alone.
    pub inward: bool,
}

impl Blocking {
    /// Of a connection as it is written; `None` for a gateway's.
    #[must_use]
    pub fn of(c: &Connection) -> Option<Self> {
        match c.role {
            Role::Client => {}
            Role::Gateway => return None,
            Role::Hip => {
                let hip = c.hip.as_ref();
                let versions = hip.map_or_else(|| vec![2], |hip| hip.versions());
                let lsi = hip.and_then(|h| h.lsi);
                let carried = versions.into_iter().map(|version| tags(version).into());
                let carried: Vec<IpNet> = carried.chain(lsi.map(IpNet::V4)).collect();
                return Some(Self {
                    block: c.block.unwrap_or(Block::Connected),
                    exact: carried.clone(),
                    carried,
                    own: Vec::new(),
                    local_network: false,
                    inward: true,
                });
            }
        }
        let children = || std::iter::once(&c.child).chain(c.children.values());
        let written = whole(children().flat_map(|ch| prefixes(&ch.remote)).collect());
        let mut carried = IpNet::aggregate(&written);
        let everything: [IpNet; 2] = [Ipv4Net::default().into(), Ipv6Net::default().into()];
        let full = everything.iter().any(|all| carried.contains(all));
        // A tunnel for all of one family is not to be bypassed by the same programs over the other.
        if full {
            carried = everything.to_vec();
        }
        let inside = |net: &IpNet| carried.iter().any(|c| c.contains(net) && c != net);
        let own = children().flat_map(|ch| prefixes(&ch.local)).filter(inside).collect();
        let exact = written.into_iter().filter(|net| net.prefix_len() > 0).collect();
        let unsaid = if full { Block::Connected } else { Block::Off };
        let block = c.block.unwrap_or(unsaid);
        Some(Self { block, carried, exact, own, local_network: c.local_network, inward: false })
    }

    /// Whether all of a family belongs into the tunnel.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.carried.iter().any(|net| net.prefix_len() == 0)
    }
}

/// Both halves of a family are all of it, which leaves local networks outside. What is named besides stays: it is never local.
#[must_use]
pub fn whole(mut nets: Vec<IpNet>) -> Vec<IpNet> {
    for all in [IpNet::from(Ipv4Net::default()), IpNet::from(Ipv6Net::default())] {
        let halves: Vec<IpNet> = all.subnets(1).into_iter().flatten().collect();
        if halves.iter().all(|half| nets.contains(half)) {
            nets.retain(|net| !halves.contains(net));
            nets.push(all);
        }
    }
    nets
}

fn prefixes(selectors: &[Selector]) -> impl Iterator<Item = IpNet> {
    selectors.iter().filter_map(|s| match s {
        Selector::Net(net) => Some(*net),
        Selector::Dynamic => None,
    })
}

/// What cannot be meant.
///
/// # Errors
/// Naming the key.
pub(super) fn validate(name: &str, c: &Connection) -> Result<(), ConfigError> {
    let wrong = |problem: &str| Err(ConfigError::new(format!("connection.{name}.block"), problem));
    match Blocking::of(c) {
        None if c.block.is_some() => {
            wrong("a gateway has no tunnel to keep traffic in; remove it or set role = \"client\"")
        }
        Some(b) if b.block != Block::Off && name.len() > NAME_MOST => wrong(&format!(
            "the name \"{name}\" is longer than {NAME_MOST} bytes; shorten it, or set \"off\""
        )),
        Some(b) if c.block.is_some_and(|b| b != Block::Off) && b.carried.is_empty() => {
            wrong("the tunnel should carry nothing that could be held: child.remote names no prefix")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn of(lines: &str, child: &str) -> Blocking {
        let text = format!(
            "[connection.a]\nrole = \"client\"\ngateway = \"192.0.2.1\"\n{lines}\n[connection.a.local]\nid = \"a\"\n\
             [connection.a.remote]\nid = \"b\"\n[connection.a.child]\n{child}\n"
        );
        Blocking::of(&parse(&text).unwrap().connection["a"]).unwrap()
    }

    #[test]
    fn a_full_tunnel_is_held_while_it_is_connected_and_a_split_one_is_not() {
        let all: Vec<IpNet> = vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()];
        for remote in [
            "",
            "remote = [\"0.0.0.0/0\"]",
            "remote = [\"::/0\"]",
            "remote = [\"0.0.0.0/1\", \"128.0.0.0/1\"]",
        ] {
            let full = of("", remote);
            assert_eq!(
                (full.block, &full.carried, full.local_network),
                (Block::Connected, &all, true),
                "{remote}"
            );
            assert_eq!(of("block = \"off\"", remote).block, Block::Off);
        }
        let halves = of("", "remote = [\"0.0.0.0/1\", \"10.99.0.0/24\", \"128.0.0.0/1\", \"8000::/1\"]");
        let exact: Vec<IpNet> = ["10.99.0.0/24", "8000::/1"].iter().map(|n| n.parse().unwrap()).collect();
        assert_eq!(
            halves.exact, exact,
            "two halves are a default route, what is named besides is never local"
        );
        let split = of(
            "local_network = false",
            "remote = [\"10.0.0.0/8\"]\nlocal = [\"10.88.0.0/16\", \"192.168.1.0/24\"]",
        );
        assert_eq!((split.block, split.is_full(), split.local_network), (Block::Off, false, false));
        assert_eq!(split.own, ["10.88.0.0/16".parse::<IpNet>().unwrap()]);
        assert_eq!(of("block = \"always\"", "remote = [\"10.0.0.0/8\"]").block, Block::Always);
    }
}

//! Renewal of clients' certificates through the tunnel, as it is written: where it is done, and for how long. Owns what that can mean at either end; the
//! gateway's address is given to the tunnel by the driver, and certificates are given out by another program, which has the authority's key.

use super::file::{Connection, Role, Selector};
use super::resolve::ConfigError;
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// The longest that a certificate may count, in days: what Apple's devices take.
const MOST_DAYS: u32 = 825;

/// Renewal of clients' certificates through the tunnel: at a gateway with an authority of its own (`dormouse gateway init`), where `dormouse-renewals.service`
/// answers, and at its clients (`dormouse renew`).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Renewals {
    /// Where it is done: an address and a port of TCP inside the tunnel. At a gateway the first address of a prefix of `pool.addresses`, which no client
    /// gets: the daemon has it while it runs, lets in from the tunnel what is for this port, and nothing from elsewhere. At a client the same, as its
    /// gateway's administrator says.
    pub at: SocketAddr,
    /// Gateway: for how long a new certificate counts, in days. Not said: as long as the one that it replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub days: Option<u32>,
}

impl Renewals {
    /// Of a gateway's connection: where it is done.
    #[must_use]
    pub fn served(c: &Connection) -> Option<SocketAddr> {
        c.renewals.as_ref().filter(|_| c.role == Role::Gateway).map(|renewals| renewals.at)
    }
}

/// The first address of a prefix that has any for clients besides: the gateway's own.
#[must_use]
pub fn first_host(net: &IpNet) -> Option<IpAddr> {
    let room = net.prefix_len() + 2 <= net.max_prefix_len();
    let first = match net.trunc().addr() {
        IpAddr::V4(v4) => IpAddr::V4(u32::from(v4).wrapping_add(1).into()),
        IpAddr::V6(v6) => IpAddr::V6(u128::from(v6).wrapping_add(1).into()),
    };
    room.then_some(first)
}

/// Whether a side of the tunnel has an address; what it leaves open may have it.
fn has(side: &[Selector], address: IpAddr) -> bool {
    side.iter().any(|s| match s {
        Selector::Net(net) => net.contains(&address),
        Selector::Dynamic => false,
    })
}

/// What cannot be meant, with its key.
pub(super) fn validate(name: &str, c: &Connection) -> Result<(), ConfigError> {
    let Some(renewals) = &c.renewals else { return Ok(()) };
    let wrong = |key: &str, problem: String| {
        Err(ConfigError::new(format!("connection.{name}.renewals{key}"), problem))
    };
    let (ip, port) = (renewals.at.ip(), renewals.at.port());
    if port == 0 {
        return wrong(".at", "0 is no port".into());
    }
    let mut children = std::iter::once(&c.child).chain(c.children.values());
    if c.role == Role::Client {
        if renewals.days.is_some() {
            return wrong(".days", "is the gateway's to say; remove it".into());
        }
        if c.local.certificate.is_none() || c.local.key.is_none() {
            let problem =
                "there is no certificate to renew: local.certificate and local.key are files of one";
            return wrong("", problem.into());
        }
        if !children.any(|child| has(&child.remote, ip)) {
            return wrong(".at", format!("{ip} is not among what the tunnel leads to (child.remote)"));
        }
        return Ok(());
    }
    if let Some(days) = renewals.days.filter(|days| !(1..=MOST_DAYS).contains(days)) {
        return wrong(".days", format!("{days} is not between 1 and {MOST_DAYS}"));
    }
    let own: Vec<IpAddr> = c.pool.addresses.iter().filter_map(first_host).collect();
    if !own.contains(&ip) {
        let problem = match own.first() {
            Some(first) => {
                format!("{ip} is not the first address of a prefix of pool.addresses, such as {first}")
            }
            None => "needs pool.addresses, whose first address it is at".to_owned(),
        };
        return wrong(".at", problem);
    }
    let theirs = c.peers.iter().flat_map(|peer| &peer.addresses).filter(|prefix| prefix.0.contains(&ip));
    if let Some(prefix) = theirs.map(|prefix| prefix.0).next()
        && first_host(&prefix) != Some(ip)
    {
        return wrong(".at", format!("{ip} is given to a client by peers.addresses ({prefix})"));
    }
    if !children.any(|child| has(&child.local, ip)) {
        return wrong(".at", format!("clients do not reach it: {ip} is missing in child.local"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{parse, validate};

    fn complaint(role: &str, more: &str) -> String {
        let text = format!(
            "[connection.a]\nrole = \"{role}\"\n{}[connection.a.local]\nid = \"a\"\n{more}",
            if role == "client" { "gateway = \"b\"\n" } else { "" }
        );
        let file = parse(&text).unwrap();
        validate::connection("a", &file.connection["a"]).err().map(|e| e.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_gateway_has_the_first_address_of_its_pool_which_its_clients_must_reach() {
        let of = |at: &str, local: &str, more: &str| {
            complaint(
                "gateway",
                &format!(
                    "[connection.a.child]\nlocal = [{local}]\n[connection.a.pool]\naddresses = [\"10.9.0.0/24\", \"fd09::/64\"]\n\
                     [connection.a.renewals]\nat = \"{at}\"\n{more}"
                ),
            )
        };
        for (at, local) in [
            ("10.9.0.1:4510", "\"0.0.0.0/0\""),
            ("10.9.0.1:4510", "\"10.1.0.0/16\", \"10.9.0.1/32\""),
            ("[fd09::1]:1", "\"::/0\""),
        ] {
            assert_eq!(of(at, local, ""), "", "{at}");
        }
        for (at, local, more, said) in [
            ("10.9.0.2:4510", "\"0.0.0.0/0\"", "", "renewals.at: 10.9.0.2 is not the first address"),
            ("10.9.0.1:0", "\"0.0.0.0/0\"", "", "0 is no port"),
            ("10.9.0.1:1", "\"10.1.0.0/16\"", "", "10.9.0.1 is missing in child.local"),
            ("10.9.0.1:1", "\"0.0.0.0/0\"", "days = 826\n", "renewals.days: 826 is not between 1 and 825"),
            (
                "10.9.0.1:1",
                "\"0.0.0.0/0\"",
                "[[connection.a.peers]]\nid = \"x\"\naddresses = [\"10.9.0.1\"]\n",
                "given to a client by peers.addresses (10.9.0.1/32)",
            ),
        ] {
            assert!(of(at, local, more).contains(said), "{said}: {}", of(at, local, more));
        }
    }

    #[test]
    fn a_client_has_a_certificate_to_renew_and_a_tunnel_that_leads_there() {
        let of = |local: &str, remote: &str, more: &str| {
            complaint(
                "client",
                &format!(
                    "{local}[connection.a.child]\nremote = [{remote}]\n[connection.a.renewals]\nat = \"10.9.0.1:4510\"\n{more}"
                ),
            )
        };
        let local = "certificate = \"/x\"\nkey = \"/y\"\n";
        assert_eq!(of(local, "\"0.0.0.0/0\"", ""), "");
        assert!(of("", "\"0.0.0.0/0\"", "").contains("renewals: there is no certificate to renew"));
        assert!(of(local, "\"10.1.0.0/16\"", "").contains("10.9.0.1 is not among what the tunnel leads to"));
        assert!(of(local, "\"0.0.0.0/0\"", "days = 9\n").contains("renewals.days: is the gateway's to say"));
    }
}

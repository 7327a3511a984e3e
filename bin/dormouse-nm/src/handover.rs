//! What is sent to NetworkManager once the tunnel is up: interface, addresses, routes and name servers, in the form of its dictionaries. Owns that form;
//! installs nothing.
//!
//! An IPv4 address is a number whose bytes in memory are the address, as `inet_pton` leaves it; an IPv6 address is its 16 bytes.

use dormouse_control::{Connection, DaemonStatus};
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use zbus::{OwnedVariant, Variant};

/// A dictionary.
pub(crate) type Words = BTreeMap<String, OwnedVariant>;

/// All that is sent to NetworkManager.
#[derive(PartialEq, Debug)]
pub(crate) struct Handover {
    pub(crate) general: Words,
    /// `None`: the gateway gives no address of this family.
    pub(crate) v4: Option<Words>,
    pub(crate) v6: Option<Words>,
}

/// What the daemon's status lacks although the session is up.
#[derive(Debug, thiserror::Error)]
#[error("the session is up, but {0}")]
pub(crate) struct Lacking(String);

fn number(address: Ipv4Addr) -> u32 {
    u32::from_ne_bytes(address.octets())
}

fn bytes(address: Ipv6Addr) -> Vec<u8> {
    address.octets().to_vec()
}

/// Words whose values fit what NetworkManager expects; one that cannot be said on the bus is left out (none is).
fn words<const N: usize>(pairs: [(&str, Variant<'_>); N]) -> Words {
    let owned =
        |(key, value): (&str, Variant<'_>)| Some((key.to_owned(), OwnedVariant::try_from(value).ok()?));
    pairs.into_iter().filter_map(owned).collect()
}

impl Handover {
    /// Of a session that is up.
    ///
    /// # Errors
    /// If the status does not say what is needed.
    pub(crate) fn of(daemon: &DaemonStatus, connection: &Connection) -> Result<Self, Lacking> {
        let lacking = |what: &str| Lacking(what.to_owned());
        let gateway = connection.path.as_deref().and_then(remote);
        let gateway = gateway.ok_or_else(|| lacking("the gateway's address is not known"))?;
        let addresses: Vec<IpAddr> =
            connection.addresses.iter().filter_map(|text| text.parse().ok()).collect();
        let routes: Vec<IpNet> = connection.routes.iter().filter_map(|text| text.parse().ok()).collect();
        let dns: Vec<IpAddr> = connection.dns.iter().filter_map(|text| text.parse().ok()).collect();
        let first = |v4: bool| addresses.iter().copied().find(|a| a.is_ipv4() == v4);
        let (mut v4, mut v6) = (None, None);
        if let Some(IpAddr::V4(address)) = first(true) {
            v4 = Some(of_v4(address, &routes, &dns, &connection.domains));
        }
        if let Some(IpAddr::V6(address)) = first(false) {
            v6 = Some(of_v6(address, &routes, &dns, &connection.domains));
        }
        if v4.is_none() && v6.is_none() {
            return Err(lacking("the gateway has given no address"));
        }
        let outside = match gateway {
            IpAddr::V4(address) => Variant::from(number(address)),
            IpAddr::V6(address) => Variant::from(bytes(address)),
        };
        let general = words([
            ("tundev", Variant::from(daemon.interface.as_str())),
            ("gateway", outside),
            ("mtu", Variant::from(u32::from(daemon.mtu))),
            // Networks that change and machines that sleep are the daemon's business: nothing need be taken down for them.
            ("can-persist", Variant::from(true)),
            ("has-ip4", Variant::from(v4.is_some())),
            ("has-ip6", Variant::from(v6.is_some())),
        ]);
        Ok(Self { general, v4, v6 })
    }
}

/// Of `local -> remote (carrier)`, the remote address.
fn remote(path: &str) -> Option<IpAddr> {
    let after = path.split(" -> ").nth(1)?;
    after.split(' ').next()?.parse::<SocketAddr>().ok().map(|at| at.ip())
}

fn of_v4(address: Ipv4Addr, routes: &[IpNet], dns: &[IpAddr], domains: &[String]) -> Words {
    let nets = || routes.iter().filter_map(|net| if let IpNet::V4(net) = net { Some(*net) } else { None });
    let exact = nets().filter(|net| net.prefix_len() > 0);
    let list: Vec<Vec<u32>> =
        exact.map(|net| vec![number(net.network()), u32::from(net.prefix_len()), 0, 0]).collect();
    let servers = dns.iter().filter_map(|a| if let IpAddr::V4(a) = a { Some(number(*a)) } else { None });
    words([
        ("address", Variant::from(number(address))),
        ("prefix", Variant::from(32_u32)),
        ("routes", Variant::from(list)),
        ("never-default", Variant::from(nets().all(|net| net.prefix_len() > 0))),
        ("dns", Variant::from(servers.collect::<Vec<u32>>())),
        ("domains", Variant::from(domains.to_vec())),
    ])
}

fn of_v6(address: Ipv6Addr, routes: &[IpNet], dns: &[IpAddr], domains: &[String]) -> Words {
    let nets = || routes.iter().filter_map(|net| if let IpNet::V6(net) = net { Some(*net) } else { None });
    let exact = nets().filter(|net| net.prefix_len() > 0);
    let none = bytes(Ipv6Addr::UNSPECIFIED);
    let list: Vec<(Vec<u8>, u32, Vec<u8>, u32)> =
        exact.map(|net| (bytes(net.network()), u32::from(net.prefix_len()), none.clone(), 0)).collect();
    let servers = dns.iter().filter_map(|a| if let IpAddr::V6(a) = a { Some(bytes(*a)) } else { None });
    words([
        ("address", Variant::from(bytes(address))),
        ("prefix", Variant::from(128_u32)),
        ("routes", Variant::from(list)),
        ("never-default", Variant::from(nets().all(|net| net.prefix_len() > 0))),
        ("dns", Variant::from(servers.collect::<Vec<Vec<u8>>>())),
        ("domains", Variant::from(domains.to_vec())),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_control::{ConnectionState, Role};

    fn connection(addresses: &[&str], routes: &[&str]) -> Connection {
        let all = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let text = format!(
            r#"{{"name":"vpn","role":"client","state":"up","path":"10.1.0.2:4500 -> 192.0.2.1:4500 (UDP)","addresses":{:?},"routes":{:?},"dns":["10.9.0.1","fd09::1"],"domains":["corp.example"]}}"#,
            all(addresses),
            all(routes)
        );
        let connection: Connection = Reader::read(&text);
        assert_eq!((connection.role, connection.state), (Role::Client, ConnectionState::Up));
        connection
    }

    /// The words as they come over the control socket.
    struct Reader;
    impl Reader {
        fn read<T: for<'d> serde::Deserialize<'d>>(text: &str) -> T {
            serde_json::from_str(text).unwrap()
        }
    }

    fn daemon() -> DaemonStatus {
        DaemonStatus { interface: "dormouse-1".into(), mtu: 1400, ..DaemonStatus::default() }
    }

    fn get<T: TryFrom<OwnedVariant>>(words: &Words, key: &str) -> T {
        T::try_from(words[key].try_clone().unwrap()).ok().unwrap()
    }

    #[test]
    fn a_whole_family_is_a_default_route_and_each_family_has_its_own_servers() {
        let connection = connection(&["10.55.0.2", "fd55::2"], &["0.0.0.0/0", "::/0"]);
        let handover = Handover::of(&daemon(), &connection).unwrap();
        assert_eq!(get::<String>(&handover.general, "tundev"), "dormouse-1");
        assert_eq!(get::<u32>(&handover.general, "gateway").to_ne_bytes(), [192, 0, 2, 1]);
        assert!(get::<bool>(&handover.general, "has-ip4") && get::<bool>(&handover.general, "has-ip6"));
        let (v4, v6) = (handover.v4.unwrap(), handover.v6.unwrap());
        assert_eq!(get::<u32>(&v4, "address").to_ne_bytes(), [10, 55, 0, 2]);
        assert!(!get::<bool>(&v4, "never-default") && !get::<bool>(&v6, "never-default"));
        assert_eq!(get::<Vec<u32>>(&v4, "dns").len(), 1);
        assert_eq!(v4["dns"].value_signature().to_string(), "au");
        assert_eq!(v6["dns"].value_signature().to_string(), "aay");
        assert_eq!(v4["routes"].value_signature().to_string(), "aau");
        assert_eq!(v6["routes"].value_signature().to_string(), "a(ayuayu)");
        assert_eq!(get::<Vec<String>>(&v4, "domains"), ["corp.example"]);
    }

    #[test]
    fn prefixes_are_routes_and_no_default_one() {
        let connection = connection(&["10.55.0.2"], &["10.99.0.0/24"]);
        let handover = Handover::of(&daemon(), &connection).unwrap();
        assert!(handover.v6.is_none() && !get::<bool>(&handover.general, "has-ip6"));
        let v4 = handover.v4.unwrap();
        assert!(get::<bool>(&v4, "never-default"));
        let routes: Vec<Vec<u32>> = get(&v4, "routes");
        assert_eq!(routes, [[u32::from_ne_bytes([10, 99, 0, 0]), 24, 0, 0]]);
    }

    #[test]
    fn without_an_address_or_a_way_there_is_nothing_to_hand_over() {
        let mut none = connection(&[], &["10.99.0.0/24"]);
        assert!(Handover::of(&daemon(), &none).unwrap_err().to_string().contains("no address"));
        none.path = None;
        assert!(Handover::of(&daemon(), &none).unwrap_err().to_string().contains("gateway's address"));
        assert_eq!(remote("[fd01::2]:500 -> [fd01::1]:4500 (ESP)"), Some("fd01::1".parse().unwrap()));
    }
}

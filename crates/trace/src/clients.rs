//! Who is a client. Owns the rule; must never look at packets before the survey is complete.
//!
//! **Named.** An input that names its clients (the plain CSV, idle periods) is believed.
//!
//! **Devices.** Where frames have link-layer addresses, a device is an address that sent frames and is not a router: it sent
//! from at most one private IPv4 address at a time (a new lease is fine, taking turns is not), from at most one public IPv4
//! address and then from no private one, and from at most [`MAX_PREFIXES`] public IPv6 networks. All frames of a device are
//! its own: ARP, EAPOL and DHCP wake a radio as well as TCP does. It is called by the address it sent most from.
//!
//! **Addresses.** Otherwise, and behind a router, a client is an IP address.
//!
//! With `--client` a client is every device or address that matches and sent something (a device if one of its addresses
//! matches); an address that is named exactly need not have sent. Without it they are found by the first of these rules that
//! finds any:
//!
//! 1. the machine that captured, if the capture says which packets were its own;
//! 2. wireless stations that sent data to their access point;
//! 3. devices with a private IPv4 address (or without any but private IPv6) that do not answer DNS or DHCP;
//! 4. private addresses that sent something and do not answer DNS or DHCP;
//! 5. the local side of public addresses: the longest prefix into which one end of at least 95 % of the packets falls (of
//!    two, that with more conversation partners), and of it the addresses that sent something;
//! 6. devices of any kind but the one with most partners.
//!
//! Where captures and flow records are read together, rules 4 and 5 are applied to the flow records also if 1, 2 or 3 found
//! devices; flow records of a device's address are the device's.
//!
//! Group addresses, loopback, link-local and unspecified addresses are never clients by themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use ipnet::IpNet;

use crate::index::Table;
use crate::seen::{Addr, End, Mac, Scope, Seen};
use crate::survey::{AddrFacts, Facts, MacFacts, Sightings};
use dormouse_energy::Direction;

/// Public IPv6 networks (of 64 bits) that a device may send from.
pub const MAX_PREFIXES: usize = 4;
/// Leases of one device may overlap by this much, in nanoseconds.
const LEASE_OVERLAP: u64 = 60_000_000_000;

/// A `--client` argument.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// An address or prefix.
    Net(IpNet),
    /// A link-layer address.
    Mac(Mac),
    /// A name in an input that names its clients.
    Name(String),
}

impl FromStr for Wanted {
    type Err = std::convert::Infallible;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let net = s.parse::<IpNet>().ok().or_else(|| s.parse::<core::net::IpAddr>().ok().map(IpNet::from));
        let net = net.or_else(|| leading_bytes(s));
        Ok(match (net, Mac::parse(s)) {
            (Some(net), _) => Self::Net(net),
            (None, Some(mac)) => Self::Mac(mac),
            (None, None) => Self::Name(s.to_owned()),
        })
    }
}

/// `192.168.1.` as people write a prefix.
fn leading_bytes(s: &str) -> Option<IpNet> {
    let parts: Vec<u8> = s.strip_suffix('.')?.split('.').map(|p| p.parse().ok()).collect::<Option<_>>()?;
    let mut octets = [0; 4];
    octets.get_mut(..parts.len())?.copy_from_slice(&parts);
    IpNet::new(octets.into(), u8::try_from(parts.len() * 8).ok()?).ok()
}

impl Wanted {
    /// Whether this is exactly the address.
    fn exactly(&self, address: Addr) -> bool {
        matches!(self, Self::Net(net) if net.prefix_len() == net.max_prefix_len()) && self.address(address)
    }

    fn address(&self, address: Addr) -> bool {
        matches!(self, Self::Net(net) if address.ip().is_some_and(|ip| net.contains(&ip)))
    }

    fn name(&self, name: &str) -> bool {
        match self {
            Self::Name(wanted) => wanted == name,
            Self::Net(net) => name.parse().is_ok_and(|ip: core::net::IpAddr| net.contains(&ip)),
            Self::Mac(mac) => Mac::parse(name) == Some(*mac),
        }
    }
}

/// By which rule the clients were found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// The input names them.
    Named,
    /// `--client`.
    Asked,
    /// Rule 1.
    ThisMachine,
    /// Rule 2.
    Stations,
    /// Rule 3.
    PrivateDevices,
    /// Rule 4.
    PrivateAddresses,
    /// Rule 5.
    LocalPrefix,
    /// Rule 6.
    AnyDevice,
    /// No client was found.
    NoneFound,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Named => "named by the input",
            Self::Asked => "as asked",
            Self::ThisMachine => "found: the machine that captured",
            Self::Stations => "found: wireless stations",
            Self::PrivateDevices => "found: devices with private addresses",
            Self::PrivateAddresses => "found: private addresses",
            Self::LocalPrefix => "found: the side that most packets have in common",
            Self::AnyDevice => "found: all devices but the busiest",
            Self::NoneFound => "none found",
        })
    }
}

/// A client.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Client {
    /// What reports call it.
    pub name: String,
    /// Its link-layer address, if it is a device.
    pub mac: Option<Mac>,
    /// Its IP addresses.
    pub addresses: Vec<Addr>,
}

/// The clients, and the way from a packet to them.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    clients: Vec<Client>,
    macs: Table<Mac, u32>,
    addresses: Table<Addr, u32>,
    /// Addresses of devices, for records without link-layer addresses.
    of_devices: Table<Addr, u32>,
    names: BTreeMap<String, u32>,
}

/// A client's number and the packet's direction, for either end of a packet.
pub type Ends = [Option<(u32, Direction)>; 2];

impl Directory {
    /// Finds the clients in the facts of all files.
    #[must_use]
    pub fn find(facts: &Facts, wanted: &[Wanted]) -> (Self, Rule) {
        let view = View::new(facts);
        let (mut found, rule) =
            if wanted.is_empty() { view.found() } else { (view.asked(wanted), Rule::Asked) };
        let named = facts.names.keys().filter(|n| wanted.is_empty() || wanted.iter().any(|w| w.name(n)));
        let before = found.len();
        found.extend(named.map(|name| Client { name: name.clone(), mac: None, addresses: Vec::new() }));
        let rule = if rule == Rule::NoneFound && found.len() > before { Rule::Named } else { rule };
        (Self::new(found), rule)
    }

    fn new(mut clients: Vec<Client>) -> Self {
        clients.sort();
        clients.dedup();
        let mut directory = Self::default();
        for (id, client) in (0u32..).zip(&clients) {
            match client.mac {
                Some(mac) => {
                    directory.macs.insert(mac, id);
                    let known = client.addresses.iter().filter(|a| a.scope() >= Scope::Private);
                    directory.of_devices.extend(known.map(|a| (*a, id)));
                }
                None if client.addresses.is_empty() => {
                    directory.names.insert(client.name.clone(), id);
                }
                None => directory.addresses.extend(client.addresses.iter().map(|a| (*a, id))),
            }
        }
        directory.clients = clients;
        directory
    }

    /// The clients, by number.
    #[must_use]
    pub fn clients(&self) -> &[Client] {
        &self.clients
    }

    /// The client that an input calls `name`.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<u32> {
        self.names.get(name).copied()
    }

    #[inline]
    fn end(&self, end: End) -> Option<u32> {
        if end.mac == Mac::NONE {
            return self.addresses.get(&end.ip).or_else(|| self.of_devices.get(&end.ip)).copied();
        }
        self.macs.get(&end.mac).or_else(|| self.addresses.get(&end.ip)).copied()
    }

    /// The clients that this packet belongs to: its sender, its receiver, both or neither.
    #[inline]
    #[must_use]
    pub fn ends(&self, seen: &Seen) -> Ends {
        [
            self.end(seen.src).map(|id| (id, Direction::Outgoing)),
            self.end(seen.dst).map(|id| (id, Direction::Incoming)),
        ]
    }
}

/// The facts, sorted into devices, routers and addresses.
struct View<'a> {
    facts: &'a Facts,
    devices: Vec<(Mac, &'a MacFacts)>,
}

impl<'a> View<'a> {
    fn new(facts: &'a Facts) -> Self {
        let devices =
            facts.macs.iter().filter(|(mac, f)| is_device(**mac, f)).map(|(mac, f)| (*mac, f)).collect();
        Self { facts, devices }
    }

    fn asked(&self, wanted: &[Wanted]) -> Vec<Client> {
        let matches_device = |mac: Mac, f: &MacFacts| {
            wanted.iter().any(|w| *w == Wanted::Mac(mac) || f.addresses.keys().any(|a| w.address(*a)))
        };
        let mut clients: Vec<Client> = self
            .devices
            .iter()
            .filter(|(mac, f)| matches_device(*mac, f))
            .map(|(m, f)| device(*m, f))
            .collect();
        // Asked for by link-layer address: that is an answer even if it looks like a router.
        for w in wanted {
            if let Wanted::Mac(mac) = w
                && let Some(f) = self.facts.macs.get(mac)
            {
                clients.push(device(*mac, f));
            }
        }
        let of_devices: BTreeSet<Addr> = clients.iter().flat_map(|c| c.addresses.iter().copied()).collect();
        let others = self.facts.addresses.iter().filter(|(a, _)| !of_devices.contains(a));
        let is_asked = |a: Addr, f: &AddrFacts| {
            wanted.iter().any(|w| w.exactly(a) || (f.sent.count > 0 && w.address(a)))
        };
        clients.extend(others.filter(|(a, f)| is_asked(**a, f)).map(|(a, _)| address(*a)));
        clients
    }

    fn found(&self) -> (Vec<Client>, Rule) {
        let devices = [
            (self.this_machine(), Rule::ThisMachine),
            (self.stations(), Rule::Stations),
            (self.private_devices(), Rule::PrivateDevices),
        ];
        if let Some((mut clients, rule)) = devices.into_iter().find(|(clients, _)| !clients.is_empty()) {
            let known: BTreeSet<Addr> = clients.iter().flat_map(|c| c.addresses.iter().copied()).collect();
            let bare = self.addresses(|a, f| f.bare && !known.contains(&a));
            clients.extend(bare.map(|(clients, _)| clients).unwrap_or_default());
            return (clients, rule);
        }
        self.addresses(|_, _| true).unwrap_or_else(|| {
            let clients = self.any_device();
            let rule = if clients.is_empty() { Rule::NoneFound } else { Rule::AnyDevice };
            (clients, rule)
        })
    }

    /// Rules 4 and 5 among some addresses.
    fn addresses(&self, wanted: impl Fn(Addr, &AddrFacts) -> bool) -> Option<(Vec<Client>, Rule)> {
        let among: Vec<(Addr, &AddrFacts)> =
            self.facts.addresses.iter().filter(|(a, f)| wanted(**a, f)).map(|(a, f)| (*a, f)).collect();
        let tried =
            [(private_addresses(&among), Rule::PrivateAddresses), (local_prefix(&among), Rule::LocalPrefix)];
        tried.into_iter().find(|(clients, _)| !clients.is_empty())
    }

    fn this_machine(&self) -> Vec<Client> {
        self.facts.macs.get(&Mac::THIS_MACHINE).map(|f| device(Mac::THIS_MACHINE, f)).into_iter().collect()
    }

    fn stations(&self) -> Vec<Client> {
        self.facts.macs.iter().filter(|(_, f)| f.station).map(|(mac, f)| device(*mac, f)).collect()
    }

    fn private_devices(&self) -> Vec<Client> {
        let is_client = |f: &MacFacts| {
            let mut scopes = f.addresses.keys().map(|a| (a.scope(), a.as_v4().is_some()));
            let private = scopes.clone().any(|(scope, v4)| scope == Scope::Private && v4)
                || (scopes.clone().count() > 0 && scopes.all(|(scope, v4)| !v4 && scope != Scope::Global));
            private && !f.addresses.keys().any(|a| self.serves(*a))
        };
        self.devices.iter().filter(|(_, f)| is_client(f)).map(|(mac, f)| device(*mac, f)).collect()
    }

    fn serves(&self, address: Addr) -> bool {
        self.facts.addresses.get(&address).is_some_and(|f| f.serves)
    }

    fn any_device(&self) -> Vec<Client> {
        let busiest = self
            .facts
            .macs
            .iter()
            .max_by_key(|(mac, f)| (f.overflow, f.addresses.len(), f.sent.count, **mac))
            .map(|(m, _)| *m);
        let all = self.facts.macs.iter();
        let only = self.facts.macs.len() == 1;
        all.filter(|(mac, _)| only || Some(**mac) != busiest).map(|(mac, f)| device(*mac, f)).collect()
    }
}

/// Addresses to choose from.
type Among<'a> = Vec<(Addr, &'a AddrFacts)>;

fn private_addresses(among: &Among<'_>) -> Vec<Client> {
    let is_client = |a: Addr, f: &AddrFacts| a.scope() == Scope::Private && f.sent.count > 0 && !f.serves;
    among.iter().filter(|(a, f)| is_client(*a, f)).map(|(a, _)| address(*a)).collect()
}

/// Rule 5, for IPv4 and IPv6 alike, on the 128-bit form of addresses.
fn local_prefix(among: &Among<'_>) -> Vec<Client> {
    let public: Among<'_> = among.iter().filter(|(a, _)| a.scope() == Scope::Global).copied().collect();
    let ends: u64 = public.iter().map(|(_, f)| f.sent.count + f.received).sum();
    let needed = ends / 2 - ends / 40; // half of the ends is one end of every packet; 95 % of that
    let bits = |a: Addr| u128::from(a.hi) << 64 | u128::from(a.lo);
    for length in (1..=128u32).rev() {
        let mut groups: BTreeMap<u128, (u64, u32)> = BTreeMap::new();
        for (a, f) in &public {
            let group = groups.entry(bits(*a) >> (128 - length)).or_default();
            group.0 += f.sent.count + f.received;
            group.1 += f.partners.count_ones();
        }
        let covering = groups.iter().filter(|(_, g)| ends > 0 && g.0 >= needed.max(1));
        if let Some((prefix, _)) = covering.max_by_key(|(prefix, g)| (g.1, g.0, **prefix)) {
            let local =
                public.iter().filter(|(a, f)| bits(*a) >> (128 - length) == *prefix && f.sent.count > 0);
            return local.map(|(a, _)| address(*a)).collect();
        }
    }
    Vec::new()
}

fn is_device(mac: Mac, f: &MacFacts) -> bool {
    if mac == Mac::THIS_MACHINE {
        return true;
    }
    let of = |scope: Scope, v4: bool| {
        f.addresses.iter().filter(move |(a, _)| a.scope() == scope && a.as_v4().is_some() == v4)
    };
    let public_v4 = of(Scope::Global, true).count();
    let networks: BTreeSet<u64> = of(Scope::Global, false).map(|(a, _)| a.hi).collect();
    let mut leases: Vec<Sightings> = of(Scope::Private, true).map(|(_, s)| *s).collect();
    leases.sort_by_key(|s| s.first);
    let takes_turns = leases.windows(2).any(|w| match w {
        [a, b] => b.first.saturating_add(LEASE_OVERLAP) < a.last,
        _ => false,
    });
    let v4_is_one = public_v4 == 0 || (public_v4 == 1 && leases.is_empty());
    !f.overflow && !takes_turns && v4_is_one && networks.len() <= MAX_PREFIXES
}

fn device(mac: Mac, f: &MacFacts) -> Client {
    // Called by a private address if it has one, else by a public one; a link-local address is no name.
    let rank = |a: &Addr| match (a.scope(), a.as_v4().is_some()) {
        (Scope::Private, true) => 4,
        (Scope::Global, true) => 3,
        (Scope::Global | Scope::Private, false) => 2,
        _ => 0,
    };
    let main = f.addresses.iter().filter(|(a, _)| rank(a) > 0).max_by_key(|(a, s)| (rank(a), s.count, **a));
    let name = main.map_or_else(|| mac.to_string(), |(a, _)| a.to_string());
    Client { name, mac: Some(mac), addresses: f.addresses.keys().copied().collect() }
}

fn address(address: Addr) -> Client {
    Client { name: address.to_string(), mac: None, addresses: vec![address] }
}

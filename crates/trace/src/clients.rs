//! Who is a client. Owns the rule; must never look at packets before the survey is complete.
//!
//! Each site is looked at by itself, and a recording is a site of its own unless it was given a label (`--site`): the same address in two
//! recordings is two clients.
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
//! devices; flow records of a device's address are the device's, of several that had it the one's that had it then.
//!
//! Group addresses, loopback, link-local and unspecified addresses are never clients by themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use ipnet::IpNet;

use crate::facts::{AddrFacts, Facts, MacFacts, Named, Sightings};
use crate::index::Table;
use crate::seen::{Addr, End, Mac, Scope, Seen};
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

    fn name(&self, named: &Named) -> bool {
        match self {
            Self::Name(wanted) => *wanted == named.name,
            Self::Net(net) => named.name.parse().is_ok_and(|ip: core::net::IpAddr| net.contains(&ip)),
            Self::Mac(mac) => named.mac == Some(*mac) || Mac::parse(&named.name) == Some(*mac),
        }
    }
}

/// By which rule the clients were found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
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

impl Rule {
    const ALL: [Self; 9] = [
        Self::Named,
        Self::Asked,
        Self::ThisMachine,
        Self::Stations,
        Self::PrivateDevices,
        Self::PrivateAddresses,
        Self::LocalPrefix,
        Self::AnyDevice,
        Self::NoneFound,
    ];
}

/// The rules by which clients were found in several places, in words, as [`Directory::find`] says them of all at once.
pub(crate) fn rules(words: &[String]) -> String {
    let words: BTreeSet<&str> = words.iter().flat_map(|w| w.split("; ")).collect();
    let mut all: Vec<String> = Rule::ALL.iter().map(ToString::to_string).collect();
    all.retain(|rule| words.contains(rule.as_str()));
    if all.len() > 1 {
        all.retain(|rule| *rule != Rule::NoneFound.to_string());
    }
    all.join("; ")
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
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
pub struct Client {
    /// Where it was recorded.
    pub site: String,
    /// Its address or name.
    pub name: String,
    /// Its link-layer address, if it is a device.
    pub mac: Option<Mac>,
    /// Its IP addresses.
    pub addresses: Vec<Addr>,
    /// What reports call it: its name, and what tells it apart from others of that name.
    pub label: String,
}

impl Client {
    /// One that has nothing but a name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let (site, addresses) = (String::new(), Vec::new());
        Self { site, name: name.to_owned(), mac: None, addresses, label: name.to_owned() }
    }
}

/// An address that several devices of a site had, one after the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Handed {
    /// The address.
    pub address: Addr,
    /// Their labels, in the order in which they had it.
    pub clients: Vec<String>,
}

/// The clients, and the way from a packet to them.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    clients: Vec<Client>,
    sites: BTreeMap<String, Site>,
    handed: Vec<Handed>,
}

/// The clients of one site.
#[derive(Clone, Debug, Default)]
pub struct Site {
    macs: Table<Mac, u32>,
    addresses: Table<Addr, u32>,
    /// Addresses of devices, for records without link-layer addresses: from when each had it, in order.
    of_devices: Table<Addr, Vec<(u64, u32)>>,
    names: BTreeMap<Named, u32>,
}

/// A client's number and the packet's direction, for either end of a packet.
pub type Ends = [Option<(u32, Direction)>; 2];

/// How a client is known.
enum Known {
    /// By its link-layer address, with when it sent from which address.
    Device(BTreeMap<Addr, Sightings>),
    Address,
    Name(Named),
}

impl Directory {
    /// Finds the clients in the facts of each site; and says by which rules.
    #[must_use]
    pub fn find(sites: &BTreeMap<String, Facts>, wanted: &[Wanted]) -> (Self, String) {
        let (mut all, mut rules) = (Vec::new(), BTreeSet::new());
        for (site, facts) in sites {
            let view = View::new(facts);
            let (mut found, mut rule) =
                if wanted.is_empty() { view.found() } else { (view.asked(wanted), Rule::Asked) };
            found.sort();
            found.dedup();
            let names =
                || facts.names.keys().filter(|n| wanted.is_empty() || wanted.iter().any(|w| w.name(n)));
            if rule == Rule::NoneFound && names().next().is_some() {
                rule = Rule::Named;
            }
            rules.insert(rule);
            all.extend(found.into_iter().map(|mut client| {
                client.site.clone_from(site);
                let of = client.mac.and_then(|mac| facts.macs.get(&mac));
                let known = of.map_or(Known::Address, |of| Known::Device(of.addresses.clone()));
                (client, site, known)
            }));
            all.extend(names().map(|named| {
                let within =
                    if named.site.is_empty() { site.clone() } else { format!("{site}/{}", named.site) };
                (
                    Client { site: within, mac: named.mac, ..Client::named(&named.name) },
                    site,
                    Known::Name(named.clone()),
                )
            }));
        }
        if rules.len() > 1 {
            rules.remove(&Rule::NoneFound);
        }
        let rules: Vec<String> = rules.iter().map(ToString::to_string).collect();
        let rules = if rules.is_empty() { Rule::NoneFound.to_string() } else { rules.join("; ") };
        (Self::new(all), rules)
    }

    fn new(mut all: Vec<(Client, &String, Known)>) -> Self {
        all.sort_by(|a, b| a.0.cmp(&b.0));
        label(&mut all.iter_mut().map(|(client, ..)| client).collect::<Vec<_>>());
        let mut directory = Self::default();
        for (id, (client, site, known)) in (0u32..).zip(all) {
            let site = directory.sites.entry(site.clone()).or_default();
            match known {
                Known::Device(addresses) => {
                    site.macs.extend(client.mac.map(|mac| (mac, id)));
                    for (address, seen) in addresses.iter().filter(|(a, _)| a.scope() >= Scope::Private) {
                        site.of_devices.entry(*address).or_default().push((seen.first, id));
                    }
                }
                Known::Name(named) => {
                    site.names.insert(named, id);
                }
                Known::Address => site.addresses.extend(client.addresses.iter().map(|a| (*a, id))),
            }
            directory.clients.push(client);
        }
        let Self { clients, sites, handed } = &mut directory;
        let label = |id: u32| clients.get(id as usize).map(|c| c.label.clone()).unwrap_or_default();
        for (address, had) in sites.values_mut().flat_map(|s| s.of_devices.iter_mut()) {
            had.sort_unstable();
            if had.len() > 1 {
                handed.push(Handed {
                    address: *address,
                    clients: had.iter().map(|(_, id)| label(*id)).collect(),
                });
            }
        }
        handed.sort_by(|a, b| (a.address, &a.clients).cmp(&(b.address, &b.clients)));
        directory
    }

    /// The clients, by number.
    #[must_use]
    pub fn clients(&self) -> &[Client] {
        &self.clients
    }

    /// Addresses that changed hands, in order.
    #[must_use]
    pub fn handed(&self) -> &[Handed] {
        &self.handed
    }

    /// The clients of a site; nothing if it has none.
    #[must_use]
    pub fn site(&self, label: &str) -> Option<&Site> {
        self.sites.get(label)
    }
}

/// Gives clients of one name labels: with the link-layer address where there are several in a site, with the site where there are several.
pub(crate) fn label(all: &mut [&mut Client]) {
    let mut of_name: BTreeMap<String, (BTreeSet<String>, usize)> = BTreeMap::new();
    for client in all.iter() {
        let of = of_name.entry(client.name.clone()).or_default();
        of.0.insert(client.site.clone());
        of.1 += 1;
    }
    for client in all {
        let Some((sites, clients)) = of_name.get(&client.name) else { continue };
        client.label.clone_from(&client.name);
        if *clients > sites.len()
            && let Some(mac) = client.mac
        {
            client.label += &format!(" ({mac})");
        }
        if sites.len() > 1 {
            client.label += &format!(" in {}", client.site);
        }
    }
}

impl Site {
    /// The client that an input of this site calls so.
    #[must_use]
    pub fn named(&self, named: &Named) -> Option<u32> {
        self.names.get(named).copied()
    }

    /// The device with a link-layer address.
    #[must_use]
    pub fn device(&self, mac: Mac) -> Option<u32> {
        self.macs.get(&mac).copied()
    }

    #[inline]
    fn end(&self, end: End, at: u64) -> Option<u32> {
        if end.mac == Mac::NONE {
            return self.addresses.get(&end.ip).copied().or_else(|| self.lessee(end.ip, at));
        }
        self.macs.get(&end.mac).or_else(|| self.addresses.get(&end.ip)).copied()
    }

    /// The device that had an address then: the last that had sent from it, or the first that ever would.
    fn lessee(&self, address: Addr, at: u64) -> Option<u32> {
        let had = self.of_devices.get(&address)?;
        let behind = had.partition_point(|(since, _)| *since <= at);
        had.get(behind.saturating_sub(1)).map(|(_, id)| *id)
    }

    /// The clients at both ends of a packet.
    #[inline]
    #[must_use]
    pub fn ends(&self, seen: &Seen) -> Ends {
        [
            self.end(seen.src, seen.at).map(|id| (id, Direction::Outgoing)),
            self.end(seen.dst, seen.at).map(|id| (id, Direction::Incoming)),
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
    Client { mac: Some(mac), addresses: f.addresses.keys().copied().collect(), ..Client::named(&name) }
}

fn address(address: Addr) -> Client {
    Client { addresses: vec![address], ..Client::named(&address.to_string()) }
}

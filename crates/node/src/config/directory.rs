//! The directory of the Host Identity Protocol: whom this host knows, and by which names. Must never look up a name.

use super::hip::HipCarrier;
use dormouse_hip::hit::HitSuite;
use dormouse_hip::{Identity, Peer, Quirks};
use dormouse_wire::hip::Hit;
use ipnet::{Ipv4Net, Ipv6Net};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Every tag is in this prefix (RFC 7343 section 2).
pub const TAGS: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 0x20, 0, 0, 0, 0, 0, 0), 28);
/// Every tag of version 1 (RFC 4843 section 2).
const TAGS_V1: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 0x10, 0, 0, 0, 0, 0, 0), 28);

/// Where the tags of this version of HIP are.
#[must_use]
pub const fn tags(version: u8) -> Ipv6Net {
    if version == 1 { TAGS_V1 } else { TAGS }
}

/// Where this host answers for the names of its peers: an address that is led into the tunnel's interface like any tag of the version, and is
/// no host's. In version 2 its HIT suite would be 0, which is reserved (RFC 7401 section 5.2.10); in version 1 a hash would have to be all but zero.
#[must_use]
pub fn resolver(version: u8) -> Ipv6Addr {
    Ipv6Addr::from_bits(tags(version).network().to_bits() | 0x53)
}

/// The version of HIP that the host with this tag speaks.
#[must_use]
pub fn version(hit: Hit) -> u8 {
    if TAGS_V1.contains(&hit.0) { 1 } else { 2 }
}

/// Longest name of a peer, in bytes: that of a host name (RFC 1035 section 2.3.4).
const NAME_MOST: usize = 253;

/// The longest prefix of local-scope identifiers.
const LSI_LONGEST: u8 = 24;
/// The shortest one: what is in it is not reached otherwise.
const LSI_SHORTEST: u8 = 8;
/// First bytes of addresses that are no host's anywhere but on its own machine, or many hosts'.
const NOT_HOSTS: [std::ops::RangeInclusive<u8>; 3] = [0..=0, 127..=127, 224..=255];

/// A peer of the directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    /// Its tag.
    pub hit: Hit,
    /// Its names.
    pub names: Vec<String>,
    /// Where it is found.
    pub peer: Peer,
    /// Addresses of its rendezvous servers.
    pub rendezvous: Vec<IpAddr>,
    /// Addresses of its relays.
    pub relays: Vec<IpAddr>,
    /// Its local-scope identifier, if there are to be any.
    pub lsi: Option<Ipv4Addr>,
    /// By which tag of this host it is called, if not by the first of its version.
    pub identity: Option<Hit>,
    /// How long an association with it lasts, if that is bounded.
    pub lifetime: Option<Duration>,
    /// In which ways it departs from the RFCs.
    pub quirks: Quirks,
}

impl Known {
    /// Whether it can be called.
    #[must_use]
    pub fn is_reachable(&self) -> bool {
        ![&self.peer.addresses, &self.rendezvous, &self.relays].into_iter().all(Vec::is_empty)
    }

    /// Its rendezvous servers, for the key manager.
    #[must_use]
    pub fn servers(&self) -> Option<Peer> {
        let servers = Peer { addresses: self.rendezvous.clone(), udp: self.peer.udp };
        Some(servers).filter(|servers| !servers.addresses.is_empty())
    }
}

/// Protocol and port of programs that know IPv4 only.
pub type Service = (u8, u16);

/// The local-scope identifiers of a host. Those of its peers are in [`Known::lsi`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lsi {
    /// Out of which they are.
    pub prefix: Ipv4Net,
    /// Its own.
    pub ours: Ipv4Addr,
    /// Protocols and ports of programs that know IPv4 only.
    pub services: BTreeSet<Service>,
}

/// The peers, in the order in which they are written. No two share a tag or a name.
#[derive(Clone, Debug)]
pub struct Peers {
    own: Vec<Hit>,
    list: Vec<Known>,
    by_tag: BTreeMap<Hit, usize>,
    /// In lower case.
    by_name: BTreeMap<String, usize>,
}

impl Peers {
    /// None yet, for a host with these identities.
    pub(super) fn of(own: &[Identity]) -> Self {
        let own = own.iter().map(Identity::hit).collect();
        Self { own, list: Vec::new(), by_tag: BTreeMap::new(), by_name: BTreeMap::new() }
    }

    /// A peer of this version.
    ///
    /// # Errors
    /// The key that is wrong, and why.
    pub(super) fn add(&mut self, known: Known, meant: u8) -> Result<(), (&'static str, String)> {
        if self.own.contains(&known.hit) {
            return Err(("hit", format!("{} is this host's own", known.hit)));
        }
        let is = version(known.hit);
        if is != meant {
            return Err((
                "hit",
                format!("{} is a tag of version {is}: say version = {is}, if it is meant", known.hit),
            ));
        }
        if self.by_tag.contains_key(&known.hit) {
            return Err(("hit", format!("{} stands there twice", known.hit)));
        }
        if let Some(address) = known.peer.addresses.iter().find(|a| unusable(**a)) {
            return Err(("addresses", format!("{address} is not the address of a host")));
        }
        let at = self.list.len();
        for name in &known.names {
            let fit = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if !(1..=NAME_MOST).contains(&name.len()) || !name.chars().all(fit) {
                return Err(("name", format!("\"{name}\" is no name of a host: a-z A-Z 0-9 - _ .")));
            }
            if *self.by_name.entry(name.to_ascii_lowercase()).or_insert(at) != at {
                return Err(("name", format!("\"{name}\" is the name of another peer")));
            }
        }
        self.by_tag.insert(known.hit, at);
        self.list.push(known);
        Ok(())
    }

    /// The peer with this tag has these rendezvous servers, or relays: addresses, names or tags.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub(super) fn reach_through(&mut self, hit: Hit, servers: &[String], relays: bool) -> Result<(), String> {
        let mut addresses = Vec::new();
        for server in servers {
            match (server.parse(), self.called(server)) {
                (_, Some(known)) if known.hit == hit => {
                    return Err(format!("\"{server}\" is this peer itself"));
                }
                (_, Some(known)) if !known.peer.addresses.is_empty() => {
                    addresses.extend_from_slice(&known.peer.addresses);
                }
                (_, Some(_)) => return Err(format!("no address of \"{server}\" is known")),
                (Ok(address), None) if !unusable(address) => addresses.push(address),
                (Ok(address), None) => return Err(format!("{address} is not the address of a host")),
                (Err(_), None) => return Err(format!("no peer is called \"{server}\"")),
            }
        }
        if let Some(known) = self.by_tag.get(&hit).and_then(|at| self.list.get_mut(*at)) {
            *if relays { &mut known.relays } else { &mut known.rendezvous } = addresses;
        }
        Ok(())
    }

    /// Gives this host and every peer that has none an address of this prefix: the last bits of the tag, or the next that is free.
    ///
    /// # Errors
    /// If one that is configured is not of this prefix or stands there twice, or if there are not enough.
    pub(super) fn give_lsis(&mut self, prefix: Ipv4Net, services: BTreeSet<Service>) -> Result<Lsi, String> {
        let (first, last) =
            (u32::from(prefix.network()) + 1, u32::from(prefix.broadcast()).saturating_sub(1));
        let most = last.saturating_sub(first).saturating_add(1);
        // Half of them stay free, so that one is found soon.
        if prefix.prefix_len() > LSI_LONGEST || (self.list.len() + 1) as u64 * 2 > u64::from(most) {
            return Err(format!("{prefix} is too small for {} peers", self.list.len()));
        }
        let [first_byte, ..] = prefix.network().octets();
        if prefix.prefix_len() < LSI_SHORTEST || NOT_HOSTS.iter().any(|of| of.contains(&first_byte)) {
            return Err(format!(
                "{prefix} is none: of {LSI_SHORTEST} to {LSI_LONGEST} bits, and of hosts' addresses"
            ));
        }
        let reached = self
            .list
            .iter()
            .flat_map(|known| known.peer.addresses.iter().chain(&known.rendezvous).chain(&known.relays));
        let inside = |address: &&IpAddr| matches!(address, IpAddr::V4(it) if prefix.contains(it));
        if let Some(address) = reached.into_iter().find(inside) {
            return Err(format!("{address} is in {prefix}: peers are not reached there then"));
        }
        let mut taken = BTreeSet::new();
        for lsi in self.list.iter().filter_map(|known| known.lsi) {
            if !(first..=last).contains(&u32::from(lsi)) {
                return Err(format!("{lsi} is no address of a host in {prefix}"));
            }
            if !taken.insert(lsi) {
                return Err(format!("{lsi} is the identifier of two peers"));
            }
        }
        let mut free = |hit: Hit| {
            let [.., a, b, c, d] = hit.0.octets();
            let mut at = u32::from_be_bytes([a, b, c, d]) & u32::from(prefix.hostmask());
            loop {
                let lsi = Ipv4Addr::from(first + at.saturating_sub(1) % most);
                if taken.insert(lsi) {
                    return lsi;
                }
                at = at.max(1) % most + 1;
            }
        };
        let ours = free(self.own.first().copied().unwrap_or(Hit::NULL));
        for known in &mut self.list {
            known.lsi = Some(known.lsi.unwrap_or_else(|| free(known.hit)));
        }
        Ok(Lsi { prefix, ours, services })
    }

    /// Has the local-scope identifiers of the same peers there; others have none.
    pub fn keep_lsis(&mut self, before: &Self) {
        for known in &mut self.list {
            known.lsi = before.get(known.hit).and_then(|known| known.lsi);
        }
    }

    /// All of them.
    pub fn iter(&self) -> std::slice::Iter<'_, Known> {
        self.list.iter()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The one with this tag.
    #[must_use]
    pub fn get(&self, hit: Hit) -> Option<&Known> {
        self.list.get(*self.by_tag.get(&hit)?)
    }

    /// The one with this name; upper and lower case are the same.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Known> {
        self.list.get(*self.by_name.get(&name.to_ascii_lowercase())?)
    }

    /// The one that this name or tag means.
    #[must_use]
    pub fn called(&self, text: &str) -> Option<&Known> {
        self.named(text).or_else(|| self.get(Hit(text.parse().ok()?)))
    }
}

/// The tag of a peer as people write it.
///
/// # Errors
/// What is wrong with it.
pub fn tag(text: &str) -> Result<Hit, String> {
    let address: Ipv6Addr = text
        .parse()
        .map_err(|_| format!("\"{text}\" is no HIT; one begins with 2001:2, or 2001:1 in version 1"))?;
    match HitSuite::of(Hit(address)) {
        Some(_) => Ok(Hit(address)),
        None => Err(format!(
            "\"{text}\" is no HIT of a kind that is supported: 2001:21::/32 (RSA) or 2001:22::/32 (ECDSA), or, of version 1, 2001:10::/28"
        )),
    }
}

/// A line of the mapping file, and the rendezvous servers that it names; `None` if nothing stands there.
pub(super) fn mapping(line: &str, carrier: HipCarrier) -> Result<Option<(Known, Vec<String>)>, String> {
    let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
    let Some(first) = words.next() else { return Ok(None) };
    let hit = tag(first)?;
    let (mut names, mut addresses, mut servers, mut lsi) = (Vec::new(), Vec::new(), Vec::new(), None);
    for word in words {
        if let Some(text) = word.strip_prefix('=') {
            lsi = Some(text.parse().map_err(|_| format!("\"{text}\" is no IPv4 address"))?);
            continue;
        }
        match (word.strip_prefix('@'), word.parse()) {
            (Some(server), _) => servers.push(server.to_owned()),
            (None, Ok(address)) => addresses.push(address),
            (None, Err(_)) => names.push(word.to_owned()),
        }
    }
    let peer = Peer { addresses, udp: carrier == HipCarrier::Udp };
    let (rendezvous, relays, quirks) = (Vec::new(), Vec::new(), Quirks::NONE);
    let known = Known { hit, names, peer, rendezvous, relays, lsi, identity: None, lifetime: None, quirks };
    Ok(Some((known, servers)))
}

/// No host can be called at it; a tag is what is looked for, and not where.
fn unusable(address: IpAddr) -> bool {
    let orchid = matches!(address, IpAddr::V6(a) if TAGS.contains(&a) || TAGS_V1.contains(&a));
    address.is_unspecified() || address.is_multicast() || orchid
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_crypto::sign::NewKey;

    /// Looking through all peers for each of them would take minutes.
    #[test]
    fn many_peers_are_read_and_found() {
        let pem = NewKey::EcdsaP256.pem().unwrap();
        let mut peers = Peers::of(&[super::super::hip::identity(pem.as_bytes()).unwrap()]);
        let line = |n: u32| format!("2001:22::{:x}:{:x} host{n}.example 192.0.2.1", n >> 16, n & 0xffff);
        for n in 1..=300_000 {
            peers.add(mapping(&line(n), HipCarrier::Ip).unwrap().unwrap().0, 2).unwrap();
        }
        assert_eq!(peers.named("HOST299999.example"), peers.iter().nth(299_998));
        for (line, key) in [(line(7), "hit"), ("2001:22:: HOST5.example".to_owned(), "name")] {
            assert_eq!(peers.add(mapping(&line, HipCarrier::Ip).unwrap().unwrap().0, 2).unwrap_err().0, key);
        }
    }
}

//! What is remembered of who speaks to whom: of each address, each link-layer address, each client that an input names. Owns the limits of it
//! and how the facts of several files are merged, which does not depend on their order; must never say who is a client.

use std::collections::BTreeMap;

use crate::seen::{Addr, Mac};

/// Bounds on the addresses and names that are remembered, of one file while it is read and of all files together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Addresses (some 100 bytes each).
    pub addresses: usize,
    /// Link-layer addresses (with their IP addresses some 2 kB each at most).
    pub macs: usize,
    /// Clients that inputs name.
    pub names: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { addresses: 1 << 20, macs: 1 << 18, names: 1 << 22 }
    }
}

impl Limits {
    /// What is left of them beside these facts.
    pub(crate) fn beside(self, facts: &BTreeMap<String, Facts>) -> Self {
        let held = |of: fn(&Facts) -> usize| facts.values().map(of).sum::<usize>();
        Self {
            addresses: self.addresses.saturating_sub(held(|f| f.addresses.len())),
            macs: self.macs.saturating_sub(held(|f| f.macs.len())),
            names: self.names.saturating_sub(held(|f| f.names.len())),
        }
    }
}

/// Addresses remembered for one link-layer address: more is no host.
pub const MAX_ADDRESSES_OF_MAC: usize = 32;

/// A client as an input names it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Named {
    /// The site within the input; empty if the input does not say.
    pub site: String,
    /// Its name.
    pub name: String,
    /// Its link-layer address, if the input says: two of one name are two clients.
    pub mac: Option<Mac>,
}

/// When and how often something was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sightings {
    /// First time, in nanoseconds since 1970.
    pub first: u64,
    /// Last time.
    pub last: u64,
    /// How often.
    pub count: u64,
}

impl Default for Sightings {
    fn default() -> Self {
        Self { first: u64::MAX, last: 0, count: 0 }
    }
}

impl Sightings {
    pub(crate) fn add(&mut self, other: Self) {
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.count = self.count.saturating_add(other.count);
    }
}

/// What is known of a link-layer address.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct MacFacts {
    /// All frames that it sent.
    pub sent: Sightings,
    /// The IP addresses it sent from (at most [`MAX_ADDRESSES_OF_MAC`]; none if there were more).
    pub addresses: BTreeMap<Addr, Sightings>,
    /// There were more.
    pub overflow: bool,
    /// It was a wireless station, sending to its access point.
    pub station: bool,
}

impl MacFacts {
    /// Beyond the limit all are forgotten: it is a router, and which of them came first must not matter.
    pub(crate) fn add_address(&mut self, address: Addr, seen: Sightings) {
        if self.overflow {
            return;
        }
        if let Some(known) = self.addresses.get_mut(&address) {
            known.add(seen);
        } else if self.addresses.len() < MAX_ADDRESSES_OF_MAC {
            self.addresses.insert(address, seen);
        } else {
            self.overflow = true;
            self.addresses.clear();
        }
    }
}

/// What is known of an IP address.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct AddrFacts {
    /// Packets that it sent.
    pub sent: Sightings,
    /// Packets that it received.
    pub received: u64,
    /// It answered DNS or DHCP: infrastructure.
    pub serves: bool,
    /// One bit for each of 64 groups of conversation partners.
    pub partners: u64,
    /// It was seen without link-layer addresses (flow records, raw IP).
    pub bare: bool,
}

/// Facts of all files of a site.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Facts {
    /// By link-layer address.
    pub macs: BTreeMap<Mac, MacFacts>,
    /// By IP address.
    pub addresses: BTreeMap<Addr, AddrFacts>,
    /// Clients that the inputs named, with records.
    pub names: BTreeMap<Named, u64>,
    /// Records of ends that were new when the tables were full.
    pub overflow: u64,
}

/// The facts about `key`, of at most `left` more keys.
fn merged<'a, K: Ord, V: Default>(
    table: &'a mut BTreeMap<K, V>,
    key: K,
    left: &mut usize,
) -> Option<&'a mut V> {
    if !table.contains_key(&key) {
        *left = left.checked_sub(1)?;
    }
    Some(table.entry(key).or_default())
}

impl Facts {
    /// Takes over the facts of another file, of which no more may be new than `left` says.
    pub fn merge(&mut self, other: Self, mut left: Limits) {
        self.overflow = self.overflow.saturating_add(other.overflow);
        for (mac, facts) in other.macs {
            let Some(mine) = merged(&mut self.macs, mac, &mut left.macs) else {
                self.overflow = self.overflow.saturating_add(facts.sent.count);
                continue;
            };
            mine.sent.add(facts.sent);
            mine.station |= facts.station;
            if facts.overflow {
                mine.overflow = true;
                mine.addresses.clear();
            }
            for (address, seen) in facts.addresses {
                mine.add_address(address, seen);
            }
        }
        for (address, facts) in other.addresses {
            let Some(mine) = merged(&mut self.addresses, address, &mut left.addresses) else {
                self.overflow = self.overflow.saturating_add(facts.sent.count.saturating_add(facts.received));
                continue;
            };
            mine.sent.add(facts.sent);
            mine.received = mine.received.saturating_add(facts.received);
            mine.serves |= facts.serves;
            mine.partners |= facts.partners;
            mine.bare |= facts.bare;
        }
        for (name, records) in other.names {
            match merged(&mut self.names, name, &mut left.names) {
                Some(mine) => *mine += records,
                None => self.overflow = self.overflow.saturating_add(records),
            }
        }
    }
}

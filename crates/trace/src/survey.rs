//! The first reading of a recording: who speaks to whom, and how late records come. Owns the facts from which
//! [`crate::clients`] finds the clients; must never account anything.
//!
//! Facts from several files are merged with operations that do not depend on the order.

use std::collections::BTreeMap;

use crate::decode::exports::Exported;
use crate::decode::{Format, Next};
use crate::index::{Table, mix};
use crate::input::Input;
use crate::loss::Losses;
use crate::seen::{Addr, Mac, Scope, Seen};
use crate::source::Reader;
use indexmap::map::Entry;

/// Addresses remembered; further ones are only counted.
const MAX_ADDRESSES: usize = 1 << 20;
/// Link-layer addresses remembered.
const MAX_MACS: usize = 1 << 18;
/// Addresses remembered for one link-layer address: more is no host.
pub const MAX_ADDRESSES_OF_MAC: usize = 32;
/// Entries of the cache in front of the tables.
const CACHE: usize = 8192;

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
    fn add(&mut self, other: Self) {
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

/// Facts of all files together.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Facts {
    /// By link-layer address.
    pub macs: BTreeMap<Mac, MacFacts>,
    /// By IP address.
    pub addresses: BTreeMap<Addr, AddrFacts>,
    /// Clients that the inputs named, with packets.
    pub names: BTreeMap<String, u64>,
    /// Packets (flows for flow logs).
    pub records: u64,
    /// Sightings that found the tables full.
    pub overflow: u64,
}

/// What the first reading says of one file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileSurvey {
    /// Its name.
    pub name: String,
    /// Its format; `None` if it could not be opened.
    pub format: Option<Format>,
    /// First time, in nanoseconds since 1970 (`u64::MAX` if empty).
    pub first: u64,
    /// Last time.
    pub last: u64,
    /// Records.
    pub records: u64,
    /// By how much the latest record came late, in nanoseconds.
    pub lateness: u64,
    /// Records that came before their predecessor.
    pub out_of_order: u64,
    /// 802.11 frames without traffic.
    pub upkeep: u64,
    /// What the export datagrams in a capture yielded.
    pub exported: Exported,
    /// What was lost.
    pub losses: Losses,
    /// The file's own words if it says that it is synthetic.
    pub synthetic: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Pair {
    src_mac: Mac,
    src: Addr,
    dst: Addr,
    serves: bool,
    station: bool,
    bare: bool,
}

impl Pair {
    #[inline]
    fn slot(&self) -> usize {
        let h = self.src_mac.0
            ^ self.src.lo.rotate_left(17)
            ^ self.src.hi
            ^ self.dst.lo.rotate_left(41)
            ^ self.dst.hi.rotate_left(7);
        mix(h ^ u64::from(self.serves)) as usize & (CACHE - 1)
    }
}

/// Collects [`Facts`] with a small cache for the pairs that are talking now, and indexed tables behind it.
struct Collector {
    cache: Vec<Option<(Pair, Sightings)>>,
    macs: Table<Mac, MacFacts>,
    addresses: Table<Addr, AddrFacts>,
    overflow: u64,
}

impl Collector {
    fn new() -> Self {
        Self { cache: vec![None; CACHE], macs: Table::default(), addresses: Table::default(), overflow: 0 }
    }

    #[inline]
    fn see(&mut self, seen: &Seen, count: u64) {
        let serves = matches!(seen.src_port, 53 | 67) && seen.protocol == 17;
        let bare = seen.src.mac == Mac::NONE && seen.dst.mac == Mac::NONE;
        let (src_mac, src, dst, station) = (seen.src.mac, seen.src.ip, seen.dst.ip, seen.station);
        let pair = Pair { src_mac, src, dst, serves, station, bare };
        let now = Sightings { first: seen.at, last: seen.at, count };
        let Some(slot) = self.cache.get_mut(pair.slot()) else { return };
        match slot {
            Some((cached, sightings)) if *cached == pair => sightings.add(now),
            _ => {
                if let Some((pair, sightings)) = slot.replace((pair, now)) {
                    self.note(pair, sightings);
                }
            }
        }
    }

    fn finish(mut self) -> Facts {
        for (pair, sightings) in std::mem::take(&mut self.cache).into_iter().flatten() {
            self.note(pair, sightings);
        }
        let (macs, addresses) = (self.macs.into_iter().collect(), self.addresses.into_iter().collect());
        Facts { macs, addresses, overflow: self.overflow, ..Facts::default() }
    }

    fn note(&mut self, pair: Pair, seen: Sightings) {
        if pair.src_mac.is_unicast() || pair.src_mac == Mac::THIS_MACHINE {
            self.note_mac(pair, seen);
        }
        if pair.src.scope() != Scope::NotOneHost
            && let Some(facts) = self.address(pair.src)
        {
            facts.sent.add(seen);
            facts.serves |= pair.serves;
            facts.partners |= partner(pair.dst);
            facts.bare |= pair.bare;
        }
        if pair.dst.scope() != Scope::NotOneHost
            && let Some(facts) = self.address(pair.dst)
        {
            facts.received += seen.count;
            facts.partners |= partner(pair.src);
            facts.bare |= pair.bare;
        }
    }

    fn note_mac(&mut self, pair: Pair, seen: Sightings) {
        let Some(facts) = known(&mut self.macs, pair.src_mac, MAX_MACS) else {
            self.overflow += seen.count;
            return;
        };
        facts.sent.add(seen);
        facts.station |= pair.station;
        if pair.src.scope() != Scope::NotOneHost {
            facts.add_address(pair.src, seen);
        }
    }

    fn address(&mut self, address: Addr) -> Option<&mut AddrFacts> {
        let facts = known(&mut self.addresses, address, MAX_ADDRESSES);
        if facts.is_none() {
            self.overflow += 1;
        }
        facts
    }
}

/// One of 64 bits for an address.
const fn partner(address: Addr) -> u64 {
    1 << (mix(address.lo.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ address.hi.rotate_left(23)) & 63)
}

/// The facts about `key`, of at most so many keys.
#[inline]
fn known<K: std::hash::Hash + Eq, V: Default>(
    table: &mut Table<K, V>,
    key: K,
    most: usize,
) -> Option<&mut V> {
    let held = table.len();
    match table.entry(key) {
        Entry::Occupied(known) => Some(known.into_mut()),
        Entry::Vacant(new) => (held < most).then(|| new.insert(V::default())),
    }
}

impl Facts {
    fn note_address(&mut self, address: Addr, update: impl FnOnce(&mut AddrFacts)) {
        if self.addresses.len() >= MAX_ADDRESSES && !self.addresses.contains_key(&address) {
            self.overflow += 1;
            return;
        }
        update(self.addresses.entry(address).or_default());
    }

    /// Takes over the facts of another file.
    pub fn merge(&mut self, other: Self) {
        for (mac, facts) in other.macs {
            match self.macs.get_mut(&mac) {
                None => {
                    self.macs.insert(mac, facts);
                }
                Some(mine) => {
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
            }
        }
        for (address, facts) in other.addresses {
            self.note_address(address, |mine| {
                mine.sent.add(facts.sent);
                mine.received += facts.received;
                mine.serves |= facts.serves;
                mine.partners |= facts.partners;
                mine.bare |= facts.bare;
            });
        }
        for (name, packets) in other.names {
            *self.names.entry(name).or_default() += packets;
        }
        self.records += other.records;
        self.overflow += other.overflow;
    }
}

impl MacFacts {
    /// Beyond the limit all are forgotten: it is a router, and which of them came first must not matter.
    fn add_address(&mut self, address: Addr, seen: Sightings) {
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

/// Reads one input through. Every few thousand records `progress` gets the number of bytes read since its last call.
pub fn survey(input: &Input, format: Option<Format>, progress: &(dyn Fn(u64) + Sync)) -> (FileSurvey, Facts) {
    let mut file = FileSurvey {
        name: input.name().to_owned(),
        format: None,
        first: u64::MAX,
        last: 0,
        records: 0,
        lateness: 0,
        out_of_order: 0,
        upkeep: 0,
        exported: Exported::default(),
        losses: Losses::default(),
        synthetic: None,
    };
    let mut reader = match Reader::open(input, format) {
        Ok(reader) => reader,
        Err(loss) => {
            file.losses.push(loss);
            return (file, Facts::default());
        }
    };
    file.format = Some(reader.format());
    let mut collector = Collector::new();
    let mut named: Vec<Named> = Vec::new();
    let (mut previous, mut latest) = (0, 0);
    while let Some(next) = reader.record() {
        let (start, end) = match &next {
            Next::Packet(seen) => {
                if seen.name == 0 {
                    collector.see(seen, 1);
                } else {
                    // Only the order within a client matters: recordings sorted by client need no reordering.
                    let late = count_name(&mut named, seen.name, seen.at);
                    file.lateness = file.lateness.max(late);
                    file.out_of_order += u64::from(late > 0);
                    (latest, previous) = (seen.at, seen.at);
                }
                (seen.at, seen.at)
            }
            Next::Flow(flow) => {
                collector.see(&flow.first, flow.forward.max(1));
                if flow.back > 0 {
                    collector.see(&flow.reply(), flow.back);
                }
                (flow.first.at, flow.end)
            }
            Next::Burst(period) => {
                count_name(&mut named, period.client.saturating_add(1), period.at);
                (period.at, period.at.saturating_add(period.span))
            }
            _ => continue,
        };
        file.records += 1;
        file.first = file.first.min(start);
        file.out_of_order += u64::from(start < previous);
        previous = start;
        // `lateness` is measured against the latest start, `last` against the latest end.
        file.lateness = file.lateness.max(raise(&mut latest, start) - start);
        file.last = file.last.max(end);
        if file.records.is_multiple_of(65_536) {
            progress(reader.offset());
        }
    }
    progress(reader.offset());
    file.upkeep = reader.upkeep();
    file.exported = reader.decoder().exported();
    file.losses.extend(reader.losses().clone());
    file.synthetic = reader.decoder().synthetic().map(str::to_owned);
    let mut facts = collector.finish();
    facts.records = file.records;
    for (name, of) in reader.decoder().names().into_iter().flatten().zip(named) {
        *facts.names.entry(name.clone()).or_default() += of.records;
    }
    (file, facts)
}

/// A client that the input names.
#[derive(Clone, Copy, Default)]
struct Named {
    records: u64,
    latest: u64,
}

/// Counts a record of a named client; by how much it came late.
fn count_name(named: &mut Vec<Named>, name: u32, at: u64) -> u64 {
    let slot = name as usize - 1;
    if named.len() <= slot {
        named.resize(slot + 1, Named::default());
    }
    let Some(of) = named.get_mut(slot) else { return 0 };
    of.records += 1;
    raise(&mut of.latest, at) - at
}

/// Raises the running maximum to `start` and returns it.
fn raise(latest: &mut u64, start: u64) -> u64 {
    *latest = (*latest).max(start);
    *latest
}

//! The first reading of a recording: who speaks to whom, and what looks odd about its times. Collects the [`Facts`]
//! from which [`crate::clients`] finds the clients; must never account anything.
//!
//! Facts of files of one site are merged, those of different sites never. How much is remembered is bounded ([`Limits`]); what is beyond is
//! counted, and said to be a loss.

use std::collections::BTreeMap;

use crate::decode::exports::Exported;
use crate::decode::{Format, Next};
use crate::facts::{AddrFacts, Facts, Limits, MacFacts, Sightings};
use crate::index::{Table, mix};
use crate::input::Input;
use crate::loss::{Loss, Losses};
use crate::read::Reader;
use crate::seen::{Addr, Mac, Scope, Seen};
use indexmap::map::Entry;

/// Entries of the cache in front of the tables.
const CACHE: usize = 8192;

/// Steps in the times of a capture that no order of packets explains: more than [`Jumps::BACK`] back, more than [`Jumps::FORWARD`] on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Jumps {
    /// How often back.
    pub back: u64,
    /// How often on.
    pub forward: u64,
    /// The first: its record, counted from 1, and the times before and after, in nanoseconds since 1970.
    pub first: Option<(u64, u64, u64)>,
}

impl Jumps {
    /// One second: packets of several queues may be out of order by less.
    pub const BACK: u64 = 1_000_000_000;
    /// A day in which no client of the recording sent anything.
    pub const FORWARD: u64 = 86_400_000_000_000;

    fn step(&mut self, record: u64, from: u64, to: u64) {
        let (back, forward) = (to.saturating_add(Self::BACK) < from, from.saturating_add(Self::FORWARD) < to);
        self.back += u64::from(back);
        self.forward += u64::from(forward);
        if back || forward {
            self.first.get_or_insert((record, from, to));
        }
    }
}

/// What the first reading says of one file.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct FileSurvey {
    /// Its name.
    pub name: String,
    /// The site that it belongs to: its label, or itself.
    pub site: String,
    /// Its format; `None` if it could not be opened.
    pub format: Option<Format>,
    /// First time, in nanoseconds since 1970 (`u64::MAX` if empty).
    pub first: u64,
    /// Last time.
    pub last: u64,
    /// Records.
    pub records: u64,
    /// Records that came before their predecessor; of a client that the input names, before its own.
    pub out_of_order: u64,
    /// Where a capture's clock seems to have been set.
    pub jumps: Jumps,
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
    limits: Limits,
    overflow: u64,
}

impl Collector {
    fn new(limits: Limits) -> Self {
        let (macs, addresses) = (Table::default(), Table::default());
        Self { cache: vec![None; CACHE], macs, addresses, limits, overflow: 0 }
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
            && let Some(facts) = self.address(pair.src, seen.count)
        {
            facts.sent.add(seen);
            facts.serves |= pair.serves;
            facts.partners |= partner(pair.dst);
            facts.bare |= pair.bare;
        }
        if pair.dst.scope() != Scope::NotOneHost
            && let Some(facts) = self.address(pair.dst, seen.count)
        {
            facts.received = facts.received.saturating_add(seen.count);
            facts.partners |= partner(pair.src);
            facts.bare |= pair.bare;
        }
    }

    fn note_mac(&mut self, pair: Pair, seen: Sightings) {
        let Some(facts) = known(&mut self.macs, pair.src_mac, self.limits.macs) else {
            self.overflow += seen.count;
            return;
        };
        facts.sent.add(seen);
        facts.station |= pair.station;
        if pair.src.scope() != Scope::NotOneHost {
            facts.add_address(pair.src, seen);
        }
    }

    fn address(&mut self, address: Addr, count: u64) -> Option<&mut AddrFacts> {
        let facts = known(&mut self.addresses, address, self.limits.addresses);
        if facts.is_none() {
            self.overflow = self.overflow.saturating_add(count);
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

/// Takes the facts of a file over into those of its site, and says what of them found no room.
pub fn merge(sites: &mut BTreeMap<String, Facts>, file: &mut FileSurvey, facts: Facts, limits: Limits) {
    let left = limits.beside(sites);
    let of_site = sites.entry(file.site.clone()).or_default();
    let before = of_site.overflow;
    of_site.merge(facts, left);
    let overflow = of_site.overflow - before;
    if overflow > 0 {
        let Limits { addresses, macs, names } = limits;
        let reason = format!(
            "{overflow} records of further ends were not looked at for clients: {addresses} addresses, {macs} link-layer addresses and \
             {names} names are the most that are remembered of all inputs"
        );
        file.losses.push(Loss { file: file.name.clone(), offset: 0, record: 0, reason });
    }
}

/// Reads one input through. Every few thousand records `progress` gets the number of bytes read since its last call.
pub fn survey(
    input: &Input,
    format: Option<Format>,
    limits: Limits,
    progress: &(dyn Fn(u64) + Sync),
) -> (FileSurvey, Facts) {
    let mut file = FileSurvey {
        name: input.name().to_owned(),
        site: input.site().to_owned(),
        format: None,
        first: u64::MAX,
        last: 0,
        records: 0,
        out_of_order: 0,
        jumps: Jumps::default(),
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
    let mut collector = Collector::new(limits);
    let mut named: Vec<Records> = Vec::new();
    let (mut previous, mut packet) = (0, None);
    while let Some(next) = reader.record() {
        let (start, end) = match &next {
            Next::Packet(seen) if seen.name == 0 => {
                collector.see(seen, 1);
                if let Some(before) = packet.replace(seen.at) {
                    file.jumps.step(file.records + 1, before, seen.at);
                }
                (seen.at, seen.at)
            }
            Next::Packet(seen) => {
                previous = Records::count(&mut named, seen.name - 1, seen.at);
                (seen.at, seen.at)
            }
            Next::Flow(flow) => {
                collector.see(&flow.first, flow.forward.max(1));
                if flow.back > 0 {
                    collector.see(&flow.reply(), flow.back);
                }
                (flow.first.at, flow.end)
            }
            Next::Burst(activity) => {
                previous = Records::count(&mut named, activity.client, activity.start);
                (activity.start, activity.end)
            }
            _ => continue,
        };
        file.records += 1;
        file.first = file.first.min(start);
        file.out_of_order += u64::from(start < previous);
        previous = start;
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
    for (number, of) in (0u32..).zip(named) {
        if let Some(name) = reader.decoder().named(number) {
            *facts.names.entry(name).or_default() += of.records;
        }
    }
    (file, facts)
}

/// Records of a client that the input names.
#[derive(Clone, Copy, Default)]
struct Records {
    records: u64,
    latest: u64,
}

impl Records {
    /// Counts one; when the client's latest was before it.
    fn count(named: &mut Vec<Self>, number: u32, at: u64) -> u64 {
        let slot = number as usize;
        if named.len() <= slot {
            named.resize(slot + 1, Self::default());
        }
        let Some(of) = named.get_mut(slot) else { return 0 };
        of.records += 1;
        let before = of.latest;
        of.latest = before.max(at);
        before
    }
}

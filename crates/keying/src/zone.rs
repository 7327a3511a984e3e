//! Zones of a packet, each with keys of its own (multi-layered IPsec): what key managers and data planes say of them. Owns the map of the
//! zones, the keys of each, the numbers that keep nonces apart, and what an access router is given; must never cut or open a packet.
//!
//! A composite SA is one SA for each zone. The first zone's is the designated one: its SPI, sequence numbers, replay window and lifetime are
//! those of the whole, and stand in [`crate::Install`] itself. The first zone's keys may be given to access routers; those of the further
//! zones stay at the end points. How a packet is cut and sealed stands in `docs/wire/mml-ipsec.md`.
//!
//! # Nonces
//! A nonce of the first zone names the node that made it, because a router that changes a header seals it again under the same key. The
//! sender is node 0. One end point, the one that gives the keys to routers, has all the other numbers ([`Nodes::ALL`]), takes a range of them
//! for each router to which it gives the keys ([`Nodes::take`]), and never gives a number twice as long as the keys live: also a router that
//! lost its keys and gets them again gets new numbers. A router uses the first of its range ([`Nodes::own`]), and halves the range for a router to which
//! it hands the keys on ([`Nodes::give`]). When no number is left, the composite SA must be rekeyed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dormouse_crypto::Secret;
use dormouse_crypto::suites::Encr;

/// Where a zone ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneEnd {
    /// Behind the IP header, with its options or extension headers.
    IpHeader,
    /// Behind the transport header, with TCP's options; behind the IP header where no transport header follows: in a later fragment, or
    /// of another protocol than TCP and UDP.
    TransportHeader,
    /// So many bytes behind the start of the packet. 0 only as the first end of a map: the first zone has no bytes then, so a router with its keys
    /// authenticates SPI, number and lengths of a packet, and reads nothing.
    At(u16),
}

/// The zones of a packet: consecutive, without gaps or overlap. Each begins where the one before ends, and the last ends with the packet. In a
/// packet that is too short a zone ends where the packet does, so it may be empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZoneMap {
    /// The ends of all zones but the last.
    ends: Vec<ZoneEnd>,
}

impl ZoneMap {
    /// The most zones.
    pub const MOST: usize = 8;
    /// The most bytes of a first zone; one that would end behind them ends there.
    pub const FIRST_MOST: usize = 128;

    /// A map whose zones but the last end so. `None` unless there are 2 to [`Self::MOST`] zones, and each end lies behind the one before: first
    /// those of headers, in their order, then those in bytes, ascending. No zone but the first begins where the packet does.
    #[must_use]
    pub fn new(ends: Vec<ZoneEnd>) -> Option<Self> {
        let rank = |end: &ZoneEnd| match end {
            ZoneEnd::IpHeader => (0, 0),
            ZoneEnd::TransportHeader => (1, 0),
            ZoneEnd::At(at) => (2, *at),
        };
        let ascending = ends.windows(2).all(|pair| matches!(pair, [a, b] if rank(a) < rank(b)));
        let count = (1..Self::MOST).contains(&ends.len());
        let nothing_twice = ends.iter().skip(1).all(|end| *end != ZoneEnd::At(0));
        (count && ascending && nothing_twice).then_some(Self { ends })
    }

    /// The ends of all zones but the last.
    #[must_use]
    pub fn ends(&self) -> &[ZoneEnd] {
        &self.ends
    }

    /// How many zones there are.
    #[must_use]
    pub fn zones(&self) -> usize {
        self.ends.len() + 1
    }
}

impl Default for ZoneMap {
    /// Two zones: the headers with all their options, and the rest.
    fn default() -> Self {
        Self { ends: vec![ZoneEnd::TransportHeader] }
    }
}

/// The zones of a CHILD SA and the keys of the further ones. Those of the first are [`crate::Install::encr`], `keymat_in` and `keymat_out`.
#[derive(Clone, Debug)]
pub struct Zones {
    /// Where they end.
    pub map: ZoneMap,
    /// Of the second zone and those behind it, in order: one less than there are zones.
    pub further: Vec<ZoneKeys>,
}

/// A pair of SAs of one zone, which its end points alone hold.
#[derive(Clone, Debug)]
pub struct ZoneKeys {
    /// The cipher, an AEAD with an ICV of 16 bytes.
    pub encr: Encr,
    /// Keying material of what we receive, in the order of RFC 7296 section 2.17: key, then salt.
    pub keymat_in: Secret,
    /// Keying material of what we send.
    pub keymat_out: Secret,
}

/// Consecutive numbers of nodes, at least one: see the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nodes {
    first: u32,
    /// The one after the last.
    end: u32,
}

impl Nodes {
    /// The sender of an SA.
    pub const SENDER: u32 = 0;
    /// All that a router can be: 1 to 2^24 - 1.
    pub const ALL: Self = Self { first: 1, end: 1 << 24 };

    /// The numbers from `first` to `last`; `None` if these are none, or not within [`Self::ALL`].
    #[must_use]
    pub const fn new(first: u32, last: u32) -> Option<Self> {
        if first >= 1 && first <= last && last < Self::ALL.end {
            Some(Self { first, end: last + 1 })
        } else {
            None
        }
    }

    /// The number that the holder of the range uses itself.
    #[must_use]
    pub const fn own(self) -> u32 {
        self.first
    }

    /// The last number.
    #[must_use]
    pub const fn last(self) -> u32 {
        self.end - 1
    }

    /// Takes `count` numbers out for a router. `None` if fewer than that and one more are left: then none is taken.
    #[must_use]
    pub const fn take(&mut self, count: u32) -> Option<Self> {
        if count == 0 || self.end - self.first <= count {
            return None;
        }
        let taken = Self { first: self.first, end: self.first + count };
        self.first += count;
        Some(taken)
    }

    /// Gives the upper half away, to a router that gets the keys from this one, and keeps [`Self::own`]. `None` if that is the only one.
    #[must_use]
    pub const fn give(&mut self) -> Option<Self> {
        let half = (self.end - self.first) / 2;
        if half == 0 {
            return None;
        }
        let given = Self { first: self.end - half, end: self.end };
        self.end -= half;
        Some(given)
    }
}

/// The first zone of both directions of a composite SA, as an access router between its end points gets it.
#[derive(Clone, Debug)]
pub struct HeaderGrant {
    /// What the end points agreed on.
    pub map: ZoneMap,
    /// The cipher of the first zone.
    pub encr: Encr,
    /// Whether sequence numbers have 64 bits.
    pub esn: bool,
    /// What goes to the device, over the radio.
    pub to_device: HeaderSa,
    /// What the device sends.
    pub from_device: HeaderSa,
    /// The numbers that the router has in nonces, in both directions.
    pub nodes: Nodes,
}

impl HeaderGrant {
    /// Its name.
    #[must_use]
    pub const fn id(&self) -> GrantId {
        GrantId { to_device: self.to_device.spi, from_device: self.from_device.spi }
    }

    /// The direction to the device, or from it.
    #[must_use]
    pub const fn of(&self, to_device: bool) -> &HeaderSa {
        if to_device { &self.to_device } else { &self.from_device }
    }
}

/// The first zone of one direction of a composite SA.
#[derive(Clone, Debug)]
pub struct HeaderSa {
    /// The SPI, which its receiver chose.
    pub spi: u32,
    /// Keying material of the first zone: key, then salt.
    pub keymat: Secret,
    /// The sequence number that the SA has reached.
    pub reached: Reached,
}

/// The sequence number that an SA has reached where its packets pass: at first the one that came with the keys. A packet with a higher number is
/// one that has not passed.
///
/// Clones share it: the data plane, which opens packets, raises it, and the key manager reads it.
#[derive(Clone, Debug, Default)]
pub struct Reached {
    first: u64,
    /// The highest number of a packet that was opened here; 0 for none.
    opened: Arc<AtomicU64>,
}

impl Reached {
    /// How far behind another packet one may come; what an end's replay window still takes is about that.
    const LATE: u64 = 1_024;

    /// About the number that the SA had reached when the keys came. It places those on the wire, which lack their upper half: with fewer than
    /// 2^31 packets between it and the next one seen it is near enough.
    #[must_use]
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// An authentic packet of this number was opened here.
    pub fn raise(&self, seq: u64) {
        self.opened.fetch_max(seq, Ordering::Relaxed);
    }

    /// What was opened where the same keys were held before was opened here.
    pub fn follow(&self, before: &Self) {
        self.raise(before.opened.load(Ordering::Relaxed));
    }

    /// The highest number that packets have reached; 0 for none. What came with the keys is only said: it counts until the packets that are opened here are
    /// further behind it than any comes late.
    #[must_use]
    pub fn highest(&self) -> u64 {
        let opened = self.opened.load(Ordering::Relaxed);
        if opened == 0 || self.first.saturating_sub(opened) < Self::LATE {
            self.first.max(opened)
        } else {
            opened
        }
    }
}

impl From<u64> for Reached {
    fn from(first: u64) -> Self {
        Self { first, opened: Arc::default() }
    }
}

/// What an authentic packet of an SA in zones says to who has the keys of its first zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened {
    /// It is on its way to the device.
    pub to_device: bool,
    /// Its full sequence number.
    pub seq: u64,
}

/// Opens the first zone of an ESP packet, from its SPI on, with these keys; `None` if they do not open it. It is a function of the data plane, which knows packets,
/// for key managers, which decide by one.
pub type OpenFirstZone = fn(&HeaderGrant, &[u8]) -> Option<Opened>;

/// Names what a router was given, by the SPIs of both directions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GrantId {
    /// Of what goes to the device.
    pub to_device: u32,
    /// Of what the device sends.
    pub from_device: u32,
}

/// A change of the header zones that an access router can read, ordered by its key manager.
#[derive(Debug)]
pub enum HeaderOrder {
    /// Use these keys from now on, in place of any of the same name.
    Grant(Box<HeaderGrant>),
    /// Forget these keys: their holder was told that it needs them no longer.
    Revoke(GrantId),
}

/// What the data plane of an access router tells its key manager about the keys that it was given. It forwards untouched what it cannot open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderNews {
    /// Packets of this SA no longer open: the keys are stale, or someone forges packets under its SPI. Told once until one opens again.
    Stale(GrantId),
    /// Every nonce of this router's number is used: it reads on and changes no header more, until it gets keys with a new number.
    Exhausted(GrantId),
    /// These keys were ordered and cannot be used here: there are too many, or they do not fit their cipher. Nothing is read with them.
    Unusable(GrantId),
}

#[cfg(test)]
mod tests {
    use super::*;
    use ZoneEnd::{At, IpHeader, TransportHeader};

    #[test]
    fn a_map_ascends_and_has_two_to_eight_zones() {
        for good in [
            vec![At(40)],
            vec![IpHeader, TransportHeader],
            vec![TransportHeader, At(100), At(101)],
            vec![At(0)],
            vec![At(0), At(40)],
        ] {
            assert!(ZoneMap::new(good).is_some());
        }
        let seven = (1..8).map(At).collect();
        assert_eq!(ZoneMap::new(seven).map(|map| map.zones()), Some(ZoneMap::MOST));
        let eight = (1..9).map(At).collect();
        for bad in [
            vec![],
            vec![At(5), At(5)],
            vec![At(40), IpHeader],
            vec![IpHeader, IpHeader],
            vec![IpHeader, At(0)],
            vec![At(0), IpHeader],
            vec![At(0), At(0)],
            eight,
        ] {
            assert_eq!(ZoneMap::new(bad.clone()), None, "{bad:?}");
        }
    }

    #[test]
    fn what_is_reached_is_shared_by_clones_and_never_falls() {
        let here = Reached::from(7);
        for (seq, highest) in [(5, 7), (9, 9), (8, 9)] {
            here.clone().raise(seq);
            assert_eq!((here.first(), here.highest()), (7, highest));
        }
    }

    #[test]
    fn a_number_that_is_only_said_counts_until_packets_disprove_it() {
        let said = u64::from(u32::MAX);
        for (opened, highest) in [(said - 1_023, said), (said - 1_024, said - 1_024), (5, 5)] {
            let here = Reached::from(said);
            assert_eq!(here.highest(), said);
            here.raise(opened);
            assert_eq!(here.highest(), highest);
            here.raise(said + 1);
            assert_eq!(here.highest(), said + 1);
        }
    }

    #[test]
    fn what_was_opened_goes_on_with_new_keys_and_what_was_said_does_not() {
        let (before, said) = (Reached::from(9), Reached::from(1 << 40));
        before.raise(20);
        said.raise(5);
        for (before, highest) in [(&before, 20), (&said, 5), (&Reached::from(9), 0)] {
            let here = Reached::from(0);
            here.follow(before);
            assert_eq!(here.highest(), highest);
        }
    }

    #[test]
    fn no_number_is_given_twice() {
        let mut all = Nodes::new(1, 64).unwrap();
        let mut held = Vec::new();
        while let Some(mut taken) = all.take(8) {
            while let Some(given) = taken.give() {
                held.push(given);
            }
            held.push(taken);
        }
        held.push(all);
        let mut numbers: Vec<u32> = held.iter().flat_map(|nodes| nodes.own()..=nodes.last()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=64).collect::<Vec<_>>());
        let (mut one, mut two) = (Nodes::new(7, 7).unwrap(), Nodes::new(7, 8).unwrap());
        assert_eq!((one.give(), one.take(1), two.take(2)), (None, None, None));
        assert_eq!((Nodes::new(0, 5), Nodes::new(6, 5), Nodes::new(1, 1 << 24)), (None, None, None));
    }
}

//! The one record behind every decoder: what a client did in one stretch of time. Owns how a flow or a burst is laid out over its stretch;
//! must never decide anything.
//!
//! A packet is an activity without length, a flow one interval with counts, and so is a burst that was written as a row. Laid out, its packets
//! stand evenly from start to end: first those that lead, which the client received before it sent anything, then both directions in
//! proportion. Packets closer to each other than half the shortest idle period are never looked at one by one ([`Cursor`]), so that what an
//! activity takes depends on its length and not on the packets that it claims.

use dormouse_energy::{Direction, PacketInfo};

use crate::seen::{ClientPacket, time_of_day};

/// The longest activity, in nanoseconds (31 days). A record that claims more is damage.
pub const LONGEST: u64 = 31 * 86_400 * 1_000_000_000;

/// What begins a session beside a silence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Mark {
    /// Nothing.
    #[default]
    None,
    /// The client joined the network: an 802.11 association, or DHCP without an address (RFC 2131, section 4.4.1).
    Joins,
    /// The record names its connection (Zeek's uid).
    Connection,
}

/// What a client did in one stretch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Activity {
    /// The client's number.
    pub client: u32,
    /// First packet, in nanoseconds since 1970.
    pub start: u64,
    /// Last packet; not before the first.
    pub end: u64,
    /// Packets, at least 1.
    pub packets: u64,
    /// Those that the client sent (or whose direction is unknown).
    pub outgoing: u64,
    /// Those before the first that it sent; all if it sent none.
    pub lead: u64,
    /// What begins with it.
    pub mark: Mark,
    /// The first packet.
    pub first: PacketInfo,
    /// The last, or one of the other direction.
    pub last: PacketInfo,
    /// The number of its session in its client, from 0: known once a client's activities are in order of time, as the silences are.
    pub session: u32,
    /// How long the client was silent before it, in nanoseconds; none for a client's first.
    pub silence: Option<u64>,
    /// How long the client had sent nothing before it, in nanoseconds; none if it never had.
    pub outgoing_silence: Option<u64>,
}

/// Packets of one direction at one moment, as they are accounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// When, in nanoseconds since 1970.
    pub at: u64,
    /// How many.
    pub count: u64,
    /// The first of them.
    pub info: PacketInfo,
}

impl Activity {
    /// Of one packet.
    #[must_use]
    pub fn packet(packet: &ClientPacket) -> Self {
        let ClientPacket { at, client, info } = *packet;
        let outgoing = u64::from(info.is_outgoing());
        Self {
            client,
            start: at,
            end: at,
            packets: 1,
            outgoing,
            lead: 1 - outgoing,
            first: info,
            last: info,
            ..Self::default()
        }
    }

    /// Takes in a later packet of the same burst.
    pub fn extend(&mut self, later: &Self) {
        if self.outgoing == 0 {
            self.lead = self.lead.saturating_add(later.lead);
        }
        self.packets = self.packets.saturating_add(later.packets);
        self.outgoing = self.outgoing.saturating_add(later.outgoing);
        self.end = self.end.max(later.end);
        self.last = later.last;
    }

    /// The counts as they can be true: what a file claims may contradict itself.
    #[must_use]
    pub fn consistent(mut self) -> Self {
        self.end = self.end.max(self.start);
        self.packets = self.packets.max(1);
        self.outgoing = self.outgoing.min(self.packets);
        let most = if self.outgoing == 0 { self.packets } else { self.packets - self.outgoing };
        let least = if self.outgoing == 0 { self.packets } else { 0 };
        self.lead = self.lead.clamp(least, most);
        self
    }

    fn steps(&self) -> u64 {
        (self.packets - 1).max(1)
    }

    /// When packet `n` passes.
    fn at(&self, n: u64) -> u64 {
        let offset = u128::from(self.end - self.start) * u128::from(n) / u128::from(self.steps());
        self.start.saturating_add(u64::try_from(offset).unwrap_or(u64::MAX))
    }

    /// Of the first `n` packets, those that the client sent.
    fn sent(&self, n: u64) -> u64 {
        match n.checked_sub(self.lead) {
            None | Some(0) => 0,
            Some(behind) => {
                let rest = u128::from((self.packets - self.lead).max(1));
                let more = u128::from(behind - 1) * u128::from(self.outgoing) / rest;
                (1 + u64::try_from(more).unwrap_or(u64::MAX)).min(self.outgoing)
            }
        }
    }

    /// A packet of this direction as it is known.
    fn like(&self, outgoing: bool, at: u64) -> PacketInfo {
        let mut info = if self.first.is_outgoing() == outgoing { self.first } else { self.last };
        if info.is_outgoing() != outgoing {
            info.direction = if outgoing { Direction::Outgoing } else { Direction::Incoming };
        }
        info.time_of_day = time_of_day(at);
        info
    }

    /// Packets `from` to `to` (not included) by themselves.
    fn part(&self, from: u64, to: u64) -> Self {
        let (outgoing, last) = (self.sent(to) - self.sent(from), to - 1);
        let sends = |n: u64| self.sent(n + 1) > self.sent(n);
        let lead = if outgoing == 0 { to - from } else { self.next_sent(from, to) - from };
        let (start, end) = (self.at(from), self.at(last));
        let first = if from == 0 { self.first } else { self.like(sends(from), start) };
        let end_info = if to == self.packets { self.last } else { self.like(sends(last), end) };
        let time = |mut info: PacketInfo, at| {
            info.time_of_day = time_of_day(at);
            info
        };
        Self {
            start,
            end,
            packets: to - from,
            outgoing,
            lead,
            first: time(first, start),
            last: time(end_info, end),
            mark: if from == 0 { self.mark } else { Mark::None },
            ..*self
        }
    }

    /// The first packet from `from` on that was sent; there is one before `to`. By halving: `sent` never falls.
    fn next_sent(&self, from: u64, to: u64) -> u64 {
        let before = self.sent(from);
        let (mut low, mut high) = (from, to - 1);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.sent(middle + 1) > before { high = middle } else { low = middle + 1 }
        }
        low
    }

    /// The packets as they are accounted: arrivals before the first that was sent, that one, those up to the last that was sent, and the
    /// arrivals behind it. Between them no gap is an idle period.
    pub fn moments(&self) -> impl Iterator<Item = Moment> {
        let last = self.packets - 1;
        let first_sent = (self.outgoing > 0).then_some(self.lead);
        let last_sent = first_sent.map(|first| self.last_sent().max(first));
        let moment = |n: u64, count: u64, outgoing: bool| {
            let at = self.at(n);
            let info = match n {
                0 => self.first,
                n if n == last && self.last.is_outgoing() == outgoing => self.last,
                _ => self.like(outgoing, at),
            };
            (count > 0).then_some(Moment {
                at,
                count,
                info: PacketInfo { time_of_day: time_of_day(at), ..info },
            })
        };
        [
            moment(0, u64::from(self.lead > 0), false),
            moment(self.lead.saturating_sub(1), self.lead.saturating_sub(1), false),
            first_sent.and_then(|n| moment(n, 1, true)),
            first_sent.zip(last_sent).and_then(|(first, end)| moment(end, end - first, true)),
            last_sent.and_then(|n| moment(last, last - n, false)),
        ]
        .into_iter()
        .flatten()
    }

    /// When the client sent last, in nanoseconds since 1970.
    #[must_use]
    pub fn last_sent_at(&self) -> Option<u64> {
        match (self.outgoing, self.packets) {
            (0, _) => None,
            (_, 1) => Some(self.end),
            _ => Some(self.at(self.last_sent())),
        }
    }

    /// The last packet that was sent, if any was.
    fn last_sent(&self) -> u64 {
        let (mut low, mut high) = (0, self.packets - 1);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.sent(middle + 1) == self.outgoing { high = middle } else { low = middle + 1 }
        }
        low
    }
}

/// An activity on its way through time: single packets where they are further apart than `grain` nanoseconds, otherwise as many at once
/// as fit into it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cursor {
    whole: Activity,
    next: u64,
}

impl Cursor {
    /// At the first packet.
    #[must_use]
    pub fn new(activity: Activity) -> Self {
        Self { whole: activity.consistent(), next: 0 }
    }

    /// When the next packet passes; none behind the last.
    #[must_use]
    pub fn at(&self) -> Option<u64> {
        (self.next < self.whole.packets).then(|| self.whole.at(self.next))
    }

    /// The next piece.
    #[inline]
    pub fn piece(&mut self, grain: u64) -> Option<Activity> {
        let (from, all) = (self.next, self.whole.packets);
        if from >= all {
            return None;
        }
        if all == 1 {
            self.next = 1;
            return Some(self.whole);
        }
        let span = u128::from(self.whole.end - self.whole.start);
        let reach = u128::from(grain) * u128::from(self.whole.steps());
        let more = reach.checked_div(span).and_then(|n| u64::try_from(n).ok()).unwrap_or(u64::MAX);
        self.next = from.saturating_add(1).saturating_add(more).min(all);
        Some(self.whole.part(from, self.next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAIN: u64 = 125_000_000;

    fn flow(end: u64, packets: u64, outgoing: u64, lead: u64) -> Activity {
        let info = |direction| PacketInfo { direction, size: 7, ..PacketInfo::default() };
        let (first, last) = if lead > 0 {
            (info(Direction::Incoming), info(Direction::Outgoing))
        } else {
            (info(Direction::Outgoing), info(Direction::Incoming))
        };
        Activity { end, packets, outgoing, lead, first, last, ..Activity::default() }.consistent()
    }

    fn pieces(activity: Activity, grain: u64) -> Vec<Activity> {
        let mut cursor = Cursor::new(activity);
        std::iter::from_fn(|| cursor.piece(grain)).collect()
    }

    /// Every packet by itself, as the rule says it.
    fn directions(a: &Activity) -> Vec<bool> {
        (0..a.packets).map(|n| a.sent(n + 1) > a.sent(n)).collect()
    }

    #[test]
    fn directions_are_in_proportion_and_complete() {
        for (packets, outgoing, lead) in [(1, 1, 0), (3, 0, 3), (9, 7, 0), (9, 2, 3), (10, 5, 1), (5, 5, 0)] {
            let all = directions(&flow(1000, packets, outgoing, lead));
            assert_eq!(
                all.iter().filter(|sent| **sent).count() as u64,
                outgoing,
                "{packets} {outgoing} {lead}"
            );
            assert_eq!(
                all.iter().take_while(|sent| !**sent).count() as u64,
                lead,
                "{packets} {outgoing} {lead}"
            );
        }
    }

    #[test]
    fn pieces_keep_every_count_and_every_time() {
        for (end, packets, outgoing, lead) in [
            (10_000_000_000, 9, 7, 0),
            (1_000_000_000, 1000, 300, 5),
            (0, 44, 20, 3),
            (500_000_000, 13, 0, 13),
        ] {
            let whole = flow(end, packets, outgoing, lead);
            let singles = pieces(whole, 0);
            for grain in [0, GRAIN, u64::MAX] {
                let parts = pieces(whole, grain);
                assert_eq!(parts.iter().map(|p| p.packets).sum::<u64>(), packets);
                assert_eq!(parts.iter().map(|p| p.outgoing).sum::<u64>(), outgoing);
                assert_eq!((parts[0].start, parts[parts.len() - 1].end), (0, end));
                let mut n = 0;
                for part in parts {
                    let of: Vec<bool> = directions(&whole)[n..n + part.packets as usize].to_vec();
                    let lead = of.iter().take_while(|sent| !**sent).count() as u64;
                    assert_eq!((part.lead, part.outgoing), (lead, of.iter().filter(|s| **s).count() as u64));
                    if end > 0 {
                        assert_eq!((part.start, part.end), (singles[n].start, singles[n + of.len() - 1].end));
                    }
                    let moments: Vec<Moment> = part.moments().collect();
                    assert_eq!(moments.iter().map(|m| m.count).sum::<u64>(), part.packets);
                    assert!(moments.windows(2).all(|w| w[0].at <= w[1].at));
                    n += of.len();
                }
            }
        }
    }

    #[test]
    fn what_it_takes_depends_on_the_length_and_not_on_the_claim() {
        let whole = flow(10_000_000_000, 1_000_000_000_000_000, 400_000_000_000_000, 0);
        let parts = pieces(whole, GRAIN);
        assert!((70..90).contains(&parts.len()), "{}", parts.len());
        assert_eq!(parts.iter().map(|p| p.packets).sum::<u64>(), whole.packets);
        assert_eq!(parts.iter().map(|p| p.outgoing).sum::<u64>(), whole.outgoing);
        let all = flow(0, u64::MAX, u64::MAX, 0);
        assert_eq!(pieces(all, GRAIN).len(), 1);
    }

    #[test]
    fn claims_that_contradict_themselves_are_put_right() {
        let odd = Activity { start: 9, end: 3, packets: 0, outgoing: 5, lead: 9, ..Activity::default() };
        let right = odd.consistent();
        assert_eq!((right.end, right.packets, right.outgoing, right.lead), (9, 1, 1, 0));
    }
}

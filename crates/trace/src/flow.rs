//! Flows: several packets of which only start, end and number are known. Owns what one is for either of its ends.

use std::str::FromStr;

use crate::activity::{Activity, Mark};
use crate::seen::Seen;
use dormouse_energy::Direction;

/// How a flow's packets are placed in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Spread {
    /// Evenly from start to end: the worst case for sleeping (paper 000, section 3.2).
    #[default]
    Even,
    /// One packet at the start and one at the end: the best case.
    Edges,
}

impl FromStr for Spread {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "even" => Ok(Self::Even),
            "edges" => Ok(Self::Edges),
            _ => Err(format!("{s:?} is no way to spread flows, expected even or edges")),
        }
    }
}

impl Spread {
    /// As users write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::Edges => "edges",
        }
    }
}

/// A flow record. `first.at` is its start; `first` goes from the originator to the responder.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flow {
    /// The first packet; its size is unused.
    pub first: Seen,
    /// When the last packet passed, in nanoseconds since 1970; not before the start.
    pub end: u64,
    /// Packets from the originator.
    pub forward: u64,
    /// Packets from the responder.
    pub back: u64,
    /// Bytes from the originator.
    pub forward_bytes: u64,
    /// Bytes from the responder.
    pub back_bytes: u64,
    /// The record has an identifier of its connection.
    pub named: bool,
}

impl Flow {
    /// The same packet in the opposite direction.
    #[must_use]
    pub fn reply(&self) -> Seen {
        let f = &self.first;
        Seen {
            src: f.dst,
            dst: f.src,
            src_port: f.dst_port,
            dst_port: f.src_port,
            station: false,
            direction: match f.direction {
                Direction::Outgoing => Direction::Incoming,
                Direction::Incoming => Direction::Outgoing,
                Direction::Unknown => Direction::Unknown,
            },
            ..*f
        }
    }

    /// What the flow is for a client at the originator's end (`Outgoing`) or the responder's. A record without packet counts had at
    /// least one packet, two if it lasted; the originator, if it sent anything, begins.
    #[must_use]
    pub fn activity(&self, client: u32, end: Direction, spread: Spread) -> Activity {
        let (start, last) = (self.first.at, self.end.max(self.first.at));
        let (mut forward, mut back) = (self.forward, self.back);
        if forward == 0 && back == 0 {
            forward = if last > start { 2 } else { 1 };
        }
        let size = |bytes: u64, packets: u64| u32::try_from(bytes / packets.max(1)).unwrap_or(u32::MAX);
        let there = Seen { size: size(self.forward_bytes, forward), ..self.first };
        let answer = Seen { at: last, size: size(self.back_bytes, back), ..self.reply() };
        let answer = if back > 0 { answer } else { Seen { at: last, ..there } };
        let there = if forward > 0 { there } else { Seen { at: start, ..answer } };
        if spread == Spread::Edges {
            let packets = forward.saturating_add(back).min(2);
            (forward, back) = match (forward > 0, back > 0) {
                (true, true) => (1, 1),
                (true, false) => (packets, 0),
                _ => (0, packets),
            };
        }
        let originator = end != Direction::Incoming;
        let way = |towards_responder: bool| match towards_responder == originator {
            true => Direction::Outgoing,
            false => Direction::Incoming,
        };
        let packets = forward.saturating_add(back);
        Activity {
            client,
            start,
            end: last,
            packets,
            outgoing: if originator { forward } else { back },
            lead: u64::from(originator == (forward == 0)),
            mark: if self.named { Mark::Connection } else { Mark::None },
            first: there.info(way(forward > 0)),
            last: answer.info(way(back == 0)),
            ..Activity::default()
        }
        .consistent()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::Cursor;

    fn flow(start: u64, end: u64, forward: u64, back: u64) -> Flow {
        let first = Seen { at: start, src_port: 1, dst_port: 2, ..Seen::default() };
        let (forward_bytes, back_bytes) = (forward * 100, back * 50);
        Flow { first, end, forward, back, forward_bytes, back_bytes, named: false }
    }

    /// Time, whether the originator sent it, its port, size.
    fn packets(flow: Flow, spread: Spread) -> Vec<(u64, bool, u16, u32)> {
        let mut cursor = Cursor::new(flow.activity(0, Direction::Outgoing, spread));
        let single = |p: Activity| (p.start, p.first.is_outgoing(), p.first.local_port, p.first.size);
        std::iter::from_fn(|| cursor.piece(0)).map(single).collect()
    }

    #[test]
    fn packets_are_spread_evenly_and_directions_in_proportion() {
        assert_eq!(
            packets(flow(100, 400, 2, 2), Spread::Even),
            [(100, true, 1, 100), (200, false, 1, 50), (300, true, 1, 100), (400, false, 1, 50)]
        );
        for (forward, back) in [(1, 0), (0, 3), (7, 2), (2, 7), (5, 5)] {
            let all = packets(flow(0, 1000, forward, back), Spread::Even);
            assert_eq!(all.iter().filter(|p| p.1).count() as u64, forward);
            assert_eq!(all.len() as u64, forward + back);
            assert_eq!(all[0].1, forward > 0);
        }
    }

    #[test]
    fn the_responder_sees_the_same_packets_the_other_way() {
        for (forward, back) in [(1, 0), (0, 3), (7, 2), (2, 7), (5, 5)] {
            let flow = flow(0, 1000, forward, back);
            let theirs = flow.activity(0, Direction::Incoming, Spread::Even);
            assert_eq!((theirs.packets, theirs.outgoing), (forward + back, back));
            assert_eq!(theirs.first.is_outgoing(), forward == 0, "{forward} {back}");
            assert_eq!(theirs.first.local_port, 2);
        }
    }

    #[test]
    fn edges_keep_the_first_and_the_last() {
        assert_eq!(packets(flow(5, 9, 100, 3), Spread::Edges), [(5, true, 1, 100), (9, false, 1, 50)]);
        assert_eq!(packets(flow(5, 5, 1, 0), Spread::Edges), [(5, true, 1, 100)]);
        assert_eq!(packets(flow(5, 9, 8, 0), Spread::Edges).len(), 2);
    }

    #[test]
    fn records_without_counts_had_a_packet() {
        assert_eq!(packets(flow(5, 9, 0, 0), Spread::Even).len(), 2);
        assert_eq!(packets(flow(9, 5, 0, 0), Spread::Even).len(), 1);
    }
}

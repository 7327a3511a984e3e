//! Flows: several packets of which only start, end and number are known. Owns how they are spread over time.

use std::str::FromStr;

use crate::periods::Period;
use crate::seen::Seen;
use dormouse_energy::{Direction, PacketInfo};

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
}

/// A record on its way to becoming packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cursor {
    what: What,
    packets: u64,
    next: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Flow(Flow, Spread),
    Burst(Period),
}

impl Cursor {
    /// At the flow's first packet. A record without packet counts had at least one, two if it lasted.
    #[must_use]
    pub fn new(mut flow: Flow, spread: Spread) -> Self {
        flow.end = flow.end.max(flow.first.at);
        if flow.forward.saturating_add(flow.back) == 0 {
            flow.forward = if flow.end > flow.first.at { 2 } else { 1 };
        }
        let counted = flow.forward.saturating_add(flow.back);
        let packets = match spread {
            Spread::Even => counted,
            Spread::Edges => counted.min(2),
        };
        Self { what: What::Flow(flow, spread), packets, next: 0 }
    }

    /// At the first packet of the burst that ended an idle period.
    #[must_use]
    pub const fn burst(period: Period) -> Self {
        Self { what: What::Burst(period), packets: period.packets as u64, next: 0 }
    }

    /// The packet at the cursor; `None` behind the last.
    #[must_use]
    pub fn packet(&self) -> Option<Seen> {
        if self.next >= self.packets {
            return None;
        }
        match &self.what {
            What::Flow(flow, spread) => {
                let forward = self.is_forward(flow, *spread);
                let (mut seen, bytes, packets) = if forward {
                    (flow.first, flow.forward_bytes, flow.forward)
                } else {
                    (flow.reply(), flow.back_bytes, flow.back)
                };
                seen.size = u32::try_from(bytes / packets.max(1)).unwrap_or(u32::MAX);
                seen.at = self.at();
                Some(seen)
            }
            What::Burst(period) => {
                let (at, info) = period.packet(u32::try_from(self.next).ok()?)?;
                let PacketInfo { direction, protocol, size, .. } = info;
                let (src_port, dst_port) = match direction {
                    Direction::Incoming => (info.remote_port, info.local_port),
                    _ => (info.local_port, info.remote_port),
                };
                let name = period.client.saturating_add(1);
                Some(Seen { at, size, protocol, src_port, dst_port, name, direction, ..Seen::default() })
            }
        }
    }

    /// When the packet at the cursor passes.
    #[must_use]
    pub fn at(&self) -> u64 {
        let (start, span) = match &self.what {
            What::Flow(flow, _) => (flow.first.at, flow.end - flow.first.at),
            What::Burst(period) => (period.at, period.span),
        };
        let steps = self.packets.saturating_sub(1).max(1);
        let offset = u128::from(span) * u128::from(self.next.min(steps)) / u128::from(steps);
        start.saturating_add(u64::try_from(offset).unwrap_or(u64::MAX))
    }

    /// To the next packet; whether there is one.
    pub fn advance(&mut self) -> bool {
        self.next += 1;
        self.next < self.packets
    }

    /// The two directions are interleaved in proportion; the originator, if it sent anything, begins.
    fn is_forward(&self, f: &Flow, spread: Spread) -> bool {
        if f.forward == 0 {
            return false;
        }
        match spread {
            Spread::Edges => self.next == 0 || f.back == 0,
            Spread::Even => {
                let all = u128::from(f.forward) + u128::from(f.back);
                u128::from(self.next) * u128::from(f.forward) % all < u128::from(f.forward)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(flow: Flow, spread: Spread) -> Vec<(u64, bool, u32)> {
        let mut cursor = Cursor::new(flow, spread);
        let mut out = Vec::new();
        while let Some(p) = cursor.packet() {
            out.push((p.at, p.src_port == 1, p.size));
            cursor.advance();
        }
        out
    }

    fn flow(start: u64, end: u64, forward: u64, back: u64) -> Flow {
        let first = Seen { at: start, src_port: 1, dst_port: 2, ..Seen::default() };
        Flow { first, end, forward, back, forward_bytes: forward * 100, back_bytes: back * 50 }
    }

    #[test]
    fn packets_are_spread_evenly_and_directions_in_proportion() {
        assert_eq!(
            packets(flow(100, 400, 2, 2), Spread::Even),
            [(100, true, 100), (200, false, 50), (300, true, 100), (400, false, 50)]
        );
        for (forward, back) in [(1, 0), (0, 3), (7, 2), (2, 7), (5, 5)] {
            let all = packets(flow(0, 1000, forward, back), Spread::Even);
            assert_eq!(all.iter().filter(|p| p.1).count() as u64, forward);
            assert_eq!(all.len() as u64, forward + back);
            assert_eq!(all[0].1, forward > 0);
        }
    }

    #[test]
    fn edges_keep_the_first_and_the_last() {
        assert_eq!(packets(flow(5, 9, 100, 3), Spread::Edges), [(5, true, 100), (9, false, 50)]);
        assert_eq!(packets(flow(5, 5, 1, 0), Spread::Edges), [(5, true, 100)]);
    }

    #[test]
    fn records_without_counts_had_a_packet() {
        assert_eq!(packets(flow(5, 9, 0, 0), Spread::Even).len(), 2);
        assert_eq!(packets(flow(9, 5, 0, 0), Spread::Even).len(), 1);
    }
}

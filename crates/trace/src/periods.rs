//! Idle periods, each with the burst of packets that ended it: what a recording is reduced to. Owns the reduction and its
//! inverse; must never decide anything.
//!
//! A burst is a run of packets of one client, each less than `min_idle` after its predecessor. A burst that lasts longer than
//! [`MAX_BURST`] is continued in a row without an idle period, so that rows leave in order of time, late by no more than that.
//! Read back, a burst's packets are spread evenly over it, which keeps every gap below `min_idle`: idle periods, their number
//! and length, packet counts and losses come out as before; only what a policy learns inside a burst is blurred.

use crate::seen::ClientPacket;
use dormouse_energy::{Direction, PacketInfo};

/// The longest burst in one row, in nanoseconds.
pub const MAX_BURST: u64 = 60_000_000_000;
/// How often open bursts are looked through, in nanoseconds of the recording.
const SWEEP: u64 = 1_000_000_000;

/// An idle period and the burst that ended it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Period {
    /// The client's number.
    pub client: u32,
    /// When the burst began (and the idle period ended), in nanoseconds since 1970.
    pub at: u64,
    /// Length of the idle period before it, in nanoseconds; 0 for a client's first packet and for continued bursts.
    pub idle: u64,
    /// From the burst's first packet to its last, in nanoseconds.
    pub span: u64,
    /// Packets of the burst, at least 1.
    pub packets: u32,
    /// Those that the client sent (or whose direction is unknown).
    pub outgoing: u32,
    /// Packets before the first that the client sent: lost if the radio slept.
    pub lead: u32,
    /// The first packet.
    pub first: PacketInfo,
    /// The last packet.
    pub last: PacketInfo,
}

/// Reduces events, in order of time, to periods.
pub struct Collector {
    min_idle: u64,
    open: Vec<Option<Open>>,
    busy: Vec<u32>,
    swept: u64,
}

#[derive(Clone, Copy)]
struct Open {
    /// The client's last packet of all.
    last_at: u64,
    /// The burst that is running.
    burst: Option<Period>,
}

impl Collector {
    /// With the shortest silence that counts as idle, in nanoseconds.
    #[must_use]
    pub const fn new(min_idle: u64) -> Self {
        Self { min_idle, open: Vec::new(), busy: Vec::new(), swept: 0 }
    }

    /// The next packet; rows that are complete go to `out`.
    #[inline]
    pub fn packet(&mut self, event: &ClientPacket, out: &mut dyn FnMut(&Period)) {
        if event.at.saturating_sub(self.swept) >= SWEEP {
            self.sweep(event.at, out);
        }
        let at = event.client as usize;
        if self.open.len() <= at {
            self.open.resize(at + 1, None);
        }
        let Some(slot) = self.open.get_mut(at) else { return };
        let fresh = slot.is_none();
        let open = slot.get_or_insert(Open { last_at: event.at, burst: None });
        let now = event.at.max(open.last_at);
        let silence = now - open.last_at;
        open.last_at = now;
        if let Some(burst) = &mut open.burst {
            if silence < self.min_idle && now - burst.at <= MAX_BURST {
                burst.extend(now, &event.info);
                return;
            }
            out(burst);
        } else {
            self.busy.push(event.client);
        }
        let idle = if fresh || silence < self.min_idle { 0 } else { silence };
        open.burst = Some(Period::start(event.client, now, idle, event.info));
    }

    /// Emits the bursts that are over.
    #[cold]
    fn sweep(&mut self, now: u64, out: &mut dyn FnMut(&Period)) {
        self.swept = now;
        let (open, min_idle) = (&mut self.open, self.min_idle);
        let mut done: Vec<Period> = Vec::new();
        self.busy.retain(|client| {
            let Some(Some(o)) = open.get_mut(*client as usize) else { return false };
            let running = now.saturating_sub(o.last_at) < min_idle;
            if !running {
                done.extend(o.burst.take());
            }
            running
        });
        done.sort_by_key(|p| (p.at, p.client));
        done.iter().for_each(out);
    }

    /// The stream is over.
    pub fn finish(mut self, out: &mut dyn FnMut(&Period)) {
        let mut rest: Vec<Period> = self.open.iter_mut().flatten().filter_map(|o| o.burst.take()).collect();
        rest.sort_by_key(|p| (p.at, p.client));
        rest.iter().for_each(out);
    }
}

impl Period {
    fn start(client: u32, at: u64, idle: u64, info: PacketInfo) -> Self {
        let out = u32::from(info.is_outgoing());
        Self { client, at, idle, span: 0, packets: 1, outgoing: out, lead: 1 - out, first: info, last: info }
    }

    fn extend(&mut self, at: u64, info: &PacketInfo) {
        self.packets = self.packets.saturating_add(1);
        self.span = at - self.at;
        if info.is_outgoing() {
            self.outgoing = self.outgoing.saturating_add(1);
        } else if self.outgoing == 0 {
            self.lead = self.lead.saturating_add(1);
        }
        self.last = *info;
    }

    /// The burst's packet number `n`, spread evenly; `None` behind the last.
    #[must_use]
    pub fn packet(&self, n: u32) -> Option<(u64, PacketInfo)> {
        if n >= self.packets {
            return None;
        }
        let steps = u64::from(self.packets.saturating_sub(1).max(1));
        let at = self.at.saturating_add(
            u64::try_from(u128::from(self.span) * u128::from(n) / u128::from(steps)).unwrap_or(0),
        );
        let mut info = if n + 1 == self.packets && n > 0 { self.last } else { self.first };
        if n > 0 && n + 1 < self.packets {
            // Between: the leading arrivals, then both directions in proportion.
            let (behind, rest) =
                (u64::from(n.saturating_sub(self.lead)), u64::from(self.packets - self.lead.min(n)));
            let outgoing =
                n >= self.lead && behind * u64::from(self.outgoing) % rest.max(1) < u64::from(self.outgoing);
            info.direction = if outgoing { Direction::Outgoing } else { Direction::Incoming };
        }
        Some((at, info))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at_ms: u64, client: u32, direction: Direction) -> ClientPacket {
        ClientPacket {
            at: at_ms * 1_000_000,
            client,
            info: PacketInfo { direction, ..PacketInfo::default() },
        }
    }

    fn collect(events: &[ClientPacket]) -> Vec<Period> {
        let (mut collector, mut out) = (Collector::new(250_000_000), Vec::new());
        events.iter().for_each(|e| collector.packet(e, &mut |p| out.push(*p)));
        collector.finish(&mut |p| out.push(*p));
        out
    }

    #[test]
    fn bursts_end_with_silence() {
        use Direction::{Incoming, Outgoing};
        let rows = collect(&[
            event(0, 0, Outgoing),
            event(249, 0, Incoming),
            event(499, 0, Incoming),
            event(500, 0, Outgoing),
            event(600, 1, Outgoing),
            event(9000, 0, Outgoing),
        ]);
        let of = |client| rows.iter().filter(|p| p.client == client).copied().collect::<Vec<_>>();
        let (a, b) = (of(0), of(1));
        assert_eq!(
            a.iter().map(|p| (p.idle / 1_000_000, p.packets, p.lead)).collect::<Vec<_>>(),
            [(0, 2, 0), (250, 2, 1), (8500, 1, 0)]
        );
        assert_eq!((b.len(), b[0].packets), (1, 1));
    }

    #[test]
    fn long_bursts_are_continued_without_an_idle_period() {
        let events: Vec<ClientPacket> = (0..1000).map(|i| event(i * 200, 0, Direction::Outgoing)).collect();
        let rows = collect(&events);
        assert!(rows.len() > 3 && rows.iter().all(|p| p.idle == 0));
        assert_eq!(rows.iter().map(|p| p.packets).sum::<u32>(), 1000);
        for row in &rows {
            let times: Vec<u64> = (0..row.packets).filter_map(|n| row.packet(n)).map(|p| p.0).collect();
            assert!(times.windows(2).all(|w| w[1] - w[0] < 250_000_000));
        }
    }
}

//! Idle periods, each with the burst of packets that ended it: what a client's pieces are reduced to before they are written. Owns the
//! reduction; must never decide anything.
//!
//! A burst is a run of packets of one client, each less than `min_idle` after its predecessor; one that lasts longer than [`MAX_BURST`] is
//! continued in a row that has no idle period before it. Read back, a burst's packets are spread evenly over it, which keeps every gap below
//! `min_idle`: idle periods, their number and length, packet counts and losses come out as before; only what a policy learns inside a burst is
//! blurred.

use crate::activity::{Activity, Mark};

/// The longest burst in one row, in nanoseconds.
pub const MAX_BURST: u64 = 60_000_000_000;

/// Reduces the pieces of one client after the other, each in order of time, to rows.
pub struct Collector {
    min_idle: u64,
    burst: Option<Activity>,
}

impl Collector {
    /// With the shortest silence that counts as idle, in nanoseconds.
    #[must_use]
    pub const fn new(min_idle: u64) -> Self {
        Self { min_idle, burst: None }
    }

    /// The next piece; a row that is complete goes to `out`.
    #[inline]
    pub fn piece(&mut self, piece: &Activity, out: &mut dyn FnMut(&Activity)) {
        // A burst may be of several connections, and is none by itself.
        let mark = if piece.mark == Mark::Connection { Mark::None } else { piece.mark };
        let piece = &Activity { mark, ..*piece };
        if let Some(burst) = &mut self.burst {
            let silence = piece.start.saturating_sub(burst.end);
            let goes_on = burst.client == piece.client
                && burst.session == piece.session
                && piece.mark == Mark::None
                && silence < self.min_idle
                && piece.end.saturating_sub(burst.start) <= MAX_BURST;
            if goes_on {
                burst.extend(piece);
                return;
            }
            out(burst);
        }
        self.burst = Some(*piece);
    }

    /// There are no more.
    pub fn finish(self, out: &mut dyn FnMut(&Activity)) {
        self.burst.iter().for_each(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::Cursor;
    use crate::seen::ClientPacket;
    use dormouse_energy::{Direction, PacketInfo};

    fn packet(at_ms: u64, client: u32, direction: Direction) -> Activity {
        let info = PacketInfo { direction, ..PacketInfo::default() };
        Activity::packet(&ClientPacket { at: at_ms * 1_000_000, client, info })
    }

    fn collect(pieces: &[Activity]) -> Vec<Activity> {
        let (mut collector, mut out) = (Collector::new(250_000_000), Vec::new());
        pieces.iter().for_each(|p| collector.piece(p, &mut |row| out.push(*row)));
        collector.finish(&mut |row| out.push(*row));
        out
    }

    #[test]
    fn bursts_end_with_silence_and_with_their_client() {
        use Direction::{Incoming, Outgoing};
        let rows = collect(&[
            packet(0, 0, Outgoing),
            packet(249, 0, Incoming),
            packet(499, 0, Incoming),
            packet(500, 0, Outgoing),
            packet(9000, 0, Outgoing),
            packet(9001, 1, Outgoing),
        ]);
        let told: Vec<_> =
            rows.iter().map(|p| (p.client, p.start / 1_000_000, p.packets, p.outgoing, p.lead)).collect();
        assert_eq!(told, [(0, 0, 2, 1, 0), (0, 499, 2, 1, 1), (0, 9000, 1, 1, 0), (1, 9001, 1, 1, 0)]);
    }

    #[test]
    fn what_begins_a_session_begins_a_row_and_a_connection_does_not() {
        let marked = |at, mark| Activity { mark, ..packet(at, 0, Direction::Outgoing) };
        let rows =
            collect(&[marked(0, Mark::Connection), marked(9, Mark::Connection), marked(20, Mark::Joins)]);
        let told: Vec<_> = rows.iter().map(|r| (r.packets, r.mark)).collect();
        assert_eq!(told, [(2, Mark::None), (1, Mark::Joins)]);
    }

    #[test]
    fn long_bursts_are_continued_without_an_idle_period() {
        let pieces: Vec<Activity> = (0..1000).map(|i| packet(i * 200, 0, Direction::Outgoing)).collect();
        let rows = collect(&pieces);
        // A minute each, and what is left.
        let lasts: Vec<u64> = rows.iter().map(|row| (row.end - row.start) / 1_000_000).collect();
        assert_eq!(lasts, [60_000, 60_000, 60_000, 19_200]);
        assert_eq!(rows.iter().map(|p| p.packets).sum::<u64>(), 1000);
        for row in &rows {
            let mut cursor = Cursor::new(*row);
            let times: Vec<u64> = std::iter::from_fn(|| cursor.piece(0)).map(|p| p.start).collect();
            assert!(times.windows(2).all(|w| w[1] - w[0] < 250_000_000));
        }
    }
}

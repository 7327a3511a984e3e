//! Which of several tunnels with the same selectors a packet takes. Owns the turns of those that take one packet in so many, and whether those
//! that take all for a time take them now; must never look behind the IP header.

use dormouse_keying::{Share, Weak};

/// The mark that an application put on an IP packet: its code point of differentiated services (RFC 2474), 0 to 63; 0 for what is no IP packet.
fn mark(packet: &[u8]) -> u8 {
    match packet {
        [first, second, ..] if first >> 4 == 4 => second >> 2,
        [first, second, ..] if first >> 4 == 6 => (first << 4 | second >> 4) >> 2,
        _ => 0,
    }
}

/// A tunnel's share, and when it is its turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turn {
    share: Share,
    /// Packets that have passed since its last turn; below zero after one that took many at once.
    passed: i64,
    /// The signal is weak, by its own bounds.
    weak: bool,
    /// The number of the last packet that came by it, of all that came by any tunnel; 0: none.
    came: u64,
}

/// Whether a signal of so many dBm is weak, which it `was` or was not. One that is not known is not: the wire has none, and with a radio that has joined
/// no network nothing is sent.
fn is_weak(Weak { below, until }: Weak, was: bool, signal: Option<i8>) -> bool {
    signal.is_some_and(|dbm| dbm < below || was && dbm < until)
}

impl Turn {
    pub(crate) const fn new(share: Share) -> Self {
        Self { share, passed: 0, weak: false, came: 0 }
    }

    /// It takes the place of `old`: a signal between the two bounds is what it was, and what came by the old one counts.
    pub(crate) const fn succeed(&mut self, old: &Self) {
        (self.weak, self.came) = (old.weak, old.came);
    }

    pub(crate) const fn share(&self) -> Share {
        self.share
    }

    /// The signal of the radio is so many dBm; `None`: not known.
    pub(crate) fn hear_signal(&mut self, signal: Option<i8>) {
        if let Share::Signal(weak) = self.share {
            self.weak = is_weak(weak, self.weak, signal);
        }
    }

    /// A packet came by it, the one of this number.
    pub(crate) const fn note(&mut self, number: u64) {
        self.came = number;
    }

    /// The number of the last packet that came by it; 0: none.
    pub(crate) const fn came(&self) -> u64 {
        self.came
    }

    /// Whether it takes all packets, because the signal is weak.
    pub(crate) const fn is_for_weak(&self) -> bool {
        matches!(self.share, Share::Signal(_)) && self.weak
    }

    /// Whether it takes packets with this mark. Turns do not matter to marks.
    pub(crate) fn takes_mark(&self, packet: &[u8]) -> bool {
        matches!(self.share, Share::Marked(marks) if marks.has(mark(packet)))
    }

    /// Counts these `packets`, which go together. True if it is its turn with them, until [`Self::takes`].
    pub(crate) fn comes(&mut self, packets: usize) -> bool {
        let Share::Every(n) = self.share else { return false };
        self.passed = self.passed.saturating_add(i64::try_from(packets).unwrap_or(i64::MAX));
        self.passed >= i64::from(n.get())
    }

    /// It takes these `packets`. What it takes at once counts for as many turns, so of many packets one in so many is its own.
    pub(crate) fn takes(&mut self, packets: usize) {
        if let Share::Every(n) = self.share {
            let turns = i64::try_from(packets).unwrap_or(i64::MAX).saturating_mul(i64::from(n.get()));
            self.passed = self.passed.saturating_sub(turns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::num::NonZeroU32;
    use dormouse_keying::Marks;

    /// Whether it takes these packets.
    fn took(turn: &mut Turn, packets: usize) -> bool {
        let its = turn.comes(packets);
        if its {
            turn.takes(packets);
        }
        its
    }

    fn every(n: u32) -> Turn {
        Turn::new(Share::Every(NonZeroU32::new(n).unwrap()))
    }

    #[test]
    fn one_packet_in_so_many_is_its_own() {
        let mut turn = every(3);
        let all: Vec<_> = (0..7).map(|_| took(&mut turn, 1)).collect();
        assert_eq!(all, [false, false, true, false, false, true, false]);
        assert!((0..5).all(|_| took(&mut every(1), 1)), "all of them");
    }

    #[test]
    fn packets_count_and_not_how_they_come() {
        for (n, sizes) in [(2, vec![44]), (5, vec![1, 44, 3]), (10, vec![40, 1, 1, 1]), (1_000, vec![64])] {
            let (mut turn, mut all, mut its) = (every(n), 0, 0);
            for size in sizes.iter().cycle().take(200_000) {
                all += size;
                its += if took(&mut turn, *size) { *size } else { 0 };
            }
            let share = its as f64 * f64::from(n) / all as f64;
            assert!((0.99..=1.01).contains(&share), "1 in {n} of {sizes:?}: {share}");
        }
        let mut most = every(u32::MAX);
        for _ in 0..5 {
            took(&mut most, usize::MAX);
        }
    }

    #[test]
    fn a_signal_that_varies_a_little_changes_nothing() {
        let mut turn = Turn::new(Share::Signal(Weak { below: -75, until: -69 }));
        let mut weak = |signal| {
            turn.hear_signal(signal);
            turn.is_for_weak()
        };
        let all = [-60, -75, -76, -75, -70, -69, -70, -75, -76].map(|dbm| weak(Some(dbm)));
        assert_eq!(all, [false, false, true, true, true, false, false, false, true]);
        assert_eq!([None, Some(-72)].map(&mut weak), [false; 2], "what is not known is not weak");
        assert!(weak(Some(i8::MIN)));
        let mut heir = Turn::new(turn.share());
        heir.succeed(&turn);
        heir.hear_signal(Some(-70));
        assert!(heir.is_for_weak(), "new keys change nothing");
        let mut other = every(2);
        other.succeed(&turn);
        assert!(!other.is_for_weak(), "another share under the new configuration");
    }

    #[test]
    fn marks_are_read_in_both_families() {
        let turn = Turn::new(Share::Marked(Marks::new(&[46]).unwrap()));
        for (packet, its) in [
            (&[0x45, 46 << 2][..], true),
            (&[0x45, 46 << 2 | 3], true),
            (&[0x45, 45 << 2], false),
            (&[0x6b, 0x80], true),
            (&[0x6b, 0xbf], true),
            (&[0x6b, 0x40], false),
            (&[0x15, 46 << 2], false),
            (&[0x45], false),
            (&[], false),
        ] {
            assert_eq!(turn.takes_mark(packet), its, "{packet:x?}");
        }
    }
}

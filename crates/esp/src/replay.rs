//! The anti-replay window (RFC 4303 section 3.4.3) over full 64-bit sequence numbers. Owns which sequence numbers were
//! accepted; must never mark one before its packet was authenticated.
//!
//! The window is a ring of 64-bit words (the layout of RFC 6479): advancing clears whole words and never shifts bits, so its
//! cost does not depend on the window's size. The ring is a power of two of words and holds at least one word more than
//! the window, so that the word that holds the newest number never shares its bits with the oldest in the window. It grows to that
//! size with the first numbers: an SA on which little comes, as between two sleeps, has few words.

use thiserror::Error;

/// Smallest window in packets. Segmentation offload sends 64 packets at once and parallel paths reorder whole batches;
/// 32 or 64, the classic sizes, would drop good packets.
pub const MIN_WINDOW: u32 = 1_024;
/// Largest window in packets: 8 KiB of state for each inbound SA.
pub const MAX_WINDOW: u32 = 65_536;
/// The window unless configured, in packets.
pub const DEFAULT_WINDOW: u32 = 4_096;
/// The ring begins with so many words of 64 numbers.
const FIRST_WORDS: usize = 4;

/// Why a sequence number was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Replay {
    /// Sequence number 0: the first packet of an SA has number 1 (RFC 4303 section 3.3.3).
    #[error("sequence number 0 is never sent")]
    Zero,
    /// Left of the window: perhaps new, but nothing remembers.
    #[error("sequence number {seq} is older than the window of {window} below {top}")]
    TooOld {
        /// The packet's number.
        seq: u64,
        /// The newest number accepted.
        top: u64,
        /// Size of the window in packets.
        window: u64,
    },
    /// Accepted before.
    #[error("sequence number {seq} was received before")]
    Seen {
        /// The packet's number.
        seq: u64,
    },
}

/// What a window has accepted, as one engine hands it to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The newest number accepted; 0 before the first.
    pub top: u64,
    /// Bit `i` of word `w` (the lowest one is bit 0): whether `top - (64 * w + i)` was accepted, or is not to be. What is older is not either.
    pub bits: Vec<u64>,
}

impl Seen {
    /// Everything up to `top`, of so many packets.
    #[must_use]
    pub fn all(top: u64, size: u64) -> Self {
        let words = usize::try_from(size.div_ceil(64)).unwrap_or(1);
        Self { top, bits: vec![u64::MAX; words] }
    }

    /// Whether this number is not to be accepted any more.
    #[must_use]
    pub fn has(&self, seq: u64) -> bool {
        let Some(age) = self.top.checked_sub(seq) else { return false };
        let word = usize::try_from(age / 64).ok().and_then(|at| self.bits.get(at));
        word.is_none_or(|word| word >> (age % 64) & 1 == 1)
    }
}

/// Which of the newest sequence numbers were accepted.
/// "All ESP implementations MUST support the anti-replay service" (RFC 4303 section 3.4.3)
#[derive(Clone, Debug)]
pub struct ReplayWindow {
    /// Shorter than `size` asks for as long as it has room for all numbers from 0 to `top`, each at its own place.
    ring: Box<[u64]>,
    /// Size in packets: a number `n` is inside if `top - n < size`.
    size: u64,
    /// The newest number accepted; 0 before the first.
    top: u64,
}

impl ReplayWindow {
    /// An empty window of `packets`, clamped to [`MIN_WINDOW`]`..=`[`MAX_WINDOW`].
    /// "A minimum window size of 32 packets MUST be supported" (RFC 4303 section 3.4.3)
    #[must_use]
    pub fn new(packets: u32) -> Self {
        let size = packets.clamp(MIN_WINDOW, MAX_WINDOW);
        Self { ring: [0; FIRST_WORDS].into(), size: size.into(), top: 0 }
    }

    /// Size in packets.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The newest number accepted; 0 before the first.
    #[must_use]
    pub fn top(&self) -> u64 {
        self.top
    }

    /// Whether a packet with this number may still be accepted. Called before the costly authentication, and changes nothing:
    /// a forged packet must not be able to move the window.
    ///
    /// # Errors
    /// If the number is 0, too old, or was accepted before.
    pub fn check(&self, seq: u64) -> Result<(), Replay> {
        if seq == 0 {
            return Err(Replay::Zero);
        }
        if seq > self.top {
            return Ok(());
        }
        if self.top - seq >= self.size {
            return Err(Replay::TooOld { seq, top: self.top, window: self.size });
        }
        let (word, bit) = self.place(seq);
        if self.ring.get(word).is_some_and(|w| w & bit != 0) { Err(Replay::Seen { seq }) } else { Ok(()) }
    }

    /// Checks again and marks: called once the packet is authentic.
    ///
    /// RFC 4303 section 3.4.3: "The receive window is updated only if the integrity verification succeeds."
    ///
    /// # Errors
    /// As [`Self::check`]; then nothing changes.
    pub fn accept(&mut self, seq: u64) -> Result<(), Replay> {
        self.check(seq)?;
        if seq > self.top {
            let (from, to) = (self.top >> 6, seq >> 6);
            if to > from {
                self.grow(to);
            }
            let fresh = (to - from).min(self.ring.len() as u64);
            let mask = self.ring.len() as u64 - 1;
            for word in (to - fresh + 1)..=to {
                if let Some(w) = self.ring.get_mut((word & mask) as usize) {
                    *w = 0;
                }
            }
            self.top = seq;
        }
        let (word, bit) = self.place(seq);
        if let Some(w) = self.ring.get_mut(word) {
            *w |= bit;
        }
        Ok(())
    }

    /// What was accepted.
    #[must_use]
    pub fn seen(&self) -> Seen {
        let mut seen = Seen::all(self.top, self.size);
        for (word, first) in seen.bits.iter_mut().zip((0u64..).step_by(64)) {
            *word = (first..first + 64).rev().fold(0, |bits, age| {
                let taken = self.top.checked_sub(age).is_none_or(|seq| self.check(seq).is_err());
                bits << 1 | u64::from(taken)
            });
        }
        seen
    }

    /// Another window has accepted what is `seen`, of the numbers above `ours`; this one of the others. From now on this one has both.
    pub(crate) fn merge(&mut self, seen: &Seen, ours: u64) {
        if seen.top <= ours {
            return;
        }
        let mut both = Self { ring: [0; FIRST_WORDS].into(), size: self.size, top: seen.top };
        both.grow(seen.top >> 6);
        for seq in seen.top.saturating_sub(self.size - 1).max(1)..=seen.top {
            let taken = if seq > ours { seen.has(seq) } else { self.check(seq).is_err() };
            let (word, bit) = both.place(seq);
            if let Some(w) = both.ring.get_mut(word).filter(|_| taken) {
                *w |= bit;
            }
        }
        *self = both;
    }

    /// Makes room for word number `to`, unless the ring has its size.
    fn grow(&mut self, to: u64) {
        let whole = (self.size.div_ceil(64) + 1).next_power_of_two() as usize;
        let words =
            usize::try_from(to).map_or(whole, |to| to.saturating_add(1).min(whole)).next_power_of_two();
        if words > self.ring.len() {
            let mut ring = vec![0; words].into_boxed_slice();
            ring.iter_mut().zip(&self.ring).for_each(|(new, old)| *new = *old);
            self.ring = ring;
        }
    }

    fn place(&self, seq: u64) -> (usize, u64) {
        let mask = self.ring.len() as u64 - 1;
        (((seq >> 6) & mask) as usize, 1 << (seq & 63))
    }

    /// Pretends that `top` was the newest number so far: in the middle of an SA's life.
    pub(crate) fn start_at(&mut self, top: u64) {
        self.grow(top >> 6);
        self.top = top;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edges_of_the_window() {
        let mut w = ReplayWindow::new(1_024);
        assert_eq!(w.check(0), Err(Replay::Zero));
        w.accept(5_000).unwrap();
        assert_eq!(w.accept(5_000), Err(Replay::Seen { seq: 5_000 }));
        w.accept(5_000 - 1_023).unwrap();
        assert_eq!(w.check(5_000 - 1_024), Err(Replay::TooOld { seq: 3_976, top: 5_000, window: 1_024 }));
    }

    #[test]
    fn a_jump_of_any_size_forgets_what_it_must_and_no_more() {
        for jump in [1, 63, 64, 65, 1_000, 1_023, 1_024, 1_025, 2_047, 2_048, 1 << 40] {
            let mut w = ReplayWindow::new(1_024);
            for seq in 1..=2_000 {
                w.accept(seq).unwrap();
            }
            let top = 2_000 + jump;
            w.accept(top).unwrap();
            for seq in (top.saturating_sub(1_023)).max(1)..top {
                assert_eq!(w.check(seq).is_err(), seq <= 2_000, "jump {jump}, number {seq}");
            }
        }
    }

    /// Whatever comes in which order, a window that grows judges as one that was whole from the beginning.
    #[test]
    fn a_growing_window_forgets_nothing() {
        let mut state = 1u64;
        for _ in 0..200 {
            let mut grows = ReplayWindow::new(4_096);
            let mut whole = ReplayWindow { ring: vec![0; 128].into(), ..grows.clone() };
            for _ in 0..500 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let reach = 1 << (state >> 60);
                let seq = (whole.top() + reach).saturating_sub((state >> 20) % (2 * reach + 1));
                assert_eq!(grows.accept(seq), whole.accept(seq), "{seq} at {}", whole.top());
                assert!(grows.ring.len() as u64 * 64 > grows.top().min(4_096));
            }
        }
        let mut quiet = ReplayWindow::new(4_096);
        (1..256).for_each(|seq| quiet.accept(seq).unwrap());
        assert_eq!(quiet.ring.len(), FIRST_WORDS);
    }

    #[test]
    fn sizes_are_clamped() {
        assert_eq!(ReplayWindow::new(0).size(), 1_024);
        assert_eq!(ReplayWindow::new(u32::MAX).size(), 65_536);
    }

    #[test]
    fn the_last_number_of_all_does_not_overflow() {
        let mut w = ReplayWindow::new(1_024);
        w.accept(u64::MAX).unwrap();
        w.accept(u64::MAX - 1_023).unwrap();
        assert!(w.check(u64::MAX - 1_024).is_err());
    }
}

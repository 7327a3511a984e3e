//! Sequence numbers: counting them out without ever repeating one, and finding the half that is not sent (RFC 4303
//! section 2.2.1 and appendix A). Owns the arithmetic; must never wrap.

use crate::replay::ReplayWindow;
use thiserror::Error;

/// The sequence numbers of the SA are used up: it must be rekeyed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("sequence number {next} would be beyond the last of this SA, {last}")]
pub struct SequenceExhausted {
    /// The number that would be next.
    pub next: u64,
    /// The last one that the SA has.
    pub last: u64,
}

/// The sender's counter.
#[derive(Clone, Debug)]
pub(crate) struct Counter {
    /// The number that was sent last; 0 before the first.
    sent: u64,
    /// `u64::MAX` with extended sequence numbers, `u32::MAX` without; less in a composite SA.
    last: u64,
}

impl Counter {
    /// A counter whose first number is 1 (RFC 4303 section 3.3.3).
    #[must_use]
    pub(crate) const fn new(esn: bool) -> Self {
        Self { sent: 0, last: if esn { u64::MAX } else { u32::MAX as u64 } }
    }

    /// The same counter, with no number above `last`.
    #[must_use]
    pub(crate) fn at_most(self, last: u64) -> Self {
        Self { last: self.last.min(last), ..self }
    }

    /// The number that was sent last; 0 before the first.
    #[must_use]
    pub(crate) const fn sent(&self) -> u64 {
        self.sent
    }

    /// How many numbers are left.
    /// "[...] MUST be reset (by establishing a new SA and thus a new key) prior to the transmission of the 2^32nd packet on an
    /// SA" (RFC 4303 section 2.2)
    #[must_use]
    pub(crate) const fn left(&self) -> u64 {
        self.last - self.sent
    }

    /// Takes `count` numbers at once and returns the first of them. A batch gets all of its numbers or none.
    ///
    /// RFC 4303 section 3.3.3: "the sender checks to ensure that the counter has not cycled before inserting the new value in
    /// the Sequence Number field. In other words, the sender MUST NOT send a packet on an SA if doing so would cause the
    /// sequence number to cycle."
    /// "the sender MUST increment this field for every transmitted packet" (RFC 4303 section 2.2)
    ///
    /// # Errors
    /// If fewer than `count` are left; then none is taken.
    pub(crate) fn take(&mut self, count: u64) -> Result<u64, SequenceExhausted> {
        if count > self.left() {
            return Err(SequenceExhausted { next: self.sent.saturating_add(1), last: self.last });
        }
        let first = self.sent.wrapping_add(1);
        self.sent += count;
        Ok(first)
    }

    /// The last number that there is.
    #[must_use]
    pub(crate) const fn last(&self) -> u64 {
        self.last
    }

    /// Gives all numbers away but the next `reserve`. [`Self::take_back`] brings what is left of them back.
    pub(crate) fn lend(&mut self, reserve: u64) {
        self.last = self.last.min(self.sent.saturating_add(reserve));
    }

    /// All numbers behind `sent`, up to `last`, are here again.
    pub(crate) fn take_back(&mut self, sent: u64, last: u64) {
        *self = Self { sent: sent.max(self.sent), last };
    }

    #[cfg(test)]
    pub(crate) fn start_at(&mut self, sent: u64) {
        self.sent = sent;
    }
}

/// The full sequence number of a packet that carries the low half `low`, as the receiver's window places it (RFC 4303
/// appendix A2.1). `None` if that would lie before the SA's first packet or beyond its last.
///
/// With W the window's size and T its top (Th, Tl its halves), the appendix distinguishes whether the window spans two
/// subspaces of 2^32:
/// - A: Tl >= W-1, it does not. A number at or above the bottom, Tl-W+1, is in this subspace, one below it in the next.
/// - B: Tl < W-1, it does. A number at or above the bottom (mod 2^32) is in the subspace before, one below it in this.
///
/// What this cannot do, and appendix A3 describes: find its place again after 2^32 packets were lost in a row. Liveness
/// checks notice that long before, and the SA is replaced.
#[must_use]
pub fn reconstruct(window: &ReplayWindow, low: u32) -> Option<u64> {
    let (top_low, top_high) = (window.top() as u32, window.top() >> 32);
    let reach = (window.size() - 1) as u32;
    let bottom = top_low.wrapping_sub(reach);
    let high = match (top_low >= reach, low >= bottom) {
        (true, true) | (false, false) => top_high,
        (true, false) => top_high + 1,
        (false, true) => top_high.checked_sub(1)?,
    };
    (high <= u64::from(u32::MAX)).then_some(high << 32 | u64::from(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window_at(top: u64) -> ReplayWindow {
        let mut w = ReplayWindow::new(1_024);
        w.start_at(top);
        w
    }

    #[test]
    fn every_number_near_the_top_is_found_again() {
        for top in
            [0, 1, 1_022, 1_023, 1_024, (1 << 32) - 1, 1 << 32, (1 << 32) + 500, (5 << 32) + 1_023, 7 << 40]
        {
            let w = window_at(top);
            let oldest = top.saturating_sub(1_023);
            for seq in (oldest..oldest + 4_000).chain([top + (1 << 32) - 1_024]) {
                assert_eq!(reconstruct(&w, seq as u32), Some(seq), "top {top}, number {seq}");
            }
        }
    }

    #[test]
    fn nothing_lies_before_the_first_packet_or_after_the_last() {
        assert_eq!(reconstruct(&window_at(10), u32::MAX - 5), None);
        assert_eq!(reconstruct(&window_at(u64::MAX), 3), None);
    }

    #[test]
    fn the_counter_never_wraps_and_a_batch_gets_all_or_none() {
        for (esn, last) in [(false, u64::from(u32::MAX)), (true, u64::MAX)] {
            let mut c = Counter::new(esn);
            assert_eq!(c.take(1), Ok(1));
            c.start_at(last - 3);
            assert_eq!(c.take(4), Err(SequenceExhausted { next: last - 2, last }));
            assert_eq!(c.take(3), Ok(last - 2));
            assert_eq!(c.left(), 0);
            assert!(c.take(1).is_err());
        }
    }
}

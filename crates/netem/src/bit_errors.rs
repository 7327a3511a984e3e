//! Independent bit errors. Owns the process that decides which bits of a link flip; must never know what they mean.

use dormouse_sansio::{Entropy, Seeded};

/// Every bit that passes is flipped with the same probability, independently of all others.
///
/// The number of intact bits before the next error is then geometric, P(gap = k) = (1 - p)^k p, so the process draws one
/// gap for each error instead of one number for each bit: floor(ln U / ln(1 - p)) with U uniform in (0, 1]. A gap runs on
/// across datagrams, which the memorylessness of the geometric distribution makes exact.
#[derive(Clone, Debug)]
pub struct BitErrors {
    entropy: Seeded,
    /// ln(1 - p), or `None` if no bit ever flips.
    log_intact: Option<f64>,
    /// Intact bits before the next error.
    gap: u64,
}

impl BitErrors {
    /// A process that flips each bit with probability `rate`, taken to the nearest of 0 to 1.
    #[must_use]
    pub fn new(rate: f64, entropy: Seeded) -> Self {
        let mut errors = Self { entropy, log_intact: None, gap: 0 };
        errors.set_rate(rate);
        errors
    }

    /// Changes the probability for all bits to come.
    pub fn set_rate(&mut self, rate: f64) {
        self.log_intact = (rate > 0.0).then(|| (-rate.min(1.0)).ln_1p());
        self.gap = self.draw();
    }

    /// Lets `bits` bits pass and calls `flip` with the position of each one that is in error, in rising order.
    pub fn pass(&mut self, bits: u64, mut flip: impl FnMut(u64)) {
        if self.log_intact.is_none() {
            return;
        }
        let mut at = 0_u64;
        while self.gap < bits - at {
            at += self.gap;
            flip(at);
            at += 1;
            self.gap = self.draw();
        }
        self.gap -= bits - at;
    }

    fn draw(&mut self) -> u64 {
        let Some(log_intact) = self.log_intact else { return u64::MAX };
        // U = 2^-53 .. 1; ln(1 - p) is -infinity for p = 1, which gives a gap of 0. The cast saturates.
        let uniform = ((self.entropy.next_u64() >> 11) + 1) as f64 * (-53_f64).exp2();
        (uniform.ln() / log_intact) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(errors: &mut BitErrors, bits: u64) -> u64 {
        let mut n = 0;
        errors.pass(bits, |_| n += 1);
        n
    }

    #[test]
    fn certainty_and_impossibility() {
        let mut always = BitErrors::new(1.0, Seeded::new(1));
        let mut seen = Vec::new();
        always.pass(9, |at| seen.push(at));
        assert_eq!(seen, (0..9).collect::<Vec<_>>());
        assert_eq!(count(&mut BitErrors::new(0.0, Seeded::new(1)), u64::MAX), 0);
        assert_eq!(count(&mut BitErrors::new(f64::NAN, Seeded::new(1)), u64::MAX), 0);
    }

    #[test]
    fn the_process_does_not_depend_on_how_bits_are_cut_into_datagrams() {
        let mut whole = Vec::new();
        BitErrors::new(0.01, Seeded::new(5)).pass(100_000, |at| whole.push(at));
        let (mut pieces, mut errors, mut start) = (Vec::new(), BitErrors::new(0.01, Seeded::new(5)), 0);
        for len in [1, 0, 7, 992, 9_000, 90_000] {
            errors.pass(len, |at| pieces.push(start + at));
            start += len;
        }
        assert_eq!(start, 100_000);
        assert_eq!(whole, pieces);
    }

    #[test]
    fn the_rate_and_its_spread_are_those_of_independent_bits() {
        // One million blocks of 100 bits at p = 0.02: mean 2, variance 1.96 (binomial).
        let mut errors = BitErrors::new(0.02, Seeded::new(11));
        let (mut sum, mut squares) = (0_u64, 0_u64);
        let blocks = 1_000_000_u64;
        for _ in 0..blocks {
            let n = count(&mut errors, 100);
            sum += n;
            squares += n * n;
        }
        let mean = sum as f64 / blocks as f64;
        let variance = squares as f64 / blocks as f64 - mean * mean;
        assert!((mean - 2.0).abs() < 0.01, "mean {mean}");
        assert!((variance - 1.96).abs() < 0.02, "variance {variance}");
    }
}

//! Randomness as the cores see it: handed in. Owns the trait and a replayable source for tests; must never seed itself.

/// A source of random bytes. The daemon hands in the operating system's generator; tests hand in [`Seeded`].
pub trait Entropy: Send {
    /// Fills `out` with random bytes.
    fn fill(&mut self, out: &mut [u8]);

    /// A random `u64`.
    fn next_u64(&mut self) -> u64 {
        let mut b = [0; 8];
        self.fill(&mut b);
        u64::from_le_bytes(b)
    }

    /// A number in `0..bound`, near enough to uniform for jitter (bias below 2^-32 for bounds below 2^32); 0 if `bound` is 0.
    fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or(0)
    }
}

impl Entropy for Box<dyn Entropy> {
    fn fill(&mut self, out: &mut [u8]) {
        (**self).fill(out);
    }
}

/// A replayable generator (SplitMix64, Steele et al. 2014) for tests, simulations and synthetic traffic. It is not a
/// cryptographic generator and must never make keys outside a test.
#[derive(Clone, Debug)]
pub struct Seeded(u64);

impl Seeded {
    /// The generator for `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// An independent generator derived from this one: each node of a simulation gets its own.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self(self.step())
    }

    fn step(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Entropy for Seeded {
    fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            chunk.copy_from_slice(&self.step().to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_bytes_and_forks_differ() {
        let (mut a, mut b) = (Seeded::new(7), Seeded::new(7));
        let (mut x, mut y) = ([0; 37], [0; 37]);
        a.fill(&mut x);
        b.fill(&mut y);
        assert_eq!(x, y);
        a.fork().fill(&mut x);
        assert_ne!(x, y);
    }

    #[test]
    fn below_stays_below() {
        let mut s = Seeded::new(1);
        assert!((0..1000).all(|_| s.below(7) < 7));
        assert_eq!(s.below(0), 0);
    }
}

//! Losses in bursts. Owns the channel's state between datagrams; must never know their content or their time.

use dormouse_sansio::{Entropy, Seeded};

/// The Gilbert-Elliott model (Elliott 1963): a channel with a good and a bad state, which may change before each datagram. The same as
/// `loss gemodel p r 1-h 1-k` of the kernel's netem. All four are probabilities, from 0 to 1.
///
/// In the long run the channel is bad for p / (p + r) of the datagrams, in rows of 1 / r.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GilbertElliott {
    /// From good to bad: p.
    pub worsens: f64,
    /// From bad to good: r.
    pub recovers: f64,
    /// That a datagram is lost in the bad state: 1 - h.
    pub loss_bad: f64,
    /// That one is lost in the good state: 1 - k.
    pub loss_good: f64,
}

impl GilbertElliott {
    /// The share of datagrams that is lost in the long run; no number if the state never changes.
    #[must_use]
    pub fn loss(&self) -> f64 {
        let bad = self.worsens / (self.worsens + self.recovers);
        bad * self.loss_bad + (1.0 - bad) * self.loss_good
    }
}

/// The channel, which begins in the good state.
#[derive(Clone, Debug)]
pub(crate) struct Bursts {
    entropy: Seeded,
    bad: bool,
}

impl Bursts {
    /// Draws of its own: a link with bursts has the same luck otherwise as one without.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { entropy: Seeded::new(seed ^ 0x6275_7273_7473), bad: false }
    }

    pub(crate) fn next_is_lost(&mut self, chain: &GilbertElliott) -> bool {
        let mut uniform = || (self.entropy.next_u64() >> 11) as f64 * (-53_f64).exp2();
        let (change, fate) = (uniform(), uniform());
        self.bad ^= change < if self.bad { chain.recovers } else { chain.worsens };
        fate < if self.bad { chain.loss_bad } else { chain.loss_good }
    }
}

//! How long SAs live and how requests are repeated. Owns the arithmetic of these two; must never know what time it is.

use core::time::Duration;

use dormouse_sansio::Entropy;

/// A rekeying has at least this long before the old SA ends: several round trips of a slow link, and a few refusals of a
/// peer that is busy (RFC 7296 section 2.25).
const LEAST_MARGIN: Duration = Duration::from_secs(60);

/// When an SA is replaced. Every limit is the hard one: at it the SA stops. Rekeying starts earlier, by `margin` and a
/// random part of `jitter`, so that the two ends and many clients do not all start at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lifetime {
    /// Age, where it leaves time enough for the rekeying ([`Lifetime::hard`]); `None`: no limit.
    pub time: Option<Duration>,
    /// Protected bytes, either direction; `None`: no limit.
    pub bytes: Option<u64>,
    /// Protected packets, either direction; `None`: no limit.
    pub packets: Option<u64>,
    /// Rekeying starts at the latest this many percent (0 to 90) before the limit.
    pub margin_percent: u8,
    /// Up to this many further percent (0 to 90) earlier, drawn at random.
    pub jitter_percent: u8,
}

/// The limits of one SA at which rekeying starts, drawn once from a [`Lifetime`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SoftLifetime {
    /// Age.
    pub time: Option<Duration>,
    /// Protected bytes.
    pub bytes: Option<u64>,
    /// Protected packets.
    pub packets: Option<u64>,
}

impl Lifetime {
    /// Limits without volume: `time`, rekeyed 10 to 20 % early.
    #[must_use]
    pub const fn of_time(time: Duration) -> Self {
        Self { time: Some(time), bytes: None, packets: None, margin_percent: 10, jitter_percent: 10 }
    }

    /// The age at which an SA stops: `time`, but a short one leaves a minute for the rekeying.
    #[must_use]
    pub fn hard(&self) -> Option<Duration> {
        let latest = |time: Duration| time * u32::from(100 - self.margin_percent.min(90)) / 100;
        self.time.map(|time| time.max(latest(time) + LEAST_MARGIN))
    }

    /// How much later than drawn a rekeying may begin, together with something else or because the other end goes first: a part of
    /// the age, and never more than half of what is `left` until the SA stops.
    pub(crate) fn slack(&self, left: Duration) -> Duration {
        let part = self.time.map(|time| time * u32::from(self.margin_percent.min(90)) / 100);
        part.map_or(left / 2, |part| part.min(left / 2))
    }

    /// Draws the moment to rekey.
    /// "the timing of rekeying requests SHOULD be jittered" (RFC 7296 section 2.8.1)
    pub fn soft(&self, entropy: &mut dyn Entropy) -> SoftLifetime {
        let early = u64::from(self.margin_percent.min(90)) * 1_000
            + entropy.below(u64::from(self.jitter_percent.min(90)) * 1_000 + 1);
        let keep = 100_000 - early.min(99_000);
        let scale =
            |hard: u64| u64::try_from(u128::from(hard) * u128::from(keep) / 100_000).unwrap_or(u64::MAX);
        let time = self
            .time
            .map(|hard| Duration::from_nanos(scale(u64::try_from(hard.as_nanos()).unwrap_or(u64::MAX))));
        SoftLifetime { time, bytes: self.bytes.map(scale), packets: self.packets.map(scale) }
    }
}

/// How requests are repeated until they are answered (RFC 7296, section 2.1: the requester is responsible).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retransmission {
    /// Wait before the first repetition.
    pub initial: Duration,
    /// Each wait is this many percent of the one before (100 or more).
    pub factor_percent: u32,
    /// No wait is longer than this.
    pub longest: Duration,
    /// Each wait is lengthened by a random part of up to this many percent, so that many clients of one gateway part.
    pub jitter_percent: u32,
    /// Transmissions of one request, the first included; then the peer is given up.
    pub tries: u32,
}

impl Default for Retransmission {
    /// 0.5 s, 0.9 s, 1.6 s, 2.9 s, 5.2 s, 9.4 s: the last try after 11 s, given up after some 21 s. A mobile user does not
    /// wait the 165 s that other implementations take; the wake-up ladder has its own, shorter deadlines.
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(500),
            factor_percent: 180,
            longest: Duration::from_secs(15),
            jitter_percent: 10,
            tries: 6,
        }
    }
}

impl Retransmission {
    /// How long to wait for the answer after the request was repeated `repeated` times (0: after the first transmission)
    /// before it is repeated once more, or given up; without jitter.
    /// "retransmission times MUST increase exponentially" (RFC 7296 section 2.4)
    #[must_use]
    pub fn delay(&self, repeated: u32) -> Duration {
        let mut wait = self.initial.min(self.longest);
        for _ in 0..repeated.min(64) {
            wait = (wait.saturating_mul(self.factor_percent.max(100)) / 100).min(self.longest);
        }
        wait
    }

    /// How long to wait after transmission number `sent` (1 is the first) before the next, or before giving up.
    pub fn wait(&self, sent: u32, entropy: &mut dyn Entropy) -> Duration {
        self.jittered(self.delay(sent.saturating_sub(1)), entropy)
    }

    /// `delay`, lengthened by a random part of the configured jitter.
    pub fn jittered(&self, delay: Duration, entropy: &mut dyn Entropy) -> Duration {
        let most = delay.saturating_mul(self.jitter_percent.min(100)) / 100;
        delay + Duration::from_nanos(entropy.below(u64::try_from(most.as_nanos()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use dormouse_sansio::Seeded;

    use super::*;

    #[test]
    fn rekeying_starts_within_its_margin() {
        let lifetime = Lifetime {
            time: Some(Duration::from_secs(1_000)),
            bytes: Some(u64::MAX),
            packets: None,
            margin_percent: 10,
            jitter_percent: 10,
        };
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..1_000 {
            let soft = lifetime.soft(&mut Seeded::new(seed));
            let time = soft.time.unwrap();
            assert!(
                (Duration::from_secs(800)..=Duration::from_secs(900)).contains(&time),
                "seed {seed}: {time:?}"
            );
            assert!(soft.bytes.unwrap() > u64::MAX / 100 * 79 && soft.packets.is_none());
            seen.insert(time);
        }
        assert!(seen.len() > 500, "drawn, not fixed");
    }

    #[test]
    fn waits_grow_to_the_longest_and_jitter_only_lengthens() {
        let policy = Retransmission { longest: Duration::from_secs(2), ..Retransmission::default() };
        let plain: Vec<_> = (0..5).map(|n| policy.delay(n).as_millis()).collect();
        assert_eq!(plain, [500, 900, 1_620, 2_000, 2_000]);
        for seed in 0..100 {
            let wait = policy.wait(2, &mut Seeded::new(seed)).as_millis();
            assert!((900..=990).contains(&wait), "seed {seed}: {wait}");
        }
        assert_eq!(
            Retransmission { factor_percent: 0, ..policy }.delay(u32::MAX),
            policy.initial,
            "never shorter"
        );
    }
}

//! The time of day, as registrations carry it: NTP's 64 bits. Owns the relation of the two clocks; must never read either.

use core::time::Duration;

use dormouse_sansio::Instant;

/// Seconds from 1900, where NTP begins, to 1970.
const NTP_EPOCH: u64 = 2_208_988_800;

/// What the wall clock showed at a moment of the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WallClock {
    /// The moment.
    pub at: Instant,
    /// Time since 1970-01-01 UTC at it.
    pub unix: Duration,
}

impl WallClock {
    /// NTP's timestamp: seconds since 1900 in the upper half, their fraction in the lower.
    #[must_use]
    pub fn ntp(&self, now: Instant) -> u64 {
        let time = self.unix + now.saturating_since(self.at);
        let fraction = (u64::from(time.subsec_nanos()) << 32) / 1_000_000_000;
        time.as_secs().wrapping_add(NTP_EPOCH) << 32 | fraction
    }
}

/// The time between two timestamps, across the end of NTP's era as well, in whole seconds.
pub(crate) fn apart(a: u64, b: u64) -> Duration {
    Duration::from_secs((a.wrapping_sub(b) as i64).unsigned_abs() >> 32)
}

/// Whether a timestamp is later than another, across the end of NTP's era as well.
pub(crate) const fn is_after(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_second_is_the_highest_bit_of_the_fraction() {
        let clock = WallClock { at: Instant::ZERO, unix: Duration::ZERO };
        assert_eq!(clock.ntp(Instant::ZERO), NTP_EPOCH << 32);
        let later = Instant::ZERO + Duration::from_millis(1_500);
        assert_eq!(clock.ntp(later), (NTP_EPOCH + 1) << 32 | 1 << 31);
        assert_eq!(apart(5 << 32, 12 << 32), Duration::from_secs(7));
        assert_eq!(apart(u64::MAX, 1 << 32), Duration::from_secs(1));
        assert!(is_after(1, u64::MAX) && !is_after(u64::MAX, 1) && !is_after(7, 7));
    }
}

//! The clocks. Owns the only readings of time in the project; must never hand out a clock that stops while the machine sleeps.

use dormouse_sansio::{Instant, UnixTime};
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The clock of the cores: Linux's `CLOCK_BOOTTIME`, which never steps and counts time in suspend.
///
/// ```
/// let a = dormouse_io::clock::BootClock::now();
/// assert!(dormouse_io::clock::BootClock::now() >= a);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl BootClock {
    /// Now, in time since the machine was booted.
    #[must_use]
    pub fn now() -> Instant {
        Instant::from_nanos(nanos(read(ClockId::CLOCK_BOOTTIME)))
    }
}

/// Wall-clock time, for what outlives a boot: certificates, tickets, leases.
#[must_use]
pub fn unix_now() -> UnixTime {
    UnixTime(unix_now_precise().as_secs())
}

/// Wall-clock time since 1970-01-01 UTC, for logs and events. A clock set before 1970 reads as zero.
#[must_use]
pub fn unix_now_precise() -> Duration {
    read(ClockId::CLOCK_REALTIME)
}

fn read(clock: ClockId) -> Duration {
    // Every Linux since 2.6.39 has these clocks: there is no caller that could do anything about an error.
    clock_gettime(clock).map_or(Duration::ZERO, Duration::from)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_clock_agrees_with_the_kernels_uptime() {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = uptime.split_whitespace().next().unwrap().parse().unwrap();
        let now = Duration::from_nanos(BootClock::now().as_nanos()).as_secs_f64();
        // /proc/uptime is CLOCK_BOOTTIME to a hundredth of a second, cut off.
        assert!(now >= uptime - 0.011, "{now} {uptime}");
    }

    #[test]
    fn wall_clock_time_is_after_this_was_written() {
        assert!(unix_now() > UnixTime(1_700_000_000));
    }
}

//! CPU time: of threads by their own clocks, of the whole machine from `/proc/stat`. Owns the clocks of the benchmark; must
//! never lose work: what the kernel does for a packet outside every thread (softirq), and what a hypervisor took
//! away (steal), is in the machine's figure.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// Now, on the clock that elapsed times are taken from.
#[must_use]
pub(crate) fn wall() -> Instant {
    Instant::now()
}

/// Seconds since 1970.
#[must_use]
pub(crate) fn unix() -> u64 {
    clock_gettime(ClockId::CLOCK_REALTIME).map_or(0, |t| u64::try_from(t.tv_sec()).unwrap_or(0))
}

/// CPU time of the calling thread, user and system.
#[must_use]
pub(crate) fn thread() -> Duration {
    // Every Linux has this clock.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Into::into)
}

/// CPU time of this process, all its threads together.
#[must_use]
pub(crate) fn own() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::ZERO, Into::into)
}

/// CPU time of all children that have ended and were waited for, user and system.
#[must_use]
pub(crate) fn children() -> Duration {
    let micros =
        |t: nix::sys::time::TimeVal| Duration::from_micros(u64::try_from(t.num_microseconds()).unwrap_or(0));
    getrusage(UsageWho::RUSAGE_CHILDREN)
        .map_or(Duration::ZERO, |u| micros(u.user_time()) + micros(u.system_time()))
}

/// CPU time of another process, all its threads together; nothing once it has ended.
#[must_use]
pub(crate) fn process(pid: u32) -> Duration {
    let clock = i32::try_from(pid).ok().map(|pid| nix::time::clock_getcpuclockid(Pid::from_raw(pid)));
    let Some(Ok(clock)) = clock else { return Duration::ZERO };
    clock_gettime(clock).map_or(Duration::ZERO, Into::into)
}

/// Beyond this part of all processors, what others do cannot be told from what a packet costs: they do less while we do more.
const TOO_BUSY: f64 = 0.25;

/// What a piece of work cost, from before it to after it.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    machine: Machine,
    own: Duration,
    /// Other processes whose work belongs to it, and what they had used before.
    helpers: Vec<(u32, Duration)>,
    start: Instant,
}

/// Seconds that a piece of work cost.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Cost {
    /// Elapsed.
    pub(crate) elapsed: f64,
    /// CPU of the threads of this program and its helpers.
    pub(crate) threads: f64,
    /// CPU of everything else on the machine, above what it does when idle; absent where others keep it too busy to tell.
    pub(crate) system: Option<f64>,
}

impl Account {
    /// Before the work.
    ///
    /// # Errors
    /// As [`Machine::read`].
    pub(crate) fn open(helpers: &[u32]) -> Result<Self> {
        let helpers = helpers.iter().map(|&pid| (pid, process(pid))).collect();
        Ok(Self { machine: Machine::read()?, own: own(), helpers, start: wall() })
    }

    /// After it; `idle` is what [`idle_rate`] found.
    ///
    /// # Errors
    /// As [`Machine::read`].
    pub(crate) fn close(&self, idle: f64) -> Result<Cost> {
        let elapsed = self.start.elapsed().as_secs_f64();
        let helped: Duration =
            self.helpers.iter().map(|&(pid, before)| process(pid).saturating_sub(before)).sum();
        let threads = (own().saturating_sub(self.own) + helped).as_secs_f64();
        let busy = Machine::read()?.since(self.machine).busy.as_secs_f64();
        let known = idle <= TOO_BUSY * f64::from(super::machine::cores());
        Ok(Cost { elapsed, threads, system: known.then_some(busy - threads - idle * elapsed) })
    }
}

/// What the whole machine has done since it was booted, all processors together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Machine {
    /// Everything but idling and waiting for disks: user, system, interrupts, softirq and steal.
    pub(crate) busy: Duration,
    /// Of which the hypervisor took away.
    pub(crate) steal: Duration,
    /// Everything.
    pub(crate) total: Duration,
}

/// Milliseconds that `/proc/stat` counts in: `USER_HZ`, 100 on every Linux that this runs on (it is part of the interface to user space).
const TICK: u64 = 10;

/// So many of them; more than any machine has counted make the longest time there is.
fn ticks(n: u64) -> Duration {
    Duration::from_millis(n.saturating_mul(TICK))
}

impl Machine {
    /// Now.
    ///
    /// # Errors
    /// If `/proc/stat` cannot be read or understood.
    pub(crate) fn read() -> Result<Self> {
        let text = fs::read_to_string("/proc/stat").context("/proc/stat")?;
        Self::parse(&text).context("/proc/stat has no line of all processors")
    }

    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        // 64 bits: with 64 processors, 32 are full after a week.
        let fields: Vec<u64> = line.split_whitespace().map_while(|f| f.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; guest times are counted in user and nice already.
        let [user, nice, system, idle, iowait, irq, softirq, rest @ ..] = &fields[..] else { return None };
        let steal = rest.first().copied().unwrap_or(0);
        let sum = |n: &[u64]| n.iter().fold(0, |a: u64, b| a.saturating_add(*b));
        let busy = sum(&[*user, *nice, *system, *irq, *softirq, steal]);
        let total = sum(&[busy, *idle, *iowait]);
        Some(Self { busy: ticks(busy), steal: ticks(steal), total: ticks(total) })
    }

    /// What happened since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            busy: self.busy.saturating_sub(earlier.busy),
            steal: self.steal.saturating_sub(earlier.steal),
            total: self.total.saturating_sub(earlier.total),
        }
    }
}

/// Processors' worth of work that the machine does while nothing is measured, over `time`.
///
/// # Errors
/// As [`Machine::read`].
pub(crate) fn idle_rate(time: Duration) -> Result<f64> {
    let (before, start) = (Machine::read()?, wall());
    std::thread::sleep(time);
    Ok(Machine::read()?.since(before).busy.as_secs_f64() / start.elapsed().as_secs_f64())
}

/// Seconds that one and the same arithmetic takes: some milliseconds of it.
#[must_use]
pub(crate) fn yardstick() -> f64 {
    let start = wall();
    let mut state = 1u64;
    for i in 0..8_000_000u64 {
        state = (state ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
    }
    std::hint::black_box(state);
    start.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_and_softirq_count_as_busy_and_idle_does_not() {
        let text = "cpu  100 20 30 4000 50 6 7 8 90 0\ncpu0 1 2 3\n";
        let parsed = Machine::parse(text).unwrap();
        assert_eq!(parsed.busy, ticks(100 + 20 + 30 + 6 + 7 + 8));
        assert_eq!(parsed.steal, ticks(8));
        assert_eq!(parsed.total, parsed.busy + ticks(4_050));
        assert_eq!(Machine::parse("intr 5\n"), None);
        assert_eq!(Machine::parse("cpu 1 2 three\n"), None);
    }

    #[test]
    fn a_machine_of_many_processors_that_is_up_for_long_is_read() {
        // 256 processors, idle for ten years.
        let idle = 256 * 100 * 86_400 * 3_650u64;
        let parsed = Machine::parse(&format!("cpu  1 2 3 {idle} 5 6 7 8 0 0\n")).unwrap();
        assert_eq!(parsed.total, ticks(idle + 32));
        assert_eq!(parsed.busy, ticks(27));
        let most = u64::MAX;
        assert!(Machine::parse(&format!("cpu  {most} {most} {most} {most} {most} 0 0 0 0 0\n")).is_some());
    }

    #[test]
    fn what_cannot_be_told_apart_is_absent() {
        let account = Account::open(&[]).unwrap();
        let cost = account.close(f64::from(crate::campaign::machine::cores())).unwrap();
        assert_eq!(cost.system, None, "all processors were busy before");
        assert!(account.close(0.0).unwrap().system.is_some());
    }

    #[test]
    fn a_process_is_seen_from_outside() {
        let before = own();
        assert!(yardstick() > 0.0);
        let seen = process(std::process::id());
        assert!(seen > before && own() >= seen, "{before:?} {seen:?}");
        assert_eq!(process(u32::MAX), Duration::ZERO, "no such process");
    }
}

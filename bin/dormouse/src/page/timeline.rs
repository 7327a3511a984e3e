//! When the radio was awake and when it slept, as far as it is known. Owns the stretches of the last day; times that are not known are in none of them.
//!
//! What was before the page began, or while the daemon did not answer, is known of the daemon's latest wakes alone: that the radio slept before each.

use dormouse_control::{SleepState, SleepStatus};
use dormouse_sansio::Instant;
use std::time::Duration;

/// How long a stretch is kept.
pub(super) const DAY: Duration = Duration::from_secs(86_400);
/// Between looks that are further apart the machine was suspended: nothing is known of that time.
const GAP: Duration = Duration::from_secs(10);
/// Stretches at most; the oldest go first.
const MOST: usize = 4_096;

/// A time of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stretch {
    pub(super) asleep: bool,
    pub(super) from: Instant,
    pub(super) to: Instant,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    /// Oldest first; none overlaps another.
    stretches: Vec<Stretch>,
    /// The last one goes on.
    goes_on: bool,
}

impl Timeline {
    /// Takes in the daemon's status of now.
    pub(super) fn note(&mut self, now: Instant, it: &SleepStatus) {
        let last = self.stretches.last().map(|s| s.to);
        let asleep = it.state == SleepState::Asleep;
        if !self.goes_on || last.is_none_or(|last| now.saturating_since(last) > GAP) {
            for wake in it.wakes.iter().rev() {
                let to = before(now, wake.ago_seconds);
                self.add(Stretch { asleep: true, from: before(to, wake.slept_seconds), to });
            }
            let from = before(now, it.asleep_seconds.filter(|_| asleep).unwrap_or(0.0));
            self.add(Stretch { asleep, from, to: now });
        } else if let Some(last) = self.stretches.last_mut() {
            last.to = now;
            if last.asleep != asleep {
                self.stretches.push(Stretch { asleep, from: now, to: now });
            }
        }
        self.goes_on = true;
        self.stretches.retain(|s| now.saturating_since(s.to) < DAY);
        let over = self.stretches.len().saturating_sub(MOST);
        self.stretches.drain(..over);
    }

    /// The daemon does not answer: what is until it does again is not known.
    pub(super) const fn lost(&mut self) {
        self.goes_on = false;
    }

    /// What is known of the last day, oldest first.
    pub(super) fn stretches(&self, now: Instant) -> impl Iterator<Item = Stretch> {
        let day = before(now, DAY.as_secs_f64());
        self.stretches.iter().map(move |s| Stretch { from: s.from.max(day), ..*s }).filter(|s| s.from < s.to)
    }

    /// Adds what is not known yet of a stretch.
    fn add(&mut self, mut it: Stretch) {
        let end = self.stretches.last().map_or(Instant::ZERO, |s| s.to);
        it.from = it.from.max(end);
        if it.from <= it.to {
            self.stretches.push(it);
        }
    }
}

fn before(at: Instant, seconds: f64) -> Instant {
    let ago = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
    let nanos = u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX);
    Instant::from_nanos(at.as_nanos().saturating_sub(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_control::WakeStatus;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn sleep(state: SleepState, asleep: Option<f64>, wakes: &[(f64, f64)]) -> SleepStatus {
        let wake = |&(ago_seconds, slept_seconds): &(f64, f64)| WakeStatus {
            ago_seconds,
            slept_seconds,
            ..WakeStatus::default()
        };
        let wakes = wakes.iter().map(wake).collect();
        SleepStatus { state, asleep_seconds: asleep, wakes, ..SleepStatus::default() }
    }

    fn seen(timeline: &Timeline, now: u64) -> Vec<(bool, u64, u64)> {
        let seconds = |at: Instant| at.as_nanos() / 1_000_000_000;
        timeline.stretches(at(now)).map(|s| (s.asleep, seconds(s.from), seconds(s.to))).collect()
    }

    #[test]
    fn what_the_daemon_knew_before_is_shown_and_what_is_not_known_is_not() {
        let mut timeline = Timeline::default();
        timeline.note(at(1_000), &sleep(SleepState::Asleep, Some(50.0), &[(100.0, 200.0), (500.0, 10.0)]));
        timeline.note(at(1_002), &sleep(SleepState::Asleep, Some(52.0), &[]));
        timeline.note(at(1_004), &sleep(SleepState::Waking, None, &[]));
        timeline.note(at(1_006), &sleep(SleepState::Awake, None, &[]));
        let mut wanted = vec![(true, 490, 500), (true, 700, 900), (true, 950, 1_004), (false, 1_004, 1_006)];
        assert_eq!(seen(&timeline, 1_006), wanted);
        // Gone for a while, in which it slept, also before.
        timeline.lost();
        timeline.note(at(1_008), &sleep(SleepState::Awake, None, &[(1.0, 50.0)]));
        timeline.note(at(1_010), &sleep(SleepState::Awake, None, &[]));
        wanted.extend([(true, 1_006, 1_007), (false, 1_008, 1_010)]);
        assert_eq!(seen(&timeline, 1_010), wanted);
        // The machine was suspended.
        timeline.note(at(2_000), &sleep(SleepState::Awake, None, &[]));
        assert_eq!(seen(&timeline, 2_000), wanted);
        // A day later only the end of it is left.
        assert_eq!(seen(&timeline, 86_400 + 1_009), [(false, 1_009, 1_010)]);
    }

    #[test]
    fn it_does_not_grow_for_ever_nor_believe_nonsense() {
        let mut timeline = Timeline::default();
        timeline
            .note(at(5), &sleep(SleepState::Asleep, Some(f64::NAN), &[(f64::INFINITY, -1.0), (-3.0, 1e300)]));
        for n in 0..3 * MOST as u64 {
            let state = if n % 2 == 0 { SleepState::Awake } else { SleepState::Asleep };
            timeline.note(at(6 + n), &sleep(state, None, &[]));
        }
        assert_eq!(timeline.stretches.len(), MOST);
    }
}

//! One alarm on the boot clock, as a file descriptor. Owns the timer; decides nothing about when.

use dormouse_sansio::{Deadline, Instant};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::io;
use std::time::Duration;

/// A timer on `CLOCK_BOOTTIME`: a deadline that passes in suspend fires at once after it. (It does not wake a suspended
/// machine; nothing in a VPN is worth that.)
///
/// Register it with the [`crate::poller::Poller`] for reading, [`Timer::arm`] it before each wait, and [`Timer::clear`] it when
/// it was reported readable.
#[derive(Debug)]
pub struct Timer {
    fd: TimerFd,
    armed: Option<Instant>,
}

impl Timer {
    /// A timer that is not armed.
    ///
    /// # Errors
    /// The kernel's, when file descriptors or memory run out.
    pub fn new() -> io::Result<Self> {
        let fd = TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK)?;
        Ok(Self { fd, armed: None })
    }

    /// Arms it for `deadline` (its latest moment if `lazily`, else its earliest), or disarms it. Arming for the same moment
    /// again costs no system call.
    ///
    /// # Errors
    /// The kernel's.
    pub fn arm(&mut self, deadline: Option<Deadline>, lazily: bool) -> io::Result<()> {
        let at = deadline
            .map(|d| if lazily { d.at + d.slack } else { d.at })
            .filter(|at| *at != Instant::FAR_FUTURE);
        if at == self.armed {
            return Ok(());
        }
        match at {
            // A value of zero would disarm the timer; a moment that has passed fires at once.
            Some(at) => {
                let time = TimeSpec::from_duration(Duration::from_nanos(at.as_nanos().max(1)));
                self.fd.set(Expiration::OneShot(time), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
            }
            None => self.fd.unset()?,
        }
        self.armed = at;
        Ok(())
    }

    /// Arms it for the earliest moment of `deadline`, unless it fires before that already: it can be armed when it has. While packets flow, each of which moves
    /// a deadline, that is one wake-up in place of a system call for each.
    ///
    /// # Errors
    /// The kernel's.
    pub fn arm_by(&mut self, deadline: Option<Deadline>) -> io::Result<()> {
        let later = deadline.zip(self.armed).is_some_and(|(deadline, armed)| armed <= deadline.at);
        if later { Ok(()) } else { self.arm(deadline, false) }
    }

    /// Takes note that it fired: it is disarmed and no longer readable. True if it had fired.
    pub fn clear(&mut self) -> bool {
        // Nonblocking: EAGAIN says that it has not fired.
        let fired = self.fd.wait().is_ok();
        if fired {
            self.armed = None;
        }
        fired
    }
}

crate::as_fd!(Timer, fd);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::BootClock;
    use crate::poller::{Interest, Poller};

    #[test]
    fn what_is_armed_moves_to_the_front_at_once_and_back_when_it_has_fired() {
        let mut timer = Timer::new().unwrap();
        let mut arm = |at: u64| {
            timer.arm_by(Some(Deadline::strict(Instant::from_nanos(at), "test"))).unwrap();
            timer.armed
        };
        let far = u64::MAX / 4;
        let at = |n| Some(Instant::from_nanos(n));
        assert_eq!([arm(far), arm(far + 1), arm(far - 1)], [at(far), at(far), at(far - 1)]);
        assert_eq!(arm(1), at(1));
        while !timer.clear() {
            std::thread::yield_now();
        }
        timer.arm_by(Some(Deadline::strict(Instant::from_nanos(far), "test"))).unwrap();
        assert_eq!(timer.armed, at(far));
        timer.arm(Some(Deadline::strict(Instant::from_nanos(far + 1), "test")), false).unwrap();
        assert_eq!(timer.armed, at(far + 1), "exactly, where that is asked for");
        timer.arm_by(None).unwrap();
        assert_eq!(timer.armed, None);
    }

    #[test]
    fn a_deadline_that_has_passed_fires_at_once_and_only_once() {
        let poller = Poller::new().unwrap();
        let mut timer = Timer::new().unwrap();
        poller.add(&timer, 7, Interest::READ).unwrap();
        timer.arm(Some(Deadline::strict(Instant::from_nanos(0), "test")), false).unwrap();
        let mut ready = Vec::new();
        poller.wait(&mut ready, None).unwrap();
        assert_eq!(ready.iter().map(|r| r.token).collect::<Vec<_>>(), [7]);
        assert!(timer.clear());
        assert!(!timer.clear());
        poller.wait(&mut ready, Some(Duration::ZERO)).unwrap();
        assert!(ready.is_empty());
    }

    #[test]
    fn slack_postpones_only_when_asked_and_disarming_disarms() {
        let mut timer = Timer::new().unwrap();
        let at = BootClock::now() + Duration::from_secs(3600);
        let deadline = Deadline { at, slack: Duration::from_secs(60), why: "test" };
        timer.arm(Some(deadline), false).unwrap();
        assert_eq!(timer.armed, Some(at));
        timer.arm(Some(deadline), true).unwrap();
        assert_eq!(timer.armed, Some(at + Duration::from_secs(60)));
        timer.arm(None, true).unwrap();
        assert_eq!(timer.fd.get().unwrap(), None);
        timer.arm(Some(Deadline::strict(Instant::FAR_FUTURE, "never")), false).unwrap();
        assert_eq!(timer.fd.get().unwrap(), None);
    }
}

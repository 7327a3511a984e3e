//! How long a NAT remembers us. Owns the search for the longest silence that a NAT's binding survives; must never send:
//! it says when something should be sent and what.
//!
//! RFC 3948 suggests a keepalive each 20 s, which holds a radio awake for nothing behind the many NATs that remember for
//! minutes. With [`config::Keepalive::Auto`] the interval starts there and grows by half as long as the binding proves to
//! survive. The proof is an INFORMATIONAL exchange with NAT detection payloads, sent at the end of a silence: if the
//! peer still sees us at the same address and port, the binding lived (RFC 4555 section 3.8). If it died, the interval
//! falls back to the longest proven one and the search goes on by halving until the gap is small. A new path starts
//! anew: it has another NAT.
//!
//! Timers: one, `interval` after the last datagram that was sent. Its slack is an eighth of the interval: before it for a
//! keepalive, because a late one finds the binding gone; after it for a check, which learns the more the later it is.

use core::time::Duration;

use dormouse_sansio::{Deadline, Instant};

use crate::config;

/// Where the search starts: what RFC 3948 section 4 recommends, and short enough for every NAT in the field.
const FIRST: Duration = Duration::from_secs(20);
/// Where it ends: longer silence than an hour is not worth a better figure.
const LONGEST: Duration = Duration::from_secs(3_600);
/// The search is over when the next trial would be less than this share (percent) above the proven interval.
const WORTHWHILE: u32 = 115;

/// What to do at the end of a silence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// Send the one-byte keepalive.
    Byte,
    /// Ask the peer from where it sees us.
    Check,
}

/// The state of the search on one path.
#[derive(Clone, Debug)]
pub(crate) struct Keepalive {
    policy: config::Keepalive,
    /// The longest silence that the binding has survived, or the safe start.
    proven: Duration,
    /// The shortest silence that it has not survived.
    fatal: Option<Duration>,
}

impl Keepalive {
    pub(crate) fn new(policy: config::Keepalive) -> Self {
        Self { policy, proven: FIRST, fatal: None }
    }

    /// A new path: nothing is known about its NAT.
    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.policy);
    }

    /// The silence to try next, if a longer one is worth trying.
    fn trial(&self) -> Option<Duration> {
        let next = match self.fatal {
            None => self.proven * 3 / 2,
            Some(fatal) => self.proven + fatal.saturating_sub(self.proven) / 2,
        };
        let next = next.min(LONGEST);
        (next * 100 > self.proven * WORTHWHILE).then_some(next)
    }

    /// The silence that is allowed now; `None`: keepalives are off.
    pub(crate) fn interval(&self) -> Option<Duration> {
        match self.policy {
            config::Keepalive::Off | config::Keepalive::Seconds(0) => None,
            config::Keepalive::Seconds(s) => Some(Duration::from_secs(s.into())),
            config::Keepalive::Auto => Some(self.trial().unwrap_or(self.proven)),
        }
    }

    /// When the silence that began at `quiet_since` must end.
    /// "A peer SHOULD send a NAT-keepalive packet" (RFC 3948 section 4)
    pub(crate) fn deadline(&self, quiet_since: Instant) -> Option<Deadline> {
        let interval = self.interval()?;
        let slack = interval / 8;
        let at = match self.action() {
            Action::Check => quiet_since + interval,
            Action::Byte => quiet_since + (interval - slack),
        };
        Some(Deadline { at, slack, why: "nat keepalive" })
    }

    /// What to send at the end of the silence.
    pub(crate) fn action(&self) -> Action {
        match self.policy {
            config::Keepalive::Auto if self.trial().is_some() => Action::Check,
            _ => Action::Byte,
        }
    }

    /// A check after `silence` found the old binding alive.
    pub(crate) fn survived(&mut self, silence: Duration) {
        self.proven = self.proven.max(silence.min(LONGEST));
        if self.fatal.is_some_and(|fatal| fatal <= self.proven) {
            self.fatal = None; // the NAT has changed its mind
        }
    }

    /// A check after `silence` found another binding, or none.
    pub(crate) fn died(&mut self, silence: Duration) {
        if silence <= self.proven {
            // What was proven no longer holds (a reboot, or a busier NAT): be careful again.
            self.proven = (silence / 2).max(FIRST.min(silence));
        }
        self.proven = self.proven.max(Duration::from_secs(5));
        self.fatal = Some(silence.max(self.proven));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the search against a NAT that forgets after `lifetime`; returns the interval it settles on and the trials.
    fn search(lifetime: Duration) -> (Duration, u32) {
        let mut k = Keepalive::new(config::Keepalive::Auto);
        let mut trials = 0;
        while k.action() == Action::Check {
            let silence = k.interval().expect("auto is on");
            trials += 1;
            assert!(trials < 64, "the search ends");
            if silence < lifetime { k.survived(silence) } else { k.died(silence) }
        }
        (k.interval().expect("auto is on"), trials)
    }

    #[test]
    fn the_search_settles_close_below_the_binding_lifetime() {
        for lifetime in [31, 60, 125, 300, 1_800] {
            let lifetime = Duration::from_secs(lifetime);
            let (found, trials) = search(lifetime);
            assert!(found < lifetime && found * 4 >= lifetime * 3, "{found:?} of {lifetime:?}");
            assert!(trials <= 20, "{trials} trials for {lifetime:?}");
        }
    }

    #[test]
    fn it_stays_within_its_bounds() {
        assert_eq!(search(Duration::from_secs(100_000)).0, LONGEST);
        assert_eq!(search(Duration::from_secs(21)).0, FIRST);
    }

    #[test]
    fn a_shrinking_binding_is_noticed() {
        let mut k = Keepalive::new(config::Keepalive::Auto);
        k.survived(Duration::from_secs(300));
        k.died(Duration::from_secs(200));
        assert!(k.interval().expect("auto is on") < Duration::from_secs(200));
    }

    #[test]
    fn fixed_and_off_do_not_search() {
        let mut k = Keepalive::new(config::Keepalive::Seconds(25));
        assert_eq!((k.interval(), k.action()), (Some(Duration::from_secs(25)), Action::Byte));
        k.survived(Duration::from_secs(100));
        assert_eq!(k.interval(), Some(Duration::from_secs(25)));
        assert_eq!(Keepalive::new(config::Keepalive::Off).deadline(Instant::ZERO), None);
    }

    #[test]
    fn slack_lies_before_the_end_of_the_interval() {
        let k = Keepalive::new(config::Keepalive::Seconds(40));
        let d = k.deadline(Instant::ZERO).expect("on");
        assert_eq!(d.at + d.slack, Instant::ZERO + Duration::from_secs(40));
        assert_eq!(d.slack, Duration::from_secs(5));
    }
}

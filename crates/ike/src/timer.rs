//! What the timers of several parts have in common. Owns slacks and the deadlines of a lifetime; must never know what a timer is for.

use core::time::Duration;

use dormouse_sansio::{Deadline, Instant};

use crate::config::Lifetime;

/// Slack of a deadline that is not urgent and has no interval of its own.
pub(crate) const UPKEEP_SLACK: Duration = Duration::from_secs(60);
/// Slack of the end of a half-open SA.
pub(crate) const HALF_OPEN_SLACK: Duration = Duration::from_secs(5);

/// Whether something that is to happen at `at` is due; then it is taken, so that it happens once.
pub(crate) fn take_due(at: &mut Option<Instant>, now: Instant) -> bool {
    at.take_if(|at| *at <= now).is_some()
}

/// The deadlines of a lifetime: rekeying, with a slack that leaves half of the time until the end at least, and the end.
pub(crate) fn deadlines(
    rekey_at: Option<Instant>,
    expire_at: Option<Instant>,
    lifetime: Option<&Lifetime>,
    why: &'static str,
) -> impl Iterator<Item = Deadline> + use<> {
    let slack = match (rekey_at, expire_at, lifetime) {
        (Some(soft), Some(hard), Some(lifetime)) => lifetime.slack(hard - soft),
        _ => UPKEEP_SLACK,
    };
    let end = expire_at.map(|at| Deadline::strict(at, "expiry"));
    let rekey = rekey_at.map(|at| Deadline { at, slack, why });
    end.into_iter().chain(rekey)
}

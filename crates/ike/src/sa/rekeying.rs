//! The lifetime of an IKE SA, and a successor that competes with ours. Owns the moments of rekeying and expiry; the exchange is [`crate::exchange::rekey`]'s.

use dormouse_sansio::{Deadline, Entropy, Instant};

use super::UPKEEP_SLACK;
use super::timers::take_due;
use crate::config::Lifetime;
use dormouse_keying::SaId;

/// A successor that the peer's rekeying made while our own rekeying was under way (RFC 7296 section 2.25.2).
#[derive(Debug)]
pub(crate) struct Rival {
    /// `None` while its additional key exchanges go on.
    pub(crate) heir: Option<SaId>,
    /// The lower nonce of that exchange.
    pub(crate) lowest: Vec<u8>,
}

/// See the module's text. A successor has a life of its own, and inherits none of it.
#[derive(Debug)]
pub(crate) struct Rekeying {
    pub(crate) rekey_at: Option<Instant>,
    pub(crate) expire_at: Option<Instant>,
    pub(crate) rival: Option<Rival>,
}

impl Rekeying {
    /// Both ends rekey by the same clock: the client goes first unless it is asleep.
    pub(super) fn new(entropy: &mut dyn Entropy, now: Instant, lifetime: &Lifetime, client: bool) -> Self {
        let expire_at = lifetime.hard().map(|t| now + t);
        let soft = lifetime.soft(entropy).time.map(|t| now + t);
        let later = |at, end| at + lifetime.slack(end - at);
        let rekey_at = match (soft, expire_at) {
            (Some(at), Some(end)) if !client => Some(later(at, end)),
            _ => soft,
        };
        Self { rekey_at, expire_at, rival: None }
    }

    pub(super) fn deadlines(&self, lifetime: &Lifetime) -> impl Iterator<Item = Deadline> + use<> {
        deadlines(self.rekey_at, self.expire_at, Some(lifetime), "ike rekey")
    }

    pub(super) fn has_expired(&self, now: Instant) -> bool {
        self.expire_at.is_some_and(|at| at <= now)
    }

    /// Whether rekeying is due: once.
    pub(crate) fn take_rekeying_due(&mut self, now: Instant) -> bool {
        take_due(&mut self.rekey_at, now)
    }
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

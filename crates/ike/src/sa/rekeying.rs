//! The lifetime of an IKE SA, and a successor that competes with ours. Owns the moments of rekeying and expiry; the exchange is [`crate::exchange::rekey`]'s.

use dormouse_sansio::{Deadline, Entropy, Instant};

use super::IkeSa;
use super::install::moments;
use crate::config::Lifetime;
use crate::timer::{deadlines, take_due};
use dormouse_keying::SaId;

/// A successor that the peer's rekeying made while our own rekeying was under way (RFC 7296 section 2.25.2).
#[derive(Debug)]
struct Rival {
    /// `None` while its additional key exchanges go on.
    heir: Option<SaId>,
    /// The lower nonce of that exchange.
    lowest: Vec<u8>,
}

/// What has become of a rival.
pub(crate) struct Rivalry {
    /// There was one, and ours has the lowest nonce of the four.
    pub(crate) lost: bool,
    /// Its successor, if that is complete.
    pub(crate) heir: Option<SaId>,
}

/// See the module's text. A successor has a life of its own, and inherits none of it.
#[derive(Debug)]
pub(crate) struct Rekeying {
    rekey_at: Option<Instant>,
    expire_at: Option<Instant>,
    rival: Option<Rival>,
    /// Successors that the endpoint has not adopted yet.
    born: Vec<IkeSa>,
}

impl Rekeying {
    /// Both ends rekey by the same clock: the client goes first unless it is asleep.
    pub(super) fn new(entropy: &mut dyn Entropy, now: Instant, lifetime: &Lifetime, client: bool) -> Self {
        let soft = lifetime.soft(entropy);
        let (rekey_at, expire_at) = moments(now, lifetime, &soft, client);
        Self { rekey_at, expire_at, rival: None, born: Vec::new() }
    }

    pub(super) fn deadlines(&self, lifetime: &Lifetime) -> impl Iterator<Item = Deadline> + use<> {
        deadlines(self.rekey_at, self.expire_at, Some(lifetime), "ike rekey")
    }

    pub(super) fn has_expired(&self, now: Instant) -> bool {
        self.expire_at.is_some_and(|at| at <= now)
    }

    pub(crate) fn rekey_at(&self) -> Option<Instant> {
        self.rekey_at
    }

    pub(crate) fn expire_at(&self) -> Option<Instant> {
        self.expire_at
    }

    /// Its keys are older than it is here, and end by then: it is rekeyed in the middle of what is left.
    pub(crate) fn end_by(&mut self, now: Instant, end: Instant) {
        let (end, soft) = (end.max(now), now + (end.max(now) - now) / 2);
        self.expire_at = Some(self.expire_at.map_or(end, |at| at.min(end)));
        self.rekey_at = Some(self.rekey_at.map_or(soft, |at| at.min(soft)));
    }

    /// It cannot wait any more.
    pub(super) fn rekey_now(&mut self, now: Instant) {
        self.rekey_at = Some(now);
    }

    /// The peer's rekeying meets ours: its successor, if that is complete, and the lower nonce of its exchange.
    pub(crate) fn meet(&mut self, heir: Option<SaId>, lowest: &[u8]) {
        self.rival = Some(Rival { heir, lowest: lowest.to_vec() });
    }

    pub(crate) fn has_rival(&self) -> bool {
        self.rival.is_some()
    }

    /// The rival's successor.
    pub(crate) fn heir(&self) -> Option<SaId> {
        self.rival.as_ref()?.heir
    }

    /// The rival is no more; its successor, which then goes or takes over.
    pub(crate) fn take_heir(&mut self) -> Option<SaId> {
        self.rival.take()?.heir
    }

    /// Ours is complete: the lowest of the four nonces loses.
    pub(crate) fn decide(&mut self, our_lowest: &[u8]) -> Rivalry {
        let lost = self.rival.as_ref().is_some_and(|rival| our_lowest < rival.lowest.as_slice());
        Rivalry { lost, heir: self.take_heir() }
    }

    /// The endpoint adopts it.
    pub(crate) fn bear(&mut self, successor: IkeSa) {
        self.born.push(successor);
    }

    pub(crate) fn take_born(&mut self) -> Vec<IkeSa> {
        std::mem::take(&mut self.born)
    }

    /// Whether rekeying is due: once.
    pub(crate) fn take_rekeying_due(&mut self, now: Instant) -> bool {
        take_due(&mut self.rekey_at, now)
    }
}

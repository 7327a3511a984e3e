//! Whether the peer is there (RFC 7296 section 2.4), and where it sees us (RFC 4555 section 3.8). Owns these two requests and
//! their answers; when they are due is [`crate::sa::upkeep`]'s and [`crate::sa::mobility`]'s.

use core::time::Duration;

use dormouse_sansio::{Class, Instant};
use dormouse_wire::ike::NotifyType;

use super::update::Update;
use super::{Exchange, Reply, Request, Run};
use crate::payloads;
use crate::sa::{Fate, IkeSa};
use crate::shared::Shared;
use crate::stats::Kind;

/// An empty request.
#[derive(Debug)]
pub(crate) struct Liveness {
    class: Class,
}

impl Liveness {
    /// Nothing waits for the answer.
    pub(crate) const fn upkeep() -> Self {
        Self { class: Class::Upkeep }
    }

    pub(crate) const fn urgent() -> Self {
        Self { class: Class::Urgent }
    }

    /// The same, which also asks where the peer sees us, not to learn about the NAT.
    pub(super) const fn with_nat_detection(&self) -> NatCheck {
        NatCheck { silence: Duration::ZERO, class: self.class }
    }
}

impl Run for Liveness {
    fn build(&mut self, _: &mut IkeSa, _: &mut Shared, _: Instant) -> Option<Request> {
        Some(Request { payloads: Vec::new(), kind: Kind::Liveness, class: self.class })
    }

    fn take(self, _: &mut IkeSa, _: &mut Shared, _: Instant, _: &Reply<'_>) -> Fate {
        Fate::Lives
    }

    /// A successor that a new message of the peer has made shows that it is there.
    fn migrate(&self, begun: bool) -> Option<Exchange> {
        (!begun).then(|| Self { class: self.class }.into())
    }
}

/// Asks from where the peer sees us, at the end of a silence.
#[derive(Debug)]
pub(crate) struct NatCheck {
    /// How long nothing had refreshed the NAT's binding; zero: not to learn about the NAT.
    silence: Duration,
    class: Class,
}

impl NatCheck {
    pub(crate) const fn after(silence: Duration) -> Self {
        Self { silence, class: Class::Upkeep }
    }
}

impl Run for NatCheck {
    fn build(&mut self, sa: &mut IkeSa, _: &mut Shared, _: Instant) -> Option<Request> {
        let link = &sa.core.link;
        let payloads =
            payloads::nat_detection(link.spis, &link.path, link.conn.esp_in_udp.is_forced()).to_vec();
        Some(Request { payloads, kind: Kind::Liveness, class: self.class })
    }

    fn take(self, sa: &mut IkeSa, _: &mut Shared, now: Instant, reply: &Reply<'_>) -> Fate {
        let seen = reply.view.notify(NotifyType::NatDetectionDestinationIp).map(|n| n.data.clone());
        // The mapping has changed: the peer must move (RFC 4555 section 3.8).
        // "the initiator SHOULD send UPDATE_SA_ADDRESSES" (RFC 4555 section 3.8)
        if seen.is_some_and(|seen| sa.mobility.note_seen_as(seen, self.silence)) {
            sa.tasks.add_first(Update::new(), now);
        }
        Fate::Lives
    }

    /// The digests of a successor are others, and the silence is over.
    fn migrate(&self, begun: bool) -> Option<Exchange> {
        (!begun).then(|| Self { silence: self.silence, class: self.class }.into())
    }
}

//! UPDATE_SA_ADDRESSES (RFC 4555 section 3.5): the client tells that it has moved. Owns the request and its answer; where the SA
//! goes is [`crate::sa::mobility`]'s.

use dormouse_sansio::{Class, Instant, Path};
use dormouse_wire::ike::NotifyType;

use super::mobike::no_nats_allowed;
use super::{Exchange, Reply, Request, Run};
use crate::event::Event;
use crate::payloads::{self, notify};
use crate::sa::{Fate, IkeSa};
use crate::shared::Shared;
use crate::stats::Kind;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Update {
    /// The path that it was made for; if the SA has moved on since, the answer counts for nothing.
    path: Option<Path>,
}

impl Update {
    pub(crate) const fn new() -> Self {
        Self { path: None }
    }

    pub(crate) fn is_for(&self, path: &Path) -> bool {
        self.path.as_ref() == Some(path)
    }
}

impl Run for Update {
    fn build(&mut self, sa: &mut IkeSa, _: &mut Shared, _: Instant) -> Option<Request> {
        let link = &sa.core.link;
        self.path = Some(link.path);
        let mut payloads = vec![notify(NotifyType::UpdateSaAddresses, [])];
        if link.conn.mobility.no_nats_allowed {
            // "MUST also include a NO_NATS_ALLOWED notification" (RFC 4555 section 3.9)
            payloads.push(no_nats_allowed(&link.path));
        } else {
            payloads.extend(payloads::nat_detection(link.spis, &link.path, link.conn.esp_in_udp.is_forced()));
        }
        Some(Request { payloads, kind: Kind::Mobike, class: Class::Urgent })
    }

    fn take(self, sa: &mut IkeSa, shared: &mut Shared, now: Instant, reply: &Reply<'_>) -> Fate {
        // After another address change, "no MOBIKE processing is done for the reply" (RFC 4555 section 3.5).
        if self.path != Some(sa.core.link.path) {
            sa.tasks.add_first(Self::new(), now);
            return Fate::Lives;
        }
        let why = if reply.view.has(NotifyType::UnacceptableAddresses) {
            "UNACCEPTABLE_ADDRESSES"
        } else if reply.view.has(NotifyType::UnexpectedNatDetected) {
            if sa.mobility.unexpected_nat() {
                sa.tasks.add_first(Self::new(), now);
                return Fate::Lives;
            }
            "UNEXPECTED_NAT_DETECTED"
        } else {
            sa.mobility.forget_unexpected_nats();
            sa.learn_nat(shared, reply.view);
            return Fate::Lives;
        };
        sa.mobility.forget_unexpected_nats();
        shared.event(Event::UpdateRefused { sa: sa.core.id(), why });
        Fate::Lives
    }

    fn migrate(&self, _: bool) -> Option<Exchange> {
        Some(Self::new().into())
    }
}

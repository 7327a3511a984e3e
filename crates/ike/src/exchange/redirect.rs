//! Sending a peer to another gateway in the middle of its session (RFC 5685 section 5, or with its ticket as in docs/wire/dormancy.md), and being
//! sent. Owns the request and its answer; that the peer goes, it says itself by a Delete payload, or the other gateway does.

use dormouse_sansio::{Class, Instant};
use dormouse_wire::ike::{Gateway, NotifyType, Payload};

use super::{Exchange, Reply, Request, Run};
use crate::error::NegotiationError;
use crate::event::Event;
use crate::payloads::View;
use crate::redirect;
use crate::sa::{Fate, IkeSa};
use crate::shared::Shared;
use crate::stats::Kind;

/// Sends the peer away.
/// "The gateway MUST NOT include any nonce data in the REDIRECT payload, since it is a gateway-initiated redirect and is protected by the IKEv2
/// security association." (RFC 5685 section 5)
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Redirect {
    /// For good.
    To(Gateway),
    /// Where its ticket counts too: at this gateway, or at any other of the same name.
    WithTicket(Option<Gateway>),
}

impl Run for Redirect {
    fn build(&mut self, _: &mut IkeSa, _: &mut Shared, _: Instant) -> Option<Request> {
        let notify = match self {
            Self::To(gateway) => gateway.redirect(&[]),
            Self::WithTicket(gateway) => Gateway::elsewhere(gateway.as_ref()),
        };
        let payloads = vec![Payload::Notify(notify)];
        Some(Request { payloads, kind: Kind::Informational, class: Class::Timely })
    }

    fn take(self, _: &mut IkeSa, _: &mut Shared, _: Instant, _: &Reply<'_>) -> Fate {
        Fate::Lives
    }

    fn migrate(&self, begun: bool) -> Option<Exchange> {
        (!begun).then(|| self.clone().into())
    }
}

impl IkeSa {
    /// The gateway of this session sends us elsewhere: the driver goes, if we may.
    pub(crate) fn hear_redirect(&self, shared: &mut Shared, view: View<'_>) {
        // "[...] only the original responder can redirect the original initiator to another server." (RFC 5685 section 10)
        let may = self.core.client.then(|| redirect::later(view, &self.core.link.conn, &[])).flatten();
        match may {
            Some(NegotiationError::Redirected(to)) => {
                shared.event(Event::Redirected { sa: self.core.id(), to });
            }
            Some(error) => tracing::warn!(sa = %self.core.id(), %error, "the session stays"),
            None => {}
        }
        let elsewhere = view.notify(NotifyType::DormancyElsewhere);
        if let Some(notify) = elsewhere.filter(|_| self.core.client && self.dormancy.is_open()) {
            let to = Gateway::of(&notify.data)
                .and_then(|(to, _)| if let Gateway::Address(to) = to { Some(to) } else { None });
            shared.event(Event::Elsewhere { sa: self.core.id(), to });
        }
    }
}

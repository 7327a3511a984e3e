//! Sending a peer to another gateway in the middle of its session (RFC 5685 section 5), and being sent. Owns the request and its answer; that the
//! peer goes, it says itself by a Delete payload.

use dormouse_sansio::{Class, Instant};
use dormouse_wire::ike::{Gateway, Payload};

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
pub(crate) struct Redirect(pub(crate) Gateway);

impl Run for Redirect {
    fn build(&mut self, _: &mut IkeSa, _: &mut Shared, _: Instant) -> Option<Request> {
        let payloads = vec![Payload::Notify(self.0.redirect(&[]))];
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
        let may = self.core.client.then(|| redirect::later(view, &self.core.link.conn)).flatten();
        match may {
            Some(NegotiationError::Redirected(to)) => {
                shared.event(Event::Redirected { sa: self.core.id(), to });
            }
            Some(error) => tracing::warn!(sa = %self.core.id(), %error, "the session stays"),
            None => {}
        }
    }
}

//! The return routability check (RFC 4555 section 3.7): the peer proves that it receives at its new address. Owns the request and
//! the comparison; what follows from the proof is [`crate::sa::mobility`]'s.

use core::ops::RangeInclusive;

use dormouse_crypto::Secret;
use dormouse_sansio::{Class, Instant, Path};
use dormouse_wire::ike::NotifyType;

use super::{Exchange, Reply, Request, Run};
use crate::event::CloseReason;
use crate::payloads::notify;
use crate::sa::{Fate, IkeSa};
use crate::shared::Shared;
use crate::stats::Kind;

/// "MUST be between 8 and 64 octets in length (inclusive), and MUST be chosen by the exchange initiator in a way that is
/// unpredictable to the exchange responder" (RFC 4555 section 4.2.5)
pub(super) const COOKIE2_LEN: RangeInclusive<usize> = 8..=64;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Routability {
    /// The cookie, and the path by which it was sent.
    sent: Option<(Secret, Path)>,
}

impl Routability {
    pub(crate) const fn new() -> Self {
        Self { sent: None }
    }
}

impl Run for Routability {
    fn build(&mut self, sa: &mut IkeSa, shared: &mut Shared, _: Instant) -> Option<Request> {
        let mut cookie = vec![0; 16];
        shared.entropy.fill(&mut cookie);
        self.sent = Some((Secret::from(cookie.as_slice()), sa.core.link.path));
        let payloads = vec![notify(NotifyType::Cookie2, cookie)];
        Some(Request { payloads, kind: Kind::Mobike, class: Class::Timely })
    }

    fn take(self, sa: &mut IkeSa, shared: &mut Shared, now: Instant, reply: &Reply<'_>) -> Fate {
        // "the original sender MUST verify that the value is the same one as sent" (RFC 4555 section 3.7)
        let returned = reply.view.notify(NotifyType::Cookie2).map(|n| Secret::from(n.data.as_slice()));
        match self.sent {
            Some((cookie, path)) if returned.as_ref() == Some(&cookie) => {
                sa.address_proven(shared, now, path);
                Fate::Lives
            }
            // "If the values do not match, the IKE_SA MUST be closed." (RFC 4555 section 3.7)
            _ => Fate::Ends(CloseReason::ProtocolError),
        }
    }

    fn migrate(&self, _: bool) -> Option<Exchange> {
        Some(Self::new().into())
    }
}

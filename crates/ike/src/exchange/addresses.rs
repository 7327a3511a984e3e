//! Telling the peer our additional addresses (RFC 4555 section 3.6). Owns the request and its answer; which addresses there are is
//! the driver's knowledge.

use dormouse_sansio::{Class, Instant, Path};

use super::mobike::no_nats_allowed;
use super::{Exchange, Reply, Request, Run};
use crate::payloads;
use crate::sa::{Fate, IkeSa};
use crate::shared::Shared;
use crate::stats::Kind;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Addresses {
    sent_by: Option<Path>,
}

impl Addresses {
    pub(crate) const fn new() -> Self {
        Self { sent_by: None }
    }
}

impl Run for Addresses {
    fn build(&mut self, sa: &mut IkeSa, _: &mut Shared, _: Instant) -> Option<Request> {
        let link = &sa.core.link;
        self.sent_by = Some(link.path);
        let mut payloads = payloads::additional_addresses(sa.mobility.told());
        if link.conn.mobility.no_nats_allowed {
            payloads.push(no_nats_allowed(&link.path));
        }
        Some(Request { payloads, kind: Kind::Mobike, class: Class::Upkeep })
    }

    /// "If the request to update the addresses is retransmitted using several different source addresses, a new INFORMATIONAL
    /// request MUST be sent." (RFC 4555 section 3.6)
    fn take(self, sa: &mut IkeSa, _: &mut Shared, now: Instant, _: &Reply<'_>) -> Fate {
        if self.sent_by != Some(sa.core.link.path) {
            sa.enqueue(Self::new(), now);
        }
        Fate::Lives
    }

    fn migrate(&self, _: bool) -> Option<Exchange> {
        Some(Self::new().into())
    }
}

//! How a half-open SA began, and its key exchange. Owns both halves until the secret is made, once; must never send.

use dormouse_crypto::DhPrivate;
use dormouse_crypto::suites::Group;
use dormouse_wire::ike::Payload;

use crate::proposal::IkeSuite;
use crate::ticket::TicketContent;

/// How the SA began.
#[derive(Debug)]
pub(crate) enum How {
    Init {
        suite: IkeSuite,
        exchange: Exchange,
    },
    /// With a key exchange, if the client wants one.
    Resume {
        ticket: Box<TicketContent>,
        exchange: Option<Exchange>,
    },
}

/// A key exchange: our half, from when it is there until the secret is made, and the client's public value.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) ours: Option<DhPrivate>,
    pub(crate) theirs: Vec<u8>,
}

impl How {
    /// The group of its key exchange, if there is one.
    pub(super) fn group(&self) -> Option<Group> {
        match self {
            Self::Init { suite, .. } => Some(suite.group),
            Self::Resume { ticket, exchange } => exchange.as_ref().map(|_| ticket.suite.group),
        }
    }

    fn exchange(&mut self) -> Option<&mut Exchange> {
        match self {
            Self::Init { exchange, .. } => Some(exchange),
            Self::Resume { exchange, .. } => exchange.as_mut(),
        }
    }

    /// Our half is there.
    pub(super) fn set_ours(&mut self, ours: DhPrivate) {
        if let Some(exchange) = self.exchange() {
            exchange.ours = Some(ours);
        }
    }

    /// The payload of our half, if it is there.
    pub(super) fn our_payload(&mut self) -> Option<Payload> {
        let ours = self.exchange()?.ours.as_ref()?;
        Some(Payload::Ke { group: ours.group().id(), data: ours.public_value().to_vec() })
    }

    /// Both halves, which make the secret once.
    pub(super) fn take_exchange(&mut self) -> Option<(DhPrivate, Vec<u8>)> {
        let exchange = self.exchange()?;
        Some((exchange.ours.take()?, std::mem::take(&mut exchange.theirs)))
    }
}

//! A caller who comes back, and the store of lineages: a resumed session that waits until its ticket is known to count; and a full login, which ends the tickets of what it replaces. Owns
//! these decisions; the proofs are [`super::half_open`]'s.

use dormouse_sansio::Instant;
use dormouse_wire::ike::dormancy::Refused;
use dormouse_wire::ike::{ExchangeType, NotifyType, Payload};

use crate::action::Action;
use crate::auth::Authentication;
use crate::claim::Claim;
use crate::config::Unique;
use crate::error::NegotiationError;
use crate::event::Event;
use crate::handshake::half_open::{Caller, HalfOpen, How};
use crate::handshake::{Slot, Step};
use crate::payloads::{View, notify};
use crate::sa::IkeSa;
use crate::shared::Shared;
use crate::ticket::Form;
use crate::ticket::lineage::{Descent, Operation, Outcome};

/// What waits for the store.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) by: Instant,
    pub(super) payloads: Vec<Payload>,
    pub(super) caller: Caller,
    pub(super) proof: Authentication,
    pub(super) descent: Descent,
}

impl HalfOpen {
    /// What the resumption rests on, once the store is asked about it.
    pub(super) fn asked(&self) -> Option<Claim<'_>> {
        match (&self.how, &self.pending) {
            (How::Resume { ticket, .. }, Some(_)) => Some(ticket.claim()),
            _ => None,
        }
    }

    /// What the store says of the ticket, or `Failed` if it has not said anything in time.
    pub(crate) fn ticket_judged(
        mut self: Box<Self>,
        shared: &mut Shared,
        now: Instant,
        outcome: Outcome,
    ) -> Step {
        let Some(pending) = self.pending.take() else { return Step::to(Slot::HalfOpen(self)) };
        let Pending { payloads, mut caller, proof, descent, .. } = *pending;
        let How::Resume { ticket, .. } = &self.how else { return Step::to(Slot::HalfOpen(self)) };
        let (told, why) = match outcome {
            Outcome::Done => match ticket.claim().begins(shared, now) {
                Ok(conn) => {
                    shared.rests_on(now, &conn, ticket.credential.chain());
                    (self.link.conn, caller.conn) = (conn.clone(), conn);
                    return self.establish(shared, now, View(&payloads), caller, proof, descent);
                }
                Err(why) => (None, why),
            },
            Outcome::Superseded => (Some(Refused::Superseded), Refused::Superseded.to_string()),
            // What was asked may be carried out yet, and then the client's only ticket is used up.
            Outcome::Failed => (Some(Refused::Superseded), Refused::Store.to_string()),
        };
        let error = NegotiationError::TicketRejected(why);
        let mut refusal = vec![notify(NotifyType::AuthenticationFailed, [])];
        let told = told.filter(|_| ticket.form == Form::Dormouse);
        refusal.extend(told.map(|why| notify(NotifyType::DormancyRefused, [why.code()])));
        let path = self.link.path;
        self.refuse_with(shared, path, ExchangeType::IkeAuth, Some(caller.identity), &refusal, error)
    }
}

/// After a full login no ticket counts any more of the session that the client names as its former one, nor of any other session of the
/// identity that the new one replaces. A client from which a thief took the session, and who finds its own ticket refused, ends the thief's that way.
pub(super) fn former_sessions(shared: &mut Shared, sa: &IkeSa, view: View<'_>) {
    let holder = sa.core.holder();
    // Of an identity that several devices share, none speaks for the others.
    let replaces = match sa.core.link.conn.answering.policy.unique {
        Unique::Replace => true,
        Unique::Keep => view.has(NotifyType::InitialContact),
        Unique::Never => false,
    };
    if replaces {
        shared.event(Event::Store(Operation::EndAll { holder }));
        shared.actions.push_back(Action::FormerTickets { by: sa.core.id() });
    }
    if let Some(lineage) = view.lineage() {
        shared.event(Event::Store(Operation::EndFormer { lineage, holder }));
        shared.actions.push_back(Action::Former { by: sa.core.id(), lineage });
    }
}

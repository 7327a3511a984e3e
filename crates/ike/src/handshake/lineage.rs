//! A caller who comes back, and the store of lineages: whether its owner may use a ticket today, which is asked at each step of a resumption; a
//! resumed session that waits until its ticket is known to count; and a full login, which ends the tickets of what it replaces. Owns
//! these decisions; the proofs are [`super::half_open`]'s.

use std::sync::Arc;

use dormouse_crypto::cert::Identity;
use dormouse_sansio::Instant;
use dormouse_wire::ike::dormancy::Refused;
use dormouse_wire::ike::{ExchangeType, NotifyType, Payload};

use crate::action::Action;
use crate::admission::{Credential, admits};
use crate::auth::Authentication;
use crate::config::{Connection, Resumption, Unique};
use crate::error::NegotiationError;
use crate::event::Event;
use crate::handshake::half_open::{Caller, HalfOpen, How};
use crate::handshake::{Slot, Step};
use crate::payloads::{View, notify};
use crate::proposal::{self, IkeSuite};
use crate::sa::IkeSa;
use crate::shared::Shared;
use crate::ticket::lineage::{Descent, Name, Operation, Outcome};
use crate::ticket::{Form, TicketContent};

/// What a resumption rests on.
pub(crate) struct Claim<'a> {
    pub(crate) connection: &'a str,
    pub(super) suite: &'a IkeSuite,
    pub(super) form: Form,
    pub(crate) peer: &'a Identity,
    pub(super) credential: &'a Credential,
    pub(crate) lineage: Name,
}

impl Claim<'_> {
    /// The connection that the owner of the ticket may use now, beside the sessions that it has. These, the configuration, denials and
    /// revocations may change between the steps of a resumption: it is asked when the ticket comes, when its owner has proved to be there, and when the store has answered.
    /// "when credentials associated with the IKE SA are invalidated (e.g., when a user logs out), the ticket MUST be deleted" (RFC
    /// 5723 section 6.2): a gateway that has changed its mind about them takes no ticket that rests on them.
    pub(super) fn admitted(&self, shared: &Shared, now: Instant) -> Result<Arc<Connection>, String> {
        let mut known = shared.config.connections.iter();
        let conn = known.find(|c| {
            c.name == self.connection
                && c.resumption != Resumption::Off
                && proposal::permits(&c.ike_proposals, self.suite)
        });
        let conn = conn.ok_or_else(|| format!("connection {} does not take it any more", self.connection))?;
        if self.form == Form::Plain && !conn.plain_resumption {
            return Err("resumption.plain is off".to_owned());
        }
        let admitted = admits(&shared.config, conn, self.peer, self.credential, shared.unix(now));
        let conn = admitted.map_err(|e| e.to_string())?;
        let room = shared.callers.room(&conn, self.peer, None, Some(self.lineage));
        room.map(|()| conn).map_err(|e| e.to_string())
    }
}

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
            Outcome::Done => match ticket.claim().admitted(shared, now) {
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

impl TicketContent {
    /// What it rests on.
    pub(super) fn claim(&self) -> Claim<'_> {
        let Self { connection, suite, form, peer, credential, lineage, .. } = self;
        Claim { connection, suite, form: *form, peer, credential, lineage: *lineage }
    }
}

/// After a full login no ticket counts any more of the session that the client names as its former one, nor of any other session of the
/// identity that the new one replaces. A client from which a thief took the session, and who finds its own ticket refused, ends the thief's that way.
pub(super) fn former_sessions(shared: &mut Shared, sa: &IkeSa, view: View<'_>) {
    let holder = sa.core.holder();
    // Of an identity that several devices share, none speaks for the others.
    let replaces = match sa.core.link.conn.policy.unique {
        Unique::Replace => true,
        Unique::Keep => view.has(NotifyType::InitialContact),
        Unique::Never => false,
    };
    if replaces {
        shared.event(Event::Store(Operation::EndAll { holder }));
        shared.actions.push_back(Action::FormerTickets { by: sa.core.id() });
    }
    if let Some(lineage) = view.lineage() {
        shared.event(Event::Store(Operation::End { sa: None, lineage, holder }));
        shared.actions.push_back(Action::Former { by: sa.core.id(), lineage });
    }
}

//! A caller who comes back, and the store of lineages: a resumed session that waits until its ticket is known to count; and a full login, which ends the tickets of what it replaces. Owns
//! these decisions; the proofs are [`super::half_open`]'s.

use std::sync::Arc;

use dormouse_sansio::Instant;
use dormouse_wire::ike::dormancy::Refused;
use dormouse_wire::ike::{ExchangeType, NotifyType, Payload};

use crate::action::Action;
use crate::auth::Authentication;
use crate::claim::Claim;
use crate::config::{Connection, Unique};
use crate::credential::Refusal;
use crate::error::NegotiationError;
use crate::event::Event;
use crate::handshake::half_open::{Caller, HalfOpen, How};
use crate::handshake::{Slot, Step};
use crate::payloads::{View, notify};
use crate::sa::IkeSa;
use crate::shared::Shared;
use crate::ticket::Form;
use crate::ticket::counted::Counted;
use crate::ticket::lineage::{Descent, Name, Operation, Outcome};

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
        let How::Resume { ticket, .. } = &self.how else {
            return self.login_judged(shared, now, *pending, outcome);
        };
        let Pending { payloads, mut caller, proof, descent, .. } = *pending;
        let (told, why) = match outcome {
            Outcome::Done => match ticket.claim().begins(shared, now) {
                Ok(conn) => {
                    shared.rests_on(now, &conn, ticket.credential.chain());
                    (self.link.conn, caller.conn) = (conn.clone(), conn);
                    return self.establish(shared, now, View(&payloads), caller, proof, descent);
                }
                Err(why) => (None, why),
            },
            Outcome::Superseded | Outcome::Full => {
                (Some(Refused::Superseded), Refused::Superseded.to_string())
            }
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

impl HalfOpen {
    /// A login of an identity whose sessions are counted together with those at other gateways: it waits for the store, but not for one that
    /// does not answer. The answer is `false` if it need not wait.
    pub(super) fn asks_for_room(
        &self,
        shared: &mut Shared,
        now: Instant,
        caller: &Caller,
        descent: &Descent,
        former: Option<Name>,
    ) -> Result<bool, Refusal> {
        let (conn, from) = (&caller.conn, self.link.path.remote.ip());
        let Some(session) = shared.counted(now, conn, &caller.identity, from, descent.lineage) else {
            return Ok(false);
        };
        shared.callers.wait(self.link.id, conn, &caller.identity, false)?;
        let session = Counted { login: true, former, ..session };
        let asked = shared.callers.counting.ask(self.link.id, session);
        shared.event(Event::Store(asked));
        Ok(true)
    }

    /// What the store says about it. One that says nothing counts nothing: this gateway does alone, and what is too many ends when the
    /// store is asked again.
    fn login_judged(
        mut self: Box<Self>,
        shared: &mut Shared,
        now: Instant,
        pending: Pending,
        outcome: Outcome,
    ) -> Step {
        let Pending { payloads, mut caller, proof, descent, .. } = pending;
        let admitted = match outcome {
            Outcome::Full => Err(Refusal::SessionsElsewhere(caller.identity.clone())),
            Outcome::Done | Outcome::Failed | Outcome::Superseded => {
                self.may_begin(shared, now, &caller, View(&payloads))
            }
        };
        match admitted {
            Ok(conn) => {
                (self.link.conn, caller.conn) = (conn.clone(), conn);
                self.establish(shared, now, View(&payloads), caller, proof, descent)
            }
            Err(refusal) => {
                let (path, error) = (self.link.path, NegotiationError::from(refusal));
                let told = [notify(error.told(), [])];
                self.refuse_with(shared, path, ExchangeType::IkeAuth, Some(caller.identity), &told, error)
            }
        }
    }

    /// What may have changed while it waited: the configuration, denials, and the sessions that its identity has here.
    fn may_begin(
        &self,
        shared: &Shared,
        now: Instant,
        caller: &Caller,
        view: View<'_>,
    ) -> Result<Arc<Connection>, Refusal> {
        let (config, identity) = (&shared.config, &caller.identity);
        let mut conn = config.named(&caller.conn.name)?.clone();
        if let Some(credential) = &caller.session.credential {
            conn = config.admission.admits(&conn, identity, credential, shared.unix(now))?;
        }
        shared.callers.room(&conn, identity, Some(self.link.path.remote.ip()), view.lineage())?;
        Ok(conn)
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

//! Deleting SAs (RFC 7296 sections 1.4.1 and 2.25). Owns Delete payloads of both directions; must never decide that an SA
//! should go.

use dormouse_sansio::{Class, Instant};
use dormouse_wire::ike::dormancy::Refused;
use dormouse_wire::ike::{Delete, NotifyType, Payload, ProtocolId};

use super::child::CreateChild;
use super::{Exchange, Reply, Request, Run};
use crate::action::Action;
use crate::child::Busy;
use crate::config::Resumption;
use crate::event::CloseReason;
use crate::payloads::{View, notify};
use crate::sa::{Answer, Fate, IkeSa};
use crate::shared::Shared;
use crate::stats::Kind;
use dormouse_keying::ChildId;

/// Deletes one CHILD SA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DeleteChild(ChildId);

impl Run for DeleteChild {
    fn build(&mut self, sa: &mut IkeSa, _: &mut Shared, _: Instant) -> Option<Request> {
        let spi = sa.children.get(self.0)?.spi_in;
        let payloads = vec![Payload::Delete(Delete::esp(vec![spi]))];
        Some(Request { payloads, kind: Kind::Delete, class: Class::Upkeep })
    }

    fn take(self, sa: &mut IkeSa, shared: &mut Shared, _: Instant, _: &Reply<'_>) -> Fate {
        sa.remove_child(shared, self.0);
        Fate::Lives
    }

    /// The IKE SA is not rekeyed while it is under way.
    fn migrate(&self, begun: bool) -> Option<Exchange> {
        (!begun).then(|| (*self).into())
    }
}

/// Deletes the IKE SA; says why, if it was resumed and is refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeleteIke(pub(crate) Option<Refused>);

impl Run for DeleteIke {
    fn build(&mut self, _: &mut IkeSa, _: &mut Shared, _: Instant) -> Option<Request> {
        let mut payloads = vec![Payload::Delete(Delete::ike())];
        payloads.extend(self.0.map(|why| notify(NotifyType::DormancyRefused, [why.code()])));
        Some(Request { payloads, kind: Kind::Delete, class: Class::Timely })
    }

    fn take(self, sa: &mut IkeSa, _: &mut Shared, _: Instant, _: &Reply<'_>) -> Fate {
        Fate::Ends(sa.reason_or(CloseReason::Requested))
    }

    fn migrate(&self, _: bool) -> Option<Exchange> {
        None
    }
}

impl IkeSa {
    /// Deletes one CHILD SA as soon as the window allows. It receives until the peer has answered.
    /// "[...] it MUST send Delete payloads to the other end notifying it of the deletion" (RFC 7296 section 2.4)
    pub(crate) fn delete_child(&mut self, shared: &mut Shared, now: Instant, id: ChildId) {
        let Some(child) = self.children.get_mut(id) else { return };
        child.busy = Busy::Deleting;
        child.rekey_at = None;
        child.expire_at = None;
        self.tasks.drop_like(&CreateChild::rekey(id).into());
        self.enqueue(DeleteChild(id), now);
        self.pump(shared, now);
    }

    /// Obeys the Delete payloads of a request.
    pub(crate) fn answer_delete(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        view: View<'_>,
    ) -> Option<Answer> {
        let payloads = view.0.iter();
        let deletes: Vec<&Delete> = payloads
            .filter_map(|p| match p {
                Payload::Delete(delete) => Some(delete),
                _ => None,
            })
            .collect();
        if deletes.is_empty() {
            return None;
        }
        if deletes.iter().any(|d| d.protocol == ProtocolId::Ike) {
            return Some(self.answer_delete_ike(shared, view));
        }
        let mut ours = Vec::new();
        for &spi in deletes.iter().filter(|d| d.protocol == ProtocolId::Esp).flat_map(|d| &d.spis) {
            let Some(child) = self.children.by_spi_out(spi) else {
                // It may be one whose answer to us is still on its way.
                if self.creating_child() {
                    self.children.note_early_delete(spi);
                }
                continue;
            };
            let (id, config) = (child.id, child.config);
            // "If a peer receives a request to close a Child SA that it is currently trying to close, it SHOULD reply without a
            // Delete payload" (RFC 7296 section 2.25.1)
            // "[...] it MUST delete the outgoing SAs while processing the request and the incoming SAs while processing the
            // response" (RFC 7296 section 1.4.1): both go here, for the peer sends nothing more.
            // "[...] the responses MUST NOT include Delete payloads for the deleted SAs" (RFC 7296 section 1.4.1)
            if child.busy != Busy::Deleting {
                ours.push(child.spi_in);
            }
            self.tasks.drop_like(&CreateChild::rekey(id).into());
            self.tasks.drop_like(&DeleteChild(id).into());
            // "both members of the pair MUST be closed" (RFC 7296 section 1.4.1)
            let wanted = matches!(child.busy, Busy::No | Busy::Rekeying);
            self.remove_child(shared, id);
            if wanted {
                self.ask_again(now, config);
            }
        }
        let payloads = if ours.is_empty() { Vec::new() } else { vec![Payload::Delete(Delete::esp(ours))] };
        Some(Answer::of(Kind::Delete, payloads))
    }

    fn answer_delete_ike(&mut self, shared: &mut Shared, view: View<'_>) -> Answer {
        let mut answer = Answer::of(Kind::Delete, Vec::new());
        if let Some(heir) = self.rekeying.take_heir() {
            // RFC 7296 section 2.25.2: the peer's rekeying has won, and ours is forgotten.
            // "[...] it SHOULD reply as usual, and forget about its own rekeying request" (RFC 7296 section 2.25.2)
            shared.actions.push_back(Action::Inherit { from: self.core.id(), to: heir });
            self.give_up_name();
        }
        // libreswan deletes the SA of a connection that it suspends, and comes back by the ticket: its delete is no logout.
        let logout = self.core.link.conn.resumption.mode != Resumption::Libreswan;
        if logout && self.is_live() && self.end_lineage(shared, Some(self.core.id())) {
            // "when credentials associated with the IKE SA are invalidated (e.g., when a user logs out), the ticket MUST be deleted"
            // (RFC 5723 section 6.2): a copy of it counts no more when the client hears that it has logged out.
            answer.fate = Fate::Leaves(CloseReason::ByPeer);
            return answer;
        }
        let refused = view.refused().filter(|_| self.core.client).map(CloseReason::Refused);
        answer.fate = Fate::Ends(self.reason_or(refused.unwrap_or(CloseReason::ByPeer)));
        answer
    }
}

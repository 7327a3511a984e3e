//! Deleting SAs (RFC 7296 sections 1.4.1 and 2.25). Owns Delete payloads of both directions; must never decide that an SA
//! should go.

use dormouse_sansio::{Class, Instant};
use dormouse_wire::ike::{Delete, Payload, ProtocolId};

use crate::child::Busy;
use crate::event::CloseReason;
use crate::payloads::View;
use crate::sa::{Answer, Exchange, Fate, IkeSa, Stage, Task};
use crate::shared::{Action, Shared};
use crate::stats::Kind;
use dormouse_keying::ChildId;

/// Deletions that are remembered until their CHILD SA comes.
const EARLY_DELETES_MAX: usize = 16;

impl IkeSa {
    /// Deletes one CHILD SA as soon as the window allows. It receives until the peer has answered.
    /// "[...] it MUST send Delete payloads to the other end notifying it of the deletion" (RFC 7296 section 2.4)
    pub(crate) fn delete_child(&mut self, shared: &mut Shared, now: Instant, id: ChildId) {
        let Some(child) = self.children.get_mut(&id) else { return };
        child.busy = Busy::Deleting;
        child.rekey_at = None;
        child.expire_at = None;
        self.queue.retain(|p| p.task != Task::RekeyChild(id));
        self.enqueue(Task::DeleteChildren(vec![id]), now);
        self.pump(shared, now);
    }

    pub(crate) fn begin_delete_children(&mut self, shared: &mut Shared, now: Instant, ids: Vec<ChildId>) {
        let spis: Vec<u32> = ids.iter().filter_map(|id| self.children.get(id)).map(|c| c.spi_in).collect();
        if spis.is_empty() {
            return;
        }
        let payloads = [Payload::Delete(Delete::esp(spis))];
        self.request(shared, now, &payloads, Kind::Delete, Class::Upkeep, Exchange::DeleteChildren(ids));
    }

    pub(crate) fn begin_delete_ike(&mut self, shared: &mut Shared, now: Instant) {
        let payloads = [Payload::Delete(Delete::ike())];
        self.request(shared, now, &payloads, Kind::Delete, Class::Timely, Exchange::DeleteIke);
    }

    /// Obeys the Delete payloads of a request.
    pub(crate) fn answer_delete(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        view: View<'_>,
    ) -> Option<Answer> {
        let deletes: Vec<&Delete> = view
            .0
            .iter()
            .filter_map(|p| match p {
                Payload::Delete(delete) => Some(delete),
                _ => None,
            })
            .collect();
        if deletes.is_empty() {
            return None;
        }
        if deletes.iter().any(|d| d.protocol == ProtocolId::Ike) {
            return Some(self.answer_delete_ike(shared));
        }
        let mut ours = Vec::new();
        for spi in deletes.iter().filter(|d| d.protocol == ProtocolId::Esp).flat_map(|d| &d.spis) {
            let Some(child) = self.children.values().find(|c| c.spi_out == *spi) else {
                self.note_early_delete(*spi);
                continue;
            };
            let (id, spi_in, busy) = (child.id, child.spi_in, child.busy);
            // "If a peer receives a request to close a Child SA that it is currently trying to close, it SHOULD reply without a
            // Delete payload" (RFC 7296 section 2.25.1)
            // "[...] it MUST delete the outgoing SAs while processing the request and the incoming SAs while processing the
            // response" (RFC 7296 section 1.4.1): both go here, for the peer sends nothing more.
            // "[...] the responses MUST NOT include Delete payloads for the deleted SAs" (RFC 7296 section 1.4.1)
            if busy != Busy::Deleting {
                ours.push(spi_in);
            }
            self.queue.retain(|p| p.task != Task::RekeyChild(id) && p.task != Task::DeleteChildren(vec![id]));
            // "both members of the pair MUST be closed" (RFC 7296 section 1.4.1)
            self.remove_child(shared, id);
        }
        let _ = now;
        let payloads = if ours.is_empty() { Vec::new() } else { vec![Payload::Delete(Delete::esp(ours))] };
        Some(Answer::of(Kind::Delete, payloads))
    }

    /// The peer deletes a CHILD SA that is not here: it may be one whose answer to us is still on its way.
    fn note_early_delete(&mut self, spi: u32) {
        if self.creating_child() && self.early_deletes.len() < EARLY_DELETES_MAX {
            self.early_deletes.push(spi);
        }
    }

    fn answer_delete_ike(&mut self, shared: &mut Shared) -> Answer {
        let mut answer = Answer::of(Kind::Delete, Vec::new());
        if let Some(peers) = self.peer_rekey.take() {
            // RFC 7296 section 2.25.2: the peer's rekeying has won, and ours is forgotten.
            // "[...] it SHOULD reply as usual, and forget about its own rekeying request" (RFC 7296 section 2.25.2)
            shared.actions.push_back(Action::Inherit { from: self.link.id, to: peers.heir });
            self.stage = Stage::Superseded;
        }
        let reason = match self.stage {
            Stage::Closing(reason) => reason,
            _ => CloseReason::ByPeer,
        };
        answer.fate = Fate::Ends(reason);
        answer
    }
}

//! Answers to INFORMATIONAL requests (RFC 7296 section 1.4): whatever they carry, one answer. Owns the order in which
//! their parts are looked at; each part is handled where it belongs.

use dormouse_sansio::{Instant, Path};
use dormouse_wire::ike::NotifyType;

use crate::event::CloseReason;
use crate::payloads::View;
use crate::sa::{Answer, Fate, IkeSa};
use crate::shared::Shared;
use crate::stats::Kind;

impl IkeSa {
    pub(crate) fn answer_informational(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        path: Path,
        id: u32,
        view: View<'_>,
    ) -> Answer {
        if let Some(answer) = self.answer_delete(shared, now, view) {
            return answer;
        }
        if view.has(NotifyType::AuthenticationFailed) {
            // RFC 7296 section 2.21.2: an initiator that does not believe the responder says so this way.
            let mut answer = Answer::of(Kind::Informational, Vec::new());
            answer.fate = Fate::Ends(CloseReason::ByPeer);
            return answer;
        }
        if let Some(answer) = self.answer_mobike(shared, now, path, id, view) {
            return answer;
        }
        if let Some(answer) = self.answer_sleeping(shared, now, view) {
            return answer;
        }
        if view.has(NotifyType::TicketRequest) {
            return Answer::of(Kind::Informational, self.grant_ticket(shared, now));
        }
        let kind = if view.0.is_empty() { Kind::Liveness } else { Kind::Informational };
        Answer::of(kind, Vec::new())
    }
}

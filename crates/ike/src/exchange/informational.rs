//! Answers to INFORMATIONAL requests (RFC 7296 section 1.4): one answer for all parts of a request. Owns the order in which
//! their parts are looked at; each part is handled where it belongs.

use dormouse_sansio::{Instant, Path};
use dormouse_wire::ike::NotifyType;

use crate::event::CloseReason;
use crate::exchange::routability::COOKIE2_LEN;
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
        if view.notify(NotifyType::Cookie2).is_some_and(|c| !COOKIE2_LEN.contains(&c.data.len())) {
            return Answer::refuse(Kind::Informational, NotifyType::InvalidSyntax);
        }
        let mut parts = Vec::from_iter(self.answer_delete(shared, now, view));
        if parts.iter().any(|part| part.fate != Fate::Lives) {
            return parts.swap_remove(0);
        }
        if view.has(NotifyType::AuthenticationFailed) {
            // RFC 7296 section 2.21.2: an initiator that does not believe the responder says so this way.
            let mut answer = Answer::of(Kind::Informational, Vec::new());
            answer.fate = Fate::Ends(CloseReason::ByPeer);
            return answer;
        }
        self.take_lifetime(shared, now, view);
        self.hear_redirect(shared, view);
        parts.extend(self.answer_mobike(shared, now, path, id, view));
        parts.extend(self.answer_sleeping(shared, now, view));
        parts.extend(self.answer_keys(shared, now, view));
        let ticket = self.answer_ticket_request(shared, now, view);
        parts.extend(ticket.map(|list| Answer::of(Kind::Informational, list)));
        let kind = if view.0.is_empty() { Kind::Liveness } else { Kind::Informational };
        // "The recipient of an INFORMATIONAL exchange request MUST send some response" (RFC 7296 section 1.4)
        parts.into_iter().reduce(join).unwrap_or_else(|| Answer::of(kind, Vec::new()))
    }
}

/// One answer of two: it counts as what its first part is.
fn join(mut first: Answer, second: Answer) -> Answer {
    // Moved, not copied: what is secret in them is overwritten once.
    first.payloads.extend(second.payloads);
    first
}

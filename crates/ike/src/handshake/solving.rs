//! The initiator that is given a puzzle with its cookie (RFC 8019 section 7.1). Owns the decision whether it is solved, and the search
//! in between: a slice with each call of `handle_timeout`, so that nothing else of the endpoint waits for it. Must never do more work
//! than `hardest_puzzle` of the connection allows: a device's battery pays for it.
//!
//! A puzzle in the answer that ends IKE_SA_INIT (section 7.2) is passed over.

use dormouse_crypto::suites::Prf;
use dormouse_sansio::{Deadline, Instant};
use dormouse_wire::ike::{NotifyType, TransformType};

use super::initiator::{How, Opening};
use crate::payloads::View;
use crate::puzzle::{Puzzle, Search, Solver};
use crate::shared::Shared;
use crate::window::Outgoing;

/// A puzzle under way.
#[derive(Debug)]
pub(super) struct Solving {
    since: Instant,
    solver: Solver,
}

impl Opening {
    /// Whether a puzzle came with this cookie that is solved first. Otherwise the cookie goes back alone.
    /// "The Initiator MAY ignore the PUZZLE notification if it is not willing to spend resources to solve the puzzle of the requested
    /// difficulty, even if it supports puzzles." (RFC 8019 section 7.1.2)
    /// "[...] the Initiator MUST ignore the received message and continue to wait" (RFC 8019 section 7.1.2): a PUZZLE without a COOKIE
    /// is in no message that [`Opening`] does anything with.
    pub(super) fn begins_to_solve(&mut self, now: Instant, view: View<'_>, cookie: &[u8]) -> bool {
        let Some(asked) = view.notify(NotifyType::Puzzle).and_then(dormouse_wire::ike::Puzzle::of) else {
            return false;
        };
        let (difficulty, hardest) = (asked.difficulty, self.link.conn.opening.hardest_puzzle);
        let prf = Prf::by_id(asked.prf).filter(|prf| self.offers(*prf));
        let solver = prf.and_then(|prf| Solver::new(Puzzle { prf, difficulty }, cookie.to_vec(), hardest));
        let (sa, solved) = (self.link.id, solver.is_some());
        tracing::info!(%sa, difficulty, hardest, solved, "the gateway is under load and gives a puzzle");
        let Some(solver) = solver else { return false };
        // Nothing is repeated meanwhile: the request was answered.
        self.out = Outgoing::new(0);
        self.solving = Some(Box::new(Solving { since: now, solver }));
        true
    }

    /// "Transform ID of the PRF algorithm that MUST be used to solve the puzzle" (RFC 8019 section 8.1): one of our own offer.
    fn offers(&self, prf: Prf) -> bool {
        let How::Init { offered, .. } = &self.how else { return false };
        let mut transforms = offered.iter().flat_map(|proposal| &proposal.transforms);
        transforms.any(|t| t.kind == TransformType::Prf && t.id == prf.id())
    }

    pub(super) fn deadline(&self) -> Option<Deadline> {
        match &self.solving {
            Some(solving) => Some(Deadline::strict(solving.since, "puzzle")),
            None => self.out.next_due().map(|(at, _)| Deadline::strict(at, "retransmission")),
        }
    }

    /// One slice of the search; at its end the request goes out again.
    pub(super) fn solve_on(&mut self, shared: &mut Shared, now: Instant) {
        let Some(solving) = &mut self.solving else { return };
        self.solution = match solving.solver.advance() {
            Search::GoesOn => return,
            Search::Solved(solution) => Some(solution),
            Search::GivenUp => None,
        };
        self.solving = None;
        self.send(shared, now);
    }
}

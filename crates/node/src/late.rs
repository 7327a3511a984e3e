//! CHILD SAs that were replaced and are deleted, and still receive for a moment: what their peer sent before it deleted them may
//! arrive after the delete. Owns when they end; they never send, and prove nothing about their peer.

use crate::node::Node;
use dormouse_keying::SaId;
use dormouse_sansio::{Deadline, Instant};
use std::collections::VecDeque;
use std::time::Duration;

/// How long after its delete a packet may arrive: more than any network keeps one back without losing it.
pub(crate) const LATE: Duration = Duration::from_secs(5);
/// Nothing waits for their end but the memory of their keys.
const SLACK: Duration = Duration::from_secs(60);
/// Most of them at once; the oldest goes first.
const MOST: usize = 4_096;

/// See the module: when each ends, in that order.
#[derive(Debug, Default)]
pub(crate) struct Late(VecDeque<(Instant, u64)>);

impl Late {
    pub(crate) fn contains(&self, id: u64) -> bool {
        self.0.iter().any(|(_, late)| *late == id)
    }

    pub(crate) fn deadline(&self) -> Option<Deadline> {
        self.0.front().map(|(at, _)| Deadline { at: *at, slack: SLACK, why: "late packets" })
    }
}

impl Node {
    /// A CHILD SA was deleted at both ends. If another one of the same peer carries its traffic now, it receives for a moment longer,
    /// and ends with that one's session at the latest.
    pub(crate) fn retire(&mut self, now: Instant, sa: SaId, id: u64) {
        let heir = self.heir(sa, id);
        if let Some(session) = self.sessions.get_mut(&sa) {
            session.children.retain(|child| *child != id);
        }
        let (Some(heir), Some(known)) = (heir, self.known.get_mut(&id)) else { return self.forget_child(id) };
        known.sa = heir;
        self.sad.deactivate(id);
        self.late.0.push_back((now + LATE, id));
        if self.late.0.len() > MOST
            && let Some((_, oldest)) = self.late.0.pop_front()
        {
            self.forget_child(oldest);
        }
    }

    fn heir(&mut self, sa: SaId, id: u64) -> Option<SaId> {
        let heir = self.known.get(&self.sad.twin(id)?)?.sa;
        let (old, new) = (self.sessions.get(&sa)?, self.sessions.get(&heir)?);
        let same = (&old.connection, &old.peer) == (&new.connection, &new.peer);
        // No radio, no late packets.
        let asleep = self.client_of(heir).is_some_and(|c| c.asleep);
        (same && !asleep).then_some(heir)
    }

    /// Those whose time is over end.
    pub(crate) fn end_late(&mut self, now: Instant) {
        while self.late.0.front().is_some_and(|(at, _)| *at <= now) {
            let over = self.late.0.pop_front();
            over.into_iter().for_each(|(_, id)| self.forget_child(id));
        }
    }

    /// Those of these sessions end at once.
    pub(crate) fn end_late_of(&mut self, sessions: &[SaId]) {
        let is_over = |id: &u64| self.known.get(id).is_none_or(|known| sessions.contains(&known.sa));
        let (over, kept) = std::mem::take(&mut self.late.0).into_iter().partition(|(_, id)| is_over(id));
        self.late = Late(kept);
        let over: VecDeque<(Instant, u64)> = over;
        over.iter().for_each(|(_, id)| self.forget_child(*id));
    }

    fn forget_child(&mut self, id: u64) {
        self.sad.remove(id);
        self.known.remove(&id);
    }
}

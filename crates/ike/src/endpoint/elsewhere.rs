//! What RADIUS servers say about callers. Owns nothing: half-open SAs wait for it.

use super::Endpoint;
use crate::elsewhere::Verdict;
use dormouse_keying::SaId;
use dormouse_sansio::Instant;

impl Endpoint {
    /// Gateway: whether RADIUS servers know the users of this connection.
    #[must_use]
    pub fn asks_elsewhere(&self, connection: &str) -> bool {
        let conn = self.shared.config.named(connection).ok();
        conn.and_then(|conn| conn.answering.eap.as_ref()).is_some_and(|eap| eap.is_radius())
    }

    /// Gateway: what became of [`Event::AskElsewhere`](crate::Event::AskElsewhere). False if nobody waits for it any more: the caller has gone, or gave way to others.
    pub fn told_elsewhere(&mut self, now: Instant, sa: SaId, verdict: Verdict) -> bool {
        let Some(slot) = self.slots.remove(&sa) else { return false };
        self.touched.insert(sa);
        if let Some(slot) = slot.told_elsewhere(&mut self.shared, verdict) {
            self.slots.insert(sa, slot);
        }
        self.apply_effects(now);
        true
    }
}

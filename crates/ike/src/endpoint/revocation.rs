//! What the endpoint does about revoked certificates: it takes what was fetched, lets handshakes go on that waited for it, and ends
//! sessions. Owns nothing; what is known is [`crate::revocation`]'s.

use std::collections::BTreeSet;

use dormouse_crypto::cert::Issued;
use dormouse_sansio::Instant;

use super::Endpoint;
use crate::credential::Credential;
use crate::event::{CloseReason, Event};
use crate::handshake::Slot;

impl Endpoint {
    /// What became of [`Event::Fetch`]: the content, 16 MiB at most, or why there is none.
    pub fn fetched(&mut self, now: Instant, id: u64, content: Result<Vec<u8>, String>) {
        let time = (now, self.shared.unix(now));
        let Some(learned) = self.shared.config.admission.revocation.fetched(time, id, content) else {
            return;
        };
        if let Some((name, content)) = learned.store {
            self.shared.event(Event::Revocations { name, content });
        }
        self.go_on(now, id);
        if learned.news {
            self.end_revoked(now);
        }
        self.apply_effects(now);
    }

    /// What an earlier run has stored of [`Event::Revocations`]. False if it cannot be used.
    pub fn restore_revocations(&mut self, now: Instant, content: &[u8]) -> bool {
        let time = (now, self.shared.unix(now));
        self.shared.config.admission.revocation.restore(time, content)
    }

    /// Sources that are due, and what needs not be asked again.
    pub(super) fn revocation_due(&mut self, now: Instant) {
        let revocation = &mut self.shared.config.admission.revocation;
        if revocation.timers().all(|d| d.at > now) {
            return;
        }
        let sessions = self.slots.values().filter_map(|slot| match slot {
            Slot::Established(ike) => ike.core.session.credential.as_ref(),
            _ => None,
        });
        let in_use: BTreeSet<&Issued> = sessions.flat_map(Credential::chain).collect();
        revocation.prune(now, &in_use);
        self.shared.ask(now);
    }

    /// Handshakes that waited for this source go on; those that still miss another wait again.
    fn go_on(&mut self, now: Instant, source: u64) {
        for id in self.shared.config.admission.revocation.waiting_for(source) {
            self.shared.config.admission.revocation.stop_waiting(id);
            let Some(slot) = self.slots.remove(&id) else { continue };
            self.touch(id);
            if let Some(slot) = slot.go_on(&mut self.shared, now) {
                self.slots.insert(id, slot);
            }
            // The next one may be of the same identity, and sessions are counted.
            self.apply_effects(now);
        }
    }

    /// Sessions of peers whose certificates are revoked end.
    pub(super) fn end_revoked(&mut self, now: Instant) {
        let (unix, revocation) = (self.shared.unix(now), &self.shared.config.admission.revocation);
        let revoked = self.slots.iter().filter_map(|(&id, slot)| match slot {
            Slot::Established(ike) => {
                let shown = ike.core.session.credential.as_ref()?;
                revocation.ends(&ike.core.link.conn, shown.chain(), unix).then_some(id)
            }
            _ => None,
        });
        for id in revoked.collect::<Vec<_>>() {
            self.distrust(id);
            self.end_for(now, id, CloseReason::Revoked);
        }
    }
}

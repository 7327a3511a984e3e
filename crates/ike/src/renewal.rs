//! What changes the time for which peers vouch for each other while sessions run: a clock that is set, and credentials that are renewed.
//! Owns no state; the timers are each SA's own.

use std::sync::Arc;

use dormouse_sansio::Instant;

use crate::auth;
use crate::config::Connection;
use crate::endpoint::Endpoint;
use crate::event::SaId;
use crate::handshake::Slot;
use crate::sa::Stage;
use crate::shared::Action;

impl Endpoint {
    /// The credentials of a connection have been renewed: `conn` takes the place of the one of its name, for those who call and for
    /// the sessions that there are. A client whose own certificates are new authenticates anew at once, beside the session that runs.
    pub fn renew(&mut self, now: Instant, conn: &Arc<Connection>) {
        for known in self.shared.config.connections.iter_mut().filter(|c| c.name == conn.name) {
            known.clone_from(conn);
        }
        for slot in self.slots.values_mut() {
            if let Slot::Established(ike) = slot
                && ike.link.conn.name == conn.name
            {
                let ours = |c: &Connection| auth::cert_payloads(&c.local_auth);
                let renewed = ike.client && ours(&ike.link.conn) != ours(conn);
                ike.link.conn.clone_from(conn);
                if renewed && ike.stage == Stage::Live {
                    self.shared.actions.push_back(Action::Reauthenticate(ike.link.id));
                }
            }
        }
        self.settle(now);
    }

    /// The clock of the world was set: certificates expire at other moments of ours.
    pub(crate) fn reschedule_authentication(&mut self, now: Instant) {
        let mut moved: Vec<SaId> = Vec::new();
        for (id, slot) in &mut self.slots {
            if let Slot::Established(ike) = slot {
                ike.schedule_authentication(&self.shared, now);
                moved.push(*id);
            }
        }
        moved.into_iter().for_each(|id| self.touch(id));
        self.settle(now);
    }
}

//! What changes the time for which peers vouch for each other while sessions run: a clock that is set, credentials that are renewed, and
//! an operator who takes back what a peer was given. Owns no state; the timers are each SA's own.

use std::sync::Arc;

use dormouse_sansio::{Instant, UnixTime};

use crate::action::Action;
use crate::auth;
use crate::config::Connection;
use crate::endpoint::Endpoint;
use crate::event::Event;
use crate::handshake::Slot;
use crate::limits::TICKET_LIFETIME_MOST;
use crate::sa::IkeSa;
use crate::ticket::Holder;
use dormouse_keying::SaId;

impl Endpoint {
    /// The credentials of a connection have been renewed: `conn` takes the place of the one of its name, for those who call and for
    /// the sessions that there are. A client whose own certificates are new authenticates anew at once, beside the session that runs.
    pub fn renew(&mut self, now: Instant, conn: &Arc<Connection>) {
        for known in self.shared.config.connections.iter_mut().filter(|c| c.name == conn.name) {
            known.clone_from(conn);
        }
        for slot in self.slots.values_mut() {
            if let Slot::Established(ike) = slot
                && ike.core.link.conn.name == conn.name
            {
                let ours = |c: &Connection| auth::cert_payloads(&c.local_auth);
                let renewed = ike.core.client && ours(&ike.core.link.conn) != ours(conn);
                ike.core.link.conn.clone_from(conn);
                if renewed && ike.is_live() {
                    self.shared.actions.push_back(Action::Reauthenticate(ike.core.link.id));
                }
            }
        }
        self.configure_revocation(now, conn);
    }

    /// Gateway: no ticket is accepted any more that the peer of a connection was given until now, here or before a restart, as an
    /// [`Event::TicketSpent`] sees to. `peer` is its identity as it is displayed. Before its sessions are closed. `false` if that cannot be remembered, because the
    /// memory of spent tickets is full: then no ticket at all is accepted for some time.
    pub fn revoke_tickets(&mut self, now: Instant, connection: &str, peer: &str) -> bool {
        let Some(keys) = &self.shared.config.ticket_keys else { return true };
        let unix = self.shared.unix(now);
        // A peer that comes back within this second begins anew; the session that began in it is revoked.
        let theirs =
            |ike: &&IkeSa| ike.core.link.conn.name == connection && ike.core.peer.to_string() == peer;
        let sessions = self.slots.values().filter_map(|slot| match slot {
            Slot::Established(ike) => Some(&**ike),
            _ => None,
        });
        let began = sessions.filter(theirs).map(|ike| ike.core.session.authenticated.0 + 1).max();
        let before = UnixTime(began.unwrap_or_default().max(unix.0));
        let until = unix + keys.longest().max(TICKET_LIFETIME_MOST);
        match self.shared.config.ticket_guard.revoke(&Holder::of(connection, peer), unix, before, until) {
            Ok(record) => {
                self.shared.event(Event::TicketSpent { record });
                true
            }
            Err(_) => false,
        }
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

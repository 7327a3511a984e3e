//! What changes the time for which peers vouch for each other while sessions run: a clock that is set, credentials that are renewed, and
//! an operator who takes back what a peer was given. Owns no state; the timers are each SA's own.

use std::collections::BTreeSet;
use std::sync::Arc;

use dormouse_sansio::Instant;

use crate::action::Action;
use crate::admission::{Denial, Refusal, admits};
use crate::auth;
use crate::config::Connection;
use crate::endpoint::Endpoint;
use crate::event::{CloseReason, Event};
use crate::handshake::Slot;
use crate::ticket::lineage::{Holder, Operation};
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
                if ike.core.client {
                    ike.core.link.conn.clone_from(conn);
                }
                if renewed && ike.is_live() {
                    self.shared.actions.push_back(Action::Reauthenticate(ike.core.link.id));
                }
            }
        }
        self.shared.configure_revocation(now, conn);
        self.admit_again(now);
    }

    /// Asks for every session of a caller whether it is admitted by the configuration of now. Those that are not end.
    fn admit_again(&mut self, now: Instant) {
        let unix = self.shared.unix(now);
        let mut refused = Vec::new();
        for slot in self.slots.values_mut() {
            let Slot::Established(ike) = slot else { continue };
            let (core, config) = (&mut ike.core, &self.shared.config);
            let Some(credential) = core.session.credential.as_ref().filter(|_| !core.client) else {
                continue;
            };
            let Some(conn) = config.connections.iter().find(|c| c.name == core.link.conn.name) else {
                continue;
            };
            match admits(config, conn, &core.peer, credential, unix) {
                Ok(conn) => core.link.conn = conn,
                // It was admitted when something was known.
                Err(Refusal::StatusUnknown) => {}
                Err(why) => {
                    tracing::info!(sa = %core.id(), peer = %core.peer, %why, "no longer admitted");
                    refused.push(core.id());
                }
            }
        }
        for sa in refused {
            self.end_for(now, sa, CloseReason::NotAdmitted);
        }
        self.settle(now);
    }

    /// Gateway: whom `denial` means is not admitted from now on. Sessions end at once, and tickets of theirs are refused. The driver
    /// keeps it, and puts it into [`crate::admission::Admission::denials`] at the next start.
    pub fn deny(&mut self, now: Instant, denial: Denial) {
        let mut theirs: BTreeSet<(String, String)> = BTreeSet::new();
        if let Denial::Name(name) = &denial {
            let answering = self.shared.config.connections.iter().filter(|c| c.role.answers());
            theirs.extend(answering.map(|c| (c.name.clone(), name.to_string())));
        }
        for slot in self.slots.values() {
            let Slot::Established(ike) = slot else { continue };
            let core = &ike.core;
            if !core.client && denial.means(&core.peer, core.session.credential.as_ref()) {
                theirs.insert((core.link.conn.name.clone(), core.peer.to_string()));
            }
        }
        for (connection, peer) in theirs {
            self.revoke_tickets(now, &connection, &peer);
        }
        self.shared.config.admission.denials.insert(denial);
        self.admit_again(now);
    }

    /// Gateway: takes a denial back. False if there was none.
    pub fn allow(&mut self, denial: &Denial) -> bool {
        self.shared.config.admission.denials.remove(denial)
    }

    /// Gateway: no ticket counts any more that the peer of a connection has. `peer` is its identity as it is displayed. Before its
    /// sessions are closed.
    pub fn revoke_tickets(&mut self, now: Instant, connection: &str, peer: &str) {
        if self.shared.config.ticket_keys.is_some() {
            let holder = Holder::of(connection, peer);
            self.shared.event(Event::Store(Operation::EndAll { holder }));
            self.supersede_claims(now, |claim| {
                claim.connection == connection && claim.peer.to_string() == peer
            });
            self.settle(now);
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

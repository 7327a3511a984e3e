//! What changes the time for which peers vouch for each other while sessions run: a clock that is set, credentials that are renewed, and
//! an operator who takes back what a peer was given. Owns no state; the timers are each SA's own.

use std::collections::BTreeSet;
use std::sync::Arc;

use dormouse_crypto::cert::Identity;
use dormouse_sansio::Instant;

use super::Endpoint;
use crate::action::Action;
use crate::auth;
use crate::child::policy;
use crate::config::{Connection, LocalAuth, RemoteAuth};
use crate::credential::{Denial, Refusal, Shown};
use crate::event::{CloseReason, Event};
use crate::handshake::Slot;
use crate::sa::IkeSa;
use crate::selectors::covers;
use crate::shared::Shared;
use crate::ticket::fingerprint;
use crate::ticket::lineage::{Operation, TicketHolder};
use dormouse_keying::SaId;
use dormouse_wire::ike::TsRange;

impl Endpoint {
    /// The configuration was read again: `answering` are the connections that may answer, in order of preference, `calling` the others,
    /// for the sessions that they have. Callers are admitted by them from now on. A session whose peer is no longer admitted ends; so does
    /// one whose peer has another address or reaches more than the configuration gives it now, which may come back at once. All others
    /// go on as they are. A client whose own certificates are new authenticates anew at once, beside the session that runs.
    pub fn reconfigure(
        &mut self,
        now: Instant,
        answering: Vec<Arc<Connection>>,
        calling: &[Arc<Connection>],
    ) {
        let longest = answering.iter().map(|c| c.resumption.lifetime).max();
        if let (Some(keys), Some(longest)) = (&mut self.shared.config.ticket_keys, longest) {
            keys.keep_for_tickets_of(longest);
        }
        self.shared.config.connections = answering;
        for slot in self.slots.values_mut() {
            let Slot::Established(ike) = slot else { continue };
            let link = &mut ike.core.link;
            let Some(conn) = calling.iter().find(|c| ike.core.client && c.name == link.conn.name) else {
                continue;
            };
            let ours = |c: &Connection| auth::cert_payloads(&c.local_auth);
            let renewed = ours(&link.conn) != ours(conn);
            link.conn.clone_from(conn);
            if renewed && ike.is_live() {
                self.shared.actions.push_back(Action::Reauthenticate(ike.core.link.id));
            }
        }
        self.shared.config.admission.revocation.forget_configured(now);
        for conn in self.shared.config.connections.clone().iter().chain(calling) {
            self.shared.configure_revocation(now, conn);
        }
        self.end_revoked(now);
        self.admit_again(now);
    }

    /// Asks for every session of a caller, and every one that a ticket is bringing back, whether it is admitted by the configuration of
    /// now. Those that are not end.
    fn admit_again(&mut self, now: Instant) {
        let unix = self.shared.unix(now);
        let (mut refused, mut adopted) = (Vec::new(), Vec::new());
        for (id, slot) in &mut self.slots {
            let ike = match slot {
                Slot::Established(ike) if !ike.core.client => ike,
                // We have called this router: it is asked for nothing but whether it is denied.
                Slot::Established(ike) if ike.core.link.conn.is_childless() => {
                    if ike.is_denied(&self.shared) {
                        refused.push((*id, CloseReason::NotAdmitted));
                    }
                    continue;
                }
                Slot::HalfOpen(half_open) => {
                    if let Err(why) = half_open.admit_again(&self.shared.config, unix) {
                        tracing::info!(sa = %id, %why, "no longer admitted");
                        refused.push((*id, CloseReason::NotAdmitted));
                    }
                    continue;
                }
                _ => continue,
            };
            let Some(credential) = &ike.core.session.credential else { continue };
            let (config, peer) = (&self.shared.config, &ike.core.peer);
            let admitted = config.named(&ike.core.link.conn.name).and_then(|conn| {
                match config.admission.admits(conn, peer, credential, unix) {
                    // It was admitted when something was known.
                    Err(Refusal::StatusUnknown) => conn.takes(peer),
                    result => result,
                }
            });
            match admitted {
                Ok(conn) if Arc::ptr_eq(&conn, &ike.core.link.conn) => {}
                Ok(conn) if ike.adopt(&self.shared, &conn) => {
                    ike.schedule_authentication(&self.shared, now);
                    adopted.push(*id);
                }
                // It comes back with its certificates: a ticket is refused for the same reason.
                Ok(_) | Err(Refusal::Unasked) => refused.push((*id, CloseReason::Reconfigured)),
                Err(why) => {
                    tracing::info!(sa = %id, peer = %ike.core.peer, %why, "no longer admitted");
                    refused.push((*id, CloseReason::NotAdmitted));
                }
            }
        }
        adopted.into_iter().for_each(|sa| self.touch(sa));
        for (sa, why) in refused {
            match self.slots.get(&sa) {
                Some(Slot::HalfOpen(_)) => drop(self.forget(now, sa)),
                _ => {
                    if why == CloseReason::NotAdmitted {
                        self.distrust(sa);
                    }
                    self.end_for(now, sa, why);
                }
            }
        }
        self.give_keys_anew();
        self.apply_effects(now);
    }

    /// Client: whether the gateway of `sa` would still be believed by `conn`, which is written as the connection is that `sa` was made by, and
    /// whose files may hold something else: the authority that vouched for the gateway is one that `conn` trusts.
    #[must_use]
    pub fn would_believe(&self, sa: SaId, conn: &Connection) -> bool {
        match self.slots.get(&sa) {
            Some(Slot::Established(ike)) => match (&conn.remote_auth, &ike.core.session.credential) {
                (RemoteAuth::Psk(_) | RemoteAuth::Eap, _) => true,
                (RemoteAuth::Cert { trust, .. }, Some(credential)) => {
                    matches!(&credential.shown, Shown::Certificates { anchor, .. } if trust.trusts(anchor))
                }
                (RemoteAuth::Cert { .. }, None) => false,
            },
            // Its gateway has proved nothing yet, and would by the connection of then.
            Some(attempt) => fingerprint(&attempt.link().conn) == fingerprint(conn),
            None => true,
        }
    }

    /// Gateway: whether other clients are out of reach of this session's peer, and it out of theirs.
    #[must_use]
    pub fn isolates(&self, sa: SaId) -> bool {
        matches!(self.slots.get(&sa), Some(Slot::Established(ike)) if !ike.core.client && ike.core.link.conn.answering.policy.isolate)
    }

    /// Gateway: whether a peer that has proved `identity` before may still come by `connection`, as far as that alone decides.
    #[must_use]
    pub fn knows(&self, connection: &str, identity: &Identity) -> bool {
        let config = &self.shared.config;
        let denied = || config.admission.denials.iter().any(|d| d.means(identity, None));
        config.named(connection).is_ok_and(|c| c.takes(identity).is_ok() && !denied())
    }

    /// Gateway: whom `denial` means is not admitted from now on. Sessions end at once, and tickets of theirs are refused. The driver
    /// keeps it, and puts it into [`crate::admission::Admission::denials`] at the next start. Returns how many sessions end.
    pub fn deny(&mut self, now: Instant, denial: Denial) -> usize {
        let mut theirs: BTreeSet<(String, Identity)> = BTreeSet::new();
        if let Denial::Name(name) = &denial {
            let answering = self.shared.config.connections.iter().filter(|c| c.role.answers());
            theirs.extend(answering.map(|c| (c.name.clone(), name.clone())));
        }
        let mut sessions = 0;
        for slot in self.slots.values() {
            let Slot::Established(ike) = slot else { continue };
            let core = &ike.core;
            if !core.client && denial.means(&core.peer, core.session.credential.as_ref()) {
                theirs.insert((core.link.conn.name.clone(), core.peer.clone()));
                sessions += usize::from(ike.is_live());
            }
        }
        for (connection, peer) in theirs {
            self.revoke_tickets(now, &connection, &peer);
        }
        if let Denial::Name(name) = &denial {
            // Also a router with which there is no IKE SA at the moment.
            self.shared.header.distribution.distrust(name);
        }
        self.shared.config.admission.denials.insert(denial);
        self.admit_again(now);
        sessions
    }

    /// Gateway: takes a denial back. False if there was none.
    pub fn allow(&mut self, denial: &Denial) -> bool {
        self.shared.config.admission.denials.remove(denial)
    }

    /// Gateway: no ticket counts any more that the peer of a connection has. Before its sessions are closed.
    pub fn revoke_tickets(&mut self, now: Instant, connection: &str, peer: &Identity) {
        if self.shared.config.ticket_keys.is_some() {
            let holder = TicketHolder::of(connection, peer);
            self.shared.event(Event::Store(Operation::EndAll { holder }));
            self.supersede_claims(now, |claim| claim.connection == connection && claim.peer.is_same_as(peer));
            self.apply_effects(now);
        }
    }

    /// Gateway: no ticket counts any more that was given until now: each peer's next session begins by a full exchange. Sessions go on.
    pub fn forget_tickets(&mut self, now: Instant) {
        if self.shared.config.ticket_keys.is_some() {
            self.shared.event(Event::Store(Operation::EndEvery));
            self.supersede_claims(now, |_| true);
            self.apply_effects(now);
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
        self.apply_effects(now);
    }
}

impl Connection {
    /// Whether both have the same pre-shared keys at either end, post-quantum ones included, and the same password. Compared in constant time.
    #[must_use]
    pub fn has_secrets_of(&self, other: &Self) -> bool {
        let own = |c: &Self| match &c.local_auth {
            LocalAuth::Psk(psk) => Some(psk.clone()),
            LocalAuth::Eap(login) => login.password().cloned(),
            LocalAuth::Cert { .. } => None,
        };
        let theirs =
            |c: &Self| if let RemoteAuth::Psk(psk) = &c.remote_auth { Some(psk.clone()) } else { None };
        own(self) == own(other) && theirs(self) == theirs(other) && self.ppk.keys == other.ppk.keys
    }
}

impl IkeSa {
    /// Gateway: goes on by `conn`, if that gives its peer what it has: its addresses, and for each CHILD SA one of the same name and mode
    /// that carries at least as much, and is encrypted if it is. What is narrower than it could be stays so.
    fn adopt(&mut self, shared: &Shared, conn: &Arc<Connection>) -> bool {
        let pool = shared.config.pool.as_ref();
        if !self.core.assigned.addresses().into_iter().all(|a| pool.is_none_or(|pool| pool.gives(conn, a))) {
            return false;
        }
        let (dynamic, mut places) = (self.dynamic(), Vec::new());
        for child in self.children.iter() {
            let Some(old) = self.core.link.conn.children.get(child.config) else { return false };
            let place = conn.children.iter().position(|c| c.name == old.name);
            let Some((place, new)) = place.and_then(|i| Some((i, conn.children.get(i)?))) else {
                return false;
            };
            // What was dynamic then, such as an outer address, may be another one now.
            let alike = (&old.ts_local, &old.ts_remote) == (&new.ts_local, &new.ts_remote);
            let within = |inner: &[TsRange], outer: &[TsRange]| {
                inner.iter().all(|range| outer.iter().any(|wide| covers(wide, range)))
            };
            let carries = policy(conn, place, &dynamic).is_some_and(|(local, remote)| {
                within(&child.ts_local, &local) && within(&child.ts_remote, &remote)
            });
            if old.mode != new.mode || old.is_readable() != new.is_readable() || !(alike || carries) {
                return false;
            }
            places.push((child.id, place));
        }
        for (id, place) in places {
            if let Some(child) = self.children.get_mut(id) {
                child.config = place;
            }
        }
        self.core.link.conn.clone_from(conn);
        true
    }
}

//! What IKE reports, applied: to the SAs, to the ladders, and outward as the node's own events.

use crate::event::{Change, Event, FailureKind, Offer};
use crate::ladder::{Failure, State};
use crate::node::{Node, Session};
use dormouse_ike::config::Resumption;
use dormouse_ike::{CloseReason, Established, Event as Ike};
use dormouse_keying::SaId;
use dormouse_sansio::Instant;
use ipnet::IpNet;

impl Node {
    pub(crate) fn apply(&mut self, now: Instant, event: Ike) {
        match event {
            Ike::Established(e) => self.established(now, *e),
            Ike::Child(change) => self.apply_child(now, change),
            Ike::Ticket { sa, ticket } => self.ticket(sa, *ticket),
            Ike::TicketSpent { record } => {
                self.push(Event::TicketSpent { record: record.as_bytes().to_vec() })
            }
            Ike::TicketKeys { exported } => self.push(Event::TicketKeys { exported }),
            Ike::Failed { sa, error } => self.attempt_failed(now, sa, &error),
            Ike::PeerFailed { path, claimed, error } => {
                let claimed = claimed.map(|c| c.to_string());
                self.changed(Change::PeerRefused { from: path.remote.ip(), claimed, why: error.to_string() });
            }
            Ike::ChildFailed { sa, error } => {
                tracing::warn!(%sa, %error, "a CHILD SA was refused");
            }
            Ike::Closed { sa, reason } => self.closed(now, sa, reason),
            Ike::ProbeAnswered { sa, .. } => self.probe_answered(now, sa),
            Ike::ProbeFailed { sa } => self.held_failed(now, sa, Failure::Timeout),
            Ike::PeerLostSa { sa, solicited } => {
                if let Some(client) = self.client_of(sa) {
                    // "untrusted messages MUST NOT be relied upon to make this decision" (RFC 5723 section 9.4): the ladder
                    // waits for the probe.
                    client.ladder.doubt(now, solicited);
                    self.climb(now);
                }
            }
            Ike::PathChanged { sa, path } => self.path_changed(sa, path),
            Ike::UpdateRefused { sa, why } => {
                tracing::info!(%sa, why, "the gateway refused the new address");
                self.held_failed(now, sa, Failure::Lost);
            }
            Ike::Confirmed { sa } => self.confirmed(now, sa),
            Ike::SleepAnswered { sa, verdict } => self.sleep_answered(sa, verdict),
            Ike::LoadReport { sa, report } => self.load_report(sa, *report),
            Ike::PeerSleeps { sa, until, held, flags, expect, marks } => {
                self.peer_sleeps(sa, until, held, flags, expect, marks);
                self.desk_sleeps(now, sa, until, flags, expect);
            }
            Ike::PeerAwake { sa } => {
                self.peer_awake(sa);
                self.desk_woke(now, sa);
            }
            Ike::PeerAddresses { sa, addresses } => self.peer_addresses(sa, addresses),
        }
    }

    fn established(&mut self, now: Instant, e: Established) {
        let session = Session {
            connection: e.connection.clone(),
            peer: e.peer.to_string(),
            path: e.path,
            established: now,
            resumed: e.resumed,
            routes: Vec::new(),
            assigned: e.configuration.clone(),
            children: Vec::new(),
            last_sent: None,
            last_received: None,
            heard: None,
            spoke: false,
            tentative: !e.confirmed,
            asleep: None,
            dormancy: e.dormancy,
        };
        self.sessions.insert(e.sa, session);
        if !e.confirmed {
            return;
        }
        if !e.initiator {
            self.changed(Change::PeerUp {
                connection: e.connection,
                peer: e.peer.to_string(),
                resumed: e.resumed,
            });
            return;
        }
        let Some(client) = self.clients.get_mut(&e.connection) else { return };
        let replaced = client.sa.replace(e.sa).filter(|old| *old != e.sa);
        client.attempt = client.attempt.filter(|a| *a != e.sa);
        if e.resumed {
            // Accepted once: the gateway sends a new one, or the next wake is a full exchange.
            client.spend_ticket();
        }
        client.ladder.established(now, e.path, e.resumed);
        if let Some(old) = replaced {
            self.ike.supersede(now, old);
        }
    }

    /// The CHILD SA `id` of `sa` can be used: a client's session is complete with it.
    pub(crate) fn child_installed(&mut self, now: Instant, sa: SaId, id: u64) {
        let Some(child) = self.sad.get(id) else { return };
        let selectors = child.selectors.clone();
        let bound = child.inbound.mode() == dormouse_esp::Mode::Transport;
        let source = selectors.local().first().filter(|_| bound).map(|ts| ts.start);
        let Some(session) = self.sessions.get_mut(&sa) else { return };
        if session.tentative {
            return;
        }
        if !self.clients.contains_key(&session.connection) {
            // What the CHILD SA carries leads to the peer; a peer that may send everything is no way to everywhere.
            let mut routes = crate::child::prefixes(selectors.remote());
            routes.retain(|net| net.prefix_len() > 0 && !session.routes.contains(net));
            if !routes.is_empty() {
                session.routes.extend(&routes);
                self.push(Event::PeerRoutes { routes, source });
            }
            self.desk_installed(now, sa, id);
            return;
        }
        let assigned = session.assigned.clone();
        let Some(client) = self.client_of(sa) else { return };
        let routes = match assigned.subnets.as_slice() {
            [] => crate::child::prefixes(selectors.remote()),
            subnets => subnets.to_vec(),
        };
        client.last_selectors = Some(selectors);
        let wanted = (assigned, routes, source);
        if client.configured.as_ref() != Some(&wanted) {
            let connection = client.config.name.clone();
            client.configured = Some(wanted.clone());
            let (assigned, routes, source) = wanted;
            self.push(Event::Configure { connection, assigned, routes, source });
        }
        self.settle(now);
    }

    /// The next events set a route to a peer. What came from it before they are applied had better wait: an answer would find no way
    /// back.
    #[must_use]
    pub fn routes_due(&self) -> bool {
        self.events.iter().any(|e| matches!(e, Event::PeerRoutes { .. }))
    }

    /// libreswan looks for no NAT when it resumes, and its ESP then is in no UDP: behind a NAT its ticket would bring back a session
    /// without traffic, and is not kept.
    fn ticket(&mut self, sa: SaId, ticket: dormouse_ike::ticket::ClientTicket) {
        let behind_nat = self.ike.describe(sa).is_some_and(|d| d.nat.any());
        let Some(client) = self.client_of(sa) else { return };
        let connection = client.config.name.clone();
        let ticket = Some(ticket).filter(|t| t.dialect != Resumption::Libreswan || !behind_nat);
        let bytes = ticket.as_ref().map(dormouse_ike::ticket::ClientTicket::encode);
        client.set_ticket(ticket);
        self.push(Event::Ticket { connection, bytes });
    }

    fn probe_answered(&mut self, now: Instant, sa: SaId) {
        let mute = self.is_mute(sa);
        let Some(client) = self.client_of(sa) else { return };
        if mute && client.config.ike.resumption == Resumption::Libreswan {
            // A NAT has come between since the ticket was given (see `ticket`).
            tracing::info!(%sa, "the resumed session carries nothing");
            client.spend_ticket();
            return self.held_failed(now, sa, Failure::Lost);
        }
        client.ladder.confirmed(now);
        self.confirm_copies(sa);
        self.settle(now);
    }

    /// Resumed, and never anything but IKE came back.
    fn is_mute(&self, sa: SaId) -> bool {
        self.sessions.get(&sa).is_some_and(|s| s.resumed && s.spoke && s.heard.is_none())
    }

    fn attempt_failed(&mut self, now: Instant, sa: SaId, error: &dormouse_ike::NegotiationError) {
        let Some((name, client)) = self.clients.iter_mut().find(|(_, c)| c.attempt == Some(sa)) else {
            return;
        };
        let name = name.clone();
        client.attempt = None;
        let (failure, kind) = crate::client::failure_of(error);
        client.last_error = Some((error.to_string(), kind));
        client.last_offer = Offer::of(error);
        if failure == Failure::TicketRefused {
            client.set_ticket(None);
            self.push(Event::Ticket { connection: name.clone(), bytes: None });
        }
        self.ladder_failed(now, &name, error);
    }

    /// The SA that a client holds is of no use any more: it is forgotten here, and the ladder goes on.
    pub(crate) fn held_failed(&mut self, now: Instant, sa: SaId, why: Failure) {
        let Some(client) = self.client_of(sa) else { return };
        if why == Failure::Timeout && client.ladder.reroute(now) {
            return self.climb(now);
        }
        client.sa = None;
        let name = client.config.name.clone();
        if let (Failure::Timeout, State::Climbing(rung)) = (why, client.ladder.state()) {
            self.rung_unanswered(&name, rung);
        }
        if let Some(client) = self.clients.get_mut(&name) {
            client.ladder.failed(now, why);
        }
        self.resend_copies(now, &name);
        self.ike.forget(now, sa);
        tracing::info!(connection = %name, ?why, "the held SA is given up");
        self.climb(now);
    }

    fn closed(&mut self, now: Instant, sa: SaId, reason: CloseReason) {
        self.end_late_of(&[sa]);
        let Some(session) = self.sessions.remove(&sa) else { return };
        if self.clients.get(&session.connection).is_some_and(|c| c.sa.is_none_or(|now| now == sa)) {
            self.announcement_lost(&session.connection);
        }
        if let Some(client) = self.clients.get_mut(&session.connection) {
            if client.sa != Some(sa) {
                return;
            }
            client.sa = None;
            // "[...] when an IKE SA is deleted by the client or the gateway, the client MUST delete its stored ticket" (RFC 5723
            // section 6.2): an SA that only fell silent was not deleted.
            use CloseReason::{ByPeer, CertificateExpired, Expired, ProtocolError};
            if matches!(reason, ByPeer | Expired | CertificateExpired | ProtocolError) {
                client.spend_ticket();
            }
            if reason != CloseReason::TimedOut {
                // It had a word for it, so it was there.
                client.unconfirmed.clear();
            }
            client.last_error = Some((reason.to_string(), FailureKind::Other));
            client.last_offer = Offer::default();
            client.ladder.failed(now, Failure::Lost);
            self.resend_copies(now, &session.connection);
            self.changed(Change::Down { connection: session.connection, why: reason.to_string() });
            self.climb(now);
            return;
        }
        if session.tentative {
            return;
        }
        let kept = self.desk_closed(&session);
        // A newer session of the same peer may have the same addresses.
        let still = |route: &IpNet| self.sessions.values().any(|s| s.routes.contains(route));
        let gone: Vec<IpNet> = session.routes.iter().filter(|r| !still(r)).copied().collect();
        if !gone.is_empty() && !kept {
            self.push(Event::PeerGone { routes: gone });
        }
        self.changed(Change::PeerDown {
            connection: session.connection,
            peer: session.peer,
            why: reason.to_string(),
        });
    }

    fn path_changed(&mut self, sa: SaId, path: dormouse_sansio::Path) {
        if let Some(session) = self.sessions.get_mut(&sa) {
            session.path = path;
        }
        if let Some(client) = self.client_of(sa) {
            client.ladder.moved(path);
        }
    }

    /// Rekeys every CHILD SA now.
    pub fn rekey_children(&mut self, now: Instant) {
        for known in self.known.values() {
            self.ike.rekey_child(now, known.child);
        }
        self.drain_ike(now);
    }

    /// Rekeys every IKE SA now.
    pub fn rekey_ike_sas(&mut self, now: Instant) {
        for sa in self.sessions.keys() {
            self.ike.rekey_ike(now, *sa);
        }
        self.drain_ike(now);
    }
}

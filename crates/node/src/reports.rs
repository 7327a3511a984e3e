//! What IKE reports, passed on to sessions and ladders, and outward as the node's own events. Owns no state.

use crate::audit;
use crate::connections::ConnectionId;
use crate::event::{Change, Event, FailureKind, Offer, Order, Store};
use crate::ladder::{Failure, Rung, State};
use crate::node::Node;
use crate::record::{How, Text};
use crate::sessions::{Presence, Session, Who, prefixes};
use crate::tally::refusal;
use dormouse_esp::Selectors;
use dormouse_ike::config::Resumption;
use dormouse_ike::{CloseReason, Established, Event as Ike};
use dormouse_keying::{ChildId, Mode, Owner, SaId};
use dormouse_sansio::Instant;
use dormouse_wire::ike::dormancy::Refused;
use ipnet::IpNet;
use std::net::IpAddr;
use std::time::Duration;

/// A resumed session may carry nothing for this long before its CHILD SA is thought to be of no use.
const MUTE: Duration = Duration::from_secs(3);

impl Node {
    /// Gateway: leases have been written down; what waited for them may be sent.
    pub fn leases_written(&mut self, now: Instant) {
        self.ike.leases_written();
        self.drain_ike(now);
    }

    /// Acts on what IKE reports.
    pub(crate) fn ike_reports(&mut self, now: Instant, event: Ike) {
        match event {
            Ike::Established(e) => self.established(now, *e),
            Ike::Child(change) => self.change_tunnels(now, change),
            Ike::Ticket { sa, ticket } => self.ticket(sa, *ticket),
            Ike::Store(operation) => self.order(Order::Lineage(operation)),
            Ike::Takeover(what) => self.order(Order::Takeover(what)),
            Ike::Heard { sa } => self.heard(Owner::Ike(sa)),
            Ike::TicketKeys { exported } => self.order(Order::Store(Store::TicketKeys { exported })),
            Ike::Work { sa, order } => self.order(Order::Work { sa, order }),
            Ike::AskElsewhere(question) => self.ask_elsewhere(now, *question),
            Ike::Fetch { id, url, body } => self.order(Order::Fetch { id, url, body }),
            Ike::Revocations { name, content } => {
                self.order(Order::Store(Store::Revocations { name, content }))
            }
            Ike::Failed { sa, error } => self.attempt_failed(now, sa, &error),
            Ike::PeerFailed { path, claimed, error } => {
                *self.counters.refused.entry(refusal(&error)).or_default() += 1;
                // Strangers would otherwise set the pace of the log, and push other lines and records out of it.
                if self.record_refusal(now, path.remote, claimed.as_ref(), &error) {
                    let line = |text: String| Text::from(text.as_str()).to_string();
                    let (from, claimed) = (path.remote.ip(), claimed.map(|c| line(c.to_string())));
                    self.changed(Change::PeerRefused { from, claimed, why: line(error.to_string()) });
                }
            }
            Ike::ChildFailed { sa, error } => self.child_failed(now, sa, &error),
            Ike::Closed { sa, reason } => self.closed(now, sa, reason),
            Ike::ProbeAnswered { sa, .. } => self.probe_answered(now, sa),
            Ike::ProbeFailed { sa } => self.held_failed(now, sa, Failure::Timeout),
            Ike::PeerLostSa { sa, solicited } => {
                if let Some(client) = self.client_of(Owner::Ike(sa)) {
                    // "untrusted messages MUST NOT be relied upon to make this decision" (RFC 5723 section 9.4): the ladder
                    // waits for the probe.
                    client.ladder.doubt(now, solicited);
                    self.climb(now);
                }
            }
            Ike::PathChanged { sa, path } => self.path_changed(now, sa, path),
            Ike::UpdateRefused { sa, why } => {
                tracing::info!(%sa, why, "the gateway refused the new address");
                self.held_failed(now, sa, Failure::Lost);
            }
            Ike::Confirmed { sa } => self.confirmed(now, sa),
            Ike::Answered { sa } => self.tunnels_may_send(now, Owner::Ike(sa)),
            Ike::SleepAnswered { sa, verdict } => self.sleep_answered(sa, verdict),
            Ike::LoadReport { sa, report } => self.load_report(sa, *report),
            Ike::PeerSleeps { sa, until, held: _, flags, expect, marks } => {
                self.peer_sleeps(Owner::Ike(sa), marks);
                self.stand_in_begins(now, Owner::Ike(sa), until, flags, expect);
            }
            Ike::PeerAwake { sa } => {
                self.peer_awake(Owner::Ike(sa));
                self.with_devices(|d, around| d.session_awake(now, Owner::Ike(sa), around));
            }
            Ike::Header(order) => self.order(Order::Header(order)),
            Ike::LinkWanted { peer } => self.link_wanted(now, &peer),
            Ike::Redirected { sa, to } => self.session_redirected(now, sa, to),
            Ike::Elsewhere { sa, to } => self.session_leaves(now, sa, to),
            Ike::PeerAddresses { sa, addresses } => self.peer_addresses(sa, addresses),
        }
    }

    fn established(&mut self, now: Instant, e: Established) {
        let Some(id) = self.connections.id(&e.connection) else { return };
        let addresses = if e.initiator { Vec::new() } else { e.configuration.addresses() };
        let who = Who { identity: e.peer.to_ike(), addresses };
        let session = Session {
            credential: e.credential,
            isolate: e.isolate,
            resumed: e.resumed,
            method: if e.eap { "eap" } else { audit::method(e.method) },
            assigned: e.configuration,
            presence: if e.confirmed { Presence::Awake } else { Presence::Tentative },
            dormancy: e.dormancy,
            lineage: e.lineage,
            ..Session::new(now, id, e.peer.to_string(), who, e.path)
        };
        self.sessions.insert(Owner::Ike(e.sa), session);
        if !e.confirmed {
            return;
        }
        if !e.initiator {
            let (connection, peer) = (e.connection, e.peer.to_string());
            self.changed(Change::PeerUp { connection, peer, resumed: e.resumed });
            self.account_begin(now, Owner::Ike(e.sa));
            let how = match (e.taken_over, e.resumed) {
                (true, _) => How::TakenOver,
                (false, true) => How::Slow,
                (false, false) => How::Full,
            };
            return self.record_begin(Owner::Ike(e.sa), how);
        }
        let Some(client) = self.connections.client_mut(id) else { return };
        let replaced = client.sa.replace(e.sa).filter(|old| *old != e.sa);
        client.attempt = client.attempt.filter(|a| *a != e.sa);
        // The gateway sends a new one with the same answer, or the next wake is a full exchange.
        client.spend_ticket();
        client.ladder.established(now, e.path, e.resumed);
        if client.elsewhere.sent_by.take().is_some() {
            self.ike.set_redirected_from(&client.config.name, None);
        }
        let childless = client.config.keys.is_some();
        if let Some(old) = replaced {
            self.ike.supersede(now, old);
        }
        if childless {
            // No tunnel completes it.
            self.announce_success(now);
        }
    }

    /// A tunnel can be used: a client's session is complete with it, and a peer of a gateway is reached by it.
    pub(crate) fn tunnel_installed(&mut self, now: Instant, owner: Owner, id: ChildId) {
        let Some(tunnel) = self.sad.get(id) else { return };
        let bound = tunnel.mode() != Mode::Tunnel;
        let source = tunnel.selectors.local().first().filter(|_| bound).map(|ts| ts.start);
        let Some(session) = self.sessions.get(owner) else { return };
        let Some(client) = self.connections.client_mut(session.connection) else {
            let routes = self.sessions.add_routes(owner, tunnel.selectors.remote());
            if !routes.is_empty() {
                self.order(Order::PeerRoutes { routes, source });
            }
            return self.with_devices(|d, around| d.session_installed(now, owner, around));
        };
        if client.sa.map(Owner::Ike) != Some(owner) {
            return;
        }
        client.note_selectors(&tunnel.selectors);
        let routes = match session.assigned.subnets.as_slice() {
            // In an order that does not depend on which of several was rekeyed last.
            [] => {
                let selected = client.last_selectors.iter().flat_map(Selectors::remote).copied();
                prefixes(&selected.collect::<Vec<_>>())
            }
            subnets => subnets.to_vec(),
        };
        let wanted = (session.assigned.clone(), routes, source);
        if client.configured.as_ref() != Some(&wanted) {
            let connection = client.config.name.clone();
            client.configured = Some(wanted.clone());
            let (assigned, routes, source) = wanted;
            self.order(Order::Configure { connection, assigned, routes, source });
        }
        self.announce_success(now);
    }

    /// The next events set the route to this address of a peer. What came from there before they are applied had better wait: an answer would
    /// find no way back.
    #[must_use]
    pub fn is_route_due(&self, to: IpAddr) -> bool {
        let leads = |routes: &[IpNet]| routes.iter().any(|route| route.contains(&to));
        self.events
            .iter()
            .any(|e| matches!(e, Event::Order(Order::PeerRoutes { routes, .. }) if leads(routes)))
    }

    /// libreswan looks for no NAT when it resumes, and its ESP then is in no UDP: behind a NAT its ticket would bring back a session
    /// without traffic, and is not kept.
    fn ticket(&mut self, sa: SaId, ticket: dormouse_ike::ticket::ClientTicket) {
        let behind_nat = self.ike.describe(sa).is_some_and(|d| d.nat.any());
        let Some(client) = self.client_of(Owner::Ike(sa)) else { return };
        let connection = client.config.name.clone();
        let ticket = Some(ticket).filter(|t| t.dialect != Resumption::Libreswan || !behind_nat);
        let bytes = ticket.as_ref().map(dormouse_ike::ticket::ClientTicket::encode);
        client.set_ticket(ticket);
        self.order(Order::Store(Store::Ticket { connection, bytes }));
    }

    fn probe_answered(&mut self, now: Instant, sa: SaId) {
        let silent_for = self.silent_for(now, sa);
        let Some(client) = self.client_of(Owner::Ike(sa)) else { return };
        let silent_for = silent_for.filter(|_| client.config.ike.resumption.mode == Resumption::Libreswan);
        if silent_for.is_some_and(|time| time > MUTE) {
            // A NAT has come between since the ticket was given (see `ticket`).
            tracing::info!(%sa, "the resumed session carries nothing");
            client.spend_ticket();
            return self.held_failed(now, sa, Failure::Lost);
        }
        client.ladder.confirmed(now);
        let stored = client.heard();
        if silent_for.is_some() {
            // Its data may only be late: they are asked after once more, and what was sent is kept until then.
            client.ladder.outbound(now);
        } else {
            client.resend.clear();
        }
        self.events.extend(stored);
        self.announce_success(now);
    }

    /// Something authentic came from a client's gateway.
    pub(crate) fn heard(&mut self, owner: Owner) {
        let stored = self.client_of(owner).and_then(|client| client.heard());
        self.events.extend(stored);
    }

    /// How long ago it was resumed, if never anything but IKE came back to what was sent.
    fn silent_for(&self, now: Instant, sa: SaId) -> Option<Duration> {
        let silent = |s: &&Session| s.resumed && s.contact.spoke && s.contact.heard.is_none();
        self.sessions.get(Owner::Ike(sa)).filter(silent).map(|s| now - s.established)
    }

    /// The deadline of a rung has passed: the failure says how far the attempt came.
    pub(crate) fn rung_unanswered(&mut self, now: Instant, id: ConnectionId, rung: Rung) {
        let Some(client) = self.connections.client_mut(id) else { return };
        let limit = client.ladder.deadline_of(rung);
        let gateway = client.gateway().unwrap_or_else(|| "the gateway".to_owned());
        let heard = client.attempt.and_then(|sa| self.ike.sa_stats(sa)).is_some_and(|s| s.datagrams_in > 0);
        let (kind, why) = match client.too_big.take() {
            Some(bytes) => (
                FailureKind::TooBig,
                format!(
                    "a message of {bytes} bytes to {gateway} was not sent: it is too big for the path, and the gateway \
                     does not take fragments (its `fragmentation`, or smaller certificates)"
                ),
            ),
            None if heard => (
                FailureKind::AnswersLost,
                format!(
                    "{gateway} answered, but not to the end within {limit:?}: what follows is lost on the way"
                ),
            ),
            None => (FailureKind::Timeout, format!("{gateway} did not answer within {limit:?}")),
        };
        client.last_error = Some((why.clone(), kind));
        client.last_offer = Offer::default();
        let (connection, offer) = (client.config.name.clone(), Offer::default());
        if rung == Rung::Full {
            self.come_back(now, &connection);
        }
        self.changed(Change::RungFailed { connection, rung, why, kind, offer });
    }

    fn attempt_failed(&mut self, now: Instant, sa: SaId, error: &dormouse_ike::NegotiationError) {
        if let dormouse_ike::NegotiationError::Redirected(to) = error
            && self.attempt_redirected(now, sa, to)
        {
            return self.climb(now);
        }
        let Some(client) = self.connections.clients_mut().find(|c| c.attempt == Some(sa)) else {
            return tracing::info!(%sa, %error, "connecting failed");
        };
        let connection = client.config.name.clone();
        client.attempt = None;
        let (mut failure, kind) = crate::client::failure_of(error, &mut *self.entropy);
        if client.declines(now, error) {
            failure = Failure::Lost;
            self.ike.set_redirected_from(&connection, None);
        }
        let often = matches!(error, dormouse_ike::NegotiationError::Redirected(_));
        let why =
            if often { format!("{error}, once too often within a few minutes") } else { error.to_string() };
        let offer = Offer::of(error);
        client.last_error = Some((why.clone(), kind));
        client.last_offer = offer.clone();
        use dormouse_ike::NegotiationError as E;
        match error {
            // Anybody can say so in clear: it starts the full exchange, and the ticket stays until that brings another one.
            E::TicketRefused => {}
            E::TicketSuperseded => {
                let refused = client.refuse_ticket();
                self.events.extend(refused);
            }
            _ if failure == Failure::TicketRefused => {
                client.set_ticket(None);
                let gone = Store::Ticket { connection: connection.clone(), bytes: None };
                self.events.push_back(Event::Order(Order::Store(gone)));
            }
            _ => {}
        }
        let Some(client) = self.connections.client_named_mut(&connection) else { return };
        if let State::Climbing(rung) = client.ladder.state() {
            let connection = connection.clone();
            self.events.push_back(Event::Changed(Change::RungFailed { connection, rung, why, kind, offer }));
        }
        client.ladder.failed(now, failure);
        if client.ladder.state() == State::Backoff {
            self.come_back(now, &connection);
        }
        self.climb(now);
    }

    /// A CHILD SA was not made. Where the first one of a client's session follows the IKE SA (RFC 6023), the attempt has failed.
    fn child_failed(&mut self, now: Instant, sa: SaId, error: &dormouse_ike::NegotiationError) {
        let Some(client) = self.client_of(Owner::Ike(sa)).filter(|c| !c.is_complete()) else {
            let session = self.sessions.get(Owner::Ike(sa));
            let (connection, peer) =
                session.map_or(("?", "?"), |s| (self.connections.name(s.connection), &s.peer));
            return tracing::warn!(connection, peer, %error, "a CHILD SA was not made");
        };
        (client.sa, client.attempt) = (None, Some(sa));
        client.ladder.reopen();
        self.ike.close(now, sa);
        self.attempt_failed(now, sa, error);
    }

    /// The SA that a client holds is of no use any more: it is forgotten here, and the ladder goes on.
    pub(crate) fn held_failed(&mut self, now: Instant, sa: SaId, why: Failure) {
        let owner = Owner::Ike(sa);
        let Some(id) = self.sessions.get(owner).map(|s| s.connection) else { return };
        let Some(client) = self.client_of(owner) else { return };
        if why == Failure::Timeout && client.ladder.unanswered(now) {
            return self.announce_success(now);
        }
        client.sa = None;
        if let (Failure::Timeout, State::Climbing(rung)) = (why, client.ladder.state()) {
            self.rung_unanswered(now, id, rung);
        }
        if let Some(client) = self.connections.client_mut(id) {
            client.ladder.failed(now, why);
        }
        self.resend_copies(now, id);
        self.ike.forget(now, sa);
        tracing::info!(connection = self.connections.name(id), ?why, "the held SA is given up");
        self.climb(now);
    }

    fn closed(&mut self, now: Instant, sa: SaId, reason: CloseReason) {
        let owner = Owner::Ike(sa);
        let Some(id) = self.sessions.get(owner).map(|s| s.connection) else { return };
        let Some(client) = self.connections.client_mut(id) else {
            if matches!(reason, CloseReason::NotAdmitted | CloseReason::Revoked) {
                let who = self.sessions.get(owner).map(|s| s.who.clone());
                self.with_devices(|d, around| {
                    _ = d.dismiss(|c, w, _| c == id && Some(w) == who.as_deref(), around)
                });
            }
            return self.session_ended(now, owner, &reason.to_string(), Some(reason));
        };
        let (serves, other) = (client.sa == Some(sa), client.sa.is_some_and(|now| now != sa));
        self.sad.end_draining_of(owner);
        self.sessions.remove(owner);
        if !other {
            self.announcement_lost(id);
        }
        let Some(client) = self.connections.client_mut(id).filter(|_| serves) else { return };
        client.sa = None;
        if client.attempt.is_some() && !client.ladder.data_flows() {
            // It was left for another one, which is on its way.
            return;
        }
        // "[...] when an IKE SA is deleted by the client or the gateway, the client MUST delete its stored ticket" (RFC 5723
        // section 6.2): an SA that only fell silent was not deleted.
        use CloseReason::{ByPeer, CertificateExpired, Expired, ProtocolError, Revoked};
        if matches!(reason, ByPeer | Expired | CertificateExpired | Revoked | ProtocolError) {
            client.spend_ticket();
        }
        // Where the store says nothing, what was asked of it may have been done or not: the session counts as one on which nothing was heard.
        let superseded = reason == CloseReason::Refused(Refused::Superseded);
        let refused = superseded.then(|| client.refuse_ticket()).flatten();
        if !matches!(reason, CloseReason::TimedOut | CloseReason::Refused(_)) {
            // It had a word for it, so it was there.
            client.resend.clear();
        }
        client.last_error = Some((reason.to_string(), FailureKind::Other));
        client.last_offer = Offer::default();
        let undecided = reason == CloseReason::Refused(Refused::Store);
        client.ladder.failed(now, if undecided { Failure::Undecided } else { Failure::Lost });
        let connection = client.config.name.clone();
        self.events.extend(refused);
        self.resend_copies(now, id);
        self.changed(Change::Down { connection, why: reason.to_string() });
        self.climb(now);
    }

    /// The session of a peer that came to us has ended; `reason`: of IKE.
    pub(crate) fn session_ended(
        &mut self,
        now: Instant,
        owner: Owner,
        why: &str,
        reason: Option<CloseReason>,
    ) {
        self.sad.end_draining_of(owner);
        let Some(session) = self.sessions.remove(owner) else { return };
        self.record_end(now, &session, why);
        self.account_end(now, &session, reason);
        if session.is_tentative() {
            if let Some(sa) = owner.ike() {
                self.push(Event::Judged { sa, granted: false });
            }
            return;
        }
        let kept = self.devices.as_mut().is_some_and(|d| d.session_ended(&session, &self.sessions));
        // A newer session of the same peer may have the same addresses.
        let gone: Vec<IpNet> =
            session.routes().iter().filter(|r| !self.sessions.lead_to(r)).copied().collect();
        if !gone.is_empty() && !kept {
            self.order(Order::PeerGone { routes: gone });
        }
        let connection = self.connections.name(session.connection).to_owned();
        self.changed(Change::PeerDown { connection, peer: session.peer, why: why.to_owned() });
    }

    fn path_changed(&mut self, now: Instant, sa: SaId, path: dormouse_sansio::Path) {
        let owner = Owner::Ike(sa);
        if let Some(session) = self.sessions.get_mut(owner) {
            let was = std::mem::replace(&mut session.path, path).remote;
            self.record_move(now, owner, was);
        }
        if let Some(client) = self.client_of(owner) {
            client.ladder.moved(path);
        }
    }
}

//! Packets of the traffic as the node sees them: which CHILD SA opens or seals one, where it goes, and what it proves about the
//! peer. Owns the bookkeeping that follows an authentic packet; must never encrypt (ESP does) nor keep a packet.

use crate::client::Client;
use crate::event::Event;
use crate::ladder::State;
use crate::node::{Discard, Inbound, Node, Route};
use dormouse_esp::{Accepted, Child, Life};
use dormouse_keying::SaId;
use dormouse_sansio::{Carrier, Instant, Path};
use dormouse_wire::esp::{NatT, classify_natt};
use dormouse_wire::ip::Flow;

/// Datagrams that came together: from one sender, over one path, at one time. Knows what the first of them proved, so that it is
/// not proved again for each; begin a new one whenever anything else could have happened to the node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Train {
    /// A packet of this child was accounted for, and another one would change nothing.
    settled: Option<u64>,
}

impl Node {
    /// A datagram came in over `path`.
    ///
    /// # Errors
    /// The reason why it was dropped; it has been counted.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        path: Path,
        datagram: &mut [u8],
    ) -> Result<Inbound, Discard> {
        self.handle_next(now, path, &mut Train::default(), datagram)
    }

    /// The next datagram of a train.
    ///
    /// # Errors
    /// As [`Self::handle_datagram`].
    pub fn handle_next(
        &mut self,
        now: Instant,
        path: Path,
        train: &mut Train,
        datagram: &mut [u8],
    ) -> Result<Inbound, Discard> {
        let esp = match path.carrier {
            Carrier::Ike => false,
            Carrier::RawEsp => true,
            Carrier::NatT => match classify_natt(datagram) {
                NatT::Keepalive => {
                    self.counters.keepalives_in += 1;
                    return Ok(Inbound::Consumed);
                }
                NatT::Ike(_) => {
                    // It may change whatever the packets before it have proved.
                    *train = Train::default();
                    let message = datagram.get_mut(4..).unwrap_or_default();
                    return self.handle_ike(now, path, message);
                }
                NatT::Esp(_) => true,
                NatT::Malformed => {
                    self.counters.malformed += 1;
                    return Err(Discard::Malformed);
                }
            },
        };
        if esp { self.handle_esp(now, path, train, datagram) } else { self.handle_ike(now, path, datagram) }
    }

    fn handle_ike(&mut self, now: Instant, path: Path, message: &mut [u8]) -> Result<Inbound, Discard> {
        let result = self.ike.handle_datagram(now, path, message);
        self.drain_ike(now);
        result?;
        Ok(Inbound::Consumed)
    }

    fn handle_esp(
        &mut self,
        now: Instant,
        path: Path,
        train: &mut Train,
        datagram: &mut [u8],
    ) -> Result<Inbound, Discard> {
        self.end_late(now);
        let Accepted { id, opened, flow } = match self.sad.open(datagram) {
            Ok(accepted) => accepted,
            Err(e) => {
                self.counters.esp_discards += 1;
                if let dormouse_esp::Discard::UnknownSpi { spi } = e {
                    self.counters.unknown_spi += 1;
                    self.ike.unknown_esp_spi(now, path, spi);
                }
                return Err(e.into());
            }
        };
        if train.settled != Some(id) && !self.late.contains(id) {
            if self.sessions_of(id).is_some_and(|s| s.tentative) && !self.confirm(now, id, path) {
                // Somebody else came first with the same ticket.
                return Ok(Inbound::Consumed);
            }
            self.received(now, id, path, opened.seq);
            train.settled = self.is_settled(id, &path).then_some(id);
        }
        if opened.is_dummy() {
            return Ok(Inbound::Consumed);
        }
        self.observe_inbound(now, id, datagram.get(opened.inner.clone()).unwrap_or_default());
        Ok(Inbound::Inner { range: opened.inner, child: id, next_header: opened.next_header, flow })
    }

    /// Bookkeeping for an authentic packet: the mapping, the ladder, the successor of a rekeyed child.
    fn received(&mut self, now: Instant, id: u64, path: Path, sequence: u64) {
        if let Some(old) = self.pending_activation.remove(&id) {
            self.sad.deactivate(old);
            self.sad.activate(id);
        }
        let Some(child) = self.sad.get(id) else { return };
        let (moved, life, spi) = (child.path != path, child.inbound.life(), child.inbound.spi());
        // "[...] MOBIKE nodes SHOULD inspect the addresses used in those packets [...] If they do not [correspond], such packets SHOULD
        // NOT be used as evidence that the peer is able to communicate with this node" (RFC 4555 section 3.12).
        let ips = |path: &Path| (path.local.ip(), path.remote.ip());
        let proves = ips(&child.path) == ips(&path);
        let Some(sa) = self.known.get(&id).map(|k| k.sa) else { return };
        if let Some(session) = self.sessions.get_mut(&sa) {
            session.last_received = if proves { Some(now) } else { session.last_received };
            session.heard = Some(now);
        }
        if let Some(missed) = self.missed(sa, id, sequence) {
            self.events.push_back(missed);
        }
        if self.ends_sleep(sa, spi, sequence) {
            self.ike.peer_awake(now, sa);
            self.drain_ike(now);
        }
        if moved {
            self.ike.observed_path(now, sa, path);
            self.drain_ike(now);
        }
        if life != Life::Fresh {
            self.rekey(now, id);
        }
        if let Some(client) = self.client_of(sa).filter(|_| proves) {
            let before = client.ladder.state();
            client.ladder.inbound(now);
            client.unconfirmed.clear();
            if before != State::Up {
                self.settle(now);
            }
        }
    }

    /// Whether [`Self::received`] would do nothing more for another packet of this child at the same time: it comes the way that
    /// ours go, neither end sleeps, and none is missed. That the SA is due for renewal, the next train says again.
    fn is_settled(&mut self, id: u64, path: &Path) -> bool {
        let Some(child) = self.sad.get(id) else { return false };
        let same_way = child.path == *path;
        let Some(sa) = self.known.get(&id).map(|k| k.sa) else { return false };
        same_way
            && self.sessions.get(&sa).is_some_and(|s| s.asleep.is_none())
            && self.client_of(sa).is_none_or(|c| !c.asleep && !c.heard_up_to.contains_key(&id))
    }

    /// The first packet of a child after a sleep shows what was lost meanwhile.
    fn missed(&mut self, sa: SaId, id: u64, sequence: u64) -> Option<Event> {
        let client = self.client_of(sa)?;
        if client.asleep {
            // It was under way when the radio went off.
            let heard = client.heard_up_to.get_mut(&id)?;
            *heard = sequence.max(*heard);
            return None;
        }
        let packets = sequence.saturating_sub(client.heard_up_to.remove(&id)? + 1);
        let connection = client.config.name.clone();
        (packets > 0).then_some(Event::Missed { connection, packets })
    }

    /// Where a packet of `flow` goes.
    pub fn route(&mut self, flow: &Flow) -> Route {
        if let Some(id) = self.sad.route(flow) {
            if let Some(device) = self.sleeper(Some(id), flow) {
                return Route::StandIn(device);
            }
            return match self.known.get(&id).map(|k| k.sa).and_then(|sa| self.client_of(sa)) {
                Some(client) if client.asleep || client.ladder.state() == State::Offline => Route::Hold,
                _ => Route::Send(id),
            };
        }
        if let Some(device) = self.sleeper(None, flow) {
            return Route::StandIn(device);
        }
        let wanted = |c: &Client| {
            c.ladder.state() != State::Down
                && c.last_selectors.as_ref().is_some_and(|s| s.match_outbound(flow))
        };
        if self.clients.values().any(wanted) { Route::Hold } else { Route::None }
    }

    /// True if the child belongs to a client connection of ours: its traffic is the device's own.
    #[must_use]
    pub fn is_clients(&self, id: u64) -> bool {
        let session = self.known.get(&id).and_then(|k| self.sessions.get(&k.sa));
        session.is_some_and(|s| self.clients.contains_key(&s.connection))
    }

    /// Some client connection is wanted.
    #[must_use]
    pub fn wanted(&self) -> bool {
        self.clients.values().any(|c| c.ladder.state() != State::Down)
    }

    /// The radio sleeps: nothing is sent until [`Node::resume`].
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.clients.values().any(|c| c.asleep)
    }

    /// Inner addresses that gateways have assigned.
    #[must_use]
    pub fn inner_addresses(&self) -> Vec<std::net::IpAddr> {
        self.clients.values().flat_map(|c| &c.configured).flat_map(|(a, ..)| a.addresses()).collect()
    }

    /// Client connections, wanted or not.
    #[must_use]
    pub fn client_names(&self) -> Vec<String> {
        self.clients.keys().cloned().collect()
    }

    /// Packets of every wanted client connection may be sent.
    #[must_use]
    pub fn flows(&self) -> bool {
        self.wanted()
            && self
                .clients
                .values()
                .all(|c| c.ladder.state() == State::Down || (c.ladder.data_flows() && !c.asleep))
    }

    /// When the first of the client sessions ends that are held, if it is not renewed.
    #[must_use]
    pub fn first_expiry(&self) -> Option<Instant> {
        let held = self.clients.values().filter_map(|c| self.ike.describe(c.sa?));
        held.flat_map(|d| d.children.into_iter().map(|c| c.expires_at).chain([d.expires_at])).flatten().min()
    }

    /// Client connections that are wanted.
    #[must_use]
    pub fn wanted_connections(&self) -> Vec<String> {
        let wanted = self.clients.iter().filter(|(_, c)| c.ladder.state() != State::Down);
        wanted.map(|(name, _)| name.clone()).collect()
    }

    /// Asks the gateway of every client connection whether it is there: the answer shows it that we listen.
    pub fn ask(&mut self, now: Instant) {
        for client in self.clients.values_mut() {
            client.ladder.doubt(now, false);
        }
        self.climb(now);
    }

    /// Lends a child for sealing.
    pub fn child_mut(&mut self, id: u64) -> Option<&mut Child> {
        self.sad.get_mut(id)
    }

    /// A batch was sealed with child `id` and sent.
    pub fn sent(&mut self, now: Instant, id: u64) {
        let Some(child) = self.sad.get(id) else { return };
        let life = child.outbound.life();
        let Some(sa) = self.known.get(&id).map(|k| k.sa) else { return };
        if let Some(session) = self.sessions.get_mut(&sa) {
            session.last_sent = Some(now);
            session.spoke = true;
        }
        if life != Life::Fresh {
            self.rekey(now, id);
        }
        if let Some(client) = self.client_of(sa) {
            client.ladder.outbound(now);
        }
    }

    fn rekey(&mut self, now: Instant, id: u64) {
        if let Some(known) = self.known.get(&id) {
            self.ike.rekey_child(now, known.child);
            self.drain_ike(now);
        }
    }
}

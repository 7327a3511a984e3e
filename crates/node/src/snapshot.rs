//! What a node looks like at one moment: for `dormouse status`. Owns plain data; changes nothing.

use crate::client::Client;
use crate::devices::Devices;
use crate::event::{FailureKind, Offer};
use crate::ladder::{State, Wake};
use crate::node::Node;
use crate::sessions::Session;
use crate::tally::ConnectionTally;
use dormouse_esp::Counters;
use dormouse_keying::{ChildId, Mode, Owner, SaId, Share};
use dormouse_sansio::{Instant, Path, UnixTime};
use std::net::IpAddr;
use std::time::Duration;

/// A client connection.
#[derive(Clone, Debug)]
pub struct ClientInfo {
    /// Its name.
    pub name: String,
    /// The gateway as configured.
    pub gateway: String,
    /// What the ladder is doing.
    pub state: State,
    /// The node may not send, as its device sleeps: then a ladder that is offline comes back by itself.
    pub asleep: bool,
    /// How the session came back the last time.
    pub last_wake: Option<Wake>,
    /// When the ticket that is held ends.
    pub ticket_expires: Option<UnixTime>,
    /// The last failure, until the session is up again.
    pub last_error: Option<(String, FailureKind)>,
    /// What was offered then, and what would have been accepted.
    pub last_offer: Offer,
    /// The session, if there is one.
    pub session: Option<SessionInfo>,
}

/// An established session.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// The SA of its key manager.
    pub owner: Owner,
    /// Connection that it belongs to.
    pub connection: String,
    /// Who the peer proved to be.
    pub peer: String,
    /// Outer addresses.
    pub path: Path,
    /// Age.
    pub age: Duration,
    /// Came up by ticket.
    pub resumed: bool,
    /// The peer's device has announced that it sleeps.
    pub asleep: bool,
    /// Since ESP last came in; since it was established, if none has.
    pub quiet: Duration,
    /// Inner addresses.
    pub addresses: Vec<IpAddr>,
    /// Name servers.
    pub dns: Vec<IpAddr>,
    /// CHILD SAs.
    pub children: Vec<ChildInfo>,
    /// Gateway: what is done for its device while it sleeps; `None` if it is not stood in for.
    pub stand_in: Option<crate::StandInInfo>,
    /// The IKE SA itself: algorithms, NAT, rekeying.
    pub ike: Option<dormouse_ike::Description>,
}

/// A CHILD SA.
#[derive(Clone, Debug)]
pub struct ChildInfo {
    /// Its name: the SPI of what we receive.
    pub id: ChildId,
    /// SPI of what we send.
    pub spi_out: u32,
    /// `tunnel`, `transport` or `beet`.
    pub mode: &'static str,
    /// Algorithms, as configured.
    pub suite: String,
    /// Into how many zones its packets are cut; 1: they are protected whole.
    pub zones: usize,
    /// Whether all on the way can read what it carries: it is authenticated and not encrypted.
    pub readable: bool,
    /// What we send on it where others of the session have the same selectors.
    pub share: Share,
    /// Where it sends all packets for a time, by the signal or as the peer does: whether it does now.
    pub takes_all: Option<bool>,
    /// Where the signal of the radio decides that: the signal in dBm, if it is known.
    pub signal: Option<i8>,
    /// Gateway: access routers that may have seen the keys of its first zone, or are to have them.
    pub routers: Vec<dormouse_ike::KeyHolder>,
    /// New keys are made then.
    pub rekey_at: Option<Instant>,
    /// What we received.
    pub received: Counters,
    /// What we sent.
    pub sent: Counters,
    /// Path MTU of the outer path, in bytes.
    pub path_mtu: u16,
}

impl Node {
    /// All client connections, by name.
    #[must_use]
    pub fn client_infos(&self, now: Instant) -> Vec<ClientInfo> {
        let info = |c: &Client| ClientInfo {
            name: c.config.name.clone(),
            gateway: c.gateway().unwrap_or_default(),
            state: c.state(),
            asleep: self.is_suspended(),
            last_wake: c.ladder.last_wake(),
            ticket_expires: c.ticket().map(|t| t.expires),
            last_error: c.last_error.clone(),
            last_offer: c.last_offer.clone(),
            session: c
                .sa
                .map(Owner::Ike)
                .and_then(|sa| Some(self.session_info(now, sa, self.sessions.get(sa)?))),
        };
        self.connections.clients().map(info).collect()
    }

    /// All sessions in which this node is the gateway, and those of the key manager beside IKE.
    #[must_use]
    pub fn gateway_sessions(&self, now: Instant) -> Vec<SessionInfo> {
        let ours = self.sessions.iter().filter(|(_, session)| self.is_served(session));
        ours.map(|(owner, session)| self.session_info(now, owner, session)).collect()
    }

    /// At most `most` sessions of IKE in which this node is the gateway, in the order of their SAs, from the one behind `after` on.
    pub fn gateway_sessions_after(
        &self,
        now: Instant,
        after: Option<SaId>,
        most: usize,
    ) -> impl Iterator<Item = SessionInfo> {
        let behind = self.sessions.ike_after(after).filter(|(_, session)| self.is_served(session));
        behind.take(most).map(move |(sa, session)| self.session_info(now, Owner::Ike(sa), session))
    }

    /// How many sessions of IKE there are in which this node is the gateway.
    #[must_use]
    pub fn gateway_session_count(&self) -> usize {
        let beside = self.manager.as_ref().map(|(id, _)| *id);
        let ours = |id| self.connections.client(id).is_none() && Some(id) != beside;
        let held = self.sessions.all_held().filter(|(id, _)| ours(*id)).map(|(_, held)| held.sessions).sum();
        let counted = || self.sessions.ike_after(None).filter(|(_, session)| self.is_served(session)).count();
        debug_assert_eq!(held, counted());
        held
    }

    /// This node is the gateway of it, or its peer of the key manager beside IKE.
    fn is_served(&self, session: &Session) -> bool {
        !session.is_tentative() && self.connections.client(session.connection).is_none()
    }

    fn session_info(&self, now: Instant, owner: Owner, s: &Session) -> SessionInfo {
        let ike = owner.ike().and_then(|sa| self.ike.describe(sa));
        let described = |id: ChildId| ike.iter().flat_map(|d| &d.children).find(|c| c.id == id);
        let child = |id: &ChildId| {
            let tunnel = self.sad.get(*id)?;
            let (encr, integ) = tunnel.suite;
            Some(ChildInfo {
                id: *id,
                spi_out: tunnel.outbound.spi(),
                mode: match tunnel.mode() {
                    Mode::Tunnel => "tunnel",
                    Mode::Transport => "transport",
                    Mode::Beet(_) => "beet",
                },
                suite: integ.map_or_else(|| encr.name().into(), |i| format!("{}-{}", encr.name(), i.name())),
                zones: described(*id).map_or(1, |c| c.zones),
                readable: tunnel.is_readable(),
                share: tunnel.share(),
                takes_all: self.sad.takes_all(*id),
                signal: self.sad.signal().filter(|_| matches!(tunnel.share(), Share::Signal(_))),
                routers: described(*id).map_or_else(Vec::new, |c| c.routers.clone()),
                rekey_at: described(*id).and_then(|c| c.rekey_at),
                received: tunnel.inbound.counters(),
                sent: tunnel.outbound.counters(),
                path_mtu: tunnel.pmtu.get(now),
            })
        };
        SessionInfo {
            owner,
            connection: self.connections.name(s.connection).to_owned(),
            peer: s.peer.clone(),
            path: s.path,
            age: now - s.established,
            resumed: s.resumed,
            asleep: s.is_asleep(),
            quiet: now - s.contact.heard.unwrap_or(s.established),
            addresses: s.assigned.addresses(),
            dns: s.assigned.dns.clone(),
            children: self.sad.of(owner).iter().filter_map(child).collect(),
            stand_in: self.devices.as_ref().and_then(|d| d.info_of(s)),
            ike,
        }
    }

    /// The IKE endpoint, to look at.
    #[must_use]
    pub fn ike(&self) -> &dormouse_ike::Endpoint {
        &self.ike
    }

    /// Counters of the IKE endpoint.
    #[must_use]
    pub fn ike_stats(&self) -> &dormouse_ike::Stats {
        self.ike.stats()
    }

    /// What the node has counted.
    #[must_use]
    pub const fn counters(&self) -> &crate::Counters {
        &self.counters
    }

    /// Each connection in numbers, in the order in which they were configured.
    pub fn tallies(&self) -> impl Iterator<Item = ConnectionTally> {
        self.connections.iter().map(|(id, c)| ConnectionTally {
            connection: c.name.clone(),
            held: self.sessions.held(id),
            received: c.carried.received.get(),
            sent: c.carried.sent.get(),
        })
    }

    /// Gateway: devices that sleep without a session, and come back by ticket.
    #[must_use]
    pub fn absent_count(&self) -> usize {
        self.devices.as_ref().map_or(0, Devices::absent_count)
    }

    /// Gateway: devices that sleep and are stood in for, with a session or without.
    #[must_use]
    pub fn stood_in_for(&self) -> usize {
        self.devices.as_ref().map_or(0, Devices::sleepers)
    }
}

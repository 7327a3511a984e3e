//! What a node looks like at one moment: for `dormouse status`. Owns plain data; changes nothing.

use crate::event::{FailureKind, Offer};
use crate::ladder::{State, Wake};
use crate::node::{Node, Session};
use dormouse_esp::Counters;
use dormouse_keying::SaId;
use dormouse_sansio::{Deadline, Instant, Path, UnixTime};
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
    /// The radio sleeps.
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
    /// Name of the IKE SA.
    pub sa: SaId,
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
    /// Its name.
    pub id: u64,
    /// SPI of what we receive.
    pub spi_in: u32,
    /// SPI of what we send.
    pub spi_out: u32,
    /// `tunnel` or `transport`.
    pub mode: &'static str,
    /// Algorithms, as configured.
    pub suite: String,
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
        let info = |(name, c): (&String, &crate::client::Client)| ClientInfo {
            name: name.clone(),
            gateway: c.config.gateway.clone().unwrap_or_default(),
            state: c.ladder.state(),
            asleep: c.asleep,
            last_wake: c.ladder.last_wake(),
            ticket_expires: c.ticket().map(|t| t.expires),
            last_error: c.last_error.clone(),
            last_offer: c.last_offer.clone(),
            session: c.sa.and_then(|sa| Some(self.session_info(now, sa, self.sessions.get(&sa)?))),
        };
        self.clients.iter().map(info).collect()
    }

    /// All sessions in which this node is the gateway.
    #[must_use]
    pub fn gateway_sessions(&self, now: Instant) -> Vec<SessionInfo> {
        let ours =
            self.sessions.iter().filter(|(_, s)| !s.tentative && !self.clients.contains_key(&s.connection));
        ours.map(|(sa, session)| self.session_info(now, *sa, session)).collect()
    }

    fn session_info(&self, now: Instant, sa: SaId, s: &Session) -> SessionInfo {
        let ike = self.ike.describe(sa);
        let rekey_at = |id: u64| {
            let children = ike.iter().flat_map(|d| &d.children);
            children.filter(|c| u64::from(c.id.spi()) == id).find_map(|c| c.rekey_at)
        };
        let child = |id: &u64| {
            let child = self.sad.get(*id)?;
            Some(ChildInfo {
                id: *id,
                spi_in: child.inbound.spi(),
                spi_out: child.outbound.spi(),
                mode: match child.inbound.mode() {
                    dormouse_esp::Mode::Tunnel => "tunnel",
                    dormouse_esp::Mode::Transport => "transport",
                },
                suite: self.known.get(id).map(|k| k.suite.to_string()).unwrap_or_default(),
                rekey_at: rekey_at(*id),
                received: child.inbound.counters(),
                sent: child.outbound.counters(),
                path_mtu: child.pmtu.get(now),
            })
        };
        SessionInfo {
            sa,
            connection: s.connection.clone(),
            peer: s.peer.clone(),
            path: s.path,
            age: now - s.established,
            resumed: s.resumed,
            asleep: s.asleep.is_some(),
            quiet: now - s.heard.unwrap_or(s.established),
            addresses: s.assigned.addresses(),
            dns: s.assigned.dns.clone(),
            children: s.children.iter().filter_map(child).collect(),
            stand_in: self.stand_in_info(sa),
            ike,
        }
    }

    /// Every timer that is running, with its reason: none while the radio sleeps.
    #[must_use]
    pub fn deadlines(&self) -> Vec<Deadline> {
        let ladders = self.clients.values().filter_map(|c| c.ladder.poll_timeout());
        let upkeep = [self.ike.poll_timeout(), self.late.deadline()].into_iter().filter(|_| !self.quiet());
        upkeep.flatten().chain(ladders).chain(self.desk_deadline()).collect()
    }

    /// IKE SAs in all states, those that are being opened or deleted included.
    #[must_use]
    pub fn ike_sas(&self) -> usize {
        self.ike.len()
    }

    /// Handshakes that are half open.
    #[must_use]
    pub fn half_open(&self) -> usize {
        self.ike.half_open()
    }

    /// Gateway: what was learned about latency and load, for the driver to store.
    #[must_use]
    pub fn load_history(&self) -> &dormouse_ike::load::LoadHistory {
        self.ike.load_history()
    }

    /// Counters of the IKE endpoint.
    #[must_use]
    pub fn ike_stats(&self) -> &dormouse_ike::Stats {
        self.ike.stats()
    }

    /// Counters of the node itself.
    #[must_use]
    pub fn counters(&self) -> crate::Counters {
        self.counters
    }
}

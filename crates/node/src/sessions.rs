//! The established sessions of a node: one for each SA of a key manager. Owns what is known of the peer at the other end; must
//! never hold an SA of ESP (the SAD does) nor decide when a session ends (its key manager does).

use crate::audit::Traffic;
use crate::connections::ConnectionId;
use dormouse_ike::Mark;
use dormouse_ike::admission::Credential;
use dormouse_ike::config_payload::AssignedConfig;
use dormouse_keying::{Owner, SaId};
use dormouse_sansio::{Instant, Path};
use dormouse_standin::DeviceId;
use dormouse_wire::ike::TsRange;
use ipnet::{IpNet, Ipv4Subnets, Ipv6Subnets};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Tells peers of one connection apart.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Who {
    /// The identity: its type and data in IKE, or what another key manager shows.
    pub(crate) identity: (u8, Vec<u8>),
    /// The inner addresses that it was assigned: those of devices that share the identity differ.
    pub(crate) addresses: Vec<IpAddr>,
}

/// One established SA of a key manager.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) connection: ConnectionId,
    /// Who the peer proved to be, as it is displayed.
    pub(crate) peer: String,
    /// The same, with what tells devices of one identity apart: what is displayed alike need not be the same.
    pub(crate) who: Who,
    /// Gateway: what admitted it.
    pub(crate) credential: Option<Credential>,
    /// Gateway: other clients are out of its reach, and it out of theirs.
    pub(crate) isolate: bool,
    pub(crate) path: Path,
    pub(crate) established: Instant,
    pub(crate) resumed: bool,
    /// How the client authenticated, in the words of [`crate::audit`].
    pub(crate) method: &'static str,
    /// What tunnels of it have carried that are gone.
    pub(crate) carried: Traffic,
    /// Prefixes that lead to the peer.
    pub(crate) routes: Vec<IpNet>,
    pub(crate) assigned: AssignedConfig,
    /// When ESP was last sent and received, until IKE knows: it stands in for liveness checks and keepalives.
    pub(crate) last_sent: Option<Instant>,
    pub(crate) last_received: Option<Instant>,
    /// When ESP was last received, whether IKE knows or not.
    pub(crate) heard: Option<Instant>,
    /// What the key manager beside IKE was told last of its ESP, and when: that some has come, or that some was sent.
    pub(crate) told: Option<(bool, Instant)>,
    /// ESP was sent, ever.
    pub(crate) spoke: bool,
    /// It was resumed at once, and its client has not shown yet that it is there: nothing is sent or announced.
    pub(crate) tentative: bool,
    /// The peer's device sleeps; how far its ESP had come.
    pub(crate) asleep: Option<Vec<Mark>>,
    /// Both ends know the dormancy extension.
    pub(crate) dormancy: bool,
    /// Gateway: the device at the other end, if it is stood in for while it sleeps.
    pub(crate) device: Option<DeviceId>,
}

impl Session {
    /// A session that begins now and has carried nothing.
    pub(crate) fn new(now: Instant, connection: ConnectionId, peer: String, who: Who, path: Path) -> Self {
        Self {
            connection,
            peer,
            who,
            credential: None,
            isolate: false,
            path,
            established: now,
            resumed: false,
            method: "hip",
            carried: Traffic::default(),
            routes: Vec::new(),
            assigned: AssignedConfig::default(),
            last_sent: None,
            last_received: None,
            heard: None,
            told: None,
            spoke: false,
            tentative: false,
            asleep: None,
            dormancy: false,
            device: None,
        }
    }

    /// Of the same peer by the same connection as `other`.
    pub(crate) fn is_of_peer(&self, other: &Self) -> bool {
        (self.connection, &self.who) == (other.connection, &other.who)
    }

    /// Its peer is awake and known to be there.
    pub(crate) fn hears(&self) -> bool {
        self.asleep.is_none() && !self.tentative
    }

    /// An authentic ESP packet came in: whether it was sent after its sender announced a sleep.
    pub(crate) fn ends_sleep(&self, spi: u32, sequence: u64) -> bool {
        let marks = self.asleep.as_ref();
        marks.is_some_and(|marks| marks.iter().find(|m| m.spi == spi).is_none_or(|m| sequence > m.sequence))
    }

    /// Gateway: the peer is reached at the addresses of these selectors too. Returns the prefixes that are new. A peer that may
    /// send everything is no way to everywhere.
    pub(crate) fn add_routes(&mut self, selected: &[TsRange]) -> Vec<IpNet> {
        let mut routes = prefixes(selected);
        routes.retain(|net| net.prefix_len() > 0 && !self.routes.contains(net));
        self.routes.extend(&routes);
        routes
    }
}

/// All sessions.
#[derive(Debug, Default)]
pub(crate) struct Sessions(BTreeMap<Owner, Session>);

impl Sessions {
    pub(crate) fn insert(&mut self, owner: Owner, session: Session) {
        self.0.insert(owner, session);
    }

    pub(crate) fn remove(&mut self, owner: Owner) -> Option<Session> {
        self.0.remove(&owner)
    }

    pub(crate) fn get(&self, owner: Owner) -> Option<&Session> {
        self.0.get(&owner)
    }

    pub(crate) fn get_mut(&mut self, owner: Owner) -> Option<&mut Session> {
        self.0.get_mut(&owner)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Owner, &Session)> {
        self.0.iter().map(|(owner, session)| (*owner, session))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Owner, &mut Session)> {
        self.0.iter_mut().map(|(owner, session)| (*owner, session))
    }

    /// The IKE SAs among their owners.
    pub(crate) fn ike_sas(&self) -> Vec<SaId> {
        self.0.keys().filter_map(|owner| owner.ike()).collect()
    }

    /// The SAs of the key manager beside IKE.
    pub(crate) fn beside(&self) -> Vec<Owner> {
        self.0.keys().copied().filter(|owner| owner.ike().is_none()).collect()
    }

    /// Whether the key manager beside IKE has one: in their order, those of IKE come before.
    pub(crate) fn any_beside(&self) -> bool {
        self.0.last_key_value().is_some_and(|(owner, _)| owner.ike().is_none())
    }

    /// Some session leads to this prefix.
    pub(crate) fn lead_to(&self, route: &IpNet) -> bool {
        self.0.values().any(|s| s.routes.contains(route))
    }
}

/// Whole prefixes that cover the ranges: routes for them.
pub(crate) fn prefixes(ranges: &[TsRange]) -> Vec<IpNet> {
    let mut nets = Vec::new();
    for range in ranges {
        match (range.start, range.end) {
            (IpAddr::V4(a), IpAddr::V4(b)) => nets.extend(Ipv4Subnets::new(a, b, 0).map(IpNet::V4)),
            (IpAddr::V6(a), IpAddr::V6(b)) => nets.extend(Ipv6Subnets::new(a, b, 0).map(IpNet::V6)),
            _ => {}
        }
    }
    nets.sort_unstable();
    nets.dedup();
    nets
}

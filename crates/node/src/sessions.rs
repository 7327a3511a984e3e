//! The established sessions of a node: one for each SA of a key manager. Owns what is known of the peer at the other end; must
//! never hold an SA of ESP (the SAD does) nor decide when a session ends (its key manager does).

use crate::connections::ConnectionId;
use crate::radius::Account;
use crate::record::Traffic;
use crate::tally::Held;
use dormouse_ike::admission::Credential;
use dormouse_ike::config_payload::AssignedConfig;
use dormouse_ike::ticket::lineage::Name;
use dormouse_keying::{Mark, Owner, SaId};
use dormouse_sansio::{Carrier, Instant, Path};
use dormouse_standin::DeviceId;
use dormouse_wire::ike::TsRange;
use ipnet::{IpNet, Ipv4Subnets, Ipv6Subnets};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// A key manager beside IKE hears of ESP in one direction no more often than this.
const TELL_AGAIN: Duration = Duration::from_secs(10);

/// Tells peers of one connection apart.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Who {
    /// The identity: its type and data in IKE, or what another key manager shows.
    pub(crate) identity: (u8, Vec<u8>),
    /// The inner addresses that it was assigned: those of devices that share the identity differ.
    pub(crate) addresses: Vec<IpAddr>,
}

/// Whether the peer's device is there.
#[derive(Debug)]
pub(crate) enum Presence {
    /// The session was resumed at once, and its client has not shown yet that it is there: nothing is sent or announced.
    Tentative,
    /// It is.
    Awake,
    /// It sleeps; how far its ESP had come.
    Asleep(Vec<Mark>),
}

/// When ESP went which way, and who was told.
#[derive(Debug, Default)]
pub(crate) struct Contact {
    /// When it was last sent and received, until IKE knows: it stands in for liveness checks and keepalives.
    last_sent: Option<Instant>,
    last_received: Option<Instant>,
    /// When it was last received, whether IKE knows or not.
    pub(crate) heard: Option<Instant>,
    /// By what it came in last: each end chooses its own (RFC 7296 section 2.23).
    pub(crate) heard_by: Option<Carrier>,
    /// What the key manager beside IKE was told last, and when: that some has come, or that some was sent.
    told: Option<(bool, Instant)>,
    /// It was sent, ever.
    pub(crate) spoke: bool,
}

impl Contact {
    /// It was sent.
    pub(crate) fn sent(&mut self, now: Instant) {
        self.last_sent = Some(now);
        self.spoke = true;
    }

    /// It came in. `proves`: between the addresses at which the peer is reached.
    pub(crate) fn received(&mut self, now: Instant, carrier: Carrier, proves: bool) {
        (self.heard, self.heard_by) = (Some(now), Some(carrier));
        if proves {
            self.last_received = Some(now);
        }
    }

    /// When it was last sent and received, if IKE does not know yet; from now on it does.
    pub(crate) fn take_news(&mut self) -> Option<(Option<Instant>, Option<Instant>)> {
        let news = (self.last_sent.take(), self.last_received.take());
        (news != (None, None)).then_some(news)
    }

    /// Whether the key manager beside IKE is to be told now that some came (`heard`) or was sent; then it counts as told.
    pub(crate) fn tells(&mut self, now: Instant, heard: bool) -> bool {
        let tells = self.told.is_none_or(|(before, at)| before != heard || at + TELL_AGAIN <= now);
        if tells {
            self.told = Some((heard, now));
        }
        tells
    }
}

/// Prefixes that lead to the peer of a session. Only [`Sessions`] adds one: it finds sessions by them.
#[derive(Debug, Default)]
pub(crate) struct Routes(Vec<IpNet>);

/// One established SA of a key manager.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) connection: ConnectionId,
    /// Who the peer proved to be, as it is displayed.
    pub(crate) peer: String,
    /// The same, with what tells devices of one identity apart: what is displayed alike need not be the same.
    pub(crate) who: Arc<Who>,
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
    pub(crate) routes: Routes,
    /// Of the key manager beside IKE: from which inner address of ours.
    pub(crate) from: Option<IpAddr>,
    pub(crate) assigned: AssignedConfig,
    pub(crate) contact: Contact,
    /// Of a session in [`Sessions`] it is changed by [`Sessions::change`] alone, which counts.
    pub(crate) presence: Presence,
    /// Both ends know the dormancy extension.
    pub(crate) dormancy: bool,
    /// Gateway: the device at the other end, if it is stood in for while it sleeps.
    pub(crate) device: Option<DeviceId>,
    /// Gateway: the lineage of its tickets.
    pub(crate) lineage: Option<Name>,
    /// Gateway: what RADIUS servers are told of it.
    pub(crate) account: Option<Box<Account>>,
}

impl Session {
    /// A session that begins now and has carried nothing.
    pub(crate) fn new(now: Instant, connection: ConnectionId, peer: String, who: Who, path: Path) -> Self {
        Self {
            connection,
            peer,
            who: Arc::new(who),
            credential: None,
            isolate: false,
            path,
            established: now,
            resumed: false,
            method: "hip",
            carried: Traffic::default(),
            routes: Routes::default(),
            from: None,
            assigned: AssignedConfig::default(),
            contact: Contact::default(),
            presence: Presence::Awake,
            dormancy: false,
            device: None,
            lineage: None,
            account: None,
        }
    }

    /// Of the same peer by the same connection as `other`.
    pub(crate) fn is_of_peer(&self, other: &Self) -> bool {
        (self.connection, &self.who) == (other.connection, &other.who)
    }

    /// See [`Presence::Tentative`].
    pub(crate) fn is_tentative(&self) -> bool {
        matches!(self.presence, Presence::Tentative)
    }

    /// The peer's device sleeps.
    pub(crate) fn is_asleep(&self) -> bool {
        matches!(self.presence, Presence::Asleep(_))
    }

    /// Its peer is awake and known to be there.
    pub(crate) fn hears(&self) -> bool {
        matches!(self.presence, Presence::Awake)
    }

    /// The peer's device goes to sleep. A tentative session stays one: what is said on it counts when it is confirmed.
    pub(crate) fn falls_asleep(&mut self, marks: Vec<Mark>) {
        if !self.is_tentative() {
            self.presence = Presence::Asleep(marks);
        }
    }

    /// The peer's device is awake.
    pub(crate) fn wakes(&mut self) {
        if self.is_asleep() {
            self.presence = Presence::Awake;
        }
    }

    /// An authentic ESP packet came in: whether it was sent after its sender announced a sleep.
    pub(crate) fn ends_sleep(&self, spi: u32, sequence: u64) -> bool {
        let Presence::Asleep(marks) = &self.presence else { return false };
        marks.iter().find(|m| m.spi == spi).is_none_or(|m| sequence > m.sequence)
    }

    /// Prefixes that lead to the peer.
    pub(crate) fn routes(&self) -> &[IpNet] {
        &self.routes.0
    }
}

/// All sessions, found by their SA, by a prefix that leads to their peer, and by their peer, in a time that hardly depends on their number.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    /// Boxed: the map's nodes are half empty.
    all: BTreeMap<Owner, Box<Session>>,
    leads: BTreeSet<(IpNet, Owner)>,
    peers: BTreeSet<(ConnectionId, Arc<Who>, Owner)>,
    /// How many there are: counted as they come, go, sleep and wake.
    held: BTreeMap<ConnectionId, Held>,
}

/// No owner is before this one.
const FIRST: Owner = Owner::Ike(SaId::new(0));

impl Sessions {
    pub(crate) fn insert(&mut self, owner: Owner, session: Session) {
        self.remove(owner);
        self.peers.insert((session.connection, session.who.clone(), owner));
        self.leads.extend(session.routes().iter().map(|route| (*route, owner)));
        self.count(&session, true);
        self.all.insert(owner, Box::new(session));
    }

    pub(crate) fn remove(&mut self, owner: Owner) -> Option<Session> {
        let session = *self.all.remove(&owner)?;
        self.count(&session, false);
        self.peers.remove(&(session.connection, session.who.clone(), owner));
        for route in session.routes() {
            self.leads.remove(&(*route, owner));
        }
        Some(session)
    }

    /// Changes whether a session's peer is there, or sleeps.
    pub(crate) fn change(&mut self, owner: Owner, change: impl FnOnce(&mut Session)) {
        let Some(mut session) = self.all.remove(&owner) else { return };
        self.count(&session, false);
        change(&mut session);
        self.count(&session, true);
        self.all.insert(owner, session);
    }

    /// It is held from now on, or no longer. One that may be a copied request's does not count.
    fn count(&mut self, session: &Session, comes: bool) {
        if session.is_tentative() {
            return;
        }
        let held = self.held.entry(session.connection).or_default();
        let asleep = usize::from(session.is_asleep());
        if comes {
            held.sessions += 1;
            held.asleep += asleep;
        } else {
            held.sessions = held.sessions.saturating_sub(1);
            held.asleep = held.asleep.saturating_sub(asleep);
        }
    }

    /// How many each connection has, also one that the configuration does not have any more.
    pub(crate) fn all_held(&self) -> impl Iterator<Item = (ConnectionId, Held)> {
        self.held.iter().map(|(connection, held)| (*connection, *held))
    }

    /// How many a connection has.
    pub(crate) fn held(&self, connection: ConnectionId) -> Held {
        self.held.get(&connection).copied().unwrap_or_default()
    }

    /// Gateway: the peer is reached at the addresses of these selectors too. Returns the prefixes that are new. A peer that may
    /// send everything is no way to everywhere.
    pub(crate) fn add_routes(&mut self, owner: Owner, selected: &[TsRange]) -> Vec<IpNet> {
        let Some(session) = self.all.get_mut(&owner) else { return Vec::new() };
        let mut routes = prefixes(selected);
        routes.retain(|net| net.prefix_len() > 0 && !session.routes().contains(net));
        session.routes.0.extend(&routes);
        self.leads.extend(routes.iter().map(|route| (*route, owner)));
        routes
    }

    /// Gateway: nothing leads to the peer any more. Returns what did, and no other session does.
    pub(crate) fn take_routes(&mut self, owner: Owner) -> Vec<IpNet> {
        let Some(session) = self.all.get_mut(&owner) else { return Vec::new() };
        let mut routes = std::mem::take(&mut session.routes.0);
        for route in &routes {
            self.leads.remove(&(*route, owner));
        }
        routes.retain(|route| !self.lead_to(route));
        routes
    }

    /// Some session leads to this prefix.
    pub(crate) fn lead_to(&self, route: &IpNet) -> bool {
        self.leads.range((*route, FIRST)..).next().is_some_and(|(other, _)| other == route)
    }

    /// The session that was given this inner address.
    pub(crate) fn of_address(&self, address: IpAddr) -> Option<&Session> {
        let net = IpNet::from(address);
        let theirs = self.leads.range((net, FIRST)..).take_while(|(route, _)| *route == net);
        let mut sessions = theirs.filter_map(|(_, owner)| self.get(*owner));
        sessions.find(|session| session.assigned.addresses().contains(&address) && !session.is_tentative())
    }

    /// The sessions of the same peer by the same connection as `session`.
    pub(crate) fn of_peer(&self, session: &Session) -> impl Iterator<Item = &Session> {
        self.of_who(session.connection, &session.who)
    }

    /// The sessions of this peer by this connection.
    pub(crate) fn of_who(&self, connection: ConnectionId, who: &Arc<Who>) -> impl Iterator<Item = &Session> {
        self.owners_of(connection, who).filter_map(|owner| self.get(owner))
    }

    /// The owners of those of the same peer by the same connection as `session`.
    pub(crate) fn owners_of_peer(&self, session: &Session) -> impl Iterator<Item = Owner> {
        self.owners_of(session.connection, &session.who)
    }

    fn owners_of(&self, connection: ConnectionId, who: &Arc<Who>) -> impl Iterator<Item = Owner> {
        let from = self.peers.range((connection, who.clone(), FIRST)..);
        from.take_while(move |(c, w, _)| (*c, w) == (connection, who)).map(|(_, _, owner)| *owner)
    }

    pub(crate) fn get(&self, owner: Owner) -> Option<&Session> {
        self.all.get(&owner).map(AsRef::as_ref)
    }

    pub(crate) fn get_mut(&mut self, owner: Owner) -> Option<&mut Session> {
        self.all.get_mut(&owner).map(AsMut::as_mut)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Owner, &Session)> {
        self.all.iter().map(|(owner, session)| (*owner, session.as_ref()))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Owner, &mut Session)> {
        self.all.iter_mut().map(|(owner, session)| (*owner, session.as_mut()))
    }

    /// The sessions of IKE behind that of an SA, in the order of their SAs; without one, all.
    pub(crate) fn ike_after(&self, after: Option<SaId>) -> impl Iterator<Item = (SaId, &Session)> {
        let from = after.map_or(Bound::Unbounded, |sa| Bound::Excluded(Owner::Ike(sa)));
        let behind = self.all.range((from, Bound::Unbounded));
        behind.filter_map(|(owner, session)| Some((owner.ike()?, session.as_ref())))
    }

    /// The IKE SAs among their owners.
    pub(crate) fn ike_sas(&self) -> Vec<SaId> {
        self.all.keys().filter_map(|owner| owner.ike()).collect()
    }

    /// The SAs of the key manager beside IKE.
    pub(crate) fn beside(&self) -> Vec<Owner> {
        self.all.keys().copied().filter(|owner| owner.ike().is_none()).collect()
    }

    /// Whether the key manager beside IKE has one: in their order, those of IKE come before.
    pub(crate) fn any_beside(&self) -> bool {
        self.all.last_key_value().is_some_and(|(owner, _)| owner.ike().is_none())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::Connections;
    use dormouse_sansio::Carrier;
    use std::net::SocketAddr;

    fn session() -> Session {
        let at = |n| SocketAddr::from(([192, 0, 2, n], 500));
        let path = Path { local: at(1), remote: at(2), carrier: Carrier::Ike };
        let who = Who { identity: (2, b"a.test".to_vec()), addresses: Vec::new() };
        let connection = Connections::default().add("office".to_owned(), None);
        Session::new(Instant::ZERO, connection, "a.test".to_owned(), who, path)
    }

    #[test]
    fn only_a_device_that_is_there_falls_asleep_and_wakes() {
        let mut session = session();
        session.presence = Presence::Tentative;
        session.falls_asleep(Vec::new());
        session.wakes();
        assert!(session.is_tentative() && !session.hears(), "it has confirmed nothing");
        session.presence = Presence::Awake;
        session.falls_asleep(vec![Mark { spi: 7, sequence: 5 }]);
        assert!(session.is_asleep() && !session.hears());
        assert_eq!([5, 6].map(|sequence| session.ends_sleep(7, sequence)), [false, true]);
        assert!(session.ends_sleep(8, 1), "a tunnel that was not there before");
        session.wakes();
        assert!(session.hears() && !session.ends_sleep(7, 6));
    }

    #[test]
    fn sessions_are_found_by_route_and_by_peer() {
        let [one, two] = [1, 2].map(|number| Owner::Ike(SaId::new(number)));
        let net: IpNet = "10.1.0.7/32".parse().expect("a prefix");
        let only = TsRange { start: net.addr(), end: net.addr(), ..TsRange::any_v4() };
        let mut sessions = Sessions::default();
        for owner in [one, two] {
            sessions.insert(owner, session());
            assert_eq!(sessions.add_routes(owner, &[only, only]), [net]);
            assert_eq!(sessions.add_routes(owner, &[only]), [], "known");
        }
        assert!(sessions.of_address(net.addr()).is_none(), "it leads there, and was not given it");
        for owner in [one, two] {
            let given = AssignedConfig { v4: Some([10, 1, 0, 7].into()), ..AssignedConfig::default() };
            sessions.change(owner, |s| (s.assigned, s.presence) = (given, Presence::Tentative));
        }
        assert!(sessions.of_address(net.addr()).is_none(), "tentative ones may be a copied request's");
        for owner in [one, two] {
            sessions.change(owner, |s| s.presence = Presence::Awake);
        }
        assert!(sessions.of_address(net.addr()).is_some());
        assert!(sessions.of_address([10, 1, 0, 8].into()).is_none());
        let ended = sessions.remove(one).expect("a session");
        assert!(sessions.lead_to(&net) && sessions.of_peer(&ended).count() == 1);
        sessions.insert(two, session());
        assert!(!sessions.lead_to(&net) && sessions.of_peer(&ended).count() == 1, "another in its place");
        sessions.remove(two);
        assert!(
            sessions.of_peer(&ended).count() == 0 && sessions.peers.is_empty() && sessions.leads.is_empty()
        );
    }

    #[test]
    fn each_is_told_of_esp_once() {
        let (mut contact, now) = (Contact::default(), Instant::ZERO);
        assert_eq!(contact.take_news(), None);
        contact.sent(now);
        contact.received(now, Carrier::NatT, false);
        assert_eq!(contact.take_news(), Some((Some(now), None)), "what came elsewhere proves nothing");
        assert_eq!((contact.take_news(), contact.heard), (None, Some(now)));
        assert!(contact.tells(now, true) && !contact.tells(now, true) && contact.tells(now, false));
        assert!(contact.tells(now + TELL_AGAIN, false) && !contact.tells(now + TELL_AGAIN, false));
    }
}

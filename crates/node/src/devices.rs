//! The gateway's stand-in, joined to its sessions: which device a session is, when it sleeps and when it is back, and what waits
//! for it. Owns the names of devices; what is answered and kept is `dormouse-standin`'s.
//!
//! A device is a peer that knows the dormancy extension, by the identity that it proved: so it is the same one when its SA was
//! released and it comes back by ticket. While it is away without an SA its routes stay, and packets to its addresses go to
//! the stand-in.

mod moves;
mod unclaimed;

use self::unclaimed::Unclaimed;

use crate::connections::ConnectionId;
use crate::event::{Event, Kept, Order};
use crate::node::Node;
use crate::sessions::{Session, Sessions, Who};
use dormouse_ike::admission::Credential;
use dormouse_ike::ticket::lineage::Name;
use dormouse_keying::{ChildId, Owner, SleepFlags};
use dormouse_sansio::{Deadline, Instant};
use dormouse_standin::{Counters, DeviceId, Limits, Observer, Service, SleepInfo, StandIn, Verdict};
use dormouse_wire::ip::Flow;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// A device may come back this much later than it said, and a tenth of its sleep.
const GRACE: Duration = Duration::from_secs(30);

/// The devices that the stand-in serves.
#[derive(Debug)]
pub(crate) struct Devices {
    stand_in: StandIn,
    /// Nothing is kept for longer.
    longest: Duration,
    ids: BTreeMap<(ConnectionId, Arc<Who>), DeviceId>,
    known: BTreeMap<DeviceId, Box<Known>>,
    /// The leases that are kept from others while a device sleeps that is stood in for.
    pins: BTreeMap<DeviceId, Vec<IpAddr>>,
    /// Leases to be pinned (`true`) for a device, or no longer.
    lease_orders: VecDeque<(DeviceId, bool)>,
    /// By the lineage of their last session.
    of_lineage: BTreeMap<Name, DeviceId>,
    /// Devices that sleep without an SA, with the routes that were left to them.
    absent: BTreeMap<DeviceId, Vec<IpNet>>,
    unclaimed: Unclaimed,
    /// Lineages whose clients were told to go to another gateway.
    leaving: BTreeSet<Name>,
    next: u64,
}

/// What is known of a device besides what the stand-in knows.
#[derive(Debug)]
struct Known {
    connection: ConnectionId,
    who: Arc<Who>,
    /// Who, as displayed.
    peer: String,
    /// Where it is reached.
    addresses: Vec<IpAddr>,
    /// What admitted it.
    credential: Option<Credential>,
    /// Other clients do not reach it.
    isolate: bool,
    /// Of its last session.
    lineage: Option<Name>,
}

/// What a change of a device has to do with: it may take routes back, and hand out what was kept.
pub(crate) struct Around<'a> {
    pub(crate) sessions: &'a mut Sessions,
    pub(crate) events: &'a mut VecDeque<Event>,
}

/// What a stand-in does for one device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StandInInfo {
    /// Its sleep, if it sleeps.
    pub asleep: Option<SleepInfo>,
    /// What was done for it since it came.
    pub counters: Counters,
}

/// A device that sleeps without an SA.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AbsentInfo {
    /// The connection that it came in by.
    pub connection: String,
    /// Who.
    pub peer: String,
    /// The same as the type and data of RFC 7296, section 3.5.
    pub identity: (u8, Vec<u8>),
    /// Prefixes that are left to it.
    pub routes: Vec<IpNet>,
    /// What is done for it.
    pub stand_in: StandInInfo,
}

impl Devices {
    /// The device of a session's peer.
    pub(crate) fn of(&self, session: &Session) -> Option<DeviceId> {
        self.ids.get(&(session.connection, session.who.clone())).copied()
    }

    /// A session of its peer can be used: the device from now on; `None` if it is not served.
    fn enrol(&mut self, now: Instant, session: &Session) -> Option<DeviceId> {
        let host = |net: &&IpNet| net.prefix_len() == net.max_prefix_len();
        let addresses: Vec<IpAddr> = session.routes().iter().filter(host).map(IpNet::addr).collect();
        let known = Known {
            connection: session.connection,
            who: session.who.clone(),
            peer: session.peer.clone(),
            addresses,
            credential: session.credential.clone(),
            isolate: session.isolate,
            lineage: session.lineage,
        };
        self.know(now, known)
    }

    /// This is known of a device from now on, which may be one that is known already; `None` if it is not served.
    fn know(&mut self, now: Instant, mut known: Known) -> Option<DeviceId> {
        let key = (known.connection, known.who.clone());
        let id = *self.ids.entry(key.clone()).or_insert_with(|| {
            self.next += 1;
            DeviceId(self.next)
        });
        if !self.stand_in.enrol(now, id, &known.addresses) {
            self.forget(id);
            self.ids.remove(&key);
            return None;
        }
        let before = self.known.remove(&id).and_then(|known| {
            if let Some(lineage) = known.lineage {
                self.of_lineage.remove(&lineage);
                self.leaving.remove(&lineage);
            }
            known.credential
        });
        known.credential = known.credential.or(before);
        self.of_lineage.extend(known.lineage.map(|lineage| (lineage, id)));
        self.known.insert(id, Box::new(known));
        Some(id)
    }

    /// Devices that sleep without an SA.
    pub(crate) fn absent_count(&self) -> usize {
        self.absent.len()
    }

    /// Devices that sleep and are stood in for.
    pub(crate) fn sleepers(&self) -> usize {
        self.stand_in.sleepers()
    }

    /// The routes that are left to devices that sleep without an SA.
    pub(crate) fn routes_of_absent(&self) -> impl Iterator<Item = &IpNet> {
        self.absent.values().flatten()
    }

    /// Another engine carries the packets of an awake device, and shows them to this one.
    pub(crate) fn lend(&mut self, id: DeviceId) -> Option<Observer> {
        self.stand_in.lend(id)
    }

    /// They pass here again.
    pub(crate) fn take_back(&mut self, now: Instant, id: DeviceId, observer: Observer) {
        self.stand_in.take_back(now, id, observer);
    }

    fn info(&self, id: DeviceId) -> Option<StandInInfo> {
        Some(StandInInfo { asleep: self.stand_in.asleep(id), counters: self.stand_in.counters(id)?.clone() })
    }

    fn forget(&mut self, id: DeviceId) {
        self.stand_in.forget(id);
        if let Some(Known { connection, who, lineage, .. }) = self.known.remove(&id).map(|known| *known) {
            self.ids.remove(&(connection, who));
            if let Some(lineage) = lineage {
                self.of_lineage.remove(&lineage);
                self.leaving.remove(&lineage);
            }
        }
        self.lease_orders.push_back((id, false));
    }

    // ---- sessions -------------------------------------------------------------------------------------------------

    /// A session of a peer can be used: its device is known, and back if it slept.
    pub(crate) fn session_installed(&mut self, now: Instant, owner: Owner, around: &mut Around<'_>) {
        let Some(session) = around.sessions.get_mut(owner) else { return };
        if !session.dormancy {
            // Back with a program that does not know of sleep.
            if let Some(id) = self.of(session) {
                self.awake(now, id, around);
            }
            return;
        }
        session.device = self.enrol(now, session).or(session.device);
        // A new tunnel of a session that sleeps is a successor that was made before; a new session is the device itself.
        let (asleep, device) = (session.is_asleep(), session.device);
        session.lineage.iter().for_each(|lineage| _ = self.leaving.remove(lineage));
        if let (false, Some(id)) = (asleep, device) {
            self.awake(now, id, around);
        }
        if let Some(id) = device.filter(|_| !self.unclaimed.is_empty()) {
            self.claim(now, id, around);
        }
    }

    /// The device of a session announced its sleep.
    pub(crate) fn sleeps(
        &mut self,
        now: Instant,
        session: &Session,
        hold: Instant,
        flags: SleepFlags,
        expect: Option<Duration>,
    ) {
        let Some(id) = self.of(session) else { return };
        let service = Service { answer: flags.stand_in, keep: flags.buffering };
        if service == (Service { answer: false, keep: false }) {
            return;
        }
        let wanted = expect.map_or(self.longest, |e| e.saturating_add(e / 10).saturating_add(GRACE));
        // While its session is held it may come back at any moment, however long it expected to sleep.
        let until = hold.max(now + wanted).min(now + self.longest);
        if self.stand_in.sleeps(now, id, service, until) {
            self.lease_orders.push_back((id, true));
        }
    }

    /// The device of a session is awake.
    pub(crate) fn session_awake(&mut self, now: Instant, owner: Owner, around: &mut Around<'_>) {
        if let Some(id) = around.sessions.get(owner).and_then(|session| self.of(session)) {
            self.awake(now, id, around);
        }
    }

    fn awake(&mut self, now: Instant, id: DeviceId, around: &mut Around<'_>) {
        let kept = self.absent.remove(&id);
        let packets = self.stand_in.wakes(now, id);
        let packets: Vec<Kept> = packets.into_iter().map(|packet| Kept { device: id, packet }).collect();
        self.give_routes_up(kept.unwrap_or_default(), around);
        self.lease_orders.push_back((id, false));
        if !packets.is_empty() {
            around.events.push_back(Event::Deliver { packets });
        }
    }

    /// A session has ended, the last of its peer or not. True if its device sleeps and its routes stay.
    pub(crate) fn session_ended(&mut self, session: &Session, sessions: &Sessions) -> bool {
        let Some(id) = self.of(session) else { return false };
        if sessions.of_peer(session).any(|s| !s.is_tentative()) {
            return false;
        }
        if self.stand_in.asleep(id).is_none() {
            self.forget(id);
            return false;
        }
        self.absent.insert(id, session.routes().to_vec());
        true
    }

    /// Nothing more is done for the devices of some peers: their sessions end, and what waits for them is dropped. `meant` is asked
    /// with the connection, the peer, its identity as it is displayed, and what admitted it. Returns how many devices were meant.
    pub(crate) fn dismiss(
        &mut self,
        meant: impl Fn(ConnectionId, &Who, Option<&Credential>) -> bool,
        around: &mut Around<'_>,
    ) -> usize {
        let meant = self.known.iter().filter(|(_, k)| meant(k.connection, &k.who, k.credential.as_ref()));
        let ids: Vec<DeviceId> = meant.map(|(id, _)| *id).collect();
        ids.iter().for_each(|id| self.drop_all_of(*id, around));
        ids.len()
    }

    /// Another gateway has the device now, whose last session here was of this lineage: what waits for it is dropped, and its routes are
    /// taken back.
    pub(crate) fn gone_elsewhere(&mut self, lineage: Name, around: &mut Around<'_>) {
        if let Some(id) = self.of_lineage.get(&lineage) {
            self.drop_all_of(*id, around);
        }
    }

    /// These addresses are another's now: nothing more is done for devices that were assigned them.
    pub(crate) fn lose_addresses(&mut self, addresses: &[IpAddr], around: &mut Around<'_>) {
        let has = |known: &Known| known.who.addresses.iter().any(|address| addresses.contains(address));
        let meant = self.known.iter().filter(|(_, known)| has(known));
        let ids: Vec<DeviceId> = meant.map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.drop_all_of(id, around));
    }

    fn drop_all_of(&mut self, id: DeviceId, around: &mut Around<'_>) {
        let routes = self.absent.remove(&id);
        self.forget(id);
        self.give_routes_up(routes.unwrap_or_default(), around);
    }

    /// Whether other clients reach the device of a session is another matter from now on.
    pub(crate) fn isolate(&mut self, session: &Session) {
        if let Some(known) = self.of(session).and_then(|id| self.known.get_mut(&id)) {
            known.isolate = session.isolate;
        }
    }

    /// Whether the device is one that other clients do not reach.
    pub(crate) fn is_isolated(&self, id: DeviceId) -> bool {
        self.known.get(&id).is_some_and(|known| known.isolate)
    }

    /// Routes of a device that was away: those that no session has now are taken back.
    fn give_routes_up(&self, routes: Vec<IpNet>, around: &mut Around<'_>) {
        let still = |route: &IpNet| {
            around.sessions.lead_to(route) || self.absent.values().flatten().any(|r| r == route)
        };
        let routes: Vec<IpNet> = routes.into_iter().filter(|r| !still(r)).collect();
        if !routes.is_empty() {
            around.events.push_back(Event::Order(Order::PeerGone { routes }));
        }
    }

    // ---- time -----------------------------------------------------------------------------------------------------

    pub(crate) fn poll_timeout(&self) -> Option<Deadline> {
        self.stand_in.poll_timeout()
    }

    pub(crate) fn timers(&self) -> impl Iterator<Item = Deadline> {
        self.stand_in.timers()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, around: &mut Around<'_>) {
        if self.stand_in.poll_timeout().is_none_or(|d| d.at > now) {
            return;
        }
        let mut routes = Vec::new();
        for id in self.stand_in.handle_timeout(now) {
            self.lease_orders.push_back((id, false));
            if let Some(left) = self.absent.remove(&id) {
                routes.extend(left);
                self.forget(id);
            }
        }
        self.give_routes_up(routes, around);
    }

    // ---- packets --------------------------------------------------------------------------------------------------

    /// Whether a device sleeps and is stood in for.
    pub(crate) fn is_asleep(&self, id: DeviceId) -> bool {
        self.stand_in.sleepers() > 0 && self.stand_in.asleep(id).is_some()
    }

    /// The device that sleeps at the destination of a packet, if there is no tunnel to it.
    pub(crate) fn sleeping_at(&self, flow: &Flow) -> Option<DeviceId> {
        if self.stand_in.sleepers() > 0 { self.stand_in.sleeper(flow.dst) } else { None }
    }

    /// A packet to a device is about to be sealed.
    pub(crate) fn observe_outbound(&mut self, now: Instant, id: DeviceId, packet: &[u8]) {
        self.stand_in.observe_outbound(now, id, packet);
    }

    /// A packet of a device came in.
    pub(crate) fn observe_inbound(&mut self, now: Instant, id: DeviceId, packet: &[u8]) {
        self.stand_in.observe_inbound(now, id, packet);
    }

    // ---- for status -----------------------------------------------------------------------------------------------

    /// What is done for the device of a session.
    pub(crate) fn info_of(&self, session: &Session) -> Option<StandInInfo> {
        self.info(self.of(session)?)
    }
}

impl Node {
    /// Gateway: stands in for devices that sleep, within `limits`, and keeps nothing for longer than `longest`. Before the first
    /// session; what devices are promised is [`dormouse_ike::config::HoldPolicy::services`].
    pub fn stand_in_for_sleepers(&mut self, limits: Limits, longest: Duration) {
        let stand_in = StandIn::new(limits);
        self.devices = Some(Devices {
            stand_in,
            longest,
            ids: BTreeMap::new(),
            known: BTreeMap::new(),
            of_lineage: BTreeMap::new(),
            pins: BTreeMap::new(),
            lease_orders: VecDeque::new(),
            absent: BTreeMap::new(),
            unclaimed: Unclaimed::default(),
            leaving: BTreeSet::new(),
            next: 0,
        });
        self.note_links();
    }

    /// The clients of one pool are on one link: today's pools.
    pub(crate) fn note_links(&mut self) {
        if let Some(devices) = &mut self.devices {
            devices.stand_in.set_links(self.ike.pool_prefixes());
        }
    }

    /// Lets the devices act on sessions and events, if they are served at all.
    pub(crate) fn with_devices(&mut self, f: impl FnOnce(&mut Devices, &mut Around<'_>)) {
        if let Some(devices) = &mut self.devices {
            f(devices, &mut Around { sessions: &mut self.sessions, events: &mut self.events });
        }
        self.pin_leases();
    }

    /// Keeps the leases of devices that sleep from others, as long as something may be kept for them.
    pub(crate) fn pin_leases(&mut self) {
        let (Some(devices), Some(pool)) = (&mut self.devices, self.ike.pool()) else { return };
        while let Some((id, pin)) = devices.lease_orders.pop_front() {
            if !pin {
                devices.pins.remove(&id).into_iter().flatten().for_each(|address| pool.unpin(address));
            } else if !devices.pins.contains_key(&id) {
                let addresses =
                    devices.known.get(&id).map(|known| known.addresses.clone()).unwrap_or_default();
                let pinned = addresses.into_iter().filter(|address| pool.pin(*address)).collect();
                devices.pins.insert(id, pinned);
            }
        }
    }

    /// The device of a session announced its sleep: it is stood in for, as it was granted.
    pub(crate) fn stand_in_begins(
        &mut self,
        now: Instant,
        owner: Owner,
        until: Instant,
        flags: SleepFlags,
        expect: Option<Duration>,
    ) {
        if let Some((devices, session)) = self.devices.as_mut().zip(self.sessions.get(owner)) {
            devices.sleeps(now, session, until, flags, expect);
        }
        self.pin_leases();
    }

    /// Whether a tunnel is one of this device's own.
    pub(crate) fn belongs_to(&self, child: ChildId, device: DeviceId) -> bool {
        let session = self.sad.get(child).and_then(|tunnel| self.sessions.get(tunnel.owner));
        session.zip(self.devices.as_ref()).is_some_and(|(s, devices)| devices.of(s) == Some(device))
    }

    /// A packet for a device that sleeps ([`crate::Route::StandIn`]). What is appended to `out` goes back to the network it came
    /// from. `None` if the device is awake again.
    pub fn stand_in(
        &mut self,
        now: Instant,
        device: DeviceId,
        packet: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<Verdict> {
        self.devices.as_mut()?.stand_in.handle(now, device, packet, out)
    }

    /// A packet that the stand-in sends on its own to the network on the gateway's side, appended to `out`. After
    /// [`Node::poll_event`], until it returns false.
    pub fn poll_stand_in(&mut self, out: &mut Vec<u8>) -> bool {
        self.devices.as_mut().is_some_and(|d| d.stand_in.poll_transmit(out))
    }

    /// Gateway: devices that sleep without an SA, by connection and name.
    #[must_use]
    pub fn absent_devices(&self) -> Vec<AbsentInfo> {
        let Some(devices) = &self.devices else { return Vec::new() };
        let info = |(id, routes): (&DeviceId, &Vec<IpNet>)| {
            let known = devices.known.get(id)?;
            Some(AbsentInfo {
                connection: self.connections.name(known.connection).to_owned(),
                peer: known.peer.clone(),
                identity: known.who.identity.clone(),
                routes: routes.clone(),
                stand_in: devices.info(*id)?,
            })
        };
        devices.absent.iter().filter_map(info).collect()
    }

    /// Gateway: what the stand-in did for all devices, and the packets that wait now with the bytes that they cost; `None` if
    /// there is none.
    #[must_use]
    pub fn stand_in_totals(&self) -> Option<(Counters, (usize, usize))> {
        self.devices.as_ref().map(|d| (d.stand_in.totals().clone(), d.stand_in.waiting()))
    }
}

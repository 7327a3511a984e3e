//! The gateway's stand-in, joined to its sessions: which device a session is, when it sleeps and when it is back, and what waits
//! for it. Owns the names of devices; what is answered and kept is `dormouse-standin`'s.
//!
//! A device is a peer that knows the dormancy extension, by the identity that it proved: so it is the same one when its SA was
//! released and it comes back by ticket. While it is away without an SA its routes stay, and packets to its addresses go to
//! the stand-in.

use crate::connections::ConnectionId;
use crate::event::Event;
use crate::node::Node;
use crate::sessions::Session;
use dormouse_ike::SleepFlags;
use dormouse_keying::{Owner, SaId};
use dormouse_sansio::{Deadline, Instant};
use dormouse_standin::{Asleep, Counters, DeviceId, Limits, Service, StandIn, Verdict};
use dormouse_wire::ip::Flow;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// A device may come back this much later than it said, and a tenth of its sleep.
const GRACE: Duration = Duration::from_secs(30);

/// The devices that the stand-in serves.
#[derive(Debug)]
pub(crate) struct Devices {
    stand_in: StandIn,
    /// Nothing is kept for longer.
    longest: Duration,
    /// By connection and peer.
    ids: BTreeMap<(ConnectionId, String), DeviceId>,
    /// Devices that sleep without an SA, with the routes that were left to them.
    absent: BTreeMap<DeviceId, Vec<IpNet>>,
    next: u64,
}

/// What a stand-in does for one device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StandInInfo {
    /// Its sleep, if it sleeps.
    pub asleep: Option<Asleep>,
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
    /// Prefixes that are left to it.
    pub routes: Vec<IpNet>,
    /// What is done for it.
    pub stand_in: StandInInfo,
}

impl Devices {
    fn key(session: &Session) -> (ConnectionId, String) {
        (session.connection, session.peer.clone())
    }

    /// The device of a session's peer.
    fn of(&self, session: &Session) -> Option<DeviceId> {
        self.ids.get(&Self::key(session)).copied()
    }

    /// A session of its peer can be used: the device from now on; `None` if it is not served.
    fn enrol(&mut self, now: Instant, session: &Session) -> Option<DeviceId> {
        let key = Self::key(session);
        let id = *self.ids.entry(key.clone()).or_insert_with(|| {
            self.next += 1;
            DeviceId(self.next)
        });
        let host = |net: &&IpNet| net.prefix_len() == net.max_prefix_len();
        let addresses: Vec<IpAddr> = session.routes.iter().filter(host).map(IpNet::addr).collect();
        if self.stand_in.enrol(now, id, &addresses) {
            return Some(id);
        }
        self.ids.remove(&key);
        None
    }

    fn info(&self, id: DeviceId) -> Option<StandInInfo> {
        Some(StandInInfo { asleep: self.stand_in.asleep(id), counters: self.stand_in.counters(id)?.clone() })
    }

    fn forget(&mut self, id: DeviceId) {
        self.stand_in.forget(id);
        self.ids.retain(|_, known| *known != id);
    }

    /// A packet to a device is about to be sealed.
    pub(crate) fn observe_outbound(&mut self, now: Instant, id: DeviceId, packet: &[u8]) {
        self.stand_in.observe_outbound(now, id, packet);
    }

    /// A packet of a device came in.
    pub(crate) fn observe_inbound(&mut self, now: Instant, id: DeviceId, packet: &[u8]) {
        self.stand_in.observe_inbound(now, id, packet);
    }
}

impl Node {
    /// Gateway: stands in for devices that sleep, within `limits`, and keeps nothing for longer than `longest`. Before the first
    /// session; what devices are promised is [`dormouse_ike::config::HoldPolicy::services`].
    pub fn stand_in_for_sleepers(&mut self, limits: Limits, longest: Duration) {
        let stand_in = StandIn::new(limits);
        let (ids, absent) = (BTreeMap::new(), BTreeMap::new());
        self.devices = Some(Devices { stand_in, longest, ids, absent, next: 0 });
    }

    // ---- sessions -------------------------------------------------------------------------------------------------

    /// A tunnel of a peer is installed: its device is known, and back if it slept.
    pub(crate) fn device_installed(&mut self, now: Instant, owner: Owner) {
        let (Some(devices), Some(session)) = (&mut self.devices, self.sessions.get_mut(owner)) else {
            return;
        };
        if !session.dormancy {
            // Back with a program that does not know of sleep.
            if let Some(id) = devices.of(session) {
                self.device_awake(now, id);
            }
            return;
        }
        session.device = devices.enrol(now, session).or(session.device);
        // A new tunnel of a session that sleeps is a successor that was made before; a new session is the device itself.
        if let (None, Some(id)) = (&session.asleep, session.device) {
            self.device_awake(now, id);
        }
    }

    /// A device announced its sleep.
    pub(crate) fn device_sleeps(
        &mut self,
        now: Instant,
        sa: SaId,
        hold: Instant,
        flags: SleepFlags,
        expect: Option<Duration>,
    ) {
        let (Some(devices), Some(session)) = (&mut self.devices, self.sessions.get(Owner::Ike(sa))) else {
            return;
        };
        let Some(id) = devices.of(session) else { return };
        let service = Service { answer: flags.stand_in, keep: flags.buffering };
        if service == (Service { answer: false, keep: false }) {
            return;
        }
        let wanted = expect.map_or(devices.longest, |e| e.saturating_add(e / 10).saturating_add(GRACE));
        // While its session is held it may come back at any moment, however long it expected to sleep.
        let until = hold.max(now + wanted).min(now + devices.longest);
        devices.stand_in.sleeps(now, id, service, until);
    }

    /// The device of a session is awake.
    pub(crate) fn device_of_session_awake(&mut self, now: Instant, owner: Owner) {
        let session = self.sessions.get(owner);
        if let Some(id) = session.and_then(|s| self.devices.as_ref()?.of(s)) {
            self.device_awake(now, id);
        }
    }

    fn device_awake(&mut self, now: Instant, id: DeviceId) {
        let Some(devices) = &mut self.devices else { return };
        let kept = devices.absent.remove(&id);
        let packets = devices.stand_in.wakes(now, id);
        if let Some(routes) = kept {
            self.give_routes_up(routes);
        }
        if !packets.is_empty() {
            self.push(Event::Deliver { packets });
        }
    }

    /// A session has ended. True if its device sleeps and its routes stay.
    pub(crate) fn device_left(&mut self, session: &Session) -> bool {
        let Some(devices) = &mut self.devices else { return false };
        let Some(id) = devices.of(session) else { return false };
        if self.sessions.iter().any(|(_, s)| !s.tentative && s.is_of_peer(session)) {
            return false;
        }
        if devices.stand_in.asleep(id).is_none() {
            devices.forget(id);
            return false;
        }
        devices.absent.insert(id, session.routes.clone());
        true
    }

    /// Nothing more is done for the device of a peer: its sessions end, and what waits for it is dropped.
    pub(crate) fn dismiss_device(&mut self, connection: &str, peer: &str) {
        let (Some(devices), Some(connection)) = (&mut self.devices, self.connections.id(connection)) else {
            return;
        };
        let Some(id) = devices.ids.get(&(connection, peer.to_owned())).copied() else { return };
        let routes = devices.absent.remove(&id);
        devices.forget(id);
        self.give_routes_up(routes.unwrap_or_default());
    }

    /// Routes of a device that was away: those that no session has now are taken back.
    fn give_routes_up(&mut self, routes: Vec<IpNet>) {
        let absent =
            |route: &IpNet| self.devices.iter().flat_map(|d| d.absent.values()).flatten().any(|r| r == route);
        let still = |route: &IpNet| self.sessions.lead_to(route) || absent(route);
        let gone: Vec<IpNet> = routes.into_iter().filter(|r| !still(r)).collect();
        if !gone.is_empty() {
            self.push(Event::PeerGone { routes: gone });
        }
    }

    // ---- packets --------------------------------------------------------------------------------------------------

    /// Whether a device sleeps and is stood in for.
    pub(crate) fn sleeps(&self, id: DeviceId) -> bool {
        self.devices.as_ref().is_some_and(|d| d.stand_in.sleepers() > 0 && d.stand_in.asleep(id).is_some())
    }

    /// The device that sleeps at the destination of a packet, if there is no tunnel to it.
    pub(crate) fn sleeping_device(&self, flow: &Flow) -> Option<DeviceId> {
        let stand_in = &self.devices.as_ref()?.stand_in;
        if stand_in.sleepers() > 0 { stand_in.sleeper(flow.dst) } else { None }
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

    // ---- time -----------------------------------------------------------------------------------------------------

    pub(crate) fn devices_deadline(&self) -> Option<Deadline> {
        self.devices.as_ref().and_then(|d| d.stand_in.poll_timeout())
    }

    pub(crate) fn devices_timeout(&mut self, now: Instant) {
        let Some(devices) = &mut self.devices else { return };
        if devices.stand_in.poll_timeout().is_none_or(|d| d.at > now) {
            return;
        }
        devices.stand_in.handle_timeout(now);
        let overslept: Vec<DeviceId> =
            devices.absent.keys().filter(|id| devices.stand_in.asleep(**id).is_none()).copied().collect();
        let mut routes = Vec::new();
        for id in overslept {
            routes.extend(devices.absent.remove(&id).unwrap_or_default());
            devices.forget(id);
        }
        self.give_routes_up(routes);
    }

    // ---- for status -----------------------------------------------------------------------------------------------

    pub(crate) fn stand_in_info(&self, session: &Session) -> Option<StandInInfo> {
        let devices = self.devices.as_ref()?;
        devices.info(devices.of(session)?)
    }

    /// Gateway: devices that sleep without an SA, by connection and name.
    #[must_use]
    pub fn absent_devices(&self) -> Vec<AbsentInfo> {
        let Some(devices) = &self.devices else { return Vec::new() };
        let info = |((connection, peer), id): (&(ConnectionId, String), &DeviceId)| {
            Some(AbsentInfo {
                connection: self.connections.name(*connection).to_owned(),
                peer: peer.clone(),
                routes: devices.absent.get(id)?.clone(),
                stand_in: devices.info(*id)?,
            })
        };
        devices.ids.iter().filter_map(info).collect()
    }

    /// Gateway: what the stand-in did for all devices, and the packets that wait now with the bytes that they cost; `None` if
    /// there is none.
    #[must_use]
    pub fn stand_in_totals(&self) -> Option<(Counters, (usize, usize))> {
        self.devices.as_ref().map(|d| (d.stand_in.totals(), d.stand_in.waiting()))
    }
}

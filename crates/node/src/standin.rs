//! The gateway's stand-in, joined to its sessions: which device a session is, when it sleeps and when it is back, and what waits
//! for it. Owns the names of devices; what is answered and kept is `dormouse-standin`'s.
//!
//! A device is a peer that knows the dormancy extension, by the identity that it proved: so it is the same one when its SA was
//! released and it comes back by ticket. While it is away without an SA its routes stay, and packets to its addresses go to
//! the stand-in.

use crate::event::Event;
use crate::node::{Node, Session};
use dormouse_ike::SleepFlags;
use dormouse_keying::SaId;
use dormouse_sansio::{Deadline, Instant};
use dormouse_standin::{Asleep, Counters, DeviceId, Limits, Service, StandIn, Verdict};
use dormouse_wire::ip::Flow;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// A device may come back this much later than it said, and a tenth of its sleep.
const GRACE: Duration = Duration::from_secs(30);

/// The stand-in and who its devices are.
#[derive(Debug)]
pub(crate) struct Desk {
    core: StandIn,
    /// Nothing is kept for longer.
    longest: Duration,
    /// By connection and peer.
    ids: BTreeMap<(String, String), DeviceId>,
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

impl Desk {
    fn key(session: &Session) -> (String, String) {
        (session.connection.clone(), session.peer.clone())
    }

    fn info(&self, id: DeviceId) -> Option<StandInInfo> {
        Some(StandInInfo { asleep: self.core.asleep(id), counters: self.core.counters(id)?.clone() })
    }

    /// Forgets a device.
    fn forget(&mut self, id: DeviceId) {
        self.core.forget(id);
        self.ids.retain(|_, known| *known != id);
    }
}

impl Node {
    /// Gateway: stands in for devices that sleep, within `limits`, and keeps nothing for longer than `longest`. Before the first
    /// session; what devices are promised is [`dormouse_ike::config::HoldPolicy::services`].
    pub fn stand_in_for_sleepers(&mut self, limits: Limits, longest: Duration) {
        let core = StandIn::new(limits);
        let (ids, absent) = (BTreeMap::new(), BTreeMap::new());
        self.desk = Some(Desk { core, longest, ids, absent, next: 0 });
    }

    // ---- sessions -------------------------------------------------------------------------------------------------

    /// The CHILD SA `child` of a peer is installed: its device is known, and back if it slept.
    pub(crate) fn desk_installed(&mut self, now: Instant, sa: SaId, child: u64) {
        let (Some(desk), Some(session)) = (&mut self.desk, self.sessions.get(&sa)) else { return };
        let key = Desk::key(session);
        if !session.dormancy {
            // Back with a program that does not know of sleep.
            if let Some(id) = desk.ids.get(&key).copied() {
                self.desk_awake(now, id);
            }
            return;
        }
        let id = *desk.ids.entry(key.clone()).or_insert_with(|| {
            desk.next += 1;
            DeviceId(desk.next)
        });
        let host = |net: &&IpNet| net.prefix_len() == net.max_prefix_len();
        let addresses: Vec<IpAddr> = session.routes.iter().filter(host).map(IpNet::addr).collect();
        if !desk.core.enrol(now, id, &addresses) {
            desk.ids.remove(&key);
            return;
        }
        if let Some(known) = self.known.get_mut(&child) {
            known.device = Some(id);
        }
        // A new child of a session that sleeps is a successor that was made before; a new session is the device itself.
        if session.asleep.is_none() {
            self.desk_awake(now, id);
        }
    }

    /// A device announced its sleep.
    pub(crate) fn desk_sleeps(
        &mut self,
        now: Instant,
        sa: SaId,
        hold: Instant,
        flags: SleepFlags,
        expect: Option<Duration>,
    ) {
        let Some(id) = self.device_of(sa) else { return };
        let Some(desk) = &mut self.desk else { return };
        let service = Service { answer: flags.stand_in, keep: flags.buffering };
        if service == (Service { answer: false, keep: false }) {
            return;
        }
        let wanted = expect.map_or(desk.longest, |e| e.saturating_add(e / 10).saturating_add(GRACE));
        // While its session is held it may come back at any moment, whatever it said.
        let until = hold.max(now + wanted).min(now + desk.longest);
        desk.core.sleeps(now, id, service, until);
    }

    /// The device of a session is awake.
    pub(crate) fn desk_woke(&mut self, now: Instant, sa: SaId) {
        if let Some(id) = self.device_of(sa) {
            self.desk_awake(now, id);
        }
    }

    fn desk_awake(&mut self, now: Instant, id: DeviceId) {
        let Some(desk) = &mut self.desk else { return };
        let kept = desk.absent.remove(&id);
        let packets = desk.core.wakes(now, id);
        if let Some(routes) = kept {
            self.give_routes_up(routes);
        }
        if !packets.is_empty() {
            self.push(Event::Deliver { packets });
        }
    }

    /// A session has ended. True if its device sleeps and its routes stay.
    pub(crate) fn desk_closed(&mut self, session: &Session) -> bool {
        let Some(desk) = &mut self.desk else { return false };
        let Some(id) = desk.ids.get(&Desk::key(session)).copied() else { return false };
        let successor = self
            .sessions
            .values()
            .any(|s| !s.tentative && (&s.connection, &s.peer) == (&session.connection, &session.peer));
        if successor {
            return false;
        }
        if desk.core.asleep(id).is_none() {
            desk.forget(id);
            return false;
        }
        desk.absent.insert(id, session.routes.clone());
        true
    }

    /// Nothing more is done for the device of a peer: its sessions end, and what waits for it is dropped.
    pub(crate) fn dismiss_device(&mut self, connection: &str, peer: &str) {
        let Some(desk) = &mut self.desk else { return };
        let key = (connection.to_owned(), peer.to_owned());
        let Some(id) = desk.ids.get(&key).copied() else { return };
        let routes = desk.absent.remove(&id);
        desk.forget(id);
        self.give_routes_up(routes.unwrap_or_default());
    }

    /// Routes of a device that was away: those that no session has now are taken back.
    fn give_routes_up(&mut self, routes: Vec<IpNet>) {
        let absent =
            |route: &IpNet| self.desk.iter().flat_map(|d| d.absent.values()).flatten().any(|r| r == route);
        let still = |route: &IpNet| self.sessions.values().any(|s| s.routes.contains(route)) || absent(route);
        let gone: Vec<IpNet> = routes.into_iter().filter(|r| !still(r)).collect();
        if !gone.is_empty() {
            self.push(Event::PeerGone { routes: gone });
        }
    }

    /// The device at the other end of a session.
    fn device_of(&self, sa: SaId) -> Option<DeviceId> {
        let session = self.sessions.get(&sa)?;
        self.desk.as_ref()?.ids.get(&Desk::key(session)).copied()
    }

    // ---- packets --------------------------------------------------------------------------------------------------

    /// The device that sleeps at the other end of `child`, or at the destination of `flow` if there is no child.
    pub(crate) fn sleeper(&self, child: Option<u64>, flow: &Flow) -> Option<DeviceId> {
        let desk = self.desk.as_ref().filter(|d| d.core.sleepers() > 0)?;
        match child {
            Some(child) => {
                let id = self.known.get(&child)?.device?;
                desk.core.asleep(id).map(|_| id)
            }
            None => desk.core.sleeper(flow.dst),
        }
    }

    /// A packet is about to be sealed with `child`.
    pub fn observe_outbound(&mut self, now: Instant, child: u64, packet: &[u8]) {
        if let (Some(desk), Some(id)) = (&mut self.desk, self.known.get(&child).and_then(|k| k.device)) {
            desk.core.observe_outbound(now, id, packet);
        }
        if !self.clients.is_empty() {
            self.copy_unconfirmed(now, child, packet);
        }
    }

    /// A packet came through `child`.
    pub(crate) fn observe_inbound(&mut self, now: Instant, child: u64, packet: &[u8]) {
        if let (Some(desk), Some(id)) = (&mut self.desk, self.known.get(&child).and_then(|k| k.device)) {
            desk.core.observe_inbound(now, id, packet);
        }
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
        self.desk.as_mut()?.core.handle(now, device, packet, out)
    }

    /// A packet that the stand-in sends on its own to the network on the gateway's side, appended to `out`. After
    /// [`Node::poll_event`], until it returns false.
    pub fn poll_stand_in(&mut self, out: &mut Vec<u8>) -> bool {
        self.desk.as_mut().is_some_and(|d| d.core.poll_transmit(out))
    }

    // ---- time -----------------------------------------------------------------------------------------------------

    pub(crate) fn desk_deadline(&self) -> Option<Deadline> {
        self.desk.as_ref().and_then(|d| d.core.poll_timeout())
    }

    pub(crate) fn desk_timeout(&mut self, now: Instant) {
        let Some(desk) = &mut self.desk else { return };
        if desk.core.poll_timeout().is_none_or(|d| d.at > now) {
            return;
        }
        desk.core.handle_timeout(now);
        let overslept: Vec<DeviceId> =
            desk.absent.keys().filter(|id| desk.core.asleep(**id).is_none()).copied().collect();
        let mut routes = Vec::new();
        for id in overslept {
            routes.extend(desk.absent.remove(&id).unwrap_or_default());
            desk.forget(id);
        }
        self.give_routes_up(routes);
    }

    // ---- for status -----------------------------------------------------------------------------------------------

    pub(crate) fn stand_in_info(&self, sa: SaId) -> Option<StandInInfo> {
        self.desk.as_ref()?.info(self.device_of(sa)?)
    }

    /// Gateway: devices that sleep without an SA, by connection and name.
    #[must_use]
    pub fn absent_devices(&self) -> Vec<AbsentInfo> {
        let Some(desk) = &self.desk else { return Vec::new() };
        let info = |((connection, peer), id): (&(String, String), &DeviceId)| {
            Some(AbsentInfo {
                connection: connection.clone(),
                peer: peer.clone(),
                routes: desk.absent.get(id)?.clone(),
                stand_in: desk.info(*id)?,
            })
        };
        desk.ids.iter().filter_map(info).collect()
    }

    /// Gateway: what the stand-in did for all devices, and the packets that wait now with the bytes that they cost; `None` if
    /// there is none.
    #[must_use]
    pub fn stand_in_totals(&self) -> Option<(Counters, (usize, usize))> {
        self.desk.as_ref().map(|d| (d.core.totals(), d.core.waiting()))
    }
}

//! The stand-in of a gateway: all its devices. Owns which of them sleep and until when; the driving contract is the crate's.

mod handover;
mod observer;

use core::cell::Cell;
use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dormouse_sansio::{Deadline, Instant};
use dormouse_wire::dhcp;
use dormouse_wire::ip::{Packet, udp};
use ipnet::IpNet;

use crate::answer::{Asked, Step, decide};
use crate::buffer::{Keep, Room};
use crate::class::Class;
use crate::counters::{Counters, Kind, Reason};
use crate::device::{Device, DeviceId, Service, Sleep};
use crate::knowledge::{Share, is_for_many};
use crate::limits::{ADDRESSES, Bucket, CONNECTIONS_TOTAL, Limits};

pub use handover::{Heard, Slept, Waiting};
pub use observer::Observer;

/// Packets of the stand-in's own that wait to be fetched: no more than one wake can release.
const OUTBOX: usize = 1_024;

/// What became of a packet towards a sleeping device. In every case what was appended to the buffer is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The device need not see it.
    Answered(Kind),
    /// It waits for the device.
    Buffered(Class),
    /// It is gone.
    Dropped(Reason),
}

/// How a device sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SleepInfo {
    /// Since when.
    pub since: Instant,
    /// When it is given up.
    pub until: Instant,
    /// Packets that wait for it.
    pub packets: usize,
    /// Their bytes.
    pub bytes: usize,
}

/// See the crate's documentation.
#[derive(Debug)]
pub struct StandIn {
    limits: Limits,
    /// Boxed: the map's nodes are half empty.
    devices: BTreeMap<DeviceId, Box<Device>>,
    addresses: BTreeMap<IpAddr, DeviceId>,
    room: Room,
    /// TCP connections known, of all devices.
    connections: Cell<usize>,
    answers: Bucket,
    /// When sleeping devices are given up.
    ends: BTreeSet<(Instant, DeviceId)>,
    /// When leases are renewed.
    renewals: BTreeSet<(Instant, DeviceId)>,
    outbox: VecDeque<Vec<u8>>,
    /// Networks that devices are in.
    links: Vec<IpNet>,
    /// Counts of all devices, those that are forgotten included: kept as they grow, so that to read them does not take longer with more devices.
    totals: Counters,
}

impl StandIn {
    /// One that knows no device.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            devices: BTreeMap::new(),
            addresses: BTreeMap::new(),
            room: Room::new(limits),
            connections: Cell::new(0),
            answers: Bucket::full(Instant::ZERO, limits.total_answers),
            ends: BTreeSet::new(),
            renewals: BTreeSet::new(),
            outbox: VecDeque::new(),
            links: Vec::new(),
            totals: Counters::default(),
        }
    }

    /// What it may use.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The networks in which devices have their addresses: hosts of one are on a device's link, others are not.
    pub fn set_links(&mut self, links: Vec<IpNet>) {
        self.links = links;
    }

    // ---- devices --------------------------------------------------------------------------------------------------

    /// A device, or the same one again with other addresses. Of more than 16 addresses the first 16 count; an address that
    /// another device had is that one's no more, and what was kept for that one is dropped. False if there are too many devices: then it is not stood in for.
    pub fn enrol(&mut self, now: Instant, id: DeviceId, addresses: &[IpAddr]) -> bool {
        if !self.devices.contains_key(&id) && self.devices.len() >= self.limits.devices {
            return false;
        }
        let addresses = addresses.get(..ADDRESSES).unwrap_or(addresses);
        let device = self.devices.entry(id).or_insert_with(|| Box::new(Device::new(now, &self.limits)));
        for old in core::mem::replace(&mut device.addresses, addresses.to_vec()) {
            if self.addresses.get(&old) == Some(&id) {
                self.addresses.remove(&old);
            }
        }
        for address in addresses {
            let before = self.addresses.insert(*address, id).filter(|before| *before != id);
            if let Some(other) = before.and_then(|before| self.devices.get_mut(&before)) {
                other.addresses.retain(|a| a != address);
            }
            if let Some(other) = before {
                self.purge(now, other);
            }
        }
        true
    }

    /// Drops what is kept for a device: an address that it was for has changed hands.
    fn purge(&mut self, now: Instant, id: DeviceId) {
        let (packets, lost) = self.room.take(now, id);
        self.count(id, |counters| {
            counters.lose(&lost);
            counters.drop(Reason::Readdressed, packets.len() as u64);
        });
    }

    /// Counts what was done for a device, which may be forgotten.
    fn count(&mut self, id: DeviceId, what: impl Fn(&mut Counters)) {
        what(&mut self.totals);
        if let Some(device) = self.devices.get_mut(&id) {
            what(&mut device.counters);
        }
    }

    /// A device is gone for good: nothing of it is kept but its counts.
    pub fn forget(&mut self, id: DeviceId) {
        self.end_sleep(id);
        if let Some(mut buffer) = self.room.forget(id) {
            self.totals.lose(&buffer.take_dropped());
            self.totals.drop(Reason::Overslept, buffer.len() as u64);
        }
        let Some(device) = self.devices.remove(&id) else { return };
        self.connections.set(self.connections.get().saturating_sub(device.knowledge.tcp.len()));
        for address in device.addresses {
            if self.addresses.get(&address) == Some(&id) {
                self.addresses.remove(&address);
            }
        }
    }

    /// The device that has an address and sleeps.
    #[must_use]
    pub fn sleeper(&self, address: IpAddr) -> Option<DeviceId> {
        let id = *self.addresses.get(&address)?;
        self.devices.get(&id)?.sleep.map(|_| id)
    }

    /// How a device sleeps; `None` for one that is awake, or not known.
    #[must_use]
    pub fn asleep(&self, id: DeviceId) -> Option<SleepInfo> {
        let Sleep { since, until, .. } = self.devices.get(&id)?.sleep?;
        let buffer = self.room.buffer(id);
        let packets = buffer.map_or(0, |b| b.len());
        Some(SleepInfo { since, until, packets, bytes: buffer.map_or(0, |b| b.packet_bytes()) })
    }

    /// Devices that sleep.
    #[must_use]
    pub fn sleepers(&self) -> usize {
        self.ends.len()
    }

    /// What was done for a device; `None` for one that is not known.
    #[must_use]
    pub fn counters(&self, id: DeviceId) -> Option<&Counters> {
        self.devices.get(&id).map(|d| &d.counters)
    }

    /// What was done for all devices, those that are forgotten included.
    #[must_use]
    pub const fn totals(&self) -> &Counters {
        &self.totals
    }

    /// Packets that wait for all devices, and the bytes that they cost.
    #[must_use]
    pub const fn waiting(&self) -> (usize, usize) {
        (self.room.packets(), self.room.bytes())
    }

    // ---- while it is awake ----------------------------------------------------------------------------------------

    /// A packet that an awake device sent.
    pub fn observe_inbound(&mut self, now: Instant, id: DeviceId, packet: &[u8]) {
        let share = Share { used: &self.connections, most: CONNECTIONS_TOTAL };
        if let (Some(device), Ok(packet)) = (self.devices.get_mut(&id), Packet::parse(packet)) {
            device.knowledge.observe_inbound(now, share, &packet);
        }
    }

    /// A packet that an awake device receives.
    pub fn observe_outbound(&mut self, now: Instant, id: DeviceId, packet: &[u8]) {
        let share = Share { used: &self.connections, most: CONNECTIONS_TOTAL };
        if let (Some(device), Ok(packet)) = (self.devices.get_mut(&id), Packet::parse(packet)) {
            device.knowledge.observe_outbound(now, share, &packet);
        }
    }

    // ---- sleep ----------------------------------------------------------------------------------------------------

    /// A device sleeps, is served so meanwhile, and is given up at `until`. False if it is not known. A device that sleeps
    /// already may say so again, with another end.
    pub fn sleeps(&mut self, now: Instant, id: DeviceId, service: Service, until: Instant) -> bool {
        let Some(device) = self.devices.get_mut(&id) else { return false };
        let since = device.sleep.map_or(now, |s| s.since);
        if let Some(old) = device.sleep.replace(Sleep { since, until, service }) {
            self.ends.remove(&(old.until, id));
        }
        let renewal = device.knowledge.dhcp.due(until);
        self.ends.insert((until, id));
        self.renewals.retain(|(_, other)| *other != id);
        if let Some(at) = renewal {
            self.renewals.insert((at.max(now), id));
        }
        true
    }

    /// A device is back. What waited for it, in the order in which it came: for one burst. The peers of its connections learn
    /// that there is room again ([`StandIn::poll_transmit`]).
    pub fn wakes(&mut self, now: Instant, id: DeviceId) -> Vec<Box<[u8]>> {
        let (packets, lost) = self.room.take(now, id);
        self.end_sleep(id);
        self.count(id, |counters| {
            counters.delivered += packets.len() as u64;
            counters.lose(&lost);
        });
        let Some(device) = self.devices.get_mut(&id) else { return Vec::new() };
        for (flow, connection) in device.knowledge.tcp.release() {
            let mut out = Vec::new();
            let peer_time = connection.held.unwrap_or(0);
            if self.outbox.len() < OUTBOX
                && connection.acknowledge(flow, connection.window, peer_time, &mut out)
            {
                self.outbox.push_back(out);
            }
        }
        packets
    }

    fn end_sleep(&mut self, id: DeviceId) {
        if let Some(sleep) = self.devices.get_mut(&id).and_then(|d| d.sleep.take()) {
            self.ends.remove(&(sleep.until, id));
            self.renewals.retain(|(_, other)| *other != id);
        }
    }

    /// A packet towards a device that sleeps. What is appended to `out` is one packet for the network's side. `None` if the device
    /// does not sleep: then the packet goes its usual way.
    pub fn handle(
        &mut self,
        now: Instant,
        id: DeviceId,
        packet: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<Verdict> {
        let device = self.devices.get_mut(&id)?;
        let Sleep { until, service, .. } = device.sleep.filter(|s| s.until > now)?;
        let renewal = device.knowledge.dhcp.due(until);
        self.totals.handled += 1;
        device.counters.handled += 1;
        let Ok(view) = Packet::parse(packet) else { return Some(self.drop(id, Reason::Malformed)) };
        let own = device.addresses.contains(&view.dst());
        let on_link = is_on_link(&self.links, &device.addresses, view.src());
        let asked = Asked {
            now,
            packet: view,
            addresses: &device.addresses,
            own,
            on_link,
            share: Share { used: &self.connections, most: CONNECTIONS_TOTAL },
            hold_tcp: self.limits.hold_tcp && service.answer,
        };
        let start = out.len();
        let step = match decide(&asked, &mut device.knowledge, out) {
            Step::Answer(_) | Step::AnswerTcp(_) if !service.answer => {
                Step::Keep(Keep::plain(Class::Datagram))
            }
            step => step,
        };
        let step = match step {
            Step::Keep(_) if !service.keep => Step::Drop(Reason::NotKept),
            step => step,
        };
        let (kind, rate, bucket) = match step {
            Step::Answer(kind) => (Some(kind), self.limits.answers, &mut device.answers),
            Step::AnswerTcp(kind) | Step::KeepAndAnswer(_, kind) => {
                (Some(kind), self.limits.tcp_answers, &mut device.tcp_answers)
            }
            Step::Done(_) | Step::Keep(_) | Step::Drop(_) => (None, self.limits.answers, &mut device.answers),
        };
        let mut limited = false;
        if let Some(kind) = kind {
            limited = !(bucket.take(now, rate) && self.answers.take(now, self.limits.total_answers));
            if !limited {
                self.totals.answer(kind);
                device.counters.answer(kind);
            }
        }
        if kind.is_none() || limited {
            out.truncate(start);
        }
        // The server granted more time, or refused.
        let renewal_moved = device.knowledge.dhcp.due(until) != renewal;
        let verdict = match step {
            Step::Answer(_) | Step::AnswerTcp(_) if limited => self.drop(id, Reason::RateLimited),
            Step::Answer(kind) | Step::AnswerTcp(kind) => Verdict::Answered(kind),
            Step::Done(kind) => {
                self.count(id, |counters| counters.answer(kind));
                Verdict::Answered(kind)
            }
            Step::Drop(reason) => self.drop(id, reason),
            // Told that there is no room, which is true: the sender has it still.
            Step::KeepAndAnswer(..) if !service.keep => self.drop(id, Reason::NotKept),
            Step::Keep(keep) | Step::KeepAndAnswer(keep, _) => self.keep(now, id, keep, view.as_bytes()),
        };
        if renewal_moved {
            self.schedule_renewal(id);
        }
        Some(verdict)
    }

    fn drop(&mut self, id: DeviceId, reason: Reason) -> Verdict {
        self.count(id, |counters| counters.drop(reason, 1));
        Verdict::Dropped(reason)
    }

    fn keep(&mut self, now: Instant, id: DeviceId, keep: Keep, packet: &[u8]) -> Verdict {
        match self.room.push(now, id, keep, packet) {
            Ok(()) => {
                self.count(id, |counters| counters.buffered += 1);
                self.collect_dropped(id);
                Verdict::Buffered(keep.class)
            }
            Err(reason) => {
                self.collect_dropped(id);
                self.drop(id, reason)
            }
        }
    }

    /// Books what a push drove out: of this device, and of the others that had to give way.
    fn collect_dropped(&mut self, id: DeviceId) {
        for (owner, reason, packets) in self.room.take_dropped(id) {
            self.count(owner, |counters| counters.drop(reason, packets));
        }
    }

    // ---- the verbs ------------------------------------------------------------------------------------------------

    /// Gives up devices that did not come back, which are returned, and renews leases.
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<DeviceId> {
        let mut overslept = Vec::new();
        while let Some((_, id)) = self.ends.first().copied().filter(|(at, _)| *at <= now) {
            let (packets, lost) = self.room.take(now, id);
            self.end_sleep(id);
            overslept.push(id);
            self.count(id, |counters| {
                counters.lose(&lost);
                counters.drop(Reason::Overslept, packets.len() as u64);
            });
            let Some(device) = self.devices.get_mut(&id) else { continue };
            // No window update will reach these peers; their own window probes find the room.
            let _silent = device.knowledge.tcp.release();
        }
        while let Some((at, id)) = self.renewals.first().copied().filter(|(at, _)| *at <= now) {
            self.renewals.remove(&(at, id));
            self.renew(now, id);
        }
        overslept
    }

    fn renew(&mut self, now: Instant, id: DeviceId) {
        let Some(device) = self.devices.get_mut(&id) else { return };
        let Some((lease, request)) = device.knowledge.dhcp.renew(now) else { return };
        let from = (IpAddr::V4(lease.address), dhcp::CLIENT_PORT).into();
        let to = (IpAddr::V4(lease.server), dhcp::SERVER_PORT).into();
        let mut out = Vec::new();
        // An address that is not the device's inside the tunnel would not be reached there either.
        let ours = device.addresses.contains(&IpAddr::V4(lease.address)) && !is_for_many(lease.server.into());
        if ours && self.outbox.len() < OUTBOX && udp::build(from, to, &request, &mut out).is_ok() {
            self.outbox.push_back(out);
        }
        self.schedule_renewal(id);
    }

    fn schedule_renewal(&mut self, id: DeviceId) {
        let Some(device) = self.devices.get(&id) else { return };
        let at = device.sleep.and_then(|s| device.knowledge.dhcp.due(s.until));
        self.renewals.retain(|(_, other)| *other != id);
        if let Some(at) = at {
            self.renewals.insert((at, id));
        }
    }

    /// The next packet of the stand-in's own for the network's side, appended to `out`; false if there is none.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> bool {
        let next = self.outbox.pop_front();
        out.extend_from_slice(next.as_deref().unwrap_or_default());
        next.is_some()
    }

    /// When [`StandIn::handle_timeout`] is wanted: the end of a sleep, which may be late, or a lease to be renewed.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        Deadline::earlier(self.sleeps_end().next(), self.leases_due().next())
    }

    /// The end of each sleep, and each lease to be renewed.
    pub fn timers(&self) -> impl Iterator<Item = Deadline> {
        self.sleeps_end().chain(self.leases_due())
    }

    fn sleeps_end(&self) -> impl Iterator<Item = Deadline> {
        const PATIENCE: core::time::Duration = core::time::Duration::from_secs(1);
        let why = "stand-in: a device that overslept";
        self.ends.iter().map(move |(at, _)| Deadline { at: *at, slack: PATIENCE, why })
    }

    fn leases_due(&self) -> impl Iterator<Item = Deadline> {
        self.renewals.iter().map(|(at, _)| Deadline::strict(*at, "stand-in: a DHCP lease to be renewed"))
    }
}

/// Whether `asker` is where one of the device's addresses is, or its address is good on one link alone.
fn is_on_link(links: &[IpNet], addresses: &[IpAddr], asker: IpAddr) -> bool {
    let link_local = match asker {
        IpAddr::V4(asker) => asker.is_link_local(),
        IpAddr::V6(asker) => asker.is_unicast_link_local(),
    };
    link_local || links.iter().any(|link| link.contains(&asker) && addresses.iter().any(|a| link.contains(a)))
}

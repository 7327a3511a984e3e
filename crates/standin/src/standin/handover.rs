//! A sleeping device goes from one gateway's stand-in to another's. Owns what is said of it: what it told its peers last, as packets of its own
//! that teach the other one the same, and what waits for it. Must never say more than that one would have learnt by itself.
//!
//! What the device announced on its link, its NetBIOS names and its DHCP lease stay behind: the link is another one there.

use super::{StandIn, Verdict, is_on_link};
use core::net::IpAddr;
use core::time::Duration;

use dormouse_sansio::Instant;
use dormouse_wire::ip::Packet;
use dormouse_wire::ip::icmp::Echo;

use crate::answer::{Asked, Step, decide};
use crate::buffer::Keep;
use crate::class::Class;
use crate::counters::Reason;
use crate::device::{DeviceId, Service};
use crate::knowledge::{Knowledge, Share};
use crate::limits::CONNECTIONS_TOTAL;

/// A packet as the device itself would send it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Heard {
    /// The whole packet.
    pub packet: Vec<u8>,
    /// Its TCP peer was told since that there is no room: the last timestamp of the peer, or 0.
    pub held: Option<u32>,
}

/// A packet that waits for the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// How long it is still worth delivering; [`Duration::MAX`]: as long as the device sleeps.
    pub left: Duration,
    /// The whole packet.
    pub packet: Box<[u8]>,
}

/// How a device sleeps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slept {
    /// What is done for it.
    pub service: Service,
    /// When it is given up: so long from now.
    pub left: Duration,
    /// What another stand-in learns from it.
    pub heard: Vec<Heard>,
}

impl StandIn {
    /// How a device sleeps, for another stand-in; `None` if it does not. It is served on here.
    #[must_use]
    pub fn describe(&self, now: Instant, id: DeviceId) -> Option<Slept> {
        let device = self.devices.get(&id)?;
        let sleep = device.sleep.filter(|sleep| sleep.until > now)?;
        let heard = device.knowledge.as_packets(&device.addresses);
        Some(Slept { service: sleep.service, left: sleep.until - now, heard })
    }

    /// Takes what waits for a device, in the order in which it came: another stand-in has the device, and delivers it.
    pub fn take_waiting(&mut self, now: Instant, id: DeviceId) -> Vec<Waiting> {
        let (packets, lost) = self.room.take_with_ages(now, id);
        self.count(id, |counters| {
            counters.handed_over += packets.len() as u64;
            counters.lose(&lost);
        });
        packets.into_iter().map(|(left, packet)| Waiting { left, packet }).collect()
    }

    /// A device of another stand-in, which [`StandIn::enrol`] and [`StandIn::sleeps`] have made ours: learns what that one knew of it.
    pub fn learn(&mut self, now: Instant, id: DeviceId, heard: &[Heard]) {
        let share = Share { used: &self.connections, most: CONNECTIONS_TOTAL };
        let Some(device) = self.devices.get_mut(&id) else { return };
        for Heard { packet, held } in heard {
            let Ok(packet) = Packet::parse(packet) else { continue };
            if device.addresses.contains(&packet.src()) {
                device.knowledge.observe_inbound(now, share, &packet);
                device.knowledge.tcp.set_held(&packet.flow(), *held);
            }
        }
    }

    /// A packet that waited elsewhere for a device that sleeps here: keeps it as if it came now, but no longer than it was to be kept there. What
    /// there was to answer was answered there. False if it is not kept.
    pub fn keep_on(&mut self, now: Instant, id: DeviceId, waiting: &Waiting) -> bool {
        self.count(id, |counters| counters.taken_over += 1);
        match self.worth_keeping(now, id, waiting) {
            Ok(keep) => matches!(self.keep(now, id, keep, &waiting.packet), Verdict::Buffered(_)),
            Err(reason) => {
                self.drop(id, reason);
                false
            }
        }
    }

    fn worth_keeping(&mut self, now: Instant, id: DeviceId, waiting: &Waiting) -> Result<Keep, Reason> {
        let device = self.devices.get_mut(&id).ok_or(Reason::NotKept)?;
        device.sleep.filter(|sleep| sleep.until > now && sleep.service.keep).ok_or(Reason::NotKept)?;
        if waiting.left.is_zero() {
            return Err(Reason::Expired);
        }
        let view = Packet::parse(&waiting.packet).map_err(|_| Reason::Malformed)?;
        let asked = Asked {
            now,
            packet: view,
            addresses: &device.addresses,
            own: device.addresses.contains(&view.dst()),
            on_link: is_on_link(&self.links, &device.addresses, view.src()),
            share: Share { used: &self.connections, most: CONNECTIONS_TOTAL },
            hold_tcp: false,
        };
        let keep = match decide(&asked, &mut device.knowledge, &mut Vec::new()) {
            Step::Keep(keep) | Step::KeepAndAnswer(keep, _) => keep,
            // It was worth keeping there.
            Step::Answer(_) | Step::AnswerTcp(_) | Step::Done(_) | Step::Drop(_) => {
                Keep::plain(Class::Datagram)
            }
        };
        let age = Some(keep.age.map_or(waiting.left, |age| age.min(waiting.left)));
        Ok(Keep { age, ..keep })
    }

    /// Packets that waited elsewhere for a device that is awake here: those that are still worth it, to be delivered now.
    pub fn pass_on(&mut self, id: DeviceId, waiting: Vec<Waiting>) -> Vec<Box<[u8]>> {
        let (fresh, late): (Vec<Waiting>, Vec<Waiting>) =
            waiting.into_iter().partition(|waiting| !waiting.left.is_zero());
        self.count(id, |counters| {
            counters.taken_over += (fresh.len() + late.len()) as u64;
            counters.delivered += fresh.len() as u64;
            counters.drop(Reason::Expired, late.len() as u64);
        });
        fresh.into_iter().map(|waiting| waiting.packet).collect()
    }
}

impl Knowledge {
    /// The same as packets of the device that teach it to another.
    fn as_packets(&self, addresses: &[IpAddr]) -> Vec<Heard> {
        let mut all = Vec::new();
        for address in addresses.iter().filter(|a| self.echo.answers(a.is_ipv6())) {
            let mut packet = Vec::new();
            let reply = Echo { reply: true, src: *address, dst: *address, id: 0, sequence: 0, payload: &[] };
            if reply.build(&mut packet).is_ok() {
                all.push(Heard { packet, held: None });
            }
        }
        // Of one whose segments are signed nothing can be said there either.
        for (flow, connection) in self.tcp.iter().filter(|(_, connection)| !connection.signed) {
            let mut packet = Vec::new();
            let peer_time = connection.held.unwrap_or(0);
            if connection.acknowledge(*flow, connection.window, peer_time, &mut packet) {
                all.push(Heard { packet, held: connection.held });
            }
        }
        all
    }
}

//! Packets that wait, for one device ([`Buffer`]) and for all ([`Room`]). Owns both bounds and who gives way; must never look into
//! a packet.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use dormouse_sansio::Instant;
use dormouse_wire::ip::Flow;

use crate::class::{Class, GivesWay};
use crate::counters::Reason;
use crate::device::DeviceId;
use crate::limits::{Limits, PACKET_OVERHEAD};

/// What makes two packets of one flow the same for a class: nothing, or this number (the sequence number of TCP data).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Alike {
    /// Every packet is one of its own.
    Never,
    /// A newer packet of the same flow and class replaces this one.
    Replaces(Flow),
    /// Data of `length` from sequence number `from` on: not needed if as much from there waits already.
    Data { flow: Flow, from: u32, length: u32 },
}

/// A packet to be kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Keep {
    pub(crate) class: Class,
    /// How long, if not as long as its class says.
    pub(crate) age: Option<Duration>,
    pub(crate) alike: Alike,
}

impl Keep {
    pub(crate) const fn plain(class: Class) -> Self {
        Self { class, age: None, alike: Alike::Never }
    }
}

type Key = (Class, Flow, u32);
/// A packet, and how long it is still to be kept.
type Aged = (Duration, Box<[u8]>);

#[derive(Debug)]
struct Waiting {
    class: Class,
    until: Instant,
    key: Option<(Key, u32)>,
    packet: Box<[u8]>,
}

impl Waiting {
    fn cost(&self) -> usize {
        self.packet.len() + PACKET_OVERHEAD
    }
}

/// What waits for one device, in the order in which it came.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    packets: BTreeMap<u64, Waiting>,
    classes: BTreeSet<(Class, u64)>,
    /// Packets with which a later one may be compared.
    keys: BTreeMap<Key, u64>,
    next: u64,
    bytes: usize,
    /// What became of packets that waited and do so no more, since it was last asked.
    dropped: BTreeMap<Reason, u64>,
}

impl Buffer {
    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Bytes of the packets alone.
    pub(crate) fn packet_bytes(&self) -> usize {
        self.bytes - self.packets.len() * PACKET_OVERHEAD
    }

    pub(crate) fn take_dropped(&mut self) -> BTreeMap<Reason, u64> {
        std::mem::take(&mut self.dropped)
    }

    fn remove(&mut self, id: u64, why: Reason) -> Option<Waiting> {
        let waiting = self.packets.remove(&id)?;
        self.classes.remove(&(waiting.class, id));
        if let Some((key, _)) = waiting.key
            && self.keys.get(&key) == Some(&id)
        {
            self.keys.remove(&key);
        }
        self.bytes -= waiting.cost();
        *self.dropped.entry(why).or_default() += 1;
        Some(waiting)
    }

    /// Drops what is too old. Packets of one class come in the order of their age, but for DNS answers of shorter life.
    fn expire(&mut self, now: Instant) {
        for class in Class::ALL {
            while let Some((_, id)) = self.classes.range((class, 0)..=(class, u64::MAX)).next().copied() {
                if self.packets.get(&id).is_some_and(|w| w.until > now) {
                    break;
                }
                self.remove(id, Reason::Expired);
            }
        }
    }

    /// The packet that gives way to one of `class`, if any does.
    fn victim(&self, class: Class) -> Option<u64> {
        let (lowest, oldest) = *self.classes.first()?;
        match lowest.gives_way() {
            _ if lowest > class => None,
            GivesWay::Oldest => Some(oldest),
            GivesWay::Newest if lowest < class => {
                self.classes.range((lowest, 0)..=(lowest, u64::MAX)).next_back().map(|(_, id)| *id)
            }
            GivesWay::Newest => None,
        }
    }

    /// What waits already and makes the packet needless, or is made needless by it.
    fn alike(&mut self, keep: &Keep) -> Result<Option<(Key, u32)>, Reason> {
        let (key, length) = match keep.alike {
            Alike::Never => return Ok(None),
            Alike::Replaces(flow) => ((keep.class, flow, 0), 0),
            Alike::Data { flow, from, length } => ((keep.class, flow, from), length),
        };
        let older = self.keys.get(&key).and_then(|id| Some((*id, self.packets.get(id)?.key?.1)));
        match (older, keep.alike) {
            (Some((_, waits)), Alike::Data { .. }) if waits >= length => Err(Reason::Duplicate),
            (Some((id, _)), _) => {
                self.remove(id, Reason::Superseded);
                Ok(Some((key, length)))
            }
            (None, _) => Ok(Some((key, length))),
        }
    }

    fn insert(&mut self, now: Instant, keep: &Keep, key: Option<(Key, u32)>, packet: &[u8]) {
        let id = self.next;
        self.next += 1;
        let until = now + keep.age.unwrap_or(Duration::MAX).min(keep.class.max_age());
        let waiting = Waiting { class: keep.class, until, key, packet: packet.into() };
        self.bytes += waiting.cost();
        self.classes.insert((keep.class, id));
        if let Some((key, _)) = key {
            self.keys.insert(key, id);
        }
        self.packets.insert(id, waiting);
    }
}

/// What all devices share: the room that there is, and who uses how much of it.
#[derive(Debug)]
pub(crate) struct Room {
    limits: Limits,
    buffers: BTreeMap<DeviceId, Buffer>,
    /// Devices by bytes waiting.
    weights: BTreeSet<(usize, DeviceId)>,
    /// Whose packets gave way to another device's.
    robbed: BTreeSet<DeviceId>,
    bytes: usize,
    packets: usize,
}

impl Room {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            buffers: BTreeMap::new(),
            weights: BTreeSet::new(),
            robbed: BTreeSet::new(),
            bytes: 0,
            packets: 0,
        }
    }

    pub(crate) fn buffer(&self, device: DeviceId) -> Option<&Buffer> {
        self.buffers.get(&device)
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) const fn packets(&self) -> usize {
        self.packets
    }

    /// Changes one buffer and the sums with it.
    fn with<T>(&mut self, device: DeviceId, change: impl FnOnce(&mut Buffer) -> T) -> T {
        let buffer = self.buffers.entry(device).or_default();
        let before = (buffer.bytes, buffer.len());
        let result = change(buffer);
        let after = (buffer.bytes, buffer.len());
        if before != after {
            self.weights.remove(&(before.0, device));
            self.weights.insert((after.0, device));
            self.bytes = self.bytes - before.0 + after.0;
            self.packets = self.packets - before.1 + after.1;
        }
        result
    }

    /// Keeps a packet.
    ///
    /// # Errors
    /// The reason why not.
    pub(crate) fn push(
        &mut self,
        now: Instant,
        device: DeviceId,
        keep: Keep,
        packet: &[u8],
    ) -> Result<(), Reason> {
        let limits = self.limits;
        let cost = packet.len() + PACKET_OVERHEAD;
        if cost > limits.device_bytes.min(limits.total_bytes) {
            return Err(Reason::Full);
        }
        let key = self.with(device, |buffer| {
            buffer.expire(now);
            buffer.alike(&keep)
        })?;
        loop {
            let full = self
                .buffers
                .get(&device)
                .is_some_and(|b| b.bytes + cost > limits.device_bytes || b.len() + 1 > limits.device_packets);
            let heaviest = if full {
                device
            } else if self.bytes + cost > limits.total_bytes || self.packets + 1 > limits.total_packets {
                self.weights.last().map_or(device, |(_, heaviest)| *heaviest)
            } else {
                break;
            };
            // Of another device, which has more waiting, anything gives way.
            let class = if heaviest == device { keep.class } else { Class::Control };
            let made = self.with(heaviest, |buffer| {
                let victim = buffer.victim(class).or_else(|| {
                    (heaviest != device).then(|| buffer.packets.last_key_value().map(|(id, _)| *id)).flatten()
                });
                victim.and_then(|id| buffer.remove(id, Reason::Evicted)).is_some()
            });
            if !made {
                return Err(Reason::Full);
            }
            if heaviest != device {
                self.robbed.insert(heaviest);
            }
        }
        self.with(device, |buffer| buffer.insert(now, &keep, key, packet));
        Ok(())
    }

    /// Packets that no longer wait, by owner and reason, since this was last called: those of `device` and of the devices that gave way to
    /// it.
    pub(crate) fn take_dropped(&mut self, device: DeviceId) -> Vec<(DeviceId, Reason, u64)> {
        let mut list = Vec::new();
        for owner in core::iter::once(device).chain(core::mem::take(&mut self.robbed)) {
            let dropped = self.buffers.get_mut(&owner).map(Buffer::take_dropped).unwrap_or_default();
            list.extend(dropped.into_iter().map(|(reason, n)| (owner, reason, n)));
        }
        list
    }

    /// All that waits for a device and is not too old, in order; its buffer is gone afterwards. Returns the packets, and what was
    /// dropped since it was last asked.
    pub(crate) fn take(&mut self, now: Instant, device: DeviceId) -> (Vec<Box<[u8]>>, BTreeMap<Reason, u64>) {
        let (fresh, dropped) = self.take_with_ages(now, device);
        (fresh.into_iter().map(|(_, packet)| packet).collect(), dropped)
    }

    /// The same, with how long each is still to be kept.
    pub(crate) fn take_with_ages(
        &mut self,
        now: Instant,
        device: DeviceId,
    ) -> (Vec<Aged>, BTreeMap<Reason, u64>) {
        let Some(mut buffer) = self.forget(device) else { return Default::default() };
        let mut dropped = buffer.take_dropped();
        let before = buffer.packets.len();
        let fresh: Vec<Aged> = buffer
            .packets
            .into_values()
            .filter(|w| w.until > now)
            .map(|w| (w.until - now, w.packet))
            .collect();
        if fresh.len() < before {
            *dropped.entry(Reason::Expired).or_default() += (before - fresh.len()) as u64;
        }
        (fresh, dropped)
    }

    /// Gives a buffer up.
    pub(crate) fn forget(&mut self, device: DeviceId) -> Option<Buffer> {
        let buffer = self.buffers.remove(&device)?;
        self.weights.remove(&(buffer.bytes, device));
        self.bytes -= buffer.bytes;
        self.packets -= buffer.len();
        Some(buffer)
    }
}

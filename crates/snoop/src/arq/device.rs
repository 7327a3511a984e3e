//! The device's end. Owns the order of the ESP packets that come, and the reports of what came; must never hold a packet for longer than
//! its bound, nor lose or change one.

use core::net::SocketAddr;
use std::collections::{BTreeMap, VecDeque};

use dormouse_crypto::PrfKey;
use dormouse_sansio::{Deadline, Instant};
use dormouse_wire::ip::udp;

use super::{BITMAP, Limits, Report, numbered};
use crate::sequence::before;

/// An SA whose first packet has at most this number has just begun.
const BEGINNING: u32 = 32;

/// A packet behind a missing one.
#[derive(Clone, Debug)]
struct HeldPacket {
    sequence: u32,
    packet: Vec<u8>,
    since: Instant,
}

/// The order of one SA.
#[derive(Clone, Debug)]
pub(super) struct Order {
    /// The lowest number that is awaited.
    pub(super) next: u32,
    /// By sequence number; all after `next`.
    held: VecDeque<HeldPacket>,
    bytes: usize,
    unreported: u32,
    pub(super) report_at: Option<Instant>,
    heard: Instant,
}

impl Order {
    pub(super) const fn new(now: Instant, next: u32) -> Self {
        Self { next, held: VecDeque::new(), bytes: 0, unreported: 0, report_at: None, heard: now }
    }

    /// A packet came. What is in order now goes to `out`.
    pub(super) fn arrive(
        &mut self,
        now: Instant,
        sequence: u32,
        packet: Vec<u8>,
        limits: &Limits,
        out: &mut VecDeque<Vec<u8>>,
    ) {
        self.heard = now;
        self.unreported += 1;
        let gap = !self.held.is_empty();
        let ahead = sequence.wrapping_sub(self.next);
        if before(sequence, self.next) {
            // Late, or twice: the SA's own replay window judges.
            out.push_back(packet);
        } else if ahead as usize > limits.packets {
            // The sender has begun anew, or all was lost for a while.
            self.release(usize::MAX, out);
            self.next = sequence.wrapping_add(1);
            out.push_back(packet);
        } else {
            let at = self.held.partition_point(|held| before(held.sequence, sequence));
            if self.held.get(at).is_none_or(|held| held.sequence != sequence) {
                self.bytes += packet.len();
                self.held.insert(at, HeldPacket { sequence, packet, since: now });
            }
            self.release(0, out);
            while self.bytes > limits.bytes {
                self.release(1, out);
            }
        }
        let missing = !self.held.is_empty();
        let wait = match (gap, missing) {
            _ if self.unreported >= limits.unreported => core::time::Duration::ZERO,
            (true, true) => limits.report_gap,
            (false, false) => limits.report,
            _ => core::time::Duration::ZERO,
        };
        let at = now + wait;
        self.report_at = Some(self.report_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Hands out the first `count` that are held, what is missing before them given up, and what is in order then.
    pub(super) fn release(&mut self, count: usize, out: &mut VecDeque<Vec<u8>>) {
        let mut left = count;
        while let Some(first) = self.held.front() {
            if first.sequence != self.next {
                if left == 0 {
                    return;
                }
                self.next = first.sequence;
            }
            left = left.saturating_sub(1);
            let Some(first) = self.held.pop_front() else { return };
            self.next = self.next.wrapping_add(1);
            self.bytes -= first.packet.len();
            out.push_back(first.packet);
        }
    }

    /// When the packet that waited for longest has waited enough.
    pub(super) fn patience(&self, limits: &Limits) -> Option<Instant> {
        self.held.iter().map(|held| held.since + limits.hold).min()
    }

    /// When what is held has waited enough, and when a report is due.
    pub(super) fn timers(&self, limits: &Limits) -> impl Iterator<Item = Deadline> + use<> {
        let strict = |why| move |at| Deadline::strict(at, why);
        let patience = self.patience(limits).map(strict("ESP packets behind a missing one"));
        patience.into_iter().chain(self.report_at.map(strict("a report of what came")))
    }

    /// Hands out what has waited enough.
    pub(super) fn expire(&mut self, now: Instant, limits: &Limits, out: &mut VecDeque<Vec<u8>>) {
        let due = |held: &HeldPacket| held.since + limits.hold <= now;
        // All up to the last one that has waited enough: behind it the wait goes on.
        if let Some(last) = self.held.iter().rposition(due) {
            self.release(last + 1, out);
            self.report_at = Some(now);
        }
    }

    /// Packets that are held, and their bytes.
    pub(super) fn held(&self) -> (usize, usize) {
        (self.held.len(), self.bytes)
    }

    pub(super) fn report(&mut self, spi: u32, number: u64) -> Report {
        (self.unreported, self.report_at) = (0, None);
        let mut bitmap = vec![0; BITMAP];
        let mut len = 0;
        for held in &self.held {
            let bit = (held.sequence.wrapping_sub(self.next) as usize).saturating_sub(1);
            if let Some(byte) = bitmap.get_mut(bit / 8) {
                *byte |= 0x80 >> (bit % 8);
                len = len.max(bit / 8 + 1);
            }
        }
        bitmap.truncate(len);
        Report { spi, number, next: self.next, bitmap }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Device {
    key: PrfKey,
    limits: Limits,
    from: SocketAddr,
    to: SocketAddr,
    number: u64,
    sas: BTreeMap<u32, Order>,
    ready: VecDeque<Vec<u8>>,
}

impl Device {
    pub(super) fn new(key: PrfKey, limits: Limits, from: SocketAddr, to: SocketAddr) -> Self {
        Self { key, limits, from, to, number: 0, sas: BTreeMap::new(), ready: VecDeque::new() }
    }

    /// A packet has come over the radio. Call [`Self::poll_deliver`] and [`Self::poll_report`] afterwards.
    pub fn arrive(&mut self, now: Instant, packet: Vec<u8>) {
        let Some(esp) = numbered(&packet) else {
            self.ready.push_back(packet);
            return;
        };
        if !self.sas.contains_key(&esp.spi) && self.sas.len() >= self.limits.sas {
            let oldest = self.sas.iter().min_by_key(|(_, order)| order.heard).map(|(spi, _)| *spi);
            if let Some(mut order) = oldest.and_then(|spi| self.sas.remove(&spi)) {
                order.release(usize::MAX, &mut self.ready);
            }
        }
        // "The sender's counter is initialized to 0 when an SA is established", so that its first packet has number 1 (RFC 4303
        // section 3.3.3): before one of the first, others were lost.
        let first = if (1..=BEGINNING).contains(&esp.sequence) { 1 } else { esp.sequence };
        let order = self.sas.entry(esp.spi).or_insert_with(|| Order::new(now, first));
        order.arrive(now, esp.sequence, packet, &self.limits, &mut self.ready);
    }

    /// The next packet for the device itself, in order.
    pub fn poll_deliver(&mut self) -> Option<Vec<u8>> {
        self.ready.pop_front()
    }

    /// Appends a report, a whole packet, to be sent to the router; false if none is due.
    pub fn poll_report(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        let due = |order: &Order| order.report_at.is_some_and(|at| at <= now);
        let Some((spi, order)) = self.sas.iter_mut().find(|(_, order)| due(order)) else { return false };
        self.number += 1;
        let report = order.report(*spi, self.number).seal(&self.key);
        // Both addresses are of one family: else there is no way to report at all.
        udp::build(self.from, self.to, &report, out).is_ok()
    }

    /// When [`Self::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        Deadline::earliest(self.timers())
    }

    /// Every timer that runs, of every SA.
    pub fn timers(&self) -> impl Iterator<Item = Deadline> {
        self.sas.values().flat_map(|order| order.timers(&self.limits))
    }

    /// Time has passed. Call [`Self::poll_deliver`] and [`Self::poll_report`] afterwards.
    pub fn handle_timeout(&mut self, now: Instant) {
        for order in self.sas.values_mut() {
            order.expire(now, &self.limits, &mut self.ready);
        }
    }

    /// SAs, held packets and their bytes.
    #[must_use]
    pub fn held(&self) -> (usize, usize, usize) {
        let of = |what: fn(&Order) -> usize| self.sas.values().map(what).sum();
        (self.sas.len(), of(|order| order.held.len()), of(|order| order.bytes))
    }
}

//! The router's end. Owns copies of the ESP packets on their way to one device; must never repeat what a report says has come, nor anything
//! of an SA of which the device has said nothing.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use dormouse_crypto::PrfKey;
use dormouse_sansio::{Deadline, Instant};
use dormouse_wire::ip::Packet;
use dormouse_wire::ip::udp::Udp;

use super::{Limits, PORT, Report, numbered};
use crate::rtt::Rtt;
use crate::sequence::before;
use crate::{Done, Verdict};

/// What a router has done so far, in packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Copies made.
    pub kept: u64,
    /// Sent again from here.
    pub repeated: u64,
    /// Reports taken.
    pub reports: u64,
}

#[derive(Clone, Debug)]
struct Kept {
    sequence: u32,
    packet: Vec<u8>,
    sent: Instant,
    tries: u32,
    due: bool,
}

/// Copies of one SA's packets.
#[derive(Clone, Debug)]
pub(super) struct Sa {
    kept: VecDeque<Kept>,
    pub(super) bytes: usize,
    /// The device reports on it.
    reported: bool,
    rtt: Option<Rtt>,
    doublings: u32,
    timer: Option<Instant>,
    /// The last packet, or report.
    pub(super) heard: Instant,
    /// What was done for it so far.
    pub(super) done: Done,
}

impl Sa {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            kept: VecDeque::new(),
            bytes: 0,
            reported: false,
            rtt: None,
            doublings: 0,
            timer: None,
            heard: now,
            done: Done::default(),
        }
    }

    /// When the first copy counts as lost without a report.
    pub(super) fn deadline(&self) -> Option<Deadline> {
        self.timer.map(|at| Deadline::strict(at, "an ESP packet over the radio was not reported"))
    }

    fn next_timer(&self, now: Instant, limits: &Limits) -> Option<Instant> {
        let once = self.rtt.map_or(limits.initial_rto, |rtt| rtt.timeout().max(limits.min_rto));
        let rto = (once * (1 << self.doublings.min(10))).min(limits.max_rto);
        (self.reported && !self.kept.is_empty()).then(|| now + rto)
    }

    pub(super) fn pass(&mut self, now: Instant, sequence: u32, packet: &[u8], limits: &Limits) -> bool {
        self.heard = now;
        let at = self.kept.partition_point(|kept| before(kept.sequence, sequence));
        if self.kept.get(at).is_some_and(|kept| kept.sequence == sequence) {
            return false;
        }
        // Without room the oldest go: the device has long ceased to wait for them.
        while self.kept.len() >= limits.packets || self.bytes + packet.len() > limits.bytes {
            let Some(oldest) = self.kept.pop_front() else { return false };
            self.bytes -= oldest.packet.len();
        }
        let at = self.kept.partition_point(|kept| before(kept.sequence, sequence));
        self.bytes += packet.len();
        self.kept.insert(at, Kept { sequence, packet: packet.to_vec(), sent: now, tries: 0, due: false });
        self.timer = self.timer.or(self.next_timer(now, limits));
        self.done.kept += 1;
        true
    }

    pub(super) fn report(&mut self, now: Instant, report: &Report, limits: &Limits) {
        (self.heard, self.reported) = (now, true);
        let mut delivered = Instant::ZERO;
        let mut sample = None;
        let quickest = self.rtt.map(|rtt| rtt.quickest);
        let before_it = self.kept.len();
        self.kept.retain(|kept| {
            let came = report.has(kept.sequence);
            if came {
                self.bytes -= kept.packet.len();
                // A repetition that cannot have been it yet says nothing.
                if kept.tries == 0 || quickest.is_some_and(|quickest| now - kept.sent >= quickest) {
                    delivered = delivered.max(kept.sent);
                }
                if kept.tries == 0 {
                    sample = Some(now - kept.sent);
                }
            }
            !came
        });
        if let Some(sample) = sample {
            self.rtt = Some(self.rtt.map_or_else(|| Rtt::first(sample), |rtt| rtt.and(sample)));
        }
        // The radio keeps the order: what was sent before something that came is lost.
        for kept in &mut self.kept {
            kept.due |= kept.sent < delivered && kept.tries < limits.tries;
        }
        if self.kept.len() < before_it || self.timer.is_none() {
            self.doublings = 0;
            self.timer = self.next_timer(now, limits);
        }
    }

    /// Repeats the first packet that is due, if there is one.
    pub(super) fn repeat(&mut self, now: Instant, out: &mut Vec<u8>, limits: &Limits) -> bool {
        let Some(kept) = self.kept.iter_mut().find(|kept| kept.due) else { return false };
        (kept.due, kept.sent, kept.tries) = (false, now, kept.tries + 1);
        out.extend_from_slice(&kept.packet);
        self.done.repeated += 1;
        self.timer = self.next_timer(now, limits);
        true
    }

    pub(super) fn is_due(&self) -> bool {
        self.kept.iter().any(|kept| kept.due)
    }

    /// The radio's round trip, once it was measured.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.rtt.map(Rtt::smoothed)
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(super) fn expire(&mut self, now: Instant, limits: &Limits) {
        if self.timer.is_none_or(|at| now < at) {
            return;
        }
        self.doublings = self.doublings.saturating_add(1);
        while let Some(first) = self.kept.front_mut() {
            if first.tries < limits.tries {
                first.due = true;
                break;
            }
            self.bytes -= first.packet.len();
            self.kept.pop_front();
        }
        self.timer = self.next_timer(now, limits);
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Router {
    key: PrfKey,
    limits: Limits,
    sas: BTreeMap<u32, Sa>,
    /// The number of the latest report.
    latest: Option<u64>,
    stats: Stats,
}

impl Router {
    pub(super) fn new(key: PrfKey, limits: Limits) -> Self {
        Self { key, limits, sas: BTreeMap::new(), latest: None, stats: Stats::default() }
    }

    /// What it has done.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// SAs, copies and their bytes that are held now.
    #[must_use]
    pub fn held(&self) -> (usize, usize, usize) {
        let of = |what: fn(&Sa) -> usize| self.sas.values().map(what).sum();
        (self.sas.len(), of(Sa::len), of(|sa| sa.bytes))
    }

    /// The radio takes a packet for the device now.
    pub fn to_device(&mut self, now: Instant, packet: &[u8]) {
        let Some(esp) = numbered(packet) else { return };
        if !self.sas.contains_key(&esp.spi) && self.sas.len() >= self.limits.sas {
            let oldest = self.sas.iter().min_by_key(|(_, sa)| (sa.reported, sa.heard)).map(|(spi, _)| *spi);
            oldest.map(|spi| self.sas.remove(&spi));
        }
        let sa = self.sas.entry(esp.spi).or_insert_with(|| Sa::new(now));
        self.stats.kept += u64::from(sa.pass(now, esp.sequence, packet, &self.limits));
    }

    /// A packet of the device has arrived; a report is for the router alone.
    pub fn from_device(&mut self, now: Instant, packet: &[u8]) -> Verdict {
        let view = Packet::parse(packet).ok();
        let udp = view.and_then(|view| Udp::parse(&view).ok()).filter(|udp| udp.dst_port == PORT);
        let Some(report) = udp.and_then(|udp| Report::open(&self.key, udp.payload)) else {
            return Verdict::Forward;
        };
        if self.latest.is_none_or(|latest| report.number > latest) {
            self.latest = Some(report.number);
            self.stats.reports += 1;
            if let Some(sa) = self.sas.get_mut(&report.spi) {
                sa.report(now, &report, &self.limits);
            }
        }
        Verdict::Suppress
    }

    /// Appends a packet to be sent to the device before any other; false if there is none.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        for sa in self.sas.values_mut() {
            if sa.repeat(now, out, &self.limits) {
                self.stats.repeated += 1;
                return true;
            }
        }
        false
    }

    /// Whether [`Self::poll_transmit`] has something now.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.sas.values().any(Sa::is_due)
    }

    /// When [`Self::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        Deadline::earliest(self.timers())
    }

    /// Every timer that runs, of every SA.
    pub fn timers(&self) -> impl Iterator<Item = Deadline> {
        self.sas.values().filter_map(Sa::deadline)
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.sas.values_mut().for_each(|sa| sa.expire(now, &self.limits));
    }
}

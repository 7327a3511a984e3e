//! One connection, in the direction towards the device. Owns the copies of what the device has not acknowledged, in the order of
//! their sequence numbers; must never repeat what it has acknowledged.
//!
//! The radio keeps the order, so what was sent before something that arrived, and has not arrived itself, is lost. That rule finds
//! every loss that an acknowledgement shows. A duplicate acknowledgement without SACK does not say what arrived: it shows the loss of the
//! packet that was sent once, and of a repeated one if it comes later than a round trip after it.

use core::time::Duration;
use std::collections::VecDeque;

use dormouse_sansio::{Deadline, Instant};
use dormouse_wire::ip::tcp::{ACK, FIN, RST, SYN, Tcp};

use super::Segment;
use super::limits::Limits;
use crate::rtt::Rtt;
use crate::sequence::{before, sack_blocks};
use crate::{Done, Verdict};

/// The bit by which a receiver echoes congestion (RFC 3168).
const ECE: u8 = 0x40;

/// How long a duplicate by a needless repetition is awaited while no round trip was measured.
const ECHO: Duration = Duration::from_millis(100);

/// A copy of a packet.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    start: u32,
    end: u32,
    packet: Vec<u8>,
    /// The fixed host's clock in it (TSval of RFC 7323), if that is to be read.
    stamp: Option<u32>,
    /// When the radio took it last.
    sent: Instant,
    /// Repeated so often from here.
    tries: u32,
    /// The fixed host has sent it again, or out of order: it knows of the loss, and needs the duplicates to count them.
    by_sender: bool,
    /// The device has it, and said so selectively.
    arrived: bool,
    /// It is to be repeated.
    pub(super) due: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    kept: VecDeque<Kept>,
    /// Of all copies.
    bytes: usize,
    /// The end of what passed towards the device.
    highest: u32,
    /// What the device acknowledged last, and the window beside it.
    acked: Option<(u32, u16)>,
    duplicates: u32,
    rtt: Option<Rtt>,
    /// Local retransmissions by time since something new was acknowledged: each doubles the next.
    doublings: u32,
    /// When the first packet counts as lost without a word from the device.
    timer: Option<Instant>,
    /// When all is repeated.
    persist: Instant,
    /// The last packet either way.
    pub(super) heard: Instant,
    /// When an acknowledgement last went on to the fixed host.
    told: Instant,
    /// The latest time of sending of anything that arrived.
    delivered: Instant,
    /// Duplicates that our own needless repetitions will cause, and until when they count.
    echoes: (u32, Instant),
    /// The packets are sealed: the device's ESP drops what comes twice, and its TCP answers nothing.
    sealed: bool,
    /// What was done for it so far.
    pub(super) done: Done,
}

impl Flow {
    /// Of a connection of which a packet passes that ends before sequence number `highest`, in ESP if `sealed`.
    pub(super) fn new(now: Instant, highest: u32, sealed: bool, limits: &Limits) -> Self {
        Self {
            kept: VecDeque::new(),
            bytes: 0,
            highest,
            acked: None,
            duplicates: 0,
            rtt: None,
            doublings: 0,
            timer: None,
            persist: now + limits.persist,
            heard: now,
            told: now,
            delivered: Instant::ZERO,
            echoes: (0, now),
            sealed,
            done: Done::default(),
        }
    }

    /// Copies, and their bytes.
    pub(super) fn held(&self) -> (usize, usize) {
        (self.kept.len(), self.bytes)
    }

    /// The radio's round trip, once it was measured.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.rtt.map(Rtt::smoothed)
    }

    /// Whether anything is to be repeated.
    pub(super) fn is_due(&self) -> bool {
        self.kept.iter().any(|k| k.due)
    }

    /// When it is forgotten, and, while it has copies, when the first and when all are repeated.
    pub(super) fn timers(&self, limits: &Limits) -> impl Iterator<Item = Deadline> + use<> {
        let kept = !self.kept.is_empty();
        let first = self.timer.filter(|_| kept);
        let first = first.map(|at| Deadline::strict(at, "a packet over the radio was not acknowledged"));
        let all = kept.then(|| Deadline::strict(self.persist, "a device acknowledges nothing"));
        let garbage = Deadline::strict(self.heard + limits.garbage, "a connection without packets");
        first.into_iter().chain(all).chain([garbage])
    }

    /// When the next of its times is reached.
    pub(super) fn deadline(&self, limits: &Limits) -> Instant {
        self.timers(limits).map(|timer| timer.at).min().unwrap_or(self.heard)
    }

    fn rto(&self, limits: &Limits) -> Duration {
        let once = self.rtt.map_or(limits.initial_rto, |rtt| rtt.timeout().max(limits.min_rto));
        (once * (1 << self.doublings.min(10))).min(limits.max_rto)
    }

    fn hear(&mut self, now: Instant, limits: &Limits) {
        self.heard = now;
        self.persist = now + limits.persist;
    }

    /// A segment that takes sequence numbers passes towards the device; it is kept if `keep`.
    pub(super) fn pass(&mut self, now: Instant, segment: &Segment<'_>, keep: bool, limits: &Limits) {
        self.hear(now, limits);
        let (start, packet) = (segment.tcp.sequence, segment.packet);
        let end = start.wrapping_add(segment.len());
        if self.acked.is_some_and(|(acked, _)| !before(acked, end)) {
            return;
        }
        // What the fixed host sends again, or sends late, is its own matter from now on.
        let again = before(start, self.highest);
        if again {
            for kept in &mut self.kept {
                kept.by_sender |= before(start, kept.end) && before(kept.start, end);
            }
            self.kept.retain(|kept| before(kept.start, start) || before(end, kept.end));
            self.bytes = self.kept.iter().map(|kept| kept.packet.len()).sum();
        }
        if before(self.highest, end) {
            self.highest = end;
        }
        let at = self.kept.partition_point(|kept| before(kept.start, start));
        let fits = |kept: Option<&Kept>, apart: fn(&Kept, u32, u32) -> bool| {
            kept.is_none_or(|k| apart(k, start, end))
        };
        let free =
            fits(at.checked_sub(1).and_then(|i| self.kept.get(i)), |k, start, _| !before(start, k.end))
                && fits(self.kept.get(at), |k, _, end| !before(k.start, end));
        if keep && free && self.kept.len() < limits.packets {
            let kept = Kept {
                start,
                end,
                packet: packet.to_vec(),
                stamp: segment.tcp.timestamps().map(|(stamp, _)| stamp),
                sent: now,
                tries: 0,
                by_sender: again,
                arrived: false,
                due: false,
            };
            self.bytes += packet.len();
            self.kept.insert(at, kept);
            self.timer = Some(self.timer.unwrap_or(now + self.rto(limits)));
        }
    }

    /// A segment of the device passes.
    pub(super) fn answer(&mut self, now: Instant, segment: &Segment<'_>, limits: &Limits) -> Verdict {
        self.hear(now, limits);
        let verdict = self.judge(now, segment, limits);
        self.done.suppressed += u64::from(verdict == Verdict::Suppress);
        if verdict == Verdict::Forward && segment.tcp.flags & ACK != 0 {
            self.told = now;
        }
        verdict
    }

    fn judge(&mut self, now: Instant, segment: &Segment<'_>, limits: &Limits) -> Verdict {
        let tcp = &segment.tcp;
        let ack = tcp.acknowledgement;
        let old = self.acked.is_some_and(|(acked, _)| before(ack, acked));
        if tcp.flags & ACK == 0 || old || before(self.highest, ack) {
            return Verdict::Forward;
        }
        let selective = self.take_blocks(now, tcp);
        let new = self.acked.is_none_or(|(acked, _)| before(acked, ack));
        let same_window = self.acked.is_some_and(|(_, window)| window == tcp.window);
        self.acked = Some((ack, tcp.window));
        if new {
            self.advance(now, ack, limits);
        }
        self.drop_outdated(tcp);
        // Bare, and about a gap: otherwise it says something that the fixed host must know.
        let bare = segment.data == 0 && tcp.flags & (FIN | SYN | RST | ECE) == 0;
        let duplicate = !new && bare && (selective || same_window);
        // Nothing is lost: what arrived was there already. To take it for a loss would repeat the next packet as needlessly.
        if duplicate && !selective && self.echoes.0 > 0 && now < self.echoes.1 {
            self.echoes.0 -= 1;
            return Verdict::Suppress;
        }
        self.duplicates = if new { 0 } else { self.duplicates + u32::from(duplicate) };
        let mending = self.mend(now, ack, duplicate, selective, limits);
        let hide = match (new, selective) {
            (false, false) => duplicate,
            // What is already known to have arrived beyond the gap would make the fixed host repeat what is in the gap. It may
            // not wait for long, also where something new was acknowledged: its own timer runs.
            (_, true) => bare && now < self.told + limits.patience,
            (true, false) => false,
        };
        if mending && hide { Verdict::Suppress } else { Verdict::Forward }
    }

    /// Takes note of what has arrived beyond the first gap; whether anything is said of that at all.
    fn take_blocks(&mut self, now: Instant, tcp: &Tcp<'_>) -> bool {
        let mut selective = false;
        for (first, end) in sack_blocks(tcp) {
            // A block below the acknowledgement says that something came twice (RFC 2883).
            if !before(tcp.acknowledgement, first) {
                continue;
            }
            selective = true;
            for at in 0..self.kept.len() {
                let Some(kept) = self.kept.get_mut(at) else { continue };
                if !kept.arrived && !before(kept.start, first) && !before(end, kept.end) {
                    (kept.arrived, kept.due) = (true, false);
                    let (sent, tries) = (kept.sent, kept.tries);
                    self.note_delivery(now, sent, tries);
                }
            }
        }
        selective
    }

    /// Something arrived. One that was repeated so lately that the repetition cannot have been it will arrive once more.
    fn note_delivery(&mut self, now: Instant, sent: Instant, tries: u32) {
        if tries == 0 || self.rtt.is_some_and(|rtt| now - sent >= rtt.quickest) {
            self.delivered = self.delivered.max(sent);
        } else if !self.sealed {
            self.echoes = (self.echoes.0.saturating_add(1), now + self.rtt.map_or(ECHO, |rtt| rtt.timeout()));
        }
    }

    /// Everything before `ack` has arrived.
    fn advance(&mut self, now: Instant, ack: u32, limits: &Limits) {
        let mut once = true;
        let mut last = None;
        while self.kept.front().is_some_and(|kept| !before(ack, kept.end)) {
            let Some(kept) = self.kept.pop_front() else { break };
            once &= kept.tries == 0 && !kept.by_sender && !kept.arrived;
            last = Some(kept.sent);
            self.bytes -= kept.packet.len();
            self.note_delivery(now, kept.sent, kept.tries);
        }
        // Karn's algorithm: not of what was sent twice, nor of what waited at the device for such a packet.
        if let Some(sent) = last.filter(|_| once) {
            let sample = now - sent;
            self.rtt = Some(self.rtt.map_or_else(|| Rtt::first(sample), |rtt| rtt.and(sample)));
        }
        self.doublings = 0;
        self.timer = (!self.kept.is_empty()).then(|| now + self.rto(limits));
    }

    /// Forgets the copies that the device would refuse. It echoes the latest clock of the fixed host that it took in order (TSecr is TS.Recent of
    /// RFC 7323, section 4.3), and drops what has an older one (section 5.3): so it does with packets that were sent before one that the fixed host
    /// repeated ahead of them. Their losses are the fixed host's to repair, which repeats them with a clock of then.
    fn drop_outdated(&mut self, tcp: &Tcp<'_>) {
        let Some((_, recent)) = tcp.timestamps() else { return };
        self.kept.retain(|kept| kept.arrived || kept.stamp.is_none_or(|stamp| !before(stamp, recent)));
        self.bytes = self.kept.iter().map(|kept| kept.packet.len()).sum();
        if self.kept.is_empty() {
            self.timer = None;
        }
    }

    /// Finds what an acknowledgement of `ack` shows to be lost, and has it repeated. Whether the first gap is being mended from here.
    fn mend(&mut self, now: Instant, ack: u32, duplicate: bool, selective: bool, limits: &Limits) -> bool {
        let (delivered, enough) = (self.delivered, self.duplicates >= limits.threshold);
        // Until then duplicates are of packets that the radio had before the repetition: as many as wait in it.
        let again = self.rtt.map_or(limits.initial_rto, |rtt| rtt.smoothed() * 5 / 4);
        let mut mending = false;
        for kept in &mut self.kept {
            let first = !before(ack, kept.start);
            if !first && !selective {
                break;
            }
            if kept.arrived || kept.by_sender || kept.tries >= limits.tries {
                continue;
            }
            let overtaken = kept.sent < delivered;
            let counted =
                first && duplicate && enough && (kept.tries == 0 || !selective && now - kept.sent >= again);
            kept.due |= overtaken || counted;
            mending |= first && (kept.due || kept.tries > 0 || duplicate);
        }
        mending
    }

    /// One of its times is reached. Whether it is to be forgotten.
    pub(super) fn expire(&mut self, now: Instant, limits: &Limits) -> bool {
        if now >= self.heard + limits.garbage {
            return true;
        }
        if now >= self.persist && self.acked.is_none() {
            // The device's acknowledgements do not pass here: what has arrived would be repeated for ever.
            self.kept.clear();
            (self.bytes, self.timer) = (0, None);
        } else if now >= self.persist {
            self.persist = now + limits.persist;
            self.kept.iter_mut().for_each(|kept| kept.due |= !kept.arrived && kept.tries < limits.tries);
        }
        if self.timer.is_some_and(|timer| now >= timer) {
            self.doublings = self.doublings.saturating_add(1);
            let next = now + self.rto(limits);
            let first = self.kept.front_mut().filter(|kept| kept.tries < limits.tries);
            self.timer = first.map(|first| {
                first.due = !first.arrived;
                next
            });
        }
        false
    }

    /// The first packet that is to be repeated.
    pub(super) fn repeat(&mut self, now: Instant, out: &mut Vec<u8>, limits: &Limits) -> bool {
        let rto = self.rto(limits);
        let Some(kept) = self.kept.iter_mut().find(|kept| kept.due) else { return false };
        (kept.due, kept.sent) = (false, now);
        kept.tries = kept.tries.saturating_add(1);
        self.timer = Some(now + rto);
        self.done.repeated += 1;
        out.extend_from_slice(&kept.packet);
        true
    }
}

//! The router's end for all devices whose packets are in zones that it can read. Owns copies of packets that opened under a device's own keys, until
//! the device has reported them; must never keep one that did not open, nor one of a device that does not report.

use std::collections::{BTreeMap, VecDeque};

use core::net::IpAddr;
use core::ops::Bound;
use core::time::Duration;

use dormouse_crypto::PrfKey;
use dormouse_esp::{GrantError, HeaderZones};
use dormouse_keying::{GrantId, HeaderOrder};
use dormouse_sansio::{Deadline, Instant};

use super::router::Sa;
use super::{Answer, Limits, Report, Stats, beside, message, reports_key};
use crate::reader::{FirstZone, Reader};
use crate::{Ends, Followed, Verdict, Way, followed, outer};

/// Devices' SAs that report at once; the one that was silent for longest gives way.
const REPORTING_MOST: usize = 256;
/// Bytes of copies in all; those of SAs that were silent for longest go first.
const BYTES_MOST: usize = 16 << 20;
/// An SA without a report for so long is repaired no longer.
const SILENT: Duration = Duration::from_secs(5);
/// A device hears at least so often that it is repaired.
const ANSWER_EVERY: Duration = Duration::from_millis(500);
/// Answers that wait for the radio; the oldest goes first.
const ANSWERS_MOST: usize = 64;
/// SAs with the same SPI whose keys are tried on one report.
const ALIKE_MOST: usize = 8;

/// What is known of an SA since its device has reported.
#[derive(Debug)]
struct Reporting {
    sa: Sa,
    /// Where its last report came from.
    device: IpAddr,
    reported: Instant,
    answered: Option<Instant>,
}

/// An SA whose keys are here.
#[derive(Debug)]
struct Keyed {
    key: PrfKey,
    /// What has gone to its device since they came: the first number, and the highest.
    passed: Option<(u64, u64)>,
    /// The latest report: the highest number that it says has come, and its own. None counts twice, also if the SA was silent meanwhile.
    latest: Option<(u64, u64)>,
}

impl Keyed {
    fn pass(&mut self, seq: u64) {
        self.passed = Some(self.passed.map_or((seq, seq), |(first, highest)| (first, highest.max(seq))));
    }

    /// Takes a report once, and one of what has gone to the device from here alone. Others have the key: a router that had it before, or a
    /// neighbour. So what one was told counts at no other, nor here once the keys were away; and no forged report is ahead of what is sent,
    /// so that those about the next packet count again.
    fn take(&mut self, report: &Report) -> bool {
        let Some((first, highest)) = self.passed else { return false };
        // On the wire is the lower half of a number.
        let behind = (highest as u32).wrapping_sub(report.highest());
        let Some(came) = highest.checked_sub(behind.into()).filter(|came| *came >= first) else {
            return false;
        };
        let news = self.latest.is_none_or(|latest| (came, report.number) > latest);
        if news {
            self.latest = Some((came, report.number));
        }
        news
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Agent {
    limits: Limits,
    reader: Reader,
    held: BTreeMap<GrantId, Keyed>,
    reporting: BTreeMap<GrantId, Reporting>,
    answers: VecDeque<Vec<u8>>,
    /// What repeated last: the others come first.
    served: Option<GrantId>,
    bytes: usize,
    stats: Stats,
}

impl Agent {
    /// An agent without keys.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// What it has done.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// What it can read in ESP. Keys come by [`Self::obey`].
    pub const fn reader(&mut self) -> &mut Reader {
        &mut self.reader
    }

    /// The first zones that it can read, to look at.
    #[must_use]
    pub const fn readable(&self) -> &HeaderZones {
        self.reader.readable()
    }

    /// SAs that report, copies and their bytes that are held now.
    #[must_use]
    pub fn held(&self) -> (usize, usize, usize) {
        (self.reporting.len(), self.reporting.values().map(|of| of.sa.len()).sum(), self.bytes)
    }

    /// At most `most` of the SAs that report, the one with the latest packet or report first.
    #[must_use]
    pub fn followed(&self, most: usize) -> Vec<Followed> {
        let of = |(id, of): (&GrantId, &Reporting)| Followed {
            ends: Ends::Esp { spi: id.to_device, device: of.device },
            held: of.sa.len(),
            done: of.sa.done,
            round_trip: of.sa.round_trip(),
            heard: of.sa.heard,
        };
        followed::latest(self.reporting.iter().map(of), most)
    }

    /// Takes keys, or forgets them.
    ///
    /// # Errors
    /// If they cannot be used; what was held before stays.
    pub fn obey(&mut self, order: &HeaderOrder) -> Result<(), GrantError> {
        self.reader.zones().apply(order)?;
        match order {
            HeaderOrder::Grant(grant) => {
                let key = reports_key(&grant.to_device.keymat);
                self.held.insert(grant.id(), Keyed { key, passed: None, latest: None });
            }
            HeaderOrder::Revoke(id) => {
                self.held.remove(id);
                self.forget(*id);
            }
        }
        Ok(())
    }

    /// A packet for the device has arrived, and the radio takes it at once.
    pub fn to_device(&mut self, now: Instant, packet: &[u8]) {
        let first = self.reader.open(packet, Way::ToDevice);
        self.radio_takes(now, packet, &first);
    }

    /// The radio takes a packet for the device now, of which `first` was read when it arrived.
    pub(crate) fn radio_takes(&mut self, now: Instant, packet: &[u8], first: &FirstZone) {
        let (Some(header), Some(whole)) = (first.header(), outer::whole(packet)) else { return };
        let (id, bytes) = (header.grant(), whole.as_bytes());
        if let Some(held) = self.held.get_mut(&id) {
            held.pass(header.seq());
        }
        if !self.reporting.contains_key(&id) {
            return;
        }
        self.make_room(id, bytes.len());
        let Some(of) = self.reporting.get_mut(&id) else { return };
        let before = of.sa.bytes;
        // The lower half: packets that are kept are close to each other.
        self.stats.kept += u64::from(of.sa.pass(now, header.seq() as u32, bytes, &self.limits));
        self.bytes = self.bytes - before + of.sa.bytes;
    }

    /// A packet of the device has arrived; a report is for the router alone.
    pub fn from_device(&mut self, now: Instant, packet: &[u8]) -> Verdict {
        let Some(whole) = outer::whole(packet) else { return Verdict::Forward };
        let Some(view) = outer::tunnelled(whole) else { return Verdict::Forward };
        let Some(esp) = outer::esp(&view) else { return Verdict::Forward };
        let Some((spi, report)) = message(esp) else {
            self.reader.look(&view, esp, Way::FromDevice);
            return Verdict::Forward;
        };
        let mut known = self.held.iter().filter(|(id, _)| id.from_device == spi).take(ALIKE_MOST).peekable();
        if known.peek().is_none() {
            return Verdict::Forward;
        }
        let opened = known.find_map(|(id, held)| {
            let report = Report::open(&held.key, report).filter(|report| report.spi == id.to_device)?;
            Some((*id, report))
        });
        let Some((id, report)) = opened else { return Verdict::Forward };
        let answer = self.reported(now, view.src(), id, &report);
        if let Some(answer) = answer.and_then(|answer| outer::reply(&whole, &answer)) {
            if self.answers.len() >= ANSWERS_MOST {
                self.answers.pop_front();
            }
            self.answers.push_back(answer);
        }
        Verdict::Suppress
    }

    /// A report of this SA's device, from this address. What is to be said to it, if it is time.
    fn reported(&mut self, now: Instant, device: IpAddr, id: GrantId, report: &Report) -> Option<Vec<u8>> {
        if !self.held.get_mut(&id)?.take(report) {
            return None;
        }
        self.stats.reports += 1;
        if !self.reporting.contains_key(&id) && self.reporting.len() >= REPORTING_MOST {
            let oldest = self.reporting.iter().min_by_key(|(_, of)| of.reported).map(|(of, _)| *of);
            oldest.into_iter().for_each(|of| self.forget(of));
        }
        let new = || Reporting { sa: Sa::new(now), device, reported: now, answered: None };
        let of = self.reporting.entry(id).or_insert_with(new);
        (of.reported, of.device) = (now, device);
        let before = of.sa.bytes;
        of.sa.report(now, report, &self.limits);
        self.bytes = self.bytes - before + of.sa.bytes;
        if of.answered.is_some_and(|at| now < at + ANSWER_EVERY) {
            return None;
        }
        of.answered = Some(now);
        let key = &self.held.get(&id)?.key;
        Some(beside(id.to_device, &Answer { number: report.number }.seal(key)))
    }

    /// Appends a packet to be sent to the device before any other; false if there is none.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        if let Some(answer) = self.answers.pop_front() {
            out.extend_from_slice(&answer);
            return true;
        }
        let after = self.served.map_or(Bound::Unbounded, Bound::Excluded);
        let due = |(id, of): (&GrantId, &Reporting)| of.sa.is_due().then_some(*id);
        let next = self.reporting.range((after, Bound::Unbounded)).find_map(due);
        let Some(id) = next.or_else(|| self.reporting.iter().find_map(due)) else { return false };
        self.served = Some(id);
        let any = self.reporting.get_mut(&id).is_some_and(|of| of.sa.repeat(now, out, &self.limits));
        self.stats.repeated += u64::from(any);
        any
    }

    /// Whether [`Self::poll_transmit`] has something now.
    #[must_use]
    pub fn is_due(&self) -> bool {
        !self.answers.is_empty() || self.reporting.values().any(|of| of.sa.is_due())
    }

    /// When [`Self::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        Deadline::earliest(self.timers())
    }

    /// Every timer that runs, of every SA that reports.
    pub fn timers(&self) -> impl Iterator<Item = Deadline> {
        self.reporting.values().flat_map(|of| {
            let silent = Deadline::strict(of.reported + SILENT, "a device without reports");
            of.sa.deadline().into_iter().chain([silent])
        })
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        let silent = |(id, of): (&GrantId, &Reporting)| (now >= of.reported + SILENT).then_some(*id);
        for id in self.reporting.iter().filter_map(silent).collect::<Vec<_>>() {
            self.forget(id);
        }
        for of in self.reporting.values_mut() {
            let before = of.sa.bytes;
            of.sa.expire(now, &self.limits);
            self.bytes = self.bytes - before + of.sa.bytes;
        }
    }

    /// Copies of SAs that were silent for longest give way to `len` bytes of this one.
    fn make_room(&mut self, id: GrantId, len: usize) {
        while self.bytes.saturating_add(len) > BYTES_MOST {
            let others = self.reporting.iter().filter(|(other, of)| **other != id && of.sa.bytes > 0);
            let Some(oldest) = others.min_by_key(|(_, of)| of.reported).map(|(of, _)| *of) else { return };
            self.forget(oldest);
        }
    }

    fn forget(&mut self, id: GrantId) {
        if let Some(of) = self.reporting.remove(&id) {
            self.bytes -= of.sa.bytes;
        }
    }
}

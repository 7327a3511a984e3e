//! What the figures need of each client, collected in one pass and in bounded memory. Owns the questions that the figures
//! ask; must never draw.

use core::time::Duration;
use std::collections::BTreeSet;

use crate::activity::Moment;
use crate::analyse::Watch;
use crate::clients::Client;
use crate::index::mix;
use dormouse_energy::account::{ClientReport, Ledger, Proxy, Settings, paper_proxy};
use dormouse_energy::cost::SleepCost;
use dormouse_energy::model::{Model, Resumption};
use dormouse_energy::schedule::{Policy, TIME_OUTS};
use dormouse_energy::{PacketInfo, WakeOn};
use dormouse_sansio::Instant;

/// Gateway loads of the figures: clients served at once (paper 000, section 3.4).
pub const LOADS: [u32; 3] = [1, 10, 20];
/// Thresholds of the figures (paper 000, Fig. 7).
pub const THRESHOLDS: [f64; 4] = [0.5, 0.6, 0.7, 0.8];
/// Clients on which the figures that need many schedulers are computed; the paper has as many connections.
pub const SAMPLE: usize = 100;
/// Clients on which losses are counted.
pub const LOSS_SAMPLE: usize = 500;
/// Columns of the timeline.
pub const COLUMNS: usize = 480;
/// Buckets of the histogram of idle periods, four to an octave from a quarter of a second on.
pub const BUCKETS: usize = 96;

/// What today's gateway can answer for a sleeping client, beyond the paper's three: names, time, discovery, neighbours.
#[must_use]
pub fn modern_proxy(packet: &PacketInfo) -> bool {
    paper_proxy(packet)
        || matches!(packet.protocol, 2 | 0x806)
        || [packet.local_port, packet.remote_port]
            .iter()
            .any(|p| matches!(p, 123 | 137 | 138 | 546 | 547 | 1900 | 3702 | 5353 | 5355))
}

/// What is the same for every client.
#[derive(Clone, Debug)]
pub struct Questions {
    /// The accounting of the report.
    pub settings: Settings,
    /// The device.
    pub model: Model,
    /// Clients of the sample, by label.
    pub sample: BTreeSet<String>,
    /// Clients of the larger sample for losses.
    pub loss_sample: BTreeSet<String>,
}

impl Questions {
    /// Chooses the sample: the [`SAMPLE`] clients whose names have the smallest hashes, so that the choice depends on neither
    /// order nor chance.
    #[must_use]
    pub fn new(settings: Settings, model: Model, clients: &[Client]) -> Self {
        let hash = |name: &str| name.bytes().fold(0u64, |h, b| mix(h ^ u64::from(b)));
        let mut names: Vec<(u64, &str)> =
            clients.iter().map(|c| (hash(&c.label), c.label.as_str())).collect();
        names.sort_unstable();
        let first = |n: usize| names.iter().take(n).map(|(_, name)| (*name).to_owned()).collect();
        Self { settings, model, sample: first(SAMPLE), loss_sample: first(LOSS_SAMPLE) }
    }

    /// The cost of a sleep for each protocol and load, in the order of [`Resumption::ALL`] and [`LOADS`].
    pub fn costs(&self) -> impl Iterator<Item = (Resumption, u32, SleepCost)> {
        let model = self.model;
        Resumption::ALL
            .into_iter()
            .flat_map(move |r| LOADS.into_iter().map(move |load| (r, load, model.sleep_cost(r, load))))
    }
}

/// When a client was idle, in at most [`COLUMNS`] columns that grow as the recording does.
#[derive(Clone, PartialEq, Debug)]
pub struct Timeline {
    /// First packet, in nanoseconds since 1970.
    pub origin: u64,
    /// Width of a column, in nanoseconds.
    pub width: u64,
    /// Packets, and the longest idle period (in seconds) that ended in the column: from one packet that wakes to the next.
    pub columns: Vec<(u32, f32)>,
}

impl Timeline {
    const fn new(origin: u64) -> Self {
        Self { origin, width: 1_000_000_000, columns: Vec::new() }
    }

    fn packets(&mut self, at: u64, count: u32, idle: f64) {
        let since = at.saturating_sub(self.origin);
        while since / self.width >= COLUMNS as u64 {
            self.halve();
        }
        let column = usize::try_from(since / self.width).unwrap_or(0);
        if self.columns.len() <= column {
            self.columns.resize(column + 1, (0, 0.0));
        }
        if let Some((packets, longest)) = self.columns.get_mut(column) {
            *packets = packets.saturating_add(count);
            let idle = idle as f32;
            *longest = longest.max(idle);
        }
    }

    fn halve(&mut self) {
        self.width = self.width.saturating_mul(2);
        let pairs = self.columns.chunks(2);
        self.columns = pairs
            .map(|p| p.iter().fold((0u32, 0.0f32), |a, b| (a.0.saturating_add(b.0), b.1.max(a.1))))
            .collect();
    }
}

/// What is collected of one client.
pub struct Figures {
    settings: Settings,
    session: u32,
    last: Option<u64>,
    /// When the last packet came in this session that wakes a sleeping radio.
    woken: Option<u64>,
    /// The timeline.
    pub timeline: Timeline,
    /// Idle periods by length; see [`bucket_start`].
    pub histogram: Vec<u32>,
    ledgers: Ledgers<Ledger>,
    /// The results, once the recording is over: the sessions of each ledger.
    pub results: Ledgers<Vec<ClientReport>>,
}

/// A client's further accounts: the ledgers as long as packets come, and then their sessions.
#[derive(Clone, Debug)]
pub struct Ledgers<T> {
    /// Without any policy but the clairvoyant, for each of [`Questions::costs`].
    pub optimum: Vec<T>,
    /// Every fixed time-out of [`TIME_OUTS`].
    pub time_outs: Vec<T>,
    /// For a client of the larger sample, losses under `paper` and `dormouse` with only the client's packets waking: with the paper's proxy, with today's.
    pub loss: Vec<T>,
    /// For a client of the sample: [`THRESHOLDS`] squared (alpha outside), once for full IKEv2, once for MOBIKE and tickets, load 20.
    pub thresholds: Vec<T>,
    /// For each protocol at load 20: `paper` with beta 0.5 and alpha 0.8, `paper` with 0.8 and 0.5, `dormouse`.
    pub protocols: Vec<T>,
    /// For each true load: `paper` that believes each of [`LOADS`]; MOBIKE and tickets.
    pub misjudged: Vec<T>,
}

impl<T> Default for Ledgers<T> {
    fn default() -> Self {
        let [optimum, time_outs, loss, thresholds, protocols, misjudged] = [const { Vec::new() }; 6];
        Self { optimum, time_outs, loss, thresholds, protocols, misjudged }
    }
}

impl<T> Ledgers<T> {
    fn all(&mut self) -> impl Iterator<Item = &mut T> {
        let Self { optimum, time_outs, loss, thresholds, protocols, misjudged } = self;
        optimum.iter_mut().chain(time_outs).chain(loss).chain(thresholds).chain(protocols).chain(misjudged)
    }

    fn map<U>(self, f: fn(T) -> U) -> Ledgers<U> {
        let each = |all: Vec<T>| all.into_iter().map(f).collect();
        Ledgers {
            optimum: each(self.optimum),
            time_outs: each(self.time_outs),
            loss: each(self.loss),
            thresholds: each(self.thresholds),
            protocols: each(self.protocols),
            misjudged: each(self.misjudged),
        }
    }
}

/// The protocols of the figure on thresholds: the dearest and the best practical one.
pub const EXTREMES: [Resumption; 2] = [Resumption::Full, Resumption::MobikeThenTicket];

impl Ledgers<Ledger> {
    fn new(questions: &Questions, client: &Client) -> Self {
        let Questions { settings, model, .. } = questions;
        let with = |cost: SleepCost| Settings { cost, ..*settings };
        let ledger = |cost: SleepCost, policies: &[Policy]| {
            Ledger::new(with(cost), policies.iter().map(|p| p.scheduler(cost.break_even())).collect())
        };
        let mut ledgers = Self {
            optimum: questions.costs().map(|(_, _, cost)| ledger(cost, &[])).collect(),
            time_outs: vec![ledger(settings.cost, &TIME_OUTS.map(Policy::Timeout))],
            ..Self::default()
        };
        if questions.loss_sample.contains(&client.label) {
            let loss = |proxy: Proxy| {
                let settings = Settings { wake_on: WakeOn::Outgoing, proxy: Some(proxy), ..*settings };
                let policies = [Policy::PAPER, Policy::Dormouse];
                Ledger::new(settings, policies.map(|p| p.scheduler(settings.cost.break_even())).into())
            };
            ledgers.loss = vec![loss(paper_proxy), loss(modern_proxy)];
        }
        if questions.sample.contains(&client.label) {
            let grid: Vec<Policy> = THRESHOLDS
                .into_iter()
                .flat_map(|alpha| THRESHOLDS.map(|beta| Policy::Paper { alpha, beta }))
                .collect();
            ledgers.thresholds = EXTREMES.map(|r| ledger(model.sleep_cost(r, 20), &grid)).into();
            let cautious = Policy::Paper { alpha: 0.8, beta: 0.5 };
            let protocols = [cautious, Policy::PAPER, Policy::Dormouse];
            ledgers.protocols = Resumption::ALL.map(|r| ledger(model.sleep_cost(r, 20), &protocols)).into();
            let r = Resumption::MobikeThenTicket;
            let misjudged = LOADS.map(|load| {
                let believed = LOADS.map(|l| Policy::PAPER.scheduler(model.break_even(r, l)));
                Ledger::new(with(model.sleep_cost(r, load)), believed.into())
            });
            ledgers.misjudged = misjudged.into();
        }
        ledgers
    }
}

impl Figures {
    /// For one client.
    #[must_use]
    pub fn new(questions: &Questions, client: &Client) -> Self {
        Self {
            settings: questions.settings,
            session: 0,
            last: None,
            woken: None,
            timeline: Timeline::new(0),
            histogram: vec![0; BUCKETS],
            ledgers: Ledgers::<Ledger>::new(questions, client),
            results: Ledgers::default(),
        }
    }

    /// Of a client whose traffic was followed before: what came out then.
    #[must_use]
    pub fn of(questions: &Questions, timeline: Timeline, results: Ledgers<Vec<ClientReport>>) -> Self {
        let (settings, ledgers) = (questions.settings, Ledgers::default());
        let histogram = Vec::new();
        Self { settings, session: 0, last: None, woken: None, timeline, histogram, ledgers, results }
    }
}

impl Watch for Figures {
    fn moment(&mut self, moment: &Moment, session: u32) {
        let Moment { at, count, info } = *moment;
        if session != self.session {
            self.session = session;
            (self.last, self.woken) = (None, None);
            self.ledgers.all().for_each(Ledger::leave);
        }
        if self.timeline.columns.is_empty() {
            self.timeline = Timeline::new(at);
        }
        let last = self.last.unwrap_or(at);
        let end = last.max(at);
        self.last = Some(end);
        // Absence is no idle time.
        let silence = Duration::from_nanos(end - last);
        if self.settings.session.is_some_and(|longest| silence > longest) {
            self.woken = None;
        }
        let mut idle = 0.0;
        if self.settings.wake_on == WakeOn::All || info.is_outgoing() {
            let idle_since = self.woken.replace(end).unwrap_or(end);
            let silence = Duration::from_nanos(end - idle_since);
            if silence >= self.settings.min_idle {
                idle = silence.as_secs_f64();
                if let Some(bucket) = self.histogram.get_mut(bucket(idle)) {
                    *bucket = bucket.saturating_add(1);
                }
            }
        }
        self.timeline.packets(end, u32::try_from(count).unwrap_or(u32::MAX), idle);
        let now = Instant::from_nanos(at);
        self.ledgers.all().for_each(|l| l.packets(now, &info, count));
    }

    fn finish(&mut self) {
        self.results = core::mem::take(&mut self.ledgers).map(Ledger::sessions);
    }
}

/// The bucket of an idle period of `seconds`.
#[must_use]
pub fn bucket(seconds: f64) -> usize {
    ((seconds.max(1e-9) * 4.0).log2() * 4.0).clamp(0.0, (BUCKETS - 1) as f64) as usize
}

/// Where a bucket begins, in seconds.
#[must_use]
pub fn bucket_start(bucket: usize) -> f64 {
    let exponent = bucket as f64 / 4.0;
    0.25 * exponent.exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_begin_where_they_say() {
        assert!(
            (1..BUCKETS)
                .all(|b| bucket(bucket_start(b) * 1.001) == b && bucket(bucket_start(b) * 0.999) == b - 1)
        );
    }

    #[test]
    fn a_timeline_keeps_its_sums_in_bounded_memory() {
        let mut timeline = Timeline::new(5);
        for n in 0..10_000u64 {
            timeline.packets(5 + n * 7_000_000_000, 1, if n == 5000 { 99.0 } else { 7.0 });
        }
        assert!(timeline.columns.len() <= COLUMNS);
        assert_eq!(timeline.columns.iter().map(|c| c.0).sum::<u32>(), 10_000);
        assert_eq!(timeline.columns.iter().filter(|c| c.1 > 50.0).count(), 1);
    }
}

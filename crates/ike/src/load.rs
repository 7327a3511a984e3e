//! How long sessions take to come back, by how many do so at once and by the time of day: what a gateway measures and tells
//! its devices, so that their break-even times follow it. Owns the estimate; must never read a clock or send anything.
//!
//! # The estimate
//! Each session that comes up is a sample: its latency, and how many were on their way when it began, itself included.
//! - *By concurrency*: a line `alone + per_client (clients - 1)`, fitted by least squares in which a sample counts
//!   [`FORGET`] times as much as the one before it is now, so that a new machine or a new configuration is learned within some
//!   hundreds of sessions.
//! - *By time of day*: for each half hour of the UTC day the mean of the samples that fell into it, averaged over days
//!   with weight [`TODAY`] for the newest. A half hour without a client counts as one client.
//!
//! Memory: a kilobyte and a half, always.

use core::time::Duration;

use dormouse_sansio::UnixTime;
use dormouse_wire::codec::Reader;
use dormouse_wire::ike::dormancy::{LoadReport, SLOTS, SlotForecast};

const SLOT_SECONDS: u64 = 1_800;
/// Weight of what was learned before, at each sample.
const FORGET: f64 = 0.995;
/// Weight of the newest day in the average of a half hour.
const TODAY: f64 = 0.3;
/// A session that took longer met a problem that is not load; it counts as this long.
const LONGEST: Duration = Duration::from_secs(60);
/// So many sessions at once are what gateways are compared by.
const TOGETHER: f64 = 16.0;
/// Samples without which nothing is said of that.
const ENOUGH: f64 = 16.0;
const VERSION: u8 = 1;

/// The average of one half hour.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Usual {
    clients: f64,
    /// In seconds; none while no sample came.
    latency: Option<f64>,
}

/// The half hour that runs.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Present {
    /// Half hours since the epoch.
    number: u64,
    samples: u32,
    clients: f64,
    latency: f64,
}

/// Moments of the samples, old ones fading.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
struct Moments {
    weight: f64,
    clients: f64,
    latency: f64,
    clients_squared: f64,
    product: f64,
}

/// See the module's text.
#[derive(Clone, PartialEq, Debug)]
pub struct LoadHistory {
    usual: [Option<Usual>; SLOTS],
    present: Option<Present>,
    moments: Moments,
    recorded: u64,
}

impl Default for LoadHistory {
    fn default() -> Self {
        Self { usual: [None; SLOTS], present: None, moments: Moments::default(), recorded: 0 }
    }
}

impl LoadHistory {
    /// Nothing seen yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A session came up at `now` that took `latency`; when it began, `clients` were on their way, itself included.
    pub fn record(&mut self, now: UnixTime, clients: usize, latency: Duration) {
        self.turn_to(now);
        self.recorded += 1;
        let clients = u32::try_from(clients.clamp(1, 100_000)).map_or(1.0, f64::from);
        let latency = latency.min(LONGEST).as_secs_f64();
        if let Some(present) = &mut self.present {
            present.samples = present.samples.saturating_add(1);
            present.clients += clients;
            present.latency += latency;
        }
        let m = &mut self.moments;
        for (sum, x) in [
            (&mut m.weight, 1.0),
            (&mut m.clients, clients),
            (&mut m.latency, latency),
            (&mut m.clients_squared, clients * clients),
            (&mut m.product, clients * latency),
        ] {
            *sum = *sum * FORGET + x;
        }
    }

    /// Sessions that were recorded since this history was made or imported: whether there is anything new to store.
    #[must_use]
    pub const fn recorded(&self) -> u64 {
        self.recorded
    }

    /// The report for a device at `now`, while `in_progress` sessions are on their way.
    pub fn report(&mut self, now: UnixTime, in_progress: usize) -> LoadReport {
        self.turn_to(now);
        let (alone, per_client) = self.moments.line();
        let number = now.0 / SLOT_SECONDS;
        let forecast = (0..SLOTS as u64)
            .map(|ahead| {
                let usual = self.slot(number + ahead);
                let clients = usual.map_or(1.0, |u| u.clients);
                let latency = usual.and_then(|u| u.latency).unwrap_or(alone + per_client * (clients - 1.0));
                SlotForecast { clients_16: whole_u16(clients * 16.0), latency_ms: whole_u16(latency * 1e3) }
            })
            .collect();
        LoadReport {
            into_slot: u16::try_from(now.0 % SLOT_SECONDS).unwrap_or(0),
            alone_us: whole_u32(alone * 1e6),
            per_client_us: whole_u32(per_client * 1e6),
            clients_now_16: u16::try_from(in_progress.saturating_mul(16)).unwrap_or(u16::MAX),
            forecast,
        }
    }

    /// How long a session takes here when [`TOGETHER`] begin at once, as the samples say: what a busy gateway is measured by. `None` before there
    /// are [`ENOUGH`].
    #[must_use]
    pub fn session_time(&self) -> Option<Duration> {
        if self.moments.weight < ENOUGH {
            return None;
        }
        let (alone, per_client) = self.moments.line();
        let seconds = alone + per_client * (TOGETHER - 1.0);
        Duration::try_from_secs_f64(seconds).ok().map(|time| time.min(LONGEST))
    }

    /// What is usual in a half hour; of the present one, what today has shown so far counts with it.
    fn slot(&self, number: u64) -> Option<Usual> {
        let usual = self.usual.get(index(number)).copied().flatten();
        match self.present.filter(|p| p.number == number && p.samples > 0) {
            Some(present) => Some(merged(usual, Some(&present))),
            None => usual,
        }
    }

    /// Closes the half hour that ran, and those without a client.
    fn turn_to(&mut self, now: UnixTime) {
        let number = now.0 / SLOT_SECONDS;
        let fresh = Present { number, samples: 0, clients: 0.0, latency: 0.0 };
        let Some(present) = self.present else {
            self.present = Some(fresh);
            return;
        };
        if number <= present.number {
            // The same half hour, or a clock that was set back: the samples go on counting where they are.
            return;
        }
        self.close(present.number, Some(&present));
        // A clock that was set far ahead is no evidence of empty days.
        for empty in (present.number + 1..number).take(SLOTS) {
            self.close(empty, None);
        }
        self.present = Some(fresh);
    }

    fn close(&mut self, number: u64, present: Option<&Present>) {
        if let Some(usual) = self.usual.get_mut(index(number)) {
            *usual = Some(merged(*usual, present.filter(|p| p.samples > 0)));
        }
    }

    /// For a file: the driver may store it and hand it to [`LoadHistory::import`] after a restart. Of the half hour that runs
    /// only the line is kept.
    #[must_use]
    pub fn export(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        let m = &self.moments;
        for sum in [m.weight, m.clients, m.latency, m.clients_squared, m.product] {
            out.extend_from_slice(&sum.to_bits().to_be_bytes());
        }
        for usual in &self.usual {
            let none = f64::NAN;
            let (clients, latency) = usual.map_or((none, none), |u| (u.clients, u.latency.unwrap_or(none)));
            out.extend_from_slice(&clients.to_bits().to_be_bytes());
            out.extend_from_slice(&latency.to_bits().to_be_bytes());
        }
        out
    }

    /// What [`LoadHistory::export`] made; `None` if it is anything else.
    #[must_use]
    pub fn import(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new("load history", bytes);
        if r.u8().ok()? != VERSION {
            return None;
        }
        let mut number = || r.u64().ok().map(f64::from_bits);
        let within = |x: f64| x.is_finite() && (0.0..1e15).contains(&x);
        let mut sums = [0.0; 5];
        for sum in &mut sums {
            *sum = number().filter(|x| within(*x))?;
        }
        let [weight, clients, latency, clients_squared, product] = sums;
        let mut usual = [None; SLOTS];
        for slot in &mut usual {
            let (clients, latency) = (number()?, number()?);
            *slot = within(clients).then(|| Usual { clients, latency: within(latency).then_some(latency) });
        }
        r.all().ok()?;
        let moments = Moments { weight, clients, latency, clients_squared, product };
        Some(Self { usual, present: None, moments, recorded: 0 })
    }
}

impl Moments {
    /// Seconds alone, and for each further client. Latency does not fall with load, and is never zero.
    fn line(&self) -> (f64, f64) {
        if self.weight <= 0.0 {
            return (0.0, 0.0);
        }
        let (mean_clients, mean_latency) = (self.clients / self.weight, self.latency / self.weight);
        let variance = self.clients_squared / self.weight - mean_clients * mean_clients;
        let covariance = self.product / self.weight - mean_clients * mean_latency;
        let slope = if variance > 1e-3 { (covariance / variance).max(0.0) } else { 0.0 };
        let alone = mean_latency - slope * (mean_clients - 1.0);
        if alone >= 0.0 {
            return (alone, slope);
        }
        // A line through the origin of "alone takes no time" and the centre of what was seen.
        (0.0, mean_latency / (mean_clients - 1.0).max(1.0))
    }
}

/// The average of a half hour after one more day.
fn merged(usual: Option<Usual>, day: Option<&Present>) -> Usual {
    let clients = day.map_or(1.0, |p| p.clients / f64::from(p.samples));
    let latency = day.map(|p| p.latency / f64::from(p.samples));
    let Some(usual) = usual else { return Usual { clients, latency } };
    let fade = |old: f64, new: f64| old + TODAY * (new - old);
    let latency = match (usual.latency, latency) {
        (Some(old), Some(new)) => Some(fade(old, new)),
        (old, new) => new.or(old),
    };
    Usual { clients: fade(usual.clients, clients), latency }
}

fn index(number: u64) -> usize {
    usize::try_from(number % SLOTS as u64).unwrap_or(0)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the range of the type"
)]
fn whole_u32(x: f64) -> u32 {
    x.round().clamp(0.0, f64::from(u32::MAX)) as u32
}

fn whole_u16(x: f64) -> u16 {
    u16::try_from(whole_u32(x)).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    fn at(day: u64, slot: u64) -> UnixTime {
        UnixTime((20_000 + day) * DAY + slot * SLOT_SECONDS + 7)
    }

    #[test]
    fn a_line_is_found_and_a_new_one_learned() {
        let mut load = LoadHistory::new();
        for clients in (1..=50).cycle().take(2_000) {
            load.record(at(0, 0), clients, Duration::from_millis(40 + 3 * (clients as u64 - 1)));
        }
        let report = load.report(at(0, 0), 5);
        assert!(
            report.alone_us.abs_diff(40_000) < 10 && report.per_client_us.abs_diff(3_000) < 2,
            "{report:?}"
        );
        assert_eq!(report.latency_at(11.0).as_millis(), 70);
        assert_eq!(report.clients_in(Duration::ZERO).to_bits(), 6f64.to_bits());
        for clients in (1..=50).cycle().take(2_000) {
            load.record(at(0, 0), clients, Duration::from_millis(20));
        }
        let report = load.report(at(0, 0), 0);
        assert!(report.alone_us.abs_diff(20_000) < 500 && report.per_client_us < 20, "{report:?}");
    }

    #[test]
    fn how_long_a_session_takes_is_said_when_it_is_known() {
        let mut load = LoadHistory::new();
        (1..=17).for_each(|n| {
            let known = load.session_time();
            assert_eq!(known.is_some(), n > 17, "{n}");
            load.record(at(0, 0), n, Duration::from_millis(40 + 3 * (n as u64 - 1)));
        });
        let time = load.session_time().expect("enough").as_millis();
        assert!(time.abs_diff(40 + 15 * 3) <= 1, "{time}");
        // Also of moments that no sample makes.
        let mut bytes = load.export();
        bytes[1..41].fill(0x42);
        if let Some(absurd) = LoadHistory::import(&bytes) {
            assert!(absurd.session_time().is_none_or(|time| time <= LONGEST));
        }
        for seed in 0..1_000_u64 {
            let huge = |n: u64| ((seed * 7 + n).pow(2) % 1_000) as f64 * 1e11 + 17.0;
            (0..5).for_each(|n| {
                let at = 1 + n as usize * 8;
                bytes[at..at + 8].copy_from_slice(&huge(n).to_bits().to_be_bytes());
            });
            let absurd = LoadHistory::import(&bytes).expect("within bounds");
            assert!(absurd.session_time().is_some_and(|time| time <= LONGEST), "{seed}");
        }
    }

    #[test]
    fn equal_loads_give_no_slope_and_absurd_samples_no_absurd_line() {
        let mut load = LoadHistory::new();
        assert_eq!(load.report(at(0, 0), 0).alone_us, 0);
        (0..10).for_each(|_| load.record(at(0, 0), 1, Duration::from_millis(30)));
        let report = load.report(at(0, 0), 0);
        assert_eq!((report.alone_us, report.per_client_us), (30_000, 0));
        load.record(at(0, 0), usize::MAX, Duration::MAX);
        load.record(at(0, 0), 0, Duration::ZERO);
        let report = load.report(at(0, 0), usize::MAX);
        assert!(report.alone() <= LONGEST && report.per_client() <= LONGEST);
    }

    #[test]
    fn the_morning_rush_is_forecast_from_the_days_before() {
        let mut load = LoadHistory::new();
        for day in 0..10 {
            for slot in 0..48 {
                let clients = if slot == 17 { 40 } else { 2 };
                for _ in 0..5 {
                    load.record(at(day, slot), clients, Duration::from_millis(50 + clients as u64));
                }
            }
        }
        let report = load.report(at(10, 16), 0);
        let clients = |hours: f64| report.clients_in(Duration::from_secs_f64(hours * 3_600.0)).round();
        assert_eq!([clients(0.1), clients(0.6), clients(1.1), clients(23.9)], [2.0, 40.0, 2.0, 2.0]);
        let rush = report.forecast.get(1).copied().unwrap_or_default();
        assert_eq!((rush.clients_16, rush.latency_ms), (640, 90));
        // The rush moves away; within some days the forecast follows.
        for day in 10..30 {
            load.record(at(day, 16), 2, Duration::from_millis(52));
        }
        assert!(
            load.report(at(30, 17), 0).clients_in(Duration::from_secs(61)) < 2.0,
            "no client comes there any more"
        );
    }

    #[test]
    fn what_is_stored_comes_back_and_anything_else_does_not() {
        let mut load = LoadHistory::new();
        for slot in 0..20 {
            load.record(at(0, slot), slot as usize, Duration::from_millis(slot));
        }
        load.report(at(1, 0), 0);
        let stored = load.export();
        let mut back = LoadHistory::import(&stored).expect("its own bytes");
        assert_eq!(back.export(), stored);
        assert_eq!(back.report(at(1, 0), 1), load.report(at(1, 0), 1));
        for len in 0..stored.len() {
            assert_eq!(LoadHistory::import(&stored[..len]), None, "{len}");
        }
        let mut bad = stored.clone();
        bad[1..9].copy_from_slice(&f64::INFINITY.to_bits().to_be_bytes());
        assert_eq!(LoadHistory::import(&bad), None);
    }

    #[test]
    fn a_clock_that_jumps_costs_bounded_work_and_nothing_else() {
        let mut load = LoadHistory::new();
        load.record(UnixTime(0), 3, Duration::from_millis(10));
        load.record(UnixTime(u64::MAX), 3, Duration::from_millis(10));
        load.record(UnixTime(5), 3, Duration::from_millis(10));
        assert_eq!(load.report(UnixTime(u64::MAX), 0).alone_us, 10_000);
    }
}

//! The tables: policies, the first age of the paper's rule, its thresholds, and its protocol of held-out sessions. Owns what is computed for
//! them; every figure has its interval, where there are clients enough for one.

use dormouse_energy::WakeOn;
use dormouse_energy::schedule::{AverageUser, BreakEven, Paper, Scheduler};
use dormouse_report::Table;
use dormouse_sansio::{Entropy as _, Seeded};
use dormouse_trace::report::figures::{EXTREMES, THRESHOLDS};

use super::law;
use super::shares::{Clients, Results, Shares, best_time_outs, follow, under};
use super::traffic::{Traffic, policies as accounted};
use crate::experiment::Exhibit;
use crate::judge::stats::{MIN_ROUNDS, Measured};

/// A figure with its interval; without one where it rests on too few clients to have any.
pub(super) fn shown(measured: Option<Measured>) -> String {
    measured.map_or_else(
        || "–".to_owned(),
        |m| if m.n < MIN_ROUNDS { format!("{:.1}", m.value) } else { m.words(1) },
    )
}

/// The number of a policy in the account, by its name.
pub(super) fn number(name: &str) -> usize {
    accounted().iter().position(|p| p.name() == name).unwrap_or(accounted().len())
}

/// All policies, with every packet waking and with only the client's own.
pub(super) fn policies(traffic: &Traffic, shares: Shares) -> Vec<Exhibit<Table>> {
    let head = [
        "policy",
        "saved, mean %",
        "of the maximum, %",
        "share of the clairvoyant, %",
        "clients that pay, %",
        "client-days: share of the clairvoyant, %",
    ];
    let table = |wake_on: WakeOn, results: &Results| {
        let row = |name: &str, clients: &Clients, days: Option<&Clients>| {
            vec![
                name.to_owned(),
                shown(shares.mean(clients)),
                shown(shares.of_maximum(clients)),
                shown(shares.share(clients)),
                shown(shares.losers(clients)),
                days.map_or_else(|| "–".to_owned(), |days| shown(shares.share(days))),
            ]
        };
        let mut rows: Vec<Vec<String>> = Vec::new();
        for (n, policy) in accounted().iter().enumerate().skip(1) {
            let days = under(results, |c| std::slice::from_ref(&c.days), n);
            rows.push(row(policy.name(), &under(results, |c| &c.sessions, n), Some(&days)));
        }
        let (best, clients) = best_fixed(results);
        rows.push(row(&format!("best fixed time-out in hindsight, {best:.2} s"), &clients, None));
        rows.push(row("the best for each client, in hindsight", &best_time_outs(results, false), None));
        rows.push(row("the best for each session, in hindsight", &best_time_outs(results, true), None));
        if let Some(clients) = law::follow(&traffic.idle, wake_on, traffic.questions.settings.cost) {
            rows.push(row(law::NAME, &clients, None));
        }
        rows.push(row("clairvoyant", &under(results, |c| &c.sessions, accounted().len()), None));
        Exhibit::new("section 3.5", Table::titled(format!("Policies, {}", wakes(wake_on)), head, rows))
    };
    vec![table(WakeOn::All, &traffic.all), table(WakeOn::Outgoing, &traffic.outgoing)]
}

/// The fixed time-out with the largest mean saving, in seconds, and what it comes to.
pub(super) fn best_fixed(results: &Results) -> (f64, Clients) {
    let best = dormouse_trace::report::charts::best_time_out(results);
    let time_outs = |c| -> &[_] { of_first(c) };
    (dormouse_energy::schedule::TIME_OUTS[best], under(results, time_outs, best))
}

fn of_first(client: &super::shares::OfClient) -> &[dormouse_energy::account::ClientReport] {
    client.extra.results.time_outs.first().map(Vec::as_slice).unwrap_or_default()
}

/// Which packets wake, as titles of tables say it.
pub(super) const fn wakes(wake_on: WakeOn) -> &'static str {
    match wake_on {
        WakeOn::All => "every packet wakes",
        WakeOn::Outgoing => "only what the client sends wakes",
    }
}

/// The paper's rule by the first age at which it is evaluated.
pub(super) struct FirstAges {
    wake_on: WakeOn,
    rows: Vec<(f64, OfAge)>,
}

/// What the rule comes to with a first age.
#[derive(Clone, Copy)]
pub(super) struct OfAge {
    mean: Option<Measured>,
    pub(super) of_maximum: Option<Measured>,
    share: Option<Measured>,
    /// The distance from the optimum, in points.
    pub(super) gap: Option<Measured>,
    /// How much more dormouse's scheduler saves, in points.
    pub(super) ours_more: Option<Measured>,
}

/// The ages that are tried, in seconds.
const FIRST_AGES: [f64; 8] = [0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0];

impl FirstAges {
    pub(super) fn new(traffic: &Traffic, wake_on: WakeOn, shares: Shares) -> Self {
        let cost = traffic.questions.settings.cost;
        let results = if wake_on == WakeOn::All { &traffic.all } else { &traffic.outgoing };
        let ours = under(results, |c| &c.sessions, number("dormouse"));
        let of = |age: f64| {
            let make = || -> Box<dyn Scheduler> {
                Box::new(Paper::new(cost.break_even(), 0.5, 0.8, AverageUser::shipped()).first_at(age))
            };
            let clients = follow(&traffic.idle, wake_on, cost, |_, _| true, make);
            let (mean, of_maximum) = (shares.mean(&clients), shares.of_maximum(&clients));
            let (share, gap) = (shares.share(&clients), shares.gap(&clients));
            (age, OfAge { mean, of_maximum, share, gap, ours_more: shares.more(&ours, &clients) })
        };
        let rows = FIRST_AGES.into_iter().map(of).collect();
        Self { wake_on, rows }
    }

    /// The age with the largest mean saving, in seconds, and what the rule comes to with it; the later one of two that are equal.
    pub(super) fn most_favourable(&self) -> Option<(f64, OfAge)> {
        let mean = |(_, of): &&(f64, OfAge)| of.mean.map_or(f64::NEG_INFINITY, |m| m.value);
        self.rows.iter().max_by(|a, b| mean(a).total_cmp(&mean(b))).copied()
    }

    pub(super) fn table(&self) -> Exhibit<Table> {
        let head = [
            "first age, s",
            "saved, mean %",
            "of the maximum, %",
            "share of the clairvoyant, %",
            "dormouse's saves more, points",
        ];
        let row = |(age, of): &(f64, OfAge)| {
            let figures = [of.mean, of.of_maximum, of.share, of.ours_more];
            [age.to_string()].into_iter().chain(figures.map(shown)).collect()
        };
        let title = format!(
            "The paper's rule by the first age at which it is evaluated (alpha 0.5, beta 0.8), {}",
            wakes(self.wake_on)
        );
        Exhibit::new("section 3.5, Eqs. 5 to 8", Table::titled(title, head, self.rows.iter().map(row)))
    }
}

/// The sessions of the sample under each pair of thresholds of Figure 7: for a protocol of [`EXTREMES`].
pub(super) fn under_thresholds(results: &Results, protocol: usize, pair: usize) -> Clients {
    under(results, |c| c.extra.results.thresholds.get(protocol).map(Vec::as_slice).unwrap_or_default(), pair)
}

/// Figure 7 as numbers.
pub(super) fn thresholds(traffic: &Traffic, shares: Shares) -> Exhibit<Table> {
    let mut rows = Vec::new();
    for (a, alpha) in THRESHOLDS.into_iter().enumerate() {
        for (b, beta) in THRESHOLDS.into_iter().enumerate() {
            let at = a * THRESHOLDS.len() + b;
            let of = |protocol| shown(shares.mean(&under_thresholds(&traffic.outgoing, protocol, at)));
            rows.push(vec![alpha.to_string(), beta.to_string(), of(0), of(1)]);
        }
    }
    let [first, second] = EXTREMES.map(|r| format!("{}, saved, mean %", r.name()));
    let title = "The paper's thresholds on its sample, only what the client sends wakes";
    Exhibit::new("Fig. 7", Table::titled(title, ["alpha".to_owned(), "beta".to_owned(), first, second], rows))
}

/// The paper's own protocol: the average user from everyone but [`HELD_OUT`] sessions, which are scheduled; again and again.
pub(super) struct Splits {
    wake_on: WakeOn,
    /// The gap in points and the part of the maximum in percent, over all splits, of the paper's rule and of break-even.
    pub(super) paper: [Option<Measured>; 2],
    break_even: [Option<Measured>; 2],
    held_out: usize,
}

const HELD_OUT: usize = 100;
const SPLITS: u64 = 20;

impl Splits {
    pub(super) fn new(traffic: &Traffic, wake_on: WakeOn, shares: Shares, seed: u64) -> Self {
        let cost = traffic.questions.settings.cost;
        let all: Vec<(usize, usize)> = traffic
            .idle
            .iter()
            .enumerate()
            .flat_map(|(c, sessions)| (0..sessions.len()).map(move |s| (c, s)))
            .collect();
        let held_out = HELD_OUT.min(all.len() / 4);
        let mut random = Seeded::new(seed);
        let mut sums: [Clients; 2] = [const { Vec::new() }; 2];
        sums.iter_mut().for_each(|clients| clients.resize(traffic.idle.len(), Vec::new()));
        for _ in 0..SPLITS {
            let mut left = all.clone();
            let mut held = std::collections::BTreeSet::new();
            while held.len() < held_out && !left.is_empty() {
                let at = usize::try_from(random.below(left.len() as u64)).unwrap_or(0);
                held.insert(left.swap_remove(at));
            }
            let others = left.iter().filter_map(|(c, s)| traffic.idle.get(*c)?.get(*s));
            let others = others.flat_map(|session| &session.periods).copied();
            let average = AverageUser::from_periods(others);
            let policies: [Box<dyn Fn() -> Box<dyn Scheduler>>; 2] = [
                Box::new(|| Box::new(Paper::new(cost.break_even(), 0.5, 0.8, average.clone()))),
                Box::new(|| Box::new(BreakEven::new(cost.break_even()))),
            ];
            for (make, sums) in policies.iter().zip(&mut sums) {
                let clients = follow(&traffic.idle, wake_on, cost, |c, s| held.contains(&(c, s)), make);
                sums.iter_mut().zip(clients).for_each(|(sum, sessions)| sum.extend(sessions));
            }
        }
        // Over all splits, resampled by client: more splits do not narrow the interval.
        let [paper, break_even] = sums.map(|of| [shares.gap(&of), shares.of_maximum(&of)]);
        Self { wake_on, paper, break_even, held_out }
    }

    pub(super) fn table(&self) -> Exhibit<Table> {
        let head = ["policy", "distance from the optimum, points", "of the maximum, %"];
        let row = |name: &str, m: [Option<Measured>; 2]| {
            [name.to_owned()].into_iter().chain(m.map(shown)).collect()
        };
        let rows = [row("paper, alpha 0.5, beta 0.8", self.paper), row("break-even", self.break_even)];
        let title = format!(
            "{} sessions held out, the average user from all others; {SPLITS} splits, {}",
            self.held_out,
            wakes(self.wake_on)
        );
        Exhibit::new("section 3.5, scheduler performance", Table::titled(title, head, rows))
    }
}

//! Figures over sessions with their intervals. Owns what a mean, a share and a part of the clairvoyant's saving are here; resamples by
//! client, because sessions of one are alike, and compares policies on the same clients.

use core::time::Duration;

use dormouse_energy::WakeOn;
use dormouse_energy::account::ClientReport;
use dormouse_energy::cost::SleepCost;
use dormouse_energy::schedule::Scheduler;
use dormouse_trace::analyse::{Analysis, ClientResult};
use dormouse_trace::report::charts;
use dormouse_trace::report::figures::Figures;

use super::idle::{Sessions, Stretch};
use crate::judge::stats::{Bootstrap, Measured};

pub(super) type Results = Analysis<Figures>;
pub(super) type OfClient = ClientResult<Figures>;

/// What a policy came to in one session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Saved {
    /// What a radio that never sleeps pays; positive.
    pub(super) idle: f64,
    pub(super) paid: f64,
    /// What the clairvoyant pays.
    pub(super) best: f64,
}

impl Saved {
    fn percent(&self) -> f64 {
        100.0 * (self.idle - self.paid) / self.idle
    }

    fn best_percent(&self) -> f64 {
        100.0 * (self.idle - self.best) / self.idle
    }
}

/// The sessions of each client under one policy.
pub(super) type Clients = Vec<Vec<Saved>>;

/// Of some sessions of each client under the policy with this number; the clairvoyant stands last.
pub(super) fn under<'a>(
    results: &'a Results,
    sessions: impl Fn(&'a OfClient) -> &'a [ClientReport],
    policy: usize,
) -> Clients {
    let of = |c| sessions(c).iter().filter_map(|s| saved(s, policy)).collect();
    results.clients.iter().map(of).collect()
}

/// Of a session that was idle at all.
pub(super) fn saved(session: &ClientReport, policy: usize) -> Option<Saved> {
    let (_, paid) = session.policies.get(policy)?;
    let (_, best) = session.policies.last()?;
    let idle = session.idle_cost;
    (idle > 0.0).then_some(Saved { idle, paid: paid.cost, best: best.cost })
}

/// The clairvoyant on the sessions of a policy.
pub(super) fn clairvoyant(clients: &Clients) -> Clients {
    clients.iter().map(|c| c.iter().map(|s| Saved { paid: s.best, ..*s }).collect()).collect()
}

/// What looks at nothing but past idle periods.
pub(super) trait Rule {
    /// When to switch off in the period that begins, in seconds; infinite for never.
    fn off_after(&mut self) -> f64;
    /// How long a period was, in seconds.
    fn learn(&mut self, seconds: f64);
}

impl Rule for Box<dyn Scheduler> {
    fn off_after(&mut self) -> f64 {
        self.decide().seconds()
    }

    fn learn(&mut self, seconds: f64) {
        self.as_mut().learn(Duration::from_secs_f64(seconds));
    }
}

/// What a rule does between two packets that wake: a radio that was switched off stays so until the second.
pub(super) fn live(rule: &mut impl Rule, cost: SleepCost, stretch: &Stretch<'_>, sum: &mut Saved) {
    sum.idle += stretch.periods.iter().map(|g| cost.awake(*g)).sum::<f64>();
    let awake: f64 = stretch.periods.iter().map(|g| cost.best_awake(*g)).sum();
    sum.best += awake.min(cost.asleep(stretch.seconds, 0.0));
    for (length, until_end) in stretch.periods.iter().zip(stretch.until_end) {
        let after = rule.off_after();
        if after < *length {
            sum.paid += cost.asleep(*until_end, after);
            if stretch.woken {
                rule.learn(*until_end);
            }
            return;
        }
        sum.paid += cost.awake(*length);
        rule.learn(*length);
    }
}

/// Of a rule that looks at nothing but past idle periods; what it learned lives across a client's sessions. `counts` says which sessions
/// count, by client and session.
pub(super) fn follow<R: Rule>(
    idle: &[Sessions],
    wake_on: WakeOn,
    cost: SleepCost,
    counts: impl Fn(usize, usize) -> bool,
    make: impl Fn() -> R,
) -> Clients {
    let client = |(c, sessions): (usize, &Sessions)| {
        let last = (0..sessions.len()).rev().find(|s| counts(c, *s));
        let Some(last) = last else { return Vec::new() };
        let mut rule = make();
        let mut out = Vec::new();
        for (s, session) in sessions.iter().enumerate().take(last + 1) {
            let mut sum = Saved { idle: 0.0, paid: 0.0, best: 0.0 };
            let stretches = session.stretches(wake_on);
            stretches.iter().for_each(|stretch| live(&mut rule, cost, stretch, &mut sum));
            if sum.idle > 0.0 && counts(c, s) {
                out.push(sum);
            }
        }
        out
    };
    idle.iter().enumerate().map(client).collect()
}

/// A saving in percent that is not the rounding of two sums.
pub(super) const SOME: f64 = 1e-9;

/// Figures of policies.
#[derive(Clone, Copy)]
pub(super) struct Shares(pub(super) Bootstrap);

impl Shares {
    /// Σ `first` over Σ `second` over the sessions, resampled by client.
    fn ratio(
        self,
        clients: &Clients,
        first: impl Fn(&Saved) -> f64,
        second: impl Fn(&Saved) -> f64,
    ) -> Option<Measured> {
        let sums = clients.iter().filter(|c| !c.is_empty());
        let sum = |c: &Vec<Saved>| (c.iter().map(&first).sum(), c.iter().map(&second).sum());
        self.0.clusters(&sums.map(sum).collect::<Vec<_>>())
    }

    /// Percent saved, mean over sessions.
    pub(super) fn mean(self, clients: &Clients) -> Option<Measured> {
        self.ratio(clients, Saved::percent, |_| 1.0)
    }

    /// The distance from the clairvoyant's mean, in points.
    pub(super) fn gap(self, clients: &Clients) -> Option<Measured> {
        self.ratio(clients, |s| s.best_percent() - s.percent(), |_| 1.0)
    }

    /// The mean over the clairvoyant's mean, in percent: the paper's "of the maximum".
    pub(super) fn of_maximum(self, clients: &Clients) -> Option<Measured> {
        self.ratio(clients, |s| 100.0 * s.percent(), Saved::best_percent)
    }

    /// The energy saved over what the clairvoyant saves, in percent: the share of the clairvoyant.
    pub(super) fn share(self, clients: &Clients) -> Option<Measured> {
        self.ratio(clients, |s| 100.0 * (s.idle - s.paid), |s| s.idle - s.best)
    }

    /// The energy saved over what a radio that never sleeps takes, in percent.
    pub(super) fn of_all(self, clients: &Clients) -> Option<Measured> {
        self.ratio(clients, |s| 100.0 * (s.idle - s.paid), |s| s.idle)
    }

    /// By how many points the clairvoyant's mean saving is above so many percent.
    pub(super) fn beyond(self, clients: &Clients, percent: f64) -> Option<Measured> {
        self.ratio(clients, |s| s.best_percent() - percent, |_| 1.0)
    }

    /// Percent of the sessions whose saving in percent holds something.
    pub(super) fn part(self, clients: &Clients, holds: impl Fn(f64) -> bool) -> Option<Measured> {
        self.ratio(clients, |s| if holds(s.percent()) { 100.0 } else { 0.0 }, |_| 1.0)
    }

    /// How much more a first policy saves than a second one, in points of the mean over sessions.
    pub(super) fn more(self, first: &Clients, second: &Clients) -> Option<Measured> {
        self.difference(first, second, Saved::percent)
    }

    /// How many more of the sessions save something under a first policy than under a second one, in points.
    pub(super) fn more_gain(self, first: &Clients, second: &Clients) -> Option<Measured> {
        self.difference(first, second, |s| if s.percent() > SOME { 100.0 } else { 0.0 })
    }

    fn difference(self, first: &Clients, second: &Clients, of: impl Fn(&Saved) -> f64) -> Option<Measured> {
        let sum = |c: &Vec<Saved>| c.iter().map(&of).sum::<f64>();
        let both = first.iter().zip(second).filter(|(a, _)| !a.is_empty());
        self.0.clusters(&both.map(|(a, b)| (sum(a) - sum(b), a.len() as f64)).collect::<Vec<_>>())
    }

    /// Percent of the sessions of a ledger for which something holds of a count; of those that were idle at all, as in [`under`].
    pub(super) fn counted<'a>(
        self,
        results: &'a Results,
        sessions: impl Fn(&'a OfClient) -> Option<&'a Vec<ClientReport>>,
        holds: impl Fn(&ClientReport) -> bool,
    ) -> Option<Measured> {
        let of = |all: &Vec<ClientReport>| {
            let idle: Vec<_> = all.iter().filter(|s| s.idle_cost > 0.0).collect();
            (100.0 * idle.iter().filter(|s| holds(s)).count() as f64, idle.len() as f64)
        };
        self.0.clusters(&results.clients.iter().filter_map(&sessions).map(of).collect::<Vec<_>>())
    }

    /// Percent of the clients that pay for sleeping, all their sessions together.
    pub(super) fn losers(self, clients: &Clients) -> Option<Measured> {
        let loses = |c: &Vec<Saved>| c.iter().map(|s| s.paid - s.idle).sum::<f64>() > 1e-6;
        let each = clients.iter().filter(|c| !c.is_empty());
        self.0.clusters(&each.map(|c| (if loses(c) { 100.0 } else { 0.0 }, 1.0)).collect::<Vec<_>>())
    }
}

/// The best fixed time-out of each client in hindsight, or of each of its sessions. No policy can know it; never sleeping is one.
pub(super) fn best_time_outs(results: &Results, by_session: bool) -> Clients {
    let of = |c: &OfClient| -> Vec<Saved> {
        let sessions: Vec<&ClientReport> =
            c.extra.results.time_outs.iter().flatten().filter(|s| s.idle_cost > 0.0).collect();
        let groups = sessions.chunks(if by_session { 1 } else { sessions.len().max(1) });
        let best = |group: &[&ClientReport]| -> Vec<Saved> {
            let many = group.first().map_or(0, |s| s.policies.len() - 1);
            let saved = |n: usize| group.iter().filter_map(|s| charts::saved(s, n)).sum::<f64>();
            let best = (0..many).max_by(|a, b| saved(*a).total_cmp(&saved(*b)));
            let of = |s: &&ClientReport| {
                let (_, paid) = s.policies.get(best?)?;
                let (_, clairvoyant) = s.policies.last()?;
                Some(Saved { idle: s.idle_cost, paid: paid.cost, best: clairvoyant.cost })
            };
            group.iter().filter_map(of).collect()
        };
        groups.flat_map(best).collect()
    };
    results.clients.iter().map(of).collect()
}

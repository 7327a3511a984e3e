//! The cheaper method that closes section 3.5: counts of idle periods in buckets of time, and the radio off at the age of the bucket that holds
//! the `alpha * N`-th of them. Owns that rule and how it is compared with Eq. 5.
//!
//! The paper says that this is the age at which Eq. 5 is `alpha`. It is not: Eq. 5 is a probability given that the present period has
//! already lasted so long, and of `B` seconds more; the bucket knows neither. Here the bucket is found anew from the counts. The paper moves an
//! index by one, or by a half, with each period, which does not keep the `alpha * N`-th: every new period moves that by a half for
//! `alpha` = 0.5, whichever side it falls on.

use dormouse_energy::WakeOn;
use dormouse_energy::cost::SleepCost;
use dormouse_energy::schedule::{AGE, AGES, AverageUser, Paper, Scheduler as _};
use dormouse_report::Table;

use super::shares::{Clients, Results, Rule, Shares, follow, under};
use super::tables::{number, shown, wakes};
use super::traffic::Traffic;
use crate::experiment::Exhibit;
use crate::judge::{Claim, Expect};

/// The paper's best threshold.
const ALPHA: f64 = 0.5;
/// Points by which the two may differ and still be the same method.
const SAME: f64 = 1.0;

/// The rule for one client. Its buckets begin at the ages at which Eq. 5 is evaluated, so that nothing but the rule differs.
#[derive(Clone, Debug)]
struct Buckets {
    counts: [u32; AGES],
    periods: u32,
    /// Shorter periods are not recorded, in seconds.
    shortest: f64,
    /// What the average user says as long as nothing was recorded, in seconds.
    before: f64,
}

impl Buckets {
    fn new(break_even: f64, shortest: f64) -> Self {
        let mut average = Paper::new(break_even, ALPHA, 0.8, AverageUser::shipped());
        Self { counts: [0; AGES], periods: 0, shortest, before: average.decide().seconds() }
    }
}

impl Rule for Buckets {
    fn off_after(&mut self) -> f64 {
        let wanted = (ALPHA * f64::from(self.periods)).ceil();
        let mut below = 0;
        let reached = self.counts.iter().position(|count| {
            below += count;
            f64::from(below) >= wanted
        });
        match reached.and_then(|bucket| AGE.get(bucket)) {
            Some(age) if self.periods > 0 => *age,
            _ => self.before,
        }
    }

    fn learn(&mut self, seconds: f64) {
        let bucket = AGE.partition_point(|age| *age <= seconds).saturating_sub(1);
        if seconds >= self.shortest
            && let Some(count) = self.counts.get_mut(bucket)
        {
            *count += 1;
            self.periods += 1;
        }
    }
}

/// The paper speaks of idle periods, and of those longer than break-even, as what is recorded: both are tried.
fn both(traffic: &Traffic, wake_on: WakeOn) -> [Clients; 2] {
    let cost: SleepCost = traffic.questions.settings.cost;
    [0.0, cost.break_even()].map(|shortest| {
        follow(&traffic.idle, wake_on, cost, |_, _| true, || Buckets::new(cost.break_even(), shortest))
    })
}

/// Beside Eq. 5, under both rules of waking.
pub(super) fn tables(traffic: &Traffic, shares: Shares) -> Vec<Exhibit<Table>> {
    let head = [
        "rule (alpha 0.5)",
        "saved, mean %",
        "of the maximum, %",
        "share of the clairvoyant, %",
        "clients that pay, %",
    ];
    let table = |wake_on: WakeOn, results: &Results| {
        let [all, long] = both(traffic, wake_on);
        let eq5 = under(results, |c| &c.sessions, number("paper"));
        let row = |name: &str, of: &Clients| {
            let figures = [shares.mean(of), shares.of_maximum(of), shares.share(of), shares.losers(of)];
            [name.to_owned()].into_iter().chain(figures.map(shown)).collect()
        };
        let rows = [
            row("Eq. 5", &eq5),
            row("bucket of all idle periods", &all),
            row("bucket of those longer than break-even", &long),
        ];
        Exhibit::new(
            "section 3.5",
            Table::titled(format!("Eq. 5 and the buckets, {}", wakes(wake_on)), head, rows),
        )
    };
    vec![table(WakeOn::All, &traffic.all), table(WakeOn::Outgoing, &traffic.outgoing)]
}

/// Whether the cheaper method does what Eq. 5 does.
pub(super) fn claim(traffic: &Traffic, shares: Shares) -> Claim {
    let eq5 = |results| under(results, |c| &c.sessions, number("paper"));
    let of = |results, wake_on| both(traffic, wake_on).map(|b| shares.more(&b, &eq5(results)));
    let [all, long] = of(&traffic.outgoing, WakeOn::Outgoing);
    let [all_waking, long_waking] = of(&traffic.all, WakeOn::All);
    let expect = Expect::about(0.0, SAME);
    Claim::new(
        "section 3.5, computing variables",
        "The bucket of the median idle period is where Eq. 5 reaches alpha: it saves as much, give or take a point",
        "the same",
        format!(
            "{} points more with a bucket of all idle periods, {} with one of those longer than break-even; with every packet waking {} and {}",
            shown(all),
            shown(long),
            shown(all_waking),
            shown(long_waking)
        ),
    )
    .judged_all(&[(expect, all), (expect, long)])
    .because(
        "the median asks how long half of all periods last; Eq. 5 asks, once the present one has lasted so long, whether a break-even time will follow"
            .to_owned(),
    )
}

/// What a reader must know of the buckets.
pub(super) fn note() -> String {
    "The buckets: section 3.5 ends with a method for network cards that keeps the bucket in which the alpha N-th recorded idle period lies and \
     switches off at its age, which is said to be where Eq. 5 equals alpha. That age is a quantile of whole periods. Take a device whose silences \
     all last a minute: Eq. 5 is 1 at once, and the radio goes off at once; the median is a minute, and the radio would go off just when it is \
     needed. Take one with many short silences and few long ones: the median is short, and the radio goes off in every silence, where Eq. 5 waits \
     until those that are still silent are mostly the long ones. Our buckets begin at the ages at which Eq. 5 is evaluated, so that nothing else \
     differs; before anything was recorded the average user decides, as for Eq. 5."
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::{Buckets, Rule};

    #[test]
    fn the_radio_goes_off_at_the_age_of_the_median() {
        let mut rule = Buckets::new(22.3, 0.0);
        assert!(rule.off_after() > 100.0, "the average user is seldom idle for so much longer");
        for seconds in [60.0, 0.3, 60.0] {
            rule.learn(seconds);
        }
        let off = rule.off_after();
        assert!(off <= 60.0 && off * 1.05 > 60.0, "{off}");
        for _ in 0..3 {
            rule.learn(0.3);
        }
        assert!(rule.off_after() < 0.3, "of six periods the third");
        // The same of those that are worth a sleep.
        let mut rule = Buckets::new(22.3, 22.3);
        [60.0, 0.3, 0.3, 0.3, 30.0, 60.0].into_iter().for_each(|seconds| rule.learn(seconds));
        assert!(rule.off_after() * 1.05 > 60.0);
    }
}

//! The cheaper method that closes section 3.5: counts of idle periods in buckets of time, and the radio off at the age of the bucket that holds
//! the `alpha * N`-th of them. Owns that rule and how it is compared with Eq. 5.
//!
//! The paper says that this is the age at which Eq. 5 is `alpha`. It is not: Eq. 5 is a probability given that the present period has
//! already lasted so long, and of `B` seconds more; the bucket knows neither. Here the bucket is found anew from the counts. The paper moves an
//! index by one, or by a half, with each period, which does not keep the `alpha * N`-th: every new period moves that by a half for
//! `alpha` = 0.5, whichever side it falls on.

use dormouse_energy::WakeOn;
use dormouse_energy::cost::SleepCost;
use dormouse_energy::schedule::{AGE, AverageUser, Paper, Scheduler as _};
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
/// Widths of buckets that are tried beside, in seconds; the paper states none.
const WIDTHS: [f64; 3] = [1.0, 10.0, 60.0];
/// Longer idle periods are in the last bucket, in seconds.
const LONGEST: f64 = 3_600.0;

/// Buckets of time, which the paper leaves open.
#[derive(Clone, Copy, Debug)]
struct Kind {
    /// Shorter idle periods are not recorded, in seconds.
    shortest: f64,
    /// How long a bucket is, in seconds; `None`: they begin at the ages at which Eq. 5 is evaluated, so that nothing but the rule differs.
    width: Option<f64>,
    /// Whether the radio goes off when the bucket of the median ends, and not when it begins.
    at_end: bool,
}

impl Kind {
    /// The bucket of an idle period of so many seconds.
    fn of(self, seconds: f64) -> usize {
        let seconds = seconds.min(LONGEST);
        self.width.map_or_else(
            || AGE.partition_point(|age| *age <= seconds).saturating_sub(1),
            |width| (seconds / width) as usize,
        )
    }

    /// When the radio goes off if a bucket has the median, in seconds.
    fn age(self, bucket: usize) -> f64 {
        let bucket = bucket + usize::from(self.at_end);
        self.width
            .map_or_else(|| AGE.get(bucket).copied().unwrap_or(f64::INFINITY), |width| bucket as f64 * width)
    }
}

/// The rule for one client.
#[derive(Clone, Debug)]
struct Buckets {
    kind: Kind,
    counts: Vec<u32>,
    periods: u32,
    /// What the average user says as long as nothing was recorded, in seconds.
    before: f64,
}

impl Buckets {
    fn new(break_even: f64, kind: Kind) -> Self {
        let mut average = Paper::new(break_even, ALPHA, 0.8, AverageUser::shipped());
        Self { kind, counts: Vec::new(), periods: 0, before: average.decide().seconds() }
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
        match reached {
            Some(bucket) if self.periods > 0 => self.kind.age(bucket),
            _ => self.before,
        }
    }

    fn learn(&mut self, seconds: f64) {
        if seconds < self.kind.shortest {
            return;
        }
        let bucket = self.kind.of(seconds);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
            self.periods += 1;
        }
    }
}

/// The kinds that are tried, and how a table calls them. The paper speaks of idle periods, and of those longer than break-even, as what is
/// recorded: the first two are these.
fn kinds(break_even: f64) -> Vec<(String, Kind)> {
    let kind = |shortest| Kind { shortest, width: None, at_end: false };
    let mut kinds = vec![
        ("bucket of all idle periods".to_owned(), kind(0.0)),
        ("bucket of those longer than break-even".to_owned(), kind(break_even)),
    ];
    for width in WIDTHS {
        for (at_end, when) in [(false, "beginning"), (true, "end")] {
            let name = format!("bucket of all, {width} s wide, off at its {when}");
            kinds.push((name, Kind { shortest: 0.0, width: Some(width), at_end }));
        }
    }
    kinds
}

fn lived(traffic: &Traffic, wake_on: WakeOn, kind: Kind) -> Clients {
    let cost: SleepCost = traffic.questions.settings.cost;
    follow(&traffic.idle, wake_on, cost, |_, _| true, || Buckets::new(cost.break_even(), kind))
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
        let eq5 = under(results, |c| &c.sessions, number("paper"));
        let row = |name: &str, of: &Clients| {
            let figures = [shares.mean(of), shares.of_maximum(of), shares.share(of), shares.losers(of)];
            [name.to_owned()].into_iter().chain(figures.map(shown)).collect()
        };
        let kinds = kinds(traffic.questions.settings.cost.break_even());
        let buckets = kinds.iter().map(|(name, kind)| row(name, &lived(traffic, wake_on, *kind)));
        let rows: Vec<_> = [row("Eq. 5", &eq5)].into_iter().chain(buckets).collect();
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
    let break_even = traffic.questions.settings.cost.break_even();
    let of = |results, wake_on| {
        [0.0, break_even].map(|shortest| {
            let kind = Kind { shortest, width: None, at_end: false };
            shares.more(&lived(traffic, wake_on, kind), &eq5(results))
        })
    };
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
     differs; before anything was recorded the average user decides, as for Eq. 5. The paper states neither how wide a bucket is nor whether the \
     radio goes off at its beginning or its end, so that the table has several: for a client with short silences, the end of a wide bucket is a \
     fixed time-out of its width."
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::{Buckets, Kind, Rule};

    #[test]
    fn the_radio_goes_off_at_the_age_of_the_median() {
        let kind = |shortest| Kind { shortest, width: None, at_end: false };
        let mut rule = Buckets::new(22.3, kind(0.0));
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
        let mut rule = Buckets::new(22.3, kind(22.3));
        [60.0, 0.3, 0.3, 0.3, 30.0, 60.0].into_iter().for_each(|seconds| rule.learn(seconds));
        assert!(rule.off_after() * 1.05 > 60.0);
        // In buckets of ten seconds.
        for (at_end, off) in [(false, 30.0), (true, 40.0)] {
            let mut rule = Buckets::new(22.3, Kind { width: Some(10.0), at_end, ..kind(0.0) });
            [35.0, 2.0, 1e5].into_iter().for_each(|seconds| rule.learn(seconds));
            assert!((rule.off_after() - off).abs() < 1e-9);
        }
    }
}

//! The tables and the verdict. Owns what is printed of a run, and how the crowd's processor time is subtracted.

use std::collections::BTreeMap;

use dormouse_benches::{ByRound, Measured, Summary, Target, verdict};
use dormouse_report::{Table, thousands};

use crate::pulled::GONE;
use crate::stage::NAMES;
use crate::wakes::Kind;
use crate::{FOLLOWED, PULLED, WAKES};

/// Resumptions a second over the gateways that are left: 10,000 devices in 2 s.
const RATE: f64 = 5_000.0;

/// `followed`: the same was measured with standbys.
pub(crate) fn print(measured: &Measured, devices: usize, cores: usize, followed: bool) {
    pulled(measured, devices, cores);
    if followed {
        standbys(measured, cores);
    }
    wakes(measured);
    let less = less(measured, PULLED, cores);
    let sessions = measured.figure(PULLED, "sessions.back");
    let rate = joined(&sessions, &less, |sessions, ms| sessions / ms * 1e3);
    let rate = Summary::of(rate.into_values()).median;
    verdict(
        "durable resumptions a second at two gateways, the crowd's part taken off",
        rate,
        Target::AtLeast(RATE),
    );
}

fn pulled(measured: &Measured, devices: usize, cores: usize) {
    let of = |name: &str| measured.figure(PULLED, name);
    let median = |name: &str| Summary::of(of(name).into_values()).median;
    println!(
        "{} devices, every second one asleep, are at {}, which is killed. All of them come to the two others at once, by ticket.",
        thousands(devices as u64),
        NAMES[GONE]
    );
    println!(
        "Seconds until each had an answer through its tunnel, which none has before its ticket is on record as used; without the time that a device takes to"
    );
    println!(
        "notice that its gateway is silent. Median [least most] of the rounds; processor time meanwhile in milliseconds."
    );
    let spread = |figures: &ByRound| {
        let all = Summary::of(figures.values().copied());
        format!("{:.2} [{:.2} {:.2}]", all.median / 1e3, all.least / 1e3, all.most / 1e3)
    };
    let mut table = Table::new(["", "devices", "seconds", "a second", "processor ms"]);
    let row = |table: &mut Table, name: &str, count: &str, took: &ByRound, cpu: String| {
        let rate = joined(&of(count), took, |count, ms| count / ms * 1e3);
        let rate = Summary::of(rate.into_values()).median;
        table.row([
            name.to_owned(),
            format!("{:.0}", median(count)),
            spread(took),
            format!("{rate:.0}"),
            cpu,
        ]);
    };
    for name in NAMES.iter().filter(|name| **name != NAMES[GONE]) {
        let [took, count, cpu] = ["took", "sessions", "cpu"].map(|what| format!("{what}.{name}"));
        row(&mut table, name, &count, &of(&took), format!("{:.0}", median(&cpu)));
    }
    row(&mut table, "both", "sessions.back", &of("took.all"), String::new());
    row(
        &mut table,
        "both, the crowd's part taken off",
        "sessions.back",
        &less(measured, PULLED, cores),
        String::new(),
    );
    print!("{}", table.text(""));
    println!(
        "The devices are one thread of this program, which used {:.0} ms of a core meanwhile; PostgreSQL used {:.0} ms. All of it shares {cores} cores. Taken off is the\ncrowd's processor time divided by the cores.",
        median("cpu.crowd"),
        median("cpu.database")
    );
    let sessions = of("sessions.back");
    let by_wake =
        |name: &str| Summary::of(joined(&of(name), &sessions, |sum, n| sum / n).into_values()).median;
    println!(
        "By device: {:.3} transactions that wrote, {:.0} bytes of WAL. {:.0} messages were sent again. Of {:.0} used tickets that were tried again none was taken.",
        by_wake("transactions"),
        by_wake("wal"),
        median("repeated"),
        median("refused")
    );
}

/// Milliseconds until all were back, less the crowd's part of the cores.
fn less(measured: &Measured, row: &str, cores: usize) -> ByRound {
    let [took, crowd] = ["took.all", "cpu.crowd"].map(|name| measured.figure(row, name));
    joined(&took, &crowd, |took, crowd| took - crowd / cores as f64)
}

/// The same with two standbys, of which one has applied each commit before it counts.
fn standbys(measured: &Measured, cores: usize) {
    println!(
        "\nResumptions a second, the crowd's part taken off, where each commit has been applied by one of two standbys on the same machine:"
    );
    let mut table = Table::new(["", "a second", "ratio", "database's processor ms"]);
    let rate = |row: &str| {
        let sessions = measured.figure(row, "sessions.back");
        joined(&sessions, &less(measured, row, cores), |sessions, ms| sessions / ms * 1e3)
    };
    let (alone, followed) = (rate(PULLED), rate(FOLLOWED));
    let ratio = Summary::of(joined(&followed, &alone, |with, without| with / without).into_values()).median;
    for (what, row, rate, ratio) in
        [("the database alone", PULLED, &alone, 1.0), ("with standbys", FOLLOWED, &followed, ratio)]
    {
        let rate = Summary::of(rate.values().copied()).median;
        let cpu = Summary::of(measured.figure(row, "cpu.database").into_values()).median;
        table.row([what.to_owned(), format!("{rate:.0}"), format!("{ratio:.2}"), format!("{cpu:.0}")]);
    }
    print!("{}", table.text(""));
    println!("The standbys' own processor time is not in the last column; they share the cores.");
}

fn wakes(measured: &Measured) {
    println!(
        "\nOne device after the other wakes at an idle gateway: milliseconds from its request until the first answer through the tunnel."
    );
    println!("Ratios are to the gateway with its own database; load of the shared one by wake.");
    let mut table =
        Table::new(["", "median", "99 %", "ratio", "of 99 %", "transactions", "WAL bytes", "processor µs"]);
    let quantile = |kind: Kind, part: f64| -> f64 {
        let mut all = measured.all(WAKES, &format!("wake.{}", kind.name()));
        all.sort_by(f64::total_cmp);
        let at = (part * all.len() as f64).ceil() as usize;
        all.get(at.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    };
    for kind in Kind::ALL {
        let what = match kind {
            Kind::Own => "its own database (SQLite)",
            Kind::Same => "shared, the gateway where it was",
            Kind::Other => "shared, another gateway",
        };
        let [median, high] = [0.5, 0.99].map(|part| quantile(kind, part));
        let [to, to_high] = [0.5, 0.99].map(|part| quantile(kind, part) / quantile(Kind::Own, part));
        let by_wake = |name: &str| {
            let figure = measured.figure(WAKES, &format!("{name}.{}", kind.name()));
            Summary::of(figure.into_values()).median
        };
        let load = match kind {
            Kind::Own => ["–".to_owned(), "–".to_owned(), "–".to_owned()],
            _ => [
                format!("{:.1}", by_wake("transactions")),
                format!("{:.0}", by_wake("wal")),
                format!("{:.0}", by_wake("cpu.database") * 1e3),
            ],
        };
        let times = [median, high].map(|ms| format!("{ms:.2}"));
        let ratios = [to, to_high].map(|ratio| format!("{ratio:.2}"));
        table.row([what.to_owned()].into_iter().chain(times).chain(ratios).chain(load));
    }
    print!("{}", table.text(""));
}

/// Figures of the same round, joined.
fn joined(a: &ByRound, b: &ByRound, join: impl Fn(f64, f64) -> f64) -> ByRound {
    let both = a.iter().filter_map(|(round, a)| Some((*round, join(*a, *b.get(round)?))));
    both.collect::<BTreeMap<_, _>>()
}

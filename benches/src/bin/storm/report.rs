//! The tables and the verdicts. Owns what is compared with what: what the fair share of a stream is, and that a lost ping is the longest of all.

use std::collections::BTreeMap;

use dormouse_benches::{ByRound, Measured, Summary, Target, ratio, verdict};
use dormouse_report::Table;

use crate::Beside;

/// Milliseconds that 99 of a hundred pings may take.
const PING: f64 = 5.0;

pub(crate) fn print(measured: &Measured, clients: usize, cores: usize) {
    storms(measured, clients);
    pings(measured);
    streams(measured, cores);
    conclude(measured, cores);
}

fn storms(measured: &Measured, clients: usize) {
    println!(
        "{clients} clients make full handshakes with RSA-2048 certificates, and {clients} resume by ticket in one round trip, all at once, at a gateway that was just started again."
    );
    println!(
        "Seconds until all sessions were up, and until 99 of a hundred were: median [least most]; sessions a second until then. Milliseconds of processor time"
    );
    println!(
        "meanwhile; IKE messages that clients sent again; datagrams that did not fit into a socket at either end; sessions that failed, in all rounds."
    );
    let head = [
        "",
        "all",
        "99 %",
        "per second",
        "gateway ms",
        "crowd ms",
        "client ms",
        "repeated",
        "overruns",
        "failed",
    ];
    let mut table = Table::new(head);
    for beside in Beside::ALL {
        let of = |name: &str| Summary::of(measured.figure(beside.name(), name).into_values());
        let spread = |name: &str| {
            let all = of(name);
            format!("{:.2} [{:.2} {:.2}]", all.median / 1e3, all.least / 1e3, all.most / 1e3)
        };
        let cells =
            ["cpu.gateway", "cpu.crowd", "cpu.client", "repeated"].map(|n| format!("{:.0}", of(n).median));
        let failed: f64 = measured.all(beside.name(), "sessions.failed").iter().sum();
        let most = sessions_per_second(measured, beside);
        let row = [beside.name().to_owned(), spread("storm.all"), spread("storm.most"), format!("{most:.0}")];
        let overruns =
            ["overruns.gateway", "overruns.crowd"].map(|n| format!("{:.0}", of(n).median)).join(", ");
        table.row(row.into_iter().chain(cells).chain([overruns, format!("{failed:.0}")]));
    }
    print!("{}", table.text(""));
    println!(
        "The gateway has one core. The crowd is one thread of this program, on the others with all that is beside it, and of the least priority (nice 19), but in the\nrow {:?}, where it has the usual one.",
        Beside::Stream.name()
    );
}

fn sessions_per_second(measured: &Measured, beside: Beside) -> f64 {
    let [up, time] = ["sessions.up", "storm.most"].map(|name| measured.figure(beside.name(), name));
    Summary::of(joined(&[&up, &time], |v| 0.99 * v[0] / v[1] * 1e3).into_values()).median
}

fn pings(measured: &Measured) {
    println!(
        "\nPing of another client through the gateway: round trips in milliseconds, of all rounds together; a lost one took longest."
    );
    let mut table = Table::new(["", "pings", "median", "99 %", "longest answered", "lost"]);
    for (name, when) in [("idle", "the idle gateway"), ("storm", "in the storm")] {
        let trips = trips(measured, name);
        let (count, lost) = (trips.len(), trips.iter().filter(|t| t.is_infinite()).count());
        let longest = trips.iter().copied().filter(|t| t.is_finite()).fold(f64::NAN, f64::max);
        let [median, high] = [0.5, 0.99].map(|q| rank(&trips, q));
        let cells = [median, high, longest].map(|ms| format!("{ms:.2}"));
        table.row([when.to_owned(), count.to_string()].into_iter().chain(cells).chain([lost.to_string()]));
    }
    print!("{}", table.text(""));
}

/// Milliseconds of all pings, in their order; infinite of those that were lost.
fn trips(measured: &Measured, when: &str) -> Vec<f64> {
    let row = Beside::Ping.name();
    let lost: f64 = measured.all(row, &format!("lost.{when}")).iter().sum();
    let answered = measured.all(row, &format!("ping.{when}"));
    let mut trips: Vec<f64> = answered.into_iter().map(|micros| micros / 1e3).collect();
    trips.extend(std::iter::repeat_n(f64::INFINITY, lost as usize));
    trips.sort_by(f64::total_cmp);
    trips
}

/// The least of the sorted figures that so many of all do not exceed; NaN of none.
fn rank(sorted: &[f64], part: f64) -> f64 {
    let at = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

fn streams(measured: &Measured, cores: usize) {
    println!(
        "\nTCP of another client to the gateway in Mbit/s: median [least most]. Its fair share is what the idle gateway carried, less the part of the time that"
    );
    println!(
        "the storm takes of the gateway's core (as in the storm alone), or of the {} (the crowd's, beside the stream), whichever is more, while 99 % of the",
        if cores == 2 { "other".to_owned() } else { format!("{} others", cores.max(2) - 1) }
    );
    println!(
        "storm beside the stream lasts. Stall: the longest time in milliseconds in which nothing arrived, of all rounds."
    );
    let mut table =
        Table::new(["", "idle", "in the storm", "fair share", "share", "stall, idle", "stall, storm"]);
    let row = Beside::Stream.name();
    let [idle, storm] = ["rate.idle", "rate.storm"].map(|name| measured.figure(row, name));
    let fair = fair_share(measured, cores);
    let rates = [&idle, &storm, &fair].map(|rates| {
        let rates = Summary::of(rates.values().copied());
        format!("{:.0} [{:.0} {:.0}]", rates.median, rates.least, rates.most)
    });
    let stalls = ["stall.idle", "stall.storm"].map(|name| {
        let longest = measured.all(row, name).into_iter().fold(f64::NAN, f64::max);
        format!("{longest:.0}")
    });
    let share = format!("{:.2}", ratio(&storm, &fair));
    table.row([row.to_owned()].into_iter().chain(rates).chain([share]).chain(stalls));
    print!("{}", table.text(""));
}

/// What a stream could carry in Mbit/s by round, if it lost no more than the processor time that others use. None where nothing would be left.
fn fair_share(measured: &Measured, cores: usize) -> ByRound {
    let gateway = measured.figure(Beside::Nothing.name(), "cpu.gateway");
    let [idle, time, crowd] =
        ["rate.idle", "storm.most", "cpu.crowd"].map(|name| measured.figure(Beside::Stream.name(), name));
    let fair = joined(&[&idle, &gateway, &crowd, &time], |v| fair(v[0], [v[1], v[2]], v[3], cores));
    fair.into_iter().filter(|(_, rate)| *rate > 0.0).collect()
}

/// Of a rate, what is left if a storm uses so many milliseconds of the gateway's core, and of the others, within a time. It goes through both, so that
/// the one with less left sets it. On a machine of one core they are the same.
fn fair(rate: f64, [gateway, crowd]: [f64; 2], time: f64, cores: usize) -> f64 {
    let used = match cores {
        1 => gateway + crowd,
        _ => gateway.max(crowd / (cores - 1) as f64),
    };
    rate * (1.0 - used / time)
}

/// Figures of the same round, joined.
fn joined(figures: &[&ByRound], join: impl Fn(&[f64]) -> f64) -> ByRound {
    let Some((first, _)) = figures.split_first() else { return BTreeMap::new() };
    let of = |round: u32| figures.iter().map(|f| f.get(&round).copied()).collect::<Option<Vec<f64>>>();
    first.keys().filter_map(|round| Some((*round, join(&of(*round)?)))).collect()
}

fn conclude(measured: &Measured, cores: usize) {
    let failed: f64 = Beside::ALL.iter().flat_map(|b| measured.all(b.name(), "sessions.failed")).sum();
    if failed > 0.0 {
        println!(
            "{failed:.0} sessions of the crowd FAILED: their handshakes are missing in what is measured."
        );
    }
    let high = rank(&trips(measured, "storm"), 0.99);
    verdict("ms of the 99th of a hundred pings of another client in a storm", high, Target::AtMost(PING));
    let storm = measured.figure(Beside::Stream.name(), "rate.storm");
    let share = ratio(&storm, &fair_share(measured, cores));
    verdict("TCP of another client in a storm / its fair share", share, Target::AtLeast(1.0));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_one_of_the_figures_and_lost_ones_are_the_longest() {
        let mut sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!((rank(&sorted, 0.5), rank(&sorted, 0.99)), (50.0, 99.0));
        sorted[98..].fill(f64::INFINITY);
        assert_eq!(rank(&sorted, 0.99), f64::INFINITY);
        assert!(rank(&[], 0.99).is_nan());
    }

    #[test]
    fn a_fair_share_is_what_the_time_of_others_leaves() {
        for (cores, share) in [(1, 400.0), (2, 600.0), (4, 800.0)] {
            assert!((fair(1_000.0, [200.0, 400.0], 1_000.0, cores) - share).abs() < 1e-9, "{cores}");
        }
        let [a, b] = [[(1, 2.0), (2, 4.0)], [(2, 3.0), (3, 9.0)]].map(ByRound::from);
        assert_eq!(joined(&[&a, &b], |v| v[0] * v[1]), ByRound::from([(2, 12.0)]));
    }
}

//! Figures 4 to 10 of paper 001 as charts. The paper's absolute figures are a PDA's, so what is drawn is relative: with a VPN
//! over without, or parts of the packets.

use dormouse_report::{Chart, Mark};

use super::data::{
    ALGORITHMS, ENERGY_BY_PDU, ENERGY_BY_RATE, MAXIMUM, Pair, RECEIVED_BY_PDU, RECEIVED_BY_RATE,
};
use super::{PAPER, Streams, TODAY, algorithm_costs};
use crate::experiment::Figure;
use crate::results::format::Metric;

const NAMES: [(&str, &str); 2] = [(PAPER, "ours, 3DES-SHA1"), (TODAY, "ours, AES-128-GCM")];

/// All figures; one whose part of ours was not measured shows the paper's alone, and says so.
pub(super) fn all(s: &Streams<'_>) -> Vec<Figure> {
    let full = |x: u32| (x, None);
    let rate = |x: u32| (1_024, Some(f64::from(x)));
    let slow = |x: u32| (x, Some(2_000.0));
    vec![
        figure(
            "Fig. 4",
            ratio(
                s,
                "maximum",
                "Highest reception rate with a VPN over without",
                "PDU, B",
                &MAXIMUM,
                &full,
                Metric::Throughput,
            ),
        ),
        figure(
            "Figs. 5 and 7",
            ratio(
                s,
                "energy-rate",
                "Energy (or CPU, where there is no meter) with a VPN over without, by rate",
                "kbit/s",
                &ENERGY_BY_RATE,
                &rate,
                s.energy(),
            ),
        ),
        figure(
            "Fig. 6",
            received(s, "received-rate", "Packets received by rate", "kbit/s", &RECEIVED_BY_RATE, &rate),
        ),
        figure(
            "Fig. 8",
            received(
                s,
                "received-pdu",
                "Packets received of a 2 Mbit/s stream",
                "PDU, B",
                &RECEIVED_BY_PDU,
                &slow,
            ),
        ),
        figure(
            "Fig. 9",
            ratio(
                s,
                "energy-pdu",
                "Energy (or CPU, where there is no meter) with a VPN over without, 2 Mbit/s",
                "PDU, B",
                &ENERGY_BY_PDU,
                &slow,
                s.energy(),
            ),
        ),
        figure("Fig. 10", algorithms(s)),
    ]
}

fn figure(place: &str, mut chart: Chart) -> Figure {
    let ours = chart.series.iter().any(|s| s.name.starts_with("ours") && !s.points.is_empty());
    if !ours {
        chart.caption.push_str(" Ours was not measured in this file.");
    }
    Figure { place: place.to_owned(), chart }
}

type At<'a> = &'a dyn Fn(u32) -> (u32, Option<f64>);

fn ratio(
    s: &Streams<'_>,
    id: &str,
    title: &str,
    x: &str,
    paper: &[Pair],
    at: At<'_>,
    metric: Metric,
) -> Chart {
    let mut chart = Chart::new(id, title, x, "with over without");
    chart.caption = "1 would be a VPN that costs nothing; the paper's are ratios of its averages, ours medians of rounds.".to_owned();
    chart.x_log = true;
    chart.add(
        "paper, 3DES-SHA1",
        1,
        Mark::Dashes,
        paper.iter().map(|p| (f64::from(p.x), p.with.0 / p.without.0)).collect(),
    );
    for (n, (suite, name)) in NAMES.into_iter().enumerate() {
        let points = paper.iter().filter_map(|p| {
            let (pdu, rate) = at(p.x);
            Some((f64::from(p.x), s.ratio(suite, pdu, rate, metric)?))
        });
        let points: Vec<(f64, f64)> = points.collect();
        if !points.is_empty() {
            chart.add(name, if n == 0 { 0 } else { 2 }, Mark::Line, points);
        }
    }
    chart
}

fn received(s: &Streams<'_>, id: &str, title: &str, x: &str, paper: &[Pair], at: At<'_>) -> Chart {
    let mut chart = Chart::new(id, title, x, "received, %");
    chart.caption = "Part of the packets that arrived intact.".to_owned();
    (chart.x_log, chart.y_range) = (true, Some((0.0, 105.0)));
    let of = |f: &dyn Fn(&Pair) -> f64| paper.iter().map(|p| (f64::from(p.x), f(p))).collect();
    chart.add("paper, no VPN", 4, Mark::Dashes, of(&|p| p.without.0));
    chart.add("paper, 3DES-SHA1", 1, Mark::Dashes, of(&|p| p.with.0));
    for (n, (suite, name)) in [("none", "ours, no VPN"), NAMES[0], NAMES[1]].into_iter().enumerate() {
        let points = paper.iter().filter_map(|p| {
            let (pdu, rate) = at(p.x);
            Some((f64::from(p.x), s.received(suite, pdu, rate)?))
        });
        let points: Vec<(f64, f64)> = points.collect();
        if !points.is_empty() {
            chart.add(name, [3, 0, 2][n], Mark::Line, points);
        }
    }
    chart
}

fn algorithms(s: &Streams<'_>) -> Chart {
    let mut chart =
        Chart::new("algorithms", "Cost by algorithms, over that of 3DES with SHA1", "", "over 3DES-SHA1");
    let (_, what, costs) = algorithm_costs(s);
    chart.caption = format!("The paper's is the energy above idle of a 2 Mbit/s stream; ours: {what}.");
    chart.categories = ALGORITHMS.iter().map(|a| a.suite.to_owned()).collect();
    chart.x_range = Some((-0.3, 3.3));
    chart.y_range = Some((0.0, 1.2));
    let base = ALGORITHMS[0].joules.0;
    let at = |n: usize| n as f64;
    chart.add(
        "paper, energy",
        1,
        Mark::Dashes,
        ALGORITHMS.iter().enumerate().map(|(n, a)| (at(n), a.joules.0 / base)).collect(),
    );
    let of = |suite: &str| costs.iter().find(|(n, _)| *n == suite).map(|(_, c)| c.0.median);
    if let Some(base) = of(ALGORITHMS[0].suite).filter(|b| *b > 0.0) {
        let points = ALGORITHMS.iter().enumerate().filter_map(|(n, a)| Some((at(n), of(a.suite)? / base)));
        chart.add("ours", 0, Mark::Line, points.collect());
    }
    chart
}

//! Paper 001: the tables, the paper's figures beside ours. Owns their columns; must never judge.

use super::data::{
    ALGORITHMS, COUNT_BY_PDU, COUNT_BY_RATE, Count, ENERGY_BY_PDU, ENERGY_BY_RATE, MAXIMUM, Pair,
    RECEIVED_BY_PDU, RECEIVED_BY_RATE,
};
use super::{PAPER, Streams, TODAY, algorithm_costs};
use crate::advise::words::figure;
use crate::experiment::Table;
use crate::measured::{change, mean};
use crate::results::format::Metric;

/// All tables.
pub(super) fn all(s: &Streams<'_>) -> Vec<Table> {
    let mut out = vec![beside(
        s,
        "Fig. 4",
        "Highest reception rate by PDU size, Mbit/s (mean ± standard deviation)",
        "PDU, B",
        &MAXIMUM,
        &|x| (x, None),
        (Metric::Throughput, 8e-6),
    )];
    let rate = |x: u32| (1_024, Some(f64::from(x)));
    let slow = |x: u32| (x, Some(2_000.0));
    out.push(beside(
        s,
        "Figs. 5 and 7",
        &format!("Receiving a stream: {}", s.energy_words()),
        "kbit/s",
        &ENERGY_BY_RATE,
        &rate,
        (s.energy(), 1.0),
    ));
    out.push(beside(
        s,
        "Fig. 6",
        "Packets lost by rate, %",
        "kbit/s",
        &lost(&RECEIVED_BY_RATE),
        &rate,
        (Metric::Loss, 100.0),
    ));
    out.push(packets(s, "Fig. 6, packets", "kbit/s", &COUNT_BY_RATE, &rate));
    out.push(beside(
        s,
        "Fig. 8",
        "Packets lost of a 2 Mbit/s stream by PDU size, %",
        "PDU, B",
        &lost(&RECEIVED_BY_PDU),
        &slow,
        (Metric::Loss, 100.0),
    ));
    out.push(packets(s, "Fig. 8, packets", "PDU, B", &COUNT_BY_PDU, &slow));
    out.push(beside(
        s,
        "Fig. 9",
        &format!("A 2 Mbit/s stream by PDU size: {}", s.energy_words()),
        "PDU, B",
        &ENERGY_BY_PDU,
        &slow,
        (s.energy(), 1.0),
    ));
    let (metric, what, costs) = algorithm_costs(s);
    out.push(Table {
        place: "Fig. 10".to_owned(),
        title: format!("Algorithms at 2 Mbit/s and 1,024 B; ours: {what}"),
        head: ["algorithms", "paper, J", "ours", "standing today"].map(str::to_owned).to_vec(),
        rows: ALGORITHMS
            .iter()
            .map(|a| {
                let ours = costs.iter().find(|(n, _)| *n == a.suite);
                let level = crate::advise::levels::Judgement::of(a.suite);
                vec![
                    a.suite.to_owned(),
                    format!("{:.1} ± {:.1}", a.joules.0, a.joules.1),
                    ours.map_or_else(|| "not measured".to_owned(), |(_, c)| figure(metric, &c.0)),
                    level.map(|l| l.reason()).unwrap_or_default(),
                ]
            })
            .collect(),
    });
    out
}

/// Numbers of packets that arrived. Ours are those of shorter streams: what compares is the change.
fn packets(
    s: &Streams<'_>,
    place: &str,
    x: &str,
    paper: &[Count],
    at: &dyn Fn(u32) -> (u32, Option<f64>),
) -> Table {
    let row = |p: &Count| {
        let (pdu, rate) = at(p.x);
        let of = |suite| s.find(suite, pdu, rate);
        let ours = |suite| mean(of(suite), Metric::Received, 1.0);
        let change = |suite| change(of(suite), of("none"), Metric::Received, &s.bootstrap);
        let (without, with) = (f64::from(p.without), f64::from(p.with));
        vec![
            p.x.to_string(),
            p.without.to_string(),
            p.with.to_string(),
            format!("{:+.0} %", 100.0 * (with / without - 1.0)),
            ours("none"),
            ours(PAPER),
            change(PAPER),
            ours(TODAY),
            change(TODAY),
        ]
    };
    let title = "Packets that arrived (in the paper's 180 seconds, in our shorter streams)";
    Table {
        place: place.to_owned(),
        title: title.to_owned(),
        head: head(x),
        rows: paper.iter().map(row).collect(),
    }
}

/// The columns of paper and ours, by `x`.
fn head(x: &str) -> Vec<String> {
    let of = [
        "paper: no VPN",
        "3DES-SHA1",
        "change",
        "ours: no VPN",
        "3DES-SHA1",
        "change",
        "AES-128-GCM",
        "change",
    ];
    std::iter::once(x).chain(of).map(str::to_owned).collect()
}

/// The paper gives what arrived; ours shows what was lost.
fn lost(received: &[Pair]) -> Vec<Pair> {
    let turn = |(mean, deviation): (f64, f64)| (100.0 - mean, deviation);
    received.iter().map(|p| Pair { x: p.x, without: turn(p.without), with: turn(p.with) }).collect()
}

fn beside(
    s: &Streams<'_>,
    place: &str,
    title: &str,
    x: &str,
    paper: &[Pair],
    at: &dyn Fn(u32) -> (u32, Option<f64>),
    (metric, factor): (Metric, f64),
) -> Table {
    let cell = |(mean, deviation): (f64, f64)| format!("{mean:.2} ± {deviation:.2}");
    let percent = |p: &Pair| format!("{:+.0} %", 100.0 * (p.with.0 / p.without.0 - 1.0));
    let rows = paper
        .iter()
        .map(|p| {
            let (pdu, rate) = at(p.x);
            let of = |suite| s.find(suite, pdu, rate);
            // A ratio of losses says little where nothing is lost.
            let change = |suite| {
                if metric == Metric::Loss {
                    "–".to_owned()
                } else {
                    change(of(suite), of("none"), metric, &s.bootstrap)
                }
            };
            vec![
                p.x.to_string(),
                cell(p.without),
                cell(p.with),
                if metric == Metric::Loss { "–".to_owned() } else { percent(p) },
                mean(of("none"), metric, factor),
                mean(of(PAPER), metric, factor),
                change(PAPER),
                mean(of(TODAY), metric, factor),
                change(TODAY),
            ]
        })
        .collect();
    Table { place: place.to_owned(), title: title.to_owned(), head: head(x), rows }
}

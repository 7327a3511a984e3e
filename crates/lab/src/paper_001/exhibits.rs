//! Figures 4 to 10 of paper 001 beside ours, each as a table and, where the paper has one, as a chart. The paper's absolute figures are
//! a PDA's, so what is drawn is relative: with a VPN over without, or parts of the packets. Owns what is shown; must never judge.

use dormouse_report::{Chart, Mark, Table, digits};

use super::data::{
    ALGORITHMS, COUNT_BY_PDU, COUNT_BY_RATE, ENERGY_BY_PDU, ENERGY_BY_RATE, MAXIMUM, Pair, RECEIVED_BY_PDU,
    RECEIVED_BY_RATE,
};
use super::{PAPER, Streams, TODAY, algorithm_costs};
use crate::advise::words::figure;
use crate::experiment::Exhibit;
use crate::judge::stats::{Measured, median};
use crate::measured::{change, mean};
use crate::results::esp::{ELAPSED, Metric};

/// Along what the points of a panel lie.
#[derive(Clone, Copy, PartialEq)]
enum Axis {
    /// PDU sizes, as fast as possible or at so many kbit/s.
    Pdu(Option<f64>),
    /// Rates in kbit/s, with PDUs of 1,024 bytes.
    Rate,
}

impl Axis {
    const fn label(self) -> &'static str {
        match self {
            Self::Pdu(_) => "PDU, B",
            Self::Rate => "kbit/s",
        }
    }

    /// PDU size and rate of a point.
    fn at(self, x: u32) -> (u32, Option<f64>) {
        match self {
            Self::Pdu(rate) => (x, rate),
            Self::Rate => (1_024, Some(f64::from(x))),
        }
    }
}

/// What is shown.
#[derive(Clone, Copy, PartialEq)]
enum Shown {
    /// The reception rate.
    Rate,
    /// Energy, or what stands for it.
    Energy,
    /// The part of the packets that arrived; in the table, that was lost.
    Part,
    /// How many arrived.
    Packets,
}

/// A figure of the paper.
struct Panel {
    place: &'static str,
    /// Of the table.
    title: &'static str,
    axis: Axis,
    shown: Shown,
    paper: &'static [Pair],
    /// Name and title of the chart.
    chart: Option<(&'static str, &'static str)>,
}

const SLOW: Axis = Axis::Pdu(Some(2_000.0));
const ARRIVED: &str = "Packets that arrived";
/// How long the paper's streams last of which it counts packets.
const THEIR_SECONDS: f64 = 180.0;

const PANELS: [Panel; 7] = [
    Panel {
        place: "Fig. 4",
        title: "Highest reception rate by PDU size, Mbit/s (mean ± standard deviation)",
        axis: Axis::Pdu(None),
        shown: Shown::Rate,
        paper: &MAXIMUM,
        chart: Some(("maximum", "Highest reception rate with a VPN over without")),
    },
    Panel {
        place: "Figs. 5 and 7",
        title: "Receiving a stream",
        axis: Axis::Rate,
        shown: Shown::Energy,
        paper: &ENERGY_BY_RATE,
        chart: Some((
            "energy-rate",
            "Energy (or CPU, where there is no meter) with a VPN over without, by rate",
        )),
    },
    Panel {
        place: "Fig. 6",
        title: "Packets lost by rate, %",
        axis: Axis::Rate,
        shown: Shown::Part,
        paper: &RECEIVED_BY_RATE,
        chart: Some(("received-rate", "Packets received by rate")),
    },
    Panel {
        place: "Fig. 6, packets",
        title: ARRIVED,
        axis: Axis::Rate,
        shown: Shown::Packets,
        paper: &COUNT_BY_RATE,
        chart: None,
    },
    Panel {
        place: "Fig. 8",
        title: "Packets lost of a 2 Mbit/s stream by PDU size, %",
        axis: SLOW,
        shown: Shown::Part,
        paper: &RECEIVED_BY_PDU,
        chart: Some(("received-pdu", "Packets received of a 2 Mbit/s stream")),
    },
    Panel {
        place: "Fig. 8, packets",
        title: ARRIVED,
        axis: SLOW,
        shown: Shown::Packets,
        paper: &COUNT_BY_PDU,
        chart: None,
    },
    Panel {
        place: "Fig. 9",
        title: "A 2 Mbit/s stream by PDU size",
        axis: SLOW,
        shown: Shown::Energy,
        paper: &ENERGY_BY_PDU,
        chart: Some((
            "energy-pdu",
            "Energy (or CPU, where there is no meter) with a VPN over without, 2 Mbit/s",
        )),
    },
];

/// All tables, the paper's figures beside ours.
pub(super) fn tables(s: &Streams<'_>) -> Vec<Exhibit<Table>> {
    let mut tables: Vec<_> = PANELS.iter().map(|panel| panel.table(s)).collect();
    let (metric, what, costs) = algorithm_costs(s);
    let row = |(suite, (mean, deviation)): &(&str, (f64, f64))| {
        let ours = costs.iter().find(|(n, _)| n == suite);
        let level = crate::advise::levels::Judgement::of(suite);
        vec![
            (*suite).to_owned(),
            format!("{mean:.1} ± {deviation:.1}"),
            ours.map_or_else(|| "not measured".to_owned(), |(_, c)| figure(metric, &c.0)),
            level.map(|l| l.reason()).unwrap_or_default(),
        ]
    };
    let title = format!("Algorithms at 2 Mbit/s and 1,024 B; ours: {what}");
    let head = ["algorithms", "paper, J", "ours", "standing today"];
    tables.push(Exhibit::new("Fig. 10", Table::titled(title, head, ALGORITHMS.iter().map(row))));
    tables
}

/// All charts; one whose part of ours was not measured shows the paper's alone, and says so.
pub(super) fn figures(s: &Streams<'_>) -> Vec<Exhibit<Chart>> {
    let drawn = PANELS.iter().filter_map(|panel| Some((panel.place, panel.drawn(s)?)));
    let all = drawn.chain([("Fig. 10", algorithms(s))]);
    all.map(|(place, mut chart)| {
        let ours = chart.series.iter().any(|s| s.name.starts_with("ours") && !s.points.is_empty());
        if !ours {
            chart.caption.push_str(" Ours was not measured in this file.");
        }
        Exhibit::new(place, chart)
    })
    .collect()
}

impl Panel {
    /// What of ours is shown, and by how much it is multiplied.
    fn metric(&self, s: &Streams<'_>) -> (Metric, f64) {
        match self.shown {
            Shown::Rate => (Metric::Throughput, 8e-6),
            Shown::Energy => (s.energy(), 1.0),
            Shown::Part => (Metric::Loss, 100.0),
            Shown::Packets => (Metric::Received, 1.0),
        }
    }

    fn table(&self, s: &Streams<'_>) -> Exhibit<Table> {
        let (metric, factor) = self.metric(s);
        let paper = |(mean, deviation): (f64, f64)| match self.shown {
            Shown::Packets => mean.to_string(),
            Shown::Part => format!("{:.2} ± {deviation:.2}", 100.0 - mean),
            _ => format!("{mean:.2} ± {deviation:.2}"),
        };
        // A ratio of losses says little where nothing is lost.
        let told = |change: String| if self.shown == Shown::Part { "–".to_owned() } else { change };
        let row = |p: &Pair| {
            let (pdu, rate) = self.axis.at(p.x);
            let of = |suite| s.find(suite, pdu, rate);
            let ours = |suite| mean(of(suite), metric, factor);
            let change = |suite| told(change(of(suite), of("none"), metric, &s.bootstrap));
            vec![
                p.x.to_string(),
                paper(p.without),
                paper(p.with),
                told(format!("{:+.0} %", 100.0 * (p.with.0 / p.without.0 - 1.0))),
                ours("none"),
                ours(PAPER),
                change(PAPER),
                ours(TODAY),
                change(TODAY),
            ]
        };
        let head = [
            self.axis.label(),
            "paper: no VPN",
            "3DES-SHA1",
            "change",
            "ours: no VPN",
            "3DES-SHA1",
            "change",
            "AES-128-GCM",
            "change",
        ];
        let more = match self.shown {
            Shown::Energy => format!(": {}", s.energy_words()),
            Shown::Packets => self.lengths(s),
            _ => String::new(),
        };
        let title = self.title.to_owned() + &more;
        Exhibit::new(self.place, Table::titled(title, head, self.paper.iter().map(row)))
    }

    /// How long the streams of the table last, the paper's and ours: a number of packets means nothing without.
    fn lengths(&self, s: &Streams<'_>) -> String {
        let theirs = digits(THEIR_SECONDS);
        let points = self.paper.iter().map(|p| self.axis.at(p.x));
        let ours = points.flat_map(|(pdu, rate)| {
            ["none", PAPER, TODAY].into_iter().filter_map(move |suite| s.find(suite, pdu, rate))
        });
        let seconds: Vec<f64> =
            ours.flat_map(|sample| &sample.rounds).filter_map(|round| round.figures.one(ELAPSED)).collect();
        match median(&seconds).map(digits) {
            None => format!(" in the paper's streams of {theirs} s"),
            Some(ours) if ours == theirs => format!(" in streams of {theirs} s, the paper's and ours"),
            Some(ours) => format!(" in the paper's streams of {theirs} s and in ours of {ours} s"),
        }
    }

    fn drawn(&self, s: &Streams<'_>) -> Option<Chart> {
        let (id, title) = self.chart?;
        let paper = |of: fn(&Pair) -> f64| self.paper.iter().map(|p| (f64::from(p.x), of(p))).collect();
        let ours = |suite: &str| -> Vec<(f64, f64)> {
            let at = |p: &Pair| {
                let (pdu, rate) = self.axis.at(p.x);
                let y = match self.shown {
                    Shown::Part => {
                        s.received(suite, pdu, rate).filter(Measured::is_resolved).map(|p| p.value)
                    }
                    _ => s.ratio(suite, pdu, rate, self.metric(s).0),
                };
                Some((f64::from(p.x), y?))
            };
            self.paper.iter().filter_map(at).collect()
        };
        let part = self.shown == Shown::Part;
        let mut chart =
            Chart::new(id, title, self.axis.label(), if part { "received, %" } else { "with over without" });
        chart.x_log = true;
        if part {
            chart.caption = "Part of the packets that arrived intact.".to_owned();
            chart.y_range = Some((0.0, 105.0));
            chart.add("paper, no VPN", 4, Mark::Dashes, paper(|p| p.without.0));
            chart.add("paper, 3DES-SHA1", 1, Mark::Dashes, paper(|p| p.with.0));
        } else {
            chart.caption = "1 would be a VPN that costs nothing; the paper's are ratios of its averages, ours medians of rounds.".to_owned();
            chart.add("paper, 3DES-SHA1", 1, Mark::Dashes, paper(|p| p.with.0 / p.without.0));
        }
        let lines =
            [("none", "ours, no VPN", 3), (PAPER, "ours, 3DES-SHA1", 0), (TODAY, "ours, AES-128-GCM", 2)];
        for (suite, name, colour) in lines.into_iter().skip(usize::from(!part)) {
            let points = ours(suite);
            if !points.is_empty() {
                chart.add(name, colour, Mark::Line, points);
            }
        }
        Some(chart)
    }
}

fn algorithms(s: &Streams<'_>) -> Chart {
    let mut chart =
        Chart::new("algorithms", "Cost by algorithms, over that of 3DES with SHA1", "", "over 3DES-SHA1");
    let (_, what, costs) = algorithm_costs(s);
    chart.caption = format!("The paper's is the energy above idle of a 2 Mbit/s stream; ours: {what}.");
    chart.categories = ALGORITHMS.iter().map(|a| a.0.to_owned()).collect();
    (chart.x_range, chart.y_range) = (Some((-0.3, 3.3)), Some((0.0, 1.2)));
    // The claim takes all of them, each of enough rounds, or none.
    let told = costs.len() == ALGORITHMS.len() && costs.iter().all(|(_, c)| c.0.is_enough());
    let of = |suite: &str| costs.iter().find(|(n, _)| told && *n == suite).map(|(_, c)| c.0.median);
    let mut line = |name: &str, colour, mark, cost: &dyn Fn(&str, f64) -> Option<f64>| {
        let [(first, (base, _)), ..] = ALGORITHMS;
        let Some(base) = cost(first, base).filter(|b| *b > 0.0) else { return };
        let all = ALGORITHMS.into_iter().enumerate();
        let points = all.filter_map(|(n, (suite, (mean, _)))| Some((n as f64, cost(suite, mean)? / base)));
        chart.add(name, colour, mark, points.collect());
    };
    line("paper, energy", 1, Mark::Dashes, &|_, paper| Some(paper));
    line("ours", 0, Mark::Line, &|suite, _| of(suite));
    chart
}

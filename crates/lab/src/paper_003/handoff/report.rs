//! Table 3 from a campaign's results: claims, the table, its charts and its notes. Owns the words; measures nothing.

use std::collections::BTreeMap;

use dormouse_report::chart::beside;
use dormouse_report::{Chart, Mark, Table, digits};

use super::{EXPERIMENT, Line, PROBES, Phase, Point};
use crate::experiment::{Exhibit, Report};
use crate::judge::stats::{Bootstrap, Estimate, MIN_ROUNDS, levels};
use crate::judge::{Claim, Decides, Expect};
use crate::results::format::paired;
use crate::results::{self, Results};

const PLACE: &str = "section 4.6, Table 3";
/// What header keys may add to a handoff by Mobile IP beside one round trip, in milliseconds.
const PROCESSING: f64 = 3.0;

const fn beginning(line: Line) -> Point {
    Point { line, phase: Phase::Initialization }
}

const fn handoff(line: Line) -> Point {
    Point { line, phase: Phase::Handoff }
}

/// The figures of a campaign, in words and as claims.
struct Said<'a> {
    results: &'a Results<Point>,
    bootstrap: Bootstrap,
}

impl Said<'_> {
    /// A median; none of what no claim would take: that does not stand in the table, and is not drawn.
    fn told(&self, point: Point, name: &str) -> Option<Estimate> {
        let values: Vec<f64> = self.results.at(&point).map(|s| s.all(name).collect()).unwrap_or_default();
        self.bootstrap.median(&values).filter(Estimate::is_enough)
    }

    fn median(&self, point: Point, name: &str) -> String {
        self.told(point, name).map_or_else(
            || "–".to_owned(),
            |e| format!("{} [{}, {}]", digits(e.median), digits(e.low), digits(e.high)),
        )
    }

    fn by_round(&self, point: Point, name: &str) -> BTreeMap<u32, f64> {
        let rounds = self.results.at(&point).into_iter().flat_map(|s| &s.rounds);
        rounds.filter_map(|r| Some((r.round, r.figures.one(name)?))).collect()
    }

    /// How the quantity at the first point is to that at the second, round by round.
    fn claim(&self, words: &str, paper: &str, [a, b]: [Point; 2], name: &str, expect: Expect) -> Claim {
        let compared = self.bootstrap.paired(&paired(&self.by_round(a, name), &self.by_round(b, name)));
        let ours = compared.as_ref().map_or_else(
            || "not measured".to_owned(),
            |c| {
                let [median, low, high] = [c.ratio.median, c.ratio.low, c.ratio.high].map(digits);
                format!("{median} [{low}, {high}] times")
            },
        );
        Claim::new(PLACE, words, paper, ours).decided(vec![Decides::ratio(expect, compared.as_ref())])
    }

    /// What a handoff takes beyond one by Mobile IP alone and one round trip, round by round.
    fn beyond(&self, lines: &[Line]) -> Claim {
        let alone = self.by_round(handoff(Line::MobileIp), "ready");
        let estimates = lines.iter().map(|line| {
            let (ready, rtt) = (self.by_round(handoff(*line), "ready"), self.by_round(handoff(*line), "rtt"));
            let of = |(n, ready): (&u32, &f64)| Some(ready - alone.get(n)? - rtt.get(n)?);
            self.bootstrap.median(&ready.iter().filter_map(of).collect::<Vec<_>>())
        });
        let estimates: Vec<_> = estimates.collect();
        let ours = estimates.iter().map(|estimate| match estimate {
            Some(e) => format!("{} [{}, {}] ms", digits(e.median), digits(e.low), digits(e.high)),
            None => "not measured".to_owned(),
        });
        let words = format!(
            "goal: header keys add at most one round trip and {PROCESSING} ms to a handoff by Mobile IP alone, with PKD and with DKM"
        );
        let ours = ours.collect::<Vec<_>>().join(", ") + " besides the round trip";
        let decides = |e: Option<_>| Decides::new(Expect::below(PROCESSING), e.map(Into::into));
        let figures = estimates.into_iter().map(decides).collect();
        Claim::new(PLACE, &words, "28 ms and 75 ms more than Mobile IP alone", ours).decided(figures)
    }
}

/// A series of ours: its name, its colour, and what it shows.
type Ours = (&'static str, usize, Phase, &'static str);

impl Said<'_> {
    /// The same medians as in the table, of these lines; `theirs` as many series as the paper has in the chart.
    fn draw(&self, chart: &mut Chart, lines: &[Line], theirs: usize, series: &[Ours]) {
        chart.side_by_side(lines.iter().map(|line| line.short()));
        chart.y_log = true;
        for (n, (name, colour, phase, figure)) in series.iter().enumerate() {
            let of = |(i, line): (usize, &Line)| {
                // A logarithmic axis has no 0.
                let e = self.told(Point { line: *line, phase: *phase }, figure).filter(|e| e.median > 0.0)?;
                Some((beside(i, theirs + n, theirs + series.len()), [e.median, e.low, e.high]))
            };
            chart.estimates(name, *colour, &lines.iter().enumerate().filter_map(of).collect::<Vec<_>>());
        }
    }

    fn until_ready(&self) -> Chart {
        const OURS: [Ours; 4] = [
            ("ours, initialization", 4, Phase::Initialization, "ready"),
            ("ours, handoff", 0, Phase::Handoff, "ready"),
            ("ours, initialization: request to reply", 2, Phase::Initialization, "exchange"),
            ("ours, handoff: request to reply", 3, Phase::Handoff, "exchange"),
        ];
        let title = "Request until packets flow and keys are there, by Mobile IP";
        let mut chart = Chart::new("handoff", title, "", "ms");
        chart.caption =
            "Medians over rounds with their intervals. The paper's initialization with header keys is \
                         without its shell scripts."
                .to_owned();
        let lines: Vec<Line> = Line::ALL.into_iter().filter(|line| line.paper().is_some()).collect();
        let theirs =
            [("paper, initialization", 5, Phase::Initialization), ("paper, handoff", 1, Phase::Handoff)];
        for (n, (name, colour, phase)) in theirs.into_iter().enumerate() {
            let of = |(i, line): (usize, &Line)| {
                Some((beside(i, n, theirs.len() + OURS.len()), line.paper()?.of(phase)))
            };
            chart.add(name, colour, Mark::Points, lines.iter().enumerate().filter_map(of).collect());
        }
        self.draw(&mut chart, &lines, theirs.len(), &OURS);
        chart
    }

    fn pauses(&self) -> Chart {
        let title = "Pause, and until the new router has keys";
        let mut chart = Chart::new("pause", title, "", "ms");
        chart.caption =
            "Medians over rounds with their intervals; the paper does not measure them. Keys that were \
                         there before are not drawn."
                .to_owned();
        self.draw(
            &mut chart,
            &Line::ALL,
            0,
            &[
                ("ours, pause at initialization", 4, Phase::Initialization, "pause"),
                ("ours, pause in a handoff", 0, Phase::Handoff, "pause"),
                ("ours, until keys, at initialization", 2, Phase::Initialization, "keys"),
                ("ours, until keys, in a handoff", 3, Phase::Handoff, "keys"),
            ],
        );
        chart
    }
}

fn claims(said: &Said<'_>) -> Vec<Claim> {
    let same = Expect::within(1.0, 1.25);
    let within = |line| [handoff(line), beginning(line)];
    vec![
        said.beyond(&[Line::MobileIpPkd, Line::MobileIpDkm]),
        said.claim(
            "pure Mobile IP: a handoff's registration takes about as long as the first one",
            "25 ms and 26 ms",
            within(Line::MobileIp),
            "exchange",
            same,
        ),
        said.claim(
            "Mobile IP with IPsec: a handoff is shorter than the beginning",
            "54 ms and 197 ms",
            within(Line::MobileIpIpsec),
            "ready",
            Expect::LESS,
        ),
        said.claim(
            "Mobile IP with PKD: a handoff is shorter than the beginning",
            "52.7 ms and 219 ms",
            within(Line::MobileIpPkd),
            "ready",
            Expect::LESS,
        ),
        said.claim(
            "Mobile IP with DKM: a handoff is shorter than the beginning",
            "100 ms and 222 ms",
            within(Line::MobileIpDkm),
            "ready",
            Expect::LESS,
        ),
        said.claim(
            "a handoff with PKD takes about as long as with IPsec alone",
            "52.7 ms and 54 ms",
            [handoff(Line::MobileIpPkd), handoff(Line::MobileIpIpsec)],
            "ready",
            same,
        ),
        said.claim(
            "a handoff with DKM takes longer than with PKD, whose keys are there before",
            "100 ms and 52.7 ms",
            [handoff(Line::MobileIpDkm), handoff(Line::MobileIpPkd)],
            "ready",
            Expect::MORE,
        ),
        said.claim(
            "MOBIKE: packets flow sooner after a handoff than after the beginning",
            "54 ms and 197 ms (Mobile IP with IPsec)",
            within(Line::Mobike),
            "pause",
            Expect::LESS,
        ),
        said.claim(
            "MOBIKE with PKD: data wait no longer than without header keys",
            "52.7 ms and 54 ms (Mobile IP)",
            [handoff(Line::Pkd), handoff(Line::Routers)],
            "pause",
            same,
        ),
        said.claim(
            "MOBIKE with DKM: data wait no longer than without header keys",
            "100 ms and 54 ms (Mobile IP)",
            [handoff(Line::Dkm), handoff(Line::Routers)],
            "pause",
            same,
        ),
    ]
}

pub(super) fn of(results: &Results<Point>) -> Report {
    let said = Said { results, bootstrap: Bootstrap::new(results.seed) };
    let mut table = Table::new([
        "",
        "request to reply, ms",
        "request until packets flow and keys are there, ms",
        "paper, ms",
        "pause, ms",
        "until the new router has keys, ms",
        "packets lost",
    ]);
    table.title =
        format!("Initialization and handoff, medians over rounds where there are at least {MIN_ROUNDS}");
    for point in Point::all() {
        table.row([
            results::Point::label(&point),
            said.median(point, "exchange"),
            said.median(point, "ready"),
            point.line.paper().map_or_else(|| "–".to_owned(), |paper| paper.words(point.phase)),
            said.median(point, "pause"),
            said.median(point, "keys"),
            said.median(point, "lost"),
        ]);
    }
    Report {
        name: EXPERIMENT.name,
        title: EXPERIMENT.title,
        synthetic: false,
        traffic: results.obtained([format!(
            "network namespaces on one machine, links without delay, link-layer indication at once; a probe every {} ms; {} rounds",
            PROBES.as_millis(),
            results.rounds
        )]
        .into_iter()
        .chain(levels(results))),
        claims: claims(&said),
        tables: vec![Exhibit::new("Table 3", table)],
        figures: [said.until_ready(), said.pauses()].map(|chart| Exhibit::new("Table 3", chart)).into(),
        notes: notes(),
        provenance: results.into(),
    }
}

fn notes() -> Vec<String> {
    [
        "The paper's machines are Pentium 4 with 2.4 GHz and an 802.11b radio, ours are namespaces: its figures are mostly processing and air, so \
         that ours are below them would say little. They stand in the table; claims are about how times of one column relate, and about what header keys add.",
        "The paper times from the registration request until what must be set up is there. The pause also holds what that leaves out: that the device \
         notices its new network and finds the agent there, or its daemon the route.",
        "Linux tells of a link that comes up at most once a second (its link watch), and sends nothing over it before: the pause by Mobile IP \
         is mostly that wait, up to a second. The daemons' interfaces come up after a longer time without a change, and do not wait.",
        "With PKD and DKM the foreign agents tell their routers of registrations, and nothing is done by hand. DKM begins with the first packet of the \
         device at its new router, which names the SA; the paper's begins with the registration. Data never wait for header keys: a router without them forwards unread.",
        "A beginning with a session includes the command that brings it up, a process of its own, and the exchange with the gateway.",
        "The second network of \"own address and MOBIKE\" is behind a NAT: every other handoff changes to UDP encapsulation and back.",
    ]
    .map(str::to_owned)
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::format::Machine;
    use crate::results::{Figures, Sample};

    /// The cells of the table that were measured, when each handoff and beginning was measured so often.
    fn measured(rounds: u32) -> usize {
        let sample = |point: Point| {
            let mut sample = Sample::from(point);
            let figures =
                || Figures::default().with("exchange", 20.0).with("ready", 30.0).with("pause", 40.0);
            (0..rounds).for_each(|round| sample.push(round, figures()));
            sample
        };
        let mut results = Results::new(Machine::default());
        results.samples = Point::all().into_iter().map(sample).collect();
        let report = of(&results);
        let _ = dormouse_testbed::browser::validate(report.name, &report.document().html().unwrap());
        let table = &report.tables[0].shown;
        table.rows.iter().flatten().filter(|cell| cell.contains('[')).count()
    }

    #[test]
    fn what_was_measured_too_seldom_does_not_stand_in_the_table() {
        let enough = u32::try_from(MIN_ROUNDS).unwrap();
        assert_eq!((measured(enough - 1), measured(enough)), (0, 3 * Point::all().len()));
    }
}

//! Dynamic MML-IPsec: throughput and overhead by how many packets are in zones (Figures 17 and 18). Owns these claims, whose ranges were stated
//! before anything was measured, the table and the charts.

use dormouse_report::{Chart, Mark, Table};

use super::claims::{factor, one};
use super::{Comparison, Estimate, Exhibit, Line, Point, SHARES, Stack, Writer};
use crate::judge::{Claim, Decides, Expect};

const THROUGHPUT: &str = "section 5.5, Fig. 17";
const OVERHEAD: &str = "section 5.5, Fig. 18";

/// All of the figures' points in words, from all packets in zones to none.
fn points() -> Vec<(String, Point)> {
    let [all, none] = [Line::Mml, Line::Ipsec].map(|line| Point::new(line, Stack::Reno, 0));
    let some = SHARES.map(|every| (format!("1 in {every}"), Point::dynamic(every)));
    [("all".to_owned(), all)].into_iter().chain(some).chain([("none".to_owned(), none)]).collect()
}

impl Writer<'_> {
    /// Whether some of the packets were in zones in any sample.
    fn has_dynamic(&self) -> bool {
        self.results.samples.iter().any(|s| s.every.is_some() && !s.rounds.is_empty())
    }

    /// The rate at `point`, of IPsec's.
    fn of_ipsec(&self, point: &Point) -> Option<Comparison> {
        self.ratio("rate", point, &Point::new(Line::Ipsec, Stack::Reno, 0))
    }

    /// What the rate loses against IPsec, in percent, and its interval.
    fn overhead(&self, point: &Point) -> Option<[f64; 3]> {
        let ratio = self.of_ipsec(point)?.ratio;
        Some([ratio.median, ratio.high, ratio.low].map(|of| (1.0 - of) * 100.0))
    }

    pub(super) fn of_shares(&self) -> Vec<Claim> {
        let points = points();
        let steps = points.windows(2).map(|pair| (&pair[0], &pair[1]));
        let step =
            |((_, fewer), (_, more)): (&(String, Point), &(String, Point))| self.ratio("rate", more, fewer);
        let ratios: Vec<_> = steps.clone().map(step).collect();
        let said =
            steps.zip(&ratios).map(|((from, to), c)| format!("{} after {}: {}", to.0, from.0, factor(*c)));
        let ours = said.collect::<Vec<_>>().join("; ");
        let each = ratios.iter().map(|c| Decides::ratio(Expect::NOT_LESS, c.as_ref())).collect();
        let whole = Point::new(Line::Mml, Stack::Reno, 0);
        vec![
            Claim::new(THROUGHPUT, "fewer packets in zones never make it slower", "increases", ours)
                .decided(each),
            one(
                THROUGHPUT,
                "one packet in ten in zones, times all of them",
                "more than all, at 1.25 Mbit/s",
                Expect::MORE,
                self.ratio("rate", &Point::dynamic(10), &whole),
            ),
            one(
                OVERHEAD,
                "all packets in zones, of IPsec",
                "7 % less",
                Expect::about(0.93, 0.03),
                self.of_ipsec(&whole),
            ),
            one(
                OVERHEAD,
                "one packet in ten in zones, of IPsec",
                "0.75 % less",
                Expect::about(0.9925, 0.01),
                self.of_ipsec(&Point::dynamic(10)),
            ),
        ]
    }

    /// The figures in numbers; none if no sample has some of its packets in zones.
    pub(super) fn dynamic_table(&self) -> Option<Exhibit<Table>> {
        if !self.has_dynamic() {
            return None;
        }
        let mut table = Table::new([
            "packets in zones",
            "throughput, Mbit/s",
            "less than IPsec, %",
            "of the packets to the device, in zones",
        ]);
        table.title = "Dynamic MML-IPsec without errors: Reno without SACK and timestamps".to_owned();
        let said = |figure: Option<String>| figure.unwrap_or_else(|| "–".to_owned());
        for (words, point) in points() {
            let rate = self.rate(&point).map(|e| format!("{:.3} [{:.3}, {:.3}]", e.median, e.low, e.high));
            let overhead = self.overhead(&point).filter(|_| point.line != Line::Ipsec);
            let overhead = overhead.map(|[value, low, high]| format!("{value:.2} [{low:.2}, {high:.2}]"));
            let zoned =
                self.bootstrap.median(&self.values(&point, "zoned")).map(|e| format!("{:.3}", e.median));
            table.row([words, said(rate), said(overhead), said(zoned)]);
        }
        Some(Exhibit::new("Figs. 17, 18", table))
    }

    /// The figures; none if no sample has some of its packets in zones.
    pub(super) fn dynamic_figures(&self) -> Vec<Exhibit<Chart>> {
        if !self.has_dynamic() {
            return Vec::new();
        }
        let points = points();
        let enough = |point: &Point| self.rate(point).is_some_and(|e| Estimate::is_enough(&e));
        let drawn = |id: &str, title: &str, unit: &str, of: &dyn Fn(&Point) -> Option<f64>| {
            let mut chart = Chart::new(id, title, "packets in zones", unit);
            chart.categories = points.iter().map(|(words, _)| words.clone()).collect();
            chart.caption = "Medians over rounds; no errors, Reno.".to_owned();
            let at = |(i, (_, point)): (usize, &(String, Point))| Some((i as f64, of(point)?));
            let told = points.iter().enumerate().filter(|(_, (_, point))| enough(point)).filter_map(at);
            chart.add(Line::Dynamic.words(), 0, Mark::Line, told.collect());
            chart
        };
        let rate = |point: &Point| Some(self.rate(point)?.median);
        let overhead = |point: &Point| self.overhead(point).map(|[value, ..]| value);
        vec![
            Exhibit::new(
                "Fig. 17",
                drawn("dynamic-throughput", "Throughput by packets in zones", "Mbit/s", &rate),
            ),
            Exhibit::new(
                "Fig. 18",
                drawn("dynamic-overhead", "Less than IPsec, by packets in zones", "%", &overhead),
            ),
        ]
    }
}

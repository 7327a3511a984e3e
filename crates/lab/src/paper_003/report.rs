//! What came out, beside what the paper says. Owns the paper's figures; must never give a figure that the paper only draws.

use dormouse_report::{Chart, Mark, Table, chart, digits};

use super::EXPERIMENT;
use super::campaign::{ERRORS, Line, Point, Stack, errors};
use crate::experiment::{Exhibit, Report};
use crate::judge::stats::{Bootstrap, Comparison, Estimate, levels};
use crate::judge::{Claim, Decides, Expect};
use crate::results::Results;

/// A claim about a factor is confirmed if ours is within this factor of the paper's.
const NEAR: f64 = 1.5;
const PLACE: &str = "section 5.4.1, Fig. 14";

struct Writer<'a> {
    results: &'a Results<Point>,
    bootstrap: Bootstrap,
}

/// The report.
pub(super) fn of(results: &Results<Point>) -> Report {
    let writer = Writer { results, bootstrap: Bootstrap::new(results.seed) };
    let stacks = || Stack::ALL.into_iter().filter(|stack| writer.has(*stack));
    let bytes = results.settings["bytes"].as_u64().unwrap_or_default() as f64 / 1e6;
    let obtained = [format!(
        "files of {} MB by the kernel's own TCP over an emulated radio of 2 Mbit/s each way, a round trip of 100 ms without queue, \
         independent bit errors both ways; {} rounds, each with its own seed for all radios",
        digits(bytes),
        results.rounds
    )];
    let obtained = results.obtained(obtained.into_iter().chain(levels(results)));
    Report {
        name: EXPERIMENT.name,
        title: EXPERIMENT.title,
        synthetic: false,
        traffic: obtained,
        claims: writer.claims(),
        tables: stacks().flat_map(|s| [writer.rates(s), writer.repairs(s)]).collect(),
        figures: stacks().map(|s| Exhibit::new("Fig. 14", writer.figure(s))).collect(),
        notes: notes(),
        provenance: results.into(),
    }
}

impl Writer<'_> {
    fn has(&self, stack: Stack) -> bool {
        self.results.samples.iter().any(|s| s.stack == stack && !s.rounds.is_empty())
    }

    /// The error rates that were measured, worst first.
    fn measured(&self) -> impl Iterator<Item = u32> {
        ERRORS.into_iter().filter(|kbit| self.results.samples.iter().any(|s| s.kbit == *kbit))
    }

    fn values(&self, line: Line, stack: Stack, kbit: u32, name: &str) -> Vec<f64> {
        let sample = self.results.at(&Point { line, stack, kbit });
        sample.map(|s| s.all(name).collect()).unwrap_or_default()
    }

    /// In Mbit/s.
    fn rate(&self, line: Line, stack: Stack, kbit: u32) -> Option<Estimate> {
        let rates: Vec<f64> = self.values(line, stack, kbit, "rate").iter().map(|r| r / 1e6).collect();
        self.bootstrap.median(&rates)
    }

    /// The ratio of two rates of Reno, round by round.
    fn ratio(&self, a: (Line, u32), b: (Line, u32)) -> Option<Comparison> {
        self.ratio_of(Stack::Reno, a, b)
    }

    fn ratio_of(&self, stack: Stack, a: (Line, u32), b: (Line, u32)) -> Option<Comparison> {
        let [a, b] = [a, b].map(|(line, kbit)| self.results.at(&Point { line, stack, kbit }));
        let (a, b) = a.zip(b)?;
        let rate = |sample: &crate::results::Sample<Point>, round| {
            sample.rounds.iter().find(|r| r.round == round)?.figures.one("rate")
        };
        let rounds = a.rounds.iter().map(|r| r.round);
        let pairs: Vec<(f64, f64)> = rounds.filter_map(|r| rate(a, r).zip(rate(b, r))).collect();
        self.bootstrap.paired(&pairs)
    }

    fn claims(&self) -> Vec<Claim> {
        let factor = |c: Option<Comparison>| {
            c.map_or_else(
                || "not measured".to_owned(),
                |c| format!("{} [{}, {}]", digits(c.ratio.median), digits(c.ratio.low), digits(c.ratio.high)),
            )
        };
        let each = |expect: Expect, ratios: &[Option<Comparison>]| {
            ratios.iter().map(|c| Decides::ratio(expect, c.as_ref())).collect::<Vec<_>>()
        };
        let one = |claim: &str, paper: &str, expect: Expect, c: Option<Comparison>| {
            Claim::new(PLACE, claim, paper, factor(c)).judged(expect, c.map(|c| c.ratio.into()))
        };
        let over = |kbit| self.ratio((Line::Snoop, kbit), (Line::Tcp, kbit));
        let left = |kbit| self.ratio((Line::Ipsec, kbit), (Line::Ipsec, 0));
        let always = |stack, expect: Expect| {
            let bad: Vec<u32> = ERRORS.into_iter().filter(|kbit| *kbit > 0).collect();
            let ratios = bad.iter().map(|k| self.ratio_of(stack, (Line::Snoop, *k), (Line::Tcp, *k)));
            let ratios: Vec<_> = ratios.collect();
            let said = bad.iter().zip(&ratios).map(|(k, c)| format!("{}: {}", errors(*k), factor(*c)));
            (said.collect::<Vec<_>>().join("; "), each(expect, &ratios))
        };
        let (said, figures) = always(Stack::Reno, Expect::MORE);
        let mut claims = vec![
            Claim::new(PLACE, "SNOOP makes Reno faster at every error rate", "always higher", said)
                .decided(figures),
            one(
                "SNOOP at one wrong bit in 64 kbit, times Reno alone",
                "three times",
                Expect::within(3.0, NEAR),
                over(64),
            ),
            one(
                "SNOOP at one in 8 Mbit, times Reno alone",
                "10 % higher",
                Expect::about(1.1, 0.05),
                over(8_192),
            ),
            one(
                "IPsec without errors, of Reno in clear",
                "5 % less",
                Expect::about(0.95, 0.03),
                self.ratio((Line::Ipsec, 0), (Line::Tcp, 0)),
            ),
            one(
                "IPsec at one in 2 Mbit, of its rate without errors",
                "27 % less",
                Expect::about(0.73, 0.1),
                left(2_048),
            ),
            one(
                "IPsec at one in 64 kbit, of its rate without errors",
                "62 % less",
                Expect::about(0.38, 0.1),
                left(64),
            ),
        ];
        let arq: Vec<_> = ERRORS.iter().map(|k| self.ratio((Line::EspArq, *k), (Line::Snoop, *k))).collect();
        let said = ERRORS.iter().zip(&arq).map(|(k, c)| format!("{}: {}", errors(*k), factor(*c)));
        let claim = "esp-arq, which exposes nothing, is as fast as SNOOP in clear, but for the 5 % of IPsec";
        claims.push(
            Claim::new("not in the paper", claim, "–", said.collect::<Vec<_>>().join("; "))
                .decided(each(Expect::above(0.95), &arq)),
        );
        claims.push(one(
            "esp-arq at one wrong bit in 64 kbit, times IPsec alone",
            "up to five times, of MML-IPsec+SNOOP",
            Expect::above(5.0),
            self.ratio((Line::EspArq, 64), (Line::Ipsec, 64)),
        ));
        claims.extend([
            one(
                "MML-IPsec without errors, of Reno in clear",
                "9 % less",
                Expect::about(0.91, 0.03),
                self.ratio((Line::Mml, 0), (Line::Tcp, 0)),
            ),
            one(
                "SNOOP within MML-IPsec at one wrong bit in 64 kbit, times MML-IPsec alone",
                "as much as five times",
                Expect::within(5.0, NEAR),
                self.ratio((Line::MmlSnoop, 64), (Line::Mml, 64)),
            ),
            one(
                "the same, times IPsec alone",
                "up to five times",
                Expect::above(5.0),
                self.ratio((Line::MmlSnoop, 64), (Line::Ipsec, 64)),
            ),
            Claim {
                place: "not in the paper".into(),
                ..one(
                    "MML-IPsec+SNOOP without errors, of IPsec: at most 3 % less",
                    "–",
                    Expect::above(0.97),
                    self.ratio((Line::MmlSnoop, 0), (Line::Ipsec, 0)),
                )
            },
        ]);
        claims.extend([Stack::Cubic, Stack::Bbr].into_iter().filter(|s| self.has(*s)).map(|stack| {
            let (said, figures) = always(stack, Expect::NOT_LESS);
            let claim =
                format!("SNOOP makes {} of today, with SACK, no slower at any error rate", stack.words());
            Claim::new("not in the paper", &claim, "–", said).decided(figures)
        }));
        claims
    }

    fn rates(&self, stack: Stack) -> Exhibit<Table> {
        let mut head = vec!["bit errors".to_owned()];
        head.extend(Line::ALL.map(|line| format!("{}, Mbit/s", line.words())));
        let mut table = Table::new(head);
        table.title = format!("Throughput by bit errors: {}", stack.words());
        for kbit in self.measured() {
            let mut row = vec![errors(kbit)];
            row.extend(Line::ALL.map(|line| {
                self.rate(line, stack, kbit).map_or_else(
                    || "–".to_owned(),
                    |e| format!("{:.3} [{:.3}, {:.3}]", e.median, e.low, e.high),
                )
            }));
            table.row(row);
        }
        Exhibit::new("Fig. 14", table)
    }

    fn repairs(&self, stack: Stack) -> Exhibit<Table> {
        let mut table = Table::new([
            "bit errors",
            "TCP: broken by the radio",
            "sent again by the sender",
            "TCP+SNOOP: broken by the radio",
            "repeated by the router",
            "sent again by the sender",
        ]);
        table.title = format!("Packets of a file, mean over rounds: {}", stack.words());
        for kbit in self.measured() {
            let mean = |line, name| {
                let values = self.values(line, stack, kbit, name);
                let sum: f64 = values.iter().sum();
                if values.is_empty() { "–".to_owned() } else { digits(sum / values.len() as f64) }
            };
            table.row([
                errors(kbit),
                mean(Line::Tcp, "broken"),
                mean(Line::Tcp, "sent_again"),
                mean(Line::Snoop, "broken"),
                mean(Line::Snoop, "repeated"),
                mean(Line::Snoop, "sent_again"),
            ]);
        }
        Exhibit::new("not in the paper", table)
    }

    fn figure(&self, stack: Stack) -> Chart {
        let measured: Vec<u32> = self.measured().collect();
        let title = format!("Throughput by bit errors: {}", stack.words());
        let id = format!("throughput-{}", stack.congestion());
        let mut chart = chart::Chart::new(&id, &title, "bit errors", "Mbit/s");
        chart.categories = measured.iter().map(|kbit| errors(*kbit)).collect();
        chart.caption = "Medians over rounds.".to_owned();
        chart.y_range = Some((0.0, 2.0));
        for (colour, line) in Line::ALL.into_iter().enumerate() {
            // What no claim would take is not drawn either.
            let told = |kbit| self.rate(line, stack, kbit).filter(Estimate::is_enough);
            let at = |(i, kbit): (usize, &u32)| Some((i as f64, told(*kbit)?.median));
            let points: Vec<(f64, f64)> = measured.iter().enumerate().filter_map(at).collect();
            if !points.is_empty() {
                chart.add(line.words(), colour, Mark::Line, points);
            }
        }
        chart
    }
}

fn notes() -> Vec<String> {
    [
        "The paper draws Figure 14 and states few of its figures: those stand among the claims. Its radio is a WaveLAN limited to 2 Mbit/s; \
         its TCP was Linux's of 2003, ours is this kernel's with everything switched off that came later (SACK, timestamps, window \
         scaling, RACK, tail loss probes, F-RTO). Its IPsec is 3DES in tunnel mode without authentication, ours what the daemons choose.",
        "The paper's delay of 100 ms is taken as the round trip: 48 ms each way on the wire, 2 ms on the radio. The router's queue holds \
         75,000 bytes, more than a window of 64 KB.",
        "SNOOP stands between queue and radio, repeats at the first duplicate acknowledgement (the paper: at the fourth), and hides \
         selective acknowledgements for at most 150 ms.",
        "esp-arq is not in the paper: device and router repair the radio by the sequence numbers of ESP, which are in clear, and the router sees \
         no header of the user's.",
        "MML-IPsec is ESP in two zones under AES-128-GCM, through our data path without key exchange: both ends and the router have keys of the plan. \
         The paper's zones are 3DES without authentication, its first one 40 bytes; ours ends behind TCP's options.",
    ]
    .map(str::to_owned)
    .into()
}

//! What came out, beside what the paper says: tables, figures and notes here, claims in [`claims`], windows over time in [`traces`]. Owns the paper's
//! figures; must never give a figure that the paper only draws.

mod claims;
mod dynamic;
mod sidekick;
mod traces;

use dormouse_report::{Chart, Mark, Table, chart, digits};

use super::EXPERIMENT;
use super::campaign::{ERRORS, Line, Point, SHARES, Stack, errors};
use crate::experiment::{Exhibit, Report};
use crate::judge::stats::{Bootstrap, Comparison, Estimate, levels};
use crate::results::{Results, Sample};

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
        tables: stacks()
            .flat_map(|s| [writer.rates(s), writer.repairs(s)])
            .chain(writer.dynamic_table())
            .chain(writer.sidekick())
            .collect(),
        figures: stacks()
            .map(|s| Exhibit::new("Fig. 14", writer.figure(s)))
            .chain(stacks().flat_map(|s| writer.traces(s)))
            .chain(writer.dynamic_figures())
            .collect(),
        notes: notes(results.settings.get("sidekick_bytes").is_some()),
        provenance: results.into(),
    }
}

impl Writer<'_> {
    /// What was measured over the paper's radio, with all packets alike.
    fn paper(&self) -> impl Iterator<Item = &Sample<Point>> {
        self.results.samples.iter().filter(|s| s.loss.is_none() && s.every.is_none())
    }

    fn has(&self, stack: Stack) -> bool {
        self.paper().any(|s| s.stack == stack && !s.rounds.is_empty())
    }

    /// The error rates that were measured, worst first.
    fn measured(&self) -> impl Iterator<Item = u32> {
        ERRORS.into_iter().filter(|kbit| self.paper().any(|s| s.kbit == *kbit))
    }

    fn values(&self, point: &Point, name: &str) -> Vec<f64> {
        self.results.at(point).map(|s| s.all(name).collect()).unwrap_or_default()
    }

    /// In Mbit/s.
    fn rate(&self, point: &Point) -> Option<Estimate> {
        let rates = self.values(point, "rate");
        let rates: Vec<f64> = rates.iter().map(|r| r / 1e6).collect();
        self.bootstrap.median(&rates)
    }

    /// The ratio of a quantity of two points, round by round.
    fn ratio(&self, of: &str, a: &Point, b: &Point) -> Option<Comparison> {
        let (a, b) = self.results.at(a).zip(self.results.at(b))?;
        let figure =
            |sample: &Sample<Point>, round| sample.rounds.iter().find(|r| r.round == round)?.figures.one(of);
        let rounds = a.rounds.iter().map(|r| r.round);
        let pairs: Vec<(f64, f64)> = rounds.filter_map(|r| figure(a, r).zip(figure(b, r))).collect();
        self.bootstrap.paired(&pairs)
    }

    fn rates(&self, stack: Stack) -> Exhibit<Table> {
        let mut head = vec!["bit errors".to_owned()];
        head.extend(Line::ALL.map(|line| format!("{}, Mbit/s", line.words())));
        let mut table = Table::new(head);
        table.title = format!("Throughput by bit errors: {}", stack.words());
        for kbit in self.measured() {
            let mut row = vec![errors(kbit)];
            row.extend(Line::ALL.map(|line| {
                self.rate(&Point::new(line, stack, kbit)).map_or_else(
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
                let values = self.values(&Point::new(line, stack, kbit), name);
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
            let told = |kbit| self.rate(&Point::new(line, stack, kbit)).filter(Estimate::is_enough);
            let at = |(i, kbit): (usize, &u32)| Some((i as f64, told(*kbit)?.median));
            let points: Vec<(f64, f64)> = measured.iter().enumerate().filter_map(at).collect();
            if !points.is_empty() {
                chart.add(line.words(), colour, Mark::Line, points);
            }
        }
        chart
    }
}

/// `ships`: the lines ran what ships. The files of an earlier campaign have no size of Sidekick's transfers.
fn notes(ships: bool) -> Vec<String> {
    let world = if ships {
        "All of it is what ships: an access router's daemon with `[router]` in every line, also where it repairs nothing; where there is a tunnel, the \
         daemons of gateway and device; and where it repairs a tunnel, header keys from the gateway. Fixed host and gateway are one machine."
    } else {
        "These data are of an earlier campaign: repair stood in the emulator of the radio and not in a router's daemon, zones had fixed keys, and \
         esp-arq went with whole packets. What follows describes the campaign of today."
    };
    [
        "The paper draws Figure 14 and states few of its figures: those stand among the claims. Its radio is a WaveLAN limited to 2 Mbit/s; \
         its TCP was Linux's of 2003, ours is this kernel's with everything switched off that came later (SACK, timestamps, window \
         scaling, RACK, tail loss probes, F-RTO). Its IPsec is 3DES in tunnel mode without authentication, ours what the daemons choose.",
        world,
        "The paper's delay of 100 ms is taken as the round trip: 48 ms each way on the wire, 2 ms on the radio. The router's daemon knows the \
         radio's rate (`rate_kbit = 2000`) and holds at most what it carries in a quarter of a second, 62,500 bytes; what is in flight besides fits \
         the way, 25,000 bytes, so a window of 64 KB loses nothing there. The radio's own queues, 75,000 bytes each way, stay nearly empty.",
        "SNOOP stands between queue and radio, repeats at the first duplicate acknowledgement (the paper: at the fourth), and hides \
         selective acknowledgements for at most 150 ms.",
        "esp-arq is not in the paper: device and router repair the radio by the sequence numbers of ESP, which are in clear, and the device's reports. \
         Their key is that of a first zone without bytes (`ends = [\"none\"]`), which opens nothing of a packet; the zone costs it 20 bytes.",
        "Sidekick (NSDI 2024) repairs what is opaque to the router too, by sums over packets. Its published rates stand beside ours over a path of \
         the same rate, delay and losses: 10 Mbit/s and 25 ms each way on the wire, with a queue of 130,000 bytes, behind a lossy hop, here of \
         100 Mbit/s and 1 ms (`rate_kbit = 100000`), which loses packets independently, both ways. They were measured on other machines, with \
         other files and stacks: that table compares no numbers of one run, and no claim rests on it.",
        "Figures 17 and 18: gateway and device each send one packet in n by a CHILD SA in zones and the others by a whole one \
         (`choose = { every = n }`), over the radio without errors, with Reno. TCP's segments are in all of them as small as zones need, so the \
         last step, from one in ten to none, also has larger segments.",
        "MML-IPsec is ESP in two zones under what the daemons choose; its keys come by IKEv2. The paper's zones are 3DES without authentication, \
         its first one 40 bytes; ours ends behind TCP's options.",
    ]
    .map(str::to_owned)
    .into()
}

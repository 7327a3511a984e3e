//! Figures 1 to 11 of paper 004 as charts: ratios by packet size. The paper's curves are lost; the dashed lines are the ratios
//! that its text states, over the sizes that it states them for.

use std::collections::BTreeMap;

use dormouse_report::{Chart, Mark};

use super::{HARD, MODES, ORDER, SOFT, against};
use crate::advise::rules::{self, ANY, Differ, Mode, Pick, Test};
use crate::experiment::Exhibit;
use crate::judge::stats::{Bootstrap, Measured, geometric_mean};
use crate::results::esp::{Encapsulation, Engine, Metric, What};
use crate::results::{Results, Sample};

const ALL: (u32, u32) = (1, 1_500);
const OURS: Pick = Pick { engine: Some(Engine::Dormouse), ..ANY };

/// A line of ours: a name, a colour and a comparison.
struct Line {
    name: String,
    colour: usize,
    test: Test,
}

/// What the paper states: a name, and the range of sizes with the ratio.
type Stated = (String, (f64, f64), f64);

/// The paper's smallest packets.
const SMALLEST: u32 = 180;

/// The sizes that a rule states of a metric, as lines: each of its ratios, or one over it (`over`), where it has an end.
fn stated(id: &str, metric: Metric, over: bool) -> Vec<Stated> {
    let mut out: Vec<Stated> = Vec::new();
    for test in rules::tests(id).iter().filter(|t| t.metric == metric) {
        let Some((low, high)) = test.size else { continue };
        let (low, high) = if over { (1.0 / high, 1.0 / low) } else { (low, high) };
        let (from, to) = (test.sizes.0.max(SMALLEST), test.sizes.1);
        // Of modes against each other the line of the other mode names ours.
        let alone = test.differ != Differ::Suite && test.differ != Differ::Protection;
        let mode = MODES.into_iter().find(|m| alone && test.first.mode == Some(m.1));
        let mode = mode.map(|m| format!(", {}", m.0)).unwrap_or_default();
        let name = format!("paper{mode}, {from} to {to} B");
        let ends = if low == high { vec![(low, "")] } else { vec![(low, ", least"), (high, ", most")] };
        for (ratio, end) in ends.into_iter().filter(|(ratio, _)| ratio.is_finite()) {
            let line = (format!("{name}{end}"), (f64::from(from), f64::from(to)), ratio);
            if !out.contains(&line) {
                out.push(line);
            }
        }
    }
    out
}

struct Drawing<'a> {
    results: &'a Results,
    bootstrap: &'a Bootstrap,
}

/// All figures.
pub(super) fn all(results: &Results, bootstrap: &Bootstrap) -> Vec<Exhibit<Chart>> {
    let d = Drawing { results, bootstrap };
    let mut out = Vec::new();
    modes(&d, &mut out);
    cores_and_instructions(&d, &mut out);
    overheads(&d, &mut out);
    governors_and_tls(&d, &mut out);
    out
}

/// Figures 1 and 2.
fn modes(d: &Drawing<'_>, out: &mut Vec<Exhibit<Chart>>) {
    // The paper states one size for both time and CPU.
    let aead = stated("software-aead", Metric::Cpu, false);
    let small = stated("hardware-small", Metric::Throughput, false);
    for (place, id, title, aes, metric, stated) in [
        (
            "Fig. 1a",
            "modes-software-time",
            "Time of each mode over CBC, AES in software",
            SOFT,
            Metric::Throughput,
            &aead[..],
        ),
        (
            "Fig. 1b",
            "modes-aes-time",
            "Time of each mode over CBC, AES instructions",
            HARD,
            Metric::Throughput,
            &small[..],
        ),
        (
            "Fig. 2a",
            "modes-software-cpu",
            "CPU of each mode over CBC, AES in software",
            SOFT,
            Metric::Cpu,
            &aead[..],
        ),
        ("Fig. 2b", "modes-aes-cpu", "CPU of each mode over CBC, AES instructions", HARD, Metric::Cpu, &[]),
    ] {
        let lines = lines(MODES.into_iter().filter(|m| m.1 != Mode::Cbc), |mode| {
            against(mode, Mode::Cbc, aes, metric, ALL)
        });
        out.push(d.figure(place, id, title, &lines, stated));
    }
}

/// Figures 3, 4 and 5.
fn cores_and_instructions(d: &Drawing<'_>, out: &mut Vec<Exhibit<Chart>>) {
    let cores = |mode, metric| {
        Test::new(OURS.mode(mode).many(true), OURS.mode(mode).many(false), Differ::Cores, metric)
    };
    let time = lines(MODES, |m| cores(m, Metric::Throughput));
    let paper = stated("one-core", Metric::Throughput, true);
    out.push(d.figure("Fig. 3", "cores-time", "Time on several cores over one", &time, &paper));
    let paper = stated("one-core", Metric::Cpu, false);
    let cpu = lines(MODES, |m| cores(m, Metric::Cpu));
    out.push(d.figure("Fig. 4", "cores-cpu", "CPU on several cores over one", &cpu, &paper));
    let instructions = |mode| Test::new(SOFT.mode(mode), HARD.mode(mode), Differ::Aes, Metric::Throughput);
    let time = lines(MODES, instructions);
    out.push(d.figure(
        "Fig. 5",
        "instructions",
        "Time with AES in software over AES instructions",
        &time,
        &stated("aes-instructions", Metric::Throughput, false),
    ));
}

/// Figures 6 to 9.
fn overheads(d: &Drawing<'_>, out: &mut Vec<Exhibit<Chart>>) {
    let both = |of: &dyn Fn(Metric) -> Test| {
        let line = |name: &str, colour, metric| Line { name: name.to_owned(), colour, test: of(metric) };
        vec![line("ours, time", 0, Metric::Throughput), line("ours, CPU", 2, Metric::Cpu)]
    };
    // Beside time and CPU, what the paper states of one.
    let stated = |id: &str| -> Vec<Stated> {
        let named = |(name, sizes, ratio): Stated| (name.replacen("paper", "paper, CPU", 1), sizes, ratio);
        stated(id, Metric::Cpu, false).into_iter().map(named).collect()
    };
    let encryption = both(&|metric| against(Mode::Cbc, Mode::Null, ANY, metric, ALL));
    out.push(d.figure(
        "Fig. 6",
        "encryption",
        "AES-CBC over NULL encryption, both with SHA1",
        &encryption,
        &stated("encryption-overhead"),
    ));
    let network = both(&|metric| {
        Test::new(
            ANY.mode(Mode::Null),
            ANY.mode(Mode::Plain).wrap(Encapsulation::None),
            Differ::Protection,
            metric,
        )
    });
    let stated = stated("network-overhead");
    out.push(d.figure("Fig. 7", "network", "ESP with NULL encryption over no ESP", &network, &stated));
    for (place, id, title, wrap) in [
        ("Fig. 8", "tunnel", "Tunnel mode over transport mode", Encapsulation::Tunnel),
        // Transport mode on both sides, so that nothing but the encapsulation differs.
        ("Fig. 9", "udp", "Transport mode in UDP over transport mode", Encapsulation::UdpTransport),
    ] {
        let wrapped = both(&|metric| {
            Test::new(OURS.wrap(wrap), OURS.wrap(Encapsulation::Transport), Differ::Wrap, metric)
        });
        out.push(d.figure(
            place,
            id,
            title,
            &wrapped,
            &[("paper, large packets".to_owned(), (500.0, 1_500.0), 1.0)],
        ));
    }
}

/// Figures 10 and 11.
fn governors_and_tls(d: &Drawing<'_>, out: &mut Vec<Exhibit<Chart>>) {
    let lines: Vec<Line> = ["performance", "conservative", "powersave"]
        .into_iter()
        .enumerate()
        .map(|(colour, governor)| Line {
            name: format!("ours, {governor}"),
            colour,
            test: Test::new(
                OURS.governor(governor),
                OURS.governor("ondemand"),
                Differ::Governor,
                Metric::Throughput,
            ),
        })
        .collect();
    let mut governors =
        d.figure("Fig. 10", "governors", "Time under each governor over ondemand", &lines, &[]);
    if !rules::governors_change_speed(d.results, d.bootstrap) {
        governors.shown.caption = format!("Not drawn: {}.", rules::NO_FREQUENCIES);
    } else if d.results.machine.emulated() {
        governors.shown.caption.push_str(&format!(" Here: {}.", rules::FREQUENCIES_EMULATED));
    }
    out.push(governors);
    let mut chart =
        Chart::new("tls", "TLS over IPsec (AES-GCM), by size of the file", "bytes", "TLS over IPsec");
    chart.x_log = true;
    chart.caption = "Below 1, TLS is faster or takes less CPU; time of large files alone. The paper states directions only: TLS is faster on the laptop, IPsec on the small devices.".to_owned();
    for (name, colour, test) in [("ours, time", 0, rules::TLS_FASTER), ("ours, CPU", 2, rules::TLS_CPU)] {
        let points = d.points(&test, What::Tls, |s| s.file_bytes.map(|n| n as f64));
        if !points.is_empty() {
            let mark = if points.len() == 1 { Mark::Points } else { Mark::Line };
            chart.add(name, colour, mark, points);
        }
    }
    if chart.is_empty() {
        chart.caption.push_str(" Not measured in this file.");
    }
    out.push(Exhibit::new("Fig. 11", chart));
}

fn lines(modes: impl IntoIterator<Item = (&'static str, Mode)>, test: impl Fn(Mode) -> Test) -> Vec<Line> {
    let line = |(colour, (name, mode)): (usize, (&str, Mode))| Line {
        name: format!("ours, {name}"),
        colour,
        test: test(mode),
    };
    modes.into_iter().enumerate().map(line).collect()
}

impl Drawing<'_> {
    fn figure(
        &self,
        place: &str,
        id: &str,
        title: &str,
        lines: &[Line],
        stated: &[Stated],
    ) -> Exhibit<Chart> {
        let mut chart = Chart::new(id, title, "packet, B", "ratio");
        chart.x_range = Some((100.0, 1_500.0));
        let basis = ORDER.into_iter().find(|what| lines.iter().any(|l| !self.line(l, *what).is_empty()));
        for (n, (name, (from, to), ratio)) in stated.iter().enumerate() {
            chart.add(name, 4 + n, Mark::Dashes, vec![(*from, *ratio), (*to, *ratio)]);
        }
        match basis {
            Some(what) => {
                chart.caption = format!(
                    "1 is no difference. Ours: {}, mean ratio of all pairs of a size whose interval is no wider than the ratio.",
                    what.words()
                );
                for line in lines {
                    let points = self.line(line, what);
                    if !points.is_empty() {
                        let mark = if points.len() == 1 { Mark::Points } else { Mark::Line };
                        chart.add(&line.name, line.colour, mark, points);
                    }
                }
            }
            None => chart.caption = "Ours was not measured in this file.".to_owned(),
        }
        if !stated.is_empty() {
            chart.caption.push_str(" Dashed: what the paper's text states.");
        }
        Exhibit::new(place, chart)
    }

    fn line(&self, line: &Line, what: What) -> Vec<(f64, f64)> {
        self.points(&line.test, what, |s| Some(f64::from(s.packet_bytes)))
    }

    /// The mean ratio at each x, of the pairs that are resolved. Throughput is turned into time, which is what the paper draws.
    fn points(&self, test: &Test, what: What, x: impl Fn(&Sample) -> Option<f64>) -> Vec<(f64, f64)> {
        let mut at: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for pair in rules::pairs(self.results, self.bootstrap, test, Some(what)) {
            let ratio = Measured::from(pair.comparison.ratio);
            let ratio = if test.metric == Metric::Throughput { ratio.inverse() } else { ratio };
            if let Some(x) = x(pair.first).filter(|_| ratio.is_resolved()) {
                at.entry(x as u64).or_default().push(ratio.value);
            }
        }
        at.into_iter()
            .filter_map(|(x, ratios)| Some((x as f64, geometric_mean(ratios.into_iter())?)))
            .collect()
    }
}

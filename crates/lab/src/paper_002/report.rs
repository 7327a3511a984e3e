//! What came out, beside what the paper says. Owns the paper's figures and the arithmetic of the comparison; must never show a scaled
//! figure without saying by what it was scaled.

mod claims;
mod daemons;
mod many;

use std::collections::BTreeSet;

use anyhow::Result;
use dormouse_report::{Chart, Mark, Table, chart, digits};

use super::EXPERIMENT;
use super::campaign::{PAPER, Point};
use super::key_pairs::Algorithm;
use super::pair::Key;
use crate::experiment::{Exhibit, Report};
use crate::judge::stats::{LEVEL, MIN_ROUNDS, Mean, Measured, quantile};
use crate::judge::{Claim, Expect};
use crate::results::{Results, Sample};
use daemons::Power;

/// Seconds that the paper's phone took for key pairs of 512, 1024 and 2048 bits: mean and standard deviation.
const KEY_PAIRS: [(Algorithm, u32, f64, f64); 6] = [
    (Algorithm::Dsa, 512, 4.90, 1.46),
    (Algorithm::Dsa, 1_024, 31.48, 16.54),
    (Algorithm::Dsa, 2_048, 389.99, 308.61),
    (Algorithm::Rsa, 512, 0.51, 0.13),
    (Algorithm::Rsa, 1_024, 3.56, 1.28),
    (Algorithm::Rsa, 2_048, 40.73, 31.20),
];
/// The pair by which this machine is compared with the phone, and its seconds there.
const YARDSTICK: (Algorithm, u32, f64) = (Algorithm::Rsa, 1_024, 3.56);
/// Who begins a base exchange, and seconds of it with their deviations: with HIPL and OpenHIP on an active phone, with both on one in standby.
const EXCHANGES: [(&str, [(f64, f64); 4]); 3] = [
    ("phone to server", [(3.169, 0.108), (3.089, 0.170), (1.677, 0.063), (1.895, 0.122)]),
    ("server to phone", [(3.313, 0.104), (2.758, 0.106), (1.759, 0.138), (1.851, 0.074)]),
    ("phone to phone", [(6.416, 0.712), (4.297, 0.073), (3.781, 0.125), (3.501, 0.123)]),
];
/// With OpenHIP in standby: what is compared where one figure must do.
const STANDBY: usize = 3;
/// Seconds of the tablet's with a server, and with another tablet.
const TABLETS: [f64; 2] = [1.4, 2.6];
/// Seconds that the 768-bit group saves at most.
const SAVED: f64 = 0.35;
/// Seconds of an UPDATE of the tablet, and of the laptop.
const UPDATE: [f64; 2] = [0.287, 0.100];
/// A claim about a size is confirmed if ours is within this factor of the paper's.
const NEAR: f64 = 1.5;
/// What takes as long as something else is within this factor of it.
const ALIKE: f64 = 1.25;
/// From this difficulty on the puzzle, and not the signature, is what T2 consists of.
const PUZZLE_FROM: u8 = 12;

/// The means of the five stages in milliseconds.
#[derive(Clone, Copy)]
struct Stages {
    i1: f64,
    r1: f64,
    t2: f64,
    t3: f64,
    t4: f64,
}

impl Stages {
    const fn initiator(self) -> f64 {
        self.i1 + self.t2 + self.t4
    }

    const fn responder(self) -> f64 {
        self.r1 + self.t3
    }

    /// I1, T1 to T4 if the initiator and the responder are so many times slower, in milliseconds.
    const fn scaled(self, [initiator, responder]: [f64; 2]) -> [f64; 5] {
        let Self { i1, r1, t2, t3, t4 } = self;
        [i1 * initiator, r1 * responder, t2 * initiator, t3 * responder, t4 * initiator]
    }
}

fn judged(
    place: &str,
    claim: &str,
    paper: String,
    unit: &str,
    expect: Expect,
    ours: Option<Measured>,
) -> Claim {
    let words = ours.filter(Measured::is_told).map_or_else(|| "–".to_owned(), |m| m.words(2));
    Claim::new(place, claim, &paper, format!("{words} {unit}")).judged(expect, ours)
}

#[derive(Clone, Copy)]
struct Writer<'a> {
    results: &'a Results<Point>,
    /// Only the figures of this round; all without one.
    round: Option<u32>,
}

/// The report.
///
/// # Errors
/// If a device profile lacks what it is asked for.
pub(super) fn of(results: &Results<Point>) -> Result<Report> {
    let writer = Writer { results, round: None };
    let power = Power::shipped()?;
    let daemons = writer.has_daemons().then_some(
        "two dormoused with their default configuration in network namespaces: throughput, CPU and memory of the daemons",
    );
    let obtained = [
        "two HIP hosts in one thread, packets handed over in memory: processor time alone, no network, no radio",
    ];
    let obtained = results.obtained(obtained.into_iter().chain(daemons).map(str::to_owned));
    let mut claims = writer.claims();
    claims.extend(writer.daemon_claims(power));
    claims.extend(writer.conclusions());
    Ok(Report {
        name: EXPERIMENT.name,
        title: EXPERIMENT.title,
        synthetic: false,
        traffic: obtained,
        claims,
        tables: vec![
            writer.stages(),
            writer.durations(),
            writer.directions(),
            writer.key_pairs(),
            writer.groups(),
            writer.updates(),
            writer.transfers(),
            writer.daemons(),
            writer.energy(power),
            writer.associations(),
        ],
        figures: vec![
            Exhibit::new("T2 and the puzzle", writer.puzzle()),
            Exhibit::new("Key pair creation", writer.key_pair_distribution()),
        ],
        notes: writer.notes(),
        provenance: results.into(),
    })
}

fn ms(mean: Option<Mean>) -> String {
    mean.map_or_else(|| "–".to_owned(), |m| format!("{} ± {}", digits(m.mean), digits(m.deviation)))
}

fn shown(value: f64) -> String {
    if value.is_finite() { digits(value) } else { "–".to_owned() }
}

impl Writer<'_> {
    /// What was measured at a point, if its output was checked.
    fn sample(&self, point: Point) -> Option<&Sample<Point>> {
        self.results.at(&point).filter(|sample| sample.verified)
    }

    fn mean(&self, point: Point, name: &str) -> Option<Mean> {
        let rounds = self.sample(point)?.rounds.iter();
        let rounds = rounds.filter(|r| self.round.is_none_or(|round| r.round == round));
        Mean::of(&rounds.flat_map(|r| r.figures.all(name)).copied().collect::<Vec<_>>())
    }

    /// A figure that is put together from several: its mean over the rounds that have all of them, and their interval.
    fn by_round(&self, figure: impl Fn(&Self) -> f64) -> Option<Measured> {
        let rounds: BTreeSet<u32> =
            self.results.samples.iter().flat_map(|s| s.rounds.iter().map(|r| r.round)).collect();
        let of = |round: u32| figure(&Self { round: Some(round), ..*self });
        let all: Vec<f64> = rounds.into_iter().map(of).filter(|v| v.is_finite()).collect();
        let mean = Mean::of(&all)?;
        let half = mean.half_interval();
        Some(Measured {
            value: mean.mean,
            low: mean.mean - half,
            high: mean.mean + half,
            n: mean.count,
            level: LEVEL,
        })
    }

    /// No number where nothing was measured.
    fn value(&self, point: Point, name: &str) -> f64 {
        self.mean(point, name).map_or(f64::NAN, |m| m.mean)
    }

    fn exchange(&self, key: Key, (group, k): (u8, u8)) -> Stages {
        let of = |name| self.value(Point::BaseExchange { key, group, k }, name);
        Stages { i1: of("i1"), r1: of("r1"), t2: of("t2"), t3: of("t3"), t4: of("t4") }
    }

    /// Milliseconds of a key pair, without those of the program that makes it.
    fn created(&self, algorithm: Algorithm, bits: u32) -> f64 {
        let point = Point::KeyPair { algorithm, bits };
        self.value(point, "created") - self.value(point, "started")
    }

    /// How many times slower the paper's phone is.
    fn slowness(&self) -> f64 {
        let (algorithm, bits, seconds) = YARDSTICK;
        seconds * 1e3 / self.created(algorithm, bits)
    }

    fn stages(&self) -> Exhibit<Table> {
        let rows = Key::ALL.into_iter().flat_map(|key| {
            key.settings().iter().map(move |&(group, k)| {
                let stages = self.exchange(key, (group, k));
                let of = |name| ms(self.mean(Point::BaseExchange { key, group, k }, name));
                let with = format!("{}, group {group}, K = {k}", key.words());
                let total = shown(stages.initiator() + stages.responder());
                vec![with, of("i1"), of("r1"), of("t2"), of("t3"), of("t4"), total]
            })
        });
        let head = ["with", "I1", "R1 (T1)", "T2", "T3", "T4", "all"];
        let title = "Processor time of the stages on this machine, ms: mean ± deviation";
        Exhibit::new("Duration of the base exchange", Table::titled(title, head, rows))
    }

    /// The processor time of an exchange if the initiator, or the responder, or both are so slow, in seconds.
    fn scaled(&self, [initiator, responder]: [f64; 2]) -> f64 {
        let stages = self.exchange(Key::Rsa1024V1, PAPER);
        (stages.initiator() * initiator + stages.responder() * responder) / 1e3
    }

    fn scenarios(&self) -> [f64; 3] {
        let slow = self.slowness();
        [self.scaled([slow, 1.0]), self.scaled([1.0, slow]), self.scaled([slow, slow])]
    }

    /// T1 to T4 of each direction.
    fn directions(&self) -> Exhibit<Table> {
        let (slow, stages) = (self.slowness(), self.exchange(Key::Rsa1024V1, PAPER));
        let rows = EXCHANGES.iter().zip([[slow, 1.0], [1.0, slow], [slow, slow]]);
        let rows = rows.map(|((name, _), by)| {
            let scaled = stages.scaled(by).map(|ms| shown(ms / 1e3));
            [(*name).to_owned()].into_iter().chain(scaled).collect::<Vec<_>>()
        });
        let head = ["who begins", "I1, s", "T1, s", "T2, s", "T3, s", "T4, s"];
        let title = format!(
            "Stages of each direction, HIPv1, RSA-1024, group 3, K = 10: processor time here, that of a phone's end times {}",
            shown(slow)
        );
        Exhibit::new("Base exchange, stages by who begins", Table::titled(&title, head, rows))
    }

    fn durations(&self) -> Exhibit<Table> {
        let here = self.scaled([1.0, 1.0]);
        let rows = EXCHANGES.iter().zip(self.scenarios()).map(|((name, papers), scaled)| {
            let [.., (standby, _)] = *papers;
            let papers = papers.map(|(mean, deviation)| format!("{mean} ± {deviation}"));
            let ours = [shown(scaled), shown(here * 1e3), shown(standby / here)];
            [(*name).to_owned()].into_iter().chain(papers).chain(ours).collect::<Vec<_>>()
        });
        let head = [
            "who begins",
            "paper, s: HIPL, active",
            "OpenHIP, active",
            "HIPL, standby",
            "OpenHIP, standby",
            "ours scaled, s",
            "ours here, ms",
            "times faster here",
        ];
        let title = format!(
            "The paper's phone, mean ± deviation (its tablet: {} s with a server, {} s with another tablet); ours, as the paper: HIPv1, RSA-1024, group 3; K = 10; processor time alone; scaled: that of a phone's end times {}",
            TABLETS[0],
            TABLETS[1],
            shown(self.slowness())
        );
        Exhibit::new("Base exchange, who begins", Table::titled(&title, head, rows))
    }

    fn key_pairs(&self) -> Exhibit<Table> {
        let slow = self.slowness();
        let rows = KEY_PAIRS.map(|(algorithm, bits, mean, deviation)| {
            let point = Point::KeyPair { algorithm, bits };
            let all: Vec<f64> = self.sample(point).map(|s| s.all("created").collect()).unwrap_or_default();
            let part = |q| quantile(&all, q).map_or_else(|| "–".to_owned(), digits);
            let scaled = self.created(algorithm, bits) * slow / 1e3;
            vec![
                format!("{algorithm:?}-{bits}"),
                format!("{mean} ± {deviation}"),
                ms(self.mean(point, "created")),
                [part(0.1), part(0.5), part(0.9)].join(", "),
                shown(scaled),
                shown(deviation / mean),
                shown(self.scatter(algorithm, bits)),
            ]
        });
        let title = format!(
            "Creation of key pairs: mean ± deviation; a tenth, half, nine tenths of them take no longer; scaled, without the start of OpenSSL's program: times {}; the last two: deviation over mean",
            shown(slow)
        );
        let head = [
            "pair",
            "paper, s",
            "ours here, ms",
            "10, 50, 90 %, ms",
            "ours scaled, s",
            "paper scatters",
            "ours",
        ];
        Exhibit::new("Key pair creation", Table::titled(&title, head, rows))
    }

    /// Deviation of a key pair's time over its mean, which has no start of a program in it.
    fn scatter(&self, algorithm: Algorithm, bits: u32) -> f64 {
        let mean = self.mean(Point::KeyPair { algorithm, bits }, "created").filter(|mean| mean.count > 1);
        mean.map_or(f64::NAN, |mean| mean.deviation / self.created(algorithm, bits))
    }

    /// What was measured with the paper's puzzle and more than one group: keys and groups, by their numbers.
    fn measured_groups(&self) -> Vec<(Key, u8)> {
        let of = |point: &Point| match *point {
            Point::BaseExchange { key: key @ (Key::Rsa1024V1 | Key::Rsa2048), group, k } if k == PAPER.1 => {
                Some((key, group))
            }
            _ => None,
        };
        self.results.samples.iter().filter_map(|s| of(&s.point)).collect()
    }

    fn groups(&self) -> Exhibit<Table> {
        let rows = self.measured_groups().into_iter().map(|(key, group)| {
            let stages = self.exchange(key, (group, PAPER.1));
            let name = match group {
                1 => "384-bit MODP (protects nothing)",
                2 => "768-bit MODP (protects nothing)",
                3 => "1,536-bit MODP",
                4 => "3,072-bit MODP",
                7 => "P-256",
                8 => "P-384",
                9 => "P-521",
                _ => "2,048-bit MODP",
            };
            let total = stages.initiator() + stages.responder();
            vec![
                key.words().to_owned(),
                format!("{group}: {name}"),
                shown(stages.initiator()),
                shown(stages.responder()),
                shown(total),
            ]
        });
        let title = "Processor time of a base exchange by Diffie-Hellman group, K = 10, ms";
        let head = ["key", "group", "initiator", "responder", "both"];
        Exhibit::new("Influence of the group", Table::titled(title, head, rows))
    }

    fn updates(&self) -> Exhibit<Table> {
        let rows = Key::ALL.map(|key| {
            let point = Point::Update { key };
            let scaled = self.update(key);
            let paper = if key == Key::Rsa1024V1 { UPDATE[0].to_string() } else { String::new() };
            let words = key.words().to_owned();
            vec![words, paper, ms(self.mean(point, "mover")), ms(self.mean(point, "peer")), shown(scaled)]
        });
        let head = ["key", "paper's tablet, s", "who moves, ms", "the peer, ms", "scaled, s"];
        let title = format!(
            "Processor time until a new address is verified: mean ± deviation; scaled: that of the end that moves times {}",
            shown(self.slowness())
        );
        Exhibit::new("Duration of the mobility update", Table::titled(&title, head, rows))
    }

    /// T2 by difficulty, in milliseconds.
    fn t2(&self) -> Vec<(f64, f64)> {
        let of = |point: &Point| match *point {
            Point::BaseExchange { key: Key::Rsa1024V1, group, k } if group == PAPER.0 => Some(k),
            _ => None,
        };
        let points = self.results.samples.iter().filter_map(|s| of(&s.point));
        let all = points.map(|k| (f64::from(k), self.exchange(Key::Rsa1024V1, (PAPER.0, k)).t2));
        all.filter(|(_, t2)| t2.is_finite()).collect()
    }

    fn puzzle(&self) -> Chart {
        let mut chart = Chart::new("puzzle", "T2 by the puzzle's difficulty", "K", "T2, ms");
        chart.caption = format!(
            "Processor time of the initiator from R1 to I2 on this machine, {} and group 3; means.",
            Key::Rsa1024V1.words()
        );
        chart.y_log = true;
        let (key, group) = (Key::Rsa1024V1, PAPER.0);
        let told = self.t2().into_iter();
        let told = told.filter(|(k, _)| self.is_told(Point::BaseExchange { key, group, k: *k as u8 }));
        chart.add("T2", 0, Mark::Points, told.collect());
        chart
    }

    /// Whether a claim would take what was measured at a point.
    fn is_told(&self, point: Point) -> bool {
        self.sample(point).is_some_and(|sample| sample.rounds.len() >= MIN_ROUNDS)
    }

    fn key_pair_distribution(&self) -> Chart {
        let mut chart = Chart::new("key-pairs", "Creation of key pairs", "ms", "part of all");
        chart.caption = "Distribution on this machine, the start of OpenSSL's program included.".to_owned();
        chart.x_log = true;
        for (n, (algorithm, bits, ..)) in KEY_PAIRS.into_iter().enumerate() {
            let point = Point::KeyPair { algorithm, bits };
            if let Some(sample) = self.sample(point).filter(|_| self.is_told(point)) {
                let values = sample.all("created").collect();
                chart.add(&format!("{algorithm:?}-{bits}"), n, Mark::Steps, chart::cdf(values));
            }
        }
        chart
    }

    /// Seconds of a phone's exchange with a server, with this key in this group.
    fn with_server(&self, key: Key, group: u8) -> f64 {
        let stages = self.exchange(key, (group, PAPER.1));
        (stages.initiator() * self.slowness() + stages.responder()) / 1e3
    }

    /// Seconds of a phone's UPDATE with a server.
    fn update(&self, key: Key) -> f64 {
        let point = Point::Update { key };
        (self.value(point, "mover") * self.slowness() + self.value(point, "peer")) / 1e3
    }

    fn notes(&self) -> Vec<String> {
        let (algorithm, bits, seconds) = YARDSTICK;
        vec![
            format!(
                "Scaled: the processor time of the slow end times {}, which is what the paper's phone took for an {algorithm:?}-{bits} pair ({seconds} s) over what this machine took. It is no measurement of a phone.",
                shown(self.slowness())
            ),
            "The paper's times are elapsed times of whole programs over WiFi; ours are processor time of the protocol alone, so the scaled ones are a lower bound of what a phone of that kind would take.".to_owned(),
            "The paper's configuration, its puzzles and its groups are measured in HIPv1 with RSA-1024; RSA-2048 and ECDSA are of HIPv2, as are groups that HIPv1 has not.".to_owned(),
            "The paper's data of T1 to T4, of T2 by K and of the groups were drawings that are lost: what is compared is what its text states.".to_owned(),
            "RSA pairs are OpenSSL's. OpenSSL makes no DSA pair of 512 bits any more, but its parameters, which are nearly all of the work: of every DSA pair these are its own, by FIPS 186-2 as in the paper's time, and the pair with them is made here.".to_owned(),
            "T1 is the responder's work on I1 with its R1 signed ahead, T2 the initiator's on R1 with the puzzle, T3 the responder's on I2, T4 the initiator's on R2.".to_owned(),
        ]
        .into_iter()
        .chain(self.daemon_notes())
        .collect()
    }
}

/// By how many powers of two T2 grows with each bit, from a line through the logarithms of what the puzzle adds to the easiest.
fn doubling(t2: &[(f64, f64)]) -> f64 {
    let Some(base) = t2.iter().find(|(k, _)| *k == 0.0).map(|(_, t2)| *t2) else { return f64::NAN };
    let hard = t2.iter().filter(|(k, _)| *k >= f64::from(PUZZLE_FROM));
    let points: Vec<(f64, f64)> = hard.map(|(k, t2)| (*k, (t2 - base).log2())).collect();
    if points.len() < 2 {
        return f64::NAN;
    }
    let count = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), p| (x + p.0 / count, y + p.1 / count));
    let (over, under) =
        points.iter().fold((0.0, 0.0), |(o, u), p| (o + (p.0 - x) * (p.1 - y), u + (p.0 - x).powi(2)));
    over / under
}

#[cfg(test)]
mod tests;

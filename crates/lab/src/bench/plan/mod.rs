//! What is measured: the points of a campaign, and how long they will take. Owns the defaults and the filters; must never
//! measure anything itself.

mod points;

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use dormouse_crypto::measure::Suite;

use serde::{Deserialize, Serialize};

use super::transfer;
use crate::campaign::{self, machine};
use crate::results::esp::{Direction, Encapsulation, Engine, Point, What};
use crate::results::format::{Machine, Skipped};

/// Parts of a campaign, in the order in which they run, as users write them.
const PARTS: [(What, &str); 5] = [
    (What::Crypto, "crypto"),
    (What::Path, "path"),
    (What::Stream, "streams"),
    (What::Download, "downloads"),
    (What::Tls, "tls"),
];

/// The part of a campaign with this name.
///
/// # Errors
/// If there is none, with the known ones.
pub fn part(name: &str) -> Result<What> {
    let Some((what, _)) = PARTS.into_iter().find(|p| p.1 == name) else {
        bail!("unknown part \"{name}\"; known are {}", PARTS.map(|p| p.1).join(", "));
    };
    Ok(what)
}

/// What the user asked for; empty lists stand for the defaults.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Name of the plan, of an experiment that has its own; empty: `quick`, `full`, or `chosen` where anything below is.
    pub name: &'static str,
    /// Parts.
    pub parts: Vec<What>,
    /// Names of suites.
    pub suites: Vec<String>,
    /// Of these, the ones with streams of every rate and size; the others have one stream, of 1,024 bytes at 2 Mbit/s, as in paper 001.
    pub stream_suites: Vec<String>,
    /// Packet sizes in bytes.
    pub sizes: Vec<u32>,
    /// Numbers of processors.
    pub cores: Vec<u32>,
    /// Frequency governors.
    pub governors: Vec<String>,
    /// Sizes of files in bytes.
    pub files: Vec<u64>,
    /// Rates of streams in bits per second.
    pub rates: Vec<f64>,
    /// Rounds; 0 for the default.
    pub rounds: u32,
    /// Seconds of a stream; 0 for the default.
    pub stream_seconds: f64,
    /// Seconds of a stream of at most 256 kbit/s; 0 for those of any other.
    pub slow_stream_seconds: f64,
    /// Device profile (a shipped one, or a file) to estimate energy from, instead of a meter.
    pub profile: Option<String>,
    /// The short campaign.
    pub quick: bool,
    /// Compare the machine's governors on one suite, where it has several; the full campaign does in any case.
    pub compare_governors: bool,
    /// Between two machines: all but cryptography alone runs over the link between them.
    pub between: bool,
    /// Seed of payloads, keys and order.
    pub seed: u64,
}

/// How long the measurement of a point lasts.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Times {
    /// Of [`What::Crypto`].
    pub crypto: Duration,
    /// Of [`What::Path`].
    pub path: Duration,
    /// Of [`What::Stream`].
    pub stream: Duration,
    /// The same of at most [`SLOW`], where it is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_stream: Option<Duration>,
}

/// The highest rate of a slow stream, in bits per second: the last of paper 001's lower group, whose streams are longer "for better
/// accuracy" (section 5.2).
const SLOW: f64 = 256e3;
/// The longest that a stream warms up: it needs no more than that everything has been used once.
const WARM_UP: Duration = Duration::from_secs(1);

impl Times {
    /// Setting up and taking down a tunnel.
    pub(crate) const SETUP: Duration = Duration::from_millis(120);

    /// Those of a request.
    #[must_use]
    pub(crate) fn of(request: &Request) -> Self {
        let ms = Duration::from_millis;
        let asked = |s: f64| (s > 0.0 && s.is_finite()).then(|| Duration::from_secs_f64(s.min(86_400.0)));
        let stream = asked(request.stream_seconds).unwrap_or(if request.quick { ms(400) } else { ms(1_000) });
        let (crypto, path) = if request.quick { (ms(10), ms(120)) } else { (ms(20), ms(400)) };
        Self { crypto, path, stream, slow_stream: asked(request.slow_stream_seconds) }
    }

    /// How long the stream of a point lasts, by its rate.
    #[must_use]
    pub(crate) fn stream_of(&self, sample: &Point) -> Duration {
        let slow = sample.offered.is_some_and(|rate| rate <= SLOW);
        self.slow_stream.filter(|_| slow).unwrap_or(self.stream)
    }

    /// How long a point is measured in a round, where time decides. Round 0 warms up and is shorter.
    #[must_use]
    pub(crate) fn of_round(&self, sample: &Point, round: u32) -> Duration {
        let time = match sample.what {
            What::Crypto => self.crypto,
            What::Path => self.path,
            _ => self.stream_of(sample),
        };
        if round == 0 { (time / 3).min(WARM_UP) } else { time }
    }

    /// How long one round of a point should take. Downloads are guessed at 100 MB/s.
    #[must_use]
    pub(crate) fn expected(&self, sample: &Point, round: u32) -> Duration {
        let time = self.of_round(sample, round);
        let transfer =
            || Duration::from_secs_f64(sample.file_bytes.unwrap_or(0) as f64 / 1e8).max(transfer::LEAST);
        match sample.what {
            // Opening is preceded by sealing, off the clock.
            What::Crypto if sample.direction == Direction::In => time * 2,
            What::Crypto => time,
            What::Path => time + Duration::from_millis(30),
            What::Stream => time + Duration::from_millis(120),
            What::Download | What::Tls => transfer() + Duration::from_millis(30),
        }
    }
}

/// Points, and what was left out.
pub(crate) type Plan = campaign::Plan<Point>;

/// Paper 004's governors, and the one that took their place; what it compares them on.
const GOVERNORS: [&str; 5] = ["performance", "ondemand", "conservative", "powersave", "schedutil"];
const GOVERNED: &str = "aes128-sha1";

/// The name of a suite, if there is one of this name.
///
/// # Errors
/// If there is none, with the known ones.
pub fn known_suite(name: &str) -> Result<String, <Suite as std::str::FromStr>::Err> {
    name.parse::<Suite>().map(|_| name.to_owned())
}

impl Request {
    fn wants(&self, part: What) -> bool {
        self.parts.is_empty() || self.parts.contains(&part)
    }

    /// The points of this request on `machine`. `aes_off` tells whether AES instructions can be masked.
    ///
    /// # Errors
    /// For suites, sizes or numbers of processors that do not exist here.
    pub fn plan(&self, machine: &Machine, aes_off: bool) -> Result<Plan> {
        let rounds = match self.rounds {
            0 if self.quick => 5,
            0 => 7,
            rounds => rounds,
        };
        ensure!(rounds <= 10_000, "{rounds} rounds: expected at most 10000");
        for seconds in [self.stream_seconds, self.slow_stream_seconds] {
            ensure!(
                seconds.is_finite() && seconds >= 0.0,
                "streams of {seconds} seconds: expected a time above 0"
            );
        }
        for &file in &self.files {
            let most = transfer::LONGEST;
            ensure!((1..=most).contains(&file), "a file of {file} bytes: expected 1 to {most}");
        }
        let mut plan = Plan {
            name: String::new(),
            points: Vec::new(),
            rounds,
            seed: self.seed,
            settings: serde_json::Value::Null,
            skipped: Vec::new(),
        };
        for (part, _) in PARTS.into_iter().filter(|p| self.wants(p.0)) {
            match part {
                What::Crypto => self.crypto(&mut plan, machine, aes_off)?,
                What::Path => self.path(&mut plan, machine, aes_off)?,
                What::Stream => self.streams(&mut plan)?,
                What::Download => self.downloads(&mut plan, aes_off)?,
                What::Tls => self.tls(&mut plan),
            }
        }
        for sample in
            plan.points.iter_mut().filter(|s| s.aes_instructions.is_none() && s.suite.contains("aes"))
        {
            // Where they are not hidden, what the processor has is used.
            sample.aes_instructions = machine::has_aes(machine).then_some(true);
        }
        if self.between {
            between_two(&mut plan);
        }
        if self.governors.is_empty() {
            self.governed(&mut plan, machine);
        } else {
            plan.points = self
                .governors
                .iter()
                .flat_map(|g| plan.points.iter().map(|s| Point { governor: Some(g.clone()), ..s.clone() }))
                .collect();
        }
        Ok(plan)
    }

    /// The machine's governors on one suite: whole paths and downloads. Another governor than the one that was found holds for
    /// these points alone.
    fn governed(&self, plan: &mut Plan, machine: &Machine) {
        let here: Vec<&str> =
            GOVERNORS.into_iter().filter(|g| machine.governors.iter().any(|here| here == g)).collect();
        if here.len() < 2 || self.quick && !self.compare_governors {
            return;
        }
        let compared = |s: &Point| {
            matches!(s.what, What::Path | What::Download)
                && s.engine == Engine::Dormouse
                && s.suite == GOVERNED
                && s.encapsulation == Encapsulation::Tunnel
                && s.aes_instructions != Some(false)
                && s.cores == machine.cores
        };
        let chosen: Vec<Point> = plan.points.iter().filter(|s| compared(s)).cloned().collect();
        plan.points.extend(here.into_iter().flat_map(|governor| {
            chosen.iter().map(move |s| Point { governor: Some(governor.to_owned()), ..s.clone() })
        }));
    }
}

/// What is different where the other end is another machine: each end has its own figures, so a path is measured in both
/// directions, one after the other; and what is not ours is not there.
fn between_two(plan: &mut Plan) {
    let samples = std::mem::take(&mut plan.points);
    for (subject, engine) in [
        ("the kernel's ESP", Engine::Kernel),
        ("WireGuard", Engine::Wireguard),
        ("wireguard-go", Engine::WireguardGo),
    ] {
        if samples.iter().any(|s| s.engine == engine) {
            let reason = "measured between namespaces of one machine alone";
            plan.skipped.push(Skipped::new(subject, reason));
        }
    }
    let ours = |s: &Point| matches!(s.engine, Engine::Dormouse | Engine::Plain | Engine::Rustls);
    for sample in samples.into_iter().filter(ours) {
        if sample.what == What::Path {
            plan.points.push(Point { direction: Direction::Out, ..sample.clone() });
            plan.points.push(Point { direction: Direction::In, ..sample });
        } else {
            plan.points.push(sample);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(aes: bool) -> Machine {
        let flags = if aes { vec!["aes".to_owned()] } else { Vec::new() };
        Machine { cores: 2, flags, ..Machine::default() }
    }

    #[test]
    fn filters_multiply() {
        let request = Request {
            parts: vec![What::Crypto],
            suites: vec!["aes128gcm16".into(), "none".into()],
            sizes: vec![180, 1_500],
            ..Request::default()
        };
        let plan = request.plan(&machine(true), true).unwrap();
        // Two sizes, one core and two, sealing and opening; AES with its instructions and without.
        assert_eq!(plan.points.len(), 2 * 2 * 2 * (2 + 1));
        let off = plan.points.iter().filter(|s| s.aes_instructions == Some(false));
        assert!(off.clone().count() == 8 && off.clone().all(|s| s.suite == "aes128gcm16"));
        let plan = request.plan(&machine(false), true).unwrap();
        assert!(
            plan.points.iter().all(|s| s.aes_instructions.is_none()),
            "no AES instructions to switch off"
        );
    }

    #[test]
    fn every_point_says_whether_aes_instructions_are_in_use() {
        let plan = Request { quick: true, ..Request::default() }.plan(&machine(true), true).unwrap();
        for sample in &plan.points {
            assert_eq!(sample.aes_instructions.is_some(), sample.suite.contains("aes"), "{sample:?}");
        }
        let plan = Request { quick: true, ..Request::default() }.plan(&machine(false), false).unwrap();
        assert!(plan.points.iter().all(|s| s.aes_instructions.is_none()));
    }

    #[test]
    fn points_are_all_different() {
        for quick in [true, false] {
            let plan = Request { quick, ..Request::default() }.plan(&machine(true), true).unwrap();
            let mut seen = std::collections::BTreeSet::new();
            for sample in &plan.points {
                assert!(seen.insert(serde_json::to_string(sample).unwrap()), "twice: {sample:?}");
            }
        }
    }

    #[test]
    fn what_does_not_exist_is_refused_with_what_does() {
        let refused = |request: Request| request.plan(&machine(true), false).unwrap_err().to_string();
        let error = refused(Request { suites: vec!["aes512".into()], ..Request::default() });
        assert!(error.starts_with("unknown suite \"aes512\"; known are aes128-sha1, "), "{error}");
        let error = refused(Request { sizes: vec![20], ..Request::default() });
        assert_eq!(error, "packets of 20 bytes: expected 64 to 9000");
        let error = refused(Request { cores: vec![3], ..Request::default() });
        assert_eq!(error, "3 processors: this machine has 1 to 2");
        for (file, seconds, expected) in [
            (0, 0.0, "a file of 0 bytes: expected 1 to 100000000000"),
            (u64::MAX, 0.0, "a file of 18446744073709551615 bytes: expected 1 to 100000000000"),
            (1, f64::NAN, "streams of NaN seconds: expected a time above 0"),
            (1, -1.0, "streams of -1 seconds: expected a time above 0"),
        ] {
            let request = Request { files: vec![file], stream_seconds: seconds, ..Request::default() };
            assert_eq!(refused(request), expected);
        }
        let error = part("wifi").unwrap_err().to_string();
        assert_eq!(error, "unknown part \"wifi\"; known are crypto, path, streams, downloads, tls");
    }

    #[test]
    fn between_two_machines_a_path_has_two_directions_and_nothing_of_others() {
        let request = Request { quick: true, between: true, ..Request::default() };
        let plan = request.plan(&machine(true), true).unwrap();
        let one = Request { between: false, ..request.clone() }.plan(&machine(true), true).unwrap();
        let paths = |plan: &Plan, engine: Engine, direction: Direction| {
            let of = |s: &&Point| s.what == What::Path && s.engine == engine && s.direction == direction;
            plan.points.iter().filter(of).count()
        };
        let here = paths(&one, Engine::Dormouse, Direction::Both);
        assert!(here > 0);
        assert_eq!(paths(&plan, Engine::Dormouse, Direction::Out), here);
        assert_eq!(paths(&plan, Engine::Dormouse, Direction::In), here);
        assert_eq!(paths(&plan, Engine::Dormouse, Direction::Both), 0);
        assert!(plan.points.iter().all(|s| s.engine != Engine::Kernel && s.engine != Engine::Wireguard));
        let skipped: Vec<&str> = plan.skipped.iter().map(|s| s.subject.as_str()).collect();
        assert_eq!(skipped, ["the kernel's ESP", "WireGuard", "wireguard-go"]);
    }

    /// The streams of paper 001, section 5.2: eight minutes at 56, 128 and 256 kbit/s, three at any other rate and without one.
    #[test]
    fn the_full_plan_of_paper_001_has_streams_as_long_as_the_paper_s() {
        let request = crate::paper_001::needs(false, 1);
        let times = Times::of(&request);
        let plan = request.plan(&machine(true), false).unwrap();
        let streams: Vec<&Point> = plan.points.iter().filter(|p| p.what == What::Stream).collect();
        for (rate, seconds, suites) in [
            (Some(56e3), 480, 3),
            (Some(128e3), 480, 3),
            (Some(256e3), 480, 3),
            (Some(1e6), 180, 3),
            (Some(2e6), 180, 6),
            (Some(8e6), 180, 3),
            (None, 180, 3),
        ] {
            let of = |p: &&&Point| p.offered == rate && p.packet_bytes == 1_024;
            let found: Vec<&&Point> = streams.iter().filter(of).collect();
            assert_eq!(found.len(), suites, "{rate:?}: without a VPN, by each suite");
            for point in found {
                assert_eq!(times.of_round(point, 1), Duration::from_secs(seconds), "{rate:?}");
                assert_eq!(times.of_round(point, 0), Duration::from_secs(1), "{rate:?}: it warms up");
                let whole = Duration::from_secs(seconds) + Duration::from_millis(120);
                assert_eq!(times.expected(point, 1), whole, "{rate:?}");
            }
        }
        assert!(plan.points.iter().all(|p| !p.suite.starts_with("chacha20")), "the paper has none");
        let all: Duration =
            streams.iter().map(|p| times.expected(p, 1) * plan.rounds + times.expected(p, 0)).sum();
        let stated = f64::from(crate::paper_001::EXPERIMENT.takes[1].seconds);
        assert!((0.98..1.0).contains(&(all.as_secs_f64() / stated)), "{all:?} of {stated} s");
        // The short plan's streams are all alike.
        let short = crate::paper_001::needs(true, 1);
        let (times, plan) = (Times::of(&short), short.plan(&machine(true), false).unwrap());
        let mut short = plan.points.iter().filter(|p| p.what == What::Stream);
        assert!(short.all(|p| times.stream_of(p) == Duration::from_secs(1)));
    }

    #[test]
    fn governors_multiply_the_plan() {
        let request = Request { parts: vec![What::Tls], quick: true, ..Request::default() };
        let one = request.plan(&machine(true), false).unwrap().points.len();
        let request = Request { governors: vec!["ondemand".into(), "performance".into()], ..request };
        let both = request.plan(&machine(true), false).unwrap().points;
        assert_eq!(both.len(), 2 * one);
        assert!(
            both.iter().take(one).all(|s| s.governor.as_deref() == Some("ondemand")),
            "one after the other"
        );
    }
}

//! Table 3 of paper 003, as far as it stands: how long a device is without its network when it begins, and when it moves, by Mobile IP and by
//! our own daemons with an address of their own and MOBIKE, without and with header keys at access routers. Owns the plan, the measurement and the
//! comparison. It is an experiment of its own because `paper-003` keeps every processor busy for hours.

#![expect(clippy::disallowed_methods, reason = "times real hosts by the real clock")]

mod routers;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use dormouse_report::{Table, digits};
use dormouse_testbed::mobile::{CORRESPONDENT, MobileIp, Place, Program};
use dormouse_testbed::routers::Mode;
use dormouse_testbed::{Access, Dormoused, EchoServer, GATEWAY, Prober, Roaming, SERVER};
use serde::{Deserialize, Serialize};

use crate::campaign::{self, Campaign, Subject};
use crate::experiment::{Context, Exhibit, Experiment, Report, Source, Takes};
use crate::judge::stats::{Bootstrap, levels};
use crate::judge::{Claim, Decides, Expect};
use crate::results::format::paired;
use crate::results::{self, Figures, Results};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "paper-003-handoff",
    title: "Paper 003: pauses at the beginning and in a handoff, by Mobile IP, by MOBIKE, and with header keys at access routers (Table 3)",
    source: Source::Campaign { root: true },
    takes: [Takes::estimated(360), Takes::estimated(1_000)],
    lacks: || None,
    run: of,
};

const ROUNDS: u32 = 30;
const SHORT_ROUNDS: u32 = 10;
const PLACE: &str = "section 4.6, Table 3";
/// Between two probes: the resolution of a pause.
const PROBES: Duration = Duration::from_millis(1);
const LIMIT: Duration = Duration::from_secs(20);

/// What keeps the device's address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    MobileIp,
    Mobike,
    /// Through two access routers without header keys.
    Routers,
    /// The same, with header keys from the gateway before the device comes.
    Pkd,
    /// The same, with header keys from the router before.
    Dkm,
}

impl Line {
    /// The world of access routers that it is measured in.
    const fn mode(self) -> Option<Mode> {
        match self {
            Self::MobileIp | Self::Mobike => None,
            Self::Routers => Some(Mode::Whole),
            Self::Pkd => Some(Mode::Ahead),
            Self::Dkm => Some(Mode::Migrate),
        }
    }
}

/// What is timed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Phase {
    Initialization,
    Handoff,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
struct Point {
    line: Line,
    phase: Phase,
}

const POINTS: [Point; 10] = [
    Point { line: Line::MobileIp, phase: Phase::Initialization },
    Point { line: Line::MobileIp, phase: Phase::Handoff },
    Point { line: Line::Mobike, phase: Phase::Initialization },
    Point { line: Line::Mobike, phase: Phase::Handoff },
    Point { line: Line::Routers, phase: Phase::Initialization },
    Point { line: Line::Routers, phase: Phase::Handoff },
    Point { line: Line::Pkd, phase: Phase::Initialization },
    Point { line: Line::Pkd, phase: Phase::Handoff },
    Point { line: Line::Dkm, phase: Phase::Initialization },
    Point { line: Line::Dkm, phase: Phase::Handoff },
];
/// What the paper has beside each.
const PAPER: [&str; POINTS.len()] = [
    "26",
    "25",
    "197 (Mobile IP with IPsec)",
    "54 (Mobile IP with IPsec)",
    "197 (Mobile IP with IPsec)",
    "54 (Mobile IP with IPsec)",
    "–",
    "52.7 (Mobile IP with MML-IPsec, PKD)",
    "–",
    "100 (Mobile IP with MML-IPsec, DKM)",
];

impl results::Point for Point {
    const EXPERIMENT: &'static str = EXPERIMENT.name;
    const QUANTITIES: &'static [(&'static str, &'static str)] = &[
        // From the commands that put the new link up, their own time included, until the first packet has come back.
        ("pause", "ms"),
        // As the paper has it: from the first registration request until the reply.
        ("exchange", "ms"),
        // Packets that were sent in the pause and did not arrive.
        ("lost", "count"),
        // From the same commands until the new router has header keys; 0: before.
        ("keys", "ms"),
    ];

    fn label(&self) -> String {
        let line = match self.line {
            Line::MobileIp => "Mobile IP",
            Line::Mobike => "own address and MOBIKE",
            Line::Routers => "MOBIKE through two access routers",
            Line::Pkd => "the same, MML-IPsec with PKD",
            Line::Dkm => "the same, MML-IPsec with DKM",
        };
        let phase = match self.phase {
            Phase::Initialization => "initialization",
            Phase::Handoff => "handoff",
        };
        format!("{line}, {phase}")
    }
}

fn of(context: &Context) -> Result<Report> {
    let results = match &context.file {
        Some(path) => Results::read(path).with_context(|| path.display().to_string())?,
        None => measured(context)?,
    };
    Ok(report(&results))
}

fn measured(context: &Context) -> Result<Results<Point>> {
    let plan = || campaign::Plan {
        name: context.plan().to_owned(),
        points: POINTS.to_vec(),
        rounds: if context.short { SHORT_ROUNDS } else { ROUNDS },
        seed: context.seed,
        settings: serde_json::Value::Null,
        skipped: Vec::new(),
    };
    let campaign = match &context.resume {
        Some(path) => Campaign::resume(path)?,
        None => Campaign::new(plan(), context.out.clone())?,
    };
    campaign.finish(&mut Stage::default(), context)
}

/// All worlds, each kept from one measurement to the next.
#[derive(Default)]
struct Stage {
    mobile_ip: Option<(MobileIp, EchoServer, Prober)>,
    mobike: Option<Mobike>,
    routers: BTreeMap<Line, routers::World>,
}

struct Mobike {
    device: Dormoused,
    _gateway: Dormoused,
    echo: EchoServer,
    prober: Prober,
    world: Roaming,
    /// In which network it is, and whether it has its session.
    at: Access,
    up: bool,
}

impl Subject for Stage {
    type Point = Point;
    type Stage = ();
    type Group = Line;

    fn stage(_: &Point) {}

    fn group(point: &Point) -> Line {
        point.line
    }

    fn prepare(&mut self, point: &Point) -> Result<()> {
        match point.line {
            Line::MobileIp if self.mobile_ip.is_none() => {
                let world = MobileIp::start()?;
                let server = SocketAddr::new(CORRESPONDENT.into(), 7);
                let echo = EchoServer::start(&world.correspondent, server)?;
                let prober = Prober::new(&world.device, server)?;
                self.mobile_ip = Some((world, echo, prober));
            }
            Line::Mobike if self.mobike.is_none() => self.mobike = Some(Mobike::build()?),
            line => {
                if let Some(mode) = line.mode().filter(|_| !self.routers.contains_key(&line)) {
                    self.routers.insert(line, routers::World::build(mode)?);
                }
            }
        }
        Ok(())
    }

    fn measure(&mut self, point: &Point, round: u32) -> Result<Figures> {
        if let Some(world) = self.routers.get_mut(&point.line) {
            return world.measure(point.phase);
        }
        match (point.line, &mut self.mobile_ip, &mut self.mobike) {
            (Line::MobileIp, Some((world, echo, prober)), _) => {
                mobile_ip(world, echo, prober, point.phase, round)
            }
            (Line::Mobike, _, Some(mobike)) => mobike.measure(point.phase),
            _ => bail!("nothing was prepared"),
        }
    }

    fn clear(&mut self) -> Result<()> {
        // Namespaces and programs go with their owners.
        *self = Self::default();
        Ok(())
    }
}

/// The device enters a foreign network, from nowhere or from the other one.
fn mobile_ip(
    world: &MobileIp,
    echo: &EchoServer,
    prober: &mut Prober,
    phase: Phase,
    round: u32,
) -> Result<Figures> {
    let (from, to) = if round.is_multiple_of(2) { (0, 1) } else { (1, 0) };
    match phase {
        Phase::Initialization => {
            world.go(Some(Place::Home))?;
            world.arrives(Place::Home)?;
            world.go(None)?;
        }
        Phase::Handoff => {
            world.go(Some(Place::Foreign(from)))?;
            world.arrives(Place::Foreign(from))?;
        }
    }
    let begin = Instant::now();
    world.go(Some(Place::Foreign(to)))?;
    let burst = prober.burst(echo, begin, PROBES, 20, LIMIT)?;
    world.arrives(Place::Foreign(to))?;
    let state = world.state(Program::Device)?;
    let last = state["registrations"].as_array().and_then(|list| list.last()).context("no registration")?;
    ensure!(last["care_of"] == Place::Foreign(to).care_of().to_string(), "registered elsewhere: {last}");
    let exchange = last["nanoseconds"].as_f64().context("no time")? / 1e6;
    let pause = burst.first_echo.context("nothing came back")?.as_secs_f64() * 1e3;
    Ok(Figures::default().with("pause", pause).with("exchange", exchange).with("lost", burst.lost as f64))
}

impl Mobike {
    /// The device in no network, both daemons running.
    fn build() -> Result<Self> {
        let world = Roaming::new(120)?;
        let end = |role: &str, own: &str, peer: &str| {
            let secret = "secret = \"table 3, which everyone may read\"";
            let gateway = if role == "client" { format!("gateway = \"{GATEWAY}\"") } else { String::new() };
            format!(
                "[connection.t3]\nrole = \"{role}\"\n{gateway}\n[connection.t3.local]\nid = \"{own}\"\n{secret}\n\
                 [connection.t3.remote]\nid = \"{peer}\"\n{secret}\n"
            )
        };
        let gateway = end("gateway", "gateway.test", "*.test")
            + "[connection.t3.child]\nlocal = [\"10.99.0.0/24\"]\nremote = [\"dynamic\"]\n\
               [connection.t3.pool]\naddresses = [\"10.55.0.0/24\"]\n";
        let device = end("client", "device.test", "gateway.test")
            + "[connection.t3.child]\nremote = [\"10.99.0.0/24\"]\n";
        let gateway = Dormoused::start(&world.gateway, "dns = \"off\"", &gateway)?;
        let device = Dormoused::start(&world.device, "dns = \"off\"", &device)?;
        let server = SocketAddr::new(SERVER.parse()?, 7);
        let echo = EchoServer::start(&world.server, server)?;
        let prober = Prober::new(&world.device, server)?;
        Ok(Self { device, _gateway: gateway, echo, prober, world, at: Access::B, up: false })
    }

    fn measure(&mut self, phase: Phase) -> Result<Figures> {
        let to = if self.at == Access::A { Access::B } else { Access::A };
        if phase == Phase::Initialization {
            // No ticket is left: the paper's client begins with nothing.
            if self.up {
                self.device.ok(&["down", "t3"])?;
            }
            self.world.detach(self.at)?;
            let begin = Instant::now();
            self.world.attach(to)?;
            self.device.ok(&["up", "t3"])?;
            let burst = self.prober.burst(&self.echo, begin, PROBES, 20, LIMIT)?;
            (self.at, self.up) = (to, true);
            let pause = burst.first_echo.context("nothing came back")?.as_secs_f64() * 1e3;
            return Ok(Figures::default().with("pause", pause));
        }
        if !self.up {
            self.world.attach(self.at)?;
            self.device.ok(&["up", "t3"])?;
            self.up = true;
        }
        self.world.detach(self.at)?;
        let begin = Instant::now();
        self.world.attach(to)?;
        let burst = self.prober.burst(&self.echo, begin, PROBES, 20, LIMIT)?;
        self.at = to;
        let pause = burst.first_echo.context("nothing came back")?.as_secs_f64() * 1e3;
        Ok(Figures::default().with("pause", pause).with("lost", burst.lost as f64))
    }
}

/// The figures of a campaign, in words and as claims.
struct Said<'a> {
    results: &'a Results<Point>,
    bootstrap: Bootstrap,
}

impl Said<'_> {
    fn values(&self, point: Point, name: &str) -> Vec<f64> {
        self.results.at(&point).map(|s| s.all(name).collect()).unwrap_or_default()
    }

    fn median(&self, point: Point, name: &str) -> String {
        self.bootstrap.median(&self.values(point, name)).map_or_else(
            || "–".to_owned(),
            |e| format!("{} [{}, {}]", digits(e.median), digits(e.low), digits(e.high)),
        )
    }

    /// How the quantity at the first point is to that at the second, round by round.
    fn claim(&self, words: &str, paper: &str, [a, b]: [Point; 2], name: &str, expect: Expect) -> Claim {
        let by_round = |point: &Point| -> BTreeMap<u32, f64> {
            let rounds = self.results.at(point).into_iter().flat_map(|s| &s.rounds);
            rounds.filter_map(|r| Some((r.round, r.figures.one(name)?))).collect()
        };
        let compared = self.bootstrap.paired(&paired(&by_round(&a), &by_round(&b)));
        let ours = compared.as_ref().map_or_else(
            || "not measured".to_owned(),
            |c| {
                let [median, low, high] = [c.ratio.median, c.ratio.low, c.ratio.high].map(digits);
                format!("{median} [{low}, {high}] times")
            },
        );
        Claim::new(PLACE, words, paper, ours).decided(vec![Decides::ratio(expect, compared.as_ref())])
    }
}

fn claims(said: &Said<'_>) -> Vec<Claim> {
    let [init, handoff, mobike_init, mobike, _, plain, _, pkd, _, dkm] = POINTS;
    let same = Expect::within(1.0, 1.25);
    vec![
        said.claim(
            "pure Mobile IP: a handoff's registration takes about as long as the first one",
            "25 ms and 26 ms",
            [handoff, init],
            "exchange",
            same,
        ),
        said.claim(
            "protected: packets flow sooner after a handoff than after the beginning",
            "54 ms and 197 ms (Mobile IP with IPsec)",
            [mobike, mobike_init],
            "pause",
            Expect::LESS,
        ),
        said.claim(
            "PKD: data wait no longer than without header keys",
            "52.7 ms and 54 ms",
            [pkd, plain],
            "pause",
            same,
        ),
        said.claim(
            "DKM: data wait no longer than without header keys",
            "100 ms and 54 ms",
            [dkm, plain],
            "pause",
            same,
        ),
    ]
}

fn report(results: &Results<Point>) -> Report {
    let said = Said { results, bootstrap: Bootstrap::new(results.seed) };
    let mut table = Table::new([
        "",
        "request to reply, ms",
        "until packets flow, ms",
        "until the new router has keys, ms",
        "packets lost",
        "paper, ms",
    ]);
    table.title = "Initialization and handoff, medians over rounds".to_owned();
    for (point, paper) in POINTS.into_iter().zip(PAPER) {
        table.row([
            results::Point::label(&point),
            said.median(point, "exchange"),
            said.median(point, "pause"),
            said.median(point, "keys"),
            said.median(point, "lost"),
            paper.to_owned(),
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
        figures: Vec::new(),
        notes: notes(),
        provenance: results.into(),
    }
}

fn notes() -> Vec<String> {
    [
        "The paper's machines are Pentium 4 with 2.4 GHz and an 802.11b radio, ours are namespaces: its figures are mostly processing and air, so \
         that ours are below them would say little. They stand in the table; claims are about how times of one column relate.",
        "The paper times from the registration request to the end of what must be set up. \"Until packets flow\" also holds what its time leaves out: \
         that the device notices its new network and finds the agent there, or its daemon the route.",
        "Linux tells of a link that comes up at most once a second (its link watch), and sends nothing over it before: until packets flow by Mobile IP \
         is mostly that wait, up to a second. The daemons' interfaces come up after a longer time without a change, and do not wait.",
        "The paper's columns with MML-IPsec (PKD 52.7 ms, DKM 100 ms) are of Mobile IP; ours are of a device with an address of its own in each \
         place, whose gateway hears of the move by MOBIKE. Data never wait for header keys: a router without them forwards unread.",
        "The second network of \"own address and MOBIKE\" is behind a NAT: every other handoff changes to UDP encapsulation and back.",
    ]
    .map(str::to_owned)
    .into()
}

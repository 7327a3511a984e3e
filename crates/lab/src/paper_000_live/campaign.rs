//! Bursts of clients that come back at once, as the subject of a campaign: each round has every way back into the session and, in
//! mixed order, each size of the crowd. Owns what a burst needs before it may begin; must never conclude anything.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, Result};
use dormouse_testbed::crowd::{Crowd, Done, Pki, Proof, Task};
use serde::{Deserialize, Serialize};

use super::stage::Stage;
use crate::campaign::{self, Subject, cpu};
use crate::results::{self, Figures};

/// Rounds.
const ROUNDS: u32 = 5;
/// The largest crowd.
pub(super) const MOST: usize = 1_000;
/// The paper's largest.
pub(super) const PAPER_MOST: usize = 20;
/// Sizes of the crowd: those of the paper, up to 20, and beyond.
const SIZES: [usize; 11] = [1, 2, 5, 10, 15, 20, 50, 100, 200, 500, MOST];
/// The ways back, in the order in which they are done.
pub(super) const WAYS: [Task; 5] = [Task::Full, Task::Strict, Task::Quick, Task::Update, Task::Held];
/// After so long, what the gateway keeps of tickets is on its disk.
const SETTLED: Duration = Duration::from_millis(500);
/// The sleep that devices announce before their sessions are used again.
const SLEEP: Duration = Duration::from_secs(600);

/// So many clients that come back in one way.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Point {
    pub(super) way: Task,
    pub(super) clients: usize,
}

/// The name of a way.
pub(super) const fn name(way: Task) -> &'static str {
    match way {
        Task::Full => "full exchange",
        Task::Strict => "ticket, RFC 5723",
        Task::Quick => "ticket, one round trip",
        Task::Update => "MOBIKE",
        Task::Held => "held SA",
    }
}

impl results::Point for Point {
    const EXPERIMENT: &'static str = super::EXPERIMENT.name;
    /// The first two have a number for each client of each burst, one burst after the other; those up to `pings`, one for each burst.
    const QUANTITIES: &'static [(&'static str, &'static str)] = &[
        // Until the exchange is over; until the first answer comes through the tunnel.
        ("ready", "ms"),
        ("answered", "ms"),
        ("round_trips", "count"),
        ("gateway_cpu", "ms"),
        ("clients_cpu", "ms"),
        // IKE messages and pings that clients sent again.
        ("repeated", "count"),
        ("pings", "count"),
        // What the gateway tells its devices after the bursts: the time among as many clients, alone, and with each further one.
        ("told_among", "ms"),
        ("told_alone", "ms"),
        ("told_each", "ms"),
        // IKE messages that the gateway sent again; datagrams that did not fit into its socket, and into the clients'.
        ("gateway_repeated", "count"),
        ("gateway_overruns", "count"),
        ("clients_overruns", "count"),
    ];

    fn label(&self) -> String {
        format!("{}, {} clients", name(self.way), self.clients)
    }
}

/// Crowds of up to `most` clients, which must be from 1 to [`MOST`].
pub(super) fn plan(name: &str, most: usize, seed: u64) -> campaign::Plan<Point> {
    let sizes = SIZES.into_iter().filter(|n| *n < most).chain([most]);
    let points = sizes.flat_map(|clients| WAYS.map(|way| Point { way, clients })).collect();
    campaign::Plan {
        name: name.to_owned(),
        points,
        rounds: ROUNDS,
        seed,
        settings: serde_json::Value::Null,
        skipped: Vec::new(),
    }
}

/// Bursts of one round: the paper's 25 in all rounds together. One warms up.
const fn bursts(round: u32) -> usize {
    if round == 0 { 1 } else { 5 }
}

/// Gateway and clients, and what they have of each other.
pub(super) struct Bursts {
    pki: Pki,
    largest: usize,
    interrupted: Arc<AtomicBool>,
    stage: Option<(Stage, Crowd)>,
    /// What the gateway was prepared for.
    standing: Option<Task>,
    /// Clients, from the first, that have a session.
    sessions: usize,
    /// This gateway process has answered no client yet: its first burst pays for what all others find done.
    cold: bool,
    /// Messages that this gateway process sent again, and datagrams that did not fit into sockets, so far.
    counted: [u64; 3],
}

impl Bursts {
    pub(super) fn new(largest: usize, interrupted: Arc<AtomicBool>) -> Result<Self> {
        let pki = Pki::new(Proof::Rsa2048)?;
        Ok(Self {
            pki,
            largest,
            interrupted,
            stage: None,
            standing: None,
            sessions: 0,
            cold: true,
            counted: [0; 3],
        })
    }

    fn stage(&mut self) -> Result<&mut (Stage, Crowd)> {
        if self.stage.is_none() {
            let stage = Stage::build(&self.pki).context("setting the stage")?;
            let crowd = stage.crowd(&self.pki, self.largest, &self.interrupted)?;
            self.stage = Some((stage, crowd));
        }
        self.stage.as_mut().context("no stage")
    }

    /// The gateway is killed and started again; see [`Stage::restart`].
    fn restart(&mut self, tickets_too: bool) -> Result<()> {
        self.stage()?.0.restart(tickets_too)?;
        (self.sessions, self.cold, self.counted[0]) = (0, true, 0);
        Ok(())
    }

    /// A burst with what it needs before.
    fn once(&mut self, point: &Point, figures: &mut [Vec<f64>; 7]) -> Result<()> {
        match point.way {
            Task::Full => {
                let largest = self.largest;
                self.stage()?.1.close(largest)?;
                self.sessions = 0;
            }
            Task::Held => self.stage()?.1.sleep(point.clients, SLEEP)?,
            _ => {}
        }
        self.burst(point, figures)?;
        self.sessions = self.sessions.max(point.clients);
        Ok(())
    }

    /// What is counted since each process began: see `counted`.
    fn counters(&mut self) -> Result<[u64; 3]> {
        let (stage, _) = self.stage()?;
        let [gateway, others] = stage.overruns()?;
        Ok([stage.counter("ike.retransmissions")?, gateway, others])
    }

    fn burst(&mut self, point: &Point, figures: &mut [Vec<f64>; 7]) -> Result<()> {
        let (stage, crowd) = self.stage()?;
        let before = (stage.gateway_cpu(), cpu::thread(), crowd.losses());
        let done = crowd.run(point.clients, point.way)?;
        let after = (stage.gateway_cpu(), cpu::thread(), crowd.losses());
        let losses = after.2.since(before.2);
        let times = |of: fn(&Done) -> Duration| done.iter().map(of).map(millis).collect();
        let burst: [Vec<f64>; 7] = [
            times(|d| d.ready),
            times(|d| d.answered),
            vec![done.iter().map(|d| d.round_trips).sum::<u64>() as f64],
            vec![millis(after.0.saturating_sub(before.0))],
            vec![millis(after.1.saturating_sub(before.1))],
            vec![losses.repeated as f64],
            vec![losses.pings as f64],
        ];
        figures.iter_mut().zip(burst).for_each(|(all, new)| all.extend(new));
        Ok(())
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl Subject for Bursts {
    type Point = Point;
    /// Each way leaves behind what the next one needs.
    type Stage = Task;
    type Group = ();

    fn stage(point: &Point) -> Task {
        point.way
    }

    fn group(_: &Point) {}

    fn begin_round(&mut self, _: u32) {
        self.standing = None;
    }

    fn prepare(&mut self, point: &Point) -> Result<()> {
        if self.standing == Some(point.way) {
            return Ok(());
        }
        if self.standing.is_none() {
            self.stage()?.1.forget()?;
            self.restart(true)?;
        }
        self.standing = None;
        let largest = self.largest;
        if point.way != Task::Full && self.sessions < largest {
            let crowd = &mut self.stage()?.1;
            crowd.close(largest)?;
            crowd.run(largest, Task::Full).context("sessions for all")?;
            (self.sessions, self.cold) = (largest, false);
        }
        if matches!(point.way, Task::Strict | Task::Quick) {
            // The gateway has lost every session, and not its ticket keys: what tickets are for. Nor what it keeps of the tickets, which is
            // on its disk a moment after they were given.
            std::thread::sleep(SETTLED);
            self.restart(false)?;
        }
        if self.cold {
            self.once(point, &mut [const { Vec::new() }; 7]).context("the first burst")?;
            (self.cold, self.counted) = (false, self.counters()?);
        }
        self.standing = Some(point.way);
        Ok(())
    }

    fn measure(&mut self, point: &Point, round: u32) -> Result<Figures> {
        let Point { way, clients } = *point;
        let mut all = [const { Vec::new() }; 7];
        for _ in 0..bursts(round) {
            self.once(point, &mut all)?;
        }
        let resumed = match way {
            Task::Full => Some(false),
            Task::Strict | Task::Quick => Some(true),
            Task::Update | Task::Held => None,
        };
        let (sessions, before) = (self.sessions, self.counted);
        let (stage, crowd) = self.stage()?;
        stage.check(sessions, resumed, crowd.addresses(clients))?;
        let told = resumed.map(|_| crowd.ask_load()).transpose()?;
        let told = |of: fn(&dormouse_ike::LoadReport, f64) -> Duration| {
            told.as_ref().map(|report| millis(of(report, clients as f64)))
        };
        let told = [
            ("told_among", told(|report, clients| report.latency_at(clients))),
            ("told_alone", told(|report, _| report.alone())),
            ("told_each", told(|report, _| report.per_client())),
        ];
        let counted = self.counters()?;
        let since = |n: usize| counted[n].saturating_sub(before[n]) as f64;
        let figures =
            told.into_iter().fold(Figures::default(), |figures, (name, told)| figures.with(name, told));
        let figures = figures
            .with("gateway_repeated", since(0))
            .with("gateway_overruns", since(1))
            .with("clients_overruns", since(2));
        self.counted = counted;
        let names = <Point as results::Point>::QUANTITIES.iter().map(|(name, _)| *name);
        Ok(names.zip(all).fold(figures, |figures, (name, values)| figures.with_all(name, values)))
    }

    fn clear(&mut self) -> Result<()> {
        (self.stage, self.standing, self.sessions, self.cold) = (None, None, 0, true);
        self.counted = [0; 3];
        Ok(())
    }
}

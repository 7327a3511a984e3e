//! `dormouse demo`: a device's day in a minute, and a working hour. Two real daemons in network namespaces, real traffic through the
//! tunnel, and a point of a [campaign](crate::campaign) for each thing that happens to the device.
//!
//! Owns the story and its measurements. Every figure was measured in this run; one that could not be measured is absent, never made
//! up. It must not touch the machine outside its own namespaces and scratch directory, and removes both, also when interrupted.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

mod config;
mod hip;
mod hour;
mod measure;
mod report;

pub use config::Options;
pub use hour::page::document;
pub use report::{closing, heading};

use anyhow::{Context, Error, Result, bail};
use config::{GATEWAY_GIVES_UP, GATEWAY_KEEPS, NAT_TIMEOUT};
use dormouse_testbed::{Access, Dormoused, EchoServer, LongLived, Prober, Roaming, SERVER};
use measure::Meter;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::campaign::{Campaign, Ended, Plan, Subject};
use crate::results::{self, Figures, Point as _, Results};

const ECHO_PORT: u16 = 7777;

/// Something that happens to the device, or a policy that lives through the working hour.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Point {
    /// What happens.
    pub event: String,
    /// The policy, in the working hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

impl results::Point for Point {
    const EXPERIMENT: &'static str = "demo";
    const QUANTITIES: &'static [(&'static str, &'static str)] = &[
        // By which rung the session came back: `rung.ticket`.
        ("rung", "count"),
        ("ike_messages", "count"),
        ("ike_round_trips", "count"),
        // Of HIP.
        ("exchanges", "count"),
        // Bytes that the device's radio sent and received, link headers included.
        ("air", "B"),
        // CPU time of the two daemons; of the new process, if the gateway was restarted.
        ("device_cpu", "ms"),
        ("gateway_cpu", "ms"),
        // From the wake to the arrival of the first inner packet at the server, and to the first echo.
        ("first_packet", "ms"),
        ("first_echo", "ms"),
        // Inner packets sent since the wake, 5 ms apart, and those of them that never arrived.
        ("probes", "count"),
        ("lost", "count"),
        ("downloaded", "B"),
        ("download", "s"),
        // Counters that the long-lived TCP connection had echoed, in order.
        ("tcp_echoes", "count"),
        // Bytes of the TCP transfer that arrived, each the one that was sent, and those that did not.
        ("tcp_bytes", "B"),
        ("tcp_lost", "B"),
        // The hour. Joules and times of day are those of the uncompressed one.
        ("joules", "J"),
        ("always_on_joules", "J"),
        ("radio_on", "1"),
        ("sleeps", "count"),
        ("wakes", "count"),
        ("packets", "count"),
        ("delayed", "count"),
        ("proxied", "count"),
        ("dropped", "count"),
        // Of the device's own packets, from sending to arrival.
        ("latency", "ms"),
        // When the radio went off and on again; when packets were sent, by the device and to it, and which of them were lost.
        ("off_since", "s"),
        ("off_until", "s"),
        ("sent_out", "s"),
        ("sent_in", "s"),
        ("lost_out", "s"),
        ("lost_in", "s"),
    ];

    fn label(&self) -> String {
        let policy = self.policy.as_ref().map(|p| format!(" under {p}"));
        self.event.clone() + &policy.unwrap_or_default()
    }
}

/// What is done in a step of the story.
#[derive(Clone, Copy)]
enum Step {
    Connect,
    Download,
    /// For so long, from one network to another.
    Sleep(Duration, Access, Access),
    Roam(Access, Access),
    Crash,
    Forget,
    /// The long-lived TCP connection is still there.
    Survive,
}

const STORY: [(&str, Step); 10] = {
    use Access::{A, B};
    const fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }
    [
        ("connects for the first time", Step::Connect),
        ("downloads a file over HTTP, and pings", Step::Download),
        ("sleeps 5 s", Step::Sleep(seconds(5), A, A)),
        ("moves to network B, behind a NAT", Step::Roam(A, B)),
        ("sleeps 5 s behind the NAT", Step::Sleep(seconds(5), B, B)),
        ("sleeps 3 s, wakes in network A", Step::Sleep(seconds(3), B, A)),
        (
            "sleeps for longer than the gateway keeps its state",
            Step::Sleep(seconds(2 * GATEWAY_GIVES_UP.as_secs() + 3), A, A),
        ),
        ("the gateway is killed and restarted", Step::Crash),
        ("the gateway is killed and loses its state directory", Step::Forget),
        ("one TCP connection lives through all of it", Step::Survive),
    ]
};

/// Whether this process may make network namespaces: it runs as root.
#[must_use]
pub fn may_run() -> bool {
    dormouse_testbed::Need::Root.missing().is_none()
}

/// Tells the story; `on_row` gets a line for each thing as it happens.
///
/// # Errors
/// If the world cannot be built, a daemon fails, the long-lived TCP connection breaks, or the user interrupts.
pub fn run(options: &Options, on_row: impl FnMut(&str)) -> Result<Results<Point>> {
    if options.hip {
        return hip::run(options, on_row);
    }
    let points = STORY.map(|(event, _)| Point { event: event.to_owned(), policy: None });
    let policies = hour::POLICIES.into_iter().filter(|_| !options.short);
    let hours = policies.map(|p| Point { event: hour::EVENT.to_owned(), policy: Some(p.to_owned()) });
    let plan = Plan {
        name: if options.short { "quick" } else { "full" }.to_owned(),
        points: points.into_iter().chain(hours).collect(),
        rounds: 1,
        seed: options.seed,
        settings: serde_json::Value::Null,
        skipped: Vec::new(),
    };
    let mut campaign = Campaign::new(plan, None)?;
    let mut demo = Demo { options, on_row, stage: None, hour: None };
    match campaign.run(&mut demo, &options.interrupted, &mut |_| ())? {
        Ended::Finished => {}
        Ended::Interrupted => bail!("interrupted"),
    }
    if let Some(hour) = &demo.hour {
        campaign.results.settings = serde_json::to_value(&hour.frame)?;
    }
    Ok(campaign.results)
}

struct Demo<'a, F> {
    options: &'a Options,
    on_row: F,
    /// Before the connection: it ends first.
    stage: Option<(Option<LongLived>, Stage)>,
    hour: Option<hour::Hour>,
}

impl<F: FnMut(&str)> Subject for Demo<'_, F> {
    type Point = Point;
    /// A story has an order.
    type Stage = usize;
    type Group = String;

    const WARMS_UP: bool = false;

    fn stage(point: &Point) -> usize {
        STORY.iter().position(|(event, _)| *event == point.event).unwrap_or(STORY.len())
    }

    fn group(point: &Point) -> String {
        point.label()
    }

    fn prepare(&mut self, point: &Point) -> Result<()> {
        if point.policy.is_some() {
            return self.clear();
        }
        match &mut self.stage {
            None => {
                let stage = Stage::build(self.options).context("setting the stage")?;
                self.stage = Some((None, stage));
            }
            Some((tcp @ None, stage)) => *tcp = Some(LongLived::connect(&stage.world.device, stage.server)?),
            Some(_) => {}
        }
        Ok(())
    }

    fn measure(&mut self, point: &Point, _: u32) -> Result<Figures> {
        if let Some(policy) = &point.policy {
            let hour = match self.hour.take() {
                Some(hour) => hour,
                None => hour::live(self.options)?,
            };
            return self.hour.insert(hour).policy(policy);
        }
        let (_, step) = STORY.into_iter().find(|s| s.0 == point.event).context("no step of the story")?;
        let (tcp, stage) = self.stage.as_mut().context("no stage")?;
        let figures = match step {
            Step::Connect => stage.connect(),
            Step::Download => stage.traffic(),
            Step::Sleep(time, from, to) => stage.sleep(time, from, to),
            Step::Roam(from, to) => stage.roam(from, to),
            Step::Crash => stage.crash_gateway(),
            Step::Forget => stage.forgetful_gateway(),
            Step::Survive => {
                let tcp = tcp.take().context("no long-lived TCP connection")?;
                let lives = tcp.lives(Duration::from_secs(20)).and_then(|()| tcp.finish());
                let echoed = lives.context("the long-lived TCP connection did not survive")?;
                return Ok(Figures::default().with("tcp_echoes", echoed as f64));
            }
        };
        let figures = figures.with_context(|| point.event.clone())?;
        (self.on_row)(&report::row(&point.event, &figures));
        Ok(figures)
    }

    fn clear(&mut self) -> Result<()> {
        self.stage = None;
        Ok(())
    }

    /// A story without its middle is none.
    fn is_over(_: &Error) -> bool {
        true
    }
}

struct Stage {
    interrupted: Arc<AtomicBool>,
    device: Dormoused,
    gateway: Dormoused,
    echo: EchoServer,
    prober: Prober,
    server: SocketAddr,
    // Last: namespaces are removed after the processes in them.
    world: Roaming,
}

impl Stage {
    fn build(options: &Options) -> Result<Self> {
        let mut world = Roaming::new(NAT_TIMEOUT)?;
        if options.keep {
            world.bed.keep_files();
        }
        let server = SocketAddr::new(SERVER.parse()?, ECHO_PORT);
        let echo = EchoServer::start(&world.server, server)?;
        let (gateway_toml, device_toml) = config::write(&world)?;
        world.attach(Access::A)?;
        let keeps = format!("sleeper_longest = {}", GATEWAY_KEEPS.as_secs());
        let gateway = Dormoused::start(&world.gateway, &keeps, &gateway_toml)?;
        let device = Dormoused::start(&world.device, "", &device_toml)?;
        let prober = Prober::new(&world.device, server)?;
        Ok(Self { interrupted: options.interrupted.clone(), device, gateway, echo, prober, server, world })
    }

    fn connect(&mut self) -> Result<Figures> {
        let meter = Meter::start(self)?;
        let start = Instant::now();
        self.device.ok(&["up", config::CONNECTION])?;
        self.finish(meter, start)
    }

    fn traffic(&mut self) -> Result<Figures> {
        let meter = Meter::start(self)?;
        let start = Instant::now();
        let bytes = config::download(&self.world)?;
        let took = start.elapsed();
        self.world
            .device
            .sh(&format!("ping -q -c 5 -i 0.2 -W 2 {SERVER}"))
            .context("ping through the tunnel")?;
        let figures = self.finish(meter, Instant::now())?;
        Ok(figures.with("downloaded", bytes as f64).with("download", took.as_secs_f64()))
    }

    fn roam(&mut self, from: Access, to: Access) -> Result<Figures> {
        let meter = Meter::start(self)?;
        self.world.detach(from)?;
        self.world.attach(to)?;
        self.finish(meter, Instant::now())
    }

    fn sleep(&mut self, time: Duration, from: Access, to: Access) -> Result<Figures> {
        self.device.ok(&["suspend"])?;
        self.world.detach(from)?;
        self.pause(time)?;
        let meter = Meter::start(self)?;
        self.world.attach(to)?;
        let start = Instant::now();
        self.device.ok(&["resume"])?;
        self.finish(meter, start)
    }

    /// The gateway is killed with SIGKILL and restarted: it has lost every SA, but not its ticket keys.
    fn crash_gateway(&mut self) -> Result<Figures> {
        // Before the crash: other traffic than the probes may find out, and bring the session back, before they begin.
        let mut meter = Meter::start(self)?;
        self.gateway.process().kill();
        self.pause(Duration::from_secs(1))?;
        self.gateway.restart()?;
        meter.gateway_is_new(self);
        self.finish(meter, Instant::now())
    }

    /// The same, and the ticket keys are lost as well: the last rung.
    fn forgetful_gateway(&mut self) -> Result<Figures> {
        let mut meter = Meter::start(self)?;
        self.gateway.process().kill();
        let state = self.world.gateway.dir().join("state");
        std::fs::remove_dir_all(&state).with_context(|| format!("removing {}", state.display()))?;
        self.gateway.restart()?;
        meter.gateway_is_new(self);
        self.finish(meter, Instant::now())
    }

    /// Probes until packets pass again, lets the exchanges that go on beside the data end, and reads all meters.
    fn finish(&mut self, meter: Meter, start: Instant) -> Result<Figures> {
        let limit = Duration::from_secs(30);
        let burst = self.prober.burst(&self.echo, start, Duration::from_millis(5), 100, limit)?;
        if burst.first_echo.is_none() {
            bail!("no packet passed within {limit:?}\n{}", self.evidence());
        }
        self.device.ok(&["wait", config::CONNECTION, "--timeout", "20"])?;
        meter.finish(self, burst)
    }

    /// What both ends can say about a tunnel that carries nothing.
    fn evidence(&self) -> String {
        let end = |host: &dormouse_testbed::Host, daemon: &Dormoused| {
            let look = "ip -s link; ip addr; ip route; ip neigh; ip route get 10.99.0.2; nstat -az | grep -v ' 0 '; cat /proc/net/raw";
            let kernel = host.sh(look).unwrap_or_else(|e| format!("{e:#}"));
            let status = daemon.cli(&["status", "--json"]).map_or_else(|e| format!("{e:#}"), |a| a.text);
            format!("== {}\n{}\n{status}\n{kernel}\n", host.name(), daemon.log())
        };
        end(&self.world.device, &self.device) + &end(&self.world.gateway, &self.gateway)
    }

    fn pause(&self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            if self.interrupted.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

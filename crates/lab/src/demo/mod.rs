//! `dormouse demo`: a device's day in a minute. Two real daemons in network namespaces, real traffic through the tunnel, and a
//! row for each thing that happens to the device.
//!
//! Owns the story and its measurements. Every figure in a row was measured in this run; a figure that could not be measured is
//! absent, never made up. It must not touch the machine outside its own namespaces and scratch directory, and removes both,
//! also when interrupted.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

mod config;
pub mod hour;
mod measure;
mod report;

pub use config::Options;
pub use report::{HEADING, Report, Row};

use anyhow::{Context, Result, bail};
use config::{GATEWAY_GIVES_UP, GATEWAY_KEEPS, NAT_TIMEOUT};
use dormouse_testbed::{Access, Dormoused, EchoServer, LongLived, Prober, Roaming, SERVER};
use measure::Meter;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const ECHO_PORT: u16 = 7777;

/// Whether this process may make network namespaces: it runs as root.
#[must_use]
pub fn may_run() -> bool {
    dormouse_testbed::Need::Root.missing().is_none()
}

/// Tells the story; `on_row` gets each row as it happens.
///
/// # Errors
/// If the world cannot be built, a daemon fails, the long-lived TCP connection breaks, or the user interrupts.
pub fn run(options: &Options, mut on_row: impl FnMut(&Row)) -> Result<Report> {
    let mut stage = Stage::build(options).context("setting the stage")?;
    let mut rows = Vec::new();
    let mut tell = |row: Row| {
        on_row(&row);
        rows.push(row);
    };
    tell(stage.connect()?);
    let tcp = LongLived::connect(&stage.world.device, stage.server)?;
    tell(stage.traffic()?);
    tell(stage.sleep("sleeps 5 s", Duration::from_secs(5), Access::A, Access::A)?);
    tell(stage.roam("moves to network B, behind a NAT", Access::A, Access::B)?);
    tell(stage.sleep("sleeps 5 s behind the NAT", Duration::from_secs(5), Access::B, Access::B)?);
    tell(stage.sleep("sleeps 3 s, wakes in network A", Duration::from_secs(3), Access::B, Access::A)?);
    let past = GATEWAY_GIVES_UP * 2 + Duration::from_secs(3);
    tell(stage.sleep("sleeps for longer than the gateway keeps its state", past, Access::A, Access::A)?);
    tell(stage.crash_gateway()?);
    tell(stage.forgetful_gateway()?);
    tcp.lives(Duration::from_secs(20)).context("the long-lived TCP connection did not survive")?;
    let echoed = tcp.finish().context("the long-lived TCP connection")?;
    drop(stage);
    let hour = if options.short { None } else { Some(hour::run(options, options.seed)?) };
    Ok(Report::new(rows, echoed, hour))
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

    fn connect(&mut self) -> Result<Row> {
        let meter = Meter::start(self)?;
        let start = Instant::now();
        self.device.ok(&["up", config::CONNECTION])?;
        self.finish("connects for the first time", meter, start)
    }

    fn traffic(&mut self) -> Result<Row> {
        let meter = Meter::start(self)?;
        let start = Instant::now();
        let bytes = config::download(&self.world)?;
        let took = start.elapsed();
        self.world
            .device
            .sh(&format!("ping -q -c 5 -i 0.2 -W 2 {SERVER}"))
            .context("ping through the tunnel")?;
        let mut row = self.finish("downloads a file over HTTP, and pings", meter, Instant::now())?;
        let megabytes = bytes as f64 / 1e6;
        row.note = format!("{megabytes:.0} MB in {:.2} s, digest equal", took.as_secs_f64());
        Ok(row)
    }

    fn roam(&mut self, what: &str, from: Access, to: Access) -> Result<Row> {
        let meter = Meter::start(self)?;
        self.world.detach(from)?;
        self.world.attach(to)?;
        self.finish(what, meter, Instant::now())
    }

    fn sleep(&mut self, what: &str, time: Duration, from: Access, to: Access) -> Result<Row> {
        self.device.ok(&["suspend"])?;
        self.world.detach(from)?;
        self.pause(time)?;
        let meter = Meter::start(self)?;
        self.world.attach(to)?;
        let start = Instant::now();
        self.device.ok(&["resume"])?;
        self.finish(what, meter, start)
    }

    /// The gateway is killed with SIGKILL and restarted: it has lost every SA, but not its ticket keys.
    fn crash_gateway(&mut self) -> Result<Row> {
        // Before the crash: other traffic than the probes may find out, and bring the session back, before they begin.
        let mut meter = Meter::start(self)?;
        self.gateway.process().kill();
        self.pause(Duration::from_secs(1))?;
        self.gateway.restart()?;
        meter.gateway_is_new(self);
        self.finish("the gateway is killed and restarted", meter, Instant::now())
    }

    /// The same, and the ticket keys are lost as well: the last rung.
    fn forgetful_gateway(&mut self) -> Result<Row> {
        let mut meter = Meter::start(self)?;
        self.gateway.process().kill();
        let state = self.world.gateway.dir().join("state");
        std::fs::remove_dir_all(&state).with_context(|| format!("removing {}", state.display()))?;
        self.gateway.restart()?;
        meter.gateway_is_new(self);
        self.finish("the gateway is killed and loses its state directory", meter, Instant::now())
    }

    /// Probes until packets pass again, lets the exchanges that go on beside the data end, and reads all meters.
    fn finish(&mut self, what: &str, meter: Meter, start: Instant) -> Result<Row> {
        let limit = Duration::from_secs(30);
        let burst = self.prober.burst(&self.echo, start, Duration::from_millis(5), 100, limit)?;
        if burst.first_echo.is_none() {
            bail!("{what}: no packet passed within {limit:?}\n{}", self.evidence());
        }
        self.device.ok(&["wait", config::CONNECTION, "--timeout", "20"])?;
        meter.finish(self, what, burst)
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

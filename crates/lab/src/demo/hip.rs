//! The story of the Host Identity Protocol: two hosts that know each other by their HITs, and a TCP transfer between them that outlives
//! changes of address and of family and a daemon that is killed. Owns the story; the rest is as in [`super`].

use super::{ECHO_PORT, Options, Point, report};
use crate::campaign::{Campaign, Ended, Plan, Subject};
use crate::results::{Figures, Results};
use anyhow::{Context, Error, Result, bail};
use dormouse_crypto::sign::NewKey;
use dormouse_node::config::hip::identity;
use dormouse_testbed::{Access, Dormoused, EchoServer, GATEWAY, GATEWAY_V6, Host, Prober, Roaming, Transfer};
use serde_json::Value;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::{Duration, Instant};

/// The plan's name, by which results of this story are known.
pub(super) const PLAN: &str = "hip";

/// What is done in a step of the story.
#[derive(Clone, Copy)]
enum Step {
    Begin,
    OtherAddress,
    ToIpv6,
    ToIpv4,
    Crash,
    /// The transfer is still there, and whole.
    Survive,
}

const STORY: [(&str, Step); 6] = [
    ("sends its first packet to the server's HIT", Step::Begin),
    ("gets another address", Step::OtherAddress),
    ("loses IPv4, goes on by IPv6", Step::ToIpv6),
    ("loses IPv6, goes on by IPv4", Step::ToIpv4),
    ("the server's daemon is killed and restarted", Step::Crash),
    ("one TCP transfer goes through all of it", Step::Survive),
];

/// Tells it; `on_row` gets a line for each thing as it happens.
///
/// # Errors
/// If the world cannot be built, a daemon fails, the transfer breaks or lacks a byte, or the user interrupts.
pub(super) fn run(options: &Options, on_row: impl FnMut(&str)) -> Result<Results<Point>> {
    let plan = Plan {
        name: PLAN.to_owned(),
        points: STORY.map(|(event, _)| Point { event: event.to_owned(), policy: None }).into(),
        rounds: 1,
        seed: options.seed,
        settings: Value::Null,
        skipped: Vec::new(),
    };
    let mut campaign = Campaign::new(plan, None)?;
    let mut story = Story { options, on_row, stage: None };
    match campaign.run(&mut story, &options.interrupted, &mut |_| ())? {
        Ended::Finished => Ok(campaign.results),
        Ended::Interrupted => bail!("interrupted"),
    }
}

struct Story<'a, F> {
    options: &'a Options,
    on_row: F,
    /// Before the transfer, which ends first.
    stage: Option<(Option<Transfer>, Stage)>,
}

impl<F: FnMut(&str)> Subject for Story<'_, F> {
    type Point = Point;
    type Stage = usize;
    type Group = String;

    const WARMS_UP: bool = false;

    fn stage(point: &Point) -> usize {
        STORY.iter().position(|(event, _)| *event == point.event).unwrap_or(STORY.len())
    }

    fn group(point: &Point) -> String {
        point.event.clone()
    }

    fn prepare(&mut self, _: &Point) -> Result<()> {
        match &mut self.stage {
            None => self.stage = Some((None, Stage::build(self.options).context("setting the stage")?)),
            Some((transfer @ None, stage)) => {
                let server = SocketAddr::new(stage.server.ip(), ECHO_PORT + 1);
                *transfer = Some(Transfer::start(&stage.world.gateway, server, &stage.world.device)?);
            }
            Some(_) => {}
        }
        Ok(())
    }

    fn measure(&mut self, point: &Point, _: u32) -> Result<Figures> {
        let (_, step) = STORY.into_iter().find(|s| s.0 == point.event).context("no step of the story")?;
        let (transfer, stage) = self.stage.as_mut().context("no stage")?;
        if matches!(step, Step::Survive) {
            let transfer = transfer.take().context("no transfer")?;
            let whole = transfer.goes_on(Duration::from_secs(60)).and_then(|()| transfer.finish());
            let (sent, received) = whole.context("the TCP transfer did not survive")?;
            let figures = Figures::default().with("tcp_bytes", received as f64);
            return Ok(figures.with("tcp_lost", sent.saturating_sub(received) as f64));
        }
        let figures = stage.step(step).with_context(|| point.event.clone())?;
        (self.on_row)(&report::hip_row(&point.event, &figures));
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
        let mut world = Roaming::new(super::config::NAT_TIMEOUT)?;
        if options.keep {
            world.bed.keep_files();
        }
        world.attach(Access::A)?;
        world.device.sysctl("net.ipv4.conf.all.promote_secondaries", "1")?;
        let (device, server) = (key(&world.device)?, key(&world.gateway)?);
        let addresses = format!("[{GATEWAY:?}, {GATEWAY_V6:?}]");
        let start = |host: &Host, peer: Ipv6Addr, addresses: &str| -> Result<Dormoused> {
            let key = host.dir().join("hip.key");
            let toml = format!(
                "[connection.home]\nrole = \"hip\"\n[connection.home.hip]\nkey = {key:?}\n\
                 [[connection.home.hip.peers]]\nhit = \"{peer}\"\naddresses = {addresses}\n"
            );
            let daemon = Dormoused::start(host, "dns = \"off\"", &toml)?;
            // It answers once its address and its routes are there.
            daemon.ok(&["status"])?;
            Ok(daemon)
        };
        let gateway = start(&world.gateway, device, "[]")?;
        let device = start(&world.device, server, &addresses)?;
        let server = SocketAddr::new(server.into(), ECHO_PORT);
        let echo = EchoServer::start(&world.gateway, server)?;
        let prober = Prober::new(&world.device, server)?;
        Ok(Self { device, gateway, echo, prober, server, world })
    }

    fn step(&mut self, step: Step) -> Result<Figures> {
        let device = &self.world.device;
        let air = self.world.air(Access::A)?.bytes;
        let exchanges = exchanges(&self.device)?;
        let (of_device, mut of_server) = (self.device.cpu(), self.gateway.cpu());
        match step {
            Step::Begin | Step::Survive => {}
            Step::OtherAddress => {
                device.ip("addr add 10.1.0.3/24 dev wlan0")?;
                device.ip("addr del 10.1.0.2/24 dev wlan0")?;
                device.ip("route replace default via 10.1.0.1 dev wlan0")?;
            }
            Step::ToIpv6 => {
                device.ip("-4 addr flush dev wlan0 scope global")?;
            }
            Step::ToIpv4 => {
                device.ip("-6 addr flush dev wlan0 scope global")?;
                device.ip("addr add 10.1.0.2/24 dev wlan0")?;
                device.ip("route replace default via 10.1.0.1 dev wlan0")?;
            }
            Step::Crash => {
                self.gateway.process().kill();
                self.gateway.restart()?;
                of_server = Duration::ZERO;
            }
        }
        let limit = Duration::from_secs(40);
        let burst = self.prober.burst(&self.echo, Instant::now(), Duration::from_millis(5), 100, limit)?;
        if burst.first_echo.is_none() {
            bail!("no packet passed within {limit:?}\n{}\n{}", self.device.log(), self.gateway.log());
        }
        // The CPU first: asking for counters costs some.
        let cpu = [self.device.cpu().saturating_sub(of_device), self.gateway.cpu().saturating_sub(of_server)];
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        Ok(Figures::default()
            .with("exchanges", (self::exchanges(&self.device)? - exchanges) as f64)
            .with("air", (self.world.air(Access::A)?.bytes - air) as f64)
            .with("device_cpu", ms(cpu[0]))
            .with("gateway_cpu", ms(cpu[1]))
            .with("first_packet", burst.first_arrival.map(ms))
            .with("first_echo", burst.first_echo.map(ms))
            .with("probes", burst.sent as f64)
            .with("lost", burst.lost as f64))
    }
}

/// Makes the key of a host; its HIT.
fn key(host: &Host) -> Result<Ipv6Addr> {
    let pem = NewKey::EcdsaP256.pem().context("no key could be made")?;
    let path = host.dir().join("hip.key");
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(pem.as_bytes())?;
    Ok(identity(pem.as_bytes()).map_err(Error::msg)?.hit().0)
}

/// Base exchanges that this daemon has ended well.
fn exchanges(daemon: &Dormoused) -> Result<u64> {
    let json = daemon.ok(&["stats", "--json"])?.json;
    let counter = json.pointer("/result/stats/counters/hip.established").and_then(Value::as_u64);
    counter.context("counter hip.established")
}

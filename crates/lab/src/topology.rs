//! A network to walk around in by hand: Mobile IP in five namespaces, obeying one command a line. Owns the topology and what flows through
//! it; both go with it.

#![expect(clippy::disallowed_methods, reason = "times real hosts by the real clock")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
pub use dormouse_testbed::mobile::CareOf;
pub use dormouse_testbed::mobile::Radio;
pub use dormouse_testbed::mobile::driver::run as node;
pub use dormouse_testbed::mobile::protected::Protection;
use dormouse_testbed::mobile::protected::{CONNECTION, Daemons};
use dormouse_testbed::mobile::{CORRESPONDENT, MobileIp, Place, Program};
use dormouse_testbed::radio::transfer;
use dormouse_testbed::{EchoServer, LongLived};
use serde_json::{Value, json};

use crate::needs::missing;

/// What can be said to it.
pub const HELP: &str = "\
move home|fa1|fa2|nowhere   take the device there
ping [N]                    N pings from the device to the correspondent, 3 unless told
stream                      a TCP stream between the two, which goes on while the device moves; says how far it is
stream end                  ends it, and says whether a byte was lost
show                        where the device is, what each program has done, and the flows that each access router repairs
log PROGRAM                 what a program has said: home, fa1, fa2, device
fetch BYTES                 the device fetches so many from the correspondent by TCP; says how fast, and what the access routers repeated
crash PROGRAM               kill it
start PROGRAM               start it again
hosts                       how to enter the hosts from another terminal
end                         take everything away
";

/// The congestion control of the correspondent: paper 003's, which every kernel has.
const CONGESTION: &str = "reno";
/// A transfer ends after so long without progress.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked whether the user has had enough.
const LOOK: Duration = Duration::from_millis(100);

/// Where the stream's server is.
fn server() -> SocketAddr {
    SocketAddr::new(CORRESPONDENT.into(), 7)
}

/// See the module.
#[derive(Debug)]
pub struct Walk {
    stream: Option<LongLived>,
    stop: Arc<AtomicBool>,
    _echo: EchoServer,
    world: MobileIp,
}

impl Walk {
    /// Builds it, with the device at home, and its session up if there is one. `radio` is between it and either foreign agent; a transfer that
    /// goes on ends when `stop` is set.
    ///
    /// # Errors
    /// Without root or what network namespaces need, and for a radio where the device has addresses of its own: it is the foreign agents' programs that
    /// lose what is sent to it.
    pub fn start(
        radio: Option<Radio>,
        protection: Protection,
        care_of: CareOf,
        stop: Arc<AtomicBool>,
    ) -> Result<Self> {
        if let Some(what) = missing() {
            bail!("network namespaces need {what}");
        }
        let world = match (care_of, radio) {
            (CareOf::ForeignAgent, _) => MobileIp::over(radio, protection)?,
            (CareOf::CoLocated, None) => MobileIp::co_located(protection)?,
            (CareOf::CoLocated, Some(_)) => bail!("without foreign agents the radios are perfect"),
        };
        let echo = EchoServer::start(&world.correspondent, server())?;
        let walk = Self { stream: None, stop, _echo: echo, world };
        walk.world.go(Some(Place::Home))?;
        walk.world.arrives(Place::Home)?;
        if let Some(daemons) = &walk.world.daemons {
            daemons.device.ok(&["up", CONNECTION, "--timeout", "30"])?;
        }
        Ok(walk)
    }

    /// The topology.
    #[must_use]
    pub const fn world(&self) -> &MobileIp {
        &self.world
    }

    /// Obeys one line, and says what came of it; `None`: it is the end.
    ///
    /// # Errors
    /// What went wrong; all is still there then.
    pub fn obey(&mut self, line: &str) -> Result<Option<String>> {
        let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
        Ok(Some(match words.as_slice() {
            [] => String::new(),
            ["end" | "quit" | "exit"] => return Ok(None),
            ["help"] => HELP.to_owned(),
            ["move", "nowhere"] => {
                self.world.go(None)?;
                "in no network\n".to_owned()
            }
            ["move", to] => self.go(place(to)?)?,
            ["ping"] => self.ping(3)?,
            ["ping", count] => self.ping(count.parse().context("how many?")?)?,
            ["stream"] => self.stream()?,
            ["stream", "end"] => match self.stream.take() {
                Some(stream) => format!("{} numbers came back in order, none lost\n", stream.finish()?),
                None => bail!("there is no stream"),
            },
            ["fetch", bytes] => self.fetch(bytes.parse().context("how many bytes?")?)?,
            ["show"] => self.show()?,
            ["hosts"] => self.hosts(),
            ["log", name] => self.world.log(program(name)?),
            ["crash", name] => {
                let program = program(name)?;
                if !self.world.runs(program) {
                    bail!("{name} does not run");
                }
                self.world.crash(program);
                format!("{name} is gone\n")
            }
            ["start", name] => {
                let program = program(name)?;
                if self.world.runs(program) {
                    bail!("{name} runs");
                }
                self.world.launch(program)?;
                format!("{name} runs again\n")
            }
            _ => bail!("no such command: {line:?}; help lists them"),
        }))
    }

    fn go(&self, place: Place) -> Result<String> {
        let before = self.world.state(Program::Device)?;
        if self.world.is_at(&before, place) {
            return Ok(format!("registered at {} already\n", place.interface()));
        }
        let begin = Instant::now();
        self.world.go(Some(place))?;
        self.world.arrives(place)?;
        let (took, state) = (begin.elapsed(), self.world.state(Program::Device)?);
        let registration = state["registrations"].as_array().and_then(|list| list.last());
        let exchange = registration.and_then(|r| r["nanoseconds"].as_f64()).unwrap_or_default() / 1e6;
        Ok(format!(
            "registered at {} after {:.0} ms, of which request and reply took {exchange:.2} ms\n",
            place.interface(),
            took.as_secs_f64() * 1e3
        ))
    }

    fn ping(&self, count: u32) -> Result<String> {
        let (count, to) = (count.clamp(1, 1_000).to_string(), CORRESPONDENT.to_string());
        let arguments = ["-c", &count, "-i", "0.2", "-W", "2", &to];
        let mut ping = self.world.device.spawn("ping", "ping", &arguments)?;
        while ping.wait(LOOK).is_none() {
            ensure!(!self.stop.load(Ordering::Relaxed), "interrupted");
        }
        Ok(ping.log())
    }

    fn stream(&mut self) -> Result<String> {
        if let Some(stream) = &self.stream {
            stream.lives(Duration::from_secs(30))?;
            return Ok(format!("{} numbers came back so far\n", stream.echoed()));
        }
        self.stream = Some(LongLived::connect(&self.world.device, server())?);
        Ok("a number goes to the correspondent and back ten times a second\n".to_owned())
    }

    fn fetch(&self, bytes: u64) -> Result<String> {
        let before = self.repeated();
        let (from, to) = (&self.world.correspondent, &self.world.device);
        let done = transfer(from, to, CORRESPONDENT.into(), CONGESTION, bytes, PATIENCE, &self.stop)?;
        let repeated = self.repeated().saturating_sub(before);
        Ok(format!(
            "{bytes} bytes in {:.2} s, {:.3} Mbit/s; the access routers repeated {repeated} packets\n",
            done.time.as_secs_f64(),
            done.rate() / 1e6
        ))
    }

    /// Packets that all access routers have repeated.
    fn repeated(&self) -> u64 {
        self.routers().iter().filter_map(|router| router["repeated"].as_u64()).sum()
    }

    fn show(&mut self) -> Result<String> {
        let mut text = String::new();
        for (name, program) in PROGRAMS {
            let state =
                if self.world.runs(program) { self.world.state(program)? } else { json!("not running") };
            text += &format!("{name:<7} {state}\n");
        }
        for (n, router) in self.routers().iter_mut().enumerate() {
            // The flows below the rest, one in a line.
            let flows = router.as_object_mut().and_then(|router| router.remove("flows"));
            text += &format!("router{} {router}\n", n + 1);
            for flow in flows.iter().filter_map(Value::as_array).flatten() {
                text += &format!("  flow  {flow}\n");
            }
        }
        if let Some(stream) = &self.stream {
            text += &format!("stream  {} numbers came back\n", stream.echoed());
        }
        Ok(text)
    }

    /// What the access routers say of themselves, if there are some; of one whose daemon does not answer, why.
    fn routers(&self) -> Vec<Value> {
        let daemons: Option<&Daemons> = self.world.daemons.as_ref();
        let state = |daemons: &Daemons, at| {
            daemons.router(at).unwrap_or_else(|error| json!({ "no_answer": format!("{error:#}") }))
        };
        daemons.map_or(Vec::new(), |daemons| [0, 1].map(|at| state(daemons, at)).into())
    }

    /// How to enter the hosts.
    #[must_use]
    pub fn hosts(&self) -> String {
        let world = &self.world;
        let all = [&world.device, &world.correspondent, &world.home, &world.foreign[0], &world.foreign[1]];
        all.map(|host| format!("sudo ip netns exec {} bash    # {}\n", host.netns(), host.name())).concat()
    }

    /// What all programs say of themselves, as JSON.
    ///
    /// # Errors
    /// If one that runs does not answer.
    pub fn json(&mut self) -> Result<Value> {
        let mut all = serde_json::Map::new();
        for (name, program) in PROGRAMS {
            if self.world.runs(program) {
                all.insert(name.to_owned(), self.world.state(program)?);
            }
        }
        Ok(json!({ "version": 1, "programs": all, "routers": self.routers() }))
    }
}

const PROGRAMS: [(&str, Program); 4] = [
    ("device", Program::Device),
    ("home", Program::Home),
    ("fa1", Program::Foreign(0)),
    ("fa2", Program::Foreign(1)),
];

fn program(name: &str) -> Result<Program> {
    let found = PROGRAMS.iter().find(|(n, _)| *n == name).map(|(_, p)| *p);
    found.with_context(|| format!("no program {name:?}: home, fa1, fa2 or device"))
}

fn place(name: &str) -> Result<Place> {
    let found = Place::ALL.into_iter().find(|p| p.interface() == name);
    found.with_context(|| format!("no place {name:?}: home, fa1, fa2 or nowhere"))
}

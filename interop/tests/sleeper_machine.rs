//! The machine sleeps, and the daemon with it: the real daemons, and logind's interface (dbusmock) on a system bus of the test's own.

use anyhow::Result;
use dormouse_interop::ends::{self, knows_that_it_sleeps, until};
use dormouse_interop::mock::{self, MOCK, MockBus};
use dormouse_testbed::{Access, Dormoused, Need, Process, Roaming, SERVER, require};
use serde_json::Value;
use std::time::Duration;

const LOGIND: &str = "org.freedesktop.login1";
const PATH: &str = "/org/freedesktop/login1";
const MANAGER: &str = "org.freedesktop.login1.Manager";

fn needs() -> Vec<Need> {
    let ours = [Need::Root, Need::File("/dev/net/tun"), Need::Program("ping")];
    ours.into_iter().chain(mock::NEEDS).collect()
}

/// A device whose machine can sleep, and its gateway; connected.
struct Scene {
    device: Dormoused,
    gateway: Dormoused,
    world: Roaming,
    _logind: Process,
    bus: MockBus,
}

impl Scene {
    /// `gateway`: lines of the gateway's `[daemon]` section.
    fn new(name: &str, gateway: &str) -> Result<Self> {
        let bus = MockBus::start(name)?;
        let logind = bus.service("logind", LOGIND)?;
        let world = Roaming::new(60)?;
        world.attach(Access::A)?;
        let daemon = format!("dns = \"off\"\n{gateway}");
        let gateway = Dormoused::start(&world.gateway, &daemon, &ends::gateway("\"10.55.0.0/24\"", ""))?;
        let device = ends::device("radio = \"none\"");
        let device = Dormoused::start_with(&world.device, bus.extra(), "dns = \"off\"", &device)?;
        device.ok(&["up", "peer"])?;
        let scene = Self { device, gateway, world, _logind: logind, bus };
        scene.bus.until("the machine's sleep is delayed", || scene.delays() == 1)?;
        Ok(scene)
    }

    /// How many hold the machine's sleep up.
    fn delays(&self) -> usize {
        // What, who, why, how, user, process.
        type Inhibitor = (String, String, String, String, u32, u32);
        let held = self.bus.call::<_, Vec<Inhibitor>>(LOGIND, PATH, MANAGER, "ListInhibitors", &());
        held.map_or(0, |held| held.iter().filter(|i| i.0 == "sleep" && i.3 == "delay").count())
    }

    /// What logind says before the machine sleeps, and after.
    fn prepare_for_sleep(&self, before: bool) -> Result<()> {
        let body = (MANAGER, "PrepareForSleep", "b", vec![zbus::Variant::from(before)]);
        self.bus.call(LOGIND, PATH, MOCK, "EmitSignal", &body)
    }

    /// logind waits until no program delays the sleep any more.
    fn sleep(&self) -> Result<Value> {
        self.prepare_for_sleep(true)?;
        self.bus.until("the machine may sleep", || self.delays() == 0)?;
        ends::sleep_of(&self.device)
    }

    fn resume(&self) -> Result<Value> {
        self.prepare_for_sleep(false)?;
        let back = |s: &Value| s["wakes_by_cause"]["machine"] == 1 && s["wakes"][0]["rung"].is_string();
        until(&self.device, "back after the machine's sleep", back)
    }

    /// One packet, sent once.
    fn ping(&self) -> Result<()> {
        let said = self.world.device.sh(&format!("ping -c 1 -W 20 {SERVER}"));
        said.map(drop).map_err(|e| e.context(self.device.log()))
    }
}

#[test]
fn the_machine_sleeps_once_the_gateway_knows_and_the_held_session_goes_on() -> Result<()> {
    if !require("the machine's sleep, announced", &needs()) {
        return Ok(());
    }
    let scene = Scene::new("machine-held", "")?;
    let inner = ends::inner(&scene.device)?;
    assert!(!knows_that_it_sleeps(&scene.gateway)?);
    // The gateway answers in its place what it was seen to answer itself.
    let ping = format!("ping -c 2 -i 0.2 -W 3 {}", inner[0]);
    scene.world.server.sh(&ping)?;
    let sleep = scene.sleep()?;
    // Not "soon": the gateway was told before the machine was let go.
    assert!(knows_that_it_sleeps(&scene.gateway)?, "{}", scene.device.log());
    assert_eq!((&sleep["state"], &sleep["why"]), (&"asleep".into(), &"machine".into()), "{sleep:#}");
    // A machine that sleeps has nothing due that it would be woken for.
    let status = scene.device.ok(&["status", "--json"])?.json;
    assert_eq!(status.pointer("/result/status/deadlines"), Some(&Value::Array(vec![])));
    scene.world.detach(Access::A)?;
    scene.world.server.sh(&ping)?;

    scene.world.attach(Access::A)?;
    let sleep = scene.resume()?;
    assert_eq!(sleep["wakes"][0]["rung"], "held", "{}\n{}", scene.device.log(), scene.gateway.log());
    assert!(sleep["energy"]["suspended_seconds"].as_f64() > Some(0.0), "{sleep:#}");
    scene.ping()?;
    scene.bus.until("the next sleep is delayed too", || scene.delays() == 1)?;
    // And a second time.
    scene.sleep()?;
    assert!(knows_that_it_sleeps(&scene.gateway)?);
    scene.prepare_for_sleep(false)?;
    until(&scene.device, "awake", |s| s["wakes_by_cause"]["machine"] == 2 && s["state"] == "awake")?;
    scene.ping()
}

#[test]
fn a_session_that_was_let_go_comes_back_by_ticket() -> Result<()> {
    if !require("the machine's sleep, by ticket", &needs()) {
        return Ok(());
    }
    let scene = Scene::new("machine-ticket", "release_above = 0")?;
    let inner = ends::inner(&scene.device)?;
    scene.sleep()?;
    assert!(knows_that_it_sleeps(&scene.gateway)?, "{}", scene.device.log());
    let sleep = scene.resume()?;
    assert_eq!(sleep["wakes"][0]["rung"], "ticket", "{}\n{}", scene.device.log(), scene.gateway.log());
    scene.ping()?;
    assert_eq!(ends::inner(&scene.device)?, inner, "another address");
    Ok(())
}

#[test]
fn the_machine_waits_for_the_answer_but_sleeps_without_one_in_the_end() -> Result<()> {
    if !require("the machine's sleep, unanswered", &needs()) {
        return Ok(());
    }
    let scene = Scene::new("machine-alone", "")?;
    // The link is there; what lies behind it is not.
    scene.world.router_a.ip("link set dev uplink down")?;
    scene.prepare_for_sleep(true)?;
    let preparing = || anyhow::Ok(ends::sleep_of(&scene.device)?["state"] == "preparing");
    let mut waited = false;
    scene.bus.until("the machine may sleep", || {
        let before = preparing().unwrap_or(false);
        let delays = scene.delays();
        if before && preparing().unwrap_or(false) {
            assert_eq!(delays, 1, "let go before the gateway knew, or its time was over");
            waited = true;
        }
        delays == 0
    })?;
    assert!(waited, "{}", scene.device.log());
    assert!(!knows_that_it_sleeps(&scene.gateway)?);
    scene.world.router_a.ip("link set dev uplink up")?;
    scene.world.router_a.ip("route add default via 198.51.100.1")?;
    std::thread::sleep(Duration::from_millis(200));
    scene.resume()?;
    scene.ping()
}

//! The device's controller with real daemons: the radio is the device's own link, in a network namespace.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Context, Result};
use dormouse_testbed::{Access, Dormoused, EchoServer, GATEWAY, Need, Roaming, SERVER, require};
use serde_json::Value;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const NEEDS: [Need; 3] = [Need::Root, Need::File("/dev/net/tun"), Need::Program("ping")];
/// Generous: nothing here is about speed.
const PATIENCE: Duration = Duration::from_secs(40);

fn ends(sleep: &str) -> (String, String) {
    let end = |role: &str, own: &str, peer: &str| {
        let gateway = if role == "client" { format!("gateway = \"{GATEWAY}\"") } else { String::new() };
        let secret = "secret = \"a shared secret of the test\"";
        format!(
            "[connection.peer]\nrole = \"{role}\"\n{gateway}\n[connection.peer.local]\nid = \"{own}\"\n{secret}\n\
             [connection.peer.remote]\nid = \"{peer}\"\n{secret}\n"
        )
    };
    let gateway = end("gateway", "gateway.test", "*.test")
        + "[connection.peer.child]\nlocal = [\"10.99.0.0/24\"]\nremote = [\"dynamic\"]\n\
           [connection.peer.pool]\naddresses = [\"10.55.0.0/24\"]\n";
    let device = format!("[sleep]\n{sleep}\n")
        + &end("client", "device.test", "gateway.test")
        + "[connection.peer.child]\nremote = [\"10.99.0.0/24\"]\nrequest_address = \"ipv4\"\n";
    (gateway, device)
}

struct Scene {
    device: Dormoused,
    gateway: Dormoused,
    _echo: EchoServer,
    link: String,
    world: Roaming,
}

impl Scene {
    fn new(sleep: &str) -> Result<Self> {
        let world = Roaming::new(60)?;
        world.attach(Access::A)?;
        let link =
            world.device.sh(&format!("ip -o route get {GATEWAY} | sed 's/.* dev \\([^ ]*\\).*/\\1/'"))?;
        let link = link.trim().to_owned();
        let (gateway, device) = ends(&format!("radio = \"link\"\ninterface = \"{link}\"\n{sleep}"));
        let gateway = Dormoused::start(&world.gateway, "dns = \"off\"", &gateway)?;
        let device = Dormoused::start(&world.device, "dns = \"off\"", &device)?;
        let echo = EchoServer::start(&world.server, SocketAddr::new(SERVER.parse()?, 7777))?;
        device.ok(&["up", "peer"])?;
        Ok(Self { device, gateway, _echo: echo, link, world })
    }

    fn link_is_up(&self) -> bool {
        self.world.device.sh(&format!("ip -o link show {} | grep -q '[<,]UP[,>]'", self.link)).is_ok()
    }

    fn sleep(&self) -> Result<Value> {
        let status = self.device.ok(&["status", "--json"])?.json;
        status.pointer("/result/status/sleep").cloned().context("no sleep in the status")
    }

    /// Waits until the status of the sleep is as wanted.
    fn until(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        let end = Instant::now() + PATIENCE;
        loop {
            let sleep = self.sleep()?;
            if wanted(&sleep) {
                return Ok(sleep);
            }
            let said = || format!("{sleep:#}\n{}\n{}", self.device.log(), self.gateway.log());
            assert!(Instant::now() < end, "not in time: {what}; {}", said());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn asleep(&self) -> Result<Value> {
        self.until("asleep", |s| s["state"] == "asleep")
    }

    fn ping(&self) -> Result<String> {
        self.world.device.sh(&format!("ping -c 1 -W 20 {SERVER}")).map_err(|e| e.context(self.device.log()))
    }
}

#[test]
fn silence_switches_the_link_off_and_a_packet_switches_it_on_and_is_not_lost() -> Result<()> {
    if !require("the sleeper", &NEEDS) {
        return Ok(());
    }
    let scene = Scene::new("mode = \"energy\"\npolicy = 0.5")?;
    let sleep = scene.asleep()?;
    assert!(!scene.link_is_up(), "the radio is still on");
    assert_eq!(sleep["radio"]["driver"], "link");
    assert_eq!(sleep["decision"]["policy"], "timeout");
    assert_eq!(
        scene.device.ok(&["status", "--json"])?.json.pointer("/result/status/deadlines"),
        Some(&Value::Array(vec![]))
    );

    // One packet, sent once: it is held, and answered.
    let said = scene.ping()?;
    assert!(said.contains("1 received"), "{said}");
    let sleep = scene.until("a wake by traffic", |s| s["wakes_by_cause"]["traffic"] == 1)?;
    let flow = sleep["wakes"][0]["flow"].as_str().unwrap_or_default();
    assert!(flow.starts_with("icmp") && flow.contains(SERVER), "{flow}");

    // And again by TCP, whose first segment is the one that wakes.
    scene.asleep()?;
    let tcp = scene.world.device.sh(&format!("timeout 30 bash -c 'exec 3<>/dev/tcp/{SERVER}/7777'"));
    tcp.map_err(|e| e.context(scene.device.log()))?;
    let sleep = scene.until("a second wake", |s| s["wakes_by_cause"]["traffic"] == 2)?;
    let flow = sleep["wakes"][0]["flow"].as_str().unwrap_or_default();
    assert!(flow.starts_with("tcp") && flow.ends_with(":7777"), "{flow}");
    assert_eq!(sleep["wakes_by_cause"].as_object().map(serde_json::Map::len), Some(1), "{sleep:#}");
    assert_eq!(sleep["held_packets"], 0);
    Ok(())
}

#[test]
fn the_gateway_is_told_before_and_holds_the_session() -> Result<()> {
    if !require("an announced sleep", &NEEDS) {
        return Ok(());
    }
    let scene = Scene::new("mode = \"energy\"\npolicy = 0.5")?;
    scene.asleep()?;
    scene.ping()?;
    let sleep = scene.until("the rung of the wake", |s| s["wakes"][0]["rung"].is_string())?;
    assert_eq!(sleep["wakes"][0]["rung"], "held", "{}\n{}", scene.device.log(), scene.gateway.log());
    Ok(())
}

#[test]
fn modes_act_at_once() -> Result<()> {
    if !require("modes", &NEEDS) {
        return Ok(());
    }
    // Nothing configured: the radio stays on until sleep is asked for.
    let scene = Scene::new("policy = 0.5")?;
    assert_eq!(scene.device.ok(&["mode"])?.text.trim(), "performance");
    std::thread::sleep(Duration::from_secs(2));
    assert!(scene.link_is_up() && scene.sleep()?["sleeps"] == 0, "it sleeps unasked");
    scene.device.ok(&["mode", "energy"])?;
    scene.asleep()?;
    assert!(!scene.link_is_up());
    scene.device.ok(&["mode", "performance"])?;
    let sleep = scene.until("awake", |s| s["state"] == "awake")?;
    assert!(scene.link_is_up());
    assert_eq!(sleep["wakes_by_cause"]["mode"], 1, "{sleep:#}");
    assert_eq!(sleep["mode"], "performance");
    scene.ping()?;
    Ok(())
}

#[test]
fn the_schedule_wakes_and_down_gives_the_radio_back() -> Result<()> {
    if !require("scheduled wakes", &NEEDS) {
        return Ok(());
    }
    let scene = Scene::new("mode = \"energy\"\npolicy = 0.5\nwake_every = 10")?;
    scene.until("two scheduled wakes", |s| s["wakes_by_cause"]["schedule"].as_u64() >= Some(2))?;
    scene.asleep()?;
    scene.device.ok(&["down", "peer"])?;
    let sleep = scene.until("awake", |s| s["state"] == "awake" || s["wakes_by_cause"]["released"] == 1)?;
    scene
        .world
        .device
        .eventually(&format!("ip -o link show {} | grep -q '[<,]UP[,>]'", scene.link), PATIENCE)?;
    assert_eq!(sleep["wakes_by_cause"]["traffic"], Value::Null, "{sleep:#}");
    Ok(())
}

#[test]
fn a_killed_daemon_leaves_the_link_on_and_its_history_behind() -> Result<()> {
    if !require("a crash while asleep", &NEEDS) {
        return Ok(());
    }
    let mut scene = Scene::new("mode = \"energy\"\npolicy = 0.5")?;
    scene.asleep()?;
    let history = scene.world.device.dir().join("state/sleep-history");
    assert!(history.is_file(), "no history");
    scene.device.process().kill();
    let up = format!("ip -o link show {} | grep -q '[<,]UP[,>]'", scene.link);
    scene.world.device.eventually(&up, PATIENCE)?;
    scene.device.restart()?;
    scene.device.process().wait_for("history of earlier runs is taken up", PATIENCE)?;
    scene.device.ok(&["up", "peer"])?;
    scene.ping()?;
    // A damaged one is kept aside, and said so.
    scene.device.process().kill();
    std::fs::write(&history, b"dmsl but not really")?;
    scene.device.restart()?;
    scene.device.process().wait_for("learning begins afresh", PATIENCE)?;
    assert!(history.with_file_name("sleep-history.damaged").is_file());
    Ok(())
}

#[test]
fn a_changed_configuration_is_taken_up_and_a_broken_one_is_not() -> Result<()> {
    if !require("reloading", &NEEDS) {
        return Ok(());
    }
    let mut scene = Scene::new("policy = 0.5")?;
    let file = scene.world.device.dir().join("dormouse.toml");
    let pid = scene.device.process().pid();
    let good = std::fs::read_to_string(&file)?;
    std::fs::write(&file, good.replace("policy = 0.5", "policy = 0.5\nmode = \"enrgy\""))?;
    scene.world.device.sh(&format!("kill -HUP {pid}"))?;
    scene.device.process().wait_for("the configuration stays as it was", PATIENCE)?;
    assert_eq!(scene.device.ok(&["mode"])?.text.trim(), "performance");
    let changed = good
        .replace("policy = 0.5", "policy = 0.5\nmode = \"energy\"")
        .replace("[daemon]", "[daemon]\nlog = \"debug\"");
    std::fs::write(&file, changed)?;
    scene.world.device.sh(&format!("kill -HUP {pid}"))?;
    scene.device.process().wait_for("daemon.log", PATIENCE)?;
    scene.asleep()?;
    scene.ping()?;
    Ok(())
}

#[test]
fn status_watch_and_doctor_say_what_the_radio_does_and_why() -> Result<()> {
    if !require("the sleeper's words", &NEEDS) {
        return Ok(());
    }
    let scene = Scene::new("policy = 0.5")?;
    let mut watch = scene.device.spawn("watch", &["watch"])?;
    watch.wait_for("peer", PATIENCE)?;
    scene.device.ok(&["mode", "balanced"])?;
    scene.asleep()?;
    let asleep = scene.device.ok(&["status"])?.text;
    scene.ping()?;
    scene.until("a wake by traffic", |s| s["wakes"][0]["rung"].is_string())?;
    let awake = scene.device.ok(&["status"])?.text;
    let doctor = scene.device.cli(&["doctor"])?.text;
    for said in
        ["radio  asleep for", "(idle), mode balanced", "driver     link (", "decision   off after 0.5 s"]
    {
        assert!(asleep.contains(said), "no {said:?} in\n{asleep}");
    }
    // What slept and what was saved, and by whose figures: this machine has no meter that sees a wire, or it has and says so.
    let energy = awake.lines().find(|l| l.trim_start().starts_with("energy")).context("no energy")?;
    assert!(energy.contains("used ") && energy.contains("always on"), "{energy}");
    assert!(energy.contains("[profile laptop-000]") || energy.contains("[meter "), "{energy}");
    let woke = awake.lines().find(|l| l.contains("last wakes")).context("no wake")?;
    assert!(woke.contains(&format!("traffic icmp 10.55.0.2 -> {SERVER}")), "{woke}");
    assert!(woke.contains("back by held in"), "{woke}");
    let radio = doctor.lines().find(|l| l.starts_with("ok    radio")).context("no radio")?;
    assert!(radio.contains(&format!("link: {} is named", scene.link)), "{radio}");
    assert!(doctor.contains("energy meter"), "{doctor}");
    for said in ["mode balanced", "the radio sleeps after", "waking: traffic icmp", "awake"] {
        watch.wait_for(said, PATIENCE)?;
    }
    Ok(())
}

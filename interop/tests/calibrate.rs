//! `dormouse meter` and `dormouse calibrate` with real daemons: the radio is the device's own link, and the meter a tree of files
//! whose battery drains as the link is up or down.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Context, Result, bail};
use dormouse_interop::ends;
use dormouse_io::netlink::{Monitor, Netlink, NetworkChange};
use dormouse_testbed::{Access, Answer, Dormoused, Host, Need, Roaming, require};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const NEEDS: [Need; 2] = [Need::Root, Need::File("/dev/net/tun")];
/// What the device draws with its link down, in watts.
const BASELINE: f64 = 6.0;
/// What the link adds, in watts.
const LINK: f64 = 3.0;
/// What it costs to bring it up, in joules.
const CYCLE: f64 = 8.0;
/// The gauge's step, in µWh: 0.036 J.
const STEP: u64 = 10;

/// The meters' files, and a thread that drains the battery. Gone when dropped.
struct Meters {
    root: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Meters {
    fn new(device: &Host) -> Result<Self> {
        let root = device.dir().join("root");
        let battery = root.join("sys/class/power_supply/BAT0");
        let package = root.join("sys/class/powercap/intel-rapl:0");
        for directory in [&battery, &package] {
            fs::create_dir_all(directory)?;
        }
        fs::write(battery.join("type"), "Battery\n")?;
        fs::write(battery.join("status"), "Discharging\n")?;
        fs::write(battery.join("energy_now"), "50000000\n")?;
        fs::write(package.join("name"), "package-0\n")?;
        fs::write(package.join("max_energy_range_uj"), "262143328850\n")?;
        fs::write(package.join("energy_uj"), "0\n")?;
        let stop = Arc::new(AtomicBool::new(false));
        let (gauge, ended) = (battery.join("energy_now"), Arc::clone(&stop));
        let thread = device.within(move || drain(&gauge, &package.join("energy_uj"), &ended))?;
        Ok(Self { root, stop, thread: Some(thread_of(thread)?) })
    }

    fn root(&self) -> Result<&str> {
        self.root.to_str().context("a path that is no text")
    }

    fn set(&self, file: &str, text: &str) -> Result<()> {
        Ok(fs::write(self.root.join(file), text)?)
    }
}

/// The thread of `Host::within`, its two results made one.
fn thread_of(thread: JoinHandle<Result<Result<()>>>) -> Result<JoinHandle<Result<()>>> {
    Ok(std::thread::Builder::new().spawn(move || match thread.join() {
        Ok(result) => result.and_then(|inner| inner),
        Err(_) => bail!("the battery's thread panicked"),
    })?)
}

impl Drop for Meters {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(Ok(Err(e))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("the battery: {e:#}");
        }
    }
}

/// The battery of a device in whose namespace this thread stands; and its processor, which draws a third of the baseline.
fn drain(gauge: &Path, package: &Path, stop: &AtomicBool) -> Result<()> {
    let put = |file: &Path, value: u64| -> Result<()> {
        // At once: nobody may read half a number.
        let new = file.with_extension("new");
        fs::write(&new, format!("{value}\n"))?;
        Ok(fs::rename(new, file)?)
    };
    // Every change counts, however short: the link may be up for a moment only.
    let mut monitor = Monitor::new()?;
    let mut up = Netlink::new()?.link("wlan0")?.up;
    let (mut used, mut at) = (0.0, Instant::now());
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
        let seconds = at.elapsed().as_secs_f64();
        at = Instant::now();
        used += seconds * (BASELINE + if up { LINK } else { 0.0 });
        while let Some(change) = monitor.next()? {
            let NetworkChange::Link(link) = change else { continue };
            if link.name == "wlan0" && up != link.up {
                up = link.up;
                used += if up { CYCLE } else { 0.0 };
            }
        }
        let micro_watt_hours = (used / 3.6e-3) as u64;
        put(gauge, 50_000_000 - micro_watt_hours / STEP * STEP)?;
        put(package, (used * 1e6 / 3.0) as u64)?;
    }
    Ok(())
}

struct Scene {
    device: Dormoused,
    _gateway: Dormoused,
    meters: Meters,
    world: Roaming,
}

impl Scene {
    fn new() -> Result<Self> {
        let world = Roaming::new(60)?;
        world.attach(Access::A)?;
        let gateway =
            Dormoused::start(&world.gateway, "dns = \"off\"", &ends::gateway("\"10.55.0.0/24\"", ""))?;
        let device = Dormoused::start(&world.device, "dns = \"off\"", &ends::device("radio = \"none\""))?;
        device.ok(&["up", "peer"])?;
        let meters = Meters::new(&world.device)?;
        Ok(Self { device, _gateway: gateway, meters, world })
    }

    fn calibrate(&self, file: &Path, more: &[&str]) -> Result<Answer> {
        let file = file.to_str().context("a path that is no text")?;
        let mut arguments = vec!["--json", "calibrate", file, "--root", self.meters.root()?];
        arguments.extend(["--interface", "wlan0"]);
        arguments.extend(more);
        self.device.cli(&arguments)
    }

    /// Radio and session are as they were.
    fn restored(&self) -> Result<()> {
        self.device.ok(&["wait", "peer", "--timeout", "30"])?;
        self.world.device.sh("ip route get 203.0.113.1 | grep -q wlan0")?;
        let server = dormouse_testbed::SERVER;
        self.world.device.eventually(&format!("ping -c 1 -W 2 {server}"), ends::PATIENCE).map(drop)
    }
}

fn mean(answer: &Answer, name: &str) -> Option<f64> {
    let figures = answer.json["figures"].as_array()?;
    figures.iter().find(|f| f["name"] == name)?["mean"].as_f64()
}

fn why_refused<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    let refused = answer.json["refused"].as_array()?;
    refused.iter().find(|f| f["name"] == name)?["why"].as_str()
}

#[test]
fn a_device_is_measured_and_what_the_battery_cannot_resolve_is_refused() -> Result<()> {
    if !require("calibrating", &NEEDS) {
        return Ok(());
    }
    let scene = Scene::new()?;
    let file = scene.world.device.dir().join("profile.toml");
    let bounded = ["--repetitions", "3", "--idle", "6", "--max-cycles", "3", "--only", "radio,ticket"];
    let answer = scene.calibrate(&file, &bounded)?;
    let said = &answer.text;
    assert_eq!(answer.code, 0, "{said}");
    // A wide berth: the machine may be busy, and only the order of things is to be right.
    let within = |name: &str, low: f64, high: f64| {
        let found = mean(&answer, name);
        assert!(found.is_some_and(|m| (low..=high).contains(&m)), "{name}: {found:?}\n{said}");
    };
    within("device.baseline_power", 0.7 * BASELINE, 1.3 * BASELINE);
    within("radio.idle_power", 0.5 * LINK, 1.5 * LINK);
    within("radio.cycle_energy", 0.5 * CYCLE, 2.5 * CYCLE);
    assert!(mean(&answer, "radio.association_time") > Some(0.0), "{said}");
    assert!(mean(&answer, "ticket.time") > Some(0.0), "{said}");
    // The ticket costs this battery nothing: that is no figure.
    let why = why_refused(&answer, "ticket.energy").with_context(|| said.clone())?;
    assert!(why.contains("steps of"), "{why}");
    assert_eq!(mean(&answer, "ticket.energy"), None);
    let profile = fs::read_to_string(&file)?;
    for name in ["radio.cycle_energy", "radio.idle_power", "ticket.time"] {
        assert!(profile.contains(name), "{name} is not in\n{profile}");
    }
    assert!(!profile.contains("ticket.energy"), "{profile}");
    scene.restored()
}

#[test]
fn a_processor_s_counter_says_nothing_of_the_radio() -> Result<()> {
    if !require("calibrating by RAPL", &NEEDS) {
        return Ok(());
    }
    let scene = Scene::new()?;
    let file = scene.world.device.dir().join("profile.toml");
    let bounded = ["--repetitions", "2", "--idle", "1", "--max-cycles", "1", "--meter", "package"];
    let answer = scene.calibrate(&file, &bounded)?;
    for name in ["radio.idle_power", "radio.cycle_energy"] {
        let why = why_refused(&answer, name).with_context(|| answer.text.clone())?;
        assert!(why.contains("processor"), "{why}");
    }
    // What it sees of the session has a name of its own, measured or not: no model takes a part for the whole.
    let energies = |list: &str| {
        let all = answer.json[list].as_array().into_iter().flatten();
        all.filter_map(|f| f["name"].as_str()).filter(|n| n.contains(".energy")).collect::<Vec<_>>()
    };
    let named = [energies("figures"), energies("refused")].concat();
    assert_eq!(named.len(), 4, "{}", answer.text);
    assert!(named.iter().all(|n| n.ends_with("_processor")), "{named:?}");
    scene.restored()
}

#[test]
fn meters_say_what_they_see() -> Result<()> {
    if !require("the meters' files", &NEEDS) {
        return Ok(());
    }
    let scene = Scene::new()?;
    let root = scene.meters.root()?;
    let meter = |more: &[&str]| scene.device.cli(&[&["meter", "--root", root], more].concat());
    let answer = meter(&[])?;
    assert_eq!(answer.code, 0, "{}", answer.text);
    assert!(answer.text.contains("used: battery BAT0"), "{}", answer.text);
    let package = answer.text.lines().find(|l| l.starts_with("package "));
    assert!(package.is_some_and(|l| l.contains("not") && l.contains("WiFi")), "{}", answer.text);
    let one = meter(&["--meter", "package"])?;
    assert!(one.code == 0 && one.text.contains("does not see the WiFi card"), "{}", one.text);

    // On mains a battery measures nothing; the processor's counter is what is left.
    scene.meters.set("sys/class/power_supply/BAT0/status", "Charging\n")?;
    let answer = meter(&["--json"])?;
    assert_eq!(answer.json.pointer("/used/source/kind"), Some(&Value::from("package")), "{}", answer.text);
    let answer = meter(&["--meter", "battery"])?;
    assert!(answer.code != 0 && answer.text.contains("harg"), "{}", answer.text);
    Ok(())
}

//! Paper 003's campaigns by the shipped programs, each on one small point: a plan that is interrupted as soon as it has begun, cut down in its
//! file, and resumed.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use dormouse_interop::ends::PATIENCE;
use dormouse_testbed::{Need, Process, binary, require};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const NEEDS: [Need; 3] = [Need::Root, Need::File("/dev/net/tun"), Need::Program("ip")];
/// A transfer, or a world of handoffs: seconds, on a busy machine more.
const LIMIT: Duration = Duration::from_secs(180);

/// A directory that goes with its owner.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("dormouse-{name}-{}-{number}", std::process::id()));
        fs::create_dir_all(&dir)?;
        Ok(Self(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn lab(dir: &Path, name: &str, arguments: &[&str]) -> Result<Process> {
    let mut command = Command::new(binary("dormouse"));
    command.args(["lab", "run", name]).args(arguments);
    Process::spawn(name, &mut command, &dir.join(format!("{name}.log")))
}

/// Raw data of one round of the points that `keep` takes, by `dormouse lab run NAME`.
fn one_round(name: &str, settings: &Value, keep: impl Fn(&Value) -> bool) -> Result<Value> {
    let scratch = Scratch::new(name)?;
    let file = scratch.0.join("raw.json");
    let path = file.to_str().context("a path")?;
    let mut whole = lab(&scratch.0, name, &["--quick", "--out", path])?;
    let until = std::time::Instant::now() + PATIENCE;
    while !file.exists() {
        if whole.ended().is_some() || std::time::Instant::now() > until {
            bail!("{name} did not begin:\n{}", whole.log());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    whole.signal(Signal::SIGINT);
    let ended = whole.wait(LIMIT).with_context(|| format!("it is not interrupted:\n{}", whole.log()))?;
    assert!(!ended.success(), "{}", whole.log());

    let mut plan: Value = serde_json::from_slice(&fs::read(&file)?)?;
    (plan["rounds"], plan["settings"]) = (1.into(), settings.clone());
    let samples = plan["samples"].as_array_mut().context("samples")?;
    samples.retain(|sample| keep(&sample["point"]));
    samples.iter_mut().for_each(|sample| sample["rounds"] = json!([]));
    fs::write(&file, plan.to_string())?;
    let mut small = lab(&scratch.0, name, &["--resume", path])?;
    let ended = small.wait(LIMIT).with_context(|| format!("it does not end:\n{}", small.log()))?;
    assert!(ended.success(), "{}", small.log());
    Ok(serde_json::from_slice(&fs::read(&file)?)?)
}

/// The first figure of this name in the only round of a sample.
fn figure(sample: &Value, name: &str) -> Result<f64> {
    let figure = sample["rounds"][0]["figures"][name][0].as_f64();
    figure.with_context(|| format!("no {name}: {sample}"))
}

#[test]
fn a_file_comes_through_zones_and_a_router_that_repairs() -> Result<()> {
    if !require("a transfer of paper 003", &NEEDS) {
        return Ok(());
    }
    let of = json!({ "line": "mml-snoop", "stack": "reno", "kbit": 512 });
    let raw = one_round("paper-003", &json!({ "bytes": 100_000 }), |point| *point == of)?;
    assert_eq!(raw["discarded"], json!([]), "{raw}");
    let [sample] = raw["samples"].as_array().context("samples")?.as_slice() else { bail!("{raw}") };
    assert!(figure(sample, "rate")? > 0.0 && figure(sample, "mean_window")? >= 2.0, "{sample}");
    // The first round at this rate has a trace.
    let figures = &sample["rounds"][0]["figures"];
    let lengths = ["at", "acked", "window"].map(|name| figures[name].as_array().map_or(0, Vec::len));
    assert!(lengths[0] > 2 && lengths.iter().all(|n| *n == lengths[0]), "{sample}");
    let acked: Vec<f64> = serde_json::from_value(figures["acked"].clone())?;
    assert!(acked.is_sorted() && acked.last() <= Some(&100_001.0), "{acked:?}");
    Ok(())
}

#[test]
fn a_file_comes_partly_in_zones() -> Result<()> {
    if !require("dynamic MML-IPsec of paper 003", &NEEDS) {
        return Ok(());
    }
    let of = json!({ "line": "dynamic", "stack": "reno", "kbit": 0, "every": 3 });
    let raw = one_round("paper-003", &json!({ "bytes": 100_000 }), |point| *point == of)?;
    assert_eq!(raw["discarded"], json!([]), "{raw}");
    let [sample] = raw["samples"].as_array().context("samples")?.as_slice() else { bail!("{raw}") };
    assert!(figure(sample, "rate")? > 0.0, "{sample}");
    // Of some eighty packets: those that the kernel hands over in one piece are taken in one piece.
    let zoned = figure(sample, "zoned")?;
    assert!((0.2..0.5).contains(&zoned), "{zoned}");
    Ok(())
}

#[test]
fn a_device_begins_and_moves_between_routers_with_keys() -> Result<()> {
    if !require("handoffs of paper 003", &NEEDS) {
        return Ok(());
    }
    let raw = one_round("paper-003-handoff", &Value::Null, |point| point["line"] == "pkd")?;
    assert_eq!(raw["discarded"], json!([]), "{raw}");
    let samples = raw["samples"].as_array().context("samples")?;
    let phases: Vec<&str> = samples.iter().filter_map(|s| s["point"]["phase"].as_str()).collect();
    assert_eq!(phases, ["initialization", "handoff"]);
    for sample in samples {
        assert!(figure(sample, "pause")? > 0.0, "{sample}");
    }
    // The keys come with the session, and are there before the device moves.
    assert!(figure(&samples[0], "keys")? > 0.0, "{samples:?}");
    assert_eq!(figure(&samples[1], "keys")?, 0.0, "{samples:?}");
    Ok(())
}

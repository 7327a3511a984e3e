//! The benchmarks of a gateway with many clients (`make bench`: `storm`, `held` and `cores`), small: that they work from end to end, every client gets its
//! session, and the raw data are whole. No time is asserted.

use std::process::Command;

use anyhow::{Context, Result};
use dormouse_testbed::{Need, binary, require};
use serde_json::Value;

#[test]
fn a_small_storm_is_measured_beside_ping_and_tcp() -> Result<()> {
    let needs = [Need::Root, Need::File("/dev/net/tun"), Need::Program("ping"), Need::Program("renice")];
    if !require("a small storm of handshakes", &needs) {
        return Ok(());
    }
    let (said, errors, raw) = quick("storm")?;
    // Met or not is a matter of the machine, that there is something to judge is not.
    let targets: Vec<&str> = said.lines().filter(|line| line.starts_with("target: ")).collect();
    assert!(targets.len() == 2 && targets.iter().all(|t| !t.ends_with("not measured")), "{said}{errors}");

    let samples = samples(&raw)?;
    assert_eq!(samples.len(), 3, "{raw}");
    for sample in samples {
        let one = |name: &str| one(sample, name);
        assert_eq!((one("sessions.up"), one("sessions.failed")), (Some(200.0), Some(0.0)), "{sample}");
        for spent in ["storm.most", "cpu.gateway", "cpu.crowd"] {
            assert!(one(spent).is_some_and(|spent| spent > 0.0), "{spent}: {sample}");
        }
        let beside: &[&str] = match sample["point"]["row"].as_str() {
            Some("storm alone") => &[],
            Some("ping beside it") => &["ping.idle", "ping.storm"],
            _ => &["rate.idle", "rate.storm"],
        };
        for name in beside {
            assert!(one(name).is_some_and(|value| value > 0.0), "{name}: {sample}");
        }
    }
    Ok(())
}

#[test]
fn held_sessions_are_measured_awake_and_asleep() -> Result<()> {
    if !require("held sessions", &[Need::Root, Need::File("/dev/net/tun"), Need::Program("ip")]) {
        return Ok(());
    }
    let (said, errors, raw) = quick("held")?;
    assert!(said.contains("kB a session") && said.contains("1100 sessions"), "{said}{errors}");
    let [sample] = samples(&raw)?.as_slice() else { panic!("{raw}") };
    assert_eq!(one(sample, "sessions.up"), Some(1_100.0), "{sample}");
    let [empty, awake, asleep] =
        ["memory.empty", "memory.awake", "memory.asleep"].map(|name| one(sample, name).unwrap_or(0.0));
    assert!(0.0 < empty && empty < awake && empty < asleep, "{sample}");
    for took in ["took.all", "took.status", "took.list", "took.start"] {
        assert!(one(sample, took).is_some_and(|took| took > 0.0), "{took}: {sample}");
    }
    Ok(())
}

#[test]
fn workers_are_measured_beside_the_cipher() -> Result<()> {
    if !require(
        "workers, each on a processor",
        &[Need::Root, Need::File("/dev/net/tun"), Need::Program("ip")],
    ) {
        return Ok(());
    }
    let (said, errors, raw) = quick("cores")?;
    let processors = raw["settings"]["processors"].as_u64().context("processors")?;
    assert_eq!(said.contains("target: packets of two workers / of one"), processors >= 2, "{said}{errors}");
    for sample in samples(&raw)? {
        assert!(one(sample, "datagrams").is_some_and(|carried| carried > 0.0), "{sample}");
    }
    Ok(())
}

/// Runs a benchmark with `--quick`: what it said, its errors, and its raw data, of which nothing was left out.
fn quick(program: &str) -> Result<(String, String, Value)> {
    let file = std::env::temp_dir().join(format!("dormouse-{program}-{}.json", std::process::id()));
    let out = Command::new(binary(program)).args(["--quick", "--out"]).arg(&file).output();
    let out = out.with_context(|| format!("running {program}, which scripts/test builds"))?;
    let raw = std::fs::read(&file);
    let _removed = std::fs::remove_file(&file);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, errors) = (text(&out.stdout), text(&out.stderr));
    assert!(out.status.success(), "{said}{errors}");
    let raw: Value = serde_json::from_slice(&raw?)?;
    assert_eq!((&raw["format"], &raw["experiment"]), (&"dormouse-results".into(), &"benchmark".into()));
    let none = Value::Array(vec![]);
    assert_eq!((&raw["skipped"], &raw["discarded"]), (&none, &none), "{errors}");
    assert!(raw["finished"].is_u64(), "{raw}");
    // The worker is in the benchmark itself.
    assert!(program == "cores" || raw["versions"]["dormoused"].is_string(), "{raw}");
    Ok((said, errors, raw))
}

/// What was measured: each row verified, in one round, and each figure with a unit.
fn samples(raw: &Value) -> Result<&Vec<Value>> {
    let samples = raw["samples"].as_array().context("samples")?;
    for sample in samples {
        assert_eq!((&sample["verified"], sample["rounds"].as_array().map(Vec::len)), (&true.into(), Some(1)));
        let figures = sample["rounds"][0]["figures"].as_object().context("figures")?;
        assert!(figures.keys().all(|name| raw["units"][name.split('.').next().unwrap_or(name)].is_string()));
    }
    Ok(samples)
}

fn one(sample: &Value, name: &str) -> Option<f64> {
    sample["rounds"][0]["figures"][name][0].as_f64()
}

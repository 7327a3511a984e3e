//! The benchmark of a storm of handshakes (`make bench`, `storm`), small: that it works from end to end, nobody of its crowd fails, and its raw
//! data are whole. No time is asserted.

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
    let file = std::env::temp_dir().join(format!("dormouse-storm-{}.json", std::process::id()));
    let out = Command::new(binary("storm")).args(["--quick", "--out"]).arg(&file).output();
    let out = out.context("running storm, which scripts/test builds")?;
    let raw = std::fs::read(&file);
    let _removed = std::fs::remove_file(&file);
    let (said, errors) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{said}{errors}");
    // Met or not is a matter of the machine, that there is something to judge is not.
    let targets: Vec<&str> = said.lines().filter(|line| line.starts_with("target: ")).collect();
    assert!(targets.len() == 2 && targets.iter().all(|t| !t.ends_with("not measured")), "{said}{errors}");

    let raw: Value = serde_json::from_slice(&raw?)?;
    assert_eq!((&raw["format"], &raw["experiment"]), (&"dormouse-results".into(), &"benchmark".into()));
    assert_eq!(
        (&raw["skipped"], &raw["discarded"]),
        (&Value::Array(vec![]), &Value::Array(vec![])),
        "{errors}"
    );
    assert!(raw["finished"].is_u64() && raw["versions"]["dormoused"].is_string(), "{raw}");
    let samples = raw["samples"].as_array().context("samples")?;
    assert_eq!(samples.len(), 3, "{raw}");
    for sample in samples {
        assert_eq!((&sample["verified"], sample["rounds"].as_array().map(Vec::len)), (&true.into(), Some(1)));
        let figures = sample["rounds"][0]["figures"].as_object().context("figures")?;
        let one = |name: &str| figures.get(name).and_then(|values| values[0].as_f64());
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
        assert!(figures.keys().all(|name| raw["units"][name.split('.').next().unwrap_or(name)].is_string()));
    }
    Ok(())
}

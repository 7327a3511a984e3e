//! `make demo-cluster` and the benchmark of gateways that share a database (`failover`), small: that they work from end to end, that the books
//! balance, and that nothing is left when they are interrupted. No time is asserted.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use dormouse_testbed::postgres::PROGRAMS;
use dormouse_testbed::{Need, Process, binary, require};
use nix::sys::signal::Signal;
use serde_json::Value;

const NEEDS: [Need; 4] = [Need::Root, Need::File("/dev/net/tun"), Need::Program("ip"), Need::File(PROGRAMS)];

fn demo(devices: &str) -> Command {
    let mut command = Command::new(binary("failover"));
    command.args(["--demo", "--devices", devices]);
    command
}

/// What stands in the line of the demo's table that begins so.
fn line(said: &str, begins: &str) -> Option<Vec<String>> {
    let line = said.lines().find_map(|line| line.strip_prefix(begins))?;
    Some(line.split_whitespace().map(str::to_owned).collect())
}

#[test]
fn a_gateway_is_pulled_out_and_the_books_balance() -> Result<()> {
    if !require("a gateway that is pulled out", &NEEDS) {
        return Ok(());
    }
    let out = demo("50").output().context("running failover, which scripts/test builds")?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
    for (begins, cells) in [
        ("sessions before, all asleep", ["17", "17", "16", "50"]),
        ("sessions after", ["gone", "26", "24", "50"]),
        ("tickets that count, one of each device", ["0", "26", "24", "50"]),
        ("sessions to let go of, once it is back", ["17", "0", "0", "17"]),
        ("the same after it came back", ["0", "0", "0", "0"]),
        ("sessions then", ["0", "26", "24", "50"]),
    ] {
        assert_eq!(line(&said, begins).as_deref(), Some(&cells.map(str::to_owned)[..]), "{begins}: {said}");
    }
    assert_eq!(line(&said, "addresses, one holder each").as_deref(), Some(&["50".to_owned()][..]), "{said}");
    assert!(said.contains("17 of the used tickets were used again") && said.contains("17 refused"), "{said}");
    assert!(said.contains("The books balance."), "{said}");
    Ok(())
}

#[test]
fn with_standbys_of_which_one_dies_and_one_takes_the_databases_place_the_books_balance() -> Result<()> {
    if !require("a database whose standby takes its place", &NEEDS) {
        return Ok(());
    }
    let out = demo("50").arg("--standbys").output().context("running failover, which scripts/test builds")?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
    for words in [
        "17 of the used tickets were used again",
        "made worthless (1 time), 67 that had not been used were shown and none was taken",
        "50 devices logged in, each came back by its new ticket",
        "The books balance.",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    Ok(())
}

#[test]
fn the_benchmark_has_every_figure() -> Result<()> {
    if !require("a small benchmark of gateways that share a database", &NEEDS) {
        return Ok(());
    }
    let file = std::env::temp_dir().join(format!("dormouse-failover-{}.json", std::process::id()));
    let out = Command::new(binary("failover")).args(["--quick", "--standbys", "--out"]).arg(&file).output();
    let raw = std::fs::read(&file);
    let _removed = std::fs::remove_file(&file);
    let out = out.context("running failover, which scripts/test builds")?;
    let said = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    let target = said.lines().find(|line| line.starts_with("target: "));
    assert!(target.is_some_and(|target| !target.ends_with("not measured")), "{said}");
    let raw: Value = serde_json::from_slice(&raw?)?;
    let [pulled, wakes, followed] = raw["samples"].as_array().context("samples")?.as_slice() else {
        panic!("{raw}")
    };
    let all = |sample: &Value, name: &str| -> Vec<f64> {
        let figures = sample["rounds"][0]["figures"][name].as_array().into_iter().flatten();
        figures.filter_map(Value::as_f64).collect()
    };
    for (name, count) in [
        ("sessions.back", 60.0),
        ("sessions.asleep", 30.0),
        ("sessions.gw2", 30.0),
        ("sessions.gw3", 30.0),
        ("refused", 60.0),
    ] {
        assert_eq!(all(pulled, name), [count], "{name}: {pulled}");
    }
    assert_eq!(all(followed, "sessions.back"), [60.0], "{followed}");
    assert!(said.contains("with standbys"), "{said}");
    for name in ["took.all", "cpu.gw2", "cpu.gw3", "cpu.crowd", "cpu.database", "transactions", "wal"] {
        assert!(
            all(pulled, name).iter().all(|n| *n > 0.0) && all(pulled, name).len() == 1,
            "{name}: {pulled}"
        );
    }
    for kind in ["own", "same", "other"] {
        assert_eq!(all(wakes, &format!("wake.{kind}")).len(), 10, "{wakes}");
    }
    // Another gateway's wake also tells the former one.
    let transactions = ["same", "other"].map(|kind| all(wakes, &format!("transactions.{kind}"))[0]);
    assert!(0.0 < transactions[0] && transactions[0] < transactions[1], "{wakes}");
    Ok(())
}

/// Namespaces and scratch directories of process `pid`.
fn left_by(pid: u32) -> Vec<String> {
    let tag = format!("dm{pid}-");
    let names = |dir: &Path, prefix: &str| -> Vec<String> {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let names = entries.filter_map(|e| e.file_name().into_string().ok());
        names.filter(|n| n.strip_prefix(prefix).is_some_and(|n| n.starts_with(&tag))).collect()
    };
    [names(Path::new("/run/netns"), ""), names(&std::env::temp_dir(), "dormouse-")].concat()
}

#[test]
fn an_interrupted_demo_leaves_nothing_behind() -> Result<()> {
    if !require("an interrupted demo", &NEEDS) {
        return Ok(());
    }
    let log = std::env::temp_dir().join(format!("dormouse-failover-{}.log", std::process::id()));
    let mut process = Process::spawn("failover", &mut demo("20000"), &log)?;
    let pid = process.pid();
    // With the database, which is made after the first namespaces.
    let made = (0..6_000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        left_by(pid).iter().any(|name| name.ends_with("-db") && name.starts_with("dormouse-"))
    });
    process.signal(Signal::SIGINT);
    let ended = process.wait(Duration::from_secs(60));
    let said = process.log();
    std::fs::remove_file(&log)?;
    assert!(made, "it had made something: {said}");
    assert_eq!(ended.and_then(|status| status.code()), Some(1), "{said}");
    assert!(said.contains("interrupted"), "{said}");
    assert_eq!(left_by(pid), Vec::<String>::new());
    Ok(())
}

//! Clients that come back at once to a real gateway, by the experiment that measures it: a small crowd of them, and one that is
//! interrupted.

use anyhow::{Context, Result};
use dormouse_testbed::{Need, Process, binary, require};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const NEEDS: [Need; 2] = [Need::Root, Need::File("/dev/net/tun")];

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

fn experiment(clients: &str) -> Command {
    let mut command = Command::new(binary("dormouse"));
    command.args(["--json", "lab", "run", "paper-000-live", "--clients", clients]);
    command
}

#[test]
fn a_small_crowd_comes_back_in_every_way() -> Result<()> {
    if !require("a small crowd", &NEEDS) {
        return Ok(());
    }
    let out = experiment("3").output().context("running dormouse")?;
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let report: Value = serde_json::from_slice(&out.stdout)?;
    let tables = report["tables"].as_array().context("tables")?;
    let table = |place: &str| {
        let found = tables.iter().find(|t| t["place"] == place).with_context(|| place.to_owned())?;
        found["rows"].as_array().cloned().context("rows")
    };
    let latencies = table("Fig. 10")?;
    assert_eq!(latencies.iter().map(|row| row[0].as_str()).collect::<Vec<_>>(), ["1", "2", "3"].map(Some));
    let packets = table("Fig. 10, to the first packet")?;
    for row in packets.iter().chain(&latencies).chain(&table("Fig. 4")?) {
        let cells = row.as_array().context("cells")?;
        assert!(cells.iter().all(|c| c.as_str().is_some_and(|c| !c.is_empty() && c != "–")), "{row}");
    }
    // Three round trips with the hybrid key exchange, two, one, one, and none: what the ways are about.
    for row in table("not in the paper")? {
        let trips = match row[1].as_str() {
            Some("full exchange") => "3.00",
            Some("ticket, RFC 5723") => "2.00",
            Some("ticket, one round trip" | "MOBIKE") => "1.00",
            _ => "0",
        };
        let repeated = row[5].as_str() != Some("0");
        assert!(repeated || row[2] == trips, "{row}");
    }
    assert_eq!(report["synthetic"], false);
    assert_eq!(report["claims"].as_array().map(Vec::len), Some(6));
    Ok(())
}

#[test]
fn an_interrupted_crowd_leaves_nothing_behind() -> Result<()> {
    if !require("an interrupted crowd", &NEEDS) {
        return Ok(());
    }
    let log = std::env::temp_dir().join(format!("dormouse-crowd-{}.log", std::process::id()));
    let mut process = Process::spawn("dormouse", &mut experiment("1000"), &log)?;
    let begun = process.wait_for("warm-up", Duration::from_secs(60));
    // It says what it begins with before the first namespace is made.
    let pid = process.pid();
    let looks = (0..6000).map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        left_by(pid)
    });
    let made = { looks }.find(|made| !made.is_empty()).unwrap_or_default();
    process.signal(Signal::SIGINT);
    let ended = process.wait(Duration::from_secs(30));
    let said = process.log();
    std::fs::remove_file(&log)?;
    begun?;
    assert!(!made.is_empty(), "it had made something");
    assert_eq!(ended.and_then(|status| status.code()), Some(1), "{said}");
    assert!(said.contains("interrupted"), "{said}");
    assert_eq!(left_by(pid), Vec::<String>::new());
    Ok(())
}

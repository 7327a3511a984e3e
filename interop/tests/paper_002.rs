//! Paper 002's campaign in its short form: every table is filled, those of the shipped daemons too.

use anyhow::{Context, Result};
use dormouse_testbed::{Need, binary, require};
use serde_json::Value;
use std::process::Command;

const NEEDS: [Need; 4] =
    [Need::Root, Need::File("/dev/net/tun"), Need::Program("tc"), Need::Program("openssl")];

#[test]
fn the_short_form_fills_every_table() -> Result<()> {
    if !require("paper 002", &NEEDS) {
        return Ok(());
    }
    let mut command = Command::new(binary("dormouse"));
    let out = command.args(["--json", "lab", "run", "paper-002", "--clients", "3"]).output()?;
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let report: Value = serde_json::from_slice(&out.stdout)?;
    for without in ["skipped", "discarded"] {
        assert_eq!(report["provenance"][without], serde_json::json!([]), "{without}");
    }
    let tables = report["tables"].as_array().context("tables")?;
    let cells = |place: &str| -> Result<Vec<Vec<String>>> {
        let found = tables.iter().find(|t| t["place"] == place).with_context(|| place.to_owned())?;
        Ok(serde_json::from_value(found["rows"].clone())?)
    };
    // Device and server spend CPU time on what passes through HIP, and on nothing else.
    let transfers = cells("TCP throughput")?;
    assert_eq!(transfers.len(), 12);
    for row in &transfers {
        assert!(row[3] != "–" && (row[5] != "–") == row[1].contains("HIP"), "{row:?}");
    }
    let daemons = cells("CPU and memory of the daemon")?;
    assert_eq!(daemons.len(), 8);
    assert!(daemons.iter().flatten().all(|cell| cell != "–"), "{daemons:?}");
    // One process with two kinds of keys, and the shipped daemon, which alone has memory of its own.
    let many = cells("Beyond the paper")?;
    assert_eq!(many.len(), 3);
    for row in &many {
        let shipped = row[0].contains("daemon");
        assert!(row[2] != "–" && row[6] != "–" && (row[4] != "–") == shipped, "{row:?}");
    }
    for row in cells("Duration of the base exchange")? {
        assert!(row.iter().all(|cell| cell != "–"), "{row:?}");
    }
    // One round says nothing of a claim.
    let claims = report["claims"].as_array().context("claims")?;
    assert!(claims.iter().all(|c| c.get("finding").is_none_or(|f| f == "not-measurable")), "{claims:?}");
    Ok(())
}

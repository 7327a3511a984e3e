//! The demo's story of HIP ends well, and says what happened.

use super::NEEDS;
use anyhow::{Context, Result};
use dormouse_testbed::{Testbed, binary, require};
use serde_json::Value;
use std::process::Command;

#[test]
fn the_demo_tells_a_transfer_that_outlives_address_family_and_daemon() -> Result<()> {
    if !require("dormouse demo --hip", &NEEDS) {
        return Ok(());
    }
    let bed = Testbed::new()?;
    let file = bed.dir().join("hip.json");
    let told = Command::new(binary("dormouse")).args(["demo", "--hip", "--json"]).arg(&file).output()?;
    let text = String::from_utf8_lossy(&told.stdout).into_owned() + &String::from_utf8_lossy(&told.stderr);
    assert!(told.status.success() && text.contains(" 0 bytes lost"), "{text}");
    let results: Value = serde_json::from_slice(&std::fs::read(&file)?)?;
    let samples = results.get("samples").and_then(Value::as_array).context("no samples")?;
    let figure = |n: usize, name: &str| {
        samples.get(n).and_then(|s| s.pointer(&format!("/rounds/0/figures/{name}/0"))).and_then(Value::as_f64)
    };
    for (step, exchanges) in [1.0, 0.0, 0.0, 0.0, 1.0].into_iter().enumerate() {
        assert_eq!(figure(step, "exchanges"), Some(exchanges), "step {step}: {results:#}");
    }
    assert!(figure(5, "tcp_bytes") > Some(1e6), "{results:#}");
    Ok(())
}

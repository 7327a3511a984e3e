//! L2TP/IPsec, the stack of paper 001: Debian's xl2tpd and pppd above our transport mode, as the experiment measures it. Where this kernel has no PPP that is
//! in a virtual machine. Which bytes are on the cable is asserted, never a time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use dormouse_interop::vm;
use dormouse_testbed::{Need, binary, require};
use serde_json::Value;

struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a program says, if it succeeds.
fn said(command: &mut Command) -> Result<String> {
    let out = command.output().with_context(|| format!("{command:?}"))?;
    let [said, problems] = [&out.stdout, &out.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    ensure!(out.status.success(), "{command:?} ended with {}:\n{said}\n{problems}", out.status);
    Ok(said.into_owned())
}

#[test]
fn l2tp_above_our_transport_mode_is_an_experiment_of_the_lab() -> Result<()> {
    let packages = vm::fetched(&["l2tp", "check"], "xl2tpd and pppd (interop/vm/l2tp fetch)");
    if !require("L2TP/IPsec", &vm::needs([packages, Need::Program("python3")])) {
        return Ok(());
    }
    let dir = Scratch(std::env::temp_dir().join(format!("dormouse-l2tp-{}", std::process::id())));
    fs::create_dir_all(&dir.0)?;
    let (raw, tree) = (dir.0.join("paper-001-l2tp.json"), Path::new(env!("CARGO_MANIFEST_DIR")));
    let lab = || {
        let mut command = Command::new(binary("dormouse"));
        command.arg("lab").env("DORMOUSE_VM", tree.join("vm"));
        command
    };
    let report = said(lab().args(["run", "paper-001-l2tp", "--quick", "--seed", "3", "--out"]).arg(&raw))?;
    let json: Value = serde_json::from_slice(&fs::read(&raw)?)?;
    let samples = json["samples"].as_array().context("samples")?;
    // Two ways are set up; three ways have three sizes, as packets and as streams.
    ensure!(samples.len() == 2 + 2 * 9 && json["skipped"] == Value::Array(Vec::new()), "{json}");
    let all = |sample: &Value| {
        sample["verified"] == true && sample["rounds"].as_array().is_some_and(|r| r.len() == 5)
    };
    ensure!(samples.iter().all(all), "a point was not measured in each round: {json}");
    let on_cable = |way: &str, bytes: u32| -> Result<f64> {
        let point = |s: &&Value| {
            s["point"]["what"] == "packet" && s["point"]["way"] == way && s["point"]["bytes"] == bytes
        };
        let sample = samples.iter().find(point).context("a packet")?;
        sample["rounds"][0]["figures"]["on_cable"][0].as_f64().context("its bytes")
    };
    for bytes in [256, 512, 1_024] {
        let [plain, ikev2, l2tp] =
            [on_cable("plain", bytes)?, on_cable("ikev2", bytes)?, on_cable("l2tp", bytes)?];
        // Ethernet, IP and UDP; in tunnel mode IP, ESP with its number, the padding to four bytes, and what proves it.
        ensure!(plain == f64::from(bytes + 14 + 20 + 8), "{bytes} bytes: {plain} in clear");
        ensure!(
            (54.0..=60.0).contains(&(ikev2 - plain)),
            "{bytes} bytes: {plain} in clear, {ikev2} by IKEv2"
        );
        ensure!((16.0..=20.0).contains(&(l2tp - ikev2)), "{bytes} bytes: {ikev2} by IKEv2, {l2tp} by L2TP");
    }
    if json["machine"]["cpu"].as_str().is_some_and(|cpu| cpu.starts_with("QEMU TCG")) {
        ensure!(report.contains("a processor emulated by software"), "{report}");
    }
    ensure!(said(lab().arg("verify").arg(&raw))?.contains("the same bytes follow"));
    let checked = said(Command::new(tree.join("../scripts/check-reproduction")).arg(&raw))?;
    ensure!(checked.contains("6 of 6 verdicts; 0 differences"), "{checked}");
    Ok(())
}

/// What is missing is named, with what would put it there; a machine with PPP lacks nothing of it.
#[test]
fn without_ppp_and_without_the_virtual_machine_it_says_what_it_needs() -> Result<()> {
    if fs::File::open("/dev/ppp").is_ok() {
        return Ok(());
    }
    let dir = Scratch(std::env::temp_dir().join(format!("dormouse-l2tp-none-{}", std::process::id())));
    fs::create_dir_all(&dir.0)?;
    // A script that finds nothing stands for each of those that look for what was fetched; no other program is on the path.
    for name in ["l2tp", "kernel"] {
        fs::write(dir.0.join(name), "#!/bin/false\n")?;
        fs::set_permissions(dir.0.join(name), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    }
    let mut command = Command::new(binary("dormouse"));
    command.args(["lab", "run", "paper-001-l2tp", "--quick"]).env("DORMOUSE_VM", &dir.0).env("PATH", &dir.0);
    let out = command.output()?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.code() == Some(7), "{}: {said}", out.status);
    for what in ["paper-001-l2tp cannot run here", "interop/vm/kernel fetch", "interop/vm/l2tp fetch"] {
        ensure!(said.contains(what), "{what}: {said}");
    }
    ensure!(
        said.contains("qemu-system-x86_64") || Path::new("/usr/sbin/qemu-system-x86_64").exists(),
        "{said}"
    );
    Ok(())
}

//! The radio in a real 802.11 stack: Debian's kernel in a virtual machine, mac80211_hwsim, hostapd and wpa_supplicant, and our own
//! daemons with the tunnel over it. The stories are `vm/radio.sh` and `vm/networkmanager.sh`; here is the verdict.

use anyhow::{Result, ensure};
use dormouse_testbed::{Need, binary, require};
use std::path::{Path, PathBuf};
use std::process::Command;

const NEEDS: [Need; 9] = [
    Need::Program("qemu-system-x86_64"),
    Need::Program("busybox"),
    Need::Program("dash"),
    Need::Program("modprobe"),
    Need::Program("cpio"),
    Need::Program("hostapd"),
    Need::Program("wpa_supplicant"),
    Need::Program("iw"),
    Need::Program("ip"),
];

fn vm() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("vm")
}

/// The kernel, if it has been fetched; where it should be otherwise.
fn kernel() -> Need {
    let there = Command::new(vm().join("kernel")).output().is_ok_and(|out| out.status.success());
    Need::File(if there { "/" } else { "the virtual machine's kernel (interop/vm/kernel fetch)" })
}

/// Runs a story and demands that it came to its end.
fn story(name: &str, programs: &[PathBuf]) -> Result<()> {
    let out = Command::new(vm().join(name)).args(programs).output()?;
    let said = String::from_utf8_lossy(&out.stdout);
    let problems = String::from_utf8_lossy(&out.stderr);
    ensure!(
        out.status.success() && said.lines().any(|l| l == "PASS"),
        "vm/{name} ended with {}:\n{said}\n{problems}",
        out.status
    );
    for line in said.lines().filter(|l| l.starts_with("ok: ")) {
        println!("{name}: {line}");
    }
    Ok(())
}

#[test]
fn a_session_outlives_the_sleep_of_a_real_radio() -> Result<()> {
    let needs: Vec<Need> = NEEDS.into_iter().chain([kernel()]).collect();
    if !require("radio in a virtual machine", &needs) {
        return Ok(());
    }
    story("radio", &[binary("dormouse"), binary("dormoused"), env!("CARGO_BIN_EXE_radio").into()])
}

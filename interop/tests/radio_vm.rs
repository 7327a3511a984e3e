//! The radio in a real 802.11 stack: Debian's kernel in a virtual machine, mac80211_hwsim, hostapd and wpa_supplicant, and our own
//! daemons with the tunnel over it; and a machine that is really suspended. The stories are `vm/radio.sh`, `vm/networkmanager.sh`
//! and `vm/suspend.sh`; here is the verdict.

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

/// What a script of `vm/` fetches, as something that a test needs.
fn fetched(script: &[&str], words: &'static str) -> Need {
    let there = script.split_first().is_some_and(|(name, arguments)| {
        Command::new(vm().join(name)).args(arguments).output().is_ok_and(|out| out.status.success())
    });
    Need::File(if there { "/" } else { words })
}

fn kernel() -> Need {
    fetched(&["kernel"], "the virtual machine's kernel (interop/vm/kernel fetch)")
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
    if !require("a real radio", &needs) {
        return Ok(());
    }
    story("radio", &[binary("dormouse"), binary("dormoused"), env!("CARGO_BIN_EXE_radio").into()])
}

#[test]
fn the_real_networkmanager_lets_go_of_a_device_and_takes_it_back() -> Result<()> {
    let manager = fetched(
        &["networkmanager", "check"],
        "the virtual machine's NetworkManager (interop/vm/networkmanager fetch)",
    );
    let needs: Vec<Need> = NEEDS.into_iter().chain([kernel(), Need::Program("dbus-send"), manager]).collect();
    if !require("the real NetworkManager", &needs) {
        return Ok(());
    }
    story("networkmanager", &[env!("CARGO_BIN_EXE_radio").into()])
}

#[test]
fn time_that_passes_while_the_machine_is_suspended_counts() -> Result<()> {
    let needs: Vec<Need> = NEEDS.into_iter().chain([kernel()]).collect();
    if !require("a suspended machine", &needs) {
        return Ok(());
    }
    story("suspend", &[binary("dormouse"), binary("dormoused")])
}

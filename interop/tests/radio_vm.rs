//! The radio in a real 802.11 stack: Debian's kernel in a virtual machine, mac80211_hwsim, hostapd and wpa_supplicant, and our own
//! daemons with the tunnel over it; and a machine that is really suspended. The stories are `vm/radio.sh`, `vm/signal.sh`,
//! `vm/networkmanager.sh` and `vm/suspend.sh`; here is the verdict.

use anyhow::Result;
use dormouse_interop::vm;
use dormouse_testbed::{Need, binary, require};
use std::path::PathBuf;

const NEEDS: [Need; 3] = [Need::Program("hostapd"), Need::Program("wpa_supplicant"), Need::Program("iw")];

#[test]
fn a_session_outlives_the_sleep_of_a_real_radio() -> Result<()> {
    if !require("a real radio", &vm::needs(NEEDS)) {
        return Ok(());
    }
    vm::story("radio", &[binary("dormouse"), binary("dormoused"), env!("CARGO_BIN_EXE_radio").into()])
}

#[test]
fn a_flow_goes_in_zones_while_a_real_signal_is_weak() -> Result<()> {
    if !require("the signal of a real radio", &vm::needs(NEEDS)) {
        return Ok(());
    }
    vm::story("signal", &[binary("dormouse"), binary("dormoused")])
}

#[test]
fn the_real_networkmanager_lets_go_of_a_device_and_takes_it_back() -> Result<()> {
    let manager = vm::fetched(
        &["networkmanager", "check"],
        "the virtual machine's NetworkManager (interop/vm/networkmanager fetch)",
    );
    let needs = vm::needs(NEEDS.into_iter().chain([Need::Program("dbus-send"), manager]));
    if !require("the real NetworkManager", &needs) {
        return Ok(());
    }
    vm::story::<PathBuf>("networkmanager", &[env!("CARGO_BIN_EXE_radio").into()])
}

#[test]
fn time_that_passes_while_the_machine_is_suspended_counts() -> Result<()> {
    if !require("a suspended machine", &vm::needs([])) {
        return Ok(());
    }
    vm::story("suspend", &[binary("dormouse"), binary("dormoused")])
}

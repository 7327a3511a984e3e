//! The real NetworkManager with our plug-in, with the rights that Debian's unit leaves it, in a virtual machine: connections up and down by `nmcli`, a
//! password asked for, several at once, routes and name servers, a move, a sleep of the machine, and what is killed. The story is
//! `vm/networkmanager-vpn.sh`; here is the verdict.

use anyhow::Result;
use dormouse_interop::vm;
use dormouse_testbed::{Need, binary, require};

#[test]
fn the_real_networkmanager_brings_connections_up_and_down() -> Result<()> {
    let manager = vm::fetched(
        &["networkmanager", "check"],
        "the virtual machine's NetworkManager (interop/vm/networkmanager fetch)",
    );
    let programs = ["setpriv", "dbus-daemon", "dbus-send"].map(Need::Program);
    if !require("NetworkManager's plug-in", &vm::needs(programs.into_iter().chain([manager]))) {
        return Ok(());
    }
    vm::story("networkmanager-vpn", &["dormouse", "dormoused", "dormouse-nm"].map(binary))
}

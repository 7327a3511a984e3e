//! Name servers of the tunnel with the real systemd-resolved, in a virtual machine. The story is `vm/resolved.sh`; here is the verdict.

use anyhow::Result;
use dormouse_interop::vm;
use dormouse_testbed::{Need, binary, require};

#[test]
fn the_real_systemd_resolved_asks_the_tunnels_name_server() -> Result<()> {
    let resolved = vm::fetched(
        &["resolved", "check"],
        "the virtual machine's systemd-resolved (interop/vm/resolved fetch)",
    );
    let needs = vm::needs([Need::Program("dbus-daemon"), Need::Program("dbus-send"), resolved]);
    if !require("the real systemd-resolved", &needs) {
        return Ok(());
    }
    vm::story("resolved", &[binary("dormouse"), binary("dormoused")])
}

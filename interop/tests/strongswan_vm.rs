//! Debian's strongSwan with ESP in the kernel, in both roles, in a virtual machine: ESP without UDP, transport mode, MOBIKE. The story
//! is `vm/strongswan.sh`; here is the verdict.

use anyhow::Result;
use dormouse_interop::vm;
use dormouse_testbed::{Need, binary, require};

#[test]
fn esp_of_the_kernel_in_tunnel_and_transport_mode_on_the_move() -> Result<()> {
    let needs = vm::needs([Need::File("/usr/lib/ipsec/charon"), Need::Program("swanctl")]);
    if !require("strongSwan with ESP in the kernel", &needs) {
        return Ok(());
    }
    vm::story("strongswan", &[binary("dormouse"), binary("dormoused")])
}

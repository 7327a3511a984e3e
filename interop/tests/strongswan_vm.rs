//! Debian's strongSwan with ESP in the kernel, in both roles, in a virtual machine: ESP without UDP, transport mode, MOBIKE; and
//! transport mode through a NAT; our own ESP lent to the kernel too. The stories are `vm/strongswan-direct.sh`, `vm/strongswan-nat.sh` and
//! `vm/strongswan-lent.sh`; here is the verdict.

use anyhow::Result;
use dormouse_interop::vm;
use dormouse_testbed::{Need, binary, require};

fn tells(story: &str) -> Result<()> {
    let programs = ["swanctl", "nft", "perl"].map(Need::Program);
    let needs = vm::needs(programs.into_iter().chain([Need::File("/usr/lib/ipsec/charon")]));
    if !require(&format!("strongSwan with ESP in the kernel, {story}"), &needs) {
        return Ok(());
    }
    vm::story("strongswan", &[story.into(), binary("dormouse"), binary("dormoused")])
}

#[test]
fn esp_of_the_kernel_in_tunnel_and_transport_mode_on_the_move() -> Result<()> {
    tells("direct")
}

#[test]
fn transport_mode_through_a_nat_in_either_role() -> Result<()> {
    tells("nat")
}

#[test]
fn our_daemon_lends_its_esp_to_the_kernel_in_either_role() -> Result<()> {
    tells("lent")
}

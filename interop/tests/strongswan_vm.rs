//! Debian's strongSwan with ESP in the kernel, in both roles, in a virtual machine: ESP without UDP, transport mode, MOBIKE; and
//! transport mode through a NAT. The stories are `vm/strongswan-direct.sh` and `vm/strongswan-nat.sh`; here is the verdict.

use anyhow::Result;
use dormouse_interop::vm;

#[test]
fn esp_of_the_kernel_in_tunnel_and_transport_mode_on_the_move() -> Result<()> {
    vm::strongswan("direct")
}

#[test]
fn transport_mode_through_a_nat_in_either_role() -> Result<()> {
    vm::strongswan("nat")
}

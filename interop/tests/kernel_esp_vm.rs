//! Our daemons with the kernel's ESP as their data path (`daemon.data_path`), between each other and with strongSwan, in a virtual machine whose kernel
//! has it; libreswan's story is in `libreswan_vm.rs`. The stories are `vm/kernel-esp-ours.sh` and `vm/strongswan-lent.sh`; here is the verdict.

use anyhow::Result;
use dormouse_interop::vm;
use dormouse_testbed::{Need, binary, require};

#[test]
fn our_device_and_our_gateway_lend_to_the_kernel_and_take_back() -> Result<()> {
    if !require("the kernel's ESP as data path", &vm::needs([Need::Program("nft")])) {
        return Ok(());
    }
    vm::story("kernel-esp", &["ours".into(), binary("dormouse"), binary("dormoused")])
}

#[test]
fn our_daemon_lends_in_either_role_with_strongswan() -> Result<()> {
    vm::strongswan("lent")
}

//! Our daemons with the kernel's ESP as their data path (`daemon.data_path`), in a virtual machine whose kernel has it. The stories are
//! `vm/kernel-esp-*.sh`; here is the verdict.

use anyhow::Result;
use dormouse_interop::vm;
use dormouse_testbed::{Need, binary, require};

fn tells(story: &str) -> Result<()> {
    if !require(&format!("the kernel's ESP as data path, {story}"), &vm::needs([Need::Program("nft")])) {
        return Ok(());
    }
    vm::story("kernel-esp", &[story.into(), binary("dormouse"), binary("dormoused")])
}

#[test]
fn our_device_and_our_gateway_lend_to_the_kernel_and_take_back() -> Result<()> {
    tells("ours")
}

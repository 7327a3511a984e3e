//! What the benchmark measures beside our own path, where the machine has it: the kernel's ESP, the kernel's WireGuard, and
//! frequency governors, which are put back. In Debian's kernel in a virtual machine: that it works is asserted, never a speed.
//! The story is `vm/bench.sh`; here is the verdict.

use anyhow::Result;
use dormouse_interop::vm;
use dormouse_testbed::{Need, binary, require};

#[test]
fn kernel_tunnels_are_measured_and_governors_put_back() -> Result<()> {
    let governors = vm::fetched(&["kernel", "governors"], "frequency governors (interop/vm/kernel fetch)");
    let needs = vm::needs([Need::Program("wg"), Need::Program("iasl"), governors]);
    if !require("the benchmark in a virtual machine", &needs) {
        return Ok(());
    }
    vm::story("bench", &[binary("dormouse")])
}

//! What the benchmark measures beside our own path, where the machine has it: the kernel's ESP, the kernel's WireGuard, and
//! frequency governors, which are put back. In Debian's kernel in a virtual machine: that it works is asserted, never a speed.
//! The stories are `vm/bench.sh` and `vm/frequencies.sh`; here is the verdict.

use anyhow::Result;
use dormouse_interop::vm;
use dormouse_testbed::{Need, binary, require};

fn tells(story: &str, more: &[&'static str]) -> Result<()> {
    let governors = vm::fetched(&["kernel", "governors"], "frequency governors (interop/vm/kernel fetch)");
    let more = more.iter().copied().map(Need::Program);
    let needs = vm::needs(more.chain([Need::Program("iasl"), governors]));
    if !require(&format!("{story} in a virtual machine"), &needs) {
        return Ok(());
    }
    vm::story(story, &[binary("dormouse")])
}

#[test]
fn kernel_tunnels_are_measured_and_governors_put_back() -> Result<()> {
    tells("bench", &["wg"])
}

/// Where frequencies slow the machine down, governors are compared: that powersave is slower is asserted, as the proof that they do. Takes minutes; what is
/// above sets the same governors without comparing them.
#[test]
#[ignore = "slow: make test-long"]
fn governors_change_the_speed_where_frequencies_are_emulated() -> Result<()> {
    tells("frequencies", &["python3"])
}

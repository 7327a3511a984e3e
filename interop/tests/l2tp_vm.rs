//! L2TP/IPsec, the stack of paper 001: Debian's xl2tpd and pppd above our transport mode, beside IKEv2's own inner address. In a virtual machine,
//! whose kernel has PPP and L2TP. The story is `vm/l2tp.sh`; here is the verdict.

use anyhow::Result;
use dormouse_interop::vm;
use dormouse_testbed::{binary, require};

#[test]
fn l2tp_runs_above_our_transport_mode() -> Result<()> {
    let needs = vm::needs([vm::fetched(&["l2tp", "check"], "xl2tpd and pppd (interop/vm/l2tp fetch)")]);
    if !require("L2TP/IPsec", &needs) {
        return Ok(());
    }
    vm::story("l2tp", &[binary("dormouse"), binary("dormoused")])
}

//! What a machine must have before anything is measured between network namespaces. Owns the question; must never leave a namespace behind.

use dormouse_testbed::{Need, Testbed};

/// What is missing here, in words; `None` if all of it is there.
pub(crate) fn missing() -> Option<String> {
    let needs = [Need::Root, Need::Program("ip"), Need::File("/dev/net/tun")];
    needs.iter().find_map(|n| n.missing()).or_else(|| {
        // A container's root may lack the right.
        let made = Testbed::new().and_then(|mut testbed| testbed.host("probe").map(drop));
        made.err().map(|error| format!("network namespaces ({error:#})"))
    })
}

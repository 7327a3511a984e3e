//! Dynamic MML-IPsec between real daemons: a flow goes partly in zones and partly whole, by the policy of each end, and none of it in clear.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Context as _, Result, ensure};
use dormouse_interop::ends::{PATIENCE, SECRET, by_secret};
use dormouse_testbed::{Access, Dormoused, Need, Roaming, SERVER, require};
use serde_json::Value;
use std::time::{Duration, Instant};

const NEEDS: [Need; 2] = [Need::Root, Need::File("/dev/net/tun")];
/// What is behind the gateway.
const NET: &str = "10.99.0.0/24";
/// One of the two CHILD SAs is in zones.
const ZONED: &str = "[connection.peer.children.zoned]\nprotection = \"zoned\"\n";

/// Packets that an end has sent and received in zones, and whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Carried {
    zoned: [u64; 2],
    whole: [u64; 2],
}

/// `session`: where its CHILD SAs stand in the status.
fn carried(end: &Dormoused, session: &str) -> Result<Carried> {
    let status = end.ok(&["status", "--json"])?;
    let children = status.json.pointer(&format!("/result/status/{session}/children"));
    let children = children.and_then(Value::as_array).with_context(|| status.text.clone())?;
    ensure!(children.len() == 2, "{}", status.text);
    let mut all = Carried::default();
    for child in children {
        let count =
            |key: &str| child.pointer(&format!("/traffic/{key}")).and_then(Value::as_u64).unwrap_or(0);
        let of = if child["zones"] == 2 { &mut all.zoned } else { &mut all.whole };
        *of = [of[0] + count("packets_out"), of[1] + count("packets_in")];
    }
    Ok(all)
}

struct Ends {
    device: Dormoused,
    gateway: Dormoused,
    world: Roaming,
}

impl Ends {
    /// `device`, `gateway`: what each sends in zones.
    fn new(device: &str, gateway: &str) -> Result<Self> {
        let world = Roaming::new(60)?;
        world.attach(Access::B)?;
        let remote = format!("remote = [\"{NET}\"]\n");
        let ours = format!("{remote}{ZONED}{remote}choose = {{ {device} }}\n");
        let local = format!("local = [\"{NET}\"]\nremote = [\"dynamic\"]\n");
        let theirs = format!(
            "{local}{ZONED}{local}choose = {{ {gateway} }}\n[connection.peer.pool]\naddresses = [\"10.55.0.0/24\"]\n"
        );
        let theirs = by_secret("gateway", "gateway.test", "*.test", SECRET, &theirs);
        let ours = by_secret("client", "device.test", "gateway.test", SECRET, &ours);
        let gateway = Dormoused::start(&world.gateway, "dns = \"off\"", &theirs)?;
        let device = Dormoused::start(&world.device, "dns = \"off\"", &ours)?;
        device.ok(&["up", "peer"])?;
        let ends = Self { device, gateway, world };
        // The second one follows the first.
        let until = Instant::now() + PATIENCE;
        while ends.carried().is_err() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
        }
        ends.carried().with_context(|| format!("{}\n{}", ends.device.log(), ends.gateway.log()))?;
        Ok(ends)
    }

    /// What device and gateway have carried.
    fn carried(&self) -> Result<[Carried; 2]> {
        Ok([carried(&self.device, "connections/0")?, carried(&self.gateway, "gateway/sessions/0")?])
    }

    /// Thirty packets there, and thirty back, by `ping` with these options; what device and gateway have carried meanwhile.
    fn ping(&self, options: &str) -> Result<[Carried; 2]> {
        let before = self.carried()?;
        let ping = format!("ping -c 30 -i 0.02 -W 5 {options} {SERVER}");
        self.world
            .device
            .sh(&ping)
            .with_context(|| format!("{}\n{}", self.device.log(), self.gateway.log()))?;
        let grown = |after: [u64; 2], before: [u64; 2]| [after[0] - before[0], after[1] - before[1]];
        let [device, gateway] = self.carried()?;
        let since = |after: Carried, before: Carried| Carried {
            zoned: grown(after.zoned, before.zoned),
            whole: grown(after.whole, before.whole),
        };
        Ok([since(device, before[0]), since(gateway, before[1])])
    }
}

#[test]
fn each_end_sends_its_share_in_zones_and_the_rest_whole() -> Result<()> {
    if !require("dynamic MML-IPsec", &NEEDS) {
        return Ok(());
    }
    let ends = Ends::new("every = 3", "dscp = [46]")?;
    let [device, gateway] = ends.ping("")?;
    assert_eq!(device, Carried { zoned: [10, 0], whole: [20, 30] }, "{gateway:?}");
    assert_eq!(gateway, Carried { zoned: [0, 10], whole: [30, 20] });
    // An application's mark, which the answers have too.
    let [device, gateway] = ends.ping("-Q 0xb8")?;
    assert_eq!((device.zoned, device.whole), ([10, 30], [20, 0]), "{gateway:?}");
    let text = ends.device.ok(&["status"])?.text;
    assert!(text.contains("2 zones, 1 packet in 3,"), "{text}");
    let text = ends.gateway.ok(&["status"])?.text;
    assert!(text.contains("packets marked 46"), "{text}");
    Ok(())
}

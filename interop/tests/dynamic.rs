//! Dynamic MML-IPsec between real daemons: a flow goes partly in zones and partly whole, by the policy of each end, and none of it in clear but what both
//! ends have said.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Context as _, Result, ensure};
use dormouse_interop::ends::{PATIENCE, SECRET, by_secret};
use dormouse_interop::witness::Witness;
use dormouse_testbed::{Access, Dormoused, GATEWAY, Need, Roaming, SERVER, require};
use serde_json::Value;
use std::time::{Duration, Instant};

const NEEDS: [Need; 2] = [Need::Root, Need::File("/dev/net/tun")];
/// What is behind the gateway.
const NET: &str = "10.99.0.0/24";
/// One of the two CHILD SAs is in zones.
const ZONED: &str = "[connection.peer.children.zoned]\nprotection = \"zoned\"\n";

/// A third CHILD SA, for packets with the mark 10, which are not encrypted.
const CLEAR: &str =
    "[connection.peer.children.clear]\nprotection = \"authenticated\"\nchoose = { dscp = [10] }\n";

/// Packets that an end has sent and received in zones, and whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Carried {
    zoned: [u64; 2],
    whole: [u64; 2],
    clear: [u64; 2],
}

/// `session`: where its CHILD SAs stand in the status.
fn carried(end: &Dormoused, session: &str) -> Result<Carried> {
    let status = end.ok(&["status", "--json"])?;
    let children = status.json.pointer(&format!("/result/status/{session}/children"));
    let children = children.and_then(Value::as_array).with_context(|| status.text.clone())?;
    ensure!(children.len() >= 2, "{}", status.text);
    let mut all = Carried::default();
    for child in children {
        let count =
            |key: &str| child.pointer(&format!("/traffic/{key}")).and_then(Value::as_u64).unwrap_or(0);
        let of = match (&child["zones"], &child["readable"]) {
            (_, Value::Bool(true)) => &mut all.clear,
            (zones, _) if *zones == 2 => &mut all.zoned,
            _ => &mut all.whole,
        };
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
        Self::with(device, gateway, [false; 2])
    }

    /// `clear`: whether the device, and the gateway, allow a CHILD SA that is not encrypted.
    fn with(device: &str, gateway: &str, clear: [bool; 2]) -> Result<Self> {
        let world = Roaming::new(60)?;
        world.attach(Access::B)?;
        let remote = format!("remote = [\"{NET}\"]\n");
        let third =
            |allowed, selectors: &str| if allowed { format!("{CLEAR}{selectors}") } else { String::new() };
        let ours = format!("{remote}{ZONED}{remote}choose = {{ {device} }}\n{}", third(clear[0], &remote));
        let local = format!("local = [\"{NET}\"]\nremote = [\"dynamic\"]\n");
        let theirs = format!(
            "{local}{ZONED}{local}choose = {{ {gateway} }}\n{}[connection.peer.pool]\naddresses = [\"10.55.0.0/24\"]\n",
            third(clear[1], &local)
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

    /// Waits until the device has so many CHILD SAs.
    fn children(&self, count: usize) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let status = self.device.ok(&["status", "--json"])?;
            let children = status.json.pointer("/result/status/connections/0/children");
            if children.and_then(Value::as_array).map(Vec::len) == Some(count) {
                return Ok(());
            }
            ensure!(Instant::now() < until, "{count} were awaited: {}\n{}", status.text, self.device.log());
            std::thread::sleep(Duration::from_millis(50));
        }
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
            clear: grown(after.clear, before.clear),
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
    assert_eq!(device, Carried { zoned: [10, 0], whole: [20, 30], clear: [0; 2] }, "{gateway:?}");
    assert_eq!(gateway, Carried { zoned: [0, 10], whole: [30, 20], clear: [0; 2] });
    // An application's mark, which the answers have too.
    let [device, gateway] = ends.ping("-Q 0xb8")?;
    assert_eq!((device.zoned, device.whole), ([10, 30], [20, 0]), "{gateway:?}");
    let text = ends.device.ok(&["status"])?.text;
    assert!(text.contains("2 zones, 1 packet in 3,"), "{text}");
    let text = ends.gateway.ok(&["status"])?.text;
    assert!(text.contains("packets marked 46"), "{text}");
    Ok(())
}

/// What the witness looks for: sixteen bytes that are in each packet of `ping -p`.
const PATTERN: &[u8] = b"<read on the way";

/// Thirty pings with a mark and [`PATTERN`], and whether it was seen between device and gateway.
fn read_on_the_way(ends: &Ends, witness: &Witness, mark: u8) -> Result<([Carried; 2], bool)> {
    let hex: String = PATTERN.iter().map(|byte| format!("{byte:02x}")).collect();
    let carried = ends.ping(&format!("-Q {} -p {hex}", mark << 2))?;
    let seen = witness.had_seen(&ends.world.device, GATEWAY, PATTERN)?;
    Ok((carried, seen))
}

#[test]
fn packets_go_in_clear_if_both_ends_say_so_and_only_those_that_were_chosen() -> Result<()> {
    if !require("packets that are not encrypted", &NEEDS) {
        return Ok(());
    }
    for (clear, mark) in [([true, true], 10), ([true, true], 0), ([true, false], 10), ([false, true], 10)] {
        let ends = Ends::with("dscp = [46]", "dscp = [46]", clear)?;
        let both = clear == [true, true];
        ends.children(2 + usize::from(both))?;
        let witness = Witness::new(&ends.world.router_b, "lan")?;
        let (carried, seen) = read_on_the_way(&ends, &witness, mark)?;
        let chosen = both && mark == 10;
        let each = if chosen { ([0; 2], [30; 2]) } else { ([30; 2], [0; 2]) };
        for end in carried {
            assert_eq!((end.whole, end.clear), each, "{clear:?} {mark}");
        }
        assert_eq!(seen, chosen, "{clear:?} {mark}");
        let text = ends.device.ok(&["status"])?.text;
        assert_eq!(text.contains("aes128gmac, tunnel, not encrypted, packets marked 10,"), both, "{text}");
    }
    Ok(())
}

//! A radio between two namespaces, with the kernel's TCP over it: its rate beside the kernel's own shaper, and what the repair is worth.

use anyhow::Result;
use dormouse_netem::LinkConfig;
use dormouse_snoop::Repair;
use dormouse_testbed::radio::{ADDRESSES, Radio, Settings, transfer};
use dormouse_testbed::{Need, Testbed, require};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

const NEEDS: [Need; 3] = [Need::Root, Need::Program("ip"), Need::File("/dev/net/tun")];
const LIMIT: Duration = Duration::from_secs(60);

fn fixed() -> IpAddr {
    ADDRESSES[0][0].parse().expect("an address")
}

/// Both at once, so that what else the machine does hits both.
fn beside_tbf(rate: u64, bytes: u64) -> Result<f64> {
    let mut bed = Testbed::new()?;
    let (a, b) = (bed.host("a")?, bed.host("b")?);
    bed.link((&a, "eth0", &["10.78.0.1/24"]), (&b, "eth0", &["10.78.0.2/24"]))?;
    // Packet by packet, as over a radio; a bucket for little more than one.
    a.sh("ethtool -K eth0 tso off gso off >/dev/null 2>&1 || ip link set dev eth0 gso_max_segs 1")?;
    a.sh(&format!("tc qdisc add dev eth0 root tbf rate {rate}bit burst 1600 limit 75000"))?;
    let (c, d) = (bed.host("c")?, bed.host("d")?);
    // The kernel counts the Ethernet header too.
    let radio = LinkConfig { rate: Some(rate), queue: 75_000, overhead: 14, ..LinkConfig::default() };
    let _radio = Radio::start(Settings { radio, ..Settings::default() }, &c, &d)?;
    let never = Arc::default();
    let theirs = std::thread::spawn({
        let never = Arc::clone(&never);
        move || transfer(&a, &b, [10, 78, 0, 1].into(), "reno", bytes, LIMIT, &never)
    });
    let ours = transfer(&c, &d, fixed(), "reno", bytes, LIMIT, &never)?;
    let theirs = theirs.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
    Ok(ours.rate() / theirs.rate())
}

#[test]
fn the_rate_is_that_of_the_kernels_shaper() -> Result<()> {
    let needs = [&NEEDS[..], &[Need::Program("tc")]].concat();
    if !require("the rate of a radio", &needs) {
        return Ok(());
    }
    // A busy machine can spoil one run, not make a wrong rate right.
    let ratios: Vec<f64> = (0..3).map(|_| beside_tbf(4_000_000, 1_500_000)).collect::<Result<_>>()?;
    assert!(ratios.iter().any(|ratio| (0.97..1.03).contains(ratio)), "{ratios:?} of the kernel's");
    Ok(())
}

#[test]
fn a_repaired_radio_loses_packets_and_the_sender_does_not_notice() -> Result<()> {
    if !require("repair of a radio", &NEEDS) {
        return Ok(());
    }
    let (mut loss, mut again) = (Vec::new(), Vec::new());
    for repair in [Repair::None, Repair::Snoop(Box::default())] {
        let mut bed = Testbed::new()?;
        let (fixed_host, device) = (bed.host("fixed")?, bed.host("device")?);
        let radio = LinkConfig {
            rate: Some(20_000_000),
            delay: Duration::from_millis(2),
            queue: 200_000,
            bit_error_rate: 1.0 / 262_144.0,
            ..LinkConfig::default()
        };
        let settings =
            Settings { wire_delay: Duration::from_millis(8), radio, seed: 7, repair, restore: None };
        let radio = Radio::start(settings, &fixed_host, &device)?;
        transfer(&fixed_host, &device, fixed(), "cubic", 2_000_000, LIMIT, &Arc::default())?;
        let counters = fixed_host.sh("cat /proc/net/snmp")?;
        let mut lines = counters.lines().filter(|l| l.starts_with("Tcp:")).map(str::split_whitespace);
        let (heads, values) = lines.next().zip(lines.next()).expect("counters of TCP");
        let found = heads.zip(values).find(|(head, _)| *head == "RetransSegs");
        again.push(found.and_then(|(_, value)| value.parse::<u64>().ok()).expect("a counter"));
        loss.push(radio.stop()?.stats()[0].corrupted);
    }
    // 1,380 packets, of which one in 22 breaks: 60 each.
    assert!(loss.iter().all(|n| *n > 30), "{loss:?} packets broken");
    assert!(again[0] >= loss[0] / 2, "{again:?}: without repair the sender sends again what was broken");
    assert!(again[1] < loss[1] / 4, "{again:?}: of {loss:?} broken the sender saw few");
    Ok(())
}

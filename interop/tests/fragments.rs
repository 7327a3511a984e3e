//! A peer that knows no IKE fragmentation: its certificates and ours make IKE_AUTH larger than the path's MTU, and IP must fragment it, on the
//! sender's own link and on one in between.

use anyhow::{Context, Result};
use dormouse_interop::scenario::{Auth, Running, Scenario};
use dormouse_interop::strongswan::skip;
use dormouse_testbed::{Access, GATEWAY, GATEWAY_V6, Host, Key};

fn scenario(outer: &'static str) -> Scenario {
    Scenario {
        auth: Auth::Certificates(Key::Rsa(3072)),
        theirs: "fragmentation = no".into(),
        outer,
        ..Scenario::default()
    }
}

/// The device's access network carries no packet that is larger.
fn narrow(running: &Running, mtu: u16) -> Result<()> {
    running.world.device.ip(&format!("link set dev wlan0 mtu {mtu}"))?;
    running.world.router_a.ip(&format!("link set dev lan mtu {mtu}"))
}

/// Datagrams that a host has put together out of fragments, of the gateway's family.
fn reassembled(host: &Host, outer: &str) -> Result<u64> {
    if outer == GATEWAY_V6 {
        let text = host.sh("cat /proc/net/snmp6")?;
        let value = text.lines().find_map(|l| l.strip_prefix("Ip6ReasmOKs")).context("not counted")?;
        return Ok(value.trim().parse()?);
    }
    let text = host.sh("cat /proc/net/snmp")?;
    let mut lines = text.lines().filter(|l| l.starts_with("Ip:")).map(str::split_whitespace);
    let (names, values) = (lines.next().context("no names")?, lines.next().context("no values")?);
    let value = names.zip(values).find(|(name, _)| *name == "ReasmOKs").context("not counted")?.1;
    Ok(value.parse()?)
}

#[test]
fn a_device_reaches_a_gateway_that_fragments_nothing_itself() -> Result<()> {
    if skip("a device with a gateway without IKE fragmentation") {
        return Ok(());
    }
    // IPv6 has no links below 1,280 bytes.
    for (outer, mtu) in [(GATEWAY, 1280), (GATEWAY, 1000), (GATEWAY_V6, 1280)] {
        let mut running = scenario(outer).device(Access::A)?;
        narrow(&running, mtu)?;
        running.up()?;
        running.data_flows()?;
        let cut = |host| reassembled(host, outer);
        assert!(cut(&running.world.gateway)? > 0, "our IKE_AUTH came in fragments to {outer}, MTU {mtu}");
        assert!(cut(&running.world.device)? > 0, "and so did the answer");
    }
    Ok(())
}

#[test]
fn a_gateway_is_reached_by_a_device_that_fragments_nothing_itself() -> Result<()> {
    if skip("a gateway with a device without IKE fragmentation") {
        return Ok(());
    }
    // A router on the way cuts our answer; of IPv6 it says that it is too big, and we cut what is repeated.
    for outer in [GATEWAY, GATEWAY_V6] {
        let mut running = scenario(outer).gateway(Access::A)?;
        narrow(&running, 1280)?;
        running.initiate()?;
        running.data_flows()?;
        assert!(reassembled(&running.world.device, outer)? > 0, "our answer from {outer} came in fragments");
    }
    Ok(())
}

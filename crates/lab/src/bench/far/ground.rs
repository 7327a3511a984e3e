//! The network that a machine brings along, looked at before anything is made in it. Owns the prefix and the device of the
//! tunnel between two machines; must never change anything.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// Of the addresses set aside for benchmarks (RFC 2544, section C.2.2): no network has them.
pub(super) const PREFIX: &str = "198.18.88.0/30";
/// The device's and the far machine's address in the tunnel.
pub(super) const INNER: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 88, 1), Ipv4Addr::new(198, 18, 88, 2)];
/// The tunnel's device.
pub(super) const TUN: &str = "dmbench0";
/// What the forwarder takes the link to carry.
const LINK_MTU: u32 = 1_500;

/// Runs `ip` and returns what it says.
///
/// # Errors
/// If it refuses.
pub(super) fn ip(args: &str) -> Result<String> {
    let out = Command::new("ip").args(args.split_whitespace()).output().context("running ip")?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    ensure!(out.status.success(), "ip {args}: {}", text(&out.stderr));
    Ok(text(&out.stdout))
}

/// Whether the link to `peer` is one that can be measured.
///
/// # Errors
/// If there is no way there, it does not leave this machine, or it carries less than an Ethernet.
pub(super) fn check_link(peer: IpAddr) -> Result<()> {
    let route = ip(&format!("-o route get {peer}"))?;
    let way = way(&route).with_context(|| format!("no route to {peer}"))?;
    ensure!(!way.local, "{peer} is this machine: two of them are needed");
    let mtu = match way.mtu {
        Some(mtu) => mtu,
        None => after(&ip(&format!("-o link show dev {}", way.device))?, "mtu")
            .and_then(|m| m.parse().ok())
            .with_context(|| format!("{} has no MTU", way.device))?,
    };
    ensure!(mtu >= LINK_MTU, "{} carries {mtu} bytes to {peer}: expected at least {LINK_MTU}", way.device);
    Ok(())
}

#[derive(PartialEq, Eq, Debug)]
struct Way {
    local: bool,
    device: String,
    mtu: Option<u32>,
}

/// What `ip route get` says.
fn way(route: &str) -> Option<Way> {
    let device = after(route, "dev")?.to_owned();
    let mtu = after(route, "mtu").and_then(|m| m.parse().ok());
    Some(Way { local: route.starts_with("local ") || device == "lo", device, mtu })
}

/// The word after this one.
fn after<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let mut words = text.split_whitespace().skip_while(|w| *w != word);
    words.nth(1)
}

/// Whether prefix and device of the tunnel are free.
///
/// # Errors
/// If they are not, with who has them.
pub(super) fn check_prefix() -> Result<()> {
    let devices = ip("-o link show")?;
    let name = |line: &str| line.split([':', '@']).nth(1).map(|name| name.trim() == TUN);
    ensure!(
        !devices.lines().any(|line| name(line) == Some(true)),
        "there is an interface {TUN} here already"
    );
    let has = ip(&format!("-4 -o addr show to {PREFIX}"))?;
    ensure!(has.is_empty(), "{PREFIX} is needed for the tunnel and in use here: {has}");
    let within = ip(&format!("-4 route show table all root {PREFIX}"))?;
    let around = ip(&format!("-4 route show table all match {PREFIX}"))?;
    if let Some(route) = within.lines().chain(around.lines()).find(|route| claims(route)) {
        bail!("{PREFIX} is needed for the tunnel and routed here: {}", route.trim());
    }
    Ok(())
}

/// Whether a route is meant for these addresses, and not for half of the world.
fn claims(route: &str) -> bool {
    const KINDS: [&str; 7] =
        ["unicast", "local", "broadcast", "unreachable", "blackhole", "prohibit", "throw"];
    let Some(to) = route.split_whitespace().find(|word| !KINDS.contains(word)) else { return false };
    let length = to.split_once('/').map_or(32, |(_, length)| length.parse().unwrap_or(32));
    to != "default" && length >= 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_says_which_way_it_goes() {
        let far = way("192.0.2.2 dev eth0 src 192.0.2.1 uid 0 \\    cache mtu 1400").unwrap();
        assert_eq!(far, Way { local: false, device: "eth0".into(), mtu: Some(1_400) });
        assert!(way("local 192.0.2.1 dev lo src 192.0.2.1 uid 0").unwrap().local);
        assert_eq!(way("unreachable 192.0.2.1"), None);
    }

    #[test]
    fn a_network_of_that_name_is_in_the_way_and_the_way_to_everywhere_is_not() {
        for route in
            ["default via 10.0.0.1 dev eth0", "128.0.0.0/1 dev tun0", "unreachable default metric 9", ""]
        {
            assert!(!claims(route), "{route}");
        }
        for route in
            ["198.18.0.0/15 dev lab", "198.18.88.2 dev x", "local 198.18.88.1 dev y", "blackhole 198.0.0.0/8"]
        {
            assert!(claims(route), "{route}");
        }
    }
}

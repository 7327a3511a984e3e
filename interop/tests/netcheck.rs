//! `dormouse netcheck` in networks that are open, closed and odd, as a user without privileges: what nftables does on the way is what it must say.

use anyhow::{Context, Result, ensure};
use dormouse_interop::ends::{POOL, SECRET, by_secret, rewrite};
use dormouse_interop::strongswan::{StrongSwan, skip};
use dormouse_testbed::{Access, Dormoused, GATEWAY, GATEWAY_V6, Host, Need, Roaming, binary, require};
use serde_json::Value;
use std::path::PathBuf;

const NEEDS: [Need; 4] =
    [Need::Root, Need::File("/dev/net/tun"), Need::Program("nft"), Need::Program("setpriv")];
/// The gateway, in both families.
const NAME: &str = "vpn.netcheck.test";
/// What router B's NAT makes of the device's address.
const OUTSIDE: &str = "198.51.100.6";

struct Net {
    world: Roaming,
    /// `None`: another program's.
    gateway: Option<Dormoused>,
    /// Where others may run it too.
    program: PathBuf,
}

/// What it said.
struct Said {
    code: i32,
    json: Value,
}

impl Said {
    /// Outcome and words of a check.
    fn check(&self, name: &str) -> Result<(String, String)> {
        let checks = self.json.get("checks").and_then(Value::as_array).context("no checks")?;
        let of =
            |check: &Value, key: &str| check.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let found = checks.iter().find(|check| of(check, "name") == name);
        let found = found.with_context(|| format!("{name}: {:#}", self.json))?;
        Ok((of(found, "outcome"), of(found, "found")))
    }

    fn demand(&self, name: &str, outcome: &str, words: &str) -> Result<()> {
        let found = self.check(name)?;
        ensure!(
            found.0 == outcome && found.1.contains(words),
            "{name}: not {outcome} '{words}': {:#}",
            self.json
        );
        Ok(())
    }
}

impl Net {
    fn new(name: &str) -> Result<Self> {
        let mut net = Self::without_gateway(name)?;
        let gateway = by_secret("gateway", "gateway.test", "*.test", SECRET, POOL);
        net.gateway = Some(Dormoused::start(&net.world.gateway, "dns = \"off\"", &gateway)?);
        Ok(net)
    }

    fn without_gateway(name: &str) -> Result<Self> {
        let world = Roaming::new(60)?;
        world.device.etc("hosts", &format!("{GATEWAY} {NAME}\n{GATEWAY_V6} {NAME}\n"))?;
        let program = std::env::temp_dir().join(format!("dormouse-netcheck-{name}-{}", std::process::id()));
        std::fs::copy(binary("dormouse"), &program)?;
        Ok(Self { world, gateway: None, program })
    }

    /// Asks as nobody.
    fn ask(&self, arguments: &str) -> Result<Said> {
        let mut command = self.world.device.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&self.program);
        let out = command.args(["netcheck", "--json"]).args(arguments.split_whitespace()).output()?;
        let text = String::from_utf8_lossy(&out.stdout);
        let json = serde_json::from_str(&text)
            .with_context(|| format!("{text}{}", String::from_utf8_lossy(&out.stderr)))?;
        Ok(Said { code: out.status.code().unwrap_or(-1), json })
    }

    fn named(&self) -> Result<Said> {
        self.ask(&format!("--gateway {NAME}"))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.program);
    }
}

/// Puts rules of forwarding into a router, in the place of those before.
fn rules(router: &Host, rules: &str) -> Result<()> {
    router.nft(&format!(
        "table inet way\ndelete table inet way\ntable inet way {{\n  chain forward {{\n    type filter hook forward priority 0;\n{rules}\n  }}\n}}\n"
    ))
}

#[test]
fn what_the_network_does_is_what_is_said() -> Result<()> {
    if !require("netcheck", &NEEDS) {
        return Ok(());
    }
    let net = Net::new("open")?;
    let router = &net.world.router_a;
    net.world.attach(Access::A)?;
    let families = ["IPv4", "IPv6"];
    let ports = ["UDP 500", "UDP 4500"];

    // Open, in both families.
    let said = net.named()?;
    let gateway = net.gateway.as_ref().context("a gateway")?;
    assert_eq!(said.code, 0, "{:#}\n{}", said.json, gateway.log());
    for (family, own) in families.into_iter().zip(["10.1.0.2", "fd0a::2"]) {
        said.demand(&format!("{family} way"), "ok", &format!("from {own} by wlan0"))?;
        for port in ports {
            said.demand(&format!("{family} {port}"), "ok", "answers after")?;
        }
        said.demand(&format!("{family} NAT"), "ok", &format!("none: the gateway sees {own}"))?;
        said.demand(
            &format!("{family} path MTU"),
            "ok",
            "1500 bytes towards the gateway: all that the interface takes",
        )?;
    }
    said.demand("gateway", "ok", &format!("reachable at {GATEWAY} and {GATEWAY_V6}"))?;
    let sessions = gateway.ok(&["status", "--json"])?.text;
    ensure!(!sessions.contains("\"peer\""), "no session comes of it: {sessions}");

    // One port is dropped; all of UDP is; something says that it may not.
    rules(router, "    udp dport 500 drop")?;
    let said = net.named()?;
    assert_eq!(said.code, 1);
    for family in families {
        said.demand(&format!("{family} UDP 500"), "failure", "this port is dropped on the way")?;
        said.demand(&format!("{family} UDP 4500"), "ok", "answers after")?;
    }
    said.demand("gateway", "failure", "only one of its two ports")?;
    rules(router, "    meta l4proto udp drop")?;
    let said = net.named()?;
    assert_eq!(said.code, 1);
    said.demand("IPv6 UDP 4500", "failure", "no answer, and no word why")?;
    said.demand("gateway", "failure", "UDP is blocked: its machine answers TCP")?;
    rules(router, "    ip daddr 203.0.113.1 drop\n    ip6 daddr 2001:db8:3::1 drop")?;
    net.named()?.demand("gateway", "failure", "nothing comes back, neither by UDP nor by TCP")?;
    rules(router, "    meta l4proto udp reject with icmpx port-unreachable")?;
    let said = net.named()?;
    assert_eq!(said.code, 1);
    for family in families {
        said.demand(&format!("{family} UDP 500"), "failure", "rejected by ICMP: no service listens there")?;
    }
    said.demand("gateway", "failure", "not reachable: rejected")?;
    rules(router, "    meta l4proto udp reject with icmpx admin-prohibited")?;
    let said = net.named()?;
    said.demand("IPv4 UDP 500", "failure", "rejected by ICMP: a router cannot or will not")?;
    said.demand("IPv6 UDP 500", "failure", "rejected by ICMP: something on the way forbids it")?;

    // One family is closed: the other one is enough.
    rules(router, "    meta nfproto ipv6 meta l4proto udp drop")?;
    let said = net.named()?;
    assert_eq!(said.code, 0, "{:#}", said.json);
    said.demand("IPv6 UDP 500", "warning", "no answer")?;
    said.demand("gateway", "ok", &format!("reachable at {GATEWAY}"))?;
    rules(router, "")?;

    // A narrow link, whose router says so, and one that nobody speaks of.
    router.ip("link set dev uplink mtu 1400")?;
    net.world.core.ip("link set dev to-a mtu 1400")?;
    let said = net.named()?;
    for family in families {
        said.demand(
            &format!("{family} path MTU"),
            "ok",
            "1400 bytes towards the gateway: answered, and larger ones refused",
        )?;
    }
    router.nft(
        "table inet quiet {\n  chain output {\n    type filter hook output priority 0;\n    icmp type destination-unreachable drop\n    \
         icmpv6 type packet-too-big drop\n  }\n}\n",
    )?;
    let said = net.named()?;
    assert_eq!(said.code, 0, "{:#}", said.json);
    for (i, family) in families.into_iter().enumerate() {
        said.demand(&format!("{family} path MTU"), "warning", "larger ones vanish without a word")?;
        let bytes = said
            .json
            .pointer(&format!("/families/{i}/mtu/bytes"))
            .and_then(Value::as_u64)
            .context("no size")?;
        ensure!((1390..=1400).contains(&bytes), "{bytes}: {:#}", said.json);
    }
    Ok(())
}

#[test]
fn a_nat_is_seen_as_what_it_is_and_a_network_without_ipv6_too() -> Result<()> {
    if !require("netcheck behind a NAT", &NEEDS) {
        return Ok(());
    }
    let net = Net::new("nat")?;
    net.world.attach(Access::B)?;
    let said = net.named()?;
    assert_eq!(said.code, 0, "{:#}", said.json);
    said.demand("IPv6 way", "skipped", &format!("none from here to {GATEWAY_V6}"))?;
    said.demand("IPv4 NAT", "ok", "our address 192.168.7.2 is translated to what, the gateway alone knows")?;
    let known = format!("--gateway {NAME} --seen-as {OUTSIDE}");
    let said = net.ask(&known)?;
    said.demand("IPv4 NAT", "ok", &format!("translated to {OUTSIDE}:"))?;
    said.demand("IPv4 NAT", "ok", "the same for both ports of the gateway")?;
    // Of a prefix, too; and an address that it is not.
    net.ask(&format!("--gateway {NAME} --seen-as 198.51.100.0/24"))?.demand(
        "IPv4 NAT",
        "ok",
        "the same for both ports",
    )?;
    net.ask(&format!("--gateway {NAME} --seen-as 192.0.2.1"))?.demand(
        "IPv4 NAT",
        "ok",
        "the gateway alone knows",
    )?;
    // A NAT that chooses a port for each destination.
    net.world.router_b.nft(
        "table ip symmetric {\n  chain post {\n    type nat hook postrouting priority 90;\n    oifname \"uplink\" masquerade random\n  }\n}\n",
    )?;
    net.ask(&known)?.demand("IPv4 NAT", "ok", "a NAT that makes a mapping for each")?;
    Ok(())
}

/// Another program's gateway says the same.
#[test]
fn strongswan_answers_too() -> Result<()> {
    if !require("netcheck of strongSwan", &NEEDS) || skip("netcheck of strongSwan") {
        return Ok(());
    }
    let net = Net::without_gateway("strongswan")?;
    net.world.attach(Access::B)?;
    let conf = "connections {\n  any {\n    version = 2\n    local {\n      auth = psk\n    }\n    remote {\n      auth = psk\n    }\n    children {\n      net {\n      }\n    }\n  }\n}\n";
    let theirs = StrongSwan::start(&net.world.gateway, None, conf, &[], "")?;
    let said = net.ask(&format!("--gateway {GATEWAY} --seen-as {OUTSIDE}"))?;
    assert_eq!(said.code, 0, "{:#}\n{}", said.json, theirs.log_tail());
    for port in ["UDP 500", "UDP 4500"] {
        said.demand(&format!("IPv4 {port}"), "ok", "answers after")?;
    }
    said.demand("IPv4 NAT", "ok", "the same for both ports of the gateway")?;
    said.demand(
        "IPv4 path MTU",
        "ok",
        "1500 bytes towards the gateway: all that the interface takes was answered",
    )?;
    Ok(())
}

/// Outside of the tunnel, which carries everything, and without harm to its session.
#[test]
fn a_daemon_with_a_full_tunnel_is_left_alone() -> Result<()> {
    if !require("netcheck beside a daemon", &NEEDS) {
        return Ok(());
    }
    let net = Net::new("daemon")?;
    net.world.attach(Access::A)?;
    let all = "remote = [\"0.0.0.0/0\", \"::/0\"]";
    let device = by_secret("client", "device.test", "gateway.test", SECRET, all);
    let device = Dormoused::start(&net.world.device, "dns = \"off\"", &device)?;
    device.ok(&["up", "peer"])?;
    device.ok(&["wait", "peer", "--timeout", "40"])?;
    // The daemon holds what others would send beside the tunnel.
    let said = net.named()?;
    assert_eq!(said.code, 1);
    for family in ["IPv4", "IPv6"] {
        said.demand(&format!("{family} UDP 500"), "skipped", "this machine did not let it out")?;
    }
    said.demand("gateway", "failure", "could not be asked")?;
    // As root; and by the name of its connection.
    let answer = device.cli(&["netcheck", "--json", "--gateway", NAME])?;
    let said = Said { code: answer.code, json: answer.json };
    assert_eq!(said.code, 0, "{:#}", said.json);
    for (family, own) in [("IPv4", "10.1.0.2"), ("IPv6", "fd0a::2")] {
        said.demand(&format!("{family} NAT"), "ok", &format!("none: the gateway sees {own}"))?;
    }
    let config = net.world.device.dir().join("dormouse.toml").display().to_string();
    let answer = device.cli(&["netcheck", "peer", "--config", &config])?;
    ensure!(answer.code == 0 && answer.text.contains("reachable at 203.0.113.1"), "{}", answer.text);
    // Nothing is held: then anybody may ask, and goes around the tunnel.
    let open = "remote = [\"0.0.0.0/0\", \"::/0\"]";
    let text = by_secret("client", "device.test", "gateway.test", SECRET, open);
    rewrite(&net.world.device, &text.replace("role = \"client\"", "role = \"client\"\nblock = \"off\""))?;
    device.ok(&["reload"])?;
    let said = net.named()?;
    assert_eq!(said.code, 0, "{:#}", said.json);
    said.demand("IPv4 NAT", "ok", "none: the gateway sees 10.1.0.2")?;
    said.demand("IPv6 NAT", "ok", "none: the gateway sees fd0a::2")?;
    let unknown = device.cli(&["netcheck", "other", "--config", &config])?;
    ensure!(unknown.code == 2 && unknown.text.contains("no client connection \"other\""), "{}", unknown.text);
    device.ok(&["wait", "peer", "--timeout", "1"])?;
    ensure!(!device.log().contains("deleted by the peer"), "{}", device.log());
    Ok(())
}

//! Debian's BIRD at two gateways, with the lines that docs/cluster.md gives, and at a router of the network behind them: the router learns by which
//! gateway a device is reached, in both families, and nobody changes anything by hand when that changes.

use anyhow::{Context, Result, ensure};
use dormouse_interop::cluster::{DEVICE, Ground, NEEDS, OUTER, Scene, names};
use dormouse_interop::ends::{PATIENCE, inner, rung};
use dormouse_testbed::{Extra, Host, Need, Process, require};
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

const BIRD: &str = "/usr/sbin/bird";
/// The gateways and the router in their common network.
const IN_LAN: [&str; 2] = ["10.96.0.1", "10.96.0.2"];
/// A host behind the router.
const INSIDE: [&str; 2] = ["10.90.0.2", "fd90::2"];
/// What the router runs.
const ROUTER: &str = r#"
router id 192.0.2.254;
protocol device {}
protocol kernel { ipv4 { import none; export all; }; }
protocol kernel { ipv6 { import none; export all; }; }
protocol ospf v2 { ipv4 { import all; export none; }; area 0 { interface "eth1" { wait 3; }; }; }
protocol ospf v3 { ipv6 { import all; export none; }; area 0 { interface "eth1" { wait 3; }; }; }
"#;

/// BIRD's lines in the page, for a gateway with this number as its id.
fn of_the_page(id: &str) -> Result<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cluster.md");
    let page = fs::read_to_string(page)?;
    let (_, rest) = page.split_once("\nBIRD 2").context("no BIRD in the page")?;
    let lines = rest.split("```").nth(1).context("no lines for BIRD")?;
    ensure!(lines.contains("router id 192.0.2.1;"), "{lines}");
    Ok(lines.replace("router id 192.0.2.1;", &format!("router id {id};")))
}

fn bird(host: &Host, lines: &str) -> Result<Process> {
    let file = host.dir().join("bird.conf");
    fs::write(&file, lines)?;
    let (file, socket) = (file.display().to_string(), host.dir().join("bird.ctl").display().to_string());
    host.spawn("bird", BIRD, &["-f", "-c", &file, "-s", &socket])
}

/// The gateways' `eth1` and the router's are in one network, and a host is behind the router.
fn lan(ground: &mut Ground) -> Result<(Host, Host)> {
    let bed = &mut ground.world.bed;
    let (switch, router, inside) = (bed.host("switch")?, bed.host("router")?, bed.host("inside")?);
    switch.ip("link add br0 type bridge mcast_snooping 0")?;
    switch.ip("link set br0 up")?;
    let gateways = ground.hosts.iter().zip(IN_LAN).enumerate();
    let ends = gateways.map(|(n, (host, v4))| (host, format!("{v4}/24"), format!("fd96::{}/64", n + 1)));
    let ends = ends.chain([(&router, "10.96.0.254/24".to_owned(), "fd96::254/64".to_owned())]);
    for (n, (host, v4, v6)) in ends.enumerate() {
        let port = format!("port{n}");
        bed.link((host, "eth1", &[&v4, &v6]), (&switch, &port, &[]))?;
        switch.ip(&format!("link set {port} master br0"))?;
    }
    bed.link(
        (&router, "eth2", &["10.90.0.1/24", "fd90::1/64"]),
        (&inside, "eth0", &["10.90.0.2/24", "fd90::2/64"]),
    )?;
    for host in ground.hosts.iter().chain([&router]) {
        host.sysctl("net.ipv4.ip_forward", "1")?;
        host.sysctl("net.ipv6.conf.all.forwarding", "1")?;
    }
    for host in &ground.hosts {
        host.ip("route add 10.90.0.0/24 via 10.96.0.254")?;
        host.ip("-6 route add fd90::/64 via fd96::254")?;
    }
    inside.ip("route add default via 10.90.0.1")?;
    inside.ip("-6 route add default via fd90::1")?;
    Ok((router, inside))
}

/// The device's daemon does, where the common name leads now; by which rung it comes up.
fn begins_anew(scene: &mut Scene) -> Result<String> {
    scene.device.process().kill();
    scene.device.restart()?;
    scene.device.ok(&["up", "peer"])?;
    rung(&scene.device)
}

#[test]
fn a_router_behind_the_gateways_learns_where_a_device_is() -> Result<()> {
    let needs = [NEEDS.as_slice(), &[Need::File(BIRD)]].concat();
    if !require("a routing daemon at the gateways", &needs) {
        return Ok(());
    }
    let mut ground = Ground::new(2)?;
    let (router, inside) = lan(&mut ground)?;
    let mut daemons = vec![bird(&router, ROUTER)?];
    for (n, host) in ground.hosts.iter().enumerate() {
        daemons.push(bird(host, &of_the_page(&format!("192.0.2.{}", n + 1))?)?);
    }
    let net = "[\"10.90.0.0/24\", \"fd90::/64\", \"10.99.0.0/24\"]";
    ground.net = format!("remote = {net}");
    ground.pool = format!(
        "local = {net}\nremote = [\"dynamic\"]\n[connection.peer.pool]\naddresses = [\"10.10.0.0/16\", \"fd00:10:10::/64\"]"
    );
    names(&ground.world.device, &OUTER[..1])?;
    let start = |n: usize| ground.start_gateway(n, &ground.url(n), "", Extra::default());
    let gateways = vec![start(0)?, start(1)?];
    let device = ground.start_client(&ground.world.device, DEVICE)?;
    let mut scene = Scene { gateways, device, ground };
    scene.device.ok(&["up", "peer"])?;
    let address = inner(&scene.device)?;
    ensure!(address.iter().any(IpAddr::is_ipv4) && address.iter().any(IpAddr::is_ipv6), "{address:?}");
    // From behind, and from the device.
    let reached_by = |scene: &Scene, gateway: usize, daemons: &[Process]| -> Result<()> {
        let device = &scene.ground.world.device;
        for (own, inside_as) in address.iter().map(|own| (own, INSIDE[usize::from(own.is_ipv6())])) {
            let end = Instant::now() + 2 * PATIENCE;
            loop {
                let echoes = inside.sh(&format!("ping -c 1 -W 1 {own}")).is_ok()
                    && device.sh(&format!("ping -c 1 -W 1 {inside_as}")).is_ok();
                let way = router.sh(&format!("ip route get {own}")).unwrap_or_default();
                let by = match own {
                    IpAddr::V4(_) => way.contains(&format!("via {} ", IN_LAN[gateway])),
                    // Its next hop is a link-local address: the gateway's on this interface.
                    IpAddr::V6(_) => {
                        let eth1 =
                            scene.ground.hosts[gateway].sh("ip -6 -o addr show dev eth1 scope link")?;
                        let local =
                            eth1.split_whitespace().find_map(|w| w.strip_suffix("/64")).unwrap_or("none");
                        way.contains(&format!("via {local} "))
                    }
                };
                if echoes && by {
                    break;
                }
                let logs: Vec<String> = daemons.iter().map(Process::log).collect();
                ensure!(
                    Instant::now() < end,
                    "{own} is not reached by gateway {gateway}: {way}\n{}\n{}",
                    logs.join("\n"),
                    scene.logs()
                );
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        Ok(())
    };
    reached_by(&scene, 0, &daemons)?;

    // Its gateway dies, and it comes to the other one.
    scene.gateways[0].process().kill();
    scene.ground.behind_the_name(&OUTER[1..2])?;
    let by = begins_anew(&mut scene)?;
    ensure!(by == "ticket" && inner(&scene.device)? == address, "{by}");
    reached_by(&scene, 1, &daemons)?;

    // The first one is back, and it moves there while the other one runs on.
    scene.gateways[0].restart()?;
    scene.ground.behind_the_name(&OUTER[..1])?;
    let by = begins_anew(&mut scene)?;
    ensure!(by == "ticket" && inner(&scene.device)? == address, "{by}");
    reached_by(&scene, 0, &daemons)?;
    ensure!(scene.served()? == [vec![DEVICE.to_owned()], Vec::new()]);
    Ok(())
}

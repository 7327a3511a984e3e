//! Several gateways behind one name: with addresses of both families and a certificate of each, and with one address for both that the network leads
//! to one of them (anycast). A device comes to each by its ticket, over whichever family it has, and with its address.

use anyhow::{Result, ensure};
use dormouse_interop::cluster::{DEVICE, Ground, NEEDS, OUTER, OUTER_V6, Scene, name};
use dormouse_interop::ends::{PATIENCE, inner, peers, rung};
use dormouse_testbed::{Access, Host, require};

/// The gateways' common address, where they have one.
const ANYCAST: &str = "203.0.113.200";

/// The address by which the device reaches its gateway.
fn reaches(scene: &Scene) -> Result<String> {
    let said = scene.device.ok(&["status"])?.text;
    let all = OUTER.iter().chain(&OUTER_V6).filter(|address| said.contains(**address));
    Ok(all.copied().collect::<Vec<_>>().join(" "))
}

#[test]
fn two_gateways_of_one_name_have_two_families_and_two_certificates() -> Result<()> {
    if !require("gateways of one name, in both families", &NEEDS) {
        return Ok(());
    }
    let mut ground = Ground::new(2)?;
    ground.certify()?;
    let of_both: Vec<&str> = OUTER_V6[..2].iter().chain(&OUTER[..2]).copied().collect();
    ground.behind_the_name(&of_both)?;
    let mut scene = Scene::on(ground, "")?;
    let address = scene.connect()?;
    ensure!(scene.balances(&address)? == 0, "the first address of the name is the first gateway's");

    // Its gateway dies: the ticket is taken by the other one.
    scene.gateways[0].process().kill();
    scene.comes_to(1, &address)?;

    // In a network that has IPv6 alone, and then in one that has IPv4 alone.
    scene.gateways[0].restart()?;
    let device = scene.ground.world.device.clone();
    scene.gateways[1].process().kill();
    device.ip("route del default")?;
    device.ip("-4 addr flush dev wlan0")?;
    scene.comes_to(0, &address)?;
    ensure!(reaches(&scene)? == OUTER_V6[0], "{}", scene.device.ok(&["status"])?.text);
    scene.gateways[1].restart()?;
    scene.gateways[0].process().kill();
    scene.ground.world.attach(Access::A)?;
    device.ip("-6 addr flush dev wlan0 scope global")?;
    device.ip("-6 route flush default")?;
    scene.comes_to(1, &address)?;
    ensure!(reaches(&scene)? == OUTER[1], "{}", scene.device.ok(&["status"])?.text);
    scene.ground.world.attach(Access::A)?;

    // Each proves itself by its own certificate to a device without a ticket.
    scene.gateways[0].restart()?;
    for gateway in [0, 1] {
        scene.device.ok(&["down", "peer"])?;
        scene.device.process().kill();
        std::fs::remove_dir_all(device.dir().join("state"))?;
        scene.ground.behind_the_name(&OUTER_V6[gateway..=gateway])?;
        scene.ground.back_by(gateway)?;
        scene.device.restart()?;
        scene.device.ok(&["up", "peer"])?;
        ensure!(rung(&scene.device)? == "full", "{}", scene.device.log());
        ensure!(peers(&scene.gateways[gateway])? == [DEVICE], "not at {}", name(gateway));
        ensure!(inner(&scene.device)? == address);
        scene.ping()?;
    }
    Ok(())
}

/// The network leads the common address to this gateway.
fn leads_to(core: &Host, gateway: usize) -> Result<()> {
    core.ip(&format!("route replace {ANYCAST} via {}", OUTER[gateway]))
}

#[test]
fn an_address_that_moves_to_another_gateway_costs_a_device_one_resumption() -> Result<()> {
    if !require("gateways at one address that moves", &NEEDS) {
        return Ok(());
    }
    let ground = Ground::new(2)?;
    for host in &ground.hosts {
        host.ip(&format!("addr add {ANYCAST}/32 dev lo"))?;
    }
    ground.behind_the_name(&[ANYCAST])?;
    let core = ground.world.core.clone();
    leads_to(&core, 0)?;
    let mut scene = Scene::on(ground, "")?;
    let address = scene.connect()?;
    ensure!(scene.balances(&address)? == 0);

    // Its packets come to a gateway that does not know it; both run all the while.
    for gateway in [1, 0, 1] {
        leads_to(&core, gateway)?;
        scene.comes_to(gateway, &address)?;
        scene.gateways[1 - gateway].process().wait_for("clients are at other gateways now", PATIENCE)?;
        ensure!(scene.balances(&address)? == gateway);
    }
    Ok(())
}

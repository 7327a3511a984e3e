//! Our gateway sends our devices to another one (RFC 5685): those that come, those that are there; to one that takes them, to nobody, round in a
//! circle.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Result, ensure};
use dormouse_testbed::{Access, Dormoused, GATEWAY, Host, Need, Roaming, require};
use std::time::{Duration, Instant};

const NEEDS: [Need; 2] = [Need::Root, Need::File("/dev/net/tun")];
const SECRET: &str = "secret = \"a shared secret of the test\"";
/// The router of the device's network: the other gateway.
const OTHER: &str = "10.1.0.1";

fn gateway(host: &Host, ike: &str) -> Result<Dormoused> {
    let toml = format!(
        "[connection.peer]\nrole = \"gateway\"\n[connection.peer.local]\nid = \"gateway.test\"\n{SECRET}\n[connection.peer.remote]\nid = \"*.test\"\n\
         {SECRET}\n[connection.peer.child]\nlocal = [\"10.99.0.0/24\"]\n[connection.peer.pool]\naddresses = [\"10.55.0.0/24\"]\n\
         [connection.peer.ike]\n{ike}\n"
    );
    Dormoused::start(host, "dns = \"off\"", &toml)
}

fn device(host: &Host, redirects: &str) -> Result<Dormoused> {
    let toml = format!(
        "[connection.peer]\nrole = \"client\"\ngateway = \"{GATEWAY}\"\n[connection.peer.local]\nid = \"device.test\"\n{SECRET}\n\
         [connection.peer.remote]\nid = \"gateway.test\"\n{SECRET}\n[connection.peer.child]\nremote = [\"10.99.0.0/24\"]\n\
         [connection.peer.ike]\nredirects = [{redirects}]\n"
    );
    Dormoused::start(host, "dns = \"off\"", &toml)
}

/// Until the device is up at this gateway.
fn is_at(device: &Dormoused, gateway: &str) -> Result<()> {
    let limit = Instant::now() + Duration::from_secs(30);
    loop {
        let status = device.ok(&["status", "--json"])?.text;
        if status.contains(&format!("\"gateway\":\"{gateway}\"")) && status.contains("\"state\":\"up\"") {
            return Ok(());
        }
        ensure!(Instant::now() < limit, "not at {gateway}: {status}\n{}", device.log());
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn is_gone(gateway: &Dormoused) -> Result<()> {
    let limit = Instant::now() + Duration::from_secs(20);
    while gateway.ok(&["status", "--json"])?.text.contains("device.test") {
        ensure!(Instant::now() < limit, "the session is still there: {}", gateway.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

#[test]
fn a_device_goes_where_it_is_sent_and_begins_at_home_again() -> Result<()> {
    if !require("a redirected session", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(60)?;
    world.attach(Access::A)?;
    let home = gateway(&world.gateway, "")?;
    let other = gateway(&world.router_a, "")?;
    let device = device(&world.device, &format!("\"{OTHER}\", \"10.1.0.64/26\""))?;
    device.ok(&["up", "peer"])?;
    is_at(&device, GATEWAY)?;
    let told = home.ok(&["redirect", "peer", "--to", OTHER])?.text;
    ensure!(told.contains("1 client was told"), "{told}");
    is_at(&device, OTHER)?;
    is_gone(&home)?;
    ensure!(other.ok(&["status", "--json"])?.text.contains("device.test"), "{}", other.log());
    // A person who takes it down and up begins at the configured gateway.
    device.ok(&["down", "peer"])?;
    device.ok(&["up", "peer"])?;
    is_at(&device, GATEWAY)?;
    // Nobody is there: it comes back by itself.
    home.ok(&["redirect", "peer", "--peer", "device.test", "--to", "10.1.0.77"])?;
    is_gone(&home)?;
    is_at(&device, GATEWAY)?;
    // Nobody that it knows: it stays.
    home.ok(&["redirect", "peer", "--to", "gw.elsewhere.example"])?;
    std::thread::sleep(Duration::from_secs(1));
    is_at(&device, GATEWAY)?;
    ensure!(device.log().contains("which ike.redirects does not name"), "{}", device.log());
    let wrong = home.cli(&["redirect", "peer", "--to", "not a gateway"])?;
    ensure!(wrong.code == 2 && wrong.text.contains("not a gateway"), "{}: {}", wrong.code, wrong.text);
    let unknown = home.cli(&["redirect", "peer", "--peer", "nobody.test", "--to", OTHER])?;
    ensure!(unknown.text.contains("device.test"), "{}", unknown.text);
    Ok(())
}

#[test]
fn a_gateway_under_repair_sends_everybody_to_the_other_one() -> Result<()> {
    if !require("a gateway under repair", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(60)?;
    world.attach(Access::A)?;
    let home = gateway(&world.gateway, &format!("redirect_to = \"{OTHER}\""))?;
    let other = gateway(&world.router_a, "")?;
    let follows = device(&world.device, &format!("\"{OTHER}\""))?;
    follows.ok(&["up", "peer"])?;
    is_at(&follows, OTHER)?;
    ensure!(other.ok(&["status", "--json"])?.text.contains("device.test"), "{}", other.log());
    ensure!(!home.ok(&["status", "--json"])?.text.contains("device.test"), "{}", home.log());
    drop(follows);
    let stays = device(&world.device, "")?;
    stays.ok(&["up", "peer"])?;
    is_at(&stays, GATEWAY)
}

#[test]
fn two_gateways_that_send_to_each_other_are_an_error_and_no_storm() -> Result<()> {
    if !require("a circle of redirects", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(60)?;
    world.attach(Access::A)?;
    let _home = gateway(&world.gateway, &format!("redirect_to = \"{OTHER}\""))?;
    let _other = gateway(&world.router_a, &format!("redirect_to = \"{GATEWAY}\""))?;
    let device = device(&world.device, &format!("\"{OTHER}\", \"{GATEWAY}\""))?;
    let answer = device.cli(&["up", "peer", "--timeout", "20"])?;
    ensure!(answer.code != 0 && answer.text.contains("once too often"), "{}: {}", answer.code, answer.text);
    let went = device.log().matches("sent to another gateway").count();
    ensure!(went == 5, "{went} times\n{}", device.log());
    Ok(())
}

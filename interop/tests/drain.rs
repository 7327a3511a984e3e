//! A gateway of two that share a database is drained: its devices are at the other one, with what waits for them, and its daemon ends.

use anyhow::{Context, Result, ensure};
use dormouse_interop::cluster::{DEVICE, NEEDS, OUTER, Scene, until};
use dormouse_interop::ends::{PATIENCE, inner, peers, rung};
use dormouse_testbed::{Access, SERVER, require};

const PORT: u16 = 7_070;

/// Packets that wait at a gateway for devices that sleep.
fn waiting(scene: &Scene, gateway: usize) -> Result<u64> {
    let stats = scene.gateways[gateway].ok(&["stats", "--json"])?;
    let waiting = stats.json.pointer("/result/stats/counters/standin.waiting_packets");
    waiting.and_then(serde_json::Value::as_u64).context(stats.text)
}

#[test]
fn a_gateway_that_is_drained_gives_its_devices_and_what_waits_for_them_to_the_other_one() -> Result<()> {
    if !require("a gateway that is drained", &NEEDS) {
        return Ok(());
    }
    let mut scene = Scene::new(2, "")?;
    let address = scene.connect()?;
    scene.on_record()?;

    // Awake: it goes with its ticket, and the daemon ends.
    let drained = scene.gateways[0].ok(&["drain"])?.text;
    ensure!(
        drained.contains("1 client went to other gateways\n0 devices that sleep handed over\n"),
        "{drained}"
    );
    let ended = scene.gateways[0].process().wait(PATIENCE);
    ensure!(ended.is_some_and(|status| status.success()), "{ended:?} {}", scene.gateways[0].log());
    ensure!(
        peers(&scene.gateways[1])? == [DEVICE] && rung(&scene.device)? == "ticket",
        "{}",
        scene.device.log()
    );
    ensure!(inner(&scene.device)? == address);
    scene.ground.back_by(1)?;
    scene.ping()?;

    // Alone it stays.
    let alone = scene.gateways[1].cli(&["drain"])?;
    ensure!(alone.code != 0 && alone.text.contains("no other gateway was heard"), "{}", alone.text);
    scene.ping()?;

    // Asleep: what waits for it goes along, and what comes for it later waits there.
    scene.gateways[0].restart()?;
    scene.device.ok(&["suspend"])?;
    until("the gateway knows", || {
        Ok(scene.gateways[1].ok(&["status", "--json"])?.text.contains("\"asleep\":{"))
    })?;
    scene.ground.world.detach(Access::A)?;
    let inner_address = *address.first().context("an address")?;
    let send = |what: &str| {
        let text = what.to_owned();
        scene.ground.world.server.within(move || {
            let socket = std::net::UdpSocket::bind((SERVER, 0))?;
            socket.send_to(text.as_bytes(), (inner_address, PORT)).map(drop)
        })
    };
    send("before")?.join().map_err(|_| anyhow::anyhow!("the thread panicked"))???;
    until("it waits", || Ok(waiting(&scene, 1)? == 1))?;
    let drained = scene.gateways[1].ok(&["drain"])?.text;
    ensure!(
        drained.contains("0 clients went to other gateways\n1 device that sleeps handed over\n"),
        "{drained}"
    );
    scene.gateways[1].process().wait(PATIENCE).context("it ends")?;
    scene.ground.back_by(0)?;
    until("it waits at the other one", || Ok(waiting(&scene, 0)? == 1))?;
    send("after")?.join().map_err(|_| anyhow::anyhow!("the thread panicked"))???;
    until("both wait", || Ok(waiting(&scene, 0)? == 2))?;
    let receiver =
        scene.ground.world.device.within(move || std::net::UdpSocket::bind((inner_address, PORT)))?;
    let receiver = receiver.join().map_err(|_| anyhow::anyhow!("the thread panicked"))???;
    receiver.set_read_timeout(Some(PATIENCE))?;
    scene.ground.world.attach(Access::A)?;
    scene.device.ok(&["resume"])?;
    let mut received = Vec::new();
    while received.len() < 2 {
        let mut text = [0; 64];
        let len =
            receiver.recv(&mut text).with_context(|| format!("{received:?}\n{}", scene.gateways[0].log()))?;
        received.push(String::from_utf8_lossy(&text[..len]).into_owned());
    }
    ensure!(received == ["before", "after"], "{received:?}");
    ensure!(rung(&scene.device)? == "ticket" && inner(&scene.device)? == address, "{}", scene.device.log());
    scene.ping()
}

#[test]
fn a_client_that_falls_asleep_instead_of_leaving_is_counted_once() -> Result<()> {
    if !require("a client that falls asleep while its gateway is drained", &NEEDS) {
        return Ok(());
    }
    let mut scene = Scene::new(2, "")?;
    // It reaches no other address of the name, and not this gateway's own in the other family: it is told, and stays.
    scene.ground.behind_the_name(&OUTER[..1])?;
    let device = &scene.ground.world.device;
    device.ip("-6 addr flush dev wlan0 scope global")?;
    device.ip("-6 route flush default")?;
    scene.connect()?;
    scene.on_record()?;
    let drained = std::thread::scope(|scope| -> Result<String> {
        let gateway = &scene.gateways[0];
        let draining = scope.spawn(move || gateway.ok(&["drain"]));
        until("it is told", || {
            Ok(scene.device.log().contains("no other address of its name is known to us"))
        })
        .with_context(|| scene.logs())?;
        scene.device.ok(&["suspend"])?;
        Ok(draining.join().map_err(|_| anyhow::anyhow!("the thread panicked"))??.text)
    })?;
    ensure!(
        drained.contains("0 clients went to other gateways\n1 device that sleeps handed over\n"),
        "{drained}\n{}",
        scene.gateways[0].log()
    );
    scene.gateways[0].process().wait(PATIENCE).context("it ends")?;
    Ok(())
}

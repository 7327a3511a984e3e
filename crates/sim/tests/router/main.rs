//! Access routers that ship, between a radio that loses packets and the network: a device moves from one to the next while packets go both ways,
//! routers die, keys are made anew and given out in bad weather. What is drawn follows from a seed, which every failure names: `DORMOUSE_SEED=S`
//! plays that one alone, `DORMOUSE_STORIES=N` more of them (at most 10,000).

#[path = "../zoned/mod.rs"]
mod zoned;

mod air;
mod laws;
mod moves;
mod scene;
mod stream;
mod tcp;

use dormouse_node::Rekey;
use dormouse_node::config::access_router::Repair;
use dormouse_node::host::Side;
use dormouse_sansio::{Entropy, Seeded};
use dormouse_sim::rekey_peers;
use scene::Scene;
use std::ops::Range;
use std::time::Duration;
use zoned::{DELAY, Divided, Drawn, Keys, ROUTERS, beside};

/// One wrong bit in so many.
const BIT_ERRORS: f64 = 1.0 / 16_384.0;

/// Seeds of a test.
fn seeds(count: u64) -> Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("DORMOUSE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("DORMOUSE_STORIES").map_or(count, |stories| stories.clamp(count, 10_000)),
    }
}

/// What happens to a world.
fn disturb(scene: &mut Scene, draw: &mut Seeded) {
    let next = beside(scene.at + 1).map(|n| n - 1).nth(draw.below(2) as usize).unwrap_or(1);
    match draw.below(6) {
        0 => {
            // A rekeying, and perhaps a handoff in its middle.
            scene.net.with(scene.gateway, |now, host| rekey_peers(now, host.node_mut(), Rekey::Children));
            scene.talk(Duration::from_millis(draw.below(40)));
            if draw.below(2) == 0 {
                scene.enter(next);
            }
        }
        1 => {
            let dies = if draw.below(2) == 0 { scene.at } else { draw.below(ROUTERS as u64) as usize };
            scene.kill(dies);
            scene.talk(Duration::from_millis(draw.below(3_000)));
            scene.restart(dies);
        }
        2 => {
            // There and back before the gateway can have heard of it.
            let here = scene.at;
            scene.enter(next);
            scene.talk(DELAY);
            scene.enter(here);
        }
        3 => {
            // Key grants, and all else, are lost on their way to the router where the device goes.
            let network = scene.networks[next];
            scene.net.set_weather(network, 0.4, 0.0, 0.0);
            scene.enter(next);
            // The device's word of where it is now may be among what is lost.
            scene.lose(Duration::from_secs(10));
            scene.talk(Duration::from_secs(2));
            scene.net.set_weather(network, 0.0, 0.0, 0.0);
        }
        4 => replay(scene, draw),
        _ => scene.enter(next),
    }
}

/// Who has recorded what the device has reported since its router has answered sends that to another router, where none of it counts. The
/// first report after a move may be of a packet that came by way of the router before.
fn replay(scene: &mut Scene, draw: &mut Seeded) {
    let elsewhere = (scene.at + 1 + draw.below(2) as usize) % ROUTERS;
    // And what it has sent, which may look as if it had come there.
    let sent = scene.air().last_of(true, 5);
    for (path, packet) in &sent {
        scene.come(elsewhere, Side::Device, path, packet);
    }
    let recorded = scene.air().reports_since_answered(scene.entered);
    let before = scene.info(elsewhere).reports;
    for (path, report) in &recorded {
        scene.come(elsewhere, Side::Device, path, report);
    }
    let counted = scene.info(elsewhere).reports - before;
    assert_eq!(counted, 0, "of {} reports", recorded.len());
}

#[test]
fn packets_come_once_and_in_order_while_the_radio_is_repaired() {
    let (mut counted, mut repeated) = (0, 0);
    let seeds = seeds(18);
    let few = seeds.end - seeds.start;
    for seed in seeds {
        let keys = [Keys::Ahead, Keys::There, Keys::Moved][seed as usize % 3];
        // What the zones are, and one world in four without any error of the radio.
        let (drawn, errors) = (Drawn::of(seed), if seed % 4 == 3 { 0.0 } else { BIT_ERRORS });
        println!("seed {seed}, keys {keys:?}, errors {errors}, {drawn:?}");
        let mut scene = Scene::drawn(seed, keys, Repair::EspArq, errors, true, drawn);
        let mut draw = Seeded::new(seed);
        for _ in 0..8 {
            if drawn.divided == Divided::Weak {
                scene.set_weak(draw.below(2) == 0);
            }
            disturb(&mut scene, &mut draw);
            scene.talk(Duration::from_millis(50 * (1 + draw.below(60))));
        }
        // A device asks four times in a row whether a router repairs, and then once in half a minute; each question, or its answer, may be lost.
        scene.set_weak(true);
        let (before, shown) = (scene.done(), scene.air().shown);
        scene.talk(Duration::from_secs(95));
        let shown = scene.air().shown - shown;
        assert_eq!(shown > 500, drawn.clear, "{shown} in clear; seed {seed}");
        let (reports, repeated_last) = scene.done();
        assert!(reports > before.0, "nothing is reported in the end; seed {seed}");
        if errors > 0.0 {
            assert!(repeated_last > before.1, "nothing is repaired in the end; seed {seed}, {keys:?}");
        }
        let (reports, all) = scene.done();
        let sent = scene.air().reports.len() as u64;
        assert!(reports <= sent, "{reports} reports counted of {sent}; seed {seed}");
        repeated += all;
        counted += scene.assert_laws(seed);
        if errors == 0.0 {
            scene.assert_nothing_is_lost(seed);
        }
    }
    let (least, some) = (few as usize * 500, few * 50);
    assert!(counted > least && repeated > some, "{counted} packets, {repeated} repetitions");
}

/// Without a session by which keys could come, all packets go on as they are.
#[test]
fn a_router_without_keys_passes_everything_on() {
    for (seed, repair) in [(200, Repair::EspArq), (201, Repair::Snoop), (202, Repair::None)] {
        let mut scene = Scene::new(seed, Keys::There, repair, 0.0, false);
        scene.talk(Duration::from_secs(3));
        scene.run(Duration::from_secs(1));
        let info = scene.info(0);
        assert_eq!((info.zones.opened, info.snoop.kept, info.reports), (0, 0, 0), "{repair:?}");
        let numbers: Vec<u64> = (0..scene.to_device.sent.len() as u64).collect();
        for way in [&scene.to_device, &scene.to_gateway] {
            assert_eq!(way.arrived.iter().map(|(n, _)| *n).collect::<Vec<_>>(), numbers, "{repair:?}");
        }
    }
}

/// Forged packets make keys look stale: packets go on unread, others are asked for, and then it reads again.
#[test]
fn a_router_with_stale_keys_asks_again_and_holds_nothing_back() {
    for (seed, repair) in [(210, Repair::EspArq), (211, Repair::Snoop)] {
        let mut scene = Scene::new(seed, Keys::There, repair, 0.0, true);
        scene.talk(Duration::from_secs(3));
        let before = scene.info(0);
        assert!(before.zones.opened > 100, "{repair:?}: {before:?}");
        // Under nonces that none has used, so that the ledger knows them for a stranger's.
        let (path, mut forged) = scene.air().last_for_device();
        for at in 0..3 {
            forged[8 + at] ^= 0x5a;
            scene.come(0, Side::Network, &path, &forged);
        }
        let asked = scene.info(0).counters.asked - before.counters.asked;
        assert_eq!(asked, 1, "{repair:?}");
        scene.talk(Duration::from_secs(3));
        scene.run(Duration::from_secs(1));
        let after = scene.info(0);
        assert!(after.zones.opened > before.zones.opened + 400, "{repair:?}: {after:?}");
        assert_eq!(scene.to_device.arrived.len(), scene.to_device.sent.len(), "{repair:?}");
        assert_eq!(scene.to_gateway.arrived.len(), scene.to_gateway.sent.len(), "{repair:?}");
    }
}

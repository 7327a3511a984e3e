//! ESP that comes by another address pair than its SA's path. An SA is known by its SPI alone: the packet is accepted, and what
//! answers it goes the old way, because only an authenticated update moves an SA. But it proves nothing about the path in use
//! (RFC 4555 section 3.12).

use dormouse_ike::Kind;
use dormouse_node::ladder::State;
use dormouse_sansio::Path;
use dormouse_sim::{Machine, Settings, World};
use std::net::SocketAddr;
use std::time::Duration;

fn connected(seed: u64) -> World {
    let mut world = World::new(seed, Settings::default());
    world.run(Duration::from_secs(2));
    assert_eq!(world.device_state(), State::Up, "{:#?}", world.device().changes);
    world
}

/// The last packet of `from`, taken off the wire, as it arrives at the other end: from `source` if given.
fn arrival(from: &mut Machine, source: Option<&str>) -> (Path, Vec<u8>) {
    let (sent, datagram) = from.outbox.pop_back().expect("one was sent");
    let source =
        source.map_or(sent.local, |s| SocketAddr::new(s.parse().expect("an address"), sent.local.port()));
    (Path { local: sent.remote, remote: source, carrier: sent.carrier }, datagram)
}

fn checks(host: &Machine) -> u64 {
    let begun = host.node().map(|n| n.ike_stats().begun.get(&Kind::Liveness).copied());
    begun.flatten().unwrap_or_default()
}

#[test]
fn a_gateway_accepts_it_but_neither_follows_it_nor_believes_its_peer_alive() {
    for source in [None, Some("10.1.0.77")] {
        let mut world = connected(1);
        let path = |w: &World| w.gateway().node().map(|n| n.gateway_sessions(w.now())[0].path);
        let before = path(&world);
        // The gateway checks after 20 s of silence.
        for _ in 0..8 {
            let number = world.send_up();
            let (path, datagram) = arrival(world.device_mut(), source);
            let now = world.now();
            world.gateway_mut().receive(now, path, datagram);
            assert!(world.gateway().received.contains(&number), "{source:?}");
            // The answer keeps the device from asking on its own.
            let answer = world.send_down();
            world.run(Duration::from_secs(5));
            assert!(world.device().received.contains(&answer), "{source:?}");
        }
        assert_eq!(path(&world), before, "{source:?}");
        assert_eq!(checks(world.gateway()) > 0, source.is_some(), "{source:?}");
        world.settle_and_check();
    }
}

#[test]
fn a_client_accepts_it_but_goes_on_asking_whether_its_data_arrive() {
    for source in [None, Some("203.0.113.99")] {
        let mut world = connected(2);
        world.send_up();
        world.run(Duration::from_millis(500));
        let number = world.send_down();
        let (path, datagram) = arrival(world.gateway_mut(), source);
        let now = world.now();
        world.device_mut().receive(now, path, datagram);
        assert!(world.device().received.contains(&number), "{source:?}");
        world.run(Duration::from_secs(2));
        assert_eq!(checks(world.device()) > 0, source.is_some(), "{source:?}: {:?}", world.device().wakeups);
        world.settle_and_check();
    }
}

//! The world notices what must never happen, and a story that fails shrinks to what makes it fail.

use dormouse_sim::{Access, Family, Settings, Story, Tale, World};
use dormouse_wire::ip::udp;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

fn connected(seed: u64) -> World {
    let mut world = World::new(seed, Settings::default());
    world.run(Duration::from_secs(2));
    world
}

#[test]
#[should_panic(expected = "used a sequence number twice")]
fn a_sequence_number_that_is_used_twice_is_noticed() {
    let mut world = connected(1);
    world.send_up();
    let packet = world.device().outbox.back().expect("one was sent").clone();
    world.device_mut().outbox.push_back(packet);
    world.run(Duration::from_secs(1));
}

/// A datagram of the device is followed by one that shows both addresses of the packet in it.
fn in_clear(family: Family) {
    let mut world = World::new(2, Settings { inner: family, ..Settings::default() });
    world.run(Duration::from_secs(2));
    world.send_up();
    let (path, packet) = world.device().outbox.back().expect("one was sent").clone();
    // The family that comes last: the law is for both.
    let (inner, server) = match world.device().inner.last().expect("an address") {
        IpAddr::V4(v4) => (v4.octets().to_vec(), [10, 99, 0, 2].to_vec()),
        IpAddr::V6(v6) => {
            (v6.octets().to_vec(), Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 2).octets().to_vec())
        }
    };
    let clear = [&packet[..4], &[0, 0, 1, 0], &inner, &server].concat();
    world.device_mut().outbox.push_back((path, clear));
    world.run(Duration::from_secs(1));
}

#[test]
#[should_panic(expected = "sent an inner packet in clear")]
fn an_inner_packet_in_clear_is_noticed() {
    in_clear(Family::V4);
}

#[test]
#[should_panic(expected = "sent an inner packet in clear")]
fn an_inner_ipv6_packet_in_clear_is_noticed() {
    in_clear(Family::V6);
}

#[test]
#[should_panic(expected = "sent an inner packet in clear")]
fn with_both_families_the_second_one_in_clear_is_noticed_too() {
    in_clear(Family::Both);
}

#[test]
#[should_panic(expected = "packets vanished in the gateway")]
fn a_packet_that_vanishes_in_the_gateway_is_noticed() {
    let mut world = connected(5);
    let now = world.now();
    let mut nowhere = Vec::new();
    let (from, to) = (([10, 99, 0, 2], 9).into(), ([192, 0, 2, 9], 9).into());
    udp::build(from, to, b"is counted twice", &mut nowhere).expect("a packet");
    world.gateway_mut().with(now, |host| _ = host.plan(now, nowhere.as_mut_slice()));
    world.run(Duration::from_secs(1));
}

#[test]
#[should_panic(expected = "reached the device too often")]
fn a_packet_that_arrives_twice_is_noticed() {
    let mut world = connected(3);
    let number = world.send_down();
    world.run(Duration::from_secs(1));
    world.device_mut().received.push(number);
    world.enter(Access::A);
    world.run(Duration::from_secs(1));
}

#[test]
fn a_story_that_fails_shrinks_to_what_makes_it_fail() {
    let mut settings = Settings::random(4);
    settings.device.push(("ike", "liveness_timeout = 50".into()));
    let of = |proposal: &str| vec![("ike", format!("proposals = [{proposal:?}]"))];
    for end in [&mut settings.device, &mut settings.gateway] {
        end.retain(|(section, line)| *section != "ike" || !line.starts_with("proposals"));
    }
    settings.device.extend(of("aes256gcm16-prfsha384-x25519"));
    settings.gateway.extend(of("aes128-sha256-ecp256"));
    let least = Story::new(4, settings).shrunk();
    assert!(least.script.0.is_empty(), "{least:?}");
    assert_eq!((least.settings.device.len(), least.settings.gateway.len()), (1, 2), "{least:?}");
    assert!(least.as_test().contains("Story { seed: 4, script, settings }.tell();"), "{}", least.as_test());
}

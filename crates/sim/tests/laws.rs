//! The world notices what must never happen, and a story that fails shrinks to what makes it fail.

use dormouse_sim::{Access, Settings, Story, World};
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

#[test]
#[should_panic(expected = "sent an inner packet in clear")]
fn an_inner_packet_in_clear_is_noticed() {
    let mut world = connected(2);
    world.send_up();
    let (path, packet) = world.device().outbox.back().expect("one was sent").clone();
    let inner = world.device().inner.map(|ip| ip.to_string().parse::<std::net::Ipv4Addr>());
    let inner = inner.and_then(Result::ok).expect("an IPv4 address").octets();
    let clear = [&packet[..4], &[0, 0, 1, 0], &inner, &[10, 99, 0, 2]].concat();
    world.device_mut().outbox.push_back((path, clear));
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

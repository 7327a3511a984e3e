//! The sleep of a radio: it is announced and held; the peer sends nothing meanwhile; afterwards the association goes on without an
//! exchange, with an UPDATE, or is known to be lost.

use std::time::Duration;

use dormouse_hip::{Accept, Hold, HostConfig, Quirk};
use dormouse_keying::{KeyManager, Owner, SleepVerdict};
use dormouse_keying::{Mark, SleepFlags, Sleeping};
use dormouse_sansio::{Carrier, Instant};
use dormouse_wire::hip::{Packet, PacketType, ParamType};

use crate::world::{World, config};

const SOON: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(120);
const HOUR: Duration = Duration::from_secs(3_600);
const BOTH: SleepFlags = SleepFlags { stand_in: true, buffering: true };
const BUFFERING: SleepFlags = SleepFlags { stand_in: false, buffering: true };
const HOLD: Hold = Hold { longest: Duration::from_secs(4 * 3_600), services: BUFFERING };

/// A device, which may sleep, and a server.
fn pair(server: HostConfig) -> World {
    let device = HostConfig { may_sleep: true, ..config() };
    let mut world = World::new(1, Carrier::RawHip, vec![("p256", device), ("p384", server)]);
    for node in [0, 1] {
        let here = world.nodes[node].address.ip().to_string();
        world.place(node, &here);
    }
    let device = world.whereabouts(0);
    let tag = world.nodes[0].tag;
    world.act(1, |host, _| host.set_peer(tag, Some(device)));
    world.connect(0, 1);
    world.run(SOON);
    assert!(world.joined(0, 1), "{:?}", world.drops);
    world
}

fn holding() -> HostConfig {
    HostConfig { hold: Some(HOLD), ..config() }
}

fn owner(world: &World, node: usize) -> Owner {
    Owner::Hip(world.nodes[node].host.describe().next().unwrap().id)
}

/// The device announces a sleep of an hour at most; whether an answer is to come.
fn announce(world: &mut World) -> bool {
    announce_of(world, 0)
}

fn announce_of(world: &mut World, node: usize) -> bool {
    let of = owner(world, node);
    let marks = vec![Mark { spi: 7, sequence: 3 }];
    let said = Sleeping { flags: BOTH, expect: Some(HOUR), marks };
    world.act(node, |host, now| host.announce_sleep(now, of, &said))
}

/// Announces it, and sleeps.
fn sleep(world: &mut World) {
    assert!(announce(world));
    world.run(SOON);
    world.radio_off = Some(0);
}

/// The radio is on; whether user data may go at once.
fn wake(world: &mut World) -> bool {
    wake_of(world, 0)
}

/// After half an hour the device wakes with another address, which its peer does not know.
fn wake_elsewhere(world: &mut World) {
    world.run(HOUR / 2);
    world.radio_off = None;
    world.act(0, |host, now| host.radio_on(now));
    world.place(0, "192.0.2.77");
    assert!(!wake(world), "the peer does not know the address");
    world.run(SOON);
}

fn wake_of(world: &mut World, node: usize) -> bool {
    world.radio_off = None;
    let of = owner(world, node);
    world.act(node, |host, now| {
        host.radio_on(now);
        host.woke(now, of)
    })
}

fn log(world: &World, node: usize) -> Vec<&str> {
    world.nodes[node].plane.log.iter().map(String::as_str).filter(|l| !l.starts_with("install")).collect()
}

#[test]
fn a_sleep_is_announced_and_held() {
    let mut world = pair(holding());
    assert_eq!([0, 1].map(|n| world.nodes[n].plane.may_sleep), [false, true], "the device has said so");
    let before = world.now;
    sleep(&mut world);
    let granted = world.nodes[0].plane.verdicts.as_slice();
    let [SleepVerdict::Held { until, flags }] = granted else { panic!("{granted:?}") };
    // A tenth and half a minute more than it said.
    assert_eq!((*until, *flags), (before + HOUR + HOUR / 10 + Duration::from_secs(30), BUFFERING));
    let (kept, flags, expect, marks) = world.nodes[1].plane.sleeper.clone().unwrap();
    assert!(kept >= *until && kept <= *until + SOON, "the server counts from its answer");
    assert_eq!((flags, expect, marks), (BUFFERING, Some(HOUR), vec![Mark { spi: 7, sequence: 3 }]));
    assert_eq!(world.count(PacketType::Update), 2);
    assert_eq!(world.nodes[1].host.poll_timeout().map(|d| d.at), Some(kept), "no other timer");
}

/// What the server has to say waits: a change of its address, a rekeying, ESP that is not answered.
#[test]
fn who_sleeps_is_left_in_peace() {
    let mut world = pair(HostConfig { liveness: Some(Duration::from_secs(20)), ..holding() });
    sleep(&mut world);
    let sent = world.seen.len();
    let of = owner(&world, 1);
    let child = world.nodes[1].host.describe().next().unwrap().child.unwrap();
    world.act(1, |host, now| host.traffic(now, of, false));
    world.act(1, |host, now| host.rekey_child(now, child));
    world.act(1, |host, now| host.ask(now, of));
    world.run(HOUR);
    assert_eq!(world.seen.len(), sent);
    // Its first ESP shows that it is awake: then the rekeying takes place.
    assert!(wake(&mut world), "it is held: no exchange is needed");
    world.act(1, |host, now| host.peer_awake(now, of));
    world.run(LATER);
    assert_eq!(log(&world, 1)[1..3], ["the peer sleeps", "the peer is awake"]);
    assert!(world.joined(0, 1), "{:?}", world.drops);
    assert_ne!(world.nodes[1].host.describe().next().unwrap().child, Some(child));
}

/// Without ESP, an UPDATE shows it, from a new address too; the node learns it when that is verified.
#[test]
fn who_wakes_elsewhere_is_asked_there_first() {
    let mut world = pair(holding());
    sleep(&mut world);
    wake_elsewhere(&mut world);
    assert_eq!(log(&world, 0), ["established", "remap", "revived, moved"]);
    assert_eq!(log(&world, 1), ["established", "the peer sleeps", "remap", "the peer is awake"]);
    let established: Vec<usize> = world.nodes.iter().map(|n| n.plane.established).collect();
    assert_eq!(established, [1, 1]);
    assert!(world.nodes.iter().all(|n| n.host.poll_timeout().is_none()), "no timer is left");
}

/// Without a network after the sleep, the peer is asked when there is one.
#[test]
fn who_wakes_without_a_network_asks_later() {
    let mut world = pair(holding());
    sleep(&mut world);
    world.run(2 * HOUR);
    world.radio_off = None;
    world.act(0, |host, now| host.set_addresses(now, &[]));
    let sent = world.seen.len();
    assert!(!wake(&mut world));
    world.run(HOUR);
    assert_eq!(world.seen.len(), sent);
    world.place(0, "192.0.2.1");
    world.run(SOON);
    assert!(log(&world, 0).ends_with(&["revived"]), "{:?}", log(&world, 0));
}

#[test]
fn who_oversleeps_is_not_waited_for_any_longer() {
    let mut world = pair(holding());
    sleep(&mut world);
    world.run(2 * HOUR);
    assert_eq!(log(&world, 1), ["established", "the peer sleeps", "the peer overslept"]);
    // The association is there nevertheless; it is asked, because that was not promised.
    assert!(!wake(&mut world));
    world.run(SOON);
    assert_eq!(log(&world, 0), ["established", "revived"]);
}

/// The lifetime ends while the device sleeps: the answer to what woke it, and what follows at once, still goes by the association, which then ends.
/// Another sleep does not put that off.
#[test]
fn an_association_whose_time_is_over_outlives_no_second_sleep() {
    for sleeps_again in [false, true] {
        let mut world = pair(holding());
        let (device, of) = (world.nodes[0].tag, world.nodes[1].host.describe().next().unwrap().id);
        world.act(1, |host, now| {
            host.set_lifetime_of(device, Some(HOUR / 4));
            host.close(now, of);
        });
        world.run(SOON);
        world.connect(0, 1);
        world.run(SOON);
        sleep(&mut world);
        wake_elsewhere(&mut world);
        assert!(log(&world, 0).ends_with(&["revived, moved"]), "{:?}", log(&world, 0));
        assert!(log(&world, 1).ends_with(&["remap", "the peer is awake"]), "{:?}", log(&world, 1));
        if sleeps_again {
            assert!(announce(&mut world));
        }
        world.run(SOON);
        let ended = log(&world, 0).ends_with(&["closed: the peer closed the association"]);
        assert_eq!(ended, sleeps_again, "{:?}", log(&world, 0));
        world.run(LATER);
        assert!(log(&world, 1).ends_with(&["closed: its lifetime is over"]), "{:?}", log(&world, 1));
        assert!(log(&world, 0).ends_with(&["closed: the peer closed the association"]));
    }
}

/// The server has lost the association: the device knows it after 7 s.
#[test]
fn an_association_that_was_lost_ends() {
    let mut world = pair(holding());
    sleep(&mut world);
    world.nodes.pop();
    world.run(2 * HOUR);
    assert!(!wake(&mut world));
    world.run(Duration::from_secs(8));
    assert_eq!(log(&world, 0), ["established", "remove", "closed: the peer does not answer"]);
}

/// The answer is lost, and the radio goes off without it: the UPDATE after the sleep tells the peer that the device is awake.
#[test]
fn an_answer_that_is_lost_is_made_up_for() {
    let mut world = pair(holding());
    world.radio_off = Some(0);
    assert!(announce(&mut world));
    world.run(LATER);
    assert_eq!(log(&world, 1), ["established", "the peer sleeps"]);
    assert!(!wake(&mut world));
    world.run(SOON);
    assert_eq!(log(&world, 1), ["established", "the peer sleeps", "the peer is awake"]);
    assert_eq!(log(&world, 0), ["established", "revived"]);
    assert!(world.nodes[0].plane.verdicts.is_empty());
}

/// An announcement that is sent again, by the device or by another, changes nothing: neither during the sleep nor after it.
#[test]
fn announcements_count_once() {
    let mut world = pair(holding());
    sleep(&mut world);
    let (path, announcement) = {
        let of = |bytes: &[u8]| Packet::parse(bytes).unwrap().find(ParamType::DormancySleeping).is_some();
        world.seen.iter().find(|(_, bytes)| of(bytes)).cloned().unwrap()
    };
    let back = dormouse_sansio::Path { local: path.remote, remote: path.local, ..path };
    world.run(SOON);
    world.hand(1, back, &announcement).unwrap();
    assert_eq!(log(&world, 1), ["established", "the peer sleeps"], "that it comes again does not wake it");
    let of = owner(&world, 1);
    assert!(wake(&mut world));
    world.act(1, |host, now| host.peer_awake(now, of));
    world.hand(1, back, &announcement).unwrap();
    assert_eq!(log(&world, 1), ["established", "the peer sleeps", "the peer is awake"]);
}

/// Peers that have not shown that they hold, those of version 1, and those that must not be sent what they do not know.
#[test]
fn other_peers_are_not_told() {
    let mut world = pair(config());
    assert!(!announce(&mut world));
    assert_eq!(world.count(PacketType::Update), 0);

    let device = HostConfig { may_sleep: true, ..config() };
    let keys = [("v1 rsa", device.clone()), ("v1 rsa 2048", holding())];
    let mut world = World::new(2, Carrier::RawHip, keys.into());
    world.connect(0, 1);
    world.run(SOON);
    assert!(!announce(&mut world) && !world.nodes[1].plane.may_sleep && world.joined(0, 1));
    let private = |bytes: &[u8]| Packet::parse(bytes).unwrap().find(ParamType::Dormancy).is_some();
    assert!(!world.seen.iter().any(|(_, bytes)| private(bytes)));

    let mut world = World::new(2, Carrier::RawHip, vec![("p256", device), ("p384", holding())]);
    let tags = [0, 1].map(|n| world.nodes[n].tag);
    for node in [0, 1] {
        let quirks = [Quirk::KnownParametersOnly].into_iter().collect();
        world.act(node, |host, _| host.set_quirks(tags[1 - node], quirks));
    }
    world.connect(0, 1);
    world.run(SOON);
    assert!(!announce(&mut world) && !world.nodes[1].plane.may_sleep);
}

/// One that no configuration names holds its place no longer than if it were silent.
#[test]
fn a_stranger_is_held_as_long_as_a_silent_one() {
    let unused = Duration::from_secs(600);
    let mut world = World::new(
        3,
        Carrier::RawHip,
        vec![
            ("p256", config()),
            ("p384", HostConfig { accept: Accept::Any, unused, hold: Some(HOLD), ..HostConfig::default() }),
        ],
    );
    world.connect(0, 1);
    world.run(SOON);
    let before = world.now;
    sleep(&mut world);
    let [SleepVerdict::Held { until, .. }] = world.nodes[0].plane.verdicts[..] else { panic!("not held") };
    assert_eq!(until, before + unused);
    world.run(unused + LATER);
    assert!(log(&world, 1).ends_with(&["closed: it was not used"]), "{:?}", log(&world, 1));
    assert!(world.now > Instant::ZERO + unused);
}

/// A peer that sleeps itself is neither asked nor waited for.
#[test]
fn who_wakes_while_its_peer_sleeps_does_not_wait_for_it() {
    let mut world = pair(holding());
    // The device slept without a word, and its peer announced its own sleep before or meanwhile.
    assert!(!announce_of(&mut world, 1), "the device has not shown that it holds");
    let device = HostConfig { may_sleep: true, ..holding() };
    let mut world = World::new(4, Carrier::RawHip, vec![("p256", device.clone()), ("p384", device)]);
    for (node, here) in [(0, "192.0.2.1"), (1, "192.0.2.2")] {
        world.place(node, here);
    }
    world.connect(0, 1);
    world.run(SOON);
    assert!(announce_of(&mut world, 1));
    world.run(SOON);
    assert!(!announce(&mut world), "it is not told");
    let sent = world.seen.len();
    world.run(LATER);
    assert!(wake(&mut world));
    assert_eq!(world.seen.len(), sent);
}

/// Both announce at the same time, so that each takes the other for asleep. The second to wake finds the first.
#[test]
fn sleeps_that_were_announced_at_the_same_time_end() {
    let device = HostConfig { may_sleep: true, ..holding() };
    let mut world = World::new(5, Carrier::RawHip, vec![("p256", device.clone()), ("p384", device)]);
    for (node, here) in [(0, "192.0.2.1"), (1, "192.0.2.2")] {
        world.place(node, here);
    }
    world.connect(0, 1);
    world.run(SOON);
    assert!(announce(&mut world) && announce_of(&mut world, 1));
    world.run(SOON);
    assert!(
        [0, 1].iter().all(|n| world.nodes[*n].plane.sleeper.is_some()),
        "each takes the other for asleep"
    );
    world.radio_off = Some(1);
    let of = owner(&world, 0);
    world.act(0, |host, now| host.radio_on(now));
    assert!(world.act(0, |host, now| host.woke(now, of)));
    world.run(LATER);
    assert!(world.nodes[0].plane.sleeper.is_some());
    assert!(wake_of(&mut world, 1));
    world.run(SOON);
    assert!([0, 1].iter().all(|n| world.nodes[*n].plane.sleeper.is_none()));
    assert!(world.nodes.iter().all(|n| n.host.poll_timeout().is_none()), "nothing is left to say");
}

/// The mode has changed: who comes afterwards learns it.
#[test]
fn that_the_radio_may_sleep_is_said_from_now_on() {
    for on in [false, true] {
        let before = HostConfig { may_sleep: !on, ..config() };
        let mut world = World::new(8, Carrier::RawHip, vec![("p256", before), ("p384", holding())]);
        world.act(0, |host, now| host.set_may_sleep(now, on));
        world.connect(0, 1);
        world.run(SOON);
        assert_eq!(world.nodes[1].plane.may_sleep, on);
    }
}

/// What is said after the answer, before the radio is off, does not take the sleep back.
#[test]
fn an_update_between_the_answer_and_the_end_of_the_radio_says_it_again() {
    let mut world = pair(holding());
    assert!(announce(&mut world));
    world.run(SOON);
    let of = owner(&world, 0);
    world.act(0, |host, now| host.ask(now, of));
    world.run(SOON);
    assert_eq!(world.count(PacketType::Update), 4);
    assert_eq!(log(&world, 1), ["established", "the peer sleeps", "the peer sleeps"]);
    world.radio_off = Some(0);
    world.run(LATER);
    assert!(wake(&mut world), "it is held");
}

/// The radio goes off without an answer, and on elsewhere: the UPDATE from there does not say that we sleep.
#[test]
fn what_is_said_of_a_sleep_ends_with_it() {
    for answered in [false, true] {
        let mut world = pair(holding());
        world.radio_off = Some(0).filter(|_| !answered);
        assert!(announce(&mut world));
        world.run(SOON);
        world.radio_off = Some(0);
        world.run(LATER);
        world.radio_off = None;
        world.act(0, |host, now| host.radio_on(now));
        world.place(0, "192.0.2.77");
        let of = owner(&world, 0);
        assert!(!world.act(0, |host, now| host.woke(now, of)));
        world.run(SOON);
        let expected = ["established", "the peer sleeps", "remap", "the peer is awake"];
        assert_eq!(log(&world, 1), expected, "answered: {answered}");
    }
}

/// The peer moves and falls asleep while we announce our sleep: what it acknowledges is our question where it is. That it says nothing of
/// our sleep does not show that it does not hold.
#[test]
fn an_acknowledgement_of_something_else_is_no_answer_to_an_announcement() {
    let device = HostConfig { may_sleep: true, ..holding() };
    let mut world = World::new(6, Carrier::RawHip, vec![("p256", device.clone()), ("p384", device)]);
    for (node, here) in [(0, "192.0.2.1"), (1, "192.0.2.2")] {
        world.place(node, here);
    }
    world.connect(0, 1);
    world.run(SOON);
    assert!(announce_of(&mut world, 1));
    world.place(1, "192.0.2.99");
    assert!(announce(&mut world));
    world.run(SOON);
    assert_eq!(world.nodes[0].plane.verdicts, [SleepVerdict::Unsupported], "the peer sleeps");
    wake_of(&mut world, 1);
    let of = owner(&world, 0);
    world.act(0, |host, now| host.peer_awake(now, of));
    world.run(LATER);
    assert!(announce(&mut world), "it holds");
    world.run(SOON);
    assert!(matches!(world.nodes[0].plane.verdicts.last(), Some(SleepVerdict::Held { .. })));
}

/// The server moves while the device sleeps, which would look for it in vain: it says where it is when there is something for the device, and
/// not before.
#[test]
fn who_moves_while_its_peer_sleeps_says_so_when_it_has_something_for_it() {
    let mut world = pair(holding());
    sleep(&mut world);
    let (sent, of) = (world.seen.len(), owner(&world, 1));
    world.act(1, |host, now| host.waits(now, of));
    world.run(LATER);
    world.place(1, "192.0.2.88");
    world.run(LATER);
    assert_eq!(world.seen.len(), sent, "before that it is found; then there is nothing to say");
    world.act(1, |host, now| host.waits(now, of));
    assert!(wake(&mut world));
    world.run(SOON * 4);
    assert!(log(&world, 0).ends_with(&["revived", "remap"]), "{:?}", log(&world, 0));
    assert_eq!(log(&world, 1), ["established", "the peer sleeps", "remap", "the peer is awake"]);
    assert!(world.joined(0, 1), "{:?}", world.drops);
}

/// So that another may be begun: the device could not come back by this one.
#[test]
fn an_association_ends_if_its_sleeper_does_not_hear_that_we_have_moved() {
    let mut world = pair(holding());
    sleep(&mut world);
    world.place(1, "192.0.2.88");
    let of = owner(&world, 1);
    world.act(1, |host, now| host.waits(now, of));
    world.run(LATER);
    assert!(log(&world, 1).ends_with(&["closed: the peer does not answer"]), "{:?}", log(&world, 1));
}

/// The radio is about to go off: the answer says so again, and the sleep goes on, from the device's new knowledge.
#[test]
fn who_moves_before_the_radio_is_off_does_not_end_the_sleep() {
    let mut world = pair(holding());
    assert!(announce(&mut world));
    world.run(SOON);
    world.place(1, "192.0.2.88");
    let of = owner(&world, 1);
    world.act(1, |host, now| host.waits(now, of));
    world.run(SOON);
    assert_eq!(log(&world, 1), ["established", "the peer sleeps", "remap", "the peer sleeps"]);
    assert!(log(&world, 0).ends_with(&["remap"]), "{:?}", log(&world, 0));
    world.radio_off = Some(0);
    world.run(LATER);
    assert!(wake(&mut world), "it is held");
}

/// Something waits for a device that sleeps behind a NAT, which gives it another port: what was kept waits until the device has answered
/// there.
#[test]
fn what_waits_for_a_sleeper_does_not_keep_it_from_being_found() {
    let device = HostConfig { may_sleep: true, ..config() };
    let mut world = World::new(7, Carrier::HipUdp, vec![("p256", device), ("p384", holding())]);
    world.place(0, "192.0.2.1");
    world.place(1, "192.0.2.2");
    world.connect(0, 1);
    world.run(SOON);
    assert!(announce(&mut world));
    world.run(SOON);
    world.radio_off = Some(0);
    world.rekey(1);
    world.run(LATER);
    assert!(wake(&mut world));
    // As the server sees its first ESP.
    world.nodes[0].address.set_port(40_000);
    let (of, path) = (owner(&world, 1), world.path(1, 0));
    world.act(1, |host, now| {
        host.observed_path(now, of, path);
        host.peer_awake(now, of);
    });
    assert_eq!(log(&world, 1), ["established", "the peer sleeps"], "it is asked there first");
    world.run(SOON / 2);
    assert_eq!(log(&world, 1)[2..4], ["remap", "the peer is awake"]);
}

/// The peer goes to sleep while we ask it after a sleep of ours, and then we are woken once more: what waited for its answer waits for nothing.
#[test]
fn data_does_not_wait_for_the_answer_of_a_sleeper() {
    let either = HostConfig { may_sleep: true, ..holding() };
    let mut world = World::new(2, Carrier::RawHip, vec![("p256", either.clone()), ("p384", either)]);
    for node in [0, 1] {
        let (here, other) = (world.nodes[node].address.ip().to_string(), 1 - node);
        let (tag, there) = (world.nodes[other].tag, world.whereabouts(other));
        world.place(node, &here);
        world.act(node, |host, _| host.set_peer(tag, Some(there)));
    }
    world.connect(0, 1);
    world.run(SOON);
    world.radio_off = Some(0);
    world.run(LATER);
    assert!(!wake(&mut world), "it was not announced: the peer is asked");
    assert!(announce_of(&mut world, 1));
    world.radio_off = Some(1);
    world.run(SOON / 2);
    assert!(world.nodes[0].plane.sleeper.is_some() && !log(&world, 0).contains(&"revived"));
    assert!(wake(&mut world));
    assert!(log(&world, 0).contains(&"revived"), "{:?}", log(&world, 0));
}

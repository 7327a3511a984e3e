//! A gateway of another make: it knows neither the dormancy extension nor tickets. When it has lost the session and says nothing it is
//! noticed soon, but one that is there is not given up for a bad network; and one whose answers to an address update go astray keeps
//! its session, if its data come.

use dormouse_ike::Kind;
use dormouse_node::ladder::{Rung, State};
use dormouse_node::{Change, FailureKind};
use dormouse_sansio::{Carrier, Path};
use dormouse_sim::{Access, Settings, Step, World};
use std::time::Duration;

/// From the first packet that is not answered to the next rung.
const NOTICED: Duration = Duration::from_secs(4);
const STEP: Duration = Duration::from_millis(50);
const SECOND: Duration = Duration::from_secs(1);

fn connected(seed: u64) -> World {
    let mut settings = Settings::default();
    for end in [&mut settings.device, &mut settings.gateway] {
        end.extend([("resumption", "mode = \"off\"".into()), ("ike", "dormancy = false".into())]);
    }
    let mut world = World::new(seed, settings);
    world.run(2 * SECOND);
    assert_eq!(world.device_state(), State::Up, "{:#?}", world.device().changes);
    world
}

fn lossy(loss: f64) -> Step {
    Step::Weather { loss, duplication: 0.0, reordering: 0.0 }
}

/// The IKE message in a datagram: behind a marker on port 4500.
fn ike<'a>(path: &Path, datagram: &'a [u8]) -> Option<&'a [u8]> {
    match path.carrier {
        Carrier::Ike => Some(datagram),
        _ => datagram.strip_prefix(&[0; 4]),
    }
}

/// A gateway that says nothing about SAs that it does not know: its notifications in clear (payload 41 comes first) are lost.
fn discreet(world: &mut World) {
    world.set_astray(Some(Box::new(|path, datagram| ike(path, datagram).is_some_and(|m| m[16] == 41))));
}

#[test]
fn one_that_lost_its_state_is_noticed_within_four_seconds_also_on_a_bad_network() {
    for (seed, loss) in (0..100).map(|seed| (seed, if seed % 2 == 0 { 0.0 } else { 0.3 })) {
        let mut world = connected(seed);
        discreet(&mut world);
        // Data went both ways until then.
        world.send_up();
        world.send_down();
        world.run(SECOND);
        world.step(Step::GatewayCrash(STEP, true));
        world.step(lossy(loss));
        let first = world.now();
        let given_up = |w: &World| !matches!(w.device_state(), State::Up | State::Climbing(Rung::Held));
        while !given_up(&world) {
            world.send_up();
            world.run(STEP);
            assert!(world.now() - first <= NOTICED + STEP, "seed {seed}: {:?}", world.device_state());
        }
        assert_eq!(world.device_state(), State::Climbing(Rung::Full), "seed {seed}");
        world.set_astray(None);
        world.settle_and_check();
    }
}

/// The bound: less than one of 10,000 questions ends a session although the gateway is there, where 30 % are lost in either direction.
#[test]
fn one_that_is_there_is_not_given_up_for_a_bad_network() {
    let (mut questions, mut alarms) = (0, 0);
    for seed in 0..80 {
        let mut world = connected(seed);
        world.step(lossy(0.3));
        for _ in 0..900 {
            world.send_up();
            // One way only, so that each packet is a question; or both, and only those are that nothing answers.
            if seed % 4 == 0 {
                world.send_down();
            }
            world.run(SECOND);
        }
        let node = world.device().node().expect("it runs");
        questions += node.ike_stats().begun.get(&Kind::Liveness).copied().unwrap_or_default();
        alarms += world.rungs().iter().filter(|rung| **rung == Rung::Full).count() as u64 - 1;
        world.settle_and_check();
    }
    println!("{alarms} false alarms in {questions} questions");
    assert!(questions > 20_000, "{questions} questions");
    assert!(alarms * 10_000 <= questions, "{alarms} false alarms in {questions} questions");
}

#[test]
fn an_idle_session_asks_nothing() {
    let mut world = connected(3);
    world.device_mut().wakeups.clear();
    world.run(Duration::from_secs(3_600));
    let ladder = world.device().wakeups.iter().filter(|(why, _)| why.starts_with("ladder")).count();
    assert_eq!(ladder, 0, "{:?}", world.device().wakeups);
}

/// Answers to INFORMATIONAL requests (exchange 37, flag 0x20) that go elsewhere than to `old`: those that `lost` picks by their id.
fn answers_astray(world: &mut World, mut lost: impl FnMut(u32) -> bool + 'static) {
    let old =
        world.device().node().and_then(|n| n.client_infos(world.now())[0].session.as_ref().map(|s| s.path));
    let old = old.expect("a session").local.ip();
    world.set_astray(Some(Box::new(move |path, datagram| {
        let answer =
            ike(path, datagram).filter(|m| path.remote.ip() != old && m[18] == 37 && m[19] & 0x20 != 0);
        answer.and_then(|m| m[20..24].try_into().ok()).is_some_and(|id| lost(u32::from_be_bytes(id)))
    })));
}

/// Sends a packet in either direction each 100 ms.
fn talk(world: &mut World, time: Duration) -> (Vec<u64>, Vec<u64>) {
    let (mut up, mut down) = (Vec::new(), Vec::new());
    for _ in 0..time.as_millis() / 100 {
        up.push(world.send_up());
        down.push(world.send_down());
        world.run(Duration::from_millis(100));
    }
    world.run(SECOND);
    (up, down)
}

fn lost(sent: &[u64], received: &[u64]) -> usize {
    sent.iter().filter(|n| !received.contains(n)).count()
}

/// The answer to the update never comes, as it goes to the old address each time; but the gateway has obeyed, and its data come.
#[test]
fn an_update_that_is_obeyed_and_never_answered_costs_no_packet() {
    for (seed, from, to) in [(1, Access::A, Access::B), (2, Access::B, Access::A)] {
        let mut world = connected(seed);
        if from == Access::B {
            world.enter(from);
            world.run(SECOND);
        }
        let before = world.rungs();
        let mut first = None;
        answers_astray(&mut world, move |id| *first.get_or_insert(id) == id);
        world.enter(to);
        // The update is on its way before the gateway sends.
        let sent = world.send_up();
        world.run(Duration::from_millis(100));
        let (mut up, down) = talk(&mut world, Duration::from_secs(15));
        up.push(sent);
        assert_eq!(world.rungs()[before.len()..], [Rung::Move], "{:#?}", world.device().changes);
        // This SA has no room for another request: it is replaced meanwhile.
        let (more_up, more_down) = talk(&mut world, Duration::from_secs(30));
        assert_eq!(world.rungs()[before.len()..], [Rung::Move, Rung::Full], "{:#?}", world.device().changes);
        up.extend(more_up);
        assert_eq!(lost(&up, &world.gateway().received), 0, "seed {seed}");
        assert_eq!(lost(&[down, more_down].concat(), &world.device().received), 0, "seed {seed}");
        world.set_astray(None);
        world.settle_and_check();
    }
}

/// The first answer goes to the old address, the same one repeated to where the repeated request came from.
#[test]
fn an_answer_that_is_repeated_to_the_new_address_is_found_there_without_traffic() {
    for seed in 0..4 {
        let mut world = connected(seed);
        let mut seen = std::collections::BTreeSet::new();
        answers_astray(&mut world, move |id| seen.insert(id));
        world.enter(Access::B);
        world.run(SECOND);
        assert_eq!(world.rungs(), [Rung::Full, Rung::Move], "seed {seed}: {:#?}", world.device().changes);
        world.set_astray(None);
        world.settle_and_check();
    }
}

/// Neither an answer nor data: nothing shows that the gateway has obeyed.
#[test]
fn an_update_without_answer_or_data_is_given_up() {
    let mut world = connected(5);
    answers_astray(&mut world, |_| true);
    world.enter(Access::B);
    world.run(NOTICED);
    assert_eq!(world.rungs(), [Rung::Full, Rung::Full], "{:#?}", world.device().changes);
    world.set_astray(None);
    world.settle_and_check();
}

/// How the first full exchange fails.
fn first_failure(world: &World) -> Option<(FailureKind, String)> {
    world.device().changes.iter().find_map(|change| match change {
        Change::RungFailed { rung: Rung::Full, kind, why, .. } => Some((*kind, why.clone())),
        _ => None,
    })
}

/// What people read, and the exit code that follows, tell a gateway that is not there from one that is heard half way, from a message
/// that never left, and from a refusal.
#[test]
fn a_failure_says_how_far_the_attempt_came() {
    let failure = |lost: fn(&[u8]) -> bool, too_big: bool| {
        let mut world = World::new(1, Settings::default());
        world.set_astray(Some(Box::new(move |path, datagram| ike(path, datagram).is_some_and(lost))));
        world.run(SECOND);
        if too_big && let Some(node) = world.device_mut().node_mut() {
            // On port 4500, after IKE_SA_INIT.
            node.not_sent("203.0.113.1:4500".parse().expect("an address"), 3_000);
        }
        world.run(Duration::from_secs(10));
        first_failure(&world).expect("it failed")
    };
    let (kind, why) = failure(|_| true, false);
    assert_eq!(kind, FailureKind::Timeout);
    assert!(why.contains("did not answer"), "{why}");
    // IKE_AUTH is exchange 35.
    let (kind, why) = failure(|m| m[18] == 35, false);
    assert_eq!(kind, FailureKind::AnswersLost);
    assert!(why.contains("answered, but not to the end"), "{why}");
    let (kind, why) = failure(|m| m[18] == 35, true);
    assert_eq!(kind, FailureKind::TooBig);
    assert!(why.contains("3000 bytes"), "{why}");
    let mut settings = Settings::default();
    settings.gateway.push(("ike", "proposals = [\"aes128-sha256-ecp256\"]".into()));
    settings.device.push(("ike", "proposals = [\"aes256gcm16-prfsha384-x25519\"]".into()));
    let mut world = World::new(1, settings);
    world.run(SECOND);
    assert_eq!(first_failure(&world).map(|f| f.0), Some(FailureKind::Proposal));
}

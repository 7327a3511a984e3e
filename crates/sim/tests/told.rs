//! Stories that ended badly once, as short as the search made them, and what they taught in general.

use dormouse_node::SleepFlags;
use dormouse_node::ladder::Rung;
use dormouse_sim::{Access, Script, Settings, Step, Story, Tale, World};
use std::time::Duration;

fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

fn tell(seed: u64, settings: Settings, steps: Vec<Step>) {
    Story { seed, script: Script(steps), settings }.tell();
}

/// The answer to the gateway's rekeying came after the device's own had won: the gateway repeated the Delete of its successor to a sleeping device.
#[test]
fn what_a_late_answer_makes_does_not_disturb_a_sleeping_device() {
    let weather = Step::Weather { loss: 0.34, duplication: 0.22, reordering: 0.28 };
    let nap = Step::Nap(ms(0), Access::A);
    tell(
        236_831,
        Settings::default(),
        vec![Step::Pause(ms(104)), Step::Data(8), weather, Step::RekeyIke(true), nap],
    );
    let steps = vec![
        Step::Enter(Access::B),
        Step::Data(8),
        nap,
        Step::RekeyIke(true),
        Step::RekeyChild(true),
        Step::Pause(ms(189)),
        Step::Enter(Access::B),
        Step::Pause(ms(130)),
        Step::RekeyIke(true),
        Step::RekeyChild(true),
        Step::Weather { loss: 0.46, duplication: 0.2, reordering: 0.0 },
        Step::Nap(ms(0), Access::B),
    ];
    tell(838_796, Settings::default(), steps);
}

/// The device ended its session while an SA that rekeying had replaced waited to be deleted, came back with another, and slept.
#[test]
fn what_a_session_leaves_does_not_disturb_the_sleep_of_the_next_one() {
    let steps = vec![
        Step::Data(8),
        Step::RekeyIke(false),
        Step::Data(8),
        Step::Weather { loss: 0.09, duplication: 0.0, reordering: 0.0 },
        Step::RekeyIke(true),
        Step::Pause(ms(43)),
        Step::DownUp(ms(0)),
        Step::Pause(ms(853)),
        Step::Nap(ms(0), Access::B),
    ];
    tell(207_504, Settings::default(), steps);
}

/// The first message of a session that was resumed at once confirmed it and rekeyed it: what it replaces is not itself.
#[test]
fn a_resumed_session_that_is_rekeyed_at_once_survives_its_confirmation() {
    let steps = vec![Step::Data(3), Step::DeviceCrash(ms(0)), Step::Data(1), Step::RekeyIke(false)];
    tell(12_110, Settings::default(), steps);
}

/// Both ends rekeyed the CHILD SA at once. The end whose new SA is redundant had nothing to send by, from its deletion until the
/// other end had deleted the old SA too.
#[test]
fn the_loser_of_a_collision_goes_on_sending() {
    let mut settings = Settings { delay: ms(293), ..Settings::default() };
    settings.device.extend([("ike", "rekey = 30".into()), ("child", "rekey = 10".into())]);
    settings.gateway.push(("child", "rekey = 10".into()));
    tell(72_096, settings, vec![Step::GatewayCrash(ms(2_000), true), Step::DownUp(ms(0))]);
}

#[test]
fn rekeyings_at_once_lose_no_packet() {
    for seed in 0..20 {
        let mut world = World::new(seed, Settings { delay: ms(250), ..Settings::default() });
        world.run(ms(5_000));
        world.step(Step::RekeyChild(true));
        let mut sent = (Vec::new(), Vec::new());
        for _ in 0..150 {
            sent.0.push(world.send_up());
            sent.1.push(world.send_down());
            world.run(ms(20));
        }
        world.run(ms(2_000));
        let lost = |sent: &[u64], received: &[u64]| sent.iter().filter(|n| !received.contains(n)).count();
        let lost = (lost(&sent.0, &world.gateway().received), lost(&sent.1, &world.device().received));
        assert_eq!(lost, (0, 0), "seed {seed}: lost up and down");
        world.settle_and_check();
    }
}

/// The demo's last row: a gateway is killed and comes back at once without anything that it knew. What the device sends to it finds out,
/// and arrives all the same, though it had heard the gateway only just before.
#[test]
fn what_finds_out_that_the_gateway_has_forgotten_everything_arrives() {
    for seed in 0..40 {
        let mut world = World::new(seed, Settings::default());
        world.run(ms(2_000));
        // The gateway speaks last 1 to 20 ms before it dies.
        world.send_down();
        world.run(ms(26 + seed % 20));
        world.step(Step::GatewayCrash(ms(15), false));
        let sent: Vec<u64> = std::iter::repeat_with(|| {
            let number = world.send_up();
            world.run(ms(5));
            number
        })
        .take(100)
        .collect();
        world.run(ms(15_000));
        let lost: Vec<_> = sent.iter().filter(|n| !world.gateway().received.contains(n)).collect();
        assert!(lost.is_empty(), "seed {seed}: {lost:?} of {}; {:#?}", sent.len(), world.device().changes);
        world.settle_and_check();
    }
}

/// The demo's row of a sleep that is longer than the gateway keeps the session. A stream that goes on into the sleep had filled every
/// place of the packets that wait for the session, and what the device sent on waking found none.
#[test]
fn a_stream_that_goes_on_into_a_sleep_keeps_no_other_flow_out() {
    for seed in 0..20 {
        let mut settings = Settings::default();
        settings.hold.longest = ms(8_000);
        let mut world = World::new(seed, settings);
        world.run(ms(2_000));
        world.send_up();
        world.announce_sleep(None, SleepFlags::default());
        for _ in 0..150 {
            world.send_up_to(7);
            world.run(ms(100));
        }
        world.wake(Access::A);
        let (mut up, mut down) = (Vec::new(), Vec::new());
        while down.len() < 100 {
            up.push(world.send_up());
            // The gateway has a way to the device as soon as something of it has come.
            if up.iter().any(|n| world.gateway().received.contains(n)) {
                down.push(world.send_down());
            }
            world.run(ms(5));
        }
        world.run(ms(5_000));
        assert_eq!(world.rungs(), [Rung::Full, Rung::Resume], "seed {seed}: {:#?}", world.device().changes);
        let lost =
            |sent: &[u64], at: &[u64]| sent.iter().filter(|n| !at.contains(n)).copied().collect::<Vec<_>>();
        let lost = (lost(&up, &world.gateway().received), lost(&down, &world.device().received));
        assert_eq!(lost, (vec![], vec![]), "seed {seed}: lost up and down, of {}", up.len());
        world.settle_and_check();
    }
}

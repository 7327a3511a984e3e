//! Days of devices whose radio sleeps: a whole session in virtual time, driven by the sleeper through a day of traffic. Whatever
//! the seed: no wake without a cause, nothing that was held is lost, and sleeping never costs more than the guarantee allows.
//!
//! `DORMOUSE_DAYS=N` lives N device-days (thousands before a release), `DORMOUSE_SEED=S` only the one of seed S.

mod common;

use common::{laptop, number, whims};
use dormouse_energy::schedule::{ALLOWANCE, Policy};
use dormouse_node::SleepFlags;
use dormouse_node::sleeper::{Cause, Event, Mode, Settings as SleepSettings, State, Times};
use dormouse_sim::{Settings, World, day};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);

struct Lived {
    wakes: u64,
    times: Times,
    saved: f64,
}

fn live(seed: u64, sleep: SleepSettings) -> Lived {
    let mut world = World::new(seed, Settings::default());
    world.run(Duration::from_secs(2));
    let model = sleep.model;
    let now = world.now();
    world.device_mut().let_sleep(now, sleep, 1, SleepFlags::default());
    let (begun, mut sent) = (world.now(), Vec::new());
    for packet in day(seed, DAY) {
        let at = begun + (packet.at - dormouse_sansio::Instant::ZERO);
        world.run(at - world.now());
        if packet.up {
            let awake = world.device().sleep_report(world.now()).is_some_and(|r| r.state == State::Awake);
            sent.push((world.send_up_to(packet.port), awake));
        } else {
            world.send_down();
        }
    }
    let now = world.now();
    world.device_mut().with(now, |host| _ = host.set_mode(now, Mode::Performance));
    world.run(Duration::from_secs(120));
    check(seed, &world, &sent, begun, model.radio.idle_power)
}

/// `sent`: each packet that the device sent, and whether it was awake.
fn check(
    seed: u64,
    world: &World,
    sent: &[(u64, bool)],
    begun: dormouse_sansio::Instant,
    idle_power: f64,
) -> Lived {
    let radio = world.device().radio.as_ref().expect("it has a radio");
    let report = world.device().sleep_report(world.now()).expect("it has a radio");
    assert_eq!(world.device().held_lost(), 0, "seed {seed}: more was held than there is room for");
    let received: std::collections::BTreeSet<u64> = world.gateway().received.iter().copied().collect();
    let lost = |awake| {
        let lost = sent.iter().filter(|(n, a)| *a == awake && !received.contains(n));
        lost.map(|(n, _)| *n).collect::<Vec<u64>>()
    };
    assert_eq!(lost(false), Vec::<u64>::new(), "seed {seed}: packets that woke the device were lost");
    // Sent by an awake device, a packet may still be overtaken by the end of the SA that carries it.
    assert!(lost(true).len() <= 2, "seed {seed}: {:?} were lost", lost(true));
    // Each order to switch on has its wake, and each wake a cause that happened.
    let on = radio.orders.iter().filter(|(_, on)| *on).count() as u64;
    let wakes: u64 = report.by_cause.iter().map(|(_, n)| n).sum();
    assert_eq!(on, wakes, "seed {seed}: {:?}", report.by_cause);
    for news in &radio.news {
        if let Event::Waking(woke) = news {
            match woke.cause {
                Cause::Traffic => assert!(woke.flow.is_some(), "seed {seed}"),
                Cause::Schedule => assert!(woke.slept >= Duration::from_secs(900), "seed {seed}: {woke:?}"),
                cause => assert_eq!(cause, Cause::Mode, "seed {seed}"),
            }
        }
    }
    let energy = &report.energy;
    assert_eq!(energy.times.elapsed(), world.now() - begun, "seed {seed}: time is missing in the account");
    let bound = energy.always_on + ALLOWANCE * report.break_even.as_secs_f64() * idle_power;
    assert!(energy.used <= bound, "seed {seed}: {} J used, {} J always on", energy.used, energy.always_on);
    Lived { wakes, times: energy.times, saved: energy.saved }
}

#[test]
fn every_day_ends_well() {
    let seeds = match number("DORMOUSE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("DORMOUSE_DAYS").unwrap_or(24),
    };
    let (mut failed, mut saved, mut wakes) = (Vec::new(), 0.0, 0);
    for seed in seeds.clone() {
        match catch_unwind(AssertUnwindSafe(|| live(seed, whims(seed)))) {
            Ok(lived) => {
                saved += lived.saved;
                wakes += lived.wakes;
                eprintln!(
                    "seed {seed}: {} wakes, {:.0} J saved, {:?}",
                    lived.wakes, lived.saved, lived.times
                );
            }
            Err(_) => {
                eprintln!("the day of seed {seed} failed");
                failed.push(seed);
                if failed.len() >= 10 {
                    break;
                }
            }
        }
    }
    assert!(failed.is_empty(), "days that failed: DORMOUSE_SEED={failed:?}");
    println!("{} device-days, {wakes} wakes, {saved:.0} J saved", seeds.end - seeds.start);
}

#[test]
fn a_radio_that_may_not_sleep_uses_what_an_always_on_one_does() {
    let lived = live(1, laptop(Mode::Performance, Policy::Dormouse, None));
    assert_eq!((lived.wakes, lived.times.asleep), (0, Duration::ZERO));
    assert!(lived.saved.abs() < 1e-6);
}

#[test]
fn what_was_sent_to_a_sleeping_device_in_vain_is_counted() {
    let mut world = World::new(7, Settings::default());
    world.run(Duration::from_secs(2));
    let sleep = laptop(Mode::Energy, Policy::Timeout(5.0), None);
    let now = world.now();
    world.device_mut().let_sleep(now, sleep, 1, SleepFlags::default());
    world.send_up();
    world.send_down();
    world.run(Duration::from_secs(30));
    assert!(!world.device().radio_is_on());
    // This gateway keeps nothing.
    for _ in 0..5 {
        world.send_down();
        world.run(Duration::from_secs(1));
    }
    world.send_up();
    world.run(Duration::from_secs(3));
    world.send_down();
    world.run(Duration::from_secs(1));
    let report = world.device().sleep_report(world.now()).expect("it has a radio");
    assert_eq!(report.counts.lost, 5);
    assert_eq!(report.backoff.1, 5);
}

//! Days of devices whose radio sleeps: a whole session in virtual time, driven by the sleeper through a day of traffic. With
//! every seed: no wake without a cause, nothing that was held is lost, and sleeping never costs more than the guarantee allows.
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

/// A day of `seed`; the policy's clock runs `speed` times as fast.
fn live(seed: u64, sleep: SleepSettings, speed: u32) -> Lived {
    let mut world = World::new(seed, Settings::default());
    world.run(Duration::from_secs(2));
    let model = sleep.model;
    let now = world.now();
    world.device_mut().let_sleep(now, sleep, speed, SleepFlags::default());
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
    check(seed, &world, &sent, (world.now() - begun) * speed, model.radio.idle_power)
}

/// `sent`: each packet that the device sent, and whether it was awake.
fn check(seed: u64, world: &World, sent: &[(u64, bool)], lived: Duration, idle_power: f64) -> Lived {
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
    assert_eq!(energy.times.elapsed(), lived, "seed {seed}: time is missing in the account");
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
        match catch_unwind(AssertUnwindSafe(|| live(seed, whims(seed), if seed % 7 == 6 { 20 } else { 1 }))) {
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
    let lived = live(1, laptop(Mode::Performance, Policy::Dormouse, None), 1);
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

/// A session that expires while the radio sleeps is renewed before, if the user wants that, and let go to the ticket otherwise.
#[test]
fn a_session_is_renewed_before_it_expires_if_that_is_wanted() {
    for renew in [true, false] {
        let mut settings = Settings::default();
        settings.device.push(("ike", "rekey = 600\nreauth = 0".into()));
        let mut world = World::new(8, settings);
        world.run(Duration::from_secs(2));
        let (now, sleep) = (world.now(), laptop(Mode::Energy, Policy::Timeout(5.0), None));
        world.device_mut().let_sleep(now, SleepSettings { renew, ..sleep }, 1, SleepFlags::default());
        world.send_up();
        world.run(Duration::from_secs(3_600));
        let wakes = world.device().sleep_report(world.now()).expect("it has a radio").by_cause;
        let renewals = wakes.iter().find(|(cause, _)| *cause == Cause::Deadline).map_or(0, |(_, n)| *n);
        assert_eq!(renewals >= 3, renew, "{wakes:?}");
        let rungs = world.rungs();
        assert!(!renew || !rungs[1..].iter().any(|r| *r > dormouse_node::ladder::Rung::Move), "{rungs:?}");
    }
}

//! Many devices sleep at one gateway: it leaves them in peace, and they all come back, after every kind of fault.

use dormouse_ike::config::HoldPolicy;
use dormouse_node::ladder::Rung;
use dormouse_sim::Crowd;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

// A CHILD SA lives for an hour here, and no hold outlives it.

/// Everybody connected.
fn crowd(seed: u64, count: usize, hold: HoldPolicy) -> Crowd {
    let mut crowd = Crowd::new(seed, count, hold);
    crowd.run(MINUTE);
    assert_eq!(crowd.sessions(), count);
    crowd
}

/// Everybody announces a sleep and sleeps.
fn all_sleep(crowd: &mut Crowd, expect: Option<Duration>) {
    for n in 0..crowd.count() {
        crowd.announce(n, expect);
    }
    crowd.run(Duration::from_secs(3));
    for n in 0..crowd.count() {
        crowd.switch_off(n);
    }
    crowd.run(Duration::from_secs(1));
    crowd.books.disturbed = 0;
    crowd.rungs();
}

/// Everybody wakes, not all at once, and sends something.
fn all_wake(crowd: &mut Crowd) {
    for n in 0..crowd.count() {
        crowd.switch_on(n);
        crowd.send_up(n);
        crowd.run(Duration::from_millis(5));
    }
    crowd.run(Duration::from_secs(5));
}

#[test]
fn a_thousand_held_sessions_are_left_in_peace_and_are_there_at_once() {
    let mut crowd = crowd(1, 1_000, HoldPolicy::default());
    all_sleep(&mut crowd, Some(40 * MINUTE));
    crowd.gateway_mut().wakeups.clear();
    crowd.run(40 * MINUTE);
    assert_eq!(crowd.books.disturbed, 0, "something was sent to a sleeping device");
    assert!(crowd.gateway().wakeups.is_empty(), "{:?}", crowd.gateway().wakeups);
    all_wake(&mut crowd);
    let rungs = crowd.rungs();
    assert_eq!(rungs.get(&Rung::Held), Some(&1_000), "{rungs:?}");
    crowd.check();
    assert_eq!(crowd.sessions(), 1_000);
}

#[test]
fn a_gateway_restarted_while_a_thousand_devices_sleep_gets_them_all_back() {
    let mut crowd = crowd(2, 1_000, HoldPolicy::default());
    all_sleep(&mut crowd, Some(HOUR));
    crowd.run(20 * MINUTE);
    crowd.restart_gateway();
    crowd.run(20 * MINUTE);
    assert_eq!(crowd.books.disturbed, 0);
    all_wake(&mut crowd);
    crowd.run(10 * Duration::from_secs(1));
    let rungs = crowd.rungs();
    assert_eq!(rungs.get(&Rung::Resume), Some(&1_000), "{rungs:?}");
    crowd.check();
    assert_eq!(crowd.sessions(), 1_000, "one session each");
}

#[test]
fn a_gateway_that_holds_a_few_leaves_the_others_to_their_tickets() {
    let hold = HoldPolicy { most: 30, ..HoldPolicy::default() };
    let mut some = crowd(3, 100, hold);
    let crowd = &mut some;
    all_sleep(crowd, None);
    crowd.run(40 * MINUTE);
    assert_eq!((crowd.sessions(), crowd.books.disturbed), (30, 0));
    all_wake(crowd);
    crowd.check();
    assert_eq!(crowd.sessions(), 100);
    let none = HoldPolicy { most: 0, ..HoldPolicy::default() };
    let mut crowd = self::crowd(4, 50, none);
    all_sleep(&mut crowd, Some(MINUTE));
    crowd.run(MINUTE);
    assert_eq!((crowd.sessions(), crowd.books.disturbed), (0, 0));
    all_wake(&mut crowd);
    let rungs = crowd.rungs();
    assert_eq!(rungs.get(&Rung::Resume), Some(&50), "told to, so at once: {rungs:?}");
    crowd.check();
}

#[test]
fn devices_that_die_in_their_sleep_leave_nothing_behind() {
    let hold = HoldPolicy { longest: 2 * HOUR, ..HoldPolicy::default() };
    let mut crowd = crowd(5, 60, hold);
    all_sleep(&mut crowd, None);
    for n in 0..20 {
        crowd.kill(n);
    }
    crowd.run(30 * MINUTE);
    assert_eq!(crowd.sessions(), 60, "the gateway cannot know yet");
    crowd.run(HOUR);
    assert_eq!((crowd.sessions(), crowd.books.disturbed), (0, 0));
    for n in 20..60 {
        crowd.switch_on(n);
        crowd.send_up(n);
    }
    crowd.run(Duration::from_secs(5));
    crowd.check();
    assert_eq!(crowd.sessions(), 40);
}

#[test]
fn clocks_that_are_set_while_everybody_sleeps_cost_an_exchange_at_most() {
    for (seed, by) in [(6, 3_600), (7, -3_600), (8, 400 * 86_400), (9, -400 * 86_400)] {
        let mut crowd = crowd(seed, 20, HoldPolicy { longest: 10 * MINUTE, ..HoldPolicy::default() });
        all_sleep(&mut crowd, Some(HOUR));
        crowd.run(30 * MINUTE);
        crowd.set_clocks(by);
        crowd.run(30 * MINUTE);
        all_wake(&mut crowd);
        crowd.run(MINUTE);
        crowd.check();
        assert_eq!(crowd.sessions(), 20, "clocks set by {by} s");
    }
}

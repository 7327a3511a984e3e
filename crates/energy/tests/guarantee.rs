//! What holds against any traffic: no policy beats the clairvoyant, and ours stays near break-even.

use core::time::Duration;

use dormouse_energy::account::{ClientReport, Ledger, Settings};
use dormouse_energy::model::SleepCost;
use dormouse_energy::schedule::{ALLOWANCE, Dormouse, Policy, Scheduler};
use dormouse_energy::{Direction, PacketInfo, WakeOn};
use dormouse_sansio::{Entropy, Instant, Seeded};
use proptest::prelude::*;

const B: f64 = 22.3;

fn policies() -> Vec<Box<dyn Scheduler>> {
    let all = [Policy::Never, Policy::Timeout(3.0), Policy::BreakEven, Policy::PAPER, Policy::Dormouse];
    all.map(|p| p.scheduler(B)).into()
}

fn run(wake_on: WakeOn, gaps: &[(f64, u16)]) -> ClientReport {
    let mut settings = Settings::new(SleepCost::constant(B));
    settings.wake_on = wake_on;
    let mut ledger = Ledger::new(settings, policies());
    let mut at = Instant::ZERO;
    for (gap, kind) in gaps {
        at += Duration::from_secs_f64(*gap);
        let direction = if kind % 2 == 0 { Direction::Outgoing } else { Direction::Incoming };
        ledger.packet(at, &PacketInfo { direction, remote_port: *kind, ..PacketInfo::default() });
    }
    ledger.finish()
}

/// Lengths that hurt: around the minimum, around break-even, around the time-outs of the grid, and very long.
fn gap() -> impl Strategy<Value = f64> {
    prop_oneof![
        0.0f64..0.5,
        (0.9f64..1.3).prop_map(|x| x * B),
        (0u8..30, 0.99f64..1.02).prop_map(|(i, x)| 0.25 * 1.27f64.powi(i32::from(i)) * x),
        (-1.5f64..12.0).prop_map(f64::exp),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_policy_beats_the_clairvoyant_and_ours_stays_near_break_even(
        cycle in prop::collection::vec((gap(), 0u16..4), 1..40), repeat in 1usize..20,
    ) {
        for wake_on in [WakeOn::All, WakeOn::Outgoing] {
            let report = run(wake_on, &cycle.repeat(repeat));
            let best = report.policy("clairvoyant").unwrap().cost;
            for (name, totals) in &report.policies {
                prop_assert!(totals.cost >= best - 1e-6 * best.max(1.0), "{name}: {} < {best}", totals.cost);
            }
            let break_even = report.policy("break-even").unwrap().cost;
            if wake_on == WakeOn::All {
                prop_assert!(break_even <= 2.0 * best + 1e-6);
                let ours = report.policy("dormouse").unwrap().cost;
                prop_assert!(ours <= break_even + ALLOWANCE * B + 1e-3, "{ours} > {break_even} + constant");
            }
        }
    }
}

/// What an adversary that sees each decision makes the policy pay, and break-even on the same periods.
fn against(mut adversary: impl FnMut(f64, u64) -> f64, rounds: u64) -> (f64, f64) {
    let mut policy = Dormouse::new(B);
    let (mut ours, mut break_even, mut at) = (0.0, 0.0, Instant::ZERO);
    for round in 0..rounds {
        policy.observe(at, &PacketInfo::default());
        let off_after = policy.decide().seconds();
        let idle = Duration::from_secs_f64(adversary(off_after, round).clamp(0.25, 1e7));
        policy.learn(idle);
        at += idle;
        let g = idle.as_secs_f64();
        ours += if g > off_after { off_after + B } else { g };
        break_even += if g > B { 2.0 * B } else { g };
        assert!(ours <= break_even + ALLOWANCE * B + 1e-3, "round {round}: {ours} > {break_even} + constant");
    }
    (ours, break_even)
}

/// The same where only what the client sends wakes the radio. The adversary says how long each silence is and whether an arriving packet
/// ends it; a radio that is off sleeps on until the client sends.
fn against_arrivals(mut adversary: impl FnMut(f64, u64) -> (f64, bool), rounds: u64) -> (f64, f64) {
    let mut policy = Dormouse::new(B);
    policy.wakes_on(WakeOn::Outgoing);
    let (mut ours, mut break_even, mut at) = (0.0, 0.0, Instant::ZERO);
    let (mut arrived, mut break_even_sleeps) = (false, false);
    for round in 0..rounds {
        let direction = if arrived { Direction::Incoming } else { Direction::Outgoing };
        policy.observe(at, &PacketInfo { direction, ..PacketInfo::default() });
        let off_after = policy.decide().seconds();
        let (idle, arrives) = adversary(off_after, round);
        let idle = Duration::from_secs_f64(idle.clamp(0.25, 1e7));
        policy.learn(idle);
        at += idle;
        let g = idle.as_secs_f64();
        ours += if g > off_after { off_after + B } else { g };
        if !break_even_sleeps {
            break_even += if g > B { 2.0 * B } else { g };
        }
        arrived = arrives && g <= off_after;
        break_even_sleeps = arrived && (break_even_sleeps || g > B);
        assert!(ours <= break_even + ALLOWANCE * B + 1e-3, "round {round}: {ours} > {break_even} + constant");
    }
    (ours, break_even)
}

#[test]
fn an_adversary_that_keeps_a_radio_on_with_arrivals_that_break_even_sleeps_through_gains_a_constant() {
    against_arrivals(|_, _| (2.0 * B, true), 20_000);
    against_arrivals(|t, _| (if t.is_finite() { t - 1e-6 } else { 1e6 }, true), 20_000);
    against_arrivals(|t, round| (if round % 50 < 40 { 2.0 * B } else { t + 1e-6 }, round % 7 != 0), 20_000);
    for seed in 0..50 {
        let mut random = Seeded::new(seed);
        let adversary = move |t: f64, _| {
            let arrives = random.below(4) > 0;
            let idle = match random.below(5) {
                0 => t + 1e-6,
                1 => t - 1e-6,
                2 => B + 1e-6,
                3 => 2.0 * B,
                _ => (random.below(140) as f64 / 10.0).exp() / 4.0,
            };
            (idle.min(1e6), arrives)
        };
        against_arrivals(adversary, 2_000);
    }
}

#[test]
fn an_adversary_that_ends_each_period_right_after_the_radio_went_off_gains_a_constant() {
    against(|t, _| t + 1e-6, 20_000);
    against(|t, _| if t.is_finite() { t + 1e-6 } else { 1e6 }, 20_000);
}

#[test]
fn an_adversary_that_first_teaches_and_then_betrays_gains_a_constant() {
    against(|t, round| if round % 400 < 200 { 600.0 } else { t + 1e-6 }, 20_000);
    against(
        |t, round| {
            if round % 400 < 200 {
                5.0
            } else if t > B {
                1e5
            } else {
                t + 1e-6
            }
        },
        20_000,
    );
}

#[test]
fn an_adversary_that_takes_the_worse_of_two_lengths_gains_a_constant() {
    // Whichever of "just after off" and "very long" hurts more against break-even.
    let worse = |t: f64, _| {
        let extra = |g: f64| (if g > t { t + B } else { g }) - (if g > B { 2.0 * B } else { g });
        let short = t.min(1e6) + 1e-6;
        if extra(short) >= extra(1e6) { short } else { 1e6 }
    };
    against(worse, 20_000);
}

#[test]
fn random_adversaries_gain_a_constant() {
    for seed in 0..50 {
        let mut random = Seeded::new(seed);
        let adversary = move |t: f64, _| match random.below(4) {
            0 => t + 1e-6,
            1 => t - 1e-6,
            2 => B + 1e-6,
            _ => (random.below(140) as f64 / 10.0).exp() / 4.0,
        };
        let (ours, break_even) = against(adversary, 2_000);
        assert!(ours <= break_even + ALLOWANCE * B + 1e-3, "seed {seed}");
    }
}

#[test]
fn a_changed_break_even_time_keeps_the_guarantee_for_the_larger_one() {
    let mut policy = Dormouse::new(20.0);
    let (mut over, mut b, mut at) = (0.0, 20.0, Instant::ZERO);
    for round in 0..5_000 {
        if round % 100 == 99 {
            b = if b > 22.0 { 20.0 } else { 26.0 };
            policy.set_break_even(b);
        }
        policy.observe(at, &PacketInfo::default());
        let t = policy.decide().seconds();
        let idle = Duration::from_secs_f64(t.min(1e6) + 1e-6);
        policy.learn(idle);
        at += idle;
        let g = idle.as_secs_f64();
        over += (if g > t { t + b } else { g }) - if g > b { 2.0 * b } else { g };
        assert!(over <= ALLOWANCE * 26.0 + 1e-3, "round {round}: {over}");
    }
}

//! What the learned policy makes of traffic that has a pattern, and what it keeps.

use core::time::Duration;

use dormouse_energy::account::{ClientReport, Ledger, Settings};
use dormouse_energy::model::SleepCost;
use dormouse_energy::schedule::{Dormouse, Policy, Scheduler, StateError};
use dormouse_energy::{Direction, PacketInfo, WakeOn};
use dormouse_sansio::{Entropy, Instant, Seeded};

const B: f64 = 22.3;
const DAY: f64 = 86_400.0;

fn info(port: u16, outgoing: bool) -> PacketInfo {
    let direction = if outgoing { Direction::Outgoing } else { Direction::Incoming };
    PacketInfo { direction, protocol: 17, local_port: 5000, remote_port: port, size: 100, time_of_day: None }
}

/// Times in seconds and packets, in any order.
fn run(mut packets: Vec<(f64, PacketInfo)>) -> ClientReport {
    packets.sort_by(|a, b| a.0.total_cmp(&b.0));
    let policies = [Policy::BreakEven, Policy::PAPER, Policy::Dormouse].map(|p| p.scheduler(B));
    let mut ledger = Ledger::new(Settings::new(SleepCost::constant(B)), policies.into());
    for (seconds, packet) in packets {
        ledger.packet(Instant::ZERO + Duration::from_secs_f64(seconds), &packet);
    }
    ledger.finish()
}

/// Uniform in 0..1.
fn unit(random: &mut Seeded) -> f64 {
    random.below(1 << 30) as f64 / f64::from(1 << 30)
}

/// Packets of one kind every `every` seconds for two days, give or take `jitter`.
fn timer(random: &mut Seeded, port: u16, every: f64, jitter: f64) -> Vec<(f64, PacketInfo)> {
    let phase = unit(random) * every;
    let count = (2.0 * DAY / every) as u32;
    let mut at = |i: u32| phase + every * f64::from(i) + jitter * (unit(random) - 0.5);
    (0..count).map(|i| (at(i).max(0.0), info(port, true))).collect()
}

#[test]
fn timers_of_several_kinds_are_foreseen() {
    for seed in 0..5 {
        let random = &mut Seeded::new(seed);
        let timers = [(60.0, 1883), (61.0, 123), (301.0, 53), (721.0, 5353)];
        let packets = timers.into_iter().flat_map(|(every, port)| timer(random, port, every, 0.2)).collect();
        let report = run(packets);
        let share = report.share_of_clairvoyant("dormouse").unwrap();
        assert!(
            share > 0.93,
            "seed {seed}: {share}, break-even {:?}",
            report.share_of_clairvoyant("break-even")
        );
    }
}

#[test]
fn chatter_that_never_pays_costs_nothing() {
    for seed in 0..5 {
        let random = &mut Seeded::new(seed);
        let mut at = 0.0;
        let mut packets = Vec::new();
        while at < DAY {
            at += 0.1 + 20.0 * unit(random);
            packets.push((at, info(443, unit(random) < 0.5)));
        }
        let report = run(packets);
        let ours = report.policy("dormouse").unwrap();
        assert!(ours.cost <= report.idle_seconds, "seed {seed}: {} > {}", ours.cost, report.idle_seconds);
    }
}

#[test]
fn periods_just_above_break_even_do_not_ruin_it_as_they_do_break_even() {
    let random = &mut Seeded::new(1);
    let mut at = 0.0;
    let packets = std::iter::repeat_with(|| {
        at += B + 1.0 + unit(random);
        (at, info(443, true))
    });
    let report = run(packets.take(4_000).collect());
    assert!(report.share_of_clairvoyant("break-even").unwrap() < -5.0);
    assert!(report.share_of_clairvoyant("dormouse").unwrap() > 0.7);
}

#[test]
fn alternating_periods_are_told_apart_without_any_side_information() {
    let mut at = 0.0;
    let packets = (0..4_000).map(|i| {
        at += if i % 2 == 0 { 10.0 } else { 50.0 };
        (at, PacketInfo::default())
    });
    let report = run(packets.collect());
    assert!(report.share_of_clairvoyant("dormouse").unwrap() > 0.97);
    assert!(report.share_of_clairvoyant("paper").unwrap() < 0.7);
}

#[test]
fn asking_twice_gives_the_same_answer_and_teaches_nothing() {
    let mut policy = Dormouse::new(B);
    for i in 0..100u64 {
        policy.observe(Instant::from_nanos(i * 60_000_000_000), &info(443, true));
        assert_eq!(policy.decide(), policy.decide());
        policy.learn(Duration::from_secs(60));
    }
    assert!(policy.decide().seconds() < 1.0);
}

/// A policy that has seen `periods` varied idle periods.
fn experienced(periods: u64) -> (Dormouse, Instant) {
    let (mut policy, mut random, mut at) = (Dormouse::new(B), Seeded::new(9), Instant::ZERO);
    for _ in 0..periods {
        let port = u16::try_from(random.below(2_000)).unwrap_or(0);
        policy.observe(at, &info(port, random.below(2) == 0));
        policy.decide();
        let idle = Duration::from_secs_f64((unit(&mut random) * 8.0).exp() / 4.0);
        policy.learn(idle);
        at += idle;
    }
    (policy, at)
}

#[test]
fn memory_is_bounded_and_so_is_what_is_saved() {
    let (policy, _) = experienced(20_000);
    assert_eq!(policy.state_bytes(), Dormouse::new(B).state_bytes());
    assert!(policy.state_bytes() < 140 * 1024, "{}", policy.state_bytes());
    let mut saved = Vec::new();
    policy.save(&mut saved);
    assert!(saved.len() < policy.state_bytes());
    for other in [Policy::Never, Policy::BreakEven, Policy::Timeout(1.0), Policy::PAPER] {
        assert!(other.scheduler(B).state_bytes() < 4 * 1024, "{}", other.name());
    }
}

/// What a policy that only the client's own packets wake decides and expects after a question, if the break-even time was `before` while it
/// learned: a minute's sleep pays after some packets, but after a question the answer comes in 10 s, and the next packet of the client 12 s
/// later. The answer would not have woken a radio that is off.
fn after_a_question(before: f64, now: f64) -> (f64, Option<f64>) {
    let mut policy = Dormouse::new(before);
    policy.wakes_on(WakeOn::Outgoing);
    let mut at = Instant::ZERO;
    for round in 0..120 {
        for (port, outgoing, idle) in [(443, true, 60.0), (53, true, 10.0), (53, false, 12.0)] {
            policy.observe(at, &info(port, outgoing));
            policy.decide();
            policy.learn(Duration::from_secs_f64(idle));
            at += Duration::from_secs_f64(idle);
        }
        if round == 118 {
            policy.set_break_even(now);
        }
    }
    policy.observe(at, &info(443, true));
    policy.learn(Duration::from_secs(60));
    policy.observe(at + Duration::from_secs(60), &info(53, true));
    (policy.decide().seconds(), policy.prediction().saving)
}

#[test]
fn another_break_even_time_finds_what_was_learned_of_sleeps_that_outlast_their_silence() {
    for (before, now) in [(22.3, 27.3), (27.3, 22.3), (40.0, 22.3)] {
        let (changed, known) = (after_a_question(before, now), after_a_question(now, now));
        let (Some(expects), Some(right)) = (changed.1, known.1) else {
            panic!("{before} to {now}: {changed:?} against {known:?}");
        };
        assert!((expects - right).abs() < 0.5, "{before} to {now}: {changed:?} against {known:?}");
    }
}

#[test]
fn experience_survives_a_restart() {
    let (policy, _) = experienced(3_000);
    let mut saved = Vec::new();
    policy.save(&mut saved);
    let mut restored = Dormouse::new(B);
    restored.restore(&saved).unwrap();
    let mut again = Vec::new();
    restored.save(&mut again);
    assert_eq!(saved.len(), again.len());

    // A client whose periods are all long is trusted at once after a restart, and waited for without one.
    let mut known = Dormouse::new(B);
    for i in 0..50u64 {
        known.observe(Instant::from_nanos(i * 300_000_000_000), &info(443, true));
        known.learn(Duration::from_secs(300));
    }
    saved.clear();
    known.save(&mut saved);
    let mut restored = Dormouse::new(B);
    restored.restore(&saved).unwrap();
    restored.observe(Instant::ZERO, &info(443, true));
    assert!(restored.decide().seconds() < 1.0);
    let mut fresh = Dormouse::new(B);
    fresh.observe(Instant::ZERO, &info(443, true));
    assert!(fresh.decide().seconds() > B);
}

#[test]
fn damaged_state_is_refused_and_changes_nothing() {
    let (policy, _) = experienced(500);
    let mut saved = Vec::new();
    policy.save(&mut saved);
    let mut target = Dormouse::new(B);
    let mut before = Vec::new();
    target.save(&mut before);
    for length in [0, 3, 4, saved.len() - 1, saved.len() + 1] {
        let mut cut = saved.clone();
        cut.resize(length, 0);
        assert!(matches!(target.restore(&cut), Err(StateError::Length { .. })), "{length}");
    }
    let mut wrong = saved.clone();
    wrong[3] ^= 1;
    assert!(matches!(target.restore(&wrong), Err(StateError::Version { .. })));
    let mut wrong = saved.clone();
    wrong[4..12].copy_from_slice(&f64::NAN.to_le_bytes());
    assert_eq!(target.restore(&wrong), Err(StateError::Damaged { what: "break-even time" }));
    let mut after = Vec::new();
    target.save(&mut after);
    assert_eq!(before, after);
}

#[test]
fn no_state_however_damaged_makes_it_panic() {
    let (policy, at) = experienced(200);
    let mut saved = Vec::new();
    policy.save(&mut saved);
    let mut random = Seeded::new(3);
    for seed in 0..500 {
        let mut damaged = saved.clone();
        for _ in 0..8 {
            let place = usize::try_from(random.below(damaged.len() as u64)).unwrap();
            damaged[place] = u8::try_from(random.below(256)).unwrap();
        }
        damaged[..4].copy_from_slice(&saved[..4]);
        let mut target = Dormouse::new(B);
        if target.restore(&damaged).is_ok() {
            target.observe(at, &info(443, true));
            target.decide();
            target.learn(Duration::from_secs(100));
            assert!(!target.decide().seconds().is_nan(), "seed {seed}");
        }
    }
}

/// The page has a reason for each constant of the policy.
#[test]
fn each_constant_has_its_reason() {
    let (_, reasons) = include_str!("../../../docs/policy.md")
        .split_once("### Why each constant is what it is")
        .expect("the section");
    let named: Vec<&str> =
        reasons.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next()).collect();
    let shown = format!("{:?}", dormouse_energy::schedule::Tuning::SHIPPED);
    let fields = shown.trim_start_matches("Tuning {").split(", ").filter_map(|field| field.split(':').next());
    let fields: Vec<&str> = fields.map(str::trim).collect();
    assert!(fields.len() > 20, "{fields:?}");
    for field in fields {
        assert!(named.iter().any(|name| name.contains(&format!("`{field}`"))), "{field}: {named:?}");
    }
}

//! The accounting at hand-computed cases.

use core::time::Duration;

use dormouse_energy::account::{ClientReport, Ledger, Settings, paper_proxy};
use dormouse_energy::model::SleepCost;
use dormouse_energy::schedule::Policy;
use dormouse_energy::{Direction, PacketInfo, WakeOn};
use dormouse_sansio::Instant;

const B: f64 = 20.0;
const OUT: PacketInfo = packet(Direction::Outgoing, 0);
const IN: PacketInfo = packet(Direction::Incoming, 0);
const DNS: PacketInfo = packet(Direction::Incoming, 53);

const fn packet(direction: Direction, remote_port: u16) -> PacketInfo {
    PacketInfo { direction, protocol: 17, local_port: 0, remote_port, size: 0, time_of_day: None }
}

fn run(settings: Settings, packets: &[(f64, PacketInfo)]) -> ClientReport {
    let policies = [Policy::Never, Policy::Timeout(5.0), Policy::BreakEven];
    let mut ledger = Ledger::new(settings, policies.map(|p| p.scheduler(B)).into());
    for (seconds, info) in packets {
        ledger.packet(Instant::ZERO + Duration::from_secs_f64(*seconds), info);
    }
    ledger.finish()
}

fn settings() -> Settings {
    Settings::new(SleepCost::constant(B))
}

#[test]
fn waiting_sleeping_and_the_clairvoyant_cost_what_they_should() {
    // Idle 10, 100, 0.1 (none), 5 (not longer than the time-out).
    let report = run(settings(), &[(0.0, OUT), (10.0, IN), (110.0, IN), (110.1, OUT), (115.1, OUT)]);
    assert_eq!((report.packets, report.idle_periods), (5, 3));
    assert!((report.idle_seconds - 115.0).abs() < 1e-9);
    let cost = |name| report.policy(name).unwrap().cost;
    assert!((cost("never") - 115.0).abs() < 1e-9);
    assert!((cost("timeout") - (25.0 + 25.0 + 5.0)).abs() < 1e-9);
    assert!((cost("break-even") - (10.0 + 40.0 + 5.0)).abs() < 1e-9);
    assert!((cost("clairvoyant") - (10.0 + 20.0 + 5.0)).abs() < 1e-9);
    assert_eq!(report.policy("timeout").unwrap().cycles, 2);
    assert_eq!(report.policy("never").unwrap().missed_opportunities, 1);
    assert_eq!(report.policy("break-even").unwrap().missed_opportunities, 0);
    assert!((report.share_of_clairvoyant("break-even").unwrap() - 60.0 / 80.0).abs() < 1e-9);
    assert!((report.policy("break-even").unwrap().saved_fraction(115.0) - 60.0 / 115.0).abs() < 1e-9);
    assert!(report.policies.iter().all(|(_, t)| t.packets_lost == 0));
}

#[test]
fn a_silence_of_exactly_the_minimum_is_an_idle_period() {
    assert_eq!(run(settings(), &[(0.0, OUT), (0.25, OUT)]).idle_periods, 1);
    assert_eq!(run(settings(), &[(0.0, OUT), (0.249_999, OUT)]).idle_periods, 0);
}

#[test]
fn arriving_packets_do_not_wake_under_outgoing() {
    let mut settings = settings();
    settings.wake_on = WakeOn::Outgoing;
    settings.proxy = Some(paper_proxy);
    let packets = [(0.0, OUT), (30.0, IN), (60.0, DNS), (100.0, OUT), (103.0, IN), (104.0, OUT)];
    let report = run(settings, &packets);
    let timeout = report.policy("timeout").unwrap();
    // Off from 5 s to 100 s in one sleep; then two silences that are too short.
    assert!((timeout.cost - (5.0 + B + 3.0 + 1.0)).abs() < 1e-9);
    assert_eq!((timeout.cycles, timeout.packets_lost, timeout.packets_proxied), (1, 1, 1));
    assert!((timeout.off_seconds - 95.0).abs() < 1e-9);
    let best = report.policy("clairvoyant").unwrap();
    assert!((best.cost - (B + 3.0 + 1.0)).abs() < 1e-9);
    assert_eq!((best.packets_lost, best.packets_proxied), (1, 1));
    assert!((report.policy("never").unwrap().cost - 104.0).abs() < 1e-9);
}

#[test]
fn a_sleep_that_the_recording_cuts_off_is_paid_for() {
    let mut settings = settings();
    settings.wake_on = WakeOn::Outgoing;
    let report = run(settings, &[(0.0, OUT), (50.0, IN), (60.0, IN)]);
    let timeout = report.policy("timeout").unwrap();
    assert!((timeout.cost - (5.0 + B)).abs() < 1e-9);
    assert_eq!((timeout.cycles, timeout.packets_lost), (1, 2));
}

#[test]
fn long_sleeps_cost_more_under_a_hybrid() {
    let settings = Settings::new(SleepCost::hybrid(20.0, 30.0, 120.0));
    let report = run(settings, &[(0.0, OUT), (120.0, OUT), (241.0, OUT)]);
    assert!((report.policy("timeout").unwrap().cost - (25.0 + 35.0)).abs() < 1e-9);
    assert!((report.policy("clairvoyant").unwrap().cost - 50.0).abs() < 1e-9);
}

#[test]
fn nothing_to_save_has_no_share_and_time_never_runs_backwards() {
    let report = run(settings(), &[(10.0, OUT), (5.0, OUT), (10.2, OUT)]);
    assert_eq!((report.packets, report.idle_periods), (3, 0));
    assert_eq!(report.share_of_clairvoyant("break-even"), None);
    assert_eq!(report.policy("clairvoyant").unwrap().saved_fraction(report.idle_seconds), 0.0);
    assert_eq!(run(settings(), &[]).packets, 0);
}

#[test]
fn absence_ends_a_session_and_is_charged_saved_and_learned_by_none() {
    let settings = Settings { session: Some(Duration::from_secs(3_600)), ..settings() };
    // Two sessions with an idle period of 100 s each, two hours apart; then one of a single packet, exactly an hour is no absence.
    let packets = [(0.0, OUT), (100.0, OUT), (7_300.0, IN), (7_400.0, OUT), (11_000.0, OUT), (14_601.0, OUT)];
    let policies = || [Policy::Timeout(5.0), Policy::Dormouse].map(|p| p.scheduler(B)).into();
    let mut ledger = Ledger::new(settings, policies());
    for (seconds, info) in packets {
        ledger.packet(Instant::ZERO + Duration::from_secs_f64(seconds), &info);
    }
    let sessions = ledger.sessions();
    let seen: Vec<_> = sessions.iter().map(|s| (s.packets, s.idle_periods, s.idle_seconds)).collect();
    assert_eq!(seen, [(2, 1, 100.0), (3, 2, 3_700.0), (1, 0, 0.0)]);
    let cost = |n: usize, name| sessions[n].policy(name).unwrap().cost;
    assert!((cost(0, "timeout") - 25.0).abs() < 1e-9 && (cost(0, "clairvoyant") - 20.0).abs() < 1e-9);
    assert!((cost(1, "timeout") - 50.0).abs() < 1e-9 && (cost(1, "clairvoyant") - 40.0).abs() < 1e-9);
    assert_eq!(cost(2, "timeout"), 0.0);
    // The sums are those of the sessions, and an outgoing-only sleep ends with the session.
    let sum = ClientReport::sum(&sessions);
    assert_eq!((sum.packets, sum.idle_seconds), (6, 3_800.0));
    assert!((sum.policy("timeout").unwrap().cost - 75.0).abs() < 1e-9);
    let outgoing = Settings { wake_on: WakeOn::Outgoing, ..settings };
    let mut ledger = Ledger::new(outgoing, policies());
    for (seconds, info) in [(0.0, OUT), (100.0, IN), (7_300.0, OUT)] {
        ledger.packet(Instant::ZERO + Duration::from_secs_f64(seconds), &info);
    }
    let first = ledger.sessions()[0].policy("timeout").copied().unwrap();
    assert_eq!((first.cycles, first.packets_lost, first.off_seconds), (1, 1, 95.0));
}

/// Each packet on its own and the same as counts: one account.
#[test]
fn packets_that_are_counted_cost_what_they_cost_one_by_one() {
    let times =
        [(0.0, OUT, 3), (50.0, IN, 4), (90.0, DNS, 2), (200.0, OUT, 1), (400.0, IN, 7), (900.0, OUT, 5)];
    for wake_on in [WakeOn::All, WakeOn::Outgoing] {
        let settings = Settings { wake_on, proxy: Some(paper_proxy), ..settings() };
        let policies = [Policy::Never, Policy::Timeout(5.0), Policy::BreakEven];
        let ledger = || Ledger::new(settings, policies.map(|p| p.scheduler(B)).into());
        let (mut single, mut counted) = (ledger(), ledger());
        for (seconds, info, count) in times {
            let at = Instant::ZERO + Duration::from_secs_f64(seconds);
            (0..count).for_each(|_| single.packet(at, &info));
            counted.packets(at, &info, count);
        }
        let report = counted.finish();
        assert_eq!(report.packets, 22);
        assert_eq!(single.finish(), report, "{wake_on:?}");
    }
}

#[test]
fn a_client_that_leaves_ends_its_session() {
    let mut ledger = Ledger::new(settings(), vec![Policy::Timeout(5.0).scheduler(B)]);
    ledger.leave();
    for seconds in [10.0, 30.0] {
        ledger.packet(Instant::ZERO + Duration::from_secs_f64(seconds), &OUT);
    }
    ledger.leave();
    // A connection that had begun before the other one ended.
    for seconds in [20.0, 60.0] {
        ledger.packet(Instant::ZERO + Duration::from_secs_f64(seconds), &OUT);
    }
    let sessions = ledger.sessions();
    let idle: Vec<f64> = sessions.iter().map(|s| s.idle_seconds).collect();
    assert_eq!(idle, [20.0, 40.0]);
    assert_eq!(sessions[1].policy("timeout").unwrap().cycles, 1);
}

//! A radio of several states: its file, by hand, and the accounting that follows.

use core::time::Duration;

use dormouse_energy::PacketInfo;
use dormouse_energy::account::{Ledger, Settings};
use dormouse_energy::model::{Baseline, Resumption};
use dormouse_energy::profile::Profile;
use dormouse_energy::radio::{BaselineError, baseline};
use dormouse_energy::schedule::Policy;
use dormouse_energy::states::{RadioError, RadioStates};
use dormouse_sansio::Instant;
use proptest::prelude::*;

const FIGURE: &str = r#"kind = "estimated", source = "the test""#;

/// Active 2 W; power save 0.5 W, 1 J and 0.25 s to come back; off 0.1 W, 40 J and 2 s to come back.
fn file(off: &str) -> String {
    let figure = |name: &str, value: f64, unit: &str| {
        format!("{name} = {{ value = {value}, unit = {unit:?}, {FIGURE} }}\n")
    };
    let active = figure("power", 2000.0, "mW");
    let save =
        figure("power", 0.5, "W") + &figure("leave_energy", 1.0, "J") + &figure("leave_time", 250.0, "ms");
    let down =
        figure("power", 0.1, "W") + &figure("leave_energy", 0.04, "kJ") + &figure("enter_time", 2.0, "s");
    format!(
        "name = \"test\"\n[[state]]\nname = \"active\"\n{active}[[state]]\nname = \"power save\"\n{save}[[state]]\nname = \"off\"\n{off}{down}"
    )
}

fn model() -> dormouse_energy::model::Model {
    let mut model = Profile::shipped("laptop-000").expect("a profile").model().expect("a model");
    model.baseline = baseline(&file("off = true\n")).expect("a baseline");
    model
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9 * b.abs().max(1.0)
}

#[test]
fn costs_are_those_of_the_walk_in_seconds_of_power_save() {
    let cost = model().sleep_cost(Resumption::HeldSa, 1);
    // Power save costs 1 J + 0.25 s x 2 W = 1.5 J and is entered after 1.5 J / (2 W - 0.5 W) = 1 s. The unit is 0.5 J.
    assert!(close(cost.awake(0.5), 2.0));
    assert!(close(cost.awake(11.0), 2.0 * 2.0 + 10.0 + 3.0));
    assert!(close(cost.best_awake(11.0), 3.0 + 11.0));
    // Off costs 40 J + 2 s x 2 W = 44 J, and 0.1 W.
    assert!(close(cost.of(100.0), 88.0));
    assert!(close(cost.asleep(100.0, 11.0), 4.0 + 10.0 + 88.0 + 0.2 * 89.0));
    assert!(close(cost.asleep(100.0, 0.0), 88.0 + 20.0));
    assert!(close(cost.best(200.0), 128.0) && close(cost.best(20.0), 23.0));
    // From the settled state on: (44 J - 1.5 J) / (0.5 W - 0.1 W).
    assert!(close(cost.break_even(), 42.5 / 0.4));
}

#[test]
fn the_exchange_is_the_profiles_and_a_hybrid_changes_it() {
    let cost = model().sleep_cost(Resumption::MobikeThenTicket, 1);
    assert!(close(cost.of(120.0), (44.0 + 0.4 + 0.02 * 2.0) / 0.5));
    assert!(close(cost.of(120.1), (44.0 + 9.2 + 0.11 * 2.0) / 0.5));
}

#[test]
fn one_state_and_off_is_the_papers_model() {
    let text = file("off = true\n");
    let (head, rest) = text.split_once("[[state]]\nname = \"power save\"").expect("two");
    let off = rest.split_once("[[state]]").expect("three").1.replace("value = 0.1", "value = 0.0");
    let Ok(Baseline::States(states)) = baseline(&format!("{head}[[state]]{off}")) else { panic!("states") };
    let cost = states.sleep_cost(&model().exchanges, Resumption::HeldSa, 1, 120.0);
    assert!(close(cost.break_even(), 40.0 / 2.0 + 2.0));
    assert!(close(cost.awake(7.0), 7.0) && close(cost.asleep(70.0, 7.0), 7.0 + 22.0));
}

#[test]
fn a_client_is_accounted_in_it() {
    let settings = Settings::new(model().sleep_cost(Resumption::HeldSa, 1));
    let policies = [Policy::Never, Policy::Timeout(11.0)].map(|p| p.scheduler(settings.cost.break_even()));
    let mut ledger = Ledger::new(settings, policies.into());
    for seconds in [0, 5, 305] {
        ledger.packet(Instant::ZERO + Duration::from_secs(seconds), &PacketInfo::default());
    }
    let report = ledger.finish();
    let never = (4.0 + 4.0 + 3.0) + (4.0 + 299.0 + 3.0);
    assert!(close(report.idle_seconds, 305.0) && close(report.idle_cost, never));
    assert!(close(report.policy("never").expect("never").cost, never));
    let timeout = (4.0 + 4.0 + 3.0) + (4.0 + 10.0 + 88.0 + 0.2 * 289.0);
    assert!(close(report.policy("timeout").expect("timeout").cost, timeout));
    let best = (3.0 + 5.0) + (88.0 + 0.2 * 300.0);
    assert!(close(report.policy("clairvoyant").expect("the bound").cost, best));
    assert!(close(
        report.share_of_clairvoyant("timeout").expect("a share"),
        (never - timeout) / (never - best)
    ));
}

#[test]
fn what_cannot_be_a_radio_is_named() {
    let error = |text: &str| RadioStates::from_toml(text).expect_err("an error");
    assert_eq!(error(&file("")), RadioError::Off { found: 0 });
    assert!(matches!(error("name = 1"), RadioError::Syntax(_)));
    let off = file("off = true\n");
    assert!(matches!(error(&off.replace("0.1", "0.5")), RadioError::Pointless { .. }));
    assert!(matches!(error(&off.replace("0.1", "-0.1")), RadioError::State(_)));
    let unit = error(&off.replacen("\"ms\"", "\"W\"", 1)).to_string();
    assert!(unit.contains("power save") && unit.contains("leave_time") && unit.contains("s or ms"), "{unit}");
    let unknown = error(&off.replacen("leave_time", "leaving", 1)).to_string();
    assert!(unknown.contains("leaving"), "{unknown}");
}

#[test]
fn a_baseline_is_watts_a_profile_or_states() {
    assert_eq!(baseline(" 0.7\n"), Ok(Baseline::Watts(0.7)));
    let profile = format!(
        "name = \"p\"\ndescription = \"\"\n[figures]\n\"baseline.power\" = {{ value = 500, unit = \"mW\", {FIGURE} }}"
    );
    assert_eq!(baseline(&profile), Ok(Baseline::Watts(0.5)));
    assert_eq!(baseline("0"), Err(BaselineError::Watts(0.0)));
    assert_eq!(baseline("-1"), Err(BaselineError::Watts(-1.0)));
    assert!(matches!(baseline("a fast radio"), Err(BaselineError::Syntax(_))));
    assert!(matches!(
        baseline("name = \"p\"\ndescription = \"\"\n[figures]"),
        Err(BaselineError::Profile(_))
    ));
}

proptest! {
    #[test]
    fn no_policy_beats_the_clairvoyant_with_states_either(
        gaps in prop::collection::vec((-1.5f64..8.0).prop_map(f64::exp), 1..60),
    ) {
        let settings = Settings::new(model().sleep_cost(Resumption::MobikeThenTicket, 20));
        let policies = [Policy::Never, Policy::Timeout(3.0), Policy::BreakEven, Policy::PAPER, Policy::Dormouse];
        let mut ledger =
            Ledger::new(settings, policies.map(|p| p.scheduler(settings.cost.break_even())).into());
        let mut at = Instant::ZERO;
        for gap in gaps {
            ledger.packet(at, &PacketInfo::default());
            at += Duration::from_secs_f64(gap);
        }
        let report = ledger.finish();
        let best = report.policy("clairvoyant").expect("the bound").cost;
        for (name, totals) in &report.policies {
            prop_assert!(totals.cost >= best - 1e-6, "{name}: {} < {best}", totals.cost);
        }
        prop_assert!((report.policy("never").expect("never").cost - report.idle_cost).abs() < 1e-6);
    }
}

//! Which meter is taken, and why.

use crate::tree::{Tree, at};
use dormouse_io::meter::{Choice, Kind, MeterError, open, survey};

#[test]
fn the_battery_is_best_while_it_supplies_the_device() {
    let tree = Tree::new();
    tree.supply("BAT0", &[("type", "Battery"), ("status", "Discharging"), ("energy_now", "5")]);
    tree.domain("intel-rapl:0", "package-0", 0, 1000);
    let opened = open(tree.root(), &Choice::Best, at(0)).unwrap();
    assert_eq!(opened.meter.source().kind, Kind::Battery);
    assert!(opened.refused.is_empty());
}

#[test]
fn on_mains_the_processor_must_do_and_the_reason_is_given() {
    let tree = Tree::new();
    tree.supply("BAT0", &[("type", "Battery"), ("status", "Full"), ("energy_now", "5")]);
    tree.domain("intel-rapl:0", "package-0", 0, 1000);
    let opened = open(tree.root(), &Choice::Best, at(0)).unwrap();
    assert_eq!(opened.meter.source().kind, Kind::Package);
    assert!(
        opened.why.contains("BAT0 is \"Full\", not discharging") && opened.why.contains("psys"),
        "{}",
        opened.why
    );
    assert!(!opened.meter.source().kind.sees_radio());
}

#[test]
fn without_any_the_reason_that_can_be_mended_is_given() {
    let tree = Tree::new();
    assert!(matches!(open(tree.root(), &Choice::Best, at(0)), Err(MeterError::Absent { .. })));
    tree.supply("BAT0", &[("type", "Battery"), ("status", "Charging"), ("energy_now", "5")]);
    assert!(matches!(open(tree.root(), &Choice::Best, at(0)), Err(MeterError::OnMains { .. })));
    assert_eq!(survey(tree.root(), at(0)).iter().filter(|(_, found)| found.is_err()).count(), 4);
}

#[test]
fn a_battery_that_only_knows_percent_is_no_meter() {
    let tree = Tree::new();
    tree.supply("BAT0", &[("type", "Battery"), ("status", "Discharging"), ("capacity", "50")]);
    let said = open(tree.root(), &Choice::Kind(Kind::Battery), at(0)).unwrap_err().to_string();
    assert!(said.contains("BAT0 has neither energy_now nor charge_now"), "{said}");
}

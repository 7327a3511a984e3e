//! Batteries as drivers show them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use crate::tree::{Tree, at};
use dormouse_io::meter::{Choice, Kind, Meter, MeterError, open};

const LEVEL: Choice = Choice::Kind(Kind::Battery);
const POWER: Choice = Choice::Kind(Kind::BatteryPower);

fn laptop() -> Tree {
    let tree = Tree::new();
    tree.supply("AC", &[("type", "Mains"), ("online", "0")]);
    tree.supply(
        "BAT0",
        &[
            ("type", "Battery"),
            ("present", "1"),
            ("status", "Discharging"),
            ("energy_now", "50000000"),
            ("power_now", "8000000"),
        ],
    );
    tree
}

fn meter(tree: &Tree, choice: &Choice) -> Box<dyn Meter> {
    open(tree.root(), choice, at(0)).unwrap().meter
}

#[test]
fn an_energy_counter_is_counted_and_its_step_and_refresh_are_found() {
    let tree = laptop();
    let mut meter = meter(&tree, &LEVEL);
    assert_eq!(meter.source().to_string(), "battery BAT0 (energy_now)");
    assert!(!meter.grain().step_seen);
    // 8 W: 10 mWh every 4.5 s. The gauge refreshes every 9 s.
    for t in 1..=90 {
        tree.supply("BAT0", &[("energy_now", &(50_000_000 - (t / 9) * 20_000).to_string())]);
        meter.read(at(t)).unwrap();
    }
    let reading = meter.read(at(90)).unwrap();
    assert!((reading.joules - 720.0).abs() < 1e-9 && reading.watts == Some(8.0), "{reading:?}");
    let grain = meter.grain();
    assert!(grain.step_seen && (grain.step - 72.0).abs() < 1e-9 && grain.refresh == Some(10.0), "{grain:?}");
    assert!((reading.uncertainty - (72.0 + 8.0 * 10.0)).abs() < 1e-9, "{reading:?}");
}

#[test]
fn a_charge_counter_needs_the_voltage_and_takes_the_designed_one_for_want_of_better() {
    let tree = Tree::new();
    tree.supply("BAT1", &[("type", "Battery"), ("status", "Discharging"), ("charge_now", "3000000")]);
    let refused = open(tree.root(), &LEVEL, at(0)).unwrap_err().to_string();
    assert!(refused.contains("BAT1 has neither energy_now nor charge_now with a voltage"), "{refused}");
    tree.supply("BAT1", &[("voltage_min_design", "11000000")]);
    let mut meter = meter(&tree, &LEVEL);
    tree.supply("BAT1", &[("charge_now", "2999000")]);
    let reading = meter.read(at(10)).unwrap();
    assert!((reading.joules - 39.6).abs() < 1e-9, "1 mAh at 11 V: {reading:?}");
    assert!(meter.notes().iter().any(|n| n.contains("design voltage")), "{:?}", meter.notes());
}

#[test]
fn drivers_that_give_currents_of_either_sign_agree() {
    for amps in ["500000", "-500000"] {
        let tree = Tree::new();
        let files = [
            ("type", "Battery"),
            ("status", "Discharging"),
            ("current_now", amps),
            ("voltage_now", "4000000"),
        ];
        tree.supply("battery", &files);
        let mut meter = meter(&tree, &POWER);
        assert_eq!(meter.source().name, "battery (current_now, voltage_now)");
        let reading = meter.read(at(60)).unwrap();
        assert!((reading.joules - 120.0).abs() < 1e-9, "{amps}: {reading:?}");
    }
}

#[test]
fn on_mains_it_says_so_and_goes_on_when_unplugged() {
    let tree = laptop();
    let mut meter = meter(&tree, &LEVEL);
    tree.supply("BAT0", &[("energy_now", "49990000")]);
    meter.read(at(5)).unwrap();
    tree.supply("AC", &[("online", "1")]);
    tree.supply("BAT0", &[("status", "Charging"), ("energy_now", "50500000")]);
    let refused = meter.read(at(10)).unwrap_err();
    assert!(
        matches!(refused, MeterError::OnMains { .. }) && refused.to_string().contains("unplug"),
        "{refused}"
    );
    tree.supply("AC", &[("online", "0")]);
    tree.supply("BAT0", &[("status", "Discharging")]);
    meter.read(at(20)).unwrap();
    tree.supply("BAT0", &[("energy_now", "50490000")]);
    let reading = meter.read(at(25)).unwrap();
    assert!((reading.joules - 72.0).abs() < 1e-9 && reading.uncounted.as_secs() == 15, "{reading:?}");
}

#[test]
fn two_batteries_are_one_meter_and_a_mouse_is_none() {
    let tree = laptop();
    tree.supply(
        "BAT1",
        &[
            ("type", "Battery"),
            ("status", "Not charging"),
            ("charge_now", "2000000"),
            ("voltage_now", "10000000"),
        ],
    );
    tree.supply(
        "hidpp_battery_0",
        &[("type", "Battery"), ("scope", "Device"), ("status", "Discharging"), ("capacity", "50")],
    );
    let mut meter = meter(&tree, &LEVEL);
    assert_eq!(meter.source().name, "BAT0 (energy_now), BAT1 (charge_now)");
    tree.supply("BAT0", &[("energy_now", "49990000")]);
    tree.supply("BAT1", &[("charge_now", "1999000")]);
    let reading = meter.read(at(10)).unwrap();
    assert!((reading.joules - 72.0).abs() < 1e-9, "{reading:?}");
}

#[test]
fn a_battery_that_goes_away_is_an_error_and_no_consumption() {
    let tree = laptop();
    let mut meter = meter(&tree, &LEVEL);
    tree.remove("sys/class/power_supply/BAT0");
    assert!(meter.read(at(1)).is_err());
    tree.supply("BAT0", &[("status", "Discharging"), ("energy_now", "10000000"), ("power_now", "1")]);
    assert_eq!(meter.read(at(2)).unwrap().joules, 0.0);
}

#[test]
fn a_file_that_vanishes_or_lies_is_named() {
    let tree = laptop();
    let mut meter = meter(&tree, &LEVEL);
    tree.supply("BAT0", &[("energy_now", "plenty")]);
    let said = meter.read(at(1)).unwrap_err().to_string();
    assert!(said.contains("BAT0/energy_now holds \"plenty\", expected a whole number"), "{said}");
    tree.remove("sys/class/power_supply/BAT0/energy_now");
    let said = meter.read(at(2)).unwrap_err().to_string();
    assert!(said.contains("BAT0/energy_now: No such file"), "{said}");
    tree.supply("BAT0", &[("energy_now", "49000000")]);
    assert_eq!(meter.read(at(3)).unwrap().joules, 0.0, "what happened meanwhile is not counted");
}

//! The lower envelope of a radio with several states.

use dormouse_energy::model::{Baseline, Resumption};
use dormouse_energy::profile::Profile;
use dormouse_energy::states::{Envelope, State, StatesError};
use proptest::prelude::*;

fn state(name: &str, power: f64, energy: f64, time: f64) -> State {
    State {
        name: name.into(),
        power,
        enter_energy: energy / 2.0,
        leave_energy: energy / 2.0,
        enter_time: 0.0,
        leave_time: time,
    }
}

#[test]
fn active_power_save_and_off_change_over_where_the_lines_cross() {
    let radio =
        [state("off", 0.0, 46.4, 2.0), state("active", 2.29, 0.0, 0.0), state("save", 0.25, 0.204, 0.0)];
    let envelope = Envelope::new(&radio).unwrap();
    let steps = envelope.steps();
    assert_eq!(steps.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["active", "save", "off"]);
    assert!((steps[1].from - 0.204 / 2.04).abs() < 1e-9);
    let off = (46.4 + 2.0 * 2.29 - 0.204) / 0.25;
    assert!((steps[2].from - off).abs() < 1e-9);
    let awake = envelope.awake().unwrap();
    assert!((awake.optimal(10.0) - (0.204 + 2.5)).abs() < 1e-9);
    assert!((awake.optimal(1000.0) - 50.98).abs() < 1e-9);
    // Online: active for 0.1 s, power save until then, and off with its whole price.
    assert!((awake.cost(1000.0) - (0.1 * 2.29 + (off - 0.1) * 0.25 + 50.98)).abs() < 1e-9);
}

#[test]
fn without_power_save_it_is_the_break_even_time() {
    let envelope = Envelope::new(&[state("active", 2.29, 0.0, 0.0), state("off", 0.0, 46.4, 2.0)]).unwrap();
    assert!((envelope.steps()[1].from - (46.4 / 2.29 + 2.0)).abs() < 1e-9);
}

#[test]
fn states_that_are_never_cheapest_are_dropped() {
    let radio = [
        state("active", 2.0, 0.0, 0.0),
        state("useless", 1.9, 40.0, 0.0),
        state("worse", 2.0, 5.0, 0.0),
        state("off", 0.0, 41.0, 0.0),
    ];
    let envelope = Envelope::new(&radio).unwrap();
    assert_eq!(envelope.steps().iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["active", "off"]);
}

#[test]
fn the_paper_s_laptop_leaves_power_save_after_nine_times_the_break_even_time() {
    let mut model = Profile::shipped("laptop-000").unwrap().model().unwrap();
    let (radio, mobike) = (model.radio, model.exchanges.mobike);
    let envelope = Envelope::new(&[
        state("active", radio.idle_power, 0.0, 0.0),
        state("power save", radio.power_save_power, 0.0, 0.0),
        state("off", 0.0, radio.cycle_energy + mobike.energy, radio.association_time + mobike.time.at(1)),
    ])
    .unwrap();
    model.baseline = Baseline::PowerSave;
    let off = envelope.steps().last().unwrap();
    assert_eq!(off.name, "off");
    assert!((off.from - model.break_even(Resumption::Mobike, 1)).abs() < 1e-9);
}

#[test]
fn impossible_figures_are_named() {
    assert_eq!(Envelope::new(&[]), Err(StatesError::Empty));
    let error = Envelope::new(&[state("off", f64::NAN, 1.0, 0.0)]).unwrap_err().to_string();
    assert!(error.contains("off") && error.contains("power"), "{error}");
}

proptest! {
    #[test]
    fn online_is_never_better_than_optimal_and_never_twice_as_bad(
        figures in prop::collection::vec((0.0f64..3.0, 0.0f64..100.0, 0.0f64..3.0), 1..=4),
        idle in 0.0f64..10_000.0,
    ) {
        let states: Vec<State> = figures.iter().enumerate()
            .map(|(i, (power, energy, time))| state(&i.to_string(), *power, *energy, *time)).collect();
        let envelope = Envelope::new(&states).unwrap();
        let awake = envelope.awake().unwrap();
        let (online, optimal) = (awake.cost(idle), awake.optimal(idle));
        prop_assert!(online >= optimal - 1e-9, "{online} < {optimal}");
        prop_assert!(online <= 2.0 * optimal + 1e-9, "{online} > 2 * {optimal}");
        prop_assert!(envelope.steps().windows(2).all(|w| w[0].from < w[1].from && w[0].power > w[1].power));
    }
}

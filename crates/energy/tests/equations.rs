//! Equations 1 to 4 of paper 000 at values computed by hand from its Fig. 3.

use dormouse_energy::model::{Baseline, Exchange, Latency, Model, Resumption, SleepCost};
use dormouse_energy::profile::Profile;

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

/// The laptop of the paper, exchanges taking no time of their own.
fn laptop() -> Model {
    let mut model = Profile::shipped("laptop-000").and_then(|p| p.model().ok()).expect("ships complete");
    for exchange in [&mut model.exchanges.full, &mut model.exchanges.ticket, &mut model.exchanges.mobike] {
        exchange.time = Latency::default();
    }
    model
}

/// Eq. 1: energy of a radio left on for `seconds`, in joules.
fn energy_on(model: &Model, seconds: f64) -> f64 {
    seconds * model.baseline_power()
}

#[test]
fn equation_1_is_power_times_time() {
    assert!(close(energy_on(&laptop(), 100.0), 229.0));
}

#[test]
fn equation_2_divides_the_switching_energy_by_the_idle_power() {
    let model = laptop();
    assert!(close(model.break_even_instant(model.exchanges.mobike), 46.40 / 2.29));
    assert!(close(model.break_even_instant(model.exchanges.ticket), 55.20 / 2.29));
    assert!(close(model.break_even_instant(model.exchanges.full), 59.14 / 2.29));
}

#[test]
fn equation_3_gives_the_known_break_even_times() {
    let model = laptop();
    for (resumption, seconds) in [
        (Resumption::HeldSa, 22.1),
        (Resumption::Mobike, 22.3),
        (Resumption::Ticket, 26.1),
        (Resumption::Full, 27.8),
    ] {
        let found = model.break_even(resumption, 1);
        assert!((found - seconds).abs() < 0.05, "{resumption}: {found}, expected {seconds}");
    }
}

#[test]
fn equation_3_adds_the_time_of_the_exchange_under_load() {
    let mut model = laptop();
    model.exchanges.full.time = Latency { alone: 0.2, per_client: 0.05 };
    assert!(close(model.break_even(Resumption::Full, 1), 59.14 / 2.29 + 2.0 + 0.2));
    assert!(close(model.break_even(Resumption::Full, 20), 59.14 / 2.29 + 2.0 + 0.2 + 19.0 * 0.05));
    assert!(close(model.break_even(Resumption::Full, 0), model.break_even(Resumption::Full, 1)));
}

#[test]
fn equation_4_equals_equation_1_exactly_at_the_instant_break_even() {
    let model = laptop();
    let exchange = model.exchanges.ticket;
    let off = model.break_even_instant(exchange);
    // As in the paper, the time to connect is part of Eq. 3 and not of this.
    let with_sleep = model.radio.cycle_energy + exchange.energy + energy_on(&model, 30.0);
    assert!(close(with_sleep, energy_on(&model, 30.0 + off)));
    assert!(with_sleep < energy_on(&model, 30.0 + off + 0.001));
    assert!(with_sleep > energy_on(&model, 30.0 + off - 0.001));
}

#[test]
fn hybrids_change_over_at_the_liveness_timeout() {
    let model = laptop();
    let cost = model.sleep_cost(Resumption::MobikeThenFull, 1);
    let (mobike, full) = (model.break_even(Resumption::Mobike, 1), model.break_even(Resumption::Full, 1));
    assert!(close(cost.of(120.0), mobike));
    assert!(close(cost.of(120.000_001), full));
    assert!(close(cost.break_even(), mobike));
    let ticket = model.sleep_cost(Resumption::MobikeThenTicket, 1);
    assert!(close(ticket.of(121.0), model.break_even(Resumption::Ticket, 1)));
}

#[test]
fn a_hybrid_whose_first_part_never_pays_breaks_even_beyond_its_limit() {
    assert!(close(SleepCost::hybrid(22.0, 28.0, 10.0).break_even(), 28.0));
    assert!(close(SleepCost::hybrid(22.0, 28.0, 22.0).break_even(), 22.0));
    assert!(close(SleepCost::hybrid(40.0, 25.0, 30.0).break_even(), 30.0));
}

#[test]
fn against_power_save_the_break_even_time_is_nine_times_longer() {
    let mut model = laptop();
    let active = model.break_even(Resumption::Mobike, 1);
    model.baseline = Baseline::PowerSave;
    assert!(close(model.break_even(Resumption::Mobike, 1), active * 2.29 / 0.25));
    model.baseline = Baseline::Watts(2.29);
    assert!(close(model.break_even(Resumption::Mobike, 1), active));
}

#[test]
fn cheaper_exchanges_break_even_sooner_at_every_load() {
    let model = Profile::shipped("laptop-000").unwrap().model().unwrap();
    for load in 1..=20 {
        let at = |r| model.break_even(r, load);
        assert!(at(Resumption::HeldSa) < at(Resumption::Mobike));
        assert!(at(Resumption::Mobike) < at(Resumption::Ticket));
        assert!(at(Resumption::Ticket) < at(Resumption::Full));
    }
    assert!(close(model.break_even_with(Exchange::default(), 20), model.break_even(Resumption::HeldSa, 1)));
}

#[test]
fn resumption_names_parse_back_and_others_are_refused() {
    for resumption in Resumption::ALL {
        assert_eq!(resumption.name().parse(), Ok(resumption));
    }
    let error = "igf".parse::<Resumption>().unwrap_err().to_string();
    assert!(error.contains("igf") && error.contains("mobike+ticket"), "{error}");
}

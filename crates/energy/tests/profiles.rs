//! Device profiles: the shipped ones, and what is refused.

use dormouse_energy::model::Baseline;
use dormouse_energy::profile::{Profile, ProfileError, names};

#[test]
fn every_shipped_profile_reads_and_gives_sources() {
    for name in Profile::shipped_names() {
        let profile = Profile::shipped(name).unwrap_or_else(|| panic!("{name} does not read"));
        assert_eq!(profile.name, name);
        assert!(profile.figures.values().all(|f| !f.source.is_empty()));
        assert_eq!(Profile::from_toml(&profile.to_toml().unwrap()), Ok(profile));
    }
    assert_eq!(Profile::shipped("toaster"), None);
}

#[test]
fn the_first_shipped_profile_is_complete() {
    let name = Profile::shipped_names().next().unwrap();
    let model = Profile::shipped(name).unwrap().model().unwrap();
    assert!((model.radio.idle_power - 2.29).abs() < 1e-12);
}

#[test]
fn a_figure_that_was_not_measured_is_named() {
    let error = Profile::shipped("nokia-770-002").unwrap().model().unwrap_err();
    assert_eq!(
        error,
        ProfileError::Missing { profile: "nokia-770-002".into(), figure: names::RADIO_POWER_SAVE_POWER }
    );
}

#[test]
fn units_are_converted() {
    let profile = Profile::shipped("nokia-770-002").unwrap();
    assert!((profile.time("hip.update_time").unwrap() - 0.287).abs() < 1e-12);
    assert!((Profile::shipped("pda-001").unwrap().energy("battery.energy").unwrap() - 13_720.0).abs() < 1e-9);
}

fn with(figure: &str) -> Result<Profile, ProfileError> {
    Profile::from_toml(&format!(
        "name = \"x\"\ndescription = \"\"\n[figures]\n\"radio.idle_power\" = {figure}\n"
    ))
}

#[test]
fn nonsense_is_refused_with_both_values() {
    let rest = "kind = \"measured\", source = \"me\"";
    let negative = with(&format!("{{ value = -1.0, unit = \"W\", {rest} }}")).unwrap_err().to_string();
    assert!(negative.contains("radio.idle_power is -1 W"), "{negative}");
    let unit = with(&format!("{{ value = 1.0, unit = \"furlong\", {rest} }}")).unwrap_err().to_string();
    assert!(unit.contains("furlong") && unit.contains("mW"), "{unit}");
    let quantity = with(&format!("{{ value = 1.0, unit = \"s\", {rest} }}")).unwrap();
    let quantity = quantity.power(names::RADIO_IDLE_POWER).unwrap_err().to_string();
    assert!(quantity.contains("\"s\"") && quantity.contains("W or mW"), "{quantity}");
    assert!(matches!(with("{ value = nan }"), Err(ProfileError::Syntax(_))));
    assert!(with(&format!("{{ value = inf, unit = \"W\", {rest} }}")).is_err());
    assert!(with(&format!("{{ value = 1.0, unit = \"W\", spread = -1.0, {rest} }}")).is_err());
}

#[test]
fn a_profile_can_name_a_baseline_of_its_own() {
    let text = "name = \"x\"\ndescription = \"\"\n[figures]\n\"baseline.power\" = \
                { value = 120.0, unit = \"mW\", kind = \"measured\", source = \"me\" }\n";
    assert_eq!(Profile::from_toml(text).unwrap().baseline(), Ok(Baseline::Watts(0.12)));
    assert!(Profile::shipped("laptop-000").unwrap().baseline().is_err());
    assert_eq!("psm".parse(), Ok(Baseline::PowerSave));
    assert!("sleepy".parse::<Baseline>().unwrap_err().to_string().contains("sleepy"));
}

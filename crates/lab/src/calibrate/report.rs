//! What `dormouse calibrate` leaves behind: a device profile. Owns its words; every figure says by which meter, from how many repetitions and
//! how well it is known.

use dormouse_energy::profile::{Figure, Kind, Profile};

use super::{Outcome, Refused};

/// A profile of the figures that were measured. `fill`: another device's figures stand in for those that are missing, each saying so.
#[must_use]
pub fn profile(outcome: &Outcome, name: &str, description: &str, fill: Option<&Profile>) -> Profile {
    let mut profile =
        Profile { name: name.to_owned(), description: description.to_owned(), figures: Default::default() };
    for measured in outcome.judge().into_iter().flatten() {
        let by = if measured.unit == "s" { "clock".to_owned() } else { outcome.source.to_string() };
        let source = format!(
            "dormouse calibrate: {by}, n = {}, 95 % interval ± {} {}",
            measured.summary.count,
            rounded(measured.half_interval),
            measured.unit
        );
        let figure = Figure {
            value: rounded(measured.summary.mean),
            unit: measured.unit.to_owned(),
            kind: Kind::Measured,
            source,
            spread: Some(rounded(measured.summary.deviation)),
        };
        profile.figures.insert(measured.name, figure);
    }
    for (key, figure) in fill.into_iter().flat_map(|f| &f.figures) {
        profile.figures.entry(key.clone()).or_insert_with(|| Figure {
            kind: Kind::Estimated,
            source: format!(
                "not measured here, taken from {}: {}",
                fill.map_or("", |f| &f.name),
                figure.source
            ),
            ..figure.clone()
        });
    }
    profile
}

/// The figures that were refused.
#[must_use]
pub fn refused(outcome: &Outcome) -> Vec<Refused> {
    outcome.judge().into_iter().filter_map(Result::err).collect()
}

/// To six digits: more is noise, and files are read by people.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

//! A radio with several states, from a file: active, power save, off. Owns the format; must never invent a figure.
//!
//! ```toml
//! name = "my-radio"
//! description = "..."
//!
//! [[state]]
//! name = "active"
//! power = { value = 2.29, unit = "W", kind = "measured", source = "..." }
//!
//! [[state]]
//! name = "power save"
//! power = { value = 0.25, unit = "W", kind = "quoted", source = "..." }
//! enter_time = { value = 100, unit = "ms", kind = "estimated", source = "..." }
//! leave_energy = { value = 0.02, unit = "J", kind = "estimated", source = "..." }
//!
//! [[state]]
//! name = "off"
//! off = true
//! power = { value = 0.0, unit = "W", kind = "estimated", source = "..." }
//! leave_energy = { value = 46, unit = "J", kind = "measured", source = "..." }
//! leave_time = { value = 2, unit = "s", kind = "measured", source = "..." }
//! ```
//!
//! Transition energies are beyond what the radio draws otherwise; during transition times it draws its active power. What is
//! left out is zero. Exactly one state is `off`: in it nothing is sent or received, and leaving it costs the exchange that
//! resumes the session as well, which is the device profile's and not the radio's. The other states the radio enters by
//! itself, each where the lower envelope says ([`crate::states`]).

use serde::Deserialize;

use crate::model::Baseline;
use crate::profile::{Figure, Profile, ProfileError, Quantity, names};
use crate::states::{RadioError, RadioStates, State};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "name")]
    _name: String,
    #[serde(rename = "description", default)]
    _description: String,
    state: Vec<FileState>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileState {
    name: String,
    #[serde(default)]
    off: bool,
    power: Figure,
    enter_energy: Option<Figure>,
    leave_energy: Option<Figure>,
    enter_time: Option<Figure>,
    leave_time: Option<Figure>,
}

impl FileState {
    fn figure(
        &self,
        name: &'static str,
        figure: Option<&Figure>,
        wanted: Quantity,
    ) -> Result<f64, RadioError> {
        let Some(figure) = figure else { return Ok(0.0) };
        figure.base(wanted).ok_or_else(|| RadioError::Unit {
            state: self.name.clone(),
            figure: name,
            unit: figure.unit.clone(),
            expected: wanted.units(),
        })
    }

    fn state(&self) -> Result<State, RadioError> {
        let energy = |name, figure: &Option<Figure>| self.figure(name, figure.as_ref(), Quantity::Energy);
        let time = |name, figure: &Option<Figure>| self.figure(name, figure.as_ref(), Quantity::Time);
        Ok(State {
            name: self.name.clone(),
            power: self.figure("power", Some(&self.power), Quantity::Power)?,
            enter_energy: energy("enter_energy", &self.enter_energy)?,
            leave_energy: energy("leave_energy", &self.leave_energy)?,
            enter_time: time("enter_time", &self.enter_time)?,
            leave_time: time("leave_time", &self.leave_time)?,
        })
    }
}

impl RadioStates {
    /// Reads a file of states.
    ///
    /// # Errors
    /// [`RadioError`] if it does not parse, a figure cannot be, or no sleep could ever pay.
    pub fn from_toml(text: &str) -> Result<Self, RadioError> {
        let file: File = toml::from_str(text).map_err(|e| RadioError::Syntax(e.to_string()))?;
        let (off, on): (Vec<&FileState>, Vec<&FileState>) = file.state.iter().partition(|s| s.off);
        let [off] = off.as_slice() else { return Err(RadioError::Off { found: off.len() }) };
        let on = on.into_iter().map(FileState::state).collect::<Result<Vec<_>, _>>()?;
        Self::new(&on, &off.state()?)
    }
}

/// Why a file is no baseline.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum BaselineError {
    /// Neither a number nor TOML.
    #[error("expected a power in watts, a profile with {BASELINE}, or the states of a radio: {0}", BASELINE = names::BASELINE_POWER)]
    Syntax(String),
    /// No power that a radio can draw.
    #[error("a baseline of {0} W, expected a positive number of watts")]
    Watts(f64),
    /// A profile, but not one with a baseline.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// States of a radio, but not usable ones.
    #[error(transparent)]
    Radio(#[from] RadioError),
}

/// Reads what a sleep is compared with: a power in watts, a profile that has a baseline, or the states of a radio.
///
/// # Errors
/// [`BaselineError`] if it is none of them.
pub fn baseline(text: &str) -> Result<Baseline, BaselineError> {
    let watts = if let Ok(watts) = text.trim().parse() {
        watts
    } else {
        let table: toml::Table =
            text.parse().map_err(|e: toml::de::Error| BaselineError::Syntax(e.to_string()))?;
        if table.contains_key("state") {
            return Ok(Baseline::States(RadioStates::from_toml(text)?));
        }
        Profile::from_toml(text)?.power(names::BASELINE_POWER)?
    };
    if watts.is_finite() && watts > 0.0 {
        Ok(Baseline::Watts(watts))
    } else {
        Err(BaselineError::Watts(watts))
    }
}

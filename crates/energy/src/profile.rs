//! A device's figures: each with its value, unit, source and spread. Owns the format of profile files; must never invent a
//! figure: what a device was not measured for is missing, and asking for it is an error that names it.
//!
//! ```toml
//! name = "laptop-000"
//! description = "..."
//!
//! [figures]
//! "radio.idle_power" = { value = 2.29, unit = "W", kind = "measured", source = "paper 000, Fig. 3" }
//! "radio.cycle_energy" = { value = 46.0, unit = "J", kind = "measured", source = "paper 000, Fig. 3", spread = 1.0 }
//! ```
//!
//! The model needs [`names`]; a profile may hold more.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::{Baseline, Exchange, Exchanges, Latency, Model, Radio};

/// The figures that [`Profile::model`] asks for.
pub mod names {
    /// WiFi_M: radio idle, associated, power saving off; in watts.
    pub const RADIO_IDLE_POWER: &str = "radio.idle_power";
    /// Radio idle in power-save mode; in watts.
    pub const RADIO_POWER_SAVE_POWER: &str = "radio.power_save_power";
    /// What the radio draws where it is left alone, if that is neither of the two above; in watts.
    pub const BASELINE_POWER: &str = "baseline.power";
    /// WiFi_C + WiFi_D; in joules.
    pub const RADIO_CYCLE_ENERGY: &str = "radio.cycle_energy";
    /// WiFi_t; in seconds.
    pub const RADIO_ASSOCIATION_TIME: &str = "radio.association_time";
    /// IPsec_C + IPsec_D by a full IKEv2 handshake; in joules.
    pub const FULL_ENERGY: &str = "ikev2.energy";
    /// IPsec_C + IPsec_D by a ticket; in joules.
    pub const TICKET_ENERGY: &str = "ticket.energy";
    /// IPsec_C + IPsec_D by MOBIKE; in joules.
    pub const MOBIKE_ENERGY: &str = "mobike.energy";
    /// IPsec_t of a full handshake at a gateway with one client; in seconds.
    pub const FULL_TIME: &str = "ikev2.time";
    /// IPsec_t of a ticket; in seconds.
    pub const TICKET_TIME: &str = "ticket.time";
    /// IPsec_t of MOBIKE; in seconds.
    pub const MOBIKE_TIME: &str = "mobike.time";
    /// What each further client adds to [`FULL_TIME`]; in seconds.
    pub const FULL_TIME_PER_CLIENT: &str = "ikev2.time_per_client";
    /// What each further client adds to [`TICKET_TIME`]; in seconds.
    pub const TICKET_TIME_PER_CLIENT: &str = "ticket.time_per_client";
    /// What each further client adds to [`MOBIKE_TIME`]; in seconds.
    pub const MOBIKE_TIME_PER_CLIENT: &str = "mobike.time_per_client";
}

/// How a figure was obtained.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Measured on the device.
    Measured,
    /// Computed from measured figures; the source says how.
    Derived,
    /// Taken from a data sheet or another publication.
    Quoted,
    /// A guess that stands in for a measurement; the source says what it rests on.
    Estimated,
}

/// One figure of a device.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// In `unit`.
    pub value: f64,
    /// W, mW, J, kJ, s or ms.
    pub unit: String,
    /// How it was obtained.
    pub kind: Kind,
    /// Where it comes from.
    pub source: String,
    /// Standard deviation, or half the range where the source gives a range; in `unit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
}

/// What a unit measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Quantity {
    Power,
    Energy,
    Time,
}

impl Quantity {
    /// The units that measure it.
    pub(crate) const fn units(self) -> &'static str {
        match self {
            Self::Power => "W or mW",
            Self::Energy => "J or kJ",
            Self::Time => "s or ms",
        }
    }
}

impl Figure {
    /// The value in the base unit of a quantity (watts, joules, seconds), if it is of that quantity.
    pub(crate) fn base(&self, wanted: Quantity) -> Option<f64> {
        self.unit().and_then(|(quantity, factor)| (quantity == wanted).then_some(self.value * factor))
    }

    /// The quantity and the factor to the base unit (watts, joules, seconds).
    fn unit(&self) -> Option<(Quantity, f64)> {
        Some(match self.unit.as_str() {
            "W" => (Quantity::Power, 1.0),
            "mW" => (Quantity::Power, 1e-3),
            "J" => (Quantity::Energy, 1.0),
            "kJ" => (Quantity::Energy, 1e3),
            "s" => (Quantity::Time, 1.0),
            "ms" => (Quantity::Time, 1e-3),
            _ => return None,
        })
    }
}

/// A device.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Short name, as users choose it.
    pub name: String,
    /// What the device is and who measured it.
    pub description: String,
    /// By name.
    pub figures: BTreeMap<String, Figure>,
}

/// Why a profile cannot be used.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ProfileError {
    /// Not a profile.
    #[error("profile does not parse: {0}")]
    Syntax(String),
    /// A figure that makes no sense.
    #[error("profile {profile}: {figure} is {value} {unit}, expected a finite value of at least 0")]
    Value {
        /// The profile.
        profile: String,
        /// The figure.
        figure: String,
        /// Its value.
        value: f64,
        /// Its unit.
        unit: String,
    },
    /// A unit that is unknown, or that does not fit the figure.
    #[error("profile {profile}: {figure} is given in {unit:?}, expected {expected}")]
    Unit {
        /// The profile.
        profile: String,
        /// The figure.
        figure: String,
        /// The unit found.
        unit: String,
        /// The units that fit.
        expected: &'static str,
    },
    /// The device was not measured for it.
    #[error("profile {profile} has no {figure}: the device was not measured for it")]
    Missing {
        /// The profile.
        profile: String,
        /// The figure.
        figure: &'static str,
    },
}

/// The profiles that ship with the program: name and text.
const SHIPPED: [(&str, &str); 5] = [
    ("laptop-000", include_str!("../profiles/laptop-000.toml")),
    ("pda-001", include_str!("../profiles/pda-001.toml")),
    ("nokia-770-002", include_str!("../profiles/nokia-770-002.toml")),
    ("nokia-e51-002", include_str!("../profiles/nokia-e51-002.toml")),
    ("raspberry-pi-4", include_str!("../profiles/raspberry-pi-4.toml")),
];

impl Profile {
    /// The names of the profiles that ship with the program. The first is the default and the only one of them that was
    /// measured for every figure of the model.
    pub fn shipped_names() -> impl Iterator<Item = &'static str> {
        SHIPPED.iter().map(|(name, _)| *name)
    }

    /// A profile that ships with the program; `None` for another name.
    #[must_use]
    pub fn shipped(name: &str) -> Option<Self> {
        let (_, text) = SHIPPED.iter().find(|(n, _)| *n == name)?;
        Self::from_toml(text).ok()
    }

    /// Reads a profile and checks every figure.
    ///
    /// # Errors
    /// [`ProfileError`] if it does not parse, or a figure is negative, not finite, or in an unknown unit.
    pub fn from_toml(text: &str) -> Result<Self, ProfileError> {
        let profile: Self = toml::from_str(text).map_err(|e| ProfileError::Syntax(e.to_string()))?;
        for (name, figure) in &profile.figures {
            let bad = |v: f64| !(v.is_finite() && v >= 0.0);
            if let Some(value) = [figure.value, figure.spread.unwrap_or(0.0)].into_iter().find(|v| bad(*v)) {
                return Err(ProfileError::Value {
                    profile: profile.name,
                    figure: name.clone(),
                    value,
                    unit: figure.unit.clone(),
                });
            }
            if figure.unit().is_none() {
                return Err(profile.unit_error(name, figure, "one of W, mW, J, kJ, s, ms"));
            }
        }
        Ok(profile)
    }

    /// Writes the profile as [`Profile::from_toml`] reads it.
    ///
    /// # Errors
    /// [`ProfileError::Syntax`] if a value cannot be written.
    pub fn to_toml(&self) -> Result<String, ProfileError> {
        toml::to_string(self).map_err(|e| ProfileError::Syntax(e.to_string()))
    }

    fn unit_error(&self, name: &str, figure: &Figure, expected: &'static str) -> ProfileError {
        ProfileError::Unit {
            profile: self.name.clone(),
            figure: name.to_owned(),
            unit: figure.unit.clone(),
            expected,
        }
    }

    fn quantity(&self, name: &'static str, wanted: Quantity) -> Result<f64, ProfileError> {
        let missing = || ProfileError::Missing { profile: self.name.clone(), figure: name };
        let figure = self.figures.get(name).ok_or_else(missing)?;
        figure.base(wanted).ok_or_else(|| self.unit_error(name, figure, wanted.units()))
    }

    /// A power in watts.
    ///
    /// # Errors
    /// [`ProfileError::Missing`] or [`ProfileError::Unit`].
    pub fn power(&self, name: &'static str) -> Result<f64, ProfileError> {
        self.quantity(name, Quantity::Power)
    }

    /// An energy in joules.
    ///
    /// # Errors
    /// [`ProfileError::Missing`] or [`ProfileError::Unit`].
    pub fn energy(&self, name: &'static str) -> Result<f64, ProfileError> {
        self.quantity(name, Quantity::Energy)
    }

    /// A time in seconds.
    ///
    /// # Errors
    /// [`ProfileError::Missing`] or [`ProfileError::Unit`].
    pub fn time(&self, name: &'static str) -> Result<f64, ProfileError> {
        self.quantity(name, Quantity::Time)
    }

    /// The baseline that this profile was written to describe: [`names::BASELINE_POWER`].
    ///
    /// # Errors
    /// [`ProfileError`] if the figure is missing or no power.
    pub fn baseline(&self) -> Result<Baseline, ProfileError> {
        self.power(names::BASELINE_POWER).map(Baseline::Watts)
    }

    /// The figures put into the equations, compared with an always active radio.
    ///
    /// # Errors
    /// [`ProfileError`] naming the first figure that is missing or in a wrong unit.
    pub fn model(&self) -> Result<Model, ProfileError> {
        let exchange = |energy, alone, per_client| {
            Ok(Exchange {
                energy: self.energy(energy)?,
                time: Latency { alone: self.time(alone)?, per_client: self.time(per_client)? },
            })
        };
        let radio = Radio {
            idle_power: self.power(names::RADIO_IDLE_POWER)?,
            power_save_power: self.power(names::RADIO_POWER_SAVE_POWER)?,
            cycle_energy: self.energy(names::RADIO_CYCLE_ENERGY)?,
            association_time: self.time(names::RADIO_ASSOCIATION_TIME)?,
        };
        let exchanges = Exchanges {
            full: exchange(names::FULL_ENERGY, names::FULL_TIME, names::FULL_TIME_PER_CLIENT)?,
            ticket: exchange(names::TICKET_ENERGY, names::TICKET_TIME, names::TICKET_TIME_PER_CLIENT)?,
            mobike: exchange(names::MOBIKE_ENERGY, names::MOBIKE_TIME, names::MOBIKE_TIME_PER_CLIENT)?,
        };
        Ok(Model::new(radio, exchanges))
    }
}

//! `dormouse calibrate`: a device's own figures, measured as paper 000 did (section 3.3). Owns the procedure and the judgement of what came out;
//! must never touch a radio, a session, a meter or a clock but through [`Device`], nor report a figure that the meter cannot resolve.
//!
//! # The procedure
//! It is a [campaign](crate::campaign): each repetition is a round that measures everything once, so that slow drift of the device's
//! own consumption falls on all alike. The points of one state of the radio stand together, in an order drawn anew each time:
//!
//! - Radio off: the baseline power, for [`Plan::idle`]; off–on–off cycles of the radio: WiFi_C + WiFi_D above the baseline, and WiFi_t.
//! - Radio on, session up, nothing sent: WiFi_M above the baseline; each rung by which a session comes back: IPsec_C + IPsec_D above
//!   the idle radio, and IPsec_t.
//! - The idle radio once more with its power saving, where that can be switched.
//!
//! Every reading is taken at rest, [`Plan::settle`] after the last activity: a gauge that lags by some seconds then lags by the same
//! power at both ends of a measurement, which cancels. A coarse gauge is met by many cycles to a sample ([`plan`]).
//!
//! # What is reported
//! The mean over the repetitions, their standard deviation, and the 95 % interval of the mean (Student's t). The interval is never
//! narrower than the meter's own steps explain, so that a gauge which shows the same number every time does not pass for an exact one. A
//! figure whose interval is wider than half its value is refused, with what it would take.

pub mod figures;
pub mod plan;
mod procedure;
pub mod report;

use core::fmt;
use core::time::Duration;

use dormouse_energy::meter::{Grain, MeterError, Reading, Source};
use dormouse_sansio::Instant;
use serde::{Deserialize, Serialize};

use crate::results;

pub use figures::{Measured, Outcome, Refused};
pub use plan::{Expected, Plan, Settings};
pub use procedure::{learn, run};

/// What a sample repeats.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cycle {
    /// The radio: on until it has joined its network, then off.
    Radio,
    /// The held SA, confirmed by one probe: what a wake costs when nothing is to be done.
    Held,
    /// An address update (MOBIKE).
    Mobike,
    /// Resumption by ticket.
    Ticket,
    /// A full IKEv2 handshake.
    Full,
}

impl Cycle {
    /// All of them, in the order in which they are measured.
    pub const ALL: [Self; 5] = [Self::Radio, Self::Held, Self::Mobike, Self::Ticket, Self::Full];

    /// The names of its energy and its time in a profile.
    #[must_use]
    pub const fn names(self) -> (&'static str, &'static str) {
        use dormouse_energy::profile::names as n;
        match self {
            Self::Radio => (n::RADIO_CYCLE_ENERGY, n::RADIO_ASSOCIATION_TIME),
            Self::Held => ("held.energy", "held.time"),
            Self::Mobike => (n::MOBIKE_ENERGY, n::MOBIKE_TIME),
            Self::Ticket => (n::TICKET_ENERGY, n::TICKET_TIME),
            Self::Full => (n::FULL_ENERGY, n::FULL_TIME),
        }
    }
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Radio => "radio off and on",
            Self::Held => "held SA",
            Self::Mobike => "address update (MOBIKE)",
            Self::Ticket => "ticket",
            Self::Full => "full handshake",
        })
    }
}

/// What the radio is doing while a point is measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Radio {
    /// Off; the session sleeps.
    Off,
    /// On, without power saving; the session is up.
    On,
    /// The same with the radio's power saving.
    Saving,
}

/// A window between two readings of the meter.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Point {
    /// From this state, and back to it.
    pub radio: Radio,
    /// What is repeated in it; absent: nothing happens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycle: Option<Cycle>,
    /// How often.
    pub cycles: u32,
}

impl results::Point for Point {
    const EXPERIMENT: &'static str = "calibrate";
    const QUANTITIES: &'static [(&'static str, &'static str)] =
        &[("joules", "J"), ("seconds", "s"), ("times", "s")];

    fn label(&self) -> String {
        match (self.cycle, self.radio) {
            (Some(cycle), _) => format!("{cycle}, {} times", self.cycles),
            (None, Radio::Off) => "radio off, idle".to_owned(),
            (None, Radio::On) => "radio on, idle".to_owned(),
            (None, Radio::Saving) => "radio on, power saving".to_owned(),
        }
    }
}

/// What the device is asked to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// The session sleeps, the radio is switched off.
    RadioOff,
    /// The radio is switched on; done when it has joined its network. The session sleeps on.
    RadioOn,
    /// The radio, which is on, sleeps between beacons (802.11 power saving) from now on, or does not.
    PowerSave(bool),
    /// The session comes back, by any rung.
    SessionUp,
    /// The session, which is up, comes back once more by this rung. [`Cycle::Radio`] is none.
    Rung(Cycle),
}

/// Why something could not be done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// Once or for ever, but the rest can go on: no ticket, another rung was used.
    #[error("{0}")]
    Here(String),
    /// Nothing can go on.
    #[error("{0}")]
    Device(String),
    /// The meter fails.
    #[error(transparent)]
    Meter(#[from] MeterError),
    /// The user wants to stop.
    #[error("interrupted")]
    Interrupted,
}

/// The device that is measured: its clock, meter, radio and session.
pub trait Device {
    /// Now.
    fn now(&self) -> Instant;

    /// Does nothing for so long, but reads the meter as often as it needs.
    ///
    /// # Errors
    /// [`Failure::Interrupted`], [`Failure::Meter`].
    fn rest(&mut self, time: Duration) -> Result<(), Failure>;

    /// What the meter says.
    ///
    /// # Errors
    /// [`Failure::Meter`].
    fn meter(&mut self) -> Result<Reading, Failure>;

    /// Which meter it is.
    fn source(&self) -> Source;

    /// How coarse it is.
    fn grain(&self) -> Grain;

    /// Does it, and says how long it took.
    ///
    /// # Errors
    /// Any [`Failure`].
    fn perform(&mut self, action: Action) -> Result<Duration, Failure>;

    /// Radio and session as they were before the first action; called after a failure and at the end.
    ///
    /// # Errors
    /// What could not be restored.
    fn restore(&mut self) -> Result<(), Failure>;
}

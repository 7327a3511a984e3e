//! Meters: joules that a device really used. Owns what every meter promises, and the arithmetic behind all of them; must never
//! read a file or a clock (`dormouse_io::meter` does), and never give out a figure without saying how far it may be off.
//!
//! | meter | what it sees | how |
//! |---|---|---|
//! | [`Kind::Battery`] | the whole device, while it runs on battery | the gauge's energy or charge counter |
//! | [`Kind::BatteryPower`] | the same | the gauge's power, integrated between readings |
//! | [`Kind::Platform`] | what the maker wired to the processor's platform counter | RAPL domain `psys` |
//! | [`Kind::Package`] | processor and memory; **not** the WiFi card | RAPL domains `package-*` and `dram` |
//! | [`Kind::External`] | the circuit that the instrument is clamped to | a CSV file, `W = ∫ v·i dt` (paper 001, section 5.1) |
//!
//! - [`counter`]: counters that wrap.
//! - [`integral`]: power over time.
//! - [`grain`]: how coarse and how slow a counter is, found by watching it.
//! - [`battery`]: one device's batteries as one meter.
//! - [`rapl`]: which of a processor's domains add up.
//! - [`csv`]: rows of an external instrument.

pub mod battery;
pub mod counter;
pub mod csv;
pub mod grain;
pub mod integral;
pub mod rapl;

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use dormouse_sansio::Instant;
pub use grain::Grain;

/// A source of energy readings.
///
/// Reading is cheap (a few small files, or what an instrument wrote since), never blocks and never panics, also where the files
/// hold garbage. A meter must be read now and then, at the latest when [`Meter::read_within`] is over: counters wrap, and power between
/// two readings further apart was not counted.
pub trait Meter: Send + fmt::Debug {
    /// What it is.
    fn source(&self) -> &Source;

    /// Energy used since the meter was opened. `now` is the clock of the whole program and never goes back.
    ///
    /// After an error the meter can be read again: what happened meanwhile is then missing and counted as
    /// [`Reading::uncounted`].
    ///
    /// # Errors
    /// [`MeterError::OnMains`] while a battery does not supply the device alone; otherwise what could not be read.
    fn read(&mut self, now: Instant) -> Result<Reading, MeterError>;

    /// How coarse and how slow it is, as far as it has shown.
    fn grain(&self) -> Grain;

    /// The longest pause between two readings that loses nothing.
    fn read_within(&self) -> Duration {
        Duration::from_secs(60)
    }

    /// What a reader of its figures must know, one sentence each.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// What a meter says.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Reading {
    /// Used since the meter was opened, in joules, without [`Reading::uncounted`].
    pub joules: f64,
    /// Largest error of `joules` that steps, delay and pauses of the meter explain, in joules. A wrong gauge is not in it.
    pub uncertainty: f64,
    /// The moment up to which it has counted; an instrument's file lags behind.
    pub at: Instant,
    /// Power now, or on average since the last reading, in watts; absent before there is any.
    pub watts: Option<f64>,
    /// Time since the meter was opened that it could not count: on mains, or unreadable.
    pub uncounted: Duration,
}

/// Which kind of meter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Counters of the battery's gauge.
    Battery,
    /// Power of the battery's gauge.
    BatteryPower,
    /// RAPL, the whole platform.
    Platform,
    /// RAPL, processor and memory.
    Package,
    /// An external instrument.
    External,
}

impl Kind {
    /// As users write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Battery => "battery",
            Self::BatteryPower => "battery-power",
            Self::Platform => "platform",
            Self::Package => "package",
            Self::External => "external",
        }
    }

    /// Whether the radio's consumption is part of what it counts. False for a processor's counter; assumed for the
    /// others, which do not say.
    #[must_use]
    pub const fn sees_radio(self) -> bool {
        !matches!(self, Self::Package)
    }

    /// What it sees, for people.
    #[must_use]
    pub const fn sees(self) -> &'static str {
        match self {
            Self::Battery | Self::BatteryPower => "the whole device, screen included",
            Self::Platform => "what the maker wired to the platform counter, usually the whole device",
            Self::Package => "processor and memory only: it does not see the WiFi card",
            Self::External => "the device that the instrument was clamped to",
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Battery, Self::BatteryPower, Self::Platform, Self::Package, Self::External]
            .into_iter()
            .find(|k| k.name() == text)
            .ok_or_else(|| {
                format!(
                    "{text:?} is no meter, expected battery, battery-power, platform, package or external"
                )
            })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a meter is.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Source {
    /// Its kind.
    pub kind: Kind,
    /// Which one, and by which of its files: `BAT0 (energy_now)`.
    pub name: String,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// Why a meter says nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MeterError {
    /// There is no such meter.
    #[error("there is no {kind} meter: {why}")]
    Absent {
        /// The kind of meter.
        kind: Kind,
        /// What was looked for.
        why: String,
    },
    /// The battery is charging or full: what flows out of it is not what the device uses.
    #[error(
        "{battery} is {status:?}, not discharging: a battery measures only what it supplies, unplug the device"
    )]
    OnMains {
        /// The battery.
        battery: String,
        /// What it says of itself.
        status: String,
    },
    /// Not allowed.
    #[error("{file} may not be read by this user: {advice}")]
    Permission {
        /// The file.
        file: String,
        /// What helps.
        advice: &'static str,
    },
    /// Gone, or an I/O error.
    #[error("{file}: {why}")]
    Unreadable {
        /// The file.
        file: String,
        /// The system's words.
        why: String,
    },
    /// Not what it should be.
    #[error("{file} holds {found:?}, expected {expected}")]
    Content {
        /// The file.
        file: String,
        /// Its beginning.
        found: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// A mistake in the description or the rows of an instrument's file.
    #[error("{0}")]
    Rows(String),
}

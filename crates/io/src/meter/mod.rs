//! Energy meters of this machine: finds them and reads their files. Owns the files under a root directory that tests replace; must
//! never write to them, block, or panic on what they hold. What the values mean is `dormouse_energy::meter`.
//!
//! ```no_run
//! use dormouse_io::{clock::BootClock, meter::{open, Choice}};
//! # fn main() -> Result<(), dormouse_energy::meter::MeterError> {
//! let mut opened = open("/".as_ref(), &Choice::Best, BootClock::now())?;
//! println!("{}: {}", opened.meter.source(), opened.why);
//! let reading = opened.meter.read(BootClock::now())?;
//! println!("{:.1} J ± {:.1} J", reading.joules, reading.uncertainty);
//! # Ok(()) }
//! ```

mod battery;
mod external;
mod files;
mod rapl;

pub use dormouse_energy::meter::{Grain, Kind, Meter, MeterError, Reading, Source};
pub use external::{Analysis, analyse};

use std::path::{Path, PathBuf};

use dormouse_energy::meter::csv::Columns;
use dormouse_sansio::Instant;

/// Which meter is wanted.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Choice {
    /// The best that works now: the battery while it discharges, else the platform's counter, else the processor's.
    #[default]
    Best,
    /// This kind.
    Kind(Kind),
    /// The rows that an external instrument writes to a file, from now on.
    External {
        /// The file; it may still grow.
        path: PathBuf,
        /// Its columns.
        columns: Columns,
    },
}

/// A meter that works.
#[derive(Debug)]
pub struct Opened {
    /// It.
    pub meter: Box<dyn Meter>,
    /// Why this one.
    pub why: String,
    /// The others, and why not.
    pub refused: Vec<MeterError>,
}

/// The order of [`Choice::Best`]. A battery's power is not among them: it is only right where it is read all the time.
const BEST: [Kind; 3] = [Kind::Battery, Kind::Platform, Kind::Package];

/// Opens a meter under `root` (`/`) and reads it once: what it counts begins `now`.
///
/// # Errors
/// Why none works; with [`Choice::Best`] and several reasons, the one of the meter that would have been best.
pub fn open(root: &Path, choice: &Choice, now: Instant) -> Result<Opened, MeterError> {
    match choice {
        Choice::Kind(kind) => Ok(Opened {
            meter: open_kind(root, *kind, now)?,
            why: "it was asked for".into(),
            refused: Vec::new(),
        }),
        Choice::External { path, columns } => {
            let meter = external::External::open(path, columns.clone(), now)?;
            Ok(Opened { meter: Box::new(meter), why: "its file was named".into(), refused: Vec::new() })
        }
        Choice::Best => best(root, now),
    }
}

fn best(root: &Path, now: Instant) -> Result<Opened, MeterError> {
    let mut refused = Vec::new();
    for kind in BEST {
        match open_kind(root, kind, now) {
            Ok(meter) => {
                let why = if refused.is_empty() {
                    "the battery supplies the device, and sees all of it".to_owned()
                } else {
                    let reasons: Vec<String> = refused.iter().map(MeterError::to_string).collect();
                    format!("the best that works: {}", reasons.join("; "))
                };
                return Ok(Opened { meter, why, refused });
            }
            Err(e) => refused.push(e),
        }
    }
    // What can be mended is worth more than what is not there.
    let mendable = refused.iter().position(|e| !matches!(e, MeterError::Absent { .. })).unwrap_or_default();
    Err(refused.swap_remove(mendable))
}

fn open_kind(root: &Path, kind: Kind, now: Instant) -> Found {
    Ok(match kind {
        Kind::Battery | Kind::BatteryPower => Box::new(battery::Battery::open(root, kind, now)?),
        Kind::Platform | Kind::Package => Box::new(rapl::Rapl::open(root, kind, now)?),
        Kind::External => {
            let why = "an instrument's file must be named, with its columns".to_owned();
            return Err(MeterError::Absent { kind, why });
        }
    })
}

/// A meter that works, or why it does not.
pub type Found = Result<Box<dyn Meter>, MeterError>;

/// Every kind that this machine could have, each as a meter that works or the reason why it does not.
pub fn survey(root: &Path, now: Instant) -> Vec<(Kind, Found)> {
    [Kind::Battery, Kind::BatteryPower, Kind::Platform, Kind::Package]
        .into_iter()
        .map(|kind| (kind, open_kind(root, kind, now)))
        .collect()
}

//! Batteries: `/sys/class/power_supply`. Owns which of a gauge's files are used; values are µA, µV, µW, µWh and µAh as the kernel's
//! `Documentation/power/power_supply_class.rst` fixes them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use dormouse_energy::meter::battery::{Account, LONGEST_PAUSE, Level, Sample, Status, Way};
use dormouse_energy::meter::{Grain, Kind, Meter, MeterError, Reading, Source};
use dormouse_sansio::Instant;

use super::files::{entries, name, optional_text, signed, text, unsigned};

const MICRO: f64 = 1e-6;

/// By which files a battery's level is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gauge {
    Energy,
    Charge,
    /// No counter.
    None,
}

/// By which files its power is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Power {
    Watts,
    VoltsAmps,
    None,
}

#[derive(Debug)]
struct One {
    directory: PathBuf,
    name: String,
    gauge: Gauge,
    power: Power,
}

/// All batteries of the device.
#[derive(Debug)]
pub(super) struct Battery {
    source: Source,
    directory: PathBuf,
    batteries: Vec<One>,
    account: Account,
    notes: Vec<String>,
}

impl Battery {
    pub(super) fn open(root: &Path, kind: Kind, now: Instant) -> Result<Self, MeterError> {
        let directory = root.join("sys/class/power_supply");
        let way = if kind == Kind::BatteryPower { Way::Power } else { Way::Level };
        let found: Vec<One> = batteries(&directory);
        if found.is_empty() {
            return Err(MeterError::Absent {
                kind,
                why: format!("no battery of the device in {}", directory.display()),
            });
        }
        let usable = |one: &One| match way {
            Way::Level => one.gauge != Gauge::None,
            Way::Power => one.power != Power::None,
        };
        if let Some(one) = found.iter().find(|one| !usable(one)) {
            let files = match way {
                Way::Level => "neither energy_now nor charge_now with a voltage",
                Way::Power => "neither power_now nor current_now with voltage_now",
            };
            return Err(MeterError::Absent { kind, why: format!("{} has {files}", one.name) });
        }
        let described: Vec<String> =
            found.iter().map(|one| format!("{} ({})", one.name, one.files(way))).collect();
        let mut battery = Self {
            source: Source { kind, name: described.join(", ") },
            directory,
            batteries: found,
            account: Account::new(way),
            notes: Vec::new(),
        };
        battery.notes = battery.limits(way);
        battery.read(now)?;
        Ok(battery)
    }

    fn limits(&self, way: Way) -> Vec<String> {
        let mut notes = vec![format!("{} sees {}", self.source.kind, self.source.kind.sees())];
        match way {
            Way::Power => notes.push(
                "power is integrated between readings: what happens between two refreshes is not seen".into(),
            ),
            Way::Level => {
                if let Some(one) = self
                    .batteries
                    .iter()
                    .find(|b| b.gauge == Gauge::Charge && !b.directory.join("voltage_now").exists())
                {
                    notes.push(format!(
                        "{} does not tell its voltage: its design voltage stands in",
                        one.name
                    ));
                }
            }
        }
        notes
    }
}

impl Meter for Battery {
    fn source(&self) -> &Source {
        &self.source
    }

    fn read(&mut self, now: Instant) -> Result<Reading, MeterError> {
        let samples: Result<Vec<Sample>, MeterError> =
            self.batteries.iter().filter_map(One::sample).collect();
        match samples {
            Ok(samples) => self.account.observe(now, mains(&self.directory), &samples)?,
            Err(e) => {
                self.account.interrupt();
                return Err(e);
            }
        }
        Ok(self.account.reading())
    }

    fn grain(&self) -> Grain {
        self.account.grain()
    }

    fn read_within(&self) -> Duration {
        match self.source.kind {
            // Once a second, or what it refreshes in: that decides what the integral sees.
            Kind::BatteryPower => Duration::from_secs(1),
            _ => LONGEST_PAUSE,
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        if self.account.implausible() > 0 {
            notes.push(format!(
                "{} implausible changes of the gauge were left out",
                self.account.implausible()
            ));
        }
        notes
    }
}

impl One {
    fn find(directory: PathBuf) -> Self {
        let has = |file: &str| directory.join(file).exists();
        let gauge = if has("energy_now") {
            Gauge::Energy
        } else if has("charge_now") && VOLTAGES.iter().any(|v| has(v)) {
            Gauge::Charge
        } else {
            Gauge::None
        };
        let power = if has("power_now") {
            Power::Watts
        } else if has("current_now") && has("voltage_now") {
            Power::VoltsAmps
        } else {
            Power::None
        };
        Self { name: name(&directory), directory, gauge, power }
    }

    fn files(&self, way: Way) -> &'static str {
        match (way, self.gauge, self.power) {
            (Way::Level, Gauge::Energy, _) => "energy_now",
            (Way::Level, _, _) => "charge_now",
            (Way::Power, _, Power::Watts) => "power_now",
            (Way::Power, _, _) => "current_now, voltage_now",
        }
    }

    /// `None`: it was taken out.
    fn sample(&self) -> Option<Result<Sample, MeterError>> {
        if !self.directory.exists() || optional_text(&self.directory.join("present")).as_deref() == Some("0")
        {
            return None;
        }
        Some(self.look())
    }

    fn look(&self) -> Result<Sample, MeterError> {
        let file = |name: &str| self.directory.join(name);
        let words = text(&file("status"))?;
        let level = match self.gauge {
            Gauge::Energy => Some(Level::Energy(unsigned(&file("energy_now"))?)),
            Gauge::Charge => Some(Level::Charge(unsigned(&file("charge_now"))?, self.volts()?)),
            Gauge::None => None,
        };
        // The power is what the integral lives on; beside a counter it is only news, and drivers fail to tell it at rest.
        let watts = match self.power {
            Power::Watts => signed(&file("power_now")).map(|w| w as f64 * MICRO),
            Power::VoltsAmps => signed(&file("current_now"))
                .and_then(|amps| Ok(amps as f64 * MICRO * (unsigned(&file("voltage_now"))? as f64 * MICRO))),
            Power::None => return Ok(self.sampled(words, level, None)),
        };
        match watts {
            Err(e) if self.gauge == Gauge::None => Err(e),
            watts => Ok(self.sampled(words, level, watts.ok())),
        }
    }

    fn sampled(&self, words: String, level: Option<Level>, watts: Option<f64>) -> Sample {
        let status = Status::from_words(&words);
        let words = words.chars().take(40).collect();
        Sample { name: self.name.clone(), status, words, level, watts }
    }

    fn volts(&self) -> Result<f64, MeterError> {
        let found = VOLTAGES.iter().map(|v| self.directory.join(v)).find(|path| path.exists());
        let path = found.unwrap_or_else(|| self.directory.join("voltage_now"));
        Ok(unsigned(&path)? as f64 * MICRO)
    }
}

/// The voltage now, or what stands in for it.
const VOLTAGES: [&str; 3] = ["voltage_now", "voltage_min_design", "voltage_max_design"];

/// The device's own batteries, not those of its mouse (`scope` = `Device`).
fn batteries(directory: &Path) -> Vec<One> {
    let own = |path: &PathBuf| {
        optional_text(&path.join("type")).as_deref() == Some("Battery")
            && optional_text(&path.join("scope")).as_deref() != Some("Device")
            && optional_text(&path.join("present")).as_deref() != Some("0")
    };
    entries(directory).into_iter().filter(own).map(One::find).collect()
}

/// Whether a supply from outside is on line; `None` if the device shows none.
fn mains(directory: &Path) -> Option<bool> {
    let outside = |path: &PathBuf| {
        matches!(optional_text(&path.join("type")).as_deref(), Some("Mains" | "USB" | "Wireless"))
            && optional_text(&path.join("scope")).as_deref() != Some("Device")
    };
    let on_line = |path: PathBuf| unsigned(&path.join("online")).ok().map(|n| n != 0);
    entries(directory).into_iter().filter(outside).filter_map(on_line).reduce(|a, b| a || b)
}

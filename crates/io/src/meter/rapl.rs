//! RAPL through powercap: `/sys/class/powercap/intel-rapl:N[:M]`, which AMD's processors have under the same name. Owns the files;
//! only root may read them since a side channel was found in them (CVE-2020-8694).

use std::path::{Path, PathBuf};
use std::time::Duration;

use dormouse_energy::meter::rapl::{Account, counts};
use dormouse_energy::meter::{Grain, Kind, Meter, MeterError, Reading, Source};
use dormouse_sansio::Instant;

use super::files::{entries, name, optional_text, unsigned};

/// The domains of one kind of meter.
#[derive(Debug)]
pub(super) struct Rapl {
    source: Source,
    counters: Vec<PathBuf>,
    account: Account,
}

impl Rapl {
    pub(super) fn open(root: &Path, kind: Kind, now: Instant) -> Result<Self, MeterError> {
        let directory = root.join("sys/class/powercap");
        // Not intel-rapl-mmio: the same package once more, by another way.
        let zones = entries(&directory).into_iter().filter(|path| name(path).starts_with("intel-rapl:"));
        let named = zones.filter_map(|zone| Some((optional_text(&zone.join("name"))?, zone)));
        let (names, zones): (Vec<String>, Vec<PathBuf>) =
            named.filter(|(name, _)| counts(kind, name)).unzip();
        if zones.is_empty() {
            let wanted = if kind == Kind::Platform { "psys" } else { "package" };
            let why = format!("no RAPL domain {wanted} in {}", directory.display());
            return Err(MeterError::Absent { kind, why });
        }
        let ranges: Result<Vec<u64>, _> =
            zones.iter().map(|zone| unsigned(&zone.join("max_energy_range_uj"))).collect();
        let mut rapl = Self {
            source: Source { kind, name: names.join(", ") },
            counters: zones.into_iter().map(|zone| zone.join("energy_uj")).collect(),
            account: Account::new(&ranges?),
        };
        rapl.read(now)?;
        Ok(rapl)
    }
}

impl Meter for Rapl {
    fn source(&self) -> &Source {
        &self.source
    }

    fn read(&mut self, now: Instant) -> Result<Reading, MeterError> {
        let raw: Vec<u64> = self.counters.iter().map(|file| unsigned(file)).collect::<Result<_, _>>()?;
        self.account.observe(now, &raw);
        Ok(self.account.reading())
    }

    fn grain(&self) -> Grain {
        self.account.grain()
    }

    fn read_within(&self) -> Duration {
        // Half a lap: a wrap is then always seen. A counter of 262 kJ laps in an hour at 65 W.
        let half = self.account.lap().map(|lap| lap / 2);
        half.unwrap_or(Duration::from_secs(60)).clamp(Duration::from_secs(1), Duration::from_secs(600))
    }

    fn notes(&self) -> Vec<String> {
        vec![format!("{} ({}) sees {}", self.source.kind, self.source.name, self.source.kind.sees())]
    }
}

//! What one wake takes when nothing else goes on: at a gateway with its own database, at one that shares, and at another one than last time. Owns
//! their turn, and what the database does for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use dormouse_lab::results::Figures;
use dormouse_testbed::crowd::Task;

use crate::pulled::millis;
use crate::stage::{OWN, Stage};

/// So many wakes of each kind.
pub(crate) const COUNT: usize = 500;
/// So many devices wake in turn: one alone would begin sessions more often than a gateway allows an identity.
const DEVICES: usize = 16;
/// Between two of them: what the first one leaves to be written is on the disk.
const PAUSE: Duration = Duration::from_millis(10);

/// Where a device wakes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// At a gateway that shares with no other: SQLite.
    Own,
    /// At the gateway where it was last.
    Same,
    /// At another one, which has to be told the former.
    Other,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Own, Self::Same, Self::Other];

    /// Of its figures.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Same => "same",
            Self::Other => "other",
        }
    }

    /// Which device has its `n`th wake.
    const fn device(self, n: usize) -> usize {
        self as usize * DEVICES + n % DEVICES
    }

    /// Where.
    const fn gateway(self, n: usize) -> usize {
        match self {
            Self::Own => OWN,
            Self::Same => 0,
            Self::Other => 1 + (n / DEVICES) % 2,
        }
    }
}

/// Latencies of `count` wakes of each kind in turn, and then the load of the database by wake.
///
/// # Errors
/// If the stage cannot be built, or a device does not wake by its ticket.
pub(crate) fn figures(count: usize, interrupted: &Arc<AtomicBool>) -> Result<Figures> {
    let devices = Kind::ALL.len() * DEVICES;
    let mut stage = Stage::build(devices, false, interrupted)?;
    // The wakes after these find their devices at the other gateway.
    for (kind, n) in Kind::ALL.into_iter().flat_map(|kind| (0..DEVICES).map(move |n| (kind, n))) {
        stage.turn_to(kind.device(n), kind.gateway(n))?;
    }
    stage.log_in(0..devices)?;
    let mut latencies = [const { Vec::new() }; Kind::ALL.len()];
    for n in DEVICES..DEVICES + count {
        for (kind, latencies) in Kind::ALL.into_iter().zip(&mut latencies) {
            latencies.push(wake(&mut stage, kind, n)?);
        }
    }
    let mut figures = Figures::default();
    for (kind, latencies) in Kind::ALL.into_iter().zip(latencies) {
        figures = figures.with_all(&format!("wake.{}", kind.name()), latencies);
    }
    for kind in [Kind::Same, Kind::Other] {
        let (load, cpu) = (stage.load()?, stage.database.cpu());
        for n in DEVICES + count..DEVICES + 2 * count {
            wake(&mut stage, kind, n)?;
        }
        std::thread::sleep(PAUSE);
        let (load, cpu) = (stage.load()?.since(load), stage.database.cpu().saturating_sub(cpu));
        let by_wake = |sum: f64| sum / count as f64;
        figures = figures
            .with(&format!("transactions.{}", kind.name()), by_wake(load.transactions))
            .with(&format!("wal.{}", kind.name()), by_wake(load.bytes))
            .with(&format!("cpu.database.{}", kind.name()), by_wake(millis(cpu)));
    }
    Ok(figures)
}

/// Milliseconds from the request until the first answer came through the tunnel, after a pause.
fn wake(stage: &mut Stage, kind: Kind, n: usize) -> Result<f64> {
    ensure!(!stage.interrupted.load(Ordering::Relaxed), "interrupted");
    std::thread::sleep(PAUSE);
    stage.turn_to(kind.device(n), kind.gateway(n))?;
    let outcome = stage.crowd.release(&[(kind.device(n), Task::Quick)], || ())?;
    match (outcome.done.as_slice(), outcome.failed.first()) {
        ([done], _) => Ok(millis(done.answered)),
        (_, failed) => bail!("wake {n} of kind {}: {failed:?}\n{}", kind.name(), stage.logs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_wakes_where_it_was_or_where_it_was_not() {
        for n in DEVICES..4 * DEVICES {
            let [now, before] = [n, n - DEVICES];
            for kind in Kind::ALL {
                assert_eq!(kind.device(now), kind.device(before));
                assert_eq!(kind.gateway(now) == kind.gateway(before), kind != Kind::Other, "{kind:?} {n}");
            }
        }
        let all: std::collections::BTreeSet<usize> =
            Kind::ALL.into_iter().flat_map(|kind| (0..DEVICES).map(move |n| kind.device(n))).collect();
        assert_eq!(all.into_iter().collect::<Vec<_>>(), (0..Kind::ALL.len() * DEVICES).collect::<Vec<_>>());
    }
}

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

    /// Its device.
    const fn device(self) -> usize {
        self as usize
    }

    /// Where it wakes for the `n`th time.
    const fn gateway(self, n: usize) -> usize {
        match self {
            Self::Own => OWN,
            Self::Same => 0,
            Self::Other => 1 + n % 2,
        }
    }
}

/// Latencies of `count` wakes of each kind in turn, and then the load of the database by wake.
///
/// # Errors
/// If the stage cannot be built, or a device does not wake by its ticket.
pub(crate) fn figures(count: usize, interrupted: &Arc<AtomicBool>) -> Result<Figures> {
    let mut stage = Stage::build(Kind::ALL.len(), interrupted)?;
    for kind in Kind::ALL {
        stage.turn_to(kind.device(), kind.gateway(0))?;
    }
    stage.log_in(0..Kind::ALL.len())?;
    let mut latencies = [const { Vec::new() }; Kind::ALL.len()];
    for n in 1..=count {
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
        for n in count + 1..=2 * count {
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
    stage.turn_to(kind.device(), kind.gateway(n))?;
    let outcome = stage.crowd.release(&[(kind.device(), Task::Quick)], || ())?;
    match (outcome.done.as_slice(), outcome.failed.first()) {
        ([done], _) => Ok(millis(done.answered)),
        (_, failed) => bail!("wake {n} of kind {}: {failed:?}\n{}", kind.name(), stage.logs()),
    }
}

//! Measurements for the verbs that conclude something from them: read from a file, or made now. Owns the progress that is
//! shown meanwhile, and what such verbs share.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use dormouse_energy::profile::Profile;
use dormouse_lab::bench::{Bench, Request};
use dormouse_lab::campaign::{Ended, Progress};
use dormouse_lab::results::Results;
use indicatif::{ProgressBar, ProgressStyle};

/// Where raw data stay.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Keep {
    /// Write the raw results here after each round (JSON)
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Continue the campaign in this file
    #[arg(long, value_name = "FILE", conflicts_with = "out")]
    pub(crate) resume: Option<PathBuf>,
}

impl Keep {
    /// The file of the campaign.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.resume.as_deref().or(self.out.as_deref())
    }
}

/// What a file holds.
pub(crate) fn read(path: &Path) -> Result<Results> {
    Results::read(path).with_context(|| path.display().to_string())
}

/// Measures what `request` wants, with the expected time before it and progress meanwhile; keeps nothing.
///
/// # Errors
/// As the campaign, and when it is interrupted.
pub(crate) fn now(request: &Request) -> Result<Results> {
    let interrupted = interrupted()?;
    let mut bench = Bench::new(request, None, None)?;
    let results = &bench.campaign.results;
    eprintln!(
        "measuring first: {} points, {} rounds, about {} seconds",
        results.samples.len(),
        results.rounds,
        bench.expected().as_secs() + 1
    );
    match watched(|progress| bench.run(&interrupted, progress))? {
        Ended::Finished => Ok(bench.campaign.results),
        Ended::Interrupted => bail!("interrupted before there was enough to conclude from"),
    }
}

/// Carries a campaign out under a progress bar.
///
/// # Errors
/// As the campaign.
pub(crate) fn watched(run: impl FnOnce(&mut dyn FnMut(&Progress<'_>)) -> Result<Ended>) -> Result<Ended> {
    let bar = ProgressBar::new(0);
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed}<{eta} {msg}")?);
    let ended = run(&mut |progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
        let round = if progress.round == 0 { "warm-up".into() } else { format!("round {}", progress.round) };
        bar.set_message(format!("{round}: {}", progress.next));
    });
    bar.finish_and_clear();
    ended
}

/// A flag that is set once the user wants this to stop.
///
/// # Errors
/// If the signals cannot be caught.
pub(crate) fn interrupted() -> Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, interrupted.clone())?;
    }
    Ok(interrupted)
}

/// Prints to standard output; a reader that went away (`| head`) is no error.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn say(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(e).context("standard output"),
        _ => Ok(()),
    }
}

/// A device profile that ships with the program, or of a file.
///
/// # Errors
/// If it is neither.
pub(crate) fn profile(name: &str) -> Result<Profile> {
    if let Some(profile) = Profile::shipped(name) {
        return Ok(profile);
    }
    let text = std::fs::read_to_string(name).with_context(|| {
        let known: Vec<_> = Profile::shipped_names().collect();
        format!("profile {name:?} is neither a file nor one of {}", known.join(", "))
    })?;
    Profile::from_toml(&text).with_context(|| name.to_owned())
}

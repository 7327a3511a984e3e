//! `dormouse demo`: tells the story of `dormouse_lab::demo` on the terminal, and as JSON.

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use dormouse_lab::demo::{self, Options};
use dormouse_report::write_whole;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use crate::measure::interrupted;

/// Watch a device roam, sleep and wake inside its VPN, between network namespaces on this machine
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// With --json: write the raw results here, beside the table; without it JSON goes to standard output instead of the table
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Leave logs and configurations of the daemons behind
    #[arg(long)]
    keep: bool,
    /// Leave out the last act: a working hour of traffic, compressed, under three policies
    #[arg(long)]
    short: bool,
    /// The story of the Host Identity Protocol instead: a transfer between two hosts outlives changes of address and family
    #[arg(long)]
    hip: bool,
    /// Write the working hour with its timelines as one self-contained page
    #[arg(long, value_name = "FILE", conflicts_with_all = ["short", "hip"])]
    html: Option<PathBuf>,
    /// Seed of the hour's synthetic traffic
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the demo.
///
/// # Errors
/// If it cannot be set up here, or the story does not end well; everything it made is removed either way.
pub(crate) fn run(args: &DemoArgs, json: bool) -> Result<ExitCode> {
    if args.file.is_some() && !json {
        bail!("a FILE is written with --json: dormouse demo --json FILE");
    }
    if !demo::may_run() {
        eprintln!("error: the demo makes network namespaces and needs root: sudo dormouse demo");
        return Ok(dormouse_control::ExitCode::Permission.into());
    }
    // Before the work, not after it: a place that cannot be written is better known now.
    let place = |path: &Option<PathBuf>| path.as_deref().map(Place::open).transpose();
    let (file, html) = (place(&args.file)?, place(&args.html)?);
    let options = Options {
        interrupted: interrupted()?,
        keep: args.keep,
        short: args.short,
        hip: args.hip,
        seed: args.seed,
    };
    let table = !json || args.file.is_some();
    if table {
        println!("{}", demo::heading(&options));
    }
    let told = demo::run(&options, |row: &str| {
        if table {
            println!("{row}");
        }
    });
    // Control-C reaches what the demo runs as well, and explains every failure after it.
    let results = told.map_err(|e| match options.interrupted.load(Ordering::Relaxed) {
        true => anyhow!("interrupted; what the demo made is removed"),
        false => e,
    })?;
    if table {
        println!("{}", demo::closing(&results));
    }
    if let (Some(place), Some(document)) = (html, demo::document(&results, true)) {
        let path = place.path.clone();
        let page = document.html().map_err(anyhow::Error::msg)?;
        place.write(page.as_bytes())?;
        if table {
            println!("The timelines: {}", path.display());
        }
    }
    let text = serde_json::to_string_pretty(&results)?;
    match file {
        Some(place) => place.write(text.as_bytes())?,
        None if json => println!("{text}"),
        None => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Where a result will stand, which can be written. What stands there now stays until there is a result.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    /// Nothing was there before, and nothing is yet.
    empty: bool,
}

impl Place {
    fn open(path: &Path) -> Result<Self> {
        let empty = !path.exists();
        let file = File::options().write(true).create(true).truncate(false).open(path);
        file.with_context(|| path.display().to_string())?;
        Ok(Self { path: path.into(), empty })
    }

    fn write(mut self, bytes: &[u8]) -> Result<()> {
        write_whole(&self.path, bytes).with_context(|| self.path.display().to_string())?;
        self.empty = false;
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.empty {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Place;

    #[test]
    fn a_demo_without_an_end_leaves_what_was_there_and_nothing_where_nothing_was() {
        let dir = std::env::temp_dir().join(format!("dormouse-place-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let (old, new) = (dir.join("old.json"), dir.join("new.json"));
        std::fs::write(&old, "of yesterday, and longer").expect("a file");
        drop((Place::open(&old).expect("it opens"), Place::open(&new).expect("it opens")));
        let (kept, left) = (std::fs::read_to_string(&old), new.exists());
        Place::open(&old).and_then(|p| p.write(b"of today")).expect("it is written");
        let written = std::fs::read_to_string(&old);
        std::fs::remove_dir_all(&dir).expect("it goes");
        assert_eq!(kept.ok().as_deref(), Some("of yesterday, and longer"));
        assert!(!left, "an empty file is no result");
        assert_eq!(written.ok().as_deref(), Some("of today"));
    }
}

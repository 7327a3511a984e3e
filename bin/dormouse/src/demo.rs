//! `dormouse demo`: tells the story of `dormouse_lab::demo` on the terminal, and as JSON.

use anyhow::{Context, Result, bail};
use clap::Args;
use dormouse_lab::demo::{self, HEADING, Options};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Watch a device roam, sleep and wake inside its VPN, between network namespaces on this machine
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// With --json: write the rows here, beside the table; without it JSON goes to standard output instead of the table
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Leave logs and configurations of the daemons behind
    #[arg(long)]
    keep: bool,
    /// Leave out the last act: a working hour of traffic, compressed, under three policies
    #[arg(long)]
    short: bool,
    /// Write the working hour with its timelines as one self-contained page
    #[arg(long, value_name = "FILE", conflicts_with = "short")]
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
    let create = |path: &Option<PathBuf>| -> Result<Option<(PathBuf, std::fs::File)>> {
        let Some(path) = path else { return Ok(None) };
        let file = std::fs::File::create(path).with_context(|| path.display().to_string())?;
        Ok(Some((path.clone(), file)))
    };
    let (file, html) = (create(&args.file)?, create(&args.html)?);
    let options = Options {
        interrupted: Arc::new(AtomicBool::new(false)),
        keep: args.keep,
        short: args.short,
        seed: args.seed,
    };
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, options.interrupted.clone())?;
    }
    let table = !json || args.file.is_some();
    if table {
        println!("{HEADING}");
    }
    let report = demo::run(&options, |row| {
        if table {
            println!("{row}");
        }
    })?;
    if table {
        println!("{report}");
    }
    if let (Some((path, mut file)), Some(hour)) = (html, &report.hour) {
        let page = demo::hour::html(hour)?;
        std::io::Write::write_all(&mut file, page.as_bytes()).with_context(|| path.display().to_string())?;
        if table {
            println!("The timelines: {}", path.display());
        }
    }
    match file {
        Some((path, file)) => {
            serde_json::to_writer_pretty(file, &report).with_context(|| format!("{}", path.display()))?
        }
        None if json => println!("{}", serde_json::to_string_pretty(&report)?),
        None => {}
    }
    Ok(ExitCode::SUCCESS)
}

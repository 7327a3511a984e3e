//! `dormouse bench`: what each security setting costs on this machine. Thin over `dormouse_lab::bench`; owns arguments,
//! progress and the summary.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use dormouse_lab::bench::{self, Bench, Far, Lost, Request, Unprivileged};
use dormouse_lab::campaign::Ended;
use dormouse_lab::judge::stats;
use dormouse_lab::results::esp::{CPU_SYSTEM, CPU_THREAD, FAR_CPU_SYSTEM, FAR_CPU_THREAD, Metric, What};
use dormouse_lab::results::{Figures, Point as _};
use dormouse_report::Table;

use crate::measure::{Keep, interrupted, say, watched};

/// What a campaign that goes on has in its file.
const PLANNED: [&str; 11] = [
    "what",
    "suites",
    "sizes",
    "cores",
    "governors",
    "files",
    "rates",
    "stream_seconds",
    "profile",
    "repeat",
    "quick",
];

/// Measure what each security setting costs on this machine: speed, CPU time and energy
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(mut_arg("resume", |resume| resume.conflicts_with_all(PLANNED)))]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    command: Option<BenchCommand>,
    #[command(flatten)]
    keep: Keep,
    /// The short campaign, below three minutes
    #[arg(long)]
    quick: bool,
    /// Parts to measure: crypto, path, streams, downloads, tls
    #[arg(long, value_delimiter = ',', value_name = "PARTS", value_parser = bench::part)]
    what: Vec<What>,
    /// Suites, as in aes128gcm16,aes128-sha256,null-sha1,none
    #[arg(long, value_delimiter = ',', value_name = "SUITES", value_parser = bench::known_suite)]
    suites: Vec<String>,
    /// Packet sizes in bytes
    #[arg(long, value_delimiter = ',', value_name = "BYTES")]
    sizes: Vec<u32>,
    /// Numbers of processors
    #[arg(long, value_delimiter = ',', value_name = "N")]
    cores: Vec<u32>,
    /// Frequency governors to set in turn; put back afterwards
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    governors: Vec<String>,
    /// Sizes of downloaded files in bytes
    #[arg(long, value_delimiter = ',', value_name = "BYTES")]
    files: Vec<u64>,
    /// Rates of streams in bits per second
    #[arg(long, value_delimiter = ',', value_name = "BITS")]
    rates: Vec<f64>,
    /// How long a stream lasts, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, hide_default_value = true)]
    stream_seconds: f64,
    /// Rounds that count; each measures every point once
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    repeat: u32,
    /// Seed of payloads, keys and the order of points
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Estimate energy from this device profile (a shipped one or a file, with cpu.core_power) instead of metering it
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
    /// Only say what would be measured, and how long it would take
    #[arg(long)]
    plan: bool,
    /// Measure over the link to this machine, a destination of ssh: as root, or with --far-command
    #[arg(long, value_name = "HOST")]
    far: Option<String>,
    /// How dormouse is started there, as in "sudo dormouse"
    #[arg(long, value_name = "COMMAND", default_value = "dormouse", requires = "far")]
    far_command: String,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Answer jobs from standard input: without AES instructions, or for another machine
    #[command(hide = true)]
    Worker {
        /// The connection from that machine, as in SSH_CONNECTION
        #[arg(long)]
        link: Option<String>,
    },
    /// Be one end of a tunnel that is measured, until standard input is closed
    #[command(hide = true)]
    Forward,
}

/// Runs the verb.
///
/// # Errors
/// For a request that cannot be carried out here, and results that cannot be written.
pub(crate) fn run(args: &BenchArgs, json: bool) -> Result<ExitCode> {
    if let Some(command) = &args.command {
        match command {
            BenchCommand::Worker { link } => bench::serve(link.as_deref())?,
            BenchCommand::Forward => bench::forward()?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let interrupted = interrupted()?;
    let mut bench = match planned(args) {
        Ok(bench) => bench,
        Err(error) if error.is::<Unprivileged>() => return unprivileged(&error),
        Err(error) => return Err(error),
    };
    let results = &bench.campaign.results;
    eprintln!(
        "{} points, {} rounds, about {}; seed {}",
        results.samples.len(),
        results.rounds,
        minutes(bench.expected()),
        results.seed
    );
    let governors: std::collections::BTreeSet<&str> =
        results.samples.iter().filter_map(|s| s.governor.as_deref()).collect();
    if !governors.is_empty() {
        let names = governors.into_iter().collect::<Vec<_>>().join(", ");
        eprintln!("sets the frequency governor to {names} in turn, and puts it back");
    }
    if args.plan {
        let lines: String = results.samples.iter().map(|s| s.label() + "\n").collect();
        say(&lines)?;
        return Ok(ExitCode::SUCCESS);
    }
    let ended = match watched(|progress| bench.run(&interrupted, progress)) {
        Err(error) if error.is::<Lost>() => {
            continued(args);
            return Err(error);
        }
        ended => ended?,
    };
    let text =
        if json { serde_json::to_string_pretty(&bench.campaign.results)? + "\n" } else { summary(&bench) };
    say(&text)?;
    if ended == Ended::Interrupted {
        continued(args);
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn unprivileged(error: &anyhow::Error) -> Result<ExitCode> {
    eprintln!("error: {error}");
    Ok(dormouse_control::ExitCode::Permission.into())
}

/// Says how a campaign that was interrupted goes on.
fn continued(args: &BenchArgs) {
    let far = args.far.as_ref().map(|host| format!(" --far {host}")).unwrap_or_default();
    match args.keep.file() {
        Some(path) => eprintln!("interrupted; dormouse bench --resume {}{far} continues", path.display()),
        None => eprintln!("interrupted; with --out FILE it could be continued"),
    }
}

fn planned(args: &BenchArgs) -> Result<Bench> {
    let reached = args.far.as_ref().filter(|_| !args.plan);
    let far = reached.map(|host| Far::reach(host, &args.far_command)).transpose()?;
    if let Some(path) = &args.keep.resume {
        return Bench::resume(path, far);
    }
    let request = Request {
        name: "",
        parts: args.what.clone(),
        suites: args.suites.clone(),
        sizes: args.sizes.clone(),
        cores: args.cores.clone(),
        governors: args.governors.clone(),
        files: args.files.clone(),
        rates: args.rates.clone(),
        rounds: args.repeat,
        stream_seconds: args.stream_seconds,
        profile: args.profile.clone(),
        quick: args.quick,
        compare_governors: false,
        between: args.far.is_some(),
        seed: args.seed,
        ..Request::default()
    };
    Bench::new(&request, args.keep.out.clone().filter(|_| !args.plan), far)
}

fn minutes(time: Duration) -> String {
    match time.as_secs() + 1 {
        seconds @ 0..120 => format!("{seconds} seconds"),
        seconds @ 120..7_200 => format!("{} minutes", seconds.div_ceil(60)),
        seconds => format!("{:.1} hours", seconds as f64 / 3_600.0),
    }
}

/// Medians, in a table for each part; what was left out; how quiet the machine was.
fn summary(bench: &Bench) -> String {
    let results = &bench.campaign.results;
    let mut out = format!(
        "{}, {} processors, {}\n",
        results.machine.cpu, results.machine.cores, results.machine.kernel
    );
    if let Some(far) = &results.far {
        let _ = writeln!(out, "to {}, {} processors, {}", far.cpu, far.cores, far.kernel);
    }
    for what in [What::Crypto, What::Path, What::Stream, What::Download, What::Tls] {
        let head = ["median of all rounds", "Mbit/s", "ns/B own", "ns/B rest", "loss %"];
        let mut table = Table::new(head.into_iter().chain(results.far.is_some().then_some("ns/B far")));
        for sample in results.samples.iter().filter(|s| s.what == what) {
            let show = |values: Vec<f64>, factor: f64, digits: usize| {
                let median = stats::median(&values);
                median.map_or_else(|| "-".to_owned(), |v| format!("{:.digits$}", v * factor))
            };
            let of = |figure: fn(&Figures) -> Option<f64>| {
                sample.rounds.iter().filter_map(|r| figure(&r.figures)).collect()
            };
            let mut row = vec![
                sample.label(),
                show(sample.values(Metric::Throughput), 8e-6, 1),
                show(sample.all(CPU_THREAD).collect(), 1.0, 3),
                show(sample.all(CPU_SYSTEM).collect(), 1.0, 3),
                show(sample.values(Metric::Loss), 100.0, 1),
            ];
            if results.far.is_some() {
                let both = |f: &Figures| Some(f.one(FAR_CPU_THREAD)? + f.one(FAR_CPU_SYSTEM).unwrap_or(0.0));
                row.push(show(of(both), 1.0, 3));
            }
            table.row(row);
        }
        if !table.rows.is_empty() {
            let _ = write!(out, "\n{}", table.text(""));
        }
    }
    for one in results.discarded.iter().filter(|d| d.round > 0) {
        let _ = writeln!(out, "Discarded: round {} of {}: {}", one.round, one.subject, one.reason);
    }
    if !results.skipped.is_empty() {
        out.push_str("\nNot measured:\n");
        for skipped in &results.skipped {
            let failed = if skipped.failed { "it failed: " } else { "" };
            let _ = writeln!(out, "  {}: {failed}{}", skipped.subject, skipped.reason);
        }
    }
    for note in bench.noise() {
        let _ = writeln!(out, "Not quiet: {note}");
    }
    if let Some(mask) = results.versions.get("aes-mask") {
        let _ = writeln!(out, "AES instructions hidden by {mask}");
    }
    out
}

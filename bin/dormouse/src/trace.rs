//! `dormouse trace`: what sleeping would save on recorded traffic. Thin over `dormouse-trace`; owns arguments and output.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum};
use dormouse_energy::account::Settings;
use dormouse_energy::cost::SleepCost;
use dormouse_energy::model::{Baseline, Model, Resumption};
use dormouse_energy::{WakeOn, radio};
use dormouse_io::capture::Capture;
use dormouse_io::signal::Signals;
use dormouse_lab::Reading;
use dormouse_report::{Unfinished, write_whole};
use dormouse_trace::activity::Activity;
use dormouse_trace::analyse::{Analysis, Options, account, survey_all};
use dormouse_trace::clients::{Client, Directory};
use dormouse_trace::facts::Limits;
use dormouse_trace::fold::Sessions;
use dormouse_trace::generate::{Population, Recipe, write};
use dormouse_trace::input::{Input, compress, expand};
use dormouse_trace::periods::Collector;
use dormouse_trace::report::figures::{Figures, Questions};
use dormouse_trace::report::page::{ON_PAGE, ON_TERMINAL, document};
use dormouse_trace::report::{charts, json};
use dormouse_trace::results::{self, Merged};
use dormouse_trace::table_file::{Layout, PROVENANCE, TableWriter};

use crate::measure::{profile, say};
use crate::origin::{self, Inputs};
use crate::recordings::{ReadingArgs, positive};

/// What sleeping would save on recorded traffic
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct TraceArgs {
    #[command(subcommand)]
    command: Option<TraceCommand>,
    #[command(flatten)]
    analyse: AnalyseArgs,
}

#[derive(Debug, Subcommand)]
enum TraceCommand {
    /// Make a synthetic population of wireless clients, labelled synthetic in every output
    Generate(GenerateArgs),
    /// Capture this machine's own interface to a pcap file
    Record(RecordArgs),
    /// Put together what `--results` has written in several places, each client in one of them: the report is that of one machine which reads all of it
    Merge(MergeArgs),
}

#[derive(Debug, Args)]
struct GenerateArgs {
    /// Where to: NAME.csv, NAME.pcapng, NAME.parquet or NAME.arrow; the first two also with .gz or .zst behind
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Clients
    #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    clients: u32,
    /// Days
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=366))]
    days: u32,
    /// The same seed makes the same traffic
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The first midnight, in seconds since 1970
    #[arg(long, default_value_t = 1_700_006_400)]
    start: u64,
}

#[derive(Debug, Args)]
struct RecordArgs {
    /// The interface
    #[arg(value_name = "INTERFACE")]
    interface: String,
    /// The pcap file to write
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Stop after this many seconds (otherwise on interrupt)
    #[arg(long, value_name = "SECONDS")]
    duration: Option<f64>,
    /// Bytes kept of each packet: headers suffice for `dormouse trace`, and payload stays private
    #[arg(long, default_value_t = 96, value_parser = clap::value_parser!(u32).range(14..=65_535))]
    snap: u32,
}

#[derive(Debug, Args)]
struct MergeArgs {
    /// What `dormouse trace --results FILE` has written, always with the same settings; or patterns
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
}

/// Which packets wake the radio.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Wake {
    /// Every packet, as if a second radio announced those that arrive
    All,
    /// Only packets that the client sends; those that arrive meanwhile are lost
    Outgoing,
}

#[derive(Debug, Args)]
struct AnalyseArgs {
    /// Recordings: pcap, pcapng, NetFlow v5/v9, IPFIX, CSV of nfdump or Argus, Zeek conn log, Suricata EVE log, `client,time,bytes,direction`, all also gzip or zstd; activities as Parquet or Arrow IPC; patterns; `-` for standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
    #[command(flatten)]
    reading: ReadingArgs,
    /// Break-even time in seconds, instead of a profile
    #[arg(long, value_name = "SECONDS")]
    break_even: Option<f64>,
    /// Device profile: a name that ships with the program, or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = "laptop-000")]
    profile: String,
    /// How the session is resumed: held, mobike, ticket, ikev2, mobike+ticket, mobike+ikev2
    #[arg(long, value_name = "PROTOCOL", default_value = "mobike+ticket")]
    resumption: Resumption,
    /// Clients that the gateway serves at once
    #[arg(long, value_name = "CLIENTS", default_value_t = 1)]
    load: u32,
    /// What a sleep is compared with: active, psm, or a file: a power in watts, a profile with `baseline.power`, or the states of
    /// a radio ([[state]] tables with power, energies and times of going there and back; one with `off = true`)
    #[arg(long, value_name = "active|psm|FILE", default_value = "active")]
    baseline: String,
    /// Which packets wake the radio
    #[arg(long, value_enum, default_value_t = Wake::All)]
    wake_on: Wake,
    /// Shortest silence that counts as an idle period, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 0.25)]
    min_idle: f64,
    /// Time-out of the policy `timeout`, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    timeout: f64,
    /// Worker threads
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Also write a report: one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also write each client's idle periods with the bursts that ended them, to be read back here or elsewhere: Parquet, or Arrow IPC if the name ends in .arrow; into a directory (DIR/), Parquet in parts of whole clients
    #[arg(long, value_name = "FILE")]
    periods: Option<PathBuf>,
    /// Also write each client's results, for `dormouse trace merge`
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// No progress bar
    #[arg(long)]
    quiet: bool,
}

/// Runs the verb. The exit code is 1 if some input could not be read whole.
///
/// # Errors
/// For arguments that make no sense, and output that cannot be written.
pub(crate) fn run(args: &TraceArgs, json: bool) -> anyhow::Result<ExitCode> {
    match &args.command {
        None => analyse_files(&args.analyse, json),
        Some(TraceCommand::Generate(args)) => generate(args, json),
        Some(TraceCommand::Record(args)) => record(args, json),
        Some(TraceCommand::Merge(args)) => merge(args, json),
    }
}

fn generate(args: &GenerateArgs, json: bool) -> anyhow::Result<ExitCode> {
    let recipe = Recipe { clients: args.clients, days: args.days, seed: args.seed, start: args.start };
    let name = args.file.to_string_lossy().into_owned();
    let packets = generate_file(args, Population::new(recipe), &name).with_context(|| name.clone())?;
    if json {
        let made = serde_json::json!({
            "version": json::VERSION, "synthetic": true, "file": name, "packets": packets, "label": recipe.label(),
            "provenance": origin::command(),
        });
        say(&(serde_json::to_string_pretty(&made)? + "\n"))?;
    } else {
        eprintln!("{name}: {packets} packets, {}", recipe.label());
    }
    Ok(ExitCode::SUCCESS)
}

/// How many packets were written.
fn generate_file(args: &GenerateArgs, population: Population, name: &str) -> anyhow::Result<u64> {
    let plain = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")).unwrap_or(name);
    let table = plain.ends_with(".parquet") || plain.ends_with(".arrow");
    if table && plain != name {
        bail!("a table must be a plain file; drop the last suffix");
    }
    if !(table || plain.ends_with(".csv") || plain.ends_with(".pcapng")) {
        bail!(
            "expected a name ending in .csv, .pcapng, .parquet or .arrow (the first two also with .gz or .zst behind)"
        );
    }
    let mut file = Unfinished::create(&args.file)?;
    let packets = if table {
        write::activities(population, &mut file, Layout::of_name(name), MIN_IDLE_NANOS)?
    } else {
        let made = if plain.ends_with(".csv") { write::csv } else { write::pcapng };
        let out = std::io::BufWriter::with_capacity(1 << 20, &mut file);
        compress(name, out, |out| made(population, out))?
    };
    file.place()?;
    Ok(packets)
}

fn record(args: &RecordArgs, json: bool) -> anyhow::Result<ExitCode> {
    let limit = args.duration.map(|s| positive(s, "--duration").map(Duration::from_secs_f64)).transpose()?;
    // Before the file is made: a capture that cannot begin leaves nothing behind.
    let capture = Capture::open(&args.interface).with_context(|| format!("capturing {}", args.interface))?;
    let name = args.file.display().to_string();
    // Under its own name from the beginning: what was captured until a disk is full, or the machine stops, is worth keeping.
    let file = std::fs::File::create(&args.file).with_context(|| name.clone())?;
    let stop = Signals::new().context("signals")?;
    eprintln!("recording {} to {name}; interrupt to stop", args.interface);
    let counts = capture
        .record(std::io::BufWriter::new(file), args.snap, limit, Some(&stop))
        .with_context(|| format!("recording {} to {name}", args.interface))?;
    if json {
        let done = serde_json::json!({
            "version": json::VERSION, "interface": args.interface, "file": name,
            "packets": counts.packets, "dropped": counts.dropped, "provenance": origin::command(),
        });
        say(&(serde_json::to_string_pretty(&done)? + "\n"))?;
    } else {
        eprintln!("{} packets recorded, {} missed by the kernel's queue", counts.packets, counts.dropped);
    }
    Ok(ExitCode::SUCCESS)
}

/// The shortest idle period of a generated table.
const MIN_IDLE_NANOS: u64 = 250_000_000;

fn inputs(args: &AnalyseArgs, reading: &Reading) -> anyhow::Result<Vec<Input>> {
    let (streams, names): (Vec<String>, Vec<String>) = args.files.iter().cloned().partition(|f| f == "-");
    let mut inputs: Vec<Input> = Vec::new();
    if !streams.is_empty() {
        inputs.push(Input::spool("-", &mut std::io::stdin().lock()).context("standard input")?);
    }
    let paths = expand(&names).map_err(anyhow::Error::msg)?;
    inputs.extend(paths.iter().map(|p| Input::file(p)));
    reading.prepare(inputs)
}

/// The device's model by name or file.
fn model(args: &AnalyseArgs) -> anyhow::Result<Model> {
    let mut model = profile(&args.profile)?.model()?;
    model.baseline = baseline(&args.baseline)?;
    Ok(model)
}

fn baseline(argument: &str) -> anyhow::Result<Baseline> {
    if let Ok(known) = argument.parse() {
        return Ok(known);
    }
    let text = std::fs::read_to_string(argument)
        .with_context(|| format!("--baseline {argument}: neither active nor psm, and no file"))?;
    radio::baseline(&text).with_context(|| argument.to_owned())
}

/// The shortest idle period that may be asked for: packets of a flow are not told apart within half of it.
const FINEST: Duration = Duration::from_millis(1);

fn settings(args: &AnalyseArgs, reading: &Reading) -> anyhow::Result<Settings> {
    let cost = match args.break_even {
        Some(seconds) => SleepCost::constant(positive(seconds, "--break-even")?),
        None => model(args)?.sleep_cost(args.resumption, args.load),
    };
    let mut settings = Settings::new(cost);
    settings.min_idle = Duration::try_from_secs_f64(args.min_idle)
        .ok()
        .filter(|idle| *idle >= FINEST)
        .with_context(|| format!("--min-idle {}: expected at least a millisecond", args.min_idle))?;
    settings.session = reading.session;
    settings.wake_on = match args.wake_on {
        Wake::All => WakeOn::All,
        Wake::Outgoing => WakeOn::Outgoing,
    };
    Ok(settings)
}

fn analyse_files(args: &AnalyseArgs, json: bool) -> anyhow::Result<ExitCode> {
    let reading = args.reading.reading(args.min_idle)?;
    let inputs = inputs(args, &reading)?;
    let settings = settings(args, &reading)?;
    if args.periods.is_some() && reading.session_by == Sessions::Connection {
        bail!(
            "--periods keeps a client's traffic in order of time, and no connections: not with --session-by connection"
        );
    }
    let options = Options {
        wanted: reading.wanted(),
        sessions: reading.session_by,
        limits: Limits::default(),
        format: None,
        spread: reading.flows,
        settings,
        policies: Options::policies(positive(args.timeout, "--timeout")?),
        threads: args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
    };
    let known = Inputs::new(&inputs);
    let bar = Bar::new(&inputs, args.quiet);
    let progress = |phase, bytes| bar.tell(phase, bytes);
    let survey = survey_all(&inputs, options.format, options.limits, options.threads, &progress);
    let (directory, rule) = Directory::find(&survey.sites, &options.wanted);
    let synthetic = survey.files.iter().find_map(|f| f.synthetic.clone());
    let mut periods =
        args.periods.as_deref().map(|p| Periods::create(p, &settings, synthetic.as_deref())).transpose()?;
    let mut tap = |piece: &Activity| {
        if let Some(periods) = &mut periods {
            periods.piece(piece, &directory);
        }
    };
    let accounting = json::Accounting::of(&options);
    let report = if let Some(path) = &args.html {
        let questions = Questions::new(settings, model(args)?, directory.clients());
        let watch = |client: &Client| Figures::new(&questions, client);
        let analysis = account(&inputs, survey, &directory, rule, &options, &progress, &watch, &mut tap)?;
        let provenance = Some(known.provenance()?);
        keep(args, &analysis, &options, provenance.as_ref())?;
        let report = json::Report { provenance, ..json::Report::new(&analysis, accounting) };
        let charts = charts::all(&analysis, &questions);
        let page = document(&report, charts, &about(args), ON_PAGE).html().map_err(anyhow::Error::msg)?;
        write_whole(path, page.as_bytes()).with_context(|| path.display().to_string())?;
        report
    } else {
        let analysis = account(&inputs, survey, &directory, rule, &options, &progress, &|_| (), &mut tap)?;
        // Each recording is read once more for it.
        let told = json || args.results.is_some() || args.periods.is_some();
        let provenance = told.then(|| known.provenance()).transpose()?;
        keep(args, &analysis, &options, provenance.as_ref())?;
        json::Report { provenance, ..json::Report::new(&analysis, accounting) }
    };
    if let (Some(periods), Some(path), Some(provenance)) = (periods, &args.periods, &report.provenance) {
        let words = serde_json::to_string(provenance)?;
        periods.finish(&directory, &words).with_context(|| path.display().to_string())?;
    }
    bar.done();
    let shown = json || args.html.is_some();
    tell(&json::Report { provenance: report.provenance.filter(|_| shown), ..report }, json)
}

/// Writes what `--results` asks for.
fn keep<X>(
    args: &AnalyseArgs,
    analysis: &Analysis<X>,
    options: &Options,
    provenance: Option<&json::Provenance>,
) -> anyhow::Result<()> {
    let (Some(path), Some(provenance)) = (&args.results, provenance) else { return Ok(()) };
    let written = || {
        let mut file = Unfinished::create(path)?;
        let out = std::io::BufWriter::with_capacity(1 << 20, &mut file);
        results::write(out, analysis, options, provenance)?;
        file.place()
    };
    written().with_context(|| path.display().to_string())
}

fn merge(args: &MergeArgs, json: bool) -> anyhow::Result<ExitCode> {
    let mut merged = Merged::default();
    let files = expand(&args.files).map_err(anyhow::Error::msg)?;
    let inputs: Vec<Input> = files.iter().map(|path| Input::file(path)).collect();
    let known = Inputs::new(&inputs);
    for input in &inputs {
        let file = input.file_handle().with_context(|| input.name().to_owned())?;
        let file = std::io::BufReader::with_capacity(1 << 20, file);
        merged.add(input.name(), file).map_err(anyhow::Error::msg)?;
    }
    let (analysis, accounting, of_inputs) = merged.finish().map_err(anyhow::Error::msg)?;
    let provenance = json.then(|| known.provenance()).transpose()?;
    let provenance = provenance.map(|of| json::Provenance { of_inputs, ..of });
    tell(&json::Report { provenance, ..json::Report::new(&analysis, accounting) }, json)
}

/// The report on standard output, and what was lost on standard error.
fn tell(report: &json::Report, json: bool) -> anyhow::Result<ExitCode> {
    let text = if json {
        serde_json::to_string_pretty(report)? + "\n"
    } else {
        document(report, Vec::new(), "", ON_TERMINAL).text()
    };
    say(&text)?;
    for loss in &report.lost {
        eprintln!("lost: {}: byte {}, record {}: {}", loss.file, loss.offset, loss.record, loss.reason);
    }
    if report.lost_total > report.lost.len() as u64 {
        eprintln!("lost: {} more", report.lost_total - report.lost.len() as u64);
    }
    Ok(if report.lost_total > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The page's last line: on which figures it rests.
fn about(args: &AnalyseArgs) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let basis = match args.break_even {
        Some(b) => format!(
            "break-even time given as {b} s; figures by protocol and load use the profile {}",
            args.profile
        ),
        None => format!(
            "profile {}, resumption {}, {} client(s) at the gateway, baseline {}",
            args.profile, args.resumption, args.load, args.baseline
        ),
    };
    format!("dormouse {version}; {basis}.")
}

/// The idle periods on their way to a file.
struct Periods {
    collector: Collector,
    writer: TableWriter,
    failed: std::io::Result<()>,
}

impl Periods {
    fn create(path: &Path, settings: &Settings, synthetic: Option<&str>) -> anyhow::Result<Self> {
        let min_idle = u64::try_from(settings.min_idle.as_nanos())?;
        let writer = TableWriter::create(path, min_idle, synthetic);
        Ok(Self {
            collector: Collector::new(min_idle),
            writer: writer.with_context(|| path.display().to_string())?,
            failed: Ok(()),
        })
    }

    fn piece(&mut self, piece: &Activity, directory: &Directory) {
        let Self { collector, writer, failed } = self;
        collector.piece(piece, &mut |row| {
            if failed.is_ok() {
                *failed = writer.push(row, &|id| who(directory, id));
            }
        });
    }

    /// With where they come from, in JSON.
    fn finish(self, directory: &Directory, provenance: &str) -> std::io::Result<()> {
        let Self { collector, mut writer, mut failed } = self;
        collector.finish(&mut |row| {
            if failed.is_ok() {
                failed = writer.push(row, &|id| who(directory, id));
            }
        });
        failed?;
        writer.note(PROVENANCE, provenance);
        writer.finish(&|id| who(directory, id))
    }
}

fn who(directory: &Directory, id: u32) -> Option<Client> {
    directory.clients().get(id as usize).cloned()
}

/// A progress bar for long inputs on a terminal.
struct Bar {
    bar: Option<indicatif::ProgressBar>,
    total: u64,
    phase: Mutex<u32>,
}

/// Inputs below this many bytes are done before a bar could be read.
const LONG: u64 = 64 << 20;

impl Bar {
    fn new(inputs: &[Input], quiet: bool) -> Self {
        let total: u64 = inputs.iter().filter_map(Input::size).sum();
        let shown = !quiet && total >= LONG && std::io::stderr().is_terminal();
        let bar = shown.then(|| {
            let bar = indicatif::ProgressBar::new(total * 2);
            let style =
                indicatif::ProgressStyle::with_template("{msg:10} {bar:40} {bytes}/{total_bytes} {eta}");
            bar.with_style(style.unwrap_or_else(|_| indicatif::ProgressStyle::default_bar()))
        });
        Self { bar, total, phase: Mutex::new(u32::MAX) }
    }

    fn tell(&self, phase: u32, bytes: u64) {
        let Some(bar) = &self.bar else { return };
        if let Ok(mut known) = self.phase.lock()
            && *known != phase
        {
            *known = phase;
            bar.set_message(if phase == 0 { "surveying" } else { "accounting" });
        }
        // Compressed inputs yield more bytes than they have: the bar then stops at the end of its phase.
        bar.set_position(u64::from(phase) * self.total + bytes.min(self.total));
    }

    fn done(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

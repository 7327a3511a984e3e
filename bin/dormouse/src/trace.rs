//! `dormouse trace`: what sleeping would save on recorded traffic. Thin over `dormouse-trace`; owns arguments and output.

use std::io::IsTerminal as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum};
use dormouse_energy::account::{SESSION, Settings};
use dormouse_energy::cost::SleepCost;
use dormouse_energy::model::{Baseline, Model, Resumption};
use dormouse_energy::{WakeOn, radio};
use dormouse_io::capture::Capture;
use dormouse_io::signal::Signals;
use dormouse_lab::campaign::versions;
use dormouse_lab::results::format::Input as Hashed;
use dormouse_report::{Unfinished, write_whole};
use dormouse_trace::activity::Activity;
use dormouse_trace::analyse::{Analysis, Options, account, survey_all};
use dormouse_trace::clients::{Client, Directory, Wanted};
use dormouse_trace::facts::Limits;
use dormouse_trace::flow::Spread;
use dormouse_trace::fold::Sessions;
use dormouse_trace::generate::{Population, Recipe, write};
use dormouse_trace::input::{EXPORT_PORTS, Input, compress, expand, label};
use dormouse_trace::periods::Collector;
use dormouse_trace::report::figures::{Figures, Questions};
use dormouse_trace::report::page::{ON_PAGE, ON_TERMINAL, document};
use dormouse_trace::report::{charts, json};
use dormouse_trace::results::{self, Merged};
use dormouse_trace::table_file::{Layout, TableWriter};

use crate::measure::{profile, say};

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
    /// Recordings with the same label are of one site, where one address is one client; otherwise each is its own (repeatable; FILE may be a pattern)
    #[arg(long = "site", value_name = "FILE=LABEL")]
    sites: Vec<String>,
    /// Whom to account: an address, a prefix, a link-layer address, or a name (repeatable); by default clients are found
    #[arg(long = "client", value_name = "PREFIX")]
    clients: Vec<String>,
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
    /// A silence longer than this is absence and ends a session, in seconds; 0: no silence does
    #[arg(long, value_name = "SECONDS", default_value_t = SESSION.as_secs_f64())]
    session: f64,
    /// What else ends a session: nothing (silence), joining the network anew (association: 802.11, or DHCP without an address), or each
    /// connection is one (connection: Zeek's uid, Suricata's flow_id)
    #[arg(long, value_name = "silence|association|connection", default_value = "silence")]
    session_by: Sessions,
    /// Shortest silence that counts as an idle period, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 0.25)]
    min_idle: f64,
    /// Time-out of the policy `timeout`, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    timeout: f64,
    /// How a flow's packets are placed: even (worst case) or edges
    #[arg(long, value_name = "even|edges", default_value = "even")]
    flows: Spread,
    /// UDP port on which a capture's NetFlow and IPFIX exports are looked for (repeatable; 0: nowhere)
    #[arg(long = "netflow-port", value_name = "PORT", default_values_t = EXPORT_PORTS)]
    netflow_ports: Vec<u16>,
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
            "packets": counts.packets, "dropped": counts.dropped,
        });
        say(&(serde_json::to_string_pretty(&done)? + "\n"))?;
    } else {
        eprintln!("{} packets recorded, {} missed by the kernel's queue", counts.packets, counts.dropped);
    }
    Ok(ExitCode::SUCCESS)
}

/// The shortest idle period of a generated table.
const MIN_IDLE_NANOS: u64 = 250_000_000;

fn inputs(args: &AnalyseArgs) -> anyhow::Result<Vec<Input>> {
    let ports: Vec<u16> = args.netflow_ports.iter().copied().filter(|p| *p != 0).collect();
    let files = &args.files;
    let (streams, names): (Vec<String>, Vec<String>) = files.iter().cloned().partition(|f| f == "-");
    let mut inputs: Vec<Input> = Vec::new();
    if !streams.is_empty() {
        inputs.push(Input::spool("-", &mut std::io::stdin().lock()).context("standard input")?);
    }
    let paths = expand(&names).map_err(anyhow::Error::msg)?;
    inputs.extend(paths.iter().map(|p| Input::file(p)));
    let inputs = label(inputs, &args.sites).map_err(anyhow::Error::msg)?;
    Ok(inputs.into_iter().map(|input| input.with_export_ports(&ports)).collect())
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

fn positive(seconds: f64, flag: &str) -> anyhow::Result<f64> {
    if seconds.is_finite() && seconds > 0.0 {
        Ok(seconds)
    } else {
        bail!("{flag} {seconds}: expected a positive number of seconds")
    }
}

/// The shortest idle period that may be asked for: packets of a flow are not told apart within half of it.
const FINEST: Duration = Duration::from_millis(1);

fn settings(args: &AnalyseArgs) -> anyhow::Result<Settings> {
    let cost = match args.break_even {
        Some(seconds) => SleepCost::constant(positive(seconds, "--break-even")?),
        None => model(args)?.sleep_cost(args.resumption, args.load),
    };
    let mut settings = Settings::new(cost);
    settings.min_idle = Duration::try_from_secs_f64(args.min_idle)
        .ok()
        .filter(|idle| *idle >= FINEST)
        .with_context(|| format!("--min-idle {}: expected at least a millisecond", args.min_idle))?;
    if args.session != 0.0 {
        let longest = positive(args.session, "--session")?.max(args.min_idle);
        settings.session =
            Some(Duration::try_from_secs_f64(longest).with_context(|| format!("--session {longest}"))?);
    }
    settings.wake_on = match args.wake_on {
        Wake::All => WakeOn::All,
        Wake::Outgoing => WakeOn::Outgoing,
    };
    Ok(settings)
}

fn analyse_files(args: &AnalyseArgs, json: bool) -> anyhow::Result<ExitCode> {
    let inputs = inputs(args)?;
    let settings = settings(args)?;
    let Ok(wanted) = args.clients.iter().map(|c| c.parse::<Wanted>()).collect::<Result<Vec<_>, _>>();
    if args.periods.is_some() && args.session_by == Sessions::Connection {
        bail!(
            "--periods keeps a client's traffic in order of time, and no connections: not with --session-by connection"
        );
    }
    let options = Options {
        wanted,
        sessions: args.session_by,
        limits: Limits::default(),
        format: None,
        spread: args.flows,
        settings,
        policies: Options::policies(positive(args.timeout, "--timeout")?),
        threads: args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
    };
    // Before anything of them is read.
    let states: Vec<Option<State>> = inputs.iter().map(state).collect();
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
        keep(args, &analysis, &options)?;
        let report = json::Report {
            provenance: Some(provenance(&inputs, &states)?),
            ..json::Report::new(&analysis, accounting)
        };
        let charts = charts::all(&analysis, &questions);
        let page = document(&report, charts, &about(args), ON_PAGE).html().map_err(anyhow::Error::msg)?;
        write_whole(path, page.as_bytes()).with_context(|| path.display().to_string())?;
        report
    } else {
        let analysis = account(&inputs, survey, &directory, rule, &options, &progress, &|_| (), &mut tap)?;
        keep(args, &analysis, &options)?;
        let provenance = json.then(|| provenance(&inputs, &states)).transpose()?;
        json::Report { provenance, ..json::Report::new(&analysis, accounting) }
    };
    if let (Some(periods), Some(path)) = (periods, &args.periods) {
        periods.finish(&directory).with_context(|| path.display().to_string())?;
    }
    bar.done();
    tell(&report, json)
}

/// Writes what `--results` asks for.
fn keep<X>(args: &AnalyseArgs, analysis: &Analysis<X>, options: &Options) -> anyhow::Result<()> {
    let Some(path) = &args.results else { return Ok(()) };
    let written = || {
        let mut file = Unfinished::create(path)?;
        results::write(std::io::BufWriter::with_capacity(1 << 20, &mut file), analysis, options)?;
        file.place()
    };
    written().with_context(|| path.display().to_string())
}

fn merge(args: &MergeArgs, json: bool) -> anyhow::Result<ExitCode> {
    let mut merged = Merged::default();
    for path in expand(&args.files).map_err(anyhow::Error::msg)? {
        let name = path.display().to_string();
        let file = std::fs::File::open(&path).with_context(|| name.clone())?;
        merged.add(&name, std::io::BufReader::with_capacity(1 << 20, file)).map_err(anyhow::Error::msg)?;
    }
    let (analysis, accounting) = merged.finish().map_err(anyhow::Error::msg)?;
    tell(&json::Report::new(&analysis, accounting), json)
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

/// By what it is seen that a recording is another one than before: its inode, its length, and when it was last written to.
type State = (u64, u64, i64, i64);

/// None if it cannot be opened.
fn state(input: &Input) -> Option<State> {
    let of = input.file_handle().ok()?.metadata().ok()?;
    Some((of.ino(), of.len(), of.mtime(), of.mtime_nsec()))
}

/// What stands for the hash of a recording that did: the figures are not of what would be hashed.
const CHANGED: &str = "changed while it was read";

/// Where the figures come from. Reads every recording once more, for its hash; what it was like before it was read first, `states` say.
fn provenance(inputs: &[Input], states: &[Option<State>]) -> anyhow::Result<json::Provenance> {
    let hashed = |(input, before): (&Input, &Option<State>)| {
        let file = input.file_handle().and_then(|file| Hashed::named(input.name(), file));
        let Hashed { file, bytes, sha256 } = file.with_context(|| input.name().to_owned())?;
        let same = before.is_some() && *before == state(input);
        Ok(json::Hashed { file, bytes, sha256: if same { sha256 } else { CHANGED.to_owned() } })
    };
    Ok(json::Provenance {
        versions: versions(),
        command: std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect(),
        inputs: inputs.iter().zip(states).map(hashed).collect::<anyhow::Result<_>>()?,
    })
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

    fn finish(self, directory: &Directory) -> std::io::Result<()> {
        let Self { collector, mut writer, mut failed } = self;
        collector.finish(&mut |row| {
            if failed.is_ok() {
                failed = writer.push(row, &|id| who(directory, id));
            }
        });
        failed?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_that_grew_while_it_was_read_has_no_hash() {
        let path = std::env::temp_dir().join(format!("dormouse-grew-{}.csv", std::process::id()));
        std::fs::write(&path, "client,time,bytes\n").expect("written");
        let inputs = [Input::file(&path)];
        let states: Vec<Option<State>> = inputs.iter().map(state).collect();
        let hash = || provenance(&inputs, &states).expect("it is there").inputs[0].sha256.clone();
        assert_eq!(hash().len(), 64);
        std::fs::write(&path, "client,time,bytes\nphone,1,1\n").expect("written");
        assert_eq!(hash(), CHANGED);
        std::fs::remove_file(&path).expect("removed");
    }
}

//! `dormouse meter`: which energy meters this device has, what they see, and what they say now. Thin over `dormouse_io::meter`; owns the words
//! and the arguments that `calibrate` shares.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use dormouse_control::{Check, CheckOutcome};
use dormouse_energy::meter::csv::Columns;
use dormouse_io::clock::BootClock;
use dormouse_io::meter::{Analysis, Choice, Grain, Kind, Meter, MeterError, Reading, analyse, open, survey};
use serde_json::json;

/// Which meter.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// The meter: battery, battery-power (the gauge's power, integrated), platform or package (RAPL) [default: the best that works]
    #[arg(long, value_name = "KIND", conflicts_with = "csv")]
    meter: Option<Kind>,
    /// What an external instrument writes, as CSV
    #[arg(long, value_name = "FILE", requires = "columns")]
    csv: Option<PathBuf>,
    /// The columns of time and power, or of time, voltage and current, as its header names them (or by number, from 1)
    #[arg(long, value_name = "NAMES", requires = "csv", value_delimiter = ',')]
    columns: Vec<String>,
    /// Their units: s, ms, us, ns or unix (seconds since 1970); W or mW; V or mV; A, mA or uA [default: s,W or s,V,A]
    #[arg(long, value_name = "UNITS", requires = "csv", value_delimiter = ',')]
    units: Vec<String>,
    /// Another root directory for /sys
    #[arg(long, value_name = "DIRECTORY", default_value = "/", hide = true)]
    root: PathBuf,
}

impl Which {
    /// The root under which the meters' files are.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The choice of meter.
    ///
    /// # Errors
    /// For columns that make no sense.
    pub(crate) fn choice(&self) -> anyhow::Result<Choice> {
        Ok(match (&self.csv, self.meter) {
            (Some(path), _) => {
                let columns = Columns::new(&self.columns, &self.units);
                let columns = columns.map_err(|e| anyhow::anyhow!("--columns: {e}"))?;
                Choice::External { path: path.clone(), columns }
            }
            (_, Some(Kind::External)) => {
                bail!("--meter external: name its file with --csv FILE --columns NAMES")
            }
            (_, Some(kind)) => Choice::Kind(kind),
            _ => Choice::Best,
        })
    }
}

/// Show this device's energy meters: what each sees, how coarse it is, and the power now
///
/// With --csv, integrates the recording of an external instrument (W = ∫ v·i dt); malformed rows are named, and the exit code is then 1.
#[derive(Debug, Args)]
pub(crate) struct MeterArgs {
    #[command(flatten)]
    which: Which,
    /// Go on until interrupted: energy since the start, once a second; with --csv the file is followed as it grows
    #[arg(long)]
    watch: bool,
}

/// Runs the verb.
///
/// # Errors
/// If no meter works, or the instrument's file cannot be read.
pub(crate) fn run(args: &MeterArgs, json: bool) -> anyhow::Result<ExitCode> {
    let choice = args.which.choice()?;
    if args.watch {
        return watch(&args.which, &choice, json);
    }
    match choice {
        Choice::External { path, columns } => recording(&path, columns, json),
        Choice::Kind(_) => one(&args.which, &choice, json),
        Choice::Best => all(args.which.root(), json),
    }
}

/// How long the power of a counter is averaged before it is shown.
const LOOK: Duration = Duration::from_secs(2);

fn all(root: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let mut found = survey(root, BootClock::now());
    if found.iter().any(|(_, meter)| meter.is_ok()) {
        std::thread::sleep(LOOK);
    }
    let best = open(root, &Choice::Best, BootClock::now());
    let mut out = String::new();
    let mut rows = Vec::new();
    for (kind, meter) in &mut found {
        let state =
            meter.as_mut().map_err(|e| e.clone()).and_then(|m| m.read(BootClock::now()).map(|r| (m, r)));
        match state {
            Ok((meter, reading)) => {
                out +=
                    &format!("{kind:<14} {}, {}\n", meter.source().name, describe(meter.as_ref(), &reading));
                rows.push(row(meter.as_ref(), &reading));
            }
            Err(e) => {
                out += &format!("{kind:<14} no: {e}\n");
                rows.push(json!({ "kind": kind, "error": e.to_string() }));
            }
        }
    }
    match &best {
        Ok(best) => out += &format!("\nused: {} ({})\n", best.meter.source(), best.why),
        Err(e) => out += &format!("\nused: none; figures come from the device profile ({e})\n"),
    }
    let used = best.as_ref().ok().map(|b| json!({ "source": b.meter.source(), "why": b.why }));
    print(json, &json!({ "version": 1, "meters": rows, "used": used }), &out)?;
    Ok(if best.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn one(which: &Which, choice: &Choice, json: bool) -> anyhow::Result<ExitCode> {
    let mut meter = open(which.root(), choice, BootClock::now())?.meter;
    std::thread::sleep(LOOK);
    let reading = meter.read(BootClock::now())?;
    let mut out = format!("{}, {}\n", meter.source(), describe(meter.as_ref(), &reading));
    for note in meter.notes() {
        out += &format!("  {note}\n");
    }
    print(json, &json!({ "version": 1, "meters": [row(meter.as_ref(), &reading)] }), &out)?;
    Ok(ExitCode::SUCCESS)
}

fn watch(which: &Which, choice: &Choice, json: bool) -> anyhow::Result<ExitCode> {
    let opened = open(which.root(), choice, BootClock::now())?;
    let mut meter = opened.meter;
    if !json {
        println!("{} ({})", meter.source(), opened.why);
    }
    let pause = meter.read_within().min(Duration::from_secs(1));
    loop {
        std::thread::sleep(pause);
        match meter.read(BootClock::now()) {
            Ok(reading) => {
                let text = format!(
                    "{:>12.3} J ± {:.3} J   {}\n",
                    reading.joules,
                    reading.uncertainty,
                    reading.watts.map_or_else(|| "-".to_owned(), |w| format!("{w:.3} W"))
                );
                print(json, &row(meter.as_ref(), &reading), &text)?;
            }
            // It may come back: a device that is plugged in is unplugged again.
            Err(e @ (MeterError::OnMains { .. } | MeterError::Unreadable { .. })) => {
                print(json, &json!({ "version": 1, "error": e.to_string() }), &format!("{e}\n"))?;
            }
            Err(e) => return Err(e.into()),
        }
    }
}

fn recording(path: &Path, columns: Columns, json: bool) -> anyhow::Result<ExitCode> {
    let found: Analysis = analyse(path, columns)?;
    let mean = found.mean_watts();
    let mut out = format!(
        "{}: {} rows over {:.3} s\n  energy {:.6} J ± {:.6} J (what the power between two rows leaves open)\n",
        path.display(),
        found.rows,
        found.seconds,
        found.joules,
        found.uncertainty
    );
    if let Some(mean) = mean {
        let (least, most) = (found.least_watts, found.most_watts);
        out += &format!("  power  {mean:.6} W on average, {least:.6} W to {most:.6} W\n");
        out += &format!("  the longest pause between two rows is {:.3} s\n", found.longest_pause);
    }
    let mut value = serde_json::to_value(&found).context("JSON")?;
    if let Some(object) = value.as_object_mut() {
        object.insert("version".into(), 1.into());
        object.insert("mean_watts".into(), mean.into());
    }
    print(json, &value, &out)?;
    for mistake in &found.mistakes {
        eprintln!("{}: {mistake}", path.display());
    }
    if found.malformed > 0 {
        eprintln!(
            "error: {} of {} rows are malformed and were left out",
            found.malformed,
            found.malformed + found.rows
        );
        return Ok(ExitCode::FAILURE);
    }
    if found.rows < 2 {
        bail!("{}: {} rows with values make no measurement", path.display(), found.rows);
    }
    Ok(ExitCode::SUCCESS)
}

/// Power, grain and what it sees, in a line.
fn describe(meter: &dyn Meter, reading: &Reading) -> String {
    let watts = reading.watts.map_or_else(|| "no power yet".to_owned(), |w| format!("{w:.2} W"));
    format!("{watts}, {}, sees {}", grain(meter.grain()), meter.source().kind.sees())
}

/// A grain in words.
pub(crate) fn grain(grain: Grain) -> String {
    let refresh = grain.refresh.map_or(String::new(), |r| format!(" refreshed within {r:.1} s"));
    match grain {
        Grain { step, .. } if step <= 0.0 => format!("continuous{refresh}"),
        Grain { step, step_seen: true, .. } => format!("steps of {step:.3} J{refresh}"),
        Grain { step, .. } => format!("steps of {step:.3} J assumed until some are seen"),
    }
}

fn row(meter: &dyn Meter, reading: &Reading) -> serde_json::Value {
    json!({
        "version": 1,
        "source": meter.source(),
        "joules": reading.joules,
        "uncertainty": reading.uncertainty,
        "watts": reading.watts,
        "uncounted_seconds": reading.uncounted.as_secs_f64(),
        "grain": meter.grain(),
        "notes": meter.notes(),
    })
}

fn print(json: bool, value: &serde_json::Value, text: &str) -> anyhow::Result<()> {
    let text = if json { format!("{value}\n") } else { text.to_owned() };
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        // The reader has gone (`| head`).
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => other.context("standard output"),
    }
}

/// The line of `dormouse doctor`.
pub(crate) fn check(root: &Path) -> Check {
    let (outcome, found, change) = match open(root, &Choice::Best, BootClock::now()) {
        Ok(opened) if opened.meter.source().kind.sees_radio() => {
            (CheckOutcome::Ok, format!("{}: {}", opened.meter.source(), opened.why), None)
        }
        Ok(opened) => {
            let source = opened.meter.source();
            (CheckOutcome::Ok, format!("{source}, {}: {}", source.kind.sees(), opened.why), None)
        }
        Err(e @ MeterError::Permission { .. }) => {
            (CheckOutcome::Skipped, e.to_string(), Some("run dormouse doctor as root".to_owned()))
        }
        Err(e) => (CheckOutcome::Skipped, format!("none: {e}; joules come from the device profile"), None),
    };
    Check { name: "energy meter".into(), outcome, found, change }
}

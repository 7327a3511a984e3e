//! `dormouse calibrate`: measures this device's own figures and writes its profile. Thin over `dormouse_lab::calibrate`; owns arguments, progress and
//! output.

mod device;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, ValueEnum};
use dormouse_energy::profile::Profile;
use dormouse_io::clock::BootClock;
use dormouse_io::meter::{Meter, open};
use dormouse_io::privileges;
use dormouse_io::radio::{self, PowerSave};
use dormouse_lab::calibrate::{
    Cycle, Expected, Failure, Measured, Outcome, Plan, Point, Settings, learn, report, run as measure,
};
use dormouse_lab::campaign::Campaign;
use dormouse_report::{Table, write_whole};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::connections::of_connections;
use crate::measure::{Keep, interrupted, profile};
use crate::meter::{Which, grain};
use device::{Machine, Session};

/// Measure this device's own energy figures, and write them as a profile
///
/// Switches the radio off and on many times and climbs every rung of the session, as paper 000 did (section 3.3). How long that takes depends on how
/// coarse the meter is, and is said before it starts. It may be interrupted: radio and session are restored.
#[derive(Debug, Args)]
pub(crate) struct CalibrateArgs {
    /// The profile to write (TOML)
    #[arg(value_name = "FILE", required_unless_present = "plan")]
    file: Option<PathBuf>,
    /// Only say what would be done and how long it would take
    #[arg(long)]
    plan: bool,
    #[command(flatten)]
    which: Which,
    /// Measure only these
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT")]
    only: Vec<What>,
    /// Repetitions of everything
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    repetitions: u32,
    /// Half the 95 % interval to aim at, as a share of the figure
    #[arg(long, default_value_t = 0.1, value_parser = share)]
    precision: f64,
    /// No more cycles to a sample than this
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_cycles: u32,
    /// Length of a baseline, in seconds [default: as the meter needs it]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    idle: Option<u32>,
    /// The connection whose session is used; may be left out if there is only one
    #[arg(long, value_name = "NAME", add = of_connections())]
    connection: Option<String>,
    /// The radio's interface [default: the only radio]
    #[arg(long, value_name = "INTERFACE")]
    interface: Option<String>,
    /// The profile's name
    #[arg(long, default_value = "calibrated")]
    name: String,
    /// Profile whose figures say what to expect: a name or a file. They decide how long is measured, not what comes out
    #[arg(long, value_name = "PROFILE", default_value = "laptop-000")]
    expect: String,
    /// Profile that stands in for what is not measured here, such as a gateway under load; each such figure says so
    #[arg(long, value_name = "PROFILE")]
    fill: Option<String>,
    #[command(flatten)]
    keep: Keep,
}

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum What {
    /// Baseline, idle radio, radio off and on
    Radio,
    /// The held SA
    Held,
    /// An address update
    Mobike,
    /// Resumption by ticket
    Ticket,
    /// A full handshake
    Full,
}

impl From<What> for Cycle {
    fn from(what: What) -> Self {
        match what {
            What::Radio => Self::Radio,
            What::Held => Self::Held,
            What::Mobike => Self::Mobike,
            What::Ticket => Self::Ticket,
            What::Full => Self::Full,
        }
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.001..=1.0).contains(&share) => Ok(share),
        _ => Err("not a share from 0.001 to 1".into()),
    }
}

/// Runs the verb.
///
/// # Errors
/// If there is no meter, no radio or no session to measure with, or the profile cannot be written.
pub(crate) fn run(args: &CalibrateArgs, socket: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let mut settings = settings(args);
    let expected = Expected::from_profile(&profile(&args.expect)?);
    let fill = args.fill.as_deref().map(profile).transpose()?;
    // Before hours of work, not after them.
    if let Some(file) = &args.file {
        let directory = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !directory.is_dir() {
            bail!("{}: there is no such directory", directory.display());
        }
    }
    let opened = open(args.which.root(), &args.which.choice()?, BootClock::now())?;
    eprintln!("meter    {} ({})", opened.meter.source(), opened.why);
    let mut machine = machine(args, socket, opened.meter, &mut settings)?;
    let resumed = args.keep.resume.as_deref().map(Campaign::<Point>::resume).transpose()?;
    eprintln!("         watching it, to find how coarse it is");
    let watts = learn(&mut machine).map_err(|e| anyhow!(e))?;
    let plan: Plan = match &resumed {
        Some(campaign) => serde_json::from_value(campaign.results.settings.clone())?,
        None => Plan::new(&settings, &expected, machine.meter.grain(), watts),
    };
    eprint!("{}", announce(&plan, machine.meter.as_ref(), watts));
    if args.plan {
        if json {
            println!(
                "{}",
                json!({ "version": 1, "meter": machine.meter.source(), "grain": machine.meter.grain(), "plan": plan })
            );
        }
        return Ok(ExitCode::SUCCESS);
    }
    let campaign = match resumed {
        Some(campaign) => campaign,
        None => plan.campaign(args.keep.out.clone())?,
    };
    campaign.save()?;
    let outcome = watched(campaign, plan.seconds, &mut machine, json)?;
    finish(args, &outcome, fill.as_ref(), json)
}

fn settings(args: &CalibrateArgs) -> Settings {
    let mut subjects = Cycle::ALL.to_vec();
    if !args.only.is_empty() {
        subjects.retain(|s| args.only.iter().any(|w| Cycle::from(*w) == *s));
    }
    Settings {
        repetitions: args.repetitions,
        precision: args.precision,
        subjects,
        // Until a radio with it was found.
        power_save: false,
        max_cycles: args.max_cycles,
        idle: args.idle.map(|s| Duration::from_secs(s.into())),
    }
}

/// Radio and session, as far as they are wanted; what is missing is said, and left out where the user did not ask for it by name.
fn machine(
    args: &CalibrateArgs,
    socket: &Path,
    meter: Box<dyn Meter>,
    settings: &mut Settings,
) -> anyhow::Result<Machine> {
    let interrupted = interrupted()?;
    let wants_radio = settings.subjects.contains(&Cycle::Radio);
    let radio = match wants_radio.then(|| find_radio(args)) {
        Some(Ok(radio)) => Some(radio),
        Some(Err(e)) if args.only.is_empty() => {
            eprintln!("radio    none, and so none of its figures: {}", dormouse_io::causes(&*e));
            None
        }
        Some(Err(e)) => return Err(e),
        None => None,
    };
    if radio.is_none() {
        settings.subjects.retain(|s| *s != Cycle::Radio);
    }
    let power_save = match radio.as_ref().map(|_| PowerSave::find(&radio_options(args))) {
        Some(Ok(power_save)) => Some(power_save),
        Some(Err(e)) => {
            eprintln!("         its power saving cannot be switched, and stays as it is: {e}");
            None
        }
        None => None,
    };
    settings.power_save = power_save.is_some();
    let wants_session = settings.subjects.iter().any(|s| *s != Cycle::Radio);
    let session = match wants_session.then(|| Session::open(socket, args.connection.as_deref())) {
        Some(Ok(session)) => {
            eprintln!("session  {}", session.name());
            Some(session)
        }
        Some(Err(e)) if args.only.is_empty() && args.connection.is_none() => {
            eprintln!("session  none, and so none of its figures: {e}");
            None
        }
        Some(Err(e)) => return Err(anyhow!(e)),
        None => None,
    };
    if session.is_none() {
        settings.subjects.retain(|s| *s == Cycle::Radio);
    }
    if settings.subjects.is_empty() {
        bail!("there is neither a radio nor a session to measure");
    }
    Ok(Machine::new(meter, radio, power_save, session, interrupted))
}

fn radio_options(args: &CalibrateArgs) -> radio::Options {
    radio::Options { interface: args.interface.clone(), ..radio::Options::default() }
}

fn find_radio(args: &CalibrateArgs) -> anyhow::Result<Box<dyn radio::Radio>> {
    if !privileges::held().is_ok_and(|held| held.uid == 0) {
        bail!("switching the radio needs root: sudo dormouse calibrate");
    }
    let radio = radio::select(&radio_options(args))?;
    eprintln!("radio    by {}: {}", radio.name(), radio.why());
    Ok(radio)
}

fn announce(plan: &Plan, meter: &dyn Meter, watts: f64) -> String {
    let mut out = format!("         {}; the device draws {watts:.2} W\n", grain(meter.grain()));
    for note in meter.notes() {
        out += &format!("         {note}\n");
    }
    out += &format!("plan     {} repetitions: baselines of {:.0} s", plan.repetitions, plan.idle);
    for sample in &plan.samples {
        out += &format!("; {}, {} times", sample.subject, sample.cycles);
    }
    out += "\n";
    for sample in plan.samples.iter().filter(|s| s.needed > s.cycles) {
        let (subject, needed, cycles) = (sample.subject, sample.needed, sample.cycles);
        out += &format!(
            "         {subject}: this meter would need {needed} cycles, {cycles} are allowed (--max-cycles)\n"
        );
    }
    let watt_hours = plan.joules / 3600.0;
    out + &format!(
        "takes    about {}, and {watt_hours:.1} Wh; it may be interrupted\n",
        duration(plan.seconds)
    )
}

fn duration(seconds: f64) -> String {
    let minutes = (seconds / 60.0).ceil();
    match minutes {
        m if m < 90.0 => format!("{m:.0} min"),
        m => format!("{:.0} h {:.0} min", (m / 60.0).floor(), m % 60.0),
    }
}

/// Measures under a progress bar; all of it takes about so many `seconds`.
fn watched(
    campaign: Campaign<Point>,
    seconds: f64,
    machine: &mut Machine,
    json: bool,
) -> anyhow::Result<Outcome> {
    let bar =
        if json || !std::io::stderr().is_terminal() { ProgressBar::hidden() } else { ProgressBar::new(1000) };
    bar.set_style(ProgressStyle::with_template("{bar:30} {elapsed_precise} {wide_msg}")?);
    let (rounds, began) = (campaign.results.rounds, BootClock::now());
    let outcome = measure(campaign, machine, &mut |progress| {
        let passed = BootClock::now().saturating_since(began).as_secs_f64();
        bar.set_position((1000.0 * passed / seconds.max(1.0)).clamp(0.0, 1000.0) as u64);
        let left = duration((seconds - passed).max(60.0));
        bar.set_message(format!("{} of {rounds}, {left} left: {}", progress.round, progress.next));
    });
    bar.finish_and_clear();
    outcome
}

/// Prints what was found, and writes the profile unless it was interrupted.
fn finish(
    args: &CalibrateArgs,
    outcome: &Outcome,
    fill: Option<&Profile>,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let measured: Vec<Measured> = outcome.judge().into_iter().flatten().collect();
    let refused = report::refused(outcome);
    let written = match &args.file {
        Some(file) if outcome.stopped.is_none() && !measured.is_empty() => {
            let description = format!("measured by dormouse calibrate, {} repetitions", outcome.complete());
            let profile = report::profile(outcome, &args.name, &description, fill);
            write_whole(file, profile.to_toml()?.as_bytes()).with_context(|| file.display().to_string())?;
            Some((file, profile))
        }
        _ => None,
    };
    let model = written.as_ref().and_then(|(_, profile)| profile.model().err()).map(|e| e.to_string());
    if json {
        println!(
            "{}",
            json!({
                "version": 2,
                "meter": outcome.source,
                "grain": outcome.grain,
                "plan": outcome.plan,
                "results": outcome.results,
                "figures": measured,
                "refused": refused,
                "stopped": outcome.stopped.as_ref().map(Failure::to_string),
                "unrestored": outcome.unrestored,
                "profile": written.as_ref().map(|(file, _)| file),
            })
        );
    } else {
        print!("{}", table(&measured));
        for one in &refused {
            println!("refused: {}: {}", one.name, one.why);
        }
        if let Some((file, _)) = &written {
            println!("wrote {}", file.display());
        }
        if let Some(missing) = &model {
            println!("not enough for the model yet: {missing}; --fill PROFILE takes it from another");
        }
    }
    if let Some(e) = &outcome.unrestored {
        eprintln!("error: not restored: {e}");
    }
    match &outcome.stopped {
        Some(why) => {
            bail!("{why}: after {} complete repetitions, no profile was written", outcome.complete())
        }
        None if written.is_none() => bail!("no figure could be measured, no profile was written"),
        None if outcome.unrestored.is_some() => Ok(ExitCode::FAILURE),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn table(measured: &[Measured]) -> String {
    let mut table = Table::new(["figure", "mean", "sd", "95 %", "n"]);
    for m in measured {
        let with = |value: f64| format!("{value:.4} {}", m.unit);
        let half = format!("± {}", with(m.half_interval));
        let count = m.summary.count.to_string();
        table.row([m.name.clone(), with(m.summary.mean), with(m.summary.deviation), half, count]);
    }
    if measured.is_empty() { String::new() } else { table.text("") }
}

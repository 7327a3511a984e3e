//! `dormouse lab topology`: a network to walk around in by hand. Owns the prompt; what is said is obeyed by `dormouse_lab::topology`.

use std::io::{BufRead as _, BufReader, IsTerminal as _, Read, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use dormouse_lab::campaign::origin;
use dormouse_lab::demo;
use dormouse_lab::topology::{CareOf, HELP, Protection, Radio, Walk};
use serde_json::{Value, json};

use crate::lab_link::{self, Rate};
use crate::measure;

/// How often a signal is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// Build a network in namespaces, and walk a device around in it
///
/// mobile-ip: a home agent, two foreign agents and a mobile host, each a program in a namespace of its own, and a correspondent in a fifth; beside them the daemons of device and correspondent, whose packets are protected from one to the other, and of
/// two access routers with SNOOP. Each line that is read is a command; `help` lists them. Everything goes when it ends, also by Ctrl-C.
#[derive(Debug, Args)]
pub(crate) struct TopologyArgs {
    /// Which network
    name: Name,
    /// What protects the device's packets: nothing, IPsec, or IPsec in zones, whose header keys come to a foreign agent's router from the
    /// correspondent before the device does (pkd), or from the router where it was (dkm)
    #[arg(long, value_enum, default_value_t = Protect::Pkd)]
    protect: Protect,
    /// By which address the device registers in another network: the foreign agent's, or one of its own. With its own there are routers in the
    /// place of the foreign agents, and their radios are perfect
    #[arg(long, value_enum, default_value_t = Whose::ForeignAgent)]
    care_of: Whose,
    /// Rate of the radios at the foreign agents each way, in bits in a second: 2M, 500k; "none" for no limit
    #[arg(long, default_value = "none", value_parser = lab_link::rate)]
    rate: Rate,
    /// Bits that these radios flip, each independently: 1/64k for one in 65,536, or 1.5e-5. Packets with a flipped bit are dropped
    #[arg(long, value_name = "RATE", default_value = "0", value_parser = lab_link::bit_errors)]
    bit_errors: f64,
    /// Delay of these radios, each way
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = lab_link::time)]
    delay: Duration,
    /// Seed of their errors
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Read the commands from this file; the first one that fails ends it. Without a file they come from standard input
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Name {
    /// Mobile IP (RFC 5944)
    MobileIp,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Protect {
    /// Mobile IP alone
    None,
    /// The tunnel between the daemons of device and correspondent
    Ipsec,
    /// The same in zones, with Proactive Key Distribution
    Pkd,
    /// The same in zones, with Directed Key Migration
    Dkm,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Whose {
    /// The foreign agent's, which is the end of the tunnel
    ForeignAgent,
    /// The device's own, which is the end of the tunnel itself
    CoLocated,
}

impl From<Whose> for CareOf {
    fn from(of: Whose) -> Self {
        match of {
            Whose::ForeignAgent => Self::ForeignAgent,
            Whose::CoLocated => Self::CoLocated,
        }
    }
}

impl From<Protect> for Protection {
    fn from(of: Protect) -> Self {
        match of {
            Protect::None => Self::None,
            Protect::Ipsec => Self::Whole,
            Protect::Pkd => Self::Ahead,
            Protect::Dkm => Self::Migrate,
        }
    }
}

/// Runs the verb.
///
/// # Errors
/// Without root, if the network cannot be built, for a command of a script that fails, and if a script is interrupted.
pub(crate) fn run(args: &TopologyArgs, json: bool) -> Result<ExitCode> {
    let Name::MobileIp = args.name;
    if !demo::may_run() {
        eprintln!(
            "error: a topology makes network namespaces and needs root: sudo dormouse lab topology mobile-ip"
        );
        return Ok(dormouse_control::ExitCode::Permission.into());
    }
    let input: Box<dyn Read + Send> = match &args.script {
        Some(path) => Box::new(std::fs::File::open(path).with_context(|| path.display().to_string())?),
        None => Box::new(std::io::stdin()),
    };
    let strict = args.script.is_some();
    let prompts = !strict && std::io::stdin().is_terminal();
    let interrupted = measure::interrupted()?;
    let radio = Radio { rate: args.rate.0, delay: args.delay, bit_errors: args.bit_errors, seed: args.seed };
    // A link without a property is the kernel's alone.
    let radio = (radio.rate.is_some() || radio.bit_errors > 0.0 || !radio.delay.is_zero()).then_some(radio);
    ensure!(
        radio.is_none() || args.care_of == Whose::ForeignAgent,
        "--rate, --bit-errors and --delay are of the foreign agents' radios: not with --care-of co-located"
    );
    let mut walk = Walk::start(radio, args.protect.into(), args.care_of.into(), interrupted.clone())?;
    if prompts {
        eprint!("The device is at home. Commands:\n\n{HELP}\n{}\n", walk.hosts());
    }
    let lines = lines(input);
    loop {
        if prompts {
            eprint!("> ");
            std::io::stderr().flush()?;
        }
        let line = loop {
            // The next line of a file is always there: a signal must not wait for the last one.
            if interrupted.load(Ordering::Relaxed) {
                break None;
            }
            match lines.recv_timeout(LOOK) {
                Ok(line) => break Some(line?),
                Err(RecvTimeoutError::Disconnected) => break None,
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        let Some(line) = line else { break };
        match walk.obey(&line) {
            Ok(Some(text)) if json => eprint!("{text}"),
            Ok(Some(text)) => measure::say(&text)?,
            Ok(None) => break,
            Err(error) if strict => return Err(error.context(line)),
            Err(error) => eprintln!("error: {}", dormouse_io::causes(&*error)),
        }
    }
    // How much of a script was done is not known then.
    ensure!(!strict || !interrupted.load(Ordering::Relaxed), "interrupted");
    if json {
        let mut state = walk.json()?;
        state["provenance"] = origin(args.seed, chosen(args));
        measure::say(&(serde_json::to_string_pretty(&state)? + "\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What was chosen besides the seed: the rate in bits in a second (null: no limit), the delay in seconds.
fn chosen(args: &TopologyArgs) -> Value {
    let word = |value: Option<PossibleValue>| value.map(|value| value.get_name().to_owned());
    json!({
        "topology": word(args.name.to_possible_value()), "protect": word(args.protect.to_possible_value()),
        "care_of": word(args.care_of.to_possible_value()), "rate": args.rate.0, "bit_errors": args.bit_errors,
        "delay": args.delay.as_secs_f64(), "script": args.script,
    })
}

/// Lines, read by a thread of their own: a signal must not wait for the next one.
fn lines(input: Box<dyn Read + Send>) -> mpsc::Receiver<std::io::Result<String>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        for line in BufReader::new(input).lines() {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Alone {
        #[command(flatten)]
        topology: TopologyArgs,
    }

    #[test]
    fn every_choice_is_in_the_provenance() {
        let of = |arguments: &str| {
            let words = ["topology", "mobile-ip"].into_iter().chain(arguments.split_whitespace());
            chosen(&<Alone as clap::Parser>::parse_from(words).topology)
        };
        let plain = json!({
            "topology": "mobile-ip", "protect": "pkd", "care_of": "foreign-agent", "rate": null, "bit_errors": 0.0,
            "delay": 0.0, "script": null,
        });
        assert_eq!(of(""), plain);
        let told = json!({
            "topology": "mobile-ip", "protect": "none", "care_of": "co-located", "rate": 500_000, "bit_errors": 0.5,
            "delay": 0.002, "script": "walk",
        });
        let every =
            "--protect none --care-of co-located --rate 500k --bit-errors 0.5 --delay 2ms --script walk";
        assert_eq!(of(every), told);
    }
}

//! `dormouse lab link`: a bad radio link to try things over. Owns the arguments and their forms; the link is `dormouse_lab::link`'s.

use std::ffi::{OsStr, OsString};
use std::process::{Child, Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use dormouse_lab::campaign::origin;
use dormouse_lab::demo;
use dormouse_lab::link::{ADDRESSES, Bridge, INTERFACE, Interface, Link, Report, Settings, esp_arq};
use dormouse_netem::{GilbertElliott, LinkConfig};
use dormouse_snoop::{Repair, tcp};
use serde_json::{Value, json};

use crate::measure;

/// How often a signal, or the command's end, is looked for.
const LOOK: Duration = Duration::from_millis(50);
/// A full Ethernet frame with a VLAN tag, without its check sequence, in bytes.
const FRAME: usize = 1_518;
/// What is said once a bridge works.
const BRIDGED: &str = "The bridge works; frames pass in both directions. Ctrl-C ends it.\n";

/// Put a bad radio link between two network namespaces, for anything that runs in them, or between two interfaces
///
/// A fixed host reaches an access router by a wire, and that one a device by the radio. The kernel's own TCP and any program can be tried
/// over it; what the router may do against the radio's losses is --repair. Both namespaces go when it ends. With --bridge it makes none: it
/// is a bridge that carries Ethernet frames between interfaces that exist, as if wire and radio were between them.
#[derive(Debug, Args)]
pub(crate) struct LinkArgs {
    /// The radio's rate each way, in bits in a second: 2M, 500k; "none" for no limit
    #[arg(long, default_value = "2M", value_parser = rate)]
    rate: Rate,
    /// The radio's delay, each way
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = time)]
    delay: Duration,
    /// The wire's delay, each way
    #[arg(long, value_name = "TIME", default_value = "48ms", value_parser = time)]
    wire_delay: Duration,
    /// The router's queue to the radio, and the device's, in bytes: 64k
    #[arg(long, value_name = "BYTES", default_value = "75k", value_parser = bytes)]
    queue: usize,
    /// Bits that the radio flips, each independently: 1/64k for one in 65,536 (k and M are powers of 1,024 here), or 1.5e-5. Packets
    /// with a flipped bit are dropped
    #[arg(long, value_name = "RATE", default_value = "0", value_parser = bit_errors)]
    bit_errors: f64,
    /// Packets that the radio loses in bursts (Gilbert-Elliott): P,R,LOSS[,LOSS_GOOD] are the probabilities of going bad and good
    /// again before each packet, and of losing it while bad and while good
    #[arg(long, value_name = "P,R,LOSS", value_parser = bursts)]
    bursts: Option<GilbertElliott>,
    /// Seed of the radio's errors; each direction has its own draws
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What the router does against losses
    #[arg(long, default_value = "none")]
    repair: Method,
    /// Joins these two interfaces, the one towards the fixed host first: eth0, or NETNS/eth0 for one in a named network namespace.
    /// Frames of any kind pass; snoop repairs those with IP and without a VLAN tag. This machine should have no addresses there
    #[arg(long, num_args = 2, value_names = ["FIXED", "DEVICE"])]
    bridge: Option<Vec<Interface>>,
    /// Runs in the device's namespace, with the name of the fixed host's in $DORMOUSE_FIXED, or with --bridge where the link was
    /// started; the link ends with it. With --json what it prints goes to standard error, beside the report. Without a command the
    /// link stays until Ctrl-C
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Method {
    /// Nothing
    None,
    /// It repeats TCP segments, and hides duplicate acknowledgements (SNOOP)
    Snoop,
    /// It repeats ESP packets, by their numbers and the device's reports; for tunnels over the link
    EspArq,
}

/// A rate, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate(pub(crate) Option<u64>);

/// Runs the verb.
///
/// # Errors
/// Without root, if the link cannot be made, or the command cannot be started.
pub(crate) fn run(args: &LinkArgs, json: bool) -> Result<ExitCode> {
    if !demo::may_run() {
        eprintln!("error: a link makes network namespaces and needs root: sudo dormouse lab link");
        return Ok(dormouse_control::ExitCode::Permission.into());
    }
    let interrupted = measure::interrupted()?;
    if let Some(interfaces) = &args.bridge {
        let [fixed, device] = &interfaces[..] else { bail!("a bridge joins two interfaces") };
        ensure!(args.queue >= FRAME, "a queue of {} bytes takes no full frame: at least {FRAME}", args.queue);
        let bridge = Bridge::start(settings(args)?, fixed, device)?;
        let command = |program: &OsStr| Command::new(program);
        let ended = meanwhile(args, json, command, BRIDGED, &interrupted, &|| bridge.works());
        return tell(args, &bridge.stop()?, json, ended);
    }
    let link = Link::start(settings(args)?)?;
    let command = |program: &OsStr| {
        let mut command = link.device.command(program);
        command.env("DORMOUSE_FIXED", link.fixed.netns());
        command
    };
    let ended = meanwhile(args, json, command, &invitation(&link), &interrupted, &|| link.works());
    tell(args, &link.stop()?, json, ended)
}

/// The report on standard output, in JSON with where it comes from, then how the command ended.
fn tell(args: &LinkArgs, report: &Report, json: bool, ended: Result<ExitCode>) -> Result<ExitCode> {
    let text = if json {
        let mut report = report.json();
        report["provenance"] = origin(args.seed, chosen(args));
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        report.text()
    };
    measure::say(&text)?;
    ended
}

/// What was chosen besides the seed: rates in bits in a second, times in seconds, the queue in bytes; null is none.
fn chosen(args: &LinkArgs) -> Value {
    let bursts = args.bursts.map(|b| {
        json!({ "worsens": b.worsens, "recovers": b.recovers, "loss_bad": b.loss_bad, "loss_good": b.loss_good })
    });
    let interface = |end: &Interface| match &end.netns {
        Some(netns) => format!("{netns}/{}", end.name),
        None => end.name.clone(),
    };
    let bridge: Option<Vec<String>> = args.bridge.as_ref().map(|ends| ends.iter().map(interface).collect());
    json!({
        "rate": args.rate.0, "delay": args.delay.as_secs_f64(), "wire_delay": args.wire_delay.as_secs_f64(),
        "queue": args.queue, "bit_errors": args.bit_errors, "bursts": bursts,
        "repair": args.repair.to_possible_value().map(|method| method.get_name().to_owned()), "bridge": bridge,
    })
}

/// Runs the user's command while the link works, or says that it does; until either ends.
fn meanwhile(
    args: &LinkArgs,
    json: bool,
    command: impl Fn(&OsStr) -> Command,
    ready: &str,
    interrupted: &AtomicBool,
    works: &dyn Fn() -> bool,
) -> Result<ExitCode> {
    let Some((program, rest)) = args.command.split_first() else {
        eprint!("{ready}");
        return wait(works, interrupted, None);
    };
    let mut command = command(program);
    command.args(rest);
    if json {
        // Standard output is the report's alone: a program reads it.
        command.stdout(std::io::stderr());
    }
    let mut child = command.spawn().with_context(|| format!("starting {}", program.display()))?;
    let ended = wait(works, interrupted, Some(&mut child));
    // If it still runs: what it has started in namespaces that are removed ends with these.
    let _ = child.kill();
    let _ = child.wait();
    ended
}

fn settings(args: &LinkArgs) -> Result<Settings> {
    let radio = LinkConfig {
        rate: args.rate.0,
        delay: args.delay,
        queue: args.queue,
        bit_error_rate: args.bit_errors,
        bursts: args.bursts,
        ..LinkConfig::default()
    };
    let (repair, restore) = match (args.repair, &args.bridge) {
        (Method::None, _) => (Repair::None, None),
        (Method::Snoop, None) => (Repair::Snoop(Box::default()), None),
        (Method::Snoop, Some(_)) => {
            (Repair::Snoop(Box::new(tcp::Agent::in_bridge(tcp::Limits::default()))), None)
        }
        (Method::EspArq, None) => esp_arq(),
        (Method::EspArq, Some(_)) => {
            bail!("a bridge has no part in the device, which esp-arq needs: snoop, or none")
        }
    };
    Ok(Settings { wire_delay: args.wire_delay, radio, seed: args.seed, repair, restore })
}

fn invitation(link: &Link) -> String {
    let [fixed, device] = [link.fixed.netns(), link.device.netns()];
    let [[fixed_v4, fixed_v6], [device_v4, device_v6]] = ADDRESSES;
    format!(
        "The link is up ({INTERFACE} at both ends). Enter its hosts by\n\n\
         \x20   sudo ip netns exec {fixed} bash     # the fixed host, {fixed_v4}, {fixed_v6}\n\
         \x20   sudo ip netns exec {device} bash    # the device, {device_v4}, {device_v6}\n\n\
         for example: iperf3 -s in the first, iperf3 -c {fixed_v4} -R in the second. Ctrl-C takes it away.\n"
    )
}

/// Until the command has ended, or the user wants it to; the exit code of both.
fn wait(
    works: &dyn Fn() -> bool,
    interrupted: &AtomicBool,
    mut child: Option<&mut Child>,
) -> Result<ExitCode> {
    loop {
        if let Some(status) = child.as_mut().and_then(|child| child.try_wait().transpose()) {
            return Ok(status?.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1).into());
        }
        if interrupted.load(Ordering::Relaxed) {
            // What still runs in the namespaces is ended with them; an ended link is what was asked for.
            return Ok(if child.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS });
        }
        ensure!(works(), "the link has ended by itself");
        std::thread::sleep(LOOK);
    }
}

/// A number with a suffix: powers of `thousand`.
fn scaled(text: &str, thousand: f64) -> Option<f64> {
    let power = |s: &str| ["", "k", "M", "G"].iter().position(|suffix| suffix.eq_ignore_ascii_case(s));
    let end = text.find(|c: char| c.is_ascii_alphabetic() && c != 'e').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let value: f64 = number.parse().ok()?;
    let scaled = value * thousand.powi(i32::try_from(power(suffix)?).ok()?);
    (scaled.is_finite() && scaled >= 0.0).then_some(scaled)
}

pub(crate) fn rate(text: &str) -> Result<Rate, String> {
    if text == "none" {
        return Ok(Rate(None));
    }
    let bits = scaled(text, 1e3).filter(|bits| *bits >= 1.0);
    bits.map(|bits| Rate(Some(bits as u64)))
        .ok_or_else(|| format!("{text:?} is not bits in a second: 2M, 500k, none"))
}

fn bytes(text: &str) -> Result<usize, String> {
    let bytes = scaled(text, 1e3).filter(|bytes| *bytes >= 1_500.0);
    bytes
        .map(|b| b as usize)
        .ok_or_else(|| format!("{text:?} is not bytes for at least one packet: 64k, 1500"))
}

pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let parsed = units.iter().find_map(|(unit, seconds)| {
        let value: f64 = text.strip_suffix(unit)?.parse().ok()?;
        Duration::try_from_secs_f64(value * seconds).ok().filter(|time| *time <= Duration::from_secs(60))
    });
    parsed.ok_or_else(|| format!("{text:?} is no time up to 60s: 5ms, 0.5s"))
}

pub(crate) fn bit_errors(text: &str) -> Result<f64, String> {
    let value = match text.split_once('/') {
        Some((one, bits)) => one.parse::<f64>().ok().zip(scaled(bits, 1_024.0)).map(|(one, bits)| one / bits),
        None => text.parse().ok(),
    };
    let value = value.filter(|value| (0.0..=1.0).contains(value));
    value.ok_or_else(|| format!("{text:?} is no share of bits: 1/64k, 1.5e-5, 0"))
}

fn bursts(text: &str) -> Result<GilbertElliott, String> {
    let parts: Option<Vec<f64>> =
        text.split(',').map(|p| p.trim().parse().ok().filter(|p| (0.0..=1.0).contains(p))).collect();
    match parts.as_deref() {
        Some(&[worsens, recovers, loss_bad, ref good @ ..]) if good.len() < 2 => {
            let loss_good = good.first().copied().unwrap_or(0.0);
            Ok(GilbertElliott { worsens, recovers, loss_bad, loss_good })
        }
        _ => Err(format!("{text:?} is not three or four probabilities of 0 to 1: 0.01,0.3,1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Alone {
        #[command(flatten)]
        link: LinkArgs,
    }

    #[test]
    fn every_choice_is_in_the_provenance() {
        let of = |arguments: &str| {
            let words = std::iter::once("link").chain(arguments.split_whitespace());
            chosen(&<Alone as clap::Parser>::parse_from(words).link)
        };
        let plain = json!({
            "rate": 2_000_000, "delay": 0.002, "wire_delay": 0.048, "queue": 75_000, "bit_errors": 0.0,
            "bursts": null, "repair": "none", "bridge": null,
        });
        assert_eq!(of(""), plain);
        let every = "--rate none --delay 1s --wire-delay 3ms --queue 64k --bit-errors 0.5 --bursts 0.25,0.5,1 --repair esp-arq";
        let told = json!({
            "rate": null, "delay": 1.0, "wire_delay": 0.003, "queue": 64_000, "bit_errors": 0.5,
            "bursts": { "worsens": 0.25, "recovers": 0.5, "loss_bad": 1.0, "loss_good": 0.0 },
            "repair": "esp-arq", "bridge": null,
        });
        assert_eq!(of(every), told);
        assert_eq!(of("--repair snoop --bridge eth0 lab/eth1")["bridge"], json!(["eth0", "lab/eth1"]));
    }

    #[test]
    fn forms_of_figures() {
        assert_eq!(rate("2M").map(|r| r.0), Ok(Some(2_000_000)));
        assert_eq!(rate("none").map(|r| r.0), Ok(None));
        assert_eq!(bit_errors("1/64k"), Ok(1.0 / 65_536.0));
        assert_eq!(bit_errors("1/8M"), Ok(1.0 / f64::from(8 << 20)));
        assert_eq!(bit_errors("1.5e-5"), Ok(1.5e-5));
        assert_eq!(time("0.5s"), Ok(Duration::from_millis(500)));
        assert_eq!(time("20us"), Ok(Duration::from_micros(20)));
        assert_eq!(bytes("75k"), Ok(75_000));
        assert!(bursts("0.01,0.3,1").is_ok_and(|b| b.loss_good == 0.0));
        for bad in ["", "2", "2x", "-1/64k", "nan", "inf"] {
            assert!(time(bad).is_err() && bursts(bad).is_err(), "{bad}");
        }
        for bad in ["0", "", "x", "1e400", "-5"] {
            assert!(rate(bad).is_err() && bytes(bad).is_err(), "{bad}");
        }
        for bad in ["2", "1/0", "1/x", "nan", "-1"] {
            assert!(bit_errors(bad).is_err(), "{bad}");
        }
    }
}

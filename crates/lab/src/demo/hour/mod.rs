//! The demo's last act: a device lives through a working hour of traffic, compressed in time, once for each policy, each in a world
//! of its own with real daemons, a radio that is switched off and on, and a gateway that stands in. Owns the comparison.
//!
//! Compression: packets are replayed [`SPEED`] times as fast, and the policy is shown a clock that runs as much faster
//! (`sleep.speed`), so that it decides as it would in the real hour. Radio, IKE and ESP are not faster: a wake that takes 20 ms here
//! looks to the policy like one of 1.8 s, which is what associating with an access point takes.

pub(super) mod page;
mod rehearsal;
mod traffic;

use super::config::{self, Options};
use crate::results::Figures;
use anyhow::{Context, Result, bail};
use dormouse_testbed::replay::{self, Fate, Kind, Planned};
use dormouse_testbed::{Access, Dormoused, Roaming, SERVER};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// So many times faster than real time.
const SPEED: u32 = 90;
/// The policies, in the order of the table.
pub(super) const POLICIES: [&str; 3] = ["never", "paper", "dormouse"];
/// The profile that joules are reckoned with.
pub(super) const PROFILE: &str = "laptop-000";
/// What arrives later than this after it was sent was delayed.
const LATE: Duration = Duration::from_millis(25);
/// Where the daemon keeps what its policy has learned.
const HISTORY: &str = "sleep-history";
/// For the last packets to arrive.
const PATIENCE: Duration = Duration::from_secs(2);

/// The event of its points.
pub(super) const EVENT: &str = "lives through a working hour";

/// What holds for all policies.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Frame {
    /// On which traffic: says that it is synthetic.
    pub(super) traffic: String,
    /// So many times faster than real time.
    pub(super) speed: u32,
    /// Where joules come from.
    pub(super) joules_from: String,
    /// A packet that took longer counts as delayed, in milliseconds.
    pub(super) late_ms: f64,
}

/// The hour as every policy lived it.
pub(super) struct Hour {
    pub(super) frame: Frame,
    policies: BTreeMap<&'static str, Figures>,
}

impl Hour {
    /// What one policy made of it.
    pub(super) fn policy(&self, name: &str) -> Result<Figures> {
        self.policies.get(name).cloned().with_context(|| format!("no policy {name}"))
    }
}

/// Lives the hour under every policy, all at once.
///
/// # Errors
/// If a world cannot be built, a daemon fails, or the user interrupts.
pub(super) fn live(options: &Options) -> Result<Hour> {
    let hour = traffic::pick(options.seed)?;
    let lived = std::thread::scope(|scope| {
        let begin = |policy| {
            let hour = &hour;
            scope.spawn(move || one(options, policy, hour).with_context(|| format!("policy {policy}")))
        };
        POLICIES.map(begin).map(|w| w.join().unwrap_or_else(|_| bail!("a world of the demo panicked")))
    });
    let mut joules_from = String::new();
    let mut policies = BTreeMap::new();
    for (policy, lived) in POLICIES.into_iter().zip(lived) {
        let figures;
        (figures, joules_from) = lived?;
        policies.insert(policy, figures);
    }
    let late_ms = LATE.as_secs_f64() * 1e3;
    Ok(Hour { frame: Frame { traffic: hour.label, speed: SPEED, joules_from, late_ms }, policies })
}

/// One policy in a world of its own; also says where its joules come from.
fn one(options: &Options, policy: &str, hour: &traffic::Hour) -> Result<(Figures, String)> {
    let plan = &hour.plan;
    let mut world = Roaming::new(config::NAT_TIMEOUT)?;
    if options.keep {
        world.bed.keep_files();
    }
    world.attach(Access::A)?;
    let (gateway_toml, device_toml) = config::write(&world)?;
    let gateway = Dormoused::start(&world.gateway, "", &gateway_toml)?;
    let section = sleep_section(policy);
    Dormoused::leave_state(&world.device, HISTORY, &rehearsal::history(&section, &hour.before)?)?;
    let device = Dormoused::start(&world.device, "", &(device_toml + &section))?;
    device.ok(&["up", config::CONNECTION])?;
    let mut watcher = device.spawn("watch", &["watch", "--json"])?;
    let inner = inner_address(&device)?;
    let compressed: Vec<Planned> = plan.iter().map(|p| Planned { at: p.at / SPEED, ..*p }).collect();
    let started = unix_now();
    let fates = replay::run(
        (&world.device, inner),
        (&world.server, SERVER.parse()?),
        &compressed,
        PATIENCE,
        &options.interrupted,
    )?;
    let sleep = status(&device, "sleep")?;
    let stand_in = status(&gateway, "gateway/sessions/0/stand_in")?;
    watcher.stop();
    figures(plan, &fates, &sleep, &stand_in, &watcher.log(), started)
}

fn sleep_section(policy: &str) -> String {
    let up = "ip link set dev wlan0 up && ip route replace default via 10.1.0.1 dev wlan0";
    format!(
        "\n[sleep]\nmode = \"energy\"\npolicy = \"{policy}\"\nprofile = \"{PROFILE}\"\nspeed = {SPEED}\nradio = \"command\"\n\
         interface = \"wlan0\"\ncommand_off = [\"ip\", \"link\", \"set\", \"dev\", \"wlan0\", \"down\"]\n\
         command_on = [\"sh\", \"-c\", \"{up}\"]\n"
    )
}

fn figures(
    plan: &[Planned],
    fates: &[Fate],
    sleep: &Value,
    stand_in: &Value,
    events: &str,
    started: f64,
) -> Result<(Figures, String)> {
    let number = |pointer: &str| -> Result<f64> {
        sleep
            .pointer(pointer)
            .and_then(Value::as_f64)
            .with_context(|| format!("status has no sleep{pointer}"))
    };
    let [asleep, awake] = ["/energy/asleep_seconds", "/energy/awake_seconds"].map(number);
    let others = number("/energy/preparing_seconds")? + number("/energy/waking_seconds")?;
    let (asleep, on) = (asleep?, awake? + others);
    let happened = Happened::read(events, started)?;
    let sent: Vec<(&Planned, Fate)> =
        plan.iter().zip(fates.iter().copied()).filter(|(_, f)| f.sent.is_some()).collect();
    let took = |f: &Fate| Some(f.arrived?.saturating_sub(f.sent?));
    let outgoing = |p: &Planned| p.kind == Kind::Outgoing;
    let times = |of_device: bool, which: fn(&Fate) -> bool| {
        sent.iter()
            .filter(move |(p, f)| outgoing(p) == of_device && which(f))
            .map(|(p, _)| p.at.as_secs_f64())
    };
    let lost = |f: &Fate| f.arrived.is_none();
    let own = sent.iter().filter(|(p, _)| outgoing(p));
    let source = sleep.pointer("/energy/source").and_then(Value::as_str).context("source of joules")?;
    let mut figures = Figures::default()
        .with("joules", number("/energy/used_joules")?)
        .with("always_on_joules", number("/energy/always_on_joules")?)
        .with("radio_on", on / (on + asleep))
        .with("sleeps", number("/sleeps")?)
        .with("packets", sent.len() as f64)
        .with("lost", sent.iter().filter(|(_, f)| lost(f)).count() as f64)
        .with("delayed", sent.iter().filter(|(_, f)| took(f).is_some_and(|t| t > LATE)).count() as f64)
        .with("proxied", counts(stand_in.get("answered")).fold(0.0, |sum, (_, n)| sum + n))
        .with_all("latency", own.filter_map(|(_, f)| took(f)).map(|t| t.as_secs_f64() * 1e3))
        .with_all("off_since", happened.off.iter().map(|o| o.0))
        .with_all("off_until", happened.off.iter().map(|o| o.1))
        .with_all("sent_out", times(true, |_| true))
        .with_all("sent_in", times(false, |_| true))
        .with_all("lost_out", times(true, lost))
        .with_all("lost_in", times(false, lost));
    let rungs = happened.rungs.iter().map(|(name, n)| (name.as_str(), f64::from(*n)));
    let wakes = counts(sleep.get("wakes_by_cause")).filter(|(_, n)| *n > 0.0);
    let dropped = counts(stand_in.get("dropped"));
    for (kind, (name, n)) in
        rungs.map(|r| ("rung", r)).chain(wakes.map(|w| ("wakes", w))).chain(dropped.map(|d| ("dropped", d)))
    {
        figures = figures.with(&format!("{kind}.{name}"), n);
    }
    Ok((figures, source.to_owned()))
}

/// A table of counts; left out of a status while it is empty.
fn counts(table: Option<&Value>) -> impl Iterator<Item = (&str, f64)> {
    let table = table.and_then(Value::as_object).into_iter().flatten();
    table.filter_map(|(name, n)| Some((name.as_str(), n.as_f64()?)))
}

/// What `watch` told.
#[derive(Default)]
struct Happened {
    off: Vec<(f64, f64)>,
    rungs: BTreeMap<String, u32>,
}

impl Happened {
    fn read(events: &str, started: f64) -> Result<Self> {
        let mut happened = Self::default();
        let mut asleep = None;
        for line in events.lines() {
            let told: Value = serde_json::from_str(line).with_context(|| format!("watch: {line}"))?;
            let event = told.pointer("/result/event").with_context(|| format!("watch: {line}"))?;
            let Some(at) = event.get("at_unix").and_then(Value::as_f64) else { continue };
            let at = ((at - started) * f64::from(SPEED)).clamp(0.0, traffic::HOUR as f64);
            match event.get("event").and_then(Value::as_str) {
                Some("asleep") => asleep = Some(at),
                Some("waking") => happened.off.extend(asleep.take().map(|since| (since, at))),
                Some("up") => {
                    let rung = event.get("rung").and_then(Value::as_str).unwrap_or("?");
                    *happened.rungs.entry(rung.into()).or_default() += 1;
                }
                _ => {}
            }
        }
        happened.off.extend(asleep.map(|since| (since, traffic::HOUR as f64)));
        Ok(happened)
    }
}

fn unix_now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

fn status(daemon: &Dormoused, place: &str) -> Result<Value> {
    let json = daemon.ok(&["status", "--json"])?.json;
    let place = format!("/result/status/{place}");
    json.pointer(&place).cloned().with_context(|| format!("status has no {place}: {json}"))
}

fn inner_address(device: &Dormoused) -> Result<Ipv4Addr> {
    let addresses = status(device, "connections/0/addresses")?;
    let first = addresses.as_array().and_then(|a| a.iter().find_map(|a| a.as_str()?.parse().ok()));
    first.context("the device has no inner address")
}

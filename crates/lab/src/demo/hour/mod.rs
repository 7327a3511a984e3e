//! The demo's last act: a device lives through a working hour of traffic, compressed in time, once for each policy, each in a world
//! of its own with real daemons, a radio that is switched off and on, and a gateway that stands in. Owns the comparison.
//!
//! Compression: packets are replayed [`SPEED`] times as fast, and the policy is shown a clock that runs as much faster
//! (`sleep.speed`), so that it decides as it would in the real hour. Radio, IKE and ESP are not faster: a wake that takes 20 ms here
//! looks to the policy like one of 1.8 s, which is what associating with an access point takes.

mod page;
mod rehearsal;
mod traffic;

use super::config::{self, Options};
use crate::judge::stats::quantile;
use anyhow::{Context, Result, bail};
use dormouse_testbed::replay::{self, Fate, Kind, Planned};
use dormouse_testbed::{Access, Dormoused, Roaming, SERVER};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use page::document;

/// So many times faster than real time.
pub const SPEED: u32 = 90;
/// The policies, in the order of the table.
pub const POLICIES: [&str; 3] = ["never", "paper", "dormouse"];
/// The profile that joules are reckoned with.
pub const PROFILE: &str = "laptop-000";
/// What arrives later than this after it was sent was delayed.
const LATE: Duration = Duration::from_millis(25);
/// Where the daemon keeps what its policy has learned.
const HISTORY: &str = "sleep-history";
/// For the last packets to arrive.
const PATIENCE: Duration = Duration::from_secs(2);

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub struct Hour {
    /// On which traffic: says that it is synthetic.
    pub traffic: String,
    /// So many times faster than real time.
    pub speed: u32,
    /// Where joules come from.
    pub joules_from: String,
    /// A packet that took longer counts as delayed, in milliseconds.
    pub late_ms: f64,
    /// One row for each policy.
    pub policies: Vec<Row>,
}

/// One policy's hour. Joules, radio time and times of day are those of the uncompressed hour.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub policy: String,
    /// Joules that the radio used.
    pub joules: f64,
    /// Joules of a radio that is always active.
    pub always_on_joules: f64,
    /// Share of the time that the radio was on.
    pub radio_on: f64,
    /// Times that it was switched off.
    pub sleeps: u64,
    /// Wakes by cause.
    pub wakes: BTreeMap<String, u64>,
    /// Sessions that came back, by rung of the ladder.
    pub rungs: BTreeMap<String, u64>,
    /// Packets of the plan that were sent.
    pub packets: u64,
    /// Those that never arrived.
    pub lost: u64,
    /// When those were sent, in seconds of the hour: by the device, and to it.
    pub lost_at: [Vec<f64>; 2],
    /// What the gateway's stand-in dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Those that arrived late.
    pub delayed: u64,
    /// Those that the gateway answered instead of the device.
    pub proxied: u64,
    /// Time from sending to arrival of the device's own packets, in milliseconds: median, 95th percentile and most.
    pub latency_ms: [f64; 3],
    /// When the radio went off and on again, in seconds of the hour.
    pub off: Vec<(f64, f64)>,
    /// When packets were sent, in seconds of the hour: by the device, and to it.
    pub sent: [Vec<f64>; 2],
}

/// Lives the hour under every policy, all at once.
///
/// # Errors
/// If a world cannot be built, a daemon fails, or the user interrupts.
pub fn run(options: &Options, seed: u64) -> Result<Hour> {
    let hour = traffic::pick(seed)?;
    let rows = std::thread::scope(|scope| {
        let live = |policy| {
            let hour = &hour;
            scope.spawn(move || live(options, policy, hour).with_context(|| format!("policy {policy}")))
        };
        let worlds: Vec<_> = POLICIES.map(live).into_iter().collect();
        let join = |w: std::thread::ScopedJoinHandle<'_, Result<(Row, String)>>| {
            w.join().unwrap_or_else(|_| bail!("a world of the demo panicked"))
        };
        worlds.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    let joules_from = rows.first().map(|r| r.1.clone()).unwrap_or_default();
    let policies = rows.into_iter().map(|r| r.0).collect();
    let late_ms = LATE.as_secs_f64() * 1e3;
    Ok(Hour { traffic: hour.label, speed: SPEED, joules_from, late_ms, policies })
}

/// One policy in a world of its own; also says where its joules come from.
fn live(options: &Options, policy: &str, hour: &traffic::Hour) -> Result<(Row, String)> {
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
    row(policy, plan, &fates, &sleep, &stand_in, &watcher.log(), started)
}

fn sleep_section(policy: &str) -> String {
    let up = "ip link set dev wlan0 up && ip route replace default via 10.1.0.1 dev wlan0";
    format!(
        "\n[sleep]\nmode = \"energy\"\npolicy = \"{policy}\"\nprofile = \"{PROFILE}\"\nspeed = {SPEED}\nradio = \"command\"\n\
         interface = \"wlan0\"\ncommand_off = [\"ip\", \"link\", \"set\", \"dev\", \"wlan0\", \"down\"]\n\
         command_on = [\"sh\", \"-c\", \"{up}\"]\n"
    )
}

fn row(
    policy: &str,
    plan: &[Planned],
    fates: &[Fate],
    sleep: &Value,
    stand_in: &Value,
    events: &str,
    started: f64,
) -> Result<(Row, String)> {
    let number = |pointer: &str| -> Result<f64> {
        sleep
            .pointer(pointer)
            .and_then(Value::as_f64)
            .with_context(|| format!("status has no sleep{pointer}"))
    };
    let [asleep, awake] = ["/energy/asleep_seconds", "/energy/awake_seconds"].map(number);
    let others = number("/energy/preparing_seconds")? + number("/energy/waking_seconds")?;
    let (asleep, on) = (asleep?, awake? + others);
    let wakes = sleep.pointer("/wakes_by_cause").and_then(Value::as_object).context("wakes by cause")?;
    let counted = |v: &Value| v.as_u64().filter(|n| *n > 0);
    let happened = Happened::read(events, started)?;
    let sent: Vec<(&Planned, Fate)> =
        plan.iter().zip(fates.iter().copied()).filter(|(_, f)| f.sent.is_some()).collect();
    let took = |f: &Fate| Some(f.arrived?.saturating_sub(f.sent?));
    let outgoing = |p: &Planned| p.kind == Kind::Outgoing;
    let times = |of_device: bool, which: fn(&Fate) -> bool| {
        let wanted = |p: &Planned, f: &Fate| outgoing(p) == of_device && which(f);
        sent.iter().filter(|(p, f)| wanted(p, f)).map(|(p, _)| p.at.as_secs_f64()).collect()
    };
    let lost = |f: &Fate| f.arrived.is_none();
    let latency: Vec<Duration> =
        sent.iter().filter(|(p, _)| outgoing(p)).filter_map(|(_, f)| took(f)).collect();
    let source = sleep.pointer("/energy/source").and_then(Value::as_str).context("source of joules")?;
    let row = Row {
        policy: policy.into(),
        joules: number("/energy/used_joules")?,
        always_on_joules: number("/energy/always_on_joules")?,
        radio_on: on / (on + asleep),
        sleeps: number("/sleeps")? as u64,
        wakes: wakes.iter().filter_map(|(k, v)| Some((k.clone(), counted(v)?))).collect(),
        rungs: happened.rungs,
        packets: sent.len() as u64,
        lost: sent.iter().filter(|(_, f)| lost(f)).count() as u64,
        lost_at: [times(true, lost), times(false, lost)],
        dropped: by_name(stand_in, "dropped"),
        delayed: sent.iter().filter(|(_, f)| took(f).is_some_and(|t| t > LATE)).count() as u64,
        proxied: by_name(stand_in, "answered").values().sum(),
        latency_ms: percentiles(&latency),
        off: happened.off,
        sent: [times(true, |_| true), times(false, |_| true)],
    };
    Ok((row, source.to_owned()))
}

/// What `watch` told.
#[derive(Default)]
struct Happened {
    off: Vec<(f64, f64)>,
    rungs: BTreeMap<String, u64>,
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

/// Median, 95th percentile and most, in milliseconds; zeros without any.
fn percentiles(times: &[Duration]) -> [f64; 3] {
    let times: Vec<f64> = times.iter().map(|t| t.as_secs_f64() * 1e3).collect();
    [0.5, 0.95, 1.0].map(|q| quantile(&times, q).unwrap_or(0.0))
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

/// A table of counts of the stand-in; left out of its status while it is empty.
fn by_name(stand_in: &Value, table: &str) -> BTreeMap<String, u64> {
    let table = stand_in.get(table).and_then(Value::as_object);
    table.into_iter().flatten().filter_map(|(name, n)| Some((name.clone(), n.as_u64()?))).collect()
}

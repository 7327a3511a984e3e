//! Meters of the demo: counters of the daemon, of its radio and of the CPU, before and after. Owns subtraction; a counter that
//! cannot be read is an error, never a zero.

use super::report::Row;
use super::{Stage, config};
use anyhow::{Context, Result};
use dormouse_testbed::{Access, Burst, Dormoused};
use serde_json::Value;
use std::time::Duration;

/// All meters at one moment.
pub(super) struct Meter {
    ike: Ike,
    air: u64,
    device_cpu: Duration,
    gateway_cpu: Duration,
}

#[derive(Clone, Copy)]
struct Ike {
    messages: u64,
    round_trips: u64,
}

impl Meter {
    pub(super) fn start(stage: &Stage) -> Result<Self> {
        Ok(Self {
            ike: ike(&stage.device)?,
            air: air(stage)?,
            device_cpu: stage.device.cpu(),
            gateway_cpu: stage.gateway.cpu(),
        })
    }

    /// The gateway is another process now: what its start took is not the device's doing.
    pub(super) fn gateway_is_new(&mut self, stage: &Stage) {
        self.gateway_cpu = stage.gateway.cpu();
    }

    /// What happened since the start, as a row.
    pub(super) fn finish(self, stage: &Stage, what: &str, burst: Burst) -> Result<Row> {
        // The CPU first: asking for counters costs some.
        let (device_cpu, gateway_cpu) = (stage.device.cpu(), stage.gateway.cpu());
        let after = ike(&stage.device)?;
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        Ok(Row {
            event: what.into(),
            rung: rung(&stage.device)?,
            messages: after.messages - self.ike.messages,
            round_trips: after.round_trips - self.ike.round_trips,
            air_bytes: air(stage)? - self.air,
            device_cpu_ms: ms(device_cpu.saturating_sub(self.device_cpu)),
            gateway_cpu_ms: ms(gateway_cpu.saturating_sub(self.gateway_cpu)),
            first_packet_ms: burst.first_arrival.map(ms),
            first_echo_ms: burst.first_echo.map(ms),
            probes: burst.sent,
            lost: burst.lost,
            note: String::new(),
        })
    }
}

fn ike(daemon: &Dormoused) -> Result<Ike> {
    let json = daemon.ok(&["stats", "--json"])?.json;
    let counters = find(&json, "counters").context("the daemon's counters")?;
    let read =
        |name: &str| counters.get(name).and_then(Value::as_u64).with_context(|| format!("counter {name}"));
    Ok(Ike {
        messages: read("ike.datagrams_in")? + read("ike.datagrams_out")?,
        round_trips: read("ike.round_trips")?,
    })
}

/// By which rung the session last came up.
fn rung(daemon: &Dormoused) -> Result<Option<String>> {
    let json = daemon.ok(&["status", "--json"])?.json;
    let connections =
        find(&json, "connections").and_then(Value::as_array).context("the daemon's connections")?;
    let ours = connections.iter().find(|c| c.get("name").and_then(Value::as_str) == Some(config::CONNECTION));
    let rung = ours.and_then(|c| c.pointer("/last_wake/rung")).and_then(Value::as_str);
    Ok(rung.map(str::to_owned))
}

fn air(stage: &Stage) -> Result<u64> {
    Ok(stage.world.air(Access::A)?.bytes + stage.world.air(Access::B)?.bytes)
}

/// The value of the first `key` at any depth: the answer may stand in an envelope.
pub(super) fn find<'a>(json: &'a Value, key: &str) -> Option<&'a Value> {
    match json {
        Value::Object(map) => map.get(key).or_else(|| map.values().find_map(|v| find(v, key))),
        _ => None,
    }
}

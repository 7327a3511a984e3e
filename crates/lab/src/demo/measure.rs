//! Meters of the demo: counters of the daemon, of its radio and of the CPU, before and after. Owns subtraction; a counter that
//! cannot be read is an error, never a zero.

use super::{Stage, config};
use anyhow::{Context, Result};
use dormouse_testbed::{Access, Burst, Dormoused};
use serde_json::Value;
use std::time::Duration;

use crate::results::Figures;

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

    /// What happened since the start.
    pub(super) fn finish(self, stage: &Stage, burst: Burst) -> Result<Figures> {
        // The CPU first: asking for counters costs some.
        let (device_cpu, gateway_cpu) = (stage.device.cpu(), stage.gateway.cpu());
        let after = ike(&stage.device)?;
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        let figures = Figures::default()
            .with("ike_messages", (after.messages - self.ike.messages) as f64)
            .with("ike_round_trips", (after.round_trips - self.ike.round_trips) as f64)
            .with("air", (air(stage)? - self.air) as f64)
            .with("device_cpu", ms(device_cpu.saturating_sub(self.device_cpu)))
            .with("gateway_cpu", ms(gateway_cpu.saturating_sub(self.gateway_cpu)))
            .with("first_packet", burst.first_arrival.map(ms))
            .with("first_echo", burst.first_echo.map(ms))
            .with("probes", burst.sent as f64)
            .with("lost", burst.lost as f64);
        Ok(match rung(&stage.device)? {
            Some(rung) => figures.with(&format!("rung.{rung}"), 1.0),
            None => figures,
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

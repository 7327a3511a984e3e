//! The two ends of a tunnel between our own daemons, in the world of `dormouse_testbed::Roaming`: their configuration, and what
//! they say of themselves. Owns no process.

use anyhow::{Context, Result, bail};
use dormouse_testbed::{Dormoused, GATEWAY};
use serde_json::Value;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Generous: nothing in these tests is about speed.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// The gateway's configuration. `pool`: the addresses that it gives; `more`: whole sections besides.
#[must_use]
pub fn gateway(pool: &str, more: &str) -> String {
    format!(
        "{more}\n{}[connection.peer.child]\nlocal = [\"10.99.0.0/24\", \"fd99::/64\"]\nremote = [\"dynamic\"]\n\
         [connection.peer.pool]\naddresses = [{pool}]\n",
        end("gateway", "", "gateway.test", "*.test")
    )
}

/// The device's configuration. `sleep`: lines of that section.
#[must_use]
pub fn device(sleep: &str) -> String {
    format!(
        "[sleep]\n{sleep}\n{}[connection.peer.child]\nremote = [\"10.99.0.0/24\", \"fd99::/64\"]\n",
        end("client", &format!("gateway = \"{GATEWAY}\""), "device.test", "gateway.test")
    )
}

fn end(role: &str, gateway: &str, own: &str, peer: &str) -> String {
    let secret = "secret = \"a shared secret of the test\"";
    format!(
        "[connection.peer]\nrole = \"{role}\"\n{gateway}\n[connection.peer.local]\nid = \"{own}\"\n{secret}\n\
         [connection.peer.remote]\nid = \"{peer}\"\n{secret}\n"
    )
}

/// What a device says of its sleep.
///
/// # Errors
/// If it says nothing.
pub fn sleep_of(device: &Dormoused) -> Result<Value> {
    let status = device.ok(&["status", "--json"])?.json;
    status.pointer("/result/status/sleep").cloned().context("no sleep in the status")
}

/// Waits until what a device says of its sleep is as wanted, and returns it.
///
/// # Errors
/// If it never is; with the daemon's log.
pub fn until(device: &Dormoused, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    let end = Instant::now() + PATIENCE;
    loop {
        let sleep = sleep_of(device)?;
        if wanted(&sleep) {
            return Ok(sleep);
        }
        if Instant::now() > end {
            bail!("not in time: {what}; {sleep:#}\n{}", device.log());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The device's addresses in the tunnel.
///
/// # Errors
/// If it has none.
pub fn inner(device: &Dormoused) -> Result<Vec<IpAddr>> {
    let status = device.ok(&["status", "--json"])?;
    let addresses = status.json.pointer("/result/status/connections/0/addresses").and_then(Value::as_array);
    let parsed = addresses.into_iter().flatten().filter_map(|a| a.as_str()?.split('/').next()?.parse().ok());
    let found: Vec<IpAddr> = parsed.collect();
    if found.is_empty() {
        bail!("no address: {}", status.text);
    }
    Ok(found)
}

/// What a gateway says of the one device that it knows: its stand-in, whether the session is held or not; `None` if it knows none.
///
/// # Errors
/// If it does not answer.
pub fn stand_in(gateway: &Dormoused) -> Result<Option<Value>> {
    let status = gateway.ok(&["status", "--json"])?.json;
    let of = |list: &str| status.pointer(&format!("/result/status/gateway/{list}/0/stand_in")).cloned();
    Ok(of("sessions").or_else(|| of("absent")))
}

/// Whether a gateway knows that the one device sleeps.
///
/// # Errors
/// As [`stand_in`].
pub fn knows_that_it_sleeps(gateway: &Dormoused) -> Result<bool> {
    Ok(stand_in(gateway)?.is_some_and(|s| s.get("asleep").is_some_and(|a| !a.is_null())))
}

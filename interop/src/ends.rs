//! The two ends of a tunnel between our own daemons, in the world of `dormouse_testbed::Roaming`: their configuration, and what
//! they say of themselves. Owns no process.

use anyhow::{Context, Result, bail};
use dormouse_testbed::{Dormoused, GATEWAY, Host, Pki, Roaming};
use serde_json::Value;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Generous: nothing in these tests is about speed.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// The secret of ends that a test says nothing more of.
pub const SECRET: &str = "a shared secret of the test";
/// What a gateway tunnels, and the addresses that it gives: its [`end`]'s child, where a test needs nothing else.
pub const POOL: &str = "local = [\"10.99.0.0/24\"]\nremote = [\"dynamic\"]\n[connection.peer.pool]\naddresses = [\"10.55.0.0/24\"]";
/// What a client tunnels.
pub const NET: &str = "remote = [\"10.99.0.0/24\"]";

/// The gateway's configuration. `pool`: the addresses that it gives; `more`: whole sections besides.
#[must_use]
pub fn gateway(pool: &str, more: &str) -> String {
    let child = "local = [\"10.99.0.0/24\", \"fd99::/64\"]\nremote = [\"dynamic\"]";
    let pool = format!("[connection.peer.pool]\naddresses = [{pool}]\n");
    format!("{more}\n{}{pool}", by_secret("gateway", "gateway.test", "*.test", SECRET, child))
}

/// The device's configuration. `sleep`: lines of that section.
#[must_use]
pub fn device(sleep: &str) -> String {
    let child = "remote = [\"10.99.0.0/24\", \"fd99::/64\"]";
    format!("[sleep]\n{sleep}\n{}", by_secret("client", "device.test", "gateway.test", SECRET, child))
}

/// An end whose secret is that of its peer. `child`: lines of that section, and what else is to follow.
#[must_use]
pub fn by_secret(role: &str, own: &str, peer: &str, secret: &str, child: &str) -> String {
    let secret = format!("secret = \"{secret}\"");
    end(role, own, &secret, peer, &secret, child)
}

/// An end with the certificate `<own>.pem` of an authority, who takes the certificates of that one. `child`: as in [`by_secret`].
#[must_use]
pub fn by_certificate(pki: &Pki, role: &str, own: &str, peer: &str, child: &str) -> String {
    let [certificate, key] = ["pem", "key"].map(|kind| pki.path(&format!("{own}.{kind}")));
    let local = format!("certificate = {certificate:?}\nkey = {key:?}");
    end(role, own, &local, peer, &format!("ca = [{:?}]", pki.path("ca.pem")), child)
}

/// One end of the connection `peer`. `local` and `remote`: how it proves who it is, and the peer.
fn end(role: &str, own: &str, local: &str, peer: &str, remote: &str, child: &str) -> String {
    let gateway = if role == "client" { format!("gateway = \"{GATEWAY}\"") } else { String::new() };
    format!(
        "[connection.peer]\nrole = \"{role}\"\n{gateway}\n[connection.peer.local]\nid = \"{own}\"\n{local}\n\
         [connection.peer.remote]\nid = \"{peer}\"\n{remote}\n[connection.peer.child]\n{child}\n"
    )
}

/// Puts `toml` behind the `[daemon]` section of the configuration of the daemon in `host`.
///
/// # Errors
/// If it cannot be read or written.
pub fn rewrite(host: &Host, toml: &str) -> Result<()> {
    let path = host.dir().join("dormouse.toml");
    let text = std::fs::read_to_string(&path)?;
    let own = text.split("[connection.").next().unwrap_or_default();
    Ok(std::fs::write(&path, format!("{own}{toml}"))?)
}

/// Another host of the Internet, which reaches the gateway by a link of its own; and its address. `n`: 2 to 61, another for each.
///
/// # Errors
/// If it cannot be made.
pub fn another(world: &mut Roaming, name: &str, n: u8) -> Result<(Host, String)> {
    let host = world.bed.host(name)?;
    let [router, own] = [1, 2].map(|i| format!("198.51.100.{}", 4 * n + i));
    let (outer, inner) = (format!("{own}/30"), format!("{router}/30"));
    world.bed.link((&host, "eth0", &[&outer]), (&world.core, &format!("to-{name}"), &[&inner]))?;
    host.ip(&format!("route add default via {router}"))?;
    Ok((host, own))
}

/// By which rung of its ladder the one connection of a client came up the last time.
///
/// # Errors
/// If it does not answer.
pub fn rung(client: &Dormoused) -> Result<String> {
    let status = client.ok(&["status", "--json"])?.json;
    let rung = status.pointer("/result/status/connections/0/last_wake/rung").and_then(Value::as_str);
    Ok(rung.unwrap_or_default().to_owned())
}

/// The peers that a gateway has sessions with, in their order.
///
/// # Errors
/// If it does not answer.
pub fn peers(gateway: &Dormoused) -> Result<Vec<String>> {
    let status = gateway.ok(&["status", "--json"])?.json;
    let sessions = status.pointer("/result/status/gateway/sessions").and_then(Value::as_array);
    let peer = |s: &Value| s.get("peer").and_then(Value::as_str).map(str::to_owned);
    let mut peers: Vec<String> = sessions.into_iter().flatten().filter_map(peer).collect();
    peers.sort();
    Ok(peers)
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

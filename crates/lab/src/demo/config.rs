//! What a user may choose of the demo, the configurations of its two daemons, and the file that is downloaded. Owns names, keys and
//! times of the demo.

use anyhow::{Context, Result, bail};
use dormouse_testbed::{GATEWAY, Key, Pki, Roaming, SERVER};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The gateway of the demo gives a silent device up after this long.
pub(super) const GATEWAY_GIVES_UP: Duration = Duration::from_secs(6);
/// It keeps the session of a device that has announced its sleep for so long: enough for the short sleeps.
pub(super) const GATEWAY_KEEPS: Duration = Duration::from_secs(8);
/// The NAT of network B forgets an idle UDP mapping after this many seconds.
pub(super) const NAT_TIMEOUT: u32 = 30;
/// Name of the device's connection.
pub(super) const CONNECTION: &str = "office";

/// What to do besides the story.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Set when the user wants it to stop; everything is cleaned up before [`run`] returns.
    pub interrupted: Arc<AtomicBool>,
    /// Keep logs and configurations of the daemons.
    pub keep: bool,
    /// Leave the working hour out.
    pub short: bool,
    /// Tell the story of the Host Identity Protocol instead.
    pub hip: bool,
    /// Seed of the hour's traffic.
    pub seed: u64,
}

/// Makes certificates and returns the configurations of gateway and device.
pub(super) fn write(world: &Roaming) -> Result<(String, String)> {
    let pki = Pki::new(&world.bed.dir().join("pki"), Key::P256)?;
    pki.issue("gateway.demo", Key::P256)?;
    pki.issue("device.demo", Key::P256)?;
    let end = |role: &str, own: &str, peer: &str| {
        format!(
            "[connection.{CONNECTION}]\nrole = \"{role}\"\n{gateway}\n\
             [connection.{CONNECTION}.local]\nid = \"{own}\"\ncertificate = {cert:?}\nkey = {key:?}\n\
             [connection.{CONNECTION}.remote]\nid = \"{peer}\"\nca = [{ca:?}]\n",
            gateway = if role == "client" { format!("gateway = \"{GATEWAY}\"") } else { String::new() },
            cert = pki.path(&format!("{own}.pem")),
            key = pki.path(&format!("{own}.key")),
            ca = pki.path("ca.pem"),
        )
    };
    let give_up = GATEWAY_GIVES_UP.as_secs();
    let gateway = end("gateway", "gateway.demo", "*.demo")
        + &format!(
            "[connection.{CONNECTION}.child]\nlocal = [\"10.99.0.0/24\"]\nremote = [\"dynamic\"]\n\
             [connection.{CONNECTION}.ike]\nliveness = {}\nliveness_timeout = {give_up}\n\
             [connection.{CONNECTION}.pool]\naddresses = [\"10.55.0.0/24\"]\n",
            give_up / 2,
        );
    let device = end("client", "device.demo", "gateway.demo")
        + &format!(
            "[connection.{CONNECTION}.child]\nremote = [\"10.99.0.0/24\"]\n\
             [connection.{CONNECTION}.wake]\ngateway_holds = {give_up}\n"
        );
    Ok((gateway, device))
}

/// Downloads a file of random bytes from the server behind the gateway, by HTTP through the tunnel; returns its size in bytes.
pub(super) fn download(world: &Roaming) -> Result<u64> {
    const MEGABYTES: u64 = 64;
    let dir = world.server.dir().join("www");
    std::fs::create_dir_all(&dir)?;
    world.server.sh(&format!("head -c {MEGABYTES}M /dev/urandom > {}/file", dir.display()))?;
    // Not `python3 -m http.server`: that looks its own name up, and waits for a name server that these hosts do not have.
    let program = format!(
        "import functools, http.server, socketserver\n\
         handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory={:?})\n\
         socketserver.TCPServer.allow_reuse_address = True\n\
         server = socketserver.TCPServer(({SERVER:?}, 8080), handler)\n\
         print('serving', flush=True)\nserver.serve_forever()",
        dir.display().to_string()
    );
    let mut http = world.server.spawn("http", "python3", &["-c", &program])?;
    http.wait_for("serving", Duration::from_secs(10))?;
    let copy = world.device.dir().join("file");
    world
        .device
        .sh(&format!("curl -sS -f -m 60 -o {} http://{SERVER}:8080/file", copy.display()))
        .context("download through the tunnel")?;
    let same = world.device.sh(&format!("cmp {} {}/file", copy.display(), dir.display()));
    if same.is_err() {
        bail!("the downloaded file differs");
    }
    Ok(std::fs::metadata(copy)?.len())
}

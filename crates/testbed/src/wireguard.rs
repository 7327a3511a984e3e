//! WireGuard between two hosts, as other measurements compare with it. Owns its keys, and the processes of wireguard-go.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::host::Host;
use crate::process::Process;

/// What does not answer after so long never will.
const STUCK: Duration = Duration::from_secs(5);

/// One end in user space. Dropped, it ends.
#[derive(Debug)]
pub struct WireguardGo {
    process: Process,
    /// The control sockets of all namespaces share a directory and are named by the interface.
    socket: PathBuf,
}

impl WireguardGo {
    /// Makes an interface of this name, which no other host of the machine may have, by this program (`wireguard-go`, or the path of one),
    /// and waits until it can be set up.
    ///
    /// # Errors
    /// If wireguard-go does not come up.
    pub fn start(host: &Host, program: &Path, interface: &str) -> Result<Self> {
        let start = || -> Result<Self> {
            let mut command = host.command(program);
            command.args(["-f", interface]).env("LOG_LEVEL", "error");
            let process = Process::spawn("wireguard-go", &mut command, &host.dir().join("wireguard-go.log"))?;
            let end = Self { process, socket: PathBuf::from(format!("/var/run/wireguard/{interface}.sock")) };
            host.eventually(&format!("wg show {interface}"), STUCK).with_context(|| end.process.log())?;
            Ok(end)
        };
        // It has been seen to end at once ("failed to listen on uapi socket"), and to come up the next time.
        start().or_else(|_| start())
    }

    /// Its process.
    #[must_use]
    pub const fn process(&self) -> &Process {
        &self.process
    }
}

impl Drop for WireguardGo {
    fn drop(&mut self) {
        self.process.stop();
        // Usually gone with the process.
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Makes the interfaces of two hosts each other's peers, with fresh keys and the outer addresses of the two.
///
/// # Errors
/// If `wg` refuses.
pub fn connect(hosts: [&Host; 2], interfaces: [&str; 2], outer: [impl Display; 2]) -> Result<()> {
    for host in hosts {
        let keys = host.dir().display().to_string();
        host.sh(&format!("umask 077; wg genkey > {keys}/key; wg pubkey < {keys}/key > {keys}/public"))?;
    }
    let ends = hosts.iter().zip(interfaces).zip(hosts.iter().rev()).zip(outer.iter().rev());
    for (((host, interface), peer), address) in ends {
        let public = std::fs::read_to_string(peer.dir().join("public"))?;
        host.sh(&format!(
            "wg set {interface} private-key {}/key listen-port 51820 peer {} endpoint {address}:51820 allowed-ips 0.0.0.0/0",
            host.dir().display(),
            public.trim()
        ))?;
    }
    Ok(())
}

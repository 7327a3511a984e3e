//! `dormouse doctor`: what is wrong with this machine, the daemon or its configuration, and what to change.
//!
//! Owns the judgement; `dormouse_io::probe` looks. Works without a daemon, and without root as far as that goes.

use crate::client::Client;
use crate::render;
use crate::style::Style;
use clap::Args;
use dormouse_control::{Check, CheckOutcome, Error, ErrorKind, ExitCode, Reply, Response, Verb, line};
use dormouse_io::netlink::{MAIN, Netlink};
use dormouse_io::{privileges, probe, radio, resolver};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Smallest MTU that carries IPv6, in bytes (RFC 8200, section 5).
const IPV6_MINIMUM: u32 = 1280;

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Configuration to check
    #[arg(long, value_name = "FILE", default_value = "/etc/dormouse/dormouse.toml")]
    config: PathBuf,
}

pub(crate) fn run(args: &DoctorArgs, socket: &Path, json: bool) -> Result<ExitCode, Error> {
    let (mut checks, running) = daemon(socket);
    checks.push(configuration(&args.config));
    checks.extend(machine(running));
    let failed = checks.iter().any(|c| c.outcome == CheckOutcome::Failure);
    if json {
        print!("{}", line(&Response::ok(Reply::Doctor(checks)))?);
    } else {
        print!("{}", render::checks(&checks, Style::stdout()));
    }
    Ok(if failed { ExitCode::Failure } else { ExitCode::Ok })
}

fn check(name: &str, outcome: CheckOutcome, found: impl Into<String>) -> Check {
    Check { name: name.into(), outcome, found: found.into(), change: None }
}

fn ok(name: &str, found: impl Into<String>) -> Check {
    check(name, CheckOutcome::Ok, found)
}

trait Advise {
    fn advise(self, change: &str) -> Self;
}

impl Advise for Check {
    fn advise(mut self, change: &str) -> Self {
        self.change = Some(change.into());
        self
    }
}

/// Is there a daemon, may we talk to it, and what does it say? True if one answers.
fn daemon(socket: &Path) -> (Vec<Check>, bool) {
    let answer = Client::connect(socket).and_then(|mut client| client.ask(Verb::Doctor));
    match answer {
        Ok((_, reply)) => {
            let mut checks = vec![ok("daemon", format!("answers at {}", socket.display()))];
            if let Reply::Doctor(own) = reply {
                checks.extend(own);
            }
            (checks, true)
        }
        Err(e) => {
            // A machine without a daemon is worth a look too; one whose daemon we may not ask has one.
            let outcome =
                if e.kind == ErrorKind::NoDaemon { CheckOutcome::Warning } else { CheckOutcome::Failure };
            let mut it = check("daemon", outcome, e.message);
            it.change = e.change;
            (vec![it], e.kind != ErrorKind::NoDaemon)
        }
    }
}

/// The daemon's own opinion of the configuration: `dormoused --check`.
fn configuration(path: &Path) -> Check {
    const NAME: &str = "configuration";
    let shown = path.display();
    match std::fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return check(NAME, CheckOutcome::Failure, format!("{shown} does not exist"))
                .advise("write one (docs/configuration.md), or --config FILE");
        }
        Err(e) => return check(NAME, CheckOutcome::Failure, format!("{shown}: {e}")),
        Ok(_) => {}
    }
    let beside =
        std::env::current_exe().ok().map(|exe| exe.with_file_name("dormoused")).filter(|p| p.exists());
    let program = beside.unwrap_or_else(|| "dormoused".into());
    match Command::new(&program).arg("--config").arg(path).arg("--check").output() {
        Ok(output) if output.status.success() => ok(NAME, format!("{shown} is good")),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            check(NAME, CheckOutcome::Failure, format!("{shown}: {}", said.trim()))
        }
        Err(e) => check(NAME, CheckOutcome::Skipped, format!("{} cannot be run: {e}", program.display())),
    }
}

fn machine(running: bool) -> Vec<Check> {
    let mut checks = vec![tun(), capabilities(running), marks(), udp(), clock(), dns()];
    checks.extend(ports(running));
    checks.push(reverse_path(Path::new("/proc/sys")));
    checks.extend(conntrack(Path::new("/proc/sys")));
    checks.push(network());
    checks.push(forwarding(Path::new("/proc/sys")));
    checks.push(crate::meter::check(Path::new("/")));
    // A daemon says itself which radio it has, by its configuration.
    if !running {
        checks.push(radio());
    }
    checks
}

/// Which radio a daemon would switch off here, and by what, if its configuration says nothing about it.
fn radio() -> Check {
    const NAME: &str = "radio";
    let options = radio::Options::default();
    match radio::survey(&options) {
        Ok(choice) if nix_root() => ok(NAME, format!("{}: {}", choice.driver, choice.why)),
        Ok(choice) => ok(NAME, format!("{}: {}; as this user sees it", choice.driver, choice.why)),
        Err(_) if !nix_root() => check(NAME, CheckOutcome::Skipped, "only root may switch one"),
        Err(e) => check(NAME, CheckOutcome::Skipped, e.to_string())
            .advise("sleep.interface names a wire to be used, sleep.command_off and sleep.command_on your own programs"),
    }
}

fn tun() -> Check {
    const NAME: &str = "tunnel device";
    match probe::tun_device(Path::new("/dev/net/tun")) {
        Ok(found) if found.vnet_header => ok(NAME, "there, with segmentation offload"),
        Ok(_) => {
            check(NAME, CheckOutcome::Warning, "there, without segmentation offload (IFF_VNET_HDR): slower")
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            check(NAME, CheckOutcome::Failure, "/dev/net/tun does not exist")
                .advise("modprobe tun; in a container: --device /dev/net/tun")
        }
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            check(NAME, CheckOutcome::Skipped, "/dev/net/tun may not be opened by this user")
        }
        Err(e) => check(NAME, CheckOutcome::Failure, format!("/dev/net/tun: {e}")).advise("modprobe tun"),
    }
}

fn capabilities(running: bool) -> Check {
    const NAME: &str = "privileges";
    match privileges::require(privileges::Keep { raw: true, bind: true }) {
        Ok(()) => ok(NAME, "enough for the daemon"),
        Err(_) if running || !nix_root() => {
            check(NAME, CheckOutcome::Skipped, "this user has none; the daemon starts as root")
        }
        Err(e) => check(NAME, CheckOutcome::Failure, e.to_string())
            .advise("in a container: --cap-add NET_ADMIN --cap-add NET_RAW"),
    }
}

fn nix_root() -> bool {
    privileges::held().is_ok_and(|held| held.uid == 0)
}

fn marks() -> Check {
    const NAME: &str = "packet marks";
    match probe::can_mark() {
        Ok(()) => ok(NAME, "work: the tunnel's own packets stay outside of it"),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            check(NAME, CheckOutcome::Skipped, "need CAP_NET_ADMIN")
        }
        Err(e) => check(NAME, CheckOutcome::Failure, format!("SO_MARK: {e}")),
    }
}

fn udp() -> Check {
    const NAME: &str = "UDP offloads";
    match probe::udp_offloads() {
        Ok(probe::UdpOffloads { gso: true, gro: true }) => {
            ok(NAME, "sending and receiving in batches (GSO, GRO)")
        }
        Ok(found) => {
            let missing = match (found.gso, found.gro) {
                (false, false) => "GSO and GRO",
                (false, true) => "GSO",
                _ => "GRO",
            };
            check(NAME, CheckOutcome::Warning, format!("no {missing}: slower"))
                .advise("a kernel from 5.0 on has both")
        }
        Err(e) => check(NAME, CheckOutcome::Failure, format!("UDP: {e}")),
    }
}

fn clock() -> Check {
    const NAME: &str = "clock";
    match probe::clock_synchronised() {
        Some(true) => ok(NAME, "in step with the world's"),
        Some(false) => {
            check(NAME, CheckOutcome::Warning, "not synchronised: certificates and tickets may seem expired")
                .advise("timedatectl set-ntp true")
        }
        None => check(NAME, CheckOutcome::Skipped, "the kernel does not say whether it is synchronised"),
    }
}

fn dns() -> Check {
    const NAME: &str = "name servers";
    let choice = resolver::choose(&resolver::Options::default());
    let outcome =
        if choice.method == resolver::Method::None { CheckOutcome::Warning } else { CheckOutcome::Ok };
    check(NAME, outcome, format!("by {choice}"))
}

/// Ports of IKE, unless a daemon of ours has them.
fn ports(running: bool) -> Vec<Check> {
    let of = |port: u16| {
        let name = format!("UDP port {port}");
        match probe::udp_port_free(port) {
            Ok(()) => ok(&name, "free"),
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && running => {
                ok(&name, "in use, probably by the daemon")
            }
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
                check(&name, CheckOutcome::Failure, "in use by another program")
                    .advise("stop it (ss -lunp shows which), or change daemon.ike_port and daemon.nat_t_port")
            }
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                check(&name, CheckOutcome::Skipped, "only root can see whether it is free")
            }
            Err(e) => check(&name, CheckOutcome::Failure, e.to_string()),
        }
    };
    vec![of(500), of(4500)]
}

fn reverse_path(root: &Path) -> Check {
    const NAME: &str = "reverse path";
    match probe::reverse_path(root) {
        Ok(found) if found.strict.is_empty() => ok(NAME, "filtering is loose or off"),
        Ok(found) => check(
            NAME,
            CheckOutcome::Warning,
            format!(
                "strict filtering on {}: with a full tunnel the gateway's packets are dropped",
                found.strict.join(", ")
            ),
        )
        .advise("sysctl -w net.ipv4.conf.all.rp_filter=2"),
        Err(e) => check(NAME, CheckOutcome::Skipped, format!("{}: {e}", root.display())),
    }
}

fn conntrack(root: &Path) -> Option<Check> {
    const NAME: &str = "conntrack";
    let found = probe::conntrack(root)?;
    let text = format!(
        "{} of {} connections; a silent UDP flow is forgotten after {} s",
        found.count, found.max, found.udp_stream_seconds
    );
    // Nine tenths: beyond, a burst of connections drops the tunnel's.
    if found.count.saturating_mul(10) >= found.max.saturating_mul(9) {
        return Some(check(NAME, CheckOutcome::Warning, text).advise("raise net.netfilter.nf_conntrack_max"));
    }
    Some(ok(NAME, text))
}

/// The way out and what its link carries.
fn network() -> Check {
    const NAME: &str = "network";
    let look = || -> Result<Option<(String, u32)>, dormouse_io::netlink::Error> {
        let mut netlink = Netlink::new()?;
        let routes = netlink.routes()?;
        let out =
            routes.iter().filter(|r| r.table == MAIN && r.destination.prefix_len() == 0 && r.index.is_some());
        let Some(index) = out.min_by_key(|r| r.metric).and_then(|r| r.index) else { return Ok(None) };
        Ok(netlink.links()?.into_iter().find(|l| l.index == index).map(|l| (l.name, l.mtu)))
    };
    match look() {
        Ok(Some((name, mtu))) if mtu < IPV6_MINIMUM => check(
            NAME,
            CheckOutcome::Warning,
            format!("out by {name}, MTU {mtu}: too small for IPv6 ({IPV6_MINIMUM})"),
        ),
        Ok(Some((name, mtu))) => ok(NAME, format!("out by {name}, MTU {mtu}")),
        Ok(None) => check(NAME, CheckOutcome::Warning, "no default route"),
        Err(e) => check(NAME, CheckOutcome::Skipped, e.to_string()),
    }
}

fn forwarding(root: &Path) -> Check {
    const NAME: &str = "forwarding";
    let on = |path: &str| probe::number(&root.join(path)).is_ok_and(|n| n != 0);
    match (on("net/ipv4/ip_forward"), on("net/ipv6/conf/all/forwarding")) {
        (false, false) => ok(NAME, "off (a gateway needs net.ipv4.ip_forward=1)"),
        (true, false) => ok(NAME, "IPv4"),
        (false, true) => ok(NAME, "IPv6"),
        (true, true) => ok(NAME, "IPv4 and IPv6"),
    }
}

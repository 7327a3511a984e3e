//! `dormouse doctor`: what is wrong with this machine, the daemon or its configuration, and what to change.
//!
//! Owns the judgement; `dormouse_io::probe` looks. Works without a daemon, and without root as far as that goes. What a machine needs
//! depends on the configuration: a gateway forwards, and the ports are those that are configured.

use crate::client::Client;
use crate::render;
use crate::style::Style;
use clap::Args;
use dormouse_control::{Check, CheckOutcome, Error, ErrorKind, ExitCode, Reply, Response, Verb, line};
use dormouse_io::netlink::{self, MAIN, Netlink};
use dormouse_io::{block, forward, privileges, probe, radio, resolver};
use dormouse_node::config;
use dormouse_node::config::block::Blocking;
use dormouse_node::config::file::{Block, Child, Connection, Daemon, File, HipCarrier, Role, Selector};
use dormouse_node::config::forward::Forwarding;
use std::io;
use std::net::{IpAddr, SocketAddr};
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
    let checks = all(&args.config, socket);
    let failed = checks.iter().any(|c| c.outcome == CheckOutcome::Failure);
    if json {
        print!("{}", line(&Response::ok(Reply::Doctor(checks)))?);
    } else {
        print!("{}", render::checks(&checks, Style::stdout()));
    }
    Ok(if failed { ExitCode::Failure } else { ExitCode::Ok })
}

/// All checks.
pub(crate) fn all(config: &Path, socket: &Path) -> Vec<Check> {
    let (mut checks, running) = daemon(socket);
    checks.push(configuration(config));
    let file = written(config);
    checks.extend(machine(running, &file));
    checks.extend(crate::radius::checks(&file));
    checks.extend(crate::cluster::checks(&file));
    checks.extend(crate::gateway::checks(config, &file));
    checks.extend(crate::user::check(config));
    checks
}

/// The daemon's program: beside this one, or on the path.
pub(crate) fn dormoused() -> PathBuf {
    let beside =
        std::env::current_exe().ok().map(|exe| exe.with_file_name("dormoused")).filter(|p| p.exists());
    beside.unwrap_or_else(|| "dormoused".into())
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

/// Networks that are on both sides of a client's tunnel.
fn both_sides(file: &File) -> Option<Check> {
    const NAME: &str = "local networks";
    let clients = file.connection.iter().filter(|(_, c)| c.role == Role::Client);
    let mut netlink = Netlink::new().ok()?;
    let (links, routes) = (netlink.links().ok()?, netlink.routes().ok()?);
    let net = |s: &Selector| if let Selector::Net(net) = s { Some(*net) } else { None };
    let found = clients.flat_map(|(name, c)| {
        let children = || std::iter::once(&c.child).chain(c.children.values());
        let own: Vec<_> = children().flat_map(|child| child.local.iter().filter_map(net)).collect();
        let nets: Vec<_> = children().flat_map(|child| child.remote.iter().filter_map(net)).collect();
        let overlaps = netlink::overlaps(&nets, &own, &file.daemon.interface, &links, &routes);
        overlaps.into_iter().map(move |overlap| format!("{name}: {overlap}"))
    });
    let found: Vec<String> = found.collect();
    (!found.is_empty()).then(|| {
        check(NAME, CheckOutcome::Warning, found.join("; "))
            .advise("narrow child.remote to what is needed behind the gateway, or give one of the two other addresses")
    })
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
    let program = dormoused();
    match Command::new(&program).arg("--config").arg(path).arg("--check").output() {
        Ok(output) if output.status.success() => {
            let said = String::from_utf8_lossy(&output.stdout);
            let warnings: Vec<&str> =
                said.lines().filter_map(|line| line.strip_prefix("warning: ")).collect();
            if warnings.is_empty() {
                return ok(NAME, format!("{shown} is good"));
            }
            check(NAME, CheckOutcome::Warning, format!("{shown}: {}", warnings.join("; ")))
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            check(NAME, CheckOutcome::Failure, format!("{shown}: {}", said.trim()))
        }
        Err(e) => check(NAME, CheckOutcome::Skipped, format!("{} cannot be run: {e}", program.display())),
    }
}

/// What is configured; the defaults where the file cannot be read or is wrong, which [`configuration`] reports.
fn written(path: &Path) -> File {
    std::fs::read_to_string(path).ok().and_then(|text| config::parse(&text).ok()).unwrap_or_default()
}

fn machine(running: bool, file: &File) -> Vec<Check> {
    let mut checks = vec![tun(), capabilities(running), marks(), udp(), clock(), dns()];
    checks.extend(ports(running, file));
    checks.extend(tags(Path::new("/proc/sys"), file));
    checks.push(reverse_path(Path::new("/proc/sys")));
    checks.extend(conntrack(Path::new("/proc/sys")));
    checks.push(network());
    checks.extend(both_sides(file));
    checks.extend(forwarding(Path::new("/proc/sys"), running, file));
    checks.extend(firewall(file));
    checks.push(crate::meter::check(Path::new("/")));
    // A daemon says itself which radio it has, by its configuration, and what leaves in clear.
    if !running {
        checks.push(radio());
        checks.extend(held(file));
    }
    checks
}

/// What is held without a daemon, if anything should be or is.
fn held(file: &File) -> Option<Check> {
    const NAME: &str = "in clear";
    let always = |(name, c): (&String, &Connection)| {
        let b = Blocking::of(c).filter(|b| b.block == Block::Always)?;
        Some((name.clone(), b.carried.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")))
    };
    let always: Vec<(String, String)> = file.connection.iter().filter_map(always).collect();
    let held = match block::held() {
        Ok(held) => held,
        Err(_) if always.is_empty() => return None,
        Err(_) if !nix_root() => {
            return Some(check(NAME, CheckOutcome::Skipped, "only root sees what is held"));
        }
        Err(e) => return Some(check(NAME, CheckOutcome::Failure, e.to_string())),
    };
    let open: Vec<String> = always
        .iter()
        .filter(|(name, _)| !held.contains(name))
        .map(|(n, what)| format!("{n}: {what}"))
        .collect();
    if !open.is_empty() {
        let found = format!("{} (block = \"always\" is not in force)", open.join("; "));
        return Some(
            check(NAME, CheckOutcome::Failure, found).advise("dormoused --block-only, or start dormoused"),
        );
    }
    let left: Vec<&String> = held.iter().filter(|name| !always.iter().any(|(a, _)| a == *name)).collect();
    if let Some(name) = left.first() {
        let found = format!("nothing: a daemon that was killed has left what {name} carries held");
        return Some(
            check(NAME, CheckOutcome::Warning, found).advise("start dormoused; or dormoused --unblock"),
        );
    }
    (!held.is_empty()).then(|| ok(NAME, format!("nothing: held for {}", held.join(", "))))
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
    match privileges::require(privileges::Needed { raw: true, bind: true }) {
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

fn ports(running: bool, file: &File) -> Vec<Check> {
    let Daemon { listen, ike_port, nat_t_port, .. } = &file.daemon;
    let hip = |(name, c): (&String, &Connection)| {
        let port = c.hip.as_ref().filter(|h| h.carriers.contains(&HipCarrier::Udp)).map(|h| h.udp_port)?;
        Some((port, format!("connection.{name}.hip.udp_port")))
    };
    // Without a configuration, what most will have.
    let none = file.connection.is_empty() && file.router.is_none();
    let ike = none || file.connection.values().any(|c| c.role != Role::Hip);
    let keys = [(*ike_port, "daemon.ike_port"), (*nat_t_port, "daemon.nat_t_port")];
    let ike = keys.into_iter().filter(|_| ike).map(|(port, key)| (port, key.to_owned()));
    let all = ike.chain(file.connection.iter().filter_map(hip));
    all.map(|of| port(of, listen, running)).collect()
}

/// HITs are IPv6 addresses of the tunnel interface, also where the network has IPv4 alone.
fn tags(root: &Path, file: &File) -> Option<Check> {
    const NAME: &str = "HITs";
    file.connection.values().find(|c| c.role == Role::Hip)?;
    let switches = ["all", "default"].map(|scope| format!("net.ipv6.conf.{scope}.disable_ipv6"));
    let off = switches
        .into_iter()
        .find(|key| probe::number(&root.join(key.replace('.', "/"))).is_ok_and(|n| n != 0));
    Some(match off {
        Some(key) => check(NAME, CheckOutcome::Failure, format!("{key} is on: interfaces take no HIT"))
            .advise(&format!("sysctl -w {key}=0")),
        None if !root.join("net/ipv6").exists() => {
            check(NAME, CheckOutcome::Failure, "this kernel runs without IPv6: interfaces take no HIT")
                .advise("remove ipv6.disable=1 from the kernel's command line")
        }
        None => ok(NAME, "the tunnel interface can have one"),
    })
}

/// Whether a UDP port of the configuration is free on all addresses that are listened on, or is in use by a daemon of ours.
fn port((port, key): (u16, String), listen: &[IpAddr], running: bool) -> Check {
    let name = format!("UDP port {port}");
    let error = listen.iter().find_map(|ip| probe::udp_port_free(SocketAddr::new(*ip, port)).err());
    match error {
        None => ok(&name, "free"),
        Some(e) if e.kind() == io::ErrorKind::AddrInUse && running => {
            ok(&name, "in use, probably by the daemon")
        }
        Some(e) if e.kind() == io::ErrorKind::AddrInUse => {
            check(&name, CheckOutcome::Failure, "in use by another program")
                .advise(&format!("stop it (ss -lunp shows which), or change {key}"))
        }
        Some(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            check(&name, CheckOutcome::Skipped, "only root can see whether it is free")
        }
        Some(e) => check(&name, CheckOutcome::Failure, e.to_string()),
    }
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

/// A gateway whose clients reach more than itself forwards, in each family of its pools, and an access router forwards IPv4. Nothing is asked
/// of a client.
fn forwarding(root: &Path, running: bool, file: &File) -> Vec<Check> {
    fn children(c: &Connection) -> impl Iterator<Item = &Child> {
        std::iter::once(&c.child).chain(c.children.values())
    }

    let gateways = || file.connection.values().filter(|c| c.role == Role::Gateway);
    let families = [
        ("IPv4 forwarding", "net.ipv4.ip_forward", true),
        ("IPv6 forwarding", "net.ipv6.conf.all.forwarding", false),
    ];
    let needed = |v4: bool| {
        let beyond = |s: &Selector| match s {
            Selector::Net(net) => net.addr().is_ipv4() == v4 && net.prefix_len() < net.max_prefix_len(),
            Selector::Dynamic => false,
        };
        // Who calls: clients with addresses of the pool, or without one a network of its own.
        let callers = |c: &Connection| {
            c.pool.addresses.iter().any(|net| net.addr().is_ipv4() == v4)
                || c.pool.addresses.is_empty() && children(c).any(|child| child.remote.iter().any(beyond))
        };
        let leads = |c: &Connection| callers(c) && children(c).any(|child| child.local.iter().any(beyond));
        (v4 && file.router.is_some()) || gateways().any(leads)
    };
    let by_daemon = |v4: bool| {
        let asks = |c: &Connection| {
            Forwarding::of(c).is_some_and(|f| f.pool.iter().any(|n| n.addr().is_ipv4() == v4))
        };
        gateways().any(asks)
    };
    let look = |(name, key, v4): (&str, &str, bool)| {
        let path = root.join(key.replace('.', "/"));
        needed(v4).then(|| match probe::number(&path) {
            Ok(0) if by_daemon(v4) && !running => {
                check(name, CheckOutcome::Skipped, "off: the daemon switches it on (pool.forward), and does not run")
            }
            Ok(0) => check(
                name,
                CheckOutcome::Failure,
                "off: what clients, or devices of an access router, send to others is dropped",
            )
            .advise(&format!(
                "{key} = 1 in /etc/sysctl.d/60-dormouse.conf, then sysctl --system; or pool.forward for the connection, and a restart"
            )),
            Ok(_) => ok(name, "on"),
            Err(e) => check(name, CheckOutcome::Skipped, format!("{}: {e}", path.display())),
        })
    };
    families.into_iter().filter_map(look).collect()
}

/// At a gateway that is to forward, what the machine's own firewall drops all the same: no rule of ours can let it through. Root alone sees it.
fn firewall(file: &File) -> Option<Check> {
    const NAME: &str = "firewall";
    file.connection.values().find_map(Forwarding::of)?;
    let tunnel = &file.daemon.interface;
    let (port, quoted) = (file.daemon.nat_t_port.to_string(), format!("\"{tunnel}\""));
    let input = forward::closed("input", &[&port, "ipsec-nat-t"]);
    let (mut chains, forwards) = match (input, forward::closed("forward", &[&quoted])) {
        (Ok(input), Ok(forwards)) => (input, forwards),
        (Err(why), _) | (_, Err(why)) => {
            return Some(check(NAME, CheckOutcome::Skipped, format!("not looked at: {why}")));
        }
    };
    let advice = match (chains.first(), forwards.first()) {
        (Some(chain), _) => {
            format!("nft insert rule {chain} udp dport '{{ {}, {port} }}' accept", file.daemon.ike_port)
        }
        (None, Some(chain)) => {
            format!("nft insert rule {chain} iifname {tunnel} accept, and the same with oifname")
        }
        (None, None) => return Some(ok(NAME, "no chain of nftables is known to drop what clients send")),
    };
    chains.extend(forwards);
    let found =
        format!("{} drop what they do not know, and name neither us nor our ports", chains.join(", "));
    Some(
        check(NAME, CheckOutcome::Warning, found)
            .advise(&format!("{advice}; and where the firewall is configured")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `/proc/sys` of a machine that forwards as said, and a gateway with these prefixes.
    fn asked(
        v4: &str,
        v6: &str,
        role: &str,
        local: &str,
        pool: &str,
    ) -> Vec<(String, CheckOutcome, Option<String>)> {
        let root = std::env::temp_dir().join(format!("dormouse-doctor-{}", std::process::id()));
        for (key, value) in [("net/ipv4/ip_forward", v4), ("net/ipv6/conf/all/forwarding", v6)] {
            let path = root.join(key);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, value).unwrap();
        }
        let text = format!(
            "[connection.a]\nrole = \"{role}\"\n[connection.a.local]\nid = \"a\"\n[connection.a.remote]\nid = \"b\"\n\
             [connection.a.child]\nlocal = [{local}]\n[connection.a.pool]\naddresses = [{pool}]\n"
        );
        let found = forwarding(&root, true, &config::parse(&text).unwrap());
        std::fs::remove_dir_all(&root).unwrap();
        found.into_iter().map(|c| (c.name, c.outcome, c.change)).collect()
    }

    #[test]
    fn the_ports_of_the_configuration_are_looked_at() {
        let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let ike = taken.local_addr().unwrap().port();
        let text = format!("[daemon]\nlisten = [\"127.0.0.1\"]\nike_port = {ike}\nnat_t_port = 0\n");
        let of = |text: &str, running| {
            let found = ports(running, &config::parse(text).unwrap());
            let named = |c: &Check| c.change.as_ref().is_none_or(|c| c.contains("_port"));
            assert!(found.iter().all(named), "{found:?}");
            found.into_iter().map(|c| (c.name, c.outcome)).collect::<Vec<_>>()
        };
        let free = ("UDP port 0".to_owned(), CheckOutcome::Ok);
        let held = |outcome| (format!("UDP port {ike}"), outcome);
        assert_eq!(of(&text, false), [held(CheckOutcome::Failure), free.clone()]);
        assert_eq!(of(&text, true), [held(CheckOutcome::Ok), free]);
        let hip = format!(
            "[daemon]\nlisten = [\"127.0.0.1\"]\n[connection.a]\nrole = \"hip\"\n[connection.a.hip]\nkey = \"k\"\n\
             carriers = [\"udp\"]\nudp_port = {ike}\n"
        );
        assert_eq!(of(&hip, false), [held(CheckOutcome::Failure)]);
        assert_eq!(of(&hip.replace("[\"udp\"]", "[\"ip\"]"), false), []);
    }

    #[test]
    fn a_host_of_hip_needs_ipv6_inside() {
        let root = std::env::temp_dir().join(format!("dormouse-doctor-hip-{}", std::process::id()));
        let hip = config::parse("[connection.a]\nrole = \"hip\"\n[connection.a.hip]\nkey = \"k\"\n").unwrap();
        let outcome = || tags(&root, &hip).map(|c| c.outcome);
        assert_eq!(tags(&root, &File::default()), None);
        assert_eq!(outcome(), Some(CheckOutcome::Failure));
        for (value, wanted) in [("1", CheckOutcome::Failure), ("0", CheckOutcome::Ok)] {
            let path = root.join("net/ipv6/conf/all");
            std::fs::create_dir_all(&path).unwrap();
            std::fs::write(path.join("disable_ipv6"), value).unwrap();
            assert_eq!(outcome(), Some(wanted));
        }
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_gateway_must_forward_in_each_family_of_its_pool_and_a_client_in_none() {
        let (all, both) = ("\"0.0.0.0/0\", \"::/0\"", "\"10.10.0.0/24\", \"fd10::/64\"");
        let found = asked("0\n", "1\n", "gateway", all, both);
        let [four, six] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((four.1, six.1), (CheckOutcome::Failure, CheckOutcome::Ok));
        assert!(
            four.2.as_ref().unwrap().starts_with("net.ipv4.ip_forward = 1 in /etc/sysctl.d/"),
            "{four:?}"
        );
        let found = asked("1\n", "0\n", "gateway", all, both);
        let [four, six] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((four.1, six.1), (CheckOutcome::Ok, CheckOutcome::Failure));
        assert!(six.2.as_ref().unwrap().starts_with("net.ipv6.conf.all.forwarding = 1 in"), "{six:?}");
        let found = asked("0\n", "0\n", "gateway", all, "\"10.10.0.0/24\"");
        assert_eq!(found.len(), 1, "IPv6 is not asked of a pool without it: {found:?}");
        let found = asked("0\n", "0\n", "gateway", "\"10.1.1.1/32\"", both);
        assert!(found.is_empty(), "clients reach the gateway alone: {found:?}");
        assert!(asked("0\n", "0\n", "client", all, "").is_empty());
        let found = asked("0\n", "0\n", "gateway", "\"10.1.0.0/16\"]\nremote = [\"10.2.0.0/16\"", "");
        assert_eq!(found.len(), 1, "two sites, without a pool: {found:?}");
        let further = "\"10.1.1.1/32\"]\n[connection.a.children.lab]\nlocal = [\"10.3.0.0/16\"";
        assert_eq!(asked("0\n", "0\n", "gateway", further, both).len(), 1, "a further child leads on");
        let router = config::parse("[router]\ndevice = \"a\"\nnetwork = \"b\"\n").unwrap();
        let found = forwarding(Path::new("/nowhere"), true, &router);
        assert_eq!(found.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["IPv4 forwarding"]);
    }
}

//! What is compared: each subject with its two hosts. Owns how every one of them is configured: ours as it ships, and with the one
//! setting that its name says; strongSwan as fast as it goes, with AES-128-GCM and ESP in UDP. The outer MTU is 1500.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dormouse_interop::strongswan::StrongSwan;
use dormouse_testbed::hip::Identity;
use dormouse_testbed::wireguard::{self, WireguardGo};
use dormouse_testbed::{Dormoused, Host, Process, Testbed, binary};

/// The outer addresses, the same for every subject.
const OUTER: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
const OUTER_V6: [&str; 2] = ["fd77::1", "fd77::2"];
/// The two ends of the tunnel.
const INNER: [&str; 2] = ["10.88.1.1", "10.88.2.1"];
/// The client's pool and the gateway's own address.
const INSIDE: [&str; 2] = ["10.88.1.0/24", INNER[1]];
/// The same where packets inside are IPv6.
const INNER_V6: [&str; 2] = ["fd88:1::/64", "fd88:2::1"];
const SECRET: &str = "benchmark-pre-shared-key-0123456789";

/// What a subject is. The order is that of the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    /// No tunnel at all.
    Veth,
    /// Our data path without cryptography (`crates/io/examples/forward.rs`).
    Plaintext,
    /// Our daemons with IKEv2, all settings at their defaults.
    Dormouse,
    /// The same with ESP as IP protocol 50.
    Raw,
    /// The same with AES-256-GCM.
    Aes256,
    /// The same with ChaCha20-Poly1305.
    ChaCha,
    /// The same with AES-128-CBC and HMAC-SHA-256.
    Cbc,
    /// The same with IPv6 outside.
    OverV6,
    /// The same with IPv6 inside, as between HITs.
    InsideV6,
    /// The same with the client's `block`, which HIP has by default at both ends.
    Blocked,
    /// The same in transport mode, between the outer addresses.
    Transport,
    /// Our daemons with HIP, all settings at their defaults.
    Hip,
    /// The same with ESP as IP protocol 50.
    HipRaw,
    /// The wireguard-go of today, which `scripts/bench` builds with Go.
    WireguardGoNew,
    /// Debian's wireguard-go.
    WireguardGo,
    /// Debian's strongSwan with kernel-libipsec.
    StrongSwan,
}

/// All of them.
pub(crate) const KINDS: [Kind; 16] = [
    Kind::Dormouse,
    Kind::Raw,
    Kind::OverV6,
    Kind::InsideV6,
    Kind::Blocked,
    Kind::Transport,
    Kind::Hip,
    Kind::HipRaw,
    Kind::Aes256,
    Kind::ChaCha,
    Kind::Cbc,
    Kind::Plaintext,
    Kind::Veth,
    Kind::WireguardGoNew,
    Kind::WireguardGo,
    Kind::StrongSwan,
];

impl Kind {
    /// The name in the table and on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Veth => "veth",
            Self::Plaintext => "plaintext-forwarding",
            Self::Dormouse => "dormouse",
            Self::Raw => "dormouse-raw-esp",
            Self::Aes256 => "dormouse-aes256gcm",
            Self::ChaCha => "dormouse-chacha20poly1305",
            Self::Cbc => "dormouse-aes128cbc-sha256",
            Self::OverV6 => "dormouse-over-ipv6",
            Self::InsideV6 => "dormouse-ipv6-inside",
            Self::Blocked => "dormouse-ipv6-inside-block",
            Self::Transport => "dormouse-transport",
            Self::Hip => "dormouse-hip",
            Self::HipRaw => "dormouse-hip-raw-esp",
            Self::WireguardGoNew => "wireguard-go-new",
            Self::WireguardGo => "wireguard-go",
            Self::StrongSwan => "strongswan-libipsec",
        }
    }

    /// Letters for the hosts' names.
    const fn tag(self) -> &'static str {
        match self {
            Self::Veth => "v",
            Self::Plaintext => "p",
            Self::Dormouse => "d",
            Self::Raw => "r",
            Self::Aes256 => "g",
            Self::ChaCha => "c",
            Self::Cbc => "b",
            Self::OverV6 => "6",
            Self::InsideV6 => "j",
            Self::Blocked => "k",
            Self::Transport => "t",
            Self::Hip => "h",
            Self::HipRaw => "i",
            Self::WireguardGoNew => "n",
            Self::WireguardGo => "w",
            Self::StrongSwan => "s",
        }
    }
}

/// The daemons of a subject: dropped, they end.
enum Daemons {
    None,
    Processes(Vec<Process>),
    Wireguard(Vec<WireguardGo>),
    Dormouse(Vec<Dormoused>),
    StrongSwan(Vec<StrongSwan>),
}

/// A subject that runs.
pub(crate) struct Subject {
    pub(crate) kind: Kind,
    /// Sends.
    pub(crate) left: Host,
    /// Receives.
    pub(crate) right: Host,
    /// Where `left` reaches `right` through the tunnel.
    pub(crate) target: IpAddr,
    /// Process ids of its daemons.
    pub(crate) pids: Vec<u32>,
    /// Listens on `right`.
    _iperf: Process,
    _daemons: Daemons,
}

impl Subject {
    /// Makes two hosts and a tunnel between them.
    pub(crate) fn start(bed: &mut Testbed, kind: Kind) -> Result<Self> {
        let left = bed.host(&format!("{}a", kind.tag()))?;
        let right = bed.host(&format!("{}b", kind.tag()))?;
        let nets = |i: usize| [format!("{}/24", OUTER[i]), format!("{}/64", OUTER_V6[i])];
        let [a, b] = [nets(0), nets(1)];
        bed.link((&left, "eth0", &[&a[0], &a[1]]), (&right, "eth0", &[&b[0], &b[1]]))?;
        let ends = [&left, &right];
        for end in ends {
            // A socket that began with BBR goes on pacing by a timer when iperf3 gives it another congestion control.
            end.sysctl("net.ipv4.tcp_congestion_control", "reno")?;
        }
        let mut target: IpAddr = INNER[1].parse()?;
        let mut daemons = match kind {
            Kind::Veth => {
                target = OUTER[1].parse()?;
                Daemons::None
            }
            Kind::Plaintext => Daemons::Processes(forwarding(ends)?),
            Kind::Dormouse => Daemons::Dormouse(dormouse(ends, OUTER, INSIDE, [""; 2])?),
            Kind::Raw => Daemons::Dormouse(dormouse(ends, OUTER, INSIDE, ["ike.esp_in_udp = \"nat\""; 2])?),
            Kind::Aes256 => {
                Daemons::Dormouse(dormouse(ends, OUTER, INSIDE, ["child.proposals = [\"aes256gcm16\"]"; 2])?)
            }
            Kind::ChaCha => {
                let setting = "child.proposals = [\"chacha20poly1305\"]";
                Daemons::Dormouse(dormouse(ends, OUTER, INSIDE, [setting; 2])?)
            }
            Kind::Cbc => Daemons::Dormouse(dormouse(
                ends,
                OUTER,
                INSIDE,
                ["child.proposals = [\"aes128-sha256\"]"; 2],
            )?),
            Kind::OverV6 => Daemons::Dormouse(dormouse(ends, OUTER_V6, INSIDE, [""; 2])?),
            Kind::InsideV6 | Kind::Blocked => {
                target = INNER_V6[1].parse()?;
                let block = if kind == Kind::Blocked { "block = \"connected\"" } else { "" };
                Daemons::Dormouse(dormouse(ends, OUTER, INNER_V6, [block, ""])?)
            }
            Kind::Transport => {
                target = OUTER[1].parse()?;
                Daemons::Dormouse(transport(ends)?)
            }
            Kind::Hip | Kind::HipRaw => {
                let setting = if kind == Kind::HipRaw { "esp_in_udp = \"nat\"" } else { "" };
                let (daemons, hit) = hip(ends, setting)?;
                target = hit;
                Daemons::Dormouse(daemons)
            }
            Kind::WireguardGoNew => {
                let program = binary("wireguard-go-new");
                ensure!(program.is_file(), "scripts/bench makes it, where there is Go");
                Daemons::Wireguard(wireguard(ends, &program)?)
            }
            Kind::WireguardGo => Daemons::Wireguard(wireguard(ends, Path::new("wireguard-go"))?),
            Kind::StrongSwan => Daemons::StrongSwan(strongswan(ends)?),
        };
        let pids = match &mut daemons {
            Daemons::None => Vec::new(),
            Daemons::Processes(all) => all.iter().map(Process::pid).collect(),
            Daemons::Wireguard(all) => all.iter().map(|end| end.process().pid()).collect(),
            Daemons::Dormouse(all) => all.iter_mut().map(|d| d.process().pid()).collect(),
            Daemons::StrongSwan(all) => all.iter_mut().map(|s| s.process().pid()).collect(),
        };
        left.eventually(&format!("ping -c 1 -W 1 {target}"), Duration::from_secs(10))
            .with_context(|| format!("nothing passes: {}", log(&daemons)))?;
        let mut iperf = right.spawn("iperf3", "iperf3", &["-s", "--forceflush"])?;
        iperf.wait_for("listening", Duration::from_secs(5))?;
        Ok(Self { kind, left, right, target, pids, _iperf: iperf, _daemons: daemons })
    }
}

/// What the daemons have to say, for an error.
fn log(daemons: &Daemons) -> String {
    let logs: Vec<String> = match daemons {
        Daemons::None => Vec::new(),
        Daemons::Processes(all) => all.iter().map(Process::log).collect(),
        Daemons::Wireguard(all) => all.iter().map(|end| end.process().log()).collect(),
        Daemons::Dormouse(all) => all.iter().map(Dormoused::log).collect(),
        Daemons::StrongSwan(all) => all.iter().map(StrongSwan::log_tail).collect(),
    };
    logs.join("\n")
}

/// What `dormoused` gives its tunnel interface. Forwarding without a tunnel has the same, so that it carries the same packets:
/// left alone it would take longer ones, and the comparison would be of their lengths as well.
pub(crate) const TUNNEL_MTU: u16 = 1_400;

fn forwarding(ends: [&Host; 2]) -> Result<Vec<Process>> {
    let program = binary("examples/forward");
    ensure!(program.is_file(), "cargo build --release -p dormouse-io --example forward makes it");
    let mut all = Vec::new();
    for (i, end) in ends.into_iter().enumerate() {
        let [own, peer] = [i, 1 - i].map(|i| format!("{}:4500", OUTER[i]));
        all.push(end.spawn("forward", &program, &["--plain", ["a", "b"][i], "tun0", &own, &peer])?);
    }
    for (i, end) in ends.into_iter().enumerate() {
        end.eventually("ip link show dev tun0", Duration::from_secs(5)).with_context(|| all[i].log())?;
        end.ip(&format!("addr add {} peer {} dev tun0", INNER[i], INNER[1 - i]))?;
        end.ip(&format!("link set dev tun0 mtu {TUNNEL_MTU} up"))?;
    }
    Ok(all)
}

/// With a line of the connection at the client and one at the gateway; `inside` is the client's pool and the gateway's own address.
fn dormouse(
    ends: [&Host; 2],
    outer: [&str; 2],
    [pool, server]: [&str; 2],
    settings: [&str; 2],
) -> Result<Vec<Dormoused>> {
    let mut all = Vec::new();
    // The gateway first: the client calls it.
    let server = format!("{server}/{}", if server.contains(':') { 128 } else { 32 });
    ends[1].ip(&format!("addr add {server} dev lo"))?;
    for i in [1, 0] {
        let (role, child) = match i {
            0 => (
                format!("role = \"client\"\ngateway = \"{}\"\nauto = true", outer[1]),
                format!("child.remote = [\"{server}\"]"),
            ),
            _ => (
                format!("role = \"gateway\"\npool.addresses = [\"{pool}\"]"),
                format!("child.local = [\"{server}\"]\nchild.remote = [\"dynamic\"]"),
            ),
        };
        let toml = format!(
            "[connection.bench]\n{role}\n{child}\n{}\n\
             [connection.bench.local]\nid = \"end{i}.bench\"\nsecret = \"{SECRET}\"\n\
             [connection.bench.remote]\nid = \"end{}.bench\"\n",
            settings[i],
            1 - i,
        );
        all.push(Dormoused::start(ends[i], "dns = \"off\"", &toml)?);
    }
    Ok(all)
}

/// Everything between the outer addresses is protected.
fn transport(ends: [&Host; 2]) -> Result<Vec<Dormoused>> {
    let start = |i: usize| {
        let role = ["role = \"client\"\ngateway = \"10.77.0.2\"\nauto = true", "role = \"gateway\""][i];
        let toml = format!(
            "[connection.bench]\n{role}\nchild.mode = \"transport\"\n\
             [connection.bench.local]\nid = \"end{i}.bench\"\nsecret = \"{SECRET}\"\n\
             [connection.bench.remote]\nid = \"end{}.bench\"\n",
            1 - i,
        );
        Dormoused::start(ends[i], "dns = \"off\"", &toml)
    };
    let gateway = start(1)?;
    let client = start(0)?;
    client.ok(&["wait", "bench"])?;
    Ok(vec![gateway, client])
}

/// The tag of the second end, besides.
fn hip(ends: [&Host; 2], setting: &str) -> Result<(Vec<Dormoused>, IpAddr)> {
    let keys = [Identity::new(ends[0], "ecdsa-p256")?, Identity::new(ends[1], "ecdsa-p256")?];
    let start = |i: usize| {
        let toml = keys[i].facing(&keys[1 - i], OUTER[1 - i], setting);
        Dormoused::start(ends[i], "dns = \"off\"", &toml)
    };
    Ok((vec![start(1)?, start(0)?], keys[1].hit.into()))
}

fn wireguard(ends: [&Host; 2], program: &Path) -> Result<Vec<WireguardGo>> {
    // The control sockets of all namespaces share a directory.
    let names = ends.map(|end| format!("wg{}", end.netns().rsplit('-').next().unwrap_or_default()));
    let names = names.map(|name| format!("{name}{}", std::process::id() % 100_000));
    let all = ends.iter().zip(&names).map(|(end, name)| WireguardGo::start(end, program, name));
    let all = all.collect::<Result<_>>()?;
    wireguard::connect(ends, [&names[0], &names[1]], OUTER)?;
    for (i, (end, name)) in ends.iter().zip(&names).enumerate() {
        end.ip(&format!("addr add {} peer {} dev {name}", INNER[i], INNER[1 - i]))?;
        end.ip(&format!("link set dev {name} mtu 1420 up"))?;
    }
    Ok(all)
}

fn strongswan(ends: [&Host; 2]) -> Result<Vec<StrongSwan>> {
    let plugin = "/usr/lib/ipsec/plugins/libstrongswan-kernel-libipsec.so";
    ensure!(fs::exists(plugin)?, "there is no {plugin}: package libcharon-extra-plugins");
    let mut all = Vec::new();
    for (i, end) in ends.into_iter().enumerate() {
        end.ip(&format!("addr add {}/32 dev lo", INNER[i]))?;
        let conf = format!(
            "connections {{ bench {{\n version = 2\n remote_addrs = {}\n proposals = aes128gcm16-prfsha256-x25519\n\
             local {{ auth = psk\n id = end{i}.bench\n }}\n remote {{ auth = psk\n id = end{}.bench\n }}\n\
             children {{ net {{\n local_ts = {}/32\n remote_ts = {}/32\n esp_proposals = aes128gcm16\n rekey_time = 0\n }} }}\n}} }}\n\
             secrets {{ ike-1 {{ secret = {SECRET}\n }} }}\n",
            OUTER[1 - i],
            1 - i,
            INNER[i],
            INNER[1 - i],
        );
        all.push(StrongSwan::start(end, None, &conf, &[], "")?);
    }
    let Some(caller) = all.first() else { bail!("no daemons") };
    caller.ctl(&["--initiate", "--child", "net"])?;
    Ok(all)
}

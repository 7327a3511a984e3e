//! One transfer: its hosts, their TCP, the radio, and the tunnel if there is one. Owns all of it, and takes all of it away.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, Result};
use dormouse_netem::LinkConfig;
use dormouse_snoop::Repair;
use dormouse_testbed::zones::{self, Zones};
use dormouse_testbed::{Dormoused, Host, radio};

use super::campaign::{Line, Point, Stack};
use crate::link::{ADDRESSES, Link, Settings, esp_arq};
use crate::results::Figures;

/// The radio of the paper, in bits in a second.
const RATE: u64 = 2_000_000;
/// The round trip of the paper is 100 ms: nearly all of it on the wire.
const WIRE_DELAY: Duration = Duration::from_millis(48);
const RADIO_DELAY: Duration = Duration::from_millis(2);
/// 50 packets: the paper says so of SNOOP's buffer, and nothing of the queue.
const QUEUE: usize = 75_000;
/// A transfer without a byte for so long has failed. Linux doubles its timer up to two minutes.
const LIMIT: Duration = Duration::from_secs(300);
/// The fixed host's address inside of every tunnel.
const INNER: &str = zones::INNER[0];

/// What the TCP of the paper does not have, and its window of 64 KB.
const OF_THE_PAPER: [(&str, &str); 7] = [
    ("tcp_sack", "0"),
    ("tcp_timestamps", "0"),
    ("tcp_window_scaling", "0"),
    ("tcp_recovery", "0"),
    ("tcp_early_retrans", "0"),
    ("tcp_frto", "0"),
    ("tcp_rmem", "4096 131072 131072"),
];

/// Carries a file over the radio of `point`.
///
/// # Errors
/// If it does not arrive whole.
pub(super) fn transfer(point: &Point, bytes: u64, seed: u64, stop: &Arc<AtomicBool>) -> Result<Figures> {
    let bit_error_rate = if point.kbit == 0 { 0.0 } else { 1.0 / (f64::from(point.kbit) * 1_024.0) };
    let radio = LinkConfig {
        rate: Some(RATE),
        delay: RADIO_DELAY,
        queue: QUEUE,
        bit_error_rate,
        ..LinkConfig::default()
    };
    let (repair, restore) = match point.line {
        Line::Tcp | Line::Ipsec | Line::Mml => (Repair::None, None),
        Line::Snoop => (Repair::Snoop(Box::default()), None),
        Line::MmlSnoop => (Repair::Snoop(Box::new(Zones::snoop()?)), None),
        Line::EspArq => esp_arq(),
    };
    let link = Link::start(Settings { wire_delay: WIRE_DELAY, radio, seed, repair, restore })?;
    for host in [&link.fixed, &link.device] {
        let keys = if point.stack == Stack::Reno { &OF_THE_PAPER[..] } else { &[] };
        keys.iter().try_for_each(|(key, value)| host.sysctl(&format!("net.ipv4.{key}"), value))?;
    }
    let tunnel = match point.line {
        Line::Tcp | Line::Snoop => None,
        Line::Ipsec | Line::EspArq => Some(Tunnel::Daemons { _ends: Box::new(daemons(&link)?) }),
        Line::Mml | Line::MmlSnoop => Some(Tunnel::Zones { _ends: Zones::start(&link.fixed, &link.device)? }),
    };
    let address: IpAddr = if tunnel.is_some() { INNER.parse()? } else { ADDRESSES[0][0].parse()? };
    let congestion = point.stack.congestion();
    let done = radio::transfer(&link.fixed, &link.device, address, congestion, bytes, LIMIT, stop)?;
    let sent_again = retransmitted(&link.fixed)?;
    drop(tunnel);
    let report = link.stop()?;
    Ok(Figures::default()
        .with("rate", done.rate())
        .with("broken", report.to_device.corrupted as f64)
        .with("repeated", report.repair.map_or(0.0, |repair| repair.repeated() as f64))
        .with("sent_again", sent_again))
}

/// What carries packets over the radio, until it is dropped.
enum Tunnel {
    Daemons { _ends: Box<[Dormoused; 2]> },
    Zones { _ends: Zones },
}

/// Daemons at both ends: the fixed host is the gateway, and what it serves is an address of its own.
fn daemons(link: &Link) -> Result<[Dormoused; 2]> {
    link.fixed.ip(&format!("addr add {INNER}/32 dev lo"))?;
    let end = |role: &str, own: &str, peer: &str| {
        let secret = "secret = \"paper 003, which everyone may read\"";
        format!(
            "[connection.air]\nrole = \"{role}\"\n{}\n[connection.air.local]\nid = \"{own}\"\n{secret}\n\
             [connection.air.remote]\nid = \"{peer}\"\n{secret}\n",
            if role == "client" { format!("gateway = \"{}\"", ADDRESSES[0][0]) } else { String::new() }
        )
    };
    let gateway = end("gateway", "fixed.test", "*.test")
        + &format!(
            "[connection.air.child]\nlocal = [\"{INNER}/32\"]\nremote = [\"dynamic\"]\n\
             [connection.air.pool]\naddresses = [\"10.55.0.0/24\"]\n"
        );
    let device = end("client", "device.test", "fixed.test")
        + &format!("[connection.air.child]\nremote = [\"{INNER}/32\"]\n");
    let gateway = Dormoused::start(&link.fixed, "dns = \"off\"", &gateway)?;
    let device = Dormoused::start(&link.device, "dns = \"off\"", &device)?;
    device.ok(&["up", "air"])?;
    Ok([gateway, device])
}

/// Segments that a host's TCP has sent again.
fn retransmitted(host: &Host) -> Result<f64> {
    let text = host.sh("cat /proc/net/snmp")?;
    let mut lines = text.lines().filter_map(|l| l.strip_prefix("Tcp: ")).map(str::split_whitespace);
    let (heads, values) = lines.next().zip(lines.next()).context("/proc/net/snmp")?;
    let found = heads.zip(values).find(|(head, _)| *head == "RetransSegs");
    found.and_then(|(_, value)| value.parse().ok()).context("no RetransSegs in /proc/net/snmp")
}

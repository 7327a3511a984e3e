//! One transfer: its hosts, their TCP, the radio, and the tunnel if there is one. Owns all of it, and takes all of it away.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, Result};
use dormouse_netem::LinkConfig;
use dormouse_testbed::Host;
use dormouse_testbed::radio::{Seen, Transfer};
use dormouse_testbed::repaired::{Repair, Repaired, Settings, Tunnel};

use super::campaign::{Line, Point, Stack, TRACED};
use crate::results::Figures;

/// The radio of the paper, in bits in a second.
const RATE: u64 = 2_000_000;
/// The round trip of the paper is 100 ms: nearly all of it on the wire.
const WIRE_DELAY: Duration = Duration::from_millis(48);
const RADIO_DELAY: Duration = Duration::from_millis(2);
/// What the radio itself holds, in bytes: 50 packets, as the paper says of SNOOP's buffer. Towards the device they wait in the router's daemon.
const QUEUE: usize = 75_000;
/// Sidekick's path (NSDI 2024): what is behind the lossy hop carries 10 Mbit/s and takes 25 ms, each way.
const SIDEKICK_RATE: u64 = 10_000_000;
const SIDEKICK_DELAY: Duration = Duration::from_millis(25);
/// Twice what the way holds, in bytes.
const SIDEKICK_QUEUE: usize = 130_000;
/// The lossy hop is faster, so that nothing waits there; in bits in a second, and bytes.
const SIDEKICK_RADIO_RATE: u64 = 100_000_000;
const SIDEKICK_RADIO_DELAY: Duration = Duration::from_millis(1);
const SIDEKICK_RADIO_QUEUE: usize = 1_000_000;
/// A transfer without a byte for so long has failed. Linux doubles its timer up to two minutes.
const LIMIT: Duration = Duration::from_secs(300);

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
pub(super) fn transfer(
    point: &Point,
    round: u32,
    bytes: u64,
    seed: u64,
    stop: &Arc<AtomicBool>,
) -> Result<Figures> {
    let (tunnel, repair) = world(point);
    let [wire, radio] = links(point);
    let rate_kbit = u32::try_from(radio.rate.unwrap_or(0) / 1_000)?;
    let settings = Settings { tunnel, repair, rate_kbit, wire, radio, seed, daemon: String::new() };
    let world = Repaired::start(&settings)?;
    let [gateway, _, device] = &world.hosts;
    for host in [gateway, device] {
        let keys = if point.stack == Stack::Reno { &OF_THE_PAPER[..] } else { &[] };
        keys.iter().try_for_each(|(key, value)| host.sysctl(&format!("net.ipv4.{key}"), value))?;
    }
    if tunnel == (Tunnel::Zoned { trusted: true }) {
        world.keys(1)?;
    }
    let (done, did) = world.fetch(point.stack.congestion(), bytes, LIMIT, stop)?;
    let sent = if point.every.is_some() { world.sent()? } else { None };
    let sent_again = retransmitted(gateway)?;
    let [to_device, _] = world.stop()?;
    let figures = Figures::default()
        .with("rate", done.rate())
        .with("broken", (to_device.corrupted + to_device.lost) as f64)
        .with("repeated", did.repeated as f64)
        .with("sent_again", sent_again)
        .with("mean_window", done.mean_window());
    let figures = match sent {
        Some(sent) => figures.with("zoned", sent.zoned as f64 / sent.packets as f64),
        None => figures,
    };
    Ok(if round == 1 && point.kbit == TRACED { traced(figures, &done) } else { figures })
}

/// With how far the sender was at which time.
fn traced(figures: Figures, done: &Transfer) -> Figures {
    let each = |of: fn(&Seen) -> f64| done.trace.iter().map(of);
    figures
        .with_all("at", each(|seen| seen.at.as_secs_f64()))
        .with_all("acked", each(|seen| seen.info.acked as f64))
        .with_all("window", each(|seen| f64::from(seen.info.window)))
}

/// Wire and radio of a point.
fn links(point: &Point) -> [LinkConfig; 2] {
    let link = |rate, delay, queue| LinkConfig { rate, delay, queue, ..LinkConfig::default() };
    if let Some(loss) = point.loss {
        let wire = link(Some(SIDEKICK_RATE), SIDEKICK_DELAY, SIDEKICK_QUEUE);
        let radio = link(Some(SIDEKICK_RADIO_RATE), SIDEKICK_RADIO_DELAY, SIDEKICK_RADIO_QUEUE);
        return [wire, LinkConfig { loss: f64::from(loss) / 100.0, ..radio }];
    }
    let wire = link(None, WIRE_DELAY, usize::MAX);
    let bit_error_rate = if point.kbit == 0 { 0.0 } else { 1.0 / (f64::from(point.kbit) * 1_024.0) };
    [wire, LinkConfig { bit_error_rate, ..link(Some(RATE), RADIO_DELAY, QUEUE) }]
}

/// What the daemons of a line do.
const fn world(point: &Point) -> (Tunnel, Repair) {
    match point.line {
        Line::Tcp => (Tunnel::None, Repair::None),
        Line::Snoop => (Tunnel::None, Repair::Snoop),
        Line::Ipsec => (Tunnel::Whole, Repair::None),
        Line::Mml => (Tunnel::Zoned { trusted: false }, Repair::None),
        Line::MmlSnoop => (Tunnel::Zoned { trusted: true }, Repair::Snoop),
        Line::EspArq => (Tunnel::Zoned { trusted: true }, Repair::EspArq),
        Line::Dynamic => {
            let every = match point.every {
                Some(every) => every,
                None => 1,
            };
            (Tunnel::Shared { every }, Repair::None)
        }
    }
}

/// Segments that a host's TCP has sent again.
fn retransmitted(host: &Host) -> Result<f64> {
    let text = host.sh("cat /proc/net/snmp")?;
    let mut lines = text.lines().filter_map(|l| l.strip_prefix("Tcp: ")).map(str::split_whitespace);
    let (heads, values) = lines.next().zip(lines.next()).context("/proc/net/snmp")?;
    let found = heads.zip(values).find(|(head, _)| *head == "RetransSegs");
    found.and_then(|(_, value)| value.parse().ok()).context("no RetransSegs in /proc/net/snmp")
}

//! What is measured about the protection of packets (`dormouse bench`): the axes of a point, and its figures. Owns this vocabulary;
//! must never know a file.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::{Deserialize, Serialize};

use super::format::{Figures, Sample, paired};

/// Bytes of a file that is downloaded, at most.
pub const MAX_FILE: u64 = 100_000_000_000;

/// Seconds it took.
pub const ELAPSED: &str = "elapsed";
/// Bytes a second that arrived intact (or were sealed, or opened), in the sense of [`Point::unit`].
pub const THROUGHPUT: &str = "throughput";
/// Nanoseconds of CPU for each such byte, of the program's own threads.
pub const CPU_THREAD: &str = "cpu_thread";
/// Nanoseconds of CPU for each such byte, of the rest of the system, over what it takes when idle: kernel, interrupts.
pub const CPU_SYSTEM: &str = "cpu_system";
/// Between two machines: the same as [`CPU_THREAD`], on the far one.
pub const FAR_CPU_THREAD: &str = "far_cpu_thread";
/// Between two machines: the same as [`CPU_SYSTEM`], on the far one.
pub const FAR_CPU_SYSTEM: &str = "far_cpu_system";
/// Joules for each such byte, above the idle machine's.
pub const JOULES_PER_BYTE: &str = "joules_per_byte";
/// Joules above the idle machine's, for the whole round.
pub const JOULES: &str = "joules";
/// Packets that were sent.
pub const PACKETS_SENT: &str = "packets_sent";
/// Packets that arrived intact.
pub const PACKETS_RECEIVED: &str = "packets_received";
/// Part of the packets that did not arrive.
pub const LOSS: &str = "loss";
/// Jitter: the mean deviation of RFC 3550, section 6.4.1.
pub const JITTER: &str = "jitter";

/// What was measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// The cryptography of ESP alone, in memory.
    Crypto,
    /// The whole way of a packet: TUN, ESP, socket.
    Path,
    /// A UDP stream at a given rate (paper 001).
    Stream,
    /// A file over TCP (paper 004).
    Download,
    /// A file over TLS.
    Tls,
}

/// Who did the work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// This program.
    #[default]
    Dormouse,
    /// The kernel's ESP (xfrm).
    Kernel,
    /// The kernel's WireGuard.
    Wireguard,
    /// WireGuard in user space, by wireguard-go.
    WireguardGo,
    /// rustls.
    Rustls,
    /// The link without any protection.
    Plain,
}

/// How packets are wrapped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encapsulation {
    /// Not at all.
    #[default]
    None,
    /// ESP in tunnel mode over IP.
    Tunnel,
    /// ESP in transport mode over IP.
    Transport,
    /// ESP in tunnel mode in UDP (RFC 3948).
    Udp,
    /// ESP in transport mode in UDP.
    UdpTransport,
}

impl What {
    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Crypto => "cryptography alone",
            Self::Path => "whole path",
            Self::Stream => "UDP streams",
            Self::Download => "downloads",
            Self::Tls => "TLS",
        }
    }
}

impl Encapsulation {
    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::None => "no encapsulation",
            Self::Tunnel => "tunnel",
            Self::Transport => "transport",
            Self::Udp => "tunnel in UDP",
            Self::UdpTransport => "transport in UDP",
        }
    }

    /// Whether the inner IP header is left off.
    #[must_use]
    pub const fn is_transport(self) -> bool {
        matches!(self, Self::Transport | Self::UdpTransport)
    }
}

/// Which way the bytes went, seen from the measured end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Sealed or sent.
    Out,
    /// Opened or received.
    In,
    /// Both ends are in the figures.
    #[default]
    Both,
}

impl Direction {
    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Out => "out",
            Self::In => "in",
            Self::Both => "both ways",
        }
    }
}

/// What a byte in the figures is a byte of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// The packets that go into the tunnel, their IP headers included.
    #[default]
    Packet,
    /// What the application gets: the payload of UDP, or the file.
    Payload,
}

/// A point: everything that is held fixed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Point {
    /// What is measured.
    pub what: What,
    /// Who does the work.
    #[serde(default)]
    pub engine: Engine,
    /// The algorithms as a proposal names them, integrity included: `aes128gcm16`, `aes128-sha1`, `null-sha256`, `none`; for
    /// TLS the version and the cipher: `tls13-aes128gcm`.
    pub suite: String,
    /// The integrity algorithm; absent where the cipher brings its own or there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub integrity: Option<String>,
    /// Bits of the cipher's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_bits: Option<u32>,
    /// Bytes of a packet, in the sense of `unit`: the inner IP packet, or the payload of a datagram. For downloads the MTU
    /// inside the tunnel.
    pub packet_bytes: u32,
    /// Processors that the measured end may use.
    pub cores: u32,
    /// Whether the processor's AES instructions are in use; absent where the processor has none, or the suite no AES.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aes_instructions: Option<bool>,
    /// How packets are wrapped.
    #[serde(default)]
    pub encapsulation: Encapsulation,
    /// The governor, where one is set or known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// Which way.
    #[serde(default)]
    pub direction: Direction,
    /// What a byte is a byte of.
    #[serde(default)]
    pub unit: Unit,
    /// Streams: bits per second that are offered, of payload; absent means as fast as possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<f64>,
    /// Downloads: bytes of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
}

impl Point {
    /// The usual one; the rest is set by name.
    #[must_use]
    pub fn new(what: What, suite: &str, packet_bytes: u32, cores: u32) -> Self {
        Self {
            what,
            engine: Engine::default(),
            suite: suite.to_owned(),
            integrity: None,
            key_bits: None,
            packet_bytes,
            cores,
            aes_instructions: None,
            encapsulation: Encapsulation::default(),
            governor: None,
            direction: Direction::default(),
            unit: Unit::default(),
            offered: None,
            file_bytes: None,
        }
    }
}

impl super::Point for Point {
    const EXPERIMENT: &'static str = "bench";
    const QUANTITIES: &'static [(&'static str, &'static str)] = &[
        (ELAPSED, "s"),
        (THROUGHPUT, "B/s"),
        (CPU_THREAD, "ns/B"),
        (CPU_SYSTEM, "ns/B"),
        (FAR_CPU_THREAD, "ns/B"),
        (FAR_CPU_SYSTEM, "ns/B"),
        (JOULES_PER_BYTE, "J/B"),
        (JOULES, "J"),
        (PACKETS_SENT, "count"),
        (PACKETS_RECEIVED, "count"),
        (LOSS, "1"),
        (JITTER, "s"),
    ];

    fn may_be_absent(&self) -> bool {
        matches!(self.engine, Engine::Kernel | Engine::Wireguard | Engine::WireguardGo)
    }

    fn label(&self) -> String {
        let word = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let mut label = format!("{} {}", word(serde_json::json!(self.what)), self.suite);
        if self.engine != Engine::Dormouse {
            label += &format!(" ({})", word(serde_json::json!(self.engine)));
        }
        if self.what != What::Crypto && self.engine == Engine::Dormouse {
            match self.encapsulation {
                Encapsulation::None => label += " (forwarded without ESP)",
                encapsulation => label += &format!(" {}", word(serde_json::json!(encapsulation))),
            }
        }
        label += &format!(" {} B", self.packet_bytes);
        if self.what == What::Crypto || self.what == What::Path && self.direction != Direction::Both {
            label += &format!(" {}", word(serde_json::json!(self.direction)));
        }
        if let Some(file) = self.file_bytes {
            label += &format!(" file {file} B");
        }
        if let Some(rate) = self.offered {
            label += &format!(" {} kbit/s", rate / 1e3);
        }
        if self.aes_instructions == Some(false) {
            label += " without AES instructions";
        }
        label += &format!(" {} cores", self.cores);
        if let Some(governor) = &self.governor {
            label += &format!(" {governor}");
        }
        label
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        let sane = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
        if self.suite.is_empty() || !self.suite.bytes().all(sane) {
            let problem = format!("{:?} is not made of letters, digits and hyphens", self.suite);
            return Err(("suite", problem));
        }
        within("packet_bytes", Some(self.packet_bytes), 1, 65_535)?;
        within("cores", Some(self.cores), 1, 65_535)?;
        within("offered", self.offered, 0.0, 1e15)?;
        within("file_bytes", self.file_bytes, 1, MAX_FILE)
    }
}

fn within<T: PartialOrd + Display>(
    axis: &'static str,
    value: Option<T>,
    low: T,
    high: T,
) -> Result<(), (&'static str, String)> {
    match value.filter(|v| !(&low..=&high).contains(&v)) {
        Some(value) => Err((axis, format!("{value} is not between {low} and {high}"))),
        None => Ok(()),
    }
}

/// A figure of a round.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// [`THROUGHPUT`].
    Throughput,
    /// [`CPU_THREAD`] and [`CPU_SYSTEM`] together; the former alone where the latter was not measured (and
    /// for [`What::Crypto`], which does not leave its thread).
    Cpu,
    /// [`JOULES_PER_BYTE`].
    Energy,
    /// [`ELAPSED`].
    Elapsed,
    /// [`LOSS`].
    Loss,
    /// [`JITTER`].
    Jitter,
    /// [`JOULES`].
    Joules,
    /// [`PACKETS_RECEIVED`].
    Received,
}

impl Metric {
    /// Whether more of it is better.
    #[must_use]
    pub const fn more_is_better(self) -> bool {
        matches!(self, Self::Throughput | Self::Received)
    }

    /// Its name in a report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Cpu => "cpu",
            Self::Energy => "energy",
            Self::Elapsed => "elapsed",
            Self::Loss => "loss",
            Self::Jitter => "jitter",
            Self::Joules => "joules",
            Self::Received => "received",
        }
    }

    /// This figure of a round.
    #[must_use]
    pub fn of(self, figures: &Figures) -> Option<f64> {
        match self {
            Self::Throughput => figures.one(THROUGHPUT),
            Self::Cpu => match (figures.one(CPU_THREAD), figures.one(CPU_SYSTEM)) {
                (None, None) => None,
                (thread, system) => Some(thread.unwrap_or(0.0) + system.unwrap_or(0.0)),
            },
            Self::Energy => figures.one(JOULES_PER_BYTE),
            Self::Elapsed => figures.one(ELAPSED),
            Self::Loss => figures.one(LOSS),
            Self::Jitter => figures.one(JITTER),
            Self::Joules => figures.one(JOULES),
            Self::Received => figures.one(PACKETS_RECEIVED),
        }
    }
}

impl Sample {
    /// The figures of all rounds that have this one, in the order of the rounds. CPU time without the rest of the system is
    /// less than CPU time with it: where some rounds have that, the others do not count.
    #[must_use]
    pub fn values(&self, metric: Metric) -> Vec<f64> {
        self.by_round(metric).into_values().collect()
    }

    fn by_round(&self, metric: Metric) -> BTreeMap<u32, f64> {
        let whole = |figures: &Figures| figures.one(CPU_SYSTEM).is_some();
        let only = metric == Metric::Cpu && self.rounds.iter().any(|r| whole(&r.figures));
        let counted = self.rounds.iter().filter(|r| !only || whole(&r.figures));
        counted.filter_map(|r| Some((r.round, metric.of(&r.figures)?))).collect()
    }

    /// This sample's figure and the other's, for each round that both have.
    #[must_use]
    pub fn paired(&self, other: &Self, metric: Metric) -> Vec<(f64, f64)> {
        paired(&self.by_round(metric), &other.by_round(metric))
    }
}

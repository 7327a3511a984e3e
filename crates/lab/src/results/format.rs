//! The result file, `dormouse-bench` version 1: what `dormouse bench` writes, and `dormouse advise` and the experiments read.
//! Owns the vocabulary and what makes a file valid; `docs/results.md` is its manual. Must never hold a figure that was not
//! measured, and never one that is not a number.
//!
//! A file holds *samples*, one for each point of the plan (a suite at a packet size on so many cores ...), and each sample
//! holds the raw figures of all its *rounds*. Rounds are interleaved: round 3 of every sample was measured before round 4 of
//! any, so two samples are compared round by round ([`Sample::paired`]), and what the machine did meanwhile hits both.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What `format` says.
pub const FORMAT: &str = "dormouse-bench";
/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 1;
/// Samples in a file, at most.
pub const MAX_SAMPLES: usize = 100_000;
/// Rounds of a sample, at most.
pub const MAX_ROUNDS: usize = 10_000;
/// Bytes of a file that is downloaded, at most.
pub const MAX_FILE: u64 = 100_000_000_000;
/// Bytes of a text in a file, at most.
pub const MAX_TEXT: usize = 4_096;

/// A whole file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Results {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// What was measured on.
    pub machine: Machine,
    /// The machine at the other end of the link, where there were two; absent where both ends were on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<Machine>,
    /// Versions of what took part: `dormouse`, `kernel`, `aws-lc`, `rustls`, ...
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
    /// The command, as it was given.
    #[serde(default)]
    pub command: Vec<String>,
    /// The plan: `quick`, `full`, `paper-001`, `paper-004`, or what was chosen by hand.
    #[serde(default)]
    pub plan: String,
    /// Seed of payloads, keys and the order within a round.
    #[serde(default)]
    pub seed: u64,
    /// When it began, in seconds since 1970.
    #[serde(default)]
    pub started: u64,
    /// When it ended, in seconds since 1970; absent while it goes on or after an interruption.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<u64>,
    /// Points of the plan, those that were skipped included.
    #[serde(default)]
    pub planned: u32,
    /// Rounds of the plan; 0 if it is not known how many there should be.
    #[serde(default)]
    pub rounds: u32,
    /// How long one measurement lasts, in milliseconds, by its kind: `crypto`, `path`, `stream`.
    #[serde(default)]
    pub milliseconds: BTreeMap<String, u64>,
    /// How quiet the machine was.
    #[serde(default)]
    pub conditions: Conditions,
    /// Where joules come from.
    #[serde(default)]
    pub energy: Energy,
    /// The points.
    pub samples: Vec<Sample>,
    /// What was in the plan and could not be measured here.
    #[serde(default)]
    pub skipped: Vec<Skipped>,
}

/// The machine.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor, as it names itself.
    pub cpu: String,
    /// Architecture: `x86_64`, `aarch64`, ...
    #[serde(default)]
    pub architecture: String,
    /// Processors that may be used.
    pub cores: u32,
    /// Flags or features of the processor, as the kernel names them.
    #[serde(default)]
    pub flags: Vec<String>,
    /// Kernel: name, release and version.
    #[serde(default)]
    pub kernel: String,
    /// Memory in bytes.
    #[serde(default)]
    pub memory: u64,
    /// Frequency governor, where the machine has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// Governors that it could have.
    #[serde(default)]
    pub governors: Vec<String>,
    /// The hypervisor, if this is a virtual machine (`unknown` if it does not say which).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<String>,
}

/// How quiet the machine was.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Conditions {
    /// Load averages over 1, 5 and 15 minutes before the first round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_before: Option<[f64; 3]>,
    /// The same after the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_after: Option<[f64; 3]>,
    /// Part of the time that a hypervisor took away, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal: Option<f64>,
    /// Seconds that one and the same arithmetic took, once a round: if they differ, so did the processor's speed.
    #[serde(default)]
    pub yardstick: Vec<f64>,
}

/// Where joules come from.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Energy {
    /// Which kind.
    #[serde(default)]
    pub source: EnergySource,
    /// The meter (`intel-rapl package-0`) or the device profile (`laptop-000`).
    #[serde(default)]
    pub name: String,
    /// Watts of the idle machine that were taken off, where they were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_watts: Option<f64>,
}

/// Which kind of energy figures a file has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EnergySource {
    /// None.
    #[default]
    None,
    /// A meter of the machine.
    Measured,
    /// CPU time times the power that a device profile states.
    Estimated,
}

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
    /// `openssl speed`.
    Openssl,
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

impl Encapsulation {
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

/// One point: everything that was held fixed, and its rounds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// What was measured.
    pub what: What,
    /// Who did the work.
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
    /// Processors that the measured end might use.
    pub cores: u32,
    /// Whether the processor's AES instructions were in use; absent where the processor has none, or the suite no AES.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aes_instructions: Option<bool>,
    /// How packets were wrapped.
    #[serde(default)]
    pub encapsulation: Encapsulation,
    /// The governor, where one was set or known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// Which way.
    #[serde(default)]
    pub direction: Direction,
    /// What a byte is a byte of.
    #[serde(default)]
    pub unit: Unit,
    /// Streams: bits per second that were offered, of payload; absent means as fast as possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<f64>,
    /// Downloads: bytes of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// Where the joules of this sample come from; absent means as the file says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy: Option<EnergySource>,
    /// Whether the output was checked against known answers (or the bytes received against the bytes sent) before it was
    /// timed. A sample that was not is never used for a conclusion.
    pub verified: bool,
    /// Why it was not verified, or what else must be known about this sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
    /// The raw figures.
    pub rounds: Vec<Round>,
}

/// The raw figures of one round. What was not measured is absent.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Round {
    /// Its number: rounds of one number were measured side by side.
    pub round: u32,
    /// Seconds it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elapsed: Option<f64>,
    /// Bytes a second that arrived intact (or were sealed, or opened), in the sense of [`Sample::unit`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<f64>,
    /// Nanoseconds of CPU for each such byte, of the program's own threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_thread: Option<f64>,
    /// Nanoseconds of CPU for each such byte, of the rest of the system, over what it takes when idle: kernel, interrupts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_system: Option<f64>,
    /// Between two machines: the same as `cpu_thread`, on the far one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_cpu_thread: Option<f64>,
    /// Between two machines: the same as `cpu_system`, on the far one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_cpu_system: Option<f64>,
    /// Joules for each such byte, above the idle machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joules_per_byte: Option<f64>,
    /// Joules above the idle machine's, for the whole round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joules: Option<f64>,
    /// Packets that were sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets_sent: Option<u64>,
    /// Packets that arrived intact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets_received: Option<u64>,
    /// Part of the packets that did not arrive, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Jitter in seconds: the mean deviation of RFC 3550, section 6.4.1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<f64>,
}

/// What could not be measured here.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Skipped {
    /// Of which kind; absent if it concerns several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<What>,
    /// What: a suite, a governor, "WireGuard", "AES instructions off", ...
    pub subject: String,
    /// Why not: "no intel-rapl in /sys/class/powercap", ...
    pub reason: String,
}

/// A figure of a round.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// [`Round::throughput`].
    Throughput,
    /// [`Round::cpu_thread`] and [`Round::cpu_system`] together; the former alone where the latter was not measured (and
    /// for [`What::Crypto`], which does not leave its thread).
    Cpu,
    /// [`Round::joules_per_byte`].
    Energy,
    /// [`Round::elapsed`].
    Elapsed,
    /// [`Round::loss`].
    Loss,
    /// [`Round::jitter`].
    Jitter,
    /// [`Round::joules`].
    Joules,
    /// [`Round::packets_received`].
    Received,
}

impl Metric {
    /// Whether more of it is better.
    #[must_use]
    pub const fn more_is_better(self) -> bool {
        matches!(self, Self::Throughput | Self::Received)
    }

    /// This figure of a round.
    #[must_use]
    pub fn of(self, round: &Round) -> Option<f64> {
        match self {
            Self::Throughput => round.throughput,
            Self::Cpu => match (round.cpu_thread, round.cpu_system) {
                (None, None) => None,
                (thread, system) => Some(thread.unwrap_or(0.0) + system.unwrap_or(0.0)),
            },
            Self::Energy => round.joules_per_byte,
            Self::Elapsed => round.elapsed,
            Self::Loss => round.loss,
            Self::Jitter => round.jitter,
            Self::Joules => round.joules,
            Self::Received => round.packets_received.map(|n| n as f64),
        }
    }
}

impl Sample {
    /// A point in words.
    #[must_use]
    pub fn label(&self) -> String {
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

    /// A point without rounds yet; the rest is set by name.
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
            energy: None,
            verified: false,
            remark: None,
            rounds: Vec::new(),
        }
    }

    /// The figures of all rounds that have this one, in the order of the rounds. CPU time without the rest of the system is
    /// less than CPU time with it: where some rounds have that, the others do not count.
    #[must_use]
    pub fn values(&self, metric: Metric) -> Vec<f64> {
        self.by_round(metric).into_values().collect()
    }

    fn by_round(&self, metric: Metric) -> BTreeMap<u32, f64> {
        let whole = metric == Metric::Cpu && self.rounds.iter().any(|r| r.cpu_system.is_some());
        let counted = self.rounds.iter().filter(|r| !whole || r.cpu_system.is_some());
        counted.filter_map(|r| Some((r.round, metric.of(r)?))).collect()
    }

    /// This sample's figure and the other's, for each round that both have.
    #[must_use]
    pub fn paired(&self, other: &Self, metric: Metric) -> Vec<(f64, f64)> {
        let theirs = other.by_round(metric);
        self.by_round(metric).into_iter().filter_map(|(n, a)| Some((a, *theirs.get(&n)?))).collect()
    }
}

impl Results {
    /// A file without samples.
    #[must_use]
    pub fn new(machine: Machine) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            machine,
            far: None,
            versions: BTreeMap::new(),
            command: Vec::new(),
            plan: String::new(),
            seed: 0,
            started: 0,
            finished: None,
            planned: 0,
            rounds: 0,
            milliseconds: BTreeMap::new(),
            conditions: Conditions::default(),
            energy: Energy::default(),
            samples: Vec::new(),
            skipped: Vec::new(),
        }
    }

    /// Where a sample's joules come from.
    #[must_use]
    pub fn energy_source(&self, sample: &Sample) -> EnergySource {
        sample.energy.unwrap_or(self.energy.source)
    }
}

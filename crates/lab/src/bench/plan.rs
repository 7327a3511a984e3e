//! What is measured: the points of a campaign, and how long they will take. Owns the defaults and the filters; must never
//! measure anything itself.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use dormouse_crypto::measure::{Cipher, Suite};

use super::{far, machine, transfer};
use crate::results::format::{Direction, Encapsulation, Engine, Machine, Sample, Skipped, Unit, What};

/// A part of the campaign.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// Cryptography alone.
    Crypto,
    /// Whole packets through TUN, ESP and sockets.
    Path,
    /// UDP streams at given rates (paper 001).
    Streams,
    /// Files over TCP (paper 004).
    Downloads,
    /// Files over TLS.
    Tls,
}

impl Part {
    /// All, in the order in which they run.
    pub const ALL: [Self; 5] = [Self::Crypto, Self::Path, Self::Streams, Self::Downloads, Self::Tls];

    /// As users write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crypto => "crypto",
            Self::Path => "path",
            Self::Streams => "streams",
            Self::Downloads => "downloads",
            Self::Tls => "tls",
        }
    }

    /// Whether it makes network namespaces, and so needs root.
    #[must_use]
    pub const fn needs_root(self) -> bool {
        !matches!(self, Self::Crypto)
    }
}

impl std::str::FromStr for Part {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        let Some(part) = Self::ALL.into_iter().find(|p| p.name() == name) else {
            let known: Vec<_> = Self::ALL.iter().map(|p| p.name()).collect();
            bail!("unknown part \"{name}\"; known are {}", known.join(", "));
        };
        Ok(part)
    }
}

/// What the user asked for; empty lists stand for the defaults.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Parts.
    pub parts: Vec<Part>,
    /// Names of suites.
    pub suites: Vec<String>,
    /// Packet sizes in bytes.
    pub sizes: Vec<u32>,
    /// Numbers of processors.
    pub cores: Vec<u32>,
    /// Frequency governors.
    pub governors: Vec<String>,
    /// Sizes of files in bytes.
    pub files: Vec<u64>,
    /// Rates of streams in bits per second.
    pub rates: Vec<f64>,
    /// Rounds; 0 for the default.
    pub rounds: u32,
    /// Seconds of a stream; 0 for the default.
    pub stream_seconds: f64,
    /// Device profile (a shipped one, or a file) to estimate energy from, instead of a meter.
    pub profile: Option<String>,
    /// The short campaign.
    pub quick: bool,
    /// Compare the machine's governors on one suite, where it has several; the full campaign does in any case.
    pub compare_governors: bool,
    /// Between two machines: all but cryptography alone runs over the link between them.
    pub between: bool,
    /// Seed of payloads, keys and order.
    pub seed: u64,
}

/// How long the measurement of a point lasts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Times {
    /// Of [`What::Crypto`].
    pub crypto: Duration,
    /// Of [`What::Path`].
    pub path: Duration,
    /// Of [`What::Stream`].
    pub stream: Duration,
    /// Setting up and taking down a tunnel.
    pub setup: Duration,
}

impl Times {
    /// Those of a request.
    #[must_use]
    pub(crate) fn of(request: &Request) -> Self {
        let ms = Duration::from_millis;
        let stream = match request.stream_seconds {
            s if s > 0.0 && s.is_finite() => Duration::from_secs_f64(s.min(86_400.0)),
            _ if request.quick => ms(400),
            _ => ms(1_000),
        };
        let (crypto, path) = if request.quick { (ms(10), ms(120)) } else { (ms(20), ms(400)) };
        Self { crypto, path, stream, setup: ms(120) }
    }

    /// How long one round of a point should take. Downloads are guessed at 100 MB/s.
    #[must_use]
    pub(crate) fn expected(&self, sample: &Sample) -> Duration {
        let transfer =
            || Duration::from_secs_f64(sample.file_bytes.unwrap_or(0) as f64 / 1e8).max(transfer::LEAST);
        match sample.what {
            // Opening is preceded by sealing, off the clock.
            What::Crypto if sample.direction == Direction::In => self.crypto * 2,
            What::Crypto => self.crypto,
            What::Path => self.path + Duration::from_millis(30),
            What::Stream => self.stream + Duration::from_millis(120),
            What::Download | What::Tls => transfer() + Duration::from_millis(30),
        }
    }
}

/// A plan: points without rounds, and what was left out of it.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The points.
    pub samples: Vec<Sample>,
    /// What cannot be measured here, with the reason.
    pub skipped: Vec<Skipped>,
    /// Rounds that count.
    pub rounds: u32,
}

/// What stands for paper 004's packet sizes: from its smallest to the usual MTU, and one beyond it (paper 001).
const SIZES: [u32; 8] = [180, 256, 400, 576, 1_024, 1_420, 1_500, 2_048];
const QUICK_SIZES: [u32; 3] = [180, 576, 1_420];
/// The quick campaign: what is recommended today, what paper 004 compares, what paper 001 used, and the baselines.
const QUICK: [&str; 12] = [
    "aes128gcm16",
    "aes256gcm16",
    "chacha20poly1305",
    "aes128ccm16",
    "aes128-sha256",
    "aes128-sha1",
    "aes128ctr-sha1",
    "aes256-sha512",
    "null-sha1",
    "none",
    "3des-sha1",
    "des-md5",
];
const QUICK_PATH: [&str; 9] = [
    "none",
    "null-sha1",
    "aes128gcm16",
    "chacha20poly1305",
    "aes128ccm16",
    "aes128-sha256",
    "aes128-sha1",
    "aes128ctr-sha1",
    "3des-sha1",
];
/// The whole path takes a hundred times as long as cryptography alone: of suites that differ only in the length of a key or a
/// MAC, one must do.
const PATH: [&str; 15] = [
    "none",
    "null-sha1",
    "null-sha256",
    "aes128gcm16",
    "aes256gcm16",
    "chacha20poly1305",
    "aes128ccm16",
    "aes128-sha1",
    "aes128ctr-sha1",
    "aes128-sha256",
    "aes128ctr-sha256",
    "aes256-sha256",
    "aes256-sha512",
    "3des-sha1",
    "des-md5",
];
const PATH_SIZES: [u32; 5] = [180, 576, 1_024, 1_420, 2_048];
/// Transport mode and UDP encapsulation are compared with tunnel mode on these.
const WRAPPED: [&str; 2] = ["aes128gcm16", "aes128-sha1"];
/// Paper 004's modes: measured over the whole path without AES instructions too.
const MODES: [&str; 4] = ["aes128-sha1", "aes128ctr-sha1", "aes128ccm16", "aes128gcm16"];
/// Paper 004's governors, and the one that took their place; what it compares them on.
const GOVERNORS: [&str; 5] = ["performance", "ondemand", "conservative", "powersave", "schedutil"];
const GOVERNED: &str = "aes128-sha1";

/// The name of a suite, if there is one of this name.
///
/// # Errors
/// If there is none, with the known ones.
pub fn known_suite(name: &str) -> Result<String, <Suite as std::str::FromStr>::Err> {
    name.parse::<Suite>().map(|_| name.to_owned())
}

impl Request {
    /// The suites asked for, or the defaults.
    ///
    /// # Errors
    /// For one that is unknown, with the known ones.
    fn suites(&self, quick: &[&str]) -> Result<Vec<Suite>> {
        let named = |names: &[&str]| -> Result<Vec<Suite>> {
            names.iter().map(|n| Ok(n.parse::<Suite>()?)).collect()
        };
        if !self.suites.is_empty() {
            return named(&self.suites.iter().map(String::as_str).collect::<Vec<_>>());
        }
        if self.quick { named(quick) } else { Ok(Suite::all()) }
    }

    /// The suites asked for, or these.
    fn suites_or(&self, default: &[&str]) -> Result<Vec<Suite>> {
        if self.suites.is_empty() {
            default.iter().map(|n| Ok(n.parse()?)).collect()
        } else {
            self.suites(&[])
        }
    }

    /// Whether a suite's path is measured without AES instructions too: those asked for, else paper 004's modes.
    fn hides(&self, suite: Suite) -> bool {
        let name = suite.to_string();
        if self.suites.is_empty() { MODES.contains(&name.as_str()) } else { name.starts_with("aes") }
    }

    fn sizes(&self) -> Result<Vec<u32>> {
        for &size in &self.sizes {
            ensure!((64..=9_000).contains(&size), "packets of {size} bytes: expected 64 to 9000");
        }
        let default: &[u32] = if self.quick { &QUICK_SIZES } else { &SIZES };
        Ok(if self.sizes.is_empty() { default.to_vec() } else { self.sizes.clone() })
    }

    fn cores(&self, here: u32) -> Result<Vec<u32>> {
        for &cores in &self.cores {
            ensure!((1..=here).contains(&cores), "{cores} processors: this machine has 1 to {here}");
        }
        let mut default = vec![1, here];
        default.dedup();
        Ok(if self.cores.is_empty() { default } else { self.cores.clone() })
    }

    fn wants(&self, part: Part) -> bool {
        self.parts.is_empty() || self.parts.contains(&part)
    }

    /// The points of this request on `machine`. `aes_off` tells whether AES instructions can be masked.
    ///
    /// # Errors
    /// For suites, sizes or numbers of processors that do not exist here.
    pub fn plan(&self, machine: &Machine, aes_off: bool) -> Result<Plan> {
        let rounds = match self.rounds {
            0 if self.quick => 5,
            0 => 7,
            rounds => rounds,
        };
        ensure!(rounds <= 10_000, "{rounds} rounds: expected at most 10000");
        let seconds = self.stream_seconds;
        ensure!(
            seconds.is_finite() && seconds >= 0.0,
            "streams of {seconds} seconds: expected a time above 0"
        );
        for &file in &self.files {
            let most = transfer::LONGEST;
            ensure!((1..=most).contains(&file), "a file of {file} bytes: expected 1 to {most}");
        }
        let mut plan = Plan { rounds, ..Plan::default() };
        for part in Part::ALL.into_iter().filter(|p| self.wants(*p)) {
            match part {
                Part::Crypto => self.crypto(&mut plan, machine, aes_off)?,
                Part::Path => self.path(&mut plan, machine, aes_off)?,
                Part::Streams => self.streams(&mut plan)?,
                Part::Downloads => self.downloads(&mut plan, aes_off)?,
                Part::Tls => self.tls(&mut plan),
            }
        }
        for sample in
            plan.samples.iter_mut().filter(|s| s.aes_instructions.is_none() && s.suite.contains("aes"))
        {
            // Where they are not hidden, what the processor has is used.
            sample.aes_instructions = machine::has_aes(machine).then_some(true);
        }
        if self.between {
            self.between_two(&mut plan)?;
        }
        if self.governors.is_empty() {
            self.governed(&mut plan, machine);
        } else {
            plan.samples = self
                .governors
                .iter()
                .flat_map(|g| plan.samples.iter().map(|s| Sample { governor: Some(g.clone()), ..s.clone() }))
                .collect();
        }
        Ok(plan)
    }

    /// What is different where the other end is another machine: each end has its own figures, so a path is measured in both
    /// directions, one after the other; and what is not ours is not there.
    fn between_two(&self, plan: &mut Plan) -> Result<()> {
        let longest = far::LONGEST.as_secs_f64();
        ensure!(
            self.stream_seconds <= longest,
            "streams of {} seconds: expected at most {longest} between two machines",
            self.stream_seconds
        );
        let samples = std::mem::take(&mut plan.samples);
        for (subject, engine) in [
            ("the kernel's ESP", Engine::Kernel),
            ("WireGuard", Engine::Wireguard),
            ("wireguard-go", Engine::WireguardGo),
        ] {
            if samples.iter().any(|s| s.engine == engine) {
                let reason = "measured between namespaces of one machine alone".to_owned();
                plan.skipped.push(Skipped { what: Some(What::Path), subject: subject.to_owned(), reason });
            }
        }
        let ours = |s: &Sample| matches!(s.engine, Engine::Dormouse | Engine::Plain | Engine::Rustls);
        for sample in samples.into_iter().filter(ours) {
            if sample.what == What::Path {
                plan.samples.push(Sample { direction: Direction::Out, ..sample.clone() });
                plan.samples.push(Sample { direction: Direction::In, ..sample });
            } else {
                plan.samples.push(sample);
            }
        }
        Ok(())
    }

    /// The machine's governors on one suite: whole paths and downloads. Another governor than the one that was found holds for
    /// these points alone.
    fn governed(&self, plan: &mut Plan, machine: &Machine) {
        let here: Vec<&str> =
            GOVERNORS.into_iter().filter(|g| machine.governors.iter().any(|here| here == g)).collect();
        if here.len() < 2 || self.quick && !self.compare_governors {
            return;
        }
        let compared = |s: &Sample| {
            matches!(s.what, What::Path | What::Download)
                && s.engine == Engine::Dormouse
                && s.suite == GOVERNED
                && s.encapsulation == Encapsulation::Tunnel
                && s.aes_instructions != Some(false)
                && s.cores == machine.cores
        };
        let chosen: Vec<Sample> = plan.samples.iter().filter(|s| compared(s)).cloned().collect();
        plan.samples.extend(here.into_iter().flat_map(|governor| {
            chosen.iter().map(move |s| Sample { governor: Some(governor.to_owned()), ..s.clone() })
        }));
    }

    fn crypto(&self, plan: &mut Plan, machine: &Machine, aes_off: bool) -> Result<()> {
        for suite in self.suites(&QUICK)? {
            let hidden = aes_off && machine::has_aes(machine) && suite.to_string().starts_with("aes");
            for &size in &self.sizes()? {
                for &cores in &self.cores(machine.cores)? {
                    for direction in [Direction::Out, Direction::In] {
                        let mut sample = point(What::Crypto, suite, size, cores);
                        sample.direction = direction;
                        sample.encapsulation = Encapsulation::Tunnel;
                        plan.samples.push(sample.clone());
                        if hidden {
                            sample.aes_instructions = Some(false);
                            plan.samples.push(sample);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn path(&self, plan: &mut Plan, machine: &Machine, aes_off: bool) -> Result<()> {
        let suites = self.suites_or(if self.quick { &QUICK_PATH } else { &PATH })?;
        let sizes = match (&self.sizes[..], self.quick) {
            ([], true) => vec![180, 1_400],
            ([], false) => PATH_SIZES.to_vec(),
            _ => self.sizes()?,
        };
        let all = self.cores(machine.cores)?;
        // In a hurry only the wrapped ones are measured on one processor too.
        let hurry = self.quick && self.cores.is_empty() && self.suites.is_empty();
        for &cores in &all {
            let few = hurry && cores != machine.cores;
            for &size in &sizes {
                if !few {
                    plan.samples.extend(baselines(size, cores));
                }
                for &suite in &suites {
                    let wrapped = WRAPPED.contains(&suite.to_string().as_str());
                    let mut encapsulations = self.encapsulations(suite);
                    if few {
                        encapsulations.truncate(usize::from(wrapped));
                    }
                    // A fragment has no place in transport mode (RFC 4303, section 3.3.4).
                    encapsulations.retain(|e| size <= 1_400 || !is_transport(*e));
                    for encapsulation in encapsulations {
                        let mut sample = point(What::Path, suite, size, cores);
                        sample.encapsulation = encapsulation;
                        plan.samples.push(sample);
                    }
                    if aes_off && !few && self.hides(suite) {
                        plan.samples.push(without_aes(point(What::Path, suite, size, cores)));
                    }
                }
                if !few {
                    plan.samples.extend(others(size, cores));
                }
            }
        }
        Ok(())
    }

    fn encapsulations(&self, suite: Suite) -> Vec<Encapsulation> {
        use Encapsulation::{Transport, Tunnel, Udp, UdpTransport};
        let all = !self.suites.is_empty() || WRAPPED.contains(&suite.to_string().as_str());
        match (all, self.quick) {
            (false, _) => vec![Tunnel],
            (true, true) => vec![Tunnel, Transport, Udp],
            (true, false) => vec![Tunnel, Transport, Udp, UdpTransport],
        }
    }

    /// Paper 001: without a VPN and with one; as fast as possible by PDU size, at given rates, and by algorithm.
    fn streams(&self, plan: &mut Plan) -> Result<()> {
        let suites = self.suites_or(if self.quick {
            &["3des-sha1", "aes128gcm16"]
        } else {
            &["3des-sha1", "aes128gcm16", "chacha20poly1305"]
        })?;
        let sizes: &[u32] = match (&self.sizes[..], self.quick) {
            ([], true) => &[256, 1_024, 2_048],
            ([], false) => &[256, 512, 1_024, 2_048],
            (sizes, _) => sizes,
        };
        let rates: &[f64] = match (&self.rates[..], self.quick) {
            ([], true) => &[2e6],
            ([], false) => &[56e3, 128e3, 256e3, 1e6, 2e6, 4e6, 8e6],
            (rates, _) => rates,
        };
        for &rate in rates {
            ensure!((1e3..=1e12).contains(&rate), "a rate of {rate} bit/s: expected 1e3 to 1e12");
        }
        let mut loads: Vec<(u32, Option<f64>)> = sizes.iter().map(|s| (*s, None)).collect();
        loads.extend(rates.iter().map(|r| (1_024, Some(*r))));
        if !self.quick {
            loads.extend(sizes.iter().filter(|s| **s != 1_024).map(|s| (*s, Some(2e6))));
        }
        // Figure 10 compares the algorithms at one rate and size.
        let algorithms: Vec<Suite> = if self.suites.is_empty() && !self.quick {
            ["3des-md5", "des-sha1", "des-md5"].iter().map(|n| n.parse()).collect::<Result<_, _>>()?
        } else {
            Vec::new()
        };
        for (size, offered) in loads {
            let plain = std::iter::once((Engine::Plain, Suite::NONE, Encapsulation::None));
            let more = if (size, offered) == (1_024, Some(2e6)) { &algorithms[..] } else { &[] };
            let protected = suites.iter().chain(more).map(|s| (Engine::Dormouse, *s, Encapsulation::Tunnel));
            for (engine, suite, encapsulation) in plain.chain(protected) {
                let mut sample = point(What::Stream, suite, size, machine::cores());
                (sample.engine, sample.encapsulation, sample.offered) = (engine, encapsulation, offered);
                (sample.unit, sample.direction) = (Unit::Payload, Direction::In);
                plan.samples.push(sample);
            }
        }
        Ok(())
    }

    fn files(&self) -> Vec<u64> {
        match (&self.files[..], self.quick) {
            ([], true) => vec![50_000, 16_000_000],
            ([], false) => vec![50_000, 1_000_000, 10_000_000, 100_000_000],
            (files, _) => files.to_vec(),
        }
    }

    fn downloads(&self, plan: &mut Plan, aes_off: bool) -> Result<()> {
        let suites = self.suites_or(if self.quick {
            &["aes128gcm16", "aes128-sha1", "aes128ctr-sha1", "aes128ccm16", "null-sha1"]
        } else {
            &[
                "aes128-sha1",
                "aes128ctr-sha1",
                "aes128ccm16",
                "aes128gcm16",
                "aes256-sha1",
                "aes128-sha256",
                "chacha20poly1305",
                "null-sha1",
                "none",
            ]
        })?;
        let mtus: &[u32] = match (&self.sizes[..], self.quick) {
            ([], true) => &[1_400],
            ([], false) => &[180, 576, 1_400],
            (sizes, _) => sizes,
        };
        let largest = mtus.iter().copied().filter(|m| *m <= 1_420).max();
        for file in self.files() {
            // Small packets say the same of a file that takes ten times as long.
            let all = !self.files.is_empty() || file <= 10_000_000;
            for &mtu in mtus.iter().filter(|m| **m <= 1_420 && (all || Some(**m) == largest)) {
                let mut push = |engine, suite: Suite, encapsulation| {
                    let mut sample = point(What::Download, suite, mtu, machine::cores());
                    (sample.engine, sample.encapsulation) = (engine, encapsulation);
                    (sample.unit, sample.file_bytes) = (Unit::Payload, Some(file));
                    if aes_off
                        && engine == Engine::Dormouse
                        && self.hides(suite)
                        && encapsulation == Encapsulation::Tunnel
                    {
                        plan.samples.push(without_aes(sample.clone()));
                    }
                    plan.samples.push(sample);
                };
                push(Engine::Plain, Suite::NONE, Encapsulation::None);
                for &suite in &suites {
                    push(Engine::Dormouse, suite, Encapsulation::Tunnel);
                    if WRAPPED.contains(&suite.to_string().as_str()) {
                        push(Engine::Dormouse, suite, Encapsulation::Transport);
                        push(Engine::Dormouse, suite, Encapsulation::Udp);
                    }
                }
            }
        }
        Ok(())
    }

    fn tls(&self, plan: &mut Plan) {
        for file in self.files() {
            for suite in super::tls::SUITES {
                let mut sample = Sample::new(What::Tls, suite.name, 1_500, machine::cores());
                sample.engine = Engine::Rustls;
                (sample.unit, sample.file_bytes) = (Unit::Payload, Some(file));
                sample.key_bits = Some(suite.key_bits);
                plan.samples.push(sample);
            }
        }
    }
}

/// The link without any tunnel, and our forwarder without ESP: what ESP itself is compared with.
fn baselines(size: u32, cores: u32) -> impl Iterator<Item = Sample> {
    [Engine::Plain, Engine::Dormouse].into_iter().map(move |engine| {
        let mut sample = point(What::Path, Suite::NONE, size, cores);
        sample.engine = engine;
        sample
    })
}

/// What does the same and is not ours.
fn others(size: u32, cores: u32) -> impl Iterator<Item = Sample> {
    let all = [
        (Engine::Kernel, "aes128gcm16", Encapsulation::Tunnel),
        (Engine::Wireguard, "chacha20poly1305", Encapsulation::None),
        (Engine::WireguardGo, "chacha20poly1305", Encapsulation::None),
    ];
    all.into_iter().map(move |(engine, suite, encapsulation)| {
        let mut sample = Sample::new(What::Path, suite, size, cores);
        (sample.engine, sample.encapsulation) = (engine, encapsulation);
        described(sample)
    })
}

/// The point in tunnel mode while AES instructions are hidden.
fn without_aes(mut sample: Sample) -> Sample {
    sample.encapsulation = Encapsulation::Tunnel;
    sample.aes_instructions = Some(false);
    sample
}

/// Whether the inner IP header is left off.
pub(crate) const fn is_transport(encapsulation: Encapsulation) -> bool {
    matches!(encapsulation, Encapsulation::Transport | Encapsulation::UdpTransport)
}

/// A point of a suite of ours.
fn point(what: What, suite: Suite, size: u32, cores: u32) -> Sample {
    described(Sample::new(what, &suite.to_string(), size, cores))
}

/// With the integrity algorithm and the key length that the suite's name says.
fn described(mut sample: Sample) -> Sample {
    if let Ok(suite) = sample.suite.parse::<Suite>() {
        sample.integrity = suite.to_string().split_once('-').map(|(_, integrity)| integrity.to_owned());
        sample.key_bits = match suite.cipher() {
            Cipher::Null => None,
            Cipher::Des => Some(56),
            Cipher::TripleDes => Some(168),
            Cipher::Aes128Cbc
            | Cipher::Aes128Ctr
            | Cipher::Aes128Ccm8
            | Cipher::Aes128Ccm16
            | Cipher::Aes128Gcm16 => Some(128),
            _ => Some(256),
        };
    }
    sample
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(aes: bool) -> Machine {
        let flags = if aes { vec!["aes".to_owned()] } else { Vec::new() };
        Machine { cores: 2, flags, ..Machine::default() }
    }

    #[test]
    fn filters_multiply() {
        let request = Request {
            parts: vec![Part::Crypto],
            suites: vec!["aes128gcm16".into(), "none".into()],
            sizes: vec![180, 1_500],
            ..Request::default()
        };
        let plan = request.plan(&machine(true), true).unwrap();
        // Two sizes, one core and two, sealing and opening; AES with its instructions and without.
        assert_eq!(plan.samples.len(), 2 * 2 * 2 * (2 + 1));
        let off = plan.samples.iter().filter(|s| s.aes_instructions == Some(false));
        assert!(off.clone().count() == 8 && off.clone().all(|s| s.suite == "aes128gcm16"));
        let plan = request.plan(&machine(false), true).unwrap();
        assert!(
            plan.samples.iter().all(|s| s.aes_instructions.is_none()),
            "no AES instructions to switch off"
        );
    }

    #[test]
    fn every_point_says_whether_aes_instructions_are_in_use() {
        let plan = Request { quick: true, ..Request::default() }.plan(&machine(true), true).unwrap();
        for sample in &plan.samples {
            assert_eq!(sample.aes_instructions.is_some(), sample.suite.contains("aes"), "{sample:?}");
        }
        let plan = Request { quick: true, ..Request::default() }.plan(&machine(false), false).unwrap();
        assert!(plan.samples.iter().all(|s| s.aes_instructions.is_none()));
    }

    #[test]
    fn points_are_all_different() {
        for quick in [true, false] {
            let plan = Request { quick, ..Request::default() }.plan(&machine(true), true).unwrap();
            let mut seen = std::collections::BTreeSet::new();
            for sample in &plan.samples {
                assert!(seen.insert(serde_json::to_string(sample).unwrap()), "twice: {sample:?}");
            }
        }
    }

    #[test]
    fn what_does_not_exist_is_refused_with_what_does() {
        let refused = |request: Request| request.plan(&machine(true), false).unwrap_err().to_string();
        let error = refused(Request { suites: vec!["aes512".into()], ..Request::default() });
        assert!(error.starts_with("unknown suite \"aes512\"; known are aes128-sha1, "), "{error}");
        let error = refused(Request { sizes: vec![20], ..Request::default() });
        assert_eq!(error, "packets of 20 bytes: expected 64 to 9000");
        let error = refused(Request { cores: vec![3], ..Request::default() });
        assert_eq!(error, "3 processors: this machine has 1 to 2");
        for (file, seconds, expected) in [
            (0, 0.0, "a file of 0 bytes: expected 1 to 100000000000"),
            (u64::MAX, 0.0, "a file of 18446744073709551615 bytes: expected 1 to 100000000000"),
            (1, f64::NAN, "streams of NaN seconds: expected a time above 0"),
            (1, -1.0, "streams of -1 seconds: expected a time above 0"),
        ] {
            let request = Request { files: vec![file], stream_seconds: seconds, ..Request::default() };
            assert_eq!(refused(request), expected);
        }
        let error = "wifi".parse::<Part>().unwrap_err().to_string();
        assert_eq!(error, "unknown part \"wifi\"; known are crypto, path, streams, downloads, tls");
    }

    #[test]
    fn between_two_machines_a_path_has_two_directions_and_nothing_of_others() {
        let request = Request { quick: true, between: true, ..Request::default() };
        let plan = request.plan(&machine(true), true).unwrap();
        let one = Request { between: false, ..request.clone() }.plan(&machine(true), true).unwrap();
        let paths = |plan: &Plan, engine: Engine, direction: Direction| {
            let of = |s: &&Sample| s.what == What::Path && s.engine == engine && s.direction == direction;
            plan.samples.iter().filter(of).count()
        };
        let here = paths(&one, Engine::Dormouse, Direction::Both);
        assert!(here > 0);
        assert_eq!(paths(&plan, Engine::Dormouse, Direction::Out), here);
        assert_eq!(paths(&plan, Engine::Dormouse, Direction::In), here);
        assert_eq!(paths(&plan, Engine::Dormouse, Direction::Both), 0);
        assert!(plan.samples.iter().all(|s| s.engine != Engine::Kernel && s.engine != Engine::Wireguard));
        let skipped: Vec<&str> = plan.skipped.iter().map(|s| s.subject.as_str()).collect();
        assert_eq!(skipped, ["the kernel's ESP", "WireGuard", "wireguard-go"]);
        let error = Request { stream_seconds: 7_200.0, ..request }.plan(&machine(true), true).unwrap_err();
        assert_eq!(error.to_string(), "streams of 7200 seconds: expected at most 3600 between two machines");
    }

    #[test]
    fn governors_multiply_the_plan() {
        let request = Request { parts: vec![Part::Tls], quick: true, ..Request::default() };
        let one = request.plan(&machine(true), false).unwrap().samples.len();
        let request = Request { governors: vec!["ondemand".into(), "performance".into()], ..request };
        let both = request.plan(&machine(true), false).unwrap().samples;
        assert_eq!(both.len(), 2 * one);
        assert!(
            both.iter().take(one).all(|s| s.governor.as_deref() == Some("ondemand")),
            "one after the other"
        );
    }
}

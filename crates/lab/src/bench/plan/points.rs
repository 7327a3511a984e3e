//! The points of each part of a campaign. Owns the defaults of suites, sizes, rates and files; must never know a machine but by its
//! processors.

use anyhow::{Result, ensure};
use dormouse_crypto::measure::{Cipher, Suite};

use super::{Plan, Request};
use crate::campaign::machine;
use crate::results::esp::{Direction, Encapsulation, Engine, Point, Unit, What};
use crate::results::format::Machine;

/// What stands for paper 004's packet sizes: from its smallest to the usual MTU, and one beyond it (paper 001).
const SIZES: [u32; 8] = [180, 256, 400, 576, 1_024, 1_420, 1_500, 2_048];
const QUICK_SIZES: [u32; 3] = [180, 576, 1_420];
/// The quick campaign: what is recommended today, what paper 004 compares, what paper 001 used, and the baselines.
const QUICK: &str = "aes128gcm16 aes256gcm16 chacha20poly1305 aes128ccm16 aes128-sha256 aes128-sha1 \
    aes128ctr-sha1 aes256-sha512 null-sha1 none 3des-sha1 des-md5";
const QUICK_PATH: &str = "none null-sha1 aes128gcm16 chacha20poly1305 aes128ccm16 aes128-sha256 \
    aes128-sha1 aes128ctr-sha1 3des-sha1";
/// The whole path takes a hundred times as long as cryptography alone: of suites that differ only in the length of a key or a
/// MAC, one must do.
const PATH: &str = "none null-sha1 null-sha256 aes128gcm16 aes256gcm16 chacha20poly1305 \
    aes128ccm16 aes128-sha1 aes128ctr-sha1 aes128-sha256 aes128ctr-sha256 \
    aes256-sha256 aes256-sha512 3des-sha1 des-md5";
const PATH_SIZES: [u32; 5] = [180, 576, 1_024, 1_420, 2_048];
/// Transport mode and UDP encapsulation are compared with tunnel mode on these.
const WRAPPED: &str = "aes128gcm16 aes128-sha1";
/// Paper 004's modes: measured over the whole path without AES instructions too.
const MODES: &str = "aes128-sha1 aes128ctr-sha1 aes128ccm16 aes128gcm16";

/// Whether a list of suites has this one.
fn among(suites: &str, suite: Suite) -> bool {
    suites.split(' ').any(|name| name == suite.to_string())
}

impl Request {
    /// The suites asked for, or those of the list.
    ///
    /// # Errors
    /// For one that is unknown, with the known ones.
    fn suites(&self, default: &str) -> Result<Vec<Suite>> {
        let parse = |name: &str| Ok(name.parse::<Suite>()?);
        match &self.suites[..] {
            [] => default.split(' ').map(parse).collect(),
            names => names.iter().map(|name| parse(name)).collect(),
        }
    }

    /// Whether a suite's path is measured without AES instructions too: those asked for, else paper 004's modes.
    fn hides(&self, suite: Suite) -> bool {
        if self.suites.is_empty() { among(MODES, suite) } else { suite.to_string().starts_with("aes") }
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

    pub(super) fn crypto(&self, plan: &mut Plan, machine: &Machine, aes_off: bool) -> Result<()> {
        let all = if self.suites.is_empty() && !self.quick { Suite::all() } else { self.suites(QUICK)? };
        for suite in all {
            let hidden = aes_off && machine::has_aes(machine) && suite.to_string().starts_with("aes");
            for &size in &self.sizes()? {
                for &cores in &self.cores(machine.cores)? {
                    for direction in [Direction::Out, Direction::In] {
                        let mut sample = point(What::Crypto, suite, size, cores);
                        sample.direction = direction;
                        sample.encapsulation = Encapsulation::Tunnel;
                        plan.points.push(sample.clone());
                        if hidden {
                            sample.aes_instructions = Some(false);
                            plan.points.push(sample);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn path(&self, plan: &mut Plan, machine: &Machine, aes_off: bool) -> Result<()> {
        let suites = self.suites(if self.quick { QUICK_PATH } else { PATH })?;
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
                    plan.points.extend(baselines(size, cores));
                }
                for &suite in &suites {
                    let wrapped = among(WRAPPED, suite);
                    let mut encapsulations = self.encapsulations(suite);
                    if few {
                        encapsulations.truncate(usize::from(wrapped));
                    }
                    // A fragment has no place in transport mode (RFC 4303, section 3.3.4).
                    encapsulations.retain(|e| size <= 1_400 || !e.is_transport());
                    for encapsulation in encapsulations {
                        let mut sample = point(What::Path, suite, size, cores);
                        sample.encapsulation = encapsulation;
                        plan.points.push(sample);
                    }
                    if aes_off && !few && self.hides(suite) {
                        plan.points.push(without_aes(point(What::Path, suite, size, cores)));
                    }
                }
                if !few {
                    plan.points.extend(others(size, cores));
                }
            }
        }
        Ok(())
    }

    fn encapsulations(&self, suite: Suite) -> Vec<Encapsulation> {
        use Encapsulation::{Transport, Tunnel, Udp, UdpTransport};
        let all = !self.suites.is_empty() || among(WRAPPED, suite);
        if all { vec![Tunnel, Transport, Udp, UdpTransport] } else { vec![Tunnel] }
    }

    /// Paper 001: without a VPN and with one; as fast as possible by PDU size, at given rates, and by algorithm.
    pub(super) fn streams(&self, plan: &mut Plan) -> Result<()> {
        let mut suites = self.suites(if self.quick {
            "3des-sha1 aes128gcm16"
        } else {
            "3des-sha1 aes128gcm16 chacha20poly1305"
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
        let mut algorithms = Vec::new();
        if !self.stream_suites.is_empty() {
            let all = |suite: &Suite| self.stream_suites.contains(&suite.to_string());
            (suites, algorithms) = suites.into_iter().partition(all);
        } else if self.suites.is_empty() && !self.quick {
            algorithms =
                ["3des-md5", "des-sha1", "des-md5"].iter().map(|n| n.parse()).collect::<Result<_, _>>()?;
        }
        for (size, offered) in loads {
            let plain = std::iter::once((Engine::Plain, Suite::NONE, Encapsulation::None));
            let more = if (size, offered) == (1_024, Some(2e6)) { &algorithms[..] } else { &[] };
            let protected = suites.iter().chain(more).map(|s| (Engine::Dormouse, *s, Encapsulation::Tunnel));
            for (engine, suite, encapsulation) in plain.chain(protected) {
                let mut sample = point(What::Stream, suite, size, machine::cores());
                (sample.engine, sample.encapsulation, sample.offered) = (engine, encapsulation, offered);
                (sample.unit, sample.direction) = (Unit::Payload, Direction::In);
                plan.points.push(sample);
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

    pub(super) fn downloads(&self, plan: &mut Plan, aes_off: bool) -> Result<()> {
        let suites = self.suites(if self.quick {
            "aes128gcm16 aes128-sha1 aes128ctr-sha1 aes128ccm16 null-sha1"
        } else {
            "aes128-sha1 aes128ctr-sha1 aes128ccm16 aes128gcm16 aes256-sha1 aes128-sha256 chacha20poly1305 null-sha1 none"
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
                        plan.points.push(without_aes(sample.clone()));
                    }
                    plan.points.push(sample);
                };
                push(Engine::Plain, Suite::NONE, Encapsulation::None);
                for &suite in &suites {
                    push(Engine::Dormouse, suite, Encapsulation::Tunnel);
                    if among(WRAPPED, suite) {
                        push(Engine::Dormouse, suite, Encapsulation::Transport);
                        push(Engine::Dormouse, suite, Encapsulation::Udp);
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn tls(&self, plan: &mut Plan) {
        for file in self.files() {
            for suite in crate::bench::tls::SUITES {
                let mut sample = Point::new(What::Tls, suite.name, 1_500, machine::cores());
                sample.engine = Engine::Rustls;
                (sample.unit, sample.file_bytes) = (Unit::Payload, Some(file));
                sample.key_bits = Some(suite.key_bits);
                plan.points.push(sample);
            }
        }
    }
}

/// The link without any tunnel, and our forwarder without ESP: what ESP itself is compared with.
fn baselines(size: u32, cores: u32) -> impl Iterator<Item = Point> {
    [Engine::Plain, Engine::Dormouse].into_iter().map(move |engine| {
        let mut sample = point(What::Path, Suite::NONE, size, cores);
        sample.engine = engine;
        sample
    })
}

/// What does the same and is not ours.
fn others(size: u32, cores: u32) -> impl Iterator<Item = Point> {
    let all = [
        (Engine::Kernel, "aes128gcm16", Encapsulation::Tunnel),
        (Engine::Wireguard, "chacha20poly1305", Encapsulation::None),
        (Engine::WireguardGo, "chacha20poly1305", Encapsulation::None),
    ];
    all.into_iter().map(move |(engine, suite, encapsulation)| {
        let mut sample = Point::new(What::Path, suite, size, cores);
        (sample.engine, sample.encapsulation) = (engine, encapsulation);
        described(sample)
    })
}

/// The point in tunnel mode while AES instructions are hidden.
fn without_aes(mut sample: Point) -> Point {
    sample.encapsulation = Encapsulation::Tunnel;
    sample.aes_instructions = Some(false);
    sample
}

/// A point of a suite of ours.
fn point(what: What, suite: Suite, size: u32, cores: u32) -> Point {
    described(Point::new(what, &suite.to_string(), size, cores))
}

/// With the integrity algorithm and the key length that the suite's name says.
fn described(mut sample: Point) -> Point {
    if let Ok(suite) = sample.suite.parse::<Suite>() {
        sample.integrity = suite.to_string().split_once('-').map(|(_, integrity)| integrity.to_owned());
        sample.key_bits = match suite.cipher() {
            Cipher::Null => None,
            Cipher::Des => Some(56),
            Cipher::TripleDes => Some(168),
            Cipher::Aes128Cbc
            | Cipher::Aes128Ctr
            | Cipher::Aes128Ccm8
            | Cipher::Aes128Ccm12
            | Cipher::Aes128Ccm16
            | Cipher::Aes128Gcm16 => Some(128),
            _ => Some(256),
        };
    }
    sample
}

//! Invented result files, for tests only: costs by formula, so that the right answer is known.

use dormouse_lab::results::esp::{Encapsulation, Engine, Point, What};
use dormouse_lab::results::format::{EnergySource, Machine, Skipped};
use dormouse_lab::results::{Figures, Results, Sample};

/// Nanoseconds for a packet: fixed, and for each byte; by suite. The integrity algorithm comes on top.
const COSTS: [(&str, f64, f64); 11] = [
    ("aes128gcm16", 300.0, 0.20),
    ("aes256gcm16", 310.0, 0.24),
    ("chacha20poly1305", 400.0, 0.60),
    ("aes128-sha256", 700.0, 1.80),
    ("aes256-sha256", 710.0, 2.00),
    ("aes128-sha1", 500.0, 1.20),
    ("aes128ctr-sha1", 480.0, 1.00),
    ("aes128ccm16", 450.0, 1.50),
    ("null-sha1", 350.0, 0.80),
    ("des-md5", 600.0, 12.0),
    ("3des-sha1", 700.0, 30.0),
];

/// A point of one suite with eleven rounds of `nanoseconds` per packet, give or take half a percent.
pub(crate) fn sample(what: What, suite: &str, bytes: u32, nanoseconds: f64) -> Sample {
    let mut sample = Sample::from(Point::new(what, suite, bytes, 1));
    sample.verified = true;
    sample.integrity = suite.split_once('-').map(|(_, integrity)| integrity.to_owned());
    sample.aes_instructions = suite.starts_with("aes").then_some(true);
    if what != What::Crypto {
        sample.encapsulation = Encapsulation::Udp;
    }
    for n in 0..11u32 {
        let wobble = 1.0 + 0.005 * f64::from(n * 7 % 11) / 5.0 - 0.005;
        let each = nanoseconds * wobble / f64::from(bytes);
        let figures = Figures::default()
            .with("throughput", 1e9 / each)
            .with("cpu_thread", each)
            .with("joules_per_byte", each * 5e-9);
        sample.push(n, figures);
    }
    sample
}

/// A machine's whole campaign: eleven suites at four sizes, the whole path.
pub(crate) fn campaign() -> Results {
    let machine = Machine {
        cpu: "An invented processor".to_owned(),
        cores: 2,
        flags: vec!["aes".to_owned()],
        ..Machine::default()
    };
    let mut results = Results::new(machine);
    results.energy.source = EnergySource::Estimated;
    results.energy.name = "laptop-000".to_owned();
    results.finished = Some(1);
    for bytes in [180u32, 576, 1_024, 1_420] {
        for (suite, fixed, each) in COSTS {
            results.samples.push(sample(What::Path, suite, bytes, fixed + each * f64::from(bytes)));
        }
        // So that NULL with SHA1 costs what paper 004 says.
        let mut plain = sample(What::Path, "none", bytes, (350.0 + 0.8 * f64::from(bytes)) / 1.5);
        plain.engine = Engine::Plain;
        plain.encapsulation = Encapsulation::None;
        results.samples.push(plain);
    }
    for wrap in [Encapsulation::Tunnel, Encapsulation::Transport, Encapsulation::UdpTransport] {
        for (bytes, more) in [(180u32, 1.2), (1_420, 1.0)] {
            let more = if wrap == Encapsulation::Tunnel { more } else { 1.0 };
            let mut s = sample(What::Path, "aes128gcm16", bytes, (300.0 + 0.2 * f64::from(bytes)) * more);
            s.encapsulation = wrap;
            results.samples.push(s);
        }
    }
    let reason = "the library does not heed the mask <here>";
    results.skipped.push(Skipped::new("AES instructions off", reason));
    results
}

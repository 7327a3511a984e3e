//! Invented streams of paper 001, for tests only.

use dormouse_lab::results::esp::{Encapsulation, Engine, Point, Unit, What};
use dormouse_lab::results::format::Machine;
use dormouse_lab::results::{Figures, Results, Sample};

use crate::common::sample;

/// A stream as paper 001 had it: UDP at a rate, with or without protection.
fn stream(suite: &str, pdu: u32, offered: Option<f64>, received: f64, joules: f64) -> Sample {
    let mut s = Sample::from(Point::new(What::Stream, suite, pdu, 1));
    s.verified = true;
    s.unit = Unit::Payload;
    s.offered = offered;
    if suite == "none" {
        s.engine = Engine::Plain;
    } else {
        s.encapsulation = Encapsulation::Udp;
    }
    let rate = offered.unwrap_or(1e9) / 8.0;
    for n in 0..5u32 {
        let wobble = 1.0 + 0.002 * (f64::from(n) - 2.0);
        let got = (received * wobble).min(1.0);
        let figures = Figures::default()
            .with("elapsed", 3.0)
            .with("throughput", rate * got)
            .with("loss", 1.0 - got)
            .with("jitter", 1e-5)
            .with("joules", joules * wobble)
            .with("packets_sent", 10_000.0)
            .with("packets_received", (10_000.0 * got).floor());
        s.push(n, figures);
    }
    s
}

/// What arrives of packets of this size at full speed, as a part of what arrives of the largest that are not fragmented: as in the paper.
fn part(suite: &str, pdu: u32) -> f64 {
    match pdu {
        256 if suite == "3des-sha1" => 1.0 / 2.43,
        256 => 1.0 / 2.66,
        512 => 0.65,
        _ => 1.0,
    }
}

/// Joules with a VPN at a rate: from one to the next about as much more as in the paper.
fn joules_at(rate: f64) -> f64 {
    match rate {
        r if r < 100e3 => 12.5,
        r if r < 200e3 => 25.0,
        r if r < 500e3 => 29.0,
        r if r < 1.5e6 => 52.6,
        _ => 81.0,
    }
}

/// Streams in which the paper's findings hold, or (`modern`) none does but the cost of algorithms.
pub(crate) fn streams(modern: bool) -> Results {
    let machine = Machine { cpu: "An invented processor".to_owned(), cores: 2, ..Machine::default() };
    let mut results = Results::new(machine);
    for (suite, cost) in [("none", 1.0), ("3des-sha1", if modern { 1.0 } else { 0.66 }), ("aes128gcm16", 1.0)]
    {
        for pdu in [256u32, 512, 1_024, 2_048] {
            // At full speed what arrives is the device's limit.
            let size = if modern { 0.5 } else { 0.5 * part(suite, pdu) };
            let fragments = if pdu > 1_500 && !modern { 0.02 } else { 1.0 };
            results.samples.push(stream(suite, pdu, None, cost * size * fragments, 10.0));
            let joules = if suite == "none" || modern { if modern { 25.0 } else { 50.0 } } else { 80.0 };
            let received = match suite {
                _ if fragments == 1.0 => 0.99,
                "3des-sha1" => 0.014,
                _ => 0.039,
            };
            results.samples.push(stream(suite, pdu, Some(2e6), received, joules));
        }
        for rate in [56e3, 128e3, 256e3, 1e6, 4e6, 8e6] {
            let lost = !modern && ((suite != "none" && rate > 3e6) || rate > 7e6);
            let joules = match suite {
                _ if modern => 25.0,
                "none" => joules_at(rate) / 1.6,
                _ => joules_at(rate),
            };
            results.samples.push(stream(suite, 1_024, Some(rate), if lost { 0.5 } else { 0.98 }, joules));
        }
    }
    for (suite, each) in
        [("3des-sha1", 30.0), ("3des-md5", 28.0), ("des-sha1", 13.0), ("des-md5", 12.0), ("aes128gcm16", 0.3)]
    {
        results.samples.push(sample(What::Crypto, suite, 1_024, 1_024.0 * each));
    }
    results
}

//! The figures behind what came out for a rule of paper 004, from the same measurements. Owns the words; must never name a cause that
//! was not measured.

use dormouse_report::digits;

use crate::judge::stats::Bootstrap;
use crate::results::esp::Direction::{In, Out};
use crate::results::esp::{Encapsulation, Engine, Metric, What};
use crate::results::{Results, Sample};

/// What the file says about the parts of what a rule compares, in nanoseconds of CPU for a byte of the largest packets that fit an
/// Ethernet; empty unless all of them were measured.
pub(super) fn why(results: &Results, bootstrap: &Bootstrap, id: &str) -> String {
    let fewest =
        |what: What| results.samples.iter().filter(|s| s.what == what).map(|s| s.cores).min().unwrap_or(1);
    let cost = |what: What, holds: &dyn Fn(&Sample) -> bool| {
        let known =
            results.samples.iter().filter(|s| s.what == what && s.verified && s.packet_bytes <= 1_500);
        let sample = known.filter(|s| holds(s)).max_by_key(|s| (s.cores, s.packet_bytes))?;
        Some(bootstrap.figure(sample, Metric::Cpu)?.median)
    };
    let ours = |what: What, holds: &dyn Fn(&Sample) -> bool| {
        cost(what, &|s| {
            s.engine == Engine::Dormouse
                && s.aes_instructions != Some(false)
                && s.cores <= fewest(what)
                && holds(s)
        })
    };
    let crypto = |suite: &str| ours(What::Crypto, &|s| s.suite == suite);
    let one_way = |suite: &str, way| ours(What::Crypto, &|s| s.suite == suite && s.direction == way);
    let stage = |engine: Engine, suite: &str, wrapped: bool| {
        cost(What::Path, &|s| {
            let tunnel = s.encapsulation == Encapsulation::Tunnel;
            s.engine == engine && s.suite == suite && tunnel == wrapped
        })
    };
    let parts: &[(&str, Option<f64>)] = match id {
        "composed-over-aead" | "hardware-small" | "software-aead" => &[
            ("HMAC-SHA1 alone (NULL)", crypto("null-sha1")),
            ("the whole of AES-128-GCM", crypto("aes128gcm16")),
        ],
        "ccm-over-gcm" => &[("CCM", crypto("aes128ccm16")), ("GCM", crypto("aes128gcm16"))],
        "hardware-cpu" | "hardware-elapsed" => &[
            ("CBC with SHA1 to seal", one_way("aes128-sha1", Out)),
            ("to open", one_way("aes128-sha1", In)),
            ("CTR to seal", one_way("aes128ctr-sha1", Out)),
        ],
        "encryption-overhead" | "aes-instructions" => &[
            ("the whole path with AES-128-GCM", ours(What::Path, &|s| s.suite == "aes128gcm16")),
            ("one sealing or opening", crypto("aes128gcm16")),
        ],
        "network-overhead" => &[
            ("the bare link", stage(Engine::Plain, "none", false)),
            ("our forwarder without ESP", stage(Engine::Dormouse, "none", false)),
            ("NULL and SHA1", stage(Engine::Dormouse, "null-sha1", true)),
        ],
        _ => &[],
    };
    let words = parts.iter().map(|(what, cost)| Some(format!("{what} {} ns/B", digits((*cost)?))));
    words.collect::<Option<Vec<_>>>().unwrap_or_default().join(", ")
}

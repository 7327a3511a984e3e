//! The figures behind what came out for a rule of paper 004, from the same measurements. Owns the words; must never name a cause that
//! was not measured.

use dormouse_report::digits;

use crate::judge::stats::Bootstrap;
use crate::results::esp::{Encapsulation, Engine, Metric, What};
use crate::results::{Results, Sample};

/// What the file says about the parts of what a rule compares; empty if nothing.
pub(super) fn why(results: &Results, bootstrap: &Bootstrap, id: &str) -> String {
    let costs = Costs { results, bootstrap };
    let told = match id {
        "composed-over-aead" | "hardware-small" | "software-aead" => costs.mac_against_gcm(),
        "ccm-over-gcm" => costs.ccm_parts(),
        "hardware-cpu" | "hardware-elapsed" => costs.cbc_against_ctr(),
        "encryption-overhead" | "aes-instructions" => costs.part_of_path(),
        "network-overhead" => costs.stages(),
        _ => None,
    };
    told.unwrap_or_default()
}

/// Costs of the cryptography alone, at the largest packet size that fits an Ethernet.
struct Costs<'a> {
    results: &'a Results,
    bootstrap: &'a Bootstrap,
}

impl Costs<'_> {
    fn largest(&self, what: What, holds: impl Fn(&Sample) -> bool) -> Option<f64> {
        let sample = self
            .results
            .samples
            .iter()
            .filter(|s| {
                s.what == what && s.verified && s.packet_bytes <= 1_500 && s.cores <= self.fewest(what)
            })
            .filter(|s| s.engine == Engine::Dormouse && s.aes_instructions != Some(false) && holds(s))
            .max_by_key(|s| s.packet_bytes)?;
        Some(self.bootstrap.figure(sample, Metric::Cpu)?.median)
    }

    fn fewest(&self, what: What) -> u32 {
        self.results.samples.iter().filter(|s| s.what == what).map(|s| s.cores).min().unwrap_or(1)
    }

    fn of(&self, suite: &str) -> Option<f64> {
        self.largest(What::Crypto, |s| s.suite == suite)
    }

    /// HMAC-SHA1 alone against the whole of AES-GCM.
    fn mac_against_gcm(&self) -> Option<String> {
        let (mac, gcm) = (self.of("null-sha1")?, self.of("aes128gcm16")?);
        Some(format!(
            "HMAC-SHA1 alone (NULL) takes {} ns/B, the whole of AES-128-GCM {} ns/B",
            digits(mac),
            digits(gcm)
        ))
    }

    fn ccm_parts(&self) -> Option<String> {
        let (ccm, gcm) = (self.of("aes128ccm16")?, self.of("aes128gcm16")?);
        Some(format!("CCM takes {} ns/B, GCM {} ns/B", digits(ccm), digits(gcm)))
    }

    fn cbc_against_ctr(&self) -> Option<String> {
        let cost = |suite: &str, direction| {
            self.largest(What::Crypto, |s| s.suite == suite && s.direction == direction)
        };
        use crate::results::esp::Direction::{In, Out};
        let (sealing, opening) = (cost("aes128-sha1", Out)?, cost("aes128-sha1", In)?);
        let ctr = cost("aes128ctr-sha1", Out)?;
        Some(format!(
            "CBC with SHA1 takes {} ns/B to seal and {} to open, CTR {} to seal",
            digits(sealing),
            digits(opening),
            digits(ctr)
        ))
    }

    /// What a byte of the largest packets costs at each stage towards NULL encryption.
    fn stages(&self) -> Option<String> {
        let of = |engine: Engine, suite: &str, wrapped: bool| {
            let sample = self
                .results
                .samples
                .iter()
                .filter(|s| s.what == What::Path && s.verified && s.packet_bytes <= 1_500)
                .filter(|s| s.engine == engine && s.suite == suite)
                .filter(|s| (s.encapsulation == Encapsulation::Tunnel) == wrapped)
                .max_by_key(|s| (s.cores, s.packet_bytes))?;
            Some(self.bootstrap.figure(sample, Metric::Cpu)?.median)
        };
        Some(format!(
            "A byte of the largest packets takes {} ns over the bare link, {} through our forwarder without ESP, {} with NULL and SHA1",
            digits(of(Engine::Plain, "none", false)?),
            digits(of(Engine::Dormouse, "none", false)?),
            digits(of(Engine::Dormouse, "null-sha1", true)?)
        ))
    }

    /// What part of the whole path the cryptography is.
    fn part_of_path(&self) -> Option<String> {
        let path = self.largest(What::Path, |s| s.suite == "aes128gcm16")?;
        let crypto = self.of("aes128gcm16")?;
        Some(format!(
            "The whole path with AES-128-GCM takes {} ns/B, of which one sealing or opening is {}",
            digits(path),
            digits(crypto)
        ))
    }
}

//! Why ours agree with paper 004 or differ, from the same measurements where they can tell. Owns the words; must not explain
//! what was not measured.

use crate::advise::rules::Finding;
use crate::advise::words::digits;
use crate::results::format::{Encapsulation, Engine, Metric, Results, Sample, What};
use crate::results::stats::Bootstrap;

/// Why a rule came out as it did.
pub(super) fn why(results: &Results, bootstrap: &Bootstrap, id: &str, finding: Finding) -> String {
    match finding {
        Finding::NotMeasurable => return "no pair of samples to compare".to_owned(),
        Finding::Confirmed => {
            let more = (id == "network-overhead").then(|| Costs { results, bootstrap }.stages()).flatten();
            let same = "the same direction as in the paper";
            return more.map_or_else(
                || same.to_owned(),
                |more| format!("{same}; how much, the baseline decides. {more}"),
            );
        }
        Finding::Partly | Finding::Contradicted => {}
    }
    let costs = Costs { results, bootstrap };
    let told = match id {
        "composed-over-aead" | "hardware-small" | "software-aead" => costs.mac_against_gcm(),
        "ccm-over-gcm" => costs.ccm_parts(),
        "hardware-cpu" | "hardware-elapsed" => costs.cbc_against_ctr(),
        "encryption-overhead" | "aes-instructions" => costs.part_of_path(),
        "network-overhead" => costs.stages(),
        _ => None,
    };
    let general = match id {
        "software-small" | "software-middle" | "software-large" => {
            "the library's software AES computes several blocks at once where the mode lets it: CTR and the decryption of CBC do, the encryption of CBC does not"
        }
        "software-aead" => "GHASH in software has become cheap, and SHA1 has not",
        "composed-over-aead" | "hardware-small" => {
            "carry-less multiplication made GHASH nearly free, which the kernel of 2015 did not use well; SHA1 is the dear part of the composed suites"
        }
        "ccm-over-gcm" => "CBC-MAC is serial, GHASH is not",
        "hardware-cpu" | "hardware-elapsed" => {
            "the encryption of CBC is serial, one block after the other; CTR fills the processor's pipeline"
        }
        "one-core" | "tunnel-cores-software" | "tunnel-cores-hardware" => {
            "the paper's kernel moved one flow between cores; here the second core takes the other end's work"
        }
        "aes-instructions" => "where the path around the cipher costs most, the instructions change little",
        "network-overhead" => {
            "the same tunnel device and sockets without ESP are the baseline here, the kernel's IP stack in the paper"
        }
        "encryption-overhead" => "AES instructions made encryption a small part of the whole",
        "tunnel-large" | "tunnel-small" | "udp-encapsulation" => {
            "twenty or eight bytes more in a packet that is built in user space either way; raw sockets have no segmentation offload, UDP sockets have"
        }
        "who-gains-most" => {
            "the mode with the most AES and the least else for each byte gains most; in the composed suites SHA1 stays as slow as it was"
        }
        "tls-faster" | "tls-cpu" => {
            "TLS seals records of 16 KiB and hands the kernel whole streams, ESP seals packets: fewer calls for each byte"
        }
        _ => "a different machine, kernel and implementation",
    };
    told.map_or_else(|| general.to_owned(), |told| format!("{general}. {told}"))
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
            "Here HMAC-SHA1 alone (NULL) takes {} ns/B, the whole of AES-128-GCM {} ns/B",
            digits(mac),
            digits(gcm)
        ))
    }

    fn ccm_parts(&self) -> Option<String> {
        let (ccm, gcm) = (self.of("aes128ccm16")?, self.of("aes128gcm16")?);
        Some(format!("Here CCM takes {} ns/B, GCM {} ns/B", digits(ccm), digits(gcm)))
    }

    fn cbc_against_ctr(&self) -> Option<String> {
        let cost = |suite: &str, direction| {
            self.largest(What::Crypto, |s| s.suite == suite && s.direction == direction)
        };
        use crate::results::format::Direction::{In, Out};
        let (sealing, opening) = (cost("aes128-sha1", Out)?, cost("aes128-sha1", In)?);
        let ctr = cost("aes128ctr-sha1", Out)?;
        Some(format!(
            "Here CBC with SHA1 takes {} ns/B to seal and {} to open, CTR {} to seal",
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
            "Here a byte of the largest packets takes {} ns over the bare link, {} through our forwarder without ESP, {} with NULL and SHA1",
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
            "Here the whole path with AES-128-GCM takes {} ns/B, of which one sealing or opening is {}",
            digits(path),
            digits(crypto)
        ))
    }
}

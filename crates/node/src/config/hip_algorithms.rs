//! The names of HIP's algorithms in the configuration, `esp`, `ciphers` and `groups` of `[connection.NAME.hip]`, and how hard its puzzles are. Owns the names and what is
//! usual; what they do is of `dormouse_hip`.

use super::hip::Hip;
use dormouse_crypto::hip;
use dormouse_hip::config::Difficulty;
use dormouse_hip::{EspSuite, HostConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// As many suites fit into an offer.
const ESP_MOST: usize = 6;
/// Bits of the hardest puzzle that can be asked for.
const HARDEST: u8 = 32;

/// An ESP suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum HipEsp {
    /// AES-128-GCM.
    #[serde(rename = "aes128gcm16")]
    Aes128Gcm16,
    /// AES-256-CBC with HMAC-SHA-256.
    #[serde(rename = "aes256-sha256")]
    Aes256Sha256,
    /// AES-128-CBC with HMAC-SHA-256, which all have.
    #[serde(rename = "aes128-sha256")]
    Aes128Sha256,
    /// AES-128-CBC with HMAC-SHA1.
    #[serde(rename = "aes128-sha1")]
    Aes128Sha1,
    /// AES-128-CCM with 16 bytes of authentication.
    #[serde(rename = "aes128ccm16")]
    Aes128Ccm16,
    /// AES-128-CCM with 8 bytes of authentication.
    #[serde(rename = "aes128ccm8")]
    Aes128Ccm8,
    /// AES-128-GCM with 8 bytes of authentication.
    #[serde(rename = "aes128gcm8")]
    Aes128Gcm8,
    /// HMAC-SHA-256 without encryption.
    #[serde(rename = "null-sha256")]
    NullSha256,
    /// AES-CMAC-96 without encryption.
    #[serde(rename = "null-aes-cmac")]
    NullAesCmac,
    /// AES-128-GMAC, without encryption.
    #[serde(rename = "null-aes-gmac")]
    NullAesGmac,
}

impl HipEsp {
    pub(super) const fn suite(self) -> EspSuite {
        match self {
            Self::Aes128Gcm16 => EspSuite::Aes128Gcm16,
            Self::Aes256Sha256 => EspSuite::Aes256CbcSha256,
            Self::Aes128Sha256 => EspSuite::Aes128CbcSha256,
            Self::Aes128Sha1 => EspSuite::Aes128CbcSha1,
            Self::Aes128Ccm16 => EspSuite::Aes128Ccm16,
            Self::Aes128Ccm8 => EspSuite::Aes128Ccm8,
            Self::Aes128Gcm8 => EspSuite::Aes128Gcm8,
            Self::NullSha256 => EspSuite::NullSha256,
            Self::NullAesCmac => EspSuite::NullAesCmac,
            Self::NullAesGmac => EspSuite::NullAesGmac,
        }
    }
}

/// A cipher of HIP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HipCipher {
    /// AES-128-CBC, which all have; in version 1 the one that encrypts.
    Aes128,
    /// AES-256-CBC.
    Aes256,
    /// None.
    Null,
}

impl HipCipher {
    pub(super) const fn cipher(self) -> hip::HipCipher {
        match self {
            Self::Aes128 => hip::HipCipher::Aes128Cbc,
            Self::Aes256 => hip::HipCipher::Aes256Cbc,
            Self::Null => hip::HipCipher::Null,
        }
    }
}

/// A Diffie-Hellman group that may protect traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HipGroup {
    /// NIST P-384, number 8.
    Ecp384,
    /// NIST P-521, number 9.
    Ecp521,
    /// NIST P-256, number 7.
    Ecp256,
    /// MODP of 3,072 bits, number 4.
    Modp3072,
    /// MODP of 2,048 bits, number 11.
    Modp2048,
    /// MODP of 1,536 bits, number 3, which all have.
    Modp1536,
}

impl HipGroup {
    /// All of them, the best first.
    pub(super) const ALL: [Self; 6] =
        [Self::Ecp384, Self::Ecp521, Self::Ecp256, Self::Modp3072, Self::Modp2048, Self::Modp1536];

    pub(super) const fn group(self) -> hip::DhGroup {
        match self {
            Self::Ecp384 => hip::DhGroup::Ecp384,
            Self::Ecp521 => hip::DhGroup::Ecp521,
            Self::Ecp256 => hip::DhGroup::Ecp256,
            Self::Modp3072 => hip::DhGroup::Modp3072,
            Self::Modp2048 => hip::DhGroup::Modp2048,
            Self::Modp1536 => hip::DhGroup::Modp1536,
        }
    }
}

pub(super) fn esp() -> Vec<HipEsp> {
    vec![HipEsp::Aes128Gcm16, HipEsp::Aes256Sha256, HipEsp::Aes128Sha256]
}

pub(super) fn ciphers() -> Vec<HipCipher> {
    vec![HipCipher::Aes128, HipCipher::Aes256]
}

pub(super) fn groups() -> Vec<HipGroup> {
    HipGroup::ALL.to_vec()
}

/// How hard puzzles are, in bits: each doubles the work, and 20 are some hundred milliseconds of a computer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HipPuzzle {
    /// What those who call solve while there is no load. 0: nothing.
    pub idle: u8,
    /// What they solve at most, however great the load is.
    pub most: u8,
    /// The hardest puzzle that this host solves for a peer: what it calls for does not begin behind a harder one.
    pub solve: u8,
}

impl Default for HipPuzzle {
    fn default() -> Self {
        let Difficulty { idle, most, solve, .. } = HostConfig::default().difficulty;
        Self { idle, most, solve }
    }
}

impl HipPuzzle {
    pub(super) fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether the algorithms are some that this host can offer, in the versions of HIP that it speaks.
///
/// # Errors
/// The key that is wrong, and why.
pub(super) fn check(h: &Hip, versions: &BTreeSet<u8>) -> Result<(), (&'static str, String)> {
    let wrong = |key, problem: &str| Err((key, problem.to_owned()));
    if h.esp.len() > ESP_MOST || !is_once(&h.esp) {
        return Err(("esp", format!("one to {ESP_MOST} suites are offered, each once")));
    }
    if !is_once(&h.ciphers) {
        return wrong("ciphers", "one to three ciphers are offered, each once");
    }
    if !is_once(&h.groups) {
        return wrong("groups", "one to six groups are offered, each once");
    }
    let of_v1 = |esp: &HipEsp| matches!(esp, HipEsp::Aes128Sha1 | HipEsp::NullSha256);
    let only_v1 = !versions.contains(&2);
    if only_v1 && h.esp != esp() && !h.esp.iter().all(of_v1) {
        return wrong("esp", "version 1 has aes128-sha1, and null-sha256 behind it if that is named");
    }
    if only_v1 && h.ciphers != ciphers() && h.ciphers.contains(&HipCipher::Aes256) {
        return wrong("ciphers", "version 1 has aes128, and null behind it if that is named");
    }
    let groups_v1 = [HipGroup::Modp3072, HipGroup::Modp1536];
    if versions.contains(&1) && !groups_v1.iter().any(|group| h.groups.contains(group)) {
        return wrong("groups", "version 1 needs modp3072 or modp1536 among them");
    }
    if h.puzzle.idle > h.puzzle.most {
        return wrong("puzzle.most", "is less than hip.puzzle.idle");
    }
    for (key, k) in [("puzzle.most", h.puzzle.most), ("puzzle.solve", h.puzzle.solve)] {
        if k > HARDEST {
            return Err((key, format!("{HARDEST} is the most: that is minutes of work")));
        }
    }
    Ok(())
}

/// Whether something is named, and nothing twice.
fn is_once<T: PartialEq>(named: &[T]) -> bool {
    !named.is_empty() && named.iter().enumerate().all(|(i, one)| !named[..i].contains(one))
}

//! In what versions 1 (RFC 5201, RFC 5202) and 2 differ besides identities and key material: parameters that have other numbers, and what is
//! offered. Owns the choice; must never look at a packet.

use dormouse_crypto::hip::{DhGroup, HipCipher};
use dormouse_wire::hip::limits::MAX_SUITES;
use dormouse_wire::hip::{ParamType, Version};

use crate::config::{EspSuite, HostConfig};

/// The type of R1_COUNTER.
pub(crate) const fn counter(version: Version) -> ParamType {
    match version {
        Version::V1 => ParamType::R1CounterV1,
        Version::V2 => ParamType::R1Counter,
    }
}

/// The type of the list of ciphers: HIP_TRANSFORM or HIP_CIPHER.
pub(crate) const fn ciphers_kind(version: Version) -> ParamType {
    match version {
        Version::V1 => ParamType::HipTransform,
        Version::V2 => ParamType::HipCipher,
    }
}

/// The number of a cipher, with HMAC-SHA1 in version 1; `None` if the version has it not.
pub(crate) const fn cipher_id(version: Version, cipher: HipCipher) -> Option<u16> {
    match (version, cipher) {
        (Version::V2, cipher) => Some(cipher.id()),
        (Version::V1, HipCipher::Aes128Cbc) => Some(1),
        (Version::V1, HipCipher::Null) => Some(5),
        (Version::V1, HipCipher::Aes256Cbc) => None,
    }
}

/// Ciphers of ENCRYPTED, the best first. In version 1 there is one that encrypts, and it is there without being named.
/// "The sender of a HIP_TRANSFORM parameter MUST make sure that there are no more than six (6) HIP Suite IDs in one HIP_TRANSFORM parameter."
/// (RFC 5201 section 5.2.7)
pub(crate) fn ciphers(version: Version, config: &HostConfig) -> Vec<HipCipher> {
    match version {
        Version::V1 => {
            let null = config.ciphers.contains(&HipCipher::Null).then_some(HipCipher::Null);
            [HipCipher::Aes128Cbc].into_iter().chain(null).collect()
        }
        Version::V2 => config.ciphers.clone(),
    }
}

/// ESP suites, the best first. Version 1 has AES with SHA-1 and, if what is sent may be read, that without AES.
/// "All HIP implementations MUST support AES-CBC [RFC3602] and HMAC-SHA-1-96 [RFC2404]." (RFC 5202 section 3.3.5)
/// "The sender of an ESP transform parameter MUST make sure that there are no more than six (6) Suite IDs in one ESP transform parameter."
/// (RFC 7402 section 5.1.2)
pub(crate) fn esp_suites(version: Version, config: &HostConfig) -> Vec<EspSuite> {
    match version {
        Version::V1 => {
            let null = config.esp_suites.contains(&EspSuite::NullSha256).then_some(EspSuite::NullSha1);
            [EspSuite::Aes128CbcSha1].into_iter().chain(null).collect()
        }
        Version::V2 => config.esp_suites.iter().take(MAX_SUITES).copied().collect(),
    }
}

/// Groups, the best first: those of MODP alone in version 1, whose other numbers are other groups.
pub(crate) fn groups(version: Version, config: &HostConfig) -> Vec<DhGroup> {
    let both = |group: &DhGroup| group.id() <= DhGroup::Modp3072.id();
    let known = config.groups.iter().filter(|group| version == Version::V2 || both(group));
    known.copied().collect()
}

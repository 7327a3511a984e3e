//! The names of HIP's algorithms in the configuration, `esp` and `ciphers` of `[connection.NAME.hip]`. Owns the names alone.

use dormouse_crypto::hip;
use dormouse_hip::EspSuite;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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

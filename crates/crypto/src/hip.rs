//! What the Host Identity Protocol uses besides: its Diffie-Hellman groups, by its own numbers (RFC 7401 section 5.2.7), and the ciphers
//! of its ENCRYPTED parameter (section 5.2.8). Owns their lengths; must never be reachable from a proposal of IKE, which must not have
//! all of them (RFC 8247).

pub mod v1;

use aws_lc_rs::cipher::{
    AES_128, AES_256, DecryptionContext, EncryptionContext, PaddedBlockDecryptingKey,
    PaddedBlockEncryptingKey, UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use dormouse_sansio::Entropy;

use crate::dh::DhPrivate;
use crate::dh::modp::{Exponent, Modp};
use crate::error::Unauthentic;
use crate::secret::Secret;
use crate::suites::Group;

/// A group of HIP.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DhGroup {
    /// 384-bit MODP (RFC 5201): minutes of work for an attacker. For measurements alone.
    LabModp384,
    /// 768-bit MODP (RFC 5201): within reach of an attacker. For measurements alone.
    LabModp768,
    /// 1,536-bit MODP (RFC 3526).
    /// "A HIP implementation MUST implement Group ID 3." (RFC 7401 section 5.2.7)
    Modp1536,
    /// 3,072-bit MODP (RFC 3526).
    Modp3072,
    /// NIST P-256 (RFC 5903).
    Ecp256,
    /// NIST P-384 (RFC 5903).
    Ecp384,
    /// NIST P-521 (RFC 5903).
    Ecp521,
    /// 2,048-bit MODP (RFC 3526).
    Modp2048,
}

/// A peer's public value that no honest peer has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("public value refused for group {}: {why}", group.id())]
pub struct BadPublicValue {
    /// The group.
    pub group: DhGroup,
    /// The check that failed.
    pub why: &'static str,
}

impl DhGroup {
    /// Every group that may protect traffic.
    /// "In general, hosts SHOULD prefer stronger groups over weaker ones if the computation overhead is not prohibitively high for the
    /// intended application." (RFC 7401 section 5.2.6)
    /// "Implementations SHOULD implement Group IDs 4 and 8." (RFC 7401 section 5.2.7)
    /// "Any ECDH used with HIP MUST have a co-factor of 1." (RFC 7401 section 5.2.7)
    pub const ALL: [Self; 6] =
        [Self::Ecp384, Self::Ecp521, Self::Ecp256, Self::Modp3072, Self::Modp2048, Self::Modp1536];

    /// Its number (RFC 7401 section 5.2.7, RFC 5201 section 5.2.6).
    #[must_use]
    pub const fn id(self) -> u8 {
        match self {
            Self::LabModp384 => 1,
            Self::LabModp768 => 2,
            Self::Modp1536 => 3,
            Self::Modp3072 => 4,
            Self::Ecp256 => 7,
            Self::Ecp384 => 8,
            Self::Ecp521 => 9,
            Self::Modp2048 => 11,
        }
    }

    /// The group of this number, if it may protect traffic.
    #[must_use]
    pub fn by_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.id() == id)
    }

    /// The groups that paper 002 measured and that protect nothing: never configured, never negotiated outside of a measurement.
    #[must_use]
    pub fn for_measurement(id: u8) -> Option<Self> {
        [Self::LabModp384, Self::LabModp768].into_iter().find(|group| group.id() == id)
    }

    /// Length of a public value in bytes: MODP at the width of the prime, ECP x | y.
    #[must_use]
    pub const fn public_len(self) -> usize {
        match self {
            Self::LabModp384 => 48,
            Self::LabModp768 => 96,
            Self::Modp1536 => 192,
            Self::Modp3072 => Group::Modp3072.public_len(),
            Self::Ecp256 => Group::Ecp256.public_len(),
            Self::Ecp384 => Group::Ecp384.public_len(),
            Self::Ecp521 => Group::Ecp521.public_len(),
            Self::Modp2048 => Group::Modp2048.public_len(),
        }
    }
}

/// An ephemeral private key with its public value. It is wiped when dropped.
pub struct DhKey {
    group: DhGroup,
    key: Key,
    public: Vec<u8>,
}

enum Key {
    Shared(DhPrivate),
    Modp(Exponent),
}

impl DhKey {
    /// A fresh key pair; `None` if the source of entropy gives no usable scalar (an honest source: never).
    #[must_use]
    pub fn generate(group: DhGroup, entropy: &mut dyn Entropy) -> Option<Self> {
        let mut shared = |group| DhPrivate::generate(group, entropy).ok().map(Key::Shared);
        let key = match group {
            DhGroup::Modp3072 => shared(Group::Modp3072)?,
            DhGroup::Ecp256 => shared(Group::Ecp256)?,
            DhGroup::Ecp384 => shared(Group::Ecp384)?,
            DhGroup::Ecp521 => shared(Group::Ecp521)?,
            DhGroup::Modp2048 => shared(Group::Modp2048)?,
            DhGroup::LabModp384 => Key::Modp(Exponent::generate(Modp::M384, entropy)),
            DhGroup::LabModp768 => Key::Modp(Exponent::generate(Modp::M768, entropy)),
            DhGroup::Modp1536 => Key::Modp(Exponent::generate(Modp::M1536, entropy)),
        };
        let public = match &key {
            Key::Shared(private) => private.public_value().to_vec(),
            Key::Modp(exponent) => exponent.public_value(),
        };
        Some(Self { group, key, public })
    }

    /// The group.
    #[must_use]
    pub const fn group(&self) -> DhGroup {
        self.group
    }

    /// The public value: [`DhGroup::public_len`] bytes.
    #[must_use]
    pub fn public_value(&self) -> &[u8] {
        &self.public
    }

    /// The shared secret Kij: MODP at the width of the prime, ECP the x coordinate.
    ///
    /// # Errors
    /// If the peer's value has the wrong length, is out of range or not on the curve.
    pub fn agree(&self, peer: &[u8]) -> Result<Secret, BadPublicValue> {
        let group = self.group;
        let bad = |why| BadPublicValue { group, why };
        if peer.len() != group.public_len() {
            return Err(bad("it has another length"));
        }
        match &self.key {
            Key::Shared(private) => private.agree(peer).map_err(|_| bad("it is not in the group")),
            Key::Modp(exponent) => exponent.agree(peer).map_err(bad),
        }
    }
}

impl core::fmt::Debug for DhKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "DhKey({:?})", self.group)
    }
}

/// A cipher of the ENCRYPTED parameter.
/// "All implementations MUST support AES [RFC3602]." (RFC 7401 section 5.3.2)
/// "Implementors SHOULD support NULL-ENCRYPT for testing/debugging purposes" (RFC 7401 section 5.2.8)
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum HipCipher {
    /// AES-128-CBC, which all must have.
    Aes128Cbc,
    /// AES-256-CBC.
    Aes256Cbc,
    /// No encryption.
    /// "[...] MUST NOT offer or accept this value unless explicitly configured for testing/debugging of HIP" (RFC 7401 section 5.2.8)
    Null,
}

impl HipCipher {
    /// Its number (RFC 7401 section 5.2.8).
    #[must_use]
    pub const fn id(self) -> u16 {
        match self {
            Self::Null => 1,
            Self::Aes128Cbc => 2,
            Self::Aes256Cbc => 4,
        }
    }

    /// Length of the key in bytes.
    #[must_use]
    pub const fn key_len(self) -> usize {
        match self {
            Self::Null => 0,
            Self::Aes128Cbc => 16,
            Self::Aes256Cbc => 32,
        }
    }

    /// Length of the initialization vector in bytes.
    #[must_use]
    pub const fn iv_len(self) -> usize {
        match self {
            Self::Null => 0,
            _ => 16,
        }
    }

    fn keyed(self, key: &[u8]) -> Option<UnboundCipherKey> {
        let algorithm = if self == Self::Aes128Cbc { &AES_128 } else { &AES_256 };
        UnboundCipherKey::new(algorithm, key).ok()
    }

    /// The initialization vector, drawn from `entropy`, and the ciphertext of `plain`, padded by PKCS #5 (RFC 7401 section 5.2.18). `None`
    /// if the key has the wrong length.
    /// "In this case, the above block of data MUST include additional padding, as specified by the encryption algorithm." (RFC 7401 section
    /// 5.2.18)
    #[must_use]
    pub fn encrypt(self, key: &[u8], plain: &[u8], entropy: &mut dyn Entropy) -> Option<Vec<u8>> {
        let mut data = plain.to_vec();
        if self == Self::Null {
            return key.is_empty().then_some(data);
        }
        let mut iv = [0; 16];
        entropy.fill(&mut iv);
        let key = PaddedBlockEncryptingKey::cbc_pkcs7(self.keyed(key)?).ok()?;
        key.less_safe_encrypt(&mut data, EncryptionContext::Iv128(FixedLength::from(iv))).ok()?;
        Some([&iv[..], &data].concat())
    }

    /// The plaintext of what [`Self::encrypt`] made. The packet's MAC must have been checked: padding is judged here.
    ///
    /// # Errors
    /// If it was not made with this key.
    pub fn decrypt(self, key: &[u8], encrypted: &[u8]) -> Result<Vec<u8>, Unauthentic> {
        if self == Self::Null {
            return Ok(encrypted.to_vec());
        }
        let (iv, data) = encrypted.split_first_chunk::<16>().ok_or(Unauthentic)?;
        let key = self.keyed(key).ok_or(Unauthentic)?;
        let key = PaddedBlockDecryptingKey::cbc_pkcs7(key).map_err(|_| Unauthentic)?;
        let mut data = data.to_vec();
        let context = DecryptionContext::Iv128(FixedLength::from(iv));
        Ok(key.decrypt(&mut data, context).map_err(|_| Unauthentic)?.to_vec())
    }
}

#[cfg(test)]
mod tests;

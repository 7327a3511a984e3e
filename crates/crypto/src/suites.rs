//! The one table of algorithms: names in configuration, IANA numbers and lengths. What RFC 8247 (IKEv2) and RFC 8221 (ESP)
//! forbid has no variant here and so cannot be configured, offered or accepted. Must never hold an implementation.

use core::fmt;
use core::str::FromStr;

/// A cipher: IKEv2 transform type 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Encr {
    /// AES-128-GCM with a 16-byte ICV (RFC 4106, RFC 5282).
    Aes128Gcm16,
    /// AES-256-GCM with a 16-byte ICV (RFC 4106, RFC 5282).
    Aes256Gcm16,
    /// ChaCha20-Poly1305 (RFC 7634).
    ChaCha20Poly1305,
    /// AES-128-CBC (RFC 3602).
    Aes128Cbc,
    /// AES-256-CBC (RFC 3602).
    Aes256Cbc,
    /// AES-128-CTR (RFC 3686, RFC 5930).
    Aes128Ctr,
    /// AES-256-CTR (RFC 3686, RFC 5930).
    Aes256Ctr,
    /// AES-128-CCM with a 16-byte ICV (RFC 4309, RFC 5282).
    Aes128Ccm16,
    /// AES-256-CCM with a 16-byte ICV (RFC 4309, RFC 5282).
    Aes256Ccm16,
    /// AES-128-CCM with a 12-byte ICV (RFC 4309, RFC 5282).
    Aes128Ccm12,
    /// AES-256-CCM with a 12-byte ICV (RFC 4309, RFC 5282).
    Aes256Ccm12,
    /// AES-128-CCM with an 8-byte ICV (RFC 4309, RFC 5282).
    Aes128Ccm8,
    /// AES-256-CCM with an 8-byte ICV (RFC 4309, RFC 5282).
    Aes256Ccm8,
    /// No encryption (RFC 2410). HIP alone can agree on it.
    Null,
    /// No encryption, but an initialization vector of 16 bytes: what one kind of HIP peer takes for RFC 2410.
    NullIv16,
    /// AES-128-GCM with an 8-byte ICV (RFC 4106). HIP alone can agree on it.
    Aes128Gcm8,
    /// AES-128-GMAC (RFC 4543): no encryption. HIP can agree on it, and IKE for an ESP SA that was configured to be like that.
    Aes128Gmac,
    /// AES-192-GMAC (RFC 4543), as [`Self::Aes128Gmac`], by IKE alone.
    Aes192Gmac,
    /// AES-256-GMAC (RFC 4543), as [`Self::Aes128Gmac`], by IKE alone.
    Aes256Gmac,
}

/// An integrity algorithm: IKEv2 transform type 3.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Integ {
    /// HMAC-SHA1-96 (RFC 2404).
    HmacSha1_96,
    /// HMAC-SHA-256-128 (RFC 4868).
    HmacSha256_128,
    /// HMAC-SHA-384-192 (RFC 4868).
    HmacSha384_192,
    /// HMAC-SHA-512-256 (RFC 4868).
    HmacSha512_256,
    /// HMAC-SHA-256 that is not cut: what one kind of HIP peer takes for [`Self::HmacSha256_128`].
    HmacSha256Whole,
    /// AES-CMAC-96 (RFC 4494), with [`Encr::Null`]. HIP alone can agree on it.
    AesCmac96,
}

/// A pseudo-random function: IKEv2 transform type 2.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Prf {
    /// PRF_HMAC_SHA1 (RFC 2104).
    HmacSha1,
    /// PRF_HMAC_SHA2_256 (RFC 4868).
    HmacSha256,
    /// PRF_HMAC_SHA2_384 (RFC 4868).
    HmacSha384,
    /// PRF_HMAC_SHA2_512 (RFC 4868).
    HmacSha512,
}

/// A key-exchange method: IKEv2 transform type 4 and, for additional exchanges, types 6 to 12 (RFC 9370).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Group {
    /// 2,048-bit MODP (RFC 3526, section 3).
    Modp2048,
    /// 3,072-bit MODP (RFC 3526, section 4).
    Modp3072,
    /// 4,096-bit MODP (RFC 3526, section 5).
    Modp4096,
    /// NIST P-256 (RFC 5903).
    Ecp256,
    /// NIST P-384 (RFC 5903).
    Ecp384,
    /// NIST P-521 (RFC 5903).
    Ecp521,
    /// Curve25519 (RFC 8031).
    X25519,
    /// ML-KEM-512 (FIPS 203; draft-ietf-ipsecme-ikev2-mlkem).
    MlKem512,
    /// ML-KEM-768.
    MlKem768,
    /// ML-KEM-1024.
    MlKem1024,
}

struct EncrRow {
    alg: Encr,
    id: u16,
    key_length: Option<u16>,
    name: &'static str,
    key: usize,
    salt: usize,
    iv: usize,
    block: usize,
    icv: usize,
}

struct IntegRow {
    alg: Integ,
    id: u16,
    name: &'static str,
    key: usize,
    icv: usize,
}

struct PrfRow {
    alg: Prf,
    id: u16,
    name: &'static str,
    output: usize,
}

struct GroupRow {
    alg: Group,
    id: u16,
    name: &'static str,
    public: usize,
    answer: usize,
    secret: usize,
}

/// So many rows of [`ENCR`] can be configured, offered and accepted by IKE. The others have suites of HIP (RFC 7402 section 5.1.2), which
/// names whole suites and no algorithms, but for GMAC, which a CHILD SA can have that only authenticates.
const ENCR_OF_IKE: usize = 13;
/// So many rows of [`INTEG`], likewise.
const INTEG_OF_IKE: usize = 4;

/// Lengths in bytes, `key_length` (the IKEv2 attribute) in bits. `icv` is 0 where an integrity algorithm brings it.
/// Of CCM and GCM:
/// "Implementations MUST support M values of 8 octets and 16 octets" (RFC 4309 section 2)
/// "size is 128 bits, and implementations MUST support this key size." (RFC 4309 section 2)
/// "The AES CCM IV field MUST be eight octets." (RFC 4309 section 3.1)
/// "The Initialization Vector (IV) MUST be eight octets." (RFC 5282 section 3.1)
/// "Implementations MUST support a full-length 16 octet ICV, MAY support 8 or 12 octet ICVs, and MUST NOT support other ICV lengths." (RFC 5282
/// section 3.2), which is of GCM; and of CCM: "Implementations MUST support ICV sizes of 8 octets and 16 octets. Implementations MAY also support
/// 12 octet ICVs and MUST NOT support other ICV lengths." (RFC 5282 section 3.2)
/// "The Key Length attribute MUST have a value of 128, 192, or 256." (RFC 4309 section 7.4), of which "The use of the value 192 is NOT
/// RECOMMENDED." (RFC 5282 section 7.3)
#[rustfmt::skip]
const ENCR: [EncrRow; 19] = [
    EncrRow { alg: Encr::Aes128Gcm16,      id: 20, key_length: Some(128), name: "aes128gcm16",      key: 16, salt: 4, iv: 8,  block: 1,  icv: 16 },
    EncrRow { alg: Encr::Aes256Gcm16,      id: 20, key_length: Some(256), name: "aes256gcm16",      key: 32, salt: 4, iv: 8,  block: 1,  icv: 16 },
    EncrRow { alg: Encr::ChaCha20Poly1305, id: 28, key_length: None,      name: "chacha20poly1305", key: 32, salt: 4, iv: 8,  block: 1,  icv: 16 },
    EncrRow { alg: Encr::Aes128Cbc,        id: 12, key_length: Some(128), name: "aes128",           key: 16, salt: 0, iv: 16, block: 16, icv: 0 },
    EncrRow { alg: Encr::Aes256Cbc,        id: 12, key_length: Some(256), name: "aes256",           key: 32, salt: 0, iv: 16, block: 16, icv: 0 },
    EncrRow { alg: Encr::Aes128Ctr,        id: 13, key_length: Some(128), name: "aes128ctr",        key: 16, salt: 4, iv: 8,  block: 1,  icv: 0 },
    EncrRow { alg: Encr::Aes256Ctr,        id: 13, key_length: Some(256), name: "aes256ctr",        key: 32, salt: 4, iv: 8,  block: 1,  icv: 0 },
    EncrRow { alg: Encr::Aes128Ccm16,      id: 16, key_length: Some(128), name: "aes128ccm16",      key: 16, salt: 3, iv: 8,  block: 1,  icv: 16 },
    EncrRow { alg: Encr::Aes256Ccm16,      id: 16, key_length: Some(256), name: "aes256ccm16",      key: 32, salt: 3, iv: 8,  block: 1,  icv: 16 },
    EncrRow { alg: Encr::Aes128Ccm12,      id: 15, key_length: Some(128), name: "aes128ccm12",      key: 16, salt: 3, iv: 8,  block: 1,  icv: 12 },
    EncrRow { alg: Encr::Aes256Ccm12,      id: 15, key_length: Some(256), name: "aes256ccm12",      key: 32, salt: 3, iv: 8,  block: 1,  icv: 12 },
    EncrRow { alg: Encr::Aes128Ccm8,       id: 14, key_length: Some(128), name: "aes128ccm8",       key: 16, salt: 3, iv: 8,  block: 1,  icv: 8 },
    EncrRow { alg: Encr::Aes256Ccm8,       id: 14, key_length: Some(256), name: "aes256ccm8",       key: 32, salt: 3, iv: 8,  block: 1,  icv: 8 },
    EncrRow { alg: Encr::Null,             id: 11, key_length: None,      name: "null",             key: 0,  salt: 0, iv: 0,  block: 1,  icv: 0 },
    EncrRow { alg: Encr::NullIv16,         id: 11, key_length: None,      name: "nulliv16",         key: 0,  salt: 0, iv: 16, block: 1,  icv: 0 },
    EncrRow { alg: Encr::Aes128Gcm8,       id: 18, key_length: Some(128), name: "aes128gcm8",       key: 16, salt: 4, iv: 8,  block: 1,  icv: 8 },
    EncrRow { alg: Encr::Aes128Gmac,       id: 21, key_length: Some(128), name: "aes128gmac",       key: 16, salt: 4, iv: 8,  block: 1,  icv: 16 },
    EncrRow { alg: Encr::Aes192Gmac,       id: 21, key_length: Some(192), name: "aes192gmac",       key: 24, salt: 4, iv: 8,  block: 1,  icv: 16 },
    EncrRow { alg: Encr::Aes256Gmac,       id: 21, key_length: Some(256), name: "aes256gmac",       key: 32, salt: 4, iv: 8,  block: 1,  icv: 16 },
];

#[rustfmt::skip]
const INTEG: [IntegRow; 6] = [
    IntegRow { alg: Integ::HmacSha1_96,    id: 2,  name: "sha1",   key: 20, icv: 12 },
    IntegRow { alg: Integ::HmacSha256_128, id: 12, name: "sha256", key: 32, icv: 16 },
    IntegRow { alg: Integ::HmacSha384_192, id: 13, name: "sha384", key: 48, icv: 24 },
    IntegRow { alg: Integ::HmacSha512_256, id: 14, name: "sha512", key: 64, icv: 32 },
    IntegRow { alg: Integ::HmacSha256Whole, id: 12, name: "sha256whole", key: 32, icv: 32 },
    IntegRow { alg: Integ::AesCmac96, id: 8, name: "aescmac96", key: 16, icv: 12 },
];

#[rustfmt::skip]
const PRF: [PrfRow; 4] = [
    PrfRow { alg: Prf::HmacSha1,   id: 2, name: "prfsha1",   output: 20 },
    PrfRow { alg: Prf::HmacSha256, id: 5, name: "prfsha256", output: 32 },
    PrfRow { alg: Prf::HmacSha384, id: 6, name: "prfsha384", output: 48 },
    PrfRow { alg: Prf::HmacSha512, id: 7, name: "prfsha512", output: 64 },
];

#[rustfmt::skip]
const GROUP: [GroupRow; 10] = [
    GroupRow { alg: Group::Modp2048, id: 14, name: "modp2048", public: 256, answer: 256,  secret: 256 },
    GroupRow { alg: Group::Modp3072, id: 15, name: "modp3072", public: 384, answer: 384,  secret: 384 },
    GroupRow { alg: Group::Modp4096, id: 16, name: "modp4096", public: 512, answer: 512,  secret: 512 },
    GroupRow { alg: Group::Ecp256,   id: 19, name: "ecp256",   public: 64,  answer: 64,   secret: 32 },
    GroupRow { alg: Group::Ecp384,   id: 20, name: "ecp384",   public: 96,  answer: 96,   secret: 48 },
    GroupRow { alg: Group::Ecp521,   id: 21, name: "ecp521",   public: 132, answer: 132,  secret: 66 },
    GroupRow { alg: Group::X25519,   id: 31, name: "x25519",   public: 32,  answer: 32,   secret: 32 },
    GroupRow { alg: Group::MlKem512,  id: 35, name: "mlkem512",  public: 800,  answer: 768,  secret: 32 },
    GroupRow { alg: Group::MlKem768,  id: 36, name: "mlkem768",  public: 1184, answer: 1088, secret: 32 },
    GroupRow { alg: Group::MlKem1024, id: 37, name: "mlkem1024", public: 1568, answer: 1568, secret: 32 },
];

/// A name in the configuration that no algorithm of its kind has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind} \"{name}\"; known are {known}")]
pub struct UnknownAlgorithm {
    /// What kind of algorithm was expected.
    pub kind: &'static str,
    /// The name that was given.
    pub name: String,
    /// The names that would have been understood, separated by commas.
    pub known: String,
}

macro_rules! named {
    ($type:ident, $table:ident, $offered:expr, $kind:literal) => {
        impl $type {
            /// Every algorithm of this kind that IKE may offer, in the order of the table.
            pub const ALL: [Self; $offered] = {
                let mut all = [$table[0].alg; $offered];
                let mut i = 0;
                while i < all.len() {
                    all[i] = $table[i].alg;
                    i += 1;
                }
                all
            };

            /// The name as written in configuration and shown in status.
            #[must_use]
            pub const fn name(self) -> &'static str {
                $table[self as usize].name
            }

            /// The transform ID in the IANA registry of IKEv2.
            #[must_use]
            pub const fn id(self) -> u16 {
                $table[self as usize].id
            }

            /// The algorithm of [`Self::ALL`] with this name.
            #[must_use]
            pub fn by_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|alg| alg.name() == name)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $type {
            type Err = UnknownAlgorithm;

            fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
                Self::by_name(name).ok_or_else(|| UnknownAlgorithm {
                    kind: $kind,
                    name: name.to_owned(),
                    known: Self::ALL.map(Self::name).join(", "),
                })
            }
        }
    };
}

named!(Encr, ENCR, ENCR_OF_IKE, "encryption algorithm");
named!(Integ, INTEG, INTEG_OF_IKE, "integrity algorithm");
named!(Prf, PRF, PRF.len(), "pseudo-random function");
named!(Group, GROUP, GROUP.len(), "key-exchange method");

impl Encr {
    /// The cipher of IKE with this transform ID and key-length attribute (in bits). AES without a key length is refused, for
    /// RFC 7296, section 3.3.5, asks for the attribute; ChaCha20-Poly1305 with one is too, for its key has one length and
    /// the attribute must not be sent (RFC 7634, section 4).
    /// "the Key Length attribute MUST be specified in the IKE Phase 2 exchange" (RFC 4309 section 7.4)
    /// "the Key Length attribute MUST be specified when any of the identifiers for AES GCM or AES CCM, specified in Section 7.2 of this document,
    /// is used" (RFC 5282 section 7.3)
    #[must_use]
    pub fn by_id(id: u16, key_length: Option<u16>) -> Option<Self> {
        Self::ALL.into_iter().find(|alg| alg.id() == id && alg.key_length() == key_length)
    }

    /// AES-GMAC with each length of key, which encrypts nothing.
    pub const GMAC: [Self; 3] = [Self::Aes128Gmac, Self::Aes192Gmac, Self::Aes256Gmac];

    /// The cipher of ESP with this transform ID and key-length attribute: those of [`Self::by_id`] and GMAC, which encrypts nothing, so that who
    /// compares an answer with an offer knows it. It has no name by which it could be configured.
    #[must_use]
    pub fn by_esp_id(id: u16, key_length: Option<u16>) -> Option<Self> {
        let is = |alg: &Self| alg.id() == id && alg.key_length() == key_length;
        Self::GMAC.into_iter().find(is).or_else(|| Self::by_id(id, key_length))
    }

    /// Whether who does not hold the key cannot read what it protects.
    #[must_use]
    pub const fn encrypts(self) -> bool {
        !matches!(self, Self::Null | Self::NullIv16 | Self::Aes128Gmac | Self::Aes192Gmac | Self::Aes256Gmac)
    }

    /// The key-length attribute of its transform, in bits; `None` where it has none.
    #[must_use]
    pub const fn key_length(self) -> Option<u16> {
        ENCR[self as usize].key_length
    }

    /// Length of the key proper in bytes, without the salt.
    #[must_use]
    pub const fn key_len(self) -> usize {
        ENCR[self as usize].key
    }

    /// Length in bytes of the salt (RFC 4106, RFC 4309, RFC 7634) or nonce (RFC 3686) that follows the key in the keying material.
    #[must_use]
    pub const fn salt_len(self) -> usize {
        ENCR[self as usize].salt
    }

    /// Length in bytes of the IV in every packet.
    #[must_use]
    pub const fn iv_len(self) -> usize {
        ENCR[self as usize].iv
    }

    /// Length in bytes that the plaintext must be a multiple of; 1 for stream ciphers.
    #[must_use]
    pub const fn block_len(self) -> usize {
        ENCR[self as usize].block
    }

    /// Whether it authenticates by itself, so that it must be negotiated without an integrity algorithm.
    #[must_use]
    pub const fn is_aead(self) -> bool {
        ENCR[self as usize].icv != 0
    }

    /// Length in bytes of its own ICV; 0 where an integrity algorithm brings it.
    #[must_use]
    pub const fn icv_len(self) -> usize {
        ENCR[self as usize].icv
    }

    /// Whether the zones of a packet can be sealed with it, each by itself (`docs/wire/mml-ipsec.md`): an AEAD with a salt of 4 bytes, an IV of
    /// 8 and an ICV of 16, of those that IKE has: a zone is encrypted, which GMAC does not.
    #[must_use]
    pub const fn suits_zones(self) -> bool {
        (self as usize) < ENCR_OF_IKE
            && self.is_aead()
            && self.salt_len() == 4
            && self.iv_len() == 8
            && self.icv_len() == 16
    }
}

impl Integ {
    /// The integrity algorithm of IKE with this transform ID.
    #[must_use]
    pub fn by_id(id: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|alg| alg.id() == id)
    }

    /// Key length in bytes.
    #[must_use]
    pub const fn key_len(self) -> usize {
        INTEG[self as usize].key
    }

    /// Length in bytes of the truncated output that is sent.
    #[must_use]
    pub const fn icv_len(self) -> usize {
        INTEG[self as usize].icv
    }
}

impl Prf {
    /// The pseudo-random function with this transform ID.
    #[must_use]
    pub fn by_id(id: u16) -> Option<Self> {
        PRF.iter().find(|row| row.id == id).map(|row| row.alg)
    }

    /// Output length in bytes, which is also the preferred key length (RFC 7296, section 2.13; RFC 4868, section 2.1.2).
    #[must_use]
    pub const fn output_len(self) -> usize {
        PRF[self as usize].output
    }
}

impl Group {
    /// The group with this transform ID.
    #[must_use]
    pub fn by_id(id: u16) -> Option<Self> {
        GROUP.iter().find(|row| row.id == id).map(|row| row.alg)
    }

    /// Length in bytes of the initiator's public value in a KE payload.
    #[must_use]
    pub const fn public_len(self) -> usize {
        GROUP[self as usize].public
    }

    /// Length in bytes of the responder's public value: that of a ciphertext, if the method encapsulates.
    #[must_use]
    pub const fn answer_len(self) -> usize {
        GROUP[self as usize].answer
    }

    /// Whether the responder encapsulates a secret for the initiator's public value: its own value depends on it. Such a method is an
    /// additional key exchange only: its values are too large for IKE_SA_INIT, which cannot be fragmented.
    #[must_use]
    pub const fn is_kem(self) -> bool {
        matches!(self, Self::MlKem512 | Self::MlKem768 | Self::MlKem1024)
    }

    /// Whether a public value, or a secret, takes as long as sealing hundreds of packets (`docs/benchmarks.md`, "handshake").
    #[must_use]
    pub const fn is_slow(self) -> bool {
        match self {
            Self::Modp2048 | Self::Modp3072 | Self::Modp4096 | Self::Ecp384 | Self::Ecp521 => true,
            Self::Ecp256 | Self::X25519 | Self::MlKem512 | Self::MlKem768 | Self::MlKem1024 => false,
        }
    }

    /// Length in bytes of the shared secret.
    #[must_use]
    pub const fn secret_len(self) -> usize {
        GROUP[self as usize].secret
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_stands_at_its_discriminant() {
        assert!(ENCR.iter().enumerate().all(|(i, row)| row.alg as usize == i));
        assert!(INTEG.iter().enumerate().all(|(i, row)| row.alg as usize == i));
        assert!(PRF.iter().enumerate().all(|(i, row)| row.alg as usize == i));
        assert!(GROUP.iter().enumerate().all(|(i, row)| row.alg as usize == i));
    }

    #[test]
    fn names_and_numbers_lead_back() {
        for a in Encr::ALL {
            assert_eq!(a.name().parse(), Ok(a));
            assert_eq!(Encr::by_id(a.id(), a.key_length()), Some(a));
            assert!(a.key_length().is_none_or(|bits| usize::from(bits) == a.key_len() * 8), "{a}");
        }
        assert!(Integ::ALL.iter().all(|&a| a.name().parse() == Ok(a) && Integ::by_id(a.id()) == Some(a)));
        assert!(Prf::ALL.iter().all(|&a| a.name().parse() == Ok(a) && Prf::by_id(a.id()) == Some(a)));
        assert!(Group::ALL.iter().all(|&a| a.name().parse() == Ok(a) && Group::by_id(a.id()) == Some(a)));
    }

    #[test]
    fn zones_are_sealed_by_few() {
        let fit: Vec<Encr> = Encr::ALL.into_iter().filter(|encr| encr.suits_zones()).collect();
        assert_eq!(fit, [Encr::Aes128Gcm16, Encr::Aes256Gcm16, Encr::ChaCha20Poly1305]);
        assert!(!Encr::Aes256Ccm16.suits_zones(), "its salt has three bytes");
        assert!(!Encr::Aes128Gmac.suits_zones(), "it does not encrypt");
    }

    /// What RFC 8247 or RFC 8221 marks MUST NOT (DES 1, 2 and 9, Blowfish 7, 3IDEA 8, NULL 11 in IKE; MD5; groups 1 and 22)
    /// or SHOULD NOT (3DES 3 in ESP; groups 2, 5, 23, 24).
    #[test]
    fn what_is_forbidden_does_not_exist() {
        for id in [1, 2, 3, 7, 8, 9, 11] {
            assert_eq!(Encr::by_id(id, None), None, "ENCR {id}");
        }
        assert_eq!(Integ::by_id(1), None);
        assert_eq!(Prf::by_id(1), None);
        for id in [1, 2, 5, 22, 23, 24] {
            assert_eq!(Group::by_id(id), None, "group {id}");
        }
        assert_eq!(Integ::by_name("sha256whole"), None);
        assert_eq!((Integ::by_name("aescmac96"), Integ::by_id(8)), (None, None), "CMAC is HIP's alone");
        for hip in ENCR.iter().skip(ENCR_OF_IKE).map(|row| row.alg) {
            assert_eq!(Encr::by_id(hip.id(), hip.key_length()), None, "{hip} is HIP's alone");
            assert_eq!(Encr::by_name(hip.name()), None);
            let known = Encr::by_esp_id(hip.id(), hip.key_length());
            assert_eq!(known, Encr::GMAC.contains(&hip).then_some(hip), "{hip} in ESP by IKE");
        }
        assert_eq!([None, Some(64), Some(512)].map(|bits| Encr::by_esp_id(21, bits)), [None; 3]);
        assert!(Encr::ALL.iter().all(|encr| encr.encrypts()), "none that can be configured reads in clear");
        let aes_192 = [12, 14, 15, 16].map(|id| Encr::by_id(id, Some(192)));
        assert_eq!(aes_192, [None; 4], "AES-192 is not offered");
        assert_eq!(Encr::by_id(12, None), None, "AES needs a key length");
        assert_eq!(Encr::by_id(28, Some(256)), None, "ChaCha20-Poly1305 has none");
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = "des".parse::<Encr>().unwrap_err().to_string();
        assert!(
            error.starts_with("unknown encryption algorithm \"des\"; known are aes128gcm16, "),
            "{error}"
        );
    }
}

//! The key that protects packets: ESP payloads and IKE SK payloads. Owns the order of keying material and the composition
//! of cipher and MAC; it must never choose an IV or a nonce, nor, but for GMAC and CMAC, allocate per packet.
//!
//! Combined-mode ciphers (RFC 4106, RFC 5282, RFC 7634): nonce = salt (4, from the keying material; 3 with CCM, RFC 4309) | IV (8, in the packet).
//! CTR (RFC 3686, RFC 5930): counter block = nonce (4, from the keying material) | IV (8) | counter from 1 (4), then
//! encrypt-then-MAC. CBC (RFC 3602): the IV (16) is in the packet, then encrypt-then-MAC. NULL (RFC 2410): the MAC alone.

mod ccm;
mod rare;
mod resting;

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{
    self, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext, UnboundCipherKey,
};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hmac;
use aws_lc_rs::iv::FixedLength;

use crate::error::{Error, Unauthentic};
use crate::secret::ct_eq;
use crate::suites::{Encr, Integ};

pub use resting::RestingKey;

/// The keys of one direction of one SA. Both halves live in it, so that tests can play both ends; an SA uses one.
pub struct PacketKey {
    /// The algorithms; `None` for a suite that is only measured.
    names: Option<(Encr, Option<Integ>)>,
    lengths: Lengths,
    keys: Keys,
}

/// Lengths in bytes that follow from the algorithms.
#[derive(Clone, Copy)]
pub(crate) struct Lengths {
    pub(crate) iv: u8,
    pub(crate) icv: u8,
    pub(crate) block: u8,
    pub(crate) separate_mac: bool,
}

/// The composed ones are boxed: their key schedules are kilobytes, and most SAs are combined-mode.
enum Keys {
    Aead { key: LessSafeKey, salt: [u8; 4] },
    Cbc(Box<Cbc>),
    Ctr(Box<Ctr>),
    Null(Box<hmac::Key>),
    Boxed(Box<dyn Protect>),
}

struct Cbc {
    encrypt: EncryptingKey,
    decrypt: DecryptingKey,
    mac: hmac::Key,
}

struct Ctr {
    cipher: EncryptingKey,
    nonce: [u8; 4],
    mac: hmac::Key,
}

/// Bytes of keying material that the pair takes from KEYMAT: encryption key, salt, integrity key (RFC 7296, section 2.17).
#[must_use]
pub const fn keymat_len(encr: Encr, integ: Option<Integ>) -> usize {
    let integ_len = match integ {
        Some(integ) => integ.key_len(),
        None => 0,
    };
    encr.key_len() + encr.salt_len() + integ_len
}

impl PacketKey {
    /// Takes the keys from `keymat`, [`keymat_len`] bytes: encryption key, salt or nonce if the cipher has one, integrity
    /// key if there is one. (For an IKE SA that is SK_e | SK_a.) Of the salt:
    /// "It MUST be assigned at the beginning of the security association." (RFC 4309 section 4)
    ///
    /// # Errors
    /// [`Error::Pairing`] if a combined-mode cipher comes with an integrity algorithm or another without, or CMAC with encryption;
    /// [`Error::Length`] if `keymat` has not exactly the length needed.
    pub fn new(encr: Encr, integ: Option<Integ>, keymat: &[u8]) -> Result<Self, Error> {
        let bare = integ == Some(Integ::AesCmac96) && encr != Encr::Null;
        if encr.is_aead() == integ.is_some() || bare {
            return Err(Error::Pairing { encr, integ });
        }
        let expected = keymat_len(encr, integ);
        if keymat.len() != expected {
            return Err(Error::Length { what: "keying material", got: keymat.len(), expected });
        }
        let (key, rest) = keymat.split_at(encr.key_len());
        let (salt, mac) = rest.split_at(encr.salt_len());
        let keys = match integ {
            None => aead_keys(encr, key, salt),
            Some(integ) => composed_keys(encr, integ, key, salt, mac),
        };
        let keys = keys.ok_or(Error::Backend { operation: "key set-up" })?;
        let icv = integ.map_or(encr.icv_len(), Integ::icv_len);
        let [iv, icv, block] = [encr.iv_len(), icv, encr.block_len()].map(|n| n as u8);
        let lengths = Lengths { iv, icv, block, separate_mac: integ.is_some() };
        Ok(Self { names: Some((encr, integ)), lengths, keys })
    }

    /// A key of a suite that is only measured: [`crate::measure`] alone can call this.
    pub(crate) fn measured(lengths: Lengths, keys: Box<dyn Protect>) -> Self {
        Self { names: None, lengths, keys: Keys::Boxed(keys) }
    }

    /// Whether IVs must be unpredictable (RFC 3602, section 3); otherwise they must only never repeat.
    #[must_use]
    pub const fn unpredictable_iv(&self) -> bool {
        self.block_len() > 1
    }

    /// Whether cipher and integrity algorithm are two: the MAC then runs over the IV as well, and over a tail.
    #[must_use]
    pub const fn separate_mac(&self) -> bool {
        self.lengths.separate_mac
    }

    /// Length in bytes of the IV in every packet.
    #[must_use]
    pub const fn iv_len(&self) -> usize {
        self.lengths.iv as usize
    }

    /// Length in bytes of the integrity check value in every packet.
    #[must_use]
    pub const fn icv_len(&self) -> usize {
        self.lengths.icv as usize
    }

    /// What the length of the plaintext must be a multiple of, in bytes: 1 for stream and combined-mode ciphers. (ESP
    /// itself asks for a multiple of 4.)
    #[must_use]
    pub const fn block_len(&self) -> usize {
        self.lengths.block as usize
    }

    /// Encrypts `data` in place and writes the integrity check value to `icv`.
    ///
    /// Authenticated are `aad`, `data` and, for ciphers with a separate MAC, `iv` and `aad_tail` as well: the MAC runs over
    /// aad | iv | ciphertext | aad_tail, where `aad_tail` is the high half of an extended sequence number (RFC 4303,
    /// section 2.2.1). Combined-mode ciphers take everything in `aad`, and `aad_tail` must be empty.
    ///
    /// `iv` must never have been used with this key; for CBC it must be unpredictable.
    ///
    /// # Errors
    /// [`Error::Length`] for an IV, ICV or tail of the wrong length, [`Error::Unaligned`] if CBC is handed a broken block.
    /// `data` is untouched then.
    pub fn seal(
        &self,
        aad: &[u8],
        iv: &[u8],
        data: &mut [u8],
        aad_tail: &[u8],
        icv: &mut [u8],
    ) -> Result<(), Error> {
        self.check_lengths(iv, data, aad_tail, icv)?;
        let failed = Error::Backend { operation: "seal" };
        match &self.keys {
            Keys::Aead { key, salt } => {
                let nonce = aead_nonce(*salt, iv);
                // With no extra input the "scatter" form encrypts in place and writes the tag where it belongs, uncopied.
                key.seal_in_place_scatter(nonce, Aad::from(aad), data, &[], icv).map_err(|_| failed)
            }
            Keys::Cbc(keys) => {
                let context = EncryptionContext::Iv128(cbc_iv(iv));
                keys.encrypt.less_safe_encrypt(data, context).map_err(|_| failed)?;
                write_icv(&keys.mac, [aad, iv, data, aad_tail], icv);
                Ok(())
            }
            Keys::Ctr(keys) => {
                keys.apply(iv, data).map_err(|_| failed)?;
                write_icv(&keys.mac, [aad, iv, data, aad_tail], icv);
                Ok(())
            }
            Keys::Null(mac) => {
                write_icv(mac, [aad, iv, data, aad_tail], icv);
                Ok(())
            }
            Keys::Boxed(keys) => keys.seal(Around { aad, iv, tail: aad_tail }, data, icv).map_err(|_| failed),
        }
    }

    /// Checks `icv` and decrypts `data` in place: the inverse of [`PacketKey::seal`].
    ///
    /// # Errors
    /// [`Unauthentic`], also for lengths that no sealed packet has. After a failure `data` holds nothing meaningful and must
    /// not be used: combined-mode ciphers decrypt while they check.
    pub fn open(
        &self,
        aad: &[u8],
        iv: &[u8],
        data: &mut [u8],
        aad_tail: &[u8],
        icv: &[u8],
    ) -> Result<(), Unauthentic> {
        self.check_lengths(iv, data, aad_tail, icv).map_err(|_| Unauthentic)?;
        match &self.keys {
            Keys::Aead { key, salt } => {
                let nonce = aead_nonce(*salt, iv);
                key.open_in_place_separate_tag(nonce, Aad::from(aad), icv, data)
                    .map(|_| ())
                    .map_err(|_| Unauthentic)
            }
            Keys::Cbc(keys) => {
                check_icv(&keys.mac, [aad, iv, data, aad_tail], icv)?;
                let context = DecryptionContext::Iv128(cbc_iv(iv));
                keys.decrypt.decrypt(data, context).map(|_| ()).map_err(|_| Unauthentic)
            }
            Keys::Ctr(keys) => {
                check_icv(&keys.mac, [aad, iv, data, aad_tail], icv)?;
                keys.apply(iv, data).map_err(|_| Unauthentic)
            }
            Keys::Null(mac) => check_icv(mac, [aad, iv, data, aad_tail], icv),
            Keys::Boxed(keys) => keys.open(Around { aad, iv, tail: aad_tail }, data, icv),
        }
    }

    fn check_lengths(&self, iv: &[u8], data: &[u8], aad_tail: &[u8], icv: &[u8]) -> Result<(), Error> {
        let wrong = |what, got, expected| Err(Error::Length { what, got, expected });
        if iv.len() != self.iv_len() {
            return wrong("IV", iv.len(), self.iv_len());
        }
        if icv.len() != self.icv_len() {
            return wrong("integrity check value", icv.len(), self.icv_len());
        }
        if !self.separate_mac() && !aad_tail.is_empty() {
            return wrong("trailing authenticated data of a combined-mode cipher", aad_tail.len(), 0);
        }
        let block = self.block_len();
        if block > 1 && !data.len().is_multiple_of(block) {
            return Err(Error::Unaligned { got: data.len(), block });
        }
        Ok(())
    }
}

/// What stands around the data of a packet and is authenticated with it; see [`PacketKey::seal`].
#[derive(Clone, Copy)]
pub(crate) struct Around<'a> {
    pub(crate) aad: &'a [u8],
    pub(crate) iv: &'a [u8],
    pub(crate) tail: &'a [u8],
}

/// What a [`PacketKey`] asks of a cipher that is rare, or only measured. Lengths have been checked.
pub(crate) trait Protect: Send + Sync {
    fn seal(&self, around: Around<'_>, data: &mut [u8], icv: &mut [u8]) -> Result<(), Unauthentic>;
    fn open(&self, around: Around<'_>, data: &mut [u8], icv: &[u8]) -> Result<(), Unauthentic>;
}

impl core::fmt::Debug for PacketKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.names {
            Some((encr, Some(integ))) => write!(f, "PacketKey({encr}-{integ})"),
            Some((encr, None)) => write!(f, "PacketKey({encr})"),
            None => f.write_str("PacketKey(for measurement)"),
        }
    }
}

fn aead_keys(encr: Encr, key: &[u8], salt: &[u8]) -> Option<Keys> {
    let algorithm = match encr {
        Encr::Aes128Gcm16 => &aead::AES_128_GCM,
        Encr::Aes256Gcm16 => &aead::AES_256_GCM,
        Encr::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        _ => return rare::aead_keys(encr, key, salt),
    };
    let key = LessSafeKey::new(UnboundKey::new(algorithm, key).ok()?);
    Some(Keys::Aead { key, salt: salt.try_into().ok()? })
}

fn composed_keys(encr: Encr, integ: Integ, key: &[u8], salt: &[u8], mac: &[u8]) -> Option<Keys> {
    let Some(algorithm) = mac_algorithm(integ) else { return rare::cmac_keys(mac) };
    let mac = hmac::Key::new(algorithm, mac);
    let algorithm = match encr {
        Encr::Aes128Cbc | Encr::Aes128Ctr => &cipher::AES_128,
        Encr::Aes256Cbc | Encr::Aes256Ctr => &cipher::AES_256,
        Encr::Null | Encr::NullIv16 => return Some(Keys::Null(Box::new(mac))),
        _ => return None,
    };
    let key = || UnboundCipherKey::new(algorithm, key).ok();
    Some(match encr {
        Encr::Aes128Ctr | Encr::Aes256Ctr => {
            let cipher = EncryptingKey::ctr(key()?).ok()?;
            Keys::Ctr(Box::new(Ctr { cipher, nonce: salt.try_into().ok()?, mac }))
        }
        _ => {
            let (encrypt, decrypt) = (EncryptingKey::cbc(key()?).ok()?, DecryptingKey::cbc(key()?).ok()?);
            Keys::Cbc(Box::new(Cbc { encrypt, decrypt, mac }))
        }
    })
}

/// `None` for what is no HMAC.
fn mac_algorithm(integ: Integ) -> Option<hmac::Algorithm> {
    Some(match integ {
        Integ::HmacSha1_96 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        Integ::HmacSha256_128 | Integ::HmacSha256Whole => hmac::HMAC_SHA256,
        Integ::HmacSha384_192 => hmac::HMAC_SHA384,
        Integ::HmacSha512_256 => hmac::HMAC_SHA512,
        Integ::AesCmac96 => return None,
    })
}

/// salt | iv. `iv` has been checked to be 8 bytes.
/// "For the use of AES GCM with the IKEv2 Encrypted Payload, this default nonce format MUST be used and a 12 octet nonce MUST be used." (RFC
/// 5282 section 4)
fn aead_nonce(salt: [u8; 4], iv: &[u8]) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(&salt);
    nonce[4..].copy_from_slice(iv);
    Nonce::assume_unique_for_key(nonce)
}

/// `iv` has been checked to be 16 bytes.
fn cbc_iv(iv: &[u8]) -> FixedLength<16> {
    let mut block = [0; 16];
    block.copy_from_slice(iv);
    FixedLength::from(block)
}

impl Ctr {
    /// Encrypts or decrypts (the same in CTR) from counter 1. `iv` has been checked to be 8 bytes.
    fn apply(&self, iv: &[u8], data: &mut [u8]) -> Result<(), Unspecified> {
        let mut block = [0; 16];
        block[..4].copy_from_slice(&self.nonce);
        block[4..12].copy_from_slice(iv);
        block[15] = 1;
        let context = EncryptionContext::Iv128(FixedLength::from(block));
        self.cipher.less_safe_encrypt(data, context).map(|_| ())
    }
}

fn mac_tag(key: &hmac::Key, parts: [&[u8]; 4]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    for part in parts {
        if !part.is_empty() {
            context.update(part);
        }
    }
    context.sign()
}

/// `icv` has been checked to be no longer than the MAC.
fn write_icv(key: &hmac::Key, parts: [&[u8]; 4], icv: &mut [u8]) {
    let tag = mac_tag(key, parts);
    icv.copy_from_slice(&tag.as_ref()[..icv.len()]);
}

fn check_icv(key: &hmac::Key, parts: [&[u8]; 4], icv: &[u8]) -> Result<(), Unauthentic> {
    let tag = mac_tag(key, parts);
    let expected = tag.as_ref().get(..icv.len()).ok_or(Unauthentic)?;
    if ct_eq(expected, icv) { Ok(()) } else { Err(Unauthentic) }
}

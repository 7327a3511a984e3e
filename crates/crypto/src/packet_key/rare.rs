//! The ciphers that few choose: GMAC, which IKE and HIP have; GCM with an ICV of 8 bytes and CMAC, of HIP's suites alone (RFC 7402 section 5.1.2);
//! and, beside, CCM. Owns how each is put together from what the libraries have; must never hold a cipher or a MAC of its own.

use aws_lc_rs::aead::{self, Aad, LessSafeKey, UnboundKey};
use aws_lc_rs::cipher::{self, EncryptingKey, EncryptionContext, UnboundCipherKey};
use aws_lc_rs::cmac;
use aws_lc_rs::iv::FixedLength;

use super::ccm::Ccm;
use super::{Around, Keys, Protect, aead_nonce};
use crate::error::Unauthentic;
use crate::secret::ct_eq;
use crate::suites::Encr;

/// The keys of a combined-mode cipher; `None` for another, or if a length is wrong.
pub(super) fn aead_keys(encr: Encr, key: &[u8], salt: &[u8]) -> Option<Keys> {
    let keys: Box<dyn Protect> = match encr {
        Encr::Aes128Ccm16
        | Encr::Aes256Ccm16
        | Encr::Aes128Ccm12
        | Encr::Aes256Ccm12
        | Encr::Aes128Ccm8
        | Encr::Aes256Ccm8 => Box::new(Ccm::new(key, salt)?),
        Encr::Aes128Gcm8 => Box::new(Gcm8::new(key, salt)?),
        Encr::Aes128Gmac => Box::new(Gmac(Gcm::new(&aead::AES_128_GCM, key, salt)?)),
        Encr::Aes192Gmac => Box::new(Gmac(Gcm::new(&aead::AES_192_GCM, key, salt)?)),
        Encr::Aes256Gmac => Box::new(Gmac(Gcm::new(&aead::AES_256_GCM, key, salt)?)),
        _ => return None,
    };
    Some(Keys::Boxed(keys))
}

/// AES-CMAC-96 (RFC 4494) over a packet that is not encrypted.
pub(super) fn cmac_keys(key: &[u8]) -> Option<Keys> {
    Some(Keys::Boxed(Box::new(Cmac96(cmac::Key::new(cmac::AES_128, key).ok()?))))
}

/// AES-GCM, which here only seals.
struct Gcm {
    key: LessSafeKey,
    salt: [u8; 4],
}

impl Gcm {
    fn new(with: &'static aead::Algorithm, key: &[u8], salt: &[u8]) -> Option<Self> {
        let key = LessSafeKey::new(UnboundKey::new(with, key).ok()?);
        Some(Self { key, salt: salt.try_into().ok()? })
    }

    /// Encrypts in place; the whole tag.
    fn tag(&self, iv: &[u8], aad: &[u8], data: &mut [u8]) -> Result<[u8; 16], Unauthentic> {
        let mut tag = [0; 16];
        let nonce = aead_nonce(self.salt, iv);
        self.key
            .seal_in_place_scatter(nonce, Aad::from(aad), data, &[], &mut tag)
            .map_err(|_| Unauthentic)?;
        Ok(tag)
    }
}

/// GCM with an ICV of 8 bytes (RFC 4106): the first half of the tag (NIST SP 800-38D section 7.1, step 6). The library compares whole tags
/// alone. So a packet is decrypted, sealed again, which gives the tag that its sender had, compared and decrypted: a packet for small
/// devices costs three passes of AES-CTR, and needs no memory.
struct Gcm8 {
    gcm: Gcm,
    stream: EncryptingKey,
}

impl Gcm8 {
    fn new(key: &[u8], salt: &[u8]) -> Option<Self> {
        let stream = UnboundCipherKey::new(&cipher::AES_128, key).ok()?;
        Some(Self { gcm: Gcm::new(&aead::AES_128_GCM, key, salt)?, stream: EncryptingKey::ctr(stream).ok()? })
    }

    /// What GCM does to the data, without its tag: CTR from salt | IV | 2 on (NIST SP 800-38D section 7.1, step 3).
    fn apply(&self, iv: &[u8], data: &mut [u8]) -> Result<(), Unauthentic> {
        let mut block = [0; 16];
        block[..4].copy_from_slice(&self.gcm.salt);
        block[4..12].copy_from_slice(iv);
        block[15] = 2;
        let context = EncryptionContext::Iv128(FixedLength::from(block));
        self.stream.less_safe_encrypt(data, context).map(|_| ()).map_err(|_| Unauthentic)
    }
}

impl Protect for Gcm8 {
    fn seal(&self, around: Around<'_>, data: &mut [u8], icv: &mut [u8]) -> Result<(), Unauthentic> {
        let tag = self.gcm.tag(around.iv, around.aad, data)?;
        icv.copy_from_slice(tag.get(..icv.len()).ok_or(Unauthentic)?);
        Ok(())
    }

    fn open(&self, around: Around<'_>, data: &mut [u8], icv: &[u8]) -> Result<(), Unauthentic> {
        self.apply(around.iv, data)?;
        check(&self.gcm.tag(around.iv, around.aad, data)?, icv)?;
        self.apply(around.iv, data)
    }
}

/// GMAC (RFC 4543 section 3): the tag over SPI, sequence number, IV and all of the payload, which stays as it is. The IV is authenticated too,
/// as figure 4 there and other implementations have it.
/// "The IV MUST be eight octets long. For a given key, the IV MUST NOT repeat." (RFC 4543 section 3.1): it is ESP's, as with GCM.
/// "The Authentication Tag MUST NOT be truncated" (RFC 4543 section 3.4)
/// "The size of the KEYMAT for the ENCR_NULL_AUTH_AES_GMAC and AUTH_AES_GMAC MUST be four octets longer than is needed for the associated
/// AES key." (RFC 4543 section 5.4)
struct Gmac(Gcm);

impl Gmac {
    /// The library takes what is authenticated in one piece: this alone of all ciphers needs memory for each packet.
    fn tag(&self, around: Around<'_>, data: &[u8]) -> Result<[u8; 16], Unauthentic> {
        self.0.tag(around.iv, &[around.aad, around.iv, data].concat(), &mut [])
    }
}

impl Protect for Gmac {
    fn seal(&self, around: Around<'_>, data: &mut [u8], icv: &mut [u8]) -> Result<(), Unauthentic> {
        icv.copy_from_slice(&self.tag(around, data)?);
        Ok(())
    }

    fn open(&self, around: Around<'_>, data: &mut [u8], icv: &[u8]) -> Result<(), Unauthentic> {
        check(&self.tag(around, data)?, icv)
    }
}

/// AES-CMAC-96: the first 12 bytes (RFC 4494 section 4).
struct Cmac96(cmac::Key);

impl Cmac96 {
    fn tag(&self, around: Around<'_>, data: &[u8]) -> Result<cmac::Tag, Unauthentic> {
        let mut context = cmac::Context::with_key(&self.0);
        for part in [around.aad, around.iv, data, around.tail] {
            context.update(part).map_err(|_| Unauthentic)?;
        }
        context.sign().map_err(|_| Unauthentic)
    }
}

impl Protect for Cmac96 {
    fn seal(&self, around: Around<'_>, data: &mut [u8], icv: &mut [u8]) -> Result<(), Unauthentic> {
        let tag = self.tag(around, data)?;
        icv.copy_from_slice(tag.as_ref().get(..icv.len()).ok_or(Unauthentic)?);
        Ok(())
    }

    fn open(&self, around: Around<'_>, data: &mut [u8], icv: &[u8]) -> Result<(), Unauthentic> {
        check(self.tag(around, data)?.as_ref(), icv)
    }
}

/// Whether `icv`, whose length has been checked, is the beginning of the tag.
fn check(tag: &[u8], icv: &[u8]) -> Result<(), Unauthentic> {
    let expected = tag.get(..icv.len()).ok_or(Unauthentic)?;
    if ct_eq(expected, icv) { Ok(()) } else { Err(Unauthentic) }
}

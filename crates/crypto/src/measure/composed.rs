//! Encrypt-then-MAC (RFC 4303, section 3.3.2) with what only a benchmark may use: NULL, DES and 3DES, HMAC-MD5, or no MAC at
//! all. Owns the CBC of the 8-byte block ciphers; must never allocate per packet.

use aws_lc_rs::hmac;
use des::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use des::{Des, TdesEde3};
use hmac_generic::{Hmac, Mac as _};
use md5::Md5;

use super::{Around, Cipher, Integrity, Protect};
use crate::error::Unauthentic;
use crate::secret::ct_eq;

const BLOCK: usize = 8;
/// The longest MAC: HMAC-SHA-512.
const MAC_LEN: usize = 64;

pub(super) struct Composed {
    cipher: Keyed,
    mac: Mac,
}

enum Keyed {
    Null,
    Des(Box<Des>),
    TripleDes(Box<TdesEde3>),
}

enum Mac {
    None,
    Md5(Box<Hmac<Md5>>),
    Sha(Box<hmac::Key>),
}

impl Composed {
    /// `None` for a cipher that is not one of these, or a key of the wrong length.
    pub(super) fn new(cipher: Cipher, key: &[u8], integrity: Option<Integrity>, mac: &[u8]) -> Option<Self> {
        let cipher = match cipher {
            Cipher::Null => Keyed::Null,
            Cipher::Des => Keyed::Des(Box::new(Des::new_from_slice(key).ok()?)),
            Cipher::TripleDes => Keyed::TripleDes(Box::new(TdesEde3::new_from_slice(key).ok()?)),
            _ => return None,
        };
        let sha = |algorithm| Mac::Sha(Box::new(hmac::Key::new(algorithm, mac)));
        let mac = match integrity {
            None => Mac::None,
            Some(Integrity::HmacMd5_96) => Mac::Md5(Box::new(Hmac::new_from_slice(mac).ok()?)),
            Some(Integrity::HmacSha1_96) => sha(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
            Some(Integrity::HmacSha256_128) => sha(hmac::HMAC_SHA256),
            Some(Integrity::HmacSha384_192) => sha(hmac::HMAC_SHA384),
            Some(Integrity::HmacSha512_256) => sha(hmac::HMAC_SHA512),
        };
        Some(Self { cipher, mac })
    }
}

impl Keyed {
    fn encrypt(&self, iv: &[u8], data: &mut [u8]) -> Result<(), Unauthentic> {
        match self {
            Self::Null => Ok(()),
            Self::Des(des) => cbc_encrypt(&**des, iv, data),
            Self::TripleDes(des) => cbc_encrypt(&**des, iv, data),
        }
    }

    fn decrypt(&self, iv: &[u8], data: &mut [u8]) -> Result<(), Unauthentic> {
        match self {
            Self::Null => Ok(()),
            Self::Des(des) => cbc_decrypt(&**des, iv, data),
            Self::TripleDes(des) => cbc_decrypt(&**des, iv, data),
        }
    }
}

fn cbc_encrypt<C>(cipher: &C, iv: &[u8], data: &mut [u8]) -> Result<(), Unauthentic>
where
    C: BlockCipherEncrypt<BlockSize = des::cipher::consts::U8>,
{
    let mut previous: [u8; BLOCK] = iv.try_into().map_err(|_| Unauthentic)?;
    for block in data.as_chunks_mut::<BLOCK>().0 {
        let mixed = u64::from_ne_bytes(*block) ^ u64::from_ne_bytes(previous);
        let mut one = Array(mixed.to_ne_bytes());
        cipher.encrypt_block(&mut one);
        *block = one.0;
        previous = one.0;
    }
    Ok(())
}

fn cbc_decrypt<C>(cipher: &C, iv: &[u8], data: &mut [u8]) -> Result<(), Unauthentic>
where
    C: BlockCipherDecrypt<BlockSize = des::cipher::consts::U8>,
{
    let mut previous: [u8; BLOCK] = iv.try_into().map_err(|_| Unauthentic)?;
    for block in data.as_chunks_mut::<BLOCK>().0 {
        let sealed = *block;
        let mut one = Array(sealed);
        cipher.decrypt_block(&mut one);
        *block = (u64::from_ne_bytes(one.0) ^ u64::from_ne_bytes(previous)).to_ne_bytes();
        previous = sealed;
    }
    Ok(())
}

impl Mac {
    /// The MAC over the parts put together, in front of the array. Zeros without one.
    fn over(&self, parts: [&[u8]; 4]) -> [u8; MAC_LEN] {
        let mut out = [0; MAC_LEN];
        let mut put = |tag: &[u8]| out[..tag.len()].copy_from_slice(tag);
        match self {
            Self::None => {}
            Self::Md5(key) => {
                let mut mac = (**key).clone();
                parts.iter().for_each(|part| mac.update(part));
                put(&mac.finalize().into_bytes());
            }
            Self::Sha(key) => {
                let mut mac = hmac::Context::with_key(key);
                parts.iter().for_each(|part| mac.update(part));
                put(mac.sign().as_ref());
            }
        }
        out
    }
}

impl Protect for Composed {
    fn seal(&self, around: Around<'_>, data: &mut [u8], icv: &mut [u8]) -> Result<(), Unauthentic> {
        let Around { aad, iv, tail } = around;
        self.cipher.encrypt(iv, data)?;
        let mac = self.mac.over([aad, iv, data, tail]);
        icv.copy_from_slice(mac.get(..icv.len()).ok_or(Unauthentic)?);
        Ok(())
    }

    fn open(&self, around: Around<'_>, data: &mut [u8], icv: &[u8]) -> Result<(), Unauthentic> {
        let Around { aad, iv, tail } = around;
        let mac = self.mac.over([aad, iv, data, tail]);
        if !ct_eq(mac.get(..icv.len()).ok_or(Unauthentic)?, icv) {
            return Err(Unauthentic);
        }
        self.cipher.decrypt(iv, data)
    }
}

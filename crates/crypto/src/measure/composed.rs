//! Encrypt-then-MAC (RFC 4303, section 3.3.2) with what only a benchmark may use: NULL, DES and 3DES, HMAC-MD5, or no MAC at
//! all. Must never allocate per packet.

#[expect(deprecated, reason = "see Des::new")]
use aws_lc_rs::cipher::{DES_EDE3_FOR_LEGACY_USE_ONLY, DES_FOR_LEGACY_USE_ONLY};
use aws_lc_rs::cipher::{
    DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext, UnboundCipherKey,
};
use aws_lc_rs::hmac;
use aws_lc_rs::iv::FixedLength;
use hmac_generic::{Hmac, KeyInit, Mac as _};
use md5::Md5;

use super::{Cipher, Integrity};
use crate::error::Unauthentic;
use crate::packet_key::{Around, Protect};
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
}

/// DES or 3DES, CBC.
struct Des {
    encrypt: EncryptingKey,
    decrypt: DecryptingKey,
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
            _ => Keyed::Des(Box::new(Des::new(cipher, key)?)),
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
            Self::Des(des) => {
                let context = EncryptionContext::Iv64(block(iv)?);
                des.encrypt.less_safe_encrypt(data, context).map(|_| ()).map_err(|_| Unauthentic)
            }
        }
    }

    fn decrypt(&self, iv: &[u8], data: &mut [u8]) -> Result<(), Unauthentic> {
        match self {
            Self::Null => Ok(()),
            Self::Des(des) => {
                let context = DecryptionContext::Iv64(block(iv)?);
                des.decrypt.decrypt(data, context).map(|_| ()).map_err(|_| Unauthentic)
            }
        }
    }
}

fn block(iv: &[u8]) -> Result<FixedLength<BLOCK>, Unauthentic> {
    <[u8; BLOCK]>::try_from(iv).map(FixedLength::from).map_err(|_| Unauthentic)
}

impl Des {
    #[expect(deprecated, reason = "what papers of 1999 and 2007 measured; an SA never negotiates it")]
    fn new(cipher: Cipher, key: &[u8]) -> Option<Self> {
        let algorithm = match cipher {
            Cipher::Des => &DES_FOR_LEGACY_USE_ONLY,
            Cipher::TripleDes => &DES_EDE3_FOR_LEGACY_USE_ONLY,
            _ => return None,
        };
        let key = || UnboundCipherKey::new(algorithm, key).ok();
        Some(Self { encrypt: EncryptingKey::cbc(key()?).ok()?, decrypt: DecryptingKey::cbc(key()?).ok()? })
    }
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

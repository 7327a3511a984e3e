//! Message authentication of Mobile IP (RFC 5944 section 5.1). Owns the choice of the algorithm; which bytes are covered is the protocol's
//! business.

use hmac_generic::{Hmac, KeyInit, Mac as _};
use md5::Md5;

use crate::prf::PrfKey;
use crate::secret::{Secret, ct_eq};
use crate::suites::Prf;

/// An algorithm of a mobility security association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Authenticator {
    /// HMAC-MD5, 16 bytes: what every implementation has.
    HmacMd5,
    /// HMAC-SHA-256, 32 bytes: where both ends are configured for it, which the SPI says (RFC 5944 has no number for an algorithm).
    HmacSha256,
}

impl Authenticator {
    /// Length of an authenticator in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an algorithm's output is never empty")]
    #[must_use]
    pub const fn len(self) -> usize {
        match self {
            Self::HmacMd5 => 16,
            Self::HmacSha256 => 32,
        }
    }

    /// The authenticator of `data` under `key`, which may have any length.
    #[must_use]
    pub fn compute(self, key: &Secret, data: &[u8]) -> Vec<u8> {
        match self {
            Self::HmacMd5 => {
                let Ok(mut mac) = Hmac::<Md5>::new_from_slice(key.as_bytes()) else {
                    // HMAC takes a key of any length.
                    return Vec::new();
                };
                mac.update(data);
                mac.finalize().into_bytes().to_vec()
            }
            Self::HmacSha256 => {
                PrfKey::new(Prf::HmacSha256, key.as_bytes()).compute(&[data]).as_bytes().to_vec()
            }
        }
    }

    /// Whether `authenticator` is that of `data` under `key`; in constant time.
    #[must_use]
    pub fn verify(self, key: &Secret, data: &[u8], authenticator: &[u8]) -> bool {
        authenticator.len() == self.len() && ct_eq(&self.compute(key, data), authenticator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 2202 section 2 case 2, RFC 4231 section 4.3.
    #[test]
    fn known_answers() {
        let (key, data) = (Secret::from(&b"Jefe"[..]), b"what do ya want for nothing?");
        for (alg, expected) in [
            (Authenticator::HmacMd5, "750c783e6ab0b503eaa86e310a5db738"),
            (Authenticator::HmacSha256, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
        ] {
            let mac = alg.compute(&key, data);
            assert_eq!(hex::encode(&mac), expected);
            assert!(alg.verify(&key, data, &mac));
            assert!(!alg.verify(&key, data, &mac[1..]) && !alg.verify(&key, &data[1..], &mac));
        }
    }
}

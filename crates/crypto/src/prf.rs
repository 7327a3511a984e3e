//! Pseudo-random functions and prf+ (RFC 7296, section 2.13). Owns the derivation of bytes from keys; which bytes mean what
//! is the business of IKE.

use aws_lc_rs::hmac;
use zeroize::Zeroizing;

use crate::error::Error;
use crate::secret::Secret;
use crate::suites::Prf;

/// A keyed pseudo-random function, set up once for many computations.
#[derive(Clone)]
pub struct PrfKey {
    prf: Prf,
    key: hmac::Key,
}

impl PrfKey {
    /// The function `prf` under `key`, which may have any length (RFC 2104; RFC 4868, section 2.1.2 lets PRF keys vary).
    #[must_use]
    pub fn new(prf: Prf, key: &[u8]) -> Self {
        Self { prf, key: hmac::Key::new(backend(prf), key) }
    }

    /// Which function.
    #[must_use]
    pub const fn prf(&self) -> Prf {
        self.prf
    }

    /// prf(key, parts put together): [`Prf::output_len`] bytes.
    #[must_use]
    pub fn compute(&self, parts: &[&[u8]]) -> Secret {
        Secret::from(self.tag(parts, &[]).as_ref())
    }

    fn tag(&self, parts: &[&[u8]], last: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.key);
        for part in parts {
            context.update(part);
        }
        context.update(last);
        context.sign()
    }
}

impl core::fmt::Debug for PrfKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "PrfKey({})", self.prf)
    }
}

fn backend(prf: Prf) -> hmac::Algorithm {
    match prf {
        Prf::HmacSha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        Prf::HmacSha256 => hmac::HMAC_SHA256,
        Prf::HmacSha384 => hmac::HMAC_SHA384,
        Prf::HmacSha512 => hmac::HMAC_SHA512,
    }
}

/// Fills `out` with prf+(`key`, `seed` parts put together) = T1 | T2 | ..., where Tn = prf(K, Tn-1 | S | n)
/// (RFC 7296, section 2.13).
///
/// # Errors
/// [`Error::PrfPlusTooLong`] beyond 255 outputs: "prf+ is not defined beyond 255 times the size of the prf function
/// output". `out` is untouched then.
pub fn prf_plus(prf: Prf, key: &[u8], seed: &[&[u8]], out: &mut [u8]) -> Result<(), Error> {
    let limit = 255 * prf.output_len();
    if out.len() > limit {
        return Err(Error::PrfPlusTooLong { prf, asked: out.len(), limit });
    }
    let key = PrfKey::new(prf, key);
    let mut previous = Zeroizing::new(Vec::with_capacity(prf.output_len()));
    for (counter, block) in (1..=255u8).zip(out.chunks_mut(prf.output_len())) {
        let mut parts = Vec::with_capacity(1 + seed.len());
        parts.push(&previous[..]);
        parts.extend_from_slice(seed);
        let tag = key.tag(&parts, &[counter]);
        block.copy_from_slice(&tag.as_ref()[..block.len()]);
        previous.clear();
        previous.extend_from_slice(tag.as_ref());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prf_plus_is_the_chain_of_its_definition() {
        let (key, seed) = (b"key", b"seed");
        let prf = PrfKey::new(Prf::HmacSha256, key);
        let t1 = prf.compute(&[seed, &[1]]);
        let t2 = prf.compute(&[t1.as_ref(), seed, &[2]]);
        let t3 = prf.compute(&[t2.as_ref(), seed, &[3]]);
        let mut out = [0; 75];
        prf_plus(Prf::HmacSha256, key, &[b"se", b"ed"], &mut out).unwrap();
        assert_eq!(out[..32], *t1.as_bytes());
        assert_eq!(out[32..64], *t2.as_bytes());
        assert_eq!(out[64..], t3.as_bytes()[..11]);
    }

    #[test]
    fn prf_plus_ends_at_255_outputs() {
        let mut out = vec![0; 255 * 20];
        assert_eq!(prf_plus(Prf::HmacSha1, b"k", &[], &mut out), Ok(()));
        out.push(0);
        assert_eq!(
            prf_plus(Prf::HmacSha1, b"k", &[], &mut out),
            Err(Error::PrfPlusTooLong { prf: Prf::HmacSha1, asked: 5101, limit: 5100 })
        );
    }
}

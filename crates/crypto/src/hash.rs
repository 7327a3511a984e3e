//! Hash functions, and the numbers by which IKEv2 names them (RFC 7427, section 4). Must never be used as a MAC.

use std::io;

use aws_lc_rs::digest;

/// A hash function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum HashAlg {
    /// SHA-1: NAT detection and certificate requests, which only need to name things; and HIP version 1 ([`crate::hip::v1`]). In no other signature.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl HashAlg {
    /// Output length in bytes.
    #[must_use]
    pub fn output_len(self) -> usize {
        self.backend().output_len()
    }

    /// Its number in the IANA registry "IKEv2 Hash Algorithms", as sent in SIGNATURE_HASH_ALGORITHMS (RFC 7427,
    /// section 4).
    #[must_use]
    pub const fn ike_id(self) -> u16 {
        match self {
            Self::Sha1 => 1,
            Self::Sha256 => 2,
            Self::Sha384 => 3,
            Self::Sha512 => 4,
        }
    }

    fn backend(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => &digest::SHA256,
            Self::Sha384 => &digest::SHA384,
            Self::Sha512 => &digest::SHA512,
        }
    }
}

/// The hash of the parts put together.
#[must_use]
pub fn hash(alg: HashAlg, parts: &[&[u8]]) -> Vec<u8> {
    let mut context = digest::Context::new(alg.backend());
    for part in parts {
        context.update(part);
    }
    context.finish().as_ref().to_vec()
}

/// The hash of one input. Allocates nothing, for those who try thousands of inputs.
pub fn hash_one(alg: HashAlg, input: &[u8]) -> impl AsRef<[u8]> + use<> {
    digest::digest(alg.backend(), input)
}

/// The hash of all that a reader has, in constant memory.
///
/// # Errors
/// The reader's.
pub fn hash_reader(alg: HashAlg, reader: &mut impl io::Read) -> io::Result<Vec<u8>> {
    let mut context = digest::Context::new(alg.backend());
    let mut buffer = vec![0; 1 << 16];
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(context.finish().as_ref().to_vec()),
            n => context.update(buffer.get(..n).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 180-4's example "abc", in two parts.
    #[test]
    fn abc() {
        for (alg, start) in [
            (HashAlg::Sha1, "a9993e364706816a"),
            (HashAlg::Sha256, "ba7816bf8f01cfea"),
            (HashAlg::Sha384, "cb00753f45a35e8b"),
            (HashAlg::Sha512, "ddaf35a193617aba"),
        ] {
            let digest = hash(alg, &[b"a", b"bc"]);
            assert_eq!(digest, hash_one(alg, b"abc").as_ref());
            assert_eq!(digest.len(), alg.output_len());
            assert_eq!(hex::encode(&digest[..8]), start, "{alg:?}");
        }
    }
}

//! The DER AlgorithmIdentifiers that stand in an AUTH payload before a signature (RFC 7427, section 3 and appendix A).

use der::asn1::ObjectIdentifier;
use der::{Decode, Encode, Sequence};
use x509_cert::spki::AlgorithmIdentifierRef;

use super::Scheme;
use crate::hash::HashAlg;

const ECDSA_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2");
const ECDSA_SHA384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.3");
const ECDSA_SHA512: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.4");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
const RSA_MGF1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.8");
const RSA_PSS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.10");
const RSA_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.11");
const RSA_SHA384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.12");
const RSA_SHA512: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.13");
const SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.1");
const SHA384: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.2");
const SHA512: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.3");

/// An AlgorithmIdentifier for RSASSA-PSS with everything explicit (RFC 4055, section 3.1): $hash is the last byte of the
/// hash's OID, $salt its length.
macro_rules! pss {
    ($hash:literal, $salt:literal) => {
        &[
            0x30, 0x41, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a, 0x30,
            0x34, // id-RSASSA-PSS
            0xa0, 0x0f, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, $hash, 0x05,
            0x00, 0xa1, 0x1c, 0x30, 0x1a, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01,
            0x08, // id-mgf1
            0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, $hash, 0x05,
            0x00, //
            0xa2, 0x03, 0x02, 0x01, $salt,
        ]
    };
}

/// An AlgorithmIdentifier of PKCS #1 v1.5 with NULL parameters: $last is the last byte of the OID.
macro_rules! pkcs1 {
    ($last:literal) => {
        &[0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, $last, 0x05, 0x00]
    };
}

/// An AlgorithmIdentifier of ECDSA, which has no parameters: $last is the last byte of the OID.
macro_rules! ecdsa {
    ($last:literal) => {
        &[0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, $last]
    };
}

/// The AlgorithmIdentifier that announces `scheme`, in DER.
#[must_use]
pub const fn algorithm_identifier(scheme: Scheme) -> &'static [u8] {
    match scheme {
        Scheme::RsaPkcs1Sha256 => pkcs1!(0x0b),
        Scheme::RsaPkcs1Sha384 => pkcs1!(0x0c),
        Scheme::RsaPkcs1Sha512 => pkcs1!(0x0d),
        Scheme::RsaPssSha256 => pss!(0x01, 0x20),
        Scheme::RsaPssSha384 => pss!(0x02, 0x30),
        Scheme::RsaPssSha512 => pss!(0x03, 0x40),
        Scheme::EcdsaSha256 => ecdsa!(0x02),
        Scheme::EcdsaSha384 => ecdsa!(0x03),
        Scheme::EcdsaSha512 => ecdsa!(0x04),
        Scheme::Ed25519 => &[0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70],
    }
}

/// The scheme that an AlgorithmIdentifier announces; `None` for one that is malformed or not supported.
///
/// NULL and absent parameters are taken as the same, for encoders differ (RFC 4055, section 2.1). RSASSA-PSS must name one hash of the SHA-2 family for message and mask, and a salt of the
/// hash's length: its defaults (SHA-1) are refused.
#[must_use]
pub fn from_algorithm_identifier(der: &[u8]) -> Option<Scheme> {
    let identifier = AlgorithmIdentifierRef::from_der(der).ok()?;
    if identifier.oid == RSA_PSS {
        return pss_scheme(identifier.parameters?.to_der().ok()?.as_slice());
    }
    if !null_or_absent(&identifier) {
        return None;
    }
    Some(match identifier.oid {
        RSA_SHA256 => Scheme::RsaPkcs1Sha256,
        RSA_SHA384 => Scheme::RsaPkcs1Sha384,
        RSA_SHA512 => Scheme::RsaPkcs1Sha512,
        ECDSA_SHA256 => Scheme::EcdsaSha256,
        ECDSA_SHA384 => Scheme::EcdsaSha384,
        ECDSA_SHA512 => Scheme::EcdsaSha512,
        ED25519 => Scheme::Ed25519,
        _ => return None,
    })
}

/// RSASSA-PSS-params (RFC 4055, section 3.1). A field left out has a default built on SHA-1.
#[derive(Sequence)]
struct PssParameters<'a> {
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT", optional = "true")]
    hash: Option<AlgorithmIdentifierRef<'a>>,
    #[asn1(context_specific = "1", tag_mode = "EXPLICIT", optional = "true")]
    mask: Option<AlgorithmIdentifierRef<'a>>,
    #[asn1(context_specific = "2", tag_mode = "EXPLICIT", optional = "true")]
    salt: Option<u8>,
    #[asn1(context_specific = "3", tag_mode = "EXPLICIT", optional = "true")]
    trailer: Option<u8>,
}

fn pss_scheme(der: &[u8]) -> Option<Scheme> {
    let parameters = PssParameters::from_der(der).ok()?;
    let hash = sha2(&parameters.hash?)?;
    let mask = parameters.mask?;
    let mask_hash = mask.parameters?.to_der().ok()?;
    let mask_hash = sha2(&AlgorithmIdentifierRef::from_der(&mask_hash).ok()?)?;
    let salt = usize::from(parameters.salt?);
    if mask.oid != RSA_MGF1
        || mask_hash != hash
        || salt != hash.output_len()
        || parameters.trailer.is_some_and(|t| t != 1)
    {
        return None;
    }
    match hash {
        HashAlg::Sha256 => Some(Scheme::RsaPssSha256),
        HashAlg::Sha384 => Some(Scheme::RsaPssSha384),
        HashAlg::Sha512 => Some(Scheme::RsaPssSha512),
        HashAlg::Sha1 => None,
    }
}

fn sha2(identifier: &AlgorithmIdentifierRef<'_>) -> Option<HashAlg> {
    if !null_or_absent(identifier) {
        return None;
    }
    match identifier.oid {
        SHA256 => Some(HashAlg::Sha256),
        SHA384 => Some(HashAlg::Sha384),
        SHA512 => Some(HashAlg::Sha512),
        _ => None,
    }
}

fn null_or_absent(identifier: &AlgorithmIdentifierRef<'_>) -> bool {
    identifier.parameters.is_none_or(|p| p.is_null())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_leads_back() {
        for scheme in Scheme::ALL {
            assert_eq!(from_algorithm_identifier(algorithm_identifier(scheme)), Some(scheme));
        }
    }

    /// The examples of RFC 7427, appendix A.1.2, A.3.2, A.4.2 (SHA-1 and default parameters are answered with a refusal).
    #[test]
    fn appendix_a() {
        let a = |hex: &str| from_algorithm_identifier(&hex::decode(hex).unwrap());
        assert_eq!(a("300d06092a864886f70d01010b0500"), Some(Scheme::RsaPkcs1Sha256));
        assert_eq!(a("300d06092a864886f70d01010c0500"), Some(Scheme::RsaPkcs1Sha384));
        assert_eq!(a("300d06092a864886f70d01010d0500"), Some(Scheme::RsaPkcs1Sha512));
        assert_eq!(a("300a06082a8648ce3d040302"), Some(Scheme::EcdsaSha256));
        assert_eq!(a("300a06082a8648ce3d040303"), Some(Scheme::EcdsaSha384));
        assert_eq!(a("300a06082a8648ce3d040304"), Some(Scheme::EcdsaSha512));
        assert_eq!(
            a("304106092a864886f70d01010a3034a00f300d06096086480165030402010500\
               a11c301a06092a864886f70d010108300d06096086480165030402010500a203020120"),
            Some(Scheme::RsaPssSha256)
        );
        assert_eq!(a("300d06092a864886f70d0101050500"), None, "sha1WithRSAEncryption");
        assert_eq!(a("300906072a8648ce3d0401"), None, "ecdsa-with-SHA1");
        assert_eq!(a("300d06092a864886f70d01010a3000"), None, "RSASSA-PSS with its default, SHA-1");
    }

    #[test]
    fn a_pss_hash_without_null_is_the_same_and_a_mixed_one_is_refused() {
        let bare = "303d06092a864886f70d01010a3030a00d300b0609608648016503040201\
                    a11a301806092a864886f70d010108300b0609608648016503040201a203020120";
        assert_eq!(from_algorithm_identifier(&hex::decode(bare).unwrap()), Some(Scheme::RsaPssSha256));
        let mixed = bare.replacen("040201", "040202", 1);
        assert_eq!(from_algorithm_identifier(&hex::decode(mixed).unwrap()), None);
        let salt_20 = bare.replace("020120", "020114");
        assert_eq!(from_algorithm_identifier(&hex::decode(salt_20).unwrap()), None);
    }

    #[test]
    fn damage_is_refused_not_panicked_on() {
        for scheme in Scheme::ALL {
            let good = algorithm_identifier(scheme);
            for cut in 0..good.len() {
                assert_eq!(from_algorithm_identifier(&good[..cut]), None);
            }
            let mut long = good.to_vec();
            long.push(0);
            assert_eq!(from_algorithm_identifier(&long), None);
        }
    }
}

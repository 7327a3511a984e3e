//! New signing keys. Owns the choice of kinds that may be made; must never write one anywhere.

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair};

use der::pem::{LineEnding, encode_string};
use zeroize::Zeroizing;

use crate::secret::Secret;

/// Which key is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewKey {
    /// ECDSA on NIST P-256.
    EcdsaP256,
    /// ECDSA on NIST P-384.
    EcdsaP384,
    /// RSA of 2,048 bits.
    Rsa2048,
    /// RSA of 3,072 bits.
    Rsa3072,
    /// RSA of 4,096 bits.
    Rsa4096,
}

impl NewKey {
    /// A new private key, as a PEM file (PKCS #8). `None` if the library fails.
    #[must_use]
    pub fn pem(self) -> Option<Secret> {
        let size = match self {
            Self::EcdsaP256 | Self::EcdsaP384 => {
                let p256 = self == Self::EcdsaP256;
                let curve =
                    if p256 { &ECDSA_P256_SHA256_ASN1_SIGNING } else { &ECDSA_P384_SHA384_ASN1_SIGNING };
                let der = EcdsaKeyPair::generate(curve).ok()?.to_pkcs8v1().ok()?;
                return pem(der.as_ref());
            }
            Self::Rsa2048 => KeySize::Rsa2048,
            Self::Rsa3072 => KeySize::Rsa3072,
            Self::Rsa4096 => KeySize::Rsa4096,
        };
        let der: Pkcs8V1Der<'_> = RsaKeyPair::generate(size).ok()?.as_der().ok()?;
        pem(der.as_ref())
    }
}

/// A private key (PKCS #8) as PEM.
pub(crate) fn pem(der: &[u8]) -> Option<Secret> {
    let text = Zeroizing::new(encode_string("PRIVATE KEY", LineEnding::LF, der).ok()?);
    Some(Secret::from(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sign::{KeyKind, SigningKey};

    #[test]
    fn what_is_made_is_read_and_is_another_each_time() {
        for (kind, wanted) in [
            (NewKey::EcdsaP256, KeyKind::EcdsaP256),
            (NewKey::EcdsaP384, KeyKind::EcdsaP384),
            (NewKey::Rsa2048, KeyKind::Rsa { bits: 2048 }),
        ] {
            let made = [kind.pem().unwrap(), kind.pem().unwrap()];
            let keys = made.map(|pem| SigningKey::from_pem(pem.as_bytes()).unwrap());
            assert!(keys.iter().all(|key| key.public_key().kind() == wanted));
            assert_ne!(keys[0].public_key(), keys[1].public_key());
        }
    }
}

//! New private keys that version 1 of HIP alone has: old peers take no others. Owns their kinds; must never make one for version 2.

use der::pem::{LineEnding, encode_string};
use dsa::pkcs8::EncodePrivateKey as _;
use zeroize::Zeroizing;

use super::{BadKey, Blinding, SigningKey};
use crate::secret::Secret;

/// What kind of key is made. An attacker with much computing power can forge both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewKey {
    /// RSA of 1,024 bits.
    Rsa1024,
    /// DSA of 1,024 bits, with parameters of its own.
    Dsa1024,
}

impl NewKey {
    /// A new private key, as a PEM file (PKCS #8).
    ///
    /// # Errors
    /// [`BadKey`] if the library makes none.
    pub fn pem(self) -> Result<Secret, BadKey> {
        let der = self.der()?;
        let text = encode_string("PRIVATE KEY", LineEnding::LF, der.as_bytes());
        let text = Zeroizing::new(text.map_err(|_| BadKey("it cannot be written"))?);
        // What is given out can be read again.
        SigningKey::from_file_content(text.as_bytes())?;
        Ok(Secret::from(text.as_bytes()))
    }

    /// The same in DER.
    pub(crate) fn der(self) -> Result<Secret, BadKey> {
        const NONE: BadKey = BadKey("none was made");
        let mut source = Blinding::new();
        let der = match self {
            Self::Rsa1024 => {
                let key = rsa::RsaPrivateKey::new(&mut source, 1024).map_err(|_| NONE)?;
                key.to_pkcs8_der().map_err(|_| NONE)?
            }
            Self::Dsa1024 => {
                #[expect(deprecated, reason = "version 1 has no longer ones")]
                let size = dsa::KeySize::DSA_1024_160;
                let Ok(components) = dsa::Components::try_generate_from_rng_with_key_size(&mut source, size);
                let Ok(key) = dsa::SigningKey::try_generate_from_rng_with_components(&mut source, components);
                key.to_pkcs8_der().map_err(|_| NONE)?
            }
        };
        if source.failed { Err(NONE) } else { Ok(Secret::from(der.as_bytes())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_read_signs_and_is_another_each_time() {
        for (kind, shown) in [(NewKey::Rsa1024, "RSA-1024"), (NewKey::Dsa1024, "DSA-1024")] {
            let keys =
                [(), ()].map(|()| SigningKey::from_file_content(kind.pem().unwrap().as_bytes()).unwrap());
            assert_ne!(keys[0].public_key(), keys[1].public_key());
            for key in keys {
                assert_eq!(key.public_key().to_string(), shown);
                let signature = key.sign(b"message").unwrap();
                assert!(key.public_key().verify(b"message", &signature));
            }
        }
    }
}

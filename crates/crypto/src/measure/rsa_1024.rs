//! A key for the measurements of HIP version 1. Owns that it is made here alone: who needs one for a peer brings it.

use rsa::pkcs8::EncodePrivateKey;

use crate::Secret;
use crate::hip::v1::{BadKey, Blinding};

/// A fresh RSA key of 1,024 bits, PKCS #8 in DER.
///
/// # Errors
/// [`BadKey`] if the library makes none.
pub fn rsa_1024() -> Result<Secret, BadKey> {
    let none = BadKey("none was made");
    let mut source = Blinding::new();
    let key = rsa::RsaPrivateKey::new(&mut source, 1024).map_err(|_| none)?;
    let der = key.to_pkcs8_der().map_err(|_| none)?;
    if source.failed { Err(none) } else { Ok(Secret::from(der.as_bytes())) }
}

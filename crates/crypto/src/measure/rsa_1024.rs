//! A key for the measurements of HIP version 1, in the form that they take; those for peers are [`NewKey::pem`]'s.

use crate::Secret;
use crate::hip::v1::{BadKey, NewKey};

/// A fresh RSA key of 1,024 bits, PKCS #8 in DER.
///
/// # Errors
/// [`BadKey`] if the library makes none.
pub fn rsa_1024() -> Result<Secret, BadKey> {
    NewKey::Rsa1024.der()
}

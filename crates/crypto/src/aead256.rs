//! AES-256-GCM over whole messages, for what Dormouse seals to itself: session tickets. Owns no nonce policy: the caller
//! must never use a nonce twice with one key.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use crate::error::{Error, Unauthentic};

/// Encrypts `message` in place and appends the 16-byte tag; `aad` is authenticated with it.
///
/// # Errors
/// [`Error::Backend`] if the message is beyond 2^36 - 32 bytes.
pub fn aead256_seal(
    key: &[u8; 32],
    nonce: &[u8; 12],
    aad: &[u8],
    message: &mut Vec<u8>,
) -> Result<(), Error> {
    let failed = Error::Backend { operation: "AES-256-GCM seal" };
    let key = UnboundKey::new(&AES_256_GCM, key).map(LessSafeKey::new).map_err(|_| failed.clone())?;
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(*nonce), Aad::from(aad), message)
        .map_err(|_| failed)
}

/// Checks the tag at the end of `message`, decrypts in place and cuts the tag off.
///
/// # Errors
/// [`Unauthentic`], with `message` emptied, if the key, the nonce, `aad` or any bit of the message differs.
pub fn aead256_open(
    key: &[u8; 32],
    nonce: &[u8; 12],
    aad: &[u8],
    message: &mut Vec<u8>,
) -> Result<(), Unauthentic> {
    let opened = UnboundKey::new(&AES_256_GCM, key)
        .map(LessSafeKey::new)
        .and_then(|key| {
            key.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(aad), message)
                .map(|plain| plain.len())
        })
        .map_err(|_| Unauthentic);
    // What a failed open leaves behind must not be mistaken for a message.
    message.truncate(opened.unwrap_or(0));
    opened.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_bit_anywhere_empties_the_message() {
        let (key, nonce) = ([7; 32], [9; 12]);
        let mut sealed = b"ticket".to_vec();
        aead256_seal(&key, &nonce, b"id", &mut sealed).unwrap();
        assert_eq!(sealed.len(), 6 + 16);
        let mut opened = sealed.clone();
        assert_eq!(aead256_open(&key, &nonce, b"id", &mut opened), Ok(()));
        assert_eq!(opened, b"ticket");
        for at in 0..sealed.len() {
            let mut bad = sealed.clone();
            bad[at] ^= 0x10;
            assert_eq!(aead256_open(&key, &nonce, b"id", &mut bad), Err(Unauthentic), "byte {at}");
            assert!(bad.is_empty());
        }
        assert_eq!(aead256_open(&key, &nonce, b"ID", &mut sealed.clone()), Err(Unauthentic));
        assert_eq!(aead256_open(&key, &nonce, b"", &mut Vec::new()), Err(Unauthentic), "shorter than a tag");
    }
}

//! Encryption under a passphrase (RFC 7292 appendix B, RFC 8018 section 6.2). Owns the schemes that are read, and the one that is written.

use super::derive::{Purpose, derive};
use super::{MOST_ROUNDS, Pkcs12Error, oid};
use crate::hash::HashAlg;
use crate::secret::Secret;
use crate::tlv::{OCTETS, OID, Reader, SEQUENCE, element, integer};
use aes::{Aes128, Aes192, Aes256};
use aws_lc_rs::pbkdf2;
use core::num::NonZeroU32;
use des::TdesEde3;
use des::cipher::{Block, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};

/// Bytes of a key and a block of triple DES.
const TRIPLE_DES: (usize, usize) = (24, 8);

/// CBC with the padding of PKCS #5: the algorithm's identifier, and the ciphertext.
pub(super) fn seal(plain: &Secret, passphrase: &str, salt: &[u8], rounds: u32) -> (Secret, Vec<u8>) {
    let of = |purpose, len| derive(HashAlg::Sha1, purpose, passphrase, salt, rounds, len);
    let (key, iv) = (of(Purpose::Key, TRIPLE_DES.0), of(Purpose::Iv, TRIPLE_DES.1));
    let pad = TRIPLE_DES.1 - plain.len() % TRIPLE_DES.1;
    let padding = vec![u8::try_from(pad).unwrap_or_default(); pad];
    let mut out = Secret::concat(&[plain.as_bytes(), &padding]).as_bytes().to_vec();
    // A key of triple DES has 24 bytes.
    if let Ok(cipher) = TdesEde3::new_from_slice(key.as_bytes()) {
        let mut last = iv.as_bytes().to_vec();
        for chunk in out.chunks_exact_mut(TRIPLE_DES.1) {
            chunk.iter_mut().zip(&last).for_each(|(byte, before)| *byte ^= before);
            if let Ok(block) = <&mut Block<TdesEde3>>::try_from(&mut *chunk) {
                cipher.encrypt_block(block);
            }
            last.copy_from_slice(chunk);
        }
    }
    let parameters = element(SEQUENCE, &[element(OCTETS, &[salt]).as_bytes(), integer(rounds).as_bytes()]);
    let algorithm = element(SEQUENCE, &[element(OID, &[oid::SHA1_3DES]).as_bytes(), parameters.as_bytes()]);
    (algorithm, out)
}

/// What such an algorithm (the content of its identifier) has encrypted.
pub(super) fn open(algorithm: &[u8], sealed: &[u8], passphrase: &str) -> Result<Secret, Pkcs12Error> {
    let malformed = Pkcs12Error::Malformed("an encryption algorithm");
    let mut algorithm = Reader(algorithm);
    let kind = algorithm.take(OID).ok_or(malformed.clone())?;
    let mut parameters = algorithm.inside(SEQUENCE).ok_or(malformed.clone())?;
    if kind == oid::PBES2 {
        return pbes2(parameters, sealed, passphrase);
    }
    if kind == oid::SHA1_RC2_40 {
        return Err(Pkcs12Error::Unsupported("RC2 with 40 bits"));
    }
    if kind != oid::SHA1_3DES {
        return Err(Pkcs12Error::Unsupported("this encryption"));
    }
    let salt = parameters.take(OCTETS).ok_or(malformed.clone())?;
    let rounds = rounds(parameters.number().ok_or(malformed)?)?.get();
    let of = |purpose, len| derive(HashAlg::Sha1, purpose, passphrase, salt, rounds, len);
    cbc::<TdesEde3>(&of(Purpose::Key, TRIPLE_DES.0), of(Purpose::Iv, TRIPLE_DES.1).as_bytes(), sealed)
}

pub(super) fn rounds(rounds: u32) -> Result<NonZeroU32, Pkcs12Error> {
    NonZeroU32::new(rounds)
        .filter(|rounds| rounds.get() <= MOST_ROUNDS)
        .ok_or(Pkcs12Error::TooMuch("its key derivation has more than 1000000 rounds, or none"))
}

fn pbes2(mut parameters: Reader<'_>, sealed: &[u8], passphrase: &str) -> Result<Secret, Pkcs12Error> {
    let malformed = || Pkcs12Error::Malformed("the parameters of PBES2");
    let mut function = parameters.inside(SEQUENCE).ok_or_else(malformed)?;
    let mut scheme = parameters.inside(SEQUENCE).ok_or_else(malformed)?;
    if function.take(OID) != Some(oid::PBKDF2) {
        return Err(Pkcs12Error::Unsupported("a key derivation other than PBKDF2"));
    }
    let mut function = function.inside(SEQUENCE).ok_or_else(malformed)?;
    let salt = function.take(OCTETS).ok_or_else(malformed)?;
    let rounds = rounds(function.number().ok_or_else(malformed)?)?;
    // The key's length, which the cipher says too.
    let _ = function.number();
    let prf = match function.inside(SEQUENCE).map(|mut prf| prf.take(OID)) {
        None => pbkdf2::PBKDF2_HMAC_SHA1,
        Some(prf) => match prf.and_then(|prf| prf.strip_prefix(oid::HMAC)) {
            Some([7]) => pbkdf2::PBKDF2_HMAC_SHA1,
            Some([9]) => pbkdf2::PBKDF2_HMAC_SHA256,
            Some([10]) => pbkdf2::PBKDF2_HMAC_SHA384,
            Some([11]) => pbkdf2::PBKDF2_HMAC_SHA512,
            _ => return Err(Pkcs12Error::Unsupported("this function of PBKDF2")),
        },
    };
    let kind = scheme.take(OID).ok_or_else(malformed)?;
    let iv = scheme.take(OCTETS).ok_or_else(malformed)?;
    let key = |len| {
        let mut key = Secret::zeroed(len);
        pbkdf2::derive(prf, rounds, salt, passphrase.as_bytes(), key.as_mut_bytes());
        key
    };
    match kind.strip_prefix(oid::AES) {
        Some([2]) => cbc::<Aes128>(&key(16), iv, sealed),
        Some([22]) => cbc::<Aes192>(&key(24), iv, sealed),
        Some([42]) => cbc::<Aes256>(&key(32), iv, sealed),
        None if kind == oid::TRIPLE_DES => cbc::<TdesEde3>(&key(24), iv, sealed),
        _ => Err(Pkcs12Error::Unsupported("a cipher other than AES-CBC and triple DES")),
    }
}

fn cbc<C: BlockCipherDecrypt + KeyInit>(
    key: &Secret,
    iv: &[u8],
    sealed: &[u8],
) -> Result<Secret, Pkcs12Error> {
    let size = C::block_size();
    let cipher = C::new_from_slice(key.as_bytes()).map_err(|_| Pkcs12Error::Malformed("a key's length"))?;
    if iv.len() != size || sealed.is_empty() || !sealed.len().is_multiple_of(size) {
        return Err(Pkcs12Error::Malformed("what is encrypted is no number of blocks"));
    }
    let mut plain = Secret::from(sealed);
    let before = std::iter::once(iv).chain(sealed.chunks_exact(size));
    for (chunk, before) in plain.as_mut_bytes().chunks_exact_mut(size).zip(before) {
        if let Ok(block) = <&mut Block<C>>::try_from(&mut *chunk) {
            cipher.decrypt_block(block);
        }
        chunk.iter_mut().zip(before).for_each(|(byte, before)| *byte ^= before);
    }
    let pad = usize::from(plain.as_bytes().last().copied().unwrap_or_default());
    let (text, padding) = plain
        .as_bytes()
        .split_at_checked(plain.len().wrapping_sub(pad))
        .filter(|_| (1..=size).contains(&pad))
        .ok_or(Pkcs12Error::Passphrase)?;
    if padding.iter().any(|byte| usize::from(*byte) != pad) {
        return Err(Pkcs12Error::Passphrase);
    }
    Ok(Secret::from(text))
}

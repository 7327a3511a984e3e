//! PKCS #12 (RFC 7292): a private key and certificates under a passphrase, as the clients of phones, of Windows and of OpenSSL exchange them. Owns
//! the format in both directions. What is written is what every client reads: triple DES and HMAC-SHA-1, for those of Apple and of Windows have
//! read nothing newer for long. Both are as good as the passphrase is random; who writes must take one that is. What is read is that, and AES
//! with PBKDF2. It must never work for long on what a stranger has written: rounds and items are bounded.

mod bags;
mod derive;
mod pbe;

pub use bags::{Contents, open};

use crate::hash::HashAlg;
use crate::secret::Secret;
use crate::tlv::{BMP, CONTEXT, CONTEXT_OCTETS, NULL, OCTETS, OID, SEQUENCE, SET, element, integer};
use aws_lc_rs::hmac;
use derive::{Purpose, derive};
use dormouse_sansio::Entropy;

/// Most rounds of a key derivation that are done for a stranger's file.
const MOST_ROUNDS: u32 = 1_000_000;
/// Rounds of what is written.
const ROUNDS: u32 = 50_000;
/// Bytes of salt.
const SALT: usize = 16;

pub(crate) mod oid {
    pub(crate) const DATA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 1];
    pub(crate) const ENCRYPTED_DATA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 6];
    /// `pbeWithSHAAnd3-KeyTripleDES-CBC`.
    pub(super) const SHA1_3DES: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 12, 1, 3];
    /// `pbeWithSHAAnd40BitRC2-CBC`.
    pub(super) const SHA1_RC2_40: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 12, 1, 6];
    pub(super) const PBES2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 5, 13];
    pub(super) const PBKDF2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 5, 12];
    /// `hmacWithSHA1` and, by its last byte, SHA-256, SHA-384 and SHA-512.
    pub(super) const HMAC: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 2];
    /// `des-EDE3-CBC`.
    pub(super) const TRIPLE_DES: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 3, 7];
    /// AES; the last byte is 2, 22 or 42 for CBC with 128, 192 or 256 bits.
    pub(super) const AES: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 1];
    pub(super) const KEY_BAG: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 12, 10, 1, 1];
    pub(super) const SHROUDED_KEY_BAG: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 12, 10, 1, 2];
    pub(super) const CERT_BAG: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 12, 10, 1, 3];
    pub(super) const X509: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 22, 1];
    pub(super) const FRIENDLY_NAME: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 20];
    pub(super) const LOCAL_KEY_ID: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 21];
    pub(super) const SHA1: &[u8] = &[0x2b, 0x0e, 3, 2, 26];
    /// SHA-2; the last byte is 1, 2 or 3 for 256, 384 or 512 bits.
    pub(crate) const SHA2: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2];
}

/// What is wrong with a file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Pkcs12Error {
    /// Not PKCS #12, or cut off.
    #[error("no PKCS #12 in DER: {0}")]
    Malformed(&'static str),
    /// The passphrase is another one, or the file is damaged.
    #[error("the passphrase is another one, or the file is damaged")]
    Passphrase,
    /// An algorithm that is not read.
    #[error("{0} is not read; openssl pkcs12 writes it anew")]
    Unsupported(&'static str),
    /// A bound.
    #[error("{0}")]
    TooMuch(&'static str),
}

/// A file with a key (PKCS #8 as PEM), its certificate and those that vouch for it in DER, under a passphrase. `name` is what a device shows.
/// `None` if there is no such key.
#[must_use]
pub fn seal(
    key: &Secret,
    certificates: &[&[u8]],
    name: &str,
    passphrase: &str,
    random: &mut dyn Entropy,
) -> Option<Secret> {
    let key = &crate::pem::first_section(key.as_bytes(), "PRIVATE KEY").ok()?;
    let mut salt = || {
        let mut salt = [0; SALT];
        random.fill(&mut salt);
        salt
    };
    let own = certificates.first().map(|der| crate::hash(HashAlg::Sha1, &[der])).unwrap_or_default();
    let attributes = attributes(name, &own);
    let bag = |kind: &[u8], value: &Secret, own: bool| {
        let attributes: &[u8] = if own { attributes.as_bytes() } else { &[] };
        let value = element(CONTEXT, &[value.as_bytes()]);
        element(SEQUENCE, &[element(OID, &[kind]).as_bytes(), value.as_bytes(), attributes])
    };
    let mut bags = Secret::default();
    for (n, der) in certificates.iter().enumerate() {
        let octets = element(CONTEXT, &[element(OCTETS, &[der]).as_bytes()]);
        let value = element(SEQUENCE, &[element(OID, &[oid::X509]).as_bytes(), octets.as_bytes()]);
        bags = Secret::concat(&[bags.as_bytes(), bag(oid::CERT_BAG, &value, n == 0).as_bytes()]);
    }
    let certificates = element(SEQUENCE, &[bags.as_bytes()]);
    let (salts, mac_salt) = ([salt(), salt()], salt());
    let encrypted = |plain: &Secret, salt: &[u8]| pbe::seal(plain, passphrase, salt, ROUNDS);
    let (algorithm, sealed) = encrypted(&certificates, &salts[0]);
    let sealed = element(CONTEXT_OCTETS, &[&sealed]);
    let info =
        element(SEQUENCE, &[element(OID, &[oid::DATA]).as_bytes(), algorithm.as_bytes(), sealed.as_bytes()]);
    let info = element(SEQUENCE, &[integer(0).as_bytes(), info.as_bytes()]);
    let first = content_info(oid::ENCRYPTED_DATA, info.as_bytes());

    let (algorithm, sealed) = encrypted(key, &salts[1]);
    let shrouded = element(SEQUENCE, &[algorithm.as_bytes(), element(OCTETS, &[&sealed]).as_bytes()]);
    let keys = element(SEQUENCE, &[bag(oid::SHROUDED_KEY_BAG, &shrouded, true).as_bytes()]);
    let second = content_info(oid::DATA, element(OCTETS, &[keys.as_bytes()]).as_bytes());

    let safe = element(SEQUENCE, &[first.as_bytes(), second.as_bytes()]);
    let mac_key = derive(HashAlg::Sha1, Purpose::Mac, passphrase, &mac_salt, ROUNDS, 20);
    let mac = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, mac_key.as_bytes());
    let mac = hmac::sign(&mac, safe.as_bytes());
    let algorithm =
        element(SEQUENCE, &[element(OID, &[oid::SHA1]).as_bytes(), element(NULL, &[]).as_bytes()]);
    let digest = element(SEQUENCE, &[algorithm.as_bytes(), element(OCTETS, &[mac.as_ref()]).as_bytes()]);
    let mac = element(
        SEQUENCE,
        &[digest.as_bytes(), element(OCTETS, &[&mac_salt]).as_bytes(), integer(ROUNDS).as_bytes()],
    );
    let safe = content_info(oid::DATA, element(OCTETS, &[safe.as_bytes()]).as_bytes());
    Some(element(SEQUENCE, &[integer(3).as_bytes(), safe.as_bytes(), mac.as_bytes()]))
}

/// A ContentInfo (RFC 5652 section 3).
pub(crate) fn content_info(kind: &[u8], content: &[u8]) -> Secret {
    let content = element(CONTEXT, &[content]);
    element(SEQUENCE, &[element(OID, &[kind]).as_bytes(), content.as_bytes()])
}

/// By these a device knows which certificate is that of the key, and what to call it.
fn attributes(name: &str, own: &[u8]) -> Secret {
    let utf16: Vec<u8> = name.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let one = |kind: &[u8], value: &Secret| {
        let values = element(SET, &[value.as_bytes()]);
        element(SEQUENCE, &[element(OID, &[kind]).as_bytes(), values.as_bytes()])
    };
    let name = one(oid::FRIENDLY_NAME, &element(BMP, &[&utf16]));
    let id = one(oid::LOCAL_KEY_ID, &element(OCTETS, &[own]));
    element(SET, &[name.as_bytes(), id.as_bytes()])
}

#[cfg(test)]
mod tests;

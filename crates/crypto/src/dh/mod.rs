//! Key exchange, one ephemeral key pair each: Diffie-Hellman and ML-KEM. Owns the formats of public values and shared secrets, and
//! every check on a peer's value.
//!
//! The private key of a Diffie-Hellman group comes from the entropy that is handed in, so that simulations repeat. ML-KEM draws from
//! the library's own generator, which cannot be replaced: its values differ from run to run, but their lengths, and whether an
//! operation succeeds, do not. What is simulated depends on nothing else: no decision is made on their bytes.

mod kem;
pub(crate) mod modp;

use aws_lc_rs::agreement::{self, ECDH_P256, ECDH_P384, ECDH_P521, PrivateKey, UnparsedPublicKey, X25519};
use dormouse_sansio::Entropy;
use modp::{Exponent, Modp};
use zeroize::Zeroizing;

use crate::error::Error;
use crate::secret::Secret;
use crate::suites::Group;

/// Draws before a source of entropy is declared broken. A draw for a NIST curve fails with a chance below 2^-31.
const MAX_DRAWS: u32 = 8;

/// An ephemeral private key with its public value. It is wiped when dropped.
pub struct DhPrivate {
    group: Group,
    key: Key,
    public: Vec<u8>,
}

enum Key {
    Modp(Exponent),
    Curve(PrivateKey),
    Kem(kem::Decapsulation),
}

/// The private half of a key pair alone: drawing it costs next to nothing, the public value may cost milliseconds. It is wiped when dropped.
pub struct Drawn {
    group: Group,
    key: Key,
}

impl Drawn {
    /// As [`DhPrivate::generate`], without the public value. A pair of ML-KEM is whole already.
    ///
    /// # Errors
    /// As [`DhPrivate::generate`].
    pub fn draw(group: Group, entropy: &mut dyn Entropy) -> Result<Self, Error> {
        let key = match group {
            Group::Modp2048 => Key::Modp(Exponent::generate(Modp::M2048, entropy)),
            Group::Modp3072 => Key::Modp(Exponent::generate(Modp::M3072, entropy)),
            Group::Modp4096 => Key::Modp(Exponent::generate(Modp::M4096, entropy)),
            Group::Ecp256 | Group::Ecp384 | Group::Ecp521 | Group::X25519 => {
                Key::Curve(draw_scalar(group, entropy)?)
            }
            Group::MlKem512 | Group::MlKem768 | Group::MlKem1024 => {
                Key::Kem(kem::Decapsulation::generate(group)?)
            }
        };
        Ok(Self { group, key })
    }

    /// Computes the public value; it may run in another thread.
    ///
    /// # Errors
    /// [`Error::Backend`] if the library fails.
    pub fn complete(self) -> Result<DhPrivate, Error> {
        DhPrivate::from_key(self.group, self.key)
    }

    /// The responder's part at once, of a Diffie-Hellman group: its public value and the shared secret, given the initiator's public value. It may
    /// run in another thread.
    ///
    /// # Errors
    /// As [`Drawn::complete`] and [`DhPrivate::agree`].
    pub fn respond(self, peer: &[u8]) -> Result<(Vec<u8>, Secret), Error> {
        let private = self.complete()?;
        let secret = private.agree(peer)?;
        Ok((private.public, secret))
    }
}

impl core::fmt::Debug for Drawn {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Drawn({})", self.group)
    }
}

impl DhPrivate {
    /// A fresh key pair, whose private half is drawn from `entropy`.
    ///
    /// # Errors
    /// [`Error::Entropy`] if the source gives no usable scalar in eight draws (an honest source: never).
    pub fn generate(group: Group, entropy: &mut dyn Entropy) -> Result<Self, Error> {
        Drawn::draw(group, entropy)?.complete()
    }

    fn from_key(group: Group, key: Key) -> Result<Self, Error> {
        let failed = Error::Backend { operation: "public value" };
        let public = match &key {
            Key::Modp(exponent) => exponent.public_value(),
            Key::Curve(private) => {
                let public = private.compute_public_key().map_err(|_| failed.clone())?;
                let encoded = public.as_ref();
                // SEC 1 puts a format byte before the point, IKE does not (RFC 5903, section 7).
                let start = encoded.len().checked_sub(group.public_len()).ok_or(failed)?;
                encoded[start..].to_vec()
            }
            Key::Kem(private) => private.public_value()?,
        };
        Ok(Self { group, key, public })
    }

    /// The responder's part at once: its public value and the shared secret, given the initiator's public value.
    ///
    /// # Errors
    /// As [`DhPrivate::generate`] and [`DhPrivate::agree`]; for ML-KEM [`Error::PublicValue`] if the encapsulation key fails the check
    /// of FIPS 203, section 7.2.
    pub fn respond(group: Group, peer: &[u8], entropy: &mut dyn Entropy) -> Result<(Vec<u8>, Secret), Error> {
        if group.is_kem() {
            check_len(group, peer, group.public_len())?;
            return kem::encapsulate(group, peer);
        }
        Drawn::draw(group, entropy)?.respond(peer)
    }

    /// The group.
    #[must_use]
    pub const fn group(&self) -> Group {
        self.group
    }

    /// The public value as it stands in a KE payload: [`Group::public_len`] bytes.
    ///
    /// MODP: big-endian at the width of the prime (RFC 7296, section 3.4); ECP: x | y (RFC 5903, section 7);
    /// X25519: the 32 bytes of RFC 7748 (RFC 8031, section 3); ML-KEM: the encapsulation key of FIPS 203.
    #[must_use]
    pub fn public_value(&self) -> &[u8] {
        &self.public
    }

    /// The shared secret with the responder's public value: [`Group::secret_len`] bytes; for ECP the x coordinate alone. A ciphertext
    /// of ML-KEM that was not made for our key gives a secret that the peer does not have (FIPS 203, section 6.3).
    ///
    /// # Errors
    /// [`Error::PublicValueLength`], or [`Error::PublicValue`] for a value that is out of range or not on the curve
    /// (RFC 6989, section 2) or, for X25519, one that makes an all-zero secret (RFC 8031, section 2).
    pub fn agree(&self, peer: &[u8]) -> Result<Secret, Error> {
        let group = self.group;
        check_len(group, peer, group.answer_len())?;
        match &self.key {
            Key::Modp(exponent) => exponent.agree(peer).map_err(|why| Error::PublicValue { group, why }),
            Key::Curve(private) => agree_on_curve(group, private, peer),
            Key::Kem(private) => private.decapsulate(peer),
        }
    }
}

fn check_len(group: Group, value: &[u8], expected: usize) -> Result<(), Error> {
    match value.len() {
        got if got == expected => Ok(()),
        got => Err(Error::PublicValueLength { group, got, expected }),
    }
}

impl core::fmt::Debug for DhPrivate {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "DhPrivate({})", self.group)
    }
}

fn draw_scalar(group: Group, entropy: &mut dyn Entropy) -> Result<PrivateKey, Error> {
    let algorithm = match group {
        Group::Ecp256 => &ECDH_P256,
        Group::Ecp384 => &ECDH_P384,
        Group::Ecp521 => &ECDH_P521,
        _ => &X25519,
    };
    for _ in 0..MAX_DRAWS {
        let mut scalar = Zeroizing::new(vec![0; group.secret_len()]);
        entropy.fill(&mut scalar);
        if group == Group::Ecp521
            && let Some(top) = scalar.first_mut()
        {
            // 521 bits in 66 bytes.
            *top &= 1;
        }
        // The library refuses a scalar of zero or beyond the order of the curve; X25519 takes every string.
        if let Ok(key) = PrivateKey::from_private_key(algorithm, &scalar) {
            return Ok(key);
        }
    }
    Err(Error::Entropy { group, tries: MAX_DRAWS })
}

fn agree_on_curve(group: Group, private: &PrivateKey, peer: &[u8]) -> Result<Secret, Error> {
    const UNCOMPRESSED: u8 = 4;
    let (encoded, why) = match group {
        Group::X25519 => (peer.to_vec(), "the shared secret would be zero"),
        _ => {
            let mut point = Vec::with_capacity(1 + peer.len());
            point.push(UNCOMPRESSED);
            point.extend_from_slice(peer);
            (point, "it is not a point of the curve")
        }
    };
    let peer = UnparsedPublicKey::new(private.algorithm(), encoded);
    agreement::agree(private, peer, Error::PublicValue { group, why }, |secret| Ok(Secret::from(secret)))
}

#[cfg(test)]
mod tests;

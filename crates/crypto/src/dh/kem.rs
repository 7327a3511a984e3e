//! ML-KEM (FIPS 203) as a key exchange of two public values: the encapsulation key goes to the responder, the ciphertext comes back
//! (draft-ietf-ipsecme-ikev2-mlkem, section 2.3). Owns the calls of the library; must never draw from the caller's entropy, for the
//! library takes none.

use aws_lc_rs::kem::{
    Algorithm, AlgorithmId, Ciphertext, DecapsulationKey, EncapsulationKey, ML_KEM_512, ML_KEM_768,
    ML_KEM_1024,
};

use crate::error::Error;
use crate::secret::Secret;
use crate::suites::Group;

const fn algorithm(group: Group) -> &'static Algorithm<AlgorithmId> {
    match group {
        Group::MlKem512 => &ML_KEM_512,
        Group::MlKem1024 => &ML_KEM_1024,
        _ => &ML_KEM_768,
    }
}

/// The initiator's key pair. The library wipes the private half.
pub(super) struct Decapsulation(DecapsulationKey);

impl Decapsulation {
    pub(super) fn generate(group: Group) -> Result<Self, Error> {
        let failed = |_| Error::Backend { operation: "generation of an ML-KEM key" };
        DecapsulationKey::generate(algorithm(group)).map(Self).map_err(failed)
    }

    #[cfg(test)]
    pub(super) fn known(group: Group, bytes: &[u8]) -> Self {
        Self(DecapsulationKey::new(algorithm(group), bytes).expect("a decapsulation key"))
    }

    pub(super) fn public_value(&self) -> Result<Vec<u8>, Error> {
        let failed = |_| Error::Backend { operation: "public value" };
        let key = self.0.encapsulation_key().and_then(|key| Ok(key.key_bytes()?.as_ref().to_vec()));
        key.map_err(failed)
    }

    pub(super) fn decapsulate(&self, ciphertext: &[u8]) -> Result<Secret, Error> {
        let secret = self.0.decapsulate(Ciphertext::from(ciphertext));
        Ok(Secret::from(secret.map_err(|_| Error::Backend { operation: "decapsulation" })?.as_ref()))
    }
}

/// The responder's ciphertext and the shared secret. `peer` has the length of an encapsulation key.
pub(super) fn encapsulate(group: Group, peer: &[u8]) -> Result<(Vec<u8>, Secret), Error> {
    let refused = Error::PublicValue { group, why: "it is not an encapsulation key" };
    let key = EncapsulationKey::new(algorithm(group), peer).map_err(|_| refused.clone())?;
    let (ciphertext, secret) = key.encapsulate().map_err(|_| refused)?;
    Ok((ciphertext.as_ref().to_vec(), Secret::from(secret.as_ref())))
}

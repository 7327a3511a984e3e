//! In the place of tokens, in a program without the feature `pkcs11`: none can be opened.

use super::{Error, Uri};
use dormouse_crypto::Secret;
use dormouse_crypto::sign::{Scheme, Signer};

/// There is none.
#[derive(Debug)]
pub enum Token {}

impl Token {
    /// # Errors
    /// [`Error::Without`].
    pub fn open(_: &Uri, _: Option<&Secret>) -> Result<Self, Error> {
        Err(Error::Without)
    }

    /// # Errors
    /// [`Error::Without`].
    pub fn derive(_: &Uri, _: Option<&Secret>, _: &[u8]) -> Result<Secret, Error> {
        Err(Error::Without)
    }
}

impl Signer for Token {
    fn sign(&self, _: Scheme, _: &[u8]) -> Option<Vec<u8>> {
        match *self {}
    }
}

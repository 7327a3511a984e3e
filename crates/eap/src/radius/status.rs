//! Whether a server is there (Status-Server, RFC 5997). Owns one question; must never be taken for more than that: the answer is not about any user.

use std::sync::Arc;

use dormouse_sansio::Entropy;

use super::Client;
use super::attribute::{Attributes, NAS_NAME};
use super::sealed::{Asks, Discard, Pending, signed_request};
use crate::error::Error;

/// One question, at the port for users or the one for accounting.
#[derive(Debug)]
pub struct Status {
    client: Arc<Client>,
    pending: Pending,
}

impl Status {
    /// The question, and its packet.
    ///
    /// # Errors
    /// [`Error::TooLong`].
    pub fn ask(
        client: Arc<Client>,
        identifier: u8,
        entropy: &mut dyn Entropy,
    ) -> Result<(Self, Vec<u8>), Error> {
        let mut attributes = Attributes::default();
        // "A Message-Authenticator attribute MUST be included so as to provide per-packet authentication and integrity protection." (RFC 5997 section
        // 2)
        attributes.push(NAS_NAME, client.name.as_bytes())?;
        let (pending, packet) =
            signed_request(Asks::Status, identifier, attributes, &client.secret, entropy)?;
        Ok((Self { client, pending }, packet))
    }

    /// Takes a datagram of the server: after `Ok` it is there, and shares the secret.
    ///
    /// # Errors
    /// [`Discard`]: it is no answer.
    pub fn answer(&self, datagram: &[u8]) -> Result<(), Discard> {
        self.pending.open(&self.client.secret, datagram).map(drop)
    }
}

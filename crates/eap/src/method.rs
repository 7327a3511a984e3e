//! What a method says to the conversation that it is part of, at an authenticator. Owns nothing.

use crate::error::Error;
use crate::keys::Msk;

/// After a response.
#[derive(Debug)]
pub(crate) enum Turn {
    /// The data of the next request.
    Ask(Vec<u8>),
    /// Both sides have proved themselves.
    Done {
        /// Who the peer is: the name that it has proved.
        identity: String,
        /// The key.
        msk: Msk,
    },
    /// It ends.
    Failed(Error),
}

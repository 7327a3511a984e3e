//! What an authenticator asks of the users that there are. Owns the question; must never answer it.

use crate::keys::NtHash;

/// The users of a gateway. A name is looked up as the client has it, and without its Windows domain if it has one.
pub trait Users {
    /// The hash of this user's password, if there is such a user who may log in with one.
    fn mschapv2(&self, user: &str) -> Option<NtHash>;
}

//! What an authenticator asks of the users that there are. Owns the question; must never answer it.

use dormouse_crypto::cert::{Certificate, Verified};

use crate::keys::NtHash;

/// The users of a gateway. A name is looked up as the client has it, and without its Windows domain if it has one.
pub trait Users {
    /// The hash of this user's password, if there is such a user who may log in with one.
    fn mschapv2(&self, user: &str) -> Option<NtHash>;

    /// Whether this is the password of this user, where a client has sent the password itself through a tunnel (EAP-TTLS with PAP). A gateway that keeps
    /// better hashes than [`Users::mschapv2`] needs compares those here; this compares that one.
    fn password(&self, user: &str, password: &str) -> bool {
        let hash = NtHash::of_password(password);
        self.mschapv2(user).is_some_and(|known| Some(known) == hash)
    }

    /// Whether the owner of this certificate, which `verified` says by what path is trusted and whose key has been proved, may come in: the place to ask for
    /// revocation and denial. All may, unless this is implemented.
    ///
    /// # Errors
    /// Why not, for the log.
    fn admits(&self, certificate: &Certificate, verified: &Verified) -> Result<(), String> {
        let _ = (certificate, verified);
        Ok(())
    }
}

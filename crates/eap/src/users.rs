//! What an authenticator asks of the users that there are. Owns the question; must never answer it.

use core::str::FromStr as _;

use dormouse_crypto::cert::{Certificate, Identity, Verified};

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
    /// revocation and denial. All may, unless this is implemented. What comes back is who that is; `claimed` is the name of EAP-Identity, which proves nothing
    /// that the certificate does not.
    ///
    /// # Errors
    /// Why not, for the log.
    fn admits(
        &self,
        certificate: &Certificate,
        verified: &Verified,
        claimed: Option<&str>,
    ) -> Result<String, String> {
        let _ = verified;
        Ok(names(certificate, claimed).first().map_or_else(|| certificate.subject(), Identity::to_string))
    }
}

/// The names of who owns a certificate: first the one that it goes by, if that is in there, then the alternative names, then the subject.
#[must_use]
pub fn names(certificate: &Certificate, claimed: Option<&str>) -> Vec<Identity> {
    let claimed = claimed.and_then(|name| certificate.require(&Identity::from_str(name).ok()?).ok());
    let own = certificate.identities();
    let (subjects, others): (Vec<_>, Vec<_>) =
        own.into_iter().partition(|name| matches!(name, Identity::Dn(_)));
    claimed.into_iter().chain(others).chain(subjects).collect()
}

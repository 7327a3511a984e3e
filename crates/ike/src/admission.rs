//! Who is admitted: the last step of the full exchange and of each resumption. Owns the one function that decides
//! ([`Admission::admits`]), always by the configuration of today, and what it decides by; the words are [`crate::credential`]'s. It must
//! never believe a proof (that is [`crate::auth`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use dormouse_crypto::Secret;
use dormouse_crypto::cert::{Identity, Usage};
use dormouse_sansio::UnixTime;

use crate::config::{Connection, Ppk, RemoteAuth};
pub use crate::credential::{Credential, Denial, Lenient, Name, Refusal, Shown, Tag};
use crate::credential::{is_same, ppk_tag};
use crate::revocation::Revocation;

/// What decides beside the connections.
#[derive(Default)]
pub struct Admission {
    /// Key of the fingerprints of pre-shared keys: random, kept over restarts, the same on every gateway that takes the same tickets.
    pub fingerprint_key: Secret,
    /// Whom an administrator has refused.
    pub denials: BTreeSet<Denial>,
    /// What is known of revoked certificates.
    pub(crate) revocation: Revocation,
}

impl Connection {
    /// The connection as a peer of this identity has it, if it is one of those that are taken at all.
    pub(crate) fn takes(self: &Arc<Self>, identity: &Identity) -> Result<Arc<Self>, Refusal> {
        if !self.role.answers() {
            return Err(Refusal::Closed(self.name.clone()));
        }
        if !self.remote_id.matches(identity) {
            let expected = self.remote_id.to_string();
            return Err(Refusal::Identity { got: identity.clone(), expected });
        }
        match self.answering.peers.iter().find(|rule| rule.id.matches(identity)) {
            Some(rule) => Ok(rule.connection.clone()),
            None if self.answering.peers_only => {
                Err(Refusal::NoEntry { connection: self.name.clone(), got: identity.clone() })
            }
            None => Ok(self.clone()),
        }
    }
}

impl Admission {
    /// What admits a peer that has just proved `identity` by the rules of `connection`: its `certificates`, or else the pre-shared key; and
    /// the post-quantum one that is in the keys.
    pub(crate) fn credential(
        &self,
        connection: &Connection,
        identity: &Identity,
        certificates: Option<Credential>,
        ppk: Option<&Ppk>,
    ) -> Credential {
        let key = &self.fingerprint_key;
        let shown = match (certificates, &connection.remote_auth) {
            (Some(certificates), _) => certificates.shown,
            (None, RemoteAuth::Psk(psk)) => Shown::psk(key, &connection.name, identity, psk),
            (None, RemoteAuth::Cert { .. } | RemoteAuth::Eap) => Shown::Psk(Tag::default()),
        };
        Credential { shown, ppk: ppk.map(|ppk| ppk_tag(key, &connection.name, ppk)) }
    }

    /// Whether a peer that has proved `identity` by `credential`, just now or when its ticket was made, may use `connection` today. What
    /// comes back is the connection as this peer has it: its policy, and children that are narrowed to what it may reach.
    ///
    /// # Errors
    /// Why not.
    pub fn admits(
        &self,
        connection: &Arc<Connection>,
        identity: &Identity,
        credential: &Credential,
        now: UnixTime,
    ) -> Result<Arc<Connection>, Refusal> {
        let theirs = connection.takes(identity)?;
        let key = &self.fingerprint_key;
        match (&connection.remote_auth, &credential.shown) {
            (RemoteAuth::Psk(psk), Shown::Psk(then)) => {
                match Shown::psk(key, &connection.name, identity, psk) {
                    Shown::Psk(today) if is_same(today, *then) => {}
                    _ => return Err(Refusal::Psk(identity.clone())),
                }
            }
            (
                RemoteAuth::Cert { trust, usage, accept_rsa_sha1, .. },
                Shown::Certificates { anchor, lenient, .. },
            ) => {
                if !trust.trusts(anchor) {
                    return Err(Refusal::Anchor(identity.clone()));
                }
                // What EAP-TLS takes besides (RFC 5216, section 5.3).
                let by_eap = lenient.usage == Usage::IkeOrClientAuth && connection.trust_of_users().is_some();
                if lenient.usage != Usage::Ike && lenient.usage != *usage && !by_eap {
                    return Err(Refusal::Lenient(identity.clone(), "remote.allow_server_auth"));
                }
                if lenient.sha1 && !accept_rsa_sha1 {
                    return Err(Refusal::Lenient(identity.clone(), "remote.accept_rsa_sha1"));
                }
            }
            (_, Shown::Eap(then)) => {
                let policy = connection.answering.eap.as_ref();
                let policy = policy.ok_or_else(|| Refusal::Method(identity.clone(), "EAP"))?;
                let user = policy.users().and_then(|users| users.who_is(identity));
                let today = match user {
                    Some(user) => Some(Shown::eap(key, &connection.name, user)),
                    None => policy.is_radius().then(|| Shown::radius(key, &connection.name, identity)),
                };
                match today {
                    Some(Shown::Eap(today)) if is_same(today, *then) => {}
                    _ => return Err(Refusal::User(identity.clone())),
                }
            }
            (_, Shown::Psk(_)) => return Err(Refusal::Method(identity.clone(), "a pre-shared key")),
            (_, Shown::Certificates { .. }) => {
                return Err(Refusal::Method(identity.clone(), "a certificate"));
            }
        }
        let known =
            |then| connection.ppk.keys.iter().any(|ppk| is_same(ppk_tag(key, &connection.name, ppk), then));
        if connection.ppk.required && !credential.ppk.is_some_and(known) {
            return Err(Refusal::Ppk(identity.clone()));
        }
        if let Some(denial) = self.denials.iter().find(|d| d.means(identity, Some(credential))) {
            return Err(Refusal::Denied(denial.clone()));
        }
        self.revocation.refuses(connection, credential, now)?;
        Ok(theirs)
    }
}

#[cfg(test)]
mod tests;

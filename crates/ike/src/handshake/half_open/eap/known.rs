//! Whom a caller by EAP may be: the users of the connections that take it. Owns what was looked up for it; must never let anybody in: that is
//! decided anew when the conversation has ended.

use core::cell::RefCell;
use core::net::IpAddr;
use std::sync::Arc;

use dormouse_crypto::cert::{Certificate, Identity, Verified};
use dormouse_eap::NtHash;
use dormouse_eap::authenticator::{Users, names};
use dormouse_eap::packet::Type;
use dormouse_sansio::Instant;

use crate::auth::Certified;
use crate::config::{Connection, EapUser, eap_identity};
use crate::credential::{self, Credential, Shown};
use crate::endpoint_config::EndpointConfig;
use crate::guesses::Guesses;
use crate::handshake::half_open::How;
use crate::proposal;

/// What the caller has said of itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    /// The user's name.
    pub(super) name: Option<String>,
    /// Who its certificate says that it is.
    pub(super) certified: Option<Identity>,
    /// Whom it means.
    pub(super) user: Option<Meant>,
    /// Why that user is not let in, whatever the password.
    pub(super) refused: Option<credential::Refusal>,
}

/// A user by a connection's rules.
#[derive(Clone, Debug)]
pub(super) struct Meant {
    pub(super) connection: String,
    pub(super) identity: Identity,
    pub(super) by: By,
}

/// What a user is known by.
#[derive(Clone, Debug)]
pub(super) enum By {
    /// The entry of then. What it is at the end decides.
    Entry(Shown),
    /// A certificate.
    Certificate(Box<Certified>),
}

impl Said {
    /// Whom the caller says that it is.
    pub(super) fn claimed(&self) -> Option<Identity> {
        let user = self.user.as_ref().map(|user| user.identity.clone());
        user.or_else(|| self.certified.clone()).or_else(|| eap_identity(self.name.as_ref()?))
    }
}

/// The users whom a conversation may be with.
pub(super) struct Known<'a> {
    pub(super) config: &'a EndpointConfig,
    pub(super) among: Vec<&'a Arc<Connection>>,
    /// The method that is under way: a connection's users are not let in by one that another connection alone has.
    pub(super) method: Option<Type>,
    /// What wrong passwords came before, where this conversation began, and when it is.
    pub(super) guesses: (&'a Guesses, IpAddr, Instant),
    /// What was looked up just now: of the names that may be meant (with a domain of Windows and without) the first that is a user's.
    pub(super) said: RefCell<Option<Said>>,
}

impl Users for Known<'_> {
    fn mschapv2(&self, name: &str) -> Option<NtHash> {
        let mut said = Said { name: Some(name.to_owned()), ..Said::default() };
        let hash = self.look_up(name, &mut said);
        let mut before = self.said.borrow_mut();
        if before.as_ref().is_none_or(|before| before.user.is_none()) {
            *before = Some(said);
        }
        hash
    }

    fn admits(
        &self,
        certificate: &Certificate,
        verified: &Verified,
        claimed: Option<&str>,
    ) -> Result<String, String> {
        let shown = Certified { own: certificate.clone(), verified: verified.clone(), sha1: false };
        let (said, result) = match self.vouched(&shown, &names(certificate, claimed)) {
            Ok((connection, identity)) => {
                let name = identity.to_string();
                let by = By::Certificate(Box::new(shown));
                let user = Some(Meant { connection, identity, by });
                (Said { name: Some(name.clone()), user, ..Said::default() }, Ok(name))
            }
            Err((certified, why)) => {
                let text = why.to_string();
                (Said { certified, refused: Some(why), ..Said::default() }, Err(text))
            }
        };
        *self.said.borrow_mut() = Some(said);
        result
    }
}

impl Known<'_> {
    /// The connection that takes who has proved to own this certificate, and as whom: by the first of its names that one takes. Whether it is revoked, as far
    /// as that is known; what is not known is asked for when the conversation has ended.
    fn vouched(
        &self,
        shown: &Certified,
        names: &[Identity],
    ) -> Result<(String, Identity), (Option<Identity>, credential::Refusal)> {
        let first = names.first().cloned();
        let credential = Credential::certificates(shown, names, true);
        let mut refused = None;
        let trusting = |conn: &&&Arc<Connection>| {
            conn.trust_of_users().is_some_and(|trust| trust.trusts(&shown.verified.anchor_fingerprint))
        };
        for conn in self.among.iter().filter(trusting) {
            for name in names {
                let admission = &self.config.admission;
                let denial = admission.denials.iter().find(|d| d.means(name, Some(&credential)));
                let why = match (conn.takes(name), denial) {
                    (Err(why), _) => why,
                    (Ok(_), Some(denial)) => credential::Refusal::Denied(denial.clone()),
                    (Ok(_), None) => return Ok((conn.name.clone(), name.clone())),
                };
                refused.get_or_insert(why);
            }
        }
        let nobody = || credential::Refusal::Closed("EAP-TLS".to_owned());
        Err((first, refused.unwrap_or_else(nobody)))
    }

    /// "It is important that policy lookups and access control decisions use the actual authenticated identity." (RFC 7296 section 2.16)
    fn look_up(&self, name: &str, said: &mut Said) -> Option<NtHash> {
        let entry = |conn: &Arc<Connection>| {
            let policy = conn.answering.eap.as_ref()?;
            let takes = policy.methods().iter().any(|method| Some(method.kind()) == self.method);
            Some((conn.clone(), policy.users().filter(|_| takes)?.user(name)?.clone()))
        };
        let (guesses, from, now) = self.guesses;
        for (conn, user) in self.among.iter().filter_map(|conn| entry(conn)) {
            let EapUser { identity, nt_hash } = &user;
            let denial = self.config.admission.denials.iter().find(|d| d.means(identity, None));
            let refused = match (conn.takes(identity), denial, guesses.waits(identity, from, now)) {
                (Err(why), ..) => why,
                (Ok(_), Some(denial), _) => credential::Refusal::Denied(denial.clone()),
                (Ok(_), None, Some(wait)) => {
                    credential::Refusal::Guesses(identity.clone(), wait.as_secs() + 1)
                }
                (Ok(_), None, None) => {
                    let shown = Shown::eap(&self.config.admission.fingerprint_key, &conn.name, &user);
                    let (connection, identity) = (conn.name.clone(), identity.clone());
                    let meant = Meant { connection, identity, by: By::Entry(shown) };
                    (said.user, said.refused) = (Some(meant), None);
                    return Some(nt_hash.clone());
                }
            };
            said.refused.get_or_insert(refused);
        }
        None
    }
}

/// Which connections take a caller without a proof.
pub(super) struct Wanted<'a> {
    pub(super) childless: bool,
    /// Whom it asks for.
    pub(super) asked: Option<&'a Identity>,
    /// The gateway proves itself by EAP alone: that is not for users of connections that do not allow it.
    pub(super) alone: bool,
}

impl Wanted<'_> {
    pub(super) fn fits(&self, conn: &Connection, how: &How) -> bool {
        let How::Init { suite, .. } = how else { return false };
        conn.role.answers()
            && conn.answering.eap.as_ref().is_some_and(|policy| policy.is_alone() || !self.alone)
            && conn.suits(self.childless)
            && self.asked.is_none_or(|asked| asked.is_same_as(&conn.local_id))
            && proposal::permits(&conn.ike_proposals, suite)
    }
}

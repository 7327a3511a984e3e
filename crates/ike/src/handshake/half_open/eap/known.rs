//! Whom a caller by EAP may be: the users of the connections that take it. Owns what was looked up for it; must never let anybody in: that is
//! decided anew when the conversation has ended.

use core::cell::RefCell;
use std::sync::Arc;

use dormouse_crypto::cert::Identity;
use dormouse_eap::NtHash;
use dormouse_eap::authenticator::Users;

use crate::config::{Connection, EapUser, eap_identity};
use crate::credential::{self, Shown};
use crate::endpoint_config::EndpointConfig;
use crate::handshake::half_open::How;
use crate::proposal;

/// What the caller has said of itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    /// The user's name.
    pub(super) name: Option<String>,
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
    /// The entry of then. What it is at the end decides.
    pub(super) shown: Shown,
}

impl Said {
    /// Whom the caller says that it is.
    pub(super) fn claimed(&self) -> Option<Identity> {
        let user = self.user.as_ref().map(|user| user.identity.clone());
        user.or_else(|| eap_identity(self.name.as_ref()?))
    }
}

/// The users whom a conversation may be with.
pub(super) struct Known<'a> {
    pub(super) config: &'a EndpointConfig,
    pub(super) among: Vec<&'a Arc<Connection>>,
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
}

impl Known<'_> {
    /// "It is important that policy lookups and access control decisions use the actual authenticated identity." (RFC 7296 section 2.16)
    fn look_up(&self, name: &str, said: &mut Said) -> Option<NtHash> {
        let entry = |conn: &Arc<Connection>| {
            Some((conn.clone(), conn.answering.eap.as_ref()?.users()?.user(name)?.clone()))
        };
        for (conn, user) in self.among.iter().filter_map(|conn| entry(conn)) {
            let EapUser { identity, nt_hash } = &user;
            let denial = self.config.admission.denials.iter().find(|d| d.means(identity, None));
            let refused = match (conn.takes(identity), denial) {
                (Err(why), _) => why,
                (Ok(_), Some(denial)) => credential::Refusal::Denied(denial.clone()),
                (Ok(_), None) => {
                    let shown = Shown::eap(&self.config.admission.fingerprint_key, &conn.name, &user);
                    let meant = Meant { connection: conn.name.clone(), identity: identity.clone(), shown };
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
}

impl Wanted<'_> {
    pub(super) fn fits(&self, conn: &Connection, how: &How) -> bool {
        let How::Init { suite, .. } = how else { return false };
        conn.role.answers()
            && conn.answering.eap.is_some()
            && conn.is_childless() == self.childless
            && self.asked.is_none_or(|asked| asked.is_same_as(&conn.local_id))
            && proposal::permits(&conn.ike_proposals, suite)
    }
}

//! Users who prove who they are by EAP (RFC 7296, section 2.16). Owns whom a gateway knows, and what a client says; the conversation is
//! `dormouse_eap`'s.

use core::fmt;
use std::collections::BTreeMap;

use dormouse_crypto::Secret;
use dormouse_crypto::cert::Identity;
use dormouse_eap::{NtHash, peer};

/// A client's user.
#[derive(Clone)]
pub struct EapLogin {
    /// Name of the user at the gateway.
    pub user: String,
    /// The password, in UTF-8.
    pub password: Secret,
}

impl EapLogin {
    /// For one conversation.
    pub(crate) fn credentials(&self) -> peer::Credentials {
        let method = peer::Method::MsChapV2 { password: self.password.clone() };
        peer::Credentials { identity: self.user.clone(), method }
    }
}

impl fmt::Debug for EapLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Eap({})", self.user)
    }
}

/// A user whom a gateway knows.
#[derive(Clone, Debug)]
pub struct EapUser {
    /// Who that is to pools, patterns, denials, records and tickets.
    pub(crate) identity: Identity,
    /// MD4 of the password. Who has it needs no password.
    pub(crate) nt_hash: NtHash,
}

/// A name that no user can have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EapUserError {
    /// It is no host name or mail address.
    #[error("\"{0}\" is no name of a user: letters, digits and punctuation without =, or a mail address")]
    Name(String),
    /// Two names are one identity.
    #[error("\"{0}\" and \"{1}\" are the same identity: case does not count in it")]
    Twice(String, String),
}

/// How a gateway's connection takes users.
#[derive(Clone, Debug)]
pub struct EapPolicy {
    pub(crate) asked: EapAsked,
}

/// Who is asked whether a user is let in.
#[derive(Clone, Debug)]
pub(crate) enum EapAsked {
    /// The gateway itself: by these methods, in the order in which they are offered.
    Here { methods: Vec<EapMethod>, users: EapUsers },
}

/// A way in which users prove who they are to the gateway itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum EapMethod {
    /// EAP-MSCHAPv2: a password.
    MsChapV2,
}

/// The users with passwords whom a gateway knows.
#[derive(Clone, Default)]
pub struct EapUsers {
    users: BTreeMap<String, EapUser>,
    /// Names by identity, in its canonical form.
    names: BTreeMap<Vec<u8>, String>,
}

impl fmt::Debug for EapUsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EapUsers({})", self.users.len())
    }
}

impl EapPolicy {
    /// The gateway knows these users, and takes them by these methods, best first.
    #[must_use]
    pub const fn here(methods: Vec<EapMethod>, users: EapUsers) -> Self {
        Self { asked: EapAsked::Here { methods, users } }
    }

    /// The users with passwords whom the gateway itself knows.
    #[must_use]
    pub const fn users(&self) -> Option<&EapUsers> {
        match &self.asked {
            EapAsked::Here { users, .. } => Some(users),
        }
    }

    /// The methods by which the gateway itself takes users, best first.
    #[must_use]
    pub fn methods(&self) -> &[EapMethod] {
        match &self.asked {
            EapAsked::Here { methods, .. } => methods,
        }
    }
}

impl EapUsers {
    /// Users, each with the NT hash of a password.
    ///
    /// # Errors
    /// The first name that cannot be a user's.
    pub fn new(users: impl IntoIterator<Item = (String, NtHash)>) -> Result<Self, EapUserError> {
        let (mut known, mut names) = (BTreeMap::new(), BTreeMap::new());
        for (name, nt_hash) in users {
            let identity = identity(&name).ok_or_else(|| EapUserError::Name(name.clone()))?;
            if let Some(other) = names.insert(identity.canonical(), name.clone()) {
                return Err(EapUserError::Twice(other, name));
            }
            known.insert(name, EapUser { identity, nt_hash });
        }
        Ok(Self { users: known, names })
    }

    /// The user of this name, which is compared byte for byte.
    pub(crate) fn user(&self, name: &str) -> Option<&EapUser> {
        self.users.get(name)
    }

    /// The user who is this identity.
    pub(crate) fn who_is(&self, who: &Identity) -> Option<&EapUser> {
        self.names.get(&who.canonical()).and_then(|name| self.users.get(name))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }
}

/// Who a user of this name is. Whatever else has a notation (addresses, distinguished names) is no user.
pub(crate) fn identity(name: &str) -> Option<Identity> {
    let identity = name.parse().ok().filter(|id| matches!(id, Identity::Fqdn(_) | Identity::Email(_)))?;
    // A leading @ would be lost.
    identity.to_string().eq_ignore_ascii_case(name).then_some(identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users_of(names: &[&str]) -> Result<EapUsers, EapUserError> {
        EapUsers::new(names.iter().map(|n| ((*n).to_owned(), NtHash::from([7; 16]))))
    }

    #[test]
    fn users_are_names_and_no_two_of_them_one_identity() {
        let users = users_of(&["alice", "Bob@Example.org"]).unwrap();
        assert_eq!(users.user("alice").map(|u| u.identity.to_string()), Some("alice".to_owned()));
        assert!(users.user("Alice").is_none(), "byte for byte");
        let bob = "Bob@example.ORG".parse().unwrap();
        assert!(users.who_is(&bob).is_some() && users.who_is(&"bob@example.org".parse().unwrap()).is_none());
        for bad in ["", "CN=alice", "192.0.2.1", "@alice", "al ice", "*", "keyid:00"] {
            assert_eq!(users_of(&[bad]).unwrap_err(), EapUserError::Name(bad.to_owned()), "{bad}");
        }
        assert!(matches!(users_of(&["alice", "ALICE"]), Err(EapUserError::Twice(..))));
    }
}

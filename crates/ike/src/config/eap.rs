//! Users who prove who they are by EAP (RFC 7296, section 2.16). Owns whom a gateway knows and by which methods, and what a client says; the
//! conversation is `dormouse_eap`'s.

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_crypto::Secret;
use dormouse_crypto::cert::{Certificate, Identity, TrustStore};
use dormouse_crypto::sign::SigningKey;
use dormouse_eap::authenticator::Method;
use dormouse_eap::packet::Type;
use dormouse_eap::{NtHash, peer, tls};
use dormouse_sansio::UnixTime;

use super::{Connection, LocalAuth, RemoteAuth};

/// A client's user.
#[derive(Clone)]
pub struct EapLogin {
    /// Name of the user at the gateway.
    pub user: String,
    /// How he proves that he is it.
    pub proof: EapProof,
}

/// How a client's user proves who he is.
#[derive(Clone)]
pub enum EapProof {
    /// By a password in UTF-8 (EAP-MSCHAPv2).
    Password(Secret),
    /// By a certificate (EAP-TLS).
    Certificate {
        /// The private key.
        key: Arc<SigningKey>,
        /// DER certificates: the user's own first, then the intermediates.
        chain: Vec<Vec<u8>>,
        /// Whether the gateway may prove itself inside EAP alone, by the certificate that it shows there (RFC 5998).
        alone: bool,
        /// Who must prove itself inside EAP, if that is not the gateway but one that it asks: never alone then.
        server: Option<Identity>,
    },
}

impl EapLogin {
    /// For one conversation with `server`, at a time.
    ///
    /// # Errors
    /// Why TLS cannot be set up.
    pub(crate) fn credentials(
        &self,
        servers: &RemoteAuth,
        server: &Identity,
        at: UnixTime,
    ) -> Result<peer::Credentials, tls::ConfigError> {
        let method = match &self.proof {
            EapProof::Password(password) => peer::Method::MsChapV2 { password: password.clone() },
            EapProof::Certificate { key, chain, server: other, .. } => {
                let RemoteAuth::Cert { trust, .. } = servers else {
                    return Err(tls::ConfigError::NoCertificate);
                };
                let (own, clock) = (own(key, chain)?, tls::Clock::new(move || at));
                let server = other.as_ref().unwrap_or(server).clone();
                let config = tls::ClientConfig::new(&own, (**trust).clone(), server, clock)?;
                peer::Method::Tls(config)
            }
        };
        Ok(peer::Credentials { identity: self.user.clone(), method })
    }

    /// Whether the gateway may prove itself inside EAP alone.
    /// A password that can be guessed does not suit (RFC 5998, section 4).
    pub(crate) const fn is_alone(&self) -> bool {
        matches!(self.proof, EapProof::Certificate { alone: true, server: None, .. })
    }

    /// The password.
    pub(crate) const fn password(&self) -> Option<&Secret> {
        match &self.proof {
            EapProof::Password(password) => Some(password),
            EapProof::Certificate { .. } => None,
        }
    }

    /// The certificates, the user's own first.
    pub(crate) fn chain(&self) -> &[Vec<u8>] {
        match &self.proof {
            EapProof::Password(_) => &[],
            EapProof::Certificate { chain, .. } => chain,
        }
    }
}

/// A certificate and key as EAP-TLS has them.
fn own(key: &Arc<SigningKey>, chain: &[Vec<u8>]) -> Result<tls::Own, tls::ConfigError> {
    let read = |der: &Vec<u8>| Certificate::from_der(der).map_err(|e| tls::ConfigError::Tls(e.to_string()));
    let chain = chain.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    tls::Own::new(&chain, key.clone())
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
    /// The gateway itself: by these methods, in the order in which they are offered. `alone`: where the method suits and the caller asks for it,
    /// the gateway proves itself inside EAP alone (RFC 5998).
    Here { methods: Vec<EapMethod>, users: EapUsers, alone: bool },
    /// RADIUS servers, which the driver speaks with ([`crate::Event::AskElsewhere`]).
    Radius,
}

/// A way in which users prove who they are to the gateway itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum EapMethod {
    /// EAP-MSCHAPv2: a password.
    MsChapV2,
    /// EAP-TLS: a certificate of an authority that the connection trusts.
    Tls,
    /// EAP-TTLS: a password inside TLS, itself (PAP) or by MSCHAPv2.
    Ttls,
}

impl EapMethod {
    /// Its number in EAP.
    pub(crate) const fn kind(self) -> Type {
        match self {
            Self::MsChapV2 => Type::MSCHAPV2,
            Self::Tls => Type::TLS,
            Self::Ttls => Type::TTLS,
        }
    }

    /// Whether the gateway may prove itself by it alone.
    pub(crate) const fn suits_alone(self) -> bool {
        matches!(self, Self::Tls)
    }
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
        Self { asked: EapAsked::Here { methods, users, alone: false } }
    }

    /// The same, but the gateway proves itself inside EAP alone to callers that ask for it, where a method suits (RFC 5998).
    #[must_use]
    pub fn alone(mut self) -> Self {
        if let EapAsked::Here { alone, .. } = &mut self.asked {
            *alone = true;
        }
        self
    }

    /// Whether the gateway itself takes users by this method.
    #[must_use]
    pub fn takes(&self, method: EapMethod) -> bool {
        self.methods().contains(&method)
    }

    /// The same with these users, where the gateway itself knows them.
    #[must_use]
    pub fn with_users(mut self, now: EapUsers) -> Self {
        if let EapAsked::Here { users, .. } = &mut self.asked {
            *users = now;
        }
        self
    }

    /// Whether the gateway may prove itself inside EAP alone.
    pub(crate) fn is_alone(&self) -> bool {
        match &self.asked {
            EapAsked::Here { methods, alone, .. } => {
                *alone && methods.iter().any(|method| method.suits_alone())
            }
            EapAsked::Radius => false,
        }
    }

    /// RADIUS servers know the users, and by which methods they prove who they are.
    #[must_use]
    pub const fn radius() -> Self {
        Self { asked: EapAsked::Radius }
    }

    /// Whether RADIUS servers know the users.
    #[must_use]
    pub const fn is_radius(&self) -> bool {
        matches!(self.asked, EapAsked::Radius)
    }

    /// The users with passwords whom the gateway itself knows.
    #[must_use]
    pub const fn users(&self) -> Option<&EapUsers> {
        match &self.asked {
            EapAsked::Here { users, .. } => Some(users),
            EapAsked::Radius => None,
        }
    }

    /// The methods by which the gateway itself takes users, best first.
    #[must_use]
    pub fn methods(&self) -> &[EapMethod] {
        match &self.asked {
            EapAsked::Here { methods, .. } => methods,
            EapAsked::Radius => &[],
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

    /// The same users with these changes, of which the last one of an identity counts: a user with another hash, or with `None` one less. Also the names
    /// that cannot be users'.
    #[must_use]
    pub fn changed(
        &self,
        changes: impl IntoIterator<Item = (String, Option<NtHash>)>,
    ) -> (Self, Vec<String>) {
        let (mut new, mut unfit) = (self.clone(), Vec::new());
        for (name, nt_hash) in changes {
            let Some(identity) = identity(&name) else {
                unfit.push(name);
                continue;
            };
            // Whoever had this identity, by this name or by one that differs in case.
            if let Some(former) = new.names.remove(&identity.canonical()) {
                new.users.remove(&former);
            }
            if let Some(nt_hash) = nt_hash {
                new.names.insert(identity.canonical(), name.clone());
                new.users.insert(name, EapUser { identity, nt_hash });
            }
        }
        (new, unfit)
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

impl Connection {
    /// What the gateway offers to callers by EAP who may be meant for one of `among`, of which `self` stands in: the methods of each that itself asks, in their
    /// order. `alone`: those alone by which the gateway may prove itself.
    ///
    /// # Errors
    /// Why TLS cannot be set up with the certificate of this connection.
    pub(crate) fn eap_methods(
        &self,
        among: &[&Arc<Self>],
        alone: bool,
        at: UnixTime,
    ) -> Result<Vec<Method>, tls::ConfigError> {
        let mut kinds: Vec<EapMethod> = Vec::new();
        for method in
            among.iter().filter_map(|conn| conn.answering.eap.as_ref()).flat_map(|eap| eap.methods())
        {
            if !kinds.contains(method) && (method.suits_alone() || !alone) {
                kinds.push(*method);
            }
        }
        kinds.into_iter().map(|kind| self.eap_method(kind, among, at)).collect()
    }

    fn eap_method(
        &self,
        kind: EapMethod,
        among: &[&Arc<Self>],
        at: UnixTime,
    ) -> Result<Method, tls::ConfigError> {
        let own = || match &self.local_auth {
            LocalAuth::Cert { key, chain } => own(key, chain),
            LocalAuth::Psk(_) | LocalAuth::Eap(_) => Err(tls::ConfigError::NoCertificate),
        };
        let clock = tls::Clock::new(move || at);
        Ok(match kind {
            EapMethod::MsChapV2 => Method::MsChapV2,
            EapMethod::Ttls => Method::Ttls(tls::TunnelConfig::new(&own()?, clock)?),
            EapMethod::Tls => {
                let trusts = among.iter().filter_map(|conn| conn.trust_of_users()).collect::<Vec<_>>();
                let trust = TrustStore::of_all(&trusts).map_err(|e| tls::ConfigError::Tls(e.to_string()))?;
                Method::Tls(tls::ServerConfig::new(&own()?, trust, clock)?)
            }
        })
    }

    /// Whom it trusts to vouch for users with certificates, if it takes any.
    pub(crate) fn trust_of_users(&self) -> Option<&TrustStore> {
        match &self.remote_auth {
            RemoteAuth::Cert { trust, .. } if self.answering.eap.as_ref()?.takes(EapMethod::Tls) => {
                Some(trust)
            }
            _ => None,
        }
    }

    /// Whether users can prove themselves by the methods that are configured.
    ///
    /// # Errors
    /// Why not.
    pub fn check_eap(&self) -> Result<(), tls::ConfigError> {
        self.eap_methods(&[&Arc::new(self.clone())], false, UnixTime(0)).map(drop)
    }
}

/// Who a user of this name is. Whatever else has a notation (addresses, distinguished names) is no user.
#[must_use]
pub fn identity(name: &str) -> Option<Identity> {
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

    #[test]
    fn users_change_one_by_one_and_by_identity() {
        let users = users_of(&["alice", "bob", "carol"]).unwrap();
        let hash = || Some(NtHash::from([9; 16]));
        let changes = [("ALICE", hash()), ("bob", None), ("dave", hash()), ("*", hash()), ("nobody", None)];
        let (now, unfit) = users.changed(changes.map(|(name, hash)| (name.to_owned(), hash)));
        assert_eq!((now.len(), unfit), (3, vec!["*".to_owned()]));
        assert!(now.user("alice").is_none() && now.user("bob").is_none());
        assert_eq!(now.user("ALICE").map(|u| u.nt_hash.as_bytes()), Some(&[9; 16][..]));
        assert!(now.who_is(&"bob".parse().unwrap()).is_none() && now.user("dave").is_some());
        assert_eq!(now.user("carol").map(|u| u.nt_hash.as_bytes()), Some(&[7; 16][..]));
        assert_eq!(users.len(), 3, "as they were");
    }
}

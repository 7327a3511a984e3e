//! Who is admitted: the last step of the full exchange and of each resumption. Owns the words for what admitted a peer
//! ([`Credential`]), for what an administrator has refused ([`Denial`]) and for why a peer is refused ([`Refusal`]), and the one
//! function that decides ([`admits`]), always by the configuration of today. It must never believe a proof (that is [`crate::auth`])
//! nor store anything (the driver keeps denials, tickets carry credentials).

use core::fmt;
use core::str::FromStr;
use std::collections::BTreeSet;
use std::sync::Arc;

use dormouse_crypto::cert::{Identity, IdentityError, Issued, Reason, Verified};
use dormouse_crypto::suites::Prf;
use dormouse_crypto::{PrfKey, Secret};
use dormouse_sansio::UnixTime;

use crate::config::{Connection, EndpointConfig, RemoteAuth};
use crate::revocation::Revocation;
use crate::ticket::{In, Out, TicketFormatError};

/// Certificates of one chain that are kept, and bytes of a serial number (RFC 5280, section 4.1.2.2, has 20).
const CHAIN_MOST: usize = 17;
const SERIAL_MOST: usize = 64;

/// What admitted a peer, as small as a ticket can carry it: enough to ask later whether it still would.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// A pre-shared key: HMAC-SHA-256 of connection, identity and key under the gateway's fingerprint key, 16 bytes. Without
    /// that key it says nothing about the pre-shared one.
    Psk([u8; 16]),
    /// Certificates.
    Certificates {
        /// SHA-256 of the peer's own certificate.
        fingerprint: [u8; 32],
        /// Every certificate that a CA has issued, the peer's own first; empty if it is pinned.
        chain: Vec<Issued>,
        /// SHA-256 of the CA's certificate at the end, or of the pinned one.
        anchor: [u8; 32],
    },
}

impl Credential {
    /// Of a peer that has proved `identity` to `connection` with this pre-shared key.
    #[must_use]
    pub fn psk(key: &Secret, connection: &str, identity: &Identity, psk: &Secret) -> Self {
        let (kind, id) = identity.to_ike();
        let length = |bytes: &[u8]| (bytes.len() as u64).to_be_bytes();
        let tag = PrfKey::new(Prf::HmacSha256, key.as_bytes()).compute(&[
            b"dormouse psk fingerprint",
            &length(connection.as_bytes()),
            connection.as_bytes(),
            &[kind],
            &length(&id),
            &id,
            psk.as_bytes(),
        ]);
        let mut short = [0; 16];
        short.iter_mut().zip(tag.as_bytes()).for_each(|(to, from)| *to = *from);
        Self::Psk(short)
    }

    /// Of a peer whose own certificate has this fingerprint and was verified so.
    #[must_use]
    pub fn certificates(fingerprint: [u8; 32], verified: &Verified) -> Self {
        Self::Certificates { fingerprint, chain: verified.chain.clone(), anchor: verified.anchor_fingerprint }
    }

    /// SHA-256 of the peer's own certificate, if it has shown one.
    #[must_use]
    pub const fn fingerprint(&self) -> Option<[u8; 32]> {
        match self {
            Self::Psk(_) => None,
            Self::Certificates { fingerprint, .. } => Some(*fingerprint),
        }
    }

    /// The certificates that CAs have issued.
    pub(crate) fn chain(&self) -> &[Issued] {
        match self {
            Self::Psk(_) => &[],
            Self::Certificates { chain, .. } => chain,
        }
    }

    /// Whether both are the same pre-shared key; compared in constant time.
    fn is_same_psk(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Psk(a), Self::Psk(b)) => Secret::from(*a) == Secret::from(*b),
            _ => false,
        }
    }

    /// Writes the canonical encoding.
    pub(crate) fn encode(&self, out: &mut Out) {
        match self {
            Self::Psk(tag) => {
                out.u8(1);
                out.raw(tag);
            }
            Self::Certificates { fingerprint, chain, anchor } => {
                out.u8(2);
                out.raw(fingerprint);
                out.raw(anchor);
                out.list(chain, |out, one| {
                    out.raw(&one.issuer_key);
                    out.bytes(&one.serial);
                });
            }
        }
    }

    /// Reads what [`Credential::encode`] has written.
    pub(crate) fn decode(r: &mut In<'_>) -> Result<Self, TicketFormatError> {
        match r.u8()? {
            1 => Ok(Self::Psk(r.array()?)),
            2 => {
                let (fingerprint, anchor) = (r.array()?, r.array()?);
                let one = |r: &mut In<'_>| {
                    Ok(Issued { issuer_key: r.array()?, serial: r.bytes("serial number", SERIAL_MOST)? })
                };
                let chain = r.list(one)?;
                if chain.len() > CHAIN_MOST {
                    return Err(TicketFormatError::Value { what: "chain", got: chain.len() as u64 });
                }
                Ok(Self::Certificates { fingerprint, chain, anchor })
            }
            got => Err(TicketFormatError::Value { what: "kind of credential", got: got.into() }),
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Psk(_) => f.write_str("Psk"),
            Self::Certificates { fingerprint, chain, .. } => {
                write!(f, "Certificates({}, {} issued)", hex(fingerprint), chain.len())
            }
        }
    }
}

/// What an administrator has refused: a name with any proof, or a certificate with any name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Denial {
    /// Everybody who proves this identity, in every connection.
    Name(Identity),
    /// Everybody who uses the certificate with this SHA-256 fingerprint.
    Certificate([u8; 32]),
}

impl Denial {
    /// Whether a peer is meant. Distinguished names are compared as names.
    #[must_use]
    pub fn means(&self, identity: &Identity, credential: Option<&Credential>) -> bool {
        match self {
            Self::Name(name) => name.is_same_as(identity),
            Self::Certificate(denied) => credential.and_then(Credential::fingerprint) == Some(*denied),
        }
    }
}

impl FromStr for Denial {
    type Err = IdentityError;

    /// An identity in the notation of the configuration, or the SHA-256 fingerprint of a certificate: 64 hexadecimal digits, with
    /// or without colons or blanks, after nothing, `sha256:` or `SHA256 Fingerprint=`.
    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let marked = ["sha256:", "sha256 fingerprint=", "sha-256:"];
        let lower = text.trim().to_ascii_lowercase();
        let digits = marked.iter().find_map(|mark| lower.strip_prefix(mark));
        match unhex(digits.unwrap_or(&lower)) {
            Some(fingerprint) => Ok(Self::Certificate(fingerprint)),
            None => text.trim().parse().map(Self::Name),
        }
    }
}

impl fmt::Display for Denial {
    /// The notation that [`Denial::from_str`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Certificate(fingerprint) => write!(f, "sha256:{}", hex(fingerprint)),
        }
    }
}

/// 32 bytes out of 64 hexadecimal digits.
fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits: String = text.chars().filter(|c| !matches!(c, ':' | ' ')).take(65).collect();
    let digits = digits.as_bytes();
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(core::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Why a peer that has proved its identity is not admitted. The peer learns AUTHENTICATION_FAILED or TICKET_NACK alone.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The connection accepts no initiators.
    #[error("the connection {0} accepts no initiators")]
    Closed(String),
    /// The identity is not one that the connection takes.
    #[error("the peer is {got}, the configuration takes {expected}")]
    Identity {
        /// Who it is.
        got: Identity,
        /// Who is configured.
        expected: String,
    },
    /// It was admitted by one kind of proof, and the connection takes the other.
    #[error("{0} was admitted by {1}, which the connection no longer takes")]
    Method(Identity, &'static str),
    /// The pre-shared key has been changed since.
    #[error("the pre-shared key of {0} is not the one that admitted it")]
    Psk(Identity),
    /// The authority that vouched for it is no longer trusted.
    #[error("the authority that vouched for {0} is no longer trusted")]
    Anchor(Identity),
    /// An administrator has refused it.
    #[error("{0} is denied (dormouse deny --list)")]
    Denied(Denial),
    /// A certificate of the chain is revoked.
    #[error("the peer's certificate, or one of its issuers', is revoked: {0}")]
    Revoked(Reason),
    /// Whether the certificates are revoked could not be found out, and the configuration insists.
    #[error("whether the peer's certificates are revoked is not known (remote.revocation = \"strict\")")]
    StatusUnknown,
    /// No `peers` entry means it, and the connection takes only those.
    #[error("no peers entry of the connection {connection} means {got}")]
    NoEntry {
        /// The connection.
        connection: String,
        /// Who it is.
        got: Identity,
    },
    /// As many sessions as the identity may have are there already.
    #[error("{identity} has {sessions} sessions, which is as many as it may have")]
    Sessions {
        /// Who it is.
        identity: Identity,
        /// How many.
        sessions: usize,
    },
}

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

impl EndpointConfig {
    /// What a peer has shown that has just proved `identity` by the rules of `connection`: `certificates`, or else the pre-shared key.
    pub(crate) fn credential(
        &self,
        connection: &Connection,
        identity: &Identity,
        certificates: Option<Credential>,
    ) -> Credential {
        certificates.unwrap_or_else(|| match &connection.remote_auth {
            RemoteAuth::Psk(psk) => {
                Credential::psk(&self.admission.fingerprint_key, &connection.name, identity, psk)
            }
            RemoteAuth::Cert { .. } => Credential::Psk([0; 16]),
        })
    }
}

/// Whether a peer that has proved `identity` by `credential`, just now or when its ticket was made, may use `connection` today. What
/// comes back is the connection as this peer has it: its policy, and children that are narrowed to what it may reach.
///
/// # Errors
/// Why not.
pub fn admits(
    config: &EndpointConfig,
    connection: &Arc<Connection>,
    identity: &Identity,
    credential: &Credential,
    now: UnixTime,
) -> Result<Arc<Connection>, Refusal> {
    if !connection.role.answers() {
        return Err(Refusal::Closed(connection.name.clone()));
    }
    if !connection.remote_id.matches(identity) {
        let expected = connection.remote_id.to_string();
        return Err(Refusal::Identity { got: identity.clone(), expected });
    }
    match (&connection.remote_auth, credential) {
        (RemoteAuth::Psk(psk), Credential::Psk(_)) => {
            let key = &config.admission.fingerprint_key;
            let today = Credential::psk(key, &connection.name, identity, psk);
            if !today.is_same_psk(credential) {
                return Err(Refusal::Psk(identity.clone()));
            }
        }
        (RemoteAuth::Cert { trust, .. }, Credential::Certificates { anchor, .. }) => {
            if !trust.trusts(anchor) {
                return Err(Refusal::Anchor(identity.clone()));
            }
        }
        (_, Credential::Psk(_)) => return Err(Refusal::Method(identity.clone(), "a pre-shared key")),
        (_, Credential::Certificates { .. }) => {
            return Err(Refusal::Method(identity.clone(), "a certificate"));
        }
    }
    if let Some(denial) = config.admission.denials.iter().find(|d| d.means(identity, Some(credential))) {
        return Err(Refusal::Denied(denial.clone()));
    }
    config.admission.revocation.refuses(connection, credential.chain(), now)?;
    match connection.peers.iter().find(|rule| rule.id.matches(identity)) {
        Some(rule) => Ok(rule.connection.clone()),
        None if connection.peers_only => {
            Err(Refusal::NoEntry { connection: connection.name.clone(), got: identity.clone() })
        }
        None => Ok(connection.clone()),
    }
}

#[cfg(test)]
mod tests;

//! The words of admission: what admitted a peer ([`Credential`]), what an administrator has refused ([`Denial`]) and why a peer is refused
//! ([`Refusal`]). Owns their encoding and notation; must never decide ([`crate::admission`] does) nor store anything (the driver keeps
//! denials, tickets carry credentials).

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;
use std::collections::BTreeSet;

use dormouse_crypto::cert::{Identity, IdentityError, Issued, Reason, Usage};
use dormouse_crypto::suites::Prf;
use dormouse_crypto::{HashAlg, PrfKey, Secret, hash};
use dormouse_wire::codec::Reader;

use crate::auth::Certified;
use crate::codec::{In, Out, TicketFormatError};
use crate::config::{EapUser, Ppk};

/// Certificates of one chain that are kept, and bytes of a serial number (RFC 5280, section 4.1.2.2, has 20).
const CHAIN_MOST: usize = 17;
const SERIAL_MOST: usize = 64;
/// Identities of one certificate that a ticket carries.
const NAMES_MOST: usize = 16;

/// What admitted a peer, as small as a ticket can carry it: enough to ask later whether it still would.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    /// How it has proved who it is.
    pub shown: Shown,
    /// The post-quantum pre-shared key in the keys of the session: its HMAC as in [`Shown::Psk`].
    pub ppk: Option<Tag>,
}

/// HMAC-SHA-256 under the gateway's fingerprint key, 16 bytes: without that key it says nothing about what it is of.
pub type Tag = [u8; 16];

/// An identity in little room: the first bytes of SHA-256 of its canonical form. A client that finds another identity with the same digest shares its
/// denial, and nothing else.
pub type Name = [u8; 8];

fn name(identity: &Identity) -> Name {
    let digest = hash(HashAlg::Sha256, &[&identity.canonical()]);
    let mut name = Name::default();
    name.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
    name
}

/// See [`Credential`].
#[derive(Clone, PartialEq, Eq)]
pub enum Shown {
    /// A pre-shared key: HMAC of connection, identity and key.
    Psk(Tag),
    /// A user by EAP: HMAC of connection, identity and the entry of then (the hash of the password).
    Eap(Tag),
    /// Certificates.
    Certificates {
        /// SHA-256 of the peer's own certificate.
        fingerprint: [u8; 32],
        /// The identities that it vouches for, as [`name`] has them, in their order: a denial of one means all.
        names: Vec<Name>,
        /// Every certificate that a CA has issued, the peer's own first; empty if it is pinned.
        chain: Vec<Issued>,
        /// SHA-256 of the CA's certificate at the end, or of the pinned one.
        anchor: [u8; 32],
        /// What was looked away from.
        lenient: Lenient,
    },
}

/// What a configuration allowed or left out when it took certificates, which that of today may not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lenient {
    /// What a certificate had to be good for, if not for IKE.
    pub usage: Usage,
    /// The proof was a signature with SHA-1.
    pub sha1: bool,
    /// It was not asked whether they are revoked, and nothing is known of where to ask.
    pub unasked: bool,
}

impl Lenient {
    fn encode(self) -> u8 {
        let usage = match self.usage {
            Usage::Ike => 0,
            Usage::IkeOrServerAuth => 1,
            Usage::IkeOrClientAuth => 2,
        };
        usage | u8::from(self.sha1) << 2 | u8::from(self.unasked) << 3
    }

    fn decode(bits: u8) -> Result<Self, TicketFormatError> {
        let usage = match bits & 3 {
            0 => Usage::Ike,
            1 => Usage::IkeOrServerAuth,
            2 => Usage::IkeOrClientAuth,
            _ => return Err(TicketFormatError::Value { what: "usage", got: bits.into() }),
        };
        if bits > 15 {
            return Err(TicketFormatError::Value { what: "leniency", got: bits.into() });
        }
        Ok(Self { usage, sha1: bits & 4 != 0, unasked: bits & 8 != 0 })
    }
}

/// The HMAC of these parts, each with its length.
fn tag(key: &Secret, label: &[u8], parts: &[&[u8]]) -> Tag {
    let lengths: Vec<[u8; 8]> = parts.iter().map(|part| (part.len() as u64).to_be_bytes()).collect();
    let mut all = vec![label];
    all.extend(lengths.iter().zip(parts).flat_map(|(length, part)| [&length[..], *part]));
    let digest = PrfKey::new(Prf::HmacSha256, key.as_bytes()).compute(&all);
    let mut short = [0; 16];
    short.iter_mut().zip(digest.as_bytes()).for_each(|(to, from)| *to = *from);
    short
}

/// Whether both tags are the same; compared in constant time.
pub(crate) fn is_same(a: Tag, b: Tag) -> bool {
    Secret::from(a) == Secret::from(b)
}

pub(crate) fn ppk_tag(key: &Secret, connection: &str, ppk: &Ppk) -> Tag {
    tag(key, b"dormouse ppk fingerprint", &[connection.as_bytes(), &ppk.id, ppk.secret.as_bytes()])
}

impl Shown {
    /// By a peer that has proved `identity` to `connection` with this pre-shared key.
    #[must_use]
    pub fn psk(key: &Secret, connection: &str, identity: &Identity, psk: &Secret) -> Self {
        let (kind, id) = identity.to_ike();
        let parts = [connection.as_bytes(), &[kind], &id, psk.as_bytes()];
        Self::Psk(tag(key, b"dormouse psk fingerprint", &parts))
    }

    /// By a user of `connection` who has this hash there.
    pub(crate) fn eap(key: &Secret, connection: &str, user: &EapUser) -> Self {
        let (kind, id) = user.identity.to_ike();
        let parts = [connection.as_bytes(), &[kind], &id, user.nt_hash.as_bytes()];
        Self::Eap(tag(key, b"dormouse eap user fingerprint", &parts))
    }

    /// By a user of `connection` whom RADIUS servers know. They are not asked again for a ticket: it says that they were.
    pub(crate) fn radius(key: &Secret, connection: &str, identity: &Identity) -> Self {
        let (kind, id) = identity.to_ike();
        let parts = [connection.as_bytes(), &[kind], &id];
        Self::Eap(tag(key, b"dormouse radius user fingerprint", &parts))
    }

    /// Writes the canonical encoding.
    fn encode(&self, out: &mut Out) {
        match self {
            Self::Psk(tag) => {
                out.u8(1);
                out.raw(tag);
            }
            Self::Eap(tag) => {
                out.u8(3);
                out.raw(tag);
            }
            Self::Certificates { fingerprint, names, chain, anchor, lenient } => {
                out.u8(2);
                out.u8(lenient.encode());
                out.raw(fingerprint);
                out.raw(anchor);
                out.list(names, |out, name| out.raw(name));
                out.list(chain, |out, one| {
                    out.raw(&one.issuer_key);
                    out.bytes(&one.serial);
                });
            }
        }
    }

    fn decode(r: &mut In<'_>) -> Result<Self, TicketFormatError> {
        match r.u8()? {
            1 => Ok(Self::Psk(r.array()?)),
            2 => {
                let lenient = Lenient::decode(r.u8()?)?;
                let (fingerprint, anchor) = (r.array()?, r.array()?);
                let names = r.list(In::array)?;
                if names.len() > NAMES_MOST {
                    return Err(TicketFormatError::Value { what: "names", got: names.len() as u64 });
                }
                let one = |r: &mut In<'_>| {
                    Ok(Issued { issuer_key: r.array()?, serial: r.bytes("serial number", SERIAL_MOST)? })
                };
                let chain = r.list(one)?;
                if chain.len() > CHAIN_MOST {
                    return Err(TicketFormatError::Value { what: "chain", got: chain.len() as u64 });
                }
                Ok(Self::Certificates { fingerprint, names, chain, anchor, lenient })
            }
            3 => Ok(Self::Eap(r.array()?)),
            got => Err(TicketFormatError::Value { what: "kind of credential", got: got.into() }),
        }
    }
}

impl Credential {
    /// Of a peer that has shown these; `identities` are those that a denial may name; `asked`: whether they are revoked.
    #[must_use]
    pub fn certificates(shown: &Certified, identities: &[Identity], asked: bool) -> Self {
        let Certified { own, verified, sha1 } = shown;
        let (chain, anchor) = (verified.chain.clone(), verified.anchor_fingerprint);
        let lenient = Lenient { usage: verified.usage, sha1: *sha1, unasked: !asked && !chain.is_empty() };
        let names: BTreeSet<Name> = identities.iter().map(name).collect();
        let (fingerprint, names) = (own.fingerprint(), names.into_iter().collect());
        Self { shown: Shown::Certificates { fingerprint, names, chain, anchor, lenient }, ppk: None }
    }

    /// Whether a ticket can carry it: not that of a certificate for more than [`NAMES_MOST`] identities.
    pub(crate) const fn fits(&self) -> bool {
        match &self.shown {
            Shown::Psk(_) | Shown::Eap(_) => true,
            Shown::Certificates { names, .. } => names.len() <= NAMES_MOST,
        }
    }

    /// Whether its certificate vouches for this identity.
    fn vouches_for(&self, identity: &Identity) -> bool {
        matches!(&self.shown, Shown::Certificates { names, .. } if names.contains(&name(identity)))
    }

    /// SHA-256 of the peer's own certificate, if it has shown one.
    #[must_use]
    pub const fn fingerprint(&self) -> Option<[u8; 32]> {
        match &self.shown {
            Shown::Psk(_) | Shown::Eap(_) => None,
            Shown::Certificates { fingerprint, .. } => Some(*fingerprint),
        }
    }

    /// Whether nothing is known of where to ask for the status of its certificates.
    pub(crate) const fn is_unasked(&self) -> bool {
        matches!(&self.shown, Shown::Certificates { lenient: Lenient { unasked: true, .. }, .. })
    }

    /// The certificates that CAs have issued.
    pub(crate) fn chain(&self) -> &[Issued] {
        match &self.shown {
            Shown::Psk(_) | Shown::Eap(_) => &[],
            Shown::Certificates { chain, .. } => chain,
        }
    }

    /// The canonical encoding, for another gateway that has the same fingerprint key.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Out::new();
        self.encode(&mut out);
        out.into_vec()
    }

    /// Reads what [`Credential::to_bytes`] has written.
    ///
    /// # Errors
    /// If these bytes are something else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TicketFormatError> {
        let mut r = In(Reader::new("credential", bytes));
        let credential = Self::decode(&mut r)?;
        r.0.all()?;
        Ok(credential)
    }

    /// Writes the canonical encoding.
    pub(crate) fn encode(&self, out: &mut Out) {
        self.shown.encode(out);
        out.list(self.ppk.as_slice(), |out, tag| out.raw(tag));
    }

    /// Reads what [`Credential::encode`] has written.
    pub(crate) fn decode(r: &mut In<'_>) -> Result<Self, TicketFormatError> {
        let shown = Shown::decode(r)?;
        Ok(Self { shown, ppk: r.at_most_one("number of PPKs", In::array)? })
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ppk = if self.ppk.is_some() { ", PPK" } else { "" };
        write!(f, "{:?}{ppk}", self.shown)
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Psk(_) => f.write_str("Psk"),
            Self::Eap(_) => f.write_str("Eap"),
            Self::Certificates { fingerprint, chain, .. } => {
                write!(f, "Certificates({}, {} issued)", hex(fingerprint), chain.len())
            }
        }
    }
}

/// What an administrator has refused: a name with any proof, or a certificate with any name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Denial {
    /// Everybody who proves this identity, or uses a certificate that vouches for it, in every connection.
    Name(Identity),
    /// Everybody who uses the certificate with this SHA-256 fingerprint.
    Certificate([u8; 32]),
}

impl Denial {
    /// Whether a peer is meant. Distinguished names are compared as names.
    #[must_use]
    pub fn means(&self, identity: &Identity, credential: Option<&Credential>) -> bool {
        match self {
            Self::Name(name) => name.is_same_as(identity) || credential.is_some_and(|c| c.vouches_for(name)),
            Self::Certificate(denied) => credential.and_then(Credential::fingerprint) == Some(*denied),
        }
    }
}

impl FromStr for Denial {
    type Err = IdentityError;

    /// An identity in the notation of the configuration, or the SHA-256 fingerprint of a certificate: 64 hexadecimal digits, with
    /// or without colons or blanks, after nothing, `sha256:` or `SHA256 Fingerprint=`. What looks like one and has other digits is an
    /// error: taken for a name, it would match no identity.
    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let marked = ["sha256:", "sha-256:", "sha256 fingerprint=", "sha-256 fingerprint="];
        let lower = text.trim().to_ascii_lowercase();
        let marked = marked.iter().find_map(|mark| lower.strip_prefix(mark));
        if let Some(fingerprint) = unhex(marked.unwrap_or(&lower)) {
            return Ok(Self::Certificate(fingerprint));
        }
        let hexadecimal = lower.chars().all(|c| c.is_ascii_hexdigit() || matches!(c, ':' | ' '));
        let long = hexadecimal && lower.len() > 32 && lower.parse::<IpAddr>().is_err();
        // What has an @ is a name: a mail address, or a host that is marked as one.
        if marked.is_some() && !lower.contains('@') || long {
            let why = "a SHA-256 fingerprint has 64 hexadecimal digits";
            return Err(IdentityError::Text { text: text.trim().to_owned(), why });
        }
        text.trim().parse().map(Self::Name)
    }
}

impl fmt::Display for Denial {
    /// The notation that [`Denial::from_str`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A host whose name reads as something else.
            Self::Name(Identity::Fqdn(name)) if name.parse().as_ref() != Ok(self) => write!(f, "@{name}"),
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

/// Why a peer that has proved its identity is not admitted. The peer learns AUTHENTICATION_FAILED or TICKET_NACK alone; or
/// TEMPORARY_FAILURE, where it may come again soon.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// There is no such connection, or it accepts no initiators.
    #[error("there is no connection {0} that accepts initiators")]
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
    /// The gateway does not know the user any more, or the password has been changed since.
    #[error("the password of {0} is not the one that admitted it, or there is no such user")]
    User(Identity),
    /// There must be one of today's post-quantum pre-shared keys in its keys, and there is none.
    #[error("the keys of {0} hold none of the connection's post-quantum pre-shared keys (ppk.required)")]
    Ppk(Identity),
    /// The authority that vouched for it is no longer trusted.
    #[error("the authority that vouched for {0} is no longer trusted")]
    Anchor(Identity),
    /// Its certificates were made for something else, or its proof was with SHA-1, and that is no longer allowed.
    #[error("{0} was admitted by {1}, which is off now")]
    Lenient(Identity, &'static str),
    /// Whether its certificates are revoked was not asked, and is now.
    #[error("whether the peer's certificates are revoked was not asked when they were shown")]
    Unasked,
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
    /// It has as many as it may have, with those at the other gateways that share the store.
    #[error("{0} has as many sessions as it may have, with those at other gateways")]
    SessionsElsewhere(Identity),
    /// It has begun too many sessions of late.
    #[error("{0} begins sessions too often")]
    TooOften(Identity),
    /// Too many handshakes of its wait already.
    #[error(
        "too many handshakes of {0} wait already: for a signature, the status of its certificates, or the store"
    )]
    Waiting(Identity),
    /// Wrong passwords of the user have come too fast, from the caller's network or from many.
    #[error("wrong passwords of {0} came too fast: the next is looked at in {1} s")]
    Guesses(Identity, u64),
    /// Too many callers that have proved nothing wait for our signature.
    #[error("too many callers wait for the gateway to sign before they show who they are (EAP)")]
    Signatures,
}

#[cfg(test)]
mod tests;

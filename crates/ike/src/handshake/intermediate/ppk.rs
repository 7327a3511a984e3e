//! Post-quantum pre-shared keys at the responder's IKE_AUTH (RFC 8784, RFC 9867). Owns the rules by which a connection takes a caller's
//! PPK, or does without; must never choose the connection.

use std::sync::Arc;

use dormouse_crypto::Secret;

use super::names;
use crate::auth::{Authentication, Proof};
use crate::config::{Connection, Ppk};
use crate::keys;

/// What a connection makes of [`NamedPpk`].
pub(crate) struct ByPpk {
    /// Enters the keys now.
    pub(crate) ppk: Option<Arc<Ppk>>,
    /// Is in the keys, then or before.
    pub(crate) used: Option<Arc<Ppk>>,
    /// SK_pi with it.
    pub(crate) sk_p: Option<Secret>,
    /// The proof that counts.
    pub(crate) authentication: Authentication,
}

/// What an IKE_AUTH request and the exchanges before it say about PPKs.
pub(crate) enum NamedPpk<'a> {
    /// None is used, or this one since IKE_INTERMEDIATE: perhaps one of another connection, that has the same name as ours.
    Before(Option<&'a Ppk>),
    /// This one (PPK_ID), and the proof without it if the caller can do without (RFC 8784, section 3).
    Here { id: &'a [u8], without: Option<&'a [u8]> },
}

impl NamedPpk<'_> {
    /// What it comes to by the rules of this connection.
    pub(crate) fn of(
        &self,
        conn: &Connection,
        proof: &Proof<'_>,
        authentication: &Authentication,
    ) -> Result<ByPpk, &'static str> {
        let with = |used| ByPpk { ppk: None, used, sk_p: None, authentication: authentication.clone() };
        match *self {
            Self::Before(Some(used)) => match conn.ppk.keys.iter().find(|ppk| ppk.as_ref() == used) {
                Some(ppk) => Ok(with(Some(ppk.clone()))),
                None => Err("the one in use is not this peer's"),
            },
            Self::Before(None) if conn.ppk.required => Err("the peer does not use any"),
            Self::Before(None) => Ok(with(None)),
            Self::Here { id, without } => match conn.ppk.keys.iter().find(|ppk| names(id, ppk)) {
                Some(ppk) => {
                    let sk_p = keys::with_ppk(proof.prf, &ppk.secret, proof.sk_p).map_err(|_| "no keys")?;
                    Ok(ByPpk { ppk: Some(ppk.clone()), sk_p: Some(sk_p), ..with(Some(ppk.clone())) })
                }
                // "If using PPKs is mandatory or no NO_PPK_AUTH notification is found, then the responder MUST send back an
                // AUTHENTICATION_FAILED notification and then fail the negotiation." (RFC 8784 section 3)
                None if conn.ppk.required => Err("we do not have the peer's"),
                None => {
                    let data = without.ok_or("we do not have the peer's")?.to_vec();
                    let authentication = Authentication { method: authentication.method, data };
                    Ok(ByPpk { authentication, ..with(None) })
                }
            },
        }
    }
}

//! The initiator's own proof, before it sends IKE_AUTH. Owns what the first exchanges agreed on, and waits for a key that is held
//! elsewhere; must never send.

use dormouse_crypto::sign::SignatureError;
use dormouse_sansio::Instant;
use dormouse_wire::ike::Id;

use crate::auth::{self, AuthError, Authentication, Proof, Proving};
use crate::config::{LocalAuth, Ppk};
use crate::error::NegotiationError;
use crate::handshake::Slot;
use crate::handshake::authenticating::{Authenticating, give_up};
use crate::handshake::intermediate::{PpkUse, Rounds};
use crate::keys;
use crate::link::{Channel, Link};
use crate::natd;
use crate::shared::Shared;
use crate::ticket::ClientTicket;
use dormouse_keying::SaId;

/// What the first exchange agreed on.
#[derive(Debug)]
pub(crate) struct FirstExchange {
    pub(crate) link: Link,
    pub(crate) channel: Channel,
    pub(crate) nonce_i: Vec<u8>,
    pub(crate) nonce_r: Vec<u8>,
    /// Both messages as they went over the wire.
    pub(crate) request: Vec<u8>,
    pub(crate) response: Vec<u8>,
    /// The exchanges between it and IKE_AUTH.
    pub(crate) rounds: Rounds,
    pub(crate) nat: natd::Detection,
    pub(crate) seen_as: Option<Vec<u8>>,
    /// The hashes that the peer verifies (RFC 7427); `None` if it does not say.
    pub(crate) peer_hashes: Option<Vec<u16>>,
    /// The ticket, when the session is resumed.
    pub(crate) ticket: Option<Box<ClientTicket>>,
    pub(crate) replaces: Option<SaId>,
    /// IKE_AUTH makes no CHILD SA, and the peer can do without (RFC 6023).
    pub(crate) childless: bool,
}

impl FirstExchange {
    pub(super) fn id_i(&self) -> Id {
        let own = || auth::id_payload(&self.link.conn.local_id);
        self.ticket.as_ref().map_or_else(own, |ticket| ticket.id_i.clone())
    }

    /// Whether we prove ourselves by EAP, after the first IKE_AUTH exchange.
    pub(super) fn is_by_eap(&self) -> bool {
        self.ticket.is_none() && matches!(self.link.conn.local_auth, LocalAuth::Eap(_))
    }

    /// Whether the gateway may prove itself inside EAP alone.
    pub(super) fn is_alone(&self) -> bool {
        matches!(&self.link.conn.local_auth, LocalAuth::Eap(login) if self.is_by_eap() && login.is_alone())
    }

    /// The proofs that our request holds, one after the other: the one that counts and, if it is with a PPK that is not required, the one
    /// without (RFC 8784, section 3). `None` after the last.
    /// "[...] the authentication method used for computing the authentication data MUST be the same as the method indicated in the AUTH
    /// payload" (RFC 8784 section 3)
    pub(super) fn prove(&self, index: usize) -> Option<Result<Proving, AuthError>> {
        let conn = &self.link.conn;
        // "[...] by leaving out the AUTH payload from the first message in the IKE_AUTH exchange" (RFC 7296 section 2.16)
        if self.is_by_eap() {
            return None;
        }
        let ppk = self.ppk();
        let with_ppk = match index {
            0 => ppk,
            1 if ppk.is_some() && !conn.ppk.required => None,
            _ => return None,
        };
        let (prf, sk_p) = (self.channel.suite.prf, &self.channel.sk_pi);
        let sk_p =
            match with_ppk.map_or_else(|| Ok(sk_p.clone()), |ppk| keys::with_ppk(prf, &ppk.secret, sk_p)) {
                Ok(sk_p) => sk_p,
                Err(error) => return Some(Err(error.into())),
            };
        let proof = Proof {
            prf,
            sk_p: &sk_p,
            message: &self.request,
            nonce: &self.nonce_r,
            id: &self.id_i(),
            int_auth: &self.rounds.int_auth(),
        };
        Some(match &self.ticket {
            Some(_) => Ok(Proving::Done(auth::authenticate_resumption(&proof, conn.resumption.mode))),
            None => auth::authenticate(&proof, &conn.local_auth, self.peer_hashes.as_deref(), |_| false),
        })
    }

    /// The PPK that enters the keys with IKE_AUTH.
    pub(super) fn ppk(&self) -> Option<&Ppk> {
        self.link.conn.ppk.keys.first().map(AsRef::as_ref).filter(|_| self.rounds.ppk == PpkUse::Auth)
    }
}

/// Waiting for our own signature, of a key that is held elsewhere.
#[derive(Debug)]
pub(crate) struct Signing {
    pub(crate) first: FirstExchange,
    /// What is signed already.
    pub(super) proofs: Vec<Authentication>,
    pub(crate) until: Instant,
}

impl Signing {
    pub(crate) fn signed(
        mut self: Box<Self>,
        shared: &mut Shared,
        now: Instant,
        result: Result<Authentication, SignatureError>,
    ) -> Option<Slot> {
        match result {
            Ok(signed) => {
                self.proofs.push(signed);
                Authenticating::begin(shared, now, self.first, self.proofs)
            }
            Err(error) => {
                let error = NegotiationError::CannotSign(Box::new(error.into()));
                give_up(shared, &self.first.link, error);
                None
            }
        }
    }
}

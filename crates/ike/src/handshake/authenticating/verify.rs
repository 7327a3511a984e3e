//! What the gateway has proved by its answer to IKE_AUTH. Owns the rules by which it is believed; must never answer, nor end anything.

use dormouse_sansio::{Instant, UnixTime};
use dormouse_wire::ike::dormancy::Refused;
use dormouse_wire::ike::{Id, NotifyType, Payload};

use super::Authenticating;
use crate::auth::{self, AuthError, Certified, Proof};
use crate::credential::Credential;
use crate::error::NegotiationError;
use crate::handshake::intermediate::PpkUse;
use crate::payloads::View;
use crate::revocation::Judgement;
use crate::shared::Shared;

/// What the peer has proved.
#[derive(Clone, Debug)]
pub(super) struct Proved {
    pub(super) id_r: Id,
    /// How long the certificates last that say so.
    pub(super) vouched_until: Option<UnixTime>,
    pub(super) credential: Option<Credential>,
    /// Nothing yet: it is to prove itself by the conversation of EAP that follows.
    pub(super) inside: bool,
}

pub(super) enum Unproven {
    /// Whether its certificates are revoked is awaited.
    Waits,
    /// The peer does not want us.
    Refused(NegotiationError),
    /// We do not believe the peer.
    Unbelieved(NegotiationError),
}

impl Authenticating {
    /// Takes the PPK into the keys, if the peer says that it has (RFC 8784).
    /// "[...] the content of the received PPK_IDENTITY (if any) MUST be ignored" (RFC 8784 section 3)
    /// "If the initiator does not receive the PPK_IDENTITY, it MUST either fail the IKE SA negotiation sending the AUTHENTICATION_FAILED
    /// notification in the INFORMATIONAL exchange (if the PPK was configured as mandatory) or continue without using the PPK" (RFC 8784
    /// section 3)
    pub(super) fn mix_ppk(&mut self, view: View<'_>) -> Result<(), NegotiationError> {
        let conn = self.link.conn.clone();
        let Some(ppk) = conn.ppk.keys.first().filter(|_| self.first.rounds.ppk == PpkUse::Auth) else {
            return Ok(());
        };
        if view.has(NotifyType::PpkIdentity) {
            return self.channel.mix(&ppk.secret).map_err(|e| NegotiationError::Crypto(e.to_string()));
        }
        match view.auth() {
            Some(_) if conn.ppk.required => Err(NegotiationError::Ppk("the peer does not have ours")),
            _ => Ok(()),
        }
    }

    /// Whether the peer is who it should be.
    /// "[...] the names in the ID payload MUST correspond to the key used to generate the AUTH payload" (RFC 7296 section 1.2)
    pub(super) fn verify(
        &self,
        shared: &mut Shared,
        now: Instant,
        payloads: &[Payload],
    ) -> Result<Proved, Unproven> {
        let view = View(payloads);
        let conn = &self.link.conn;
        let malformed =
            |what| Unproven::Unbelieved(NegotiationError::Malformed { exchange: "IKE_AUTH", what });
        if self.eap.is_none() && self.offers_alone() && view.auth().is_none() && view.eap().is_some() {
            return self.expect_inside(view);
        }
        let by_eap = self.eap.as_ref().and_then(|eap| Some((&eap.gateway, eap.msk.as_ref()?)));
        let id_r = by_eap.map(|(gateway, _)| &gateway.id_r).or(view.id_r());
        let (Some(id_r), Some(auth)) = (id_r, view.auth()) else {
            let told = self.refusal(view).map(Unproven::Refused);
            return Err(told.unwrap_or_else(|| malformed("neither a proof of identity nor an error")));
        };
        let proof = Proof {
            prf: self.channel.suite.prf,
            sk_p: &self.channel.sk_pr,
            message: &self.first.response,
            nonce: &self.first.nonce_i,
            id: id_r,
            int_auth: &self.first.rounds.int_auth(),
        };
        if let Some((gateway, msk)) = by_eap {
            auth::verify_eap(&proof, msk, &auth).map_err(|e| Unproven::Unbelieved(e.into()))?;
            return match gateway.inside {
                true => self.proved_inside(shared, now, gateway),
                false => Ok(gateway.clone()),
            };
        }
        let believed = match &self.first.ticket {
            Some(ticket) if ticket.id_r != *id_r => {
                return Err(malformed("the resumed session is with another peer (RFC 5723 section 4.3.3)"));
            }
            Some(ticket) => auth::verify_resumption(&proof, conn.resumption.mode, &auth)
                .map(|()| (ticket.vouched_until, None)),
            None => auth::certificates(payloads)
                .and_then(|certs| {
                    auth::verify(&proof, conn, &auth, &certs, shared.unix(now), &mut shared.known_paths)
                })
                .map(|believed| {
                    let until = believed.expires.into_iter().chain(auth::expires(&conn.local_auth)).min();
                    (until, believed.shown)
                }),
        };
        let (vouched_until, shown) = believed.map_err(|e| Unproven::Unbelieved(e.into()))?;
        let mut credential = None;
        if let Some(ticket) = &self.first.ticket {
            shared
                .believes(now, ticket, conn)
                .map_err(|e| Unproven::Unbelieved(NegotiationError::TicketUntrusted(e)))?;
            credential.clone_from(&ticket.credential);
        }
        if let Some(shown) = shown {
            match shared.judge(now, (conn, self.link.id), (&shown, &[]), self.wait_until) {
                Judgement::Admitted(judged) => credential = Some(judged),
                Judgement::Wait => return Err(Unproven::Waits),
                Judgement::Refused(error) => return Err(Unproven::Unbelieved(error.into())),
            }
        }
        Ok(Proved { id_r: id_r.clone(), vouched_until, credential, inside: false })
    }

    /// The gateway has taken up our offer to prove itself inside EAP alone (RFC 5998): who it says that it is is who it must prove to be there.
    fn expect_inside(&self, view: View<'_>) -> Result<Proved, Unproven> {
        let unbelieved = |error: AuthError| Unproven::Unbelieved(error.into());
        let conn = &self.link.conn;
        let malformed = NegotiationError::Malformed { exchange: "IKE_AUTH", what: "no IDr payload" };
        let id_r = view.id_r().ok_or(Unproven::Unbelieved(malformed))?;
        let got = auth::identity(id_r).map_err(|e| unbelieved(e.into()))?;
        if !conn.remote_id.matches(&got) {
            return Err(unbelieved(AuthError::Identity { got, expected: conn.remote_id.to_string() }));
        }
        Ok(Proved { id_r: id_r.clone(), vouched_until: None, credential: None, inside: true })
    }

    /// It has: by a certificate of the identity that it had said, which the conversation has checked.
    fn proved_inside(&self, shared: &mut Shared, now: Instant, gateway: &Proved) -> Result<Proved, Unproven> {
        let conn = &self.link.conn;
        let server = self.eap.as_ref().and_then(|eap| eap.peer.server());
        let (own, verified) =
            server.cloned().ok_or_else(|| Unproven::Unbelieved(AuthError::NoCertificate.into()))?;
        let vouched_until = Some(verified.expires).into_iter().chain(auth::expires(&conn.local_auth)).min();
        let shown = Certified { own, verified, sha1: false };
        let credential = match shared.judge(now, (conn, self.link.id), (&shown, &[]), self.wait_until) {
            Judgement::Admitted(judged) => Some(judged),
            Judgement::Wait => return Err(Unproven::Waits),
            Judgement::Refused(error) => return Err(Unproven::Unbelieved(error.into())),
        };
        Ok(Proved { vouched_until, credential, inside: false, ..gateway.clone() })
    }

    /// The error that an answer without a proof says, if it says one.
    pub(super) fn refusal(&self, view: View<'_>) -> Option<NegotiationError> {
        let local_id = self.link.conn.local_id.clone();
        Some(match (view.error()?.kind, self.login()) {
            (NotifyType::AuthenticationFailed, _) if view.refused() == Some(Refused::Superseded) => {
                NegotiationError::TicketSuperseded
            }
            (NotifyType::AuthenticationFailed, Some(login)) if self.eap.is_none() => {
                NegotiationError::NoEap { local_id, user: login.user.clone() }
            }
            (NotifyType::AuthenticationFailed, _) => {
                self.unanswered(NegotiationError::RefusedByPeer { local_id })
            }
            (NotifyType::TemporaryFailure, _) => NegotiationError::Busy,
            (other, _) => NegotiationError::Notified(other.to_string()),
        })
    }
}

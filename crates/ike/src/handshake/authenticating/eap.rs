//! Our own proof by EAP (RFC 7296, section 2.16), in the IKE_AUTH exchanges after the first. Owns the conversation, which begins when the gateway
//! has proved who it is by its certificate, and not before, unless it is configured that it may do so by the certificate of EAP-TLS (RFC 5998); must never end
//! in a session without the key that both ends have made in it.
//!
//! "[...] EAP methods that do not establish a shared key SHOULD NOT be used, as they are subject to a number of man-in-the-middle attacks" (RFC
//! 7296 section 2.16): they are not. Nor is EAP-MSCHAPv2 alone, which is too weak for that.

use dormouse_crypto::Secret;
use dormouse_eap::Error as EapError;
use dormouse_eap::peer::{Peer, Step as EapStep};
use dormouse_sansio::{Class, Instant};
use dormouse_wire::ike::{ExchangeType, NotifyType, Payload};

use super::{Authenticating, Proved};
use crate::auth::{self, Proof};
use crate::config::{EapLogin, LocalAuth};
use crate::error::NegotiationError;
use crate::handshake::intermediate::{PpkUse, ppk_id};
use crate::handshake::{Slot, Step};
use crate::keys;
use crate::limits::{EAP_BYTES_MAX, EAP_ROUNDS_MAX};
use crate::payloads::{View, notify};
use crate::shared::Shared;
use crate::window::Outgoing;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) peer: Peer,
    /// What the gateway has proved before.
    pub(super) gateway: Proved,
    /// Exchanges after the first, and bytes of EAP that have come.
    rounds: u32,
    bytes: usize,
    /// The key that it has made: our proof is on its way.
    pub(super) msk: Option<Secret>,
}

impl Authenticating {
    /// Who we are, if we prove that by EAP.
    pub(super) fn login(&self) -> Option<&EapLogin> {
        match &self.link.conn.local_auth {
            LocalAuth::Eap(login) if self.first.ticket.is_none() => Some(login),
            _ => None,
        }
    }

    /// Whether the gateway may prove itself inside EAP alone.
    pub(super) fn offers_alone(&self) -> bool {
        self.login().is_some_and(EapLogin::is_alone)
    }

    /// The id of the exchange that is under way.
    pub(super) fn id(&self) -> u32 {
        self.first.rounds.next_id() + self.eap.as_ref().map_or(0, |eap| eap.rounds)
    }

    /// The gateway has proved who it is: the conversation begins.
    pub(super) fn begin_eap(
        mut self: Box<Self>,
        shared: &mut Shared,
        now: Instant,
        payloads: &[Payload],
        gateway: Proved,
    ) -> Step {
        let Some(login) = self.login() else {
            return self.establish(shared, now, View(payloads), gateway);
        };
        let server = auth::identity(&gateway.id_r).unwrap_or_else(|_| self.link.conn.local_id.clone());
        let credentials = match login.credentials(&self.link.conn.remote_auth, &server, shared.unix(now)) {
            Ok(credentials) => credentials,
            Err(why) => {
                let error = NegotiationError::Eap(Box::new(EapError::Tls(why.to_string())));
                self.fail(shared, error);
                return Step::gone();
            }
        };
        let peer = Peer::new(credentials);
        self.eap = Some(Box::new(Conversation { peer, gateway, rounds: 0, bytes: 0, msk: None }));
        self.converse(shared, now, payloads)
    }

    /// Goes on with the conversation.
    pub(super) fn converse(
        mut self: Box<Self>,
        shared: &mut Shared,
        now: Instant,
        payloads: &[Payload],
    ) -> Step {
        match self.answer(shared, View(payloads)) {
            Ok(list) => {
                self.send_next(shared, now, &list);
                Step::to(Slot::Authenticating(self))
            }
            Err(error) => {
                self.fail(shared, error);
                Step::gone()
            }
        }
    }

    /// Why it fails that the gateway does not answer any more, or only that it has failed: some do so when they have refused the password.
    pub(super) fn unanswered(&self, error: NegotiationError) -> NegotiationError {
        let refusal = self.eap.as_ref().and_then(|eap| eap.peer.refusal()).cloned();
        refusal.map_or(error, |why| NegotiationError::Eap(Box::new(why)))
    }

    /// What is said next.
    fn answer(&mut self, shared: &mut Shared, view: View<'_>) -> Result<Vec<Payload>, NegotiationError> {
        let malformed = |what| Err(NegotiationError::Malformed { exchange: "IKE_AUTH", what });
        let Some(packet) = view.eap() else {
            let told = self.refusal(view);
            return told.map_or_else(|| malformed("no EAP payload"), Err);
        };
        let Some(eap) = self.eap.as_deref_mut() else { return malformed("no EAP conversation") };
        eap.bytes += packet.len();
        if eap.rounds >= EAP_ROUNDS_MAX || eap.bytes > EAP_BYTES_MAX {
            return malformed("more of EAP than any method needs");
        }
        match eap.peer.receive(packet, shared.entropy.as_mut()) {
            EapStep::Send(reply) => Ok(vec![Payload::Eap(reply)]),
            EapStep::Succeeded(Some(msk)) => {
                let msk = Secret::from(msk.as_bytes());
                let list = self.last(&msk)?;
                if let Some(eap) = &mut self.eap {
                    eap.msk = Some(msk);
                }
                Ok(list)
            }
            EapStep::Succeeded(None) => malformed("EAP has ended without a key"),
            EapStep::Failed(why) => Err(NegotiationError::Eap(Box::new(why))),
            EapStep::Ignore => malformed("no EAP packet that can be answered"),
        }
    }

    /// Our proof by the conversation's key.
    /// "[...] the initiator includes a PPK_IDENTITY (and optionally a NO_PPK_AUTH) notification in the request message containing the AUTH
    /// payload" (RFC 8784 section 3)
    fn last(&self, msk: &Secret) -> Result<Vec<Payload>, NegotiationError> {
        let (prf, sk_pi, int_auth) =
            (self.channel.suite.prf, &self.channel.sk_pi, self.first.rounds.int_auth());
        let by = |sk_p: &Secret| {
            let proof = Proof {
                prf,
                sk_p,
                message: &self.first.request,
                nonce: &self.first.nonce_r,
                id: &self.first.id_i,
                int_auth: &int_auth,
            };
            auth::authenticate_eap(&proof, msk)
        };
        let config = &self.link.conn.ppk;
        let Some(ppk) = config.keys.first().filter(|_| self.first.rounds.ppk == PpkUse::Auth) else {
            return Ok(vec![by(sk_pi).into()]);
        };
        let with = keys::with_ppk(prf, &ppk.secret, sk_pi);
        let with = with.map_err(|e| NegotiationError::Crypto(e.to_string()))?;
        let mut list = vec![by(&with).into(), notify(NotifyType::PpkIdentity, ppk_id(ppk))];
        if !config.required {
            list.push(notify(NotifyType::NoPpkAuth, by(sk_pi).data));
        }
        Ok(list)
    }

    fn send_next(&mut self, shared: &mut Shared, now: Instant, list: &[Payload]) {
        if let Some(eap) = &mut self.eap {
            eap.rounds += 1;
        }
        let id = self.id();
        let header = self.link.header(ExchangeType::IkeAuth, false, id);
        let datagrams = self.channel.seal(&self.link, shared, &header, list);
        self.link.send(shared, Class::Urgent, &datagrams);
        let (wait, until) = (self.link.wait(shared, 1), now + self.link.patience(shared));
        self.out = Outgoing::new(id);
        self.out.start(now, wait, until, datagrams, Class::Urgent, ());
    }
}

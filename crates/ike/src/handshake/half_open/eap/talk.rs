//! The conversation with a caller by EAP. Owns the one place where a packet of the caller becomes what is said next; must never send, nor let
//! anybody in.

use core::cell::RefCell;
use std::sync::Arc;

use dormouse_crypto::Secret;
use dormouse_eap::Error as EapError;
use dormouse_eap::authenticator::{Authenticator, Config, Step as EapStep};
use dormouse_eap::radius::Access;
use dormouse_sansio::Instant;

use super::Eap;
use super::elsewhere::Elsewhere;
use super::known::{By, Known, Meant, Wanted};
use crate::auth;
use crate::config::{Connection, EapAsked};
use crate::error::NegotiationError;
use crate::guesses::Guesses;
use crate::handshake::half_open::{How, is_childless};
use crate::limits::{EAP_BYTES_MAX, EAP_ROUNDS_MAX};
use crate::payloads::View;
use crate::shared::Shared;

/// With whom the caller speaks.
#[derive(Debug)]
pub(super) enum Talk {
    /// With the gateway itself.
    Here(Authenticator),
    /// With a RADIUS server.
    Elsewhere(Elsewhere),
}

/// What is told to the caller.
pub(super) enum Told {
    /// And the error in the log, if it will end in one.
    Answer(Vec<u8>, Option<NegotiationError>),
    /// The last packet, and the error in the log.
    Refused(Vec<u8>, NegotiationError),
    /// Nothing yet: this packet of the caller is passed on first.
    Ask(Vec<u8>),
}

impl Talk {
    /// Begins the conversation as a connection wants it, which stands in for all that `wanted` fits, and gives its first packet.
    ///
    /// # Errors
    /// Why there can be none.
    pub(super) fn begin(
        shared: &mut Shared,
        now: Instant,
        conn: &Connection,
        (wanted, how): (&Wanted<'_>, &How),
    ) -> Result<(Self, Vec<u8>), EapError> {
        let at = shared.unix(now);
        let Shared { config, entropy, .. } = shared;
        match conn.answering.eap.as_ref().map(|policy| &policy.asked) {
            Some(EapAsked::Here { .. }) => {
                let among: Vec<_> = config.connections.iter().filter(|conn| wanted.fits(conn, how)).collect();
                let methods = conn.eap_methods(&among, wanted.alone, at);
                let mut methods = methods.map_err(|e| EapError::Tls(e.to_string()))?.into_iter();
                let first = methods.next().ok_or(EapError::NoCommonMethod(Vec::new()))?;
                let (name, entropy) = (conn.local_id.to_string(), entropy.as_mut());
                let config = Arc::new(Config::new(first, methods.collect(), &name, entropy));
                let (conversation, request) = Authenticator::begin(&config, None, entropy);
                Ok((Self::Here(conversation), request))
            }
            Some(EapAsked::Radius) => {
                let mut identifier = [0];
                entropy.fill(&mut identifier);
                let request = Access::question(identifier[0])?;
                Ok((Self::Elsewhere(Elsewhere::default()), request))
            }
            None => Err(EapError::NoCommonMethod(Vec::new())),
        }
    }

    /// What it will fail with, once that is certain although the caller may never answer.
    pub(super) fn refusal(&self) -> Option<&EapError> {
        match self {
            Self::Here(conversation) => conversation.refusal(),
            Self::Elsewhere(_) => None,
        }
    }
}

impl Eap {
    /// Counts a wrong password of a user.
    fn count(&self, guesses: &mut Guesses, now: Instant, why: &EapError) {
        if let (EapError::WrongPassword, Some(user)) = (why, &self.said.user) {
            guesses.wrong(&user.identity, self.began, now);
        }
    }
}

/// Hands a packet to the conversation. The error: why it is none that a peer sends.
pub(super) fn told(
    shared: &mut Shared,
    now: Instant,
    how: &How,
    eap: &mut Eap,
    packet: &[u8],
) -> Result<Told, &'static str> {
    eap.bytes += packet.len();
    if eap.rounds >= EAP_ROUNDS_MAX || eap.bytes > EAP_BYTES_MAX {
        return Err("more of EAP than any method needs");
    }
    match &eap.talk {
        Talk::Here(_) => told_here(shared, now, how, eap, packet),
        Talk::Elsewhere(_) => Ok(Told::Ask(packet.to_vec())),
    }
}

fn told_here(
    shared: &mut Shared,
    now: Instant,
    how: &How,
    eap: &mut Eap,
    packet: &[u8],
) -> Result<Told, &'static str> {
    let Shared { config, entropy, callers, .. } = shared;
    let guesses = &mut callers.guesses;
    let id_r = auth::identity(&eap.id_r).ok();
    let wanted = Wanted { childless: is_childless(View(&eap.first)), asked: id_r.as_ref(), alone: eap.alone };
    let among = config.connections.iter().filter(|conn| wanted.fits(conn, how)).collect();
    let Talk::Here(conversation) = &mut eap.talk else { return Err("EAP for another one") };
    let (method, guessed) = (conversation.method(), (&*guesses, eap.began, now));
    let known = Known { config, among, method, guesses: guessed, said: RefCell::new(None) };
    let step = conversation.receive(packet, &known, entropy.as_mut());
    if let Some(said) = known.said.into_inner() {
        eap.said = said;
    }
    let error = |why: EapError| match (&eap.said.refused, &why) {
        (Some(refused), EapError::NotAdmitted(_)) => NegotiationError::NotAdmitted(refused.clone()),
        (Some(refused), _) => NegotiationError::UserRefused(refused.clone()),
        (None, _) => NegotiationError::Eap(Box::new(why)),
    };
    match step {
        EapStep::Send(answer) => {
            let failed = eap.talk.refusal().filter(|_| !eap.failed).cloned();
            if let Some(why) = &failed {
                eap.count(guesses, now, why);
            }
            Ok(Told::Answer(answer, failed.map(error)))
        }
        EapStep::Succeeded { packet, identity, msk } => {
            if eap.said.user.is_none() || eap.said.name.as_ref() != Some(&identity) {
                return Err("EAP has succeeded for a user who was not looked up");
            }
            if let Some(Meant { identity, by: By::Entry(_), .. }) = &eap.said.user {
                guesses.right(identity, eap.began, now);
            }
            // "[...] the responder MUST send an EAP payload containing the Success message" (RFC 7296 section 2.16)
            eap.msk = Some(Secret::from(msk.as_bytes()));
            Ok(Told::Answer(packet, None))
        }
        EapStep::Failed { packet, why } => {
            if !eap.failed {
                eap.count(guesses, now, &why);
            }
            Ok(Told::Refused(packet, error(why)))
        }
        EapStep::Ignore => Err("no EAP packet that can be answered"),
    }
}

//! The conversation with a caller by EAP. Owns the one place where a packet of the caller becomes what is said next; must never send, nor let
//! anybody in.

use core::cell::RefCell;
use std::sync::Arc;

use dormouse_crypto::Secret;
use dormouse_eap::Error as EapError;
use dormouse_eap::authenticator::{Authenticator, Config, Method, Step as EapStep};
use dormouse_sansio::Entropy;

use super::Eap;
use super::known::{Known, Wanted};
use crate::auth;
use crate::config::{Connection, EapAsked, EapMethod};
use crate::error::NegotiationError;
use crate::handshake::half_open::{How, is_childless};
use crate::limits::{EAP_BYTES_MAX, EAP_ROUNDS_MAX};
use crate::payloads::View;
use crate::shared::Shared;

/// With whom the caller speaks.
#[derive(Debug)]
pub(super) enum Talk {
    /// With the gateway itself.
    Here(Authenticator),
}

/// What is told to the caller.
pub(super) enum Told {
    /// And the error in the log, if it will end in one.
    Answer(Vec<u8>, Option<NegotiationError>),
    /// The last packet, and the error in the log.
    Refused(Vec<u8>, NegotiationError),
}

impl Talk {
    /// Begins the conversation as a connection wants it, and gives its first packet.
    pub(super) fn begin(conn: &Connection, entropy: &mut dyn Entropy) -> Option<(Self, Vec<u8>)> {
        let policy = conn.answering.eap.as_ref()?;
        match &policy.asked {
            EapAsked::Here { methods, .. } => {
                let mut methods = methods.iter().map(|method| match method {
                    EapMethod::MsChapV2 => Method::MsChapV2,
                });
                let (first, others) = (methods.next()?, methods.collect());
                let config = Arc::new(Config::new(first, others, &conn.local_id.to_string(), entropy));
                let (conversation, request) = Authenticator::begin(&config, None, entropy);
                Some((Self::Here(conversation), request))
            }
        }
    }

    /// What it will fail with, once that is certain although the caller may never answer.
    pub(super) fn refusal(&self) -> Option<&EapError> {
        match self {
            Self::Here(conversation) => conversation.refusal(),
        }
    }
}

/// Hands a packet to the conversation. The error: why it is none that a peer sends.
pub(super) fn told(
    shared: &mut Shared,
    how: &How,
    eap: &mut Eap,
    packet: &[u8],
) -> Result<Told, &'static str> {
    eap.bytes += packet.len();
    if eap.rounds >= EAP_ROUNDS_MAX || eap.bytes > EAP_BYTES_MAX {
        return Err("more of EAP than any method needs");
    }
    match &eap.talk {
        Talk::Here(_) => told_here(shared, how, eap, packet),
    }
}

fn told_here(shared: &mut Shared, how: &How, eap: &mut Eap, packet: &[u8]) -> Result<Told, &'static str> {
    let Shared { config, entropy, .. } = shared;
    let id_r = auth::identity(&eap.id_r).ok();
    let wanted = Wanted { childless: is_childless(View(&eap.first)), asked: id_r.as_ref() };
    let among = config.connections.iter().filter(|conn| wanted.fits(conn, how)).collect();
    let known = Known { config, among, said: RefCell::new(None) };
    let Talk::Here(conversation) = &mut eap.talk;
    let step = conversation.receive(packet, &known, entropy.as_mut());
    if let Some(said) = known.said.into_inner() {
        eap.said = said;
    }
    let error = |why: EapError| {
        let refused = eap.said.refused.clone().map(NegotiationError::UserRefused);
        refused.unwrap_or_else(|| NegotiationError::Eap(Box::new(why)))
    };
    match step {
        EapStep::Send(answer) => {
            let failed = eap.talk.refusal().filter(|_| !eap.failed).cloned();
            Ok(Told::Answer(answer, failed.map(error)))
        }
        EapStep::Succeeded { packet, identity, msk } => {
            if eap.said.user.is_none() || eap.said.name.as_ref() != Some(&identity) {
                return Err("EAP has succeeded for a user who was not looked up");
            }
            // "[...] the responder MUST send an EAP payload containing the Success message" (RFC 7296 section 2.16)
            eap.msk = Some(Secret::from(msk.as_bytes()));
            Ok(Told::Answer(packet, None))
        }
        EapStep::Failed { packet, why } => Ok(Told::Refused(packet, error(why))),
        EapStep::Ignore => Err("no EAP packet that can be answered"),
    }
}

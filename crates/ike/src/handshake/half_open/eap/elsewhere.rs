//! A caller whom a RADIUS server knows. Owns that it waits for an answer, and what the server has granted; must never believe more of a server than who the
//! user is: whether he is let in is decided by the connections of now, as for all others.
//!
//! Requests that are repeated meanwhile are dropped: the answer comes when it comes, or the half-open SA ends.

use dormouse_crypto::Secret;
use dormouse_eap::packet::{Packet, Type};
use dormouse_sansio::Path;
use dormouse_wire::ike::NotifyType;

use super::known::{By, Meant};
use super::talk::{Talk, Told};
use crate::config::eap_identity;
use crate::credential::{self, Shown};
use crate::elsewhere::{Accepted, Granted, Question, Verdict};
use crate::error::NegotiationError;
use crate::event::Event;
use crate::handshake::half_open::HalfOpen;
use crate::handshake::{Slot, Step};
use crate::payloads::notify;
use crate::shared::Shared;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    /// An answer is waited for, and its path.
    asked: Option<Path>,
    granted: Granted,
}

impl HalfOpen {
    /// Whether a server is being asked.
    pub(in crate::handshake::half_open) fn waits_for_server(&self) -> bool {
        let talk = self.eap.as_ref().map(|eap| &eap.talk);
        matches!(talk, Some(Talk::Elsewhere(elsewhere)) if elsewhere.asked.is_some())
    }

    /// What the server has granted.
    pub(in crate::handshake::half_open) fn granted(&self) -> Granted {
        match self.eap.as_ref().map(|eap| &eap.talk) {
            Some(Talk::Elsewhere(elsewhere)) => elsewhere.granted,
            _ => Granted::default(),
        }
    }

    /// Passes on what the caller says.
    pub(super) fn ask_elsewhere(
        mut self: Box<Self>,
        shared: &mut Shared,
        path: Path,
        response: Vec<u8>,
    ) -> Step {
        let mut from = path.remote.ip();
        if let Some(eap) = self.eap.as_deref_mut() {
            from = eap.began;
            if let Ok(Packet::Response { kind: Type::IDENTITY, data, .. }) = Packet::parse(&response) {
                eap.said.name = core::str::from_utf8(data).ok().map(str::to_owned);
            }
            if let Talk::Elsewhere(elsewhere) = &mut eap.talk {
                elsewhere.asked = Some(path);
            }
        }
        let (sa, connection) = (self.link.id, self.link.conn.name.clone());
        let question = Question { sa, connection, local: path.local.ip(), from, response };
        shared.event(Event::AskElsewhere(Box::new(question)));
        Step::to(Slot::HalfOpen(self))
    }

    /// Passes on what the server says. Does nothing if it was not asked.
    pub(crate) fn told_elsewhere(mut self: Box<Self>, shared: &mut Shared, verdict: Verdict) -> Step {
        let asked = match self.eap.as_deref_mut().map(|eap| &mut eap.talk) {
            Some(Talk::Elsewhere(elsewhere)) => elsewhere.asked.take(),
            _ => None,
        };
        let Some(path) = asked else { return Step::to(Slot::HalfOpen(self)) };
        let said = self.eap.as_ref().and_then(|eap| eap.said.claimed());
        let told = match verdict {
            Verdict::Continue(packet) => Told::Answer(packet, None),
            Verdict::Accepted(accepted) => self.accepted(shared, *accepted),
            Verdict::Refused { packet, why } => Told::Refused(packet, NegotiationError::Radius(why)),
            Verdict::Unanswered(why) => {
                let error = NegotiationError::RadiusSilent(why);
                return self.refuse(shared, path, said, notify(NotifyType::TemporaryFailure, []), error);
            }
        };
        let claimed = self.eap.as_ref().and_then(|eap| eap.said.claimed()).or(said);
        self.tell(shared, path, claimed, Ok(told))
    }

    /// "It is important that policy lookups and access control decisions use the actual authenticated identity." (RFC 7296 section 2.16)
    fn accepted(&mut self, shared: &Shared, accepted: Accepted) -> Told {
        let Accepted { packet, user, key, granted } = accepted;
        let identifier = packet.get(1).copied().unwrap_or_default();
        let refuse = |error| {
            let failure = Packet::Failure { identifier }.emit();
            Told::Refused(failure.unwrap_or_default(), error)
        };
        let Some(identity) = eap_identity(&user) else {
            let why = format!(
                "lets in {user:?}, which is no name of a user: letters, digits and punctuation without =, or a mail address"
            );
            return refuse(NegotiationError::Radius(why));
        };
        let (conn, admission) = (&self.link.conn, &shared.config.admission);
        let denial = admission.denials.iter().find(|d| d.means(&identity, None));
        if let Some(denial) = denial {
            return refuse(credential::Refusal::Denied(denial.clone()).into());
        }
        if let Err(refusal) = conn.takes(&identity) {
            return refuse(refusal.into());
        }
        let shown = Shown::radius(&admission.fingerprint_key, &conn.name, &identity);
        let connection = conn.name.clone();
        let Some(eap) = self.eap.as_deref_mut() else {
            return refuse(NegotiationError::Malformed { exchange: "IKE_AUTH", what: "no EAP conversation" });
        };
        eap.said.user = Some(Meant { connection, identity, by: By::Entry(shown) });
        // "[...] the responder MUST send an EAP payload containing the Success message" (RFC 7296 section 2.16)
        eap.msk = Some(Secret::from(key.as_bytes()));
        if let Talk::Elsewhere(elsewhere) = &mut eap.talk {
            elsewhere.granted = granted;
        }
        Told::Answer(packet, None)
    }
}

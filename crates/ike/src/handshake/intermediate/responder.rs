//! The responder's IKE_INTERMEDIATE exchanges. Owns the answers; what it keeps for a caller that has proved nothing is bounded: one
//! message of a few kilobytes in pieces, and the last answer.

use std::sync::Arc;

use dormouse_crypto::DhPrivate;
use dormouse_crypto::ct_eq;
use dormouse_sansio::{Class, Path};
use dormouse_wire::ike::{ExchangeType, NotifyType, Payload, unsupported_critical};

use super::{CONFIRMATION, PPKS_MAX, Place, names, ppk_id};
use crate::config::{Connection, Ppk};
use crate::error::{Discard, NegotiationError};
use crate::fragment;
use crate::handshake::half_open::{HalfOpen, How};
use crate::handshake::{Slot, Step};
use crate::keys::{self, Nonces};
use crate::limits::INTERMEDIATE_MAX;
use crate::link::{Channel, Opened};
use crate::payloads::{View, notify};
use crate::proposal;
use crate::shared::Shared;
use crate::stats::Kind;

const NAME: &str = "IKE_INTERMEDIATE";

/// The last answer, for the repetitions of its request.
#[derive(Debug)]
pub(crate) struct Answered {
    /// The keys of that exchange, if they have changed since.
    channel: Option<Channel>,
    datagrams: Vec<Vec<u8>>,
}

/// Why a request is refused: the notification to the peer, and the error in the log.
struct Refused(NotifyType, NegotiationError);

impl HalfOpen {
    /// A repetition of the last request gets its answer again. Its keys may be those from before it.
    pub(in crate::handshake) fn repeat_intermediate(
        mut self: Box<Self>,
        shared: &mut Shared,
        path: Path,
        datagram: &mut [u8],
    ) -> Step {
        let Some(Answered { channel, datagrams }) = self.answered.as_ref() else {
            return Step::stay(Slot::HalfOpen(self), Discard::InappropriateExchange);
        };
        let Some(channel) = channel.as_ref().or(self.channel.as_ref()) else {
            return Step::stay(Slot::HalfOpen(self), Discard::InappropriateExchange);
        };
        match channel.is_repetition(datagram) {
            Ok(true) => {
                let datagrams = datagrams.clone();
                self.link.send_by(shared, path, Class::Timely, &datagrams);
                Step::to(Slot::HalfOpen(self))
            }
            Ok(false) => Step::to(Slot::HalfOpen(self)),
            Err(discard) => Step::stay(Slot::HalfOpen(self), discard),
        }
    }

    /// Whether a message of this exchange grows beyond all that one can hold.
    pub(in crate::handshake) fn overfull(&self, datagram: &[u8]) -> bool {
        self.channel.as_ref().map_or(0, Channel::held) + datagram.len() > INTERMEDIATE_MAX
    }

    /// Answers an authentic request.
    pub(in crate::handshake) fn answer_intermediate(
        mut self: Box<Self>,
        shared: &mut Shared,
        path: Path,
        (opened, request): (Opened, &[u8]),
    ) -> Step {
        match self.intermediate(shared, path, opened, request) {
            Ok(()) => Step::to(Slot::HalfOpen(self)),
            Err(Refused(kind, error)) => self.refuse_with(
                shared,
                path,
                ExchangeType::IkeIntermediate,
                None,
                &[notify(kind, [])],
                error,
            ),
        }
    }

    fn intermediate(
        &mut self,
        shared: &mut Shared,
        path: Path,
        opened: Opened,
        request: &[u8],
    ) -> Result<(), Refused> {
        let list = opened.map_err(|_| malformed("authentic but malformed"))?;
        if unsupported_critical(&list).is_some() {
            let what = "a critical payload that is not supported";
            let error = NegotiationError::Malformed { exchange: NAME, what };
            return Err(Refused(NotifyType::UnsupportedCriticalPayload, error));
        }
        let view = View(&list);
        // RFC 9242 section 3.2: the initiator may have moved to port 4500 with this message.
        self.link.path = path;
        let mut answer = Vec::new();
        let mut secret = None;
        // After an exchange for the PPK alone there is no other, even if it named none.
        let for_ppk_alone = self.rounds.due.is_empty();
        if let Some(group) = self.rounds.due.front().copied() {
            let (ke_group, public) = view.ke().ok_or_else(|| malformed("no KE payload"))?;
            if ke_group != group.id() {
                return Err(malformed("the KE payload is of another method than the one agreed on"));
            }
            let (ours, shared_secret) = DhPrivate::respond(group, public, &mut shared.entropy)
                .map_err(|_| malformed("unusable public value"))?;
            answer.push(Payload::Ke { group: group.id(), data: ours });
            secret = Some(shared_secret);
        }
        let naming = self.rounds.names_ppk() && view.has(NotifyType::PpkIdentityKey);
        let ppk = if naming { self.choose_ppk(shared, view)? } else { None };
        answer.extend(ppk.as_ref().map(|ppk| notify(NotifyType::PpkIdentity, ppk_id(ppk))));
        self.rounds.named |= naming || for_ppk_alone;
        let header = self.link.header(ExchangeType::IkeIntermediate, true, self.rounds.next_id());
        let failed = |error: String| Refused(NotifyType::InvalidSyntax, NegotiationError::Crypto(error));
        let response = fragment::authenticated(&header, &answer).map_err(|e| failed(e.to_string()))?;
        let channel = self.channel.as_mut().ok_or_else(|| malformed("no keys"))?;
        let datagrams = channel.seal(&self.link, shared, &header, &answer);
        let nonces = Nonces { i: &self.nonce_i, r: &self.nonce_r };
        let place = Place { nonces, spis: self.link.spis, initiator: false };
        let next = self
            .rounds
            .complete(channel, &place, (request, &response), secret.as_ref(), ppk)
            .map_err(|e| failed(e.to_string()))?;
        self.link.send_by(shared, path, Class::Timely, &datagrams);
        self.link.stats.answer(Kind::Intermediate);
        shared.stats.answer(Kind::Intermediate);
        let before = next.and_then(|next| self.channel.replace(next));
        self.answered = Some(Answered { channel: before, datagrams });
        Ok(())
    }

    /// The first of the caller's PPKs that we have too. Who calls is not known yet: any connection's will do, and IKE_AUTH checks that
    /// it is one of the caller's.
    /// "[...] the responder SHOULD abort negotiation and return back the AUTHENTICATION_FAILED notification" (RFC 9867 section 3.1):
    /// there.
    fn choose_ppk(&self, shared: &Shared, view: View<'_>) -> Result<Option<Arc<Ppk>>, Refused> {
        let How::Init { suite, .. } = &self.how else { return Ok(None) };
        let conns: Vec<&Arc<Connection>> = shared
            .config
            .connections
            .iter()
            .filter(|c| c.role.answers() && proposal::permits(&c.ike_proposals, suite))
            .collect();
        let nonces = Nonces { i: &self.nonce_i, r: &self.nonce_r };
        let named = view.notifies().filter(|n| n.kind == NotifyType::PpkIdentityKey).take(PPKS_MAX);
        for data in named.map(|n| n.data.as_slice()) {
            let Some((id, confirmation)) = data.split_last_chunk::<CONFIRMATION>() else { continue };
            let same = |ppk: &Ppk| {
                let ours = keys::ppk_confirmation(suite.prf, &ppk.secret, nonces, self.link.spis);
                ct_eq(confirmation, &ours)
            };
            let mut known = conns.iter().flat_map(|c| &c.ppk.keys).filter(|ppk| names(id, ppk));
            if let Some(ppk) = known.find(|ppk| same(ppk)) {
                return Ok(Some(ppk.clone()));
            }
        }
        if conns.iter().all(|c| c.ppk.required) {
            let error = NegotiationError::Ppk("the peer has none of ours");
            return Err(Refused(NotifyType::AuthenticationFailed, error));
        }
        Ok(None)
    }
}

const fn malformed(what: &'static str) -> Refused {
    Refused(NotifyType::InvalidSyntax, NegotiationError::Malformed { exchange: NAME, what })
}

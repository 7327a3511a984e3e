//! The responder's IKE_INTERMEDIATE exchanges. Owns the answers; what it keeps for a caller that has proved nothing is bounded: one
//! message of a few kilobytes in pieces, and the last answer.

use std::sync::Arc;

use dormouse_crypto::suites::Group;
use dormouse_crypto::{DhPrivate, Drawn, Secret, ct_eq};
use dormouse_sansio::{Class, Path};
use dormouse_wire::ike::{ExchangeType, NotifyType, Payload, unsupported_critical};

use super::{CONFIRMATION, PPKS_MAX, Place, names, ppk_id};
use crate::config::{Connection, Ppk};
use crate::error::{Discard, NegotiationError};
use crate::fragment;
use crate::handshake::half_open::{HalfOpen, How, Request, Working};
use crate::handshake::{Slot, Step};
use crate::keys::{self, Nonces};
use crate::limits::INTERMEDIATE_MAX;
use crate::link::{Channel, Opened};
use crate::payloads::{View, notify};
use crate::proposal;
use crate::shared::Shared;
use crate::stats::Kind;
use crate::work::Task;

const NAME: &str = "IKE_INTERMEDIATE";
const UNUSABLE: &str = "unusable public value";

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

    /// Answers an authentic request, at once or when its secret is there.
    pub(in crate::handshake) fn answer_intermediate(
        mut self: Box<Self>,
        shared: &mut Shared,
        path: Path,
        (opened, octets): (Opened, Vec<u8>),
    ) -> Step {
        let result = opened.map_err(|_| malformed("authentic but malformed")).and_then(|payloads| {
            // RFC 9242 section 3.2: the initiator may have moved to port 4500 with this message.
            self.link.path = path;
            let request = Request { path, payloads, octets };
            let Some((group, theirs)) = self.asked_for(View(&request.payloads), &request.payloads)? else {
                return self.intermediate(shared, &request, None);
            };
            if group.is_kem() || !(shared.config.beside.agree)(group) {
                let exchanged = DhPrivate::respond(group, theirs, &mut shared.entropy);
                let exchanged = exchanged.map_err(|_| malformed(UNUSABLE))?;
                return self.intermediate(shared, &request, Some((group, exchanged)));
            }
            let drawn = Drawn::draw(group, &mut shared.entropy).map_err(|_| malformed(UNUSABLE))?;
            let task = Task::Respond(Box::new(drawn), theirs.to_vec());
            self.order(shared, task, Working::Responding(Box::new(request)));
            Ok(())
        });
        self.answered_or_refused(shared, path, result)
    }

    /// The secret that a request waits for is there, or cannot be made.
    pub(in crate::handshake) fn answer_exchange(
        mut self: Box<Self>,
        shared: &mut Shared,
        request: Request,
        exchanged: Result<(Vec<u8>, Secret), dormouse_crypto::Error>,
    ) -> Step {
        let exchanged = exchanged.map_err(|_| malformed(UNUSABLE));
        let group = self.rounds.due.front().copied().ok_or_else(|| malformed("no exchange is due"));
        let result =
            exchanged.and_then(|exchanged| self.intermediate(shared, &request, Some((group?, exchanged))));
        self.answered_or_refused(shared, request.path, result)
    }

    fn answered_or_refused(
        self: Box<Self>,
        shared: &mut Shared,
        path: Path,
        result: Result<(), Refused>,
    ) -> Step {
        match result {
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

    /// The key exchange that is due, with the caller's public value.
    fn asked_for<'a>(&self, view: View<'a>, list: &[Payload]) -> Result<Option<(Group, &'a [u8])>, Refused> {
        if unsupported_critical(list).is_some() {
            let what = "a critical payload that is not supported";
            let error = NegotiationError::Malformed { exchange: NAME, what };
            return Err(Refused(NotifyType::UnsupportedCriticalPayload, error));
        }
        let Some(group) = self.rounds.due.front().copied() else { return Ok(None) };
        let (ke_group, public) = view.ke().ok_or_else(|| malformed("no KE payload"))?;
        if ke_group != group.id() {
            return Err(malformed("the KE payload is of another method than the one agreed on"));
        }
        Ok(Some((group, public)))
    }

    /// `exchanged`: our public value and the secret of the key exchange that was due.
    fn intermediate(
        &mut self,
        shared: &mut Shared,
        request: &Request,
        exchanged: Option<(Group, (Vec<u8>, Secret))>,
    ) -> Result<(), Refused> {
        let view = View(&request.payloads);
        let mut answer = Vec::new();
        let mut secret = None;
        // After an exchange for the PPK alone there is no other, even if it named none.
        let for_ppk_alone = self.rounds.due.is_empty();
        if let Some((group, (ours, shared_secret))) = exchanged {
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
            .complete(channel, &place, (&request.octets, &response), secret.as_ref(), ppk)
            .map_err(|e| failed(e.to_string()))?;
        self.link.send_by(shared, request.path, Class::Timely, &datagrams);
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

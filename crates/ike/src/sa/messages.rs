//! Messages of an established SA: requests of the peer and answers to ours. Owns the checks that every message passes, in
//! their order; what a message means is its exchange's.

use dormouse_sansio::{Instant, Path};
use dormouse_wire::ike::{ExchangeType, Header, NotifyType, Payload, ProtocolId, unsupported_critical};
use zeroize::Zeroize;

use super::IkeSa;
use super::stage::{Leaving, Stage, Standing};
use crate::action::Action;
use crate::error::Discard;
use crate::event::{CloseReason, Event};
use crate::exchange::Reply;
use crate::keys::Spis;
use crate::limits::STORE_PATIENCE;
use crate::link::Opened;
use crate::mlike;
use crate::payloads::{View, notify};
use crate::shared::Shared;
use crate::stats::Kind;
use crate::window::Verdict;

/// What becomes of the SA after a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Lives,
    Ends(CloseReason),
    /// It ends as soon as the store has it on record; the answer waits until then.
    Leaves(CloseReason),
}

/// The answer to a request, and what follows from it.
pub(crate) struct Answer {
    pub(crate) payloads: Vec<Payload>,
    pub(crate) fate: Fate,
    pub(crate) kind: Kind,
}

impl Answer {
    pub(crate) fn of(kind: Kind, payloads: Vec<Payload>) -> Self {
        Self { payloads, fate: Fate::Lives, kind }
    }

    pub(crate) fn refuse(kind: Kind, error: NotifyType) -> Self {
        Self::of(kind, vec![notify(error, [])])
    }
}

fn deletes_ike(payloads: &[Payload]) -> bool {
    payloads.iter().any(|p| matches!(p, Payload::Delete(d) if d.protocol == ProtocolId::Ike))
}

impl IkeSa {
    /// A datagram for this SA. It may end the SA ([`Stage::Over`]).
    pub(crate) fn handle(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        path: Path,
        header: &Header,
        datagram: &mut [u8],
    ) -> Result<(), Discard> {
        let link = &mut self.core.link;
        link.stats.received(datagram.len());
        let spis = Spis { i: header.spi_i, r: header.spi_r };
        if header.flags.initiator == link.initiator || spis != link.spis {
            return Err(Discard::UnknownSpi);
        }
        let fate = if header.flags.response {
            self.handle_response(shared, now, path, header, datagram)
        } else {
            self.handle_request(shared, now, path, header, datagram)
        };
        if self.mlike && self.core.link.conn.is_childless() {
            // It was decrypted in place, also if its handling has failed since.
            datagram.zeroize();
        }
        if let Fate::Ends(reason) = fate? {
            self.over(reason);
        }
        Ok(())
    }

    /// "An IKE endpoint MUST be prepared to accept and process a request while it has a request outstanding" (RFC 7296 section
    /// 2.3)
    fn handle_request(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        path: Path,
        header: &Header,
        datagram: &mut [u8],
    ) -> Result<Fate, Discard> {
        let id = header.message_id;
        // "the cluster member MUST reject (silently drop) any incoming IKE messages that are outside its declared window" (RFC 6311 section
        // 8.1): all, as long as the peer has not agreed to the window.
        if self.is_syncing() {
            return Err(Discard::OutsideWindow);
        }
        let verdict = self.core.answers.verdict(id);
        // "This Notify message MUST NOT be sent in a response; the invalid request MUST NOT be acknowledged." (RFC 7296 section
        // 2.3)
        if verdict == Verdict::Outside {
            return Err(Discard::OutsideWindow);
        }
        if verdict == Verdict::Repeated {
            // "[...] the responder MUST ignore the retransmitted request except insofar as it causes a retransmission of the response"
            // (RFC 7296 section 2.1): it moves no mapping, because anybody can send an old copy from anywhere, and is
            // no sign of life, which must be "fresh, i.e., not retransmitted" (RFC 7296 section 2.4).
            if self.core.channel.is_repetition(datagram)? {
                self.core.repeat_answer(shared, path, id);
            }
            return Ok(Fate::Lives);
        }
        let tentative = matches!(self.stage, Stage::Tentative(_)).then(|| datagram.to_vec());
        let opened = self.core.channel.open(now, datagram)?;
        if let Some(datagram) = tentative {
            // It is authentic: the client is there. What it says is heard when its ticket is known to count.
            self.confirm(shared, now, path);
            if let Stage::Tentative(tentative) = &mut self.stage {
                tentative.hold(path, datagram);
            }
            return Ok(Fate::Lives);
        }
        let Some(opened) = opened else { return Ok(Fate::Lives) };
        // A new request is what only an awake device sends. A repeated one may be any old copy, and an answer may have been
        // on its way since before the sleep.
        self.awake(shared, now);
        self.heard(shared, now, path);
        if matches!(self.stage, Stage::Heir) && !opened.as_ref().is_ok_and(|list| deletes_ike(list)) {
            // The peer would not use this successor if it had not chosen it. It repeats the request, which then finds
            // what the successor has inherited.
            shared.actions.push_back(Action::HeirChosen(self.core.id()));
            return Err(Discard::InappropriateExchange);
        }
        let mut answer = self.answer(shared, now, path, header, opened);
        if View(&answer.payloads).has(NotifyType::InvalidSyntax) {
            // "[...] this error notification is considered fatal in both peers, meaning that the IKE SA is deleted without needing
            // an explicit Delete payload" (RFC 7296 section 2.21.3)
            answer.fate = Fate::Ends(CloseReason::ProtocolError);
        }
        let core = &mut self.core;
        if let Fate::Leaves(reason) = answer.fate {
            let datagrams = core.seal(shared, header.exchange, true, id, &answer.payloads);
            let leaving = Leaving { until: now + STORE_PATIENCE, path, answer: datagrams, reason };
            self.stage = Stage::Leaving(Box::new(leaving));
            self.remove_children(shared);
            // A repetition gets nothing until then.
            self.core.answers.processed(id, Vec::new());
            return Ok(Fate::Lives);
        }
        let sent = core.answer(shared, now, path, header.exchange, id, &answer);
        mlike::wipe(&mut answer.payloads);
        core.answers.processed(id, sent);
        core.channel.forget_before(core.answers.oldest(), core.requests.oldest());
        Ok(answer.fate)
    }

    /// "[...] all requests having errors MUST result in a response notifying the other end of the error" (RFC 7296 section
    /// 2.21.3)
    fn answer(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        path: Path,
        header: &Header,
        opened: Opened,
    ) -> Answer {
        let mut payloads = match opened {
            Ok(payloads) => payloads,
            Err(error) => {
                if self.core.may_say(now) {
                    tracing::warn!(sa = %self.core.id(), %error, "malformed request");
                }
                return Answer::refuse(Kind::Informational, NotifyType::InvalidSyntax);
            }
        };
        // "[...] MUST include a Notify payload UNSUPPORTED_CRITICAL_PAYLOAD" (RFC 7296 section 2.5)
        if let Some(kind) = unsupported_critical(&payloads) {
            let refusal = notify(NotifyType::UnsupportedCriticalPayload, vec![kind.code()]);
            return Answer::of(Kind::Informational, vec![refusal]);
        }
        let view = View(&payloads);
        self.core.note_window(view);
        let answer = match header.exchange {
            ExchangeType::CreateChildSa => self.answer_create_child(shared, now, view),
            ExchangeType::IkeFollowupKe => self.answer_followup(shared, now, view),
            ExchangeType::Informational => {
                self.answer_informational(shared, now, path, header.message_id, view)
            }
            // An authentic request of a kind that has no place here is a broken peer.
            _ => Answer::refuse(Kind::Informational, NotifyType::InvalidSyntax),
        };
        mlike::wipe(&mut payloads);
        answer
    }

    fn handle_response(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        path: Path,
        header: &Header,
        datagram: &mut [u8],
    ) -> Result<Fate, Discard> {
        if self.is_syncing() {
            return self.take_sync(shared, now, path, header, datagram);
        }
        if self.core.requests.flight(header.message_id).is_none() {
            return Err(Discard::UnexpectedResponse);
        }
        let opened = match self.core.channel.open(now, datagram) {
            Err(Discard::Unprotected) => {
                self.hint(shared, now, path, datagram);
                return Err(Discard::Unprotected);
            }
            Err(discard) => return Err(discard),
            Ok(None) => return Ok(Fate::Lives),
            Ok(Some(opened)) => opened,
        };
        let Some(flight) = self.core.requests.answered(header.message_id) else {
            return Err(Discard::UnexpectedResponse);
        };
        self.heard(shared, now, path);
        self.core.answered(shared);
        self.probe_answered(shared, now);
        let mut payloads = self.believable(opened);
        let view = View(&payloads);
        let fate = flight.exchange.take(self, shared, now, &Reply { asked: flight.since, view });
        let broken = view.has(NotifyType::InvalidSyntax);
        mlike::wipe(&mut payloads);
        if broken {
            return Ok(Fate::Ends(CloseReason::ProtocolError));
        }
        if fate == Fate::Lives {
            self.pump(shared, now);
        }
        Ok(fate)
    }

    /// The content of an answer; one that cannot be read counts as INVALID_SYNTAX.
    /// "If the critical flag is set and the payload type is unrecognized, the message MUST be rejected" (RFC 7296 section 2.5)
    fn believable(&self, opened: Opened) -> Vec<Payload> {
        let sa = self.core.id();
        match opened {
            Ok(payloads) => match unsupported_critical(&payloads) {
                None => return payloads,
                Some(kind) => {
                    tracing::warn!(%sa, %kind, "an answer with a critical payload that is not supported")
                }
            },
            Err(error) => tracing::warn!(%sa, %error, "malformed answer"),
        }
        vec![notify(NotifyType::InvalidSyntax, [])]
    }

    /// Something authentic came by `path`.
    pub(super) fn heard(&mut self, shared: &mut Shared, now: Instant, path: Path) {
        self.core.last_in = now;
        if self.upkeep.take_unheard() {
            shared.event(Event::Heard { sa: self.core.id() });
        }
        if let Stage::Live(standing @ Standing::Unheard) = &mut self.stage {
            *standing = Standing::Heard;
        }
        // RFC 4555 section 3.8: with MOBIKE, IKE messages do not move the mapping; UPDATE_SA_ADDRESSES and ESP do.
        // "The host not behind a NAT MUST NOT use these dynamic updates for IKEv2 packets" (RFC 4555 section 3.8)
        if !self.mobility.mobike() && path != self.core.link.path {
            self.observed_path(shared, now, path);
        }
    }
}

//! The responder's first exchange: IKE_SA_INIT and IKE_SESSION_RESUME. Owns the decision whether a stranger is worth any
//! state: repetitions and what [`super::newcomer`] demands come first, keys come with IKE_AUTH. Nothing that it reads is authenticated.

use dormouse_keying::SaId;
use dormouse_sansio::{Class, Instant, Path};
use dormouse_wire::ike::{ExchangeType, Flags, Header, Message, NotifyType, Payload, Proposal};

use std::sync::Arc;

use super::Endpoint;
use crate::config::Connection;
use crate::error::{Discard, NegotiationError};
use crate::event::Event;
use crate::half_opens::Effort;
use crate::handshake::half_open::{Exchange, HalfOpen, How, Wanted, Working};
use crate::handshake::intermediate::{PpkUse, Rounds};
use crate::handshake::{FirstMessage, Slot, quick};
use crate::payloads::{View, notify};
use crate::proposal;
use crate::redirect;
use crate::shared::Shared;
use crate::ticket::{Form, TicketContent};

impl Shared {
    /// An answer to a first message, in clear and without state.
    pub(crate) fn answer_first(&mut self, path: Path, header: &Header, list: &[Payload]) {
        let flags = Flags { initiator: false, version: false, response: true };
        let answer = Header::new(header.spi_i, 0, header.exchange, flags, 0);
        let mut datagram = Vec::new();
        if Message::emit(&answer, list, &mut datagram).is_ok() {
            self.send_stateless(path, Class::Timely, datagram);
        }
    }
}

impl Endpoint {
    /// The first authentic ESP packet of this SA came: the peer has the answer in which it learned our SPI, and will not ask for it again.
    pub fn child_in_use(&mut self, now: Instant, sa: SaId) -> bool {
        self.with_sa(now, sa, |ike, _| ike.core.answers.has_begun())
    }

    /// A request that begins an IKE SA.
    pub(crate) fn first_message(
        &mut self,
        now: Instant,
        path: Path,
        header: &Header,
        datagram: &[u8],
    ) -> Result<(), Discard> {
        if self.repeat_first_answer(now, path, header, datagram)? {
            return Ok(());
        }
        if !self.shared.config.connections.iter().any(|c| c.role.answers()) {
            return Err(Discard::NoResponder);
        }
        let message = Message::parse(datagram).map_err(|_| Discard::Malformed)?;
        if message.protected.is_some() {
            return Err(Discard::Malformed);
        }
        let first = FirstMessage { path, header, payloads: &message.payloads, datagram };
        let view = first.view();
        let ni = view.nonce().ok_or(Discard::Malformed)?;
        let place = self.place_for(now, path, header, view, ni)?;
        if let Some(kind) = dormouse_wire::ike::unsupported_critical(&message.payloads) {
            let refusal = notify(NotifyType::UnsupportedCriticalPayload, [kind.code()]);
            return self.refuse_first(path, header, refusal);
        }
        let full = self.shared.config.max_sas.is_some_and(|most| self.len() >= most);
        if full || self.shared.config.serves_nobody {
            return Err(Discard::TooManySas);
        }
        // Nothing is kept of it.
        if let Some(to) = self.shared.config.redirects_all()
            && header.exchange == ExchangeType::IkeSaInit
            && redirect::follows(view)
        {
            let away = Payload::Notify(to.redirect(ni));
            self.shared.answer_first(path, header, &[away]);
            return Ok(());
        }
        if header.exchange == ExchangeType::IkeSaInit
            && redirect::may_be_spread(view)
            && let Some(to) = self.spread(&path)
        {
            self.shared.answer_first(path, header, &[Payload::Notify(to.redirect(ni))]);
            return Ok(());
        }
        let wanted = match header.exchange {
            ExchangeType::IkeSessionResume => self.want_resumption(now, path, view),
            _ => self.want_init(path, view),
        };
        if wanted.is_ok() {
            self.take_place(&place);
        }
        if let Ok(Wanted { conn, how: How::Resume { ticket, .. }, .. }) = &wanted
            && view.has(NotifyType::DormancyResume)
            && conn.answering.redirect_to.is_none()
            && let Some(sa) = quick::resume(&mut self.shared, now, &first, conn, ticket)
        {
            self.enter(now, &first, Slot::Established(sa), place.effort);
            return Ok(());
        }
        match wanted {
            Ok(wanted) => self.answer_first(now, &first, wanted, place.effort).ok_or(Discard::Malformed),
            Err(Some(refusal)) => self.refuse_first(path, header, refusal),
            Err(None) => Err(Discard::Malformed),
        }
    }

    /// A repetition of a first message that is in hand gets the same answer (RFC 7296 section 2.1).
    ///
    /// So does the same message with a cookie of ours. Its sender had repeated the message before our cookie reached it, and the repetition was
    /// let in without one, as the load was gone: it is the message with the cookie that its sender proves to have sent last.
    fn repeat_first_answer(
        &mut self,
        now: Instant,
        path: Path,
        header: &Header,
        datagram: &[u8],
    ) -> Result<bool, Discard> {
        let begun = self.shared.half_open.begun_by(header.spi_i, path.remote);
        let mut slot = begun.and_then(|id| self.slots.get_mut(&id));
        if let Some(Slot::HalfOpen(half)) = &mut slot
            && half.request != datagram
            && self.shared.has_our_cookie(now, path, header, &half.request, datagram)
        {
            half.request = datagram.to_vec();
        }
        if let Some(Slot::HalfOpen(half)) = &slot
            && half.request == datagram
            && matches!(half.work, Working::Beginning(_))
        {
            // It is answered when our public value is there.
            return Ok(true);
        }
        let (link, request, response) = match slot {
            Some(Slot::HalfOpen(half)) => (&mut half.link, &half.request, &half.response),
            Some(Slot::Established(ike)) => match ike.first_answer() {
                Some(first) => first,
                None => return Ok(false),
            },
            _ => return Ok(false),
        };
        if request != datagram {
            return Err(Discard::InappropriateExchange);
        }
        let answer = [response.clone()];
        link.stats.retransmissions += 1;
        self.shared.stats.retransmissions += 1;
        // "It MUST specify the address and port at which the request was received as the source address and port in the response."
        // (RFC 7296 section 2.11)
        link.send_by(&mut self.shared, path, Class::Timely, &answer);
        Ok(true)
    }

    /// One notification in clear, and no state.
    fn refuse_first(&mut self, path: Path, header: &Header, refusal: Payload) -> Result<(), Discard> {
        self.shared.answer_first(path, header, &[refusal]);
        Err(Discard::Refused)
    }

    fn peer_failed(&mut self, path: Path, error: NegotiationError) {
        tracing::debug!(%path, %error, "refused");
        self.shared.event(Event::PeerFailed { path, claimed: None, error });
    }

    fn want_init(&mut self, path: Path, view: View<'_>) -> Result<Wanted, Option<Payload>> {
        let offered = view.sa().ok_or(None)?;
        let (ke_group, public) = view.ke().ok_or(None)?;
        // Who calls is not known yet: the first connection whose algorithms fit stands in, and IKE_AUTH may choose another
        // that takes the same ones.
        let candidates: Vec<Arc<Connection>> =
            self.shared.config.connections.iter().filter(|c| c.role.answers()).cloned().collect();
        let intermediate = view.has(NotifyType::IntermediateExchangeSupported);
        let usable: Vec<Proposal> =
            offered.iter().filter(|p| intermediate || !proposal::has_additional(p)).cloned().collect();
        let ppk = PpkUse::of(view, candidates.iter());
        let mut mismatch = None;
        for conn in candidates {
            // "[...] and the responder's policy mandates protecting initial IKE SA with a PPK, then the responder MUST return the
            // NO_PROPOSAL_CHOSEN notification" (RFC 9867 section 3.1)
            if conn.ppk.required && ppk == PpkUse::No {
                continue;
            }
            let choice = match proposal::select_ike(&usable, &conn.ike_proposals, Some(ke_group)) {
                Ok(choice) => choice,
                Err(why) => {
                    mismatch.get_or_insert(why);
                    continue;
                }
            };
            let group = choice.suite.group;
            if group.id() != ke_group {
                return Err(Some(notify(NotifyType::InvalidKePayload, group.id().to_be_bytes())));
            }
            let before_nonce = vec![Payload::Sa(choice.answer(None))];
            let rounds = Rounds::new(&choice.suite.additional, ppk);
            let exchange = Exchange { ours: None, theirs: public.to_vec() };
            let how = How::Init { suite: choice.suite, exchange };
            return Ok(Wanted { conn, how, rounds, before_nonce });
        }
        let error = match mismatch.map(Box::new) {
            Some(mismatch) => NegotiationError::NoProposalChosen { what: "IKE", mismatch },
            None => NegotiationError::Ppk("the peer does not use any"),
        };
        self.peer_failed(path, error);
        Err(Some(notify(NotifyType::NoProposalChosen, [])))
    }

    /// Accepts, or says TICKET_NACK: "When the IKEv2 responder receives a ticket using the N(TICKET_OPAQUE) payload, it MUST
    /// perform one of the following steps" (RFC 5723 section 4.3.2)
    fn want_resumption(
        &mut self,
        now: Instant,
        path: Path,
        view: View<'_>,
    ) -> Result<Wanted, Option<Payload>> {
        let opaque = view.notify(NotifyType::TicketOpaque).ok_or(None)?;
        let refused = |why: String| (Some(notify(NotifyType::TicketNack, [])), why);
        let opened = self.open_ticket(now, &opaque.data).and_then(|content| {
            let conn = self.resumes(now, &content, view.ke().map(|(group, _)| group))?;
            Ok((conn, content))
        });
        match opened.map_err(refused) {
            Ok((conn, content)) => {
                // Only a ticket of ours allows a key exchange.
                let public =
                    view.ke().filter(|_| content.form == Form::Dormouse).map(|(_, public)| public.to_vec());
                let exchange = public.map(|theirs| Exchange { ours: None, theirs });
                let (how, rounds) = (How::Resume { ticket: Box::new(content), exchange }, Rounds::default());
                Ok(Wanted { conn, how, rounds, before_nonce: Vec::new() })
            }
            Err((refusal, why)) => {
                tracing::debug!(%path, why, "ticket refused");
                self.shared.event(Event::PeerFailed {
                    path,
                    claimed: None,
                    error: NegotiationError::TicketRejected(why),
                });
                Err(refusal)
            }
        }
    }

    fn open_ticket(&self, now: Instant, ticket: &[u8]) -> Result<TicketContent, String> {
        let keys = self.shared.config.ticket_keys.as_ref().ok_or("this gateway gives no tickets")?;
        if self.shared.store_away {
            return Err("the store of lineages is out of reach".to_owned());
        }
        keys.open(ticket, self.shared.unix(now)).map_err(|e| e.to_string())
    }

    /// The connection that the owner of a ticket may use today, if its request has what that wants. Whether the ticket counts is asked
    /// when its owner has shown that it is there ([`crate::ticket::lineage`]).
    fn resumes(
        &self,
        now: Instant,
        ticket: &TicketContent,
        group: Option<u16>,
    ) -> Result<Arc<Connection>, String> {
        let conn = ticket.claim().admitted(&self.shared, now)?;
        match (ticket.form, group) {
            (Form::Dormouse, None) if conn.resumption.fresh_keys => {
                Err("the client sends no key exchange, and resumption.key_exchange is \"fresh\"".to_owned())
            }
            (Form::Dormouse, Some(group)) if group != ticket.suite.group.id() => {
                Err(format!("key exchange in group {group} instead of {}", ticket.suite.group))
            }
            _ => Ok(conn),
        }
    }

    /// Keeps a half-open SA and answers, or orders first what the answer needs. `None` if there is no key for it.
    fn answer_first(
        &mut self,
        now: Instant,
        first: &FirstMessage<'_>,
        wanted: Wanted,
        effort: Effort,
    ) -> Option<()> {
        let half = HalfOpen::begin(&mut self.shared, now, first, wanted)?;
        self.enter(now, first, Slot::HalfOpen(Box::new(half)), effort);
        Some(())
    }

    /// A new SA, whose caller has not shown yet that it is there.
    fn enter(&mut self, now: Instant, first: &FirstMessage<'_>, slot: Slot, effort: Effort) {
        let id = slot.link().id;
        self.slots.insert(id, slot);
        self.touch(id);
        self.shared.half_open.enter(id, now, first.header.spi_i, first.path.remote, effort);
    }
}

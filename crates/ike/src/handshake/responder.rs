//! The responder's first exchange: IKE_SA_INIT and IKE_SESSION_RESUME. Owns the decision whether a stranger is worth any
//! state: cookies, limits and repetitions come first, keys come with IKE_AUTH. It must never believe anything it reads.

use dormouse_crypto::DhPrivate;
use dormouse_sansio::{Class, Instant, Path};
use dormouse_wire::ike::{ExchangeType, Flags, Header, Message, NotifyType, Payload, Proposal};

use std::sync::Arc;

use crate::admission::admits;
use crate::auth;
use crate::callers::Caller;
use crate::config::{Connection, Resumption};
use crate::endpoint::Endpoint;
use crate::error::{Discard, NegotiationError};
use crate::event::Event;
use crate::handshake::Slot;
use crate::handshake::half_open::{HalfOpen, How, Signature};
use crate::handshake::intermediate::{PpkUse, Rounds};
use crate::keys::Spis;
use crate::link::Link;
use crate::natd;
use crate::payloads::{self, View, notify};
use crate::proposal;
use crate::sa::stage::Stage;
use crate::stats::{Kind, Stats};
use crate::ticket::{Form, TicketContent};
use dormouse_keying::SaId;

/// What the first message asks for, found acceptable.
struct Wanted {
    conn: Arc<Connection>,
    how: How,
    rounds: Rounds,
    /// The payloads of the answer that come before the nonce and after it.
    before_nonce: Vec<Payload>,
}

impl Endpoint {
    /// A request that begins an IKE SA.
    pub(crate) fn first_message(
        &mut self,
        now: Instant,
        path: Path,
        header: &Header,
        datagram: &[u8],
    ) -> Result<(), Discard> {
        if self.repeat_first_answer(path, header, datagram)? {
            return Ok(());
        }
        if !self.shared.config.connections.iter().any(|c| c.role.answers()) {
            return Err(Discard::NoResponder);
        }
        let message = Message::parse(datagram).map_err(|_| Discard::Malformed)?;
        if message.protected.is_some() {
            return Err(Discard::Malformed);
        }
        let view = View(&message.payloads);
        let ni = view.nonce().ok_or(Discard::Malformed)?;
        self.demand_cookie(now, path, header, view, ni)?;
        if let Some(kind) = dormouse_wire::ike::unsupported_critical(&message.payloads) {
            let refusal = notify(NotifyType::UnsupportedCriticalPayload, [kind.code()]);
            return self.refuse_first(path, header, refusal);
        }
        let limits = self.shared.config.half_open;
        let from_there = self.shared.half_open.from(path.remote.ip());
        if self.shared.half_open.len() >= limits.max || from_there >= limits.max_per_address {
            return Err(Discard::TooManyHalfOpen);
        }
        if self.shared.config.max_sas.is_some_and(|most| self.len() >= most) {
            return Err(Discard::TooManySas);
        }
        let wanted = match header.exchange {
            ExchangeType::IkeSessionResume => self.want_resumption(now, path, view),
            _ => self.want_init(path, view),
        };
        if let Ok(Wanted { conn, how: How::Resume { ticket, .. }, .. }) = &wanted
            && view.has(NotifyType::DormancyResume)
            && self.resume_at_once(now, path, header, &message.payloads, datagram, conn, ticket)
        {
            return Ok(());
        }
        match wanted {
            Ok(wanted) => {
                self.answer_first(now, path, header, view, datagram, wanted);
                Ok(())
            }
            Err(Some(refusal)) => self.refuse_first(path, header, refusal),
            Err(None) => Err(Discard::Malformed),
        }
    }

    /// A repetition of a first message that is in hand gets the same answer (RFC 7296 section 2.1).
    fn repeat_first_answer(&mut self, path: Path, header: &Header, datagram: &[u8]) -> Result<bool, Discard> {
        let begun = self.shared.half_open.begun_by(header.spi_i, path.remote);
        let slot = begun.and_then(|id| self.slots.get_mut(&id));
        let (link, request, response) = match slot {
            Some(Slot::HalfOpen(half)) => (&mut half.link, &half.request, &half.response),
            Some(Slot::Established(ike)) => match &ike.stage {
                Stage::Tentative(begun) => (&mut ike.core.link, &begun.request, &begun.response),
                _ => return Ok(false),
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

    /// Under load, nothing is kept for a peer that has not shown that it receives where it sends from.
    /// "[...] it SHOULD reply to IKE_SA_INIT requests with a response containing the COOKIE notification" (RFC 7296 section
    /// 2.6)
    /// "[...] that party MUST ignore the cookie and process the message as if no cookie had been included" (RFC 7296 section
    /// 2.6): under load, it gets a new one.
    fn demand_cookie(
        &mut self,
        now: Instant,
        path: Path,
        header: &Header,
        view: View<'_>,
        ni: &[u8],
    ) -> Result<(), Discard> {
        let shared = &mut self.shared;
        if shared.half_open.len() < shared.config.half_open.cookie_threshold {
            return Ok(());
        }
        let given = crate::endpoint::carries_cookie(view);
        if given.is_some_and(|c| shared.cookies.verify(now, c, header.spi_i, path.remote, ni)) {
            return Ok(());
        }
        let cookie = shared.cookies.issue(now, &mut shared.entropy, header.spi_i, path.remote, ni);
        let _ = self.refuse_first(path, header, notify(NotifyType::Cookie, cookie));
        Err(Discard::NoCookie)
    }

    /// One notification in clear, and no state.
    fn refuse_first(&mut self, path: Path, header: &Header, refusal: Payload) -> Result<(), Discard> {
        let flags = Flags { initiator: false, version: false, response: true };
        let answer = Header::new(header.spi_i, 0, header.exchange, flags, 0);
        let mut datagram = Vec::new();
        if Message::emit(&answer, &[refusal], &mut datagram).is_ok() {
            self.shared.send_stateless(path, Class::Timely, datagram);
        }
        Err(Discard::Refused)
    }

    fn peer_failed(&mut self, path: Path, error: NegotiationError) {
        tracing::info!(%path, %error, "refused");
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
            if conn.ppk_required && ppk == PpkUse::No {
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
            let dh = DhPrivate::generate(group, &mut self.shared.entropy).map_err(|_| None)?;
            let before_nonce = vec![
                Payload::Sa(choice.answer(None)),
                Payload::Ke { group: group.id(), data: dh.public_value().to_vec() },
            ];
            let rounds = Rounds::new(&choice.suite.additional, ppk);
            let how = How::Init { suite: choice.suite, dh, public: public.to_vec() };
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
            self.room_to_resume(&conn, &content, path)?;
            Ok((conn, content))
        });
        match opened.map_err(refused) {
            Ok((conn, content)) => {
                let (how, rounds) = (How::Resume { ticket: Box::new(content), dh: None }, Rounds::default());
                Ok(Wanted { conn, how, rounds, before_nonce: Vec::new() })
            }
            Err((refusal, why)) => {
                tracing::info!(%path, why, "ticket refused");
                self.shared.event(Event::PeerFailed {
                    path,
                    claimed: None,
                    error: NegotiationError::TicketRejected(why),
                });
                Err(refusal)
            }
        }
    }

    /// Whether the identity may have the session that the ticket brings back beside those that it has.
    fn room_to_resume(&self, conn: &Connection, ticket: &TicketContent, path: Path) -> Result<(), String> {
        let peer = auth::identity(&ticket.id_i).map_err(|e| e.to_string())?;
        let caller = Caller { connection: conn.name.clone(), peer: peer.clone() };
        let of_it = |id: &SaId| match self.slots.get(id) {
            Some(Slot::Established(ike)) => {
                ike.core.descent.as_ref().is_some_and(|descent| descent.lineage == ticket.lineage)
            }
            _ => false,
        };
        let old = self.shared.callers.of(&caller, true).map(|(id, _)| id).find(of_it);
        let room = self.shared.callers.room(conn, &peer, path.remote.ip(), old, false);
        room.map_err(|why| why.to_string())
    }

    fn open_ticket(&self, now: Instant, ticket: &[u8]) -> Result<TicketContent, String> {
        let keys = self.shared.config.ticket_keys.as_ref().ok_or("this gateway gives no tickets")?;
        if self.shared.store_away {
            return Err("the store of lineages is out of reach".to_owned());
        }
        keys.open(ticket, self.shared.unix(now)).map_err(|e| e.to_string())
    }

    /// The connection that the owner of a ticket may use today, if its request has what that wants.
    /// "when credentials associated with the IKE SA are invalidated (e.g., when a user logs out), the ticket MUST be deleted" (RFC
    /// 5723 section 6.2): a gateway that has changed its mind about them takes no ticket that rests on them. Whether the ticket counts is
    /// asked when its owner has shown that it is there ([`crate::ticket::lineage`]).
    fn resumes(
        &self,
        now: Instant,
        ticket: &TicketContent,
        group: Option<u16>,
    ) -> Result<Arc<Connection>, String> {
        let config = &self.shared.config;
        let conn = config.connections.iter().find(|c| {
            c.name == ticket.connection
                && c.resumption != Resumption::Off
                && proposal::permits(&c.ike_proposals, &ticket.suite)
        });
        let conn =
            conn.ok_or_else(|| format!("connection {} does not take it any more", ticket.connection))?;
        match (ticket.form, group) {
            (Form::Plain, _) if !conn.plain_resumption => return Err("resumption.plain is off".to_owned()),
            (Form::Dormouse, None) if conn.fresh_keys => {
                return Err(
                    "the client sends no key exchange, and resumption.key_exchange is \"fresh\"".to_owned()
                );
            }
            (Form::Dormouse, Some(group)) if group != ticket.suite.group.id() => {
                return Err(format!("key exchange in group {group} instead of {}", ticket.suite.group));
            }
            _ => {}
        }
        let peer = auth::identity(&ticket.id_i).map_err(|e| e.to_string())?;
        admits(config, conn, &peer, &ticket.credential, self.shared.unix(now)).map_err(|e| e.to_string())
    }

    /// Keeps a half-open SA and answers.
    fn answer_first(
        &mut self,
        now: Instant,
        path: Path,
        header: &Header,
        view: View<'_>,
        datagram: &[u8],
        wanted: Wanted,
    ) {
        let Wanted { conn, mut how, rounds, before_nonce } = wanted;
        let shared = &mut self.shared;
        let id = shared.new_sa();
        let spi = shared.new_spi(id);
        let spis = Spis { i: header.spi_i, r: spi };
        let nat: natd::Detection = view.nat(Spis { i: header.spi_i, r: 0 }, &path);
        let peer_fragments = view.has(NotifyType::Ikev2FragmentationSupported);
        let mut link = Link {
            id,
            initiator: false,
            spis,
            path,
            fragmentation: conn.fragmentation.enabled && peer_fragments,
            stats: Stats::default(),
            conn,
        };
        link.stats.received(datagram.len());
        let nonce_r = shared.nonce();
        let mut list = before_nonce;
        list.push(Payload::Nonce(nonce_r.clone()));
        if let (How::Resume { ticket, dh }, Some((_, public))) = (&mut how, view.ke())
            && ticket.form == Form::Dormouse
            && let Ok(ours) = DhPrivate::generate(ticket.suite.group, &mut shared.entropy)
        {
            list.push(Payload::Ke { group: ours.group().id(), data: ours.public_value().to_vec() });
            *dh = Some((ours, public.to_vec()));
        }
        if nat.supported {
            // "Both the IKE initiator and responder MUST include in their IKE_SA_INIT packets Notify payloads of type [...]"
            // (RFC 7296 section 2.23)
            list.extend(payloads::nat_detection(spis, &path, link.conn.force_udp_encap));
        }
        if link.fragmentation {
            list.push(notify(NotifyType::Ikev2FragmentationSupported, []));
        }
        let hashes = view.notify(NotifyType::SignatureHashAlgorithms);
        let kind = match how {
            How::Resume { .. } => Kind::Resume,
            How::Init { .. } => Kind::Init,
        };
        if kind == Kind::Init {
            if hashes.is_some() {
                list.push(notify(NotifyType::SignatureHashAlgorithms, auth::hash_algorithms()));
            }
            list.extend(auth::certreq_payload(&link.conn.remote_auth));
        }
        list.extend(rounds.answered());
        let response = link.clear(header.exchange, true, 0, &list);
        link.send(shared, Class::Timely, std::slice::from_ref(&response));
        link.stats.answer(kind);
        shared.stats.answer(kind);
        let half = HalfOpen {
            link,
            how,
            rounds,
            answered: None,
            channel: None,
            nonce_i: view.nonce().unwrap_or_default().to_vec(),
            nonce_r,
            request: datagram.to_vec(),
            response,
            nat,
            peer_hashes: hashes.map(|n| auth::parse_hash_algorithms(&n.data)),
            expires: now + shared.config.half_open.timeout,
            begun: now,
            clients: shared.half_open.len() + 1,
            waiting: None,
            wait_until: None,
            signature: Signature::NotYet,
            refused: None,
            pending: None,
        };
        self.slots.insert(id, Slot::HalfOpen(Box::new(half)));
        self.touch(id);
        self.shared.half_open.enter(id, header.spi_i, path.remote);
    }
}

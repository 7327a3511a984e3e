//! The initiator's first exchange: IKE_SA_INIT (RFC 7296 section 1.2) or IKE_SESSION_RESUME (RFC 5723 section 4.3.2), with
//! COOKIE and INVALID_KE_PAYLOAD. Owns everything up to the keys; must never authenticate anything: what arrives here is
//! in clear and can be forged by anybody who sees the request.

use std::sync::Arc;

use dormouse_crypto::suites::Group;
use dormouse_crypto::{DhPrivate, Secret};
use dormouse_sansio::{Class, Instant, Path};
use dormouse_wire::ike::{
    ExchangeType, Header, Message, Notify, NotifyType, Payload, Proposal, unsupported_critical,
};

use crate::auth;
use crate::config::{Connection, Resumption};
use crate::error::{Discard, NegotiationError};
use crate::event::Event;
use crate::handshake::intermediate::{self, PpkUse, Rounds};
use crate::handshake::proving::FirstExchange;
use crate::handshake::quick::{self, Pace, Quick};
use crate::handshake::solving::Solving;
use crate::handshake::{Slot, Step, send_what_is_due};
use crate::keys::{self, IkeKeys, Nonces, Spis};
use crate::limits::COOKIE_MAX;
use crate::link::{Channel, Link};
use crate::payloads::{self, View, notify};
use crate::proposal::{self, IkeSuite, Mismatch};
use crate::redirect;
use crate::shared::Shared;
use crate::stats::{Kind, Stats};
use crate::ticket::{ClientTicket, Form};
use crate::window::Outgoing;
use dormouse_keying::SaId;

/// Cookies that a responder may ask for in a row: the path or its secret may change once or twice, not more.
const COOKIES_MAX: u8 = 3;

/// Waiting for the answer to the first message.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) link: Link,
    pub(super) how: How,
    nonce: Vec<u8>,
    cookie: Option<Vec<u8>>,
    cookies: u8,
    /// What a puzzle that came with the cookie has been solved by.
    pub(super) solution: Option<Vec<u8>>,
    pub(super) solving: Option<Box<Solving>>,
    /// The first message as last sent: AUTH covers it.
    request: Vec<u8>,
    pub(crate) out: Outgoing<()>,
    until: Instant,
    /// The SA that this one replaces (reauthentication).
    replaces: Option<SaId>,
    /// The ticket may do it in one round trip.
    quick: Option<Quick>,
}

#[derive(Debug)]
pub(super) enum How {
    Init { dh: DhPrivate, offered: Vec<Proposal>, tried: Vec<Group> },
    Resume { ticket: Box<ClientTicket>, dh: Option<DhPrivate> },
}

impl How {
    fn exchange(&self) -> ExchangeType {
        match self {
            Self::Init { .. } => ExchangeType::IkeSaInit,
            Self::Resume { .. } => ExchangeType::IkeSessionResume,
        }
    }
}

impl Opening {
    pub(crate) fn connect(
        shared: &mut Shared,
        now: Instant,
        id: SaId,
        conn: Arc<Connection>,
        path: Path,
        replaces: Option<SaId>,
    ) -> Result<Self, NegotiationError> {
        let group = proposal::first_group(&conn.ike_proposals)
            .ok_or_else(|| NegotiationError::Crypto("no key exchange group is configured".to_owned()))?;
        let dh = key_pair(shared, group)?;
        let offered = proposal::ike_offer(&conn.ike_proposals, None);
        let how = How::Init { dh, offered, tried: vec![group] };
        Ok(Self::begin(shared, now, id, conn, path, how, replaces, None))
    }

    pub(crate) fn resume(
        shared: &mut Shared,
        now: Instant,
        id: SaId,
        conn: Arc<Connection>,
        ticket: ClientTicket,
        path: Path,
    ) -> Result<Self, NegotiationError> {
        // "A client MUST NOT present a ticket when it knows that the ticket's lifetime has expired." (RFC 5723 section 4.3.1)
        if !ticket.is_valid(shared.unix(now)) || conn.resumption.mode == Resumption::Off {
            return Err(NegotiationError::TicketExpired);
        }
        // "when credentials associated with the IKE SA are invalidated (e.g., when a user logs out), the ticket MUST be deleted" (RFC
        // 5723 section 6.2): also when it is our own configuration that says so.
        if !ticket.is_of(&conn) || !proposal::permits(&conn.ike_proposals, &ticket.suite) {
            return Err(NegotiationError::TicketOutdated);
        }
        shared.believes(now, &ticket, &conn).map_err(NegotiationError::TicketUntrusted)?;
        if let Some(lineage) = ticket.lineage {
            shared.former.lineages.insert(conn.name.clone(), lineage);
        }
        // "The client SHOULD NOT use this exchange type unless it knows that the gateway supports it" (RFC 5723 section 4.3.2):
        // it gave the ticket.
        let quick = Quick::of(shared, &conn, &ticket);
        let fresh = ticket.form == Form::Dormouse && conn.resumption.fresh_keys;
        let dh = fresh.then(|| key_pair(shared, ticket.suite.group)).transpose()?;
        let how = How::Resume { ticket: Box::new(ticket), dh };
        Ok(Self::begin(shared, now, id, conn, path, how, None, quick))
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a new state")]
    fn begin(
        shared: &mut Shared,
        now: Instant,
        id: SaId,
        conn: Arc<Connection>,
        path: Path,
        how: How,
        replaces: Option<SaId>,
        quick: Option<Quick>,
    ) -> Self {
        let spi = shared.new_spi(id);
        let link = Link {
            id,
            conn,
            initiator: true,
            spis: Spis { i: spi, r: 0 },
            path,
            fragmentation: false,
            redirects: false,
            stats: Stats::default(),
        };
        let kind = if matches!(how, How::Init { .. }) { Kind::Init } else { Kind::Resume };
        let nonce = shared.nonce();
        let until = now + link.patience(shared);
        let out = Outgoing::new(0);
        let mut opening = Self {
            link,
            how,
            nonce,
            cookie: None,
            cookies: 0,
            solution: None,
            solving: None,
            request: Vec::new(),
            out,
            until,
            replaces,
            quick,
        };
        opening.choose_port(shared);
        opening.link.stats.begin(kind);
        shared.stats.begin(kind);
        opening.send(shared, now);
        opening
    }

    /// (Re)builds the first message and sends it. Nonce and SPI stay the same when it is sent again for a cookie or another
    /// group (RFC 7296 section 2.6).
    pub(super) fn send(&mut self, shared: &mut Shared, now: Instant) {
        let mut list: Vec<Payload> = Vec::new();
        match &self.how {
            How::Init { dh, offered, .. } => list.extend([
                Payload::Sa(offered.clone()),
                key_exchange(dh),
                Payload::Nonce(self.nonce.clone()),
            ]),
            How::Resume { ticket, dh } => {
                list.push(Payload::Nonce(self.nonce.clone()));
                list.extend(dh.as_ref().map(key_exchange));
                list.push(notify(NotifyType::TicketOpaque, ticket.opaque.as_bytes()));
            }
        }
        // "Both the IKE initiator and responder MUST include in their IKE_SA_INIT packets Notify payloads of type [...]" (RFC
        // 7296 section 2.23)
        list.extend(payloads::nat_detection(
            self.link.spis,
            &self.link.path,
            self.link.conn.esp_in_udp.is_forced(),
        ));
        if self.link.conn.fragmentation.enabled {
            list.push(notify(NotifyType::Ikev2FragmentationSupported, []));
        }
        list.push(notify(NotifyType::SignatureHashAlgorithms, auth::hash_algorithms()));
        list.extend(redirect::offered(shared, &self.link.conn));
        if let How::Init { .. } = &self.how {
            list.extend(intermediate::offered(&self.link.conn));
        }
        if let (Some(quick), How::Resume { ticket, .. }) = (&mut self.quick, &self.how) {
            match quick.seal(shared, &self.link, ticket, &self.nonce, &list) {
                Some(sealed) => list.push(sealed),
                None => self.give_up_quick(shared),
            }
        }
        if let Some(cookie) = self.cookie.clone() {
            // "[...] include the COOKIE notification containing the received data as the first payload, and all other payloads
            // unchanged" (RFC 7296 section 2.6)
            list.insert(0, notify(NotifyType::Cookie, cookie));
            if let Some(solution) = self.solution.clone() {
                list.insert(1, Payload::PuzzleSolution(solution));
            }
        }
        // "This value MUST be zero in the first message of an IKE initial exchange" (RFC 7296 section 3.1): the SPI of the
        // responder.
        self.request = self.link.clear(self.how.exchange(), false, 0, &list);
        self.out = Outgoing::new(0);
        let datagrams = vec![self.request.clone()];
        self.link.send(shared, Class::Urgent, &datagrams);
        let wait = self.link.wait(shared, 1);
        self.out.start(now, wait, self.until, datagrams, Class::Urgent, ());
    }

    /// What comes back at once needs the port that it will use afterwards: there is no second exchange that could move it.
    fn choose_port(&mut self, shared: &Shared) {
        if self.quick.is_some() {
            self.link.path = self.link.natt_path(shared);
        }
    }

    fn give_up_quick(&mut self, shared: &mut Shared) {
        if let Some(quick) = self.quick.take() {
            shared.free_esp_spi(quick.spi_in);
        }
    }

    /// Gives back what is held outside.
    pub(crate) fn free(&self, shared: &mut Shared) {
        if let Some(quick) = &self.quick {
            shared.free_esp_spi(quick.spi_in);
        }
    }

    pub(crate) fn set_path(&mut self, shared: &mut Shared, now: Instant, path: Path) {
        let before = self.link.path;
        self.link.path = path;
        self.choose_port(shared);
        if self.link.path == before {
            let wait = self.link.wait(shared, 1);
            for (datagrams, class) in self.out.resend_all(now, wait, true) {
                self.link.send_again(shared, class, &datagrams);
            }
            return;
        }
        // "A retransmission from the initiator MUST be bitwise identical to the original request." (RFC 7296 section 2.1) This one
        // cannot be, because NAT detection covers the addresses: it is another request, and an answer to the first is dropped.
        shared.by_spi.remove(&self.link.spis.i);
        self.link.spis.i = shared.new_spi(self.link.id);
        self.nonce = shared.nonce();
        if let How::Resume { dh: Some(dh), .. } = &mut self.how
            && let Ok(fresh) = key_pair(shared, dh.group())
        {
            *dh = fresh;
        }
        (self.cookie, self.solution, self.solving) = (None, None, None);
        self.until = now + self.link.patience(shared);
        self.send(shared, now);
    }

    pub(crate) fn handle_timeout(
        mut self: Box<Self>,
        shared: &mut Shared,
        now: Instant,
    ) -> Option<Box<Self>> {
        if self.solving.is_some() {
            self.solve_on(shared, now);
            return Some(self);
        }
        let exchange =
            if matches!(self.how, How::Init { .. }) { "IKE_SA_INIT" } else { "IKE_SESSION_RESUME" };
        if let Some(error) = send_what_is_due(&mut self.link, &mut self.out, shared, now, exchange) {
            self.fail(shared, error);
            return None;
        }
        Some(self)
    }

    fn fail(self: Box<Self>, shared: &mut Shared, error: NegotiationError) {
        self.free(shared);
        shared.by_spi.remove(&self.link.spis.i);
        tracing::debug!(sa = %self.link.id, %error, "connecting failed");
        shared.event(Event::Failed { sa: self.link.id, error });
    }

    pub(crate) fn handle(
        mut self: Box<Self>,
        shared: &mut Shared,
        now: Instant,
        header: &Header,
        datagram: &[u8],
    ) -> Step {
        self.link.stats.received(datagram.len());
        let expected = header.flags.response
            && !header.flags.initiator
            && header.message_id == 0
            && header.exchange == self.how.exchange();
        if !expected {
            return Step::stay(Slot::Opening(self), Discard::InappropriateExchange);
        }
        let message = match Message::parse(datagram) {
            // An unknown critical payload: "the message MUST be rejected" (RFC 7296 section 2.5). The peer may not have sent it.
            Ok(message)
                if message.protected.is_none() && unsupported_critical(&message.payloads).is_none() =>
            {
                message
            }
            _ => return Step::stay(Slot::Opening(self), Discard::Malformed),
        };
        let view = View(&message.payloads);
        self.link.stats.round_trips += 1;
        shared.stats.round_trips += 1;
        if let Some(cookie) = view.notify(NotifyType::Cookie) {
            return self.again_with_cookie(shared, now, view, cookie);
        }
        match redirect::first(
            view,
            &self.nonce,
            &self.link.conn,
            redirect::same_name(shared, &self.link.conn),
        ) {
            Ok(None) => {}
            Ok(Some(error)) => {
                self.fail(shared, error);
                return Step::gone();
            }
            Err(()) => return Step::stay(Slot::Opening(self), Discard::NotAuthentic),
        }
        let refused = view.error().or_else(|| view.notify(NotifyType::TicketNack));
        if let Some(refusal) = refused {
            return self.refused(shared, now, refusal);
        }
        let ours = matches!(&self.how, How::Resume { ticket, .. } if ticket.form == Form::Dormouse);
        if ours && !quick::is_canonical(header, &message.payloads, datagram) {
            return Step::stay(Slot::Opening(self), Discard::NotAuthentic);
        }
        if view.has(NotifyType::DormancyResume) && self.quick.is_some() {
            return self.conclude_quick(shared, now, header, &message.payloads);
        }
        match self.conclude(shared, header, view, datagram) {
            // "Following the IKE_SESSION_RESUME exchange, the client MUST initiate an IKE_AUTH exchange" (RFC 5723 section
            // 4.3.3)
            Ok(first) => intermediate::initiator::proceed(shared, now, first),
            Err(Conclusion::Fatal(opening, error)) => {
                opening.fail(shared, error);
                Step::gone()
            }
            Err(Conclusion::Ignore(opening)) => Step::stay(Slot::Opening(opening), Discard::Malformed),
        }
    }

    /// "Implementations SHOULD support this shorter exchange, but MUST NOT fail if other implementations do not support this
    /// shorter exchange." (RFC 7296 section 2.6.1) The cookie is kept for the retry with another group, and a new one is taken.
    fn again_with_cookie(
        mut self: Box<Self>,
        shared: &mut Shared,
        now: Instant,
        view: View<'_>,
        cookie: &Notify,
    ) -> Step {
        if self.solving.is_some() {
            return Step::stay(Slot::Opening(self), Discard::UnexpectedResponse);
        }
        self.cookies += 1;
        if self.cookies > COOKIES_MAX {
            let error = NegotiationError::Cookies(self.cookies);
            self.fail(shared, error);
            return Step::gone();
        }
        // "[...] MUST be between 1 and 64 octets in length (inclusive)" (RFC 7296 section 2.6)
        if cookie.data.is_empty() || cookie.data.len() > COOKIE_MAX {
            return Step::stay(Slot::Opening(self), Discard::Malformed);
        }
        self.cookie = Some(cookie.data.clone());
        self.solution = None;
        if !self.begins_to_solve(now, view, &cookie.data) {
            self.send(shared, now);
        }
        Step::to(Slot::Opening(self))
    }

    /// "The recipient should not immediately act based on the error notification" (RFC 7296 section 2.21.1): it does, because a
    /// person waits for the reason, and only what is on the path knows our SPI.
    fn refused(mut self: Box<Self>, shared: &mut Shared, now: Instant, refusal: &Notify) -> Step {
        let error = match (&mut self.how, refusal.kind) {
            (How::Init { dh, offered, tried }, NotifyType::InvalidKePayload) => {
                let wanted = <[u8; 2]>::try_from(refusal.data.as_slice()).map_or(0, u16::from_be_bytes);
                let retry =
                    proposal::retry_group(wanted, offered, tried).map(|group| key_pair(shared, group));
                match retry {
                    Some(Ok(fresh)) => {
                        // "the initiator MUST retry the IKE_SA_INIT with the corrected Diffie-Hellman group" (RFC 7296 section
                        // 1.2)
                        // "The initiator MUST again propose its full set of acceptable cryptographic suites" (RFC 7296 section
                        // 1.2)
                        tried.push(fresh.group());
                        *dh = fresh;
                        self.send(shared, now);
                        return Step::to(Slot::Opening(self));
                    }
                    Some(Err(error)) => error,
                    None => NegotiationError::KeyExchangeGroup {
                        wanted,
                        offered: Mismatch::refused_by_peer(offered).join(", "),
                    },
                }
            }
            (How::Init { offered, .. }, NotifyType::NoProposalChosen) => NegotiationError::ProposalsRefused {
                what: "IKE",
                offered: Mismatch::refused_by_peer(offered).join(", "),
            },
            (How::Resume { .. }, NotifyType::TicketNack) => NegotiationError::TicketRefused,
            (_, NotifyType::InvalidIkeSpi) => NegotiationError::UnknownSpi,
            (_, other) => NegotiationError::Notified(other.to_string()),
        };
        self.fail(shared, error);
        Step::gone()
    }

    /// The gateway says that everything is back at once.
    fn conclude_quick(
        self: Box<Self>,
        shared: &mut Shared,
        now: Instant,
        header: &Header,
        payloads: &[Payload],
    ) -> Step {
        let (How::Resume { ticket, dh }, Some(quick)) = (&self.how, &self.quick) else {
            return Step::stay(Slot::Opening(self), Discard::InappropriateExchange);
        };
        let (nonce, request) = (self.nonce.as_slice(), self.request.as_slice());
        let dh = dh.as_ref();
        let answered = quick::Answered { ticket, nonce, dh, request, spi_r: header.spi_r, payloads };
        match quick::conclude(shared, now, &self.link, quick, &answered) {
            Some(Ok(sa)) => Step::to(Slot::Established(sa)),
            Some(Err(error)) => {
                self.fail(shared, error);
                Step::gone()
            }
            // Anybody can answer; only the gateway can do it right.
            None => Step::stay(Slot::Opening(self), Discard::NotAuthentic),
        }
    }

    /// The answer is a good one: derives the keys and finds out about NATs.
    fn conclude(
        mut self: Box<Self>,
        shared: &mut Shared,
        header: &Header,
        view: View<'_>,
        datagram: &[u8],
    ) -> Result<FirstExchange, Conclusion> {
        let Some(nr) = view.nonce().filter(|_| header.spi_r != 0).map(<[u8]>::to_vec) else {
            return Err(Conclusion::Ignore(self));
        };
        let spis = Spis { i: self.link.spis.i, r: header.spi_r };
        let nonces = Nonces { i: &self.nonce, r: &nr };
        let (suite, seed) = match self.seed(header, view, nonces) {
            Ok(seed) => seed,
            Err(Some(error)) => return Err(Conclusion::Fatal(self, error)),
            Err(None) => return Err(Conclusion::Ignore(self)),
        };
        let rounds = match self.rounds(view, &suite) {
            Ok(rounds) => rounds,
            Err(error) => return Err(Conclusion::Fatal(self, error)),
        };
        let keys = match IkeKeys::derive(suite, &seed, nonces, spis) {
            Ok(keys) => keys,
            Err(error) => return Err(Conclusion::Fatal(self, NegotiationError::Crypto(error.to_string()))),
        };
        self.give_up_quick(shared);
        let Self { mut link, how, nonce, request, replaces, .. } = *self;
        link.spis = spis;
        link.fragmentation =
            link.conn.fragmentation.enabled && view.has(NotifyType::Ikev2FragmentationSupported);
        // The digests were made for the header's SPIs (RFC 7296 section 2.23), which for the answer are both.
        // "The IKE initiator MUST check the NAT_DETECTION_SOURCE_IP or NAT_DETECTION_DESTINATION_IP payloads if present" (RFC
        // 7296 section 2.23)
        // "[...] MUST send all subsequent traffic from port 4500" (RFC 7296 section 2.23)
        let nat = view.nat(spis, &link.path);
        // RFC 4555 section 3.3: with MOBIKE, port 4500 from here on, NAT or not, if the peer can.
        // "[...] MUST change to port 4500 if the correspondent also supports both, even if no NAT was detected between them"
        // (RFC 4555 section 3.3)
        let seen_as = view.notify(NotifyType::NatDetectionDestinationIp).map(|n| n.data.clone());
        let before = link.path;
        if nat.any() || link.conn.esp_in_udp.is_forced() || (link.conn.mobility.mobike && nat.supported) {
            link.path = link.natt_path(shared);
        }
        let peer_hashes =
            view.notify(NotifyType::SignatureHashAlgorithms).map(|n| auth::parse_hash_algorithms(&n.data));
        // "The initiator MUST NOT send the modified IKE_AUTH request if the notification was not present." (RFC 6023 section 3) A ticket
        // is of a session that had no CHILD SAs either, or it brings the first back at once.
        let childless = match how {
            How::Resume { .. } => link.conn.is_childless(),
            How::Init { .. } => link.conn.calls_childless() && view.has(NotifyType::ChildlessIkev2Supported),
        };
        Ok(FirstExchange {
            childless,
            channel: Channel::new(keys, true),
            nonce_i: nonce,
            nonce_r: nr,
            request,
            response: datagram.to_vec(),
            rounds,
            nat,
            // A NAT gives every port its own mapping: what was seen of the other one says nothing.
            seen_as: seen_as.filter(|_| link.path == before),
            peer_hashes,
            ticket: match how {
                How::Resume { ticket, .. } => Some(ticket),
                How::Init { .. } => None,
            },
            replaces,
            link,
        })
    }

    /// The exchanges that follow before IKE_AUTH.
    fn rounds(&self, view: View<'_>, suite: &IkeSuite) -> Result<Rounds, NegotiationError> {
        let How::Init { .. } = &self.how else { return Ok(Rounds::default()) };
        let conn = &self.link.conn;
        let ppk = PpkUse::of(view, core::iter::once(conn));
        // A ticket's keys hold what went into those of its session.
        if ppk == PpkUse::No && conn.ppk.required {
            return Err(NegotiationError::Ppk("the peer does not use any"));
        }
        if !suite.additional.is_empty() && !view.has(NotifyType::IntermediateExchangeSupported) {
            let what = "additional key exchanges without IKE_INTERMEDIATE (RFC 9370 section 2.2.1)";
            return Err(NegotiationError::Malformed { exchange: "IKE_SA_INIT", what });
        }
        Ok(Rounds::new(&suite.additional, ppk))
    }

    /// SKEYSEED and the suite; `Err(None)` for an answer that is not worth failing for.
    fn seed(
        &self,
        header: &Header,
        view: View<'_>,
        nonces: Nonces<'_>,
    ) -> Result<(IkeSuite, Secret), Option<NegotiationError>> {
        let malformed = |what| Some(NegotiationError::Malformed { exchange: "IKE_SA_INIT", what });
        match &self.how {
            How::Resume { ticket, dh } => {
                let (prf, secret) = (ticket.suite.prf, &ticket.secret);
                let seed = match ticket.form {
                    Form::Plain => keys::skeyseed_resumed(prf, secret, nonces),
                    Form::Dormouse => {
                        let both = quick::agreed(dh.as_ref(), view).map_err(|_| None)?;
                        let answer = (header, view.0);
                        quick::skeyseed(prf, secret, Pace::Slow, &self.request, answer, both.as_ref())
                            .ok_or(None)?
                    }
                };
                Ok((ticket.suite, seed))
            }
            How::Init { dh, offered, .. } => {
                let (chosen, (group, public)) = view.sa().zip(view.ke()).ok_or(None)?;
                let (suite, _) = proposal::verify_ike(chosen, offered)
                    .map_err(|why| NegotiationError::WrongProposal { what: "IKE", why })?;
                if suite.group != dh.group() || group != dh.group().id() {
                    return Err(malformed("its key exchange group is not that of our request"));
                }
                let secret = dh.agree(public).map_err(|e| NegotiationError::Crypto(e.to_string()))?;
                Ok((suite, keys::skeyseed(suite.prf, nonces, &secret)))
            }
        }
    }
}

enum Conclusion {
    Fatal(Box<Opening>, NegotiationError),
    Ignore(Box<Opening>),
}

fn key_exchange(dh: &DhPrivate) -> Payload {
    Payload::Ke { group: dh.group().id(), data: dh.public_value().to_vec() }
}

fn key_pair(shared: &mut Shared, group: Group) -> Result<DhPrivate, NegotiationError> {
    DhPrivate::generate(group, &mut shared.entropy).map_err(|e| NegotiationError::Crypto(e.to_string()))
}

//! The responder between its first answer and IKE_AUTH. Owns the choice of the connection by identity, the proof in both
//! directions and the answer with the first CHILD SA. Keys are derived when the first protected message comes: a flood of
//! first messages costs no key agreement.

mod begin;
mod eap;
mod first_child;
mod form;
mod how;
mod identify;
mod waiting;

pub(crate) use begin::Wanted;
use eap::Eap;
use first_child::{first_child, install_first};
use form::{check_form, is_childless, wrong_form};
pub(crate) use how::{Exchange, How};
pub(super) use identify::{Caller, Refusal};
pub(crate) use waiting::{Request, Working};

use core::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use dormouse_crypto::Secret;
use dormouse_crypto::cert::Identity;
use dormouse_crypto::sign::SigningKey;
use dormouse_sansio::{Class, Instant, Path};
use dormouse_wire::ike::dormancy::vendor_id;
use dormouse_wire::ike::mlike;
use dormouse_wire::ike::{ExchangeType, Header, Message, NotifyType, Payload};

use crate::action::Action;
use crate::auth::{self, Authentication, Proof, Proving};
use crate::callers::Begin;
use crate::config::{Connection, Ppk};
use crate::config_payload::AssignedConfig;
use crate::config_payload::{self, Lease};
use crate::error::{Discard, NegotiationError};
use crate::event::Event;
use crate::exchange::mobike::addresses_match;
use crate::handshake::authenticating::{announce, nat_after};
use crate::handshake::intermediate::Rounds;
use crate::handshake::intermediate::responder::Answered;
use crate::handshake::lineage::{Pending, former_sessions};
use crate::handshake::quick::{Pace, skeyseed};
use crate::handshake::{Slot, Step};
use crate::keys::{self, IkeKeys, Nonces};
use crate::limits::{self, STORE_PATIENCE};
use crate::link::{Channel, Link};
use crate::natd;
use crate::payloads::{self, View, notify};
use crate::sa::mobility::Mobility;
use crate::sa::{Answer, Birth, IkeSa};
use crate::shared::Shared;
use crate::stats::Kind;
use crate::ticket::Form;
use crate::ticket::lineage::Descent;
use crate::work::Task;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct HalfOpen {
    pub(crate) link: Link,
    pub(crate) how: How,
    /// The exchanges until IKE_AUTH, and the answer to the last of them.
    pub(crate) rounds: Rounds,
    pub(crate) answered: Option<Answered>,
    pub(crate) channel: Option<Channel>,
    pub(crate) nonce_i: Vec<u8>,
    pub(crate) nonce_r: Vec<u8>,
    pub(crate) request: Vec<u8>,
    pub(crate) response: Vec<u8>,
    pub(crate) nat: natd::Detection,
    pub(crate) peer_hashes: Option<Vec<u16>>,
    pub(crate) expires: Instant,
    /// When the first message came, and how many sessions were on their way then, with this one.
    pub(crate) begun: Instant,
    pub(crate) clients: usize,
    /// A request that waits for the status of its certificates, and until when.
    pub(crate) waiting: Option<(Path, Vec<Payload>)>,
    pub(crate) wait_until: Option<Instant>,
    /// What is ordered: one thing at a time.
    pub(crate) work: Working,
    /// The last request was refused with this; repetitions get it again.
    pub(crate) refused: Option<Vec<Vec<u8>>>,
    /// The client has proved that the ticket is its own, and the store is asked whether it counts.
    pub(crate) pending: Option<Box<Pending>>,
    /// The caller proves itself by EAP.
    eap: Option<Box<Eap>>,
}

impl HalfOpen {
    pub(crate) fn expire(self: Box<Self>, shared: &mut Shared) {
        shared.by_spi.remove(&self.link.spis.r);
    }

    pub(crate) fn handle(
        mut self: Box<Self>,
        shared: &mut Shared,
        now: Instant,
        path: Path,
        header: &Header,
        datagram: &mut [u8],
    ) -> Step {
        self.link.stats.received(datagram.len());
        self.take(shared, now, path, header, datagram)
    }

    /// The same, once it is counted.
    fn take(
        mut self: Box<Self>,
        shared: &mut Shared,
        now: Instant,
        path: Path,
        header: &Header,
        datagram: &mut [u8],
    ) -> Step {
        let theirs = !header.flags.response && header.flags.initiator && header.spi_i == self.link.spis.i;
        let intermediate = header.exchange == ExchangeType::IkeIntermediate;
        let next = self.next_id();
        if theirs && header.message_id.checked_add(1) == Some(next) {
            match (header.exchange, &self.eap) {
                (ExchangeType::IkeIntermediate, None) => {
                    return self.repeat_intermediate(shared, path, datagram);
                }
                (ExchangeType::IkeAuth, Some(_)) => return self.repeat_eap(shared, path, datagram),
                _ => {}
            }
        }
        let expected = match header.exchange {
            ExchangeType::IkeAuth => self.rounds.may_authenticate(),
            ExchangeType::IkeIntermediate => self.eap.is_none() && self.rounds.may_go_on(),
            _ => false,
        };
        if !theirs || !expected || header.message_id != next {
            return Step::stay(Slot::HalfOpen(self), Discard::InappropriateExchange);
        }
        if intermediate && self.overfull(datagram) {
            return Step::stay(Slot::HalfOpen(self), Discard::Fragment);
        }
        if self.work.is_under_way() {
            return self.wait(path, datagram);
        }
        if self.waiting.is_some() || self.waits_for_server() {
            return Step::to(Slot::HalfOpen(self));
        }
        // "[...] the Responder SHOULD still keep the computed SK_* keys, so that if it happened to be an attack, then an attacker cannot
        // get an advantage of repeating the attack multiple times on a single IKE SA." (RFC 8019 section 4.6)
        if self.channel.is_none() {
            match self.begin_keys(shared) {
                Ok(Some(channel)) => self.channel = Some(channel),
                Ok(None) => return self.wait(path, datagram),
                Err(error) => return self.fail(shared, &error.to_string()),
            }
        }
        let Some(channel) = self.channel.as_mut() else {
            return Step::stay(Slot::HalfOpen(self), Discard::Malformed);
        };
        if self.pending.is_some() {
            // A repetition: it is answered when the store has answered.
            return Step::to(Slot::HalfOpen(self));
        }
        if let Some(answer) = self.refused.clone() {
            return match channel.is_repetition(datagram) {
                Ok(true) => {
                    self.link.send_by(shared, path, Class::Timely, &answer);
                    Step::to(Slot::HalfOpen(self))
                }
                Ok(false) => Step::to(Slot::HalfOpen(self)),
                Err(discard) => Step::stay(Slot::HalfOpen(self), discard),
            };
        }
        match channel.open_recorded(now, datagram) {
            Err(discard) => Step::stay(Slot::HalfOpen(self), discard),
            Ok(None) => Step::to(Slot::HalfOpen(self)),
            Ok(Some((opened, octets))) if intermediate => {
                self.answer_intermediate(shared, path, (opened, octets))
            }
            Ok(Some((Ok(payloads), _))) => self.authenticate(shared, now, path, &payloads),
            Ok(Some((Err(_), _))) => {
                let what = "authentic but malformed";
                let error = NegotiationError::Malformed { exchange: "IKE_AUTH", what };
                self.refuse(shared, path, None, notify(NotifyType::InvalidSyntax, []), error)
            }
        }
    }

    /// The keys of the first messages, with the secret of their key exchange, if there was one.
    fn derive(&self, agreed: Option<&Secret>) -> Result<Channel, dormouse_crypto::Error> {
        let failed = dormouse_crypto::Error::Backend { operation: "key exchange" };
        let nonces = Nonces { i: &self.nonce_i, r: &self.nonce_r };
        let (suite, seed) = match &self.how {
            How::Init { suite, .. } => (*suite, keys::skeyseed(suite.prf, nonces, agreed.ok_or(failed)?)),
            How::Resume { ticket, .. } => {
                let (prf, secret) = (ticket.suite.prf, &ticket.secret);
                let seed = match ticket.form {
                    Form::Plain => keys::skeyseed_resumed(prf, secret, nonces),
                    Form::Dormouse => {
                        let answer = Message::parse(&self.response).map_err(|_| failed.clone())?;
                        let answer = (&answer.header, answer.payloads.as_slice());
                        skeyseed(prf, secret, Pace::Slow, &self.request, answer, agreed).ok_or(failed)?
                    }
                };
                (ticket.suite, seed)
            }
        };
        Ok(Channel::new(IkeKeys::derive(suite, &seed, nonces, self.link.spis)?, false))
    }

    /// Answers with an error and keeps the answer for repetitions until the half-open SA expires.
    /// "All errors causing the authentication to fail for whatever reason [...] SHOULD result in an AUTHENTICATION_FAILED
    /// notification" (RFC 7296 section 2.21.2)
    fn refuse(
        self: Box<Self>,
        shared: &mut Shared,
        path: Path,
        claimed: Option<Identity>,
        refusal: Payload,
        error: NegotiationError,
    ) -> Step {
        self.refuse_with(shared, path, ExchangeType::IkeAuth, claimed, &[refusal], error)
    }

    /// The same, with what the error is to the caller.
    fn refuse_admission(
        self: Box<Self>,
        shared: &mut Shared,
        path: Path,
        claimed: Option<Identity>,
        error: NegotiationError,
    ) -> Step {
        self.refuse(shared, path, claimed, notify(error.told(), []), error)
    }

    pub(super) fn refuse_with(
        self: Box<Self>,
        shared: &mut Shared,
        path: Path,
        exchange: ExchangeType,
        claimed: Option<Identity>,
        refusal: &[Payload],
        error: NegotiationError,
    ) -> Step {
        tracing::debug!(%path, claimed = claimed.as_ref().map(tracing::field::display), %error, "refused");
        shared.event(Event::PeerFailed { path, claimed, error });
        self.answer_refused(shared, path, exchange, refusal)
    }

    /// The same, of which the driver has heard.
    fn answer_refused(
        mut self: Box<Self>,
        shared: &mut Shared,
        path: Path,
        exchange: ExchangeType,
        refusal: &[Payload],
    ) -> Step {
        let header = self.link.header(exchange, true, self.next_id());
        if let Some(channel) = self.channel.as_mut() {
            let datagrams = channel.seal(&self.link, shared, &header, refusal);
            self.link.send_by(shared, path, Class::Timely, &datagrams);
            self.refused = Some(datagrams);
        }
        Step::to(Slot::HalfOpen(self))
    }

    fn authenticate(
        mut self: Box<Self>,
        shared: &mut Shared,
        now: Instant,
        path: Path,
        payloads: &[Payload],
    ) -> Step {
        if self.converses() {
            return self.converse(shared, now, path, payloads);
        }
        let last = payloads;
        let whole = self.with_first(last);
        let payloads = whole.as_deref().unwrap_or(payloads);
        let view = View(payloads);
        let claimed = self.claimed(view);
        if let Err((refusal, what)) = check_form(payloads, shared.config.has_childless()) {
            let error = NegotiationError::Malformed { exchange: "IKE_AUTH", what };
            return self.refuse(shared, path, claimed, refusal, error);
        }
        if self.proposes_eap(view) {
            return self.begin_eap(shared, now, path, payloads);
        }
        let caller = match self.identify(shared, now, payloads) {
            Ok(Some(caller)) => caller,
            Ok(None) => {
                self.wait_until.get_or_insert(now + limits::REVOCATION_WAIT);
                self.waiting = Some((path, last.to_vec()));
                return Step::to(Slot::HalfOpen(self));
            }
            Err(Refusal { kind, error }) => {
                return self.refuse(shared, path, claimed, notify(kind, []), error);
            }
        };
        // "[...] MUST process a modified IKE_AUTH request, and MUST reply with a modified IKE_AUTH response" (RFC 6023 section 3)
        // "[...] MUST NOT reply with a modified IKE_AUTH response if the initiator did not send a modified IKE_AUTH request" (RFC 6023
        // section 3)
        // "[...] it SHOULD reply with an INVALID_SYNTAX Notify payload if the client sends an IKE_AUTH request that is modified as described
        // in Section 5" (RFC 6023 section 3): where the connection makes its CHILD SA at once.
        if let Some(what) = wrong_form(&caller.conn, &self.how, is_childless(view)) {
            let error = NegotiationError::Malformed { exchange: "IKE_AUTH", what };
            return self.refuse(shared, path, claimed, notify(NotifyType::InvalidSyntax, []), error);
        }
        // "The exchange responder MUST verify that the contents of the NO_NATS_ALLOWED notification match the addresses in the IP
        // header. If they do not match, a response containing an UNEXPECTED_NAT_DETECTED notification is sent." (RFC 4555
        // section 3.9, of the first IKE_AUTH request too)
        if caller.conn.mobility.mobike && !addresses_match(view, &path) {
            let error = NegotiationError::Notified("UNEXPECTED_NAT_DETECTED (our answer)".to_owned());
            return self.refuse(shared, path, claimed, notify(NotifyType::UnexpectedNatDetected, []), error);
        }
        // RFC 7296 section 2.23: the initiator may have moved to port 4500 with this message.
        self.link.path = path;
        self.link.conn = caller.conn.clone();
        let proof = match std::mem::replace(&mut self.work, Working::Not) {
            Working::Signed(result) => result.map(Proving::Done).map_err(auth::AuthError::from),
            _ => {
                if matches!(self.how, How::Init { .. })
                    && let Err(refusal) =
                        shared.callers.begin(&caller.conn, &caller.identity, Begin::Login, now)
                {
                    return self.refuse_admission(shared, path, claimed, refusal.into());
                }
                self.prove(&caller, shared.config.beside.sign)
            }
        };
        let proof = match proof {
            Ok(Proving::Done(proof)) => proof,
            Ok(Proving::Sign(order)) => {
                if let Err(refusal) = shared.callers.wait(self.link.id, &caller.conn, &caller.identity, false)
                {
                    return self.refuse_admission(shared, path, claimed, refusal.into());
                }
                self.waiting = Some((path, last.to_vec()));
                self.order(shared, Task::Sign(order), Working::Signing);
                return Step::to(Slot::HalfOpen(self));
            }
            Err(error) => return self.refuse_admission(shared, path, claimed, error.into()),
        };
        if let (Some(ppk), Some(channel)) = (&caller.ppk, self.channel.as_mut())
            && let Err(error) = channel.mix(&ppk.secret)
        {
            return self.refuse_admission(shared, path, claimed, NegotiationError::Crypto(error.to_string()));
        }
        let How::Resume { ticket, .. } = &self.how else {
            let descent = Descent::begin(&mut shared.entropy);
            return match self.asks_for_room(shared, now, &caller, &descent, view.lineage()) {
                Ok(true) => self.pend(now, payloads.to_vec(), caller, proof, descent),
                Ok(false) => self.establish(shared, now, view, caller, proof, descent),
                Err(refusal) => self.refuse_admission(shared, path, claimed, refusal.into()),
            };
        };
        if let Err(refusal) = shared.callers.wait(self.link.id, &caller.conn, &caller.identity, true) {
            return self.refuse_admission(shared, path, claimed, refusal.into());
        }
        let descent = Descent::resume(&mut shared.entropy, ticket.lineage, ticket.own, ticket.before);
        shared.event(Event::Store(descent.confirm(self.link.id)));
        self.pend(now, payloads.to_vec(), caller, proof, descent)
    }

    /// Waits for the store.
    fn pend(
        mut self: Box<Self>,
        now: Instant,
        payloads: Vec<Payload>,
        caller: Caller,
        proof: Authentication,
        descent: Descent,
    ) -> Step {
        let by = now + STORE_PATIENCE;
        self.pending = Some(Box::new(Pending { by, payloads, caller, proof, descent }));
        Step::to(Slot::HalfOpen(self))
    }

    /// Our own proof.
    fn prove(&self, caller: &Caller, beside: fn(&SigningKey) -> bool) -> Result<Proving, auth::AuthError> {
        let Some(channel) = &self.channel else { return Err(auth::AuthError::NoCertificate) };
        let prf = channel.suite.prf;
        let with_ppk = |ppk: &Arc<Ppk>| keys::with_ppk(prf, &ppk.secret, &channel.sk_pr);
        let with_ppk = caller.ppk.as_ref().map(with_ppk).transpose()?;
        let proof = Proof {
            prf,
            sk_p: with_ppk.as_ref().unwrap_or(&channel.sk_pr),
            message: &self.response,
            nonce: &self.nonce_i,
            id: &caller.session.id_r,
            int_auth: &self.rounds.int_auth(),
        };
        match (&self.how, self.eap_key()) {
            (_, Some(msk)) => Ok(Proving::Done(auth::authenticate_eap(&proof, msk))),
            (How::Resume { .. }, None) => {
                let authentication = auth::authenticate_resumption(&proof, caller.conn.resumption.mode);
                Ok(Proving::Done(authentication))
            }
            (How::Init { .. }, None) => {
                auth::authenticate(&proof, &caller.conn.local_auth, self.peer_hashes.as_deref(), beside)
            }
        }
    }

    pub(super) fn establish(
        self: Box<Self>,
        shared: &mut Shared,
        now: Instant,
        view: View<'_>,
        caller: Caller,
        proof: Authentication,
        descent: Descent,
    ) -> Step {
        let (id, fixed) = (self.next_id(), self.granted().address);
        let Self { link, how, channel, nonce_i, nonce_r, nat, begun, clients, eap, .. } = *self;
        let Some(channel) = channel else { return Step::gone() };
        let Caller { conn, identity, session, ppk } = caller;
        let resumed = matches!(how, How::Resume { .. });
        let mut list = Vec::new();
        if eap.is_none() {
            list.push(Payload::IdR(session.id_r.clone()));
        }
        // "A CERT payload MUST NOT be included in this exchange" (RFC 5723 section 4.3.3)
        if !resumed && eap.is_none() {
            list.extend(auth::cert_payloads(&conn.local_auth));
        }
        list.push(proof.into());
        list.extend(ppk.map(|_| notify(NotifyType::PpkIdentity, [])));
        let kept = match &how {
            How::Resume { ticket, .. } => ticket.addresses.as_slice(),
            How::Init { .. } => &[],
        };
        let lineage = Some(descent.lineage);
        let held = shared.callers.held_by_another(&conn, &identity, lineage, kept.iter().copied());
        let kept = if held.is_none() { kept } else { &[] };
        // "[...] it prevents the creation of a CHILD SA and sends the REDIRECT payload in the IKE_AUTH response. The gateway MUST verify the
        // client's AUTH payload before sending the REDIRECT payload" (RFC 5685 section 6)
        // "[...] the gateway MUST send the REDIRECT Notify payload in either the first or the last IKE_AUTH response." (RFC 5685 section 6)
        let away = conn.answering.redirect_to.clone().filter(|_| link.redirects);
        let (assigned, cp, no_address) = match &away {
            Some(_) => Default::default(),
            None => assign(shared, &conn, &identity, view, kept, fixed, false),
        };
        list.extend(cp);
        shared.await_lease(link.id, &assigned);
        let mobike = conn.mobility.mobike && view.has(NotifyType::MobikeSupported);
        let told = payloads::other_addresses(shared.addresses_of(&conn), &link.path);
        let birth = Birth {
            session,
            peer: identity,
            client: false,
            assigned,
            mobility: Mobility::new(&conn, mobike, nat_after(&conn, resumed, nat), None, told),
            dormancy: if conn.dormancy { view.dormancy() } else { 0 },
            mlike: conn.has_zones() && view.mlike(),
            owners: offers_takeover(shared, &conn, view),
            descent: Some(descent),
            next_ids: (0, id + 1),
            link,
            channel,
        };
        let mut sa = Box::new(IkeSa::new(shared, now, birth));
        sa.claim_hosts(shared);
        sa.core.note_window(view);
        let childless = is_childless(view);
        let agreed = match no_address {
            // There is no CHILD SA to refuse for it yet.
            Some(refusal) if !(childless && refusal.kind == NotifyType::FailedCpRequired) => Err(refusal),
            _ if childless || away.is_some() => Ok(None),
            Some(refusal) => Err(refusal),
            None => first_child(shared, &sa, &conn, view, &mut list).map(Some),
        };
        list.extend(away.map(|to| Payload::Notify(to.redirect(&[]))));
        announce(shared, &sa, resumed, None);
        sa.hear_addresses(shared, view);
        let nonces = Nonces { i: &nonce_i, r: &nonce_r };
        list.extend(install_first(&mut sa, shared, now, agreed, nonces));
        if !resumed {
            former_sessions(shared, &sa, view);
        }
        // "[...] the proper IKE response (e.g., an IKE_AUTH response or an error notification) MUST be sent" (RFC 5723 section
        // 4.1): also without a ticket.
        list.extend(answer_extensions(shared, now, &mut sa, view));
        sa.record_session(shared, now);
        let by = sa.core.id();
        shared.actions.push_back(match resumed {
            true => Action::Resumed { by },
            false => Action::FullyAuthenticated { by, alone: view.has(NotifyType::InitialContact) },
        });
        sa.answer_auth(shared, now, id, list);
        let unix = shared.unix(now);
        shared.load.record(unix, clients, now - begun);
        Step::to(Slot::Established(sa))
    }
}

/// Leases what the peer asks for; see [`config_payload::AddressPool::lease`]. The refusal, if any, is of the CHILD SA alone.
/// "The responder MUST NOT send a CFG_REPLY without having first received a CP(CFG_REQUEST) from the initiator" (RFC 7296
/// section 2.19)
/// "[...] IRAS MUST fail the request, and terminate the Child SA creation with a FAILED_CP_REQUIRED error" (RFC 7296 section
/// 2.19)
pub(crate) fn assign(
    shared: &mut Shared,
    conn: &Connection,
    peer: &Identity,
    view: View<'_>,
    kept: &[IpAddr],
    fixed: Option<Ipv4Addr>,
    tentative: bool,
) -> (AssignedConfig, Option<Payload>, Option<Refusal>) {
    let nothing = AssignedConfig::default;
    let request = view.cp().and_then(|cp| config_payload::parse_request(cp).map(|r| (cp, r)));
    let Some((cp, mut request)) = request else {
        let refusal = (!conn.answering.policy.pool.is_empty()).then_some(Refusal {
            kind: NotifyType::FailedCpRequired,
            error: NegotiationError::Addresses("the peer did not ask for one (CFG_REQUEST)"),
        });
        return (nothing(), None, refusal);
    };
    (request.kept, request.fixed, request.tentative) = (kept.to_vec(), fixed, tentative);
    let pool = shared.config.pool.as_mut().filter(|_| !conn.answering.policy.pool.is_empty());
    let lease = pool.map_or_else(Lease::default, |pool| pool.lease(conn, peer, &request));
    let asked = (request.v4 || request.v6) && !conn.answering.policy.pool.is_empty();
    if asked && lease == Lease::default() {
        let error = NegotiationError::Addresses(
            "the pool has none left for this peer: all are in use; a larger pool.addresses (or fewer sessions of one identity) helps",
        );
        return (nothing(), None, Some(Refusal { kind: NotifyType::InternalAddressFailure, error }));
    }
    let (reply, assigned) = config_payload::reply(cp, lease, &conn.answering.offer);
    (assigned, Some(Payload::Cp(reply)), None)
}

/// Whether other gateways may take the SA over, as its peer lets message ids be set anew: none has had it yet. One of ours comes back by its ticket.
/// "When negotiating these capabilities, the responder MUST NOT assert support of a capability unless such support was asserted by the
/// initiator." (RFC 6311 section 5)
fn offers_takeover(shared: &Shared, conn: &Connection, view: View<'_>) -> Option<u16> {
    let ours = conn.dormancy && view.dormancy() > 0 || conn.has_zones() && view.mlike();
    let offered = view.has(NotifyType::Ikev2MessageIdSyncSupported);
    (shared.config.takeover && offered && !ours).then_some(0)
}

/// The notifications of the IKE_AUTH answer.
pub(crate) fn answer_extensions(
    shared: &mut Shared,
    now: Instant,
    sa: &mut IkeSa,
    view: View<'_>,
) -> Vec<Payload> {
    let mut list = Vec::new();
    if sa.mobility.mobike() {
        // "Implementations that wish to use MOBIKE for a particular IKE_SA MUST include a MOBIKE_SUPPORTED notification in the
        // IKE_AUTH exchange" (RFC 4555 section 3.2)
        list.push(notify(NotifyType::MobikeSupported, []));
        list.extend(payloads::told_addresses(sa.mobility.told()));
    }
    // "The 'Protocol ID' MUST be set to 0, since the notification is not specific to a particular security association." (RFC 6311 section
    // 6.1)
    if sa.owners.is_some() {
        list.push(notify(NotifyType::Ikev2MessageIdSyncSupported, []));
    }
    if shared.config.window > 1 {
        let window = shared.config.window.min(crate::window::MAX_WINDOW);
        list.push(notify(NotifyType::SetWindowSize, window.to_be_bytes()));
    }
    list.extend(sa.lifetime_payload(shared, now));
    list.extend(sa.answer_ticket_request(shared, now, view).into_iter().flatten());
    if sa.dormancy.is_open() {
        list.push(vendor_id());
        list.push(shared.load_payload(now));
    }
    if sa.mlike {
        list.push(mlike::vendor_id(None));
    }
    list
}

impl IkeSa {
    /// Sends the answer to IKE_AUTH and keeps it for repetitions.
    fn answer_auth(&mut self, shared: &mut Shared, now: Instant, id: u32, list: Vec<Payload>) {
        let (path, core) = (self.core.link.path, &mut self.core);
        let sent = core.answer(shared, now, path, ExchangeType::IkeAuth, id, &Answer::of(Kind::Auth, list));
        core.answers.remember(id, sent);
    }
}

//! The initiator's IKE_AUTH (RFC 7296 section 1.2, RFC 5723 section 4.3.3). Owns the proof in both directions and the first
//! CHILD SA's offer; what it ends in is an [`IkeSa`] or one precise error.

mod eap;
mod verify;

use std::sync::Arc;

use dormouse_sansio::{Class, Instant, Path};
use dormouse_wire::ike::dormancy::vendor_id;
use dormouse_wire::ike::mlike;
use dormouse_wire::ike::{
    AuthMethod, ExchangeType, Header, Id, NotifyType, Payload, PayloadType, unsupported_critical,
};

use crate::auth::{self, AuthError, Authentication, Proving};
use crate::child::offer::ChildOffer;
use crate::child::{Agreed, Dynamic, Inner};
use crate::config::{Connection, LocalAuth, RemoteAuth, Resumption};
use crate::config_payload;
use crate::config_payload::AssignedConfig;
use crate::credential::Shown;
use crate::error::{Discard, NegotiationError};
use crate::event::{Established, Event};
use crate::exchange::child::CreateChild;
use crate::handshake::intermediate::{Rounds, ppk_id};
use crate::handshake::proving::{FirstExchange, Signing};
use crate::handshake::{Slot, Step, follow_path, send_what_is_due};
use crate::keys::Nonces;
use crate::limits;
use crate::link::{Channel, Link};
use crate::mlike::Offered;
use crate::natd;
use crate::payloads::{self, View, notify};
use crate::proposal::KeyExchange;
use crate::redirect;
use crate::sa::install::Origin;
use crate::sa::mobility::Mobility;
use crate::sa::{Birth, IkeSa};
use crate::session::Session;
use crate::shared::Shared;
use crate::stats::Kind;
use crate::ticket::ClientTicket;
use crate::transport::Ends;
use crate::window::Outgoing;
use crate::work::{Rank, Task};
use dormouse_keying::SaId;
use eap::Conversation;
use verify::{Proved, Unproven};

/// Waiting for the answer to IKE_AUTH.
#[derive(Debug)]
pub(crate) struct Authenticating {
    pub(crate) link: Link,
    pub(crate) channel: Channel,
    first: Secrets,
    pub(crate) offer: ChildOffer,
    pub(crate) out: Outgoing<()>,
    /// An answer that waits for the status of its certificates, and until when.
    waiting: Option<Vec<Payload>>,
    wait_until: Option<Instant>,
    /// Our proof by EAP.
    eap: Option<Box<Conversation>>,
}

/// What of [`FirstExchange`] the answer to IKE_AUTH needs.
#[derive(Debug)]
struct Secrets {
    nonce_i: Vec<u8>,
    nonce_r: Vec<u8>,
    request: Vec<u8>,
    response: Vec<u8>,
    rounds: Rounds,
    nat: natd::Detection,
    seen_as: Option<Vec<u8>>,
    ticket: Option<Box<ClientTicket>>,
    replaces: Option<SaId>,
    childless: bool,
    id_i: Id,
}

impl Authenticating {
    /// Sends the IKE_AUTH request once all `proofs` that belong into it are there, or waits for the next. `None`: our key cannot sign in a
    /// way that the peer takes, so the request would only show who we are; the attempt has failed.
    pub(crate) fn begin(
        shared: &mut Shared,
        now: Instant,
        first: FirstExchange,
        mut proofs: Vec<Authentication>,
    ) -> Option<Slot> {
        if first.link.conn.requires_childless() && !first.childless && first.ticket.is_none() {
            give_up(shared, &first.link, NegotiationError::Childless);
            return None;
        }
        if first.is_by_eap() && !matches!(first.link.conn.remote_auth, RemoteAuth::Cert { .. }) {
            // "[...] MUST be used in conjunction with a public-key-signature-based authentication of the responder to the initiator" (RFC 7296
            // section 2.16)
            let error = AuthError::Method { got: "a pre-shared key".to_owned(), expected: "a certificate" };
            give_up(shared, &first.link, error.into());
            return None;
        }
        while let Some(proving) = first.prove(proofs.len()) {
            match proving {
                Ok(Proving::Done(proof)) => proofs.push(proof),
                Ok(Proving::Sign(order)) => {
                    let caller = first.link.path.local.ip();
                    shared.works.order(first.link.id, Rank::Known, caller, Task::Sign(order));
                    let until = now + limits::SIGNING_WAIT;
                    return Some(Slot::Signing(Box::new(Signing { first, proofs, until })));
                }
                Err(error) => {
                    give_up(shared, &first.link, NegotiationError::CannotSign(Box::new(error)));
                    return None;
                }
            }
        }
        Some(Slot::Authenticating(Box::new(Self::send(shared, now, first, proofs))))
    }

    fn send(shared: &mut Shared, now: Instant, first: FirstExchange, proofs: Vec<Authentication>) -> Self {
        let mut proofs = proofs.into_iter();
        let id_i = first.id_i();
        let alone = first.is_alone();
        let ppk_used = first
            .ppk()
            .filter(|_| !first.is_by_eap())
            .map(|ppk| notify(NotifyType::PpkIdentity, ppk_id(ppk)));
        let FirstExchange {
            mut link,
            mut channel,
            nonce_i,
            nonce_r,
            request,
            response,
            rounds,
            nat,
            seen_as,
            peer_hashes: _,
            ticket,
            replaces,
            childless,
        } = first;
        let conn = link.conn.clone();
        let (want, local) = (conn.request, link.path.local.ip());
        let inner = if want.v4 || want.v6 { Inner::Asked(want) } else { Inner::Known(vec![local]) };
        let dynamic = Dynamic { local: inner, remote: Inner::Known(vec![link.path.remote.ip()]) };
        let ends = Ends::of(&link.path, nat_after(&conn, ticket.is_some(), nat));
        let offer = ChildOffer::new(shared, &conn, 0, &dynamic, ends, KeyExchange::Never)
            .unwrap_or_else(|| ChildOffer::nothing(shared));
        let mut list = vec![Payload::IdI(id_i.clone())];
        // "A CERT payload MUST NOT be included in this exchange" (RFC 5723 section 4.3.3)
        if ticket.is_none() {
            list.extend(auth::cert_payloads(&conn.local_auth));
            if conn.initial_contact && replaces.is_none() {
                // "This notification, if sent, MUST be in the first IKE_AUTH request or response" (RFC 7296 section 2.4)
                list.push(notify(NotifyType::InitialContact, []));
            }
            if let Some(lineage) =
                shared.former.lineages.get(&conn.name).filter(|_| replaces.is_none() && conn.dormancy)
            {
                list.push(notify(NotifyType::DormancyLineage, lineage.0));
            }
            list.extend(auth::certreq_payload(&conn.remote_auth));
        }
        let id_r = ticket.as_ref().map(|t| t.id_r.clone());
        list.extend(id_r.or_else(|| conn.remote_id.exact().map(auth::id_payload)).map(Payload::IdR));
        list.extend(proofs.next().map(Payload::from));
        if want.any() {
            // "In all cases, the CP payload MUST be inserted before the SA payload." (RFC 7296 section 2.19)
            // "[...] the IRAC MUST request the IRAS-controlled address" (RFC 7296 section 2.19)
            let before = ticket.as_ref().map_or(&[][..], |t| t.addresses.as_slice());
            list.push(Payload::Cp(config_payload::request(want, before)));
        }
        if !childless {
            list.extend(offer.payloads(Vec::new()));
        }
        list.extend(extensions(shared, &conn, &link, offer.zones.as_ref()));
        // RFC 5998, section 3.
        list.extend(alone.then(|| notify(NotifyType::EapOnlyAuthentication, [])));
        // "[...] if using PPKs for communication with this responder is optional for the initiator [...] then the initiator MUST include a
        // NO_PPK_AUTH notification in the above message" (RFC 8784 section 3)
        list.extend(ppk_used);
        list.extend(proofs.next().map(|without| notify(NotifyType::NoPpkAuth, without.data)));
        let header = link.header(ExchangeType::IkeAuth, false, rounds.next_id());
        let datagrams = channel.seal(&link, shared, &header, &list);
        link.send(shared, Class::Urgent, &datagrams);
        link.stats.begin(Kind::Auth);
        shared.stats.begin(Kind::Auth);
        let (wait, until) = (link.wait(shared, 1), now + link.patience(shared));
        let mut out = Outgoing::new(rounds.next_id());
        out.start(now, wait, until, datagrams, Class::Urgent, ());
        let first = Secrets {
            nonce_i,
            nonce_r,
            request,
            response,
            rounds,
            nat,
            seen_as,
            ticket,
            replaces,
            childless,
            id_i,
        };
        Self { link, channel, first, offer, out, waiting: None, wait_until: None, eap: None }
    }

    pub(crate) fn set_path(&mut self, shared: &mut Shared, now: Instant, path: Path) {
        follow_path(&mut self.link, &mut self.out, shared, now, path);
    }

    pub(crate) fn handle_timeout(
        mut self: Box<Self>,
        shared: &mut Shared,
        now: Instant,
    ) -> Option<Box<Self>> {
        if let Some(error) = send_what_is_due(&mut self.link, &mut self.out, shared, now, "IKE_AUTH") {
            let error = self.unanswered(error);
            self.fail(shared, error);
            return None;
        }
        Some(self)
    }

    fn fail(self: Box<Self>, shared: &mut Shared, error: NegotiationError) {
        shared.free_esp_spi(self.offer.spi_in);
        give_up(shared, &self.link, error);
    }

    pub(crate) fn waits_until(&self) -> Option<Instant> {
        self.waiting.is_some().then_some(self.wait_until).flatten()
    }

    /// The status of a certificate may be known now, or the time for it is over.
    pub(crate) fn go_on(mut self: Box<Self>, shared: &mut Shared, now: Instant) -> Step {
        match self.waiting.take() {
            Some(payloads) => self.conclude(shared, now, payloads),
            None => Step::to(Slot::Authenticating(self)),
        }
    }

    pub(crate) fn handle(
        mut self: Box<Self>,
        shared: &mut Shared,
        now: Instant,
        header: &Header,
        datagram: &mut [u8],
    ) -> Step {
        self.link.stats.received(datagram.len());
        if !self.link.awaits(header, ExchangeType::IkeAuth, self.id()) {
            return Step::stay(Slot::Authenticating(self), Discard::InappropriateExchange);
        }
        if self.waiting.is_some() {
            return Step::to(Slot::Authenticating(self));
        }
        let opened = match self.channel.open(now, datagram) {
            Err(discard) => return Step::stay(Slot::Authenticating(self), discard),
            Ok(None) => return Step::to(Slot::Authenticating(self)),
            Ok(Some(opened)) => opened,
        };
        self.link.stats.round_trips += 1;
        shared.stats.round_trips += 1;
        let payloads = match opened {
            Ok(payloads) => payloads,
            Err(error) => {
                tracing::warn!(sa = %self.link.id, %error, "malformed IKE_AUTH answer");
                let what = "authentic but malformed";
                self.fail(shared, NegotiationError::Malformed { exchange: "IKE_AUTH", what });
                return Step::gone();
            }
        };
        if unsupported_critical(&payloads).is_some() {
            // "[...] the message MUST be rejected" (RFC 7296 section 2.5).
            let what = "a critical payload that is not supported";
            self.fail(shared, NegotiationError::Malformed { exchange: "IKE_AUTH", what });
            return Step::gone();
        }
        let key = self.eap.as_ref().map(|eap| eap.msk.is_some());
        if key == Some(false) {
            return self.converse(shared, now, &payloads);
        }
        // In the first answer to a user of EAP nothing is known of a PPK yet.
        let last = key == Some(true) || self.login().is_none();
        if last && let Err(error) = self.mix_ppk(View(&payloads)) {
            self.tell_unbelieved(shared);
            self.fail(shared, error);
            return Step::gone();
        }
        self.conclude(shared, now, payloads)
    }

    fn conclude(mut self: Box<Self>, shared: &mut Shared, now: Instant, payloads: Vec<Payload>) -> Step {
        match self.verify(shared, now, &payloads) {
            Ok(proved) if self.login().is_some() && self.eap.is_none() => {
                self.begin_eap(shared, now, &payloads, proved)
            }
            Ok(proved) => self.establish(shared, now, View(&payloads), proved),
            Err(Unproven::Waits) => {
                self.wait_until.get_or_insert(now + limits::REVOCATION_WAIT);
                self.waiting = Some(payloads);
                Step::to(Slot::Authenticating(self))
            }
            Err(Unproven::Refused(error)) => {
                self.fail(shared, error);
                Step::gone()
            }
            Err(Unproven::Unbelieved(error)) => {
                self.tell_unbelieved(shared);
                self.fail(shared, error);
                Step::gone()
            }
        }
    }

    /// RFC 7296 section 2.21.2: the initiator tells the responder that it does not believe it, in an INFORMATIONAL request.
    fn tell_unbelieved(&mut self, shared: &mut Shared) {
        let header = self.link.header(ExchangeType::Informational, false, self.id() + 1);
        let list = [notify(NotifyType::AuthenticationFailed, [])];
        let datagrams = self.channel.seal(&self.link, shared, &header, &list);
        self.link.send(shared, Class::Timely, &datagrams);
    }

    /// "[...] the initiator MUST NOT fail the authentication because of this" (RFC 7296 section 2.21.2)
    fn establish(
        self: Box<Self>,
        shared: &mut Shared,
        now: Instant,
        view: View<'_>,
        Proved { id_r, vouched_until, credential, inside: _ }: Proved,
    ) -> Step {
        let id = self.id();
        let Self { link, channel, first, offer, .. } = *self;
        let conn = link.conn.clone();
        let resumed = first.ticket.is_some();
        let authenticated = first.ticket.as_ref().map_or_else(|| shared.unix(now), |t| t.authenticated);
        let peer = auth::identity(&id_r).unwrap_or_else(|_| conn.local_id.clone());
        let assigned = view.cp().and_then(config_payload::parse_reply).unwrap_or_default();
        let mobike = conn.mobility.mobike && view.has(NotifyType::MobikeSupported);
        let nat = nat_after(&conn, resumed, first.nat);
        let told = payloads::other_addresses(&conn.mobility.additional_addresses, &link.path);
        let birth = Birth {
            session: Session {
                id_i: first.id_i,
                id_r,
                method: own_method(&conn),
                authenticated,
                vouched_until,
                credential,
            },
            peer,
            client: true,
            assigned,
            mobility: Mobility::new(&conn, mobike, nat, first.seen_as, told),
            dormancy: if conn.dormancy { view.dormancy() } else { 0 },
            mlike: conn.has_zones() && view.mlike(),
            owners: None,
            descent: None,
            next_ids: (id + 1, 0),
            link,
            channel,
        };
        let mut sa = Box::new(IkeSa::new(shared, now, birth));
        sa.core.note_window(view);
        let nonces = Nonces { i: &first.nonce_i, r: &first.nonce_r };
        let origin = Origin { nonces, secrets: &[], we_began: true, replaces: None, receives_only: false };
        // "When the client receives the IKE_AUTH response with the REDIRECT payload, it SHOULD delete the IKEv2 security association with the
        // gateway by sending an INFORMATIONAL message with a DELETE payload." (RFC 5685 section 6)
        // "It MUST NOT accept the REDIRECT notification in an intermediate IKE_AUTH response." (RFC 5685 section 6): this is the last one.
        let stays = redirect::later(view, &conn, redirect::same_name(shared, &conn)).map_or(Ok(()), Err);
        let served = stays.and_then(|()| check_addresses(&conn, &sa.core.assigned, view));
        let agreed = served.and_then(|()| match first.childless {
            true if conn.is_childless() && !sa.mlike => Err(NegotiationError::Zones(
                "this connection is for keys of headers, and the peer exchanges none with us",
            )),
            true if view.error().is_none() => Ok(None),
            _ => accept_first(&offer, sa.mlike, view).map(Some),
        });
        let agreed = match agreed {
            Ok(agreed) => agreed,
            Err(error) => {
                // The IKE SA stands (RFC 7296 section 2.21.2), and is of no use without its CHILD SA.
                shared.free_esp_spi(offer.spi_in);
                tracing::debug!(sa = %sa.core.id(), %error, "connecting failed");
                shared.event(Event::Failed { sa: sa.core.id(), error });
                sa.dismiss(shared, now);
                return Step::to(Slot::Established(sa));
            }
        };
        announce(shared, &sa, resumed, first.replaces);
        sa.hear_addresses(shared, view);
        match agreed.map(|agreed| sa.install(shared, now, agreed, &origin)) {
            None => shared.free_esp_spi(offer.spi_in),
            Some(Ok(_)) => {}
            Some(Err(error)) => shared.event(Event::ChildFailed { sa: sa.core.id(), error }),
        }
        sa.take_lifetime(shared, now, view);
        sa.take_ticket(shared, now, view, 0);
        sa.take_load(shared, view);
        sa.upkeep.replaces(first.replaces);
        for config in usize::from(!first.childless)..conn.children.len() {
            sa.enqueue(CreateChild::missing(config), now);
        }
        sa.pump(shared, now);
        Step::to(Slot::Established(sa))
    }
}

/// Reads the answer to the offer of the first CHILD SA. A private payload means nothing from a peer that has not sent the vendor id.
fn accept_first(offer: &ChildOffer, mlike: bool, view: View<'_>) -> Result<Agreed, NegotiationError> {
    if mlike {
        return offer.accept(view);
    }
    let private = |p: &Payload| p.kind() == PayloadType::ZoneMap;
    let known: Vec<Payload> = view.0.iter().filter(|p| !private(p)).cloned().collect();
    offer.accept(View(&known))
}

/// How we authenticated, or would.
pub(crate) fn own_method(conn: &Connection) -> AuthMethod {
    match conn.local_auth {
        LocalAuth::Psk(_) | LocalAuth::Eap(_) => AuthMethod::SharedKeyMic,
        LocalAuth::Cert { .. } => AuthMethod::DigitalSignature,
    }
}

/// libreswan ignores NAT detection in IKE_SESSION_RESUME and sends raw ESP afterwards.
/// "The client's NAT traversal status SHOULD be determined anew in IKE_SESSION_RESUME." (RFC 5723 section 4.3.2)
pub(crate) fn nat_after(conn: &Connection, resumed: bool, nat: natd::Detection) -> natd::Detection {
    if resumed && conn.resumption.mode == Resumption::Libreswan {
        return natd::Detection { supported: nat.supported, local: false, remote: false };
    }
    nat
}

pub(crate) fn announce(shared: &mut Shared, sa: &IkeSa, resumed: bool, replaced: Option<SaId>) {
    let IkeSa { core, mobility, dormancy, .. } = sa;
    let path = core.link.path;
    // Who copied a request can have tentative SAs made without end.
    match sa.is_tentative() {
        true => tracing::debug!(sa = %core.id(), peer = %core.peer, %path, "resumption answered"),
        false if sa.is_syncing() => {
            tracing::info!(sa = %core.id(), peer = %core.peer, %path, "IKE SA of another gateway taken over");
        }
        false => tracing::info!(sa = %core.id(), peer = %core.peer, %path, resumed, "IKE SA established"),
    }
    shared.event(Event::Established(Box::new(Established {
        sa: core.id(),
        connection: core.link.conn.name.clone(),
        peer: core.peer.clone(),
        credential: core.session.credential.clone(),
        isolate: !core.client && core.link.conn.answering.policy.isolate,
        initiator: core.link.initiator,
        method: core.session.method,
        eap: match core.client {
            true => matches!(core.link.conn.local_auth, LocalAuth::Eap(_)),
            // A certificate whose owner has proved himself by a key of both is one of EAP-TLS.
            false => core.session.credential.as_ref().is_some_and(|credential| match credential.shown {
                Shown::Eap(_) => true,
                Shown::Certificates { .. } => core.session.method == AuthMethod::SharedKeyMic,
                Shown::Psk(_) => false,
            }),
        },
        resumed,
        taken_over: sa.is_syncing(),
        mobike: mobility.mobike(),
        dormancy: dormancy.is_open(),
        confirmed: !sa.is_tentative(),
        path,
        configuration: core.assigned.clone(),
        lineage: core.descent.as_ref().map(|descent| descent.lineage),
        replaced,
    })));
}

/// The answer must hold an address if one was asked for and the answer is otherwise a good one.
fn check_addresses(
    conn: &Arc<Connection>,
    got: &AssignedConfig,
    view: View<'_>,
) -> Result<(), NegotiationError> {
    let wanted = conn.request.v4 || conn.request.v6;
    if wanted && got.addresses().is_empty() && view.error().is_none() {
        return Err(NegotiationError::Addresses("the gateway assigned none"));
    }
    Ok(())
}

/// The notifications that say what we can do; with the zones that the first CHILD SA is to have.
pub(crate) fn extensions(
    shared: &Shared,
    conn: &Connection,
    link: &Link,
    zones: Option<&Offered>,
) -> Vec<Payload> {
    let mut list = Vec::new();
    if shared.config.offers_ids {
        list.push(notify(NotifyType::Ikev2MessageIdSyncSupported, []));
    }
    if conn.mobility.mobike {
        // "MUST include a MOBIKE_SUPPORTED notification in the IKE_AUTH exchange" (RFC 4555 section 3.2)
        // "The notification data field MUST be left empty (zero-length) when sending, and its contents (if any) MUST be ignored
        // when this notification is received." (RFC 4555 section 4.2.1)
        list.push(notify(NotifyType::MobikeSupported, []));
        list.extend(payloads::told_addresses(&payloads::other_addresses(
            &conn.mobility.additional_addresses,
            &link.path,
        )));
        if conn.mobility.no_nats_allowed {
            // "[...] all messages that can update the addresses associated with the IKE_SA [...] MUST also include a
            // NO_NATS_ALLOWED notification" (RFC 4555 section 3.9)
            list.push(crate::exchange::mobike::no_nats_allowed(&link.path));
        }
    }
    if conn.resumption.mode != Resumption::Off {
        list.push(notify(NotifyType::TicketRequest, []));
    }
    if shared.config.window > 1 {
        let window = shared.config.window.min(crate::window::MAX_WINDOW);
        list.push(notify(NotifyType::SetWindowSize, window.to_be_bytes()));
    }
    if conn.dormancy {
        list.push(vendor_id());
    }
    if conn.has_zones() {
        list.push(mlike::vendor_id(zones.map(Offered::wire).as_ref()));
    }
    list
}

pub(super) fn give_up(shared: &mut Shared, link: &Link, error: NegotiationError) {
    shared.by_spi.remove(&link.spis.i);
    tracing::debug!(sa = %link.id, %error, "connecting failed");
    shared.event(Event::Failed { sa: link.id, error });
}

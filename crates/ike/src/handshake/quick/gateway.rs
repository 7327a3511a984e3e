//! The gateway's end of the resumption in one round trip. Owns the decision whether a ticket may be used at once, and the SA
//! until its client has confirmed it.
//!
//! A request proves that its sender had SK_d when it was made, not that it was made now or that it came from there: it may be
//! a copy. So until the first authentic packet under the new keys has come, IKE or ESP, the SA is *tentative*: the answer to
//! the request is all that is ever sent, no ESP goes out, the store is not asked, the old SA stays, the session is not
//! announced, and a timer takes the SA away. It counts as half-open. With that packet the store is asked whether the ticket counts;
//! until it says so, what comes waits and nothing is sent.

use dormouse_crypto::{DhPrivate, Secret};
use dormouse_keying::SaId;
use dormouse_sansio::{Class, Deadline, Instant, Path};
use dormouse_wire::ike::dormancy::{self, Refused};
use dormouse_wire::ike::{ExchangeType, Flags, Header, NotifyType, Payload};

use super::{Pace, answer_key, child_spi, open, request_key, seal, skeyseed, spi_of_child};
use crate::action::Action;
use crate::admission::Credential;
use crate::callers::Caller;
use crate::child::install::Origin;
use crate::child::{Agreed, dynamic, policy};
use crate::config::{Connection, Resumption};
use crate::endpoint::Endpoint;
use crate::error::NegotiationError;
use crate::event::Event;
use crate::exchange::mobike::addresses_match;
use crate::half_opens::Effort;
use crate::handshake::authenticating::announce;
use crate::handshake::half_open::{answer_extensions, assign};
use crate::handshake::lineage::Claim;
use crate::handshake::{HALF_OPEN_SLACK, Session, Slot};
use crate::keys::{IkeKeys, Nonces, Spis};
use crate::limits::{STORE_PATIENCE, WAITING_MAX};
use crate::link::{Channel, Link};
use crate::payloads::{self, View, notify};
use crate::proposal;
use crate::sa::mobility::Mobility;
use crate::sa::stage::{Stage, Standing};
use crate::sa::{Birth, IkeSa};
use crate::selectors;
use crate::shared::Shared;
use crate::stats::{Kind, Stats};
use crate::ticket::lineage::{Descent, Outcome};
use crate::ticket::{Form, TicketChild, TicketContent};

/// What an SA has besides until its client has confirmed it.
#[derive(Debug)]
pub(crate) struct Tentative {
    /// The request as it came, and its answer, for repetitions.
    pub(crate) request: Vec<u8>,
    pub(crate) response: Vec<u8>,
    expires: Instant,
    begun: Instant,
    clients: usize,
    asked: Option<Asked>,
}

/// The client is there, and the store is asked whether its ticket counts.
#[derive(Debug)]
struct Asked {
    /// The session is given up without an answer by then.
    by: Instant,
    /// Where the client is.
    path: Path,
    /// IKE datagrams that came meanwhile.
    waiting: Vec<(Path, Vec<u8>)>,
}

impl Tentative {
    pub(crate) fn deadline(&self) -> Deadline {
        match &self.asked {
            Some(asked) => Deadline::strict(asked.by, "store"),
            None => Deadline { at: self.expires, slack: HALF_OPEN_SLACK, why: "half-open" },
        }
    }

    /// Its client is there.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// It is asked about, and this must wait for the answer; a repetition waits already.
    pub(crate) fn hold(&mut self, path: Path, datagram: Vec<u8>) {
        let Some(Asked { waiting, .. }) = &mut self.asked else { return };
        if waiting.len() < WAITING_MAX && !waiting.iter().any(|(_, before)| *before == datagram) {
            waiting.push((path, datagram));
        }
    }
}

/// A request to resume at once that can be granted.
struct Granted {
    ticket: TicketContent,
    child: TicketChild,
    config: usize,
    inner: Vec<Payload>,
    spi_out: u32,
    key_exchange: Option<KeyExchanged>,
}

/// Our half of the key exchange, and what both make of it.
struct KeyExchanged {
    ours: Payload,
    shared: Secret,
}

impl Endpoint {
    /// Resumes at once, if the request asks for it and everything is as it was. `false`: as RFC 5723 says, with IKE_AUTH.
    #[expect(clippy::too_many_arguments, reason = "a first message, taken apart")]
    pub(crate) fn resume_at_once(
        &mut self,
        now: Instant,
        path: Path,
        header: &Header,
        payloads: &[Payload],
        datagram: &[u8],
        conn: &std::sync::Arc<Connection>,
        ticket: &TicketContent,
    ) -> bool {
        let shared = &mut self.shared;
        let Some(granted) = grant(shared, header, payloads, conn, ticket) else { return false };
        let id = shared.new_sa();
        let spi = shared.new_spi(id);
        let link = Link {
            id,
            initiator: false,
            spis: Spis { i: header.spi_i, r: spi },
            path,
            fragmentation: conn.fragmentation.enabled
                && View(payloads).has(NotifyType::Ikev2FragmentationSupported),
            stats: Stats::default(),
            conn: conn.clone(),
        };
        let Some(sa) = begin(shared, now, link, payloads, datagram, granted) else {
            shared.by_spi.remove(&spi);
            return false;
        };
        self.slots.insert(id, Slot::Established(sa));
        self.touch(id);
        self.shared.half_open.enter(id, now, header.spi_i, path.remote, Effort::WHOLE);
        true
    }

    /// An authenticated ESP packet came on the CHILD SA of a tentative SA ([`crate::Established::confirmed`] was false), over
    /// `path`: the client is there. [`Event::Store`] asks whether its ticket counts; [`Event::Confirmed`] follows, or
    /// [`Event::Closed`]. Until then packets of this SA wait, at most [`WAITING_MAX`] of them, and none is sent.
    pub fn confirm(&mut self, now: Instant, sa: SaId, path: Path) -> bool {
        self.with_sa(now, sa, |ike, shared| {
            ike.confirm(shared, now, path);
        })
    }
}

/// Whether the request can be granted: authentic, and nothing has changed in our configuration since the ticket was given.
fn grant(
    shared: &mut Shared,
    header: &Header,
    payloads: &[Payload],
    conn: &Connection,
    ticket: &TicketContent,
) -> Option<Granted> {
    if ticket.form != Form::Dormouse || !conn.dormancy || conn.resumption != Resumption::Strict {
        return None;
    }
    let ni = View(payloads).nonce()?;
    let key = request_key(ticket.suite.prf, &ticket.secret, header.spi_i, ni).ok()?;
    let flags = Flags { initiator: true, version: false, response: false };
    let canonical = Header::new(header.spi_i, 0, ExchangeType::IkeSessionResume, flags, 0);
    let inner = open(&key, &canonical, payloads)?;
    let spi_out = spi_of_child(View(&inner))?;
    let child = ticket.children.first()?.clone();
    let config = conn.children.iter().position(|c| c.name == child.name && c.mode == child.mode)?;
    let allowed = conn.children.get(config)?;
    let permitted = proposal::permits_esp(&allowed.proposals, allowed.esn, &child.suite);
    if !permitted {
        return None;
    }
    // Only now, when the request is known to be its owner's, is it worth a key agreement.
    let key_exchange = match View(payloads).ke() {
        None => None,
        Some((_, public)) => {
            let dh = DhPrivate::generate(ticket.suite.group, &mut shared.entropy).ok()?;
            let ours = Payload::Ke { group: dh.group().id(), data: dh.public_value().to_vec() };
            Some(KeyExchanged { ours, shared: dh.agree(public).ok()? })
        }
    };
    Some(Granted { ticket: ticket.clone(), child, config, inner, spi_out, key_exchange })
}

/// The tentative SA, and its answer on its way. `None`: it cannot be as it was.
fn begin(
    shared: &mut Shared,
    now: Instant,
    link: Link,
    payloads: &[Payload],
    datagram: &[u8],
    granted: Granted,
) -> Option<Box<IkeSa>> {
    let Granted { ticket, child, config, inner, spi_out, key_exchange } = granted;
    let (view, inner) = (View(payloads), View(&inner));
    let (conn, path, spis) = (link.conn.clone(), link.path, link.spis);
    let peer = ticket.peer.clone();
    // A client that meets a NAT that it forbids is refused in IKE_AUTH.
    if conn.mobike && !addresses_match(inner, &path) {
        return None;
    }
    let nr = shared.nonce();
    let nonces = Nonces { i: view.nonce()?, r: &nr };
    let nat = view.nat(Spis { r: 0, ..spis }, &path);
    let mut list = vec![Payload::Nonce(nr.clone())];
    list.extend(key_exchange.as_ref().map(|both| both.ours.clone()));
    if nat.supported {
        list.extend(payloads::nat_detection(spis, &path, conn.force_udp_encap));
    }
    if link.fragmentation {
        list.push(notify(NotifyType::Ikev2FragmentationSupported, []));
    }
    let (prf, answer) = (ticket.suite.prf, link.header(ExchangeType::IkeSessionResume, true, 0));
    let secret = key_exchange.as_ref().map(|both| &both.shared);
    let seed = skeyseed(prf, &ticket.secret, Pace::Quick, datagram, (&answer, &list), secret)?;
    let key = answer_key(prf, &seed).ok()?;
    let keys = IkeKeys::derive(ticket.suite, &seed, nonces, spis).ok()?;
    let (assigned, cp, refusal) = assign(shared, &conn, &peer, inner, &ticket.addresses);
    // The selectors of then must be what the configuration makes of them now.
    let policy = policy(&conn, config, &dynamic(&assigned, false, &path));
    let same = |was: &[_], now: &[_]| selectors::narrow(&selectors::to_wire(was), now) == was;
    let same =
        policy.is_some_and(|(ours, theirs)| same(&child.ts_local, &ours) && same(&child.ts_remote, &theirs));
    let caller = Caller { connection: conn.name.clone(), peer: peer.clone() };
    let held = shared.callers.held_by_another(&caller, &child.ts_remote);
    if !same || refusal.is_some() || assigned.addresses() != ticket.addresses || held.is_some() {
        shared.give_back(&assigned);
        return None;
    }
    let mobike = conn.mobike && inner.has(NotifyType::MobikeSupported);
    let told = payloads::other_addresses(shared.addresses_of(&conn), &path);
    let birth = Birth {
        session: Session::of_ticket(&ticket),
        peer,
        client: false,
        assigned,
        mobility: Mobility::new(&conn, mobike, nat, None, told),
        dormancy: dormancy::VERSION,
        descent: Some(Descent::resume(&mut shared.entropy, ticket.lineage, ticket.own, ticket.before)),
        next_ids: (0, 1),
        link,
        channel: Channel::new(keys, false),
    };
    let mut sa = Box::new(IkeSa::new(shared, now, birth));
    sa.core.note_window(inner);
    sa.core.link.stats.received(datagram.len());
    sa.stage = Stage::Tentative(Box::new(Tentative {
        request: datagram.to_vec(),
        response: Vec::new(),
        expires: now + shared.config.half_open.timeout,
        begun: now,
        clients: shared.half_open.len() + 1,
        asked: None,
    }));
    let spi_in = shared.new_esp_spi();
    announce(shared, &sa, true, None);
    let agreed = Agreed {
        config,
        spi_in,
        spi_out,
        suite: child.suite,
        mode: child.mode,
        tfc_padding: true,
        ts_local: child.ts_local,
        ts_remote: child.ts_remote,
        original: None,
    };
    let origin = Origin { nonces, secrets: &[], we_began: false, replaces: None, receives_only: true };
    if let Err(error) = sa.install(shared, now, agreed, &origin) {
        tracing::error!(sa = %sa.core.id(), %error, "a CHILD SA that cannot come back");
    }
    let mut sealed = vec![child_spi(spi_in)];
    sealed.extend(cp);
    sealed.extend(answer_extensions(shared, now, &mut sa, inner));
    let room = conn.fragmentation.size.saturating_sub(path.outer_overhead() + 4);
    let mut response = respond(shared, &sa.core.link, &key, &list, &sealed);
    if response.len() > room {
        // The estimate of the load can wait; the packet had better not be cut into IP fragments.
        sealed.retain(|p| !matches!(p, Payload::Notify(n) if n.kind == NotifyType::DormancyLoad));
        response = respond(shared, &sa.core.link, &key, &list, &sealed);
    }
    sa.core.link.send(shared, Class::Timely, std::slice::from_ref(&response));
    sa.core.link.stats.answer(Kind::Resume);
    shared.stats.answer(Kind::Resume);
    if let Stage::Tentative(tentative) = &mut sa.stage {
        tentative.response = response;
    }
    Some(sa)
}

/// The answer, with what goes sealed.
fn respond(
    shared: &mut Shared,
    link: &Link,
    key: &super::Key,
    clear: &[Payload],
    sealed: &[Payload],
) -> Vec<u8> {
    let header = link.header(ExchangeType::IkeSessionResume, true, 0);
    let mut list = clear.to_vec();
    list.extend(seal(key, &header, clear, sealed, &mut shared.entropy));
    link.clear(ExchangeType::IkeSessionResume, true, 0, &list)
}

impl IkeSa {
    /// Something authentic came under the new keys, over `path`: only the owner of the ticket, here and now, can have
    /// made it. Whether the ticket counts is asked now, once. True if there is nothing to wait for.
    pub(crate) fn confirm(&mut self, shared: &mut Shared, now: Instant, path: Path) -> bool {
        let Stage::Tentative(tentative) = &mut self.stage else { return true };
        if let (None, Some(descent)) = (&tentative.asked, &self.core.descent) {
            tentative.asked = Some(Asked { by: now + STORE_PATIENCE, path, waiting: Vec::new() });
            shared.event(Event::Store(descent.confirm(self.core.id())));
        }
        false
    }

    /// What the resumption of this SA rests on.
    fn claim(&self) -> Option<Claim<'_>> {
        let core = &self.core;
        Some(Claim {
            connection: &core.link.conn.name,
            suite: &core.channel.suite,
            form: Form::Dormouse,
            peer: &core.peer,
            credential: core.session.credential.as_ref()?,
            lineage: core.descent.as_ref()?.lineage,
        })
    }

    /// The same, once the store is asked about it.
    pub(crate) fn asked(&self) -> Option<Claim<'_>> {
        self.claim().filter(|_| matches!(&self.stage, Stage::Tentative(t) if t.asked.is_some()))
    }

    /// What the store says of the ticket, or `Failed` if it has not said anything in time.
    pub(crate) fn ticket_judged(&mut self, shared: &mut Shared, now: Instant, outcome: Outcome) {
        if !matches!(&self.stage, Stage::Tentative(t) if t.asked.is_some()) {
            return;
        }
        let live = Stage::Live(Standing::Heard);
        let Stage::Tentative(tentative) = core::mem::replace(&mut self.stage, live) else { return };
        let Tentative { begun, clients, asked: Some(Asked { path, waiting, .. }), .. } = *tentative else {
            return;
        };
        let refused = match outcome {
            Outcome::Done => match self.claim().map(|claim| claim.admitted(shared, now)) {
                Some(Ok(conn)) => {
                    let credential = self.core.session.credential.as_ref();
                    shared.rests_on(now, &conn, credential.map_or(&[][..], Credential::chain));
                    self.core.link.conn = conn;
                    None
                }
                Some(Err(why)) => Some((None, why)),
                None => Some((None, "it rests on nothing".to_owned())),
            },
            Outcome::Superseded => Some((Some(Refused::Superseded), Refused::Superseded.to_string())),
            Outcome::Failed => Some((Some(Refused::Store), Refused::Store.to_string())),
        };
        self.core.last_in = now;
        let here = self.core.link.path;
        if path.carrier == here.carrier && path != here {
            // The client has moved since it asked, or its NAT has.
            self.follow(shared, now, path, self.mobility.nat);
        }
        if let Some((told, why)) = refused {
            let error = NegotiationError::TicketRejected(why);
            shared.event(Event::PeerFailed { path, claimed: Some(self.core.peer.clone()), error });
            return shared.actions.push_back(Action::Refuse { sa: self.core.id(), told });
        }
        shared.load.record(shared.unix(now), clients, now - begun);
        tracing::info!(sa = %self.core.id(), peer = %self.core.peer, "resumed session confirmed");
        shared.event(Event::Confirmed { sa: self.core.id() });
        shared.actions.push_back(Action::Resumed { by: self.core.id() });
        for (path, mut datagram) in waiting {
            let Ok(header) = Header::parse(&datagram) else { continue };
            let _discard = self.handle(shared, now, path, &header, &mut datagram);
        }
    }
}

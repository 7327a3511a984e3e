//! The gateway's end of the resumption in one round trip. Owns the decision whether a ticket may be used at once, and the SA
//! until its client has confirmed it.
//!
//! A request proves that its sender had SK_d when it was made, not that it was made now or that it came from there: it may be
//! a copy. So until the first authentic packet under the new keys has come, IKE or ESP, the SA is *tentative*: the answer to
//! the request is all that is ever sent, no ESP goes out, the store is not asked, the old SA stays, the session is not
//! announced, and a timer takes the SA away. It counts as half-open. With that packet the store is asked whether the ticket counts;
//! until it says so, what comes waits and nothing is sent.

use std::sync::Arc;

use dormouse_crypto::{DhPrivate, Secret};
use dormouse_sansio::{Class, Instant};
use dormouse_wire::ike::dormancy;
use dormouse_wire::ike::{ExchangeType, Flags, Header, NotifyType, Payload};

use super::{Pace, answer_key, child_spi, open, request_key, resumed_child, seal, skeyseed, spi_of_child};
use crate::callers::hosts;
use crate::child::{dynamic, policy};
use crate::config::{Connection, Resumption};
use crate::config_payload::AssignedConfig;
use crate::exchange::mobike::addresses_match;
use crate::handshake::FirstMessage;
use crate::handshake::authenticating::announce;
use crate::handshake::half_open::{answer_extensions, assign};
use crate::keys::{IkeKeys, Nonces, Spis};
use crate::link::{Channel, Link};
use crate::payloads::{self, View, notify};
use crate::proposal;
use crate::sa::install::Origin;
use crate::sa::mobility::Mobility;
use crate::sa::{Birth, IkeSa};
use crate::selectors;
use crate::session::Session;
use crate::shared::Shared;
use crate::stats::Kind;
use crate::ticket::lineage::Descent;
use crate::ticket::{Form, TicketChild, TicketContent};

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

/// Resumes at once, if the request asks for it and everything is as it was. `None`: as RFC 5723 says, with IKE_AUTH.
pub(crate) fn resume(
    shared: &mut Shared,
    now: Instant,
    first: &FirstMessage<'_>,
    conn: &Arc<Connection>,
    ticket: &TicketContent,
) -> Option<Box<IkeSa>> {
    let granted = grant(shared, first, conn, ticket)?;
    let link = first.link(shared, conn.clone());
    let spi = link.spis.r;
    let sa = begin(shared, now, link, first, &granted);
    if sa.is_none() {
        shared.by_spi.remove(&spi);
    }
    sa
}

/// Whether the request can be granted: authentic, and nothing has changed in our configuration since the ticket was given.
fn grant(
    shared: &mut Shared,
    first: &FirstMessage<'_>,
    conn: &Connection,
    ticket: &TicketContent,
) -> Option<Granted> {
    if ticket.form != Form::Dormouse || !conn.dormancy || conn.resumption.mode != Resumption::Strict {
        return None;
    }
    let (spi_i, view) = (first.header.spi_i, first.view());
    let key = request_key(ticket.suite.prf, &ticket.secret, spi_i, view.nonce()?).ok()?;
    let flags = Flags { initiator: true, version: false, response: false };
    let canonical = Header::new(spi_i, 0, ExchangeType::IkeSessionResume, flags, 0);
    let inner = open(&key, &canonical, first.payloads)?;
    let spi_out = spi_of_child(View(&inner))?;
    let child = ticket.children.first()?.clone();
    let config = conn.children.iter().position(|c| c.name == child.name && c.mode == child.mode)?;
    let allowed = conn.children.get(config)?;
    let permitted = proposal::permits_esp(&allowed.proposals, allowed.esn, &child.suite);
    if !permitted || allowed.zones.is_some() {
        return None;
    }
    // Only now, when the request is known to be its owner's, is it worth a key agreement.
    let key_exchange = match view.ke() {
        None => None,
        Some((_, public)) => {
            let dh = DhPrivate::generate(ticket.suite.group, &mut shared.entropy).ok()?;
            let ours = Payload::Ke { group: dh.group().id(), data: dh.public_value().to_vec() };
            Some(KeyExchanged { ours, shared: dh.agree(public).ok()? })
        }
    };
    Some(Granted { ticket: ticket.clone(), child, config, inner, spi_out, key_exchange })
}

/// Creates the tentative SA and queues its answer; `None` if the ticket's parameters cannot be used any more.
fn begin(
    shared: &mut Shared,
    now: Instant,
    link: Link,
    first: &FirstMessage<'_>,
    granted: &Granted,
) -> Option<Box<IkeSa>> {
    let Granted { ticket, key_exchange, .. } = granted;
    let (view, inner) = (first.view(), View(&granted.inner));
    let (conn, path, spis) = (link.conn.clone(), link.path, link.spis);
    // A client that meets a NAT that it forbids is refused in IKE_AUTH.
    if conn.mobility.mobike && !addresses_match(inner, &path) {
        return None;
    }
    let nr = shared.nonce();
    let nonces = Nonces { i: view.nonce()?, r: &nr };
    let nat = view.nat(Spis { r: 0, ..spis }, &path);
    let mut clear = vec![Payload::Nonce(nr.clone())];
    clear.extend(key_exchange.as_ref().map(|both| both.ours.clone()));
    if nat.supported {
        clear.extend(payloads::nat_detection(spis, &path, conn.esp_in_udp.is_forced()));
    }
    if link.fragmentation {
        clear.push(notify(NotifyType::Ikev2FragmentationSupported, []));
    }
    let (prf, answer) = (ticket.suite.prf, link.header(ExchangeType::IkeSessionResume, true, 0));
    let secret = key_exchange.as_ref().map(|both| &both.shared);
    let seed = skeyseed(prf, &ticket.secret, Pace::Quick, first.datagram, (&answer, &clear), secret)?;
    let key = answer_key(prf, &seed).ok()?;
    let keys = IkeKeys::derive(ticket.suite, &seed, nonces, spis).ok()?;
    let (assigned, cp) = addresses_of_then(shared, &link, granted)?;
    let mobike = conn.mobility.mobike && inner.has(NotifyType::MobikeSupported);
    let told = payloads::other_addresses(shared.addresses_of(&conn), &path);
    let birth = Birth {
        session: Session::of_ticket(ticket),
        peer: ticket.peer.clone(),
        client: false,
        assigned,
        mobility: Mobility::new(&conn, mobike, nat, None, told),
        dormancy: dormancy::VERSION,
        mlike: conn.has_zones() && inner.mlike(),
        owners: None,
        descent: Some(Descent::resume(&mut shared.entropy, ticket.lineage, ticket.own, ticket.before)),
        next_ids: (0, 1),
        link,
        channel: Channel::new(keys, false),
    };
    let mut sa = Box::new(IkeSa::new(shared, now, birth));
    sa.core.note_window(inner);
    sa.await_confirmation(shared, now, first.datagram);
    announce(shared, &sa, true, None);
    let mut sealed = vec![bring_back_child(&mut sa, shared, now, granted, nonces)];
    sealed.extend(cp);
    sealed.extend(answer_extensions(shared, now, &mut sa, inner));
    let response = send(&mut sa, shared, &key, &clear, sealed);
    sa.keep_first_answer(response);
    Some(sa)
}

/// The addresses that the session had, if it may have them again, and its CHILD SA reaches what it reached.
fn addresses_of_then(
    shared: &mut Shared,
    link: &Link,
    granted: &Granted,
) -> Option<(AssignedConfig, Option<Payload>)> {
    let Granted { ticket, child, config, inner, .. } = granted;
    let (assigned, cp, refusal) =
        assign(shared, &link.conn, &ticket.peer, View(inner), &ticket.addresses, None, true);
    // The selectors of then must be what the configuration makes of them now.
    let policy = policy(&link.conn, *config, &dynamic(&assigned, false, &link.path));
    let same = |was: &[_], now: &[_]| selectors::narrow(&selectors::to_wire(was), now) == was;
    let same =
        policy.is_some_and(|(ours, theirs)| same(&child.ts_local, &ours) && same(&child.ts_remote, &theirs));
    let hosts = ticket.addresses.iter().copied().chain(hosts(&child.ts_remote));
    let held = shared.callers.held_by_another(&link.conn, &ticket.peer, Some(ticket.lineage), hosts);
    let as_then = same && refusal.is_none() && assigned.addresses() == ticket.addresses && held.is_none();
    as_then.then_some((assigned, cp))
}

/// Installs the CHILD SA of the ticket; what tells the client its SPI.
fn bring_back_child(
    sa: &mut IkeSa,
    shared: &mut Shared,
    now: Instant,
    granted: &Granted,
    nonces: Nonces<'_>,
) -> Payload {
    let agreed = resumed_child(&granted.child, granted.config, shared.new_esp_spi(), granted.spi_out);
    let spi_in = agreed.spi_in;
    let origin = Origin { nonces, secrets: &[], we_began: false, replaces: None, receives_only: true };
    if let Err(error) = sa.install(shared, now, agreed, &origin) {
        tracing::error!(sa = %sa.core.id(), %error, "a CHILD SA that cannot come back");
    }
    child_spi(spi_in)
}

/// Sends the answer, in one packet.
fn send(
    sa: &mut IkeSa,
    shared: &mut Shared,
    key: &super::Key,
    clear: &[Payload],
    mut sealed: Vec<Payload>,
) -> Vec<u8> {
    let link = &mut sa.core.link;
    let room = link.conn.fragmentation.size.saturating_sub(link.path.outer_overhead() + 4);
    let mut response = respond(shared, link, key, clear, &sealed);
    if response.len() > room {
        // The estimate of the load can wait; the packet had better not be cut into IP fragments.
        sealed.retain(|p| !matches!(p, Payload::Notify(n) if n.kind == NotifyType::DormancyLoad));
        response = respond(shared, link, key, clear, &sealed);
    }
    link.send(shared, Class::Timely, std::slice::from_ref(&response));
    link.stats.answer(Kind::Resume);
    shared.stats.answer(Kind::Resume);
    response
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

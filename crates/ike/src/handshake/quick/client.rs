//! The device's end of the resumption in one round trip. Owns what it offers and what it makes of the answer.

use dormouse_crypto::DhPrivate;
use dormouse_sansio::{Carrier, Instant};
use dormouse_wire::ike::dormancy;
use dormouse_wire::ike::{ExchangeType, Flags, Header, NotifyType, Payload};

use super::{Pace, answer_key, child_spi, open, request_key, resumed_child, seal, skeyseed, spi_of_child};
use crate::auth;
use crate::config::{Connection, Resumption};
use crate::config_payload;
use crate::error::NegotiationError;
use crate::exchange::child::CreateChild;
use crate::handshake::authenticating::{announce, extensions, own_method};
use crate::keys::{IkeKeys, Nonces, Spis};
use crate::link::{Channel, Link};
use crate::payloads::{self, View};
use crate::sa::install::Origin;
use crate::sa::mobility::Mobility;
use crate::sa::{Birth, IkeSa};
use crate::session::Session;
use crate::shared::Shared;
use crate::ticket::{ClientTicket, Form, TicketChild};

/// What an opening SA has ready for it.
#[derive(Debug)]
pub(crate) struct Quick {
    /// The CHILD SA that is to come back, its index in the connection, and our new SPI.
    child: TicketChild,
    config: usize,
    pub(crate) spi_in: u32,
    /// The sealed part, for these other payloads: made once, so that a repetition with a cookie differs in nothing else.
    sealed: Option<(Vec<Payload>, Payload)>,
}

impl Quick {
    /// If this ticket can be used at once: its gateway knows how, and the configuration still has the CHILD SA.
    pub(crate) fn of(shared: &mut Shared, conn: &Connection, ticket: &ClientTicket) -> Option<Self> {
        let strict = conn.resumption.mode == Resumption::Strict && ticket.dialect == Resumption::Strict;
        let ours = conn.dormancy && ticket.form == Form::Dormouse;
        let child = ticket.child.clone().filter(|_| ours && strict)?;
        let config = conn.children.iter().position(|c| c.name == child.name && c.mode == child.mode)?;
        conn.children.get(config).filter(|child| child.zones.is_none())?;
        Some(Self { child, config, spi_in: shared.new_esp_spi(), sealed: None })
    }

    /// The sealed part of a request that has these other payloads. `None`: it would not fit in one packet of the size that the
    /// connection aims at (there is no fragmentation before there are keys).
    pub(crate) fn seal(
        &mut self,
        shared: &mut Shared,
        link: &Link,
        ticket: &ClientTicket,
        nonce: &[u8],
        others: &[Payload],
    ) -> Option<Payload> {
        if let Some((_, sealed)) = self.sealed.as_ref().filter(|(before, _)| before == others) {
            return Some(sealed.clone());
        }
        let conn = link.conn.clone();
        let key = request_key(ticket.suite.prf, &ticket.secret, link.spis.i, nonce).ok()?;
        let mut inner = vec![child_spi(self.spi_in)];
        if conn.request.any() {
            inner.push(Payload::Cp(config_payload::request(conn.request, &ticket.addresses)));
        }
        inner.extend(extensions(shared, &conn, link, None));
        let header = link.header(ExchangeType::IkeSessionResume, false, 0);
        let sealed = seal(&key, &header, others, &inner, &mut shared.entropy)?;
        let mut all = others.to_vec();
        all.push(sealed.clone());
        let room = conn.fragmentation.size.saturating_sub(link.path.outer_overhead() + COOKIE_ROOM);
        let bytes = link.clear(ExchangeType::IkeSessionResume, false, 0, &all).len();
        if bytes > room {
            tracing::info!(sa = %link.id, bytes, room, "the request does not fit in one packet: the session takes two round trips to come back");
            return None;
        }
        self.sealed = Some((others.to_vec(), sealed.clone()));
        Some(sealed)
    }
}

/// A cookie may be asked for, and the marker of port 4500 goes before all.
const COOKIE_ROOM: usize = 8 + crate::limits::COOKIE_MAX + 4;

/// The answer to a request as it was last sent.
pub(crate) struct Answered<'a> {
    pub(crate) ticket: &'a ClientTicket,
    pub(crate) nonce: &'a [u8],
    pub(crate) dh: Option<&'a DhPrivate>,
    pub(crate) request: &'a [u8],
    pub(crate) spi_r: u64,
    pub(crate) payloads: &'a [Payload],
}

/// The session, proved by its answer. `None`: not authentic, or nothing that can be used; a better answer may come.
pub(crate) fn conclude(
    shared: &mut Shared,
    now: Instant,
    link: &Link,
    quick: &Quick,
    answered: &Answered<'_>,
) -> Option<Result<Box<IkeSa>, NegotiationError>> {
    let Answered { ticket, nonce, dh, request, spi_r, payloads } = *answered;
    let view = View(payloads);
    let nr = view.nonce().filter(|_| spi_r != 0)?;
    let (nonces, spis) = (Nonces { i: nonce, r: nr }, Spis { i: link.spis.i, r: spi_r });
    let prf = ticket.suite.prf;
    let flags = Flags { initiator: false, version: false, response: true };
    let header = Header::new(spis.i, spis.r, ExchangeType::IkeSessionResume, flags, 0);
    let secret = super::agreed(dh, view).ok()?;
    let seed = skeyseed(prf, &ticket.secret, Pace::Quick, request, (&header, payloads), secret.as_ref())?;
    let key = answer_key(prf, &seed).ok()?;
    let inner = open(&key, &header, payloads)?;
    // From here on the gateway has proved itself: an error is final.
    Some(establish(shared, now, link, quick, answered, View(&inner), nonces, spis, &seed))
}

#[expect(clippy::too_many_arguments, reason = "the answer, opened, and the keys that follow from it")]
fn establish(
    shared: &mut Shared,
    now: Instant,
    link: &Link,
    quick: &Quick,
    answered: &Answered<'_>,
    inner: View<'_>,
    nonces: Nonces<'_>,
    spis: Spis,
    seed: &dormouse_crypto::Secret,
) -> Result<Box<IkeSa>, NegotiationError> {
    let (ticket, view) = (answered.ticket, View(answered.payloads));
    let malformed = |what| NegotiationError::Malformed { exchange: "IKE_SESSION_RESUME", what };
    let crypto = |e: dormouse_crypto::Error| NegotiationError::Crypto(e.to_string());
    // A list may have come since the request was sent.
    shared.believes(now, ticket, &link.conn).map_err(NegotiationError::TicketUntrusted)?;
    let spi_out = spi_of_child(inner).ok_or_else(|| malformed("no SPI of the CHILD SA"))?;
    let assigned = inner.cp().and_then(config_payload::parse_reply).unwrap_or_default();
    if assigned.addresses() != ticket.addresses {
        return Err(NegotiationError::Addresses("the gateway resumed the session with other ones"));
    }
    let keys = IkeKeys::derive(ticket.suite, seed, nonces, spis).map_err(crypto)?;
    let conn = link.conn.clone();
    let fragmentation = conn.fragmentation.enabled && view.has(NotifyType::Ikev2FragmentationSupported);
    let link = Link { spis, fragmentation, stats: link.stats.clone(), conn: conn.clone(), ..*link };
    let birth = Birth {
        session: session(ticket, &conn),
        peer: auth::identity(&ticket.id_r).map_err(auth::AuthError::from)?,
        client: true,
        assigned,
        mobility: mobility(&link, view, inner),
        dormancy: dormancy::VERSION,
        mlike: conn.has_zones() && inner.mlike(),
        owners: None,
        descent: None,
        next_ids: (1, 0),
        link,
        channel: Channel::new(keys, true),
    };
    let mut sa = Box::new(IkeSa::new(shared, now, birth));
    sa.core.note_window(inner);
    announce(shared, &sa, true, None);
    sa.hear_addresses(shared, inner);
    let agreed = resumed_child(&quick.child, quick.config, quick.spi_in, spi_out);
    let origin = Origin { nonces, secrets: &[], we_began: true, replaces: None, receives_only: false };
    sa.install(shared, now, agreed, &origin)?;
    sa.take_lifetime(shared, now, inner);
    sa.take_ticket(shared, now, inner, ticket.unheard.saturating_add(1));
    sa.take_load(shared, inner);
    sa.confirm_soon(now);
    for config in (0..conn.children.len()).filter(|c| *c != quick.config) {
        sa.enqueue(CreateChild::missing(config), now);
    }
    sa.pump(shared, now);
    Ok(sa)
}

/// The session of the ticket goes on.
fn session(ticket: &ClientTicket, conn: &Connection) -> Session {
    Session {
        id_i: ticket.id_i.clone(),
        id_r: ticket.id_r.clone(),
        method: own_method(conn),
        authenticated: ticket.authenticated,
        vouched_until: ticket.vouched_until,
        credential: ticket.credential.clone(),
    }
}

/// What the answer says of the path, in clear and `inner`.
fn mobility(link: &Link, clear: View<'_>, inner: View<'_>) -> Mobility {
    let conn = &link.conn;
    let mobike = conn.mobility.mobike && inner.has(NotifyType::MobikeSupported);
    let seen_as = clear.notify(NotifyType::NatDetectionDestinationIp).map(|n| n.data.clone());
    let seen_as = seen_as.filter(|_| link.path.carrier == Carrier::NatT);
    let told = payloads::other_addresses(&conn.mobility.additional_addresses, &link.path);
    Mobility::new(conn, mobike, clear.nat(link.spis, &link.path), seen_as, told)
}

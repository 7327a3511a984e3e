//! The initiator's IKE_INTERMEDIATE exchanges, one after the other. Owns what is under way; hands on to IKE_AUTH.

use dormouse_crypto::DhPrivate;
use dormouse_sansio::{Class, Instant, Path};
use dormouse_wire::ike::{ExchangeType, Header, NotifyType, Payload, unsupported_critical};

use super::{CONFIRMATION, PPKS_MAX, Place, names, ppk_id};
use crate::config::Ppk;
use crate::error::{Discard, NegotiationError};
use crate::event::Event;
use crate::fragment;
use crate::handshake::authenticating::Authenticating;
use crate::handshake::proving::FirstExchange;
use crate::handshake::{Slot, Step, follow_path, send_what_is_due};
use crate::keys::{self, Nonces};
use crate::payloads::{View, notify};
use crate::shared::Shared;
use crate::stats::Kind;
use crate::window::Outgoing;

const NAME: &str = "IKE_INTERMEDIATE";

/// Waiting for the answer to an IKE_INTERMEDIATE.
#[derive(Debug)]
pub(crate) struct Intermediate {
    pub(crate) first: FirstExchange,
    /// Our half of the key exchange, if it has one.
    key: Option<DhPrivate>,
    /// What IntAuth covers of the request.
    request: Vec<u8>,
    pub(crate) out: Outgoing<()>,
}

/// The exchange that is next: IKE_INTERMEDIATE while one is due, then IKE_AUTH.
pub(crate) fn proceed(shared: &mut Shared, now: Instant, first: FirstExchange) -> Step {
    if !first.rounds.may_go_on() {
        return Step { next: Authenticating::begin(shared, now, first, Vec::new()), result: Ok(()) };
    }
    match Intermediate::begin(shared, now, first) {
        Ok(next) => Step::to(Slot::Intermediate(Box::new(next))),
        Err((first, error)) => {
            fail(shared, &first, error);
            Step::gone()
        }
    }
}

fn fail(shared: &mut Shared, first: &FirstExchange, error: NegotiationError) {
    shared.by_spi.remove(&first.link.spis.i);
    tracing::debug!(sa = %first.link.id, %error, "connecting failed");
    shared.event(Event::Failed { sa: first.link.id, error });
}

impl FirstExchange {
    fn place(&self) -> Place<'_> {
        let nonces = Nonces { i: &self.nonce_i, r: &self.nonce_r };
        Place { nonces, spis: self.link.spis, initiator: true }
    }
}

impl Intermediate {
    /// "[...] the Encrypted payload MUST be present in the IKE_INTERMEDIATE exchange messages, and payloads containing large amounts of
    /// data MUST be placed inside it" (RFC 9242 section 3.2)
    fn begin(
        shared: &mut Shared,
        now: Instant,
        mut first: FirstExchange,
    ) -> Result<Self, (Box<FirstExchange>, NegotiationError)> {
        let group = first.rounds.due.front().copied();
        let key = match group.map(|group| DhPrivate::generate(group, &mut shared.entropy)).transpose() {
            Ok(key) => key,
            Err(error) => return Err((Box::new(first), NegotiationError::Crypto(error.to_string()))),
        };
        let mut list: Vec<Payload> = Vec::new();
        // "[...] MUST match the n-th negotiated additional key exchange" (RFC 9370 section 2.2.2)
        list.extend(
            key.as_ref().map(|dh| Payload::Ke { group: dh.group().id(), data: dh.public_value().to_vec() }),
        );
        if first.rounds.names_ppk() {
            list.extend(first.link.conn.ppk.keys.iter().take(PPKS_MAX).map(|ppk| ppk_key(&first, ppk)));
        }
        let header = first.link.header(ExchangeType::IkeIntermediate, false, first.rounds.next_id());
        let request = match fragment::authenticated(&header, &list) {
            Ok(octets) => octets,
            Err(error) => return Err((Box::new(first), NegotiationError::Crypto(error.to_string()))),
        };
        let datagrams = first.channel.seal(&first.link, shared, &header, &list);
        first.link.send(shared, Class::Urgent, &datagrams);
        first.link.stats.begin(Kind::Intermediate);
        shared.stats.begin(Kind::Intermediate);
        let (wait, until) = (first.link.wait(shared, 1), now + first.link.patience(shared));
        let mut out = Outgoing::new(first.rounds.next_id());
        out.start(now, wait, until, datagrams, Class::Urgent, ());
        Ok(Self { first, key, request, out })
    }

    pub(crate) fn set_path(&mut self, shared: &mut Shared, now: Instant, path: Path) {
        follow_path(&mut self.first.link, &mut self.out, shared, now, path);
    }

    pub(crate) fn handle_timeout(
        mut self: Box<Self>,
        shared: &mut Shared,
        now: Instant,
    ) -> Option<Box<Self>> {
        if let Some(error) = send_what_is_due(&mut self.first.link, &mut self.out, shared, now, NAME) {
            fail(shared, &self.first, error);
            return None;
        }
        Some(self)
    }

    pub(crate) fn handle(
        mut self: Box<Self>,
        shared: &mut Shared,
        now: Instant,
        header: &Header,
        datagram: &mut [u8],
    ) -> Step {
        let link = &mut self.first.link;
        link.stats.received(datagram.len());
        if !link.awaits(header, ExchangeType::IkeIntermediate, self.first.rounds.next_id()) {
            return Step::stay(Slot::Intermediate(self), Discard::InappropriateExchange);
        }
        let (opened, response) = match self.first.channel.open_recorded(now, datagram) {
            Err(discard) => return Step::stay(Slot::Intermediate(self), discard),
            Ok(None) => return Step::to(Slot::Intermediate(self)),
            Ok(Some(opened)) => opened,
        };
        self.first.link.stats.round_trips += 1;
        shared.stats.round_trips += 1;
        let Self { mut first, key, request, .. } = *self;
        let taken = match opened {
            Ok(list) if unsupported_critical(&list).is_none() => {
                take(&mut first, key.as_ref(), (&request, &response), View(&list))
            }
            _ => Err(malformed("authentic but malformed")),
        };
        match taken {
            Ok(()) => proceed(shared, now, first),
            Err(error) => {
                fail(shared, &first, error);
                Step::gone()
            }
        }
    }
}

/// Acts on the answer: the keys change.
fn take(
    first: &mut FirstExchange,
    key: Option<&DhPrivate>,
    messages: (&[u8], &[u8]),
    view: View<'_>,
) -> Result<(), NegotiationError> {
    let naming = first.rounds.names_ppk();
    if let Some(error) = view.error() {
        // "[...] then it MUST return an AUTHENTICATION_FAILED notification and abort creating the IKE SA" (RFC 9867 section 3.1)
        return Err(match error.kind {
            NotifyType::AuthenticationFailed if naming => NegotiationError::Ppk("the peer has none of ours"),
            other => NegotiationError::Notified(other.to_string()),
        });
    }
    let crypto = |e: dormouse_crypto::Error| NegotiationError::Crypto(e.to_string());
    let secret = match key {
        None => None,
        Some(dh) => {
            let (group, public) = view.ke().ok_or_else(|| malformed("no KE payload"))?;
            if group != dh.group().id() {
                return Err(malformed("the KE payload is of another method than the one agreed on"));
            }
            Some(dh.agree(public).map_err(crypto)?)
        }
    };
    let conn = first.link.conn.clone();
    let ppk = match view.notify(NotifyType::PpkIdentity).filter(|_| naming) {
        // "If the responder returns a PPK identity that was not proposed by the initiator, then the initiator MUST treat this as fatal
        // and abort the IKE SA establishment." (RFC 9867 section 3.1)
        Some(chosen) => Some(
            conn.ppk
                .keys
                .iter()
                .take(PPKS_MAX)
                .find(|ppk| names(&chosen.data, ppk))
                .cloned()
                .ok_or(NegotiationError::Ppk("the peer chose one that we did not name"))?,
        ),
        // "If this is a requirement for the initiator, then it MUST abort creating the IKE SA." (RFC 9867 section 3.1)
        None if naming && conn.ppk.required => {
            return Err(NegotiationError::Ppk("the peer has none of ours"));
        }
        None => None,
    };
    let FirstExchange { rounds, channel, nonce_i, nonce_r, link, .. } = first;
    let place = Place { nonces: Nonces { i: nonce_i, r: nonce_r }, spis: link.spis, initiator: true };
    rounds.named |= naming;
    if let Some(next) = rounds.complete(channel, &place, messages, secret.as_ref(), ppk).map_err(crypto)? {
        *channel = next;
    }
    Ok(())
}

/// PPK_IDENTITY_KEY: which one, and that it is the same.
fn ppk_key(first: &FirstExchange, ppk: &Ppk) -> Payload {
    let Place { nonces, spis, .. } = first.place();
    let confirmation = keys::ppk_confirmation(first.channel.suite.prf, &ppk.secret, nonces, spis);
    debug_assert_eq!(confirmation.len(), CONFIRMATION);
    notify(NotifyType::PpkIdentityKey, [ppk_id(ppk).as_slice(), &confirmation].concat())
}

const fn malformed(what: &'static str) -> NegotiationError {
    NegotiationError::Malformed { exchange: NAME, what }
}

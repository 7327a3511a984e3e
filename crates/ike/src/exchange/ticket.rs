//! Tickets (RFC 5723): asking for them, giving them, taking them. Owns these parts of IKE_AUTH and INFORMATIONAL exchanges;
//! presenting a ticket is [`crate::handshake`]'s, and what is inside is [`crate::ticket`]'s.
//!
//! TICKET_LT_OPAQUE carries a lifetime in seconds (4 bytes) and then the ticket (section 7.3); the other notifications carry
//! the ticket alone or nothing.

use core::time::Duration;

use dormouse_crypto::Secret;
use dormouse_sansio::{Class, Instant, UnixTime};
use dormouse_wire::ike::dormancy::VERSION;
use dormouse_wire::ike::{NotifyType, Payload};

use super::{Exchange, Reply, Request, Run};
use crate::child::{Busy, Child};
use crate::config::{ChildMode, Resumption};
use crate::event::Event;
use crate::keys;
use crate::limits::{LINEAGE_KEPT_BEYOND, TICKET_MAX};
use crate::payloads::{View, notify};
use crate::sa::{Fate, IkeSa};
use crate::shared::Shared;
use crate::stats::Kind;
use crate::ticket::lineage::{Operation, Row};
use crate::ticket::{self, ClientTicket, Form, TicketChild, TicketContent};

/// A ticket is renewed when this share of its life (percent) is over.
const RENEW_AT_PERCENT: u32 = 75;
/// A ticket that lives less than this is not renewed on a timer: the wake-up would cost more than it saves.
const RENEW_MIN: Duration = Duration::from_secs(600);

/// A CHILD SA with more selectors than this on one side is not put into a ticket, which must fit in one packet.
const CHILD_SELECTORS_MAX: usize = 8;

/// Asks for a ticket (RFC 5723 section 4.1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct TicketRequest;

impl Run for TicketRequest {
    fn build(&mut self, _: &mut IkeSa, _: &mut Shared, _: Instant) -> Option<Request> {
        let payloads = vec![notify(NotifyType::TicketRequest, [])];
        Some(Request { payloads, kind: Kind::Informational, class: Class::Upkeep })
    }

    fn take(self, sa: &mut IkeSa, shared: &mut Shared, now: Instant, reply: &Reply<'_>) -> Fate {
        sa.take_ticket(shared, now, reply.view, 0);
        Fate::Lives
    }

    /// A ticket of the old SA would be void; the successor asks for its own.
    fn migrate(&self, _: bool) -> Option<Exchange> {
        None
    }
}

impl IkeSa {
    /// Whether this end is the client of resumption and wants a ticket.
    /// "All such Informational exchanges MUST be initiated by the client." (RFC 5723 section 4.1)
    pub(crate) fn renews_tickets(&self) -> bool {
        self.core.client && self.core.link.conn.resumption.mode != Resumption::Off && self.upkeep.had_ticket()
    }

    /// What belongs into the answer to a message with TICKET_REQUEST; `None` if it has none, or resumption is off here.
    ///
    /// "When an IKEv2 responder receives a request for a ticket using the N(TICKET_REQUEST) payload, it MUST perform one of the
    /// following operations" (RFC 5723 section 4.1): whichever exchange it came in.
    pub(crate) fn answer_ticket_request(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        view: View<'_>,
    ) -> Option<Vec<Payload>> {
        let asked =
            view.has(NotifyType::TicketRequest) && self.core.link.conn.resumption.mode != Resumption::Off;
        asked.then(|| self.grant_ticket(shared, now))
    }

    /// A ticket, or TICKET_NACK.
    fn grant_ticket(&mut self, shared: &mut Shared, now: Instant) -> Vec<Payload> {
        let nack = || vec![notify(NotifyType::TicketNack, [])];
        let conn = self.core.link.conn.clone();
        let unix = shared.unix(now);
        let authenticated = self.core.session.authenticated;
        let vouched_until = self.core.session.vouched_until;
        let lifetime = ticket::lifetime(
            conn.resumption.lifetime,
            conn.answering.policy.lifetime,
            authenticated,
            vouched_until,
            unix,
        );
        let form = self.ticket_form();
        let taken =
            conn.resumption.mode != Resumption::Off && (form == Form::Dormouse || conn.resumption.plain);
        if !taken || self.core.client || lifetime.is_zero() {
            return nack();
        }
        let credential = self.core.session.credential.as_ref().filter(|credential| credential.fits());
        let (Some(descent), Some(credential)) = (&self.core.descent, credential) else { return nack() };
        let Ok(secret) = self.ticket_secret(form) else { return nack() };
        let content = TicketContent {
            lineage: descent.lineage,
            own: descent.own,
            before: descent.before,
            form,
            issued: unix,
            expires: unix + lifetime,
            authenticated,
            vouched_until,
            id_i: self.core.session.id_i.clone(),
            peer: self.core.peer.clone(),
            id_r: self.core.session.id_r.clone(),
            method: self.core.session.method,
            credential: credential.clone(),
            suite: self.core.channel.suite,
            secret,
            connection: conn.name.clone(),
            addresses: self.core.assigned.addresses(),
            children: self.ticket_child(form).into_iter().collect(),
        };
        let Some(keys) = shared.config.ticket_keys.as_mut() else { return nack() };
        // Rotation waits for the next ticket: an idle gateway is not woken for it.
        let rotated = keys.rotate(unix, &mut shared.entropy).then(|| keys.export());
        if let Some(exported) = rotated {
            shared.event(Event::TicketKeys { exported });
        }
        let Some(keys) = shared.config.ticket_keys.as_ref() else { return nack() };
        match keys.seal(&content, &mut shared.entropy) {
            Ok(opaque) => {
                shared.stats.tickets_issued += 1;
                self.upkeep.note_ticket(None);
                self.record_ticket(shared, content.expires);
                let seconds = u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX);
                let data = [&seconds.to_be_bytes(), opaque.as_slice()].concat();
                let mut granted = vec![notify(NotifyType::TicketLtOpaque, data)];
                if form == Form::Dormouse {
                    granted.push(notify(NotifyType::DormancyLineage, content.lineage.0));
                }
                granted
            }
            Err(error) => {
                tracing::error!(sa = %self.core.id(), %error, "no ticket can be made");
                nack()
            }
        }
    }

    /// The form of the tickets of this SA: ours between ends that know version 2 of the extension.
    fn ticket_form(&self) -> Form {
        let strict = self.core.link.conn.resumption.mode == Resumption::Strict;
        if self.dormancy.version() >= VERSION && strict { Form::Dormouse } else { Form::Plain }
    }

    /// What a ticket of this form keeps of the keys.
    fn ticket_secret(&self, form: Form) -> Result<Secret, dormouse_crypto::Error> {
        let channel = &self.core.channel;
        match form {
            Form::Dormouse => keys::ticket_secret(channel.suite.prf, &channel.sk_d, self.core.link.spis),
            Form::Plain => Ok(channel.sk_d.clone()),
        }
    }

    /// A ticket that lasts until `expires` is on its way: the store must know of its lineage by the time that it is used. That of a
    /// tentative SA counts as soon as its client has confirmed it.
    fn record_ticket(&mut self, shared: &mut Shared, expires: UnixTime) {
        let (holder, heir, tentative) = (self.core.holder(), self.is_heir(), self.is_tentative());
        let Some(descent) = &mut self.core.descent else { return };
        let known = std::mem::replace(&mut descent.recorded, true);
        if descent.ends >= expires && known {
            return;
        }
        // A client that asks again and again does not keep the store busy.
        descent.ends = expires + LINEAGE_KEPT_BEYOND;
        let (lineage, own, ends) = (descent.lineage, descent.own, descent.ends);
        // An heir is the tip when it has inherited.
        let tip = if heir { descent.before } else { own };
        if !tentative {
            shared.event(Event::Store(match known {
                false => Operation::Insert(Row { id: lineage, holder, tip, ends }),
                true => Operation::Advance { lineage, from: tip, to: tip, ends },
            }));
        }
    }

    /// Gateway: a session without a ticket is on record too where several gateways share the store, as long as one with a ticket would be: so another
    /// gateway to which its client comes can end it, and none takes its addresses for those of who is gone.
    pub(crate) fn record_session(&mut self, shared: &mut Shared, now: Instant) {
        let recorded = self.core.descent.as_ref().is_none_or(|descent| descent.recorded);
        if shared.config.counts_together && !self.core.client && !recorded {
            let expires = self.lasts_on_record(shared, now);
            self.record_ticket(shared, expires);
        }
    }

    fn lasts_on_record(&self, shared: &Shared, now: Instant) -> UnixTime {
        shared.unix(now) + self.core.link.conn.resumption.lifetime
    }

    /// Gateway: the SA has taken over from the one before it, whose tickets count until this is on record.
    /// "When the IKE SA is rekeyed, the ticket is invalidated" (RFC 5723 section 6.2)
    pub(crate) fn advance_lineage(&mut self, shared: &mut Shared, now: Instant) {
        // Without a ticket nothing else says how long it lasts.
        let lasts = (shared.config.counts_together && !self.upkeep.had_ticket())
            .then(|| self.lasts_on_record(shared, now) + LINEAGE_KEPT_BEYOND);
        let Some(descent) = self.core.descent.as_mut().filter(|descent| descent.recorded) else { return };
        descent.ends = descent.ends.max(lasts.unwrap_or(descent.ends));
        let (lineage, from, to, ends) = (descent.lineage, descent.before, descent.own, descent.ends);
        shared.event(Event::Store(Operation::Advance { lineage, from, to, ends }));
    }

    /// The CHILD SA that a ticket of this SA brings back at once, between ends that know how: the one that came with the session, for
    /// of those made later the gateway may have several for one child of its connection. One in transport mode is negotiated anew: it
    /// is bound to the outer addresses, and who comes back has others. So is one with zones, which a ticket does not hold.
    fn ticket_child(&self, form: Form) -> Option<TicketChild> {
        let plain = |c: &Child| c.mode == ChildMode::Tunnel && c.zones.is_none();
        let alive = |c: &&Child| matches!(c.busy, Busy::No | Busy::Rekeying) && plain(c);
        let child = self.children.first().filter(alive).filter(|_| form == Form::Dormouse)?;
        let few = child.ts_local.len() <= CHILD_SELECTORS_MAX && child.ts_remote.len() <= CHILD_SELECTORS_MAX;
        let name = self.core.link.conn.children.get(child.config)?.name.clone();
        few.then(|| TicketChild {
            name,
            suite: child.suite,
            mode: child.mode,
            ts_local: child.ts_local.clone(),
            ts_remote: child.ts_remote.clone(),
        })
    }

    /// The client takes the ticket of an answer, if there is one. `unheard`: see [`ClientTicket::unheard`].
    pub(crate) fn take_ticket(&mut self, shared: &mut Shared, now: Instant, view: View<'_>, unheard: u8) {
        let Some(granted) = view.notify(NotifyType::TicketLtOpaque) else { return };
        let Some((seconds, opaque)) = granted.data.split_first_chunk::<4>() else { return };
        if opaque.is_empty() || opaque.len() > TICKET_MAX || !self.core.client {
            return;
        }
        let unix = shared.unix(now);
        let given = Duration::from_secs(u32::from_be_bytes(*seconds).into());
        let vouched = self.core.session.vouched_until.map(|until| until.saturating_since(unix));
        let lifetime = vouched.map_or(given, |left| left.min(given));
        let renew = lifetime / 100 * RENEW_AT_PERCENT;
        self.upkeep.note_ticket((lifetime >= RENEW_MIN).then(|| now + renew));
        let conn = self.core.link.conn.clone();
        let lineage = view.lineage().filter(|_| self.ticket_form() == Form::Dormouse);
        let form = if lineage.is_some() { Form::Dormouse } else { Form::Plain };
        self.upkeep.note_lineage(lineage);
        let Ok(secret) = self.ticket_secret(form) else { return };
        let ticket = ClientTicket {
            opaque: Secret::from(opaque),
            expires: unix + lifetime,
            authenticated: self.core.session.authenticated,
            vouched_until: self.core.session.vouched_until,
            credential: self.core.session.credential.clone(),
            form,
            secret,
            lineage,
            unheard,
            fingerprint: ticket::fingerprint(&conn),
            suite: self.core.channel.suite,
            id_i: self.core.session.id_i.clone(),
            id_r: self.core.session.id_r.clone(),
            connection: conn.name.clone(),
            gateway: self.core.link.path.remote,
            addresses: self.core.assigned.addresses(),
            dialect: conn.resumption.mode,
            child: self.ticket_child(form),
        };
        shared.event(Event::Ticket { sa: self.core.id(), ticket: Box::new(ticket) });
    }
}

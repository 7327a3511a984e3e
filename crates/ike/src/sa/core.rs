//! What every exchange of an established SA needs: its link and keys, who the two ends are, the window of messages, and when
//! something was last heard and sent. Owns the sealing and repeating of messages; must never decide what to say.

use core::time::Duration;

use dormouse_crypto::cert::Identity;
use dormouse_sansio::{Class, Instant, Pace, Path};
use dormouse_wire::ike::{ExchangeType, NotifyType, Payload};

use crate::config_payload::AssignedConfig;
use crate::exchange::{Exchange, Request};
use crate::limits::{LINES_BURST, LINES_EVERY};
use crate::link::{Channel, Link};
use crate::payloads::View;
use crate::sa::Answer;
use crate::session::Session;
use crate::shared::Shared;
use crate::ticket::lineage::{Descent, TicketHolder};
use crate::window::{Incoming, Outgoing};
use dormouse_keying::SaId;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) link: Link,
    pub(crate) channel: Channel,
    pub(crate) session: Session,
    pub(crate) peer: Identity,
    /// Whether this end opened the session, whichever end rekeyed it since: the MOBIKE initiator and the client of resumption.
    pub(crate) client: bool,
    pub(crate) assigned: AssignedConfig,
    /// At a gateway: the addresses are leased, and the hosts behind the peer its own. Not before its client has shown to be there. The stage does
    /// not say it: an SA that is over has had them or not, and gives back only what it has had.
    pub(crate) claims: bool,
    /// At a gateway: where it stands in its lineage.
    pub(crate) descent: Option<Descent>,
    pub(crate) requests: Outgoing<Exchange>,
    pub(crate) answers: Incoming,
    pub(crate) last_in: Instant,
    pub(crate) last_out: Instant,
    /// Lines in the log that the peer causes.
    lines: Pace,
}

impl Core {
    #[expect(clippy::too_many_arguments, reason = "the fields of a new state")]
    pub(super) fn new(
        now: Instant,
        link: Link,
        channel: Channel,
        session: Session,
        peer: Identity,
        client: bool,
        assigned: AssignedConfig,
        descent: Option<Descent>,
        next_ids: (u32, u32),
        window: u32,
    ) -> Self {
        let (requests, answers) = (Outgoing::new(next_ids.0), Incoming::new(next_ids.1, window));
        Self {
            link,
            channel,
            session,
            peer,
            client,
            assigned,
            claims: !client,
            descent,
            requests,
            answers,
            last_in: now,
            last_out: now,
            lines: Pace::default(),
        }
    }

    /// Whether another line goes into the log about what the peer does.
    pub(crate) fn may_say(&mut self, now: Instant) -> bool {
        self.lines.may(now, LINES_EVERY, LINES_BURST)
    }

    /// A successor has the identities from its birth, and its own keys and ids: "The new IKE SA MUST reset its message counters to
    /// 0." (RFC 7296 section 2.18)
    pub(super) fn inherit(&mut self, old: &mut Self) {
        let Self {
            link,
            channel: _,
            session: _,
            peer: _,
            client: _,
            assigned: _,
            claims: _,
            descent,
            requests: _,
            answers: _,
            last_in,
            last_out,
            lines,
        } = old;
        let Link { id: _, conn, initiator: _, spis: _, path, fragmentation: _, redirects: _, stats } = link;
        (self.last_in, self.last_out, self.lines) = (*last_in, *last_out, *lines);
        if let (Some(ours), Some(theirs)) = (&mut self.descent, descent) {
            ours.recorded |= theirs.recorded;
            ours.ends = ours.ends.max(theirs.ends);
        }
        self.link.path = *path;
        self.link.conn.clone_from(conn);
        self.link.stats = std::mem::take(stats);
    }

    /// Whose lineages are its peer's.
    pub(crate) fn holder(&self) -> TicketHolder {
        TicketHolder::of(&self.link.conn.name, &self.peer)
    }

    pub(crate) fn id(&self) -> SaId {
        self.link.id
    }

    /// A protected message: the answer to the peer's request `id`, or our request of that id.
    pub(crate) fn seal(
        &mut self,
        shared: &mut Shared,
        exchange: ExchangeType,
        response: bool,
        id: u32,
        payloads: &[Payload],
    ) -> Vec<Vec<u8>> {
        let header = self.link.header(exchange, response, id);
        self.channel.seal(&self.link, shared, &header, payloads)
    }

    /// Sends a request and starts its timers; it is repeated after `wait` and given up at `until`.
    pub(super) fn request(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        wait: Duration,
        until: Instant,
        request: &Request,
        exchange: Exchange,
    ) {
        let Request { payloads, kind, class } = request;
        let id = self.requests.next_id();
        let datagrams = self.seal(shared, exchange.exchange_type(), false, id, payloads);
        self.link.send(shared, *class, &datagrams);
        self.link.stats.begin(*kind);
        shared.stats.begin(*kind);
        self.last_out = now;
        self.requests.start(now, wait, until, datagrams, *class, exchange);
    }

    /// Answers the peer's request `id`, and keeps the answer for its repetitions.
    /// "[...] MUST respond to the address and port from which the request was received" (RFC 7296 section 2.11)
    pub(crate) fn answer(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        path: Path,
        exchange: ExchangeType,
        id: u32,
        answer: &Answer,
    ) -> Vec<Vec<u8>> {
        let datagrams = self.seal(shared, exchange, true, id, &answer.payloads);
        self.link.send_by(shared, path, Class::Timely, &datagrams);
        self.last_out = now;
        self.link.stats.answer(answer.kind);
        shared.stats.answer(answer.kind);
        datagrams
    }

    /// Sends the answer to a repeated request again.
    pub(super) fn repeat_answer(&mut self, shared: &mut Shared, path: Path, id: u32) {
        let Some(datagrams) = self.answers.answer(id).cloned() else { return };
        let repeated = datagrams.len() as u64;
        self.link.stats.retransmissions += repeated;
        shared.stats.retransmissions += repeated;
        self.link.send_by(shared, path, Class::Timely, &datagrams);
    }

    /// Repeats everything under way by the present path, and again after `wait`; see [`Outgoing::resend_all`].
    pub(super) fn resend(&mut self, shared: &mut Shared, now: Instant, wait: Duration, afresh: bool) {
        for (datagrams, class) in self.requests.resend_all(now, wait, afresh) {
            self.link.send_again(shared, class, &datagrams);
        }
        self.last_out = now;
    }

    /// The peer may say how many requests it takes at once (RFC 7296 section 2.3).
    /// "The data associated with a SET_WINDOW_SIZE notification MUST be 4 octets long" (RFC 7296 section 2.3)
    pub(crate) fn note_window(&mut self, view: View<'_>) {
        let size = view.notify(NotifyType::SetWindowSize).map(|n| <[u8; 4]>::try_from(n.data.as_slice()));
        if let Some(Ok(size)) = size {
            self.requests.set_window(u32::from_be_bytes(size));
        }
    }

    /// ESP traffic of the SA's children, which IKE does not see: it stands for liveness and keepalives.
    pub(crate) fn note_traffic(&mut self, sent: Option<Instant>, received: Option<Instant>) {
        self.last_out = self.last_out.max(sent.unwrap_or_default());
        self.last_in = self.last_in.max(received.unwrap_or_default());
    }

    /// A round trip is over.
    pub(super) fn answered(&mut self, shared: &mut Shared) {
        self.link.stats.round_trips += 1;
        shared.stats.round_trips += 1;
    }
}

//! One client connection: its ladder, its ticket, the SAs that serve it, and what of its traffic may have to be sent again. Must
//! never decide what the ladder decides.

use crate::config::Resolved;
use crate::event::{Event, FailureKind, Offer, Order, Store};
use crate::hold::HoldQueue;
use crate::ladder::{Failure, Ladder, State, Wake};
use dormouse_esp::Selectors;
use dormouse_ike::config_payload::AssignedConfig;
use dormouse_ike::limits::UNHEARD_MOST;
use dormouse_ike::ticket::ClientTicket;
use dormouse_ike::{Gateway, NegotiationError};
use dormouse_keying::{ChildId, SaId};
use dormouse_sansio::{Entropy, Instant, UnixTime};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

/// So often a client is sent elsewhere ([`crate::redirect`]).
const REDIRECTS_MOST: usize = 5;
/// Within this time.
const WITHIN: Duration = Duration::from_secs(300);

/// Where a client goes instead of to its gateway, if it has been sent.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere {
    pub(crate) to: Option<Gateway>,
    /// It logs in at another address of its gateway's name, to which the one at this address has sent it.
    pub(crate) sent_by: Option<IpAddr>,
    /// When it was last in vain that it let itself be sent to another address of the name.
    in_vain: Option<Instant>,
    times: VecDeque<Instant>,
}

impl Elsewhere {
    /// Whether it may be sent once more.
    pub(crate) fn admits(&mut self, now: Instant) -> bool {
        self.times.retain(|at| now - *at < WITHIN);
        let admitted = self.times.len() < REDIRECTS_MOST;
        if admitted {
            self.times.push_back(now);
        }
        admitted
    }

    /// For a while it does not say that it lets itself be sent to another address of the name: it is served where it is.
    pub(crate) fn decline(&mut self, now: Instant) {
        (self.sent_by, self.in_vain) = (None, Some(now));
    }

    /// Whether it lets itself be sent to another address of its gateway's name.
    fn follows_name(&self, now: Instant) -> bool {
        self.to.is_none() && self.sent_by.is_none() && self.in_vain.is_none_or(|at| now - at >= WITHIN)
    }
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) config: Resolved,
    pub(crate) ladder: Ladder,
    /// It may come up because something needs it: it was not taken down by request.
    pub(crate) on_demand: bool,
    /// The SA that serves the connection.
    pub(crate) sa: Option<SaId>,
    /// The SA that is being negotiated.
    pub(crate) attempt: Option<SaId>,
    ticket: Option<ClientTicket>,
    /// The ticket is of no use any more, and its removal was not announced.
    spent: bool,
    /// What the last [`crate::event::Order::Configure`] said.
    pub(crate) configured: Option<(AssignedConfig, Vec<ipnet::IpNet>, Option<IpAddr>)>,
    /// Traffic of the last CHILD SA: packets of it are held while the session comes back.
    pub(crate) last_selectors: Vec<Selectors>,
    /// Copies of what was sent since the gateway was last heard.
    pub(crate) resend: HoldQueue,
    /// How far the ESP of each child had come in when the radio went to sleep, until something comes in again.
    pub(crate) heard_up_to: BTreeMap<ChildId, u64>,
    /// The driver waits for [`crate::Event::SleepReady`].
    pub(crate) preparing: bool,
    announced: Option<Wake>,
    /// The last failure, in words, until the session is up again.
    pub(crate) last_error: Option<(String, FailureKind)>,
    /// What was offered then.
    pub(crate) last_offer: Offer,
    /// The gateway that its own has sent it to.
    pub(crate) elsewhere: Elsewhere,
    /// Bytes of a message of the attempt that runs, or of the SA, that was too big for the path.
    pub(crate) too_big: Option<usize>,
}

impl Client {
    /// A CHILD SA with these selectors is up. As many are kept as are configured: of those that are still to come, what the session
    /// before this one had, so that their traffic does not go in clear meanwhile.
    pub(crate) fn note_selectors(&mut self, selectors: &Selectors) {
        self.last_selectors.retain(|s| s.remote() != selectors.remote());
        self.last_selectors.push(selectors.clone());
        let surplus = self.last_selectors.len().saturating_sub(self.config.ike.children.len());
        self.last_selectors.drain(..surplus);
    }

    pub(crate) fn new(config: Resolved) -> Self {
        let ladder = Ladder::new(config.deadlines);
        let resend = HoldQueue::new(config.hold_packets);
        Self {
            config,
            ladder,
            on_demand: true,
            sa: None,
            attempt: None,
            ticket: None,
            spent: false,
            configured: None,
            last_selectors: Vec::new(),
            resend,
            heard_up_to: BTreeMap::new(),
            preparing: false,
            announced: None,
            last_error: None,
            last_offer: Offer::default(),
            elsewhere: Elsewhere::default(),
            too_big: None,
        }
    }

    pub(crate) fn set_ticket(&mut self, ticket: Option<ClientTicket>) {
        self.ticket = ticket;
        self.trust_ticket();
        self.spent = false;
    }

    /// The gateway has said, under keys that only it can have, that the ticket does not count: what is left of it is the name of its
    /// lineage, to be written down.
    pub(crate) fn refuse_ticket(&mut self) -> Option<Event> {
        self.ladder.set_ticket(false);
        self.ticket.as_mut()?.refused();
        self.stored_ticket()
    }

    /// The session was resumed at once, and the gateway has not been heard on it: it may be asking its store.
    pub(crate) fn awaits_verdict(&self) -> bool {
        self.ticket.as_ref().is_some_and(|ticket| ticket.unheard > 0)
    }

    /// The gateway was heard: it has accepted our ticket. The ticket is stored if the one on disk is no longer valid.
    pub(crate) fn heard(&mut self) -> Option<Event> {
        let ticket = self.ticket.as_mut()?;
        let before = std::mem::take(&mut ticket.unheard);
        if before > 0 {
            self.trust_ticket();
        }
        self.stored_ticket().filter(|_| before >= UNHEARD_MOST)
    }

    fn stored_ticket(&self) -> Option<Event> {
        let bytes = Some(self.ticket.as_ref()?.encode());
        let ticket = Store::Ticket { connection: self.config.name.clone(), bytes };
        Some(Event::Order(Order::Store(ticket)))
    }

    /// Before another climb: a refusal in clear may have been forged, and the ticket is tried again.
    pub(crate) fn trust_ticket(&mut self) {
        self.ladder.set_ticket(self.ticket.as_ref().is_some_and(ClientTicket::is_usable));
    }

    /// The ticket has been used, or its SA was deleted.
    pub(crate) fn spend_ticket(&mut self) {
        if self.ticket.is_some() {
            self.set_ticket(None);
            self.spent = true;
        }
    }

    /// The connection, if its stored ticket is to be removed.
    pub(crate) fn used_up(&mut self) -> Option<String> {
        core::mem::take(&mut self.spent).then(|| self.config.name.clone())
    }

    /// It stays here until the gateway has refused or replaced it: an attempt without an answer has not used it up.
    pub(crate) fn ticket(&self) -> Option<&ClientTicket> {
        self.ticket.as_ref()
    }

    pub(crate) fn forget_expired(&mut self, now: UnixTime) {
        if self.ticket.as_ref().is_some_and(|t| t.expires <= now) {
            self.set_ticket(None);
        }
    }

    /// The name or the address of the gateway that it goes to now.
    pub(crate) fn gateway(&self) -> Option<String> {
        let elsewhere = self.elsewhere.to.as_ref().map(ToString::to_string);
        elsewhere.or_else(|| self.config.gateway.clone())
    }

    /// Other addresses of its gateway's name to which it lets itself be sent when it logs in at this one.
    pub(crate) fn same_name(&self, now: Instant, at: IpAddr) -> Vec<IpAddr> {
        if self.elsewhere.follows_name(now) { self.ladder.besides(at) } else { Vec::new() }
    }

    /// What it is doing. A session whose first CHILD SA is still to come (RFC 6023) is not up.
    pub(crate) fn state(&self) -> State {
        match (self.ladder.state(), self.ladder.last_wake()) {
            (State::Up, Some(wake)) if !self.is_complete() => State::Climbing(wake.rung),
            (state, _) => state,
        }
    }

    /// Whether the last success of the ladder was announced: what carries the traffic is there too.
    pub(crate) fn is_complete(&self) -> bool {
        self.ladder.last_wake().is_none_or(|wake| self.announced == Some(wake))
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.ladder.state() != State::Down
    }

    /// A success that was not announced yet.
    pub(crate) fn unannounced_success(&mut self) -> Option<Wake> {
        let wake = self.ladder.last_wake();
        if wake == self.announced {
            return None;
        }
        self.announced = wake;
        self.last_error = None;
        self.too_big = None;
        wake
    }
}

/// What a failed negotiation means to the ladder, and to people.
pub(crate) fn failure_of(error: &NegotiationError, entropy: &mut dyn Entropy) -> (Failure, FailureKind) {
    use NegotiationError as E;
    match error {
        E::Timeout { .. } => (Failure::Timeout, FailureKind::Timeout),
        E::TicketRefused
        | E::TicketExpired
        | E::TicketOutdated
        | E::TicketUntrusted(_)
        | E::TicketSuperseded => (Failure::TicketRefused, FailureKind::Other),
        E::UnknownSpi => (Failure::Lost, FailureKind::Other),
        E::Busy => {
            let mut spread = [0];
            entropy.fill(&mut spread);
            let [spread] = spread;
            (Failure::Busy(spread), FailureKind::Busy)
        }
        E::RefusedByPeer { .. }
        | E::Authentication(_)
        | E::CannotSign(_)
        | E::Eap(_)
        | E::NoEap { .. }
        | E::NotAdmitted(_)
        | E::WrongIdentity { .. }
        | E::Ppk(_)
        | E::NoConnection { .. } => (Failure::Refused, FailureKind::Authentication),
        E::NoProposalChosen { .. }
        | E::ProposalsRefused { .. }
        | E::WrongProposal { .. }
        | E::TrafficSelectors { .. }
        | E::KeyExchangeGroup { .. } => (Failure::Refused, FailureKind::Proposal),
        // "it SHOULD retry IKE_SA establishment several times, starting from a new IKE_SA_INIT request" (RFC 4555 section 3.9),
        // after UNEXPECTED_NAT_DETECTED: the ladder tries again, with longer and longer pauses.
        _ => (Failure::Refused, FailureKind::Other),
    }
}

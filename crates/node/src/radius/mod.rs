//! A gateway's part in RADIUS (RFC 2865, 2866, 3579): which servers are asked whether a user is let in, and told of sessions. Owns questions and reports on their
//! way; must never open a socket or read a clock: the driver carries out [`SocketOrder`]s, and hands in what comes.
//!
//! # What protects it
//! Each request has a socket of its own, so that the kernel draws its port, a random identifier, and takes datagrams of its server alone; the codec
//! ([`dormouse_eap::radius`]) demands a Message-Authenticator of every answer.

mod accounting;
mod asking;
mod flight;
mod limits;
mod servers;
#[cfg(test)]
mod tests;

pub(crate) use accounting::{About, Account};
pub use servers::{Health, Server};

pub(crate) use limits::INTERIM_LEAST;

use accounting::Accounting;
use asking::Asking;
use dormouse_eap::radius::{Event, Usage};
use dormouse_ike::elsewhere::{Question, Verdict};
use dormouse_keying::{Owner, SaId};
use dormouse_sansio::{Deadline, Entropy, Instant};
use servers::Servers;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// The configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Who know the users, the first that answers is asked.
    pub servers: Vec<Server>,
    /// Who are told of sessions; none: nobody is.
    pub accounting: Vec<Server>,
    /// The gateway's name (NAS-Identifier).
    pub name: String,
    /// A request is repeated after this time.
    pub timeout: Duration,
    /// A server does not answer that was sent a request so often.
    pub tries: u32,
    /// How often a session is reported on while it lasts, unless its user's server says otherwise.
    pub interim: Option<Duration>,
}

/// How long a server is waited for.
#[derive(Clone, Copy, Debug)]
struct Patience {
    timeout: Duration,
    tries: u32,
}

/// What the driver does with sockets, which have numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SocketOrder {
    /// Send this, from a socket of this number: if there is none yet, from a new one with a port of the kernel's choice, which hears this server alone. What comes goes to
    /// [`crate::Node::radius_came`], and that nothing can be sent or heard to [`crate::Node::radius_unreachable`].
    Send {
        /// The socket.
        socket: u64,
        /// The server.
        to: SocketAddr,
        /// The datagram.
        bytes: Vec<u8>,
    },
    /// Close it.
    Close {
        /// The socket.
        socket: u64,
    },
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Do {
    Socket(SocketOrder),
    Tell(SaId, Verdict),
}

/// See [`Do`].
#[derive(Debug, Default)]
struct Out(VecDeque<Do>);

impl Out {
    fn order(&mut self, order: SocketOrder) {
        self.0.push_back(Do::Socket(order));
    }

    fn verdict(&mut self, sa: SaId, verdict: Verdict) {
        self.0.push_back(Do::Tell(sa, verdict));
    }
}

/// What each step needs and adds to.
struct Work<'a> {
    now: Instant,
    sockets: &'a mut u64,
    entropy: &'a mut dyn Entropy,
    out: &'a mut Out,
}

impl Work<'_> {
    /// The number of a new socket.
    fn socket(&mut self) -> u64 {
        *self.sockets += 1;
        *self.sockets
    }
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Radius {
    policy: Policy,
    asking: Asking,
    accounting: Accounting,
    /// Sockets that there were.
    sockets: u64,
    out: Out,
}

impl Radius {
    pub(crate) fn new(policy: Policy) -> Self {
        let patience = Patience { timeout: policy.timeout, tries: policy.tries };
        let asking = Asking::new(Servers::new(policy.servers.clone()), policy.name.clone(), patience);
        let accounting =
            Accounting::new(Servers::new(policy.accounting.clone()), policy.name.clone(), patience);
        Self { policy, asking, accounting, sockets: 0, out: Out::default() }
    }

    pub(crate) const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Goes on with another configuration: who waits for an answer is told that there is none, and reports are sent to the new servers.
    pub(crate) fn reconfigure(&mut self, policy: Policy) {
        let mut next = Self::new(policy);
        next.sockets = self.sockets;
        self.asking.give_up(&mut self.out);
        self.accounting.hand_over(&mut next.accounting, &mut self.out);
        next.asking.inherit(&mut self.asking);
        next.out = std::mem::take(&mut self.out);
        *self = next;
    }

    /// Nobody is asked or told any more: who waits for an answer hears so, and sockets are closed, once what is to be done has been polled.
    pub(crate) fn end_all(&mut self) {
        self.reconfigure(Policy { servers: Vec::new(), accounting: Vec::new(), ..self.policy.clone() });
    }

    fn with<R>(
        &mut self,
        now: Instant,
        entropy: &mut dyn Entropy,
        act: impl FnOnce(&mut Asking, &mut Accounting, &mut Work<'_>) -> R,
    ) -> R {
        let mut work = Work { now, sockets: &mut self.sockets, entropy, out: &mut self.out };
        let result = act(&mut self.asking, &mut self.accounting, &mut work);
        self.asking.go_on(&mut work);
        self.accounting.go_on(&mut work);
        result
    }

    /// Asks a server.
    pub(crate) fn ask(&mut self, now: Instant, entropy: &mut dyn Entropy, question: Question) {
        self.with(now, entropy, |asking, _, work| asking.ask(question, work));
    }

    /// A datagram came to a socket.
    pub(crate) fn came(&mut self, now: Instant, entropy: &mut dyn Entropy, socket: u64, datagram: &[u8]) {
        self.with(now, entropy, |asking, accounting, work| {
            asking.came(socket, datagram, work) || accounting.came(socket, datagram, work)
        });
    }

    /// Nothing can be sent to a socket's server, or heard from it.
    pub(crate) fn unreachable(&mut self, now: Instant, entropy: &mut dyn Entropy, socket: u64, why: &str) {
        self.with(now, entropy, |asking, accounting, work| {
            asking.unreachable(socket, why, work) || accounting.unreachable(socket, why, work)
        });
    }

    /// A session begins: what is reported of it from now on.
    pub(crate) fn begin(
        &mut self,
        now: Instant,
        entropy: &mut dyn Entropy,
        owner: Owner,
        about: About,
    ) -> Option<Box<Account>> {
        if self.policy.accounting.is_empty() {
            return None;
        }
        let memory = self.asking.granted(&about.connection, &about.user).cloned().unwrap_or_default();
        let interim = memory.grants.interim.map(|interim| interim.max(INTERIM_LEAST)).or(self.policy.interim);
        let account = Account::new(now, entropy, about, memory, interim);
        self.with(now, entropy, |_, accounting, work| accounting.report(work.now, &account, Event::Start));
        self.accounting.schedule(now, owner, &account);
        Some(Box::new(account))
    }

    /// A session has ended.
    pub(crate) fn end(
        &mut self,
        now: Instant,
        entropy: &mut dyn Entropy,
        account: &Account,
        usage: Usage,
        cause: u32,
    ) {
        self.with(now, entropy, |_, accounting, work| {
            accounting.report(work.now, account, Event::Stop(usage, cause));
        });
    }

    /// A session whose interim report is due, if one is. The next one is due after [`Radius::interim`].
    pub(crate) fn due_interim(&mut self, now: Instant) -> Option<Owner> {
        self.accounting.due_interim(now)
    }

    /// Reports on a session that goes on.
    pub(crate) fn interim(
        &mut self,
        now: Instant,
        entropy: &mut dyn Entropy,
        owner: Owner,
        account: &Account,
        usage: Usage,
    ) {
        self.with(now, entropy, |_, accounting, work| {
            accounting.report(work.now, account, Event::Interim(usage))
        });
        self.accounting.schedule(now, owner, account);
    }

    /// A session goes on as another one.
    pub(crate) fn moved(&mut self, now: Instant, to: Owner, account: &Account) {
        self.accounting.schedule(now, to, account);
    }

    /// Acts on what is due, but for interim reports.
    pub(crate) fn handle_timeout(&mut self, now: Instant, entropy: &mut dyn Entropy) {
        self.with(now, entropy, |asking, accounting, work| {
            asking.handle_timeout(work);
            accounting.handle_timeout(work);
        });
    }

    /// When something is due.
    pub(crate) fn timers(&self) -> impl Iterator<Item = Deadline> {
        let strict = [(self.asking.due(), "RADIUS"), (self.accounting.due(), "RADIUS accounting")];
        let strict = strict.into_iter().filter_map(|(at, why)| Some(Deadline::strict(at?, why)));
        strict.chain(self.accounting.interim_deadline())
    }

    /// What is to be done, oldest first.
    pub(crate) fn poll(&mut self) -> Option<Do> {
        self.out.0.pop_front()
    }

    /// Questions that wait for an answer, and reports.
    pub(crate) fn pending(&self) -> (usize, usize) {
        (self.asking.pending(), self.accounting.pending())
    }

    /// What is known of those who know users, and of those who are told of sessions.
    pub(crate) fn health(&self) -> [Vec<Health>; 2] {
        [&self.asking.servers, &self.accounting.servers].map(|servers| servers.health().cloned().collect())
    }

    /// Reports that were lost, as no server took them.
    pub(crate) const fn lost(&self) -> u64 {
        self.accounting.lost
    }
}

//! The wake-up ladder: how a client's session comes back, cheapest way first, each rung with its deadline.
//!
//! | rung | when | what it costs |
//! |---|---|---|
//! | [`Rung::Held`] | same address, SA still held here | nothing: data goes out at once; doubt is settled by a probe |
//! | [`Rung::Move`] | the address changed, SA still held here (IKE: MOBIKE) | one round trip beside the data, which does not wait for it |
//! | [`Rung::Resume`] | the gateway has lost the SA, or answers nothing (IKE: by ticket) | two round trips, no public-key operation |
//! | [`Rung::Full`] | no ticket, it was refused, or the gateway cannot say in time whether it counts | IKE_SA_INIT, IKE_INTERMEDIATE if hybrid, IKE_AUTH |
//!
//! A gateway may have several addresses (RFC 4555 section 3.4, [`Ladder::others`]), and several gateways that share what they know of tickets
//! one name: before an SA is given up for lack of an answer, it is moved to each of the others, and the last two rungs take turns with
//! them, beginning with one that has not been silent. The ticket is tried at each of them before a full exchange is, and first at the gateway that
//! had the last session ([`Ladder::set_home`]), however the name orders its addresses now.
//!
//! A rung that fails or is late hands over to the next; the last one starts again with growing pauses. Without a network,
//! and while the node may not send, nothing is tried and nothing is due: the ladder is [`State::Offline`], and [`Ladder::poll_timeout`] is
//! `None` until [`Ladder::network`] reports a path or [`Ladder::wake`] is called. Which of the two it is, the ladder does not keep: whether the
//! node may send is the node's to know.
//!
//! The ladder owns only the decision. It must never build a message: what it wants done comes out of
//! [`Ladder::poll_action`], and [`crate::Node`] carries it out on the IKE endpoint.
//!
//! A sleep that was announced to the gateway (`docs/wire/dormancy.md`) leaves no doubt: within the hold that it granted the SA is
//! there, however long its liveness check would have waited; after the hold, or when it released the SA, the ladder begins
//! with the ticket.
//!
//! # Timers
//! *greeting*: a device that wakes from an announced sleep and has nothing to send says so after [`GREETING`], with a probe.
//! *unanswered*: data went out and nothing came back for `held`; then the gateway is probed. With the probe's own deadline that is how
//! soon a gateway that has lost the SA and says nothing is noticed: 4 s by default; one with other addresses is asked at each of them, for
//! *probe* each, before the next rung. It counts time with the radio on: a sleep stops it,
//! and a question that was under way is asked anew after the wake. *probe*, *resume*, *full*: the deadline of the rung that runs. *back-off*: 1 s, doubled to 60 s, before a
//! full exchange is tried again; a refusal (authentication, proposal) starts at 30 s, because only a person can mend it. Where the gateway says
//! that it has no time, the pause is from half of that to one and a half, drawn at random, so that not all clients which it refused come back together.

mod leaving;
mod ways;
mod words;

pub use words::{Action, Deadlines, Failure, Granted, Rung, State, Wake};

use dormouse_sansio::{Deadline, Instant, Path};
use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

/// A gateway that holds packets for a sleeping device must hear that it is awake. Usually data says so first.
const GREETING: Duration = Duration::from_millis(100);
/// A gateway that has said nothing for this long may be gone: what is sent to it is not known to arrive. Less than any gateway takes to
/// come back without its sessions; long enough that traffic which flows both ways is not copied packet by packet.
pub const QUIET: Duration = Duration::from_millis(10);
const BACKOFF_FIRST: Duration = Duration::from_secs(1);
const BACKOFF_REFUSED: Duration = Duration::from_secs(30);
const BACKOFF_MOST: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
enum Wait {
    /// Nothing is due.
    Nothing,
    /// Data went out; an answer is due.
    Answer(Instant),
    /// Nothing went out yet since an announced sleep; the gateway must hear of the wake.
    Greeting(Instant),
    /// The rung's own exchange is due.
    Exchange(Instant),
    /// Back-off ends.
    Retry(Instant),
}

/// The ladder of one client connection.
#[derive(Debug)]
pub struct Ladder {
    deadlines: Deadlines,
    state: State,
    wait: Wait,
    /// The path to the gateway, if there is a network.
    path: Option<Path>,
    /// The paths to the gateway's other addresses.
    others: Vec<Path>,
    /// Addresses of the gateway that had the last session.
    home: BTreeSet<IpAddr>,
    /// Addresses of the gateway that did not answer on the held SA, since it last did.
    silent: Vec<IpAddr>,
    /// Which of the addresses the next handshake goes to.
    turn: usize,
    /// How many addresses were asked in vain with the ticket, since the ladder began.
    unresumed: usize,
    /// The path that the held SA uses. `None`: no SA is held.
    held: Option<Path>,
    /// When the sleep began that ended with the last wake, until the way to the gateway is known again.
    slept_at: Option<Instant>,
    granted: Option<Granted>,
    /// A question was open when the radio or the network went away: its answer is due within this time, counted from the next
    /// packet that goes out. Zero: a probe was under way, so it is repeated.
    unanswered: Option<Duration>,
    has_ticket: bool,
    backoff: Duration,
    climb_started: Instant,
    /// When the gateway was last heard.
    heard: Instant,
    last_wake: Option<Wake>,
    /// The rung whose deadline has passed, until [`Ladder::take_expired`].
    expired: Option<Rung>,
    actions: VecDeque<Action>,
}

impl Ladder {
    /// A ladder that is down.
    #[must_use]
    pub fn new(deadlines: Deadlines) -> Self {
        Self {
            deadlines,
            state: State::Down,
            wait: Wait::Nothing,
            path: None,
            others: Vec::new(),
            home: BTreeSet::new(),
            silent: Vec::new(),
            turn: 0,
            unresumed: 0,
            held: None,
            slept_at: None,
            granted: None,
            unanswered: None,
            has_ticket: false,
            backoff: BACKOFF_FIRST,
            climb_started: Instant::ZERO,
            heard: Instant::ZERO,
            last_wake: None,
            expired: None,
            actions: VecDeque::new(),
        }
    }

    /// What it is doing.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// How the session came back the last time.
    #[must_use]
    pub fn last_wake(&self) -> Option<Wake> {
        self.last_wake
    }

    /// True if data may be sent over the held SA: established, or being confirmed meanwhile.
    #[must_use]
    pub fn data_flows(&self) -> bool {
        matches!(self.state, State::Up | State::Climbing(Rung::Held | Rung::Move)) && self.held.is_some()
    }

    /// True if data that goes out now may be lost with the SA: it is being tried after a wake, or the gateway is silent.
    #[must_use]
    pub fn unconfirmed(&self, now: Instant) -> bool {
        self.data_flows() && (self.state != State::Up || now - self.heard > QUIET)
    }

    /// A ticket is at hand, or no longer.
    pub fn set_ticket(&mut self, held: bool) {
        self.has_ticket = held;
    }

    /// The session is wanted, and comes up as soon as the node may send.
    pub fn up(&mut self, now: Instant, may_send: bool) {
        match self.state {
            State::Down if may_send => {
                self.backoff = BACKOFF_FIRST;
                self.begin(now);
            }
            State::Down => self.state = State::Offline,
            _ => {}
        }
    }

    /// The session is no longer wanted. The caller deletes the SA itself.
    pub fn down(&mut self) {
        self.state = State::Down;
        self.wait = Wait::Nothing;
        self.held = None;
        self.slept_at = None;
        self.granted = None;
        self.unanswered = None;
        self.actions.clear();
    }

    /// The way to the gateway: a path, or no network. A path equal to the one in use changes nothing. While the node may not send, it is
    /// only remembered.
    pub fn network(&mut self, now: Instant, path: Option<Path>, may_send: bool) {
        let before = std::mem::replace(&mut self.path, path);
        match self.state {
            State::Down => {}
            State::Offline if path.is_none() || !may_send => {}
            State::Offline => self.begin(now),
            _ if path.is_none() => {
                self.remember_question(now);
                self.stop_exchange();
                self.state = State::Offline;
                self.wait = Wait::Nothing;
            }
            _ if before.map(addresses) != path.map(addresses) => {
                self.stop_exchange();
                self.begin(now);
            }
            _ => {}
        }
    }

    /// What the gateway was asked is not answered in time. If its data came to the new address meanwhile, it has moved there: some send
    /// the answer to the old address (libreswan). Otherwise another of its addresses is tried. False if there is none left.
    pub fn unanswered(&mut self, now: Instant) -> bool {
        if let (State::Climbing(Rung::Move), Wait::Exchange(at)) = (self.state, self.wait)
            && self.heard + self.deadlines.probe > at
        {
            self.succeed(now, Rung::Move);
            return true;
        }
        let on_trial = matches!(self.state, State::Up | State::Climbing(Rung::Held | Rung::Move));
        let (true, Some(held)) = (on_trial, self.held) else { return false };
        self.silent.push(held.remote.ip());
        let Some(next) = self.entries().into_iter().find(|p| !self.silent.contains(&p.remote.ip())) else {
            return false;
        };
        if self.state == State::Up {
            self.climb_started = now;
        }
        self.move_held(now, held, next);
        true
    }

    fn move_held(&mut self, now: Instant, held: Path, to: Path) {
        self.state = State::Climbing(Rung::Move);
        // The port and carrier in use stay: a NAT that was there may be gone, and the update finds out.
        let moved = to.with_ports(held.carrier, held.local.port(), held.remote.port());
        self.held = Some(moved);
        self.actions.push_back(Action::Update(moved));
        self.wait = Wait::Exchange(now + self.deadlines.probe);
    }

    /// What the gateway said to the announcement of the sleep that follows; `None`: nothing, or nothing that still counts.
    pub fn granted(&mut self, granted: Option<Granted>) {
        self.granted = granted;
    }

    /// The node stops sending: nothing is due until [`Ladder::wake`].
    pub fn sleep(&mut self, now: Instant) {
        if self.state == State::Down {
            return;
        }
        self.remember_question(now);
        self.stop_exchange();
        self.state = State::Offline;
        self.wait = Wait::Nothing;
    }

    /// The node may send again; `slept_since`: since when it might not, if it might not. Call [`Ladder::network`] first, if the path is known
    /// to have changed.
    pub fn wake(&mut self, now: Instant, slept_since: Option<Instant>) {
        if self.state == State::Offline {
            self.slept_at = slept_since.or(self.slept_at);
            self.begin(now);
        }
    }

    /// Climbs one rung although nothing asks for it: what it costs on this device is measured that way. A rung that fails hands over to
    /// the next as ever. False, and nothing done, unless the session is up, no exchange is under way and the rung has what it needs.
    pub fn exercise(&mut self, now: Instant, rung: Rung) -> bool {
        let at_rest = self.state == State::Up && !matches!(self.wait, Wait::Exchange(_));
        let (true, Some(held), Some(path)) = (at_rest, self.held, self.path) else { return false };
        match rung {
            Rung::Resume if !self.has_ticket => return false,
            Rung::Held => {
                self.state = State::Climbing(rung);
                self.probe(now);
            }
            Rung::Move => {
                self.state = State::Climbing(rung);
                self.actions.push_back(Action::Update(held));
                self.wait = Wait::Exchange(now + self.deadlines.probe);
            }
            Rung::Resume | Rung::Full => {
                self.actions.push_back(Action::Abandon);
                self.held = None;
                self.state = State::Climbing(rung);
                let way = self.way_to(held.remote.ip()).unwrap_or(path);
                let (action, limit) = match rung {
                    Rung::Resume => (Action::Resume(way), self.deadlines.resume),
                    _ => (Action::Connect(way), self.deadlines.full),
                };
                self.actions.push_back(action);
                self.wait = Wait::Exchange(now + limit);
            }
        }
        self.climb_started = now;
        // The success that follows is news, even if it takes as long as the last one did.
        self.last_wake = None;
        true
    }

    /// An SA is established, by ticket or by a full exchange, over `path`.
    pub fn established(&mut self, now: Instant, path: Path, resumed: bool) {
        self.held = Some(path);
        self.heard = now;
        self.succeed(now, if resumed { Rung::Resume } else { Rung::Full });
        // The network may have changed while the last answer was on its way.
        if self.path.is_some() && !self.ways().any(|way| addresses(way) == addresses(path)) {
            self.begin(now);
        }
    }

    /// The SA that is established will not carry anything: the attempt is not over yet, and may fail.
    pub fn reopen(&mut self) {
        if self.state == State::Up {
            self.held = None;
            self.state = State::Climbing(Rung::Full);
        }
    }

    /// The SA's own traffic moved to another path (NAT traversal changed ports, or the gateway's address changed).
    pub fn moved(&mut self, path: Path) {
        if self.held.is_some() {
            self.held = Some(path);
        }
    }

    /// Data went out over the held SA.
    pub fn outbound(&mut self, now: Instant) {
        if matches!(self.state, State::Up | State::Climbing(_)) {
            // The gateway knows now that we are awake: a grant for the sleep counts no more.
            self.granted = None;
        }
        if let Wait::Nothing | Wait::Greeting(_) = self.wait {
            match self.state {
                State::Climbing(Rung::Held) => {
                    let patience = self
                        .unanswered
                        .take()
                        .map_or(self.deadlines.held, |left| left.min(self.deadlines.held));
                    self.wait = Wait::Answer(now + patience);
                }
                State::Up => self.wait = Wait::Answer(now + self.deadlines.held),
                _ => {}
            }
        }
    }

    /// Something authenticated came in over the held SA: data, or an IKE message.
    pub fn inbound(&mut self, now: Instant) {
        self.heard = now;
        self.unanswered = None;
        match self.state {
            State::Climbing(Rung::Held) => self.succeed(now, Rung::Held),
            State::Up => self.wait = Wait::Nothing,
            _ => {}
        }
    }

    /// The gateway confirmed the probe or the address update.
    pub fn confirmed(&mut self, now: Instant) {
        self.heard = now;
        self.unanswered = None;
        match self.state {
            State::Climbing(rung @ (Rung::Held | Rung::Move)) => self.succeed(now, rung),
            State::Up => self.wait = Wait::Nothing,
            _ => {}
        }
    }

    /// An unauthenticated message says that the gateway has lost the SA. Unsolicited, it is worth a probe, never the SA.
    /// In answer to a request that is under way (`asked`) it is what a gateway without the SA says, and all that it can say:
    /// the next rung is tried at once. An attacker on the path who forges it could as well drop the request.
    pub fn doubt(&mut self, now: Instant, asked: bool) {
        match (self.state, self.wait) {
            (State::Up | State::Climbing(Rung::Held | Rung::Move), Wait::Exchange(_)) if asked => {
                self.actions.push_back(Action::Abandon);
                self.failed(now, Failure::Lost);
            }
            (
                State::Up | State::Climbing(Rung::Held),
                Wait::Nothing | Wait::Answer(_) | Wait::Greeting(_),
            ) => self.probe(now),
            // It was under way when the radio went off.
            (State::Offline, _) if self.held.is_some() => self.unanswered = Some(Duration::ZERO),
            _ => {}
        }
    }

    /// The running attempt, or the held SA, failed.
    pub fn failed(&mut self, now: Instant, why: Failure) {
        match self.state {
            State::Up | State::Climbing(Rung::Held | Rung::Move) => {
                self.held = None;
                if self.state == State::Up {
                    self.climb_started = now;
                }
                let speaks = self.entries().iter().position(|way| !self.silent.contains(&way.remote.ip()));
                self.turn = speaks.unwrap_or(self.turn);
                // The same question again would wait for the same answer, for as long as that takes too long.
                if why == Failure::Undecided { self.connect(now) } else { self.without_sa(now) }
            }
            State::Climbing(Rung::Resume) => {
                self.has_ticket = self.has_ticket && why == Failure::Timeout;
                self.turn += usize::from(why == Failure::Timeout);
                self.unresumed += 1;
                let elsewhere = self.has_ticket && self.unresumed < self.ways().count();
                if elsewhere { self.without_sa(now) } else { self.connect(now) }
            }
            State::Climbing(Rung::Full) => {
                self.turn += usize::from(why == Failure::Timeout);
                self.state = State::Backoff;
                let pause = match why {
                    Failure::Refused => self.backoff.max(BACKOFF_REFUSED),
                    Failure::Busy(spread) => self.backoff / 2 + self.backoff * u32::from(spread) / 256,
                    Failure::Timeout | Failure::TicketRefused | Failure::Lost | Failure::Undecided => {
                        self.backoff
                    }
                };
                self.wait = Wait::Retry(now + pause);
                self.backoff = (self.backoff * 2).min(BACKOFF_MOST);
            }
            State::Offline => self.held = None,
            State::Down | State::Backoff => {}
        }
    }

    /// When the ladder has something to do. An established session without unanswered data, a sleeping radio and a machine
    /// without network have nothing.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        match self.wait {
            Wait::Nothing => None,
            Wait::Answer(at) => Some(Deadline::strict(at, "ladder: data unanswered")),
            Wait::Greeting(at) => Some(Deadline::strict(at, "ladder: greeting")),
            Wait::Exchange(at) => Some(Deadline::strict(at, "ladder: rung deadline")),
            Wait::Retry(at) => Some(Deadline { at, slack: Duration::from_secs(1), why: "ladder: back-off" }),
        }
    }

    /// Acts on all that is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        match self.wait {
            Wait::Answer(at) | Wait::Greeting(at) if at <= now => self.probe(now),
            Wait::Exchange(at) if at <= now => {
                if self.unanswered(now) {
                    return;
                }
                self.expired = if let State::Climbing(rung) = self.state { Some(rung) } else { None };
                self.actions.push_back(Action::Abandon);
                self.failed(now, Failure::Timeout);
            }
            Wait::Retry(at) if at <= now => self.begin(now),
            _ => {}
        }
    }

    /// The rung whose deadline passed since the last call.
    pub fn take_expired(&mut self) -> Option<Rung> {
        self.expired.take()
    }

    /// How long a rung is tried: what it asks of the gateway must be answered by then.
    #[must_use]
    pub fn deadline_of(&self, rung: Rung) -> Duration {
        match rung {
            Rung::Held | Rung::Move => self.deadlines.probe,
            Rung::Resume => self.deadlines.resume,
            Rung::Full => self.deadlines.full,
        }
    }

    /// The next thing to do, oldest first.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Starts at the lowest rung that can work.
    fn begin(&mut self, now: Instant) {
        if !matches!(self.state, State::Climbing(_) | State::Backoff) {
            self.climb_started = now;
        }
        let Some(path) = self.path else {
            self.state = State::Offline;
            self.wait = Wait::Nothing;
            return;
        };
        self.silent.clear();
        self.unresumed = 0;
        let slept = self.slept_at.take().map(|at| now - at);
        let granted = self.granted.take().filter(|_| slept.is_some());
        let gone = match granted {
            Some(Granted::Hold(until)) => now >= until,
            Some(Granted::Release) => true,
            None => false,
        };
        if gone && self.held.take().is_some() {
            self.actions.push_back(Action::Abandon);
        }
        match self.held {
            Some(held) if self.ways().any(|way| addresses(way) == addresses(held)) => {
                self.state = State::Climbing(Rung::Held);
                self.wait = Wait::Nothing;
                let asked = self.unanswered == Some(Duration::ZERO);
                let outlived = slept.is_some_and(|s| s >= self.deadlines.gateway_holds);
                if asked || (outlived && granted.is_none()) {
                    self.probe(now);
                } else if granted.is_some() {
                    self.wait = Wait::Greeting(now + GREETING);
                }
            }
            Some(held) => {
                self.move_held(now, held, self.way_to(held.remote.ip()).unwrap_or(path));
            }
            None => self.without_sa(now),
        }
    }

    fn without_sa(&mut self, now: Instant) {
        match self.entry() {
            Some(path) if self.has_ticket => {
                self.state = State::Climbing(Rung::Resume);
                self.actions.push_back(Action::Resume(path));
                self.wait = Wait::Exchange(now + self.deadlines.resume);
            }
            _ => self.connect(now),
        }
    }

    fn connect(&mut self, now: Instant) {
        let Some(path) = self.entry() else {
            self.state = State::Offline;
            self.wait = Wait::Nothing;
            return;
        };
        self.state = State::Climbing(Rung::Full);
        self.actions.push_back(Action::Connect(path));
        self.wait = Wait::Exchange(now + self.deadlines.full);
    }

    /// The radio or the network goes away: an open question is remembered meanwhile. A granted sleep was an answer.
    fn remember_question(&mut self, now: Instant) {
        let on_trial = matches!(self.state, State::Up | State::Climbing(Rung::Held | Rung::Move));
        self.unanswered = match self.wait {
            _ if self.granted.is_some() => None,
            Wait::Exchange(_) if on_trial => Some(Duration::ZERO),
            Wait::Answer(at) => Some(at - now),
            _ => self.unanswered,
        };
    }

    fn probe(&mut self, now: Instant) {
        self.unanswered = None;
        self.actions.push_back(Action::Probe(self.deadlines.probe));
        self.wait = Wait::Exchange(now + self.deadlines.probe);
    }

    fn succeed(&mut self, now: Instant, rung: Rung) {
        self.unanswered = None;
        self.last_wake = Some(Wake { at: now, rung, took: now - self.climb_started });
        self.state = State::Up;
        self.wait = Wait::Nothing;
        self.backoff = BACKOFF_FIRST;
        self.silent.clear();
        (self.turn, self.unresumed) = (0, 0);
        self.is_at_home();
    }

    /// Before another beginning: a handshake that runs is of no use; a held SA stays.
    fn stop_exchange(&mut self) {
        if matches!(self.state, State::Climbing(Rung::Resume | Rung::Full)) {
            self.actions.push_back(Action::Abandon);
        }
    }
}

/// What a path change means: another address at either end. Ports change with NAT traversal and are not a move.
fn addresses(path: Path) -> (IpAddr, IpAddr) {
    (path.local.ip(), path.remote.ip())
}

#[cfg(test)]
mod tests;

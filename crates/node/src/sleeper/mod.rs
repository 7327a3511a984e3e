//! The sleeper: joins the tunnel's traffic, the energy scheduler and the radio of a device.
//!
//! It sees every inner packet of the client connections, asks the scheduler when the radio is worth switching off, and walks
//! through announcement, sleep and wake, each step with a deadline ([`limits`]). It must never touch a radio, a session or a
//! clock: what it wants done comes out of [`Sleeper::poll_action`], and the driver reports how it went.
//!
//! ```text
//!            time-out of the policy                 announced, or late             radio is off
//!   Awake ─────────────────────────► PreparingSleep ──────────────────► (radio) ───────────────► Asleep
//!     ▲   ◄───── a packet calls it off ─────┘                              │ fails: stays on        │ a cause
//!     └──────────────────────── Waking ◄────────────────────────────────────────────────────────────┘
//!            packets flow again, or late
//! ```
//!
//! # Driving contract
//! - [`Sleeper::packet`] for every inner packet of a client connection, those that are held while the radio sleeps included.
//! - [`Sleeper::wanted`] and [`Sleeper::up`] whenever a connection's state changed; [`Sleeper::announced`],
//!   [`Sleeper::radio_off`], [`Sleeper::radio_on`], [`Sleeper::radio_failed`], [`Sleeper::flowing`] and [`Sleeper::came_up`] in
//!   answer to actions.
//! - After each of these, and after every command: [`Sleeper::poll_action`] and [`Sleeper::poll_event`] until `None`; then sleep
//!   until [`Sleeper::poll_timeout`] and call [`Sleeper::handle_timeout`].
//!
//! # Why it never wakes without a cause
//! [`Action::RadioOn`] is only ever queued together with an entry of the journal under one [`Cause`], or as the repetition of
//! one that failed. While the radio sleeps there is no deadline but the schedule that the user set and the renewal of a session,
//! if that was asked for. What the protocols had due meanwhile happens together in the next wake.

mod account;
mod backoff;
pub mod clock;
mod history;
mod journal;
pub mod limits;
mod phase;
mod plan;
mod prediction;
mod rehearsal;
mod report;
mod walk;

pub use account::{Energy, Source, Times};
pub use history::HistoryError;
pub(crate) use history::fuzz;
pub use journal::{Cause, Counts, Decided, Reason, Woke};
pub use rehearsal::Seen;
pub use report::Report;

use crate::ladder::Rung;
use account::Account;
use backoff::Backoff;
use clock::{PolicyDeadline, PolicyTime};
use dormouse_energy::WakeOn;
use dormouse_energy::model::{Model, Resumption};
use dormouse_energy::schedule::{Policy, Scheduler};
use history::Learned;
use journal::Journal;
use phase::{Phase, Step, Then};
use plan::Plan;
use std::collections::VecDeque;
use std::time::Duration;

/// How much sleep the user wants.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Debug,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The policy decides.
    Energy,
    /// The policy decides within bounds on added latency and lost packets; the rule stands in `backoff.rs`.
    Balanced,
    /// The radio stays on.
    Performance,
}

impl Mode {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Energy => "energy",
            Self::Balanced => "balanced",
            Self::Performance => "performance",
        }
    }
}

/// What a sleeper is made with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// At the start.
    pub mode: Mode,
    /// Who decides.
    pub policy: Policy,
    /// Shortest silence that counts as an idle period.
    pub min_idle: Duration,
    /// Wake at least this often; `None`: only for another cause.
    pub wake_every: Option<Duration>,
    /// Wake to renew a session before it expires, instead of letting it go to the ticket.
    pub renew: bool,
    /// Balanced mode: longest that a packet should wait for the session to come back.
    pub latency: Duration,
    /// Balanced mode: packets that may be lost in an hour.
    pub lost_per_hour: u64,
    /// The device's figures.
    pub model: Model,
    /// Whose figures they are.
    pub profile: String,
    /// How the session is believed to come back until it has been seen.
    pub resumption: Resumption,
}

/// What it is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The radio is on.
    Awake,
    /// The gateway is being told; then the radio goes off.
    PreparingSleep {
        /// Latest end of the announcement, or of the radio's own time.
        until: PolicyTime,
    },
    /// The radio is off.
    Asleep {
        /// Since when.
        since: PolicyTime,
        /// Why.
        reason: Reason,
    },
    /// The radio is being switched on, or the session is on its way.
    Waking {
        /// Why.
        cause: Cause,
    },
}

/// What the driver is to do. In the order given; none of them may block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Tell the gateways; then [`Sleeper::announced`], also if no connection is wanted.
    Announce {
        /// How long it will probably be.
        expected: Duration,
        /// How long it may be.
        longest: Duration,
    },
    /// Nothing is sent from now on: the sessions are put to sleep.
    SuspendSession,
    /// Switch the radio off; then [`Sleeper::radio_off`] or [`Sleeper::radio_failed`].
    RadioOff,
    /// Switch it on; then [`Sleeper::radio_on`] or [`Sleeper::radio_failed`].
    RadioOn,
    /// The radio is on: bring the sessions back; then [`Sleeper::flowing`] once packets may be sent. `ask` says that nothing
    /// will be sent by itself: the gateway is to be told that the device listens.
    WakeSession {
        /// The gateway is to be told.
        ask: bool,
    },
}

/// What people may want to know as it happens.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// The radio sleeps.
    Asleep {
        /// Why.
        reason: Reason,
        /// The decision that led to it, if a policy did.
        decision: Option<Decided>,
    },
    /// It wakes.
    Waking(Woke),
    /// Packets flow again.
    Awake(Woke),
    /// A packet called a sleep off before the radio was off.
    CalledOff,
    /// The mode was changed.
    Mode(Mode),
    /// The radio did not obey an order.
    RadioFailed {
        /// Why.
        why: String,
    },
}

/// What the driver has said of the sessions.
#[derive(Clone, Copy, Debug, Default)]
struct Session {
    /// A connection is wanted.
    wanted: bool,
    /// Packets can be sent.
    up: bool,
    /// When upkeep falls due next.
    upkeep: Option<PolicyDeadline>,
    /// When the session is worthless.
    expiry: Option<PolicyTime>,
}

/// The running idle period.
#[derive(Clone, Copy, Debug)]
struct Idle {
    /// The last packet, or what stands for it: when it began.
    last: Option<PolicyTime>,
    /// When the radio last came back: what it came back for leaves only then, and is answered later still.
    back: PolicyTime,
    /// It says nothing about the traffic: the machine slept, or the connection was away.
    tainted: bool,
}

/// See the module's documentation.
pub struct Sleeper {
    settings: Settings,
    scheduler: Box<dyn Scheduler>,
    mode: Mode,
    /// There is a radio that can be switched.
    driver: bool,
    session: Session,
    phase: Phase,
    plan: Option<Plan>,
    idle: Idle,
    refused_until: Option<PolicyTime>,
    break_even: f64,
    load: u32,
    rungs: VecDeque<Rung>,
    backoff: Backoff,
    learned: Learned,
    journal: Journal,
    account: Account,
    day: Option<(PolicyTime, u32)>,
    actions: VecDeque<Action>,
    events: VecDeque<Event>,
}

impl std::fmt::Debug for Sleeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sleeper")
            .field("mode", &self.mode)
            .field("phase", &self.phase)
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

impl Sleeper {
    /// An awake device that has no connection yet. `driver`: there is a radio that can be switched.
    #[must_use]
    pub fn new(now: PolicyTime, settings: Settings, driver: bool) -> Self {
        let break_even = settings.model.break_even(settings.resumption, 1);
        let mut scheduler = settings.policy.scheduler(break_even);
        // Nothing that arrives reaches a radio that is off.
        scheduler.wakes_on(WakeOn::Outgoing);
        Self {
            scheduler,
            mode: settings.mode,
            driver,
            session: Session::default(),
            phase: Phase::Awake,
            plan: None,
            idle: Idle { last: None, back: now, tainted: true },
            refused_until: None,
            break_even,
            load: 1,
            rungs: VecDeque::new(),
            backoff: Backoff::default(),
            learned: Learned::default(),
            journal: Journal::default(),
            account: Account::new(now, settings.model, settings.profile.clone()),
            day: None,
            actions: VecDeque::new(),
            events: VecDeque::new(),
            settings,
        }
    }

    /// There is a radio that can be switched, or no longer.
    pub fn driver(&mut self, now: PolicyTime, there: bool) {
        self.driver = there;
        if there && self.plan.is_none() {
            self.plan_decision(now);
        }
    }

    /// There is a radio that can be switched: without one there is nothing to decide.
    #[must_use]
    pub fn has_radio(&self) -> bool {
        self.driver
    }

    /// A session that expires is woken for.
    #[must_use]
    pub fn renews(&self) -> bool {
        self.settings.renew
    }

    // ---- commands -------------------------------------------------------------------------------------------------

    /// Changes the mode; what the radio does changes at once.
    pub fn set_mode(&mut self, now: PolicyTime, mode: Mode) {
        if self.mode == mode {
            return;
        }
        self.mode = mode;
        self.events.push_back(Event::Mode(mode));
        if mode == Mode::Performance {
            self.plan = None;
            self.rouse(now, Cause::Mode);
        } else {
            self.plan_decision(now);
        }
    }

    /// The configuration was changed: takes all of it but the policy and the device's figures, which a restart takes. `mode` if
    /// the file asks for another one.
    pub fn reconfigure(&mut self, now: PolicyTime, settings: &Settings, mode: Option<Mode>) {
        self.settings.min_idle = settings.min_idle;
        self.settings.wake_every = settings.wake_every;
        self.settings.renew = settings.renew;
        self.settings.latency = settings.latency;
        self.settings.lost_per_hour = settings.lost_per_hour;
        if let Some(mode) = mode {
            self.set_mode(now, mode);
        }
    }

    /// The device is put to sleep from outside: by the user, who will switch the radio, or by the machine. Answered by
    /// [`Event::Asleep`] once the gateway has answered the announcement, or has had its time.
    pub fn suspend(&mut self, now: PolicyTime, reason: Reason) {
        self.idle.tainted = true;
        self.plan = None;
        match &mut self.phase {
            Phase::Awake => self.prepare(now, reason),
            Phase::Preparing { reason: before, .. } => *before = reason,
            Phase::SwitchingOff { then, .. } => *then = Then::Sleep(reason),
            Phase::Asleep { .. } => self.asleep(now, reason),
            Phase::Waking { .. } => {
                self.actions.push_back(Action::SuspendSession);
                self.asleep(now, reason);
            }
        }
    }

    /// The machine has resumed, or the user says that the radio is back.
    pub fn resume(&mut self, now: PolicyTime, cause: Cause) {
        self.rouse(now, cause);
    }

    // ---- what the driver reports ----------------------------------------------------------------------------------

    /// A client connection is wanted, or none is. A radio that we switched off is given back then.
    pub fn wanted(&mut self, now: PolicyTime, wanted: bool) {
        if self.session.wanted == wanted {
            return;
        }
        self.session.wanted = wanted;
        if !wanted {
            self.plan = None;
            self.idle.tainted = true;
            if !matches!(self.phase, Phase::Asleep { reason: Reason::User | Reason::Machine, .. }) {
                self.rouse(now, Cause::Released);
            }
        }
    }

    /// All wanted connections are up, or not all are. Only a device that is connected goes to sleep.
    pub fn up(&mut self, now: PolicyTime, up: bool) {
        if self.session.up == up {
            return;
        }
        self.session.up = up;
        if up {
            if self.idle.last.is_none() {
                self.idle.last = Some(now);
            }
            if self.plan.is_none() {
                self.plan_decision(now);
            }
        }
    }

    /// The radio was ordered off, and is not known to be on again.
    #[must_use]
    pub fn radio_is_off(&self) -> bool {
        match self.phase {
            Phase::SwitchingOff { .. }
            | Phase::Waking { step: Step::Radio { .. } | Step::Pause { .. }, .. } => true,
            Phase::Asleep { off, .. } => off,
            Phase::Awake | Phase::Preparing { .. } | Phase::Waking { step: Step::Session { .. }, .. } => {
                false
            }
        }
    }

    /// The gateways know, or no connection is wanted.
    pub fn announced(&mut self, now: PolicyTime) {
        if let Phase::Preparing { reason, .. } = self.phase {
            self.actions.push_back(Action::SuspendSession);
            match reason {
                Reason::Idle => {
                    self.actions.push_back(Action::RadioOff);
                    let then = Then::Sleep(reason);
                    self.phase = Phase::SwitchingOff { until: now + limits::RADIO, then };
                }
                Reason::User | Reason::Machine => self.asleep(now, reason),
            }
        }
    }

    /// The radio is off.
    pub fn radio_off(&mut self, now: PolicyTime) {
        let Phase::SwitchingOff { then, .. } = self.phase else { return };
        match then {
            Then::Sleep(reason) => self.asleep(now, reason),
            Then::Wake(cause, flow) => {
                self.asleep(now, Reason::Idle);
                self.wake(now, cause, flow);
            }
        }
    }

    /// The radio is on: as ordered, or because the user or another program switched it on.
    pub fn radio_on(&mut self, now: PolicyTime) {
        match self.phase {
            Phase::Waking { since, cause, step: Step::Radio { .. } | Step::Pause { .. } } => {
                self.wake_session(now, since, cause);
            }
            Phase::Asleep { since, reason: reason @ Reason::Idle, off: true } => {
                self.phase = Phase::Asleep { since, reason, off: false };
                self.account.cycle();
                self.wake(now, Cause::Foreign, None);
            }
            _ => {}
        }
    }

    /// The radio did not obey an order.
    pub fn radio_failed(&mut self, now: PolicyTime, why: &str) {
        match self.phase {
            Phase::SwitchingOff { then, .. } => {
                self.failed(why);
                self.refused_until = Some(now + limits::REFUSED);
                // It may be in any state: from here on it counts as off, and is switched on again and again until it reports that it is.
                match then {
                    Then::Sleep(reason @ (Reason::User | Reason::Machine)) => self.asleep(now, reason),
                    Then::Sleep(Reason::Idle) => self.wake_from(now, now, Cause::Refused, None),
                    Then::Wake(cause, flow) => self.wake_from(now, now, cause, flow),
                }
            }
            Phase::Waking { since, cause, step: Step::Radio { pause, .. } } => {
                self.failed(why);
                let next = (pause * 2).min(limits::RETRY_MOST);
                self.phase = Phase::Waking { since, cause, step: Step::Pause { at: now + pause, next } };
            }
            _ => {}
        }
    }

    /// Packets may be sent again.
    pub fn flowing(&mut self, now: PolicyTime) {
        if let Phase::Waking { since, cause, step: Step::Session { .. } } = self.phase {
            self.awake(now, since, cause, true);
        }
    }

    /// The session is up again, by this rung: it tells how the next one will come back, and what it costs.
    pub fn came_up(&mut self, now: PolicyTime, rung: Rung) {
        self.flowing(now);
        self.account.exchange(rung);
        match self.journal.latest() {
            Some(woke) if woke.rung.is_none() => woke.rung = Some(rung),
            // Not after a sleep: it says nothing about how the next one will end.
            _ => return,
        }
        if self.rungs.len() >= limits::RUNGS {
            self.rungs.pop_front();
        }
        self.rungs.push_back(rung);
        self.reckon();
    }

    /// Packets were lost because the radio was off, as the gateway says or as gaps in the sequence numbers show.
    pub fn lost(&mut self, now: PolicyTime, packets: u64) {
        self.journal.counts.lost += packets;
        self.backoff.lost(now, packets);
    }

    /// The next upkeep of the protocols: one that is close is waited for before the radio goes off.
    pub fn upkeep(&mut self, next: Option<PolicyDeadline>) {
        self.session.upkeep = next;
    }

    /// When the session ends if it is not renewed.
    pub fn expiry(&mut self, at: Option<PolicyTime>) {
        self.session.expiry = at;
    }

    /// Seconds since midnight, now. Without it the policy learns nothing about hours.
    pub fn time_of_day(&mut self, now: PolicyTime, seconds: u32) {
        self.day = Some((now, seconds));
    }

    /// A meter's reading: joules since some beginning, and by how many it may be wrong. To be read at every change of state.
    pub fn metered(&mut self, now: PolicyTime, name: &str, joules: f64, uncertainty: f64) {
        self.account.reading(now, name, joules, uncertainty);
    }

    // ---- the verbs ------------------------------------------------------------------------------------------------

    /// When [`Sleeper::handle_timeout`] is wanted.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<PolicyDeadline> {
        match self.phase {
            Phase::Awake => self.plan.filter(|_| self.may_sleep()).map(|p| p.deadline(self.refused_until)),
            Phase::Preparing { until, .. } => Some(PolicyDeadline::strict(until, "sleeper: announcement")),
            Phase::SwitchingOff { until, .. } => Some(PolicyDeadline::strict(until, "sleeper: radio off")),
            Phase::Asleep { .. } => self.timers().min_by_key(|deadline| deadline.at),
            Phase::Waking { step, .. } => Some(match step {
                Step::Radio { until, .. } => PolicyDeadline::strict(until, "sleeper: radio on"),
                Step::Pause { at, .. } => PolicyDeadline::strict(at, "sleeper: radio on, again"),
                Step::Session { until } => PolicyDeadline::strict(until, "sleeper: session"),
            }),
        }
    }

    /// Every timer that runs, the first of which is [`Sleeper::poll_timeout`]: more than one only while the radio sleeps.
    pub fn timers(&self) -> impl Iterator<Item = PolicyDeadline> {
        let (one, asleep) = match self.phase {
            Phase::Asleep { since, reason: Reason::Idle, .. } => (None, Some(self.alarms(since))),
            Phase::Asleep { .. } => (None, None),
            _ => (self.poll_timeout(), None),
        };
        one.into_iter().chain(asleep.into_iter().flatten().map(|(deadline, _)| deadline))
    }

    /// Acts on what is due.
    pub fn handle_timeout(&mut self, now: PolicyTime) {
        match self.phase {
            Phase::Awake => self.follow_plan(now),
            Phase::Preparing { until, .. } if until <= now => self.announced(now),
            Phase::SwitchingOff { until, .. } if until <= now => self.radio_failed(now, "no answer in time"),
            Phase::Asleep { since, reason: Reason::Idle, .. } => match self.alarm(since) {
                Some((deadline, cause)) if deadline.at <= now => self.wake(now, cause, None),
                _ => {}
            },
            Phase::Waking { since, cause, step } => match step {
                Step::Radio { until, .. } if until <= now => self.radio_failed(now, "no answer in time"),
                Step::Pause { at, next } if at <= now => {
                    self.actions.push_back(Action::RadioOn);
                    let step = Step::Radio { until: now + limits::RADIO, pause: next };
                    self.phase = Phase::Waking { since, cause, step };
                }
                Step::Session { until } if until <= now => self.awake(now, since, cause, false),
                _ => {}
            },
            _ => {}
        }
    }

    /// The next thing to do, oldest first.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The next piece of news, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

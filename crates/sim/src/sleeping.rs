//! A simulated radio and its controller. Owns what the daemon does in the world: the sleeper's actions carried out on the node
//! and the radio.

use dormouse_node::sleeper::{Action, Event as News, Sleeper, State};
use dormouse_node::{Change, Event, Node, SleepFlags};
use dormouse_sansio::Instant;
use std::collections::BTreeSet;
use std::time::Duration;

/// The radio takes this long to go off.
const OFF: Duration = Duration::from_millis(200);
/// And this long to be on and associated.
const ON: Duration = Duration::from_millis(1800);

/// A device's radio with its controller.
pub struct Sleeping {
    /// The controller.
    pub sleeper: Sleeper,
    /// The radio has power and is associated.
    pub radio: bool,
    /// Every order to the radio: when, and whether to be on.
    pub orders: Vec<(Instant, bool)>,
    /// What the controller announced.
    pub news: Vec<News>,
    /// What the gateway is asked to do meanwhile.
    pub wishes: SleepFlags,
    /// An order that is being carried out.
    pending: Option<(Instant, bool)>,
    telling: BTreeSet<String>,
}

impl Sleeping {
    /// A radio that is on.
    #[must_use]
    pub fn new(sleeper: Sleeper) -> Self {
        Self {
            sleeper,
            radio: true,
            orders: Vec::new(),
            news: Vec::new(),
            wishes: SleepFlags::default(),
            pending: None,
            telling: BTreeSet::new(),
        }
    }

    /// When it wants to run.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        let sleeper = self.sleeper.poll_timeout().map(|d| d.at);
        sleeper.into_iter().chain(self.pending.map(|(at, _)| at)).min()
    }

    /// Carries out what is due.
    pub fn run(&mut self, now: Instant) {
        match self.pending.take_if(|(at, _)| *at <= now) {
            Some((_, true)) => {
                self.radio = true;
                self.sleeper.radio_on(now);
            }
            Some((_, false)) => {
                self.radio = false;
                self.sleeper.radio_off(now);
            }
            None => self.sleeper.handle_timeout(now),
        }
    }

    /// The node has news.
    pub fn hears(&mut self, now: Instant, event: &Event) {
        match event {
            Event::Flowing => self.sleeper.flowing(now),
            Event::SleepReady { connection, .. } => self.told(now, connection),
            Event::Missed { packets, .. } => self.sleeper.lost(now, *packets),
            Event::LoadReport { report, .. } => self.sleeper.load(report),
            Event::Changed(Change::Up { rung, .. }) => self.sleeper.came_up(now, *rung),
            _ => {}
        }
    }

    fn told(&mut self, now: Instant, connection: &str) {
        if self.telling.remove(connection) && self.telling.is_empty() {
            self.sleeper.announced(now);
        }
    }

    /// Tells the sleeper how the sessions stand, and does what it wants. True if it wanted anything.
    pub fn turn(&mut self, now: Instant, node: &mut Node) -> bool {
        let mut busy = false;
        self.sleeper.wanted(now, node.wanted());
        self.sleeper.up(now, node.flows());
        self.sleeper.upkeep(node.poll_timeout());
        while let Some(action) = self.sleeper.poll_action() {
            busy = true;
            self.act(now, action, node);
        }
        self.news.extend(std::iter::from_fn(|| self.sleeper.poll_event()));
        busy
    }

    fn act(&mut self, now: Instant, action: Action, node: &mut Node) {
        match action {
            Action::Announce { expected, longest } => {
                let connections = node.wanted_connections();
                self.telling = connections.iter().cloned().collect();
                if connections.is_empty() {
                    self.sleeper.announced(now);
                }
                for connection in connections {
                    node.prepare_sleep(now, &connection, Some(longest), Some(expected), self.wishes);
                }
            }
            Action::SuspendSession => node.suspend(now),
            Action::RadioOff => self.order(now, OFF, false),
            Action::RadioOn => self.order(now, ON, true),
            Action::WakeSession { ask } => {
                node.resume(now);
                if ask {
                    node.ask(now);
                }
            }
        }
    }

    fn order(&mut self, now: Instant, takes: Duration, on: bool) {
        self.orders.push((now, on));
        self.pending = Some((now + takes, on));
    }

    /// The radio is off, and nobody is switching it on.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        matches!(self.sleeper.state(), State::Asleep { .. })
    }
}

//! The device whose radio sleeps: the sleeper joined to the node. Owns the policy's clock, which connections still wait for their
//! gateway's answer to an announced sleep, and how much of a burst the policy is shown; when to sleep is the sleeper's decision, and
//! the radio is the driver's.

use super::output::News;
use super::{Host, SAVE_EVERY};
use crate::event::{Order, Radio, Store};
use crate::sleeper::clock::{PolicyClock, PolicyTime};
use crate::sleeper::{Action, Cause, HistoryError, Mode, Reason, Report, Settings, Sleeper, State};
use dormouse_energy::Direction;
use dormouse_keying::SleepFlags;
use dormouse_sansio::{Deadline, Instant};
use dormouse_wire::ip::Flow;
use std::collections::BTreeSet;
use std::time::Duration;

/// Packets of one moment and one direction that the policy is shown: it tells bursts apart by their first eight.
const BURST: u32 = 8;

/// See the module.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) sleeper: Sleeper,
    clock: PolicyClock,
    /// What the gateway is asked to do while the device sleeps.
    wishes: SleepFlags,
    /// Packets shown to the policy at this moment, by direction.
    shown: (Instant, [u32; 2]),
    /// Connections whose gateways have not yet answered the announcement.
    announcing: BTreeSet<String>,
    saved: Option<Instant>,
}

impl Device {
    fn deadline(&self) -> Option<Deadline> {
        self.sleeper.poll_timeout().map(|d| self.clock.machine_deadline(d))
    }
}

impl Host {
    /// The host is a device whose radio may sleep. `speed`: how many times as fast as the machine's clock the policy's runs.
    /// Nothing sleeps before [`Host::set_radio`] has said that there is a radio.
    pub fn let_sleep(&mut self, now: Instant, settings: Settings, speed: u32, wishes: SleepFlags) {
        let clock = PolicyClock::new(now, speed);
        self.device = Some(Device {
            sleeper: Sleeper::new(clock.at(now), settings, false),
            clock,
            wishes,
            shown: (now, [0; 2]),
            announcing: BTreeSet::new(),
            saved: None,
        });
    }

    /// Takes back what an earlier run learned ([`Store::SleepHistory`]).
    ///
    /// # Errors
    /// If the bytes are damaged, or of another version or policy; nothing has changed then.
    pub fn restore_history(&mut self, bytes: &[u8]) -> Result<(), HistoryError> {
        self.device.as_mut().map_or(Ok(()), |d| d.sleeper.restore(bytes))
    }

    fn sleeper(&mut self, now: Instant, act: impl FnOnce(&mut Sleeper, PolicyTime)) {
        if let Some(device) = &mut self.device {
            act(&mut device.sleeper, device.clock.at(now));
        }
    }

    /// There is a radio that can be switched, or no longer.
    pub fn set_radio(&mut self, now: Instant, there: bool) {
        self.sleeper(now, |s, at| s.driver(at, there));
    }

    /// The radio was ordered off, and is not known to be on again.
    #[must_use]
    pub fn radio_is_off(&self) -> bool {
        self.device.as_ref().is_some_and(|d| d.sleeper.radio_is_off())
    }

    /// The radio is off.
    pub fn radio_off(&mut self, now: Instant) {
        self.sleeper(now, Sleeper::radio_off);
    }

    /// The radio is on, as ordered or because the user or another program switched it on.
    pub fn radio_on(&mut self, now: Instant) {
        self.sleeper(now, Sleeper::radio_on);
    }

    /// The radio did not obey.
    pub fn radio_failed(&mut self, now: Instant, why: &str) {
        self.sleeper(now, |s, at| s.radio_failed(at, why));
    }

    /// The signal of the radio in dBm; `None`: there is none, or it cannot be read. It decides which CHILD SA sends, where that was configured.
    pub fn set_signal(&mut self, dbm: Option<i8>) {
        self.node.set_signal(dbm);
    }

    /// The energy meter's reading, in joules since some beginning, and by how many it may be wrong.
    pub fn metered(&mut self, now: Instant, name: &str, joules: f64, uncertainty: f64) {
        self.sleeper(now, |s, at| s.metered(at, name, joules, uncertainty));
    }

    /// How much the radio may sleep. False if this host has none.
    pub fn set_mode(&mut self, now: Instant, mode: Mode) -> bool {
        self.sleeper(now, |s, at| s.set_mode(at, mode));
        self.device.is_some()
    }

    /// How much the radio may sleep; `None` on a host that has none.
    #[must_use]
    pub fn mode(&self) -> Option<Mode> {
        self.device.as_ref().map(|d| d.sleeper.mode())
    }

    /// Takes what can be changed while it runs; `mode` if the configuration asks for another one than before.
    pub fn reconfigure_sleep(&mut self, now: Instant, settings: &Settings, mode: Option<Mode>) {
        self.sleeper(now, |s, at| s.reconfigure(at, settings, mode));
    }

    /// What the radio's controller is doing and has done, with the time on its clock.
    #[must_use]
    pub fn sleep_report(&self, now: Instant) -> Option<(Report, PolicyTime)> {
        let device = self.device.as_ref()?;
        let at = device.clock.at(now);
        Some((device.sleeper.report(at), at))
    }

    /// The user or the machine puts the device to sleep. True if [`crate::sleeper::Event::Asleep`] follows once the
    /// gateways know, or have had their time; false if it is asleep at once.
    pub fn suspend(&mut self, now: Instant, reason: Reason) -> bool {
        if self.device.is_none() {
            self.node.suspend(now);
            return false;
        }
        self.sleeper(now, |s, at| s.suspend(at, reason));
        true
    }

    /// The user or the machine wakes it up again.
    pub fn resume(&mut self, now: Instant, cause: Cause) {
        if self.device.is_none() {
            self.wake_session(false);
        }
        self.sleeper(now, |s, at| s.resume(at, cause));
    }

    /// Addresses, routes or links of the machine have changed.
    pub fn network_changed(&mut self) {
        if !self.node.is_suspended() {
            return self.outputs.push_order(Order::FindWays { fresh: true });
        }
        let sleeps_idle =
            |d: &Device| matches!(d.sleeper.state(), State::Asleep { reason: Reason::Idle, .. });
        if self.device.as_ref().is_some_and(sleeps_idle) {
            // The user or another program may have switched the radio on.
            self.outputs.push_order(Order::Radio(Radio::Look));
        }
    }

    /// An inner packet of a client connection passes: the policy sees it.
    pub(super) fn observe(&mut self, now: Instant, direction: Direction, flow: &Flow, size: usize) {
        let Some(device) = self.device.as_mut().filter(|d| d.sleeper.has_radio()) else { return };
        if device.shown.0 != now {
            device.shown = (now, [0; 2]);
        }
        let shown = &mut device.shown.1[usize::from(direction == Direction::Incoming)];
        *shown += 1;
        if *shown <= BURST {
            device.sleeper.packet(device.clock.at(now), direction, flow, size);
        }
    }

    /// When the sleeper wants to run.
    #[must_use]
    pub fn sleep_deadline(&self) -> Option<Deadline> {
        self.device.as_ref().and_then(Device::deadline)
    }

    pub(super) fn device_timeout(&mut self, now: Instant) {
        self.sleeper(now, Sleeper::handle_timeout);
    }

    pub(super) fn sleep_timers(&self) -> impl Iterator<Item = Deadline> {
        self.device.iter().flat_map(|d| d.sleeper.timers().map(|timer| d.clock.machine_deadline(timer)))
    }

    pub(super) fn time_of_day(&mut self, now: Instant, seconds: u32) {
        self.sleeper(now, |s, at| s.time_of_day(at, seconds));
    }

    /// The gateway of `connection` has answered the announcement of a sleep, or will not.
    pub(super) fn announced(&mut self, now: Instant, connection: &str) {
        let Some(device) = &mut self.device else { return };
        if device.announcing.remove(connection) && device.announcing.is_empty() {
            device.sleeper.announced(device.clock.at(now));
        }
    }

    /// News of the node that the sleeper learns from.
    pub(super) fn sleeper_learns(&mut self, now: Instant, event: &crate::Event) {
        use crate::{Change, Event as Node};
        let Some(device) = &mut self.device else { return };
        let at = device.clock.at(now);
        match event {
            Node::Flowing => device.sleeper.flowing(at),
            Node::Missed { packets, .. } => device.sleeper.lost(at, *packets),
            Node::LoadReport(report) => device.sleeper.load(report),
            Node::Changed(Change::Up { rung, .. }) => device.sleeper.came_up(at, *rung),
            _ => {}
        }
    }

    /// Shows the sleeper how the sessions stand, and carries out what it wants. True if it wanted anything.
    pub(super) fn sleeper_turn(&mut self, now: Instant) -> bool {
        let Some(device) = &mut self.device else { return false };
        let (at, clock) = (device.clock.at(now), device.clock);
        device.sleeper.wanted(at, self.node.wanted());
        device.sleeper.up(at, self.node.flows());
        device.sleeper.upkeep(self.node.poll_timeout().map(|d| clock.deadline(d)));
        let expiry = device.sleeper.renews().then(|| self.node.first_expiry()).flatten();
        device.sleeper.expiry(expiry.map(|at| clock.at(at)));
        let mut busy = false;
        while !self.outputs.wakes()
            && let Some(action) = self.device.as_mut().and_then(|d| d.sleeper.poll_action())
        {
            tracing::debug!(?action, "sleeper");
            busy = true;
            self.act(now, action);
        }
        while let Some(event) = self.device.as_mut().and_then(|d| d.sleeper.poll_event()) {
            self.outputs.push_news(News::Sleep(event));
            self.outputs.push_order(Order::ReadMeter);
        }
        busy
    }

    fn act(&mut self, now: Instant, action: Action) {
        match action {
            Action::Announce { expected, longest } => self.announce(now, expected, longest),
            Action::SuspendSession => self.node.suspend(now),
            Action::RadioOff => {
                self.save_history(now);
                self.outputs.push_order(Order::Radio(Radio::Off));
            }
            Action::RadioOn => self.outputs.push_order(Order::Radio(Radio::On)),
            Action::WakeSession { ask } => self.wake_session(ask),
        }
    }

    fn announce(&mut self, now: Instant, expected: Duration, longest: Duration) {
        self.outputs.push_order(Order::ReadMeter);
        let connections = self.node.wanted_connections();
        let Some(device) = &mut self.device else { return };
        let (expected, longest) = (device.clock.machine_span(expected), device.clock.machine_span(longest));
        device.announcing = connections.iter().cloned().collect();
        if connections.is_empty() {
            device.sleeper.announced(device.clock.at(now));
        }
        let wishes = device.wishes;
        for connection in connections {
            self.node.prepare_sleep(now, &connection, Some(longest), Some(expected), wishes);
        }
    }

    /// What was learned is written when the radio goes off, but not more often than [`SAVE_EVERY`]: each time wakes the disk.
    fn save_history(&mut self, now: Instant) {
        let Some(device) = &mut self.device else { return };
        if device.saved.is_none_or(|at| now - at >= SAVE_EVERY) {
            device.saved = Some(now);
            self.store_history();
        }
    }

    pub(super) fn store_history(&mut self) {
        let Some(device) = &self.device else { return };
        let mut bytes = Vec::new();
        device.sleeper.save(&mut bytes);
        self.outputs.push_order(Order::Store(Store::SleepHistory(bytes)));
    }
}

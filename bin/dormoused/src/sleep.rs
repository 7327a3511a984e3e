//! The sleeper in the world: its actions carried out on the node and on the radio's guard, its history on disk, its state in the
//! words of the control protocol. Decides nothing: when to sleep is the sleeper's.

use crate::daemon::Daemon;
use crate::pace::Pace;
use crate::store::Store;
use anyhow::Result;
use dormouse_control as control;
use dormouse_control::EventKind;
use dormouse_energy::Direction;
use dormouse_io::clock::unix_now;
use dormouse_io::logind;
use dormouse_io::meter::{self, Choice, Meter};
use dormouse_io::radio::{self, Guard, Order, Power, Reply};
use dormouse_node::config::sleep::{RadioDriver, ResolvedSleep};
use dormouse_node::sleeper::{Action, Cause, Energy, Event, Mode, Reason, Sleeper, Source, State, Woke};
use dormouse_node::{SleepFlags, SleepVerdict};
use dormouse_sansio::{Deadline, Instant};
use dormouse_wire::ip::{Flow, protocol};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// The file that remembers across crashes that the radio was off.
const MARK: &str = "radio-off";
/// The history is written when the radio goes off, but not more often than this: each time wakes the disk.
const SAVE_EVERY: Duration = Duration::from_secs(600);
/// Packets of one turn of the loop and one direction that the policy is shown: it tells bursts apart by their first eight.
const BURST: u32 = 8;
/// What the gateway is asked to do for a sleeping device.
const WISHES: SleepFlags = SleepFlags { stand_in: true, buffering: true };
/// Wakes that `status` shows.
const SHOWN: usize = 8;

/// The sleeper and its radio.
#[derive(Debug)]
pub(crate) struct Sleep {
    pub(crate) sleeper: Sleeper,
    pub(crate) guard: Option<Guard>,
    pub(crate) pace: Pace,
    radio: control::RadioStatus,
    saved: Option<Instant>,
    /// Packets shown to the policy in this turn, by direction.
    shown: (Instant, [u32; 2]),
    /// Connections whose gateways have not yet answered the announcement.
    telling: BTreeSet<String>,
    meter: Option<Box<dyn Meter>>,
    /// As it was configured when this run began, or last changed.
    configured: ResolvedSleep,
    /// A session that expires is woken for.
    renews: bool,
    /// What happens to the whole machine.
    pub(crate) machine: Option<logind::Watch>,
    /// Keeps it awake until the gateways know.
    hold: Option<logind::Hold>,
}

impl Sleep {
    /// Starts the radio's guard; as root, before privileges are given away. What it found comes later, by
    /// [`Daemon::radio_answers`].
    /// Meters are looked for under `root`.
    pub(crate) fn new(now: Instant, sleep: &ResolvedSleep, state_dir: &Path, root: &Path) -> Self {
        let (guard, why) = match start_guard(sleep, state_dir) {
            Ok(Some(guard)) => (Some(guard), "being looked for".to_owned()),
            Ok(None) => (None, "sleep.radio = \"none\"".to_owned()),
            Err(e) => {
                tracing::warn!("the radio is left alone: {e:#}");
                (None, e.to_string())
            }
        };
        let mut sleeper = Sleeper::new(now, sleep.settings.clone(), false);
        sleeper.time_of_day(now, seconds_of_day());
        Self {
            sleeper,
            guard,
            // The sleeper was made at the clock's origin.
            pace: Pace::new(now, sleep.speed),
            radio: control::RadioStatus { driver: None, why },
            saved: None,
            shown: (now, [0; 2]),
            telling: BTreeSet::new(),
            meter: sleep.meter.then(|| find_meter(now, root)).flatten(),
            renews: sleep.settings.renew,
            configured: sleep.clone(),
            machine: None,
            hold: None,
        }
    }

    /// Takes what can be changed while it runs from a configuration that was read again. Returns the keys that need a restart.
    pub(crate) fn reconfigure(&mut self, now: Instant, sleep: &ResolvedSleep) -> Vec<&'static str> {
        let mut restart = Vec::new();
        let mut needs = |key, differs: bool| {
            if differs {
                restart.push(key);
            }
        };
        needs("sleep.radio", self.configured.driver != sleep.driver);
        needs("sleep.interface", self.configured.interface != sleep.interface);
        needs("sleep.command_off, command_on", self.configured.commands != sleep.commands);
        needs("sleep.meter", self.configured.meter != sleep.meter);
        needs("sleep.policy", self.configured.settings.policy != sleep.settings.policy);
        needs("sleep.speed", self.configured.speed != sleep.speed);
        needs("sleep.profile", self.configured.settings.profile != sleep.settings.profile);
        // What `dormouse mode` asked for stays, unless the file asks for something new.
        let mode = (self.configured.settings.mode != sleep.settings.mode).then_some(sleep.settings.mode);
        self.sleeper.reconfigure(self.pace.shown(now), &sleep.settings, mode);
        self.renews = sleep.settings.renew;
        self.configured.settings = sleep.settings.clone();
        restart
    }

    /// Begins to listen for the machine's own sleep; after privileges are given away, because it starts a thread.
    pub(crate) fn watch_machine(&mut self) {
        match logind::Watch::new(None) {
            Ok(watch) => self.machine = Some(watch),
            Err(e) => tracing::warn!(%e, "the machine's own sleep is not noticed in advance"),
        }
    }

    /// Takes up what an earlier run learned.
    pub(crate) fn restore(&mut self, store: &Store) {
        match store.history() {
            Ok(None) => {}
            Ok(Some(bytes)) => match self.sleeper.restore(&bytes) {
                Ok(()) => tracing::info!(bytes = bytes.len(), "the history of earlier runs is taken up"),
                Err(e) => {
                    let kept = store.put_history_aside();
                    tracing::warn!(%e, kept, "the history of earlier runs is not used; learning begins afresh");
                }
            },
            Err(e) => {
                tracing::warn!("the history of earlier runs cannot be read; learning begins afresh: {e:#}")
            }
        }
    }

    /// An inner packet of a client connection.
    pub(crate) fn flow(&mut self, now: Instant, direction: Direction, flow: &Flow, size: usize) {
        // Without a radio there is nothing to decide.
        if self.radio.driver.is_none() {
            return;
        }
        if self.shown.0 != now {
            self.shown = (now, [0; 2]);
        }
        let shown = &mut self.shown.1[usize::from(direction == Direction::Incoming)];
        *shown += 1;
        if *shown <= BURST {
            self.sleeper.packet(self.pace.shown(now), direction, flow, size);
        }
    }

    /// Reads the meter: at every change of state, and whenever somebody asks.
    pub(crate) fn read_meter(&mut self, now: Instant) {
        let Some(meter) = &mut self.meter else { return };
        match meter.read(now) {
            Ok(reading) => {
                let name = meter.source().to_string();
                self.sleeper.metered(self.pace.shown(now), &name, reading.joules, reading.uncertainty);
            }
            // On mains a battery measures nothing; the profile's figures stand in.
            Err(e) => tracing::debug!(%e, "the meter"),
        }
    }

    /// Writes the history, unless it was only just written.
    fn save(&mut self, now: Instant, store: &Store) {
        if self.saved.is_some_and(|at| now - at < SAVE_EVERY) {
            return;
        }
        self.saved = Some(now);
        self.save_now(store);
    }

    pub(crate) fn save_now(&self, store: &Store) {
        let mut bytes = Vec::new();
        self.sleeper.save(&mut bytes);
        if let Err(e) = store.set_history(&bytes) {
            tracing::error!("{e:#}");
        }
    }

    /// The radio sleeps because of us or was told so: what changes in the network meanwhile is nobody's news.
    fn order(&mut self, now: Instant, order: Order) {
        let result = match &mut self.guard {
            Some(guard) => guard.order(order).map_err(|e| e.to_string()),
            None => Err("there is no radio that can be switched".into()),
        };
        if let Err(why) = result {
            self.sleeper.radio_failed(self.pace.shown(now), &why);
        }
    }

    /// Somebody else may have switched the radio on: asks.
    pub(crate) fn look(&mut self, now: Instant) {
        if matches!(self.sleeper.state(), State::Asleep { reason: Reason::Idle, .. }) {
            self.order(now, Order::State);
        }
    }
}

impl Daemon {
    /// Tells the sleeper how the sessions stand, and carries out what it wants. True if it wanted anything: the node may have
    /// news of it.
    pub(crate) fn sleep_turn(&mut self, now: Instant) -> bool {
        let mut busy = false;
        let (wanted, flows) = (self.node.wanted(), self.node.flows());
        let renews = self.sleep.as_ref().is_some_and(|s| s.renews);
        let (upkeep, expiry) = (self.node.poll_timeout(), renews.then(|| self.node.first_expiry()).flatten());
        let Some(sleep) = &mut self.sleep else { return false };
        let pace = sleep.pace;
        sleep.sleeper.wanted(pace.shown(now), wanted);
        sleep.sleeper.up(pace.shown(now), flows);
        sleep.sleeper.upkeep(upkeep.map(|d| pace.shown_deadline(d)));
        sleep.sleeper.expiry(expiry.map(|at| pace.shown(at)));
        while let Some(action) = self.sleep.as_mut().and_then(|s| s.sleeper.poll_action()) {
            tracing::debug!(?action, "sleeper");
            busy = true;
            self.sleep_action(now, action);
        }
        while let Some(event) = self.sleep.as_mut().and_then(|s| s.sleeper.poll_event()) {
            self.sleep_event(now, event);
        }
        busy
    }

    fn sleep_action(&mut self, now: Instant, action: Action) {
        match action {
            Action::Announce { expected, longest } => {
                let connections = self.node.wanted_connections();
                let Some(sleep) = &mut self.sleep else { return };
                sleep.read_meter(now);
                let (expected, longest) = (sleep.pace.real(expected), sleep.pace.real(longest));
                tracing::debug!(?expected, ?longest, "announcing a sleep");
                sleep.telling = connections.iter().cloned().collect();
                if sleep.telling.is_empty() {
                    sleep.sleeper.announced(sleep.pace.shown(now));
                }
                for connection in connections {
                    self.node.prepare_sleep(now, &connection, Some(longest), Some(expected), WISHES);
                }
            }
            Action::SuspendSession => {
                self.suspended = true;
                self.node.suspend(now);
            }
            Action::RadioOff => {
                if let Some(sleep) = &mut self.sleep {
                    sleep.save(now, &self.store);
                    sleep.order(now, Order::Off);
                }
            }
            Action::RadioOn => {
                if let Some(sleep) = &mut self.sleep {
                    sleep.order(now, Order::On);
                }
            }
            Action::WakeSession { ask } => {
                self.suspended = false;
                self.network_is_new(now);
                self.node.resume(now);
                if ask {
                    self.node.ask(now);
                }
            }
        }
    }

    /// A gateway knows that we are about to sleep, or will not know.
    pub(crate) fn sleep_ready(&mut self, now: Instant, connection: &str, verdict: SleepVerdict) {
        tracing::debug!(%connection, ?verdict, "announced");
        let Some(sleep) = &mut self.sleep else { return };
        if sleep.telling.remove(connection) && sleep.telling.is_empty() {
            sleep.sleeper.announced(sleep.pace.shown(now));
        }
    }

    fn sleep_event(&mut self, now: Instant, event: Event) {
        match &event {
            Event::Asleep { reason, decision } => {
                let time_out = decision.and_then(|d| d.time_out).map(|t| t.as_secs_f64());
                let by = decision.map_or("", |d| d.by);
                tracing::info!(reason = reason.name(), time_out, by, "asleep");
            }
            Event::Waking(woke) => {
                let flow = woke.flow.as_ref().map(flow_name);
                let slept = woke.slept.as_secs_f64();
                tracing::info!(cause = woke.cause.name(), flow, slept, "waking");
            }
            Event::Awake(woke) => match woke.took {
                Some(took) => tracing::info!(cause = woke.cause.name(), took_ms = millis(took), "awake"),
                None => tracing::warn!(cause = woke.cause.name(), "awake, but the session is not back yet"),
            },
            Event::CalledOff => tracing::debug!("the sleep is called off"),
            Event::Mode(mode) => tracing::info!(mode = mode.name(), "mode"),
            Event::RadioFailed { why } => tracing::warn!(%why, "the radio does not obey"),
        }
        if let Some(sleep) = &mut self.sleep {
            sleep.read_meter(now);
            if let Event::Asleep { reason: Reason::Machine, .. } = event {
                sleep.hold = None;
            }
        }
        if let Event::Asleep { .. } = event {
            self.verbs.fell_asleep();
        }
        self.verbs.tell(None, told(event));
    }

    /// The machine is about to sleep, or has resumed.
    pub(crate) fn machine_news(&mut self, now: Instant) {
        while let Some(event) =
            self.sleep.as_mut().and_then(|s| s.machine.as_mut()).and_then(logind::Watch::next)
        {
            match event {
                logind::Event::AboutToSleep(hold) => {
                    tracing::info!(delayed = hold.is_some(), "the machine is about to sleep");
                    if let Some(sleep) = &mut self.sleep {
                        sleep.hold = hold;
                    }
                    self.put_to_sleep(now, Reason::Machine);
                }
                logind::Event::Resumed => {
                    tracing::info!("the machine has resumed");
                    if let Some(sleep) = &mut self.sleep {
                        sleep.hold = None;
                    }
                    self.wake_up(now, Cause::Machine);
                }
                logind::Event::Watching(Ok(())) => tracing::debug!("logind announces the machine's sleep"),
                logind::Event::Watching(Err(why)) => {
                    tracing::info!(%why, "the machine's sleep is announced, but cannot be delayed");
                }
                logind::Event::Unavailable(why) => {
                    tracing::debug!(%why, "the machine's sleep is not announced")
                }
            }
        }
    }

    /// The radio's guard has something to say.
    pub(crate) fn radio_answers(&mut self, now: Instant) {
        let Some(sleep) = &mut self.sleep else { return };
        loop {
            let reply = match sleep.guard.as_mut().map(Guard::next) {
                Some(Ok(Some(reply))) => reply,
                None | Some(Ok(None)) => return,
                Some(Err(e)) => {
                    tracing::error!("the radio is left alone from now on: {e:#}");
                    sleep.guard = None;
                    sleep.radio = control::RadioStatus { driver: None, why: e.to_string() };
                    sleep.sleeper.driver(sleep.pace.shown(now), false);
                    // Its end has put the radio back on.
                    sleep.sleeper.radio_failed(sleep.pace.shown(now), "its guard is gone");
                    sleep.sleeper.radio_on(sleep.pace.shown(now));
                    return;
                }
            };
            match reply {
                Reply::Selected(Ok(choice)) => {
                    tracing::info!(driver = choice.driver, why = choice.why, "the radio can be switched");
                    sleep.radio = control::RadioStatus { driver: Some(choice.driver), why: choice.why };
                    sleep.sleeper.driver(sleep.pace.shown(now), true);
                }
                Reply::Selected(Err(why)) => {
                    tracing::info!(%why, "the radio stays on");
                    sleep.radio = control::RadioStatus { driver: None, why };
                }
                Reply::Done(Order::Off, Ok(_)) => sleep.sleeper.radio_off(sleep.pace.shown(now)),
                Reply::Done(Order::On, Ok(_)) => sleep.sleeper.radio_on(sleep.pace.shown(now)),
                Reply::Done(Order::State, Ok(state)) => {
                    if state.power == Power::On {
                        sleep.sleeper.radio_on(sleep.pace.shown(now));
                    }
                }
                Reply::Done(Order::State, Err(why)) => tracing::debug!(%why, "the radio's state"),
                Reply::Done(Order::Off | Order::On, Err(why)) => {
                    sleep.sleeper.radio_failed(sleep.pace.shown(now), &why)
                }
            }
        }
    }

    /// `dormouse mode`.
    pub(crate) fn set_mode(&mut self, now: Instant, mode: control::SleepMode) -> Result<(), control::Error> {
        let none = || {
            let message = "there is no client connection, so there is no radio to put to sleep";
            control::Error::new(control::ErrorKind::Request, message)
        };
        let sleep = self.sleep.as_mut().ok_or_else(none)?;
        let mode = match mode {
            control::SleepMode::Energy => Mode::Energy,
            control::SleepMode::Balanced => Mode::Balanced,
            control::SleepMode::Performance => Mode::Performance,
        };
        if sleep.guard.is_none() && mode != Mode::Performance {
            let message = format!("the radio cannot be switched: {}", sleep.radio.why);
            return Err(control::Error::new(control::ErrorKind::Other, message)
                .with_change("sleep.radio, sleep.interface or sleep.command_off and sleep.command_on"));
        }
        sleep.sleeper.set_mode(sleep.pace.shown(now), mode);
        Ok(())
    }

    /// The sleeper, for `status`.
    pub(crate) fn sleep_status(&mut self, now: Instant) -> Option<control::SleepStatus> {
        let held_packets = self.held.len();
        let sleep = self.sleep.as_mut()?;
        sleep.read_meter(now);
        let now = sleep.pace.shown(now);
        let report = sleep.sleeper.report(now);
        let (state, why, asleep) = match report.state {
            State::Awake => (control::SleepState::Awake, None, None),
            State::PreparingSleep { .. } => (control::SleepState::Preparing, None, None),
            State::Asleep { since, reason } => {
                (control::SleepState::Asleep, Some(reason.name()), Some((now - since).as_secs_f64()))
            }
            State::Waking { cause } => (control::SleepState::Waking, Some(cause.name()), None),
        };
        Some(control::SleepStatus {
            mode: mode(report.mode),
            state,
            why: why.map(Into::into),
            asleep_seconds: asleep,
            radio: sleep.radio.clone(),
            policy: report.policy.into(),
            profile: report.profile,
            break_even_seconds: report.break_even.as_secs_f64(),
            gateway_load: report.load,
            decision: report.decisions.last().map(|d| control::DecisionStatus {
                ago_seconds: (now - d.at).as_secs_f64(),
                policy: d.policy.into(),
                time_out_seconds: d.time_out.map(|t| t.as_secs_f64()),
                wanted_seconds: d.wanted.map(|t| t.as_secs_f64()),
                break_even_seconds: d.break_even.as_secs_f64(),
                saving_joules: d.saving,
                by: d.by.into(),
            }),
            wakes_by_cause: report.by_cause.iter().map(|(cause, n)| (cause.name().into(), *n)).collect(),
            wakes: report.wakes.iter().rev().take(SHOWN).map(|w| wake(now, w)).collect(),
            sleeps: report.counts.sleeps,
            called_off: report.counts.called_off,
            radio_failures: report.counts.radio_failures,
            held_packets,
            lost_packets: report.counts.lost,
            backoff_level: report.backoff.0,
            lost_last_hour: report.backoff.1,
            energy: energy(&report.energy),
        })
    }

    /// The mode.
    pub(crate) fn mode(&self) -> control::SleepMode {
        self.sleep.as_ref().map_or(control::SleepMode::Performance, |s| mode(s.sleeper.mode()))
    }

    /// The radio, for `doctor`: a problem only where sleep is wanted.
    pub(crate) fn radio_check(&self) -> Option<control::Check> {
        let sleep = self.sleep.as_ref()?;
        let wanted = sleep.sleeper.mode() != Mode::Performance;
        let (outcome, found) = match &sleep.radio.driver {
            Some(driver) => (control::CheckOutcome::Ok, format!("{driver}: {}", sleep.radio.why)),
            None if wanted => (control::CheckOutcome::Warning, sleep.radio.why.clone()),
            None => (control::CheckOutcome::Skipped, sleep.radio.why.clone()),
        };
        let change = (wanted && sleep.radio.driver.is_none())
            .then(|| "sleep.radio, or sleep.command_off and sleep.command_on".to_owned());
        Some(control::Check { name: "radio".into(), outcome, found, change })
    }

    /// When the sleeper wants to run.
    pub(crate) fn sleep_deadline(&self) -> Option<Deadline> {
        self.sleep.as_ref().and_then(|s| Some(s.pace.deadline(s.sleeper.poll_timeout()?)))
    }

    /// Puts the device to sleep for somebody else. False if there is nothing to wait for.
    pub(crate) fn put_to_sleep(&mut self, now: Instant, reason: Reason) -> bool {
        let Some(sleep) = &mut self.sleep else {
            self.suspended = true;
            self.node.suspend(now);
            return false;
        };
        sleep.sleeper.suspend(sleep.pace.shown(now), reason);
        true
    }

    /// Wakes it up again.
    pub(crate) fn wake_up(&mut self, now: Instant, cause: Cause) {
        if let Some(sleep) = &mut self.sleep {
            sleep.sleeper.resume(sleep.pace.shown(now), cause);
        } else {
            self.suspended = false;
            self.network_is_new(now);
            self.node.resume(now);
        }
    }
}

fn start_guard(sleep: &ResolvedSleep, state_dir: &Path) -> Result<Option<Guard>> {
    let driver = match sleep.driver {
        RadioDriver::Auto => radio::Driver::Auto,
        RadioDriver::NetworkManager => radio::Driver::NetworkManager,
        RadioDriver::Rfkill => radio::Driver::Rfkill,
        RadioDriver::Link => radio::Driver::Link,
        RadioDriver::Command => radio::Driver::Command,
        RadioDriver::None => return Ok(None),
    };
    let commands = sleep.commands.as_ref().map(|c| radio::Commands {
        off: c.off.clone(),
        on: c.on.clone(),
        state: c.state.clone(),
        timeout: c.timeout,
    });
    let options = radio::Options {
        driver,
        interface: sleep.interface.clone(),
        commands,
        mark: Some(state_dir.join(MARK)),
        ..radio::Options::default()
    };
    Ok(Some(Guard::spawn(&std::env::current_exe()?, &[crate::RADIO_GUARD], &options)?))
}

/// The machine's meter, if it has one that sees the radio.
fn find_meter(now: Instant, root: &Path) -> Option<Box<dyn Meter>> {
    match meter::open(root, &Choice::Best, now) {
        Ok(opened) if opened.meter.source().kind.sees_radio() => {
            tracing::info!(meter = %opened.meter.source(), why = opened.why, "joules are measured");
            Some(opened.meter)
        }
        Ok(opened) => {
            tracing::info!(meter = %opened.meter.source(), "it does not see the radio: joules follow the profile");
            None
        }
        Err(e) => {
            tracing::debug!(%e, "no meter: joules follow the profile");
            None
        }
    }
}

/// Seconds since midnight, UTC: hours are told apart, whatever they are called here.
pub(crate) fn seconds_of_day() -> u32 {
    u32::try_from(unix_now().0 % 86_400).unwrap_or(0)
}

fn mode(mode: Mode) -> control::SleepMode {
    match mode {
        Mode::Energy => control::SleepMode::Energy,
        Mode::Balanced => control::SleepMode::Balanced,
        Mode::Performance => control::SleepMode::Performance,
    }
}

fn wake(now: Instant, woke: &Woke) -> control::WakeStatus {
    control::WakeStatus {
        ago_seconds: (now - woke.at).as_secs_f64(),
        cause: woke.cause.name().into(),
        flow: woke.flow.as_ref().map(flow_name),
        slept_seconds: woke.slept.as_secs_f64(),
        took_ms: woke.took.map(millis),
        rung: woke.rung.map(crate::status::rung),
    }
}

fn energy(e: &Energy) -> control::EnergyStatus {
    let (source, uncertainty) = match &e.source {
        Source::Profile(name) => (format!("profile {name}"), None),
        Source::Meter { name, uncertainty } => (format!("meter {name}"), Some(*uncertainty)),
    };
    control::EnergyStatus {
        source,
        uncertainty_joules: uncertainty,
        used_joules: e.used,
        always_on_joules: e.always_on,
        power_save_joules: e.power_save,
        saved_joules: e.saved,
        cycles: e.cycles,
        awake_seconds: e.times.awake.as_secs_f64(),
        preparing_seconds: e.times.preparing.as_secs_f64(),
        asleep_seconds: e.times.asleep.as_secs_f64(),
        waking_seconds: e.times.waking.as_secs_f64(),
        suspended_seconds: e.times.suspended.as_secs_f64(),
    }
}

fn told(event: Event) -> EventKind {
    match event {
        Event::Asleep { reason: Reason::User | Reason::Machine, .. } => EventKind::Suspended,
        Event::Asleep { reason: Reason::Idle, decision } => EventKind::Asleep {
            time_out_seconds: decision.and_then(|d| d.time_out).map(|t| t.as_secs_f64()),
            by: decision.map_or_else(String::new, |d| d.by.to_owned()),
            saving_joules: decision.and_then(|d| d.saving),
        },
        Event::Waking(woke) => match woke.cause {
            Cause::User | Cause::Machine => EventKind::Resumed,
            cause => EventKind::Waking {
                cause: cause.name().into(),
                flow: woke.flow.as_ref().map(flow_name),
                slept_seconds: woke.slept.as_secs_f64(),
            },
        },
        Event::Awake(woke) => {
            EventKind::Awake { cause: woke.cause.name().into(), took_ms: woke.took.map(millis) }
        }
        Event::CalledOff => EventKind::SleepCalledOff,
        Event::Mode(m) => EventKind::Mode { mode: mode(m) },
        Event::RadioFailed { why } => {
            EventKind::Warning { message: format!("the radio does not obey: {why}") }
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A flow as people write it.
fn flow_name(flow: &Flow) -> String {
    let name = match flow.protocol {
        protocol::TCP => "tcp".to_owned(),
        protocol::UDP => "udp".to_owned(),
        protocol::ICMP | protocol::ICMPV6 => return format!("icmp {} -> {}", flow.src, flow.dst),
        other => format!("protocol {other}"),
    };
    match (flow.src_port, flow.dst_port) {
        (Some(from), Some(to)) => {
            let (from, to) =
                (std::net::SocketAddr::new(flow.src, from), std::net::SocketAddr::new(flow.dst, to));
            format!("{name} {from} -> {to}")
        }
        _ => format!("{name} {} -> {}", flow.src, flow.dst),
    }
}

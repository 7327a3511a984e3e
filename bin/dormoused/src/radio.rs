//! The device's radio, its energy meter and the machine's own sleep. Owns the radio's guard process, the meter, and the hold that keeps
//! the machine awake until the gateways know. Decides nothing: when to sleep is the host's.

use crate::daemon::Daemon;
use crate::sleep_status;
use anyhow::Result;
use dormouse_control as control;
use dormouse_io::logind;
use dormouse_io::meter::{self, Choice, Meter};
use dormouse_io::radio::{self, Guard, Order, Power, Reply, SignalReader};
use dormouse_node::config::sleep::{RadioDriver, ResolvedSleep};
use dormouse_node::host::{Host, Radio};
use dormouse_node::sleeper::{Cause, Event, Mode, Reason};
use dormouse_sansio::Instant;
use std::path::Path;

/// The file that remembers across crashes that the radio was off.
const MARK: &str = "radio-off";

/// What a device has besides its sessions.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) guard: Option<Guard>,
    pub(crate) radio: control::RadioStatus,
    meter: Option<Box<dyn Meter>>,
    signal: SignalReader,
    /// As it was configured when this run began, or last changed.
    configured: ResolvedSleep,
    /// What happens to the whole machine.
    pub(crate) machine: Option<logind::Watch>,
    /// Keeps it awake until the gateways know.
    hold: Option<logind::Inhibitor>,
}

impl Device {
    /// Starts the radio's guard; as root, before privileges are given away. What it found comes later, by
    /// [`Daemon::radio_answers`].
    /// Meters are looked for under `root`.
    pub(crate) fn new(now: Instant, sleep: &ResolvedSleep, state_dir: &Path, root: &Path) -> Self {
        let (guard, why) = match start_guard(sleep, state_dir) {
            Ok(Some(guard)) => (Some(guard), "being looked for".to_owned()),
            Ok(None) => (None, "sleep.radio = \"none\"".to_owned()),
            Err(e) => {
                tracing::warn!("the radio is left alone: {}", dormouse_io::causes(&*e));
                (None, e.to_string())
            }
        };
        Self {
            guard,
            radio: control::RadioStatus { driver: None, why },
            meter: sleep.meter.then(|| find_meter(now, root)).flatten(),
            signal: SignalReader::new(sleep.interface.clone()),
            configured: sleep.clone(),
            machine: None,
            hold: None,
        }
    }

    /// Gives the host what can be changed while it runs from a configuration that was read again. Returns the keys that need a
    /// restart.
    pub(crate) fn reconfigure(
        &mut self,
        now: Instant,
        sleep: &ResolvedSleep,
        host: &mut Host,
    ) -> Vec<&'static str> {
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
        host.reconfigure_sleep(now, &sleep.settings, mode);
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

    /// Gives the radio's guard an order; what it answers comes later.
    fn order(&mut self, order: Order) -> Result<(), String> {
        match &mut self.guard {
            Some(guard) => guard.order(order).map_err(|e| e.to_string()),
            None => Err("there is no radio that can be switched".into()),
        }
    }
}

impl Daemon {
    /// Takes up what an earlier run learned.
    pub(crate) fn restore_history(&mut self) {
        match self.store.history() {
            Ok(None) => {}
            Ok(Some(bytes)) => match self.host.restore_history(&bytes) {
                Ok(()) => tracing::info!(bytes = bytes.len(), "the history of earlier runs is taken up"),
                Err(e) => {
                    let kept = self.store.put_history_aside();
                    tracing::warn!(%e, kept, "the history of earlier runs is not used; learning begins afresh");
                }
            },
            Err(e) => {
                tracing::warn!(
                    "the history of earlier runs cannot be read; learning begins afresh: {}",
                    dormouse_io::causes(&*e)
                )
            }
        }
    }

    pub(crate) fn order_radio(&mut self, now: Instant, order: Radio) {
        let Some(device) = &mut self.device else { return };
        let order = match order {
            Radio::Off => Order::Off,
            Radio::On => Order::On,
            Radio::Look => Order::State,
        };
        if let Err(why) = device.order(order) {
            self.host.radio_failed(now, &why);
        }
    }

    /// Reads the meter and tells the host.
    pub(crate) fn read_meter(&mut self, now: Instant) {
        let Some(meter) = self.device.as_mut().and_then(|d| d.meter.as_mut()) else { return };
        match meter.read(now) {
            Ok(reading) => {
                let name = meter.source().to_string();
                self.host.metered(now, &name, reading.joules, reading.uncertainty);
            }
            // On mains a battery measures nothing; the profile's figures stand in.
            Err(e) => tracing::debug!(%e, "the meter"),
        }
    }

    /// Reads the signal and tells the host.
    pub(crate) fn read_signal(&mut self) {
        let Some(device) = &mut self.device else { return };
        let signal = device.signal.read().unwrap_or_else(|e| {
            tracing::debug!(%e, "the signal cannot be read");
            None
        });
        self.host.set_signal(signal);
    }

    pub(crate) fn sleep_event(&mut self, event: Event) {
        match &event {
            Event::Asleep { reason, decision } => {
                let time_out = decision.and_then(|d| d.time_out).map(|t| t.as_secs_f64());
                let by = decision.map_or("", |d| d.by);
                tracing::info!(reason = reason.name(), time_out, by, "asleep");
            }
            Event::Waking(woke) => {
                let flow = woke.flow.as_ref().map(sleep_status::flow_name);
                let slept = woke.slept.as_secs_f64();
                tracing::info!(cause = woke.cause.name(), flow, slept, "waking");
            }
            Event::Awake(woke) => match woke.took {
                Some(took) => {
                    tracing::info!(cause = woke.cause.name(), took_ms = sleep_status::millis(took), "awake")
                }
                None => tracing::warn!(cause = woke.cause.name(), "awake, but the session is not back yet"),
            },
            Event::CalledOff => tracing::debug!("the sleep is called off"),
            Event::Mode(mode) => tracing::info!(mode = mode.name(), "mode"),
            Event::RadioFailed { why } => tracing::warn!(%why, "the radio does not obey"),
        }
        if let (Some(device), Event::Asleep { reason: Reason::Machine, .. }) = (&mut self.device, &event) {
            device.hold = None;
        }
        if let Event::Asleep { .. } = event {
            self.verbs.fell_asleep();
        }
        self.verbs.tell(None, sleep_status::event(event));
    }

    /// The machine is about to sleep, or has resumed.
    pub(crate) fn machine_news(&mut self, now: Instant) {
        while let Some(event) =
            self.device.as_mut().and_then(|d| d.machine.as_mut()).and_then(logind::Watch::next)
        {
            match event {
                logind::Event::AboutToSleep(hold) => {
                    tracing::info!(delayed = hold.is_some(), "the machine is about to sleep");
                    if let Some(device) = &mut self.device {
                        device.hold = hold;
                    }
                    self.host.suspend(now, Reason::Machine);
                }
                logind::Event::Resumed => {
                    tracing::info!("the machine has resumed");
                    if let Some(device) = &mut self.device {
                        device.hold = None;
                    }
                    self.host.resume(now, Cause::Machine);
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
        let Some(device) = &mut self.device else { return };
        loop {
            let reply = match device.guard.as_mut().map(Guard::next) {
                Some(Ok(Some(reply))) => reply,
                None | Some(Ok(None)) => return,
                Some(Err(e)) => {
                    tracing::error!("the radio is left alone from now on: {}", dormouse_io::causes(&e));
                    device.guard = None;
                    device.radio = control::RadioStatus { driver: None, why: e.to_string() };
                    if self.host.radio_is_off() {
                        // Only a new guard can switch it on, and only a new start has the privileges to make one.
                        self.stopping = true;
                        self.fatal =
                            Some(anyhow::anyhow!("the radio's helper process died with the radio off: {e}"));
                    }
                    return self.host.set_radio(now, false);
                }
            };
            match reply {
                Reply::Selected(Ok(choice)) => {
                    tracing::info!(driver = choice.driver, why = choice.why, "the radio can be switched");
                    device.radio = control::RadioStatus { driver: Some(choice.driver), why: choice.why };
                    self.host.set_radio(now, true);
                }
                Reply::Selected(Err(why)) => {
                    tracing::info!(%why, "the radio stays on");
                    device.radio = control::RadioStatus { driver: None, why };
                }
                Reply::Done(Order::Off, Ok(_)) => self.host.radio_off(now),
                Reply::Done(Order::On, Ok(_)) => self.host.radio_on(now),
                Reply::Done(Order::State, Ok(state)) => {
                    if state.power == Power::On {
                        self.host.radio_on(now);
                    }
                }
                Reply::Done(Order::State, Err(why)) => tracing::debug!(%why, "the radio's state"),
                Reply::Done(Order::Off | Order::On, Err(why)) => self.host.radio_failed(now, &why),
            }
        }
    }

    /// `dormouse mode`.
    pub(crate) fn set_mode(&mut self, now: Instant, mode: control::SleepMode) -> Result<(), control::Error> {
        let none = || {
            let message =
                "there is no connection as a client or host of HIP, so there is no radio to put to sleep";
            control::Error::new(control::ErrorKind::Request, message)
        };
        let device = self.device.as_ref().ok_or_else(none)?;
        let mode = match mode {
            control::SleepMode::Energy => Mode::Energy,
            control::SleepMode::Balanced => Mode::Balanced,
            control::SleepMode::Performance => Mode::Performance,
        };
        if device.guard.is_none() && mode != Mode::Performance {
            let message = format!("the radio cannot be switched: {}", device.radio.why);
            return Err(control::Error::new(control::ErrorKind::Other, message)
                .with_change("sleep.radio, sleep.interface or sleep.command_off and sleep.command_on"));
        }
        self.host.set_mode(now, mode);
        self.tell_hip_of_mode(now);
        Ok(())
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

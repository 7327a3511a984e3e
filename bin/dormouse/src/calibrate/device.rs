//! This machine as the calibration drives it: its clock, meter and radio, and the session through the daemon's control socket. Owns the way back:
//! what was switched is switched back, also after an error.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dormouse_control::{ConnectionState, Error, ErrorKind, EventKind, Reply, SleepMode, Verb, WakeRung};
use dormouse_io::clock::BootClock;
use dormouse_io::meter::{Grain, Meter, Reading, Source};
use dormouse_io::radio::{PowerSave, Radio};
use dormouse_lab::calibrate::{Action, Cycle, Device, Failure};
use dormouse_sansio::Instant;

use crate::client::Client;

/// A radio that has not joined its network, or a session that is not back, after so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// A session that is not at rest after so long will not be.
const REST: Duration = Duration::from_secs(5);
/// How often a radio is asked whether it has joined: a fiftieth of what joining takes.
const ASK: Duration = Duration::from_millis(40);
/// Nothing new from the daemon for so long: all that it has to say has been read.
const DRAINED: Duration = Duration::from_millis(1);
/// How often an interruption is looked for.
const SLICE: Duration = Duration::from_millis(100);

/// This machine.
pub(super) struct Machine {
    pub(super) meter: Box<dyn Meter>,
    pub(super) radio: Option<Box<dyn Radio>>,
    pub(super) power_save: Option<PowerSave>,
    pub(super) session: Option<Session>,
    pub(super) interrupted: Arc<AtomicBool>,
    /// When the meter was last read.
    read: Instant,
    radio_off: bool,
}

impl Machine {
    pub(super) fn new(
        meter: Box<dyn Meter>,
        radio: Option<Box<dyn Radio>>,
        power_save: Option<PowerSave>,
        session: Option<Session>,
        interrupted: Arc<AtomicBool>,
    ) -> Self {
        Self { meter, radio, power_save, session, interrupted, read: BootClock::now(), radio_off: false }
    }

    /// Reads the meter if it needs that, and looks whether the user wants to stop.
    fn attend(&mut self) -> Result<(), Failure> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted);
        }
        // Once a second at least: that is how a gauge shows how often it refreshes.
        let pause = self.meter.read_within().min(Duration::from_secs(1));
        if BootClock::now().saturating_since(self.read) >= pause {
            self.meter()?;
        }
        Ok(())
    }

    fn join(&mut self) -> Result<(), Failure> {
        let Some(radio) = &mut self.radio else { return Ok(()) };
        let began = BootClock::now();
        radio.on().map_err(|e| Failure::Device(e.to_string()))?;
        self.radio_off = false;
        while let Some(radio) = &mut self.radio {
            match radio.state().map_err(|e| Failure::Device(e.to_string()))?.attached {
                // A driver that cannot tell is done when it says that it is on.
                Some(true) | None => break,
                Some(false) if BootClock::now().saturating_since(began) > PATIENCE => {
                    let seconds = PATIENCE.as_secs();
                    return Err(Failure::Device(format!(
                        "the radio has not joined its network within {seconds} s"
                    )));
                }
                Some(false) => {}
            }
            std::thread::sleep(ASK);
            self.attend()?;
        }
        Ok(())
    }

    fn leave(&mut self) -> Result<(), Failure> {
        if let Some(session) = &mut self.session {
            session.suspend()?;
        }
        if let Some(radio) = &mut self.radio {
            // Before the call: one that fails may have switched it all the same.
            self.radio_off = true;
            radio.off().map_err(|e| Failure::Device(e.to_string()))?;
        }
        Ok(())
    }
}

impl Device for Machine {
    fn now(&self) -> Instant {
        BootClock::now()
    }

    fn rest(&mut self, time: Duration) -> Result<(), Failure> {
        let end = BootClock::now() + time;
        loop {
            self.attend()?;
            let left = end.saturating_since(BootClock::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(SLICE));
        }
    }

    fn meter(&mut self) -> Result<Reading, Failure> {
        self.read = BootClock::now();
        Ok(self.meter.read(self.read)?)
    }

    fn source(&self) -> Source {
        self.meter.source().clone()
    }

    fn grain(&self) -> Grain {
        self.meter.grain()
    }

    fn perform(&mut self, action: Action) -> Result<Duration, Failure> {
        self.attend()?;
        let began = BootClock::now();
        match action {
            Action::RadioOff => self.leave()?,
            Action::RadioOn => self.join()?,
            Action::PowerSave(on) => {
                if let Some(power_save) = &mut self.power_save {
                    power_save
                        .set(on)
                        .map_err(|e| Failure::Device(format!("the radio's power saving: {e}")))?;
                }
            }
            Action::SessionUp => {
                if let Some(session) = &mut self.session {
                    session.back()?;
                }
            }
            Action::Rung(subject) => match &mut self.session {
                Some(session) => return session.exercise(subject),
                None => return Err(Failure::Here("there is no session".into())),
            },
        }
        Ok(BootClock::now().saturating_since(began))
    }

    fn restore(&mut self) -> Result<(), Failure> {
        if self.radio_off
            && let Some(radio) = &mut self.radio
        {
            radio.on().map_err(|e| Failure::Device(e.to_string()))?;
            self.radio_off = false;
        }
        if let Some(power_save) = &mut self.power_save {
            power_save.restore().map_err(|e| Failure::Device(format!("the radio's power saving: {e}")))?;
        }
        match &mut self.session {
            Some(session) => session.restore(),
            None => Ok(()),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // After a panic; otherwise it has been done. A failure can no longer be reported.
        if self.suspended || self.mode.is_some() {
            let _ = self.restore();
        }
    }
}

/// One connection of the daemon.
pub(super) struct Session {
    name: String,
    control: Client,
    /// Streams what happens, by a connection of its own.
    events: Client,
    suspended: bool,
    awake: bool,
    /// The mode that the daemon was in, if it had to be changed.
    mode: Option<SleepMode>,
}

impl Session {
    /// A connection that is up.
    ///
    /// # Errors
    /// Without a daemon, if the connection is not known, or is not up.
    pub(super) fn open(socket: &Path, name: Option<&str>) -> Result<Self, Error> {
        let mut control = Client::connect(socket)?;
        let (_, reply) = control.ask(Verb::Status)?;
        let Reply::Status(status) = reply else {
            return Err(Error::new(ErrorKind::Other, "the daemon does not answer what was asked"));
        };
        let known: Vec<String> = status.connections.iter().map(|c| c.name.clone()).collect();
        let mut wanted = status.connections.iter().filter(|c| name.is_none_or(|n| n == c.name));
        let (Some(connection), None) = (wanted.next(), wanted.next()) else {
            let message = match name {
                Some(name) => format!("there is no client connection '{name}'"),
                None => format!("there are {} client connections: name one with --connection", known.len()),
            };
            return Err(Error::new(ErrorKind::UnknownConnection, message).with_offer(Vec::new(), known));
        };
        if connection.state != ConnectionState::Up {
            let message = format!("{} is {}, not up", connection.name, connection.state.name());
            return Err(Error::new(ErrorKind::NotConnected, message)
                .with_change(format!("dormouse up {}", connection.name)));
        }
        let mut events = Client::connect(socket)?;
        events.send(Verb::Watch)?;
        Ok(Self {
            name: connection.name.clone(),
            control,
            events,
            suspended: false,
            awake: false,
            mode: None,
        })
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn ask(&mut self, verb: Verb) -> Result<(), Failure> {
        match self.control.ask(verb) {
            Ok(_) => Ok(()),
            Err(e) if e.kind == ErrorKind::NotConnected => Err(Failure::Here(e.to_string())),
            Err(e) => Err(Failure::Device(e.to_string())),
        }
    }

    /// Keeps the daemon from putting the radio to sleep by itself. One that has no radio to put to sleep has no mode.
    fn keep_awake(&mut self) -> Result<(), Failure> {
        if !std::mem::replace(&mut self.awake, true)
            && let Ok((_, Reply::Mode(mode))) = self.control.ask(Verb::Mode { mode: None })
            && mode != SleepMode::Performance
        {
            self.mode = Some(mode);
            self.ask(Verb::Mode { mode: Some(SleepMode::Performance) })?;
        }
        Ok(())
    }

    /// The daemon as it was.
    fn restore(&mut self) -> Result<(), Failure> {
        let back = if self.awake { self.back() } else { Ok(()) };
        match self.mode.take() {
            Some(mode) => self.ask(Verb::Mode { mode: Some(mode) }).and(back),
            None => back,
        }
    }

    fn suspend(&mut self) -> Result<(), Failure> {
        self.keep_awake()?;
        if !self.suspended {
            // Before the answer: a daemon that hangs may have done it all the same.
            self.suspended = true;
            self.ask(Verb::Suspend)?;
        }
        Ok(())
    }

    /// Comes back from a suspension, by any rung.
    fn back(&mut self) -> Result<(), Failure> {
        self.keep_awake()?;
        if std::mem::take(&mut self.suspended) {
            self.ask(Verb::Resume)?;
        }
        let timeout_seconds = Some(PATIENCE.as_secs_f64());
        let wait =
            Verb::Wait { connection: Some(self.name.clone()), state: ConnectionState::Up, timeout_seconds };
        match self.control.ask(wait) {
            Ok(_) => Ok(()),
            Err(e) => Err(Failure::Device(format!("the session does not come back: {e}"))),
        }
    }

    /// Forgets what happened before now: an earlier success is not the answer to what is asked next.
    fn forget_events(&mut self) -> Result<(), Failure> {
        loop {
            match self.events.next(Some(DRAINED)) {
                Ok(_) => {}
                Err(e) if e.kind == ErrorKind::Timeout => return Ok(()),
                Err(e) => return Err(Failure::Device(e.to_string())),
            }
        }
    }

    /// Begins to climb a rung, as soon as the session is at rest: one that has come back by its ticket is so when the gateway has
    /// been heard. When that was.
    fn begin(&mut self, rung: WakeRung) -> Result<Instant, Failure> {
        let since = BootClock::now();
        loop {
            let began = BootClock::now();
            match self.ask(Verb::Exercise { connection: Some(self.name.clone()), rung }) {
                Ok(()) => return Ok(began),
                Err(Failure::Here(_)) if began.saturating_since(since) < REST => std::thread::sleep(ASK),
                Err(e) => return Err(e),
            }
        }
    }

    /// Climbs a rung, and says how long it takes until the session is up again.
    fn exercise(&mut self, subject: Cycle) -> Result<Duration, Failure> {
        let rung = match subject {
            Cycle::Held => WakeRung::Held,
            Cycle::Mobike => WakeRung::Mobike,
            Cycle::Ticket => WakeRung::Ticket,
            Cycle::Full => WakeRung::Full,
            Cycle::Radio => return Err(Failure::Here("the radio is no rung".into())),
        };
        self.forget_events()?;
        let began = self.begin(rung)?;
        let mut failure = None;
        loop {
            let left = PATIENCE.saturating_sub(BootClock::now().saturating_since(began));
            if left.is_zero() {
                return Err(Failure::Here(format!("no answer within {} s", PATIENCE.as_secs())));
            }
            let (_, reply) = self.events.next(Some(left)).map_err(|e| match e.kind {
                ErrorKind::Timeout => Failure::Here(format!("no answer within {} s", PATIENCE.as_secs())),
                _ => Failure::Device(e.to_string()),
            })?;
            let Reply::Event(event) = reply else { continue };
            if event.connection.as_ref().is_some_and(|name| *name != self.name) {
                continue;
            }
            match event.kind {
                EventKind::Up { rung: by, .. } if by == rung => {
                    return Ok(BootClock::now().saturating_since(began));
                }
                EventKind::Up { rung: by, .. } if failure.is_some() => {
                    let why: String = failure.unwrap_or_default();
                    return Err(Failure::Here(format!(
                        "the session came back by {} instead: {why}",
                        by.name()
                    )));
                }
                EventKind::RungFailed { error, .. } => failure = Some(error.to_string()),
                EventKind::Stopping => return Err(Failure::Device("the daemon stops".into())),
                _ => {}
            }
        }
    }
}

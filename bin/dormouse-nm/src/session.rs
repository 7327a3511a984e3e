//! One connection of NetworkManager, from its order until it is down. Owns the order of things; the other parts send it messages.
//!
//! ```text
//! Init ── Connect ──► Starting ── session up ──► Started ── Disconnect ──► Stopping ──► Stopped
//!                        │  ▲                       │
//!           SecretsRequired │ NewSecrets            └─ the daemon ends, or the gateway refuses us: Failure ──► Stopped
//! ```
//! A network that changes or is gone, and a machine that sleeps, are no reason to leave `Started`: the daemon moves the session, or brings it back by its
//! ticket. NetworkManager takes the connection down then, unless `vpn.persistent` is set; the ticket is kept in this case too.

use crate::daemon::Daemon;
use crate::handover::Handover;
use crate::manager;
use crate::message::{Input, Order};
use crate::service::{Failure, State, Teller, offer};
use anyhow::{Context, Result};
use dormouse_control::{Error, ErrorKind, EventKind, WakeRung};
use std::sync::mpsc::{Receiver, Sender, channel};
use zeroize::Zeroizing;

/// Serves the one connection of the plug-in that NetworkManager knows by `name`.
///
/// # Errors
/// If there is no bus, or the name may not be had.
pub(crate) fn serve(name: &str) -> Result<()> {
    let (orders, inputs) = channel();
    let teller = offer(name, orders.clone()).with_context(|| format!("D-Bus: {name}"))?;
    manager::watch(teller.bus.clone(), orders.clone())?;
    let session = Session { teller, orders, order: None, daemon: None, told: None };
    session.run(&inputs);
    Ok(())
}

struct Session {
    teller: Teller,
    /// For those who tell the session.
    orders: Sender<Input>,
    order: Option<Order>,
    daemon: Option<Daemon>,
    /// What NetworkManager was told last.
    told: Option<Handover>,
}

impl Session {
    /// Until the connection is down.
    fn run(mut self, inputs: &Receiver<Input>) {
        // The session holds a sender itself: there is always another message to wait for.
        while let Ok(input) = inputs.recv() {
            let done = match input {
                Input::Connect(order) => {
                    tracing::info!(
                        connection = order.profile.id,
                        gateway = order.profile.gateway,
                        "connects"
                    );
                    self.teller.state(State::Starting);
                    self.order = Some(*order);
                    self.begin()
                }
                Input::Secrets(password) => self.secrets(password),
                Input::Ready => self.ready(),
                Input::Came(came) => self.came(came),
                Input::Event(event) => self.event(&event),
                // One that was stopped by us is none of the session's any more.
                Input::Ended(how) if self.daemon.is_some() => {
                    tracing::error!(how, "the daemon has ended");
                    self.fail(Failure::Connect)
                }
                Input::Ended(_) => false,
                Input::Disconnect => {
                    self.teller.state(State::Stopping);
                    let finished = manager::is_connected(&self.teller.bus);
                    self.end(finished)
                }
                Input::ManagerGone => self.end(false),
            };
            if done {
                return;
            }
        }
    }

    /// Starts the daemon, or asks for the password first. True if the session is over, as in what follows.
    fn begin(&mut self) -> bool {
        let Some(order) = &self.order else { return false };
        let password = order.password.as_ref().map(|p| p.as_str());
        if order.profile.needs_password() && password.is_none() {
            let message = format!("The VPN {} needs a password", order.profile.id);
            self.teller.secrets_required(&message);
            return false;
        }
        match Daemon::start(&order.profile, password, &self.orders) {
            Ok(daemon) => {
                self.daemon = Some(daemon);
                false
            }
            Err(e) => {
                tracing::error!("{}", dormouse_io::causes(&*e));
                self.fail(Failure::Connect)
            }
        }
    }

    fn secrets(&mut self, password: Option<Zeroizing<String>>) -> bool {
        let Some(order) = self.order.as_mut().filter(|_| self.daemon.is_none()) else { return false };
        order.password = password;
        if order.password.is_none() {
            tracing::error!("there is no password");
            return self.fail(Failure::Login);
        }
        self.begin()
    }

    fn ready(&mut self) -> bool {
        let Some(daemon) = &self.daemon else { return false };
        match daemon.up(&self.orders) {
            Ok(()) => false,
            Err(e) => {
                tracing::error!("{}", dormouse_io::causes(&*e));
                self.fail(Failure::Connect)
            }
        }
    }

    fn came(&mut self, came: Result<(), Error>) -> bool {
        match came {
            Ok(()) => self.hand_over(),
            // Of a daemon that was stopped by us.
            Err(_) if self.daemon.is_none() => false,
            Err(error) => {
                tracing::error!("{error}");
                let refused = error.kind == ErrorKind::Authentication;
                let asks =
                    |order: &&mut Order| refused && order.interactive && order.profile.needs_password();
                let Some(order) = self.order.as_mut().filter(asks) else {
                    return self.fail(if refused { Failure::Login } else { Failure::Connect });
                };
                order.password = None;
                let message = format!("The gateway of {} refuses the password", order.profile.id);
                if let Some(daemon) = self.daemon.take() {
                    daemon.stop(true);
                }
                self.teller.secrets_required(&message);
                false
            }
        }
    }

    fn event(&mut self, event: &EventKind) -> bool {
        match event {
            // Came back, perhaps with other addresses.
            EventKind::Up { .. } if self.told.is_some() => self.hand_over(),
            EventKind::RungFailed { rung: WakeRung::Full, error }
                if self.told.is_some() && error.kind == ErrorKind::Authentication =>
            {
                tracing::error!("{error}");
                self.fail(Failure::Login)
            }
            _ => false,
        }
    }

    /// Tells NetworkManager what the gateway has given, unless it knows.
    fn hand_over(&mut self) -> bool {
        let Some(daemon) = &self.daemon else { return false };
        let handover = daemon.status().and_then(|status| {
            let connection = status.connections.first().context("the daemon has no connection")?;
            Ok(Handover::of(&status.daemon, connection)?)
        });
        let handover = match handover {
            Ok(handover) => handover,
            Err(e) => {
                tracing::error!("{}", dormouse_io::causes(&*e));
                return self.fail(Failure::Addresses);
            }
        };
        if self.told.as_ref() == Some(&handover) {
            return false;
        }
        self.teller.config(&handover.general);
        if let Some(v4) = &handover.v4 {
            self.teller.v4_config(v4);
        }
        if let Some(v6) = &handover.v6 {
            self.teller.v6_config(v6);
        }
        if self.told.is_none() {
            self.teller.state(State::Started);
        }
        self.told = Some(handover);
        false
    }

    fn fail(&mut self, reason: Failure) -> bool {
        self.teller.failure(reason);
        self.end(false)
    }

    fn end(&mut self, finished: bool) -> bool {
        if let Some(daemon) = self.daemon.take() {
            daemon.stop(finished);
        }
        self.teller.state(State::Stopped);
        tracing::info!(ticket = if finished { "given up" } else { "kept" }, "the connection is down");
        true
    }
}

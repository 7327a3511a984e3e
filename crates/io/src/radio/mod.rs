//! The radio: switches it off while the device sleeps, and on again, by way of the service that manages it on this machine.
//!
//! Owns the choice of the way and the promise to restore; decides nothing about when. Four ways, the first that works here
//! ([`select`]):
//!
//! 1. [`Driver::NetworkManager`], where it runs and manages the interface: it is asked over D-Bus to let go of the device, whose
//!    link is then taken down, and to take it back on the same network.
//! 2. [`Driver::Rfkill`]: the soft block of this one radio's switch (`/dev/rfkill`). Joining the network again is left to
//!    the program that did it before (wpa_supplicant, iwd); nl80211 tells whether it has happened.
//! 3. [`Driver::Link`]: the interface is taken down and up. Only for a radio without a switch, or where the interface is named in
//!    the configuration: taking down a machine's only wire unasked would be rude.
//! 4. [`Driver::Command`]: the user's own programs.
//!
//! A radio never wakes by itself here: nothing in this module has a timer while it is off.
//!
//! # Blocking, privileges, and crashes
//! The calls of [`Radio`] block, up to a stated bound ([`PATIENCE`] or a command's time-out), need root, and must be undone
//! however the daemon ends. So the daemon, which is one thread, unprivileged and mortal, does not make them: it runs a [`Guard`], a
//! process of its own that keeps root and `CAP_NET_ADMIN`, and gives it orders that never wait. When the daemon ends, also by
//! SIGKILL, the guard puts the radio back on. When the guard itself, or the machine, goes down with the radio off, the file
//! [`Options::mark`] says so and the next start puts it back on, or tries again with every later order until that works (a soft block outlives a reboot: systemd-rfkill restores it).
//!
//! What others have switched off stays off: [`Radio::on`] undoes what [`Radio::off`] did, and no more.

mod command;
mod guard;
mod interface;
mod link;
#[cfg(feature = "dbus")]
mod networkmanager;
#[cfg(not(feature = "dbus"))]
#[path = "../without/networkmanager.rs"]
mod networkmanager;
mod nl80211;
mod power_save;
mod restore;
mod rfkill;
mod signal;

pub use guard::{Guard, Order, Reply, serve};
pub use nl80211::{Association, Nl80211};
pub use power_save::PowerSave;
pub use signal::SignalReader;

use crate::clock::BootClock;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The longest that a driver waits for one step of others (a manager's answer, a device that becomes ready). No call takes more
/// than three such steps.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// A radio that can be switched off and on. Calls block, within bounds: see the module.
pub trait Radio: Send + fmt::Debug {
    /// Which way this is: `networkmanager`, `rfkill`, `link`, `command`.
    fn name(&self) -> &'static str;

    /// Why this way, and why not the ones before it.
    fn why(&self) -> &str;

    /// Switches the radio off. No packet goes in or out, and the hardware draws no power for it, once this returns. A radio that
    /// is off already is fine.
    ///
    /// # Errors
    /// If it cannot be done; what was done half is undone.
    fn off(&mut self) -> Result<(), RadioError>;

    /// Undoes [`Radio::off`]. Returns once the radio has power and the program that joins networks knows that it should; the network
    /// itself comes later ([`crate::netlink::Monitor`] sees it). Without an `off` before it, does nothing.
    ///
    /// # Errors
    /// If it cannot be done; it can be tried again.
    fn on(&mut self) -> Result<(), RadioError>;

    /// What the radio is doing now.
    ///
    /// # Errors
    /// If it cannot be found out.
    fn state(&mut self) -> Result<RadioState, RadioError>;
}

/// Whether the radio has power.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Power {
    /// It has: it is connected, or looking for a network.
    On,
    /// We have switched it off.
    Off,
    /// Others have: a key, a switch on the machine, the user's desktop. [`Radio::on`] does not change that.
    Blocked,
    /// The driver cannot tell.
    Unknown,
}

/// What a radio is doing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RadioState {
    /// Whether it has power.
    pub power: Power,
    /// Joined to a network, so that packets can go; `None` if the driver cannot tell.
    pub attached: Option<bool>,
    /// Name of that network, where there is one.
    pub network: Option<String>,
}

/// Which way to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Driver {
    /// The first that works here.
    #[default]
    Auto,
    /// NetworkManager over D-Bus.
    #[serde(rename = "networkmanager")]
    NetworkManager,
    /// The radio's rfkill switch.
    Rfkill,
    /// The interface's link state.
    Link,
    /// The user's own programs.
    Command,
}

impl Driver {
    /// As it is written in a configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::NetworkManager => networkmanager::NAME,
            Self::Rfkill => rfkill::NAME,
            Self::Link => link::NAME,
            Self::Command => command::NAME,
        }
    }
}

/// The user's own programs, each as a list of program and arguments: no shell is involved. They run as the guard's user (root) with
/// an empty standard input, and must end with 0.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Commands {
    /// Switches the radio off.
    pub off: Vec<String>,
    /// Switches it on.
    pub on: Vec<String>,
    /// Tells what it is doing: exit code 0 says on, 1 says off, anything else is an error. Empty: not known.
    pub state: Vec<String>,
    /// After this time a program, with what it started in its process group, is killed and has failed.
    pub timeout: Duration,
}

/// How to find the radio. Paths can be moved for tests.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Options {
    /// Which way.
    pub driver: Driver,
    /// The radio's interface. `None`: the only 802.11 interface of this network namespace, or the one with the default route.
    pub interface: Option<String>,
    /// For [`Driver::Command`].
    pub commands: Option<Commands>,
    /// Remembers across crashes that the radio was off, in one short line. `None`: nothing remembers.
    pub mark: Option<PathBuf>,
    /// D-Bus address of the bus that has NetworkManager; `None`: the system bus.
    pub bus: Option<String>,
    /// `/sys`.
    pub sysfs: PathBuf,
    /// `/dev/rfkill`.
    pub rfkill: PathBuf,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            driver: Driver::Auto,
            interface: None,
            commands: None,
            mark: None,
            bus: None,
            sysfs: "/sys".into(),
            rfkill: "/dev/rfkill".into(),
        }
    }
}

/// Why a radio cannot be found or switched.
#[derive(Debug, thiserror::Error)]
pub enum RadioError {
    /// No way works here.
    #[error("no radio can be switched here: {0}")]
    Nowhere(String),
    /// A step failed.
    #[error("{driver}: {what}: {problem}")]
    Step {
        /// Which way was in use.
        driver: &'static str,
        /// What was tried.
        what: String,
        /// Why it did not work.
        problem: String,
    },
    /// A step took too long.
    #[error("{driver}: {what}: not within {limit:?}")]
    Timeout {
        /// Which way was in use.
        driver: &'static str,
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
    },
    /// The guard process could not be started, or is gone.
    #[error("the radio's guard process: {0}")]
    Guard(#[source] std::io::Error),
}

impl RadioError {
    fn step(driver: &'static str, what: impl Into<String>, problem: impl fmt::Display) -> Self {
        Self::Step { driver, what: what.into(), problem: problem.to_string() }
    }
}

/// Finds the radio and the way to switch it. What an earlier run left switched off is switched on first.
///
/// The radio that is returned puts itself back on when it is dropped.
///
/// # Errors
/// [`RadioError::Nowhere`], with a reason for each way.
pub fn select(options: &Options) -> Result<Box<dyn Radio>, RadioError> {
    Ok(Box::new(restore::Restoring::select(options)?))
}

/// What `dormouse doctor` wants to know: which way would be used, and why; or why there is none. Changes nothing.
///
/// # Errors
/// [`RadioError::Nowhere`], with a reason for each way.
pub fn survey(options: &Options) -> Result<Choice, RadioError> {
    choose(options, Purpose::Switch)
        .map(|found| Choice { driver: found.switch.name().into(), why: found.why })
}

/// A way and why it was chosen.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Choice {
    /// Name of the way: see [`Driver::name`].
    pub driver: String,
    /// Why it is that one, and why not those before it.
    pub why: String,
}

/// A way as the drivers implement it. [`restore::Restoring`] makes a [`Radio`] of it.
trait Switch: Send + fmt::Debug {
    /// See [`Radio::name`].
    fn name(&self) -> &'static str;
    /// See [`Radio::off`].
    fn off(&mut self) -> Result<(), RadioError>;
    /// See [`Radio::on`].
    fn on(&mut self) -> Result<(), RadioError>;
    /// See [`Radio::state`].
    fn state(&mut self) -> Result<RadioState, RadioError>;
    /// True from an `off` that changed something to the `on` that undid it.
    fn holds(&self) -> bool;
    /// Names the network that the radio is joined to, in the driver's own terms, if the driver needs it to join that network again.
    fn network(&mut self) -> Option<String> {
        None
    }
    /// Takes over from an earlier run that switched the radio off this way while it was joined to `network`: the next `on` undoes it
    /// as well as it can.
    fn adopt(&mut self, network: Option<String>);
}

/// What [`choose`] finds.
struct Found {
    switch: Box<dyn Switch>,
    interface: Option<String>,
    why: String,
}

/// What a way is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    /// To switch the radio off and on: only what can do both now.
    Switch,
    /// To switch on what an earlier run left off: a manager that was made to let go of the device is the right one.
    BringBack,
}

/// Tries the ways in their order, or the one that is asked for.
fn choose(options: &Options, purpose: Purpose) -> Result<Found, RadioError> {
    const ALL: [Driver; 4] = [Driver::NetworkManager, Driver::Rfkill, Driver::Link, Driver::Command];
    let one = [options.driver];
    let order: &[Driver] = if options.driver == Driver::Auto { &ALL } else { &one };
    let interface = interface::find(options);
    let mut passed_over: Vec<String> = Vec::new();
    for driver in order {
        let attempt = match (driver, &interface) {
            (Driver::Command, _) => command::find(options),
            (_, Err(why)) => Err(why.clone()),
            (Driver::NetworkManager, Ok(interface)) => networkmanager::find(options, interface, purpose),
            (Driver::Rfkill, Ok(interface)) => rfkill::find(options, interface),
            (Driver::Link | Driver::Auto, Ok(interface)) => link::find(options, interface),
        };
        match attempt {
            Ok((switch, why)) => {
                let why = if passed_over.is_empty() {
                    why
                } else {
                    format!("{why}; not {}", passed_over.join(", not "))
                };
                return Ok(Found { switch, interface: interface.ok().map(|i| i.name), why });
            }
            Err(why) => passed_over.push(format!("{} ({why})", driver.name())),
        }
    }
    Err(RadioError::Nowhere(format!("not {}", passed_over.join(", not "))))
}

/// A way that works, and why; or why it does not.
type Attempt = Result<(Box<dyn Switch>, String), String>;

/// Asks `done` again and again until it says yes, for at most [`PATIENCE`].
fn wait_for(
    driver: &'static str,
    what: &str,
    mut done: impl FnMut() -> Result<bool, RadioError>,
) -> Result<(), RadioError> {
    // While it waits the radio is on, or about to be off: there is no sleep that this would disturb.
    const STEP: Duration = Duration::from_millis(50);
    let until = BootClock::now() + PATIENCE;
    while !done()? {
        if BootClock::now() >= until {
            return Err(RadioError::Timeout { driver, what: what.into(), limit: PATIENCE });
        }
        std::thread::sleep(STEP);
    }
    Ok(())
}

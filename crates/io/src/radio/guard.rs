//! The radio's guard: a [`Radio`] in a process of its own, which stays root with `CAP_NET_ADMIN` while the daemon becomes
//! an ordinary user, takes orders that may take seconds, and outlives the daemon long enough to put the radio back on.
//!
//! The daemon's program runs again as the guard, under a hidden argument of its choice:
//!
//! ```no_run
//! use dormouse_io::radio::{Guard, Options, Order, Reply, serve};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! if std::env::args().nth(1).as_deref() == Some("radio-guard") {
//!     return Ok(serve()?);
//! }
//! // Before privileges are dropped; as the first answer comes what was selected.
//! let mut guard = Guard::spawn(&std::env::current_exe()?, &["radio-guard"], &Options::default())?;
//! match guard.wait()? {
//!     Reply::Selected(Ok(choice)) => println!("{}: {}", choice.driver, choice.why),
//!     Reply::Selected(Err(why)) => println!("no radio: {why}"),
//!     Reply::Done(..) => unreachable!("nothing was ordered"),
//! }
//! guard.order(Order::Off)?; // never waits
//! // Register the guard with the poller; when it is readable:
//! while let Some(reply) = guard.next()? {
//!     if let Reply::Done(Order::Off, Ok(state)) = reply { println!("{:?}", state.power) }
//! }
//! # Ok(()) }
//! ```

use super::restore::{Restoring, open_mark};
use super::{Choice, Options, Radio, RadioError, RadioState};
use crate::helper::{self, Helper};
use crate::privileges;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What a guard can be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// [`Radio::off`].
    Off,
    /// [`Radio::on`].
    On,
    /// [`Radio::state`].
    State,
}

/// What a guard answers: one to each order, in order, after a first one by itself. Failures are in words.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The first answer: what was found. After a failure every order fails.
    Selected(Result<Choice, String>),
    /// The order was carried out, or not; and what the radio is doing after it.
    Done(Order, Result<RadioState, String>),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Message {
    Select(Box<Options>),
    Order(Order),
}

/// The daemon's end. Orders never wait: register the guard with the [`crate::poller::Poller`] and call [`Guard::next`] when it
/// is readable. Dropping it puts the radio back on and waits until that is done.
#[derive(Debug)]
pub struct Guard(Helper);

impl Guard {
    /// Starts `program` with `arguments`, which must end up in [`serve`], and tells it to select a radio.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn(program: &Path, arguments: &[&str], options: &Options) -> Result<Self, RadioError> {
        let mut helper = Helper::spawn(program, arguments).map_err(RadioError::Guard)?;
        helper.order(&Message::Select(Box::new(options.clone()))).map_err(RadioError::Guard)?;
        Ok(Self(helper))
    }

    /// Gives an order. Never waits; the answer comes by [`Guard::next`].
    ///
    /// # Errors
    /// If the guard is gone.
    pub fn order(&mut self, order: Order) -> Result<(), RadioError> {
        self.0.order(&Message::Order(order)).map_err(RadioError::Guard)
    }
}

crate::helper::guard!(Reply, RadioError);

/// The guard itself: obeys the orders that come in on standard input until it ends, then puts the radio back on.
///
/// # Errors
/// If signals or capabilities cannot be given up.
pub fn serve() -> Result<(), RadioError> {
    let socket = helper::begin().map_err(RadioError::Guard)?;
    let mut radio: Result<Restoring, String> = Err("none was selected".into());
    helper::serve(&socket, |message: Result<Message, String>| match message {
        Ok(Message::Select(options)) => {
            radio = select(&options).map_err(|e| e.to_string());
            Reply::Selected(match &radio {
                Ok(radio) => Ok(Choice { driver: radio.name().into(), why: radio.why().into() }),
                Err(why) => Err(why.clone()),
            })
        }
        Ok(Message::Order(order)) => Reply::Done(order, obey(&mut radio, order)),
        Err(why) => Reply::Done(Order::State, Err(why)),
    });
    // Dropped here: the radio is put back on.
    drop(radio);
    Ok(())
}

/// Gives up what is not needed, then selects. The user's own programs may need anything, so with them everything is kept.
fn select(options: &Options) -> Result<Restoring, RadioError> {
    let (mark, left) = open_mark(options);
    if options.commands.is_none() && nix::unistd::geteuid().is_root() {
        privileges::keep_net_admin().map_err(RadioError::Guard)?;
    }
    Restoring::select_with(options, mark, left)
}

fn obey(radio: &mut Result<Restoring, String>, order: Order) -> Result<RadioState, String> {
    let radio = radio.as_mut().map_err(|why| why.clone())?;
    let done = match order {
        Order::Off => radio.off(),
        Order::On => radio.on(),
        Order::State => Ok(()),
    };
    done.and_then(|()| radio.state()).map_err(|e| e.to_string())
}

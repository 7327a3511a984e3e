//! The system: TUN, sockets, netlink, clocks, files and privileges. All system calls and all `unsafe` are here.
//!
//! The data path is [`batch`], over [`tun`], [`udp`] and [`raw`].
//!
//! # Driving everything from one loop
//! Every part that can be waited for is a file descriptor ([`std::os::fd::AsFd`]); none blocks, none has a thread. One thread with
//! one [`poller::Poller`] drives them:
//!
//! ```no_run
//! use dormouse_io::{clock::BootClock, control::ControlServer, netlink::Monitor, poller::{Interest, Poller}, signal::Signals, timer::Timer};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let signals = Signals::new()?; // first of all: threads inherit the signal mask
//! let mut control = ControlServer::bind("/run/dormouse/dormouse.sock".as_ref(), None)?;
//! let (mut timer, mut monitor, poller) = (Timer::new()?, Monitor::new()?, Poller::new()?);
//! poller.add(&signals, 0, Interest::READ)?;
//! poller.add(&control, 1, Interest::READ)?;
//! poller.add(&timer, 2, Interest::READ)?;
//! poller.add(&monitor, 3, Interest::READ)?;
//! let mut ready = Vec::new();
//! loop {
//!     // timer.arm(host.poll_timeout(), asleep)?;
//!     poller.wait(&mut ready, None)?;
//!     let now = BootClock::now();
//!     for one in &ready {
//!         match one.token {
//!             0 => while let Some(signal) = signals.next()? { /* stop, reload */ },
//!             1 => while let Some(event) = control.next() { /* answer */ },
//!             2 => if timer.clear() { /* host.handle_timeout(now) */ },
//!             3 => while let Some(change) = monitor.next()? { /* look for the way to the gateway again, once */ },
//!             _ => {} // tunnel and sockets: handle a batch, come back for the rest
//!         }
//!     }
//!     // carry out host.poll() until None, then control.send(...)
//! #   let _ = now;
//! }
//! # }
//! ```
//!
//! Order of a start, so that nothing is left half done and privileges are held no longer than needed:
//! [`signal::Signals`]; [`privileges::find_user`] and [`privileges::require`]; configuration and secrets;
//! [`control::ControlServer`], TUN, UDP and raw sockets, each with [`netlink::set_mark`]; [`netlink::Ledger::remove_stale`];
//! [`resolver::Guard`], [`files::Reader`]; [`privileges::drop_to`]; [`state::StateDir`] and [`store::Database`]; [`notify::ready`].

/// A type is waited for by the descriptor of this field of it, or of a field's field.
macro_rules! as_fd {
    ($type:ty, $($field:tt)+) => {
        impl std::os::fd::AsFd for $type {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                std::os::fd::AsFd::as_fd(&self $(.$field)+)
            }
        }
    };
}
use as_fd;

mod announce;
pub mod batch;
pub mod bell;
pub mod beside;
pub mod block;
pub mod capture;
mod causes;
mod checksum;
pub mod clock;
pub mod control;
#[cfg(feature = "dbus")]
mod dbus;
pub mod entropy;
pub mod fetch;
pub mod files;
#[cfg(test)]
mod forged_icmp;
pub mod forward;
pub mod frames;
mod gro;
mod gso;
mod helper;
pub mod journal;
pub mod key_source;
pub mod link;
#[cfg(feature = "dbus")]
pub mod logind;
#[cfg(not(feature = "dbus"))]
#[path = "without/logind.rs"]
pub mod logind;
pub mod meter;
mod mmsg;
pub mod neighbours;
pub mod netcheck;
pub mod netlink;
mod nft;
pub mod notify;
mod option;
pub mod ownership;
pub mod poller;
mod port_holder;
pub mod privileges;
pub mod probe;
mod program;
pub mod radio;
pub mod raw;
pub mod resolver;
pub mod signal;
pub mod state;
#[cfg(feature = "sqlite")]
pub mod store;
#[cfg(not(feature = "sqlite"))]
#[path = "without/store.rs"]
pub mod store;
pub mod tcp;
pub mod timer;
pub mod token;
pub mod tun;
pub mod udp;
pub mod web;
pub mod xfrm;

pub use causes::causes;
pub use gso::SuperPacket;

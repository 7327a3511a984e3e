//! The vocabulary that every protocol core shares: time, deadlines, paths, transmissions and entropy.
//!
//! A core is *sans-IO*: it is handed time, bytes and randomness, and hands back packets, deadlines and events. The verbs
//! are a convention, not a trait, because no code is generic over cores:
//!
//! ```ignore
//! fn handle_datagram(&mut self, now: Instant, path: Path, datagram: &mut [u8]) -> Result<(), Discard>;
//! fn handle_timeout(&mut self, now: Instant);
//! fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit>;
//! fn poll_timeout(&self) -> Option<Deadline>;
//! fn poll_event(&mut self) -> Option<Event>;
//! ```
//!
//! # The driving contract
//!
//! After every call of a `handle_*` verb or a command the driver
//!
//! 1. calls `poll_event` until it returns `None`, and applies the events in their order: what must be durable or installed before an
//!    answer leaves (a ticket, a key, a tunnel) is among them. So a driver that crashes between any two steps has sent nothing that it
//!    does not remember;
//! 2. calls `poll_transmit` until it returns `None`, and sends;
//! 3. waits for the next datagram, or until `poll_timeout`: at the earliest at [`Deadline::at`], at the latest `slack` after it.
//!
//! This crate owns no protocol and must never read a clock, open a socket, spawn a thread or draw randomness of its own.

mod entropy;
mod pace;
pub mod packet;
mod path;
mod time;

pub use entropy::{Entropy, Seeded};
pub use pace::Pace;
pub use path::{Carrier, Class, Path, Transmit, fit_interface};
pub use time::{Deadline, Instant, UnixTime};

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
//! After every call of a `handle_*` verb or a command the driver takes the events first, then the datagrams: `poll_event` until it
//! returns `None`, then `poll_transmit` likewise. What must be durable before a datagram leaves is among the events. Then it
//! sleeps until `poll_timeout` or the next datagram.
//!
//! This crate owns no protocol and must never read a clock, open a socket, spawn a thread or draw randomness of its own.

mod entropy;
pub mod packet;
mod path;
mod time;

pub use entropy::{Entropy, Seeded};
pub use path::{Carrier, Class, Path, Transmit};
pub use time::{Deadline, Instant, UnixTime};

//! Measuring between two machines, over the real link between them: `dormouse bench --peer` on the device under test, and
//! `dormouse bench --serve` on another machine. Owns the conversation between the two and what either does for it; what is
//! measured, and when, is the campaign's business on the device.
//!
//! The far machine acts as root on orders from a network, so:
//! - nothing is heard before both have proved, over TLS 1.3 and bound to that very connection, that they know the [`secret`]
//!   which the far machine made when it started;
//! - orders are few and bounded ([`message`]): a tunnel between the two ends of this very connection, a UDP sender and
//!   receiver, a file server, CPU time; no order names an address, a file or a program;
//! - one client at a time; its going, however it goes, ends all that it had ordered ([`server`]);
//! - the tunnel has one fixed prefix and one fixed device, and there is none where they are in use ([`ground`]).
//!
//! Both machines do their part with the same code ([`side`]); [`pair`] is what the device makes of the two.

mod channel;
mod ground;
mod message;
mod pair;
mod peer;
mod secret;
mod server;
mod side;
#[cfg(test)]
mod tests;

pub(super) use message::LONGEST;
pub(super) use pair::Pair;
pub use peer::{Lost, Peer};
pub use server::Service;

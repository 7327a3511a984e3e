//! The Host Identity Protocol, version 2 (RFC 7401), with ESP in BEET mode (RFC 7402), mobility (RFC 8046), registration and rendezvous
//! (RFC 8003, RFC 8004), and NAT traversal by relays (RFC 9028): the second key manager of a node. Where an identity for it is configured, version 1 too (RFC 5201, 5202, 5206).
//!
//! Owns associations between Host Identities: the base exchange, its puzzle and its stateless responder, rekeying, addresses and
//! their verification, registration with a rendezvous server or a relay and what such a server relays, direct ways through NATs, and the end. Must never read a clock, draw randomness of its own, open a socket or touch a packet of user data, but for passing on sealed ones as a data relay;
//! what it agrees on goes out as `dormouse_keying` orders.
//!
//! - [`Host`] is driven by the verbs of [`dormouse_keying::KeyManager`].
//! - [`hit`]: identities, their encoding and their tags (RFC 7343).
//! - [`puzzle`]: making sure that a stranger works before we do.
//! - [`Quirk`]: how one peer departs from the RFCs.
//! - `load`: what others may ask of us; `r1`: answers computed ahead; `keymat`: keys; `association`: what is kept of a peer; `version`: what version 1 has otherwise; `exchange`: one module an exchange.

mod address;
mod association;
pub mod config;
mod exchange;
pub mod hit;
mod host;
mod keymat;
pub mod limits;
mod load;
mod outbox;
mod peers;
mod protect;
pub mod puzzle;
mod quirks;
mod r1;
mod relay;
mod stats;
mod version;

#[doc(hidden)]
pub mod fuzz;

pub use association::Refusal;
pub use config::{Accept, EspSuite, Hold, HostConfig, Keepalive, Peer, Registrar};
pub use hit::{HostIdentity, Identity};
pub use host::{ConnectError, Description, Host, Phase, Registration};
pub use quirks::{Quirk, Quirks, UnknownQuirk};
pub use stats::Stats;

//! The Extensible Authentication Protocol (RFC 3748) as IKEv2 carries it (RFC 7296 section 2.16): how users with a password authenticate to a gateway, and
//! our own client to gateways that ask for it.
//!
//! Owns the conversation and its methods, in both roles, and the key that comes of it. Must never read a clock, draw randomness of its own (but for [`tls`] and [`ttls`]),
//! open a socket, look users up (that is [`authenticator::Users`]) or decide what somebody may do who has proved who they are.
//!
//! - [`peer::Peer`] is the client's part, [`authenticator::Authenticator`] the gateway's. Each is handed whole EAP packets, as they stand in EAP
//!   payloads, and answers with the next step.
//! - [`packet`]: the format.
//! - [`mschapv2`]: EAP-MSCHAPv2, what every system has built in. [`tls`]: EAP-TLS, by certificates.
//!   [`ttls`]: EAP-TTLS, a password in a tunnel of TLS (authenticator alone).
//! - [`radius`]: a gateway that asks a RADIUS server instead of being the authenticator itself.
//!
//! # What IKEv2 makes simpler
//! IKEv2 is reliable and in order. So there are no timers, and nothing is sent twice here: a packet that comes again is answered as before at
//! a peer, and ignored at an authenticator. And there is a limit of turns ([`limits::MAX_TURNS`]), for nothing else ends a
//! conversation that goes on and on.
//!
//! What the RFC has a peer or an authenticator "silently discard" as something that a stranger may have sent, mostly ends a conversation here: there are no
//! strangers inside an IKE SA, nothing else would come, and the error says what was wrong. Only packets with another identifier, and those
//! of the wrong direction, are ignored.

pub mod authenticator;
mod error;
mod keys;
mod kind;
pub mod limits;
mod method;
pub mod mschapv2;
pub mod packet;
pub mod peer;
pub mod radius;
#[cfg(feature = "tls")]
pub mod tls;
#[cfg(not(feature = "tls"))]
#[path = "without/tls.rs"]
pub mod tls;
#[cfg(feature = "tls")]
pub mod ttls;
#[cfg(not(feature = "tls"))]
#[path = "without/ttls.rs"]
pub mod ttls;
mod users;

#[doc(hidden)]
pub mod fuzz;

pub use error::Error;
pub use keys::{Msk, NtHash};

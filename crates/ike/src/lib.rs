//! IKEv2 (RFC 7296) for devices that sleep: with MOBIKE (RFC 4555), session resumption (RFC 5723, which grew out of the
//! IPsec Gateway Failover draft), fragmentation (RFC 7383) and signature authentication (RFC 7427), in both roles.
//!
//! [`Endpoint`] is everything that a driver needs: all IKE SAs of a node behind the verbs that every core shares (see
//! [`dormouse_sansio`]). It is handed time, datagrams and randomness, and hands back datagrams, deadlines and [`Event`]s.
//! What ESP must do leaves it as [`dormouse_keying::ChildSa`] events; this crate never sees an ESP packet.
//!
//! # How it is built
//!
//! - `endpoint` is the set of SAs: demultiplexing, commands, timers, and what one SA asks for another.
//! - `handshake` holds the states up to authentication, as types that are consumed: [`Endpoint::connect`] makes an
//!   `Opening`, whose answer makes an `Authenticating`, whose answer makes an established `IkeSa`; the responder's only
//!   intermediate state is a `HalfOpen`.
//! - `sa` is an established SA: a queue of tasks, a window of requests under way, and timers. `exchange` holds what runs
//!   on it, one file each: MOBIKE, rekeying, liveness and deletion are exchanges, never states.
//! - `mlike` is multi-layered IPsec: the zones that both ends agree on, and which routers hold the keys of the first; these travel by the
//!   exchanges of `exchange::keys`, on IKE SAs without CHILD SAs.
//! - `keys`, `protect`, `fragment`, [`proposal`], [`selectors`], `auth`, `natd`, `transport`, `cookie`, [`ticket`] and
//!   [`config_payload`] are functions without state of their own, each usable and tested alone.
//!
//! This crate must never read a clock, open a socket, resolve a name, or keep traffic counters of ESP.

mod action;
pub mod admission;
pub mod auth;
mod callers;
mod child;
mod claim;
mod codec;
pub mod config;
pub mod config_payload;
mod cookie;
mod credential;
mod describe;
pub mod elsewhere;
mod endpoint;
mod endpoint_config;
mod error;
mod event;
mod exchange;
mod few;
pub mod fragment;
#[doc(hidden)]
pub mod fuzz;
#[doc(hidden)]
pub mod fuzz_endpoint;
#[doc(hidden)]
pub mod fuzz_exchanges;
mod guesses;
mod half_opens;
mod handshake;
mod keepalive;
pub mod keys;
pub mod limits;
mod link;
pub mod load;
mod mlike;
mod names;
pub mod natd;
mod outbox;
mod pace;
mod payloads;
pub mod prefix;
pub mod proposal;
pub mod protect;
mod puzzle;
pub mod reach;
mod redirect;
mod revocation;
mod sa;
pub mod selectors;
mod session;
mod shared;
mod sleepers;
mod spread;
mod stats;
pub mod takeover;
pub mod ticket;
mod timer;
mod transport;
mod window;
pub mod work;

pub use describe::{ChildDescription, Description};
pub use dormouse_keying::SleepVerdict;
pub use dormouse_wire::ike::dormancy::{LoadReport, SlotForecast};
pub use dormouse_wire::ike::{Gateway, NoGateway};
pub use dormouse_wire::sleep::{Mark, SleepFlags, Sleeping};
pub use endpoint::{Absent, Endpoint};
pub use endpoint_config::EndpointConfig;
pub use error::{Discard, NegotiationError};
pub use event::{CloseReason, Established, Event};
pub use mlike::gateway::{Holding, KeyHolder};
pub use spread::Spread;
pub use stats::{Kind, Stats};
pub use window::MAX_WINDOW;

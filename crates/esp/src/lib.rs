//! ESP (RFC 4303): what protects every packet, and the policy that says which SA a packet belongs to.
//!
//! Owns the state of ESP SAs on both sides, the security association database, the traffic selectors as applied to packets,
//! and the path MTU as far as ESP is concerned. Must never open a socket, read a clock, negotiate a key, or allocate per
//! packet.
//!
//! - [`Outbound`] and [`Inbound`]: one direction of one SA each; they encrypt and decrypt where the packet lies, and whole
//!   batches at once.
//! - [`Tunnel`]: both directions of a CHILD SA with their policy; what of a packet is carried in tunnel, transport and BEET mode.
//! - [`Sad`]: all tunnels of a node: inbound by SPI, outbound by the packet's flow; the check of inner packets against the
//!   selectors. [`Spis`] are the inbound SPIs that it gives out.
//! - [`PathMtu`] and [`Overhead`]: what fits through.
//! - [`ecn`]: congestion marks between inner and outer header.
//! - [`Protection::Zoned`](dormouse_keying::Protection): packets in zones with keys of their own; [`HeaderZones`] is the half of a router in
//!   between that was given the keys of the first.
//! - [`transport`]: the IP header that is not carried, made anew.
//!
//! Algorithms: AES-GCM (RFC 4106), ChaCha20-Poly1305 (RFC 7634), AES-CBC (RFC 3602) and AES-CTR (RFC 3686) with HMAC-SHA1-96
//! (RFC 2404) and HMAC-SHA2 (RFC 4868), all through `dormouse_crypto`. UDP encapsulation (RFC 3948) adds nothing here: the
//! datagram *is* the UDP payload, and the driver tells it from IKE by the non-ESP marker.

mod beet;
mod discard;
pub mod ecn;
mod engine;
mod inbound;
mod iv;
mod key;
mod layout;
mod lifetime;
pub mod loan;
mod outbound;
mod params;
pub mod pmtu;
pub mod replay;
mod sad;
mod selector;
mod sequence;
mod share;
mod spis;
pub mod transport;
mod tunnel;
mod zones;

#[doc(hidden)]
pub mod fuzz;

#[cfg(test)]
mod known_answers;

pub use discard::Discard;
pub use inbound::{Inbound, Opened};
pub use lifetime::{Counters, Life, Limits, Total, Usage, Volume};
pub use loan::{Loan, Returned, Unfit};
pub use outbound::{Outbound, SealError};
pub use params::SaParams;
pub use pmtu::{Overhead, PathMtu};
pub use replay::{Replay, ReplayWindow, Seen};
pub use sad::{Accepted, DRAIN, Sad};
pub use selector::Selectors;
pub use sequence::{SequenceExhausted, reconstruct};
pub use spis::Spis;
pub use tunnel::{Fit, InstallError, Outer, Rebuilt, State, Stripped, Tunnel, clamp_mss};
pub use zones::{
    ChangeError, GrantError, Header, HeaderZones, Keys, Look, RouterStats, ZoneParams, open_first_zone,
};

/// SPI and sequence number.
pub const ESP_HEADER_LEN: usize = 8;
/// Next header of an IPv4 packet in a tunnel.
pub const IPV4_IN_IP: u8 = 4;
/// Next header of an IPv6 packet in a tunnel.
pub const IPV6_IN_IP: u8 = 41;
/// Next header of a dummy packet (RFC 4303 section 2.6).
pub const NO_NEXT_HEADER: u8 = 59;

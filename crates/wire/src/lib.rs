//! Wire formats: IKEv2 messages, HIP packets, Mobile IP, ESP and NAT-traversal framing, views of IP, TCP, UDP and ICMP packets, and the small protocols
//! that a gateway answers for a sleeping device (DNS, DHCP, NetBIOS).
//!
//! Owns: parsing bytes into values and emitting values as bytes. Must never: do cryptography, perform I/O, keep state
//! between calls, or act on what it parses.
//!
//! Three rules hold everywhere in this crate:
//!
//! - Hostile input never panics and never makes an allocation that is larger than a small multiple of the input; the
//!   counts that a sender chooses are bounded in [`ike::limits`].
//! - Unknown code points are kept, not refused, so that the layer above decides (RFC 7296 section 2.5). What is refused is
//!   what contradicts itself: lengths that do not add up, fields that are cut short.
//! - For a message in canonical form (reserved bits zero, one encoding for each value) `emit(parse(x)) == x`.

pub mod codec;
pub mod dhcp;
pub mod dns;
mod error;
pub mod esp;
#[doc(hidden)]
pub mod fuzz;
pub mod hip;
pub mod ike;
pub mod ip;
pub mod mobileip;
pub mod netbios;
pub mod sleep;

pub use error::Error;

/// What every parser and emitter of this crate returns.
pub type Result<T, E = Error> = core::result::Result<T, E>;

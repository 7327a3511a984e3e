//! HIP packets: RFC 7401 and RFC 5201, ESP (RFC 7402), mobility (RFC 8046), registration (RFC 8003), rendezvous (RFC 8004) and, as far as
//! parameters go, NAT traversal (RFC 5770, RFC 9028).
//!
//! Owns a view of a packet whose structure was checked once ([`Packet`]), typed parameters ([`Param`]), and a writer that keeps
//! their order ([`Draft`]). Must never verify a MAC or a signature, nor decide what a packet may contain.

mod header;
mod kind;
pub mod limits;
mod packet;
mod param;
mod values;

pub use header::{ANONYMOUS, HEADER_LEN, Header, Hit, Version, checksum_is_right, set_checksum};
pub use kind::{NotifyType, PacketType, ParamType};
pub use packet::{Draft, Packet, RawParam, parse_params};
pub use param::Param;
pub use values::{
    DhValue, DomainId, EspInfo, HostId, Locator, LocatorValue, Notification, PeerPermission, Puzzle,
    R1Counter, RegFailed, RegInfo, Registration, Signature, Solution, TransportAddress,
};

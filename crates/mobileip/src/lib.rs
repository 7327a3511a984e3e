//! Mobile IP for IPv4 (RFC 5944): a host keeps its address while it moves between networks.
//!
//! Owns the protocol of its three parts, [`HomeAgent`], [`ForeignAgent`] and [`MobileHost`]: agent discovery, registration, reverse tunnels
//! (RFC 3024) and IP in IP (RFC 2003), all of it on whole IPv4 packets. Must never protect what users send: Mobile IP authenticates
//! registrations alone, and everybody between the agents can read the rest.
//!
//! # Driving contract
//! The verbs are those of [`dormouse_sansio`], with packets for datagrams. Each part has two sides:
//!
//! - **routed**: what an agent's own kernel routes, typically a TUN interface with routes of the agent's addresses; at the mobile host, its
//!   own programs;
//! - **link**: the network that mobile hosts enter, packet by packet, with link-layer addresses. Nothing is ever asked by ARP here: each
//!   part remembers from where the other's messages came, as the RFC has it.
//!
//! After every `handle_*` call poll events until there is none, then packets, then wait for the next packet or deadline.
//! All of them tell the time of day by [`WallClock`], which is handed in: timestamps protect registrations against replay.

mod advertise;
mod association;
mod clock;
mod foreign;
#[doc(hidden)]
pub mod fuzz;
mod home;
mod limits;
mod mobile;
mod outbox;
mod tunnel;

use core::fmt;

use dormouse_wire::mobileip::Code;

pub use advertise::{Advertise, AgentConfig};
pub use association::{Association, Replay};
pub use clock::WallClock;
pub use dormouse_crypto::mobileip::Authenticator;
pub use foreign::{ForeignAgent, ForeignConfig, ForeignEvent, ForeignStats, RouterNews};
pub use home::{HomeAgent, HomeConfig, HomeEvent, HomeStats, Member};
pub use limits::TUNNEL_HEADER;
pub use mobile::{CoLocated, Current, MobileConfig, MobileEvent, MobileHost, MobileStats};
pub use tunnel::{Refusal, Relay, Tunnel, decapsulate};

/// An address of the link layer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkAddress(pub [u8; 6]);

impl LinkAddress {
    /// Everybody on the link.
    pub const BROADCAST: Self = Self([0xff; 6]);
}

impl fmt::Debug for LinkAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Where a packet came from, or goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Routed by the kernel.
    Routed,
    /// From, or to, this neighbour on the link.
    Link(LinkAddress),
}

/// Whether an agent tunnels packets of mobile hosts back to the home network (RFC 3024).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reverse {
    /// Where it is asked for.
    #[default]
    Offered,
    /// It refuses who does not ask for it.
    Mandatory,
    /// It refuses who asks for it.
    Refused,
}

/// Why a packet went no further.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Discard {
    /// It is no packet, or no message, of this protocol.
    #[error("malformed: {0}")]
    Malformed(#[from] dormouse_wire::Error),
    /// The header's checksum is wrong.
    #[error("wrong IP header checksum")]
    Checksum,
    /// It is for another host, or says nothing that concerns this part.
    #[error("not for this host")]
    NotForUs,
    /// An authenticator is wrong, or missing where there must be one.
    #[error("not authentic: {0}")]
    Unauthentic(&'static str),
    /// A registration that was refused; the sender has been told unless that would be too often.
    #[error("refused: {0}")]
    Refused(Code),
    /// A reply, or a notice, that nothing here waits for.
    #[error("unexpected")]
    Unexpected,
    /// No host is registered for its address, or its source is not the address that it claims.
    #[error("no such registration")]
    NotRegistered,
    /// It did not fit a tunnel, or had lived too long; its sender has been told if that is permitted.
    #[error("not tunnelled: {0}")]
    NotTunnelled(Refusal),
    /// A router in the tunnel marked it for congestion, which the packet inside cannot say (RFC 6040).
    #[error("CE-marked, and the inner packet is not ECN-capable")]
    Congested,
    /// Too many of its kind.
    #[error("too many at once")]
    TooMany,
}

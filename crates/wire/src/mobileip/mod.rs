//! Mobile IP for IPv4 (RFC 5944): registration messages, their extensions, and agent discovery over ICMP router discovery (RFC 1256).
//!
//! Owns the formats. Must never compute or check an authenticator: it says which bytes one covers.
//!
//! Besides RFC 5944 it has the notice to the previous foreign agent, whose bytes stand in `docs/mobile-ip.md`: the route optimisation draft that
//! first had one expired, so that ours goes as an experiment (RFC 4064).

mod discovery;
mod registration;

pub use discovery::{Advertisement, Mobility, Router, is_solicitation, solicitation};
pub use registration::{Extension, Message, Moved, Packet, Reply, Request, authenticator, extension};

/// The UDP port of registration messages.
pub const PORT: u16 = 434;
/// All mobility agents on a link.
pub const ALL_AGENTS: core::net::Ipv4Addr = core::net::Ipv4Addr::new(224, 0, 0, 11);
/// All systems on a link.
pub const ALL_SYSTEMS: core::net::Ipv4Addr = core::net::Ipv4Addr::new(224, 0, 0, 1);
/// A lifetime that does not end.
pub const INFINITY: u16 = 0xffff;
/// Extensions of a message that are read; a message with more is refused.
pub const MAX_EXTENSIONS: usize = 16;

/// Bits of a registration request (RFC 5944 section 3.3).
pub mod request {
    /// Keep the bindings that are there.
    pub const SIMULTANEOUS: u8 = 0x80;
    /// Send broadcasts of the home network.
    pub const BROADCAST: u8 = 0x40;
    /// The mobile node itself is the end of the tunnel.
    pub const DECAPSULATES: u8 = 0x20;
    /// Minimal encapsulation.
    pub const MINIMAL: u8 = 0x10;
    /// GRE.
    pub const GRE: u8 = 0x08;
    /// Tunnel back as well (RFC 3024).
    pub const REVERSE: u8 = 0x02;
    /// The bit `x`, which is reserved. So is `r`, 0x04, of which nothing may be made ever again: "Sent as zero; ignored on reception." (RFC 5944
    /// section 3.3)
    pub const RESERVED: u8 = 0x01;
}

/// Bits of an agent advertisement (RFC 5944 section 2.1.1).
pub mod agent {
    /// No more mobile nodes, please.
    pub const BUSY: u16 = 0x4000;
    /// A home agent.
    pub const HOME: u16 = 0x2000;
    /// A foreign agent.
    pub const FOREIGN: u16 = 0x1000;
    /// It tunnels back as well (RFC 3024).
    pub const REVERSE: u16 = 0x0100;
}

/// Types of extensions to registration messages.
pub mod kind {
    /// Mobile-Home Authentication.
    pub const MOBILE_HOME: u8 = 32;
    /// Mobile-Foreign Authentication.
    pub const MOBILE_FOREIGN: u8 = 33;
    /// Foreign-Home Authentication.
    pub const FOREIGN_HOME: u8 = 34;
    /// The mobile node would encapsulate what it sends to the foreign agent (RFC 3024 section 3.3).
    pub const ENCAPSULATING: u8 = 130;
    /// An experiment that others may skip (RFC 4064 section 4.3).
    pub const EXPERIMENT: u8 = 255;
}

crate::codec::code_points! {
    /// What became of a registration (RFC 5944 section 3.4, RFC 3024 section 3.4).
    pub enum Code: u8 {
        Accepted = 0, "registration accepted";
        AcceptedAlone = 1, "registration accepted, but simultaneous mobility bindings unsupported";
        ForeignUnspecified = 64, "reason unspecified (foreign agent)";
        ForeignProhibited = 65, "administratively prohibited (foreign agent)";
        ForeignResources = 66, "insufficient resources (foreign agent)";
        ForeignMobileAuthentication = 67, "mobile node failed authentication (foreign agent)";
        ForeignHomeAuthentication = 68, "home agent failed authentication";
        ForeignLifetime = 69, "requested lifetime too long";
        ForeignRequest = 70, "poorly formed request (foreign agent)";
        ForeignReply = 71, "poorly formed reply";
        ForeignEncapsulation = 72, "requested encapsulation unavailable (foreign agent)";
        ForeignReverse = 74, "requested reverse tunnel unavailable (foreign agent)";
        ForeignReverseMandatory = 75, "reverse tunnel is mandatory and the T bit is not set (foreign agent)";
        ForeignTooDistant = 76, "mobile node too distant";
        ForeignCareOf = 77, "invalid care-of address";
        ForeignTimeout = 78, "registration timeout";
        ForeignDelivery = 79, "delivery style not supported";
        ForeignNetworkUnreachable = 80, "home network unreachable";
        ForeignHostUnreachable = 81, "home agent host unreachable";
        ForeignPortUnreachable = 82, "home agent port unreachable";
        ForeignUnreachable = 88, "home agent unreachable";
        HomeUnspecified = 128, "reason unspecified (home agent)";
        HomeProhibited = 129, "administratively prohibited (home agent)";
        HomeResources = 130, "insufficient resources (home agent)";
        HomeMobileAuthentication = 131, "mobile node failed authentication (home agent)";
        HomeForeignAuthentication = 132, "foreign agent failed authentication";
        HomeIdentification = 133, "registration identification mismatch";
        HomeRequest = 134, "poorly formed request (home agent)";
        HomeTooMany = 135, "too many simultaneous mobility bindings";
        HomeUnknown = 136, "unknown home agent address";
        HomeReverse = 137, "requested reverse tunnel unavailable (home agent)";
        HomeReverseMandatory = 138, "reverse tunnel is mandatory and the T bit is not set (home agent)";
        HomeEncapsulation = 139, "requested encapsulation unavailable (home agent)";
        ForeignInvalidHome = 194, "invalid home agent address";
    }
}

impl Code {
    /// Whether the node is registered.
    #[must_use]
    pub const fn is_accepted(self) -> bool {
        matches!(self, Self::Accepted | Self::AcceptedAlone)
    }

    /// Whether the home agent says it, and not the foreign agent.
    #[must_use]
    pub const fn is_of_home(self) -> bool {
        matches!(self.code(), 0..64 | 128..=192)
    }
}

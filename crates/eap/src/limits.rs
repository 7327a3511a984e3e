//! All bounds of the crate in one place. Owns numbers only.

/// Bytes of an EAP packet, which its header's length field allows.
pub const MAX_PACKET: usize = 65_535;
/// Bytes of an identity in an EAP-Response/Identity. RADIUS carries 253; distinguished names, which some clients send, are longer.
pub const MAX_IDENTITY: usize = 1_024;
/// Bytes of a user's name in a response of MS-CHAPv2: "a string of 0 to (theoretically) 256" (RFC 2759 section 4).
pub const MAX_NAME: usize = 256;
/// Bytes of a password that are hashed: "0 to (theoretically) 256 case-sensitive Unicode characters" (RFC 2759 section 4), at four bytes each.
pub const MAX_PASSWORD: usize = 1_024;
/// Methods of a Nak that are looked at.
pub const MAX_WANTED: usize = 16;
/// Packets that one side takes in a conversation. The longest honest one is TLS with long chains of certificates in small fragments.
pub const MAX_TURNS: u16 = 256;
/// Bytes of TLS in one EAP packet. With what IKE puts around it, it fits an IP packet of 1,280 bytes, the least that a path of IPv6 has.
pub const TLS_FRAGMENT: usize = 1_024;
/// Bytes of one flight of TLS, put together from fragments: chains of certificates are the longest.
pub const MAX_FLIGHT: usize = 65_536;
/// Bytes of attributes that a client sends through the tunnel of EAP-TTLS at once.
pub const MAX_TUNNELLED: usize = 4_096;
/// Bytes of a RADIUS packet (RFC 2865 section 3).
pub const MAX_RADIUS: usize = 4_096;
/// Bytes of an EAP packet that a RADIUS server is asked to make at most (Framed-MTU, RFC 3579 section 2.4): as our own fragments of TLS.
pub const RADIUS_MTU: u32 = 1_040;

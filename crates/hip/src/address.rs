//! Addresses as HIP writes and announces them: always as IPv6. Holds no state.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// As it stands in a packet.
pub(crate) fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(a) => a.to_ipv6_mapped(),
        IpAddr::V6(a) => a,
    }
}

/// As 16 bytes.
pub(crate) fn octets(address: IpAddr) -> [u8; 16] {
    mapped(address).octets()
}

/// Whether an address can be a locator at all.
/// "[...] link-local addresses MUST NOT be announced to a peer unless that peer is known to be on the same link." (RFC 8047 section 5.1)
/// "That is, the address MUST NOT be a broadcast or multicast address." (RFC 8047 section 5.2)
pub(crate) fn is_locator(address: IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(a) => a.is_link_local(),
        IpAddr::V6(a) => a.is_unicast_link_local(),
    };
    !(address.is_unspecified()
        || address.is_multicast()
        || address == IpAddr::V4(Ipv4Addr::BROADCAST)
        || link_local)
}

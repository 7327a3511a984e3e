//! By what a stranger is counted: its IPv4 address, or the /64 of its IPv6 address, of which it can have all. Owns that rule.

use core::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Bits of an IPv6 address that are given to one subscriber at least.
/// "For IPv6, ISPs assign between a /48 and a /64, so it does not make sense for rate limiting to work on single IPv6 IPs" (RFC 8019
/// section 4.2): the larger of the two would let one household stand for a whole provider's customers.
const V6_BITS: u8 = 64;

/// The prefix that `address` is counted by.
#[must_use]
pub fn prefix_of(address: IpAddr) -> IpNet {
    match address.to_canonical() {
        IpAddr::V4(address) => Ipv4Net::from(address).into(),
        IpAddr::V6(address) => {
            Ipv6Net::new(address, V6_BITS).map_or_else(|_| address.into(), |net| net.trunc()).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_link_is_one_stranger_and_a_mapped_address_is_what_it_maps() {
        let of = |text: &str| prefix_of(text.parse().unwrap()).to_string();
        assert_eq!(of("192.0.2.7"), "192.0.2.7/32");
        assert_eq!(of("::ffff:192.0.2.7"), of("192.0.2.7"));
        assert_eq!(of("2001:db8:1:2:3::4"), "2001:db8:1:2::/64");
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
    }
}

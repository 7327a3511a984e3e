//! NAT detection (RFC 7296, section 2.23). Owns the hash and the comparison; must never decide where ESP goes.

use core::net::{IpAddr, SocketAddr};

use dormouse_crypto::{HashAlg, hash};
use dormouse_sansio::Path;

use crate::keys::Spis;
use crate::limits;

/// Data of a NAT_DETECTION_*_IP notification: SHA-1(SPIi | SPIr | address | port), SPIs in the order of the header, of the
/// message that carries it.
#[must_use]
pub fn digest(spis: Spis, address: SocketAddr) -> Vec<u8> {
    let v4;
    let v6;
    let ip: &[u8] = match address.ip().to_canonical() {
        IpAddr::V4(ip) => {
            v4 = ip.octets();
            &v4
        }
        IpAddr::V6(ip) => {
            v6 = ip.octets();
            &v6
        }
    };
    hash(HashAlg::Sha1, &[&spis.i.to_be_bytes(), &spis.r.to_be_bytes(), ip, &address.port().to_be_bytes()])
}

/// A digest that matches no address: sent as the source where ESP is always to be in UDP, so that the peer finds a NAT.
#[must_use]
pub fn forced(spis: Spis) -> Vec<u8> {
    hash(HashAlg::Sha1, &[&spis.i.to_be_bytes(), &spis.r.to_be_bytes(), b"no address"])
}

/// What the peer's notifications say about the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Detection {
    /// The peer sent both kinds of notification: it supports NAT traversal.
    pub supported: bool,
    /// A NAT translates our address: the peer's DESTINATION digest is not that of our address. We send keepalives.
    pub local: bool,
    /// A NAT translates the peer's address: none of its SOURCE digests is that of the address we see.
    pub remote: bool,
}

impl Detection {
    /// Whether there is a NAT on either side, so that ESP must be encapsulated and both move to port 4500.
    #[must_use]
    pub const fn any(self) -> bool {
        self.local || self.remote
    }
}

/// Compares the peer's digests with the path that its message took, as we see it.
///
/// Several SOURCE digests are allowed, one for each address that the sender may be sending from; one match suffices. A local
/// address that is not known (unspecified) counts as translated if nothing can be said, which costs 8 bytes per packet at most.
#[must_use]
pub fn detect<'a>(
    spis: Spis,
    path: &Path,
    sources: impl IntoIterator<Item = &'a [u8]>,
    destination: Option<&[u8]>,
) -> Detection {
    let seen = digest(spis, path.remote);
    let mut any_source = false;
    let mut source_matches = false;
    for source in sources.into_iter().take(limits::NATD_SOURCES_MAX) {
        any_source = true;
        source_matches |= source == seen;
    }
    let Some(destination) = destination.filter(|_| any_source) else { return Detection::default() };
    Detection { supported: true, local: destination != digest(spis, path.local), remote: !source_matches }
}

#[cfg(test)]
mod tests {
    use dormouse_sansio::Carrier;

    use super::*;

    const SPIS: Spis = Spis { i: 0x0102_0304_0506_0708, r: 0 };

    fn path(local: &str, remote: &str) -> Path {
        Path { local: local.parse().unwrap(), remote: remote.parse().unwrap(), carrier: Carrier::Ike }
    }

    fn detect_at_responder(sent: Path, seen: Path) -> Detection {
        let (source, destination) = (digest(SPIS, sent.local), digest(SPIS, sent.remote));
        detect(SPIS, &seen, [&source[..]], Some(&destination))
    }

    #[test]
    fn a_clear_path_shows_no_nat_in_either_family() {
        for (a, b) in [("192.0.2.1:500", "192.0.2.2:500"), ("[2001:db8::1]:500", "[2001:db8::2]:500")] {
            assert_eq!(
                detect_at_responder(path(a, b), path(b, a)),
                Detection { supported: true, local: false, remote: false }
            );
        }
    }

    #[test]
    fn a_translated_address_or_port_shows_on_the_right_side() {
        let sent = path("10.0.0.1:500", "192.0.2.2:500");
        let by_address = detect_at_responder(sent, path("192.0.2.2:500", "192.0.2.9:500"));
        let by_port = detect_at_responder(sent, path("192.0.2.2:500", "10.0.0.1:61000"));
        for found in [by_address, by_port] {
            assert_eq!(found, Detection { supported: true, local: false, remote: true });
        }
        let forwarded = detect_at_responder(sent, path("10.1.1.1:500", "10.0.0.1:500"));
        assert_eq!(forwarded, Detection { supported: true, local: true, remote: false });
    }

    #[test]
    fn one_of_several_sources_suffices() {
        let seen = path("192.0.2.2:500", "192.0.2.1:500");
        let (other, right) = (digest(SPIS, "198.51.100.7:500".parse().unwrap()), digest(SPIS, seen.remote));
        let destination = digest(SPIS, seen.local);
        assert!(!detect(SPIS, &seen, [&other[..], &right[..]], Some(&destination)).any());
    }

    #[test]
    fn half_of_the_notifications_is_no_support() {
        let seen = path("192.0.2.2:500", "192.0.2.1:500");
        let one = digest(SPIS, seen.remote);
        assert!(!detect(SPIS, &seen, [&one[..]], None).supported);
        assert!(!detect(SPIS, &seen, [], Some(&one)).supported);
    }

    #[test]
    fn mapped_addresses_hash_as_what_they_mean_and_forced_matches_nothing() {
        let mapped: SocketAddr = "[::ffff:192.0.2.1]:500".parse().unwrap();
        assert_eq!(digest(SPIS, mapped), digest(SPIS, "192.0.2.1:500".parse().unwrap()));
        assert_ne!(forced(SPIS), digest(SPIS, mapped));
        assert_eq!(forced(SPIS).len(), 20);
    }
}

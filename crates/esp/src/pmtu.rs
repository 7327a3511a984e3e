//! What fits through the tunnel: overheads, the path MTU as learned, and the MTU that inner hosts learn (RFC 4301 section 8,
//! RFC 1191, RFC 8201). Owns the numbers; must never believe an unauthenticated message below the floors, nor send anything.
//!
//! ICMP errors about our own packets are unauthenticated: an attacker on the path, or one who guesses, can send them. So a claim
//! counts only if it quotes an SPI and a sequence number that we sent lately, it can only lower the MTU, and never below
//! what every network must carry: 576 bytes for IPv4 (RFC 791 asks every host to accept as much), 1,280 for IPv6 (RFC 8200
//! section 5). What was lowered recovers after ten minutes (RFC 1191 section 6.3), lazily: no timer wakes anything for it.
//!
//! A TCP sender needs no error to adapt: its super-packets are cut to what fits, and the MSS of new connections is
//! clamped.

use core::net::IpAddr;
use core::time::Duration;

use dormouse_crypto::{Encr, Integ, PacketKey};
use dormouse_keying::{Beet, Mode};
use dormouse_sansio::{Instant, Path};

use crate::{ESP_HEADER_LEN, zones};

/// The least outer path MTU that is believed over IPv4, in bytes.
pub const FLOOR_V4: u16 = 576;
/// The least outer path MTU that is believed over IPv6, in bytes; also the least that an inner IPv6 sender learns.
pub const FLOOR_V6: u16 = 1_280;
/// How long a lowered path MTU is believed.
pub const AGE: Duration = Duration::from_secs(600);
/// How far back, in packets, a quoted sequence number may lie.
const RECENT: u64 = 65_536;

/// What one SA adds to each packet on one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overhead {
    /// Outer IP header and UDP header, in bytes.
    outer: usize,
    /// ESP header, IV and ICV, in bytes; the ends and the ICVs of all zones.
    esp: usize,
    /// What payload, padding and trailer are a multiple of, in bytes.
    align: usize,
    /// Bytes of an inner packet that are certainly not carried.
    stripped: usize,
}

impl Overhead {
    /// The overhead of an SA of these algorithms on `path`.
    #[must_use]
    pub fn new(encr: Encr, integ: Option<Integ>, mode: Mode, path: &Path) -> Self {
        let icv = integ.map_or(encr.icv_len(), Integ::icv_len);
        Self {
            outer: path.outer_overhead(),
            esp: ESP_HEADER_LEN + encr.iv_len() + icv,
            align: encr.block_len().max(4),
            stripped: stripped(mode),
        }
    }

    /// The overhead of an SA with this key on `path`: also of one that is measured and never negotiated.
    #[must_use]
    pub fn of_key(key: &PacketKey, mode: Mode, path: &Path) -> Self {
        Self {
            outer: path.outer_overhead(),
            esp: ESP_HEADER_LEN + key.iv_len() + key.icv_len(),
            align: key.block_len().max(4),
            stripped: stripped(mode),
        }
    }

    /// The overhead of the same SA with packets in so many zones, if these are more than one.
    #[must_use]
    pub fn zoned(self, zones: usize) -> Self {
        Self { esp: self.esp + zones::overhead(zones), ..self }
    }

    /// The overhead of the same SA on another path.
    #[must_use]
    pub fn on(self, path: &Path) -> Self {
        Self { outer: path.outer_overhead(), ..self }
    }

    /// The largest inner packet, in bytes, whose outer packet fits `path_mtu`. In transport and BEET mode the
    /// inner packet is the original one, whose IP header is not carried.
    #[must_use]
    pub fn inner_mtu(&self, path_mtu: usize) -> usize {
        let body = path_mtu.saturating_sub(self.outer + self.esp) / self.align * self.align;
        body.saturating_sub(2) + self.stripped
    }
}

/// The least that is left off a packet: of an IPv4 header in BEET mode, all but what the pseudo header of its options takes.
const fn stripped(mode: Mode) -> usize {
    match mode {
        Mode::Tunnel => 0,
        Mode::Transport => 20,
        Mode::Beet(Beet { local: IpAddr::V4(_), .. }) => 12,
        Mode::Beet(Beet { local: IpAddr::V6(_), .. }) => 40,
    }
}

/// What TCP over IPv4 may put into a segment, for an inner MTU, in bytes.
#[must_use]
pub fn mss_v4(inner_mtu: usize) -> u16 {
    u16::try_from(inner_mtu.saturating_sub(40)).unwrap_or(u16::MAX)
}

/// What TCP over IPv6 may put into a segment, for an inner MTU, in bytes.
#[must_use]
pub fn mss_v6(inner_mtu: usize) -> u16 {
    u16::try_from(inner_mtu.saturating_sub(60)).unwrap_or(u16::MAX)
}

/// The MTU that an inner sender learns when its packet was too big (RFC 4301 section 8.2.1), in bytes. IPv6 links have at
/// least 1,280, so an IPv6 sender is never told less: it would answer with fragment headers and send as much as before.
#[must_use]
pub fn advertised(inner_mtu: usize, to: IpAddr) -> u16 {
    let mtu = u16::try_from(inner_mtu).unwrap_or(u16::MAX);
    if to.is_ipv6() { mtu.max(FLOOR_V6) } else { mtu }
}

/// An ICMP "fragmentation needed" or "packet too big" about a packet of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooBig {
    /// The MTU that it claims, in bytes; 0 from routers older than RFC 1191.
    pub claimed: u32,
    /// SPI and low half of the sequence number in the packet that it quotes. `None` if the quotation is too short, or if the
    /// kernel matched it to our socket and keeps the rest to itself.
    pub quoted: Option<(u32, u32)>,
}

/// The path MTU between the outer addresses of one SA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathMtu {
    /// MTU of the interface that the path leaves through, in bytes: the most there can be.
    link: u16,
    floor: u16,
    learned: Option<(u16, Instant)>,
}

impl PathMtu {
    /// The path of `link` bytes until something else is learned.
    #[must_use]
    pub fn new(path: &Path, link: u16) -> Self {
        let floor = if path.remote.is_ipv6() { FLOOR_V6 } else { FLOOR_V4 };
        Self { link: link.max(floor), floor, learned: None }
    }

    /// The MTU to use now, in bytes.
    #[must_use]
    pub fn get(&self, now: Instant) -> u16 {
        match self.learned {
            Some((mtu, at)) if now - at < AGE => mtu,
            _ => self.link,
        }
    }

    /// The interface's MTU changed, or the path uses another: what was learned is forgotten.
    pub fn set_link(&mut self, path: &Path, link: u16) {
        *self = Self::new(path, link);
    }

    /// Takes note of an ICMP error about a packet of the SA with SPI `spi`, which last sent sequence number `sent`. Returns
    /// the new MTU if it changed.
    ///
    /// RFC 4301 section 8.2.1 leaves it to the implementation which errors to believe; see the module for what is believed.
    pub fn too_big(&mut self, now: Instant, error: TooBig, spi: u32, sent: u64) -> Option<u16> {
        if let Some((quoted_spi, low)) = error.quoted {
            let back = (sent as u32).wrapping_sub(low);
            if quoted_spi != spi || u64::from(back) >= RECENT.min(sent) {
                return None;
            }
        }
        let claimed = match error.claimed {
            // RFC 1191 section 5: an old router says nothing. Its plateaus matter no more; go where every network works.
            0 => self.floor,
            mtu => u16::try_from(mtu).unwrap_or(u16::MAX).max(self.floor),
        };
        self.lower(now, claimed)
    }

    /// The kernel refused to send a datagram because it is larger than `mtu`, or a probe of that size was never answered:
    /// known from ourselves.
    pub fn lower(&mut self, now: Instant, mtu: u16) -> Option<u16> {
        let mtu = mtu.max(self.floor);
        (mtu < self.get(now)).then(|| {
            self.learned = Some((mtu, now));
            mtu
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_sansio::Carrier;

    fn path(remote: &str, carrier: Carrier) -> Path {
        let remote = remote.parse().unwrap();
        Path { local: "192.0.2.1:4500".parse().unwrap(), remote, carrier }
    }

    fn beet(local: &str) -> Mode {
        let local = local.parse().unwrap();
        Mode::Beet(Beet { local, remote: local })
    }

    /// Length in bytes of the outer packet that an inner packet of `inner_len` bytes becomes, traffic-flow padding apart.
    fn outer_len(o: &Overhead, inner_len: usize) -> usize {
        let payload = inner_len.saturating_sub(o.stripped);
        o.outer + o.esp + (payload + 2).next_multiple_of(o.align)
    }

    fn v4() -> Path {
        path("192.0.2.9:4500", Carrier::NatT)
    }

    #[test]
    fn the_largest_inner_packet_fits_and_one_more_byte_does_not() {
        let suites = [
            (Encr::Aes128Gcm16, None),
            (Encr::ChaCha20Poly1305, None),
            (Encr::Aes256Cbc, Some(Integ::HmacSha256_128)),
            (Encr::Aes128Ctr, Some(Integ::HmacSha1_96)),
            (Encr::Null, Some(Integ::HmacSha256_128)),
            (Encr::Aes128Ccm8, None),
        ];
        for (encr, integ) in suites {
            for path in
                [v4(), path("[2001:db8::9]:4500", Carrier::NatT), path("192.0.2.9:0", Carrier::RawEsp)]
            {
                for mode in [Mode::Tunnel, Mode::Transport, beet("127.1.0.1"), beet("2001:20::1")] {
                    let o = Overhead::new(encr, integ, mode, &path);
                    for mtu in [576, 1_280, 1_400, 1_420, 1_492, 1_500, 9_000] {
                        let inner = o.inner_mtu(mtu);
                        assert!(outer_len(&o, inner) <= mtu, "{encr} {mtu}");
                        assert!(outer_len(&o, inner + 1) > mtu, "{encr} {mtu}");
                    }
                }
            }
        }
    }

    #[test]
    fn ethernet_with_gcm_over_udp() {
        let o = Overhead::new(Encr::Aes128Gcm16, None, Mode::Tunnel, &v4());
        assert_eq!(o.inner_mtu(1_500), 1_438);
        assert_eq!((mss_v4(1_438), mss_v6(1_438)), (1_398, 1_378));
    }

    #[test]
    fn a_claim_lowers_for_ten_minutes() {
        let mut p = PathMtu::new(&v4(), 1_500);
        let t = |s: u64| Instant::from_nanos(s * 1_000_000_000);
        let error = TooBig { claimed: 1_400, quoted: Some((7, 99)) };
        assert_eq!(p.too_big(t(1), error, 7, 100), Some(1_400));
        assert_eq!(p.too_big(t(2), error, 7, 100), None, "nothing new");
        assert_eq!(p.get(t(600)), 1_400);
        assert_eq!(p.get(t(601)), 1_500);
    }

    #[test]
    fn claims_are_believed_neither_upwards_nor_below_the_floor() {
        let now = Instant::ZERO;
        let mut p = PathMtu::new(&v4(), 1_500);
        assert_eq!(p.too_big(now, TooBig { claimed: 9_000, quoted: None }, 7, 100), None);
        assert_eq!(p.too_big(now, TooBig { claimed: 68, quoted: None }, 7, 100), Some(576));
        let mut p = PathMtu::new(&path("[2001:db8::9]:4500", Carrier::NatT), 1_500);
        assert_eq!(p.too_big(now, TooBig { claimed: 0, quoted: None }, 7, 100), Some(1_280));
    }

    #[test]
    fn a_quotation_must_be_of_this_sa_and_recent() {
        let mut p = PathMtu::new(&v4(), 1_500);
        let mut claim = |spi, low, sent| {
            p.too_big(Instant::ZERO, TooBig { claimed: 1_300, quoted: Some((spi, low)) }, 7, sent)
        };
        assert_eq!(claim(8, 99, 100), None, "another SPI");
        assert_eq!(claim(7, 101, 100), None, "never sent");
        assert_eq!(claim(7, 0, 100), None, "never sent");
        assert_eq!(claim(7, 1, 1 << 20), None, "long ago");
        assert_eq!(claim(7, u32::MAX, (1 << 32) + 5), Some(1_300), "before the low half wrapped");
    }

    #[test]
    fn ipv6_senders_are_never_told_less_than_their_minimum() {
        assert_eq!(advertised(1_200, "2001:db8::1".parse().unwrap()), 1_280);
        assert_eq!(advertised(1_200, "192.0.2.1".parse().unwrap()), 1_200);
    }
}

//! The ICMP messages of path-MTU discovery (RFC 1191, RFC 8201), and echo for simulations and tests.
//!
//! Owns building and reading them. Must never remember a path MTU, nor limit the rate of its own errors: that is the
//! caller's (RFC 1812 section 4.3.2.8, RFC 4443 section 2.4 (f)).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Ipv4, Ipv4Header, Ipv6, Ipv6Header, Packet, checksum, protocol, udp};
use crate::Result;

/// Largest ICMPv4 error built here, IP header included: "as much of the original datagram as possible without the length
/// of the ICMP datagram exceeding 576 bytes" (RFC 1812 section 4.3.2.3).
pub const MAX_V4_ERROR: usize = 576;
/// Largest ICMPv6 error, IP header included: the minimum IPv6 MTU (RFC 4443 section 2.4 (c)).
pub const MAX_V6_ERROR: usize = 1280;
/// Bytes of the ICMP header of the messages here.
pub const HEADER_LEN: usize = 8;

/// ICMPv4 destination unreachable.
const UNREACHABLE_V4: u8 = 3;
/// Its code "fragmentation needed and DF set".
const FRAGMENTATION_NEEDED: u8 = 4;
/// ICMPv6 destination unreachable, and its code "port unreachable".
const UNREACHABLE_V6: u8 = 1;
const PORT: u8 = 4;
/// ICMPv6 packet too big.
const PACKET_TOO_BIG: u8 = 2;
/// Types of echo requests; an answer is 0 in ICMPv4 and one more in ICMPv6.
const ECHO_V4: u8 = 8;
const ECHO_V6: u8 = 128;

/// Appends an ICMP "fragmentation needed" (IPv4) or "packet too big" (IPv6) from `source` to the sender of `original`,
/// saying that the next hop takes `mtu` bytes. Returns whether there is an error to send: not for what is no well-formed
/// packet, nor where `source` is of the other family, nor for a packet that must not be answered with an error (RFC 1122
/// section 3.2.2, RFC 4443 section 2.4 (e)).
pub fn too_big(original: &[u8], source: IpAddr, mtu: u32, out: &mut Vec<u8>) -> bool {
    match (Packet::parse(original), source) {
        (Ok(Packet::V4(packet)), IpAddr::V4(source)) => fragmentation_needed(&packet, source, mtu, out),
        (Ok(Packet::V6(packet)), IpAddr::V6(source)) => packet_too_big(&packet, source, mtu, out),
        _ => false,
    }
}

fn fragmentation_needed(original: &Ipv4<'_>, source: Ipv4Addr, mtu: u32, out: &mut Vec<u8>) -> bool {
    let [m0, m1] = u16::try_from(mtu).unwrap_or(u16::MAX).to_be_bytes();
    v4_error(original, source, [UNREACHABLE_V4, FRAGMENTATION_NEEDED, 0, 0, 0, 0, m0, m1], out)
}

/// Appends an ICMPv4 "fragmentation needed" about a packet that may be cut short after its header, as one that another error quotes.
/// Otherwise as [`too_big`].
pub fn error_too_big(original: &[u8], source: Ipv4Addr, mtu: u16, out: &mut Vec<u8>) -> bool {
    Ipv4::parse_header(original).is_ok_and(|p| fragmentation_needed(&p, source, mtu.into(), out))
}

/// Appends an ICMPv4 error of this type and code from `source` to the sender of `original`, quoting it: not "fragmentation needed", which
/// has an MTU. Returns whether there is one to send, as [`too_big`] does.
pub fn error(original: &[u8], source: Ipv4Addr, kind: u8, code: u8, out: &mut Vec<u8>) -> bool {
    Ipv4::parse_header(original).is_ok_and(|p| v4_error(&p, source, [kind, code, 0, 0, 0, 0, 0, 0], out))
}

fn v4_error(original: &Ipv4<'_>, source: Ipv4Addr, head: [u8; HEADER_LEN], out: &mut Vec<u8>) -> bool {
    let src = original.src();
    let unanswerable = src.is_unspecified() || src.is_multicast() || src.is_broadcast() || src.is_loopback();
    let later_fragment = original.fragment().is_some_and(|f| f.offset != 0);
    if unanswerable || later_fragment || original.dst().is_multicast() || is_v4_error(original) {
        return false;
    }
    let quoted = original.as_bytes();
    let quoted = quoted.get(..MAX_V4_ERROR - Ipv4::MIN_HEADER - HEADER_LEN).unwrap_or(quoted);
    let sum = checksum::Sum::default().add_bytes(&head).add_bytes(quoted).finish();
    let ip = Ipv4Header {
        // With DF set the error could itself be lost on a path that is too narrow.
        dont_fragment: false,
        ..Ipv4Header::new(source, src, protocol::ICMP)
    };
    let Ok(ip) = ip.to_bytes(HEADER_LEN + quoted.len()) else { return false };
    out.extend_from_slice(&ip);
    push_with_checksum(head, sum, quoted, out);
    true
}

/// A received ICMPv4 error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorV4<'a> {
    /// Its type: 3, destination unreachable; 11, time exceeded; and so on.
    pub kind: u8,
    /// Its code.
    pub code: u8,
    /// What the next hop takes, in bytes, if it is "fragmentation needed" and says so.
    pub mtu: u16,
    /// The packet that it is about, from its header on, as far as it is quoted.
    pub quoted: &'a [u8],
}

/// Reads an ICMPv4 error, given as a whole IP packet. `None` for anything else, and where the checksum is wrong.
#[must_use]
pub fn parse_error<'a>(packet: &Ipv4<'a>) -> Option<ErrorV4<'a>> {
    let message = packet.payload();
    let (&[kind, code, _, _, _, _, m0, m1], quoted) = message.split_first_chunk::<HEADER_LEN>()?;
    let whole = packet.fragment().is_none() && is_v4_error(packet);
    let sound = whole && checksum::checksum(message) == 0 && Ipv4::parse_header(quoted).is_ok();
    sound.then(|| ErrorV4 { kind, code, mtu: u16::from_be_bytes([m0, m1]), quoted })
}

fn packet_too_big(original: &Ipv6<'_>, source: Ipv6Addr, mtu: u32, out: &mut Vec<u8>) -> bool {
    let [m0, m1, m2, m3] = mtu.to_be_bytes();
    // It may answer a multicast destination, so that path-MTU discovery works for multicast (section 2.4 (e)).
    v6_error(original, source, [PACKET_TOO_BIG, 0, 0, 0, m0, m1, m2, m3], out)
}

/// Appends an ICMPv6 "port unreachable" from the destination of `original` to its sender, quoting it. Returns whether there is one to send, as
/// [`too_big`] does.
pub fn port_unreachable(original: &[u8], out: &mut Vec<u8>) -> bool {
    Ipv6::parse(original).is_ok_and(|p| {
        !p.dst().is_multicast() && v6_error(&p, p.dst(), [UNREACHABLE_V6, PORT, 0, 0, 0, 0, 0, 0], out)
    })
}

fn v6_error(original: &Ipv6<'_>, source: Ipv6Addr, head: [u8; HEADER_LEN], out: &mut Vec<u8>) -> bool {
    let src = original.src();
    if src.is_unspecified() || src.is_multicast() || is_v6_error(original) {
        return false;
    }
    let quoted = original.as_bytes();
    let quoted = quoted.get(..MAX_V6_ERROR - Ipv6::HEADER - HEADER_LEN).unwrap_or(quoted);
    let len = HEADER_LEN + quoted.len();
    let pseudo = checksum::pseudo_header(source.into(), src.into(), protocol::ICMPV6, len);
    let sum = pseudo.add_bytes(&head).add_bytes(quoted).finish();
    let Ok(ip) = Ipv6Header::new(source, src, protocol::ICMPV6).to_bytes(len) else { return false };
    out.extend_from_slice(&ip);
    push_with_checksum(head, sum, quoted, out);
    true
}

fn push_with_checksum(head: [u8; HEADER_LEN], sum: u16, body: &[u8], out: &mut Vec<u8>) {
    let [kind, code, _, _, rest @ ..] = head;
    let [c0, c1] = sum.to_be_bytes();
    out.extend_from_slice(&[kind, code, c0, c1]);
    out.extend_from_slice(&rest);
    out.extend_from_slice(body);
}

/// Whether an ICMPv4 packet is an error message, or cannot be told: everything but the queries.
fn is_v4_error(packet: &Ipv4<'_>) -> bool {
    // Echo, router discovery, timestamp, information, address mask, extended echo.
    const QUERIES: &[u8] = &[0, 8, 9, 10, 13, 14, 15, 16, 17, 18, 42, 43];
    packet.protocol() == protocol::ICMP && packet.payload().first().is_none_or(|t| !QUERIES.contains(t))
}

/// Whether an ICMPv6 packet is an error message: "the high-order bit of the message Type" is clear (RFC 4443 section 2.1).
/// Redirects (137) count too, section 2.4 (e.2).
fn is_v6_error(packet: &Ipv6<'_>) -> bool {
    const REDIRECT: u8 = 137;
    let first_part = packet.fragment().is_none_or(|f| f.offset == 0);
    packet.protocol() == protocol::ICMPV6
        && first_part
        && packet.payload().first().is_none_or(|t| *t < 128 || *t == REDIRECT)
}

/// An echo request or reply ("ping").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Echo<'a> {
    /// Who sends it.
    pub src: IpAddr,
    /// Who receives it; of the same family.
    pub dst: IpAddr,
    /// A reply, or a request.
    pub reply: bool,
    /// Tells pingers apart.
    pub id: u16,
    /// Tells pings apart.
    pub sequence: u16,
    /// The data, repeated by the reply.
    pub payload: &'a [u8],
}

impl<'a> Echo<'a> {
    /// Reads an echo packet; `None` for anything else, and where a checksum is wrong.
    #[must_use]
    pub fn parse(packet: &'a [u8]) -> Option<Self> {
        let outer = Packet::parse(packet).ok()?;
        let message = outer.payload();
        let (&[kind, 0, _, _, i0, i1, s0, s1], payload) = message.split_first_chunk::<HEADER_LEN>()? else {
            return None;
        };
        let (reply, sum) = match (outer.protocol(), kind) {
            _ if outer.fragment().is_some() => return None,
            (protocol::ICMP, ECHO_V4 | 0) => (kind == 0, checksum::Sum::default()),
            (protocol::ICMPV6, ECHO_V6 | 129) => (kind != ECHO_V6, outer.pseudo_header(message.len())),
            _ => return None,
        };
        (sum.add_bytes(message).finish() == 0).then(|| Self {
            src: outer.src(),
            dst: outer.dst(),
            reply,
            id: u16::from_be_bytes([i0, i1]),
            sequence: u16::from_be_bytes([s0, s1]),
            payload,
        })
    }

    /// The reply to this request.
    #[must_use]
    pub const fn answer(self) -> Self {
        Self { src: self.dst, dst: self.src, reply: true, ..self }
    }

    /// Appends the whole IP packet, checksums included.
    ///
    /// # Errors
    /// [`crate::Error::Value`] if the addresses are of two families, [`crate::Error::TooLong`] above 64 KiB; `out` is as it
    /// was then.
    pub fn build(&self, out: &mut Vec<u8>) -> Result<()> {
        let len = HEADER_LEN.saturating_add(self.payload.len());
        let (protocol, kind, pseudo) = match self.src {
            IpAddr::V4(_) => (protocol::ICMP, if self.reply { 0 } else { ECHO_V4 }, checksum::Sum::default()),
            IpAddr::V6(_) => (
                protocol::ICMPV6,
                ECHO_V6 + u8::from(self.reply),
                checksum::pseudo_header(self.src, self.dst, protocol::ICMPV6, len),
            ),
        };
        udp::ip_header(self.src, self.dst, protocol, len, out)?;
        let [i0, i1] = self.id.to_be_bytes();
        let [s0, s1] = self.sequence.to_be_bytes();
        let head = [kind, 0, 0, 0, i0, i1, s0, s1];
        let sum = pseudo.add_bytes(&head).add_bytes(self.payload).finish();
        push_with_checksum(head, sum, self.payload, out);
        Ok(())
    }
}

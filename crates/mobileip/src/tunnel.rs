//! IP in IP (RFC 2003): one end of a tunnel, and what is remembered about it. Owns the outer header, the path MTU inside of the tunnel, and
//! what becomes of ICMP errors from there; must never look at what the inner packet carries.
//!
//! A packet that does not fit and may be fragmented is fragmented before it is encapsulated, so that the far end never has to put an outer
//! packet together.

use core::net::Ipv4Addr;

use dormouse_sansio::Instant;
use dormouse_wire::ip::icmp::{self, ErrorV4};
use dormouse_wire::ip::{Ecn, Ipv4, Ipv4Header, checksum, protocol, set_ecn, set_hop_limit};

use crate::Discard;
use crate::limits::{MIN_TUNNEL, NARROW, TTL, TUNNEL_HEADER};

/// ICMP types and codes.
const UNREACHABLE: u8 = 3;
const HOST: u8 = 1;
const TOO_BIG: u8 = 4;
const TIME_EXCEEDED: u8 = 11;

/// Why a packet is not encapsulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// It has lived too long.
    #[error("its time to live is over")]
    Expired,
    /// It is longer than this many bytes, and must not be fragmented.
    #[error("more than {0} bytes")]
    TooBig(u16),
    /// It comes from an end of the tunnel: it would go round.
    #[error("tunnel loop")]
    Loop,
}

/// The end of a tunnel at which packets enter it.
/// "Home agents and foreign agents MUST support tunneling datagrams using IP in IP encapsulation" (RFC 5944 section 4.1)
#[derive(Clone, Debug)]
pub struct Tunnel {
    from: Ipv4Addr,
    to: Ipv4Addr,
    /// What the way takes, in bytes, outer header included, as far as is known without errors.
    width: u16,
    /// What it takes less, until when.
    narrow: Option<(u16, Instant)>,
    /// Identification of the next outer header.
    id: u16,
}

/// What an ICMP error from inside of a tunnel means for the sender of the inner packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relay {
    /// Packets must be shorter: at most so many bytes.
    TooBig(u16),
    /// The host cannot be reached.
    Unreachable,
}

impl Tunnel {
    /// A tunnel over a way that takes packets of `width` bytes.
    #[must_use]
    pub fn new(from: Ipv4Addr, to: Ipv4Addr, width: u16) -> Self {
        Self { from, to, width: width.max(MIN_TUNNEL), narrow: None, id: 0 }
    }

    /// The far end.
    #[must_use]
    pub const fn to(&self) -> Ipv4Addr {
        self.to
    }

    /// The longest inner packet, in bytes.
    /// "the MTU that is conveyed to the original sender by the encapsulator SHOULD be the MTU of the tunnel minus the size of the
    /// encapsulating IP header." (RFC 2003 section 5.1)
    #[must_use]
    pub fn mtu(&self, now: Instant) -> u16 {
        let narrow = self.narrow.filter(|(_, until)| now < *until).map(|(width, _)| width);
        narrow.unwrap_or(self.width) - TUNNEL_HEADER
    }

    /// Encapsulates a packet, or its fragments. `forwards`: this is where it is forwarded, not in the kernel before, so that its time to live
    /// is shortened here.
    ///
    /// # Errors
    /// If it must not enter the tunnel.
    pub fn encapsulate(
        &mut self,
        now: Instant,
        inner: &Ipv4<'_>,
        forwards: bool,
        mut emit: impl FnMut(Vec<u8>),
    ) -> Result<(), Refusal> {
        // "If the IP Source Address of the datagram matches the router's own IP address on any of its network interfaces, the router MUST
        // NOT tunnel the datagram" (RFC 2003 section 3.2), nor "If the IP Source Address of the datagram matches the IP address of the tunnel
        // destination" (RFC 2003 section 3.2).
        if [self.from, self.to].contains(&inner.src()) {
            return Err(Refusal::Loop);
        }
        // "An encapsulator MUST NOT encapsulate a datagram with TTL = 0" (RFC 2003 section 3.1)
        let ttl = inner.ttl().checked_sub(u8::from(forwards)).filter(|ttl| *ttl > 0);
        let ttl = ttl.ok_or(Refusal::Expired)?;
        let mtu = self.mtu(now);
        if inner.total_len() <= usize::from(mtu) {
            emit(self.wrap(inner.as_bytes(), inner.tos(), ttl));
            return Ok(());
        }
        if inner.dont_fragment() {
            return Err(Refusal::TooBig(mtu));
        }
        for fragment in fragments(inner, mtu) {
            emit(self.wrap(&fragment, inner.tos(), ttl));
        }
        Ok(())
    }

    fn wrap(&mut self, inner: &[u8], tos: u8, ttl: u8) -> Vec<u8> {
        self.id = self.id.wrapping_add(1);
        // The bit against fragmentation is set in every outer header. Where it is set inside, "it MUST be set in the outer IP header" (RFC
        // 2003 section 3.1), and "the encapsulator SHOULD normally do Path MTU Discovery" (RFC 2003 section 5.1).
        let header =
            Ipv4Header { tos, id: self.id, ttl: TTL, ..Ipv4Header::new(self.from, self.to, protocol::IPV4) };
        // An inner packet of a tunnel's width is far from the longest.
        let mut packet = header.to_bytes(inner.len()).map(|h| h.to_vec()).unwrap_or_default();
        let at = packet.len();
        packet.extend_from_slice(inner);
        set_hop_limit(packet.get_mut(at..).unwrap_or_default(), ttl);
        packet
    }

    /// Whether an ICMP error is about a packet of this tunnel, and what it means.
    pub fn note(&mut self, now: Instant, error: &ErrorV4<'_>) -> Option<Relay> {
        let quoted = Ipv4::parse_header(error.quoted).ok()?;
        if (quoted.src(), quoted.dst(), quoted.protocol()) != (self.from, self.to, protocol::IPV4) {
            return None;
        }
        match (error.kind, error.code) {
            // "The encapsulator MUST relay ICMP Datagram Too Big messages to the sender of the original unencapsulated datagram" (RFC
            // 2003 section 4.1)
            (UNREACHABLE, TOO_BIG) => {
                let told = error.mtu.max(MIN_TUNNEL).min(self.width);
                // "all encapsulator implementations MUST support Path MTU Discovery [5, 7] soft state within their tunnels." (RFC 2003
                // section 5.1)
                self.narrow = Some((told, now + NARROW));
                Some(Relay::TooBig(self.mtu(now)))
            }
            // "The encapsulator SHOULD relay Host Unreachable messages to the sender" (RFC 2003 section 4.1)
            (UNREACHABLE, 0..=2) => Some(Relay::Unreachable),
            // "Reception of Time Exceeded messages by the encapsulator MUST be reported to the sender of the original unencapsulated
            // datagram as Host Unreachable (Type 3, Code 1)." (RFC 2003 section 4.4)
            (TIME_EXCEEDED, 0) => Some(Relay::Unreachable),
            _ => None,
        }
    }
}

/// Every tunnel that an ICMP error concerns learns from it: those to one end go the same way. What it means for the sender.
pub(crate) fn note_all<'a>(
    tunnels: impl Iterator<Item = &'a mut Tunnel>,
    now: Instant,
    error: &ErrorV4<'_>,
) -> Option<Relay> {
    tunnels.fold(None, |relay, tunnel| tunnel.note(now, error).or(relay))
}

/// What a tunnelled packet holds, with the outer header's congestion mark (RFC 6040).
///
/// # Errors
/// If it is a fragment, or holds no packet that may go on.
pub fn decapsulate(outer: &Ipv4<'_>) -> Result<Vec<u8>, Discard> {
    if outer.protocol() != protocol::IPV4 || outer.fragment().is_some() {
        return Err(Discard::NotForUs);
    }
    let inner = Ipv4::parse(outer.payload())?;
    if !inner.checksum_ok() {
        return Err(Discard::Checksum);
    }
    // "If, after decapsulation, the inner datagram has TTL = 0, the decapsulator MUST discard the datagram." (RFC 2003 section 3.1)
    if inner.ttl() == 0 {
        return Err(Discard::NotTunnelled(Refusal::Expired));
    }
    let ecn = Ecn::decapsulate(Ecn::from_traffic_class(inner.tos()), Ecn::from_traffic_class(outer.tos()));
    let mut packet = inner.as_bytes().to_vec();
    set_ecn(&mut packet, ecn.ok_or(Discard::Congested)?);
    Ok(packet)
}

/// The ICMP error for the sender of the inner packet that an error from inside of a tunnel quotes, from `own`.
pub(crate) fn relayed(own: Ipv4Addr, error: &ErrorV4<'_>, relay: Relay) -> Option<Vec<u8>> {
    let outer = Ipv4::parse_header(error.quoted).ok()?;
    let inner = outer.payload();
    refused(
        own,
        inner,
        match relay {
            Relay::TooBig(mtu) => (UNREACHABLE, TOO_BIG, mtu),
            Relay::Unreachable => (UNREACHABLE, HOST, 0),
        },
    )
}

/// The ICMP error for the sender of a packet that does not enter a tunnel, from `own`.
pub(crate) fn answer(own: Ipv4Addr, inner: &[u8], refusal: Refusal) -> Option<Vec<u8>> {
    match refusal {
        Refusal::TooBig(mtu) => refused(own, inner, (UNREACHABLE, TOO_BIG, mtu)),
        // "an ICMP Time Exceeded message SHOULD be returned to the sender." (RFC 2003 section 3.1)
        Refusal::Expired => refused(own, inner, (TIME_EXCEEDED, 0, 0)),
        Refusal::Loop => None,
    }
}

fn refused(own: Ipv4Addr, inner: &[u8], (kind, code, mtu): (u8, u8, u16)) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let told = match (kind, code) {
        (UNREACHABLE, TOO_BIG) => icmp::error_too_big(inner, own, mtu, &mut out),
        _ => icmp::error(inner, own, kind, code, &mut out),
    };
    told.then_some(out)
}

/// The fragments of a packet, each of at most `mtu` bytes (RFC 791 section 3.2). Options are repeated in each: none is expected.
fn fragments(packet: &Ipv4<'_>, mtu: u16) -> Vec<Vec<u8>> {
    let bytes = packet.as_bytes();
    let (header, data) = bytes.split_at(packet.header_len().min(bytes.len()));
    let room = (usize::from(mtu).saturating_sub(header.len()) / 8 * 8).max(8);
    let [flags, low] = [header.get(6), header.get(7)].map(|b| b.copied().unwrap_or_default());
    let (first, more) = (u16::from_be_bytes([flags & 0x1f, low]), flags & 0x20 != 0);
    let count = data.len().div_ceil(room);
    data.chunks(room)
        .enumerate()
        .map(|(n, chunk)| {
            let mut part = [header, chunk].concat();
            let offset = first.wrapping_add((n * room / 8) as u16) & 0x1fff;
            let more = if more || n + 1 < count { 0x2000 } else { 0 };
            let total = u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes();
            if let Some(head) = part.get_mut(..header.len()).and_then(|h| h.first_chunk_mut::<20>()) {
                [head[2], head[3]] = total;
                [head[6], head[7]] = (more | offset).to_be_bytes();
                [head[10], head[11]] = [0, 0];
            }
            let sum = checksum::checksum(part.get(..header.len()).unwrap_or_default()).to_be_bytes();
            if let Some(field) = part.get_mut(10..12) {
                field.copy_from_slice(&sum);
            }
            part
        })
        .collect()
}

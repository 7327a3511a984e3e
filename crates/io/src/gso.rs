//! Cutting what the TUN device hands over into packets, directly where they are sealed. Owns the headers of the pieces; must
//! never allocate.
//!
//! An own splitter rather than tun-rs's `gso_split`, for three things that one cannot do: cut TCP smaller than the kernel
//! asked (any cut of a TCP stream is a correct one, so a path whose MTU shrank needs no error and no retransmission), leave
//! the IP header off (transport mode), and continue in the next send where 64 KiB of ciphertext end.

use crate::sum::Sum;
use crate::tun::Vnet;

const TCP: u8 = 6;
const UDP: u8 = 17;
const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

/// What may be cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// One packet that stays whole.
    Whole,
    /// TCP: may be cut anywhere.
    Tcp,
    /// UDP datagrams of one size: cut there and nowhere else.
    Udp,
}

/// What was read from the TUN device: one packet, or several of one flow as one.
#[derive(Debug)]
pub struct SuperPacket<'a> {
    bytes: &'a mut [u8],
    kind: Kind,
    v6: bool,
    /// Where the transport header begins.
    transport: usize,
    /// Length of all headers; what follows is cut.
    headers: usize,
    /// Bytes of payload in each piece.
    payload: usize,
    /// Whether the kernel left lengths and checksums open.
    partial: bool,
}

impl<'a> SuperPacket<'a> {
    /// Makes sense of a packet and its virtio-net header; completes the checksum of one that is not to be cut. `None` if the
    /// two contradict each other.
    pub(crate) fn new(vnet: Vnet, bytes: &'a mut [u8]) -> Option<Self> {
        let v6 = match bytes.first()? >> 4 {
            4 => false,
            6 => true,
            _ => return None,
        };
        let kind = match (vnet.gso_type & !Vnet::GSO_ECN, v6) {
            (Vnet::GSO_NONE, _) => Kind::Whole,
            (Vnet::GSO_TCP4, false) | (Vnet::GSO_TCP6, true) => Kind::Tcp,
            (Vnet::GSO_UDP, _) => Kind::Udp,
            _ => return None,
        };
        if kind == Kind::Whole {
            if vnet.flags & Vnet::NEEDS_CSUM != 0 {
                complete_checksum(bytes, vnet.csum_start.into(), vnet.csum_offset.into())?;
            }
            return Some(Self::whole(bytes, v6));
        }
        let transport = usize::from(vnet.csum_start);
        let least = if v6 { 40 } else { 20 };
        // The header length in the virtio-net header is a hint that kernels have got wrong: take the packet's own.
        let headers = transport
            + match kind {
                Kind::Tcp => usize::from(bytes.get(transport + 12)? >> 4) * 4,
                _ => 8,
            };
        let shortest = transport + if kind == Kind::Tcp { 20 } else { 8 };
        let payload = usize::from(vnet.gso_size);
        (transport >= least && headers >= shortest && headers < bytes.len() && payload > 0).then_some(Self {
            bytes,
            kind,
            v6,
            transport,
            headers,
            payload,
            partial: true,
        })
    }

    fn whole(bytes: &'a mut [u8], v6: bool) -> Self {
        let headers = bytes.len();
        let mut packet =
            Self { bytes, kind: Kind::Whole, v6, transport: 0, headers, payload: 0, partial: false };
        packet.find_tcp();
        packet
    }

    /// A single TCP packet with payload can be cut as well, should the path have become too narrow for it.
    fn find_tcp(&mut self) {
        let b = &*self.bytes;
        let transport = match (self.v6, b.first(), b.get(6), b.get(7), b.get(9)) {
            (false, Some(first), Some(flags), Some(0), Some(&TCP)) if flags & 0x3f == 0 => {
                usize::from(first & 15) * 4
            }
            (true, _, Some(&TCP), ..) => 40,
            _ => return,
        };
        let Some(offset) = b.get(transport + 12) else { return };
        let headers = transport + usize::from(offset >> 4) * 4;
        // Not SYN, RST or URG: those do not survive a cut.
        let plain = b.get(transport + 13).is_some_and(|flags| flags & 0x26 == 0);
        if plain && headers >= transport + 20 && headers < b.len() {
            let payload = b.len() - headers;
            (self.kind, self.transport, self.headers, self.payload) =
                (Kind::Tcp, transport, headers, payload);
        }
    }

    /// The packet as read. The checksums and lengths of a packet that is several are not final.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// The packet as read, to change what its headers say (the MSS option).
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes
    }

    /// Length of each IP packet that it is (but the last), in bytes.
    #[must_use]
    pub fn packet_len(&self) -> usize {
        (self.headers + self.payload).min(self.bytes.len())
    }

    /// How many packets it is.
    #[must_use]
    pub fn packets(&self) -> usize {
        match self.payload {
            0 => 1,
            n => (self.bytes.len() - self.headers).div_ceil(n),
        }
    }

    /// Whether it can be cut into packets of at most `len` bytes. If not, the sender must be told.
    #[must_use]
    pub fn fits(&self, len: usize) -> bool {
        self.packet_len() <= len || (self.kind == Kind::Tcp && self.headers < len)
    }

    /// From now on it is packets of at most `len` bytes. Only where it [`Self::fits`].
    pub(crate) fn narrow(&mut self, len: usize) {
        if self.packet_len() > len && self.kind == Kind::Tcp {
            self.payload = len.saturating_sub(self.headers).max(1);
        }
    }

    /// Whether packet 0 is all there is and can go out as it was read.
    fn is_ready(&self) -> bool {
        !self.partial && self.headers + self.payload >= self.bytes.len()
    }

    /// Length of packet `index` without its first `strip` bytes.
    pub(crate) fn len_of(&self, index: usize, strip: usize) -> usize {
        let rest = (self.bytes.len() - self.headers).saturating_sub(index * self.payload);
        (self.headers + rest.min(self.payload)).saturating_sub(strip)
    }

    /// Writes packet `index`, without its first `strip` bytes (nothing, or the IP header), at the start of `out`. Returns its
    /// length, or `None` if `out` is too short.
    pub(crate) fn write(&self, index: usize, strip: usize, out: &mut [u8]) -> Option<usize> {
        let len = self.len_of(index, strip);
        let out = out.get_mut(..len)?;
        if self.is_ready() {
            out.copy_from_slice(self.bytes.get(strip..)?);
            return Some(len);
        }
        let at = self.headers + index * self.payload;
        let (head, body) = out.split_at_mut_checked(self.headers.checked_sub(strip)?)?;
        head.copy_from_slice(self.bytes.get(strip..self.headers)?);
        body.copy_from_slice(self.bytes.get(at..at + body.len())?);
        self.finish_piece(index, strip, out)?;
        Some(len)
    }

    /// Lengths, identification, sequence number, flags and checksums of a piece.
    fn finish_piece(&self, index: usize, strip: usize, out: &mut [u8]) -> Option<()> {
        let len = out.len() + strip;
        let (ip, transport) =
            if strip == 0 { out.split_at_mut_checked(self.transport)? } else { (&mut [][..], out) };
        if !ip.is_empty() {
            self.finish_ip(index, len, ip)?;
        }
        let checksum_at = if self.kind == Kind::Tcp {
            let sequence = transport.get_mut(4..8)?.first_chunk_mut::<4>()?;
            let first = u32::from_be_bytes(*sequence);
            *sequence = first.wrapping_add((index * self.payload) as u32).to_be_bytes();
            let flags = transport.get_mut(13)?;
            if index > 0 {
                *flags &= !CWR;
            }
            if index + 1 < self.packets() {
                *flags &= !FIN_PSH;
            }
            16
        } else {
            let length = (len - self.transport) as u16;
            transport.get_mut(4..6)?.copy_from_slice(&length.to_be_bytes());
            6
        };
        transport.get_mut(checksum_at..checksum_at + 2)?.fill(0);
        let mut checksum = self.pseudo_header(len - self.transport)?.add(transport).finish();
        if self.kind == Kind::Udp && checksum == [0; 2] {
            checksum = [0xff; 2];
        }
        transport.get_mut(checksum_at..checksum_at + 2)?.copy_from_slice(&checksum);
        Some(())
    }

    fn finish_ip(&self, index: usize, len: usize, ip: &mut [u8]) -> Option<()> {
        if self.v6 {
            ip.get_mut(4..6)?.copy_from_slice(&((len - 40) as u16).to_be_bytes());
            return Some(());
        }
        ip.get_mut(2..4)?.copy_from_slice(&(len as u16).to_be_bytes());
        let id = ip.get_mut(4..6)?.first_chunk_mut::<2>()?;
        *id = u16::from_be_bytes(*id).wrapping_add(index as u16).to_be_bytes();
        ip.get_mut(10..12)?.fill(0);
        let sum = Sum::default().add(ip).finish();
        ip.get_mut(10..12)?.copy_from_slice(&sum);
        Some(())
    }

    fn pseudo_header(&self, len: usize) -> Option<Sum> {
        let addresses = if self.v6 { self.bytes.get(8..40) } else { self.bytes.get(12..20) }?;
        let protocol = if self.kind == Kind::Tcp { TCP } else { UDP };
        Some(Sum::default().add(addresses).add_u16(protocol.into()).add_u16(len as u16))
    }
}

/// Computes the checksum that the kernel left open (`VIRTIO_NET_HDR_F_NEEDS_CSUM`): the field holds the pseudo-header's sum.
fn complete_checksum(bytes: &mut [u8], start: usize, offset: usize) -> Option<()> {
    let covered = bytes.get_mut(start..)?;
    let mut sum = Sum::default().add(covered).finish();
    // RFC 768: a UDP checksum of zero means none.
    if offset == 6 && sum == [0; 2] {
        sum = [0xff; 2];
    }
    covered.get_mut(offset..offset + 2)?.copy_from_slice(&sum);
    Some(())
}

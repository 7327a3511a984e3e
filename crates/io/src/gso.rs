//! Cutting what the TUN device hands over into packets, directly where they are sealed. Owns the headers of the pieces; must
//! never allocate.
//!
//! An own splitter rather than tun-rs's `gso_split`, for three things that one cannot do: cut TCP smaller than the kernel
//! asked (any cut of a TCP stream is a correct one, so a path whose MTU shrank needs no error and no retransmission), leave
//! the IP header off (transport mode), and continue in the next send where 64 KiB of ciphertext end.

use dormouse_sansio::packet::InnerPacket;
use dormouse_wire::ip::checksum::Sum;

use crate::checksum;
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
    /// Of a packet that is cut.
    common: Common,
}

/// What the checksums of all pieces have in common.
#[derive(Clone, Copy, Default, Debug)]
struct Common {
    /// The IPv4 header but for its length, identification and checksum.
    ip: Sum,
    /// The pseudo-header but for the length.
    pseudo: Sum,
}

impl Common {
    fn of(bytes: &[u8], v6: bool, kind: Kind, transport: usize) -> Option<Self> {
        let protocol = if kind == Kind::Tcp { TCP } else { UDP };
        let addresses = if v6 { bytes.get(8..40) } else { bytes.get(12..20) }?;
        let pseudo = Sum::default().add_bytes(addresses).add_u16(protocol.into());
        let ip = if v6 {
            Sum::default()
        } else {
            Sum::default()
                .add_bytes(bytes.get(..2)?)
                .add_bytes(bytes.get(6..10)?)
                .add_bytes(bytes.get(12..transport)?)
        };
        Some(Self { ip, pseudo })
    }
}

impl InnerPacket for SuperPacket<'_> {
    fn bytes(&self) -> &[u8] {
        self.bytes
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes
    }

    fn packet_len(&self) -> usize {
        (self.headers + self.payload).min(self.bytes.len())
    }

    fn packets(&self) -> usize {
        match self.payload {
            0 => 1,
            n => (self.bytes.len() - self.headers).div_ceil(n),
        }
    }

    fn fits(&self, len: usize) -> bool {
        self.packet_len() <= len || (self.kind == Kind::Tcp && self.headers < len)
    }

    fn piece(&self, index: usize, out: &mut Vec<u8>) -> bool {
        out.clear();
        out.resize(self.len_of(index, 0), 0);
        self.write(index, 0, out).is_some()
    }
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
        if transport < least || headers < shortest || headers >= bytes.len() || payload == 0 {
            return None;
        }
        let common = Common::of(bytes, v6, kind, transport)?;
        Some(Self { bytes, kind, v6, transport, headers, payload, partial: true, common })
    }

    fn whole(bytes: &'a mut [u8], v6: bool) -> Self {
        let headers = bytes.len();
        let mut packet = Self {
            bytes,
            kind: Kind::Whole,
            v6,
            transport: 0,
            headers,
            payload: 0,
            partial: false,
            common: Common::default(),
        };
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

    /// From now on it is packets of at most `len` bytes. Only where it [`Self::fits`].
    pub(crate) fn narrow(&mut self, len: usize) {
        if self.packet_len() > len && self.kind == Kind::Tcp {
            self.payload = len.saturating_sub(self.headers).max(1);
            self.common = Common::of(self.bytes, self.v6, self.kind, self.transport).unwrap_or(self.common);
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
        let pseudo = self.common.pseudo.add_u16((len - self.transport) as u16);
        put_checksum(transport, checksum_at, checksum::add(pseudo, transport), self.kind == Kind::Udp)
    }

    fn finish_ip(&self, index: usize, len: usize, ip: &mut [u8]) -> Option<()> {
        if self.v6 {
            ip.get_mut(4..6)?.copy_from_slice(&((len - 40) as u16).to_be_bytes());
            return Some(());
        }
        ip.get_mut(2..4)?.copy_from_slice(&(len as u16).to_be_bytes());
        let field = ip.get_mut(4..6)?.first_chunk_mut::<2>()?;
        let id = u16::from_be_bytes(*field).wrapping_add(index as u16);
        *field = id.to_be_bytes();
        let checksum = self.common.ip.add_u16(len as u16).add_u16(id);
        put_checksum(ip, 10, checksum, false)
    }
}

/// Computes the checksum that the kernel left open (`VIRTIO_NET_HDR_F_NEEDS_CSUM`): the field holds the pseudo-header's sum.
pub(crate) fn complete_checksum(bytes: &mut [u8], start: usize, offset: usize) -> Option<()> {
    let covered = bytes.get_mut(start..)?;
    put_checksum(covered, offset, checksum::add(Sum::default(), covered), offset == 6)
}

/// Writes the checksum over what was added. RFC 768: a UDP checksum of zero means none.
fn put_checksum(bytes: &mut [u8], at: usize, sum: Sum, udp: bool) -> Option<()> {
    let checksum = match sum.finish() {
        0 if udp => 0xffff,
        sum => sum,
    };
    bytes.get_mut(at..at + 2)?.copy_from_slice(&checksum.to_be_bytes());
    Some(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use dormouse_wire::ip::{Packet, checksum};

    /// A super-packet as the kernel hands it over: `payload` bytes, to be cut every `size`.
    pub(crate) fn super_packet(v6: bool, udp: bool, payload: usize, size: usize) -> (Vec<u8>, Vnet) {
        let (transport, header) = (if v6 { 40 } else { 20 }, if udp { 8 } else { 32 });
        let headers = transport + header;
        let total = headers + payload;
        let mut b = vec![0; total];
        if v6 {
            b[..8].copy_from_slice(&[0x60, 0x20, 0, 1, 0, 0, if udp { 17 } else { 6 }, 64]);
            b[4..6].copy_from_slice(&((total - 40) as u16).to_be_bytes());
            (b[8], b[23], b[24], b[39]) = (0x20, 1, 0x20, 2);
        } else {
            b[..10].copy_from_slice(&[0x45, 0, 0, 0, 0xff, 0xfe, 0x40, 0, 64, if udp { 17 } else { 6 }]);
            b[2..4].copy_from_slice(&(total as u16).to_be_bytes());
            b[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        }
        b[transport..transport + 4].copy_from_slice(&[0x30, 0x39, 0, 80]);
        if !udp {
            b[transport + 4..transport + 8].copy_from_slice(&0xffff_f000_u32.to_be_bytes());
            b[transport + 8..transport + 16].copy_from_slice(&[1, 2, 3, 4, 0x80, ACK_PSH, 0x20, 0]);
            b[transport + 20..headers].copy_from_slice(&[1, 1, 8, 10, 0, 0, 0, 5, 0, 0, 0, 6]);
        }
        for (i, byte) in b[headers..].iter_mut().enumerate() {
            *byte = (i * 7 % 253) as u8;
        }
        let vnet = Vnet {
            flags: Vnet::NEEDS_CSUM,
            gso_type: match (udp, v6) {
                (true, _) => Vnet::GSO_UDP,
                (false, false) => Vnet::GSO_TCP4,
                (false, true) => Vnet::GSO_TCP6,
            },
            hdr_len: headers as u16,
            gso_size: size as u16,
            csum_start: transport as u16,
            csum_offset: if udp { 6 } else { 16 },
        };
        (b, vnet)
    }

    const ACK_PSH: u8 = 0x18;

    fn cut(packet: &SuperPacket<'_>, strip: usize) -> Vec<Vec<u8>> {
        (0..packet.packets())
            .map(|i| {
                let mut out = vec![0; packet.len_of(i, strip)];
                assert_eq!(packet.write(i, strip, &mut out), Some(out.len()));
                out
            })
            .collect()
    }

    /// Checks one packet with another implementation of the formats and returns its payload.
    fn verified(bytes: &[u8]) -> &[u8] {
        let p = Packet::parse(bytes).unwrap();
        assert_eq!(p.total_len(), bytes.len());
        if bytes[0] >> 4 == 4 {
            assert_eq!(checksum::checksum(&bytes[..20]), 0, "IP header");
        }
        let upper = p.payload();
        assert_eq!(p.pseudo_header(upper.len()).add_bytes(upper).finish(), 0, "transport");
        let header = if p.protocol() == 17 { 8 } else { usize::from(upper[12] >> 4) * 4 };
        &upper[header..]
    }

    #[test]
    fn pieces_are_sound_and_hold_the_payload() {
        for v6 in [false, true] {
            for udp in [false, true] {
                for (payload, size) in [(50_000, 1_348), (1_348, 1_348), (1_349, 1_348), (7, 3)] {
                    let (mut bytes, vnet) = super_packet(v6, udp, payload, size);
                    let original = bytes.clone();
                    let packet = SuperPacket::new(vnet, &mut bytes).unwrap();
                    let pieces = cut(&packet, 0);
                    assert_eq!(pieces.len(), payload.div_ceil(size));
                    let joined: Vec<u8> = pieces.iter().flat_map(|p| verified(p).to_vec()).collect();
                    assert_eq!(joined, original[original.len() - payload..]);
                }
            }
        }
    }

    #[test]
    fn sequence_numbers_identification_and_flags() {
        let (mut bytes, vnet) = super_packet(false, false, 5_000, 2_000);
        bytes[33] |= CWR | 0x01;
        let packet = SuperPacket::new(vnet, &mut bytes).unwrap();
        let pieces = cut(&packet, 0);
        let field = |p: &[u8], at: usize| u32::from_be_bytes(p[at..at + 4].try_into().unwrap());
        let sequence: Vec<u32> = pieces.iter().map(|p| field(p, 24)).collect();
        assert_eq!(sequence, [0xffff_f000, 0xffff_f7d0, 0xffff_ffa0]);
        let ids: Vec<u16> = pieces.iter().map(|p| u16::from_be_bytes([p[4], p[5]])).collect();
        assert_eq!(ids, [0xfffe, 0xffff, 0], "wraps");
        let flags: Vec<u8> = pieces.iter().map(|p| p[33]).collect();
        assert_eq!(flags, [CWR | 0x10, 0x10, 0x19], "CWR first, FIN and PSH last");
    }

    #[test]
    fn tcp_can_be_cut_smaller_and_udp_cannot() {
        let (mut bytes, vnet) = super_packet(true, false, 20_000, 1_400);
        let mut packet = SuperPacket::new(vnet, &mut bytes).unwrap();
        assert!(packet.fits(1_280));
        packet.narrow(1_280);
        assert_eq!(packet.packet_len(), 1_280);
        assert!(cut(&packet, 0).iter().all(|p| p.len() <= 1_280 && !verified(p).is_empty()));

        let (mut bytes, vnet) = super_packet(true, true, 20_000, 1_400);
        let packet = SuperPacket::new(vnet, &mut bytes).unwrap();
        assert!(!packet.fits(1_280) && packet.fits(1_448));
    }

    #[test]
    fn a_single_tcp_packet_can_be_cut_too_but_not_a_syn() {
        let (mut bytes, vnet) = super_packet(false, false, 1_400, 1_400);
        let mut whole = cut(&SuperPacket::new(vnet, &mut bytes).unwrap(), 0).remove(0);
        let mut packet = SuperPacket::new(Vnet::default(), &mut whole).unwrap();
        assert_eq!((packet.packets(), packet.fits(1_000)), (1, true));
        packet.narrow(1_000);
        let pieces = cut(&packet, 0);
        assert_eq!(pieces.iter().map(|p| verified(p).len()).sum::<usize>(), 1_400);
        assert_eq!(pieces.len(), 2);

        whole[33] = 0x02;
        assert!(!SuperPacket::new(Vnet::default(), &mut whole).unwrap().fits(1_000));
    }

    #[test]
    fn without_the_ip_header_pieces_are_the_same_behind_it() {
        for (v6, strip) in [(false, 20), (true, 40)] {
            let (mut bytes, vnet) = super_packet(v6, false, 5_000, 1_000);
            let packet = SuperPacket::new(vnet, &mut bytes).unwrap();
            let stripped: Vec<Vec<u8>> = cut(&packet, 0).iter().map(|p| p[strip..].to_vec()).collect();
            assert_eq!(cut(&packet, strip), stripped);
        }
    }

    #[test]
    fn an_open_checksum_is_completed() {
        let (mut bytes, vnet) = super_packet(false, true, 100, 100);
        let mut done = cut(&SuperPacket::new(vnet, &mut bytes).unwrap(), 0).remove(0);
        let expect = done.clone();
        let pseudo = Packet::parse(&done).unwrap().pseudo_header(108).fold();
        done[26..28].copy_from_slice(&pseudo.to_be_bytes());
        let open = Vnet { flags: Vnet::NEEDS_CSUM, csum_start: 20, csum_offset: 6, ..Vnet::default() };
        assert_eq!(SuperPacket::new(open, &mut done).unwrap().bytes(), expect);
    }

    #[test]
    fn headers_that_contradict_the_packet_are_refused() {
        let (bytes, vnet) = super_packet(false, false, 5_000, 1_000);
        let refused = |vnet: Vnet, bytes: &[u8]| SuperPacket::new(vnet, &mut bytes.to_vec()).is_none();
        assert!(refused(vnet, &[]));
        assert!(refused(Vnet { gso_type: Vnet::GSO_TCP6, ..vnet }, &bytes));
        assert!(refused(Vnet { gso_type: 0x7f, ..vnet }, &bytes));
        assert!(refused(Vnet { gso_size: 0, ..vnet }, &bytes));
        assert!(refused(Vnet { csum_start: 6_000, ..vnet }, &bytes));
        assert!(refused(Vnet { csum_start: 3, ..vnet }, &bytes));
        let open = Vnet { flags: Vnet::NEEDS_CSUM, csum_start: 60_000, ..Vnet::default() };
        assert!(refused(open, &bytes));
        // A wrong hint about the headers' length is corrected from the packet.
        assert!(!refused(Vnet { hdr_len: 2, ..vnet }, &bytes));
    }
}

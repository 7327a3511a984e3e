//! A look at the headers of one frame: who, to whom, which service. Owns the link types; must never keep a frame.
//!
//! Only what [`Seen`] holds is read, without copying and without checksums: a capture may have cut the frame anywhere, and
//! what is missing stays 0.

use crate::seen::{Addr, Mac, Seen};

/// Link-layer header types, as numbered at <https://www.tcpdump.org/linktypes.html>.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkType {
    /// LINKTYPE_ETHERNET.
    Ethernet,
    /// LINKTYPE_RAW and its relatives: bare IPv4 or IPv6.
    RawIp,
    /// LINKTYPE_NULL and LINKTYPE_LOOP: four bytes of address family.
    Loopback,
    /// LINKTYPE_LINUX_SLL.
    Cooked,
    /// LINKTYPE_LINUX_SLL2.
    Cooked2,
    /// LINKTYPE_IEEE802_11.
    Wifi,
    /// LINKTYPE_IEEE802_11_RADIOTAP.
    Radiotap,
    /// LINKTYPE_PPP: protocol number behind optional HDLC framing.
    Ppp,
}

impl LinkType {
    /// From the number in a capture file's header.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            1 => Self::Ethernet,
            12 | 14 | 101 | 228 | 229 => Self::RawIp,
            0 | 108 => Self::Loopback,
            9 | 50 => Self::Ppp,
            113 => Self::Cooked,
            276 => Self::Cooked2,
            105 => Self::Wifi,
            127 => Self::Radiotap,
            _ => return None,
        })
    }
}

/// What a frame turned out to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    /// A packet, and what stands behind its network header (empty for a later fragment and for what is not IP).
    Traffic(&'a [u8]),
    /// 802.11 management or control, or a null frame: the radio's own upkeep, which the schedulers do not decide on.
    Upkeep,
    /// The same, and a station (with this address) associates.
    Joins(Mac),
    /// Too short for its link layer's header.
    Short,
}

/// Reads one frame of `kind` into `seen` (whose time and size the caller has set).
#[inline]
pub fn read<'a>(kind: LinkType, frame: &'a [u8], seen: &mut Seen) -> Frame<'a> {
    match kind {
        LinkType::Ethernet => ethernet(frame, seen),
        LinkType::RawIp => raw_ip(frame, seen),
        LinkType::Loopback => frame.get(4..).map_or(Frame::Short, |ip| raw_ip(ip, seen)),
        LinkType::Ppp => ppp(frame, seen),
        LinkType::Cooked => cooked(frame, seen),
        LinkType::Cooked2 => cooked2(frame, seen),
        LinkType::Wifi => wifi(frame, seen),
        LinkType::Radiotap => radiotap(frame, seen),
    }
}

#[inline]
fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[inline]
fn mac(bytes: &[u8], at: usize) -> Mac {
    bytes.get(at..).and_then(|b| b.first_chunk::<6>()).map_or(Mac::NONE, |b| Mac::from_bytes(*b))
}

#[inline]
fn ethernet<'a>(frame: &'a [u8], seen: &mut Seen) -> Frame<'a> {
    let Some((head, rest)) = frame.split_first_chunk::<14>() else { return Frame::Short };
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *head;
    seen.dst.mac = Mac::from_bytes([d0, d1, d2, d3, d4, d5]);
    seen.src.mac = Mac::from_bytes([s0, s1, s2, s3, s4, s5]);
    Frame::Traffic(ethertype(u16::from_be_bytes([t0, t1]), rest, seen))
}

/// Behind VLAN tags, 802.3 length fields and PPPoE.
#[inline]
fn ethertype<'a>(mut kind: u16, mut rest: &'a [u8], seen: &mut Seen) -> &'a [u8] {
    for _ in 0..4 {
        match kind {
            0x8100 | 0x88a8 | 0x9100 => {
                let (Some(inner), Some(behind)) = (be16(rest, 2), rest.get(4..)) else { return &[] };
                (kind, rest) = (inner, behind);
            }
            0..0x600 => {
                // 802.3: LLC, with SNAP carrying an ethertype.
                let (Some([0xaa, 0xaa, 3, ..]), Some(inner)) = (rest.first_chunk::<8>(), be16(rest, 6))
                else {
                    return &[];
                };
                (kind, rest) = (inner, rest.get(8..).unwrap_or_default());
            }
            0x8864 => {
                let (Some(protocol), Some(behind)) = (be16(rest, 6), rest.get(8..)) else { return &[] };
                (kind, rest) = (ppp_ethertype(protocol), behind);
            }
            _ => break,
        }
    }
    network(kind, rest, seen)
}

const fn ppp_ethertype(protocol: u16) -> u16 {
    match protocol {
        0x21 => 0x800,
        0x57 => 0x86dd,
        _ => 0x8864 + 1, // neither: stop here, keep a number that says PPP
    }
}

#[inline]
fn network<'a>(kind: u16, packet: &'a [u8], seen: &mut Seen) -> &'a [u8] {
    match kind {
        0x800 => return ipv4(packet, seen),
        0x86dd => return ipv6(packet, seen),
        0x806 => arp(packet, seen),
        other => seen.protocol = other,
    }
    &[]
}

#[inline]
fn raw_ip<'a>(packet: &'a [u8], seen: &mut Seen) -> Frame<'a> {
    match packet.first().map(|b| b >> 4) {
        Some(4) => Frame::Traffic(ipv4(packet, seen)),
        Some(6) => Frame::Traffic(ipv6(packet, seen)),
        Some(_) => Frame::Traffic(&[]),
        None => Frame::Short,
    }
}

#[inline]
fn ipv4<'a>(packet: &'a [u8], seen: &mut Seen) -> &'a [u8] {
    seen.protocol = 0x800;
    let Some(head) = packet.first_chunk::<20>() else { return &[] };
    seen.protocol = u16::from(head[9]);
    seen.src.ip = Addr::v4([head[12], head[13], head[14], head[15]]);
    seen.dst.ip = Addr::v4([head[16], head[17], head[18], head[19]]);
    let first_fragment = u16::from_be_bytes([head[6], head[7]]) & 0x1fff == 0;
    if !first_fragment {
        return &[];
    }
    let transport = packet.get(usize::from(head[0] & 15) * 4..).unwrap_or_default();
    ports(transport, seen);
    transport
}

/// Extension headers are walked up to this depth.
const MAX_EXTENSIONS: usize = 8;

fn ipv6<'a>(packet: &'a [u8], seen: &mut Seen) -> &'a [u8] {
    seen.protocol = 0x86dd;
    let Some((head, mut rest)) = packet.split_first_chunk::<40>() else { return &[] };
    let (mut from, mut to) = ([0; 16], [0; 16]);
    from.copy_from_slice(&head[8..24]);
    to.copy_from_slice(&head[24..40]);
    (seen.src.ip, seen.dst.ip) = (Addr::v6(from), Addr::v6(to));
    let mut next = head[6];
    for _ in 0..MAX_EXTENSIONS {
        let Some(extension) = rest.first_chunk::<8>() else { break };
        let length = match next {
            0 | 43 | 60 | 135 => 8 + usize::from(extension[1]) * 8,
            51 => 8 + usize::from(extension[1]) * 4,
            44 if u16::from_be_bytes([extension[2], extension[3]]) & 0xfff8 != 0 => {
                seen.protocol = u16::from(extension[0]); // a later fragment: no ports
                return &[];
            }
            44 => 8,
            _ => break,
        };
        next = extension[0];
        rest = rest.get(length..).unwrap_or_default();
    }
    seen.protocol = u16::from(next);
    ports(rest, seen);
    rest
}

#[inline]
fn ports(transport: &[u8], seen: &mut Seen) {
    // TCP, UDP, DCCP, SCTP, UDP-Lite
    if matches!(seen.protocol, 6 | 17 | 33 | 132 | 136)
        && let Some(&[s0, s1, d0, d1]) = transport.first_chunk::<4>()
    {
        seen.src_port = u16::from_be_bytes([s0, s1]);
        seen.dst_port = u16::from_be_bytes([d0, d1]);
    }
}

/// ARP for IPv4 over Ethernet (RFC 826): names the sender, which ties its address to its interface.
fn arp(packet: &[u8], seen: &mut Seen) {
    seen.protocol = 0x806;
    if let Some(p) = packet.first_chunk::<28>()
        && p[..6] == [0, 1, 8, 0, 6, 4]
    {
        seen.src.ip = Addr::v4([p[14], p[15], p[16], p[17]]);
        seen.dst.ip = Addr::v4([p[24], p[25], p[26], p[27]]);
    }
}

fn ppp<'a>(frame: &'a [u8], seen: &mut Seen) -> Frame<'a> {
    let frame = frame.strip_prefix(&[0xff, 3]).unwrap_or(frame);
    let Some(protocol) = be16(frame, 0) else { return Frame::Short };
    Frame::Traffic(network(ppp_ethertype(protocol), frame.get(2..).unwrap_or_default(), seen))
}

/// Linux cooked capture. The kernel says whether the packet was ours ("to us" 0, "sent by us" 4), so the end that is this
/// machine is known without an address.
fn cooked<'a>(frame: &'a [u8], seen: &mut Seen) -> Frame<'a> {
    let (Some(packet_type), Some(protocol)) = (be16(frame, 0), be16(frame, 14)) else { return Frame::Short };
    cooked_end(packet_type, mac(frame, 6), seen);
    Frame::Traffic(ethertype(protocol, frame.get(16..).unwrap_or_default(), seen))
}

fn cooked2<'a>(frame: &'a [u8], seen: &mut Seen) -> Frame<'a> {
    let (Some(protocol), Some(&packet_type)) = (be16(frame, 0), frame.get(10)) else { return Frame::Short };
    cooked_end(u16::from(packet_type), mac(frame, 12), seen);
    Frame::Traffic(ethertype(protocol, frame.get(20..).unwrap_or_default(), seen))
}

fn cooked_end(packet_type: u16, sender: Mac, seen: &mut Seen) {
    match packet_type {
        4 => seen.src.mac = Mac::THIS_MACHINE,
        0..=2 => {
            seen.src.mac = sender;
            seen.dst.mac = Mac::THIS_MACHINE;
        }
        _ => seen.src.mac = sender,
    }
}

fn radiotap<'a>(frame: &'a [u8], seen: &mut Seen) -> Frame<'a> {
    match frame.first_chunk::<4>() {
        Some(&[0, _, l0, l1]) => match frame.get(usize::from(u16::from_le_bytes([l0, l1]))..) {
            Some(rest) if !rest.is_empty() => wifi(rest, seen),
            _ => Frame::Short,
        },
        _ => Frame::Short,
    }
}

/// 802.11 data frames; addresses by the direction bits (IEEE 802.11, table "Address field contents").
fn wifi<'a>(frame: &'a [u8], seen: &mut Seen) -> Frame<'a> {
    let Some(&[control, flags]) = frame.first_chunk::<2>() else { return Frame::Short };
    let (kind, subtype) = (control >> 2 & 3, control >> 4);
    if kind == 0 && matches!(subtype, 0 | 2) && frame.len() >= 24 {
        return Frame::Joins(mac(frame, 10)); // (re)association request
    }
    if kind != 2 || subtype & 4 != 0 {
        return Frame::Upkeep; // management, control, or data without data
    }
    if frame.len() < 24 {
        return Frame::Short;
    }
    let (to_ds, from_ds) = (flags & 1 != 0, flags & 2 != 0);
    let (dst, src, mut header) = match (to_ds, from_ds) {
        (false, false) => (4, 10, 24),
        (true, false) => (16, 10, 24),
        (false, true) => (4, 16, 24),
        (true, true) => (16, 24, 30),
    };
    (seen.dst.mac, seen.src.mac) = (mac(frame, dst), mac(frame, src));
    seen.station = to_ds && !from_ds;
    let qos = subtype & 8 != 0;
    let aggregated = qos && frame.get(header).is_some_and(|c| c & 0x80 != 0);
    header += if qos { 2 } else { 0 };
    header += if qos && flags & 0x80 != 0 { 4 } else { 0 }; // HT control
    let protected = flags & 0x40 != 0;
    if protected || aggregated {
        return Frame::Traffic(&[]);
    }
    // LLC/SNAP, as behind an 802.3 length field
    Frame::Traffic(ethertype(0, frame.get(header..).unwrap_or_default(), seen))
}

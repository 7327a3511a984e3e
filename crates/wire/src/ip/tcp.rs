//! TCP (RFC 9293) as a tunnel sees it: the header's view, a builder for simulations and tests, and MSS clamping.
//!
//! Owns the TCP header. Must never follow a connection.

use core::net::SocketAddr;

use super::{Ipv4, Ipv6, Packet, checksum, protocol, udp};
use crate::{Error, Result};

/// Bytes of the header without options.
pub const MIN_HEADER: usize = 20;

/// The FIN bit.
pub const FIN: u8 = 0x01;
/// The SYN bit.
pub const SYN: u8 = 0x02;
/// The RST bit.
pub const RST: u8 = 0x04;
/// The PSH bit.
pub const PSH: u8 = 0x08;
/// The ACK bit.
pub const ACK: u8 = 0x10;

/// Where the window, and then the checksum, lie in the header.
const WINDOW_AT: usize = 14;
/// See above.
const CHECKSUM_AT: usize = 16;
/// Option kinds.
const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const MAXIMUM_SEGMENT_SIZE: u8 = 2;
const TIMESTAMPS: u8 = 8;
/// Option kind: the MD5 signature of a segment (RFC 2385).
pub const MD5_SIGNATURE: u8 = 19;
/// Option kind: the authentication option (RFC 5925).
pub const AUTHENTICATION: u8 = 29;

/// A received TCP segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tcp<'a> {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number of the first byte.
    pub sequence: u32,
    /// Acknowledgement number; means something with [`ACK`].
    pub acknowledgement: u32,
    /// FIN, SYN, RST, PSH, ACK, URG, ECE and CWR, from bit 0 up.
    pub flags: u8,
    /// Window, not scaled.
    pub window: u16,
    /// Options, padding included.
    pub options: &'a [u8],
    /// The data.
    pub payload: &'a [u8],
}

impl<'a> Tcp<'a> {
    /// Reads the TCP header of a whole packet or first fragment. The checksum is not verified.
    ///
    /// # Errors
    /// [`Error::Value`] for another protocol; [`Error::Truncated`] or [`Error::Length`] for a malformed header.
    pub fn parse(packet: &Packet<'a>) -> Result<Self> {
        Self::check_protocol(packet)?;
        let header = header_len(packet.payload())?;
        Self::of(packet.payload(), header)
    }

    /// As [`Self::parse`], of a packet that may be cut short behind the first 20 bytes of the header ([`Packet::parse_header`]): of options and
    /// data, there is what is there. With the bytes of data that the whole packet has.
    ///
    /// # Errors
    /// As [`Self::parse`], for these 20 bytes.
    pub fn parse_header(packet: &Packet<'a>) -> Result<(Self, usize)> {
        Self::check_protocol(packet)?;
        let bytes = packet.payload();
        let header = stated_header_len(bytes)?;
        let (got, expect) = (packet.total_len(), packet.payload_offset() + header);
        let data = got.checked_sub(expect).ok_or(Error::Length { what: "TCP packet", got, expect })?;
        Ok((Self::of(bytes, header)?, data))
    }

    fn check_protocol(packet: &Packet<'_>) -> Result<()> {
        if packet.protocol() == protocol::TCP && packet.has_upper_header() {
            return Ok(());
        }
        let got = packet.protocol().into();
        Err(Error::Value { what: "protocol of a TCP packet", got, expect: "6" })
    }

    fn of(bytes: &'a [u8], header: usize) -> Result<Self> {
        let &[s0, s1, d0, d1, q0, q1, q2, q3, a0, a1, a2, a3, _, flags, w0, w1, ..] = bytes else {
            return Err(Error::Truncated { what: "TCP header", need: MIN_HEADER, have: bytes.len() });
        };
        let header = header.min(bytes.len());
        Ok(Self {
            src_port: u16::from_be_bytes([s0, s1]),
            dst_port: u16::from_be_bytes([d0, d1]),
            sequence: u32::from_be_bytes([q0, q1, q2, q3]),
            acknowledgement: u32::from_be_bytes([a0, a1, a2, a3]),
            flags,
            window: u16::from_be_bytes([w0, w1]),
            options: bytes.get(MIN_HEADER..header).unwrap_or_default(),
            payload: bytes.get(header..).unwrap_or_default(),
        })
    }
}

impl<'a> Tcp<'a> {
    /// The data of the first option of `kind`.
    #[must_use]
    pub fn option(&self, kind: u8) -> Option<&'a [u8]> {
        let mut rest = self.options;
        loop {
            rest = match rest {
                [NO_OPERATION, rest @ ..] => rest,
                [END, ..] | [] | [_] => return None,
                [found, len, ..] => {
                    let data = rest.get(2..usize::from(*len))?;
                    if *found == kind {
                        return Some(data);
                    }
                    rest.get(usize::from(*len)..)?
                }
            }
        }
    }

    /// The timestamps option (RFC 7323): the sender's clock, and the echo of the receiver's.
    #[must_use]
    pub fn timestamps(&self) -> Option<(u32, u32)> {
        let (value, echo) = self.option(TIMESTAMPS)?.split_first_chunk::<4>()?;
        Some((u32::from_be_bytes(*value), u32::from_be_bytes(*echo.first_chunk()?)))
    }

    /// Sequence numbers that the segment takes: its data, one for SYN and one for FIN.
    #[must_use]
    pub fn sequence_len(&self) -> u32 {
        let flags = u32::from(self.flags & SYN != 0) + u32::from(self.flags & FIN != 0);
        // A packet has 65,535 bytes at most.
        u32::try_from(self.payload.len()).unwrap_or(u32::MAX).saturating_add(flags)
    }
}

/// The options of a segment that carries nothing but timestamps: the sender's clock, and the echo of the receiver's.
#[must_use]
pub fn timestamps_option(value: u32, echo: u32) -> [u8; 12] {
    let ([v0, v1, v2, v3], [e0, e1, e2, e3]) = (value.to_be_bytes(), echo.to_be_bytes());
    [NO_OPERATION, NO_OPERATION, TIMESTAMPS, 10, v0, v1, v2, v3, e0, e1, e2, e3]
}

/// Bytes of the header of a segment, from its data offset, checked against the bytes that are there.
pub(super) fn header_len(segment: &[u8]) -> Result<usize> {
    let (header, have) = (stated_header_len(segment)?, segment.len());
    if header > have {
        return Err(Error::Truncated { what: "TCP header", need: header, have });
    }
    Ok(header)
}

/// The same, however many are there.
fn stated_header_len(segment: &[u8]) -> Result<usize> {
    let truncated = Error::Truncated { what: "TCP header", need: MIN_HEADER, have: segment.len() };
    let header = usize::from(segment.get(12).ok_or(truncated)? >> 4) * 4;
    if header < MIN_HEADER {
        return Err(Error::Length { what: "TCP header", got: header, expect: MIN_HEADER });
    }
    Ok(header)
}

/// Where the value of the MSS option lies within `options`.
pub(crate) fn find_mss(options: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match options.get(at..)? {
            [NO_OPERATION, ..] => at += 1,
            [MAXIMUM_SEGMENT_SIZE, 4, _, _, ..] => return Some(at + 2),
            [END, ..] | [] | [_] => return None,
            // A length below 2 cannot cover the option's own first bytes.
            [_, len, ..] if *len < 2 => return None,
            [_, len, ..] => at += usize::from(*len),
        }
    }
}

/// Lowers the maximum segment size that a SYN announces to `mss_v4` or `mss_v6` bytes, by the packet's family, and updates
/// the checksum. Returns whether the packet was changed; anything but a SYN with a higher value is left as it is.
///
/// A tunnel does this so that TCP fits without fragmentation even where "packet too big" messages are lost.
pub fn clamp_mss(packet: &mut [u8], mss_v4: u16, mss_v6: u16) -> bool {
    if is_no_syn(packet) {
        return false;
    }
    let Ok(view) = Packet::parse(packet) else { return false };
    if view.protocol() != protocol::TCP || !view.has_upper_header() {
        return false;
    }
    let limit = if matches!(view, Packet::V4(_)) { mss_v4 } else { mss_v6 };
    let segment = view.payload_offset()..view.as_bytes().len();
    packet.get_mut(segment).is_some_and(|segment| clamp_segment(segment, limit))
}

/// Sets the window that a segment announces, not scaled, and updates the checksum. The packet may be cut short behind its headers. Returns
/// whether it has a TCP header.
pub fn set_window(packet: &mut [u8], window: u16) -> bool {
    let Ok(view) = Packet::parse_header(packet) else { return false };
    if view.protocol() != protocol::TCP || !view.has_upper_header() {
        return false;
    }
    let at = view.payload_offset();
    let Some([w0, w1, c0, c1]) = packet.get_mut(at + WINDOW_AT..).and_then(|b| b.first_chunk_mut()) else {
        return false;
    };
    let new = window.to_be_bytes();
    let checksum = checksum::update(u16::from_be_bytes([*c0, *c1]), &[*w0, *w1], &new);
    ([*w0, *w1], [*c0, *c1]) = (new, checksum.to_be_bytes());
    true
}

/// Whether a look at three bytes shows that it is no SYN: nearly every packet of bulk traffic.
fn is_no_syn(packet: &[u8]) -> bool {
    let flags = match packet {
        [0x45, _, _, _, _, _, _, _, _, protocol::TCP, ..] => packet.get(Ipv4::MIN_HEADER + 13),
        [first, _, _, _, _, _, protocol::TCP, ..] if first >> 4 == 6 => packet.get(Ipv6::HEADER + 13),
        _ => None,
    };
    flags.is_some_and(|flags| flags & SYN == 0)
}

fn clamp_segment(segment: &mut [u8], limit: u16) -> bool {
    if segment.get(13).is_none_or(|flags| flags & SYN == 0) {
        return false;
    }
    let Some(at) = header_len(segment)
        .ok()
        .and_then(|header| segment.get(MIN_HEADER..header))
        .and_then(find_mss)
        .map(|at| at + MIN_HEADER)
    else {
        return false;
    };
    // The value may begin at an odd offset: the checksum is updated over the aligned words around it.
    let from = at & !1;
    let words = from..from + if at == from { 2 } else { 4 };
    let mut old = [0; 4];
    let (Some(value), Some(around), Some(old)) = (
        segment.get(at..at + 2).and_then(|b| b.first_chunk::<2>()).copied(),
        segment.get(words.clone()),
        old.get_mut(..words.len()),
    ) else {
        return false;
    };
    if u16::from_be_bytes(value) <= limit {
        return false;
    }
    old.copy_from_slice(around);
    if let Some(field) = segment.get_mut(at..at + 2) {
        field.copy_from_slice(&limit.to_be_bytes());
    }
    let checksum = segment.get(CHECKSUM_AT..).and_then(|b| b.first_chunk::<2>()).copied().unwrap_or_default();
    let new = segment.get(words).unwrap_or_default();
    let checksum = checksum::update(u16::from_be_bytes(checksum), old, new);
    if let Some(field) = segment.get_mut(CHECKSUM_AT..CHECKSUM_AT + 2) {
        field.copy_from_slice(&checksum.to_be_bytes());
    }
    true
}

/// The header of a segment to be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment<'a> {
    /// Source address and port.
    pub src: SocketAddr,
    /// Destination address and port.
    pub dst: SocketAddr,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgement: u32,
    /// Flags, as in [`Tcp::flags`].
    pub flags: u8,
    /// Window.
    pub window: u16,
    /// Options, padded to a multiple of 4 bytes, at most 40.
    pub options: &'a [u8],
}

impl Segment<'_> {
    /// Appends a whole IP packet holding this segment with `payload`, checksums included.
    ///
    /// # Errors
    /// [`Error::Length`] for options that are not a multiple of 4 bytes or above 40, [`Error::Value`] if the addresses are of
    /// two families, [`Error::TooLong`] above 64 KiB; `out` is as it was then.
    pub fn build(&self, payload: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let options = self.options.len();
        if options > 40 || !options.is_multiple_of(4) {
            let expect = options.next_multiple_of(4).min(40);
            return Err(Error::Length { what: "TCP options", got: options, expect });
        }
        let len = (MIN_HEADER + options).saturating_add(payload.len());
        udp::ip_header(self.src.ip(), self.dst.ip(), protocol::TCP, len, out)?;
        let words = ((MIN_HEADER + options) / 4) as u8;
        let [s0, s1] = self.src.port().to_be_bytes();
        let [d0, d1] = self.dst.port().to_be_bytes();
        let [q0, q1, q2, q3] = self.sequence.to_be_bytes();
        let [a0, a1, a2, a3] = self.acknowledgement.to_be_bytes();
        let [w0, w1] = self.window.to_be_bytes();
        let (offset, flags) = (words << 4, self.flags);
        let mut header = [s0, s1, d0, d1, q0, q1, q2, q3, a0, a1, a2, a3, offset, flags, w0, w1, 0, 0, 0, 0];
        let sum = checksum::pseudo_header(self.src.ip(), self.dst.ip(), protocol::TCP, len)
            .add_bytes(&header)
            .add_bytes(self.options)
            .add_bytes(payload)
            .finish();
        let [c0, c1] = sum.to_be_bytes();
        [header[CHECKSUM_AT], header[CHECKSUM_AT + 1]] = [c0, c1];
        out.extend_from_slice(&header);
        out.extend_from_slice(self.options);
        out.extend_from_slice(payload);
        Ok(())
    }
}

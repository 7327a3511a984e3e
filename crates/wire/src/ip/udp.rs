//! UDP (RFC 768): building whole packets, for simulations and tests, and reading received ones.
//!
//! Owns the UDP header. Must never open a socket.

use core::net::{IpAddr, SocketAddr};

use super::{Ipv4Header, Ipv6Header, Packet, checksum, protocol};
use crate::{Error, Result};

/// Bytes of the UDP header.
pub const HEADER_LEN: usize = 8;

/// A received UDP datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Udp<'a> {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// The data.
    pub payload: &'a [u8],
}

impl<'a> Udp<'a> {
    /// Reads the UDP header of a whole packet or first fragment, and verifies the checksum of a whole one unless the sender
    /// left it out.
    ///
    /// # Errors
    /// [`Error::Value`] for another protocol or a wrong checksum; [`Error::Truncated`] or [`Error::Length`] for the rest.
    pub fn parse(packet: &Packet<'a>) -> Result<Self> {
        if packet.protocol() != protocol::UDP || !packet.has_upper_header() {
            let got = packet.protocol().into();
            return Err(Error::Value { what: "protocol of a UDP packet", got, expect: "17" });
        }
        let bytes = packet.payload();
        let &[s0, s1, d0, d1, l0, l1, c0, c1, ..] = bytes else {
            return Err(Error::Truncated { what: "UDP header", need: HEADER_LEN, have: bytes.len() });
        };
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        if length < HEADER_LEN {
            return Err(Error::Length { what: "UDP datagram", got: length, expect: HEADER_LEN });
        }
        let whole = packet.fragment().is_none();
        let datagram = match bytes.get(..length) {
            Some(datagram) => datagram,
            None if !whole => bytes,
            None => return Err(Error::Truncated { what: "UDP datagram", need: length, have: bytes.len() }),
        };
        if whole && [c0, c1] != [0, 0] && packet.pseudo_header(length).add_bytes(datagram).finish() != 0 {
            let got = u16::from_be_bytes([c0, c1]).into();
            return Err(Error::Value { what: "UDP checksum", got, expect: "the sum of the datagram" });
        }
        Ok(Self {
            src_port: u16::from_be_bytes([s0, s1]),
            dst_port: u16::from_be_bytes([d0, d1]),
            payload: datagram.get(HEADER_LEN..).unwrap_or_default(),
        })
    }
}

/// Appends a whole IP packet holding one UDP datagram, checksums included.
///
/// # Errors
/// [`Error::Value`] if the addresses are of two families, [`Error::TooLong`] above 64 KiB; `out` is as it was then.
pub fn build(src: SocketAddr, dst: SocketAddr, payload: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let got = payload.len().saturating_add(HEADER_LEN);
    let len = u16::try_from(got).map_err(|_| Error::TooLong { what: "UDP datagram", got, limit: 0xffff })?;
    ip_header(src.ip(), dst.ip(), protocol::UDP, got, out)?;
    let [s0, s1] = src.port().to_be_bytes();
    let [d0, d1] = dst.port().to_be_bytes();
    let [l0, l1] = len.to_be_bytes();
    let header = [s0, s1, d0, d1, l0, l1, 0, 0];
    let sum = checksum::pseudo_header(src.ip(), dst.ip(), protocol::UDP, got)
        .add_bytes(&header)
        .add_bytes(payload)
        .finish();
    // A computed checksum of 0 is sent as all ones, because 0 means that there is none.
    let [c0, c1] = if sum == 0 { [0xff, 0xff] } else { sum.to_be_bytes() };
    out.extend_from_slice(&[s0, s1, d0, d1, l0, l1, c0, c1]);
    out.extend_from_slice(payload);
    Ok(())
}

/// Appends an IP header of the addresses' family for `payload_len` bytes of `protocol`.
pub(super) fn ip_header(
    src: IpAddr,
    dst: IpAddr,
    protocol: u8,
    payload_len: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            out.extend_from_slice(&Ipv4Header::new(src, dst, protocol).to_bytes(payload_len)?);
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            out.extend_from_slice(&Ipv6Header::new(src, dst, protocol).to_bytes(payload_len)?);
        }
        (_, dst) => {
            return Err(Error::Value {
                what: "address family of the destination",
                got: if dst.is_ipv4() { 4 } else { 6 },
                expect: "that of the source",
            });
        }
    }
    Ok(())
}

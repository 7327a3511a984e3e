//! Segments between one fixed host and one device.

#![allow(dead_code, clippy::allow_attributes, reason = "each test uses some of it")]

use core::net::SocketAddr;
use core::time::Duration;

use dormouse_sansio::Instant;
use dormouse_wire::ip::tcp::{ACK, Segment, timestamps_option};

/// Which addresses the two have.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) fn fixed(self) -> SocketAddr {
        match self {
            Self::V4 => ([203, 0, 113, 1], 80).into(),
            Self::V6 => ([0x2001, 0xdb8, 3, 0, 0, 0, 0, 1], 80).into(),
        }
    }

    pub(crate) fn device(self, port: u16) -> SocketAddr {
        match self {
            Self::V4 => ([10, 1, 0, 2], port).into(),
            Self::V6 => ([0xfd0a, 0, 0, 0, 0, 0, 0, 2], port).into(),
        }
    }
}

/// A packet with everything but the obvious default.
pub(crate) fn packet(
    src: SocketAddr,
    dst: SocketAddr,
    edit: impl FnOnce(&mut Segment<'_>),
    payload: &[u8],
) -> Vec<u8> {
    let mut segment =
        Segment { src, dst, sequence: 0, acknowledgement: 0, flags: ACK, window: 1_000, options: &[] };
    edit(&mut segment);
    let mut out = Vec::new();
    segment.build(payload, &mut out).expect("a packet");
    out
}

/// Data of the fixed host's, from `sequence` on.
pub(crate) fn data(sequence: u32, len: usize) -> Vec<u8> {
    let (src, dst) = (Family::V4.fixed(), Family::V4.device(5_000));
    let payload: Vec<u8> = (0..len).map(|i| (sequence as usize + i) as u8).collect();
    packet(src, dst, |s| s.sequence = sequence, &payload)
}

/// The same with timestamps: `clock` is the fixed host's.
pub(crate) fn stamped(sequence: u32, len: usize, clock: u32) -> Vec<u8> {
    let options = timestamps_option(clock, 1);
    let (src, dst) = (Family::V4.fixed(), Family::V4.device(5_000));
    let payload: Vec<u8> = (0..len).map(|i| (sequence as usize + i) as u8).collect();
    let segment =
        Segment { src, dst, sequence, acknowledgement: 0, flags: ACK, window: 1_000, options: &options };
    let mut out = Vec::new();
    segment.build(&payload, &mut out).expect("a packet");
    out
}

/// The device's acknowledgement, with selective blocks.
pub(crate) fn ack(acknowledgement: u32, blocks: &[(u32, u32)]) -> Vec<u8> {
    answer(acknowledgement, None, blocks)
}

/// The same, with timestamps: the device's clock, and the fixed host's that it echoes.
pub(crate) fn stamped_ack(acknowledgement: u32, clocks: (u32, u32), blocks: &[(u32, u32)]) -> Vec<u8> {
    answer(acknowledgement, Some(clocks), blocks)
}

fn answer(acknowledgement: u32, clocks: Option<(u32, u32)>, blocks: &[(u32, u32)]) -> Vec<u8> {
    let mut options = clocks.map_or(Vec::new(), |(own, echo)| timestamps_option(own, echo).to_vec());
    if !blocks.is_empty() {
        options.extend([1, 1, 5, 2 + 8 * blocks.len() as u8]);
        for (first, end) in blocks {
            options.extend(first.to_be_bytes());
            options.extend(end.to_be_bytes());
        }
    }
    let (src, dst) = (Family::V4.device(5_000), Family::V4.fixed());
    let mut segment =
        Segment { src, dst, sequence: 1, acknowledgement, flags: ACK, window: 1_000, options: &[] };
    segment.options = &options;
    let mut out = Vec::new();
    segment.build(&[], &mut out).expect("a packet");
    out
}

pub(crate) fn ms(n: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(n)
}

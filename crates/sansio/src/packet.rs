//! Packets of the inner side on their way through a node, as the data path hands them over. Owns the shapes only: what is decided
//! about a packet, where it lies in a buffer, and where it goes.

use core::ops::Range;

use crate::path::Path;

/// A packet of the inner side, or several of one flow in one piece, which segmentation cuts later.
pub trait InnerPacket {
    /// The packet. The lengths and checksums of one that is several are not final; those of a single one are.
    fn bytes(&self) -> &[u8];

    /// The packet, to change what its headers say: the MSS option of a SYN, which is always a single packet.
    fn bytes_mut(&mut self) -> &mut [u8];

    /// How many packets it is.
    fn packets(&self) -> usize;

    /// Length of each packet but the last, in bytes.
    fn packet_len(&self) -> usize;

    /// Whether it can be cut into packets of at most `len` bytes. If not, the sender must be told.
    fn fits(&self, len: usize) -> bool;

    /// Packet `index` as a whole, its lengths and checksums final, in place of what `out` holds. False if the headers contradict
    /// each other.
    fn piece(&self, index: usize, out: &mut Vec<u8>) -> bool;
}

/// One packet, which is never cut.
impl InnerPacket for [u8] {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }

    fn packets(&self) -> usize {
        1
    }

    fn packet_len(&self) -> usize {
        self.len()
    }

    fn fits(&self, len: usize) -> bool {
        self.len() <= len
    }

    fn piece(&self, _index: usize, out: &mut Vec<u8>) -> bool {
        out.clear();
        out.extend_from_slice(self);
        true
    }
}

/// What becomes of a packet of the inner side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Plan {
    /// Nothing.
    Drop,
    /// This IP packet goes back to the inner side instead (ICMP "fragmentation needed" and its like).
    Answer(Vec<u8>),
    /// It is sealed.
    Seal(Geometry),
}

/// How packets lie in the buffer that is sealed and sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// The SA, by the SPI of what we receive; packets of equal geometry share a batch.
    pub route: u32,
    /// Bytes left before each packet for the ESP header and IV.
    pub head: usize,
    /// Bytes of each packet left off at its start: nothing, or its IP header in transport and BEET mode.
    pub strip: usize,
    /// The longest inner packet, in bytes, before anything is left off: TCP is cut to it where the kernel's cut was larger.
    pub max_inner: usize,
    /// Length, in bytes, of the datagram that a packet of [`Geometry::packet_len`] becomes: the distance between packets.
    pub stride: usize,
    /// Length of each packet but the last, in bytes, with nothing left off: the smaller of `max_inner` and
    /// [`InnerPacket::packet_len`].
    pub packet_len: usize,
    /// Next header of ESP: 4, 41, the protocol, or 94.
    pub next_header: u8,
    /// The ECN bits of the outer header.
    pub ecn: u8,
}

/// A sealed batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sealed {
    /// Bytes to send from the start of the slots.
    pub len: usize,
    /// Where to.
    pub path: Path,
}

/// What is known of a datagram that came in; the same for all datagrams of a train.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Where it came from and to; the carrier is the socket's.
    pub path: Path,
    /// The ECN bits of the outer header.
    pub ecn: u8,
}

/// What becomes of a datagram that came in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Nothing more.
    Done,
    /// An IP packet is now in this range of it: to the inner side.
    Deliver(Range<usize>),
    /// An IP packet's payload is now in this range, and its header is given: to the inner side (transport and BEET mode).
    DeliverBehind([u8; 60], usize, Range<usize>),
}

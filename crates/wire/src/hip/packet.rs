//! A packet as a whole. Owns the rule of order and the bytes that MACs and signatures cover; must never compute one.

use super::header::{
    CHECKSUM_AT, HEADER_LEN, Header, LENGTH_AT, RECEIVER_AT, Version, checksum_is_right, put, set_checksum,
};
use super::kind::{PacketType, ParamType};
use super::limits::MAX_PACKET;
use super::param::Param;
use crate::codec::{Counts, Reader, Writer};
use crate::{Error, Result};
use core::net::IpAddr;

/// Where the opaque bytes and the random number of a PUZZLE begin, from the start of the parameter.
const PUZZLE_OPAQUE: usize = 6;

/// A parameter as it stands in a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawParam<'a> {
    /// Its type.
    pub kind: ParamType,
    /// Where it begins in the packet, or in the bytes that were parsed.
    pub at: usize,
    /// Its contents, without padding.
    pub contents: &'a [u8],
}

impl RawParam<'_> {
    /// Reads the contents.
    ///
    /// # Errors
    /// As the contents are malformed.
    pub fn read(&self, version: Version) -> Result<Param> {
        Param::parse(self.kind, version, self.contents)
    }
}

/// A packet whose header, lengths and order of parameters were checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// The header.
    pub header: Header,
    bytes: &'a [u8],
    params: Vec<RawParam<'a>>,
}

/// Bytes of padding after a parameter with contents of this length: "Total Length = 11 + Length - (Length + 3) % 8" (RFC 7401
/// section 5.2.1).
const fn padding(len: usize) -> usize {
    7 - (len + 3) % 8
}

/// Reads parameters one behind the other, as in the body of a packet or inside ENCRYPTED.
/// "[...] and their values SHOULD NOT be checked by the receiver." (RFC 7401 section 5.2.1)
///
/// # Errors
/// If one is cut short, or they are not in ascending order.
/// "If the order does not follow this rule, the packet is considered to be malformed and it MUST be discarded." (RFC 7401 section
/// 5.2.1)
pub fn parse_params(bytes: &[u8], from: usize) -> Result<Vec<RawParam<'_>>> {
    let mut r = Reader::new("HIP parameters", bytes);
    r.take(from)?;
    let mut params = Vec::new();
    let mut last = 0;
    while !r.is_empty() {
        let at = r.position();
        let (kind, len) = (r.u16()?, usize::from(r.u16()?));
        let contents = r.take(len)?;
        r.take(padding(len))?;
        if kind < last {
            let (what, got) = ("HIP parameter type", kind.into());
            return Err(Error::Value { what, got, expect: "one that is not below the type before it" });
        }
        last = kind;
        params.push(RawParam { kind: kind.into(), at, contents });
    }
    Ok(params)
}

impl<'a> Packet<'a> {
    /// Checks the structure of a packet: version, length, parameters within it and in order.
    ///
    /// # Errors
    /// The first field that contradicts the format. The checksum is not looked at: [`Self::checksum_is_right`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let (header, len) = Header::parse(bytes)?;
        let bytes = bytes.get(..len).unwrap_or(bytes);
        let params = parse_params(bytes, HEADER_LEN)?;
        Ok(Self { header, bytes, params })
    }

    /// Its bytes, without what follows it.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether the checksum is that of a packet between these addresses.
    #[must_use]
    pub fn checksum_is_right(&self, src: IpAddr, dst: IpAddr) -> bool {
        checksum_is_right(self.bytes, src, dst)
    }

    /// All parameters, in their order.
    #[must_use]
    pub fn params(&self) -> &[RawParam<'a>] {
        &self.params
    }

    /// The first parameter of a type.
    #[must_use]
    pub fn find(&self, kind: ParamType) -> Option<RawParam<'a>> {
        self.params.iter().copied().find(|p| p.kind == kind)
    }

    /// The first parameter of a type, read; `None` if it is not there or malformed.
    #[must_use]
    pub fn read(&self, kind: ParamType) -> Option<Param> {
        self.find(kind)?.read(self.header.version).ok()
    }

    /// The first parameter that is critical and not known here.
    /// "If a recipient encounters a non-critical parameter that it does not recognize, it SHOULD proceed as if the parameter was not
    /// present in the received packet." (RFC 7401 section 5.2.1)
    /// "If a recipient encounters a critical parameter that it does not recognize, it MUST NOT process the packet any further."
    /// (RFC 7401 section 5.2.1)
    #[must_use]
    pub fn unsupported_critical(&self) -> Option<ParamType> {
        self.params.iter().map(|p| p.kind).find(|kind| kind.is_critical() && kind.label().is_none())
    }

    /// What a MAC or a signature of this type covers: the header with a checksum of 0 and a length that ends before the parameter,
    /// and all parameters of lower types (RFC 7401 sections 6.4.1 and 6.4.2). For HIP_SIGNATURE_2 of an R1 the receiver's HIT and
    /// the opaque and random bytes of PUZZLE are zero. `appended` is a whole parameter that counts as if it stood at the end
    /// (HIP_MAC_2). `None` if the packet has no parameter of this type.
    #[must_use]
    pub fn covered_by(&self, kind: ParamType, appended: &[u8]) -> Option<Vec<u8>> {
        let end = self.find(kind)?.at;
        let mut covered = [self.bytes.get(..end)?, appended].concat();
        finish_header(&mut covered)?;
        if kind == ParamType::HipSignature2 && self.header.kind == PacketType::R1 {
            clear_for_signature_2(&mut covered, &self.params);
        }
        Some(covered)
    }
}

/// Sets the length of a packet, and its checksum to 0.
/// "The Checksum field MUST be set to zero, and the HIP header length in the HIP common header MUST be calculated not to cover any excluded
/// parameters when the HMAC is calculated." (RFC 7401 section 5.2.12)
/// "[...] the Checksum field MUST be set to zero, and the HIP header length in the HIP common header MUST be calculated only up to the
/// beginning of the HIP_SIGNATURE parameter." (RFC 7401 section 5.2.14)
/// "Further, the HIP packet length in the HIP header MUST be adjusted as if the HIP_SIGNATURE_2 was not in the packet during the signature
/// calculation" (RFC 7401 section 5.2.15)
fn finish_header(packet: &mut [u8]) -> Option<()> {
    let units = u8::try_from(packet.len().checked_sub(8)? / 8).ok()?;
    put(packet, LENGTH_AT, &[units]);
    put(packet, CHECKSUM_AT, &[0, 0]);
    Some(())
}

/// "Within the R1 packet that contains the HIP_SIGNATURE_2 parameter, the Initiator's HIT, the Checksum field, and the Opaque and
/// Random #I fields in the PUZZLE parameter MUST be set to zero while computing the HIP_SIGNATURE_2 signature." (RFC 7401 section
/// 5.2.15)
fn clear_for_signature_2(packet: &mut [u8], params: &[RawParam<'_>]) {
    put(packet, RECEIVER_AT, &[0; 16]);
    for puzzle in params.iter().filter(|p| p.kind == ParamType::Puzzle) {
        let end = puzzle.at + 4 + puzzle.contents.len();
        if let Some(field) = packet.get_mut(puzzle.at + PUZZLE_OPAQUE..end) {
            field.fill(0);
        }
    }
}

/// A packet that is being written. Its parameters must come in ascending order.
/// "The parameters MUST be included in the packet so that their types form an increasing order." (RFC 7401 section 5.2.1)
/// "If multiple parameters with the same type number are in one packet, the parameters with the same type MUST be consecutive in the
/// packet." (RFC 7401 section 5.2.1)
#[derive(Clone, Debug)]
pub struct Draft {
    version: Version,
    bytes: Vec<u8>,
    last: u16,
    failed: Option<Error>,
}

impl Draft {
    /// Begins a packet.
    #[must_use]
    pub fn new(header: &Header) -> Self {
        let mut bytes = Vec::with_capacity(512);
        header.write(&mut Writer::new(&mut bytes));
        Self { version: header.version, bytes, last: 0, failed: None }
    }

    /// Begins a list of parameters without a packet: what ENCRYPTED holds.
    #[must_use]
    pub const fn bare(version: Version) -> Self {
        Self { version, bytes: Vec::new(), last: 0, failed: None }
    }

    /// Adds a parameter.
    pub fn add(&mut self, param: &Param) {
        let kind = param.kind().code();
        if kind < self.last {
            let (what, got) = ("HIP parameter type", kind.into());
            let expect = "one that is not below the type before it";
            self.failed.get_or_insert(Error::Value { what, got, expect });
        }
        self.last = kind;
        let mut w = Writer::new(&mut self.bytes);
        w.u16(kind);
        let mut contents = w.length_u16("HIP parameter", Counts::After);
        param.write(self.version, &mut contents);
        let len = contents.position() - 4;
        drop(contents);
        // "Any added padding bytes MUST be zeroed by the sender" (RFC 7401 section 5.2.1)
        // "When needed, padding MUST be added to the end of the parameter so that the total length is a multiple of 8 bytes." (RFC 7401
        // section 5.2.1)
        w.zeros(padding(len));
        if let Err(error) = w.finish() {
            self.failed.get_or_insert(error);
        }
    }

    /// What a MAC or a signature that is added next covers; as [`Packet::covered_by`], but for HIP_SIGNATURE_2, where the caller
    /// leaves the fields zero that it does not cover.
    pub fn covered(&mut self, appended: &[u8]) -> Vec<u8> {
        let mut covered = [self.bytes.as_slice(), appended].concat();
        if finish_header(&mut covered).is_none() {
            self.too_long();
        }
        covered
    }

    fn too_long(&mut self) {
        let (what, got, limit) = ("HIP packet", self.bytes.len(), MAX_PACKET);
        self.failed.get_or_insert(Error::TooLong { what, got, limit });
    }

    /// The parameters of [`Self::bare`].
    ///
    /// # Errors
    /// If a parameter came out of order or cannot be expressed.
    pub fn params(self) -> Result<Vec<u8>> {
        self.failed.map_or(Ok(self.bytes), Err)
    }

    /// Ends the packet, with its length and a checksum of 0: [`set_checksum`] follows when its addresses are known.
    ///
    /// # Errors
    /// If a parameter came out of order or cannot be expressed, or the packet is too long.
    pub fn finish(mut self) -> Result<Vec<u8>> {
        if self.bytes.len() > MAX_PACKET || finish_header(&mut self.bytes).is_none() {
            self.too_long();
        }
        set_checksum(&mut self.bytes, None);
        self.failed.map_or(Ok(self.bytes), Err)
    }
}

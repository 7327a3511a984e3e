//! Formats of the key management of multi-layered IPsec (`docs/wire/mlike.md`): the vendor id that opens it, its two payloads and the
//! data of its notifications. Owns bytes and bounds; must never decide who may have which key.
//!
//! The payloads are of private types, which mean this between ends that have both sent the vendor id, and nothing before: the parser of
//! messages leaves them as [`Payload::Unknown`], and the key manager reads them here. Every parser ignores bytes after the fields that it
//! knows, so that a later version can add some.

use core::net::{IpAddr, Ipv6Addr};

use super::{Id, IdType, Payload, PayloadType};
use crate::codec::Reader;
use crate::{Error, Result};

/// The first 16 bytes of SHA-256("Dormouse MML-IPsec extension"). One byte with the version follows.
pub const VENDOR_ID: [u8; 16] =
    [0xed, 0x4e, 0x51, 0xdf, 0x97, 0xeb, 0xe2, 0x2a, 0x28, 0x1c, 0x40, 0xe6, 0x6f, 0xce, 0xf0, 0xe4];
/// The version that this file describes.
pub const VERSION: u8 = 1;
/// Most ends of zones in a map: one less than there can be zones.
pub const ENDS_MAX: usize = 7;
/// Most neighbours that a router tells.
pub const NEIGHBOURS_MAX: usize = 16;
/// Most names of keys in one KEY_REVOKE.
pub const NAMES_MAX: usize = 64;
/// Longest keying material of one zone and direction, in bytes.
pub const KEYMAT_MAX: usize = 64;

/// The vendor id payload that says "version [`VERSION`] and every one before it". In an IKE_AUTH request it ends with the map that is wanted
/// for the first CHILD SA: no private payload may stand there yet.
#[must_use]
pub fn vendor_id(map: Option<&Map>) -> Payload {
    let mut data = VENDOR_ID.to_vec();
    data.push(VERSION);
    data.extend(map.into_iter().flat_map(Map::emit));
    Payload::VendorId(data)
}

/// What a vendor id payload of this extension says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// The version that both ends speak: the lower of the two.
    pub version: u8,
    /// The bytes behind it: a map, or none.
    pub rest: Vec<u8>,
}

/// The vendor id among these payloads, if the peer sent it.
#[must_use]
pub fn opened(payloads: &[Payload]) -> Option<Opened> {
    payloads.iter().find_map(|payload| match payload {
        Payload::VendorId(data) => {
            let (head, rest) = data.split_first_chunk::<16>()?;
            let (&version, rest) = rest.split_first().filter(|_| *head == VENDOR_ID)?;
            (version > 0).then(|| Opened { version: version.min(VERSION), rest: rest.to_vec() })
        }
        _ => None,
    })
}

/// Where a zone ends, as on the wire. Kinds are 1: behind the IP header; 2: behind the transport header; 3: `at` bytes behind the start of
/// the packet. Which of them make a map is the key manager's to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// See there.
    pub kind: u8,
    /// Bytes, for kind 3; 0 for others.
    pub at: u16,
}

/// ZONE_MAP: `flags (1) | number of ends (1)`, then `kind (1) | zero (1) | at (2)` for each zone but the last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Map {
    /// In an offer: the SA is to be refused rather than made without zones (bit 0 of the flags).
    pub required: bool,
    /// Where the zones end but the last.
    pub ends: Vec<End>,
}

impl Map {
    /// The body of the payload. At most [`ENDS_MAX`] ends are written.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let count = self.ends.len().min(ENDS_MAX);
        let mut body = vec![u8::from(self.required), u8::try_from(count).unwrap_or(0)];
        for end in self.ends.iter().take(count) {
            body.extend_from_slice(&[end.kind, 0]);
            body.extend_from_slice(&end.at.to_be_bytes());
        }
        body
    }

    /// Reads the body of the payload.
    ///
    /// # Errors
    /// If it is cut short, or has more ends than [`ENDS_MAX`].
    pub fn parse(body: &[u8]) -> Result<Self> {
        let mut r = Reader::new("ZONE_MAP", body);
        let flags = r.u8()?;
        let count = usize::from(r.u8()?);
        if count > ENDS_MAX {
            return Err(Error::TooMany { what: "ends of zones", limit: ENDS_MAX });
        }
        let mut ends = Vec::with_capacity(count);
        for _ in 0..count {
            let kind = r.u8()?;
            r.take(1)?;
            ends.push(End { kind, at: r.u16()? });
        }
        Ok(Self { required: flags & 1 != 0, ends })
    }

    /// As a payload.
    #[must_use]
    pub fn payload(&self) -> Payload {
        Payload::Unknown { kind: PayloadType::ZoneMap, critical: false, body: self.emit() }
    }
}

/// SECRET: the keying material of one zone in one direction.
///
/// `direction (1) | zone (1) | zero (2) | SPI (4) | sequence (8) | keying material`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret<'a> {
    /// The device sends under it (1); otherwise it is for what goes to the device (0).
    pub from_device: bool,
    /// Which zone: 0, the first, is the only one that is ever sent.
    pub zone: u8,
    /// The SPI of the packets.
    pub spi: u32,
    /// About the sequence number that they have reached.
    pub sequence: u64,
    /// Key, then salt; at most [`KEYMAT_MAX`] bytes.
    pub keymat: &'a [u8],
}

impl core::fmt::Debug for Secret<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Secret").field("spi", &self.spi).field("zone", &self.zone).finish_non_exhaustive()
    }
}

impl<'a> Secret<'a> {
    /// As a payload. The bytes are the caller's to wipe.
    #[must_use]
    pub fn payload(&self) -> Payload {
        let mut body = Vec::with_capacity(16 + self.keymat.len());
        body.extend_from_slice(&[u8::from(self.from_device), self.zone, 0, 0]);
        body.extend_from_slice(&self.spi.to_be_bytes());
        body.extend_from_slice(&self.sequence.to_be_bytes());
        body.extend_from_slice(self.keymat);
        Payload::Unknown { kind: PayloadType::Secret, critical: false, body }
    }

    /// Reads the body of the payload.
    ///
    /// # Errors
    /// If it is cut short, a direction does not exist, or the keying material is longer than [`KEYMAT_MAX`].
    pub fn parse(body: &'a [u8]) -> Result<Self> {
        let mut r = Reader::new("SECRET", body);
        let from_device = match r.u8()? {
            direction @ (0 | 1) => direction == 1,
            got => {
                return Err(Error::Value {
                    what: "direction of a secret",
                    got: got.into(),
                    expect: "0 or 1",
                });
            }
        };
        let zone = r.u8()?;
        r.take(2)?;
        let (spi, sequence, keymat) = (r.u32()?, r.u64()?, r.rest());
        if keymat.len() > KEYMAT_MAX {
            return Err(Error::Length { what: "keying material", got: keymat.len(), expect: KEYMAT_MAX });
        }
        Ok(Self { from_device, zone, spi, sequence, keymat })
    }
}

/// KEY_DISTRIBUTE: what else a router needs to know of a composite SA beside its ZONE_MAP and two SECRETs.
///
/// `flags (1) | zero (1) | cipher (2) | key bits (2) | zero (2) | seconds (4) | first node (4) | last node (4) | gateway (16)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Distribute {
    /// The device is behind this router now (bit 0 of the flags); otherwise the router is a neighbour of the one where it is.
    pub here: bool,
    /// Sequence numbers have 64 bits (bit 1).
    pub esn: bool,
    /// The first zone's cipher, by its IANA number of transform type 1.
    pub cipher: u16,
    /// The length of its key, in bits.
    pub key_bits: u16,
    /// The keys are not used longer than so many seconds.
    pub seconds: u32,
    /// The numbers that the router has in nonces: the first and the last one.
    pub nodes: (u32, u32),
    /// Where the gateway sends ESP from, and takes it.
    pub gateway: IpAddr,
}

impl Distribute {
    /// The data of the notification.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut data = vec![u8::from(self.here) | u8::from(self.esn) << 1, 0];
        data.extend_from_slice(&self.cipher.to_be_bytes());
        data.extend_from_slice(&self.key_bits.to_be_bytes());
        data.extend_from_slice(&[0, 0]);
        for number in [self.seconds, self.nodes.0, self.nodes.1] {
            data.extend_from_slice(&number.to_be_bytes());
        }
        data.extend_from_slice(&address(self.gateway));
        data
    }

    /// Reads the data of the notification.
    ///
    /// # Errors
    /// If it is cut short.
    pub fn parse(data: &[u8]) -> Result<Self> {
        let mut r = Reader::new("KEY_DISTRIBUTE", data);
        let flags = r.u8()?;
        r.take(1)?;
        let (cipher, key_bits) = (r.u16()?, r.u16()?);
        r.take(2)?;
        let (seconds, nodes) = (r.u32()?, (r.u32()?, r.u32()?));
        let (here, esn) = (flags & 1 != 0, flags & 2 != 0);
        Ok(Self { here, esn, cipher, key_bits, seconds, nodes, gateway: parse_address(&mut r)? })
    }
}

/// Names the keys of a composite SA by the SPIs of what goes to the device, and of what the device sends: `SPI (4) | SPI (4)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name {
    /// See there.
    pub to_device: u32,
    /// See there.
    pub from_device: u32,
}

/// The data of KEY_REVOKE: the keys that the router is to forget. At most [`NAMES_MAX`] are written.
#[must_use]
pub fn emit_names(names: &[Name]) -> Vec<u8> {
    let names = names.iter().take(NAMES_MAX);
    names.flat_map(|name| [name.to_device.to_be_bytes(), name.from_device.to_be_bytes()]).flatten().collect()
}

/// Reads the data of KEY_REVOKE.
///
/// # Errors
/// If it is cut short, or names more than [`NAMES_MAX`].
pub fn parse_names(data: &[u8]) -> Result<Vec<Name>> {
    let mut r = Reader::new("KEY_REVOKE", data);
    let mut names = Vec::new();
    while !r.is_empty() {
        if names.len() == NAMES_MAX {
            return Err(Error::TooMany { what: "names of keys", limit: NAMES_MAX });
        }
        names.push(Name { to_device: r.u32()?, from_device: r.u32()? });
    }
    Ok(names)
}

/// Why a router asks for keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Why {
    /// It has none: the device has come to it, or it was restarted.
    None = 1,
    /// Packets no longer open under those that it has.
    Stale = 2,
    /// Its numbers for nonces are used up.
    Exhausted = 3,
    /// It asks for none: it says that it got them from the router where the device was before.
    Migrated = 4,
    /// It asks for none: it says that it gave them to another router ([`emit_given`]).
    Given = 5,
    /// It asks for none: it says that it has them, and that the device has come.
    Here = 6,
    /// It asks for none: it says that it cannot use those that it was given, and has forgotten them.
    Unusable = 7,
}

/// KEY_REQUEST: `why (1) | zero (3) | SPI (4)`, the SPI being that of either direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Why.
    pub why: Why,
    /// The SPI that the router has seen.
    pub spi: u32,
}

impl Request {
    /// The data of the notification.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        coded(self.why as u8, self.spi)
    }

    /// Reads the data of the notification.
    ///
    /// # Errors
    /// If it is cut short, or has no such reason.
    pub fn parse(data: &[u8]) -> Result<Self> {
        let (code, spi) = parse_coded("KEY_REQUEST", data)?;
        let why = match code {
            1 => Why::None,
            2 => Why::Stale,
            3 => Why::Exhausted,
            4 => Why::Migrated,
            5 => Why::Given,
            6 => Why::Here,
            7 => Why::Unusable,
            got => {
                let what = "reason of a request for keys";
                return Err(Error::Value { what, got: got.into(), expect: "1 to 7" });
            }
        };
        Ok(Self { why, spi })
    }
}

/// KEY_REQUEST with [`Why::Given`]: what [`Request`] has, then the router that has the keys now, as one of KEY_NEIGHBOURS.
#[must_use]
pub fn emit_given(spi: u32, to: &Id) -> Vec<u8> {
    let mut data = Request { why: Why::Given, spi }.emit();
    data.extend(emit_neighbours(core::slice::from_ref(to)));
    data
}

/// Reads the router of a KEY_REQUEST with [`Why::Given`].
///
/// # Errors
/// If it is cut short.
pub fn parse_given(data: &[u8]) -> Result<Id> {
    let mut r = Reader::new("KEY_REQUEST", data);
    r.take(8)?;
    parse_id(&mut r)
}

/// Why keys are not given, or not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// There is no such SA, or it has no zones.
    Unknown,
    /// The configuration does not let this peer have it, or give it.
    NotPermitted,
    /// The device is not behind this router, nor behind one of its neighbours.
    NotNear,
    /// No numbers for nonces are left: the SA is being rekeyed.
    NoNumbers,
    /// The router has no room for it.
    Full,
    /// The message cannot be read.
    Unreadable,
    /// No packet is shown that says that the device has left this router: it does not open, or has passed here.
    NotLeft,
    /// A reason of a later version.
    Other(u8),
}

impl Reason {
    const fn code(self) -> u8 {
        match self {
            Self::Unknown => 1,
            Self::NotPermitted => 2,
            Self::NotNear => 3,
            Self::NoNumbers => 4,
            Self::Full => 5,
            Self::Unreadable => 6,
            Self::NotLeft => 7,
            Self::Other(code) => code,
        }
    }
}

impl core::fmt::Display for Reason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Unknown => "no such SA with zones",
            Self::NotPermitted => "not permitted",
            Self::NotNear => "the device is not near",
            Self::NoNumbers => "no numbers for nonces are left",
            Self::Full => "no room",
            Self::Unreadable => "the message cannot be read",
            Self::NotLeft => "no new packet shows that the device has left",
            Self::Other(code) => return write!(f, "reason {code}"),
        })
    }
}

/// KEY_REFUSED: `reason (1) | zero (3) | SPI (4)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Why.
    pub why: Reason,
    /// The SPI that was asked for, or that of what goes to the device.
    pub spi: u32,
}

impl Refused {
    /// The data of the notification.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        coded(self.why.code(), self.spi)
    }

    /// Reads the data of the notification.
    ///
    /// # Errors
    /// If it is cut short.
    pub fn parse(data: &[u8]) -> Result<Self> {
        let (code, spi) = parse_coded("KEY_REFUSED", data)?;
        let why = match code {
            1 => Reason::Unknown,
            2 => Reason::NotPermitted,
            3 => Reason::NotNear,
            4 => Reason::NoNumbers,
            5 => Reason::Full,
            6 => Reason::Unreadable,
            7 => Reason::NotLeft,
            code => Reason::Other(code),
        };
        Ok(Self { why, spi })
    }
}

/// What a router shows of an ESP packet, from its SPI on, whose zones it does not know: all that a first zone is opened with, wherever that
/// ends, and however many zones there are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Excerpt {
    len: u16,
    /// The packet; of a long one its first [`Self::HEAD`] bytes and its last [`Self::TAIL`].
    bytes: Vec<u8>,
}

impl Excerpt {
    /// SPI, sequence number, IV, the most ends of zones, and the longest first zone, in bytes.
    pub const HEAD: usize = 160;
    /// The ICVs of the most zones, in bytes.
    pub const TAIL: usize = 128;
    const WHOLE: usize = Self::HEAD + Self::TAIL;

    /// Of this packet; `None` if it has no SPI, or is longer than a packet can be.
    #[must_use]
    pub fn of(packet: &[u8]) -> Option<Self> {
        packet.first_chunk::<4>()?;
        let len = u16::try_from(packet.len()).ok()?;
        let bytes = match packet.len().checked_sub(Self::TAIL) {
            Some(tail) if packet.len() > Self::WHOLE => {
                [packet.get(..Self::HEAD)?, packet.get(tail..)?].concat()
            }
            _ => packet.to_vec(),
        };
        Some(Self { len, bytes })
    }

    /// The SPI.
    #[must_use]
    pub fn spi(&self) -> u32 {
        self.bytes.first_chunk().copied().map_or(0, u32::from_be_bytes)
    }

    /// The packet, with zeros in the place of what is not shown.
    #[must_use]
    pub fn packet(&self) -> Vec<u8> {
        let mut packet = self.bytes.clone();
        if self.bytes.len() < self.len.into() {
            packet.truncate(Self::HEAD);
            packet.resize(usize::from(self.len).saturating_sub(Self::TAIL), 0);
            packet.extend_from_slice(self.bytes.get(Self::HEAD..).unwrap_or_default());
        }
        packet
    }
}

/// KEY_MIGRATE: `gateway (16) | length of a packet (2) | zero (2) | what is shown of it`. The packet is of the SA, of either direction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Migrate {
    /// Where the gateway of the SA sends ESP from, and takes it.
    pub gateway: IpAddr,
    /// The packet that the router has seen.
    pub seen: Excerpt,
}

impl Migrate {
    /// The data of the notification.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        [&address(self.gateway)[..], &self.seen.len.to_be_bytes(), &[0, 0], &self.seen.bytes].concat()
    }

    /// Reads the data of the notification.
    ///
    /// # Errors
    /// If it is cut short, or the packet has no SPI.
    pub fn parse(data: &[u8]) -> Result<Self> {
        let mut r = Reader::new("KEY_MIGRATE", data);
        let (gateway, len) = (parse_address(&mut r)?, r.u16()?);
        r.take(2)?;
        let bytes = r.take(usize::from(len).min(Excerpt::WHOLE))?.to_vec();
        if len < 4 {
            return Err(Error::Value { what: "length of a packet", got: len.into(), expect: "4 or more" });
        }
        Ok(Self { gateway, seen: Excerpt { len, bytes } })
    }
}

/// The data of KEY_NEIGHBOURS: `type (1) | zero (1) | length (2) | identity` for each, as in an identification payload. At most
/// [`NEIGHBOURS_MAX`] are written.
#[must_use]
pub fn emit_neighbours(neighbours: &[Id]) -> Vec<u8> {
    let mut data = Vec::new();
    for id in neighbours.iter().take(NEIGHBOURS_MAX) {
        let Ok(length) = u16::try_from(id.data.len()) else { continue };
        data.extend_from_slice(&[id.kind.code(), 0]);
        data.extend_from_slice(&length.to_be_bytes());
        data.extend_from_slice(&id.data);
    }
    data
}

/// Reads the data of KEY_NEIGHBOURS.
///
/// # Errors
/// If it is cut short, or has more than [`NEIGHBOURS_MAX`].
pub fn parse_neighbours(data: &[u8]) -> Result<Vec<Id>> {
    let mut r = Reader::new("KEY_NEIGHBOURS", data);
    let mut ids = Vec::new();
    while !r.is_empty() {
        if ids.len() == NEIGHBOURS_MAX {
            return Err(Error::TooMany { what: "neighbours", limit: NEIGHBOURS_MAX });
        }
        ids.push(parse_id(&mut r)?);
    }
    Ok(ids)
}

fn parse_id(r: &mut Reader<'_>) -> Result<Id> {
    let kind = IdType::from(r.u8()?);
    r.take(1)?;
    let length = usize::from(r.u16()?);
    Ok(Id::new(kind, r.take(length)?))
}

fn coded(code: u8, spi: u32) -> Vec<u8> {
    [&[code, 0, 0, 0][..], &spi.to_be_bytes()].concat()
}

fn parse_coded(what: &'static str, data: &[u8]) -> Result<(u8, u32)> {
    let mut r = Reader::new(what, data);
    let code = r.u8()?;
    r.take(3)?;
    Ok((code, r.u32()?))
}

/// An IPv4 address is written as the IPv6 address that maps it.
fn address(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn parse_address(r: &mut Reader<'_>) -> Result<IpAddr> {
    Ok(Ipv6Addr::from(r.array::<16>()?).to_canonical())
}

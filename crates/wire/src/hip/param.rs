//! Parameters, typed. Owns how the contents of each are read and written; must never look at another parameter.

use core::net::Ipv6Addr;

use super::header::Version;
use super::kind::ParamType;
use super::limits::MAX_LOCATORS;
use super::values::{
    DhValue, DomainId, EspInfo, HostId, Locator, LocatorValue, Notification, PeerPermission, Puzzle,
    R1Counter, RegFailed, RegInfo, Registration, Signature, Solution, TransportAddress,
};
use crate::codec::{Reader, Writer};
use crate::{Error, Result};

/// A parameter. Reserved fields are ignored when read and zero when written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Param {
    /// ESP_INFO.
    EspInfo(EspInfo),
    /// R1_COUNTER, whose type differs between the versions.
    R1Counter(ParamType, R1Counter),
    /// LOCATOR_SET.
    LocatorSet(Vec<Locator>),
    /// PUZZLE.
    Puzzle(Puzzle),
    /// SOLUTION.
    Solution(Solution),
    /// SEQ.
    Seq(u32),
    /// ACK.
    Ack(Vec<u32>),
    /// DH_GROUP_LIST.
    DhGroupList(Vec<u8>),
    /// DIFFIE_HELLMAN: one value; in version 1 one or two.
    DiffieHellman(Vec<DhValue>),
    /// HIP_TRANSFORM, HIP_CIPHER, TRANSPORT_FORMAT_LIST.
    Numbers(ParamType, Vec<u16>),
    /// ESP_TRANSFORM, NAT_TRAVERSAL_MODE: numbers behind two reserved bytes.
    Suites(ParamType, Vec<u16>),
    /// TRANSACTION_PACING, CANDIDATE_PRIORITY.
    Number(ParamType, u32),
    /// ENCRYPTED: the initialization vector and the ciphertext.
    Encrypted(Vec<u8>),
    /// HOST_ID.
    HostId(HostId),
    /// HIT_SUITE_LIST, in its eight-bit encoding.
    HitSuiteList(Vec<u8>),
    /// NOTIFICATION.
    Notification(Notification),
    /// REG_INFO.
    RegInfo(RegInfo),
    /// REG_REQUEST, REG_RESPONSE.
    Registration(ParamType, Registration),
    /// REG_FAILED.
    RegFailed(RegFailed),
    /// HIP_SIGNATURE, HIP_SIGNATURE_2.
    Signature(ParamType, Signature),
    /// RELAY_FROM, RELAY_TO, REG_FROM, RELAYED_ADDRESS, MAPPED_ADDRESS.
    Transport(ParamType, TransportAddress),
    /// PEER_PERMISSION.
    PeerPermission(PeerPermission),
    /// FROM, VIA_RVS: addresses; FROM has one.
    Addresses(ParamType, Vec<Ipv6Addr>),
    /// Contents without fields: echoes, MACs, certificates, NOMINATE, and all types without a name here.
    Opaque(ParamType, Vec<u8>),
}

impl Param {
    /// Its type.
    #[must_use]
    pub const fn kind(&self) -> ParamType {
        match self {
            Self::EspInfo(_) => ParamType::EspInfo,
            Self::LocatorSet(_) => ParamType::LocatorSet,
            Self::Puzzle(_) => ParamType::Puzzle,
            Self::Solution(_) => ParamType::Solution,
            Self::Seq(_) => ParamType::Seq,
            Self::Ack(_) => ParamType::Ack,
            Self::DhGroupList(_) => ParamType::DhGroupList,
            Self::DiffieHellman(_) => ParamType::DiffieHellman,
            Self::Encrypted(_) => ParamType::Encrypted,
            Self::HostId(_) => ParamType::HostId,
            Self::HitSuiteList(_) => ParamType::HitSuiteList,
            Self::Notification(_) => ParamType::Notification,
            Self::RegInfo(_) => ParamType::RegInfo,
            Self::RegFailed(_) => ParamType::RegFailed,
            Self::PeerPermission(_) => ParamType::PeerPermission,
            Self::R1Counter(kind, _)
            | Self::Numbers(kind, _)
            | Self::Suites(kind, _)
            | Self::Number(kind, _)
            | Self::Registration(kind, _)
            | Self::Signature(kind, _)
            | Self::Transport(kind, _)
            | Self::Addresses(kind, _)
            | Self::Opaque(kind, _) => *kind,
        }
    }

    /// Reads the contents of a parameter.
    ///
    /// # Errors
    /// If they are cut short, too long, or contradict themselves.
    pub fn parse(kind: ParamType, version: Version, contents: &[u8]) -> Result<Self> {
        let mut r = Reader::new(kind.label().unwrap_or("HIP parameter"), contents);
        let param = Self::parse_from(kind, version, &mut r)?;
        r.all()?;
        Ok(param)
    }

    fn parse_from(kind: ParamType, version: Version, r: &mut Reader<'_>) -> Result<Self> {
        use ParamType as T;
        Ok(match kind {
            T::EspInfo => Self::EspInfo(esp_info(r)?),
            T::R1Counter | T::R1CounterV1 => {
                Self::R1Counter(kind, R1Counter { reserved: r.u32()?, generation: r.u64()? })
            }
            T::LocatorSet => Self::LocatorSet(locators(r)?),
            T::Puzzle => Self::Puzzle(Puzzle {
                k: r.u8()?,
                lifetime: r.u8()?,
                opaque: r.array()?,
                i: r.rest().to_vec(),
            }),
            T::Solution => Self::Solution(solution(r)?),
            T::Seq => Self::Seq(r.u32()?),
            T::Ack => Self::Ack(list(r, Reader::u32)?),
            T::DhGroupList => Self::DhGroupList(r.rest().to_vec()),
            T::DiffieHellman => Self::DiffieHellman(dh_values(r)?),
            T::HipTransform | T::HipCipher | T::TransportFormatList => {
                Self::Numbers(kind, list(r, Reader::u16)?)
            }
            T::EspTransform | T::NatTraversalMode => {
                r.u16()?;
                Self::Suites(kind, list(r, Reader::u16)?)
            }
            T::TransactionPacing | T::CandidatePriority => Self::Number(kind, r.u32()?),
            T::Encrypted => {
                r.u32()?;
                Self::Encrypted(r.rest().to_vec())
            }
            T::HostId => Self::HostId(host_id(version, r)?),
            T::HitSuiteList => Self::HitSuiteList(r.rest().to_vec()),
            T::Notification => {
                r.u16()?;
                Self::Notification(Notification { kind: r.u16()?.into(), data: r.rest().to_vec() })
            }
            T::RegInfo => Self::RegInfo(RegInfo {
                min_lifetime: r.u8()?,
                max_lifetime: r.u8()?,
                types: r.rest().to_vec(),
            }),
            T::RegRequest | T::RegResponse => {
                Self::Registration(kind, Registration { lifetime: r.u8()?, types: r.rest().to_vec() })
            }
            T::RegFailed => Self::RegFailed(RegFailed { failure: r.u8()?, types: r.rest().to_vec() }),
            T::HipSignature | T::HipSignature2 => {
                let algorithm = if version == Version::V1 { r.u8()?.into() } else { r.u16()? };
                Self::Signature(kind, Signature { algorithm, signature: r.rest().to_vec() })
            }
            T::RelayFrom | T::RelayTo | T::RegFrom | T::RelayedAddress | T::MappedAddress => {
                Self::Transport(kind, transport(r)?)
            }
            T::PeerPermission => Self::PeerPermission(peer_permission(r)?),
            T::From => Self::Addresses(kind, vec![address(r)?]),
            T::ViaRvs => Self::Addresses(kind, list(r, address)?),
            _ => Self::Opaque(kind, r.rest().to_vec()),
        })
    }

    /// Writes the contents.
    pub(super) fn write(&self, version: Version, w: &mut Writer<'_>) {
        match self {
            Self::EspInfo(v) => {
                w.u16(0);
                w.u16(v.keymat_index);
                w.u32(v.old_spi);
                w.u32(v.new_spi);
            }
            Self::R1Counter(_, v) => {
                w.u32(v.reserved);
                w.u64(v.generation);
            }
            Self::LocatorSet(v) => v.iter().for_each(|locator| write_locator(locator, w)),
            Self::Puzzle(v) => {
                w.bytes(&[v.k, v.lifetime]);
                w.bytes(&v.opaque);
                w.bytes(&v.i);
            }
            Self::Solution(v) => {
                w.bytes(&[v.k, v.reserved]);
                w.bytes(&v.opaque);
                w.bytes(&v.i);
                w.bytes(&v.j);
            }
            Self::Seq(v) => w.u32(*v),
            Self::Ack(v) => v.iter().for_each(|id| w.u32(*id)),
            Self::DiffieHellman(v) => {
                for value in v {
                    w.u8(value.group);
                    w.count_u16("public value", value.public.len());
                    w.bytes(&value.public);
                }
            }
            Self::Numbers(_, v) => v.iter().for_each(|n| w.u16(*n)),
            Self::Suites(_, v) => {
                w.u16(0);
                v.iter().for_each(|n| w.u16(*n));
            }
            Self::Number(_, v) => w.u32(*v),
            Self::Encrypted(v) => {
                w.u32(0);
                w.bytes(v);
            }
            Self::HostId(v) => write_host_id(version, v, w),
            Self::Notification(v) => {
                w.u16(0);
                w.u16(v.kind.code());
                w.bytes(&v.data);
            }
            Self::RegInfo(v) => {
                w.bytes(&[v.min_lifetime, v.max_lifetime]);
                w.bytes(&v.types);
            }
            Self::Registration(_, Registration { lifetime: first, types })
            | Self::RegFailed(RegFailed { failure: first, types }) => {
                w.u8(*first);
                w.bytes(types);
            }
            Self::Signature(_, v) => {
                match version {
                    Version::V1 => w.u8(v.algorithm.to_be_bytes()[1]),
                    Version::V2 => w.u16(v.algorithm),
                }
                w.bytes(&v.signature);
            }
            Self::Transport(_, v) => {
                w.u16(v.port);
                w.bytes(&[v.protocol, 0]);
                w.bytes(&v.address.octets());
            }
            Self::PeerPermission(v) => write_peer_permission(v, w),
            Self::Addresses(_, v) => v.iter().for_each(|a| w.bytes(&a.octets())),
            Self::DhGroupList(v) | Self::HitSuiteList(v) | Self::Opaque(_, v) => w.bytes(v),
        }
    }
}

fn list<'a, T>(r: &mut Reader<'a>, mut item: impl FnMut(&mut Reader<'a>) -> Result<T>) -> Result<Vec<T>> {
    let mut items = Vec::new();
    while !r.is_empty() {
        items.push(item(r)?);
    }
    Ok(items)
}

fn address(r: &mut Reader<'_>) -> Result<Ipv6Addr> {
    Ok(Ipv6Addr::from(r.array::<16>()?))
}

fn esp_info(r: &mut Reader<'_>) -> Result<EspInfo> {
    r.u16()?;
    Ok(EspInfo { keymat_index: r.u16()?, old_spi: r.u32()?, new_spi: r.u32()? })
}

fn solution(r: &mut Reader<'_>) -> Result<Solution> {
    let (k, reserved, opaque) = (r.u8()?, r.u8()?, r.array()?);
    let half = r.remaining() / 2;
    let (i, j) = (r.take(half)?.to_vec(), r.take(half)?.to_vec());
    Ok(Solution { k, reserved, opaque, i, j })
}

fn dh_values(r: &mut Reader<'_>) -> Result<Vec<DhValue>> {
    list(r, |r| {
        let (group, len) = (r.u8()?, r.u16()?);
        Ok(DhValue { group, public: r.take(len.into())?.to_vec() })
    })
}

fn host_id(version: Version, r: &mut Reader<'_>) -> Result<HostId> {
    let (len, domain) = (usize::from(r.u16()?), r.u16()?);
    let algorithm = if version == Version::V1 { 0 } else { r.u16()? };
    let key = r.take(len)?.to_vec();
    // A type without a name is no identifier: "the DI Length field is set to zero as well" (RFC 7401 section 5.2.9).
    let name = r.take((domain & 0x0fff).into())?.to_vec();
    Ok(HostId { algorithm, key, domain: DomainId { kind: (domain >> 12) as u8, name } })
}

fn write_host_id(version: Version, v: &HostId, w: &mut Writer<'_>) {
    w.count_u16("host identity", v.key.len());
    let name = v.domain.name.len();
    if name > 0x0fff {
        w.refuse(Error::TooLong { what: "domain identifier", got: name, limit: 0x0fff });
    }
    w.u16(u16::from(v.domain.kind & 0xf) << 12 | name as u16 & 0x0fff);
    if version == Version::V2 {
        w.u16(v.algorithm);
    }
    w.bytes(&v.key);
    w.bytes(&v.domain.name);
}

fn locators(r: &mut Reader<'_>) -> Result<Vec<Locator>> {
    let locators = list(r, locator)?;
    if locators.len() > MAX_LOCATORS {
        return Err(Error::TooMany { what: "locators", limit: MAX_LOCATORS });
    }
    Ok(locators)
}

fn locator(r: &mut Reader<'_>) -> Result<Locator> {
    let (traffic, kind, words, flags, lifetime) = (r.u8()?, r.u8()?, r.u8()?, r.u8()?, r.u32()?);
    let mut r = r.sub("locator", usize::from(words) * 4)?;
    let value = match (kind, words) {
        (0, 4) => LocatorValue::Address(address(&mut r)?),
        (1, 5) => LocatorValue::Esp { spi: r.u32()?, address: address(&mut r)? },
        (2, 7) => LocatorValue::Transport {
            port: r.u16()?,
            protocol: r.u8()?,
            kind: r.u8()?,
            priority: r.u32()?,
            spi: r.u32()?,
            address: address(&mut r)?,
        },
        (0..=2, got) => {
            let expect = [4, 5, 7][usize::from(kind)];
            return Err(Error::Length { what: "locator", got: got.into(), expect });
        }
        _ => LocatorValue::Other(kind, r.rest().to_vec()),
    };
    Ok(Locator { traffic, preferred: flags & 1 == 1, lifetime, value })
}

fn write_locator(v: &Locator, w: &mut Writer<'_>) {
    let (kind, words) = match &v.value {
        LocatorValue::Address(_) => (0, 4),
        LocatorValue::Esp { .. } => (1, 5),
        LocatorValue::Transport { .. } => (2, 7),
        LocatorValue::Other(kind, data) => (*kind, data.len() / 4),
    };
    w.bytes(&[v.traffic, kind]);
    w.count_u8("locator", words);
    w.u8(v.preferred.into());
    w.u32(v.lifetime);
    match &v.value {
        LocatorValue::Address(address) => w.bytes(&address.octets()),
        LocatorValue::Esp { spi, address } => {
            w.u32(*spi);
            w.bytes(&address.octets());
        }
        LocatorValue::Transport { port, protocol, kind, priority, spi, address } => {
            w.u16(*port);
            w.bytes(&[*protocol, *kind]);
            w.u32(*priority);
            w.u32(*spi);
            w.bytes(&address.octets());
        }
        LocatorValue::Other(_, data) => w.bytes(data),
    }
}

fn transport(r: &mut Reader<'_>) -> Result<TransportAddress> {
    let (port, protocol) = (r.u16()?, r.u8()?);
    r.u8()?;
    Ok(TransportAddress { port, protocol, address: address(r)? })
}

fn peer_permission(r: &mut Reader<'_>) -> Result<PeerPermission> {
    let (relay_port, peer_port, protocol) = (r.u16()?, r.u16()?, r.u8()?);
    r.array::<3>()?;
    let (relay_address, peer_address) = (address(r)?, address(r)?);
    let (spi_out, spi_in) = (r.u32()?, r.u32()?);
    Ok(PeerPermission { relay_port, peer_port, protocol, relay_address, peer_address, spi_out, spi_in })
}

fn write_peer_permission(v: &PeerPermission, w: &mut Writer<'_>) {
    w.u16(v.relay_port);
    w.u16(v.peer_port);
    w.bytes(&[v.protocol, 0, 0, 0]);
    w.bytes(&v.relay_address.octets());
    w.bytes(&v.peer_address.octets());
    w.u32(v.spi_out);
    w.u32(v.spi_in);
}

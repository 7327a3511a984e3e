//! One packet as every input format yields it. Owns the common shape; must never know which format it came from.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dormouse_energy::{Direction, PacketInfo};

/// A link-layer address in the low 48 bits; 0 is "none". [`Mac::THIS_MACHINE`] stands for the capturing machine where the
/// link layer says "ours" without naming an address (Linux cooked captures).
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
pub struct Mac(pub u64);

impl Mac {
    /// No address.
    pub const NONE: Self = Self(0);
    /// The machine that captured.
    pub const THIS_MACHINE: Self = Self(1 << 48);
    /// The broadcast address.
    pub const BROADCAST: Self = Self(0xffff_ffff_ffff);

    /// From the six bytes on the wire.
    #[must_use]
    pub fn from_bytes(b: [u8; 6]) -> Self {
        Self(u64::from_be_bytes([0, 0, b[0], b[1], b[2], b[3], b[4], b[5]]))
    }

    /// Whether this is a group (multicast or broadcast) address.
    #[must_use]
    pub const fn is_group(self) -> bool {
        self.0 & (1 << 40) != 0
    }

    /// Whether this is the address of one interface.
    #[must_use]
    pub const fn is_unicast(self) -> bool {
        self.0 != 0 && !self.is_group()
    }

    /// Parses `aa:bb:cc:dd:ee:ff` (or with `-`).
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0u8; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut bytes {
            let part = parts.next()?;
            if part.is_empty() || part.len() > 2 {
                return None;
            }
            *byte = u8::from_str_radix(part, 16).ok()?;
        }
        parts.next().is_none().then(|| Self::from_bytes(bytes))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::THIS_MACHINE {
            return f.write_str("this-machine");
        }
        let b = self.0.to_be_bytes();
        write!(f, "{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", b[2], b[3], b[4], b[5], b[6], b[7])
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An IP address in 16 bytes (IPv4 mapped into IPv6); all zero is "none".
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
pub struct Addr {
    /// First eight bytes.
    pub hi: u64,
    /// Last eight bytes.
    pub lo: u64,
}

const V4_MAPPED: u64 = 0xffff_0000_0000;

impl Addr {
    /// No address.
    pub const NONE: Self = Self { hi: 0, lo: 0 };

    /// From the four bytes of an IPv4 header. The unspecified address is "none".
    #[must_use]
    pub const fn v4(bytes: [u8; 4]) -> Self {
        match u32::from_be_bytes(bytes) {
            0 => Self::NONE,
            bits => Self { hi: 0, lo: V4_MAPPED | bits as u64 },
        }
    }

    /// From the sixteen bytes of an IPv6 header.
    #[must_use]
    pub fn v6(bytes: [u8; 16]) -> Self {
        let bits = u128::from_be_bytes(bytes);
        Self { hi: (bits >> 64) as u64, lo: bits as u64 }
    }

    /// Whether there is no address.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.hi == 0 && self.lo == 0
    }

    /// The IPv4 address, if it is one.
    #[must_use]
    pub const fn as_v4(self) -> Option<u32> {
        if self.hi == 0 && self.lo >> 32 == 0xffff { Some(self.lo as u32) } else { None }
    }

    /// As the standard library's type; `None` for "none".
    #[must_use]
    pub fn ip(self) -> Option<IpAddr> {
        match self.as_v4() {
            Some(v4) => Some(IpAddr::V4(Ipv4Addr::from_bits(v4))),
            None if self.is_none() => None,
            None => Some(IpAddr::V6(Ipv6Addr::from_bits(u128::from(self.hi) << 64 | u128::from(self.lo)))),
        }
    }

    /// What kind of address this is, for telling clients from the rest of the world.
    #[must_use]
    pub const fn scope(self) -> Scope {
        if let Some(v4) = self.as_v4() {
            return match v4.to_be_bytes() {
                [0 | 127, ..] | [224..=255, ..] => Scope::NotOneHost,
                [169, 254, ..] => Scope::Link,
                [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => Scope::Private,
                _ => Scope::Global,
            };
        }
        match (self.hi >> 48) as u16 {
            0 if self.hi == 0 && self.lo <= 1 => Scope::NotOneHost,
            0xff00..=0xffff => Scope::NotOneHost,
            0xfe80..=0xfebf => Scope::Link,
            0xfc00..=0xfdff => Scope::Private,
            _ => Scope::Global,
        }
    }
}

impl From<IpAddr> for Addr {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => Self::v4(v4.octets()),
            IpAddr::V6(v6) => Self::v6(v6.octets()),
        }
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ip() {
            Some(ip) => fmt::Display::fmt(&ip, f),
            None => f.write_str("-"),
        }
    }
}

impl fmt::Debug for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where an address belongs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scope {
    /// Broadcast, multicast, loopback or unspecified: never one client.
    NotOneHost,
    /// Link-local: a host on this link, but no name for it.
    Link,
    /// RFC 1918, RFC 6598 or RFC 4193: the local side.
    Private,
    /// Anything else.
    Global,
}

/// One end of a packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct End {
    /// Its link-layer address.
    pub mac: Mac,
    /// Its IP address.
    pub ip: Addr,
}

/// One packet.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Seen {
    /// When, in nanoseconds since 1970-01-01 UTC.
    pub at: u64,
    /// Bytes on the wire; 0 if unknown.
    pub size: u32,
    /// IP protocol; the ethertype for other frames; 0 if unknown.
    pub protocol: u16,
    /// Source port, 0 if none.
    pub src_port: u16,
    /// Destination port, 0 if none.
    pub dst_port: u16,
    /// The sender is a wireless station that talks to its access point (802.11, ToDS).
    pub station: bool,
    /// For inputs that name the client themselves: its number in the input's table of names plus one; 0 if they do not.
    pub name: u32,
    /// For such inputs, which way the packet went.
    pub direction: Direction,
    /// Who sent it.
    pub src: End,
    /// Who it was for.
    pub dst: End,
}

impl Seen {
    /// The packet as the client's own device sees it.
    #[inline]
    #[must_use]
    pub fn info(&self, direction: Direction) -> PacketInfo {
        let (local_port, remote_port) = match direction {
            Direction::Incoming => (self.dst_port, self.src_port),
            Direction::Outgoing | Direction::Unknown => (self.src_port, self.dst_port),
        };
        let time_of_day = time_of_day(self.at);
        PacketInfo {
            direction,
            protocol: self.protocol,
            local_port,
            remote_port,
            size: self.size,
            time_of_day,
        }
    }
}

impl Seen {
    /// Whether its sender has no address yet and asks for one by DHCP: it has just joined (RFC 2131, section 4.4.1).
    #[inline]
    #[must_use]
    pub const fn joins(&self) -> bool {
        self.src_port == 68 && self.dst_port == 67 && self.protocol == 17 && self.src.ip.is_none()
    }
}

/// Seconds since midnight UTC; a recording that starts at its own zero has no time of day.
#[must_use]
pub fn time_of_day(at: u64) -> Option<u32> {
    let seconds = at / 1_000_000_000;
    (seconds > 86_400 * 366).then(|| u32::try_from(seconds % 86_400).unwrap_or(0))
}

/// One packet of one client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientPacket {
    /// When, in nanoseconds since 1970.
    pub at: u64,
    /// The client's number, counted from 0.
    pub client: u32,
    /// What the client's device knows of it.
    pub info: PacketInfo,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_round_trip_and_know_their_scope() {
        for (text, scope) in [
            ("192.168.1.122", Scope::Private),
            ("100.64.0.1", Scope::Private),
            ("100.128.0.1", Scope::Global),
            ("172.32.0.1", Scope::Global),
            ("169.254.3.4", Scope::Link),
            ("255.255.255.255", Scope::NotOneHost),
            ("224.0.0.251", Scope::NotOneHost),
            ("fe80::1", Scope::Link),
            ("ff02::fb", Scope::NotOneHost),
            ("fd00::1", Scope::Private),
            ("2001:db8::1", Scope::Global),
            ("::1", Scope::NotOneHost),
        ] {
            let ip: IpAddr = text.parse().expect("an address");
            assert_eq!(Addr::from(ip).ip(), Some(ip));
            assert_eq!(Addr::from(ip).scope(), scope, "{text}");
        }
        assert_eq!(Addr::v4([0; 4]).ip(), None);
    }

    #[test]
    fn link_layer_addresses_are_read_and_written() {
        let mac = Mac::parse("78:db:2f:db:43:48").expect("an address");
        assert_eq!(mac.to_string(), "78:db:2f:db:43:48");
        assert!(mac.is_unicast());
        assert!(Mac::BROADCAST.is_group());
        for bad in ["78:db:2f:db:43", "78:db:2f:db:43:48:00", "78:db:2f:db:43:4x", "", "10.0.0.1"] {
            assert_eq!(Mac::parse(bad), None, "{bad}");
        }
    }
}

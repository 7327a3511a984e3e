//! The data of REDIRECT and REDIRECTED_FROM notifications (RFC 5685 section 9). Owns the formats; whether anybody goes there is decided elsewhere.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

use super::{Notify, NotifyType};
use crate::codec::Reader;

/// Longest name of a gateway, in bytes (RFC 1035 section 2.3.4).
const NAME_MAX: usize = 253;

/// A gateway: its address, or its name. A name is made of letters, digits, `-`, `_` and `.`, in lower case, and is no address.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Gateway {
    /// By its address.
    Address(IpAddr),
    /// By its name.
    Name(String),
}

/// What is neither an address nor a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("neither an address nor a name of letters, digits, '-', '_' and '.'")]
pub struct NoGateway;

impl FromStr for Gateway {
    type Err = NoGateway;

    fn from_str(text: &str) -> Result<Self, NoGateway> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let labels = |text: &str| text.split('.').all(|label| (1..=63).contains(&label.len()));
        // What ends in a number may be read as an address by some.
        let of_letters = |text: &str| {
            let last = text.rsplit('.').next().unwrap_or_default();
            !last.chars().all(|c| c.is_ascii_digit())
        };
        let name = text.len() <= NAME_MAX && text.chars().all(fits) && labels(text) && of_letters(text);
        if name { Ok(Self::Name(text.to_ascii_lowercase())) } else { Err(NoGateway) }
    }
}

impl fmt::Display for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(name) => f.pad(name),
        }
    }
}

impl Gateway {
    fn parts(&self) -> (u8, Vec<u8>) {
        match self {
            Self::Address(IpAddr::V4(v4)) => (1, v4.octets().to_vec()),
            Self::Address(IpAddr::V6(v6)) => (2, v6.octets().to_vec()),
            Self::Name(name) => (3, name.as_bytes().to_vec()),
        }
    }

    /// The notification that sends a peer there; with the initiator's nonce in an IKE_SA_INIT answer, and without in any other message.
    /// "It MUST NOT be included in the REDIRECT payload if sent in an IKE_AUTH response or in a gateway-initiated redirect message." (RFC 5685
    /// section 9.2)
    /// "The 'Protocol ID' MUST be set to 0, since the notification is not specific to a particular security association." (RFC 5685 section 9.2)
    /// "The 'SPI Size' field MUST be set to 0" (RFC 5685 section 9.2)
    #[must_use]
    pub fn redirect(&self, nonce: &[u8]) -> Notify {
        Notify::new(NotifyType::Redirect, [self.data(), nonce.to_vec()].concat())
    }

    /// The notification of docs/wire/dormancy.md: another gateway takes the ticket, this one if it is said.
    #[must_use]
    pub fn elsewhere(to: Option<&Self>) -> Notify {
        Notify::new(NotifyType::DormancyElsewhere, to.map(Self::data).unwrap_or_default())
    }

    /// The notification that tells the new gateway which one has sent us.
    #[must_use]
    pub fn redirected_from(address: IpAddr) -> Notify {
        Notify::new(NotifyType::RedirectedFrom, Self::Address(address).data())
    }

    fn data(&self) -> Vec<u8> {
        let (kind, identity) = self.parts();
        // No name is longer.
        let len = u8::try_from(identity.len()).unwrap_or(u8::MAX);
        [&[kind, len][..], &identity].concat()
    }

    /// Where a REDIRECT notification sends its receiver, and the nonce that it repeats; `None` if it is malformed.
    /// "The IPv4 address, the IPv6 address, or the FQDN of the new VPN gateway MUST be encoded as described in Section 3.5 of [2]." (RFC 5685
    /// section 9.2)
    #[must_use]
    pub fn of(data: &[u8]) -> Option<(Self, &[u8])> {
        let mut r = Reader::new("redirect", data);
        let (kind, len) = (r.u8().ok()?, r.u8().ok()?);
        let (identity, nonce) = data.get(2..)?.split_at_checked(len.into())?;
        let gateway = match kind {
            1 => Self::Address(<[u8; 4]>::try_from(identity).ok()?.into()),
            2 => Self::Address(<[u8; 16]>::try_from(identity).ok()?.into()),
            3 => match core::str::from_utf8(identity).ok()?.parse().ok()? {
                name @ Self::Name(_) => name,
                Self::Address(_) => return None,
            },
            _ => return None,
        };
        Some((gateway, nonce))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_as_it_was_written() {
        let golden: [(&str, &[u8]); 3] = [
            ("192.0.2.1", &[1, 4, 192, 0, 2, 1]),
            ("2001:db8::1", &[2, 16, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
            ("gw2.example.org", b"\x03\x0fgw2.example.org"),
        ];
        for (text, bytes) in golden {
            let gateway: Gateway = text.parse().unwrap();
            assert_eq!(gateway.to_string(), text);
            assert_eq!(gateway.redirect(&[]).data, bytes);
            let nonce = [7; 32];
            let with_nonce = gateway.redirect(&nonce);
            assert_eq!(with_nonce.kind, NotifyType::Redirect);
            assert_eq!(Gateway::of(&with_nonce.data), Some((gateway, &nonce[..])));
        }
        let from = Gateway::redirected_from([192, 0, 2, 1].into());
        assert_eq!((from.kind, from.data), (NotifyType::RedirectedFrom, vec![1, 4, 192, 0, 2, 1]));
    }

    #[test]
    fn what_is_no_gateway_is_refused() {
        for data in [
            &[][..],
            &[1],
            &[1, 4, 1, 2, 3],
            &[1, 5, 1, 2, 3, 4, 5],
            &[2, 4, 1, 2, 3, 4],
            &[4, 1, 1],
            b"\x03\x00",
            b"\x03\x05a b.c",
            b"\x03\x09192.0.2.1",
            b"\x03\x04a..b",
            b"\x03\x03\xff\xfea",
            b"\x03\x06a\nb.de",
        ] {
            assert_eq!(Gateway::of(data), None, "{data:?}");
        }
        for text in
            ["", ".", "a..b", "10.1", "a b", &"a.".repeat(127), &"a".repeat(64), "gw/../x", "1.2.3.4.5"]
        {
            assert_eq!(text.parse::<Gateway>(), Err(NoGateway), "{text}");
        }
        assert_eq!("GW.Example.ORG".parse::<Gateway>().unwrap().to_string(), "gw.example.org");
    }
}

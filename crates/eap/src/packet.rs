//! The format of EAP packets (RFC 3748 section 4). Owns bytes and their meaning; must never act on what it parses.

use crate::error::Error;
use crate::limits::MAX_PACKET;

pub use crate::kind::Type;

/// A packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packet<'a> {
    /// From the authenticator.
    Request {
        /// Names it; its response has the same.
        identifier: u8,
        /// What is asked.
        kind: Type,
        /// The method's data.
        data: &'a [u8],
    },
    /// From the peer.
    Response {
        /// Of the request.
        identifier: u8,
        /// That of the request, or [`Type::NAK`].
        kind: Type,
        /// The method's data.
        data: &'a [u8],
    },
    /// From the authenticator, at the end.
    Success {
        /// Of the last response.
        identifier: u8,
    },
    /// From the authenticator, at the end.
    Failure {
        /// Of the last response.
        identifier: u8,
    },
}

const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;
const SUCCESS: u8 = 3;
const FAILURE: u8 = 4;

impl<'a> Packet<'a> {
    /// From the content of an EAP payload.
    ///
    /// # Errors
    /// [`Error::Malformed`] if it is none. Its length must be that of the payload (RFC 7296 section 3.16); there is no padding as on other links.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let [code, identifier, high, low, body @ ..] = bytes else {
            return Err(Error::Malformed("cut short"));
        };
        if usize::from(u16::from_be_bytes([*high, *low])) != bytes.len() {
            return Err(Error::Malformed("its length is another than it says"));
        }
        let identifier = *identifier;
        match (*code, body) {
            (REQUEST, [kind, data @ ..]) => Ok(Self::Request { identifier, kind: Type(*kind), data }),
            (RESPONSE, [kind, data @ ..]) => Ok(Self::Response { identifier, kind: Type(*kind), data }),
            (SUCCESS, []) => Ok(Self::Success { identifier }),
            (FAILURE, []) => Ok(Self::Failure { identifier }),
            (REQUEST | RESPONSE, []) => Err(Error::Malformed("it has no type")),
            (SUCCESS | FAILURE, _) => Err(Error::Malformed("a result with data")),
            _ => Err(Error::Malformed("an unknown code")),
        }
    }

    /// As bytes.
    ///
    /// # Errors
    /// [`Error::TooLong`] if the data does not fit the length field.
    pub fn emit(&self) -> Result<Vec<u8>, Error> {
        let (code, identifier, body) = match self {
            Self::Request { identifier, kind, data } => (REQUEST, identifier, Some((kind, data))),
            Self::Response { identifier, kind, data } => (RESPONSE, identifier, Some((kind, data))),
            Self::Success { identifier } => (SUCCESS, identifier, None),
            Self::Failure { identifier } => (FAILURE, identifier, None),
        };
        let len = 4 + body.map_or(0, |(_, data)| 1 + data.len());
        if len > MAX_PACKET {
            return Err(Error::TooLong("a packet's data"));
        }
        let mut bytes = Vec::with_capacity(len);
        bytes.extend([code, *identifier]);
        bytes.extend(u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes());
        if let Some((kind, data)) = body {
            bytes.push(kind.0);
            bytes.extend_from_slice(data);
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_emits() {
        for (bytes, packet) in [
            (
                &b"\x01\x07\x00\x05\x01"[..],
                Packet::Request { identifier: 7, kind: Type::IDENTITY, data: b"" },
            ),
            (
                b"\x02\x07\x00\x08\x01bob",
                Packet::Response { identifier: 7, kind: Type::IDENTITY, data: b"bob" },
            ),
            (b"\x03\xff\x00\x04", Packet::Success { identifier: 255 }),
            (b"\x04\x00\x00\x04", Packet::Failure { identifier: 0 }),
        ] {
            assert_eq!(Packet::parse(bytes), Ok(packet));
            assert_eq!(packet.emit().as_deref(), Ok(bytes));
        }
    }

    #[test]
    fn refuses_what_contradicts_itself() {
        for bytes in [
            &b""[..],
            b"\x01\x07\x00",
            b"\x01\x07\x00\x04",
            b"\x02\x07\x00\x04",
            b"\x01\x07\x00\x06\x01",
            b"\x01\x07\x00\x04\x01",
            b"\x03\x07\x00\x05\x01",
            b"\x00\x07\x00\x04",
            b"\x05\x07\x00\x04",
        ] {
            assert!(matches!(Packet::parse(bytes), Err(Error::Malformed(_))), "{bytes:?}");
        }
        let data = vec![0; MAX_PACKET - 4];
        let packet = Packet::Request { identifier: 0, kind: Type::TLS, data: &data };
        assert!(matches!(packet.emit(), Err(Error::TooLong(_))));
    }
}

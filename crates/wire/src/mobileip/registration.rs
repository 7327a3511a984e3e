//! Registration requests and replies, the notice to the previous foreign agent, and their extensions. Owns offsets: what an authenticator
//! covers is a prefix of the message as it came.

use core::net::Ipv4Addr;

use super::{Code, MAX_EXTENSIONS, kind};
use crate::codec::Reader;
use crate::{Error, Result};

const REQUEST: u8 = 1;
const REPLY: u8 = 3;
const EXPERIMENTAL: u8 = 255;
/// Our experiment: the notice to the previous foreign agent.
const MOVED: u8 = 1;
/// An extension of this one byte: padding (RFC 5944 section 1.8).
const PADDING: u8 = 0;
/// SPI of an authentication extension.
const SPI_LEN: usize = 4;

/// A registration request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// See [`super::request`].
    pub flags: u8,
    /// Seconds that it shall last; 0 ends it.
    pub lifetime: u16,
    /// Home address of the mobile node.
    pub home: Ipv4Addr,
    /// The home agent.
    pub agent: Ipv4Addr,
    /// The end of the tunnel.
    pub care_of: Ipv4Addr,
    /// Matches the reply, and protects against replay.
    pub id: u64,
}

/// A registration reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply {
    /// What became of it.
    pub code: Code,
    /// Seconds that it lasts, if it was accepted.
    pub lifetime: u16,
    /// Home address of the mobile node.
    pub home: Ipv4Addr,
    /// The home agent.
    pub agent: Ipv4Addr,
    /// As in the request, but for what the kind of replay protection puts into the upper half.
    pub id: u64,
}

/// The notice to the previous foreign agent (`docs/mobile-ip.md`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    /// The previous foreign agent.
    pub previous: Ipv4Addr,
    /// Home address of the mobile node.
    pub home: Ipv4Addr,
    /// Where it is now.
    pub care_of: Ipv4Addr,
    /// For how many seconds packets shall be sent after it.
    pub lifetime: u16,
    /// That of the request by which it was registered there last.
    pub id: u64,
}

/// The fixed part of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// From the mobile node.
    Request(Request),
    /// From an agent.
    Reply(Reply),
    /// From a foreign agent to the one before.
    Moved(Moved),
}

/// An extension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extension<'a> {
    /// Its type.
    pub kind: u8,
    /// What follows type and length.
    pub data: &'a [u8],
    /// Where in the message it begins.
    pub at: usize,
}

impl<'a> Extension<'a> {
    /// SPI and authenticator of an authentication extension.
    #[must_use]
    pub fn authentication(&self) -> Option<(u32, &'a [u8])> {
        let (spi, authenticator) = self.data.split_first_chunk::<SPI_LEN>()?;
        Some((u32::from_be_bytes(*spi), authenticator))
    }

    /// Bytes of the message, from its start, that its authenticator covers.
    /// "the Type, Length, and SPI of this Extension." (RFC 5944 section 3.5.1)
    #[must_use]
    pub const fn covered(&self) -> usize {
        self.at + 2 + SPI_LEN
    }

    /// Where it ends.
    #[must_use]
    pub const fn end(&self) -> usize {
        self.at + 2 + self.data.len()
    }

    /// The notice to the previous foreign agent in it, as the message that it becomes.
    #[must_use]
    pub fn moved(&self) -> Option<Vec<u8>> {
        let is_ours = self.kind == kind::EXPERIMENT && self.data.first() == Some(&MOVED);
        is_ours.then(|| [&[EXPERIMENTAL], self.data].concat())
    }
}

/// A message with its extensions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// All of it: a UDP datagram's payload.
    pub bytes: &'a [u8],
    /// The fixed part.
    pub message: Message,
    /// In their order.
    pub extensions: Vec<Extension<'a>>,
}

impl<'a> Packet<'a> {
    /// Reads a whole message.
    ///
    /// # Errors
    /// [`Error::Value`] for another type of message or of what an unknown extension forbids; [`Error::Truncated`] and
    /// [`Error::TooMany`] for the rest.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let mut r = Reader::new("Mobile IP message", bytes);
        let message = match r.u8()? {
            REQUEST => Message::Request(Request {
                flags: r.u8()?,
                lifetime: r.u16()?,
                home: address(&mut r)?,
                agent: address(&mut r)?,
                care_of: address(&mut r)?,
                id: r.u64()?,
            }),
            REPLY => Message::Reply(Reply {
                code: r.u8()?.into(),
                lifetime: r.u16()?,
                home: address(&mut r)?,
                agent: address(&mut r)?,
                id: r.u64()?,
            }),
            EXPERIMENTAL => Message::Moved(moved(&mut r)?),
            got => {
                let expect = "1, 3 or 255";
                return Err(Error::Value { what: "type of a Mobile IP message", got: got.into(), expect });
            }
        };
        let mut extensions = Vec::new();
        while !r.is_empty() {
            if extensions.len() == MAX_EXTENSIONS {
                return Err(Error::TooMany { what: "extensions", limit: MAX_EXTENSIONS });
            }
            let at = r.position();
            let kind = r.u8()?;
            if kind == PADDING {
                continue;
            }
            let length = r.u8()?;
            // "the message containing that Extension MUST be silently discarded" (RFC 5944 section 1.8)
            if kind < 128 && !(kind::MOBILE_HOME..=kind::FOREIGN_HOME).contains(&kind) {
                let (what, expect) = ("type of an extension that must be known", "32 to 34");
                return Err(Error::Value { what, got: kind.into(), expect });
            }
            extensions.push(Extension { kind, data: r.take(length.into())?, at });
        }
        Ok(Self { bytes, message, extensions })
    }

    /// The extension of this type, if there is exactly one.
    #[must_use]
    pub fn only(&self, kind: u8) -> Option<&Extension<'a>> {
        let mut of_kind = self.extensions.iter().filter(|e| e.kind == kind);
        of_kind.next().filter(|_| of_kind.next().is_none())
    }

    /// Whether there is any extension of this type.
    #[must_use]
    pub fn has(&self, kind: u8) -> bool {
        self.extensions.iter().any(|e| e.kind == kind)
    }

    /// The message with its extensions up to the Mobile-Home Authentication: what a foreign agent passes on.
    /// "It MUST process and remove any extensions that do not precede any authorization-enabling extension" (RFC 5944 section
    /// 3.7.2.2)
    #[must_use]
    pub fn authorized(&self) -> &'a [u8] {
        let end = self.extensions.iter().rev().find(|e| e.kind == kind::MOBILE_HOME).map(Extension::end);
        end.and_then(|end| self.bytes.get(..end)).unwrap_or(self.bytes)
    }
}

impl Message {
    /// Appends the fixed part.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::Request(m) => {
                out.extend([REQUEST, m.flags]);
                out.extend(m.lifetime.to_be_bytes());
                out.extend([m.home, m.agent, m.care_of].iter().flat_map(Ipv4Addr::octets));
                out.extend(m.id.to_be_bytes());
            }
            Self::Reply(m) => {
                out.extend([REPLY, m.code.code()]);
                out.extend(m.lifetime.to_be_bytes());
                out.extend([m.home, m.agent].iter().flat_map(Ipv4Addr::octets));
                out.extend(m.id.to_be_bytes());
            }
            Self::Moved(m) => {
                out.extend([EXPERIMENTAL, MOVED]);
                out.extend([m.previous, m.home, m.care_of].iter().flat_map(Ipv4Addr::octets));
                out.extend(m.lifetime.to_be_bytes());
                out.extend(m.id.to_be_bytes());
            }
        }
    }
}

fn address(r: &mut Reader<'_>) -> Result<Ipv4Addr> {
    r.array::<4>().map(Ipv4Addr::from)
}

fn moved(r: &mut Reader<'_>) -> Result<Moved> {
    let got = r.u8()?;
    if got != MOVED {
        return Err(Error::Value {
            what: "sub-type of an experimental message",
            got: got.into(),
            expect: "1",
        });
    }
    Ok(Moved {
        previous: address(r)?,
        home: address(r)?,
        care_of: address(r)?,
        lifetime: r.u16()?,
        id: r.u64()?,
    })
}

/// Appends an extension.
///
/// # Errors
/// [`Error::TooLong`] above 255 bytes; `out` is as it was then.
pub fn extension(kind: u8, data: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let long = Error::TooLong { what: "extension", got: data.len(), limit: 255 };
    let length = u8::try_from(data.len()).map_err(|_| long)?;
    out.extend([kind, length]);
    out.extend_from_slice(data);
    Ok(())
}

/// Appends an authentication extension to a message that begins at the start of `message`; `compute` is handed what is covered.
///
/// # Errors
/// [`Error::TooLong`] for an authenticator above 251 bytes; `message` is as it was then.
pub fn authenticator(
    kind: u8,
    spi: u32,
    length: usize,
    message: &mut Vec<u8>,
    compute: impl FnOnce(&[u8]) -> Vec<u8>,
) -> Result<()> {
    let got = length + SPI_LEN;
    let stated = u8::try_from(got).map_err(|_| Error::TooLong { what: "authenticator", got, limit: 255 })?;
    message.extend([kind, stated]);
    message.extend(spi.to_be_bytes());
    let authenticator = compute(message);
    message.extend(authenticator);
    Ok(())
}

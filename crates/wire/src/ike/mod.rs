//! IKEv2 messages (RFC 7296 section 3), with the fragments of RFC 7383.
//!
//! Owns parsing and emission of whole messages. Must never decrypt, verify, or decide what an exchange may contain.
//!
//! A message is cleartext payloads, then at most one encrypted payload (SK or SKF), which is always the last.
//! [`Message::parse`] stops there and says where the ciphertext lies; after decryption in place, [`parse_payloads`] reads
//! what was inside. The other way round, [`emit_payloads`] makes the plaintext and [`Sealing::emit`] the frame around it.

mod config;
pub mod dormancy;
mod header;
pub mod limits;
pub mod mlike;
mod notify;
mod payload;
mod puzzle;
mod redirect;
mod sa;
mod ts;

use core::ops::Range;

pub use config::{Config, ConfigAttribute, ConfigAttributeType, ConfigType};
pub use header::{ExchangeType, Flags, HEADER_LEN, Header, VERSION};
pub use notify::{Delete, Notify, NotifyType, ProtocolId};
pub use payload::{
    AuthMethod, CertEncoding, Id, IdType, Payload, PayloadType, emit_payloads, parse_payloads,
    unsupported_critical,
};
pub use puzzle::{PUZZLE_KEYS, Puzzle, puzzle_keys};
pub use redirect::{Gateway, NoGateway};
pub use sa::{Attribute, AttributeValue, Proposal, Transform, TransformType};
pub use ts::{TrafficSelector, TsRange};

use crate::codec::{Counts, Reader, Writer};
use crate::{Error, Result};
use payload::{Generic, parse_chain, write_chain};

/// A message as received: its cleartext part, and where the encrypted part lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The header.
    pub header: Header,
    /// Cleartext payloads, before the encrypted payload if there is one.
    pub payloads: Vec<Payload>,
    /// The encrypted payload, always the last.
    pub protected: Option<Protected>,
}

/// Where the encrypted payload of a message lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Protected {
    /// Type of the first payload inside. In a fragment only that of fragment 1 counts; the others have 0.
    pub first: PayloadType,
    /// IV, ciphertext and ICV within the message. `0..body.start` is what an AEAD authenticates besides (RFC 5282 section
    /// 5.1); an integrity algorithm covers the message from 0 up to the ICV.
    pub body: Range<usize>,
    /// For an encrypted fragment, which one it is.
    pub fragment: Option<Fragment>,
}

/// The place of a fragment in its message (RFC 7383 section 2.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fragment {
    /// From 1 to `total`.
    pub number: u16,
    /// How many there are, at least 1.
    pub total: u16,
}

impl Message {
    /// Reads a message without decrypting anything. `bytes` is the datagram without the non-ESP marker.
    ///
    /// # Errors
    /// - [`Error::Value`] naming "major version" unless it is 2: [`Header::parse`] still reads what an answer needs.
    /// - [`Error::Length`] if the header's length is not that of `bytes`, or is above [`limits::MAX_MESSAGE`].
    /// - The error of a malformed cleartext payload, or bytes after the last one.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let header = Header::parse(bytes)?;
        if header.major() != 2 {
            return Err(Error::Value { what: "major version", got: header.major().into(), expect: "2" });
        }
        if usize::try_from(header.length) != Ok(bytes.len()) {
            let got = usize::try_from(header.length).unwrap_or(usize::MAX);
            return Err(Error::Length { what: "IKE message", got, expect: bytes.len() });
        }
        if bytes.len() > limits::MAX_MESSAGE {
            let (got, expect) = (bytes.len(), limits::MAX_MESSAGE);
            return Err(Error::Length { what: "IKE message", got, expect });
        }
        let mut r = Reader::new("IKE message", bytes);
        r.take(HEADER_LEN)?;
        let (payloads, end) = parse_chain(header.next_payload, &mut r)?;
        let protected = match end {
            PayloadType::None => None,
            kind => Some(Protected::parse(kind, &mut r)?),
        };
        // "As is the case for the Encrypted payload, the Encrypted Fragment payload, if present in a message, MUST be the last
        // payload in the message." (RFC 7383 section 2.5)
        r.all()?;
        Ok(Self { header, payloads, protected })
    }

    /// Appends a cleartext message to `out`. The first payload's type and the length are computed.
    ///
    /// # Errors
    /// As [`emit_payloads`]; `out` is as it was then.
    pub fn emit(header: &Header, payloads: &[Payload], out: &mut Vec<u8>) -> Result<()> {
        let mut w = Writer::new(out);
        let next_payload = payloads.first().map_or(PayloadType::None, Payload::kind);
        Header { next_payload, ..*header }.write_but_length(&mut w);
        {
            let mut body = w.length_u32("IKE message", Counts::From(0));
            write_chain(payloads, PayloadType::None, &mut body);
            body.refuse_above(limits::MAX_MESSAGE, "IKE message");
        }
        w.finish()
    }
}

impl Protected {
    fn parse(kind: PayloadType, r: &mut Reader<'_>) -> Result<Self> {
        let Generic { next, mut body, .. } = Generic::parse(kind, r)?;
        let fragment = match kind {
            PayloadType::Skf => Some(Fragment::parse(&mut body)?),
            _ => None,
        };
        let end = r.position();
        Ok(Self { first: next, body: end - body.remaining()..end, fragment })
    }
}

impl Fragment {
    fn parse(r: &mut Reader<'_>) -> Result<Self> {
        let (number, total) = (r.u16()?, r.u16()?);
        // "This field MUST be less than or equal to the next field (Total Fragments). This field MUST NOT be zero." (RFC 7383
        // section 2.5)
        if total == 0 || total > limits::MAX_FRAGMENTS {
            let (what, got) = ("total fragments", total.into());
            return Err(Error::Value { what, got, expect: "1 to limits::MAX_FRAGMENTS" });
        }
        if number == 0 || number > total {
            let (what, got) = ("fragment number", number.into());
            return Err(Error::Value { what, got, expect: "1 to the total of fragments" });
        }
        Ok(Self { number, total })
    }
}

/// The frame of a protected message about to be sent: everything but the ciphertext.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sealing<'a> {
    /// The header; its first payload and length are computed.
    pub header: &'a Header,
    /// Cleartext payloads before the encrypted one; usually none.
    pub cleartext: &'a [Payload],
    /// Type of the first payload inside; 0 in an empty message and in all fragments but the first.
    pub first: PayloadType,
    /// For a fragment, which one.
    pub fragment: Option<Fragment>,
}

impl Sealing<'_> {
    /// Appends the message up to and including the encrypted payload's header, then `body_len` zero bytes for IV,
    /// ciphertext and ICV, with all lengths final (an AEAD authenticates them). Returns where those bytes lie, counted from
    /// the first byte appended.
    ///
    /// # Errors
    /// [`Error::TooLong`] if the message exceeds 64 KiB, or as [`emit_payloads`]; `out` is as it was then.
    pub fn emit(&self, body_len: usize, out: &mut Vec<u8>) -> Result<Range<usize>> {
        let limit = limits::MAX_MESSAGE;
        if body_len > limit {
            return Err(Error::TooLong { what: "body of the encrypted payload", got: body_len, limit });
        }
        let mut w = Writer::new(out);
        let kind = if self.fragment.is_some() { PayloadType::Skf } else { PayloadType::Sk };
        let next_payload = self.cleartext.first().map_or(kind, Payload::kind);
        Header { next_payload, ..*self.header }.write_but_length(&mut w);
        let start;
        {
            let mut message = w.length_u32("IKE message", Counts::From(0));
            write_chain(self.cleartext, kind, &mut message);
            let generic = message.position();
            message.u8(self.first.code());
            message.u8(0);
            let mut body = message.length_u16("encrypted payload", Counts::From(generic));
            if let Some(Fragment { number, total }) = self.fragment {
                body.u16(number);
                body.u16(total);
            }
            start = body.position();
            body.zeros(body_len);
            drop(body);
            message.refuse_above(limits::MAX_MESSAGE, "IKE message");
        }
        w.finish()?;
        Ok(start..start + body_len)
    }
}

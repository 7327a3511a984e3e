//! Security-association payloads: proposals, transforms and their attributes (RFC 7296 section 3.3).
//!
//! Owns their format. Must never choose: which proposal is acceptable is the negotiation's business.

use super::{ProtocolId, limits};
use crate::codec::{Counts, Reader, Writer, code_points};
use crate::{Error, Result};

code_points! {
    /// What a transform is for.
    pub enum TransformType: u8 {
        Encryption = 1, "ENCR";
        Prf = 2, "PRF";
        Integrity = 3, "INTEG";
        KeyExchange = 4, "KE";
        ExtendedSequenceNumbers = 5, "ESN";
        /// RFC 9370.
        AdditionalKeyExchange1 = 6, "ADDKE1";
        /// RFC 9370.
        AdditionalKeyExchange2 = 7, "ADDKE2";
        /// RFC 9370.
        AdditionalKeyExchange3 = 8, "ADDKE3";
        /// RFC 9370.
        AdditionalKeyExchange4 = 9, "ADDKE4";
        /// RFC 9370.
        AdditionalKeyExchange5 = 10, "ADDKE5";
        /// RFC 9370.
        AdditionalKeyExchange6 = 11, "ADDKE6";
        /// RFC 9370.
        AdditionalKeyExchange7 = 12, "ADDKE7";
    }
}

/// The attribute type "Key Length", in bits (RFC 7296 section 3.3.5).
const KEY_LENGTH: u16 = 14;
/// The bit that marks an attribute whose value is the two bytes in place of its length.
const ATTRIBUTE_FORMAT_SHORT: u16 = 0x8000;

/// A proposal: one protocol with the transforms to choose from.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Proposal {
    /// 1 for the first proposal of an offer, then counting up; an answer repeats the number of the one chosen.
    pub number: u8,
    /// The protocol negotiated.
    pub protocol: ProtocolId,
    /// The sender's inbound SPI: empty in the first IKE_SA_INIT, 8 bytes when an IKE SA is rekeyed, 4 for ESP and AH.
    pub spi: Vec<u8>,
    /// The transforms, in the order of preference.
    pub transforms: Vec<Transform>,
}

/// A transform: one algorithm.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Transform {
    /// What it is for.
    pub kind: TransformType,
    /// The algorithm, in the registry of `kind`.
    pub id: u16,
    /// Key length in bits, where the algorithm has several.
    pub key_length: Option<u16>,
    /// All other attributes. A transform with any is not understood and must not be chosen: "If the responder receives a
    /// Transform with an attribute it does not understand, it MUST reject the transform" (RFC 7296 section 3.3.6).
    pub other_attributes: Vec<Attribute>,
}

impl Transform {
    /// A transform without attributes.
    #[must_use]
    pub const fn new(kind: TransformType, id: u16) -> Self {
        Self { kind, id, key_length: None, other_attributes: Vec::new() }
    }

    /// The same with a key length of `bits`.
    #[must_use]
    pub fn with_key_length(mut self, bits: u16) -> Self {
        self.key_length = Some(bits);
        self
    }
}

/// An attribute of a transform other than its first key length.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Attribute {
    /// 15 bits.
    pub kind: u16,
    /// The value, in the encoding that it came in.
    pub value: AttributeValue,
}

/// The two encodings of an attribute.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum AttributeValue {
    /// Two bytes in place of the length (format bit set).
    Short(u16),
    /// A length and as many bytes.
    Long(Vec<u8>),
}

/// The first byte of a substructure: whether another follows. The values are those of IKEv1's payload types.
const LAST: u8 = 0;
const MORE_PROPOSALS: u8 = 2;
const MORE_TRANSFORMS: u8 = 3;

/// "[...] an implementation MUST check that the total Payload Length is consistent with the payload's internal lengths and
/// counts" (RFC 7296 section 3.3)
pub(super) fn parse(mut r: Reader<'_>) -> Result<Vec<Proposal>> {
    let mut proposals = Vec::new();
    loop {
        if proposals.len() == limits::MAX_PROPOSALS {
            return Err(Error::TooMany { what: "proposals", limit: limits::MAX_PROPOSALS });
        }
        let (more, body) = substructure(&mut r, "proposal", MORE_PROPOSALS)?;
        proposals.push(Proposal::parse(body)?);
        if !more {
            r.all()?;
            return Ok(proposals);
        }
    }
}

pub(super) fn emit(proposals: &[Proposal], w: &mut Writer<'_>) {
    if proposals.is_empty() {
        w.refuse(Error::Value { what: "number of proposals", got: 0, expect: "at least 1" });
    }
    for (i, proposal) in proposals.iter().enumerate() {
        let start = w.position();
        w.u8(if i + 1 == proposals.len() { LAST } else { MORE_PROPOSALS });
        w.u8(0);
        proposal.emit(&mut w.length_u16("proposal", Counts::From(start)));
    }
}

/// The common start of proposals and transforms: more-flag, a reserved byte, and a length that counts them.
fn substructure<'a>(r: &mut Reader<'a>, what: &'static str, more: u8) -> Result<(bool, Reader<'a>)> {
    let flag = r.u8()?;
    let more = match flag {
        LAST => false,
        f if f == more => true,
        _ => {
            let got = flag.into();
            return Err(Error::Value { what: "substructure flag", got, expect: "0 (last), 2 or 3 (more)" });
        }
    };
    r.u8()?;
    let length = usize::from(r.u16()?);
    let body = length.checked_sub(4).ok_or(Error::Length { what, got: length, expect: 4 })?;
    Ok((more, r.sub(what, body)?))
}

impl Proposal {
    fn parse(mut r: Reader<'_>) -> Result<Self> {
        let number = r.u8()?;
        let protocol = ProtocolId::from(r.u8()?);
        let spi_size = usize::from(r.u8()?);
        let count = usize::from(r.u8()?);
        let spi = r.take(spi_size)?.to_vec();
        let mut transforms = Vec::new();
        for i in 0..count {
            let (more, body) = substructure(&mut r, "transform", MORE_TRANSFORMS)?;
            if more != (i + 1 < count) {
                // The count and the chain of flags disagree about where the list ends.
                return Err(Error::Length { what: "transform list", got: i + 1, expect: count });
            }
            transforms.push(Transform::parse(body)?);
        }
        r.all()?;
        Ok(Self { number, protocol, spi, transforms })
    }

    fn emit(&self, w: &mut Writer<'_>) {
        w.u8(self.number);
        w.u8(self.protocol.code());
        w.count_u8("proposal SPI", self.spi.len());
        w.count_u8("transforms", self.transforms.len());
        w.bytes(&self.spi);
        for (i, transform) in self.transforms.iter().enumerate() {
            let start = w.position();
            w.u8(if i + 1 == self.transforms.len() { LAST } else { MORE_TRANSFORMS });
            w.u8(0);
            transform.emit(&mut w.length_u16("transform", Counts::From(start)));
        }
    }

    /// The transforms of one kind, in the order of preference.
    pub fn of_kind(&self, kind: TransformType) -> impl Iterator<Item = &Transform> {
        self.transforms.iter().filter(move |t| t.kind == kind)
    }
}

impl Transform {
    fn parse(mut r: Reader<'_>) -> Result<Self> {
        let kind = TransformType::from(r.u8()?);
        r.u8()?;
        let mut transform = Self::new(kind, r.u16()?);
        let mut count = 0;
        while !r.is_empty() {
            count += 1;
            if count > limits::MAX_TRANSFORM_ATTRIBUTES {
                let limit = limits::MAX_TRANSFORM_ATTRIBUTES;
                return Err(Error::TooMany { what: "transform attributes", limit });
            }
            match Attribute::parse(&mut r)? {
                Attribute { kind: KEY_LENGTH, value: AttributeValue::Short(bits) }
                    if transform.key_length.is_none() =>
                {
                    transform.key_length = Some(bits);
                }
                other => transform.other_attributes.push(other),
            }
        }
        Ok(transform)
    }

    fn emit(&self, w: &mut Writer<'_>) {
        w.u8(self.kind.code());
        w.u8(0);
        w.u16(self.id);
        if let Some(bits) = self.key_length {
            w.u16(ATTRIBUTE_FORMAT_SHORT | KEY_LENGTH);
            w.u16(bits);
        }
        for attribute in &self.other_attributes {
            attribute.emit(w);
        }
    }
}

impl Attribute {
    fn parse(r: &mut Reader<'_>) -> Result<Self> {
        let format_and_kind = r.u16()?;
        let word = r.u16()?;
        let value = if format_and_kind & ATTRIBUTE_FORMAT_SHORT != 0 {
            AttributeValue::Short(word)
        } else {
            AttributeValue::Long(r.take(word.into())?.to_vec())
        };
        Ok(Self { kind: format_and_kind & !ATTRIBUTE_FORMAT_SHORT, value })
    }

    fn emit(&self, w: &mut Writer<'_>) {
        let kind = self.kind & !ATTRIBUTE_FORMAT_SHORT;
        match &self.value {
            AttributeValue::Short(word) => {
                w.u16(ATTRIBUTE_FORMAT_SHORT | kind);
                w.u16(*word);
            }
            AttributeValue::Long(bytes) => {
                w.u16(kind);
                w.length_u16("transform attribute", Counts::After).bytes(bytes);
            }
        }
    }
}

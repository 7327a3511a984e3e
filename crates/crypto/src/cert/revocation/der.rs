//! Walking through DER in place. A CRL has up to hundreds of thousands of entries, of which the serial number alone is of use, and what is
//! signed must be the bytes that came: neither goes through the owned types of `x509-cert`, and `x509-ocsp` fits no current one.

use der::asn1::{AnyRef, BitStringRef, GeneralizedTime, UtcTime};
use der::{Decode, ErrorKind, Reader, SliceReader, Tag};
use dormouse_sansio::UnixTime;

pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OID: u8 = 0x06;
pub(super) const ENUMERATED: u8 = 0x0a;
pub(super) const UTC_TIME: u8 = 0x17;
pub(super) const GENERALIZED_TIME: u8 = 0x18;
pub(super) const SEQUENCE: u8 = 0x30;

/// The elements of a constructed value, one after the other.
pub(super) struct Fields<'a>(SliceReader<'a>);

impl<'a> Fields<'a> {
    /// Those of one whole SEQUENCE.
    pub(super) fn of(element: &'a [u8]) -> der::Result<Self> {
        if element.first() == Some(&SEQUENCE) { Self::inside(element) } else { Err(ErrorKind::Failed.into()) }
    }

    /// Those inside of one whole element.
    pub(super) fn inside(element: &'a [u8]) -> der::Result<Self> {
        Ok(Self(SliceReader::new(content(element)?)?))
    }

    /// The next element, of any tag.
    pub(super) fn any(&mut self) -> der::Result<&'a [u8]> {
        self.0.tlv_bytes()
    }

    /// The next element, which must have this identifier.
    pub(super) fn next(&mut self, identifier: u8) -> der::Result<&'a [u8]> {
        self.optional(identifier)?.ok_or_else(|| Tag::Sequence.value_error().into())
    }

    /// The next element, if it has this identifier.
    pub(super) fn optional(&mut self, identifier: u8) -> der::Result<Option<&'a [u8]>> {
        if self.0.peek_byte() == Some(identifier) { self.any().map(Some) } else { Ok(None) }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    pub(super) fn finish(self) -> der::Result<()> {
        self.0.finish()
    }
}

/// What is inside of one whole element.
pub(super) fn content(element: &[u8]) -> der::Result<&[u8]> {
    AnyRef::from_der(element).map(|any| any.value())
}

/// A Time (RFC 5280, section 4.1.2.5).
pub(super) fn time(element: &[u8]) -> der::Result<UnixTime> {
    let since = match element.first() {
        Some(&UTC_TIME) => UtcTime::from_der(element)?.to_unix_duration(),
        Some(&GENERALIZED_TIME) => GeneralizedTime::from_der(element)?.to_unix_duration(),
        _ => return Err(ErrorKind::DateTime.into()),
    };
    Ok(UnixTime(since.as_secs()))
}

/// What certificates, CRLs and basic OCSP answers are: what is signed, the algorithm, the signature.
pub(super) struct Signed<'a> {
    pub(super) message: &'a [u8],
    pub(super) algorithm: &'a [u8],
    pub(super) signature: &'a [u8],
    /// What follows: the certificates of an OCSP answer.
    pub(super) rest: Fields<'a>,
}

impl<'a> Signed<'a> {
    pub(super) fn from_der(der: &'a [u8]) -> der::Result<Self> {
        let mut rest = Fields::of(der)?;
        let (message, algorithm) = (rest.next(SEQUENCE)?, rest.next(SEQUENCE)?);
        let signature = BitStringRef::from_der(rest.next(BIT_STRING)?)?.as_bytes();
        let signature = signature.ok_or(ErrorKind::Length { tag: Tag::BitString })?;
        Ok(Self { message, algorithm, signature, rest })
    }

    pub(super) fn is_by(&self, spki: &[u8]) -> bool {
        crate::cert::chain::is_signed(spki, self.algorithm, self.message, self.signature)
    }
}

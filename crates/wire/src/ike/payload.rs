//! The generic payload header and every payload that is not large enough for a file of its own (RFC 7296 section 3.2 on).
//!
//! Owns payload chains. Must never look inside the encrypted payload: it hands back where the body lies.

use super::{Config, Delete, Notify, Proposal, TrafficSelector, limits, sa, ts};
use crate::codec::{Counts, Reader, Writer, code_points};
use crate::{Error, Result};

code_points! {
    /// What a payload is (RFC 7296 section 3.2 and the IANA registry of payload types).
    pub enum PayloadType: u8 {
        /// Ends a chain.
        None = 0, "none";
        Sa = 33, "SA";
        Ke = 34, "KE";
        IdI = 35, "IDi";
        IdR = 36, "IDr";
        Cert = 37, "CERT";
        CertReq = 38, "CERTREQ";
        Auth = 39, "AUTH";
        Nonce = 40, "Nonce";
        Notify = 41, "N";
        Delete = 42, "D";
        VendorId = 43, "V";
        TsI = 44, "TSi";
        TsR = 45, "TSr";
        /// Encrypted and authenticated.
        Sk = 46, "SK";
        Cp = 47, "CP";
        Eap = 48, "EAP";
        /// RFC 6467.
        Gspm = 49, "GSPM";
        /// Encrypted and authenticated fragment, RFC 7383.
        Skf = 53, "SKF";
        /// RFC 8019.
        PuzzleSolution = 54, "PS";

        // Private use (128 to 255), after the vendor id of `super::mlike` only: docs/wire/mlike.md.
        /// The zones of a packet.
        ZoneMap = 213, "ZONE_MAP";
        /// Keying material of one zone.
        Secret = 214, "SECRET";
    }
}

code_points! {
    /// What an identification payload holds.
    pub enum IdType: u8 {
        Ipv4Addr = 1, "ID_IPV4_ADDR";
        Fqdn = 2, "ID_FQDN";
        Rfc822Addr = 3, "ID_RFC822_ADDR";
        Ipv6Addr = 5, "ID_IPV6_ADDR";
        DerAsn1Dn = 9, "ID_DER_ASN1_DN";
        DerAsn1Gn = 10, "ID_DER_ASN1_GN";
        KeyId = 11, "ID_KEY_ID";
        /// RFC 7619.
        Null = 13, "ID_NULL";
    }
}

code_points! {
    /// How a peer proves its identity.
    pub enum AuthMethod: u8 {
        RsaDigitalSignature = 1, "RSA Digital Signature";
        SharedKeyMic = 2, "Shared Key Message Integrity Code";
        DssDigitalSignature = 3, "DSS Digital Signature";
        /// RFC 4754.
        Ecdsa256 = 9, "ECDSA with SHA-256 on the P-256 curve";
        /// RFC 4754.
        Ecdsa384 = 10, "ECDSA with SHA-384 on the P-384 curve";
        /// RFC 4754.
        Ecdsa521 = 11, "ECDSA with SHA-512 on the P-521 curve";
        /// RFC 7619.
        Null = 13, "NULL Authentication";
        /// RFC 7427.
        DigitalSignature = 14, "Digital Signature";
    }
}

code_points! {
    /// The encoding of a certificate or of a request for one.
    pub enum CertEncoding: u8 {
        Pkcs7 = 1, "PKCS #7 wrapped X.509 certificate";
        X509Signature = 4, "X.509 Certificate - Signature";
        Crl = 7, "Certificate Revocation List";
        HashAndUrl = 12, "Hash and URL of X.509 certificate";
        HashAndUrlBundle = 13, "Hash and URL of X.509 bundle";
        /// RFC 4806.
        Ocsp = 14, "OCSP Content";
        /// RFC 7670.
        RawPublicKey = 15, "Raw Public Key";
    }
}

/// An identification payload.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Id {
    /// What the data is.
    pub kind: IdType,
    /// Three reserved bytes: zero when sent, and kept when received because the peer's AUTH covers them (section 2.15).
    /// "all fields marked RESERVED MUST be set to zero by an implementation running version 2.0, and their content MUST be
    /// ignored" (RFC 7296 section 2.5)
    pub reserved: [u8; 3],
    /// The identity.
    pub data: Vec<u8>,
}

impl Id {
    /// An identity to be sent.
    #[must_use]
    pub fn new(kind: IdType, data: impl Into<Vec<u8>>) -> Self {
        Self { kind, reserved: [0; 3], data: data.into() }
    }

    /// `RestOfInitIDPayload`, the bytes that AUTH covers: type, reserved bytes and data (section 2.15).
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4 + self.data.len());
        self.emit(&mut Writer::new(&mut out));
        out
    }

    fn parse(mut r: Reader<'_>) -> Result<Self> {
        Ok(Self { kind: IdType::from(r.u8()?), reserved: r.array()?, data: r.rest().to_vec() })
    }

    fn emit(&self, w: &mut Writer<'_>) {
        w.u8(self.kind.code());
        w.bytes(&self.reserved);
        w.bytes(&self.data);
    }
}

/// A payload other than the encrypted ones, which [`super::Message::protected`] describes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Payload {
    /// Security association: proposals, at least one.
    Sa(Vec<Proposal>),
    /// Key exchange.
    Ke {
        /// The Diffie-Hellman group of the data.
        group: u16,
        /// The public value.
        data: Vec<u8>,
    },
    /// Identity of the original initiator.
    IdI(Id),
    /// Identity of the original responder.
    IdR(Id),
    /// A certificate; the first one of a message holds the key of AUTH.
    Cert {
        /// What the data is.
        encoding: CertEncoding,
        /// The certificate.
        data: Vec<u8>,
    },
    /// A request for certificates.
    CertReq {
        /// What is asked for.
        encoding: CertEncoding,
        /// SHA-1 hashes of the public keys of the trusted CAs, 20 bytes each.
        data: Vec<u8>,
    },
    /// Proof of identity.
    Auth {
        /// How it is proven.
        method: AuthMethod,
        /// Signature or MAC.
        data: Vec<u8>,
    },
    /// A nonce of 16 to 256 bytes.
    Nonce(Vec<u8>),
    /// A notification.
    Notify(Notify),
    /// A deletion.
    Delete(Delete),
    /// A vendor's identifier.
    VendorId(Vec<u8>),
    /// Traffic selectors of the exchange's initiator.
    TsI(Vec<TrafficSelector>),
    /// Traffic selectors of the exchange's responder.
    TsR(Vec<TrafficSelector>),
    /// Configuration.
    Cp(Config),
    /// An EAP message.
    Eap(Vec<u8>),
    /// The solution of a puzzle (RFC 8019 section 8.2): see [`super::puzzle_keys`].
    PuzzleSolution(Vec<u8>),
    /// A payload without a parser here. If it is critical, the request that holds it must be refused with
    /// UNSUPPORTED_CRITICAL_PAYLOAD (section 2.5): see [`unsupported_critical`].
    Unknown {
        /// Its type.
        kind: PayloadType,
        /// Its critical bit.
        critical: bool,
        /// Its body.
        body: Vec<u8>,
    },
}

/// The type of the first payload of a chain that may not be skipped and has no parser here, for the data of
/// UNSUPPORTED_CRITICAL_PAYLOAD (RFC 7296 section 2.5).
/// "If the critical flag is not set and the payload type is unsupported, that payload MUST be ignored." (RFC 7296 section 2.5)
/// "[...] MUST be ignored by the recipient if the recipient understands the payload type code" (RFC 7296 section 3.2): the
/// critical bit.
#[must_use]
pub fn unsupported_critical(payloads: &[Payload]) -> Option<PayloadType> {
    payloads.iter().find_map(|p| match p {
        Payload::Unknown { kind, critical: true, .. } => Some(*kind),
        _ => None,
    })
}

impl Payload {
    /// Its type on the wire.
    #[must_use]
    pub const fn kind(&self) -> PayloadType {
        match self {
            Self::Sa(_) => PayloadType::Sa,
            Self::Ke { .. } => PayloadType::Ke,
            Self::IdI(_) => PayloadType::IdI,
            Self::IdR(_) => PayloadType::IdR,
            Self::Cert { .. } => PayloadType::Cert,
            Self::CertReq { .. } => PayloadType::CertReq,
            Self::Auth { .. } => PayloadType::Auth,
            Self::Nonce(_) => PayloadType::Nonce,
            Self::Notify(_) => PayloadType::Notify,
            Self::Delete(_) => PayloadType::Delete,
            Self::VendorId(_) => PayloadType::VendorId,
            Self::TsI(_) => PayloadType::TsI,
            Self::TsR(_) => PayloadType::TsR,
            Self::Cp(_) => PayloadType::Cp,
            Self::Eap(_) => PayloadType::Eap,
            Self::PuzzleSolution(_) => PayloadType::PuzzleSolution,
            Self::Unknown { kind, .. } => *kind,
        }
    }

    fn parse(kind: PayloadType, critical: bool, mut r: Reader<'_>) -> Result<Self> {
        Ok(match kind {
            PayloadType::Sa => Self::Sa(sa::parse(r)?),
            PayloadType::Ke => {
                let group = r.u16()?;
                r.take(2)?;
                Self::Ke { group, data: r.rest().to_vec() }
            }
            PayloadType::IdI => Self::IdI(Id::parse(r)?),
            PayloadType::IdR => Self::IdR(Id::parse(r)?),
            PayloadType::Cert => {
                Self::Cert { encoding: CertEncoding::from(r.u8()?), data: r.rest().to_vec() }
            }
            PayloadType::CertReq => {
                Self::CertReq { encoding: CertEncoding::from(r.u8()?), data: r.rest().to_vec() }
            }
            PayloadType::Auth => {
                let method = AuthMethod::from(r.u8()?);
                r.take(3)?;
                Self::Auth { method, data: r.rest().to_vec() }
            }
            PayloadType::Nonce => Self::Nonce(parse_nonce(r)?),
            PayloadType::Notify => Self::Notify(Notify::parse(r)?),
            PayloadType::Delete => Self::Delete(Delete::parse(r)?),
            PayloadType::VendorId => Self::VendorId(r.rest().to_vec()),
            PayloadType::TsI => Self::TsI(ts::parse(r)?),
            PayloadType::TsR => Self::TsR(ts::parse(r)?),
            PayloadType::Cp => Self::Cp(Config::parse(r)?),
            PayloadType::Eap => Self::Eap(r.rest().to_vec()),
            PayloadType::PuzzleSolution => Self::PuzzleSolution(r.rest().to_vec()),
            kind => Self::Unknown { kind, critical, body: r.rest().to_vec() },
        })
    }

    fn emit(&self, w: &mut Writer<'_>) {
        match self {
            Self::Sa(proposals) => sa::emit(proposals, w),
            Self::Ke { group, data } => {
                w.u16(*group);
                w.u16(0);
                w.bytes(data);
            }
            Self::IdI(id) | Self::IdR(id) => id.emit(w),
            Self::Cert { encoding, data } | Self::CertReq { encoding, data } => {
                w.u8(encoding.code());
                w.bytes(data);
            }
            Self::Auth { method, data } => {
                w.u8(method.code());
                w.zeros(3);
                w.bytes(data);
            }
            Self::Notify(notify) => notify.emit(w),
            Self::Delete(delete) => delete.emit(w),
            Self::TsI(selectors) | Self::TsR(selectors) => ts::emit(selectors, w),
            Self::Cp(config) => config.emit(w),
            Self::Nonce(bytes)
            | Self::VendorId(bytes)
            | Self::Eap(bytes)
            | Self::PuzzleSolution(bytes)
            | Self::Unknown { body: bytes, .. } => {
                w.bytes(bytes);
            }
        }
    }
}

/// "The size of the Nonce Data MUST be between 16 and 256 octets, inclusive." (RFC 7296 section 3.9)
fn parse_nonce(mut r: Reader<'_>) -> Result<Vec<u8>> {
    let nonce = r.rest();
    let expect = nonce.len().clamp(limits::MIN_NONCE, limits::MAX_NONCE);
    if nonce.len() == expect {
        Ok(nonce.to_vec())
    } else {
        Err(Error::Length { what: "nonce", got: nonce.len(), expect })
    }
}

/// The critical bit of the generic payload header; the other seven bits are reserved.
const CRITICAL: u8 = 0x80;

/// The generic payload header, and a reader over the body that it measures.
pub(super) struct Generic<'a> {
    pub(super) next: PayloadType,
    pub(super) critical: bool,
    pub(super) body: Reader<'a>,
}

impl<'a> Generic<'a> {
    /// Bytes of the generic payload header.
    pub(super) const LEN: usize = 4;

    pub(super) fn parse(kind: PayloadType, r: &mut Reader<'a>) -> Result<Self> {
        let next = PayloadType::from(r.u8()?);
        let critical = r.u8()? & CRITICAL != 0;
        let length = usize::from(r.u16()?);
        let what = kind.label().unwrap_or("unknown payload");
        let body =
            length.checked_sub(Self::LEN).ok_or(Error::Length { what, got: length, expect: Self::LEN })?;
        Ok(Self { next, critical, body: r.sub(what, body)? })
    }
}

/// Reads a chain from `first` on. Stops before an encrypted payload, whose type is returned with the reader at its generic
/// header; otherwise the reader is at the end of the chain and the type is [`PayloadType::None`].
pub(super) fn parse_chain(first: PayloadType, r: &mut Reader<'_>) -> Result<(Vec<Payload>, PayloadType)> {
    let mut payloads = Vec::new();
    let mut kind = first;
    while !matches!(kind, PayloadType::None | PayloadType::Sk | PayloadType::Skf) {
        if payloads.len() == limits::MAX_PAYLOADS {
            return Err(Error::TooMany { what: "payloads", limit: limits::MAX_PAYLOADS });
        }
        let generic = Generic::parse(kind, r)?;
        payloads.push(Payload::parse(kind, generic.critical, generic.body)?);
        kind = generic.next;
    }
    Ok((payloads, kind))
}

/// Reads a decrypted chain, padding already removed.
/// "An Encrypted payload MUST be the last payload in a packet and an Encrypted payload MUST NOT contain another Encrypted
/// payload." (RFC 7296 section 3.1)
///
/// # Errors
/// What is malformed; an encrypted payload inside the encrypted payload; bytes after the last payload.
pub fn parse_payloads(first: PayloadType, bytes: &[u8]) -> Result<Vec<Payload>> {
    let mut r = Reader::new("decrypted payloads", bytes);
    let (payloads, end) = parse_chain(first, &mut r)?;
    if end != PayloadType::None {
        let got = end.code().into();
        return Err(Error::Value { what: "type of a decrypted payload", got, expect: "not SK or SKF" });
    }
    r.all()?;
    Ok(payloads)
}

/// Appends a chain, ending with a next-payload field of 0, and returns the type of its first payload.
///
/// # Errors
/// [`Error::TooLong`] for a payload above 64 KiB, [`Error::Value`] for one that has no encoding; `out` is as it was then.
pub fn emit_payloads(payloads: &[Payload], out: &mut Vec<u8>) -> Result<PayloadType> {
    let mut w = Writer::new(out);
    let first = write_chain(payloads, PayloadType::None, &mut w);
    w.finish()?;
    Ok(first)
}

/// Writes a chain whose last next-payload field is `last`, and returns the type of the first payload.
/// "Payloads sent in IKE response messages MUST NOT have the critical flag set." (RFC 7296 section 2.5) Ours never have it.
pub(super) fn write_chain(payloads: &[Payload], last: PayloadType, w: &mut Writer<'_>) -> PayloadType {
    let nexts = payloads.iter().skip(1).map(Payload::kind).chain(core::iter::once(last));
    for (payload, next) in payloads.iter().zip(nexts) {
        if matches!(payload.kind(), PayloadType::None | PayloadType::Sk | PayloadType::Skf) {
            let got = payload.kind().code().into();
            w.refuse(Error::Value { what: "type of a payload in a chain", got, expect: "not 0, SK or SKF" });
        }
        let start = w.position();
        w.u8(next.code());
        // "[...] MUST be set to zero for payload types defined in this document" (RFC 7296 section 3.2)
        w.u8(if matches!(payload, Payload::Unknown { critical: true, .. }) { CRITICAL } else { 0 });
        let what = payload.kind().label().unwrap_or("unknown payload");
        payload.emit(&mut w.length_u16(what, Counts::From(start)));
    }
    payloads.first().map_or(last, Payload::kind)
}

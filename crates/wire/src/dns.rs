//! DNS messages (RFC 1035), in the form that multicast DNS (RFC 6762) and the NetBIOS name service (RFC 1002) use too.
//!
//! Owns header, names with compression, questions and resource records. Must never resolve, cache, or know what the data of a
//! record means beyond the names in it.

use core::fmt;

use crate::codec::Reader;
use crate::{Error, Result};

/// Bytes of the header.
pub const HEADER_LEN: usize = 12;
/// Longest name on the wire, its lengths and final zero included (RFC 1035 section 2.3.4).
pub const MAX_NAME: usize = 255;
/// Longest label.
const MAX_LABEL: u8 = 63;
/// Questions and records read from one message at most: a name of two bytes may expand to 255, so the count is bounded too.
pub const MAX_ITEMS: usize = 128;
/// Compression pointers followed in one name. Real encoders need one or two.
const MAX_POINTERS: usize = 16;

/// Bit of [`Header::flags`]: a response.
pub const RESPONSE: u16 = 0x8000;
/// Bit of [`Header::flags`]: an authoritative answer.
pub const AUTHORITATIVE: u16 = 0x0400;
/// Bit of [`Header::flags`]: the response was cut.
pub const TRUNCATED: u16 = 0x0200;
/// Bit of [`Header::flags`]: recursion desired, copied into the response.
pub const RECURSION_DESIRED: u16 = 0x0100;
/// Response code: the question is not understood (RFC 1035 section 4.1.1).
pub const FORMAT_ERROR: u16 = 1;
/// Response code: there is no such name.
pub const NO_NAME: u16 = 3;
/// Response code: the server does not know this kind of query.
pub const NOT_IMPLEMENTED: u16 = 4;
/// Response code: the server does not want to answer this (RFC 1035 section 4.1.1).
pub const REFUSED: u16 = 5;

/// Types of records: an IPv4 address, the start of a zone, a name for an address, an IPv6 address, and the extension of EDNS (RFC 6891).
pub const A: u16 = 1;
/// See [`A`].
pub const SOA: u16 = 6;
/// See [`A`].
pub const PTR: u16 = 12;
/// See [`A`].
pub const AAAA: u16 = 28;
/// See [`A`].
pub const OPT: u16 = 41;

/// The class of the Internet.
pub const IN: u16 = 1;
/// Any class, or any type.
pub const ANY: u16 = 255;
/// Top bit of the class in multicast DNS: of a question, "answer by unicast"; of a record, "forget others of this name and
/// type" (RFC 6762 sections 5.4 and 10.2).
pub const TOP_BIT: u16 = 0x8000;

/// A domain name as it stands on the wire without compression: labels with their lengths, and a final zero.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Vec<u8>);

impl Name {
    /// From labels such as `["host", "local"]`.
    ///
    /// # Errors
    /// [`Error::Length`] for an empty label or one above 63 bytes, [`Error::TooLong`] for a name above 255.
    pub fn from_labels<L: AsRef<[u8]>>(labels: impl IntoIterator<Item = L>) -> Result<Self> {
        let mut wire = Vec::new();
        for label in labels {
            let label = label.as_ref();
            let len = u8::try_from(label.len()).ok().filter(|len| (1..=MAX_LABEL).contains(len));
            let bad = Error::Length { what: "DNS label", got: label.len(), expect: MAX_LABEL.into() };
            wire.push(len.ok_or(bad)?);
            wire.extend_from_slice(label);
        }
        wire.push(0);
        match wire.len() {
            0..=MAX_NAME => Ok(Self(wire)),
            got => Err(Error::TooLong { what: "DNS name", got, limit: MAX_NAME }),
        }
    }

    /// A name of one label.
    pub(crate) fn single(label: [u8; 32]) -> Self {
        Self([&[32], label.as_slice(), &[0]].concat())
    }

    /// The bytes on the wire.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The first label, empty for the root.
    #[must_use]
    pub fn first_label(&self) -> &[u8] {
        let len = self.0.first().copied().unwrap_or(0);
        self.0.get(1..=usize::from(len)).unwrap_or_default()
    }

    /// Whether the name has one label only.
    #[must_use]
    pub fn is_single(&self) -> bool {
        !self.first_label().is_empty() && self.0.len() == self.first_label().len() + 2
    }

    /// Equality as DNS means it: ASCII letters of either case are the same (RFC 1035 section 2.3.3). Lengths of labels are below
    /// the codes of letters, so that the whole may be compared at once.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }

    /// Reads a name that begins at the reader, within `message`: a pointer leads back into that.
    fn read(reader: &mut Reader<'_>, message: &[u8]) -> Result<Self> {
        let mut wire = Vec::new();
        let Some(target) = labels(reader, &mut wire)? else { return Ok(Self(wire)) };
        let mut target = target;
        // "A pointer [...] to a prior occurrence": each must lead further back than the last, so that there is no circle.
        let mut bound = message.len();
        for _ in 0..MAX_POINTERS {
            if target >= bound || target < HEADER_LEN {
                let got = target as u64;
                return Err(Error::Value { what: "DNS name pointer", got, expect: "a prior occurrence" });
            }
            bound = target;
            let mut earlier = Reader::new("DNS name", message.get(target..).unwrap_or_default());
            match labels(&mut earlier, &mut wire)? {
                None => return Ok(Self(wire)),
                Some(next) => target = next,
            }
        }
        Err(Error::TooMany { what: "pointers in a DNS name", limit: MAX_POINTERS })
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_slice();
        while let Some((len @ 1.., tail)) = rest.split_first() {
            let (label, tail) = tail.split_at_checked(usize::from(*len)).unwrap_or((tail, &[]));
            write!(f, "{}.", label.escape_ascii())?;
            rest = tail;
        }
        Ok(())
    }
}

/// Appends labels up to the end of the name (then `None`) or to a pointer (then its target).
fn labels(reader: &mut Reader<'_>, wire: &mut Vec<u8>) -> Result<Option<usize>> {
    loop {
        match reader.u8()? {
            0 => {
                wire.push(0);
                return Ok(None);
            }
            len @ 1..=MAX_LABEL => {
                wire.push(len);
                wire.extend_from_slice(reader.take(len.into())?);
                // One byte for the final zero.
                if wire.len() >= MAX_NAME {
                    return Err(Error::TooLong { what: "DNS name", got: wire.len() + 1, limit: MAX_NAME });
                }
            }
            high @ 0xc0.. => return Ok(Some(usize::from(high & 0x3f) << 8 | usize::from(reader.u8()?))),
            got => {
                let (what, expect) = ("DNS label length", "0 to 63, or a pointer");
                return Err(Error::Value { what, got: got.into(), expect });
            }
        }
    }
}

/// The header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// Pairs queries and responses; 0 in multicast DNS.
    pub id: u16,
    /// Everything between the id and the counts: response bit, opcode, flags, response code.
    pub flags: u16,
    /// Questions.
    pub questions: u16,
    /// Answer records.
    pub answers: u16,
    /// Authority records.
    pub authorities: u16,
    /// Additional records.
    pub additionals: u16,
}

impl Header {
    /// The operation: 0 is a query.
    #[must_use]
    pub const fn opcode(&self) -> u16 {
        self.flags >> 11 & 0xf
    }

    /// The response code: 0 is success.
    #[must_use]
    pub const fn rcode(&self) -> u16 {
        self.flags & 0xf
    }

    /// Whether this is a response.
    #[must_use]
    pub const fn is_response(&self) -> bool {
        self.flags & RESPONSE != 0
    }

    /// Appends the 12 bytes.
    pub fn emit(&self, out: &mut Vec<u8>) {
        for word in [self.id, self.flags, self.questions, self.answers, self.authorities, self.additionals] {
            out.extend_from_slice(&word.to_be_bytes());
        }
    }
}

/// A question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// What is asked about.
    pub name: Name,
    /// Type of the records wanted.
    pub kind: u16,
    /// Their class; see [`TOP_BIT`].
    pub class: u16,
}

impl Question {
    /// Appends it, the name uncompressed.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.name.as_bytes());
        out.extend_from_slice(&self.kind.to_be_bytes());
        out.extend_from_slice(&self.class.to_be_bytes());
    }
}

/// Which part of the message a record stands in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Section {
    /// Answers.
    Answer,
    /// Authority.
    Authority,
    /// Additional.
    Additional,
}

/// A resource record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Where it stands.
    pub section: Section,
    /// Whose record.
    pub name: Name,
    /// Type.
    pub kind: u16,
    /// Class; see [`TOP_BIT`].
    pub class: u16,
    /// Seconds for which it may be kept. Values with the top bit set count as 0 (RFC 2181 section 8).
    pub ttl: u32,
    /// Data. Names in it are uncompressed for the types that RFC 3597 section 4 lets senders compress.
    pub data: Vec<u8>,
}

impl Record {
    /// Appends it with another `ttl`, names uncompressed.
    ///
    /// # Errors
    /// [`Error::TooLong`] for data above 65,535 bytes; `out` is as it was then.
    pub fn emit(&self, ttl: u32, out: &mut Vec<u8>) -> Result<()> {
        let got = self.data.len();
        let len = u16::try_from(got).map_err(|_| Error::TooLong { what: "DNS data", got, limit: 0xffff })?;
        out.extend_from_slice(self.name.as_bytes());
        out.extend_from_slice(&self.kind.to_be_bytes());
        out.extend_from_slice(&self.class.to_be_bytes());
        out.extend_from_slice(&ttl.to_be_bytes());
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(&self.data);
        Ok(())
    }
}

/// A whole message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Message {
    /// The header.
    pub header: Header,
    /// Questions.
    pub questions: Vec<Question>,
    /// Records of all sections, in their order.
    pub records: Vec<Record>,
}

impl Message {
    /// Reads a message. Bytes after it are left alone.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Value`], [`Error::TooLong`] or [`Error::TooMany`], naming the part.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        Self::read(bytes, expand)
    }

    /// As [`Self::parse`], but the data of records is left as it is. For the NetBIOS name service, which has other types under
    /// the numbers of DNS.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_netbios(bytes: &[u8]) -> Result<Self> {
        Self::read(bytes, |_, mut data, _| Ok(data.rest().to_vec()))
    }

    fn read(bytes: &[u8], expand: Expand) -> Result<Self> {
        let mut reader = Reader::new("DNS message", bytes);
        let header = Header {
            id: reader.u16()?,
            flags: reader.u16()?,
            questions: reader.u16()?,
            answers: reader.u16()?,
            authorities: reader.u16()?,
            additionals: reader.u16()?,
        };
        let sections = [
            (Section::Answer, header.answers),
            (Section::Authority, header.authorities),
            (Section::Additional, header.additionals),
        ];
        let items = usize::from(header.questions) + sections.iter().map(|s| usize::from(s.1)).sum::<usize>();
        if items > MAX_ITEMS {
            return Err(Error::TooMany { what: "questions and records in a DNS message", limit: MAX_ITEMS });
        }
        let mut message = Self { header, questions: Vec::new(), records: Vec::new() };
        for _ in 0..header.questions {
            let name = Name::read(&mut reader, bytes)?;
            message.questions.push(Question { name, kind: reader.u16()?, class: reader.u16()? });
        }
        for (section, count) in sections {
            for _ in 0..count {
                message.records.push(record(section, &mut reader, bytes, expand)?);
            }
        }
        Ok(message)
    }

    /// Records of one section.
    pub fn section(&self, section: Section) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(move |r| r.section == section)
    }
}

/// How the data of a type becomes what [`Record::data`] holds; the last argument is the whole message.
type Expand = fn(u16, Reader<'_>, &[u8]) -> Result<Vec<u8>>;

fn record(section: Section, reader: &mut Reader<'_>, message: &[u8], expand: Expand) -> Result<Record> {
    let name = Name::read(reader, message)?;
    let (kind, class, ttl, len) = (reader.u16()?, reader.u16()?, reader.u32()?, reader.u16()?);
    let data = expand(kind, reader.sub("DNS data", len.into())?, message)?;
    Ok(Record { section, name, kind, class, ttl: if ttl >> 31 == 0 { ttl } else { 0 }, data })
}

/// The data of a record with the names in it uncompressed.
fn expand(kind: u16, mut data: Reader<'_>, message: &[u8]) -> Result<Vec<u8>> {
    const NS: u16 = 2;
    const CNAME: u16 = 5;
    const MX: u16 = 15;
    const SRV: u16 = 33;
    const NSEC: u16 = 47;
    // Bytes before the names, and how many names there are. SRV and NSEC are compressed in multicast DNS (RFC 6762 section
    // 18.14).
    let (before, names) = match kind {
        NS | CNAME | PTR | NSEC => (0, 1),
        SOA => (0, 2),
        MX => (2, 1),
        SRV => (6, 1),
        _ => (0, 0),
    };
    let mut out = data.take(before)?.to_vec();
    for _ in 0..names {
        out.extend_from_slice(Name::read(&mut data, message)?.as_bytes());
    }
    out.extend_from_slice(data.rest());
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two answers of a printer, the second name and the name in the first's data compressed.
    fn compressed() -> Vec<u8> {
        let mut m = Vec::new();
        Header { flags: RESPONSE | AUTHORITATIVE, answers: 2, ..Header::default() }.emit(&mut m);
        m.extend_from_slice(
            b"\x04_ipp\x04_tcp\x05local\x00\x00\x0c\x00\x01\x00\x00\x00\x78\x00\x08\x05print\xc0\x0c",
        );
        m.extend_from_slice(b"\x05print\xc0\x16\x00\x01\x80\x01\x00\x00\x00\x78\x00\x04\x0a\x01\x02\x03");
        m
    }

    #[test]
    fn pointers_are_followed_in_names_and_in_data() {
        let m = Message::parse(&compressed()).expect("well-formed");
        let [ptr, a] = m.records.as_slice() else { panic!("{m:?}") };
        assert_eq!(ptr.data, b"\x05print\x04_ipp\x04_tcp\x05local\x00");
        assert!(a.name.matches(&Name::from_labels(["PRINT", "local"]).expect("a name")), "{:?}", a.name);
        assert_eq!(a.data, [10, 1, 2, 3]);
        assert_eq!(format!("{:?}", ptr.name), "_ipp._tcp.local.");
    }

    #[test]
    fn circles_and_endless_names_are_refused() {
        let mut own = Vec::new();
        Header { questions: 1, ..Header::default() }.emit(&mut own);
        let mut forward = own.clone();
        own.extend_from_slice(b"\xc0\x0c\x00\x01\x00\x01");
        // The label at 12, then a pointer to that label: the same bytes over and over.
        forward.extend_from_slice(b"\x01a\xc0\x0c\x00\x01\x00\x01");
        for bytes in [own, forward] {
            assert!(Message::parse(&bytes).is_err(), "{bytes:02x?}");
        }
        let label = [b'a'; 63];
        assert!(Name::from_labels([label; 4]).is_err());
        assert!(Name::from_labels([label; 3]).is_ok());
    }

    #[test]
    fn a_count_that_the_message_cannot_hold_is_refused() {
        let mut m = Vec::new();
        Header { answers: 0xffff, ..Header::default() }.emit(&mut m);
        assert_eq!(
            Message::parse(&m),
            Err(Error::TooMany { what: "questions and records in a DNS message", limit: MAX_ITEMS })
        );
    }

    #[test]
    fn what_is_emitted_reads_back() {
        let mut message = Message::parse(&compressed()).expect("well-formed");
        message.questions.push(Question {
            name: Name::from_labels(["x"]).expect("a name"),
            kind: 1,
            class: IN,
        });
        message.header.questions = 1;
        let mut out = Vec::new();
        message.header.emit(&mut out);
        message.questions.iter().for_each(|q| q.emit(&mut out));
        for r in &message.records {
            r.emit(r.ttl, &mut out).expect("short data");
        }
        assert_eq!(Message::parse(&out), Ok(message));
    }
}

//! Distinguished names in configuration and in error messages. Owns the notation, the encoding and the comparison; the order
//! is the one of the encoding, most significant part first (`C=CH, O=Example, CN=gateway`), as IKE configurations write it.

use der::asn1::{
    Any, Ia5StringRef, ObjectIdentifier, PrintableStringRef, SetOfVec, TeletexStringRef, Utf8StringRef,
};
use der::{Decode, Encode, Sequence, Tag, Tagged};

/// A distinguished name in the configuration that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DnError {
    /// A part without an equals sign or without a value.
    #[error("\"{part}\" in a distinguished name is not of the form TYPE=value")]
    Part {
        /// The part.
        part: String,
    },
    /// An attribute type that is neither known nor an OID.
    #[error("unknown attribute \"{name}\" in a distinguished name; known are {known}, and dotted OIDs")]
    Attribute {
        /// The type.
        name: String,
        /// The types known.
        known: String,
    },
    /// A value that its string type cannot hold.
    #[error("\"{value}\" cannot be a value of {name}")]
    Value {
        /// The type.
        name: String,
        /// The value.
        value: String,
    },
}

/// AttributeTypeAndValue (RFC 5280, section 4.1.2.4).
#[derive(Clone, Debug, PartialEq, Eq, Sequence, der::ValueOrd)]
struct Attribute {
    kind: ObjectIdentifier,
    value: Any,
}

type RelativeName = SetOfVec<Attribute>;

/// How a new value is encoded.
#[derive(Clone, Copy, PartialEq)]
enum Encoding {
    Printable,
    Ia5,
    Utf8,
}

/// Names as strongSwan, libreswan and OpenSSL write them; the first name of an OID is the one that is shown.
#[rustfmt::skip]
const KINDS: [(&str, ObjectIdentifier, Encoding); 15] = [
    ("C",            ObjectIdentifier::new_unwrap("2.5.4.6"),  Encoding::Printable),
    ("ST",           ObjectIdentifier::new_unwrap("2.5.4.8"),  Encoding::Utf8),
    ("L",            ObjectIdentifier::new_unwrap("2.5.4.7"),  Encoding::Utf8),
    ("STREET",       ObjectIdentifier::new_unwrap("2.5.4.9"),  Encoding::Utf8),
    ("O",            ObjectIdentifier::new_unwrap("2.5.4.10"), Encoding::Utf8),
    ("OU",           ObjectIdentifier::new_unwrap("2.5.4.11"), Encoding::Utf8),
    ("CN",           ObjectIdentifier::new_unwrap("2.5.4.3"),  Encoding::Utf8),
    ("serialNumber", ObjectIdentifier::new_unwrap("2.5.4.5"),  Encoding::Printable),
    ("SN",           ObjectIdentifier::new_unwrap("2.5.4.4"),  Encoding::Utf8),
    ("GN",           ObjectIdentifier::new_unwrap("2.5.4.42"), Encoding::Utf8),
    ("T",            ObjectIdentifier::new_unwrap("2.5.4.12"), Encoding::Utf8),
    ("DC",           ObjectIdentifier::new_unwrap("0.9.2342.19200300.100.1.25"), Encoding::Ia5),
    ("UID",          ObjectIdentifier::new_unwrap("0.9.2342.19200300.100.1.1"),  Encoding::Utf8),
    ("E",            ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.1"),       Encoding::Ia5),
    ("emailAddress", ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.1"),       Encoding::Ia5),
];

/// DER from the notation. A backslash takes the next character as it is; `+` stands between the attributes of one part, and `#` before
/// the hexadecimal DER of a value.
pub(super) fn parse(text: &str) -> Result<Vec<u8>, DnError> {
    let mut names = Vec::new();
    for part in split(text, ',') {
        let mut relative = RelativeName::new();
        for attribute in split(part, '+') {
            let bad_part = || DnError::Part { part: part.trim().to_owned() };
            let (name, written) = attribute.split_once('=').ok_or_else(bad_part)?;
            let (name, written) = (name.trim(), written.trim_start());
            let (kind, encoding) = kind(name)?;
            let value = match written.strip_prefix('#') {
                Some(digits) => unhexadecimal(digits.trim_end()),
                None => match unescape(written) {
                    value if value.is_empty() => return Err(bad_part()),
                    value => encode(encoding, &value),
                },
            };
            let bad_value = || DnError::Value { name: name.to_owned(), value: unescape(written) };
            relative
                .insert(Attribute { kind, value: value.ok_or_else(bad_value)? })
                .map_err(|_| bad_value())?;
        }
        names.push(relative);
    }
    names.to_der().map_err(|_| DnError::Part { part: text.to_owned() })
}

/// `None` if this kind of string cannot hold it.
fn encode(encoding: Encoding, value: &str) -> Option<Any> {
    match encoding {
        Encoding::Printable => PrintableStringRef::new(value).ok().map(Any::from),
        Encoding::Ia5 => Ia5StringRef::new(value).ok().map(Any::from),
        Encoding::Utf8 => Utf8StringRef::new(value).ok().map(Any::from),
    }
}

/// The parts between separators that are not escaped.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        if c == separator && !escaped {
            parts.push(&text[start..at]);
            start = at + c.len_utf8();
        }
        escaped = c == '\\' && !escaped;
    }
    parts.push(&text[start..]);
    parts
}

/// Without the blanks around it, unless they are escaped.
fn unescape(written: &str) -> String {
    let (mut value, mut end, mut escaped) = (String::new(), 0, false);
    for c in written.trim_start().chars() {
        if c == '\\' && !escaped {
            escaped = true;
            continue;
        }
        value.push(c);
        if escaped || !c.is_whitespace() {
            end = value.len();
        }
        escaped = false;
    }
    value.truncate(end);
    value
}

fn unhexadecimal(digits: &str) -> Option<Any> {
    let der = unhex(digits)?;
    Any::from_der(&der).ok()
}

pub(super) fn unhex(digits: &str) -> Option<Vec<u8>> {
    if digits.is_empty() || !digits.len().is_multiple_of(2) {
        return None;
    }
    let nibble = |c: u8| char::from(c).to_digit(16).and_then(|d| u8::try_from(d).ok());
    digits.as_bytes().chunks_exact(2).map(|pair| Some(nibble(pair[0])? << 4 | nibble(pair[1])?)).collect()
}

fn kind(name: &str) -> Result<(ObjectIdentifier, Encoding), DnError> {
    if let Some((_, oid, encoding)) = KINDS.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name)) {
        return Ok((*oid, *encoding));
    }
    name.parse().map(|oid| (oid, Encoding::Utf8)).map_err(|_| DnError::Attribute {
        name: name.to_owned(),
        known: KINDS.map(|(known, ..)| known).join(", "),
    })
}

/// The notation of a DER name, which leads back to the same name. What cannot be written as text of its attribute is shown as `#` and the
/// hexadecimal DER of the value; so is text with control characters, which could forge a line of a log, and with other signs that are neither
/// ASCII nor letters nor digits: there are invisible ones among them, and such that turn the direction of writing.
pub(super) fn display(der: &[u8]) -> String {
    let Some(names) = decode(der) else {
        return "(malformed distinguished name)".to_owned();
    };
    let relative = |relative: &RelativeName| {
        let attributes = relative.iter().map(|attribute| {
            let known = KINDS.iter().find(|(_, oid, _)| *oid == attribute.kind);
            let encoding = known.map_or(Encoding::Utf8, |(.., encoding)| *encoding);
            let name = known.map_or_else(|| attribute.kind.to_string(), |(name, ..)| (*name).to_owned());
            let shown = |c: char| matches!(c, ' '..='~') || c.is_alphanumeric();
            let leads_back =
                |text: &&str| !text.is_empty() && text.chars().all(shown) && encode(encoding, text).is_some();
            let value = text(&attribute.value).filter(leads_back);
            let value = value.map_or_else(|| hexadecimal(&attribute.value), escape);
            format!("{name}={value}")
        });
        attributes.collect::<Vec<_>>().join("+")
    };
    names.iter().map(relative).collect::<Vec<_>>().join(", ")
}

fn escape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for (at, c) in value.char_indices() {
        let edge = at == 0 || at + c.len_utf8() == value.len();
        if matches!(c, ',' | '\\' | '+') || (at == 0 && c == '#') || (edge && c.is_whitespace()) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn hexadecimal(value: &Any) -> String {
    let mut out = String::from("#");
    for byte in value.to_der().unwrap_or_default() {
        out.push_str(&format!("{byte:02x}"));
    }
    out
}

fn decode(der: &[u8]) -> Option<Vec<RelativeName>> {
    Vec::from_der(der).ok()
}

fn text(value: &Any) -> Option<&str> {
    match value.tag() {
        Tag::Utf8String => Utf8StringRef::try_from(value).ok().map(|s| s.as_str()),
        Tag::PrintableString => PrintableStringRef::try_from(value).ok().map(|s| s.as_str()),
        Tag::Ia5String => Ia5StringRef::try_from(value).ok().map(|s| s.as_str()),
        Tag::TeletexString => TeletexStringRef::try_from(value).ok().map(|s| s.as_str()),
        _ => None,
    }
}

/// Whether this is a distinguished name in DER, without anything behind it.
pub(super) fn is_name(der: &[u8]) -> bool {
    decode(der).is_some()
}

/// Whether two DER names are the same name: the same attributes in the same order, text compared without regard to case,
/// string type, and the amount of white space (RFC 5280, section 7.1), everything else byte by byte.
pub(super) fn same(a: &[u8], b: &[u8]) -> bool {
    a == b || canonical(a).is_some_and(|a| Some(a) == canonical(b))
}

/// The same bytes for the same names, and others for others; `None` if it is no name.
pub(super) fn canonical(der: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut part = |kind: u8, bytes: &[u8]| {
        out.push(kind);
        out.extend((bytes.len() as u64).to_be_bytes());
        out.extend_from_slice(bytes);
    };
    for relative in decode(der)? {
        let mut attributes: Vec<_> =
            relative.iter().map(|a| (a.kind.as_bytes(), canonical_value(&a.value))).collect();
        // In DER they are sorted by encodings, which differ with the string type.
        attributes.sort();
        for (at, (kind, (text, value))) in attributes.iter().enumerate() {
            part(u8::from(at == 0), kind);
            part(2 + u8::from(*text), value);
        }
    }
    Some(out)
}

/// Whether it is text, and its bytes.
fn canonical_value(value: &Any) -> (bool, Vec<u8>) {
    let words = |text: &str| text.split_whitespace().map(str::to_lowercase).collect::<Vec<_>>().join(" ");
    match text(value) {
        Some(text) => (true, words(text).into_bytes()),
        None => (false, value.to_der().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notation_leads_back_in_the_same_order() {
        let text = r"C=CH, O=Example\, Ltd, CN=gateway, DC=example, E=a@b.c, 2.5.4.99=x";
        assert_eq!(display(&parse(text).unwrap()), text);
    }

    #[test]
    fn comparison_ignores_case_space_and_string_type_but_not_order() {
        let a = parse("C=CH, O=My  Company, CN=gw").unwrap();
        assert!(same(&a, &parse("C=ch,O=my company,CN=GW").unwrap()));
        assert!(!same(&a, &parse("CN=gw, O=My Company, C=CH").unwrap()));
        assert!(!same(&a, &parse("C=CH, O=My Company").unwrap()));
        assert!(!same(&a, &parse("C=CH, O=MyCompany, CN=gw").unwrap()));
        // The same common name as a PrintableString: tag 0x13 in place of 0x0c.
        let mut printable = a.clone();
        let at = printable.len() - 4;
        assert_eq!(printable[at], 0x0c);
        printable[at] = 0x13;
        assert!(same(&a, &printable));
    }

    #[test]
    fn errors_name_the_part() {
        assert_eq!(parse("C=CH, gateway"), Err(DnError::Part { part: "gateway".into() }));
        assert_eq!(parse("C=CH,"), Err(DnError::Part { part: String::new() }));
        assert!(matches!(parse("Q=1"), Err(DnError::Attribute { name, .. }) if name == "Q"));
        assert!(matches!(parse("C=Ö"), Err(DnError::Value { value, .. }) if value == "Ö"));
    }

    #[test]
    fn hostile_text_cannot_break_a_line() {
        assert_eq!(display(&parse("CN=a\nb").unwrap()), "CN=#0c03610a62");
        for mark in ['\u{202e}', '\u{2028}', '\u{200b}', '\u{feff}'] {
            let der = parse(&format!("CN=a{mark}b")).unwrap();
            let shown = display(&der);
            assert!(shown.starts_with("CN=#") && shown.is_ascii(), "{shown}");
            assert_eq!(parse(&shown).unwrap(), der);
        }
        assert_eq!(display(&parse("CN=grün").unwrap()), "CN=grün");
        assert_eq!(display(&[0x30, 0x80]), "(malformed distinguished name)");
    }

    #[test]
    fn every_name_is_shown_so_that_it_leads_back() {
        for text in [
            "CN=joe+UID=7",
            "CN=#1e06006a006f0065",
            r"CN=\#joe, O=\ a b\ , OU=x\+y",
            "CN=#0c00",
            "C=#0c02c396, CN=joe",
            "2.5.4.99=x+CN=#0c03610a62",
        ] {
            let der = parse(text).unwrap();
            assert_eq!(display(&der), text);
            assert_eq!(parse(&display(&der)).unwrap(), der, "{text}");
        }
        let both = parse("CN=joe+UID=7").unwrap();
        assert_eq!(decode(&both).unwrap().first().unwrap().len(), 2);
        assert!(same(&both, &parse("uid = 7 + cn = JOE").unwrap()));
        assert!(!same(&both, &parse("CN=joe, UID=7").unwrap()));
        assert!(!same(&both, &parse(r"CN=joe\+UID=7").unwrap()));
    }

    #[test]
    fn what_leads_nowhere_is_refused() {
        for text in ["CN=a+b", "CN=#", "CN=#0c", "CN=#0c0361", "CN=#0c01zz", "CN=joe+", "CN= "] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}

//! Pre-shared keys, from the files that people have. Owns the notation; it must never show a key.

use crate::pem;
use crate::secret::Secret;

/// A file that holds no pre-shared key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PskError {
    /// There is nothing, or nothing but white space.
    #[error("no pre-shared key here: the file is empty")]
    Empty,
    /// A file of another kind.
    #[error("no pre-shared key here: {found}")]
    OtherFile {
        /// What the file holds.
        found: String,
    },
    /// `0x` without pairs of hexadecimal digits behind it.
    #[error(
        "a pre-shared key that begins with 0x needs pairs of hexadecimal digits; character {at} is none, or one is missing"
    )]
    Hexadecimal {
        /// Position of the first character that does not fit, counted from 1.
        at: usize,
    },
    /// More than one line: which one is the key?
    #[error("a pre-shared key is one line; the file has {lines}")]
    Lines {
        /// Lines that are not empty.
        lines: usize,
    },
}

/// Reads a pre-shared key: one line, whose bytes are the key, or `0x` and hexadecimal digits. White space around the line is not
/// part of the key.
/// "[...] MUST accept ASCII strings of at least 64 octets and MUST NOT add a null terminator before using them as shared
/// secrets" (RFC 7296 section 2.15)
///
/// # Errors
/// [`PskError`], which says what the file holds, never the content.
pub fn parse_psk(content: &[u8]) -> Result<Secret, PskError> {
    if !pem::labels(content).is_empty() {
        return Err(PskError::OtherFile { found: pem::describe(content) });
    }
    if content.contains(&0) {
        return Err(PskError::OtherFile {
            found: "the file is binary; write the key as 0x and hexadecimal digits".into(),
        });
    }
    let mut lines = content.split(|&b| b == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let key = lines.next().ok_or(PskError::Empty)?;
    let more = lines.count();
    if more > 0 {
        return Err(PskError::Lines { lines: 1 + more });
    }
    match key.strip_prefix(b"0x") {
        None => Ok(Secret::from(key)),
        Some(digits) => hexadecimal(digits),
    }
}

/// "It MUST also accept a hex encoding of the shared secret." (RFC 7296 section 2.15)
fn hexadecimal(digits: &[u8]) -> Result<Secret, PskError> {
    let nibble = |(at, &digit): (usize, &u8)| {
        char::from(digit)
            .to_digit(16)
            .and_then(|value| u8::try_from(value).ok())
            .ok_or(PskError::Hexadecimal { at: at + 3 })
    };
    let missing = PskError::Hexadecimal { at: digits.len() + 3 };
    let mut key = Secret::zeroed(digits.len() / 2);
    for (at, digit) in digits.iter().enumerate() {
        let value = nibble((at, digit))?;
        if let Some(byte) = key.as_mut_bytes().get_mut(at / 2) {
            *byte = *byte << 4 | value;
        }
    }
    if key.is_empty() || !digits.len().is_multiple_of(2) { Err(missing) } else { Ok(key) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_the_key() {
        assert_eq!(parse_psk(b"open sesame\n"), Ok(Secret::from(&b"open sesame"[..])));
        assert_eq!(parse_psk(b"\n  0x00fFa5 \r\n\n"), Ok(Secret::from([0, 0xff, 0xa5])));
    }

    #[test]
    fn errors_say_what_was_found() {
        assert_eq!(parse_psk(b" \n"), Err(PskError::Empty));
        assert_eq!(parse_psk(b"0x"), Err(PskError::Hexadecimal { at: 3 }));
        assert_eq!(parse_psk(b"0x0g"), Err(PskError::Hexadecimal { at: 4 }));
        assert_eq!(parse_psk(b"0x000"), Err(PskError::Hexadecimal { at: 6 }));
        assert_eq!(parse_psk(b"a\nb\nc"), Err(PskError::Lines { lines: 3 }));
        let certificate = b"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
        let found = "the file holds CERTIFICATE".to_owned();
        assert_eq!(parse_psk(certificate), Err(PskError::OtherFile { found }));
    }
}

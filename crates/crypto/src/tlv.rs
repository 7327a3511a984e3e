//! Elements of DER, for the few structures around keys and certificates that have no parser in the libraries: PKCS #12 and CMS. Owns reading and
//! writing of one element; tags of one byte and definite lengths alone, which is all that DER has for these. Must never look past what it is given.

use crate::secret::Secret;

pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const OCTETS: u8 = 0x04;
pub(crate) const NULL: u8 = 0x05;
pub(crate) const OID: u8 = 0x06;
pub(crate) const BMP: u8 = 0x1e;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;
/// `[0]`, constructed: explicit, or implicit around a structure.
pub(crate) const CONTEXT: u8 = 0xa0;
/// `[0]` in place of an OCTET STRING.
pub(crate) const CONTEXT_OCTETS: u8 = 0x80;

/// One element.
pub(crate) fn element(tag: u8, content: &[&[u8]]) -> Secret {
    let len: usize = content.iter().map(|part| part.len()).sum();
    let bytes = len.to_be_bytes();
    let bytes = bytes.get(bytes.iter().take_while(|b| **b == 0).count()..).unwrap_or_default();
    let short = u8::try_from(len).ok().filter(|len| *len < 0x80);
    let head = match short {
        Some(len) => vec![tag, len],
        // A length in memory has eight bytes at most.
        None => [&[tag, 0x80 | u8::try_from(bytes.len()).unwrap_or(8)][..], bytes].concat(),
    };
    Secret::concat(&[&[head.as_slice()][..], content].concat())
}

/// An INTEGER that is not negative.
pub(crate) fn integer(value: u32) -> Secret {
    let bytes = value.to_be_bytes();
    let used = bytes.get(bytes.iter().take_while(|b| **b == 0).count().min(3)..).unwrap_or_default();
    let sign: &[u8] = if used.first().is_some_and(|b| *b >= 0x80) { &[0] } else { &[] };
    element(INTEGER, &[sign, used])
}

/// What is left to be read of a structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    /// The next element: its tag, its content, and all of its bytes.
    pub(crate) fn next(&mut self) -> Option<(u8, &'a [u8], &'a [u8])> {
        let (&[tag, len], rest) = self.0.split_first_chunk::<2>()?;
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (len, rest) = match len {
            0..=0x7f => (usize::from(len), rest),
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(len & 0x7f))?;
                (bytes.iter().fold(0_usize, |len, b| len << 8 | usize::from(*b)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(len)?;
        let whole = self.0.get(..self.0.len() - rest.len())?;
        self.0 = rest;
        Some((tag, content, whole))
    }

    /// The content of the next element if it has this tag.
    pub(crate) fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        let mut ahead = *self;
        let (found, content, _) = ahead.next()?;
        (found == tag).then(|| {
            *self = ahead;
            content
        })
    }

    /// The same as a structure to be read.
    pub(crate) fn inside(&mut self, tag: u8) -> Option<Self> {
        self.take(tag).map(Self)
    }

    /// An INTEGER that is not negative and fits.
    pub(crate) fn number(&mut self) -> Option<u32> {
        match self.take(INTEGER)? {
            [] => None,
            [first, ..] if *first >= 0x80 => None,
            bytes => {
                bytes.iter().try_fold(0_u32, |value, b| value.checked_mul(256)?.checked_add((*b).into()))
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_at_every_length() {
        for len in [0, 1, 127, 128, 255, 256, 65_535, 65_536] {
            let content = vec![7; len];
            let whole = element(OCTETS, &[&content]);
            let mut reader = Reader(whole.as_bytes());
            assert_eq!(reader.next(), Some((OCTETS, content.as_slice(), whole.as_bytes())));
            assert!(reader.is_empty());
            for cut in 0..whole.len().min(300) {
                assert_eq!(Reader(&whole.as_bytes()[..cut]).next(), None, "{len} cut to {cut}");
            }
        }
        for value in [0, 1, 127, 128, 255, 256, 2048, u32::MAX] {
            assert_eq!(Reader(integer(value).as_bytes()).number(), Some(value));
        }
        assert_eq!(integer(128).as_bytes(), [2, 2, 0, 128]);
    }

    #[test]
    fn what_is_no_der_is_nothing() {
        for bytes in [&[0x30][..], &[0x30, 0x80, 0, 0], &[0x1f, 1, 0], &[4, 0x85, 0, 0, 0, 0, 0], &[4, 0xff]]
        {
            assert_eq!(Reader(bytes).next(), None, "{bytes:x?}");
        }
        for bytes in [&[2, 0][..], &[2, 1, 0x80], &[2, 5, 1, 0, 0, 0, 0], &[4, 1, 1]] {
            assert_eq!(Reader(bytes).number(), None, "{bytes:x?}");
        }
    }
}

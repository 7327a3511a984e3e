//! Attributes (RFC 2865 section 5). Owns their numbers and their form.

use crate::error::Error;
use crate::limits::MAX_RADIUS;

pub(super) const USER_NAME: u8 = 1;
pub(super) const NAS_ADDRESS: u8 = 4;
pub(super) const SERVICE_TYPE: u8 = 6;
pub(super) const FRAMED_ADDRESS: u8 = 8;
pub(super) const FILTER: u8 = 11;
pub(super) const FRAMED_MTU: u8 = 12;
pub(super) const REPLY_MESSAGE: u8 = 18;
pub(super) const STATE: u8 = 24;
pub(super) const CLASS: u8 = 25;
pub(super) const VENDOR: u8 = 26;
pub(super) const SESSION_TIMEOUT: u8 = 27;
pub(super) const IDLE_TIMEOUT: u8 = 28;
pub(super) const CALLED_STATION: u8 = 30;
pub(super) const CALLING_STATION: u8 = 31;
pub(super) const NAS_NAME: u8 = 32;
pub(super) const ACCT_STATUS: u8 = 40;
pub(super) const ACCT_DELAY: u8 = 41;
pub(super) const ACCT_INPUT: u8 = 42;
pub(super) const ACCT_OUTPUT: u8 = 43;
pub(super) const ACCT_SESSION: u8 = 44;
pub(super) const ACCT_TIME: u8 = 46;
pub(super) const ACCT_INPUT_PACKETS: u8 = 47;
pub(super) const ACCT_OUTPUT_PACKETS: u8 = 48;
pub(super) const ACCT_CAUSE: u8 = 49;
pub(super) const ACCT_INPUT_GIGA: u8 = 52;
pub(super) const ACCT_OUTPUT_GIGA: u8 = 53;
pub(super) const NAS_PORT_TYPE: u8 = 61;
pub(super) const EAP_MESSAGE: u8 = 79;
pub(super) const MESSAGE_AUTHENTICATOR: u8 = 80;
pub(super) const INTERIM: u8 = 85;
pub(super) const NAS_ADDRESS_6: u8 = 95;

/// Values of [`SERVICE_TYPE`] and [`NAS_PORT_TYPE`].
pub(super) const FRAMED: u32 = 2;
pub(super) const VIRTUAL: u32 = 5;

/// Bytes of a packet before its attributes.
pub(super) const HEADER: usize = 20;
/// Bytes of an attribute's value at most.
const MAX_VALUE: usize = 253;

/// Those of a packet that is being made.
#[derive(Default)]
pub(super) struct Attributes(Vec<u8>);

impl Attributes {
    /// One more.
    pub(super) fn push(&mut self, kind: u8, value: &[u8]) -> Result<(), Error> {
        let len = u8::try_from(value.len() + 2).map_err(|_| Error::TooLong("an attribute of RADIUS"))?;
        if HEADER + self.0.len() + usize::from(len) > MAX_RADIUS {
            return Err(Error::TooLong("a packet of RADIUS"));
        }
        self.0.extend([kind, len]);
        self.0.extend_from_slice(value);
        Ok(())
    }

    /// As many as it takes (RFC 3579 section 3.1).
    pub(super) fn push_long(&mut self, kind: u8, value: &[u8]) -> Result<(), Error> {
        value.chunks(MAX_VALUE).try_for_each(|part| self.push(kind, part))
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Those of a packet, each with its number; `None` if they do not add up.
pub(super) fn parse(mut bytes: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let mut found = Vec::new();
    while let [kind, len, ..] = bytes {
        let (attribute, rest) = bytes.split_at_checked(usize::from(*len))?;
        found.push((*kind, attribute.get(2..)?));
        bytes = rest;
    }
    bytes.is_empty().then_some(found)
}

/// All of one number.
pub(super) fn all<'a>(attributes: &[(u8, &'a [u8])], kind: u8) -> impl Iterator<Item = &'a [u8]> {
    attributes.iter().filter(move |(number, _)| *number == kind).map(|(_, value)| *value)
}

/// The first of one number, as a number.
pub(super) fn number(attributes: &[(u8, &[u8])], kind: u8) -> Option<u32> {
    Some(u32::from_be_bytes(all(attributes, kind).next()?.try_into().ok()?))
}

/// The first of one number, as text; what is not UTF-8 is replaced.
pub(super) fn text(attributes: &[(u8, &[u8])], kind: u8) -> Option<String> {
    Some(String::from_utf8_lossy(all(attributes, kind).next()?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut made = Attributes::default();
        made.push(USER_NAME, b"bob").expect("short");
        made.push_long(EAP_MESSAGE, &[7; 600]).expect("short");
        made.push(SESSION_TIMEOUT, &3_600_u32.to_be_bytes()).expect("short");
        assert_eq!(made.push(STATE, &[0; 254]), Err(Error::TooLong("an attribute of RADIUS")));
        let bytes = made.into_bytes();
        let read = parse(&bytes).expect("attributes");
        assert_eq!(read.len(), 5);
        assert_eq!(all(&read, EAP_MESSAGE).map(<[u8]>::len).collect::<Vec<_>>(), [253, 253, 94]);
        assert_eq!(
            (text(&read, USER_NAME).as_deref(), number(&read, SESSION_TIMEOUT)),
            (Some("bob"), Some(3_600))
        );
        assert_eq!(number(&read, USER_NAME), None);
        let mut full = Attributes::default();
        assert_eq!(full.push_long(EAP_MESSAGE, &[0; 4_200]), Err(Error::TooLong("a packet of RADIUS")));
    }

    #[test]
    fn lengths_that_lie() {
        for bytes in [&[1][..], &[1, 0], &[1, 1], &[1, 3], &[1, 2, 9], &[1, 255, 0, 0]] {
            assert_eq!(parse(bytes), None, "{bytes:?}");
        }
        assert_eq!(parse(&[]), Some(vec![]));
        assert_eq!(parse(&[1, 2]), Some(vec![(1, &[][..])]));
    }
}

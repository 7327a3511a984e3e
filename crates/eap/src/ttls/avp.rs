//! Attributes inside the tunnel (RFC 5281 section 10). Owns their form: as those of Diameter, with four bytes of number, a vendor's or not.

use crate::error::Error;

pub(super) const USER_NAME: Code = (0, 1);
pub(super) const USER_PASSWORD: Code = (0, 2);
pub(super) const EAP_MESSAGE: Code = (0, 79);
pub(super) const MS_CHAP_CHALLENGE: Code = (311, 11);
pub(super) const MS_CHAP2_RESPONSE: Code = (311, 25);
pub(super) const MS_CHAP2_SUCCESS: Code = (311, 26);

/// Vendor (0: none) and number.
pub(super) type Code = (u32, u32);

const VENDOR: u8 = 0x80;
const MANDATORY: u8 = 0x40;

/// One attribute.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Avp<'a> {
    pub(super) code: Code,
    /// Who does not know it must refuse all.
    pub(super) is_mandatory: bool,
    pub(super) value: &'a [u8],
}

/// All attributes of a message.
pub(super) fn parse(mut bytes: &[u8]) -> Result<Vec<Avp<'_>>, Error> {
    let malformed = || Error::Malformed("attributes inside EAP-TTLS");
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (head, _) = bytes.split_first_chunk::<8>().ok_or_else(malformed)?;
        let [a, b, c, d, flags, high, middle, low] = *head;
        let len = usize::try_from(u32::from_be_bytes([0, high, middle, low])).map_err(|_| malformed())?;
        let body = bytes.get(8..len).ok_or_else(malformed)?;
        let (vendor, value) = match (flags & VENDOR != 0, body) {
            (true, [w, x, y, z, value @ ..]) => (u32::from_be_bytes([*w, *x, *y, *z]), value),
            (true, _) => return Err(malformed()),
            (false, value) => (0, value),
        };
        let code = (vendor, u32::from_be_bytes([a, b, c, d]));
        found.push(Avp { code, is_mandatory: flags & MANDATORY != 0, value });
        // To a multiple of four, which the last one of some lacks.
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(found)
}

/// One attribute as bytes, padded; mandatory, as all are that this protocol is made of.
pub(super) fn emit((vendor, number): Code, value: &[u8]) -> Result<Vec<u8>, Error> {
    let vendor = if vendor == 0 { Vec::new() } else { vendor.to_be_bytes().to_vec() };
    let len = u32::try_from(8 + vendor.len() + value.len()).unwrap_or(u32::MAX);
    if len >= 1 << 24 {
        return Err(Error::TooLong("an attribute of EAP-TTLS"));
    }
    let flags = MANDATORY | if vendor.is_empty() { 0 } else { VENDOR };
    let head = len | u32::from(flags) << 24;
    let mut bytes = [&number.to_be_bytes()[..], &head.to_be_bytes(), &vendor, value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let bytes =
            [emit(USER_NAME, b"alice").expect("short"), emit(MS_CHAP2_SUCCESS, &[7; 43]).expect("short")];
        assert_eq!(bytes[0], b"\0\0\0\x01\x40\0\0\x0dalice\0\0\0");
        assert_eq!(bytes[1][..12], *b"\0\0\0\x1a\xc0\0\0\x37\0\0\x01\x37");
        let joined = bytes.concat();
        let read = parse(&joined).expect("attributes");
        assert_eq!(read[0], Avp { code: USER_NAME, is_mandatory: true, value: b"alice" });
        assert_eq!(read[1], Avp { code: MS_CHAP2_SUCCESS, is_mandatory: true, value: &[7; 43] });
        assert_eq!(read.len(), 2);
    }

    #[test]
    fn lengths_that_lie() {
        for bytes in [
            &b"\0"[..],
            b"\0\0\0\x01\x40\0\0",
            b"\0\0\0\x01\x40\0\0\x07",
            b"\0\0\0\x01\x40\0\0\x0aa",
            b"\0\0\0\x01\x80\0\0\x0b\0\0\0",
            b"\0\0\0\x01\x40\xff\xff\xff",
        ] {
            assert!(parse(bytes).is_err(), "{bytes:?}");
        }
        assert_eq!(parse(b""), Ok(vec![]));
        // Without its padding at the end.
        assert_eq!(parse(b"\0\0\0\x01\0\0\0\x09x").map(|all| all[0].value.to_vec()), Ok(b"x".to_vec()));
    }
}

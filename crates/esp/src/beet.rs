//! IPv4 options in BEET mode (RFC 7402 appendix B.1.7): the inner header is not carried, so its options travel in a pseudo
//! header before the payload. Owns the format; must never look at an option.
//!
//! ```text
//! | next header 1 | length 1 | padding length 1 | 0 | padding 0 or 4 | options 4..=40 |
//! ```
//!
//! The length counts 8-byte units after the first. "The padding MUST be filled with No Operation (NOP) options" (RFC 7402
//! appendix B.1.7), before the options: so they keep their place in the packet, and no byte is moved on either side.

/// Next header of ESP where a pseudo header comes first.
/// "The sender MUST set the Next Header field in the ESP header to 94." (RFC 7402 appendix B.1.7)
pub(crate) const PSEUDO_HEADER: u8 = 94;

const NO_OPERATION: u8 = 1;
/// IPv4 header without options, in bytes.
const IPV4: usize = 20;
/// Most bytes of options that an IPv4 header holds.
const OPTIONS_MOST: usize = 40;

/// Makes the options at the end of an IPv4 header into a pseudo header, over the addresses before them. Returns how many bytes
/// of the packet are left off before it; `None` if the header is not there or has no options.
pub(crate) fn options_to_pseudo_header(packet: &mut [u8], header_len: usize) -> Option<usize> {
    let options = header_len.checked_sub(IPV4).filter(|len| *len > 0)?;
    let padding = padding(options);
    let at = IPV4 - 4 - padding;
    let protocol = *packet.get(9)?;
    let (front, pad) = packet.get_mut(at..IPV4)?.split_at_mut_checked(4)?;
    front.copy_from_slice(&[protocol, ((padding + options) / 8) as u8, padding as u8, 0]);
    pad.fill(NO_OPERATION);
    Some(at)
}

/// "valid padding lengths are 0 or 4 octets" (RFC 7402 appendix B.1.7)
const fn padding(options: usize) -> usize {
    if options.is_multiple_of(8) { 4 } else { 0 }
}

/// What a pseudo header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PseudoHeader<'a> {
    pub(crate) next_header: u8,
    pub(crate) options: &'a [u8],
    /// Its length in bytes.
    pub(crate) len: usize,
}

impl<'a> PseudoHeader<'a> {
    /// The pseudo header at the start of `payload`; `None` if it is malformed.
    pub(crate) fn parse(payload: &'a [u8]) -> Option<Self> {
        let [next_header, units, padding, ..] = *payload else { return None };
        let len = 8 + 8 * usize::from(units);
        let options = payload.get(..len)?.get(4 + usize::from(padding)..)?;
        let valid = matches!(padding, 0 | 4)
            && !options.is_empty()
            && options.len() <= OPTIONS_MOST
            && next_header != PSEUDO_HEADER;
        valid.then_some(Self { next_header, options, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 header with these options, UDP, between 10.1.1.1 and 10.2.2.2.
    fn packet(options: &str) -> Vec<u8> {
        let options = hex::decode(options).unwrap();
        let mut packet = hex::decode("450000000000400040110000 0a010101 0a020202".replace(' ', "")).unwrap();
        packet[0] = 0x45 + (options.len() / 4) as u8;
        packet.extend_from_slice(&options);
        packet.extend_from_slice(&[0xda; 9]);
        packet
    }

    #[test]
    fn golden_bytes() {
        for (options, at, expected) in [
            ("94040000", 16, "11000000 94040000 dadada"),
            ("94040000 01010100", 12, "11010400 01010101 94040000 01010100 dadada"),
            ("94040000 01010100 01010100", 16, "11010000 94040000 01010100 01010100 dadada"),
        ] {
            let (options, expected) = (options.replace(' ', ""), expected.replace(' ', ""));
            let mut packet = packet(&options);
            let header_len = 20 + options.len() / 2;
            assert_eq!(options_to_pseudo_header(&mut packet, header_len), Some(at));
            assert_eq!(hex::encode(&packet[at..header_len + 3]), expected);
            let parsed = PseudoHeader::parse(&packet[at..]).unwrap();
            assert_eq!((parsed.next_header, parsed.len), (17, header_len - at));
            assert_eq!(hex::encode(parsed.options), options);
        }
    }

    #[test]
    fn every_length_of_options_comes_back() {
        for options in (4..=40).step_by(4) {
            let mut packet = packet(&"ab".repeat(options));
            let at = options_to_pseudo_header(&mut packet, 20 + options).unwrap();
            let parsed = PseudoHeader::parse(&packet[at..]).unwrap();
            assert_eq!((parsed.options.len(), at + parsed.len, parsed.len % 8), (options, 20 + options, 0));
        }
        assert_eq!(options_to_pseudo_header(&mut packet(""), 20), None);
        assert_eq!(options_to_pseudo_header(&mut [0x46; 12], 24), None, "shorter than its header");
    }

    #[test]
    fn malformed_ones_are_refused() {
        for bad in [
            "",
            "110000",
            "11000000 940400",            // shorter than it says
            "11010000 94040000 01010101", // the second unit is not all there
            "11000400 01010101",          // nothing but padding
            "11000300 01010194",          // a padding that is neither 0 nor 4
            "5e000000 94040000",          // a pseudo header in a pseudo header
            "11ff0000 94040000",
        ] {
            assert_eq!(PseudoHeader::parse(&hex::decode(bad.replace(' ', "")).unwrap()), None, "{bad}");
        }
        let long = [&[17, 5, 0, 0][..], &[1; 44]].concat();
        assert_eq!(PseudoHeader::parse(&long), None, "44 bytes of options");
    }
}

//! EAP-MSCHAPv2 (draft-kamath-pppext-eap-mschapv2, \[MS-CHAP\] sections 2.2 and 3): MS-CHAPv2 (RFC 2759) inside EAP.
//!
//! Owns the format of its messages and the conversation of both ends. What it proves: each end that the other knows the password's hash. What it
//! does not: who watches can try passwords, and in effect find the hash itself at the cost of one DES key. So it needs a gateway that has
//! proved itself by a certificate first, and does not suit EAP-only authentication (RFC 5998 section 4).
//!
//! Decisions where the sources leave room:
//! - One attempt (`R=0`). Who mistyped a password connects again; built-in clients ask for it then. A retry would let one IKE SA try three.
//! - Passwords are not changed: E=648 at a peer and a Change-Password packet at an authenticator end the conversation with errors that say so.
//! - The hash of the challenges covers the user's name "without any associated Windows NT domain name" (RFC 2759 section 4): what stands behind a
//!   backslash. A realm (`user@realm`) is part of the name, as it is at FreeRADIUS, hostapd and strongSwan.
//! - MS-CHAPv2-ID and MS-Length are sent as they should be and ignored on receipt: EAP has both already, and some senders have them wrong.

mod authenticator;
mod derive;
mod peer;

use core::str;

use crate::error::Error;

pub(crate) use authenticator::Server;
#[cfg(feature = "tls")]
pub(crate) use authenticator::{Response, check};
pub(crate) use peer::Client;

/// Bytes of each end's challenge.
pub(crate) const CHALLENGE: usize = 16;
/// Bytes of the value of a response: peer's challenge, eight zeros, NT-Response, flags.
const VALUE: usize = 49;

/// What a message is (its OpCode).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    Challenge = 1,
    Response = 2,
    Success = 3,
    Failure = 4,
    ChangePassword = 7,
}

/// A message: what it is, and what follows its header. Success and failure responses are the OpCode alone.
fn parse(data: &[u8]) -> Result<(Op, u8, &[u8]), Error> {
    let (op, rest) = data.split_first().ok_or(Error::Malformed("an empty message of MS-CHAPv2"))?;
    let op = match op {
        1 => Op::Challenge,
        2 => Op::Response,
        3 => Op::Success,
        4 => Op::Failure,
        7 => Op::ChangePassword,
        _ => return Err(Error::Malformed("an unknown OpCode of MS-CHAPv2")),
    };
    match rest {
        [id, _, _, value @ ..] => Ok((op, *id, value)),
        _ if matches!(op, Op::Success | Op::Failure) => Ok((op, 0, &[])),
        _ => Err(Error::Malformed("a message of MS-CHAPv2 that is cut short")),
    }
}

fn emit(op: Op, id: u8, value: &[&[u8]]) -> Vec<u8> {
    // Our own messages are short: a name of at most 256 bytes, or a line of text.
    let len = 4 + value.iter().map(|part| part.len()).sum::<usize>();
    let mut data = Vec::with_capacity(len);
    data.extend([op as u8, id]);
    data.extend(u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes());
    for part in value {
        data.extend_from_slice(part);
    }
    data
}

/// The value of `key` in a line like `E=691 R=0 C=... V=3 M=text`.
fn field<'a>(line: &'a [u8], key: &str) -> Option<&'a str> {
    let line = str::from_utf8(line).ok()?;
    // The text of `M=` comes last and may hold anything.
    let line = line.split_once("M=").map_or(line, |(before, _)| before);
    line.split_ascii_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

/// A user's name without a domain of Windows.
pub(crate) fn without_domain(name: &[u8]) -> &[u8] {
    name.iter().position(|byte| *byte == b'\\').map_or(name, |at| &name[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_lines() {
        assert_eq!(without_domain(b"BIGCO\\johndoe"), b"johndoe");
        assert_eq!(without_domain(b"johndoe@example.com"), b"johndoe@example.com");
        assert_eq!(without_domain(b"BIGCO\\"), b"");
        let line = b"E=691 R=0 C=00112233445566778899aabbccddeeff V=3 M=Bad E=1";
        assert_eq!(
            (field(line, "E"), field(line, "R"), field(line, "V")),
            (Some("691"), Some("0"), Some("3"))
        );
        assert_eq!((field(line, "S"), field(b"S=\xff", "S"), field(b"", "E")), (None, None, None));
    }

    #[test]
    fn short_answers_have_no_header() {
        assert_eq!(parse(&[3]), Ok((Op::Success, 0, &[][..])));
        assert_eq!(parse(&[4]), Ok((Op::Failure, 0, &[][..])));
        assert_eq!(parse(&[2, 9, 0, 6, 1, 2]), Ok((Op::Response, 9, &[1, 2][..])));
        for bad in [&[][..], &[1], &[2, 0, 0], &[7], &[5, 0, 0, 4]] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(emit(Op::Challenge, 3, &[&[16], &[9; 2]]), [1, 3, 0, 7, 16, 9, 9]);
    }
}

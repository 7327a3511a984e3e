//! The protection of packets (RFC 2865 section 3, RFC 3579 section 3.2, RFC 2866 section 3). Owns both authenticators; must never show an attribute of a packet that is not
//! authentic.

use dormouse_crypto::{Secret, ct_eq, eap, mobileip};
use dormouse_sansio::Entropy;

use super::attribute::{self, Attributes, HEADER, MESSAGE_AUTHENTICATOR};
use crate::error::Error;
use crate::limits::MAX_RADIUS;

pub(super) const ACCESS_REQUEST: u8 = 1;
pub(super) const ACCESS_ACCEPT: u8 = 2;
pub(super) const ACCESS_REJECT: u8 = 3;
pub(super) const ACCOUNTING_REQUEST: u8 = 4;
pub(super) const ACCOUNTING_RESPONSE: u8 = 5;
pub(super) const ACCESS_CHALLENGE: u8 = 11;
pub(super) const STATUS_SERVER: u8 = 12;

/// Why a datagram is no answer. It may come from anybody: wait on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Discard {
    /// It is no packet of RADIUS.
    #[error("malformed")]
    Malformed,
    /// It answers another request, or none.
    #[error("no answer to what was asked")]
    Unexpected,
    /// It has no Message-Authenticator, which every server that knows EAP sends.
    #[error("it has no Message-Authenticator")]
    Unsigned,
    /// It comes from somebody else, or the secret is another there.
    #[error("not authentic: forged, or the shared secret is another at the server")]
    Unauthentic,
}

/// What a request asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    /// Whether a user is let in.
    Access,
    /// That a report is taken.
    Report,
    /// Whether the server is there, at either port (RFC 5997).
    Status,
}

/// A request that waits for its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) identifier: u8,
    pub(super) authenticator: [u8; 16],
    asks: Asks,
}

/// An authentic packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Opened<'a> {
    pub(super) code: u8,
    pub(super) attributes: Vec<(u8, &'a [u8])>,
}

/// An Access-Request, or a Status-Server, with a random authenticator.
pub(super) fn signed_request(
    asks: Asks,
    identifier: u8,
    attributes: Attributes,
    secret: &Secret,
    entropy: &mut dyn Entropy,
) -> Result<(Pending, Vec<u8>), Error> {
    let mut authenticator = [0; 16];
    entropy.fill(&mut authenticator);
    // First of all, so that nothing that others choose stands before it (CVE-2024-3596).
    let mut body = vec![MESSAGE_AUTHENTICATOR, 18];
    body.extend([0; 16]);
    body.extend(attributes.into_bytes());
    let code = if asks == Asks::Status { STATUS_SERVER } else { ACCESS_REQUEST };
    let mut packet = packet(code, identifier, &authenticator, &body)?;
    let mac = hmac(secret, &packet);
    packet[HEADER + 2..HEADER + 18].copy_from_slice(&mac);
    Ok((Pending { identifier, authenticator, asks }, packet))
}

/// An Accounting-Request, whose authenticator proves it: "a one-way MD5 hash calculated over a stream of octets" (RFC 2866 section 3).
pub(super) fn accounting_request(
    identifier: u8,
    attributes: Attributes,
    secret: &Secret,
) -> Result<(Pending, Vec<u8>), Error> {
    let mut packet = packet(ACCOUNTING_REQUEST, identifier, &[0; 16], &attributes.into_bytes())?;
    let authenticator = eap::md5(&[&packet, secret.as_bytes()]);
    packet[4..HEADER].copy_from_slice(&authenticator);
    Ok((Pending { identifier, authenticator, asks: Asks::Report }, packet))
}

fn packet(code: u8, identifier: u8, authenticator: &[u8; 16], body: &[u8]) -> Result<Vec<u8>, Error> {
    let len = HEADER + body.len();
    if len > MAX_RADIUS {
        return Err(Error::TooLong("a packet of RADIUS"));
    }
    let mut packet = vec![code, identifier];
    packet.extend(u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes());
    packet.extend_from_slice(authenticator);
    packet.extend_from_slice(body);
    Ok(packet)
}

impl Pending {
    /// Takes an answer, if it is one.
    pub(super) fn open<'a>(&self, secret: &Secret, datagram: &'a [u8]) -> Result<Opened<'a>, Discard> {
        let [code, identifier, high, low, ..] = *datagram else { return Err(Discard::Malformed) };
        let len = usize::from(u16::from_be_bytes([high, low]));
        // "Octets outside the range of the Length field MUST be treated as padding" (RFC 2865 section 3)
        let packet = datagram.get(..len).filter(|packet| (HEADER..=MAX_RADIUS).contains(&packet.len()));
        let packet = packet.ok_or(Discard::Malformed)?;
        let is_due = match code {
            ACCESS_ACCEPT => self.asks != Asks::Report,
            // "An Access-Reject response MAY be used." (RFC 5997 section 2)
            ACCESS_REJECT => self.asks != Asks::Report,
            ACCESS_CHALLENGE => self.asks == Asks::Access,
            ACCOUNTING_RESPONSE => self.asks != Asks::Access,
            _ => false,
        };
        if !is_due || identifier != self.identifier {
            return Err(Discard::Unexpected);
        }
        let attributes = attribute::parse(&packet[HEADER..]).ok_or(Discard::Malformed)?;
        // "Status" decides nothing, and older servers do not sign it.
        if self.asks == Asks::Access {
            self.check_message(secret, packet)?;
        }
        let expected = eap::md5(&[&packet[..4], &self.authenticator, &packet[HEADER..], secret.as_bytes()]);
        if !ct_eq(&expected, &packet[4..HEADER]) {
            return Err(Discard::Unauthentic);
        }
        Ok(Opened { code, attributes })
    }

    /// The HMAC of the packet with the request's authenticator, and zeros where the HMAC stands.
    fn check_message(&self, secret: &Secret, packet: &[u8]) -> Result<(), Discard> {
        let mut blank = packet.to_vec();
        blank[4..HEADER].copy_from_slice(&self.authenticator);
        let (mut at, mut found) = (HEADER, None);
        while let Some([kind, len]) = packet.get(at..at + 2) {
            let end = at + usize::from(*len);
            if *kind == MESSAGE_AUTHENTICATOR {
                let value =
                    packet.get(at + 2..end).filter(|value| value.len() == 16).ok_or(Discard::Malformed)?;
                if found.replace(value).is_some() {
                    return Err(Discard::Malformed);
                }
                blank[at + 2..end].fill(0);
            }
            at = end;
        }
        let found = found.ok_or(Discard::Unsigned)?;
        if ct_eq(&hmac(secret, &blank), found) { Ok(()) } else { Err(Discard::Unauthentic) }
    }
}

fn hmac(secret: &Secret, packet: &[u8]) -> Vec<u8> {
    mobileip::Authenticator::HmacMd5.compute(secret, packet)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(digits: &str) -> Vec<u8> {
        hex::decode(digits).expect("digits")
    }

    /// The Access-Accept of RFC 2865 section 7.1 has a right authenticator, and is discarded all the same: it has no Message-Authenticator.
    #[test]
    fn the_example_of_the_rfc() {
        let secret = Secret::from(&b"xyzzy5461"[..]);
        let authenticator = *bytes("0f403f9473978057bd83d5cb98f4227a").first_chunk().expect("16 bytes");
        let accept = bytes("0200002686fe220e7624ba2a1005f6bf9b55e0b20606000000010f06000000000e06c0a80103");
        let pending = Pending { identifier: 0, authenticator, asks: Asks::Access };
        assert_eq!(pending.open(&secret, &accept), Err(Discard::Unsigned));
        let expected = eap::md5(&[&accept[..4], &authenticator, &accept[HEADER..], secret.as_bytes()]);
        assert_eq!(accept[4..HEADER], expected);
    }
}

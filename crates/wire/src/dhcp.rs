//! DHCP (RFC 2131, 2132): the view of a message and the request by which a client renews its lease. Owns the
//! formats; must never keep a lease.

use core::net::Ipv4Addr;

use crate::codec::Reader;
use crate::{Error, Result};

/// Port of servers and relays.
pub const SERVER_PORT: u16 = 67;
/// Port of clients.
pub const CLIENT_PORT: u16 = 68;

/// Bytes before the options: the BOOTP fields and the magic cookie.
const FIXED: usize = 240;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Longest client identifier kept.
const MAX_CLIENT_ID: usize = 64;

/// Message types (option 53).
pub mod kind {
    /// DHCPREQUEST.
    pub const REQUEST: u8 = 3;
    /// DHCPACK.
    pub const ACK: u8 = 5;
    /// DHCPNAK.
    pub const NAK: u8 = 6;
    /// DHCPRELEASE.
    pub const RELEASE: u8 = 7;
    /// DHCPFORCERENEW (RFC 3203).
    pub const FORCE_RENEW: u8 = 9;
}

mod option {
    pub(super) const PAD: u8 = 0;
    pub(super) const LEASE_TIME: u8 = 51;
    pub(super) const MESSAGE_TYPE: u8 = 53;
    pub(super) const SERVER_ID: u8 = 54;
    pub(super) const RENEWAL_TIME: u8 = 58;
    pub(super) const CLIENT_ID: u8 = 61;
    pub(super) const END: u8 = 255;
}

/// Who a client is to its server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Client {
    /// Hardware type, its address's length, and the address.
    pub hardware: (u8, u8, [u8; 16]),
    /// The client identifier option, empty if it was not sent.
    pub id: Vec<u8>,
}

/// A DHCP message, as far as a lease needs it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dhcp {
    /// From a client (BOOTREQUEST) rather than from a server.
    pub request: bool,
    /// Pairs requests and replies.
    pub transaction: u32,
    /// The client's address, if it has one already.
    pub client_address: Ipv4Addr,
    /// The address that the server gives.
    pub your_address: Ipv4Addr,
    /// Who the client is.
    pub client: Client,
    /// One of [`kind`], or another.
    pub kind: u8,
    /// The server identifier option.
    pub server: Option<Ipv4Addr>,
    /// The lease time option, in seconds; all ones are for ever.
    pub lease_seconds: Option<u32>,
    /// The renewal time option ("T1"), in seconds.
    pub renewal_seconds: Option<u32>,
}

impl Dhcp {
    /// Reads the payload of a UDP datagram. Options in the overloaded `sname` and `file` fields are not looked at: none of
    /// those that matter here is ever put there.
    ///
    /// # Errors
    /// [`Error::Truncated`] or [`Error::Value`], naming the field; a BOOTP message without a DHCP type is refused.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new("DHCP message", bytes);
        let [op, hardware, length, _hops] = reader.array()?;
        let transaction = reader.u32()?;
        let _seconds_and_flags = reader.u32()?;
        let client_address = Ipv4Addr::from(reader.array::<4>()?);
        let your_address = Ipv4Addr::from(reader.array::<4>()?);
        let _next_server_and_relay = reader.u64()?;
        let address = reader.array::<16>()?;
        let _names = reader.take(64 + 128)?;
        let cookie = reader.array::<4>()?;
        if cookie != COOKIE {
            let got = u32::from_be_bytes(cookie).into();
            return Err(Error::Value { what: "DHCP magic cookie", got, expect: "99.130.83.99" });
        }
        let mut message = Self {
            request: op == 1,
            transaction,
            client_address,
            your_address,
            client: Client { hardware: (hardware, length, address), id: Vec::new() },
            kind: 0,
            server: None,
            lease_seconds: None,
            renewal_seconds: None,
        };
        message.options(reader)?;
        match message.kind {
            0 => Err(Error::Value { what: "DHCP message type", got: 0, expect: "1 or more" }),
            _ => Ok(message),
        }
    }

    fn options(&mut self, mut reader: Reader<'_>) -> Result<()> {
        let four = |value: &[u8]| value.first_chunk::<4>().copied();
        while !reader.is_empty() {
            let code = match reader.u8()? {
                option::PAD => continue,
                option::END => break,
                code => code,
            };
            let len = reader.u8()?;
            let value = reader.take(len.into())?;
            match code {
                option::MESSAGE_TYPE => self.kind = value.first().copied().unwrap_or(0),
                option::SERVER_ID => self.server = four(value).map(Ipv4Addr::from),
                option::LEASE_TIME => self.lease_seconds = four(value).map(u32::from_be_bytes),
                option::RENEWAL_TIME => self.renewal_seconds = four(value).map(u32::from_be_bytes),
                option::CLIENT_ID if value.len() <= MAX_CLIENT_ID => self.client.id = value.to_vec(),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The payload of the DHCPREQUEST by which a client renews its lease of `address`: to be sent by unicast to the server that gave
/// it. "'server identifier' MUST NOT be filled in, 'requested IP address' option MUST NOT be filled in, 'ciaddr' MUST be filled
/// in with client's IP address" (RFC 2131 section 4.3.2, RENEWING).
#[must_use]
pub fn renewal(client: &Client, address: Ipv4Addr, transaction: u32) -> Vec<u8> {
    let (hardware, length, hardware_address) = client.hardware;
    let mut out = Vec::with_capacity(300);
    out.extend_from_slice(&[1, hardware, length, 0]);
    out.extend_from_slice(&transaction.to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&address.octets());
    out.extend_from_slice(&[0; 12]);
    out.extend_from_slice(&hardware_address);
    out.resize(FIXED - COOKIE.len(), 0);
    out.extend_from_slice(&COOKIE);
    out.extend_from_slice(&[option::MESSAGE_TYPE, 1, kind::REQUEST]);
    if let (len @ 1.., id) = (client.id.len().min(MAX_CLIENT_ID), &client.id) {
        out.extend_from_slice(&[option::CLIENT_ID, len as u8]);
        out.extend_from_slice(id.get(..len).unwrap_or_default());
    }
    out.push(option::END);
    // The least that BOOTP relays and old servers take.
    out.resize(out.len().max(300), 0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_reads_back() {
        let client = Client {
            hardware: (1, 6, *b"\x02\0\0\0\0\x07\0\0\0\0\0\0\0\0\0\0"),
            id: vec![1, 2, 0, 0, 0, 0, 7],
        };
        let bytes = renewal(&client, Ipv4Addr::new(10, 0, 0, 9), 0xdead_beef);
        assert_eq!(bytes.len(), 300);
        let message = Dhcp::parse(&bytes).expect("well-formed");
        assert!(message.request && message.kind == kind::REQUEST && message.server.is_none());
        assert_eq!(message.client, client);
        assert_eq!((message.transaction, message.client_address), (0xdead_beef, Ipv4Addr::new(10, 0, 0, 9)));
    }

    #[test]
    fn bootp_and_stumps_are_refused() {
        let client = Client { hardware: (1, 6, [0; 16]), id: Vec::new() };
        let mut bytes = renewal(&client, Ipv4Addr::UNSPECIFIED, 1);
        for len in [0, 100, FIXED - 1, FIXED] {
            assert!(Dhcp::parse(&bytes[..len]).is_err(), "{len}");
        }
        bytes[FIXED] = 0;
        bytes[FIXED + 1] = 255;
        assert!(Dhcp::parse(&bytes).is_err(), "no message type");
    }
}

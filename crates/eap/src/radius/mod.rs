//! A client of RADIUS (RFC 2865) that carries EAP (RFC 3579): the server has the users, and the gateway passes packets on until it hears the verdict
//! and the key. And accounting (RFC 2866): who was in, how long, how much.
//!
//! Owns the packets, their protection, and one conversation of one user ([`Access`]). Must never send or repeat anything itself: a driver has the
//! sockets, the servers, their order and the time-outs.
//!
//! # For a driver
//! - An identifier names one request of one socket until its answer is there; a socket has 256 of them.
//! - A request that is not answered is sent again as it is, to the same server with the same identifier (RFC 5080 section 2.2.1); to another
//!   server goes a new one, and a conversation that has begun cannot go on there.
//! - A datagram that is refused with [`Discard`] changes nothing: anybody can send one. Wait on.
//!
//! # What protects it
//! MD5 with a shared secret, which has been broken in practice ("Blast-RADIUS", CVE-2024-3596): who is between can turn a rejection into an acceptance. The
//! HMAC-MD5 of the attribute Message-Authenticator withstands that. So every request has it, as its first attribute, and an answer without a
//! right one is discarded (RFC 3579 section 3.2 wants as much wherever there is EAP). Keys are hidden by MD5 alone: the way to the server should be a tunnel, or short.

mod access;
mod accounting;
mod attribute;
mod mppe;
mod sealed;
mod status;

use core::net::IpAddr;
use std::sync::Arc;

use dormouse_crypto::Secret;

pub use access::{Access, Answer, Broken, Grants};
pub use accounting::{Account, Event, Usage};
pub use sealed::Discard;
pub use status::Status;

/// What is said of the gateway to a server, and what they share.
#[derive(Clone, Debug)]
pub struct Client {
    /// Shared with the server.
    pub secret: Secret,
    /// The gateway's name (NAS-Identifier).
    pub name: String,
    /// The gateway's address, as its clients have it.
    pub address: IpAddr,
}

/// What is said of a user's connection.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Of the gateway.
    pub client: Arc<Client>,
    /// Where the user's device is (Calling-Station-Id).
    pub from: String,
}

impl Connection {
    /// The attributes that all requests have.
    fn describe(&self, attributes: &mut attribute::Attributes) -> Result<(), crate::Error> {
        use attribute::{
            CALLED_STATION, CALLING_STATION, FRAMED, NAS_ADDRESS, NAS_ADDRESS_6, NAS_NAME, NAS_PORT_TYPE,
            SERVICE_TYPE, VIRTUAL,
        };
        attributes.push(NAS_NAME, self.client.name.as_bytes())?;
        match self.client.address {
            IpAddr::V4(ip) => attributes.push(NAS_ADDRESS, &ip.octets())?,
            IpAddr::V6(ip) => attributes.push(NAS_ADDRESS_6, &ip.octets())?,
        }
        attributes.push(NAS_PORT_TYPE, &VIRTUAL.to_be_bytes())?;
        attributes.push(SERVICE_TYPE, &FRAMED.to_be_bytes())?;
        attributes.push(CALLED_STATION, self.client.address.to_string().as_bytes())?;
        attributes.push(CALLING_STATION, self.from.as_bytes())
    }
}

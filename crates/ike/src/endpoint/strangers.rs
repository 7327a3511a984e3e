//! Messages in clear about SPIs that one end does not know: answering them, and doubting. Owns the limit on their rate; must never
//! change an SA on their word.

use std::collections::BTreeMap;

use core::net::IpAddr;

use dormouse_sansio::{Carrier, Class, Instant, Path};
use dormouse_wire::ike::{ExchangeType, Flags, Header, Message, NotifyType, Payload};

use ipnet::IpNet;

use super::Endpoint;
use super::takeover::orphans::Spi;
use crate::error::Discard;
use crate::handshake::Slot;
use crate::limits::{COMPLAINED_TO_MOST, COMPLAINTS_PER_SECOND};
use crate::payloads::notify;
use crate::prefix::prefix_of;

/// Endpoints with more SAs than this pay no attention to INVALID_SPI.
const DOUBT_SEARCH: usize = 64;

/// Error notifications outside of any SA that were sent in the present second, by what they were about (ESP or IKE) and by the prefix
/// that they went to: a stranger uses up its own share, and the data of a peer that finds out that the SA is gone not the answer to its
/// question.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    second: u64,
    sent: BTreeMap<(bool, IpNet), u32>,
}

impl Complaints {
    /// RFC 7296 section 2.21.4 wants them rate-limited.
    fn may(&mut self, now: Instant, about_esp: bool, to: IpAddr) -> bool {
        let second = now.as_nanos() / 1_000_000_000;
        if self.second != second {
            (self.second, self.sent) = (second, BTreeMap::new());
        }
        let key = (about_esp, prefix_of(to));
        if self.sent.len() >= COMPLAINED_TO_MOST && !self.sent.contains_key(&key) {
            return false;
        }
        let sent = self.sent.entry(key).or_default();
        *sent += 1;
        *sent <= COMPLAINTS_PER_SECOND
    }
}

impl Endpoint {
    /// Whether a message is of an SA or a handshake that is here, by its SPI: anybody who has seen one can write it there. The first message of a
    /// handshake that has begun is: what its sender says later depends on which one we have taken.
    #[must_use]
    pub fn has_sa_of(&self, path: Path, message: &[u8]) -> bool {
        Header::parse(message).is_ok_and(|header| {
            let ours = if header.flags.initiator { header.spi_r } else { header.spi_i };
            let begun = || self.shared.half_open.begun_by(header.spi_i, path.remote).is_some();
            self.shared.by_spi.contains_key(&ours) || (header.spi_r == 0 && begun())
        })
    }

    /// The SPI that names a message's sender, if it would be the first of a handshake.
    #[must_use]
    pub fn first_of(message: &[u8]) -> Option<u64> {
        let header = Header::parse(message).ok()?;
        let begins = matches!(header.exchange, ExchangeType::IkeSaInit | ExchangeType::IkeSessionResume);
        (begins && header.flags.initiator && header.spi_r == 0).then_some(header.spi_i)
    }

    /// ESP arrived over `path` with an SPI that is not in use: says so with an INVALID_SPI notification in clear (RFC 7296
    /// section 1.5), if the rate allows. A client whose gateway was restarted learns it from the answer to its first packet.
    /// "[...] the node SHOULD initiate an INFORMATIONAL exchange with a Notify payload describing the problem" (RFC 7296
    /// section 2.21.4) if it has an IKE SA with that address: ours is in clear, a hint like any other.
    pub fn unknown_esp_spi(&mut self, now: Instant, path: Path, spi: u32) {
        if self.is_left(now, Spi::Esp(spi), path.local.ip()) {
            return;
        }
        if spi < 256 || !self.complaints.may(now, true, path.remote.ip()) {
            return;
        }
        let path = match path.carrier {
            Carrier::RawEsp => {
                path.with_ports(Carrier::Ike, self.shared.config.ports.ike, self.shared.config.ports.ike)
            }
            Carrier::Ike | Carrier::NatT => path,
            Carrier::RawHip | Carrier::HipUdp => return,
        };
        // There are no IKE SPIs that would mean anything to the receiver: it is the one message in which they may be zero.
        let flags = Flags { initiator: true, version: false, response: false };
        let header = Header::new(0, 0, ExchangeType::Informational, flags, 0);
        let mut datagram = Vec::new();
        if Message::emit(&header, &[notify(NotifyType::InvalidSpi, spi.to_be_bytes())], &mut datagram).is_ok()
        {
            self.shared.send_stateless(path, Class::Timely, datagram);
        }
    }

    /// An unauthenticated message from `path` says that its sender does not know the ESP SPI that we send with.
    /// "the receiving node MUST NOT respond to it because doing so could cause a message loop" (RFC 7296 section 1.5)
    pub(super) fn doubt(&mut self, now: Instant, path: Path, spi: u32) -> Result<(), Discard> {
        // A gateway of many does not search all its SAs for a number that a stranger sends: its clients come back by themselves.
        if self.slots.len() <= DOUBT_SEARCH {
            for (id, slot) in &mut self.slots {
                if let Slot::Established(ike) = slot
                    && ike.core.link.path.remote.ip() == path.remote.ip()
                    && ike.children.by_spi_out(spi).is_some()
                {
                    self.touched.insert(*id);
                    ike.doubt(&mut self.shared, now, false);
                }
            }
        }
        Err(Discard::Unprotected)
    }

    /// Answers a request outside of any SA with an error notification in clear, if the rate allows.
    /// "[...] the response MUST be sent to the IP address and port from where it came with the same IKE SPIs and the Message ID
    /// copied" (RFC 7296 section 2.21.4)
    pub(super) fn complain(&mut self, now: Instant, path: Path, request: &Header, kind: NotifyType) {
        if !self.complaints.may(now, false, path.remote.ip()) {
            return;
        }
        let flags = Flags { initiator: !request.flags.initiator, version: false, response: true };
        let header = Header::new(request.spi_i, request.spi_r, request.exchange, flags, request.message_id);
        let mut datagram = Vec::new();
        if Message::emit(&header, &[notify(kind, [])], &mut datagram).is_ok() {
            self.shared.send_stateless(path, Class::Timely, datagram);
        }
    }
}

/// The ESP SPI of an INVALID_SPI notification in clear that stands alone in its message.
pub(super) fn invalid_spi(datagram: &[u8]) -> Option<u32> {
    let message = Message::parse(datagram).ok()?;
    match message.payloads.as_slice() {
        [Payload::Notify(n)] if n.kind == NotifyType::InvalidSpi && message.protected.is_none() => {
            Some(u32::from_be_bytes(n.data.as_slice().try_into().ok()?))
        }
        _ => None,
    }
}

//! Answers to the peer's MOBIKE requests (RFC 4555), and the notification that forbids NATs. Owns the order in which the parts of
//! a request are looked at; where the SA goes then is [`crate::sa::mobility`]'s.

use core::net::{IpAddr, SocketAddr};

use dormouse_sansio::{Instant, Path};
use dormouse_wire::ike::{NotifyType, Payload};

use crate::event::Event;
use crate::payloads::{self, View, notify};
use crate::sa::{Answer, IkeSa};
use crate::shared::Shared;
use crate::stats::Kind;

impl IkeSa {
    /// The MOBIKE parts of an INFORMATIONAL request, if it has any.
    pub(crate) fn answer_mobike(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        path: Path,
        id: u32,
        view: View<'_>,
    ) -> Option<Answer> {
        let update = view.has(NotifyType::UpdateSaAddresses) && self.mobility.mobike();
        let addresses = view.additional_addresses().filter(|_| self.mobility.mobike());
        let cookie = view.notify(NotifyType::Cookie2);
        let nat_detection = view.has(NotifyType::NatDetectionSourceIp);
        if !update && addresses.is_none() && cookie.is_none() && !nat_detection {
            return None;
        }
        let mut payloads = Vec::new();
        let unexpected_nat = (update || addresses.is_some()) && !addresses_match(view, &path);
        if unexpected_nat {
            payloads.push(notify(NotifyType::UnexpectedNatDetected, []));
        } else {
            if update && !self.obey_update(shared, now, path, id, view) {
                payloads.push(notify(NotifyType::UnacceptableAddresses, []));
            }
            // "[...] it has already received a newer request to update the addresses [...] If it has, a response message is sent, but
            // the address set is not updated." (RFC 4555 section 3.6)
            let sa = self.core.id();
            if let Some(addresses) = addresses.filter(|_| self.mobility.has_newest_addresses(id)) {
                shared.event(Event::PeerAddresses { sa, addresses });
            }
        }
        // "if the request includes them, the responder MUST also include them in the response" (RFC 4555 section 3.8)
        let link = &self.core.link;
        if nat_detection {
            payloads.extend(payloads::nat_detection(link.spis, &path, link.conn.esp_in_udp.is_forced()));
        }
        // "the recipient of an INFORMATIONAL request MUST copy the notification as-is to the response" (RFC 4555 section 3.7)
        payloads.extend(cookie.map(|c| Payload::Notify(c.clone())));
        Some(Answer::of(Kind::Mobike, payloads))
    }
}

/// NO_NATS_ALLOWED (RFC 4555 section 4.2.6): source address, destination address, source port, destination port.
pub(crate) fn no_nats_allowed(path: &Path) -> Payload {
    notify(NotifyType::NoNatsAllowed, quadruple(path.local, path.remote))
}

fn quadruple(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let mut data = Vec::with_capacity(36);
    for address in [source.ip(), destination.ip()] {
        match address.to_canonical() {
            IpAddr::V4(a) => data.extend_from_slice(&a.octets()),
            IpAddr::V6(a) => data.extend_from_slice(&a.octets()),
        }
    }
    data.extend_from_slice(&source.port().to_be_bytes());
    data.extend_from_slice(&destination.port().to_be_bytes());
    data
}

/// Whether a NO_NATS_ALLOWED notification, if there is one, agrees with the IP header (RFC 4555 section 3.9).
/// "the exchange responder MUST NOT use the contents of the NO_NATS_ALLOWED notification for any other purpose" (RFC 4555
/// section 3.9)
pub(crate) fn addresses_match(view: View<'_>, path: &Path) -> bool {
    view.notify(NotifyType::NoNatsAllowed).is_none_or(|n| n.data == quadruple(path.remote, path.local))
}

//! Where the packets of an SA go and come from, and what strangers say about it. Owns the SA's move from one path to
//! another; must never move an SA, or end it, on the word of a packet that is not authenticated.

use dormouse_sansio::{Instant, Path};
use dormouse_wire::ike::NotifyType;

use super::{HINT_INTERVAL, HINT_PROBE, IkeSa};
use crate::event::Event;
use crate::payloads::View;
use crate::shared::Shared;
use dormouse_keying::{ChildSa, Owner};

impl IkeSa {
    /// An authentic packet came from elsewhere: the NAT before the peer has a new mapping, so follow it.
    ///
    /// RFC 7296 section 2.23: "a host [...] that is not behind a NAT SHOULD send all packets (including retransmission
    /// packets) to the IP address and port in the validated packet".
    /// "A host behind a NAT SHOULD NOT do this type of dynamic address update" (RFC 7296 section 2.23)
    pub(crate) fn observed_path(&mut self, shared: &mut Shared, now: Instant, path: Path) {
        let follows = self.nat.remote && !self.nat.local && path.carrier == self.link.path.carrier;
        if !follows || path.remote == self.link.path.remote {
            return;
        }
        tracing::info!(sa = %self.link.id, from = %self.link.path, to = %path, "the peer's NAT mapping moved");
        self.move_to(shared, Path { remote: path.remote, ..self.link.path });
        self.resend(shared, now, true);
    }

    /// Everything of this SA goes another way from now on.
    pub(crate) fn move_to(&mut self, shared: &mut Shared, path: Path) {
        self.link.path = path;
        let sa = self.link.id;
        shared.event(Event::Child(ChildSa::Remap { owner: Owner::Ike(sa), path: self.esp_path() }));
        shared.event(Event::PathChanged { sa, path });
    }

    /// See [`crate::Endpoint::reachable`].
    pub(crate) fn reachable(&mut self, now: Instant) {
        self.probe = None;
        self.out.begin_anew(now);
    }

    /// Whether ESP is carried in UDP: when there is a NAT, or when told so.
    /// "UDP encapsulation MUST NOT be done on port 500." (RFC 7296 section 2.23)
    /// "[...] if a NAT is detected, both devices MUST use UDP encapsulation for ESP" (RFC 7296 section 2.23)
    pub(crate) fn encapsulated(&self) -> bool {
        self.link.path.carrier == dormouse_sansio::Carrier::NatT
            && (self.nat.any() || self.link.conn.force_udp_encap)
    }

    pub(crate) fn esp_path(&self) -> Path {
        self.link.esp_path(self.encapsulated())
    }

    /// A notification in clear says that the peer does not know this SA. Anybody can say that: have the peer prove that it
    /// is there, and let the driver know.
    /// "[...] MUST NOT respond and MUST NOT change the state of any existing SAs" (RFC 7296 section 2.21.4)
    pub(super) fn hint(&mut self, shared: &mut Shared, now: Instant, path: Path, datagram: &[u8]) {
        let says_so = path.remote == self.link.path.remote
            && dormouse_wire::ike::Message::parse(datagram)
                .is_ok_and(|m| View(&m.payloads).has(NotifyType::InvalidIkeSpi));
        if says_so {
            self.doubt(shared, now, true);
        }
    }

    /// Somebody says, unauthenticated, that the peer has lost this SA: the driver is told, and the peer asked.
    /// "Unreliable information SHOULD be treated only as a hint that there might be a problem" (RFC 4555 section 3.5)
    /// "an endpoint MUST NOT conclude that the other endpoint has failed based on any routing information (e.g., ICMP messages)
    /// or IKE messages that arrive without cryptographic protection" (RFC 7296 section 2.4)
    pub(crate) fn doubt(&mut self, shared: &mut Shared, now: Instant, solicited: bool) {
        let recently = self.hinted_at.is_some_and(|at| now - at < HINT_INTERVAL);
        // Nobody's word is worth waking a device for.
        if (recently && !solicited) || self.asleep.is_some() {
            return;
        }
        shared.event(Event::PeerLostSa { sa: self.link.id, solicited });
        if !recently {
            self.hinted_at = Some(now);
            self.probe(shared, now, HINT_PROBE);
        }
    }

    /// The peer's outer address.
    pub(crate) fn remote_ip(&self) -> core::net::IpAddr {
        self.link.path.remote.ip()
    }

    /// Whether ESP of this SA is sent with `spi`.
    pub(crate) fn sends_with(&self, spi: u32) -> bool {
        self.children.values().any(|child| child.spi_out == spi)
    }
}

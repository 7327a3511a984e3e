//! MOBIKE (RFC 4555): address updates, additional addresses, return routability, and NAT mappings that change. Owns these
//! INFORMATIONAL exchanges; must never choose an address: the driver does.
//!
//! The client moves: [`IkeSa::set_path`] remaps the ESP side at once, repeats what is under way from the new address, and
//! tells the gateway with UPDATE_SA_ADDRESSES. Until NAT detection on the new path has answered, ESP is encapsulated:
//! every peer must accept that (RFC 7296 section 2.23), and a NAT there would swallow anything else.

use dormouse_sansio::{Carrier, Class, Instant, Path};
use dormouse_wire::ike::{NotifyType, Payload};

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use crate::event::{CloseReason, Event};
use crate::natd;
use crate::payloads::{self, View, notify};
use crate::sa::{Answer, Exchange, Fate, IkeSa, Stage, Task};
use crate::shared::Shared;
use crate::stats::Kind;

/// How often UPDATE_SA_ADDRESSES is repeated when the peer sees a NAT that NO_NATS_ALLOWED forbids.
/// "it SHOULD retry the operation several times using new INFORMATIONAL requests" (RFC 4555 section 3.9)
const UNEXPECTED_NAT_TRIES: u32 = 3;

/// An address update under way.
#[derive(Debug)]
pub(crate) struct Update {
    /// The path that it was made for; if the SA has moved on since, the answer counts for nothing.
    path: Path,
}

/// A return routability check under way.
#[derive(Debug)]
pub(crate) struct Routability {
    cookie: Vec<u8>,
    path: Path,
}

impl IkeSa {
    /// See [`crate::Endpoint::set_path`].
    pub(crate) fn set_path(&mut self, shared: &mut Shared, now: Instant, path: Path) {
        if self.stage != Stage::Live {
            return;
        }
        let moved = path != self.link.path;
        let port_free = path.carrier == Carrier::RawEsp;
        let mut path = if port_free { Path { carrier: self.link.path.carrier, ..path } } else { path };
        if self.mobike && path.carrier == Carrier::Ike {
            let (local, remote) = (shared.config.ports.natt, self.link.conn.remote_ports.natt);
            path = path.with_ports(Carrier::NatT, local, remote);
        }
        if moved {
            self.keepalive.reset();
            self.seen_as = None;
            // Not known yet; assumed so that ESP gets through.
            self.nat =
                natd::Detection { supported: self.nat.supported, local: true, remote: self.nat.remote };
        }
        self.move_to(shared, path);
        self.resend(shared, now, true);
        if self.mobike && self.client {
            self.enqueue_first(Task::Update, now);
        } else {
            // Without MOBIKE an authentic message from the new address moves the mapping, if the peer allows it at all.
            self.enqueue_first(Task::Liveness, now);
        }
        self.pump(shared, now);
    }

    pub(crate) fn begin_update(&mut self, shared: &mut Shared, now: Instant) {
        let path = self.link.path;
        let mut payloads = vec![notify(NotifyType::UpdateSaAddresses, [])];
        if self.link.conn.no_nats_allowed {
            // "MUST also include a NO_NATS_ALLOWED notification" (RFC 4555 section 3.9)
            payloads.push(no_nats_allowed(&path));
        } else {
            payloads.extend(payloads::nat_detection(self.link.spis, &path, self.link.conn.force_udp_encap));
        }
        self.request(shared, now, &payloads, Kind::Mobike, Class::Urgent, Exchange::Update(Update { path }));
    }

    pub(crate) fn update_answered(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        update: Update,
        view: View<'_>,
    ) -> Fate {
        // After another address change, "no MOBIKE processing is done for the reply" (RFC 4555 section 3.5).
        if update.path != self.link.path {
            self.enqueue_first(Task::Update, now);
            return Fate::Lives;
        }
        for (kind, why) in [
            (NotifyType::UnacceptableAddresses, "UNACCEPTABLE_ADDRESSES"),
            (NotifyType::UnexpectedNatDetected, "UNEXPECTED_NAT_DETECTED"),
        ] {
            if view.has(kind) {
                if kind == NotifyType::UnexpectedNatDetected && self.unexpected_nats < UNEXPECTED_NAT_TRIES {
                    self.unexpected_nats += 1;
                    self.enqueue_first(Task::Update, now);
                    return Fate::Lives;
                }
                self.unexpected_nats = 0;
                shared.event(Event::UpdateRefused { sa: self.link.id, why });
                return Fate::Lives;
            }
        }
        self.unexpected_nats = 0;
        self.learn_nat(shared, view);
        Fate::Lives
    }

    /// Takes over what NAT detection says about the present path, and tells the ESP side if that changes its carrier.
    pub(crate) fn learn_nat(&mut self, shared: &mut Shared, view: View<'_>) {
        let found = view.nat(self.link.spis, &self.link.path);
        let before = self.esp_path();
        if found.supported {
            self.nat = found;
            self.seen_as = view.notify(NotifyType::NatDetectionDestinationIp).map(|n| n.data.clone());
        } else if self.link.conn.no_nats_allowed {
            self.nat = natd::Detection::default();
        }
        if self.esp_path() != before {
            self.move_to(shared, self.link.path);
        }
    }

    /// Asks from where the peer sees us, at the end of a silence (RFC 4555 section 3.8).
    pub(crate) fn begin_nat_check(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        silence: Duration,
        class: Class,
    ) {
        if self.seen_as.is_none() {
            // With nothing to compare with, have the peer take the mapping that there is now.
            return self.begin_update(shared, now);
        }
        let payloads =
            payloads::nat_detection(self.link.spis, &self.link.path, self.link.conn.force_udp_encap);
        let exchange = Exchange::NatCheck(silence);
        self.request(shared, now, &payloads, Kind::Liveness, class, exchange);
    }

    pub(crate) fn nat_check_answered(&mut self, now: Instant, silence: Duration, view: View<'_>) -> Fate {
        let Some(seen) = view.notify(NotifyType::NatDetectionDestinationIp).map(|n| n.data.clone()) else {
            return Fate::Lives;
        };
        match &self.seen_as {
            Some(before) if *before == seen => self.keepalive.survived(silence),
            Some(_) => {
                // The mapping has changed: the peer must move (RFC 4555 section 3.8).
                // "the initiator SHOULD send UPDATE_SA_ADDRESSES" (RFC 4555 section 3.8)
                if !silence.is_zero() {
                    self.keepalive.died(silence);
                }
                self.seen_as = Some(seen);
                self.enqueue_first(Task::Update, now);
            }
            None => self.seen_as = Some(seen),
        }
        Fate::Lives
    }

    /// The additional addresses in an IKE_AUTH message, or what stands for one.
    pub(crate) fn hear_addresses(&self, shared: &mut Shared, view: View<'_>) {
        if let Some(addresses) = view.additional_addresses().filter(|_| self.mobike) {
            shared.event(Event::PeerAddresses { sa: self.link.id, addresses });
        }
    }

    pub(crate) fn begin_addresses(&mut self, shared: &mut Shared, now: Instant) {
        let mut list = payloads::additional_addresses(&self.additional);
        if self.link.conn.no_nats_allowed {
            list.push(no_nats_allowed(&self.link.path));
        }
        let exchange = Exchange::Addresses(self.link.path);
        self.request(shared, now, &list, Kind::Mobike, Class::Upkeep, exchange);
    }

    /// "If the request to update the addresses is retransmitted using several different source addresses, a new INFORMATIONAL
    /// request MUST be sent." (RFC 4555 section 3.6)
    pub(crate) fn addresses_answered(&mut self, now: Instant, sent_by: Path) -> Fate {
        if sent_by != self.link.path {
            self.enqueue(Task::Addresses, now);
        }
        Fate::Lives
    }

    /// Asks the peer to prove that it receives at its new address (RFC 4555 section 3.7).
    pub(crate) fn begin_routability(&mut self, shared: &mut Shared, now: Instant) {
        // "MUST be between 8 and 64 octets in length (inclusive), and MUST be chosen by the exchange initiator in a way that is
        // unpredictable to the exchange responder" (RFC 4555 section 4.2.5)
        let mut cookie = vec![0; 16];
        shared.entropy.fill(&mut cookie);
        let check = Routability { cookie: cookie.clone(), path: self.link.path };
        let payloads = [notify(NotifyType::Cookie2, cookie)];
        self.request(shared, now, &payloads, Kind::Mobike, Class::Timely, Exchange::Routability(check));
    }

    pub(crate) fn routability_answered(
        &mut self,
        shared: &mut Shared,
        check: Routability,
        path: Path,
        view: View<'_>,
    ) -> Fate {
        // "the original sender MUST verify that the value is the same one as sent" (RFC 4555 section 3.7)
        let returned = view.notify(NotifyType::Cookie2).map(|n| n.data.as_slice());
        // "If the values do not match, the IKE_SA MUST be closed." (RFC 4555 section 3.7)
        if returned != Some(check.cookie.as_slice()) {
            return Fate::Ends(CloseReason::ProtocolError);
        }
        if check.path == self.link.path && path.remote == check.path.remote {
            self.unverified = false;
            let sa = self.link.id;
            shared.event(Event::Child(dormouse_keying::ChildSa::Remap {
                owner: dormouse_keying::Owner::Ike(sa),
                path: self.esp_path(),
            }));
        }
        Fate::Lives
    }

    /// The MOBIKE parts of an INFORMATIONAL request, if it has any.
    pub(crate) fn answer_mobike(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        path: Path,
        id: u32,
        view: View<'_>,
    ) -> Option<Answer> {
        let update = view.has(NotifyType::UpdateSaAddresses) && self.mobike;
        let addresses = view.additional_addresses().filter(|_| self.mobike);
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
            let newer = self.newest_addresses.is_none_or(|newest| newest < id);
            if let Some(addresses) = addresses.filter(|_| newer) {
                self.newest_addresses = Some(id);
                shared.event(Event::PeerAddresses { sa: self.link.id, addresses });
            }
        }
        // "if the request includes them, the responder MUST also include them in the response" (RFC 4555 section 3.8)
        if nat_detection {
            payloads.extend(payloads::nat_detection(self.link.spis, &path, self.link.conn.force_udp_encap));
        }
        // "the recipient of an INFORMATIONAL request MUST copy the notification as-is to the response" (RFC 4555 section 3.7)
        payloads.extend(cookie.map(|c| Payload::Notify(c.clone())));
        Some(Answer::of(Kind::Mobike, payloads))
    }

    /// Moves the SA to where the request came from, unless a newer request has done so already. `false`: unacceptable.
    fn obey_update(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        path: Path,
        id: u32,
        view: View<'_>,
    ) -> bool {
        if self.client || path.remote.ip().is_unspecified() || path.remote.ip().is_multicast() {
            return false;
        }
        // "a normal response message (described below) is sent, but no other action is taken" (RFC 4555 section 3.5)
        if self.newest_update.is_some_and(|newest| newest > id) {
            return true;
        }
        self.newest_update = Some(id);
        let moved = path != self.link.path;
        let found = view.nat(self.link.spis, &path);
        self.nat = if found.supported { found } else { natd::Detection::default() };
        self.keepalive.reset();
        tracing::info!(sa = %self.link.id, from = %self.link.path, to = %path, "the peer moved");
        if moved && self.link.conn.return_routability {
            // The IKE SA moves at once, the CHILD SAs when the peer has answered from there.
            self.link.path = path;
            self.unverified = true;
            shared.event(Event::PathChanged { sa: self.link.id, path });
            self.enqueue_first(Task::Routability, now);
        } else {
            self.move_to(shared, path);
        }
        if moved {
            self.resend(shared, now, true);
        }
        true
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

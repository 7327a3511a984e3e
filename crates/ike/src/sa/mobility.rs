//! Where the packets of an SA go and come from: the paths of IKE and ESP, NATs on the way, the addresses that either end has told.
//! Owns the SA's move from one path to another; must never choose an address (the driver does), nor move an SA on the word of a
//! packet that is not authenticated.
//!
//! The client moves: [`IkeSa::set_path`] remaps the ESP side at once, repeats what is under way from the new address, and
//! tells the gateway with UPDATE_SA_ADDRESSES. Until NAT detection on the new path has answered, ESP is encapsulated:
//! every peer must accept that (RFC 7296 section 2.23), and a NAT there would swallow anything else.

use ::core::net::IpAddr;
use ::core::time::Duration;

use dormouse_sansio::{Carrier, Deadline, Instant, Path};
use dormouse_wire::ike::NotifyType;

use super::IkeSa;
use super::core::Core;
use crate::config::{Connection, EspInUdp};
use crate::event::Event;
use crate::exchange::Exchange;
use crate::exchange::addresses::Addresses;
use crate::exchange::liveness::{Liveness, NatCheck};
use crate::exchange::routability::Routability;
use crate::exchange::update::Update;
use crate::keepalive::{self, Keepalive};
use crate::link::Link;
use crate::natd;
use crate::payloads::View;
use crate::shared::Shared;
use dormouse_keying::{ChildSa, Owner};

/// How often UPDATE_SA_ADDRESSES is repeated when the peer sees a NAT that NO_NATS_ALLOWED forbids.
/// "it SHOULD retry the operation several times using new INFORMATIONAL requests" (RFC 4555 section 3.9)
const UNEXPECTED_NAT_TRIES: u32 = 3;

/// Where ESP goes.
#[derive(Clone, Copy, Debug)]
enum Esp {
    /// Where IKE goes.
    WithIke,
    /// The peer has moved and has not yet shown that it receives there (RFC 4555 section 3.7): ESP stays on the last path that was
    /// proven.
    Stays { proven: Path },
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Mobility {
    mobike: bool,
    /// What NAT detection last said about the path.
    nat: natd::Detection,
    /// The digest in which the peer last said where it sees us.
    seen_as: Option<Vec<u8>>,
    keepalive: Keepalive,
    /// ESP is carried in UDP where no NAT asks for it, too.
    udp_anyway: bool,
    esp: Esp,
    /// Our additional addresses, as announced to the peer (RFC 4555 section 3.6).
    told: Vec<IpAddr>,
    /// The id of the newest UPDATE_SA_ADDRESSES request that was obeyed, and of the newest list of additional addresses.
    newest_update: Option<u32>,
    newest_addresses: Option<u32>,
    /// How often an update met UNEXPECTED_NAT_DETECTED in a row.
    unexpected_nats: u32,
}

impl Mobility {
    pub(crate) fn new(
        conn: &Connection,
        mobike: bool,
        nat: natd::Detection,
        seen_as: Option<Vec<u8>>,
        told: Vec<IpAddr>,
    ) -> Self {
        Self {
            mobike,
            nat,
            seen_as,
            keepalive: Keepalive::new(conn.timing.keepalive),
            udp_anyway: conn.esp_in_udp.is_forced(),
            esp: Esp::WithIke,
            told,
            newest_update: None,
            newest_addresses: None,
            unexpected_nats: 0,
        }
    }

    /// The successor is where its predecessor was last; what names message ids or SPIs of that one is void.
    pub(super) fn inherit(&mut self, old: &mut Self) {
        let Self {
            mobike: _,
            nat,
            seen_as: _,
            keepalive,
            udp_anyway: _,
            esp,
            told,
            newest_update: _,
            newest_addresses: _,
            unexpected_nats,
        } = old;
        (self.nat, self.esp) = (*nat, *esp);
        self.keepalive = keepalive.clone();
        self.told = std::mem::take(told);
        self.unexpected_nats = *unexpected_nats;
    }

    /// The peer speaks the dormancy extension: it is one of ours.
    pub(super) fn between_our_own(&mut self, conn: &Connection) {
        self.udp_anyway |= conn.esp_in_udp == EspInUdp::Auto;
    }

    /// Whether both ends speak MOBIKE.
    pub(crate) fn mobike(&self) -> bool {
        self.mobike
    }

    /// What NAT detection last said about the path.
    pub(crate) fn nat(&self) -> natd::Detection {
        self.nat
    }

    /// Whether the peer has said where it sees us.
    pub(crate) fn knows_where_it_is_seen(&self) -> bool {
        self.seen_as.is_some()
    }

    /// Our additional addresses, as announced to the peer.
    pub(crate) fn told(&self) -> &[IpAddr] {
        &self.told
    }

    /// Whether request `id` has the newest list of the peer's additional addresses.
    pub(crate) fn has_newest_addresses(&mut self, id: u32) -> bool {
        is_newest(&mut self.newest_addresses, id)
    }

    /// Whether the peer would follow us elsewhere; see [`crate::Endpoint::can_move`].
    pub(crate) fn can_move(&self) -> bool {
        self.mobike || self.nat.local
    }

    /// Whether a liveness check had better ask where the peer sees us: "it SHOULD include these notifications in DPD messages" (RFC
    /// 4555 section 3.8).
    pub(crate) fn checks_nat(&self, core: &Core) -> bool {
        self.mobike && core.client && self.nat.local
    }

    /// How ESP travels: until the peer has proved its address, as before it moved.
    pub(crate) fn esp_path(&self, link: &Link) -> Path {
        match self.esp {
            Esp::WithIke => link.esp_path(self.encapsulated(link)),
            Esp::Stays { proven } => proven,
        }
    }

    /// Whether ESP is carried in UDP: where there is a NAT, between our own ends, or always, by the configuration.
    /// "UDP encapsulation MUST NOT be done on port 500." (RFC 7296 section 2.23)
    /// "[...] if a NAT is detected, both devices MUST use UDP encapsulation for ESP" (RFC 7296 section 2.23)
    fn encapsulated(&self, link: &Link) -> bool {
        link.path.carrier == Carrier::NatT && (self.nat.any() || self.udp_anyway)
    }

    // ---- NAT keepalives ----

    /// The silence after which a NAT keepalive is sent.
    pub(crate) fn keepalive_interval(&self, link: &Link) -> Option<Duration> {
        (self.nat.local && self.encapsulated(link)).then(|| self.keepalive.interval()).flatten()
    }

    /// "[...] that system SHOULD start sending keepalive packets as defined in [UDPENCAPS]" (RFC 7296 section 2.23)
    pub(super) fn keepalive_deadline(&self, core: &Core) -> Option<Deadline> {
        let needed = self.nat.local && self.encapsulated(&core.link);
        needed.then(|| self.keepalive.deadline(core.last_out)).flatten()
    }

    /// Sends the keepalive that is due, or says what to ask instead.
    pub(super) fn keepalive_due(
        &self,
        core: &mut Core,
        shared: &mut Shared,
        now: Instant,
    ) -> Option<NatCheck> {
        self.keepalive_deadline(core).filter(|d| d.at <= now)?;
        let check = self.keepalive.action() == keepalive::Action::Check && self.mobike && core.client;
        // What came in may have refreshed the binding as well: only silence both ways proves anything.
        let silence = now - core.last_out.max(core.last_in);
        core.last_out = now;
        if !check {
            core.link.send_keepalive(shared);
        }
        check.then(|| NatCheck::after(silence))
    }

    /// The peer has said where it sees us, at the end of a silence. Whether that is elsewhere than before: the peer must be told.
    pub(crate) fn note_seen_as(&mut self, seen: Vec<u8>, silence: Duration) -> bool {
        let moved = self.seen_as.as_ref().is_some_and(|before| *before != seen);
        if moved && !silence.is_zero() {
            self.keepalive.died(silence);
        } else if self.seen_as.is_some() && !moved {
            self.keepalive.survived(silence);
        }
        self.seen_as = Some(seen);
        moved
    }

    /// An update was answered without that.
    pub(crate) fn forget_unexpected_nats(&mut self) {
        self.unexpected_nats = 0;
    }

    /// An update met a NAT that is not allowed. Whether it is worth repeating.
    pub(crate) fn unexpected_nat(&mut self) -> bool {
        self.unexpected_nats += 1;
        let again = self.unexpected_nats <= UNEXPECTED_NAT_TRIES;
        if !again {
            self.unexpected_nats = 0;
        }
        again
    }
}

/// Whether request `id` is the newest of its kind.
fn is_newest(newest: &mut Option<u32>, id: u32) -> bool {
    let newer = newest.is_none_or(|newest| newest < id);
    if newer {
        *newest = Some(id);
    }
    newer
}

impl IkeSa {
    /// See [`crate::Endpoint::set_path`].
    pub(crate) fn set_path(&mut self, shared: &mut Shared, now: Instant, path: Path) {
        if !self.is_live() {
            return;
        }
        let (mobility, link) = (&mut self.mobility, &self.core.link);
        let moved = path != link.path;
        let port_free = path.carrier == Carrier::RawEsp;
        let mut path = if port_free { Path { carrier: link.path.carrier, ..path } } else { path };
        if mobility.mobike && path.carrier == Carrier::Ike {
            let (local, remote) = (shared.config.ports.natt, link.conn.remote_ports.natt);
            path = path.with_ports(Carrier::NatT, local, remote);
        }
        if moved {
            mobility.keepalive.reset();
            mobility.seen_as = None;
            // Not known yet; assumed so that ESP gets through.
            mobility.nat = natd::Detection { local: true, ..mobility.nat };
        }
        self.move_to(shared, path);
        self.resend(shared, now, true);
        if self.mobility.mobike && self.core.client {
            self.tasks.add_first(Update::new(), now);
        } else {
            // Without MOBIKE an authentic message from the new address moves the mapping, if the peer allows it at all.
            self.tasks.add_first(Liveness::upkeep(), now);
        }
        self.pump(shared, now);
    }

    /// IKE goes another way from now on, and ESP with it, unless it stays where it was.
    fn move_to(&mut self, shared: &mut Shared, path: Path) {
        self.core.link.path = path;
        self.remap(shared);
        shared.event(Event::PathChanged { sa: self.core.id(), path });
    }

    fn remap(&self, shared: &mut Shared) {
        let (owner, path) = (Owner::Ike(self.core.id()), self.esp_path());
        shared.event(Event::Child(ChildSa::Remap { owner, path }));
    }

    /// The peer is at the other end of `path` now, where `nat` was found. ESP goes there at once, or, as
    /// [`return_routability`](crate::config::MobilityConfig) says, when the peer has answered from there.
    pub(crate) fn follow(&mut self, shared: &mut Shared, now: Instant, path: Path, nat: natd::Detection) {
        let proven = self.esp_path();
        self.mobility.nat = nat;
        let moved = path != self.core.link.path;
        self.core.link.path = path;
        if moved {
            let asks = self.mobility.mobike && self.core.link.conn.mobility.return_routability;
            self.mobility.esp = Esp::WithIke;
            self.tasks.drop_like(&Routability::new().into());
            if asks && self.esp_path() != proven {
                self.mobility.esp = Esp::Stays { proven };
                self.tasks.add_first(Routability::new(), now);
            }
        }
        self.move_to(shared, path);
        if moved {
            self.resend(shared, now, true);
        }
    }

    /// The peer has answered from `path`, and from nowhere else: ESP goes there too.
    pub(crate) fn address_proven(&mut self, shared: &mut Shared, now: Instant, path: Path) {
        if matches!(self.mobility.esp, Esp::WithIke) {
            return;
        }
        let newer = Exchange::from(Routability::new());
        if self.tasks.has(&newer) {
            return;
        }
        if path != self.core.link.path {
            return self.tasks.add_first(newer, now);
        }
        self.mobility.esp = Esp::WithIke;
        self.remap(shared);
    }

    /// The peer's request to move its end of the SA, unless a newer one has been obeyed already. `false`: unacceptable.
    pub(crate) fn obey_update(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        path: Path,
        id: u32,
        view: View<'_>,
    ) -> bool {
        if self.core.client || path.remote.ip().is_unspecified() || path.remote.ip().is_multicast() {
            return false;
        }
        // "a normal response message (described below) is sent, but no other action is taken" (RFC 4555 section 3.5)
        if !is_newest(&mut self.mobility.newest_update, id) {
            return true;
        }
        let found = view.nat(self.core.link.spis, &path);
        self.mobility.keepalive.reset();
        if self.core.may_say(now) {
            tracing::info!(sa = %self.core.id(), from = %self.core.link.path, to = %path, "the peer moved");
        }
        let nat = if found.supported { found } else { natd::Detection::default() };
        self.follow(shared, now, path, nat);
        true
    }

    /// An authentic packet came from elsewhere: the NAT before the peer has a new mapping, so follow it.
    ///
    /// RFC 7296 section 2.23: "a host [...] that is not behind a NAT SHOULD send all packets (including retransmission
    /// packets) to the IP address and port in the validated packet".
    /// "A host behind a NAT SHOULD NOT do this type of dynamic address update" (RFC 7296 section 2.23)
    pub(crate) fn observed_path(&mut self, shared: &mut Shared, now: Instant, path: Path) {
        let (nat, here) = (self.mobility.nat, self.core.link.path);
        let follows = nat.remote && !nat.local && path.carrier == here.carrier;
        if !follows || path.remote == here.remote {
            return;
        }
        if self.core.may_say(now) {
            tracing::info!(sa = %self.core.id(), from = %here, to = %path, "the peer's NAT mapping moved");
        }
        self.follow(shared, now, Path { remote: path.remote, ..here }, nat);
    }

    /// Takes over what NAT detection says about the present path, and tells the ESP side if that changes its carrier.
    pub(crate) fn learn_nat(&mut self, shared: &mut Shared, view: View<'_>) {
        let found = view.nat(self.core.link.spis, &self.core.link.path);
        let before = self.esp_path();
        if found.supported {
            self.mobility.nat = found;
            let seen = view.notify(NotifyType::NatDetectionDestinationIp);
            self.mobility.seen_as = seen.map(|n| n.data.clone());
        } else if self.core.link.conn.mobility.no_nats_allowed {
            self.mobility.nat = natd::Detection::default();
        }
        if self.esp_path() != before {
            self.move_to(shared, self.core.link.path);
        }
    }

    /// The additional addresses in an IKE_AUTH message, or what stands for one.
    pub(crate) fn hear_addresses(&self, shared: &mut Shared, view: View<'_>) {
        if let Some(addresses) = view.additional_addresses().filter(|_| self.mobility.mobike) {
            shared.event(Event::PeerAddresses { sa: self.core.id(), addresses });
        }
    }

    /// Tells the peer which other addresses we have, if that has changed.
    pub(crate) fn tell_addresses(&mut self, shared: &mut Shared, now: Instant, addresses: &[IpAddr]) {
        let others: Vec<IpAddr> =
            addresses.iter().copied().filter(|a| *a != self.core.link.path.local.ip()).collect();
        if self.mobility.mobike && self.is_live() && self.mobility.told != others {
            self.mobility.told = others;
            self.enqueue(Addresses::new(), now);
            self.pump(shared, now);
        }
    }
}

//! Keys of first zones across the SAs of an endpoint (`docs/wire/mlike.md`): a device's session says which routers are to have them, and
//! they travel on the IKE SAs with these routers. Owns the way from one to the other; who may have what is decided by [`crate::mlike`].

use core::net::IpAddr;

use dormouse_crypto::cert::Identity;
use dormouse_keying::{GrantId, HeaderNews, SaId};
use dormouse_sansio::{Deadline, Instant};
use dormouse_wire::ike::mlike::{Excerpt, Migrate, Request, Why};

use super::Endpoint;
use crate::config::{RouterPolicy, ZonePolicy};
use crate::event::Event;
use crate::handshake::Slot;
use crate::limits::KEY_ASKS_WAITING;
use crate::mlike::Keys;
use crate::mlike::links::Link;
use crate::shared::Shared;

impl Endpoint {
    // ---- gateway ----

    /// Gateway: the device of this session is behind this router now, as a registration of Mobile IP says. Routers that need its keys get
    /// them, and those that need them no longer are told to forget them. Where the configuration knows which outer addresses a router
    /// serves, this is not needed. `false` if there is no such session, or the router may not have its keys.
    pub fn device_is_at(&mut self, now: Instant, sa: SaId, router: &Identity) -> bool {
        let permitted = self.shared.header.distribution.visit(sa, router);
        self.apply_effects(now);
        permitted
    }

    // ---- router ----

    /// Router: whose keys are taken from now on. Those that it has it keeps until their gateway takes them back, or their lifetime ends.
    pub fn set_router(&mut self, policy: Option<RouterPolicy>) {
        self.shared.config.router = policy;
    }

    /// Router: what the data plane says about the keys that it was given: the gateway is asked for others. Those that it cannot use are forgotten,
    /// and the gateway is notified.
    pub fn header_news(&mut self, now: Instant, news: HeaderNews) -> bool {
        let (id, why) = match news {
            HeaderNews::Stale(id) => (id, Why::Stale),
            HeaderNews::Exhausted(id) => (id, Why::Exhausted),
            HeaderNews::Unusable(id) => (id, Why::Unusable),
        };
        let Some(gateway) = self.shared.header.keyring.giver(id).cloned() else { return false };
        if why == Why::Unusable {
            self.shared.header.keyring.forget(id);
        }
        let link = self.shared.header.links.to(&gateway);
        let keys = Keys::Ask(Request { why, spi: id.from_device });
        let asked = self.ask_some(now, link, Some(&gateway), keys);
        self.apply_effects(now);
        asked
    }

    /// Router: a device has come here whose keys are here already: their gateway hears of it, so that the routers around this one get them.
    /// `false` if there is no IKE SA with it, or too many requests wait on it.
    pub fn device_came(&mut self, now: Instant, id: GrantId) -> bool {
        let Some(gateway) = self.shared.header.keyring.giver(id).cloned() else { return false };
        let link = self.shared.header.links.to(&gateway);
        let keys = Keys::Ask(Request { why: Why::Here, spi: id.from_device });
        let told = self.ask_some(now, link, Some(&gateway), keys);
        self.apply_effects(now);
        told
    }

    /// Router: packets between this gateway and a device have an SPI for which there are no keys. `false` if there is no IKE SA with the
    /// gateway: the driver makes one, where its configuration has one, and asks again; or if too many requests wait on it.
    pub fn ask_for_keys(&mut self, now: Instant, gateway: IpAddr, spi: u32) -> bool {
        let link = self.shared.header.links.at(gateway);
        let asked = self.ask_some(now, link, None, Keys::Ask(Request { why: Why::None, spi }));
        self.apply_effects(now);
        asked
    }

    /// Router: the ESP packet that was `seen` between `gateway` and a device has come here, and says that the device has come from the router `previous`: its
    /// keys are asked for there (Directed Key Migration), and of the gateway if they are not there. If `previous` has seen the packet, or one after it, the device is
    /// believed to be there still, and none are given; if the device is `registered` here, the gateway is asked all the same. `false` if there is no IKE SA with `previous` (then there is an [`Event::LinkWanted`]), if too many
    /// requests wait on it, or if it is none of our neighbours.
    pub fn fetch_keys(
        &mut self,
        now: Instant,
        previous: &Identity,
        gateway: IpAddr,
        seen: Excerpt,
        registered: bool,
    ) -> bool {
        let policy = self.shared.config.router.as_ref();
        let neighbour = policy.is_some_and(|p| p.neighbours.iter().any(|id| id.is_same_as(previous)));
        let link = self.shared.header.links.to(previous);
        let keys = Keys::Migrate { asked: Migrate { gateway, seen }, registered };
        let asked = neighbour && self.ask_some(now, link, Some(previous), keys);
        self.apply_effects(now);
        asked
    }

    /// Router: its neighbour, if it has one and no other, and there is an IKE SA with it: what comes here without a word comes from there.
    #[must_use]
    pub fn only_neighbour(&self) -> Option<&Identity> {
        let [only] = self.shared.config.router.as_ref()?.neighbours.as_slice() else { return None };
        self.shared.header.links.to(only).map(|_| only)
    }

    /// Router: for how many SAs it has keys.
    #[must_use]
    pub fn header_keys(&self) -> usize {
        self.shared.header.keyring.len()
    }

    // ---- inside ----

    /// The first of [`Self::common_timers`].
    pub(super) fn common_deadline(&self) -> Option<Deadline> {
        let Shared { config, header, .. } = &self.shared;
        let keys = [header.distribution.deadline(), header.keyring.deadline()];
        Deadline::earliest(config.admission.revocation.timers().chain(keys.into_iter().flatten()))
    }

    /// Timers that belong to no SA.
    pub(super) fn common_timers(&self) -> impl Iterator<Item = Deadline> {
        let Shared { config, header, .. } = &self.shared;
        let keys = header.distribution.timers().chain(header.keyring.timers());
        config.admission.revocation.timers().chain(keys)
    }

    /// The same as [`Self::ask`], of what any packet can cause: no more waits than is bounded.
    fn ask_some(&mut self, now: Instant, link: Option<SaId>, peer: Option<&Identity>, keys: Keys) -> bool {
        let waiting = match link.and_then(|sa| self.slots.get(&sa)) {
            Some(Slot::Established(ike)) => ike.tasks.about_keys(),
            _ => 0,
        };
        waiting < KEY_ASKS_WAITING && self.ask(now, link, peer, keys)
    }

    /// What there is to ask goes on this link; without one, an event names the peer to connect to, if that is known.
    pub(super) fn ask(
        &mut self,
        now: Instant,
        link: Option<SaId>,
        peer: Option<&Identity>,
        keys: Keys,
    ) -> bool {
        if let Some(Slot::Established(ike)) = link.and_then(|sa| self.slots.get_mut(&sa)) {
            ike.enqueue(keys, now);
            ike.pump(&mut self.shared, now);
            self.touched.extend(link);
            return true;
        }
        if let Some(peer) = peer.cloned() {
            self.shared.event(Event::LinkWanted { peer });
        }
        false
    }

    /// Gateway: routers have the keys that the configuration of now gives them.
    pub(super) fn give_keys_anew(&mut self) {
        for slot in self.slots.values() {
            let Slot::Established(ike) = slot else { continue };
            for child in ike.children.iter() {
                let config = ike.core.link.conn.children.get(child.config);
                let policy = config.and_then(|config| config.zones.as_ref());
                let none = ZonePolicy::default();
                self.shared.header.distribution.reconfigure(child.id, policy.unwrap_or(&none));
            }
        }
    }

    /// The peer of an SA is believed no longer: if it is a router, it is to read nothing with the keys that it has.
    pub(super) fn distrust(&mut self, sa: SaId) {
        if let Some(Slot::Established(ike)) = self.slots.get(&sa)
            && ike.core.link.conn.is_childless()
        {
            self.shared.header.distribution.distrust(&ike.core.peer);
        }
    }

    pub(super) fn note_link(&mut self, id: SaId, link: Option<Link>) {
        if let Some((peer, up)) = self.shared.header.links.note(id, link) {
            self.shared.header.distribution.link_changed(&peer, up);
        }
    }

    /// Brings up to date where devices and routers are, of every SA that was touched, and begins the exchanges that follow from it.
    pub(super) fn place_keys(&mut self, now: Instant) {
        for id in self.touched.clone() {
            let link = match self.slots.get(&id) {
                Some(Slot::Established(ike)) => {
                    let from = ike.core.link.path.remote.ip();
                    self.shared.header.distribution.note_address(id, from);
                    ike.carries_keys(&self.shared).then(|| Link { peer: ike.core.peer.clone(), from })
                }
                _ => None,
            };
            self.note_link(id, link);
        }
        if !self.shared.header.distribution.has_orders() {
            return;
        }
        let orders = self.shared.header.distribution.orders(now, &self.shared.header.links);
        for (sa, keys) in orders.exchanges {
            self.ask(now, Some(sa), None, keys);
        }
        for peer in orders.unreached {
            self.shared.event(Event::LinkWanted { peer });
        }
    }

    /// New keys are made for SAs whose first zone is known to too many routers, or to one that got it from another.
    pub(super) fn renew_keys(&mut self, now: Instant) {
        for child in self.shared.header.distribution.take_renewals(now) {
            self.rekey_child(now, child);
        }
        for id in self.shared.header.keyring.expire(now) {
            self.shared.event(Event::Header(dormouse_keying::HeaderOrder::Revoke(id)));
        }
    }
}

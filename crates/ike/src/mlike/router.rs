//! The keys of first zones that this router was given. Owns them, who gave each and how long it counts, and the decision which of them another
//! router may have; must never make or keep keys of its own.

use std::collections::BTreeMap;

use core::net::IpAddr;

use dormouse_crypto::cert::Identity;
use dormouse_keying::{GrantId, HeaderGrant, OpenFirstZone, Reached};
use dormouse_sansio::{Deadline, Instant};
use dormouse_wire::ike::mlike::{Migrate, Reason};

use super::Given;
use super::links::Links;
use crate::config::RouterPolicy;
use crate::limits::{KEY_LIFETIME_MOST, KEY_MIGRATE_BURST, KEY_MIGRATE_EVERY};
use crate::pace::Paces;

/// Keys, and where they are from.
#[derive(Debug)]
struct HeldKeys {
    /// The gateway of the SA: it alone takes them back.
    giver: Identity,
    gateway: IpAddr,
    grant: HeaderGrant,
    until: Instant,
}

impl HeldKeys {
    /// Whether they are of the SA with this SPI, of either direction, at this gateway.
    fn is_of(&self, gateway: IpAddr, spi: u32) -> bool {
        self.gateway == gateway && [self.grant.to_device.spi, self.grant.from_device.spi].contains(&spi)
    }

    /// The number of this packet, and what has passed here of its direction, if they open it and it has not passed.
    fn not_passed(&self, opens: OpenFirstZone, packet: &[u8]) -> Option<(Reached, u64)> {
        let opened = opens(&self.grant, packet)?;
        let reached = &self.grant.of(opened.to_device).reached;
        (opened.seq > reached.highest()).then(|| (reached.clone(), opened.seq))
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Keyring {
    held: BTreeMap<GrantId, HeldKeys>,
    expiries: std::collections::BTreeSet<(Instant, GrantId)>,
    /// How often each neighbour has asked.
    paces: Paces,
}

impl Keyring {
    /// A gateway gives keys, in place of any of the same name that it gave before.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        policy: &RouterPolicy,
        giver: &Identity,
        given: &Given,
    ) -> Result<(), Reason> {
        let id = given.grant.id();
        if !policy.gateways.iter().any(|pattern| pattern.matches(giver)) {
            return Err(Reason::NotPermitted);
        }
        match self.held.get(&id) {
            Some(held) if !held.giver.is_same_as(giver) => return Err(Reason::NotPermitted),
            None if self.held.len() >= policy.most => return Err(Reason::Full),
            _ => {}
        }
        if let Some(HeldKeys { grant, .. }) = self.held.get(&id) {
            // What has passed here has passed, though the gateway does not know it.
            given.grant.to_device.reached.follow(&grant.to_device.reached);
            given.grant.from_device.reached.follow(&grant.from_device.reached);
        }
        self.forget(id);
        // A neighbour says what it likes.
        let until = now + given.lifetime.min(KEY_LIFETIME_MOST);
        let grant = given.grant.clone();
        self.held.insert(id, HeldKeys { giver: giver.clone(), gateway: given.gateway, grant, until });
        self.expiries.insert((until, id));
        Ok(())
    }

    /// The router where the device was before gives keys that were asked for, in the name of the gateway `giver`: those, which open the packet that was
    /// shown to it, and in place of none, for it is not the gateway.
    pub(crate) fn take_moved(
        &mut self,
        now: Instant,
        policy: &RouterPolicy,
        opens: OpenFirstZone,
        asked: &Migrate,
        giver: &Identity,
        given: &Given,
    ) -> Result<(), Reason> {
        let id = given.grant.id();
        let opened = opens(&given.grant, &asked.seen.packet()).filter(|_| given.gateway == asked.gateway);
        let opened = opened.filter(|_| !self.held.contains_key(&id)).ok_or(Reason::NotPermitted)?;
        self.take(now, policy, giver, given)?;
        // That packet has come here. What else has been reached the other router only says.
        given.grant.of(opened.to_device).reached.raise(opened.seq);
        Ok(())
    }

    /// Forgets keys; whether there were any.
    pub(crate) fn forget(&mut self, id: GrantId) -> bool {
        let held = self.held.remove(&id);
        held.is_some_and(|held| self.expiries.remove(&(held.until, id)))
    }

    /// The gateway takes keys back that it gave, and no others.
    pub(crate) fn revoke(&mut self, giver: &Identity, id: GrantId) -> bool {
        self.held.get(&id).is_some_and(|held| held.giver.is_same_as(giver)) && self.forget(id)
    }

    /// Whether a neighbour may ask now.
    pub(crate) fn may_migrate(&mut self, now: Instant, next: &Identity) -> bool {
        self.paces.may(now, next, KEY_MIGRATE_EVERY, KEY_MIGRATE_BURST)
    }

    /// The router to which a device has moved asks for its keys, and shows a packet of it that has not passed here: they go there, and are here no more. Who
    /// only repeats there what has passed here takes nothing away. With the gateway that gave them, which is to be told: while it cannot be, none are given.
    pub(crate) fn migrate(
        &mut self,
        now: Instant,
        policy: &RouterPolicy,
        links: &Links,
        opens: OpenFirstZone,
        next: &Identity,
        asked: &Migrate,
    ) -> Result<(Given, Identity), Reason> {
        if !policy.neighbours.iter().any(|id| id.is_same_as(next)) {
            return Err(Reason::NotPermitted);
        }
        let (spi, packet) = (asked.seen.spi(), asked.seen.packet());
        let mut named = self.held.iter_mut().filter(|(_, held)| held.is_of(asked.gateway, spi)).peekable();
        named.peek().ok_or(Reason::Unknown)?;
        let left = named.find_map(|(id, held)| Some((id, held.not_passed(opens, &packet)?, held)));
        let (id, (reached, seq), held) = left.ok_or(Reason::NotLeft)?;
        links.to(&held.giver).ok_or(Reason::NotPermitted)?;
        let nodes = held.grant.nodes.give().ok_or(Reason::NoNumbers)?;
        // The other router is not to believe this packet either, if a third one shows it.
        reached.raise(seq);
        let grant = HeaderGrant { nodes, ..held.grant.clone() };
        let given = Given { grant, gateway: held.gateway, here: true, lifetime: held.until - now };
        let (id, giver) = (*id, held.giver.clone());
        self.forget(id);
        Ok((given, giver))
    }

    /// Whether it has keys of the SA with this SPI, of either direction, at this gateway.
    pub(crate) fn holds(&self, gateway: IpAddr, spi: u32) -> bool {
        self.held.values().any(|held| held.is_of(gateway, spi))
    }

    /// Which gateway gave these keys.
    pub(crate) fn giver(&self, id: GrantId) -> Option<&Identity> {
        self.held.get(&id).map(|held| &held.giver)
    }

    /// The keys that this gateway gave for the SA that has this SPI in one direction.
    pub(crate) fn named(&self, giver: &Identity, spi: u32) -> Option<GrantId> {
        let named = |(id, held): &(&GrantId, &HeldKeys)| {
            [id.to_device, id.from_device].contains(&spi) && held.giver.is_same_as(giver)
        };
        self.held.iter().find(named).map(|(id, _)| *id)
    }

    /// Keys whose lifetime is over: they are forgotten.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<GrantId> {
        let over: Vec<GrantId> =
            self.expiries.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id).collect();
        over.into_iter().filter(|id| self.forget(*id)).collect()
    }

    pub(crate) fn deadline(&self) -> Option<Deadline> {
        self.timers().next()
    }

    /// When each grant expires, the first one first.
    pub(crate) fn timers(&self) -> impl Iterator<Item = Deadline> {
        self.expiries.iter().map(|(at, _)| Deadline::strict(*at, "router keys"))
    }

    /// How many devices' keys it holds.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }
}

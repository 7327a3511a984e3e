//! The keys of first zones that this router was given. Owns them, who gave each and how long it counts, and the decision which of them another
//! router may have; must never make or keep keys of its own.

use std::collections::BTreeMap;

use core::net::IpAddr;

use dormouse_crypto::cert::Identity;
use dormouse_keying::{GrantId, HeaderGrant};
use dormouse_sansio::{Deadline, Instant};
use dormouse_wire::ike::mlike::{Migrate, Reason, Sought};

use super::Given;
use super::links::Links;
use crate::config::RouterPolicy;
use crate::limits::{KEY_LIFETIME_MOST, KEY_MIGRATE_BURST, KEY_MIGRATE_EVERY, KEY_PROBATION};
use crate::pace::Paces;

/// Keys, and where they are from.
#[derive(Debug)]
struct HeldKeys {
    /// The gateway of the SA: it alone takes them back.
    giver: Identity,
    gateway: IpAddr,
    /// The device's outer address, as its gateway knew it.
    device: IpAddr,
    grant: HeaderGrant,
    taken: Instant,
    /// When they are forgotten.
    until: Instant,
    /// Packets alone say that the device is here: until one has come that is new. Then they live as long.
    probation: Option<Instant>,
}

/// Whether keys are those that are asked for.
fn is_sought(of: Sought, id: GrantId, gateway: IpAddr, device: IpAddr) -> bool {
    match of {
        Sought::Sa { gateway: at, spi } => gateway == at && [id.to_device, id.from_device].contains(&spi),
        Sought::Device(at) => device == at,
    }
}

impl HeldKeys {
    fn is(&self, of: Sought) -> bool {
        is_sought(of, self.grant.id(), self.gateway, self.device)
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
        self.forget(id);
        // A neighbour says what it likes.
        let until = now + given.lifetime.min(KEY_LIFETIME_MOST);
        let (giver, grant) = (giver.clone(), given.grant.clone());
        let &Given { gateway, device, .. } = given;
        let held = HeldKeys { giver, gateway, device, grant, taken: now, until, probation: None };
        self.held.insert(id, held);
        self.expiries.insert((until, id));
        Ok(())
    }

    fn expire_at(&mut self, id: GrantId, until: Instant, probation: Option<Instant>) {
        if let Some(held) = self.held.get_mut(&id) {
            self.expiries.remove(&(held.until, id));
            (held.until, held.probation) = (until, probation);
            self.expiries.insert((until, id));
        }
    }

    /// The gateway that is to hear that a device is here, of whose keys it was not certain, because a packet has come that is new.
    pub(crate) fn on_probation(&self, id: GrantId) -> Option<&Identity> {
        self.held.get(&id).filter(|held| held.probation.is_some()).map(|held| &held.giver)
    }

    /// The gateway hears of it.
    pub(crate) fn confirm(&mut self, id: GrantId) {
        if let Some(until) = self.held.get(&id).and_then(|held| held.probation) {
            self.expire_at(id, until, None);
        }
    }

    /// The router where the device was before gives keys that were asked for, in the name of the gateway `giver`: those, and in place of none,
    /// for it is not the gateway. Where packets alone say that the device is here, they are on probation.
    pub(crate) fn take_moved(
        &mut self,
        now: Instant,
        policy: &RouterPolicy,
        asked: Migrate,
        giver: &Identity,
        given: &Given,
    ) -> Result<(), Reason> {
        let id = given.grant.id();
        if !is_sought(asked.of, id, given.gateway, given.device) || self.held.contains_key(&id) {
            return Err(Reason::NotPermitted);
        }
        self.take(now, policy, giver, given)?;
        if !asked.told
            && let Some(until) = self.held.get(&id).map(|held| held.until)
        {
            self.expire_at(id, until.min(now + KEY_PROBATION), Some(until));
        }
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

    /// The router to which a device has moved asks for its keys: they go there, and are here no more; but if packets alone say that it has moved, they
    /// stay here too, because these may have been recorded here. With the gateway that gave them, which is to be told: while it cannot be, none are given.
    pub(crate) fn migrate(
        &mut self,
        now: Instant,
        policy: &RouterPolicy,
        links: &Links,
        next: &Identity,
        asked: Migrate,
    ) -> Result<(Given, Identity), Reason> {
        if !policy.neighbours.iter().any(|id| id.is_same_as(next)) {
            return Err(Reason::NotPermitted);
        }
        // A device that is being rekeyed has several: those that will be used. The others its packets ask for.
        let sought = self.held.iter_mut().filter(|(_, held)| held.is(asked.of));
        let (id, held) = sought.max_by_key(|(_, held)| held.taken).ok_or(Reason::Unknown)?;
        links.to(&held.giver).ok_or(Reason::NotPermitted)?;
        let nodes = held.grant.nodes.give().ok_or(Reason::NoNumbers)?;
        let lifetime = held.probation.unwrap_or(held.until) - now;
        let grant = held.grant.for_router(nodes);
        let &mut HeldKeys { gateway, device, .. } = held;
        let given = Given { grant, gateway, device, here: true, lifetime };
        let (id, giver) = (*id, held.giver.clone());
        if asked.told {
            self.forget(id);
        }
        Ok((given, giver))
    }

    /// Whether it has these keys.
    pub(crate) fn holds(&self, of: Sought) -> bool {
        self.held.values().any(|held| held.is(of))
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

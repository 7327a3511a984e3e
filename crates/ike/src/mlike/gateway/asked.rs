//! What routers ask a gateway for, and what they tell it of keys that moved between them. Owns the decision which SA a request is about, and
//! whether the router may have its keys; must never believe a router about a device whose address says where it is.

use dormouse_crypto::cert::Identity;
use dormouse_keying::ChildId;
use dormouse_sansio::Instant;
use dormouse_wire::ike::mlike::{Reason, Request, Why};

use super::{Composite, Distribution, Holding};
use crate::limits::{KEY_REQUEST_BURST, KEY_REQUEST_EVERY};
use crate::mlike::Given;

impl Distribution {
    /// Whether a router may ask now.
    pub(crate) fn may_ask(&mut self, now: Instant, router: &Identity) -> bool {
        self.paces.may(now, router, KEY_REQUEST_EVERY, KEY_REQUEST_BURST)
    }

    /// A router asks for keys, or says that it has them from another router (`Ok(None)`).
    pub(crate) fn asked(
        &mut self,
        now: Instant,
        router: &Identity,
        asked: Request,
    ) -> Result<Option<Given>, Reason> {
        let child = self.meant(router, asked.spi).ok_or(Reason::Unknown)?;
        if asked.why == Why::Unusable {
            let holder = self.composites.get_mut(&child).and_then(|c| c.holder(router));
            let holder = holder.filter(|h| matches!(h.holding, Holding::Giving | Holding::Held));
            holder.ok_or(Reason::Unknown)?.holding = Holding::Refused;
            return Ok(None);
        }
        let known = self.composites.get_mut(&child).and_then(|c| c.holder(router)).is_some_and(|h| h.had);
        let has = matches!(asked.why, Why::Migrated | Why::Here);
        if asked.why == Why::Migrated || has && !known {
            // The router before it has had them, and this one got them without being asked about: also if it may not have them.
            self.renew_for(now, child, router);
        }
        let composite = self.composites.get_mut(&child).ok_or(Reason::Unknown)?;
        let rule = composite.policy.rule(router).ok_or(Reason::NotPermitted)?;
        let visit = self.visits.get_mut(&composite.session).ok_or(Reason::Unknown)?;
        let serving = composite.policy.serving(visit.from);
        // Otherwise addresses do not tell.
        let here = serving.map_or(rule.serves.is_empty(), |serving| serving.id == rule.id);
        let claimed = serving.is_none();
        let router = rule.id.clone();
        if here && (has || asked.why == Why::None) {
            visit.move_to(&router, claimed);
        }
        let is_here = visit.is_behind(&router);
        let near = visit.near(&composite.policy, &self.told).contains(&router);
        self.changed.insert(child);
        if has {
            composite.set(&router, Holding::Held);
            return if near { Ok(None) } else { Err(Reason::NotNear) };
        }
        if !near {
            return Err(Reason::NotNear);
        }
        match composite.give(now, is_here) {
            Some(given) => {
                composite.set(&router, Holding::Held);
                Ok(Some(given))
            }
            None => {
                self.renew(child);
                Err(Reason::NoNumbers)
            }
        }
    }

    /// A router says that it has given the keys that it had of what a device sends with this SPI to the router `to`. New ones are made, whether that one tells or not. Nothing is
    /// compared yet: it is on its way to tell where the device is, or the device is.
    pub(crate) fn gave(
        &mut self,
        now: Instant,
        router: &Identity,
        spi: u32,
        to: &Identity,
    ) -> Result<(), Reason> {
        let child = ChildId::new(spi);
        let had = |c: &&mut Composite| c.holders.iter().any(|h| h.had && h.router.is_same_as(router));
        let composite = self.composites.get_mut(&child).filter(had).ok_or(Reason::Unknown)?;
        if let Some(to) = composite.policy.rule(to).map(|rule| rule.id.clone()) {
            composite.set(&to, Holding::Held);
        }
        composite.set(router, Holding::Forgotten);
        self.renew_for(now, child, router);
        Ok(())
    }

    /// The SA that a router means by an SPI. Those of what devices send are ours, and no two are alike. The others devices have chosen, and one
    /// may choose another's: then the router means one whose keys it may have now, and rather one whose keys it has not.
    fn meant(&self, router: &Identity, spi: u32) -> Option<ChildId> {
        let own = ChildId::new(spi);
        if self.composites.contains_key(&own) {
            return Some(own);
        }
        let mut named = self.composites.iter().filter(|(_, c)| c.grant.to_device.spi == spi);
        let near = |c: &Composite| {
            let visit = self.visits.get(&c.session);
            let near = visit.map(|visit| visit.near(&c.policy, &self.told)).unwrap_or_default();
            near.iter().any(|id| id.is_same_as(router))
        };
        let has = |c: &Composite| {
            c.holders.iter().any(|h| h.holding == Holding::Held && h.router.is_same_as(router))
        };
        let best = named.clone().filter(|(_, c)| near(c)).min_by_key(|(_, c)| has(c));
        best.or_else(|| named.next().filter(|_| named.next().is_none())).map(|(child, _)| *child)
    }
}

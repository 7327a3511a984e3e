//! The composite SAs of a gateway: behind which router each device is, which routers are to have the keys of the first zone, and which have
//! them. Owns these facts and the decision who may have what; must never hold the keys of another zone.
//!
//! What is to be done follows from comparing the two lists, not from what has happened in between: a router that is near and has no keys gets them,
//! one that has them and is not near gets the order to forget them. A distribution that was lost with its IKE SA is thus made again on the next one.
//!
//! Every router that was given keys counts as having them for as long as they live, because its forgetting cannot be seen.
//!
//! [`asked`]: what routers ask for and tell.

mod asked;

use std::collections::{BTreeMap, BTreeSet};

use core::net::IpAddr;

use dormouse_crypto::cert::Identity;
use dormouse_keying::{ChildId, GrantId, HeaderGrant, SaId};
use dormouse_sansio::{Deadline, Instant};
use dormouse_wire::ike::mlike::{NAMES_MAX, NEIGHBOURS_MAX};

use super::links::Links;
use super::{Given, Keys};
use crate::config::ZonePolicy;
use crate::limits::{
    KEY_LIFETIME_MOST, KEY_RENEWAL_DOUBLED_MOST, KEY_RENEWAL_EVERY, KEYS_TO_REVOKE_MAX, NODES_OF_ROUTER,
};
use crate::pace::{Backoff, Paces};

/// Where a router stands with the keys of one SA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holding {
    /// It is to get them as soon as there is an IKE SA with it.
    Wanted,
    /// They are on their way.
    Giving,
    /// It has said that it uses them.
    Held,
    /// It does not take them.
    Refused,
    /// It is being told to forget them.
    Revoking,
    /// It has said that it forgot them.
    Forgotten,
}

impl core::fmt::Display for Holding {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Wanted => "wanted",
            Self::Giving => "giving",
            Self::Held => "held",
            Self::Refused => "refused",
            Self::Revoking => "revoking",
            Self::Forgotten => "forgotten",
        })
    }
}

/// A router and the keys of one SA.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyHolder {
    /// Who.
    pub router: Identity,
    /// Where it stands.
    pub holding: Holding,
    /// It may have seen them.
    pub had: bool,
}

/// A CHILD SA with zones, as far as routers are concerned.
#[derive(Debug)]
struct Composite {
    session: SaId,
    /// Its numbers are those that are left.
    grant: HeaderGrant,
    gateway: IpAddr,
    policy: ZonePolicy,
    until: Option<Instant>,
    made: Instant,
    holders: Vec<KeyHolder>,
    /// Another one takes its place: it is given to no other router.
    replaced: bool,
    renewal: Option<Renewal>,
}

/// New keys that are to be made.
#[derive(Clone, Copy, Debug)]
struct Renewal {
    /// When the device is asked, or asked again.
    at: Instant,
    /// How often it was, as far as that counts.
    asked: u32,
}

/// Where the device of a session is.
#[derive(Debug)]
struct Visit {
    from: IpAddr,
    /// The router that it is behind.
    router: Option<Identity>,
    /// That router says so, and nothing else does.
    claimed: bool,
    /// How often each router has caused new keys, by its canonical name.
    caused: BTreeMap<Vec<u8>, Backoff>,
}

/// What each router has told of its neighbours last, by its canonical name.
#[derive(Debug, Default)]
struct Told(BTreeMap<Vec<u8>, Vec<Identity>>);

impl Told {
    fn by(&self, router: &Identity) -> &[Identity] {
        self.0.get(&router.canonical()).map_or(&[], Vec::as_slice)
    }

    /// Whether that is news.
    fn note(&mut self, router: &Identity, neighbours: Vec<Identity>) -> bool {
        let news = self.by(router) != neighbours;
        match neighbours.is_empty() {
            true => self.0.remove(&router.canonical()),
            false => self.0.insert(router.canonical(), neighbours),
        };
        news
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Distribution {
    composites: BTreeMap<ChildId, Composite>,
    visits: BTreeMap<SaId, Visit>,
    told: Told,
    /// Keys of SAs that are gone, and routers that are still to forget them.
    gone: Vec<Gone>,
    /// What is to be compared again.
    changed: BTreeSet<ChildId>,
    gone_changed: bool,
    /// When new keys are to be made.
    renewals: BTreeSet<(Instant, ChildId)>,
    /// How often each router has asked.
    paces: Paces,
}

/// Keys of an SA that is gone.
#[derive(Debug)]
struct Gone {
    router: Identity,
    id: GrantId,
    /// The router is being told.
    told: bool,
}

/// What a comparison asks for.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    pub(crate) exchanges: Vec<(SaId, Keys)>,
    /// Routers with which there is no IKE SA, and should be.
    pub(crate) unreached: Vec<Identity>,
}

impl Visit {
    fn is_behind(&self, router: &Identity) -> bool {
        self.router.as_ref().is_some_and(|here| here.is_same_as(router))
    }

    fn move_to(&mut self, router: &Identity, claimed: bool) {
        if self.is_behind(router) {
            self.claimed &= claimed;
        } else {
            (self.router, self.claimed) = (Some(router.clone()), claimed);
        }
    }

    /// The addresses say where it is, if they do.
    fn locate(&mut self, policy: &ZonePolicy) {
        let by_address = self.router.as_ref().and_then(|router| policy.rule(router));
        match policy.serving(self.from) {
            Some(rule) => self.move_to(&rule.id, false),
            None if by_address.is_some_and(|rule| !rule.serves.is_empty()) => self.router = None,
            None => {}
        }
    }

    /// The routers that are to have the keys: all are permitted ones.
    fn near(&self, policy: &ZonePolicy, told: &Told) -> Vec<Identity> {
        let Some(here) = self.router.as_ref().and_then(|router| policy.rule(router)) else {
            return Vec::new();
        };
        let mut near = vec![here.id.clone()];
        if policy.proactive {
            let named = here.neighbours.iter().chain(told.by(&here.id));
            for rule in named.filter_map(|id| policy.rule(id)).take(NEIGHBOURS_MAX) {
                if !near.contains(&rule.id) {
                    near.push(rule.id.clone());
                }
            }
        }
        near
    }
}

impl Composite {
    fn holder(&mut self, router: &Identity) -> Option<&mut KeyHolder> {
        self.holders.iter_mut().find(|holder| holder.router.is_same_as(router))
    }

    /// The router stands so from now on.
    fn set(&mut self, router: &Identity, holding: Holding) {
        let had = matches!(holding, Holding::Giving | Holding::Held);
        match self.holder(router) {
            Some(holder) => {
                holder.holding = holding;
                holder.had |= had;
            }
            None => self.holders.push(KeyHolder { router: router.clone(), holding, had }),
        }
    }

    /// The keys for a router, with numbers of their own.
    fn give(&mut self, now: Instant, here: bool) -> Option<Given> {
        let left = self.until.map_or(KEY_LIFETIME_MOST, |until| until - now).min(KEY_LIFETIME_MOST);
        let nodes = self.grant.nodes.take(NODES_OF_ROUTER)?;
        let grant = HeaderGrant { nodes, ..self.grant.clone() };
        Some(Given { grant, gateway: self.gateway, here, lifetime: left })
    }

    /// Whether asking the device for new keys then is sooner than it would be asked: not, if it was asked already.
    fn may_renew_by(&self, at: Instant) -> bool {
        !self.replaced && self.renewal.is_none_or(|renewal| renewal.asked == 0 && at < renewal.at)
    }

    /// More routers have had the keys than should, and new ones would be had by fewer.
    fn is_known_to_many(&self, near: &[Identity]) -> bool {
        let had = self.holders.iter().filter(|holder| holder.had);
        had.clone().count() > self.policy.most_routers && had.count() > near.len()
    }
}

impl Distribution {
    /// A CHILD SA with zones is installed at this gateway. Its `grant` has all numbers.
    #[expect(clippy::too_many_arguments, reason = "the fields of a new composite SA")]
    pub(crate) fn install(
        &mut self,
        now: Instant,
        child: ChildId,
        replaces: Option<ChildId>,
        session: (SaId, IpAddr),
        policy: ZonePolicy,
        grant: HeaderGrant,
        gateway: IpAddr,
        until: Option<Instant>,
    ) {
        if let Some((id, old)) = replaces.and_then(|id| Some((id, self.composites.get_mut(&id)?))) {
            old.replaced = true;
            if let Some(renewal) = old.renewal.take() {
                self.renewals.remove(&(renewal.at, id));
            }
        }
        let (session, from) = session;
        let new = || Visit { from, router: None, claimed: false, caused: BTreeMap::new() };
        let visit = self.visits.entry(session).or_insert_with(new);
        visit.locate(&policy);
        let composite = Composite {
            session,
            grant,
            gateway,
            policy,
            until,
            made: now,
            holders: Vec::new(),
            replaced: false,
            renewal: None,
        };
        self.composites.insert(child, composite);
        self.changed.insert(child);
    }

    /// A CHILD SA is gone: who has its keys is to forget them.
    pub(crate) fn remove(&mut self, child: ChildId) {
        let Some(composite) = self.composites.remove(&child) else { return };
        if let Some(renewal) = composite.renewal {
            self.renewals.remove(&(renewal.at, child));
        }
        let id = composite.grant.id();
        let forget = |holder: &KeyHolder| {
            holder.had && !matches!(holder.holding, Holding::Forgotten | Holding::Refused)
        };
        let holders = composite.holders.into_iter().filter(forget);
        self.gone.extend(holders.map(|holder| Gone { router: holder.router, id, told: false }));
        self.gone_changed = true;
        // A router that is never reached forgets them when their lifetime ends.
        self.gone.drain(..self.gone.len().saturating_sub(KEYS_TO_REVOKE_MAX));
        if !self.composites.values().any(|other| other.session == composite.session) {
            self.visits.remove(&composite.session);
        }
    }

    /// The device of a session is reached at this outer address.
    pub(crate) fn note_address(&mut self, session: SaId, from: IpAddr) {
        let Some(visit) = self.visits.get_mut(&session).filter(|visit| visit.from != from) else { return };
        visit.from = from;
        for (child, composite) in self.composites.iter().filter(|(_, c)| c.session == session) {
            visit.locate(&composite.policy);
            self.changed.insert(*child);
        }
    }

    /// The device of a session is behind this router. False if the router may not have the keys of any of its SAs.
    pub(crate) fn visit(&mut self, session: SaId, router: &Identity) -> bool {
        let Some(visit) = self.visits.get_mut(&session) else { return false };
        let mut permitted = false;
        for (child, composite) in self.composites.iter().filter(|(_, c)| c.session == session) {
            if let Some(rule) = composite.policy.rule(router) {
                visit.move_to(&rule.id, false);
                permitted = true;
            }
            self.changed.insert(*child);
        }
        permitted
    }

    /// An IKE SA with this router has come (`up`) or gone: what was on its way there is on its way no more. A router that comes anew may have
    /// lost what it had, and may take now what it did not take: it is given everything once more.
    pub(crate) fn link_changed(&mut self, router: &Identity, up: bool) {
        self.tell_again(router);
        for (child, composite) in &mut self.composites {
            if let Some(holder) = composite.holder(router) {
                holder.holding = match holder.holding {
                    Holding::Giving => Holding::Wanted,
                    Holding::Held | Holding::Refused if up => Holding::Wanted,
                    Holding::Revoking => Holding::Held,
                    other => other,
                };
                self.changed.insert(*child);
            }
        }
    }

    /// What is left of what a router is to forget is to be told to it once more.
    fn tell_again(&mut self, router: &Identity) {
        self.gone.iter_mut().filter(|gone| gone.router.is_same_as(router)).for_each(|gone| gone.told = false);
        self.gone_changed = true;
    }

    pub(crate) fn has_orders(&self) -> bool {
        !self.changed.is_empty() || self.gone_changed
    }

    /// Compares what should be with what is.
    pub(crate) fn orders(&mut self, now: Instant, links: &Links) -> Orders {
        let mut orders = Orders::default();
        for child in std::mem::take(&mut self.changed) {
            let Some(composite) = self.composites.get_mut(&child) else { continue };
            let Some(visit) = self.visits.get(&composite.session) else { continue };
            let near = visit.near(&composite.policy, &self.told);
            let (known, wanting) = (composite.is_known_to_many(&near), !composite.replaced);
            for router in near.iter().filter(|_| wanting) {
                let holding = composite.holder(router).map(|holder| holder.holding);
                if !matches!(holding, None | Some(Holding::Wanted | Holding::Forgotten)) {
                    continue;
                }
                match links.to(router) {
                    Some(sa) => {
                        composite.set(router, Holding::Giving);
                        let (router, child) = (router.clone(), child);
                        orders.exchanges.push((sa, Keys::Give { child, router }));
                    }
                    None => {
                        composite.set(router, Holding::Wanted);
                        orders.unreached.push(router.clone());
                    }
                }
            }
            // It was to get them, and the device has gone on before.
            composite.holders.retain(|h| h.had || h.holding != Holding::Wanted || near.contains(&h.router));
            for holder in composite.holders.iter_mut().filter(|holder| !near.contains(&holder.router)) {
                let has = matches!(holder.holding, Holding::Held | Holding::Giving | Holding::Wanted);
                if let Some(sa) = links.to(&holder.router).filter(|_| has) {
                    holder.holding = Holding::Revoking;
                    orders.exchanges.push((sa, Keys::Revoke { router: holder.router.clone() }));
                }
            }
            let claimed = visit.router.clone().filter(|_| visit.claimed);
            match claimed {
                _ if !known => {}
                Some(router) => self.renew_for(now, child, &router),
                None => self.renew(child),
            }
        }
        self.gone_changed = false;
        for gone in self.gone.iter_mut().filter(|gone| !gone.told) {
            if let Some(sa) = links.to(&gone.router) {
                gone.told = true;
                orders.exchanges.push((sa, Keys::Revoke { router: gone.router.clone() }));
            }
        }
        orders
    }

    /// New keys are made as soon as may be.
    fn renew(&mut self, child: ChildId) {
        if let Some(composite) = self.composites.get(&child) {
            self.renew_at(child, composite.made + KEY_RENEWAL_EVERY);
        }
    }

    /// The same, because of what this router says, which may be a lie that costs the device's battery: the more often, the later.
    fn renew_for(&mut self, now: Instant, child: ChildId, router: &Identity) {
        let Some(composite) = self.composites.get(&child) else { return };
        let Some(visit) = self.visits.get_mut(&composite.session) else { return };
        let caused = visit.caused.entry(router.canonical()).or_default();
        let earliest = composite.made + KEY_RENEWAL_EVERY;
        let (at, next) = caused.next(now, earliest, KEY_RENEWAL_EVERY, KEY_RENEWAL_DOUBLED_MOST);
        if composite.may_renew_by(at) {
            *caused = next;
            self.renew_at(child, at);
        }
    }

    fn renew_at(&mut self, child: ChildId, at: Instant) {
        let Some(composite) = self.composites.get_mut(&child).filter(|c| c.may_renew_by(at)) else { return };
        if let Some(later) = composite.renewal.replace(Renewal { at, asked: 0 }) {
            self.renewals.remove(&(later.at, child));
        }
        self.renewals.insert((at, child));
    }

    /// SAs that are to be rekeyed now. Each comes again, later each time, until another SA takes its place: its device may have refused, or
    /// something else may have been under way.
    pub(crate) fn take_renewals(&mut self, now: Instant) -> Vec<ChildId> {
        let mut due = Vec::new();
        while let Some(&(at, child)) = self.renewals.first().filter(|(at, _)| *at <= now) {
            self.renewals.remove(&(at, child));
            let Some(composite) = self.composites.get_mut(&child).filter(|c| !c.replaced) else { continue };
            let asked = composite.renewal.map_or(0, |renewal| renewal.asked);
            let again = now + KEY_RENEWAL_EVERY * (1 << asked);
            composite.renewal = Some(Renewal { at: again, asked: (asked + 1).min(KEY_RENEWAL_DOUBLED_MOST) });
            self.renewals.insert((again, child));
            due.push(child);
        }
        due
    }

    /// The configuration of a CHILD SA is another one: routers that it does not name any more are to forget the keys, and because they may
    /// not, new ones are made.
    pub(crate) fn reconfigure(&mut self, child: ChildId, policy: &ZonePolicy) {
        let Some(composite) = self.composites.get_mut(&child).filter(|c| c.policy != *policy) else { return };
        composite.policy.clone_from(policy);
        if let Some(visit) = self.visits.get_mut(&composite.session) {
            visit.locate(policy);
        }
        self.changed.insert(child);
        if composite.holders.iter().any(|holder| holder.had && policy.rule(&holder.router).is_none()) {
            self.renew(child);
        }
    }

    /// A router is no longer believed: new keys are made for all SAs of which it may have some.
    pub(crate) fn distrust(&mut self, router: &Identity) {
        let had = |c: &Composite| c.holders.iter().any(|h| h.had && h.router.is_same_as(router));
        let known = self.composites.iter().filter(|(_, c)| had(c));
        for child in known.map(|(child, _)| *child).collect::<Vec<_>>() {
            self.renew(child);
        }
    }

    pub(crate) fn deadline(&self) -> Option<Deadline> {
        self.timers().next()
    }

    /// When each SA is to get new keys, the first one first.
    pub(crate) fn timers(&self) -> impl Iterator<Item = Deadline> {
        self.renewals.iter().map(|(at, _)| Deadline::strict(*at, "new keys"))
    }

    /// What a router gets that is still to get it.
    pub(crate) fn given(&mut self, now: Instant, child: ChildId, router: &Identity) -> Option<Given> {
        let composite = self.composites.get_mut(&child)?;
        composite.holder(router).filter(|holder| holder.holding == Holding::Giving)?;
        let here = self.visits.get(&composite.session)?.is_behind(router);
        let given = composite.give(now, here);
        if given.is_none() {
            self.renew(child);
        }
        given
    }

    /// What a router has said about the keys of this SA; and if it takes them, its neighbours.
    pub(crate) fn answered(&mut self, child: ChildId, router: &Identity, takes: bool, told: Vec<Identity>) {
        if takes && self.told.note(router, told) {
            let visits = &self.visits;
            let here = |c: &Composite| visits.get(&c.session).is_some_and(|visit| visit.is_behind(router));
            self.changed.extend(self.composites.iter().filter(|(_, c)| here(c)).map(|(child, _)| *child));
        }
        let Some(composite) = self.composites.get_mut(&child) else { return };
        // That it cannot use them may have come first.
        let useless = composite.holder(router).is_some_and(|h| h.holding == Holding::Refused);
        composite.set(router, if takes && !useless { Holding::Held } else { Holding::Refused });
        // The device may have left while it answered.
        self.changed.insert(child);
    }

    /// The keys that a router is to forget.
    pub(crate) fn to_revoke(&self, router: &Identity) -> Vec<GrantId> {
        let revoking = self.composites.values().filter_map(|composite| {
            let revoked = |h: &KeyHolder| h.holding == Holding::Revoking && h.router.is_same_as(router);
            composite.holders.iter().any(revoked).then(|| composite.grant.id())
        });
        let gone = self.gone.iter().filter(|gone| gone.router.is_same_as(router)).map(|gone| gone.id);
        revoking.chain(gone).take(NAMES_MAX).collect()
    }

    /// It has forgotten them.
    pub(crate) fn revoked(&mut self, router: &Identity, ids: &[GrantId]) {
        self.gone.retain(|gone| !(gone.router.is_same_as(router) && ids.contains(&gone.id)));
        self.tell_again(router);
        for (child, composite) in &mut self.composites {
            let told = ids.contains(&composite.grant.id());
            if let Some(holder) = composite.holder(router).filter(|h| h.holding == Holding::Revoking) {
                // What did not fit in one message follows in the next. The device may be back behind this router, or near.
                holder.holding = if told { Holding::Forgotten } else { Holding::Held };
                self.changed.insert(*child);
            }
        }
    }

    /// Which routers have, had or are to have the keys of an SA.
    pub(crate) fn holders(&self, child: ChildId) -> &[KeyHolder] {
        self.composites.get(&child).map_or(&[], |composite| &composite.holders)
    }
}

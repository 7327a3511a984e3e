//! A pool that several gateways have: which addresses this one gives anew, and what it learns of the others' leases. Owns the rule by which
//! no two gateways give one address, also when they cannot ask each other; must never decide between two gateways, which the store does.
//!
//! An address that nobody has yet is given by one gateway alone: that whose slot is the address modulo the number of slots. What has been
//! given is known to all, so that an identity finds its own addresses at each of them. Prefixes with few addresses, such as that of a peer
//! with an address of its own, have no parts: all gateways give them, as long as they reach the store, which refuses the second.

use super::{Addresses, Change, Claim, Lessee, Pool, SharedPool, host_range, number};
use std::net::IpAddr;

/// Prefixes with fewer addresses for each gateway are given by all.
const PART_LEAST: u128 = 4;

/// Which part of the pool is this gateway's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Which of the slots.
    pub slot: u8,
    /// How many there are: 1 or more.
    pub slots: u8,
    /// The store cannot be asked: no lease is taken from its holder, and none is given that another gateway could give.
    pub alone: bool,
}

impl Pool {
    /// This gateway has a part of the pool from now on, or reaches the store again or no longer.
    pub fn set_share(&mut self, share: Share) {
        self.share = Some(share);
    }

    /// Whether leases may be taken from those who do not use them: another gateway may know better, so it must be asked.
    pub(super) fn may_evict(&self) -> bool {
        self.share.is_none_or(|share| !share.alone)
    }

    /// Whether this gateway may give an address that nobody has.
    pub(super) fn may_give(&self, address: IpAddr) -> bool {
        let Some(share) = self.share else { return true };
        if self.is_divided(address, share) { self.gives_alone(address, share) } else { !share.alone }
    }

    /// Whether the prefix of this address has a part for each gateway.
    fn is_divided(&self, address: IpAddr, share: Share) -> bool {
        let addresses = self.home(address).map_or(0, |home| {
            let (first, last) = host_range(home);
            (last - first).saturating_add(1)
        });
        addresses >= PART_LEAST * u128::from(share.slots.max(1))
    }

    /// Whether no other gateway gives this address.
    fn gives_alone(&self, address: IpAddr, share: Share) -> bool {
        self.is_divided(address, share)
            && number(address) % u128::from(share.slots.max(1)) == u128::from(share.slot)
    }

    /// Another gateway has given these addresses to `holder`, or the store says that they are its. Nothing is written down. What another one
    /// has here stays as it is: the store refuses it. What this gateway has still to write down of `holder` stays too: the store gets
    /// it after what was heard. Where `holder` itself uses other addresses here, it has got new ones elsewhere since: returns those that are its
    /// no longer, with which no session may go on.
    #[must_use]
    pub fn learn(&mut self, holder: Lessee, addresses: Addresses) -> Option<Addresses> {
        let held = self.holders.get(&holder);
        if held.is_some_and(|held| held.addresses == addresses || held.told > self.durable) {
            return None;
        }
        let former = self.forget(&holder).filter(|held| held.users > 0);
        self.restore(holder, addresses);
        former.map(|held| held.addresses)
    }

    /// Another gateway has taken the addresses of `holder`.
    pub fn unlearn(&mut self, holder: &Lessee) {
        if self.holders.get(holder).is_some_and(|held| held.users == 0) {
            self.forget(holder);
        }
    }

    /// All leases that the store has: what is not among them, nobody uses here and is written down, is forgotten. What is used here and the
    /// store has lost is written down again: else another gateway would give it. Returns what [`Pool::learn`] does.
    #[must_use]
    pub fn learn_all(&mut self, leases: Vec<(Lessee, Addresses)>) -> Vec<Addresses> {
        let there: std::collections::BTreeSet<&Lessee> = leases.iter().map(|(holder, _)| holder).collect();
        let durable = self.durable;
        let lost = |(holder, held): &(&Lessee, &Claim)| held.told <= durable && !there.contains(holder);
        let (used, gone): (Vec<_>, Vec<_>) =
            self.holders.iter().filter(lost).partition(|(_, held)| held.users > 0);
        let used: Vec<(Lessee, Addresses)> =
            used.into_iter().map(|(holder, held)| (holder.clone(), held.addresses)).collect();
        let gone: Vec<Lessee> = gone.into_iter().map(|(holder, _)| holder.clone()).collect();
        gone.iter().for_each(|holder| _ = self.forget(holder));
        for (holder, addresses) in used {
            self.told += 1;
            self.changes.push_back(Change::Lease { holder, addresses });
        }
        leases.into_iter().filter_map(|(holder, addresses)| self.learn(holder, addresses)).collect()
    }

    /// The lease of `holder` could not be written down, and may never be: whether the store grants it is not known. Returns its addresses, if
    /// another gateway may give one of them meanwhile: no session may begin with them.
    pub fn unwritten(&mut self, holder: &Lessee) -> Option<Addresses> {
        let held = self.holders.get(holder).filter(|held| held.told > self.durable)?;
        let ours = self
            .share
            .is_none_or(|share| held.addresses.iter().all(|address| self.gives_alone(address, share)));
        if ours { None } else { self.refused(holder) }
    }

    /// The store has refused the lease of `holder`, because one of its addresses is another's. Returns them: no session may go on with them.
    pub fn refused(&mut self, holder: &Lessee) -> Option<Addresses> {
        self.forget(holder).map(|held| held.addresses)
    }
}

impl SharedPool {
    /// See [`Pool::set_share`].
    pub fn set_share(&self, share: Share) {
        self.lock().set_share(share);
    }

    /// See [`Pool::learn`].
    #[must_use]
    pub fn learn(&self, holder: Lessee, addresses: Addresses) -> Option<Addresses> {
        self.lock().learn(holder, addresses)
    }

    /// See [`Pool::unlearn`].
    pub fn unlearn(&self, holder: &Lessee) {
        self.lock().unlearn(holder);
    }

    /// See [`Pool::learn_all`].
    #[must_use]
    pub fn learn_all(&self, leases: Vec<(Lessee, Addresses)>) -> Vec<Addresses> {
        self.lock().learn_all(leases)
    }

    /// See [`Pool::refused`].
    #[must_use]
    pub fn refused(&self, holder: &Lessee) -> Option<Addresses> {
        self.lock().refused(holder)
    }

    /// See [`Pool::unwritten`].
    #[must_use]
    pub fn unwritten(&self, holder: &Lessee) -> Option<Addresses> {
        self.lock().unwritten(holder)
    }
}

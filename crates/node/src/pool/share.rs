//! A pool that several gateways have: which addresses this one gives anew, and what it learns of the others' leases. Owns the rule by which
//! no two gateways give one address, also when they cannot ask each other; must never decide between two gateways, which the store does.
//!
//! An address that nobody has yet is given by one gateway alone: that whose slot is the address modulo the number of slots. What has been
//! given is known to all, so that an identity finds its own addresses at each of them. Prefixes with few addresses, such as that of a peer
//! with an address of its own, have no parts: all gateways give them, as long as they reach the store, which refuses the second.

use super::{Addresses, Lessee, Pool, SharedPool, host_range, number};
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
        let Some(Share { slot, slots, alone }) = self.share else { return true };
        let slots = u128::from(slots.max(1));
        let addresses = self.home(address).map_or(0, |home| {
            let (first, last) = host_range(home);
            (last - first).saturating_add(1)
        });
        if addresses < PART_LEAST * slots { !alone } else { number(address) % slots == u128::from(slot) }
    }

    /// Another gateway has given these addresses to `holder`, or the store says that they are its. Nothing is written down. What the holder
    /// uses here stays as it is, and so does what another one here has: the store refuses it.
    pub fn learn(&mut self, holder: Lessee, addresses: Addresses) {
        let held = self.holders.get(&holder);
        if held.is_some_and(|held| held.users > 0 || held.addresses == addresses) {
            return;
        }
        self.forget(&holder);
        self.restore(holder, addresses);
    }

    /// Another gateway has taken the addresses of `holder`.
    pub fn unlearn(&mut self, holder: &Lessee) {
        if self.holders.get(holder).is_some_and(|held| held.users == 0) {
            self.forget(holder);
        }
    }

    /// All leases that the store has: what is not among them, nobody uses here and is written down, is forgotten.
    pub fn learn_all(&mut self, leases: Vec<(Lessee, Addresses)>) {
        let there: std::collections::BTreeSet<&Lessee> = leases.iter().map(|(holder, _)| holder).collect();
        let durable = self.durable;
        let gone: Vec<Lessee> = self
            .holders
            .iter()
            .filter(|(holder, held)| held.users == 0 && held.told <= durable && !there.contains(holder))
            .map(|(holder, _)| holder.clone())
            .collect();
        gone.iter().for_each(|holder| _ = self.forget(holder));
        leases.into_iter().for_each(|(holder, addresses)| self.learn(holder, addresses));
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
    pub fn learn(&self, holder: Lessee, addresses: Addresses) {
        self.lock().learn(holder, addresses);
    }

    /// See [`Pool::unlearn`].
    pub fn unlearn(&self, holder: &Lessee) {
        self.lock().unlearn(holder);
    }

    /// See [`Pool::learn_all`].
    pub fn learn_all(&self, leases: Vec<(Lessee, Addresses)>) {
        self.lock().learn_all(leases);
    }

    /// See [`Pool::refused`].
    #[must_use]
    pub fn refused(&self, holder: &Lessee) -> Option<Addresses> {
        self.lock().refused(holder)
    }
}

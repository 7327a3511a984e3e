//! The gateway's pool of inner addresses: a client keeps its address across reconnects.
//!
//! Owns which identity has which address. Pure: what must outlive the process comes out as [`Change`]s, and what did comes
//! in by [`Pool::restore`]. Must never hand one address to two identities.

use dormouse_crypto::cert::Identity;
use dormouse_ike::config_payload::{AddressPool, Lease, LeaseRequest};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};

/// Leases that are remembered at most; the longest unused goes first.
pub const MAX_LEASES: usize = 1 << 20;

/// Which families an identity asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Families {
    /// IPv4.
    pub v4: bool,
    /// IPv6.
    pub v6: bool,
}

/// The addresses of one identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Addresses {
    /// IPv4, if it has one.
    pub v4: Option<Ipv4Addr>,
    /// IPv6, if it has one.
    pub v6: Option<Ipv6Addr>,
}

/// Something to write down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// `identity` has these addresses, and used them just now.
    Lease {
        /// Who, as displayed.
        identity: String,
        /// What it has.
        addresses: Addresses,
    },
    /// `identity` lost its addresses to another.
    Evict {
        /// Who, as displayed.
        identity: String,
    },
}

#[derive(Debug)]
struct Holder {
    addresses: Addresses,
    /// Some session uses it now.
    active: bool,
    /// Larger is more recent.
    used: u64,
}

/// The pool.
#[derive(Debug, Default)]
pub struct Pool {
    prefixes: Vec<IpNet>,
    holders: BTreeMap<String, Holder>,
    taken: BTreeMap<IpAddr, String>,
    /// Unused identities by age, for eviction.
    idle: BTreeSet<(u64, String)>,
    /// Where the search for a free address goes on, by prefix: addresses are used round the prefix before one is reused.
    cursor: BTreeMap<IpNet, u128>,
    clock: u64,
    changes: VecDeque<Change>,
}

impl Pool {
    /// An empty pool over `prefixes`. Network and broadcast address of an IPv4 prefix, and the first host (for the gateway
    /// itself), are never leased, unless the prefix has fewer than four addresses.
    #[must_use]
    pub fn new(prefixes: Vec<IpNet>) -> Self {
        Self { prefixes, ..Self::default() }
    }

    /// Puts back what an earlier run wrote down, oldest first. Addresses that are no longer in the pool, or that another
    /// else has, are left out.
    pub fn restore(&mut self, identity: &str, addresses: Addresses) {
        let v4 = addresses.v4.filter(|a| self.leasable(IpAddr::V4(*a)));
        let v6 = addresses.v6.filter(|a| self.leasable(IpAddr::V6(*a)));
        if (v4.is_some() || v6.is_some()) && !self.holders.contains_key(identity) {
            self.store(identity, Addresses { v4, v6 });
        }
    }

    /// Addresses for a new session of `identity`: those that it had, else those that it wants if they are free, else free
    /// ones, else those that were used the longest time ago. A family without any left stays empty.
    /// "Implementors MUST devise ways of preventing this from occurring." (RFC 3948 section 5.1) Two clients never have one
    /// address.
    pub fn acquire(&mut self, identity: &str, families: Families, wanted: &[IpAddr]) -> Addresses {
        let mut addresses = self.holders.get(identity).map(|h| h.addresses).unwrap_or_default();
        let want = |v6: bool| wanted.iter().copied().filter(move |a| a.is_ipv6() == v6);
        if families.v4 && addresses.v4.is_none() {
            addresses.v4 = self
                .find(want(false), false)
                .and_then(|a| if let IpAddr::V4(a) = a { Some(a) } else { None });
        }
        if families.v6 && addresses.v6.is_none() {
            addresses.v6 =
                self.find(want(true), true).and_then(|a| if let IpAddr::V6(a) = a { Some(a) } else { None });
        }
        if addresses == Addresses::default() {
            return addresses;
        }
        self.store(identity, addresses);
        if let Some(holder) = self.holders.get_mut(identity) {
            self.idle.remove(&(holder.used, identity.to_owned()));
            holder.active = true;
        }
        self.changes.push_back(Change::Lease { identity: identity.into(), addresses });
        Addresses { v4: addresses.v4.filter(|_| families.v4), v6: addresses.v6.filter(|_| families.v6) }
    }

    /// The last session of `identity` ended. It keeps its addresses for the next one.
    pub fn release(&mut self, identity: &str) {
        self.clock += 1;
        if let Some(holder) = self.holders.get_mut(identity) {
            holder.active = false;
            self.idle.remove(&(holder.used, identity.to_owned()));
            holder.used = self.clock;
            self.idle.insert((holder.used, identity.to_owned()));
        }
    }

    /// The next thing to write down, oldest first.
    pub fn poll_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    fn store(&mut self, identity: &str, addresses: Addresses) {
        while self.holders.len() >= MAX_LEASES && !self.holders.contains_key(identity) {
            if !self.evict(|_| true) {
                return;
            }
        }
        self.clock += 1;
        let active = self.holders.get(identity).is_some_and(|h| h.active);
        if let Some(old) =
            self.holders.insert(identity.into(), Holder { addresses, active, used: self.clock })
        {
            self.idle.remove(&(old.used, identity.to_owned()));
        }
        if !active {
            self.idle.insert((self.clock, identity.into()));
        }
        for address in addresses.v4.map(IpAddr::V4).into_iter().chain(addresses.v6.map(IpAddr::V6)) {
            self.taken.insert(address, identity.into());
        }
    }

    fn find(&mut self, wanted: impl Iterator<Item = IpAddr>, v6: bool) -> Option<IpAddr> {
        for address in wanted {
            if self.leasable(address) {
                return Some(address);
            }
        }
        let prefixes: Vec<IpNet> =
            self.prefixes.iter().copied().filter(|p| p.addr().is_ipv6() == v6).collect();
        if let Some(address) = prefixes.iter().find_map(|p| self.next_free(*p)) {
            return Some(address);
        }
        if !self.evict(|a| if v6 { a.v6.is_some() } else { a.v4.is_some() }) {
            return None;
        }
        prefixes.iter().find_map(|p| self.next_free(*p))
    }

    fn next_free(&mut self, prefix: IpNet) -> Option<IpAddr> {
        let (first, last) = host_range(prefix);
        let count = last.checked_sub(first)?.saturating_add(1);
        let start = *self.cursor.get(&prefix).unwrap_or(&0) % count;
        // More tries than there are leases cannot be needed: one of that many addresses must be free.
        let tries = count.min(self.taken.len() as u128 + 1);
        let offset = (0..tries).map(|i| (start + i) % count).find(|o| {
            let address = address_at(prefix, first + o);
            !self.taken.contains_key(&address)
        })?;
        self.cursor.insert(prefix, offset + 1);
        Some(address_at(prefix, first + offset))
    }

    fn leasable(&self, address: IpAddr) -> bool {
        let inside = |p: &IpNet| {
            let (first, last) = host_range(*p);
            p.contains(&address) && (first..=last).contains(&number(address))
        };
        !self.taken.contains_key(&address) && self.prefixes.iter().any(inside)
    }

    /// Takes the addresses of the longest idle identity that fits; false if there is none.
    fn evict(&mut self, fits: impl Fn(&Addresses) -> bool) -> bool {
        let fitting = |(_, id): &&(u64, String)| self.holders.get(id).is_some_and(|h| fits(&h.addresses));
        let Some(entry) = self.idle.iter().find(fitting).cloned() else { return false };
        self.idle.remove(&entry);
        if let Some(holder) = self.holders.remove(&entry.1) {
            let Addresses { v4, v6 } = holder.addresses;
            for address in v4.map(IpAddr::V4).into_iter().chain(v6.map(IpAddr::V6)) {
                self.taken.remove(&address);
            }
        }
        self.changes.push_back(Change::Evict { identity: entry.1 });
        true
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => u32::from(a).into(),
        IpAddr::V6(a) => a.into(),
    }
}

fn address_at(prefix: IpNet, n: u128) -> IpAddr {
    match prefix {
        IpNet::V4(_) => Ipv4Addr::from(u32::try_from(n).unwrap_or(u32::MAX)).into(),
        IpNet::V6(_) => Ipv6Addr::from(n).into(),
    }
}

/// First and last leasable address, as numbers.
fn host_range(prefix: IpNet) -> (u128, u128) {
    let (network, broadcast) = (number(prefix.network()), number(prefix.broadcast()));
    match broadcast - network {
        0..=2 => (network, broadcast),
        _ if prefix.addr().is_ipv4() => (network + 2, broadcast - 1),
        _ => (network + 2, broadcast),
    }
}

/// A pool that the IKE endpoint leases from while the node polls its changes.
#[derive(Clone, Debug)]
pub struct SharedPool(Arc<Mutex<Pool>>);

impl SharedPool {
    /// Shares `pool`.
    #[must_use]
    pub fn new(pool: Pool) -> Self {
        Self(Arc::new(Mutex::new(pool)))
    }

    /// The next thing to write down, oldest first.
    #[must_use]
    pub fn poll_change(&self) -> Option<Change> {
        self.lock().poll_change()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Pool> {
        // A panic elsewhere cannot have left the pool half changed: every method ends what it begins.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl AddressPool for SharedPool {
    fn lease(&mut self, identity: &Identity, request: &LeaseRequest) -> Lease {
        let families = Families { v4: request.v4, v6: request.v6 };
        let addresses = self.lock().acquire(&identity.to_string(), families, &request.wanted);
        Lease { v4: addresses.v4, v6: addresses.v6.map(|a| (a, 128)) }
    }

    fn release(&mut self, identity: &Identity, _: &Lease) {
        self.lock().release(&identity.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Families = Families { v4: true, v6: true };

    fn pool(prefixes: &[&str]) -> Pool {
        Pool::new(prefixes.iter().map(|p| p.parse().expect("a prefix")).collect())
    }

    #[test]
    fn an_identity_keeps_its_addresses_and_nobody_shares_them() {
        let mut p = pool(&["10.0.0.0/24", "fd00::/64"]);
        let a = p.acquire("a", BOTH, &[]);
        let b = p.acquire("b", BOTH, &[]);
        assert_eq!(a.v4, Some([10, 0, 0, 2].into()));
        assert_ne!(a, b);
        p.release("a");
        let _ = p.acquire("c", BOTH, &[]);
        assert_eq!(p.acquire("a", BOTH, &[]), a);
    }

    #[test]
    fn a_wanted_address_is_given_only_if_it_is_free_and_ours() {
        let mut p = pool(&["10.0.0.0/24"]);
        let want = |last| [IpAddr::from([10, 0, 0, last])];
        assert_eq!(p.acquire("a", BOTH, &want(77)).v4, Some([10, 0, 0, 77].into()));
        assert_ne!(p.acquire("b", BOTH, &want(77)).v4, Some([10, 0, 0, 77].into()));
        assert_ne!(p.acquire("c", BOTH, &want(255)).v4, Some([10, 0, 0, 255].into()));
        assert!(p.acquire("d", BOTH, &[IpAddr::from([8, 8, 8, 8])]).v4.is_some_and(|a| a.octets()[0] == 10));
    }

    #[test]
    fn a_full_pool_takes_the_longest_unused_lease_but_never_one_in_use() {
        let mut p = pool(&["10.0.0.0/30"]);
        let mut q = pool(&["10.0.0.0/29"]);
        assert_eq!(p.acquire("a", BOTH, &[]).v4, Some([10, 0, 0, 2].into()));
        assert_eq!(p.acquire("b", BOTH, &[]), Addresses::default(), "a uses the only one");
        p.release("a");
        assert_eq!(p.acquire("b", BOTH, &[]).v4, Some([10, 0, 0, 2].into()));
        for id in ["a", "b", "c", "d", "e"] {
            assert!(q.acquire(id, BOTH, &[]).v4.is_some());
        }
        let b = q.acquire("b", BOTH, &[]);
        q.release("c");
        q.release("b");
        while q.poll_change().is_some() {}
        assert!(q.acquire("f", BOTH, &[]).v4.is_some_and(|a| Some(a) != b.v4));
        assert_eq!(q.poll_change(), Some(Change::Evict { identity: "c".into() }));
    }

    #[test]
    fn what_was_written_down_is_restored_unless_it_no_longer_fits() {
        let mut p = pool(&["10.0.0.0/24"]);
        p.restore("a", Addresses { v4: Some([10, 0, 0, 9].into()), v6: None });
        p.restore("b", Addresses { v4: Some([10, 0, 0, 9].into()), v6: None });
        p.restore("c", Addresses { v4: Some([10, 9, 0, 9].into()), v6: None });
        assert_eq!(p.acquire("a", BOTH, &[]).v4, Some([10, 0, 0, 9].into()));
        assert_ne!(p.acquire("b", BOTH, &[]).v4, Some([10, 0, 0, 9].into()));
        assert!(p.acquire("c", BOTH, &[]).v4.is_some_and(|a| a.octets()[1] == 0));
    }
}

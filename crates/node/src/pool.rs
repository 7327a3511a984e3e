//! The gateway's inner addresses: a client keeps its own across reconnects.
//!
//! Owns which identity of which connection has which address. Pure: what must outlive the process comes out as [`Change`]s, and
//! what did comes in by [`Pool::restore`]. Must never hand one address to two identities, nor take one from an identity that
//! uses it, or that sleeps and has packets waiting. What is different where several gateways have one pool stands in [`share`].

use dormouse_crypto::cert::Identity;
use dormouse_ike::config::{Connection, Unique};
use dormouse_ike::config_payload::{AddressPool, Lease, LeaseRequest};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};

/// Leases that are remembered at most; the longest unused goes first.
pub const MAX_LEASES: usize = 1 << 20;

/// Uses of leases after which that of one is written down again. Only the order of leases is wanted after a restart, and each write waits
/// for the disk.
const WRITTEN_EVERY: u64 = 64;

/// Whose a lease is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Lessee {
    /// Name of the connection.
    pub connection: String,
    /// What is the same of an identity however it is spelled.
    canonical: Vec<u8>,
    /// Which of the devices that share the identity; 0 if it is one's alone.
    pub device: u32,
    /// The identification type of RFC 7296, section 3.5, and its data as they were when the lease was given: what is displayed alike need
    /// not be the same.
    pub identity: (u8, Vec<u8>),
}

impl Lessee {
    /// Device `device` of those that share an identity; `None` if that cannot be read.
    #[must_use]
    pub fn new(connection: String, identity: (u8, Vec<u8>), device: u32) -> Option<Self> {
        let canonical = Identity::from_ike(identity.0, &identity.1).ok()?.canonical();
        Some(Self { connection, canonical, device, identity })
    }

    fn of(tenant: &Tenant<'_>, device: u32) -> Self {
        let Tenant { connection, identity, .. } = tenant;
        let (connection, canonical) = ((*connection).to_owned(), identity.canonical());
        Self { connection, canonical, device, identity: identity.to_ike() }
    }

    /// Before all of a tenant's, and after them.
    fn all_of(tenant: &Tenant<'_>) -> std::ops::Range<Self> {
        let (first, last) = (Self::of(tenant, 0), Self::of(tenant, u32::MAX));
        Self { identity: (0, Vec::new()), ..first }..Self { identity: (0, Vec::new()), ..last }
    }
}

/// Who wants addresses, and which it may have.
#[derive(Clone, Copy, Debug)]
pub struct Tenant<'a> {
    /// Name of the connection.
    pub connection: &'a str,
    /// Who.
    pub identity: &'a Identity,
    /// Prefixes that its addresses come from.
    pub from: &'a [IpNet],
    /// Several devices share the identity, each with addresses of its own.
    pub several: bool,
}

/// The addresses of one holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Addresses {
    /// IPv4, if it has one.
    pub v4: Option<Ipv4Addr>,
    /// IPv6, if it has one.
    pub v6: Option<Ipv6Addr>,
}

impl Addresses {
    fn iter(self) -> impl Iterator<Item = IpAddr> {
        self.v4.map(IpAddr::V4).into_iter().chain(self.v6.map(IpAddr::V6))
    }

    /// Those of the families that are asked for.
    fn asked(self, request: &LeaseRequest) -> Self {
        Self { v4: self.v4.filter(|_| request.v4), v6: self.v6.filter(|_| request.v6) }
    }

    fn has_any(self, of: &[IpAddr]) -> bool {
        self.iter().any(|a| of.contains(&a))
    }
}

/// Something to write down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// `holder` has these addresses, and used them just now. Told when they are new, and then every [`WRITTEN_EVERY`] uses of leases.
    Lease {
        /// Whose they are.
        holder: Lessee,
        /// What it has.
        addresses: Addresses,
    },
    /// `holder` lost its addresses to another.
    Evict {
        /// Whose they were.
        holder: Lessee,
    },
}

#[derive(Debug)]
struct Claim {
    addresses: Addresses,
    /// Sessions that use them, and devices that sleep without one and have packets waiting.
    users: usize,
    /// Larger is more recent.
    used: u64,
    /// The last use that was written down.
    written: u64,
    /// The change that told of these addresses first; 0 if they were restored.
    told: u64,
}

/// The pool.
#[derive(Debug, Default)]
pub struct Pool {
    /// The prefixes of all connections and peers; an address belongs to the narrowest that holds it.
    prefixes: BTreeSet<IpNet>,
    holders: BTreeMap<Lessee, Claim>,
    taken: BTreeMap<IpAddr, Lessee>,
    /// Unused leases by age, for eviction.
    idle: BTreeSet<(u64, Lessee)>,
    /// Where the search for a free address goes on, by prefix: addresses are used round the prefix before one is reused.
    cursor: BTreeMap<IpNet, u128>,
    clock: u64,
    changes: VecDeque<Change>,
    /// Changes that were told, and up to which of them all are on the disk.
    told: u64,
    durable: u64,
    /// Our part, if several gateways have this pool.
    share: Option<Share>,
}

impl Pool {
    /// An empty pool over the prefixes of all connections and of the peers that they name. An address belongs to the narrowest
    /// prefix that holds it: what is set aside for some peers is given to no others. Network and broadcast address of an IPv4
    /// prefix, and the first host (for the gateway itself), are never leased, unless the prefix has fewer than four addresses.
    #[must_use]
    pub fn new(prefixes: impl IntoIterator<Item = IpNet>) -> Self {
        Self { prefixes: prefixes.into_iter().map(|p| p.trunc()).collect(), ..Self::default() }
    }

    /// Other prefixes from now on. Unused leases that these do not give are forgotten; of the others, those that the
    /// configuration no longer gives are asked about by [`AddressPool::gives`].
    pub fn reconfigure(&mut self, prefixes: impl IntoIterator<Item = IpNet>) {
        self.prefixes = prefixes.into_iter().map(|p| p.trunc()).collect();
        self.cursor.retain(|prefix, _| self.prefixes.contains(prefix));
        let homeless = self.idle.iter().filter(|(_, holder)| {
            let held = self.holders.get(holder);
            held.is_some_and(|held| held.addresses.iter().any(|a| self.home(a).is_none()))
        });
        let homeless: Vec<Lessee> =
            homeless.filter(|_| self.may_evict()).map(|(_, holder)| holder.clone()).collect();
        homeless.iter().for_each(|holder| self.evict(holder));
    }

    /// Puts back what an earlier run wrote down, oldest first. Addresses that are no longer in the pool, or that another
    /// has, are left out.
    pub fn restore(&mut self, holder: Lessee, addresses: Addresses) {
        let fits = |a: &IpAddr| !self.taken.contains_key(a) && self.home(*a).is_some();
        let v4 = addresses.v4.filter(|a| fits(&IpAddr::V4(*a)));
        let v6 = addresses.v6.filter(|a| fits(&IpAddr::V6(*a)));
        if (v4.is_some() || v6.is_some()) && !self.holders.contains_key(&holder) {
            self.store(&holder, Addresses { v4, v6 }, 0);
            if let Some(held) = self.holders.get_mut(&holder) {
                held.written = held.used;
            }
        }
    }

    /// Addresses for a new session: those that the tenant had, else those that it wishes for if they are free, else free ones, else
    /// those that were used the longest time ago. A family without any left stays empty. Each call that gives addresses is
    /// followed by one [`Pool::release`] of them, but for a tentative one.
    /// "Implementors MUST devise ways of preventing this from occurring." (RFC 3948 section 5.1) Two clients never have one
    /// address.
    pub fn acquire(&mut self, tenant: &Tenant<'_>, request: &LeaseRequest) -> Addresses {
        if request.tentative {
            return self.kept(tenant, request);
        }
        let (holder, had) = match request.fixed.filter(|fixed| request.v4 && self.may_fix(tenant, *fixed)) {
            Some(fixed) => match self.fix(tenant, fixed) {
                Some(fixed) => fixed,
                None => return Addresses::default(),
            },
            None => (self.holder_for(tenant, request), Addresses::default()),
        };
        let (mut addresses, users) = self.holders.get(&holder).map_or((had, 0), |h| (h.addresses, h.users));
        if request.v4 && addresses.v4.is_none() {
            let found = self.find(tenant, request, false);
            addresses.v4 = found.and_then(|a| if let IpAddr::V4(a) = a { Some(a) } else { None });
        }
        if request.v6 && addresses.v6.is_none() {
            let found = self.find(tenant, request, true);
            addresses.v6 = found.and_then(|a| if let IpAddr::V6(a) = a { Some(a) } else { None });
        }
        let given = addresses.asked(request);
        if given == Addresses::default() || !self.store(&holder, addresses, users + 1) {
            return Addresses::default();
        }
        self.note_use(holder);
        given
    }

    /// For a tentative session: what its identity has already. Nothing changes.
    fn kept(&self, tenant: &Tenant<'_>, request: &LeaseRequest) -> Addresses {
        let mut theirs = self.holders.range(Lessee::all_of(tenant));
        let kept = theirs.find(|(_, h)| h.addresses.has_any(&request.kept) && self.fits(tenant, h.addresses));
        kept.map(|(_, h)| h.addresses.asked(request)).unwrap_or_default()
    }

    /// A lease is used now.
    fn note_use(&mut self, holder: Lessee) {
        self.clock += 1;
        let Some(held) = self.holders.get_mut(&holder).filter(|held| held.users > 0) else { return };
        held.used = self.clock;
        if held.written == 0 || held.used - held.written >= WRITTEN_EVERY {
            self.told += 1;
            if held.written == 0 {
                held.told = self.told;
            }
            held.written = held.used;
            let addresses = held.addresses;
            self.changes.push_back(Change::Lease { holder, addresses });
        }
    }

    /// One session that had these addresses is gone. They stay its identity's for the next one, as long as the pool can afford.
    pub fn release(&mut self, addresses: Addresses) {
        let Some(holder) = addresses.iter().find_map(|a| self.taken.get(&a)).cloned() else { return };
        self.clock += 1;
        let Some(held) = self.holders.get_mut(&holder) else { return };
        held.users = held.users.saturating_sub(1);
        if held.users == 0 {
            self.idle.remove(&(held.used, holder.clone()));
            held.used = self.clock;
            self.idle.insert((held.used, holder));
        }
    }

    /// Keeps the lease of this address from being given to another, until it is released as often. False if it is no lease.
    pub fn pin(&mut self, address: IpAddr) -> bool {
        let Some(holder) = self.taken.get(&address) else { return false };
        let Some(held) = self.holders.get_mut(holder) else { return false };
        held.users += 1;
        self.idle.remove(&(held.used, holder.clone()));
        true
    }

    /// The next thing to write down, oldest first, with its number: they count from 1 on.
    pub fn poll_change(&mut self) -> Option<(u64, Change)> {
        let number = self.told - self.changes.len() as u64 + 1;
        self.changes.pop_front().map(|change| (number, change))
    }

    /// Every change up to this number is on the disk, or will not be for now.
    pub fn written(&mut self, number: u64) {
        self.durable = self.durable.max(number.min(self.told));
    }

    /// Whether a lease has not been written down since its holder got it. What tells of it waits for that.
    #[must_use]
    pub fn is_unwritten(&self, addresses: Addresses) -> bool {
        let holder = addresses.iter().find_map(|a| self.taken.get(&a));
        holder.and_then(|holder| self.holders.get(holder)).is_some_and(|held| held.told > self.durable)
    }

    /// Which lease of its identity a tenant gets: its only one; of several, the one that its ticket names, else one that no device
    /// uses, else a new one. A lease whose addresses the configuration no longer gives it is left alone.
    fn holder_for(&mut self, tenant: &Tenant<'_>, request: &LeaseRequest) -> Lessee {
        let range = Lessee::all_of(tenant);
        let all = self.holders.range(range.clone());
        let outgrown: Vec<Lessee> = all
            .clone()
            .filter(|(_, h)| self.may_evict() && h.users == 0 && !self.fits(tenant, h.addresses))
            .map(|(holder, _)| holder.clone())
            .collect();
        outgrown.into_iter().for_each(|holder| self.evict(&holder));
        let all = || self.holders.range(range.clone());
        let mut theirs: Vec<(&Lessee, &Claim)> =
            all().filter(|(_, h)| self.fits(tenant, h.addresses)).collect();
        theirs.sort_by_key(|(_, h)| core::cmp::Reverse((h.addresses.has_any(&request.wanted), h.used)));
        let kept = theirs.iter().find(|(_, h)| h.addresses.has_any(&request.kept));
        let free = || theirs.iter().find(|(_, h)| !tenant.several || h.users == 0);
        let unused = || (0..).find(|device| all().all(|(holder, _)| holder.device != *device)).unwrap_or(0);
        kept.or_else(free).map_or_else(|| Lessee::of(tenant, unused()), |(holder, _)| (*holder).clone())
    }

    fn may_fix(&self, tenant: &Tenant<'_>, fixed: Ipv4Addr) -> bool {
        let may = self.gives(tenant.from, fixed.into());
        if !may {
            tracing::warn!(%fixed, identity = %tenant.identity, "the address that the user is to have is none of the pool's; it gets another one");
        }
        may
    }

    /// The lease of an address that a tenant is to have, and what it begins with; `None` if another uses the address, one of his own
    /// devices too where each has addresses of its own.
    fn fix(&mut self, tenant: &Tenant<'_>, fixed: Ipv4Addr) -> Option<(Lessee, Addresses)> {
        let range = Lessee::all_of(tenant);
        let used = |holder: &Lessee| self.holders.get(holder).is_some_and(|held| held.users > 0);
        let shares = |holder: &Lessee| range.contains(holder) && !(tenant.several && used(holder));
        match self.taken.get(&IpAddr::V4(fixed)).cloned() {
            Some(holder) if shares(&holder) => return Some((holder, Addresses::default())),
            Some(holder) if used(&holder) => {
                tracing::warn!(%fixed, identity = %tenant.identity, "the address that the user is to have is in use");
                return None;
            }
            _ if !self.may_evict() => return None,
            Some(holder) => self.evict(&holder),
            None => {}
        }
        let theirs = || self.holders.range(range.clone());
        let free = theirs().find(|(_, held)| held.users == 0);
        let free = free.map(|(holder, held)| (holder.clone(), held.addresses.v6));
        let unused = (0..).find(|device| theirs().all(|(holder, _)| holder.device != *device)).unwrap_or(0);
        let (holder, v6) = free.unwrap_or_else(|| (Lessee::of(tenant, unused), None));
        self.evict(&holder);
        Some((holder, Addresses { v4: Some(fixed), v6 }))
    }

    fn fits(&self, tenant: &Tenant<'_>, addresses: Addresses) -> bool {
        addresses.iter().all(|a| self.gives(tenant.from, a))
    }

    /// The narrowest prefix that holds an address, if it can be leased there.
    fn home(&self, address: IpAddr) -> Option<IpNet> {
        let narrowest =
            self.prefixes.iter().filter(|p| p.contains(&address)).max_by_key(|p| p.prefix_len())?;
        let (first, last) = host_range(*narrowest);
        (first..=last).contains(&number(address)).then_some(*narrowest)
    }

    /// Whether an address is one of those that a client leasing `from` these prefixes may have.
    fn gives(&self, from: &[IpNet], address: IpAddr) -> bool {
        self.home(address).is_some_and(|home| from.iter().any(|from| from.trunc() == home))
    }

    /// Writes a lease of so many users; false if there is no room for it.
    fn store(&mut self, holder: &Lessee, addresses: Addresses, users: usize) -> bool {
        while self.holders.len() >= MAX_LEASES && !self.holders.contains_key(holder) {
            let oldest = self.idle.first().filter(|_| self.may_evict());
            let Some((_, oldest)) = oldest.cloned() else { return false };
            self.evict(&oldest);
        }
        self.clock += 1;
        let used = self.clock;
        let same = self.holders.get(holder).filter(|old| old.addresses == addresses);
        let (written, told) = same.map_or((0, 0), |old| (old.written, old.told));
        let claim = Claim { addresses, users, used, written, told };
        if let Some(old) = self.holders.insert(holder.clone(), claim) {
            self.idle.remove(&(old.used, holder.clone()));
        }
        if users == 0 {
            self.idle.insert((used, holder.clone()));
        }
        for address in addresses.iter() {
            self.taken.insert(address, holder.clone());
        }
        true
    }

    fn find(&mut self, tenant: &Tenant<'_>, request: &LeaseRequest, v6: bool) -> Option<IpAddr> {
        let wishes = request.kept.iter().chain(&request.wanted).copied().filter(|a| a.is_ipv6() == v6);
        let free = |a: &IpAddr| {
            let ours = self.may_give(*a) || request.kept.contains(a) && self.may_evict();
            ours && !self.taken.contains_key(a) && self.gives(tenant.from, *a)
        };
        if let Some(address) = wishes.into_iter().find(free) {
            return Some(address);
        }
        let from = || tenant.from.iter().map(IpNet::trunc).filter(|p| p.addr().is_ipv6() == v6);
        if let Some(address) = from().find_map(|p| self.next_free(p)) {
            return Some(address);
        }
        let theirs = |holder: &Lessee| {
            let held = self.holders.get(holder);
            held.is_some_and(|h| h.addresses.iter().any(|a| a.is_ipv6() == v6 && self.gives(tenant.from, a)))
        };
        let oldest = self.idle.iter().map(|(_, holder)| holder).find(|h| self.may_evict() && theirs(h));
        let oldest = oldest.cloned()?;
        self.evict(&oldest);
        from().find_map(|p| self.next_free(p))
    }

    fn next_free(&mut self, prefix: IpNet) -> Option<IpAddr> {
        let (first, last) = host_range(prefix);
        let count = last.checked_sub(first)?.saturating_add(1);
        let start = *self.cursor.get(&prefix).unwrap_or(&0) % count;
        let mut gone = 0;
        while gone < count {
            let offset = (start + gone) % count;
            let address = address_at(prefix, first + offset);
            gone += match self.home(address) {
                Some(home)
                    if home == prefix && self.may_give(address) && !self.taken.contains_key(&address) =>
                {
                    self.cursor.insert(prefix, offset + 1);
                    return Some(address);
                }
                // Past a narrower prefix at once: it may be long.
                Some(home) if home != prefix => host_range(home).1.saturating_sub(number(address)) + 1,
                _ => 1,
            };
        }
        None
    }

    fn evict(&mut self, holder: &Lessee) {
        if self.forget(holder).is_some() {
            self.told += 1;
            self.changes.push_back(Change::Evict { holder: holder.clone() });
        }
    }

    /// Without a word.
    fn forget(&mut self, holder: &Lessee) -> Option<Claim> {
        let held = self.holders.remove(holder)?;
        self.idle.remove(&(held.used, holder.clone()));
        held.addresses.iter().for_each(|a| {
            self.taken.remove(&a);
        });
        Some(held)
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

    /// See [`Pool::poll_change`].
    #[must_use]
    pub fn poll_change(&self) -> Option<(u64, Change)> {
        self.lock().poll_change()
    }

    /// See [`Pool::written`].
    pub fn written(&self, number: u64) {
        self.lock().written(number);
    }

    /// Whether one of those who have a lease is meant.
    #[must_use]
    pub fn any(&self, meant: impl Fn(&Identity) -> bool) -> bool {
        let pool = self.lock();
        let mut all =
            pool.holders.keys().filter_map(|h| Identity::from_ike(h.identity.0, &h.identity.1).ok());
        all.any(|identity| meant(&identity))
    }

    /// See [`Pool::reconfigure`].
    pub fn reconfigure(&self, prefixes: impl IntoIterator<Item = IpNet>) {
        self.lock().reconfigure(prefixes);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Pool> {
        // A panic elsewhere cannot have left the pool half changed: every method ends what it begins.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn addresses_of(lease: &Lease) -> Addresses {
    Addresses { v4: lease.v4, v6: lease.v6.map(|(a, _)| a) }
}

impl AddressPool for SharedPool {
    fn lease(&mut self, conn: &Connection, identity: &Identity, request: &LeaseRequest) -> Lease {
        let several = conn.answering.policy.unique == Unique::Never;
        let tenant = Tenant { connection: &conn.name, identity, from: &conn.answering.policy.pool, several };
        let addresses = self.lock().acquire(&tenant, request);
        Lease { v4: addresses.v4, v6: addresses.v6.map(|a| (a, 128)) }
    }

    fn is_unwritten(&self, lease: &Lease) -> bool {
        self.lock().is_unwritten(addresses_of(lease))
    }

    fn release(&mut self, lease: &Lease) {
        self.lock().release(addresses_of(lease));
    }

    fn gives(&self, conn: &Connection, address: IpAddr) -> bool {
        self.lock().gives(&conn.answering.policy.pool, address)
    }

    fn pin(&mut self, address: IpAddr) -> bool {
        self.lock().pin(address)
    }

    fn unpin(&mut self, address: IpAddr) {
        self.lock().release(match address {
            IpAddr::V4(v4) => Addresses { v4: Some(v4), v6: None },
            IpAddr::V6(v6) => Addresses { v4: None, v6: Some(v6) },
        });
    }
}

mod share;
#[cfg(test)]
mod tests;

pub use share::Share;

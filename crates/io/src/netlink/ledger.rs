//! The ledger: removes exactly the addresses, routes and rules that were installed. Owns the list of them.

use super::{Error, Netlink, PROTOCOL, Route, Rule};
use ipnet::IpNet;
use nix::errno::Errno;
use std::collections::BTreeSet;

/// In the order in which things are removed: first no packet is led into the tunnel, then nothing lies in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Entry {
    Rule(Rule),
    Route(Route),
    Address(u32, IpNet),
}

/// Installs addresses, routes and rules, and remembers them. Adding what is there already, from this run or an earlier one, is
/// no error. Everything left is removed when it is dropped.
///
/// What a run that was killed left behind is recognised by [`PROTOCOL`] and the table. (Addresses and routes over the tunnel
/// interface go with it by themselves, as the kernel removes it with its last file descriptor; rules stay.)
#[derive(Debug)]
pub struct Ledger {
    netlink: Netlink,
    /// `None`: nothing is installed.
    table: Option<u32>,
    entries: BTreeSet<Entry>,
}

impl Ledger {
    /// An empty ledger for the tunnel whose routes are in `table`, and in the two tables behind it; two daemons in one network namespace need
    /// tables of their own.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(table: u32) -> Result<Self, Error> {
        Ok(Self { netlink: Netlink::new()?, table: Some(table), entries: BTreeSet::new() })
    }

    /// A ledger that stays empty, where another program installs what it is asked for: nothing is added, and nothing of an earlier run removed.
    ///
    /// # Errors
    /// The kernel's.
    pub fn left_alone() -> Result<Self, Error> {
        Ok(Self { netlink: Netlink::new()?, table: None, entries: BTreeSet::new() })
    }

    /// Removes what an earlier run left behind for the same table: once, before anything is installed. Returns how many
    /// things it removed.
    ///
    /// # Errors
    /// The kernel's; the others are removed all the same.
    pub fn remove_stale(&mut self) -> Result<usize, Error> {
        let Some(table) = self.table else { return Ok(0) };
        // Two more are for what is in transit.
        let tables = table..=table + 2;
        let ours = |protocol: u8, of: u32| protocol == PROTOCOL && tables.contains(&of);
        // Of the rules into the main table none says whose it is but the protocol: they go with the others.
        let into_ours =
            |r: &Rule| ours(r.protocol, r.table) || (r.protocol == PROTOCOL && r.table == super::MAIN);
        let rules = self.netlink.rules()?.into_iter().filter(into_ours).map(Entry::Rule);
        let mut stale: Vec<Entry> = rules.collect();
        if !stale.iter().any(|e| matches!(e, Entry::Rule(r) if tables.contains(&r.table))) {
            // A rule into the main table alone belongs to another daemon's tunnel.
            stale.clear();
        }
        let routes =
            self.netlink.routes()?.into_iter().filter(|r| ours(r.protocol, r.table)).map(Entry::Route);
        stale.extend(routes);
        let mut first = Ok(());
        for entry in &stale {
            first = first.and(remove(&mut self.netlink, entry));
        }
        first.map(|()| stale.len())
    }

    /// For questions, and for changes that need not be undone.
    pub fn netlink(&mut self) -> &mut Netlink {
        &mut self.netlink
    }

    /// Gives an interface an address.
    ///
    /// # Errors
    /// As [`Netlink::add_address`], but not `EEXIST`.
    pub fn add_address(&mut self, index: u32, net: IpNet) -> Result<(), Error> {
        if self.table.is_none() {
            return Ok(());
        }
        match self.netlink.add_address(index, net) {
            Err(e) if e.is(Errno::EEXIST) => {}
            result => result?,
        }
        self.entries.insert(Entry::Address(index, net));
        Ok(())
    }

    /// Adds a route. One of ours to the same destination is replaced.
    ///
    /// # Errors
    /// As [`Netlink::add_route`]; `EEXIST` if the one there is not ours.
    pub fn add_route(&mut self, route: Route) -> Result<(), Error> {
        if self.table.is_none() {
            return Ok(());
        }
        let same = |e: &Entry| matches!(e, Entry::Route(r) if (r.destination, r.table, r.metric) == (route.destination, route.table, route.metric));
        match self.netlink.add_route(&route) {
            Err(e) if e.is(Errno::EEXIST) => {
                self.netlink.delete_route(&Route {
                    gateway: None,
                    index: None,
                    source: None,
                    mtu: None,
                    ..route
                })?;
                self.netlink.add_route(&route)?;
                self.entries.retain(|e| !same(e));
            }
            result => result?,
        }
        self.entries.insert(Entry::Route(route));
        Ok(())
    }

    /// Leads what a route of ours leads over another interface from now on, at once; nothing happens if it is not in the ledger. `to` differs from
    /// `from` in nothing but interface and MTU.
    ///
    /// # Errors
    /// As [`Netlink::replace_route`]; the old one stays then.
    pub fn replace_route(&mut self, from: Route, to: Route) -> Result<(), Error> {
        if self.entries.contains(&Entry::Route(from)) {
            self.netlink.replace_route(&to)?;
            self.entries.remove(&Entry::Route(from));
            self.entries.insert(Entry::Route(to));
        }
        Ok(())
    }

    /// Our routes over this interface.
    pub fn routes_over(&self, index: u32) -> impl Iterator<Item = Route> {
        let route = |entry: &Entry| if let Entry::Route(route) = entry { Some(*route) } else { None };
        self.entries.iter().filter_map(route).filter(move |route| route.index == Some(index))
    }

    /// Adds a rule.
    ///
    /// # Errors
    /// As [`Netlink::add_rule`], but not `EEXIST`.
    pub fn add_rule(&mut self, rule: Rule) -> Result<(), Error> {
        if self.table.is_none() {
            return Ok(());
        }
        match self.netlink.add_rule(&rule) {
            Err(e) if e.is(Errno::EEXIST) => {}
            result => result?,
        }
        self.entries.insert(Entry::Rule(rule));
        Ok(())
    }

    /// Removes an address. Nothing happens if it is not in the ledger.
    ///
    /// # Errors
    /// The kernel's; it stays in the ledger then.
    pub fn remove_address(&mut self, index: u32, net: IpNet) -> Result<(), Error> {
        self.remove(Entry::Address(index, net))
    }

    /// Removes a route, wherever it leads now ([`Self::replace_route`]). Nothing happens if it is not in the ledger.
    ///
    /// # Errors
    /// The kernel's; it stays in the ledger then.
    pub fn remove_route(&mut self, route: Route) -> Result<(), Error> {
        let same =
            |r: &Route| (r.destination, r.table, r.metric) == (route.destination, route.table, route.metric);
        let led = self
            .entries
            .iter()
            .find_map(|e| if let Entry::Route(r) = e { Some(*r).filter(same) } else { None });
        self.remove(Entry::Route(led.unwrap_or(route)))
    }

    /// Removes a rule. Nothing happens if it is not in the ledger.
    ///
    /// # Errors
    /// The kernel's; it stays in the ledger then.
    pub fn remove_rule(&mut self, rule: Rule) -> Result<(), Error> {
        self.remove(Entry::Rule(rule))
    }

    fn remove(&mut self, entry: Entry) -> Result<(), Error> {
        if self.entries.contains(&entry) {
            remove(&mut self.netlink, &entry)?;
            self.entries.remove(&entry);
        }
        Ok(())
    }

    /// Removes everything.
    ///
    /// # Errors
    /// The first that the kernel gave. What could not be removed stays in the ledger, the others are removed.
    pub fn remove_all(&mut self) -> Result<(), Error> {
        let mut first = Ok(());
        for entry in std::mem::take(&mut self.entries) {
            if let Err(e) = remove(&mut self.netlink, &entry) {
                self.entries.insert(entry);
                first = first.and(Err(e));
            }
        }
        first
    }

    /// How many things are installed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if nothing is installed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

fn remove(netlink: &mut Netlink, entry: &Entry) -> Result<(), Error> {
    match entry {
        Entry::Rule(rule) => netlink.delete_rule(rule),
        Entry::Route(route) => netlink.delete_route(route),
        Entry::Address(index, net) => netlink.delete_address(*index, *net),
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        if let Err(error) = self.remove_all() {
            tracing::error!(%error, "not everything that was installed could be removed");
        }
    }
}

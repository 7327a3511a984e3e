//! The neighbours' guard: a process of its own that makes the kernel answer ARP and neighbour discovery for addresses that lie in a
//! local network but are reached through the tunnel.
//!
//! It makes these entries itself and removes them when the daemon ends, however it ends. Each is announced once: hosts that know the address
//! at another machine, as of a gateway whose client came over, take this one from then on. For IPv6 it also switches on `proxy_ndp` of an
//! interface, and off again if it was off. What a guard that was killed has left is recognised by
//! [`PROTOCOL`](crate::netlink::PROTOCOL) and removed by the next one; two gateways in one network namespace would remove each
//! other's. Such a guard leaves `proxy_ndp` on, which does nothing without entries. It keeps root with `CAP_NET_ADMIN`, and knows nothing of leases.

use crate::announce::Announcer;
use crate::helper::{self, Helper};
use crate::netlink::{Neighbour, Netlink};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Changes to one order: a line of it is far below what a socket takes.
const BATCH: usize = 400;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Order {
    answer: Vec<Neighbour>,
    leave: Vec<Neighbour>,
}

/// The daemon's end. Nothing here waits: register the guard with the [`crate::poller::Poller`] and call [`Guard::next`] when it is
/// readable. Dropping it removes every entry and waits until that is done.
#[derive(Debug)]
pub struct Guard {
    helper: Helper,
    /// Changes that are still to be ordered; true: to be answered for.
    pending: BTreeMap<Neighbour, bool>,
    /// An order is being obeyed: the next one waits for its answer, so that no number of changes overruns the socket.
    busy: bool,
}

impl Guard {
    /// Starts `program` with `arguments`, which must end up in [`serve`]. Before privileges are dropped.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn(program: &Path, arguments: &[&str]) -> io::Result<Self> {
        let helper = Helper::spawn(program, arguments)?;
        Ok(Self { helper, pending: BTreeMap::new(), busy: false })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.helper.pid()
    }

    /// Makes it remove every entry and end without waiting for that, as dropping it does.
    pub fn release(&mut self) {
        self.helper.release();
    }

    /// From now on an address is answered for, or no longer.
    ///
    /// # Errors
    /// If the guard is gone.
    pub fn set(&mut self, neighbour: Neighbour, answer: bool) -> io::Result<()> {
        self.pending.insert(neighbour, answer);
        self.order()
    }

    fn order(&mut self) -> io::Result<()> {
        if self.busy || self.pending.is_empty() {
            return Ok(());
        }
        let mut order = Order::default();
        while let Some((neighbour, answer)) = self.pending.pop_first() {
            if answer {
                order.answer.push(neighbour)
            } else {
                order.leave.push(neighbour)
            }
            if order.answer.len() + order.leave.len() >= BATCH {
                break;
            }
        }
        self.busy = true;
        self.helper.order(&order)
    }

    /// What could not be done, in words; `None` if there is no news.
    ///
    /// # Errors
    /// If the guard is gone or talks nonsense: take it out of the poller.
    #[expect(
        clippy::should_implement_trait,
        reason = "the convention of the I/O parts: `next` never blocks and may fail"
    )]
    pub fn next(&mut self) -> io::Result<Option<Vec<String>>> {
        let answer = self.helper.next()?;
        if answer.is_some() {
            self.busy = false;
            self.order()?;
        }
        Ok(answer)
    }
}

crate::as_fd!(Guard, helper);

/// The guard itself: obeys the orders that come in on standard input until it ends, then removes every entry.
///
/// # Errors
/// If signals or capabilities cannot be given up, or the kernel does not talk.
pub fn serve() -> io::Result<()> {
    let socket = helper::begin()?;
    let announcer = Announcer::open();
    if nix::unistd::geteuid().is_root() {
        crate::privileges::keep_net_admin()?;
    }
    let mut entries = Entries::new(PathBuf::from("/proc/sys"), announcer)?;
    helper::serve(&socket, |order: Result<Order, String>| match order {
        Ok(order) => entries.obey(&order),
        Err(why) => vec![why],
    });
    // Dropped here: everything is removed.
    drop(entries);
    Ok(())
}

/// What stands in the kernel because of us.
#[derive(Debug)]
struct Entries {
    netlink: Netlink,
    /// `/proc/sys`.
    sysctl: PathBuf,
    made: BTreeSet<Neighbour>,
    /// Switches that were off, by interface.
    switched: BTreeMap<u32, PathBuf>,
    announcer: Announcer,
}

impl Entries {
    fn new(sysctl: PathBuf, announcer: Announcer) -> io::Result<Self> {
        let mut netlink = Netlink::new().map_err(io::Error::other)?;
        for stale in netlink.neighbours().map_err(io::Error::other)? {
            netlink.delete_neighbour(stale).map_err(io::Error::other)?;
        }
        Ok(Self { netlink, sysctl, made: BTreeSet::new(), switched: BTreeMap::new(), announcer })
    }

    fn obey(&mut self, order: &Order) -> Vec<String> {
        let mut problems = Vec::new();
        for neighbour in &order.leave {
            self.made.remove(neighbour);
            problems.extend(self.netlink.delete_neighbour(*neighbour).err().map(|e| e.to_string()));
        }
        for neighbour in &order.answer {
            problems.extend(self.switch_on(*neighbour).err());
            match self.netlink.add_neighbour(*neighbour) {
                Ok(()) => {
                    self.made.insert(*neighbour);
                    if let Err(error) = self.announcer.announce(*neighbour) {
                        // They find out by themselves, within a minute.
                        tracing::debug!(%error, ?neighbour, "not announced");
                    }
                }
                Err(e) => problems.push(e.to_string()),
            }
        }
        problems.dedup();
        problems
    }

    /// Without this switch the kernel ignores the entries. IPv4 needs none.
    fn switch_on(&mut self, neighbour: Neighbour) -> Result<(), String> {
        let Neighbour { index, address: IpAddr::V6(_) } = neighbour else { return Ok(()) };
        if self.switched.contains_key(&index) {
            return Ok(());
        }
        let name = nix::net::if_::if_indextoname(index).map_err(|e| format!("interface {index}: {e}"))?;
        let name = name.to_string_lossy().into_owned();
        let path = self.sysctl.join("net/ipv6/conf").join(&name).join("proxy_ndp");
        let fail = |e: io::Error| format!("net.ipv6.conf.{name}.proxy_ndp cannot be set ({e}): set it to 1");
        if std::fs::read_to_string(&path).map_err(fail)?.trim() == "0" {
            std::fs::write(&path, "1").map_err(fail)?;
            self.switched.insert(index, path);
        }
        Ok(())
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        for neighbour in std::mem::take(&mut self.made) {
            if let Err(error) = self.netlink.delete_neighbour(neighbour) {
                tracing::error!(%error, "a neighbour entry stays behind");
            }
        }
        for path in self.switched.values() {
            // The interface may be gone, and the switch with it.
            let _ = std::fs::write(path, "0");
        }
    }
}

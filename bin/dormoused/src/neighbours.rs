//! Gateway: clients whose addresses lie in a local network of ours. Hosts there ask for them by ARP or neighbour discovery, which
//! never reach a tunnel; the gateway answers in their place, whether they sleep or not. Owns which address is answered for on
//! which interface; the kernel answers, and a helper process makes its entries.

use anyhow::Result;
use dormouse_io::neighbours::Guard;
use dormouse_io::netlink::{Neighbour, Netlink};
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Neighbours {
    /// Registered with the poller by the loop; gone if it failed.
    pub(crate) guard: Option<Guard>,
    /// The tunnel's own interface.
    tun: u32,
    /// The prefixes of the machine's interfaces.
    networks: Vec<(u32, IpNet)>,
    /// Addresses of clients.
    clients: BTreeSet<IpAddr>,
    /// What is answered for now.
    answered: BTreeSet<Neighbour>,
}

impl Neighbours {
    /// Starts the guard; as root, before privileges are given away.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn new(tun: u32, netlink: &mut Netlink) -> Result<Self> {
        let guard = Guard::spawn(&std::env::current_exe()?, &[crate::NEIGHBOUR_GUARD])?;
        let (networks, clients, answered) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        let mut new = Self { guard: Some(guard), tun, networks, clients, answered };
        new.network_changed(netlink);
        Ok(new)
    }

    /// These prefixes lead to a client, or no longer. Only whole addresses are answered for: a network behind a client is routed.
    pub(crate) fn clients(&mut self, routes: &[IpNet], there: bool) {
        for route in routes.iter().filter(|r| r.prefix_len() == r.max_prefix_len()) {
            let address = route.addr();
            if there {
                self.clients.insert(address)
            } else {
                self.clients.remove(&address)
            };
            for index in self.interfaces(address) {
                self.set(Neighbour { index, address }, there);
            }
        }
    }

    /// An interface got or lost an address.
    pub(crate) fn network_changed(&mut self, netlink: &mut Netlink) {
        let addresses = netlink.addresses().unwrap_or_default();
        let narrow = |net: &IpNet| net.prefix_len() == net.max_prefix_len();
        let networks = addresses.iter().filter(|a| a.global && a.index != self.tun && !narrow(&a.net));
        let networks: Vec<(u32, IpNet)> = networks.map(|a| (a.index, a.net.trunc())).collect();
        if networks == self.networks {
            return;
        }
        self.networks = networks;
        let all = self.clients.iter().flat_map(|address| {
            self.interfaces(*address).into_iter().map(|index| Neighbour { index, address: *address })
        });
        let wanted: BTreeSet<Neighbour> = all.collect();
        let changed: Vec<Neighbour> = wanted.symmetric_difference(&self.answered).copied().collect();
        for neighbour in changed {
            self.set(neighbour, wanted.contains(&neighbour));
        }
    }

    /// The interfaces in whose network an address lies.
    fn interfaces(&self, address: IpAddr) -> BTreeSet<u32> {
        self.networks.iter().filter(|(_, net)| net.contains(&address)).map(|(index, _)| *index).collect()
    }

    fn set(&mut self, neighbour: Neighbour, there: bool) {
        let changed = if there { self.answered.insert(neighbour) } else { self.answered.remove(&neighbour) };
        let Some(guard) = self.guard.as_mut().filter(|_| changed) else { return };
        tracing::debug!(?neighbour, there, "answering ARP and neighbour discovery");
        if let Err(e) = guard.set(neighbour, there) {
            self.failed(&e);
        }
    }

    /// Takes the guard's answers.
    pub(crate) fn answers(&mut self) {
        while let Some(guard) = &mut self.guard {
            match guard.next() {
                Ok(Some(problems)) => {
                    for why in problems {
                        tracing::warn!(%why, "a client is not answered for in its network");
                    }
                }
                Ok(None) => return,
                Err(e) => self.failed(&e),
            }
        }
    }

    fn failed(&mut self, why: &std::io::Error) {
        tracing::error!(%why, "clients are not answered for in local networks from now on");
        self.guard = None;
    }
}

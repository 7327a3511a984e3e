//! The kernel's ESP as the engine to which the host lends SAs. Owns the interface that leads to it, and what the kernel has of each loan; when one is lent
//! and called back is the host's decision.
//!
//! Beside the TUN stands an interface of kind `xfrm`. A loan is two states, their policies, and the routes of its traffic, which are led over that interface
//! one by one, each at once. Addresses, rules and DNS stay with the TUN. What an earlier run left behind is removed at the start, by its `if_id`.

use crate::machine::Machine;
use anyhow::{Context, Result};
use dormouse_crypto::Encr;
use dormouse_io::batch::Carriers;
use dormouse_io::netlink::Netlink;
use dormouse_io::xfrm::{self, Cipher, Direction, IF_ID, Policy, Sa, State, Xfrm};
use dormouse_keying::ChildId;
use dormouse_node::host::{Lend, Returned, Seen, Usage};
use dormouse_sansio::{Carrier, Path};
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

/// Its name among the offloads.
pub(crate) const OFFLOAD: &str = "kernel-esp";
/// An SPI that no peer is given, for the state that shows whether the kernel can protect packets.
const PROBE_SPI: u32 = 0x0000_0100;

/// What the kernel has of a loan.
#[derive(Debug)]
struct Held {
    path: Path,
    spi_out: u32,
    /// What was made for it: policies, and states by their destinations and SPIs.
    policies: Vec<Policy>,
    states: Vec<(IpAddr, u32)>,
    remote: Vec<IpNet>,
    inner_mtu: usize,
    /// Of what is received, numbers up to here are the host's.
    first: u64,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Kernel {
    xfrm: Xfrm,
    index: u32,
    name: String,
    loans: BTreeMap<ChildId, Held>,
}

/// The name of an interface beside the TUN. Names of interfaces have 15 bytes at most.
pub(crate) fn interface(tun: &str, end: &str) -> String {
    const MOST: usize = 15;
    let room = MOST.saturating_sub(end.len() + 1);
    let kept = tun.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|at| *at <= room).last();
    format!("{}-{end}", tun.get(..kept.unwrap_or(0)).unwrap_or_default())
}

/// Removes what an earlier run left behind, if there is anything.
///
/// # Errors
/// The kernel's.
pub(crate) fn clean(netlink: &mut Netlink) -> Result<()> {
    let stale = remove_stale(netlink).context("removing what an earlier run left in the kernel")?;
    if stale > 0 {
        tracing::info!(stale, "states and policies of an earlier run were removed from the kernel");
    }
    Ok(())
}

fn remove_stale(netlink: &mut Netlink) -> Result<usize> {
    if let Some(link) = netlink.links()?.into_iter().find(|link| link.xfrm == Some(IF_ID)) {
        netlink.delete_link(link.index)?;
    }
    match Xfrm::new().and_then(|mut xfrm| xfrm.remove_stale()) {
        Ok(stale) => Ok(stale),
        // Nothing can be left in a kernel that has none of it.
        Err(e) => {
            tracing::debug!(%e, "no IPsec in this kernel");
            Ok(0)
        }
    }
}

impl Kernel {
    /// The kernel's ESP by an interface of this name.
    ///
    /// # Errors
    /// Says what the kernel has not.
    pub(crate) fn new(netlink: &mut Netlink, name: String, mtu: u16) -> Result<Self> {
        let mut xfrm = Xfrm::new().context("the kernel has no IPsec (CONFIG_XFRM_USER)")?;
        xfrm.add_sa(&probe()).context("the kernel has no ESP, or not its cipher")?;
        xfrm.remove_sa(Ipv4Addr::LOCALHOST.into(), PROBE_SPI)?;
        netlink.add_xfrm_link(&name, IF_ID, mtu.into()).context("the kernel has no XFRM interfaces")?;
        let index = netlink.link(&name)?.index;
        netlink.set_without_addresses(index)?;
        netlink.set_up(index, true)?;
        Ok(Self { xfrm, index, name, loans: BTreeMap::new() })
    }

    /// The interface by which it is reached: its index and its name.
    pub(crate) fn interface(&self) -> (u32, &str) {
        (self.index, &self.name)
    }

    /// How many loans it has.
    pub(crate) fn loans(&self) -> usize {
        self.loans.len()
    }

    /// Removes the interface, and all states and policies that are still in the kernel: the process ends.
    pub(crate) fn end(&mut self, machine: &mut Machine) {
        report(machine.netlink().delete_link(self.index));
        report(self.xfrm.remove_stale().map(drop));
        self.loans.clear();
    }

    /// The kernel carries an SA from now on: nothing leads there before [`Self::lead`].
    ///
    /// # Errors
    /// Why not; it has not touched the SA then.
    pub(crate) fn lend(&mut self, machine: &Machine, carriers: &Carriers, lend: &Lend) -> Result<()> {
        let loan = &lend.loan;
        anyhow::ensure!(machine.leads_to(&lend.remote), "no routes lead to its traffic alone");
        let held = Held {
            path: loan.path,
            spi_out: loan.spi_out,
            policies: Vec::new(),
            states: Vec::new(),
            remote: lend.remote.clone(),
            inner_mtu: loan.inner_mtu,
            first: loan.seen.top,
        };
        let child = loan.child;
        self.loans.insert(child, held);
        let taken = self.install(lend).and_then(|()| self.take_socket(carriers, child));
        if taken.is_err() {
            // Nothing leads there yet: it was not used.
            self.take_out(carriers, child);
        }
        taken
    }

    fn install(&mut self, lend: &Lend) -> Result<()> {
        let loan = &lend.loan;
        let (ours, peers) = (loan.path.local, loan.path.remote);
        let in_udp = loan.path.carrier == Carrier::NatT;
        let cipher = cipher(loan.encr).with_context(|| format!("the kernel is lent no {}", loan.encr))?;
        let seen = xfrm::Seen { top: loan.seen.top, bits: loan.seen.bits.clone() };
        let inbound = Sa {
            direction: Direction::In,
            spi: loan.child.spi(),
            source: peers.ip(),
            destination: ours.ip(),
            cipher,
            key: loan.keymat_in.as_bytes(),
            esn: loan.esn,
            replay: xfrm::Replay { sent: 0, seen },
            packets: u64::MAX,
            udp: in_udp.then(|| (peers.port(), ours.port())),
        };
        let outbound = Sa {
            direction: Direction::Out,
            spi: loan.spi_out,
            source: ours.ip(),
            destination: peers.ip(),
            key: loan.keymat_out.as_bytes(),
            replay: xfrm::Replay { sent: loan.sent, seen: xfrm::Seen::default() },
            packets: loan.last.saturating_sub(loan.sent),
            udp: in_udp.then(|| (ours.port(), peers.port())),
            ..inbound.clone()
        };
        let Some(held) = self.loans.get_mut(&loan.child) else { return Ok(()) };
        // A packet that a state accepts and no policy lets through would be lost.
        for policy in policies(lend) {
            self.xfrm.add_policy(&policy)?;
            held.policies.push(policy);
        }
        for sa in [&inbound, &outbound] {
            self.xfrm.add_sa(sa)?;
            held.states.push((sa.destination, sa.spi));
        }
        Ok(())
    }

    /// What comes for this SA need not come here any more, or must.
    fn take_socket(&self, carriers: &Carriers, child: ChildId) -> Result<()> {
        let Some(held) = self.loans.get(&child) else { return Ok(()) };
        match held.path.carrier {
            Carrier::NatT => carriers.esp_by_kernel(&held.path, true).context("UDP_ENCAP")?,
            _ => carriers.leave_esp(&self.left()).context("SO_ATTACH_FILTER")?,
        }
        Ok(())
    }

    /// Of which SPIs, behind which numbers, raw sockets need no copies.
    fn left(&self) -> Vec<(u32, u64)> {
        let raw = self.loans.iter().filter(|(_, held)| held.path.carrier == Carrier::RawEsp);
        raw.map(|(child, held)| (child.spi(), held.first)).collect()
    }

    /// What is for a loan leads to the kernel from now on.
    ///
    /// # Errors
    /// The kernel's, of a route.
    pub(crate) fn lead(&self, machine: &mut Machine, child: ChildId) -> Result<()> {
        let Some(held) = self.loans.get(&child) else { return Ok(()) };
        machine.lead_over(self.index, &held.remote, held.inner_mtu)
    }

    /// What it has carried of a loan.
    pub(crate) fn read(&mut self, child: ChildId) -> Option<Usage> {
        let held = self.loans.get(&child)?;
        let (ours, peers, spi_out) = (held.path.local.ip(), held.path.remote.ip(), held.spi_out);
        let received = self.xfrm.read_sa(ours, child.spi());
        let sent = self.xfrm.read_sa(peers, spi_out);
        match (sent, received) {
            (Ok(sent), Ok(received)) => Some(usage(&sent, &received)),
            (Err(e), _) | (_, Err(e)) => {
                tracing::warn!(%e, %child, "the kernel has no such state any more");
                None
            }
        }
    }

    /// The kernel carries it no more. First nothing new comes to it, then it delivers nothing, then it is asked how far it has come.
    pub(crate) fn recall(
        &mut self,
        machine: &mut Machine,
        carriers: &Carriers,
        child: ChildId,
    ) -> Option<Returned> {
        let remote = self.loans.get(&child)?.remote.clone();
        machine.lead_back(self.index, &remote);
        self.take_out(carriers, child)
    }

    fn take_out(&mut self, carriers: &Carriers, child: ChildId) -> Option<Returned> {
        let held = self.loans.remove(&child)?;
        let copies = match held.path.carrier {
            Carrier::NatT => carriers.esp_by_kernel(&held.path, false),
            _ => carriers.leave_esp(&self.left()),
        };
        report(copies);
        // What leads to a state goes before it, what lets its packets through after it.
        let (before, after): (Vec<_>, Vec<_>) =
            held.policies.iter().partition(|policy| policy.direction == Direction::Out);
        for policy in before {
            report(self.xfrm.remove_policy(policy));
        }
        let removed: Vec<_> =
            held.states.iter().map(|(destination, spi)| self.xfrm.remove_sa(*destination, *spi)).collect();
        for policy in after {
            report(self.xfrm.remove_policy(policy));
        }
        let mut last = removed.into_iter();
        let (received, sent) = match (last.next(), last.next()) {
            (Some(Ok(Some(received))), Some(Ok(Some(sent)))) => (received, sent),
            // It was never made whole.
            _ if held.states.len() < 2 => return None,
            failed => {
                tracing::warn!(%child, ?failed, "the kernel does not say how far an SA has come");
                return None;
            }
        };
        let usage = usage(&sent, &received);
        let seen = received.replay?.seen;
        let seen = Seen { top: seen.top, bits: seen.bits };
        Some(Returned { sent: sent.replay?.sent, seen, usage })
    }
}

fn usage(sent: &State, received: &State) -> Usage {
    let counted = |state: &State| {
        let xfrm::Counted { packets, bytes } = state.counted;
        dormouse_esp::Counters { packets, bytes }
    };
    Usage { sent: counted(sent), received: counted(received) }
}

/// Policies for each pair of prefixes of one family, in all directions.
fn policies(lend: &Lend) -> Vec<Policy> {
    let outer: (IpAddr, IpAddr) = (lend.loan.path.local.ip(), lend.loan.path.remote.ip());
    let mut all = Vec::new();
    for ours in &lend.local {
        for theirs in lend.remote.iter().filter(|net| net.addr().is_ipv4() == ours.addr().is_ipv4()) {
            let (source, destination, spi) = (*theirs, *ours, lend.loan.child.spi());
            let inbound =
                Policy { direction: Direction::In, source, destination, outer: (outer.1, outer.0), spi };
            all.push(inbound);
            all.push(Policy { direction: Direction::Forward, ..inbound });
            let (source, destination, spi) = (destination, source, lend.loan.spi_out);
            all.push(Policy { direction: Direction::Out, source, destination, outer, spi });
        }
    }
    all
}

/// The kernel's name for a cipher; none for those whose SAs stay here. Each is named: none can be taken for another.
const fn cipher(encr: Encr) -> Option<Cipher> {
    match encr {
        Encr::Aes128Gcm16 | Encr::Aes256Gcm16 => Some(Cipher::AesGcm),
        Encr::ChaCha20Poly1305 => Some(Cipher::ChaCha20Poly1305),
        Encr::Aes128Cbc
        | Encr::Aes256Cbc
        | Encr::Aes128Ctr
        | Encr::Aes256Ctr
        | Encr::Aes128Ccm16
        | Encr::Aes256Ccm16
        | Encr::Aes128Ccm12
        | Encr::Aes256Ccm12
        | Encr::Aes128Ccm8
        | Encr::Aes256Ccm8
        | Encr::Null
        | Encr::NullIv16
        | Encr::Aes128Gcm8
        | Encr::Aes128Gmac
        | Encr::Aes192Gmac
        | Encr::Aes256Gmac => None,
    }
}

/// A state that shows whether the kernel can protect packets at all. Its key is no key of anything.
fn probe() -> Sa<'static> {
    Sa {
        direction: Direction::Out,
        spi: PROBE_SPI,
        source: Ipv4Addr::LOCALHOST.into(),
        destination: Ipv4Addr::LOCALHOST.into(),
        cipher: Cipher::AesGcm,
        key: &[0; 20],
        esn: true,
        replay: xfrm::Replay::default(),
        packets: 1,
        udp: None,
    }
}

fn report<E: std::fmt::Display>(result: Result<(), E>) {
    if let Err(e) = result {
        tracing::warn!("the kernel's ESP: {e:#}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cipher that the kernel is not lent has no name there by which it could be taken for GCM.
    #[test]
    fn the_kernel_knows_three_ciphers() {
        let known: Vec<Encr> = Encr::ALL.into_iter().filter(|encr| cipher(*encr).is_some()).collect();
        assert_eq!(known, [Encr::Aes128Gcm16, Encr::Aes256Gcm16, Encr::ChaCha20Poly1305]);
        assert!([Encr::Aes256Gmac, Encr::Aes128Gcm8, Encr::Null].map(cipher).iter().all(Option::is_none));
        assert_eq!(cipher(Encr::ChaCha20Poly1305), Some(Cipher::ChaCha20Poly1305));
    }
}

//! The kernel's ESP as the engine to which the host lends SAs. Owns the interface that leads to it, and what the kernel has of each loan; when one is lent
//! and called back is the host's decision.
//!
//! Beside the TUN stands an interface of kind `xfrm`. A loan is two states, their policies, and the routes of its traffic, which are led over that interface
//! one by one, each at once. Addresses, rules and DNS stay with the TUN. What an earlier run left behind is removed at the start, by its `if_id`.

use crate::machine::Machine;
use anyhow::{Context, Result};
use dormouse_control::{Check, CheckOutcome, Offload};
use dormouse_crypto::Encr;
use dormouse_io::batch::Carriers;
use dormouse_io::netlink::Netlink;
use dormouse_io::tun::Tun;
use dormouse_io::xfrm::{self, Cipher, Direction, IF_ID, Policy, Sa, State, Xfrm};
use dormouse_keying::ChildId;
use dormouse_node::config::file::DataPath;
use dormouse_node::host::{Engine, Host, Lend, Returned, Seen, Usage};
use dormouse_node::lending::LOAD;
use dormouse_sansio::{Carrier, Instant, Path};
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

/// Its name among the offloads.
pub(crate) const OFFLOAD: &str = "kernel-esp";
/// Names of interfaces have no more bytes.
const NAME_MOST: usize = 15;
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

/// The engine.
#[derive(Debug)]
pub(crate) struct Kernel {
    xfrm: Xfrm,
    index: u32,
    name: String,
    loans: BTreeMap<ChildId, Held>,
}

/// The engine, or why there is none.
#[derive(Debug)]
pub(crate) enum Esp {
    /// `daemon.data_path = "user"`.
    User,
    /// It does not work here.
    Unable(String),
    /// It does.
    Kernel(Kernel),
}

impl Esp {
    /// The interface by which the kernel's ESP is reached.
    pub(crate) fn interface(&self) -> Option<(u32, &str)> {
        if let Self::Kernel(kernel) = self { Some((kernel.index, &kernel.name)) } else { None }
    }

    /// By which interface, and from which UDP port, the kernel sends.
    pub(crate) fn sends(&self, port: u16) -> Option<(String, u16)> {
        self.interface().map(|(_, name)| (name.to_owned(), port))
    }

    /// The host may lend, if there is an engine.
    pub(crate) fn begin(&self, host: &mut Host, machine: &mut Machine) {
        if let Some((index, interface)) = self.interface() {
            tracing::info!(interface, "the kernel carries ESP under load");
            machine.monitor.ignore(index);
            host.set_engine(Engine { raw: true, udp: true, load: LOAD });
        }
    }

    /// The kernel takes an SA, if it can: nothing leads there before [`Self::lead`]. True if it has.
    pub(crate) fn lend(
        &mut self,
        now: Instant,
        (machine, carriers): (&Machine, &Carriers),
        host: &mut Host,
        lend: &Lend,
    ) -> bool {
        let taken = match self {
            Self::Kernel(kernel) => {
                kernel.lend(machine, carriers, lend).map_err(|e| dormouse_io::causes(&*e))
            }
            Self::User | Self::Unable(_) => Err("there is no other engine".to_owned()),
        };
        if let Err(why) = &taken {
            host.not_lent(now, &lend.loan, why);
        }
        taken.is_ok()
    }

    /// What is for a loan leads to the kernel from now on.
    ///
    /// # Errors
    /// The kernel's, of a route.
    pub(crate) fn lead(&self, machine: &mut Machine, child: ChildId) -> Result<()> {
        if let Self::Kernel(kernel) = self { kernel.lead(machine, child) } else { Ok(()) }
    }

    /// Says what the kernel has carried.
    pub(crate) fn read(&mut self, now: Instant, host: &mut Host, child: ChildId) {
        let Self::Kernel(kernel) = self else { return };
        let usage = kernel.read(child);
        host.loan_read(now, child, usage);
    }

    /// The kernel carries it no more.
    pub(crate) fn recall(
        &mut self,
        now: Instant,
        (machine, carriers): (&mut Machine, &Carriers),
        host: &mut Host,
        child: ChildId,
    ) {
        let Self::Kernel(kernel) = self else { return };
        let returned = kernel.recall(machine, carriers, child);
        tracing::debug!(%child, sent = returned.as_ref().map(|r| r.sent), "back from the kernel");
        host.returned(now, child, returned.as_ref());
    }

    /// For `status`: whether it is in use, or why not.
    pub(crate) fn offload(&self) -> Offload {
        let why = match self {
            Self::User => Some("daemon.data_path = \"user\"".to_owned()),
            Self::Unable(why) => Some(why.clone()),
            Self::Kernel(kernel) if kernel.loans.is_empty() => Some("nothing is under load".to_owned()),
            Self::Kernel(_) => None,
        };
        Offload { name: OFFLOAD.into(), active: why.is_none(), why }
    }

    /// For `doctor`.
    pub(crate) fn check(&self) -> Check {
        let (outcome, found) = match self {
            Self::User => (CheckOutcome::Ok, "ESP is carried in user space (daemon.data_path)".to_owned()),
            Self::Unable(why) => (CheckOutcome::Warning, format!("ESP stays in user space: {why}")),
            Self::Kernel(kernel) => {
                (CheckOutcome::Ok, format!("by {} under load; {} SAs now", kernel.name, kernel.loans.len()))
            }
        };
        Check { name: OFFLOAD.into(), outcome, found, change: None }
    }

    /// Removes the interface, and all states and policies that are still in the kernel: the process ends.
    pub(crate) fn end(&mut self, machine: &mut Machine) {
        if let Self::Kernel(kernel) = self {
            report(machine.netlink().delete_link(kernel.index));
            report(kernel.xfrm.remove_stale().map(drop));
            kernel.loans.clear();
        }
    }
}

/// The name of the interface beside the TUN.
pub(crate) fn interface(tun: &str) -> String {
    let end =
        tun.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| end + 4 <= NAME_MOST).last();
    format!("{}-esp", tun.get(..end.unwrap_or(0)).unwrap_or_default())
}

/// Removes what an earlier run left behind, if there is anything.
fn clean(netlink: &mut Netlink) -> Result<usize> {
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

/// Sets up what `wanted` asks for, as root. Removes what an earlier run left behind in any case.
///
/// # Errors
/// If the kernel must carry ESP and cannot; says why.
pub(crate) fn set_up(wanted: DataPath, tun: &Tun, mtu: u16) -> Result<Esp> {
    let name = interface(tun.name());
    let mut netlink = Netlink::new()?;
    let stale = clean(&mut netlink).context("removing what an earlier run left in the kernel")?;
    if stale > 0 {
        tracing::info!(stale, "states and policies of an earlier run were removed from the kernel");
    }
    if wanted == DataPath::User {
        return Ok(Esp::User);
    }
    match Kernel::new(&mut netlink, name, mtu) {
        Ok(kernel) => Ok(Esp::Kernel(kernel)),
        Err(e) if wanted == DataPath::Auto => {
            tracing::info!("ESP stays in user space: {}", dormouse_io::causes(&*e));
            Ok(Esp::Unable(dormouse_io::causes(&*e)))
        }
        Err(e) => Err(e.context("daemon.data_path = \"kernel\"; \"auto\" would stay in user space")),
    }
}

impl Kernel {
    fn new(netlink: &mut Netlink, name: String, mtu: u16) -> Result<Self> {
        let mut xfrm = Xfrm::new().context("the kernel has no IPsec (CONFIG_XFRM_USER)")?;
        xfrm.add_sa(&probe()).context("the kernel has no ESP, or not its cipher")?;
        xfrm.remove_sa(Ipv4Addr::LOCALHOST.into(), PROBE_SPI)?;
        netlink.add_xfrm_link(&name, IF_ID, mtu.into()).context("the kernel has no XFRM interfaces")?;
        let index = netlink.link(&name)?.index;
        netlink.set_without_addresses(index)?;
        netlink.set_up(index, true)?;
        Ok(Self { xfrm, index, name, loans: BTreeMap::new() })
    }

    /// The kernel carries an SA from now on.
    ///
    /// # Errors
    /// Why not; it has not touched the SA then.
    fn lend(&mut self, machine: &Machine, carriers: &Carriers, lend: &Lend) -> Result<()> {
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

    fn lead(&self, machine: &mut Machine, child: ChildId) -> Result<()> {
        let Some(held) = self.loans.get(&child) else { return Ok(()) };
        machine.lead_over(self.index, &held.remote, held.inner_mtu)
    }

    /// What it has carried of a loan.
    fn read(&mut self, child: ChildId) -> Option<Usage> {
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
    fn recall(&mut self, machine: &mut Machine, carriers: &Carriers, child: ChildId) -> Option<Returned> {
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

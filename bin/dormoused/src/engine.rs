//! What carries ESP beside the daemon's loop, to which the host lends SAs: the kernel, workers, or nothing. Owns which of them it is; when an SA is lent and called back is
//! the host's decision.

use crate::kernel::{self, Kernel};
use crate::machine::Machine;
use crate::workers::{self, Workers};
use anyhow::Result;
use dormouse_control::{Check, CheckOutcome, Offload};
use dormouse_io::batch::Carriers;
use dormouse_io::netlink::Netlink;
use dormouse_io::tun::{Tun, TunOptions};
use dormouse_keying::ChildId;
use dormouse_node::config::Resolved;
use dormouse_node::config::file::{self, DataPath};
use dormouse_node::host::{Engine, Host, InUdp, Lend};
use dormouse_node::lending::LOAD;
use dormouse_sansio::packet::Received;
use dormouse_sansio::{Instant, Path};
use std::fmt;

/// The engine, or why there is none.
#[derive(Debug)]
pub(crate) enum Esp {
    /// `daemon.data_path = "user"`, and why there are no workers.
    User(String),
    /// The kernel's does not work here.
    Unable(String),
    /// It does.
    Kernel(Kernel),
    /// Threads of this process.
    Workers(Workers),
}

/// Sets up what the configuration asks for, as root. Removes what an earlier run left in the kernel in any case.
///
/// # Errors
/// If the kernel must carry ESP and cannot, or workers have no interfaces; says why.
pub(crate) fn set_up(
    settings: &file::Daemon,
    connections: &[Resolved],
    hip: bool,
    tun: &Tun,
    options: &TunOptions,
) -> Result<Esp> {
    let name = kernel::interface(tun.name(), "esp");
    let mut netlink = Netlink::new()?;
    kernel::clean(&mut netlink)?;
    let wanted = settings.data_path;
    if wanted == DataPath::User {
        return match workers::wanted(settings, connections, hip) {
            Ok(number) => Ok(Esp::Workers(Workers::new(&mut netlink, tun, options, number)?)),
            Err(why) => Ok(Esp::User(why)),
        };
    }
    match Kernel::new(&mut netlink, name, options.mtu) {
        Ok(kernel) => Ok(Esp::Kernel(kernel)),
        Err(e) if wanted == DataPath::Auto => {
            tracing::info!("ESP stays in user space: {}", dormouse_io::causes(&*e));
            Ok(Esp::Unable(dormouse_io::causes(&*e)))
        }
        Err(e) => Err(e.context("daemon.data_path = \"kernel\"; \"auto\" would stay in user space")),
    }
}

impl Esp {
    /// The interfaces beside the tunnel's by which clients' packets come and go, also those that another engine would have.
    pub(crate) fn beside(&self, tun: &str) -> Vec<String> {
        match self {
            Self::Workers(workers) => workers.interfaces().map(|(_, name)| name.to_owned()).collect(),
            Self::User(_) | Self::Unable(_) | Self::Kernel(_) => vec![kernel::interface(tun, "esp")],
        }
    }

    /// By which interface, and from which UDP port, the kernel sends.
    pub(crate) fn sends(&self, port: u16) -> Option<(String, u16)> {
        if let Self::Kernel(kernel) = self { Some((kernel.interface().1.to_owned(), port)) } else { None }
    }

    /// The host may lend, if there is an engine.
    pub(crate) fn begin(&self, host: &mut Host, machine: &mut Machine) {
        match self {
            Self::Kernel(kernel) => {
                let (index, interface) = kernel.interface();
                tracing::info!(interface, "the kernel carries ESP under load");
                machine.monitor.ignore(index);
                host.set_engine(Engine { raw: true, udp: InUdp::Alone, load: LOAD, ours: false });
            }
            Self::Workers(workers) => {
                workers.interfaces().for_each(|(index, _)| machine.monitor.ignore(index));
                tracing::info!(workers = workers.interfaces().count(), "workers carry ESP in UDP under load");
                host.set_engine(Engine { raw: false, udp: InUdp::Each, load: LOAD, ours: true });
            }
            Self::User(_) | Self::Unable(_) => {}
        }
    }

    /// It takes an SA, if it can: nothing leads there before [`Self::lead`]. True if it has.
    pub(crate) fn lend(
        &mut self,
        now: Instant,
        (machine, carriers): (&Machine, &Carriers),
        host: &mut Host,
        lend: &Lend,
    ) -> bool {
        let taken = match self {
            Self::Kernel(kernel) => kernel.lend(machine, carriers, lend),
            Self::Workers(workers) => workers.lend(machine, host, lend),
            Self::User(_) | Self::Unable(_) => Err(anyhow::anyhow!("there is no other engine")),
        };
        let taken = taken.map_err(|e| dormouse_io::causes(&*e));
        if let Err(why) = &taken {
            host.not_lent(now, &lend.loan, why);
        }
        taken.is_ok()
    }

    /// What is for a loan leads to it from now on.
    ///
    /// # Errors
    /// The kernel's, of a route.
    pub(crate) fn lead(&self, machine: &mut Machine, child: ChildId) -> Result<()> {
        match self {
            Self::Kernel(kernel) => kernel.lead(machine, child),
            Self::Workers(workers) => workers.lead(machine, child),
            Self::User(_) | Self::Unable(_) => Ok(()),
        }
    }

    /// It has loans with which it has not begun.
    pub(crate) fn is_beginning(&self) -> bool {
        if let Self::Workers(workers) = self { workers.is_beginning() } else { false }
    }

    /// It begins with them.
    pub(crate) fn begin_loans(&mut self) {
        if let Self::Workers(workers) = self {
            workers.begin();
        }
    }

    /// Says what it has carried.
    pub(crate) fn read(&mut self, now: Instant, host: &mut Host, child: ChildId) {
        let usage = match self {
            Self::Kernel(kernel) => kernel.read(child),
            Self::Workers(workers) => workers.read(child),
            Self::User(_) | Self::Unable(_) => return,
        };
        host.loan_read(now, child, usage);
    }

    /// A datagram of a loan was in the ordinary socket. True if it was handed over: the kernel gets it from the socket.
    pub(crate) fn pass_on(&mut self, path: Path, datagram: &[u8]) -> bool {
        let Self::Workers(workers) = self else { return false };
        workers.pass_on(Received { path, ecn: 0 }, datagram);
        true
    }

    /// It carries it no more.
    pub(crate) fn recall(
        &mut self,
        now: Instant,
        (machine, carriers): (&mut Machine, &Carriers),
        host: &mut Host,
        child: ChildId,
    ) {
        let (returned, observer) = match self {
            Self::Kernel(kernel) => (kernel.recall(machine, carriers, child), None),
            Self::Workers(workers) => {
                let back = workers.recall(machine, host, child);
                let (returned, observer) = back.map(|back| (back.returned, back.observer)).unzip();
                (returned, observer.flatten())
            }
            Self::User(_) | Self::Unable(_) => return,
        };
        tracing::debug!(%child, sent = returned.as_ref().map(|r| r.sent), "called back");
        host.returned(now, child, returned.as_ref(), observer);
    }

    /// For `status`: whether it is in use, or why not.
    pub(crate) fn offload(&self) -> Offload {
        let idle = |loans: usize| (loans == 0).then(|| "nothing is under load".to_owned());
        let (name, why) = match self {
            Self::User(_) => (kernel::OFFLOAD, Some("daemon.data_path = \"user\"".to_owned())),
            Self::Unable(why) => (kernel::OFFLOAD, Some(why.clone())),
            Self::Kernel(kernel) => (kernel::OFFLOAD, idle(kernel.loans())),
            Self::Workers(workers) => {
                (workers::OFFLOAD, workers.all_ended().or_else(|| idle(workers.loans())))
            }
        };
        Offload { name: name.into(), active: why.is_none(), why }
    }

    /// For `doctor`.
    pub(crate) fn check(&self) -> Check {
        let (outcome, found) = match self {
            Self::User(why) => (
                CheckOutcome::Ok,
                format!("ESP is carried in user space (daemon.data_path); no workers: {why}"),
            ),
            Self::Unable(why) => (CheckOutcome::Warning, format!("ESP stays in user space: {why}")),
            Self::Kernel(kernel) => {
                let (name, loans) = (kernel.interface().1, kernel.loans());
                (CheckOutcome::Ok, format!("by {name} under load; {loans} SAs now"))
            }
            Self::Workers(workers) => return workers.check(),
        };
        Check { name: kernel::OFFLOAD.into(), outcome, found, change: None }
    }

    /// Removes what it has made: the process ends.
    pub(crate) fn end(&mut self, machine: &mut Machine) {
        match self {
            Self::Kernel(kernel) => kernel.end(machine),
            Self::Workers(workers) => workers.end(),
            Self::User(_) | Self::Unable(_) => {}
        }
    }
}

impl fmt::Display for Esp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User(_) | Self::Unable(_) => "nothing",
            Self::Kernel(_) => "the kernel",
            Self::Workers(_) => "a worker",
        })
    }
}

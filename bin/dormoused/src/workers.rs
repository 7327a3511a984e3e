//! Workers: threads to which the host lends SAs of gateways' sessions under load, each with an interface of its own beside the TUN and, for each loan, a socket that has what comes
//! the SA's way. Owns which worker has which loan, and the routes to it; must never touch an SA. Everything rare stays with the loop, which a worker
//! hands what is not its own.
//!
//! A loan is one worker's as long as it lasts, and its session has one: no packet overtakes another. A worker that ends loses what it was lent: these SAs
//! are replaced, and its packets in flight are lost.

pub mod thread;

use crate::kernel::interface;
use crate::machine::Machine;
use anyhow::{Context, Result};
use dormouse_control::{Check, CheckOutcome};
use dormouse_io::bell::Bell;
use dormouse_io::netlink::{MARK, Netlink, set_mark};
use dormouse_io::tun::{Tun, TunOptions};
use dormouse_io::udp::Udp;
use dormouse_keying::ChildId;
use dormouse_node::config::Resolved;
use dormouse_node::config::file::{self, DataPath, Role};
use dormouse_node::host::{Host, Lend, Usage, worker};
use dormouse_sansio::packet::Received;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::PoisonError;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use thread::{Back, Carried, Command, Reports, Thread};

pub(crate) use thread::Report;

/// The name of them among the offloads.
pub(crate) const OFFLOAD: &str = "workers";
/// What waits for the loop at most; what comes above is lost, as in a full socket.
const REPORTS: usize = 512;
/// What is handed to a worker and waits for it at most.
const COMMANDS: usize = 4_096;
/// A worker gives a loan back within so long, or has lost it: it is at one batch of packets, and what its interface holds.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Held {
    worker: usize,
    remote: Vec<IpNet>,
    inner_mtu: usize,
    carried: Carried,
}

#[derive(Debug)]
struct One {
    index: u32,
    name: String,
    /// Until it begins: as late as possible, as a thread has the privileges of the one that begins it.
    tun: Option<Tun>,
    /// Keeps the interface, and the routes over it, when the thread has ended.
    _kept: OwnedFd,
    bell: Bell,
    commands: Option<SyncSender<Command>>,
    thread: Option<std::thread::JoinHandle<()>>,
    /// Why it carries nothing any more.
    ended: Option<String>,
}

/// See the module. Readable when a worker has something for the loop.
#[derive(Debug)]
pub(crate) struct Workers {
    all: Vec<One>,
    loans: BTreeMap<ChildId, Held>,
    /// Workers that have a loan with which they have not begun.
    beginning: BTreeSet<usize>,
    reports: Receiver<Report>,
    reporter: Reports,
}

/// How many workers there are to be.
///
/// # Errors
/// Why none.
pub(crate) fn wanted(
    settings: &file::Daemon,
    connections: &[Resolved],
    hip: bool,
) -> std::result::Result<u16, String> {
    let processors = std::thread::available_parallelism().map_or(1, Into::into);
    match settings.workers.on(processors) {
        0 if settings.workers == file::Workers::Auto => Err("the machine has one processor".into()),
        0 => Err("daemon.workers = 0".into()),
        _ if hip || connections.is_empty() || connections.iter().any(|c| c.role != Role::Gateway) => {
            Err("this machine is more than a gateway".into())
        }
        _ if settings.data_path != DataPath::User => Err("daemon.data_path is not \"user\"".into()),
        number => Ok(number),
    }
}

impl Workers {
    /// So many, as root. Their threads begin with the first loan.
    ///
    /// # Errors
    /// If the interfaces cannot be made.
    pub(crate) fn new(netlink: &mut Netlink, tun: &Tun, options: &TunOptions, number: u16) -> Result<Self> {
        let (sender, reports) = sync_channel(REPORTS);
        let reporter = Reports::new(sender, Bell::new()?);
        let one = |n: u16| -> Result<One> {
            let name = interface(tun.name(), &format!("w{n}"));
            let options = TunOptions { name: Some(name.clone()), ..options.clone() };
            let tun = Tun::open(&options).context("an interface of a worker (daemon.workers)")?;
            let index = tun.index()?;
            netlink.set_without_addresses(index)?;
            let kept = tun.as_fd().try_clone_to_owned()?;
            let bell = Bell::new()?;
            let (tun, commands) = (Some(tun), None);
            Ok(One { index, name, tun, _kept: kept, bell, commands, thread: None, ended: None })
        };
        let all = (0..number).map(one).collect::<Result<Vec<_>>>()?;
        Ok(Self { all, loans: BTreeMap::new(), beginning: BTreeSet::new(), reports, reporter })
    }

    /// Their interfaces: indices and names.
    pub(crate) fn interfaces(&self) -> impl Iterator<Item = (u32, &str)> {
        self.all.iter().map(|one| (one.index, one.name.as_str()))
    }

    /// How many loans they have.
    pub(crate) fn loans(&self) -> usize {
        self.loans.len()
    }

    /// The worker with the fewest loans.
    fn freest(&self) -> Option<usize> {
        let loans = |n: usize| self.loans.values().filter(|held| held.worker == n).count();
        let there = self.all.iter().enumerate().filter(|(_, one)| one.ended.is_none());
        there.map(|(n, _)| (loans(n), n)).min().map(|(_, n)| n)
    }

    /// A worker takes an SA: it waits with it until [`Self::begin`], and nothing leads there before [`Self::lead`].
    ///
    /// # Errors
    /// Why not; the SA was not touched then.
    pub(crate) fn lend(&mut self, machine: &Machine, host: &mut Host, lend: &Lend) -> Result<()> {
        let (loan, child) = (&lend.loan, lend.loan.child);
        anyhow::ensure!(machine.leads_to(&lend.remote), "no routes lead to its traffic alone");
        let n = self.freest().context("all workers have ended")?;
        let one = self.all.get_mut(n).context("no worker")?;
        one.start(n, &self.reporter)?;
        let socket = Udp::of_peer(&loan.path).context("a socket for its path")?;
        set_mark(&socket, MARK).context("marking a worker's packets")?;
        let carried = Carried::default();
        let observer = host.observer_of(child).map(Box::new);
        let taken =
            Command::Take { loan: Box::new(loan.clone()), observer, socket, carried: carried.clone() };
        anyhow::ensure!(one.tell(taken), "the worker is busy, or has ended");
        let (remote, inner_mtu) = (lend.remote.clone(), loan.inner_mtu);
        self.loans.insert(child, Held { worker: n, remote, inner_mtu, carried });
        self.beginning.insert(n);
        Ok(())
    }

    /// What is for a loan leads to its worker from now on.
    ///
    /// # Errors
    /// The kernel's, of a route.
    pub(crate) fn lead(&self, machine: &mut Machine, child: ChildId) -> Result<()> {
        let Some((held, one)) = self.loans.get(&child).and_then(|h| Some((h, self.all.get(h.worker)?)))
        else {
            return Ok(());
        };
        machine.lead_over(one.index, &held.remote, held.inner_mtu)
    }

    /// Some worker waits with a loan.
    pub(crate) fn is_beginning(&self) -> bool {
        !self.beginning.is_empty()
    }

    /// They begin: what came before is sent, or was passed on.
    pub(crate) fn begin(&mut self) {
        for n in std::mem::take(&mut self.beginning) {
            // One that cannot be told has ended, and its loans are lost.
            let _told = self.all.get(n).is_some_and(|one| one.tell(Command::Begin));
        }
    }

    /// A datagram of a loan that was in the ordinary socket.
    pub(crate) fn pass_on(&self, from: Received, datagram: &[u8]) {
        let spi = datagram.first_chunk().map(|spi| ChildId::new(u32::from_be_bytes(*spi)));
        let one = spi.and_then(|id| self.loans.get(&id)).and_then(|held| self.all.get(held.worker));
        // Lost if too many wait, as in a full socket.
        let _passed = one.is_some_and(|one| one.tell(Command::PassOn(from, datagram.to_vec())));
    }

    /// What it has carried of a loan; `None` if its worker has ended.
    pub(crate) fn read(&self, child: ChildId) -> Option<Usage> {
        let held = self.loans.get(&child)?;
        self.all.get(held.worker).filter(|one| one.ended.is_none())?;
        Some(*held.carried.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A worker carries a loan no more. First nothing new leads to it, then it sends and opens what is there.
    pub(crate) fn recall(
        &mut self,
        machine: &mut Machine,
        host: &mut Host,
        child: ChildId,
    ) -> Option<worker::Back> {
        let held = self.loans.remove(&child)?;
        let one = self.all.get_mut(held.worker)?;
        machine.lead_back(one.index, &held.remote);
        let (answer, back) = sync_channel(1);
        if !one.tell(Command::Recall(child, answer)) {
            return None;
        }
        match back.recv_timeout(PATIENCE) {
            Ok(Back { back, dropped }) => {
                host.count_dropped(&dropped);
                back
            }
            Err(e) => {
                tracing::error!(%child, worker = one.name, "a worker does not give an SA back: {e}");
                // The loop waits for it once, not for each of its loans, nor for its end.
                (one.ended, one.commands, one.thread) = (Some("it did not answer".to_owned()), None, None);
                None
            }
        }
    }

    /// The next thing that a worker has for the loop.
    pub(crate) fn next(&mut self) -> Option<Report> {
        let report = self.reports.try_recv().ok()?;
        if let Report::Ended(n, why) = &report
            && let Some(one) = self.all.get_mut(*n)
        {
            tracing::error!(worker = one.name, why, "a worker has ended; what it was lent is replaced");
            (one.ended, one.commands) = (Some(why.clone()), None);
        }
        Some(report)
    }

    /// What a worker has that has ended.
    pub(crate) fn loans_of(&self, n: usize) -> Vec<ChildId> {
        self.loans.iter().filter(|(_, held)| held.worker == n).map(|(child, _)| *child).collect()
    }

    /// The bell: rung for [`Self::next`].
    pub(crate) fn bell(&self) -> &Bell {
        self.reporter.bell()
    }

    /// Why nothing is carried, if no worker is left.
    pub(crate) fn all_ended(&self) -> Option<String> {
        let mut why = self.all.iter().map(|one| one.ended.clone());
        let last = why.next_back()??;
        why.all(|why| why.is_some()).then(|| format!("all workers have ended, the last because of: {last}"))
    }

    /// For `doctor`.
    pub(crate) fn check(&self) -> Check {
        let ended: Vec<&str> =
            self.all.iter().filter(|one| one.ended.is_some()).map(|one| one.name.as_str()).collect();
        let loans = |n: usize| self.loans.values().filter(|held| held.worker == n).count();
        let each: Vec<String> =
            self.all.iter().enumerate().map(|(n, one)| format!("{} {}", one.name, loans(n))).collect();
        let found = format!("{} workers; SAs now: {}", self.all.len(), each.join(", "));
        let (outcome, found, change) = match ended.as_slice() {
            [] => (CheckOutcome::Ok, found, None),
            ended => (
                CheckOutcome::Warning,
                format!("{found}; ended: {}", ended.join(", ")),
                Some("the log says why; systemctl restart dormoused begins them again".to_owned()),
            ),
        };
        Check { name: OFFLOAD.into(), outcome, found, change }
    }

    /// They end.
    pub(crate) fn end(&mut self) {
        self.loans.clear();
        // None waits any more for room for what it has to say.
        self.reports = sync_channel(1).1;
        for one in &mut self.all {
            one.commands = None;
            one.bell.ring();
            if let Some(thread) = one.thread.take() {
                let _ended = thread.join();
            }
        }
    }
}

impl AsFd for Workers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reporter.bell().as_fd()
    }
}

impl One {
    fn start(&mut self, n: usize, reporter: &Reports) -> Result<()> {
        let Some(tun) = self.tun.take() else { return Ok(()) };
        let (commands, orders) = sync_channel(COMMANDS);
        let (bell, reports) = (self.bell.clone(), reporter.clone());
        let thread = std::thread::Builder::new().name(format!("worker {n}")).spawn(move || {
            thread::run(n, &reports, move |reports| Thread::new(tun, bell, orders, reports));
        });
        self.thread = Some(thread.context("a thread for a worker")?);
        self.commands = Some(commands);
        Ok(())
    }

    /// False if it is too busy, or has ended.
    fn tell(&self, command: Command) -> bool {
        let told = self.commands.as_ref().is_some_and(|commands| commands.try_send(command).is_ok());
        self.bell.ring();
        told
    }
}

//! One worker's thread: its interface, its sockets, and the loop around them. Owns the SAs that it was lent; what it does to a packet is the host's own
//! ([`Worker`]). Must never wait for the loop: what it has for that may be lost.

use crate::turns::{BUDGET, EIO, ERRORS, ROUNDS, SHARE, WAIT, WAITS};
use dormouse_io::SuperPacket;
use dormouse_io::batch::{Carriers, Opener, RxBatch, Sealer, TxBatch};
use dormouse_io::bell::Bell;
use dormouse_io::clock::BootClock;
use dormouse_io::entropy::OsEntropy;
use dormouse_io::poller::{Interest, Poller, Ready};
use dormouse_io::tun::Tun;
use dormouse_io::udp::{PathError, Sent, Udp};
use dormouse_keying::ChildId;
use dormouse_node::host::worker::{self, Came, Dropped, Worker};
use dormouse_node::host::{Loan, Observer, Usage};
use dormouse_sansio::packet::{Geometry, Plan, Received, Sealed, Verdict};
use dormouse_sansio::{Instant, Path};
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};

const BELL: u64 = 0;
const TUN: u64 = 1;
/// The socket of a loan: this and its SPI.
const SOCKET: u64 = 1 << 32;
/// What is left in interface and socket when a loan goes back: more than their queues hold is not waited for.
const LEFT: usize = 4_096;
/// What a worker has carried of a loan, written by it after each batch.
pub type Carried = Arc<Mutex<Usage>>;

/// What the loop tells a worker.
#[derive(Debug)]
pub enum Command {
    /// It has this loan; it waits with it.
    Take {
        /// The SA.
        loan: Box<Loan>,
        /// Sees its packets.
        observer: Option<Box<Observer>>,
        /// What comes its way comes here.
        socket: Udp,
        /// Where the worker says what it has carried.
        carried: Carried,
    },
    /// This came to the ordinary socket before.
    PassOn(Received, Vec<u8>),
    /// It begins with what it has.
    Begin,
    /// It gives this loan back.
    Recall(ChildId, SyncSender<Back>),
}

/// What comes back with a loan.
#[derive(Debug)]
pub struct Back {
    /// The SA with its numbers; `None` if the worker did not have it.
    pub back: Option<worker::Back>,
    /// What it has dropped since the last time.
    pub dropped: Dropped,
}

/// What a worker has for the loop.
#[derive(Debug)]
pub enum Report {
    /// It is none of its loans': as if it had come to the ordinary socket.
    Datagram(Received, Vec<u8>),
    /// An ICMP error about what it has sent.
    Error(PathError),
    /// A batch of this SA was larger than the outer link takes.
    TooBig(ChildId),
    /// It has ended, and why.
    Ended(usize, String),
}

/// The way to the loop.
#[derive(Clone, Debug)]
pub struct Reports {
    sender: SyncSender<Report>,
    bell: Bell,
}

impl Reports {
    /// Reports go to `sender`, and ring `bell`.
    #[must_use]
    pub const fn new(sender: SyncSender<Report>, bell: Bell) -> Self {
        Self { sender, bell }
    }

    pub(super) const fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Lost if too many wait.
    fn report(&self, report: Report) {
        let _sent = self.sender.try_send(report);
        self.bell.ring();
    }
}

/// Runs a worker until the loop has no more for it; what ends it otherwise is reported.
pub fn run(n: usize, reports: &Reports, make: impl FnOnce(Reports) -> io::Result<Thread>) {
    let work = || make(reports.clone()).and_then(Thread::run);
    let why = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return,
        Ok(Err(e)) => e.to_string(),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".into())
        }
    };
    // This one is not lost: the loop takes what waits, or has ended too.
    let _sent = reports.sender.send(Report::Ended(n, why));
    reports.bell.ring();
}

/// See the module.
pub struct Thread {
    worker: Worker,
    tun: Tun,
    /// A socket for each loan.
    carriers: Carriers,
    /// Whose each of them is, in their order.
    sockets: Vec<ChildId>,
    carried: BTreeMap<ChildId, Carried>,
    tx: TxBatch,
    rx: RxBatch,
    poller: Poller,
    bell: Bell,
    commands: Receiver<Command>,
    reports: Reports,
    /// It waits with what it has.
    waiting: bool,
    /// A full socket holds its interface back.
    blocked: bool,
}

impl Thread {
    /// A worker with this interface, which obeys `commands` when `bell` rings, and ends when their sender is gone.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn new(tun: Tun, bell: Bell, commands: Receiver<Command>, reports: Reports) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(&bell, BELL, Interest::READ)?;
        poller.add(&tun, TUN, Interest::READ)?;
        Ok(Self {
            worker: Worker::default(),
            tun,
            carriers: Carriers::default(),
            sockets: Vec::new(),
            carried: BTreeMap::new(),
            tx: TxBatch::new(),
            rx: RxBatch::new(),
            poller,
            bell,
            commands,
            reports,
            waiting: false,
            blocked: false,
        })
    }

    fn run(mut self) -> io::Result<()> {
        let mut ready: Vec<Ready> = Vec::new();
        loop {
            self.poller.wait(&mut ready, None)?;
            if ready.iter().any(|event| event.token == BELL) {
                self.bell.clear();
                if !self.obey()? {
                    return Ok(());
                }
            }
            let mut inside = false;
            for event in &ready {
                match event.token {
                    // What it waits with is not watched; what was ready before stays so.
                    _ if self.waiting => {}
                    BELL => {}
                    TUN => inside = true,
                    token => {
                        let child = ChildId::new((token - SOCKET) as u32);
                        self.receive(child, event.closed)?;
                        inside |= event.writable && self.blocked;
                    }
                }
            }
            if inside {
                self.forward()?;
            }
        }
    }

    /// What the loop has told; false: nothing will come any more.
    fn obey(&mut self) -> io::Result<bool> {
        loop {
            match self.commands.try_recv() {
                Ok(Command::Take { loan, observer, socket, carried }) => {
                    self.take(&loan, observer.map(|observer| *observer), socket, carried)?;
                }
                Ok(Command::PassOn(from, mut datagram)) => self.passed_on(&from, &mut datagram),
                Ok(Command::Begin) => self.wait(false)?,
                Ok(Command::Recall(child, answer)) => {
                    let back = self.give_back(child)?;
                    // The loop has given up waiting otherwise.
                    let _answered = answer.send(back);
                }
                Err(TryRecvError::Empty) => return Ok(true),
                Err(TryRecvError::Disconnected) => return Ok(false),
            }
        }
    }

    fn take(
        &mut self,
        loan: &Loan,
        observer: Option<Observer>,
        socket: Udp,
        carried: Carried,
    ) -> io::Result<()> {
        // What cannot be taken is not there to be given back: it counts as lost.
        if let Err(e) = self.worker.take(loan, observer, &mut OsEntropy) {
            tracing::error!(child = %loan.child, %e, "a loan cannot be taken");
            return Ok(());
        }
        self.wait(true)?;
        self.poller.add(&socket, SOCKET + u64::from(loan.child.spi()), Interest::NONE)?;
        self.carriers.udp.push(socket);
        self.sockets.push(loan.child);
        self.carried.insert(loan.child, carried);
        Ok(())
    }

    /// It reads nothing while it waits.
    fn wait(&mut self, waiting: bool) -> io::Result<()> {
        self.waiting = waiting;
        self.watch()
    }

    fn watch(&self) -> io::Result<()> {
        let (tun, socket) = match (self.waiting, self.blocked) {
            (true, _) => (Interest::NONE, Interest::NONE),
            (false, true) => (Interest::NONE, Interest::BOTH),
            (false, false) => (Interest::READ, Interest::READ),
        };
        self.poller.modify(&self.tun, TUN, tun)?;
        for (udp, child) in self.carriers.udp.iter().zip(&self.sockets) {
            self.poller.modify(udp, SOCKET + u64::from(child.spi()), socket)?;
        }
        Ok(())
    }

    fn passed_on(&mut self, from: &Received, datagram: &mut [u8]) {
        let mut touched = None;
        let mut plane = Plane::new(&mut self.worker, &self.reports, &self.carried, &mut touched);
        if let Verdict::Deliver(range) = plane.open(from, &mut (), datagram) {
            // Lost if the interface's queue is full, as on any network.
            let _lost = self.tun.write(&[IoSlice::new(datagram.get(range).unwrap_or_default())]);
        }
        plane.publish();
    }

    /// What came to the socket of a loan. True if there may be more.
    fn receive(&mut self, child: ChildId, errors: bool) -> io::Result<bool> {
        let at = self.sockets.iter().position(|of| *of == child);
        let Some(socket) = at.and_then(|at| self.carriers.udp.get(at)) else { return Ok(false) };
        let mut touched = None;
        let mut plane = Plane::new(&mut self.worker, &self.reports, &self.carried, &mut touched);
        let (mut bytes, mut more) = (0, false);
        for _ in 0..ROUNDS {
            let progress = self.rx.receive(socket, &mut self.tun, &mut plane)?;
            (bytes, more) = (bytes + progress.bytes, progress.more);
            if !progress.more || bytes >= SHARE {
                break;
            }
        }
        plane.publish();
        if errors {
            for _ in 0..ERRORS {
                let Ok(Some(error)) = socket.next_error() else { break };
                self.reports.report(Report::Error(error));
            }
        }
        Ok(more)
    }

    /// From its interface to the sockets; how many were read, and whether there may be more.
    fn forward(&mut self) -> io::Result<(usize, bool)> {
        let mut touched = None;
        let mut plane = Plane::new(&mut self.worker, &self.reports, &self.carried, &mut touched);
        let progress = match self.tx.forward(&mut self.tun, &mut self.carriers, &mut plane, BUDGET) {
            Ok(progress) => progress,
            // The interface was switched off: what it carried is lost.
            Err(e) if e.raw_os_error() == Some(EIO) => Default::default(),
            Err(e) => return Err(e),
        };
        plane.publish();
        if self.tx.is_blocked() != self.blocked {
            self.blocked = self.tx.is_blocked();
            self.watch()?;
        }
        Ok((progress.read, progress.more))
    }

    /// Nothing new comes for this loan: what is there is sent and opened, then it goes back.
    fn give_back(&mut self, child: ChildId) -> io::Result<Back> {
        let (mut left, mut waits) = (LEFT, WAITS);
        loop {
            let (read, more) = self.forward()?;
            left = left.saturating_sub(read);
            if self.blocked && waits > 0 {
                waits -= 1;
                std::thread::sleep(WAIT);
            } else if self.blocked || !more || left == 0 {
                break;
            }
        }
        if let Some(at) = self.sockets.iter().position(|of| *of == child) {
            if let Some(socket) = self.carriers.udp.get(at) {
                // Then what comes until it is closed is lost.
                if let Err(e) = socket.leave_peer() {
                    tracing::warn!(%e, %child, "the socket of a loan");
                }
            }
            for _ in 0..LEFT / ROUNDS {
                if !self.receive(child, false)? {
                    break;
                }
            }
            self.sockets.swap_remove(at);
            self.poller.remove(self.carriers.udp.swap_remove(at))?;
        }
        self.carried.remove(&child);
        let (back, dropped) = (self.worker.give_back(child), self.worker.take_dropped());
        Ok(Back { back, dropped })
    }
}

/// A worker as the batches see it, for one turn.
struct Plane<'a> {
    now: Instant,
    worker: &'a mut Worker,
    reports: &'a Reports,
    carried: &'a BTreeMap<ChildId, Carried>,
    /// The loan of the last packet, if that is not published.
    touched: &'a mut Option<ChildId>,
}

impl<'a> Plane<'a> {
    fn new(
        worker: &'a mut Worker,
        reports: &'a Reports,
        carried: &'a BTreeMap<ChildId, Carried>,
        touched: &'a mut Option<ChildId>,
    ) -> Self {
        Self { now: BootClock::now(), worker, reports, carried, touched }
    }

    fn touch(&mut self, child: ChildId) {
        if *self.touched != Some(child) {
            self.publish();
            *self.touched = Some(child);
        }
    }

    /// Says what was carried.
    fn publish(&mut self) {
        let touched = self.touched.take().and_then(|id| self.carried.get(&id).zip(self.worker.usage(id)));
        if let Some((carried, usage)) = touched {
            *carried.lock().unwrap_or_else(PoisonError::into_inner) = usage;
        }
    }
}

impl Sealer for Plane<'_> {
    fn plan(&mut self, packet: &mut SuperPacket<'_>) -> Plan {
        self.worker.plan(self.now, packet)
    }

    fn seal(&mut self, geometry: &Geometry, slots: &mut [u8], sizes: &[usize]) -> Option<Sealed> {
        self.touch(ChildId::new(geometry.route));
        self.worker.seal(geometry, slots, sizes)
    }

    fn unsent(&mut self, geometry: &Geometry, path: &Path, sent: Sent) {
        tracing::debug!(%path, ?sent, "not sent");
        if matches!(sent, Sent::TooBig) {
            self.reports.report(Report::TooBig(ChildId::new(geometry.route)));
        }
        self.worker.not_sent();
    }
}

impl Opener for Plane<'_> {
    type Train = ();

    fn open(&mut self, from: &Received, (): &mut (), datagram: &mut [u8]) -> Verdict {
        match self.worker.open(self.now, from, datagram) {
            Came::Packet(range) => {
                if let Some(spi) = datagram.first_chunk() {
                    self.touch(ChildId::new(u32::from_be_bytes(*spi)));
                }
                Verdict::Deliver(range)
            }
            Came::Nothing => Verdict::Done,
            Came::Others => {
                self.reports.report(Report::Datagram(*from, datagram.to_vec()));
                Verdict::Done
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn a_worker_that_fails_or_panics_says_so() {
        let (sender, receiver) = sync_channel(1);
        let reports = Reports::new(sender, Bell::new().expect("a bell"));
        let ended = |make: fn(Reports) -> io::Result<Thread>| {
            run(3, &reports, make);
            match receiver.try_recv() {
                Ok(Report::Ended(3, why)) => why,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(ended(|_| panic!("of no use")), "of no use");
        assert_eq!(ended(|_| panic!("of {} uses", 2)), "of 2 uses");
        assert_eq!(ended(|_| Err(io::Error::other("no descriptors"))), "no descriptors");
    }
}

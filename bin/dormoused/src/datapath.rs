//! The data path of the daemon: what happens to packets when the TUN or a socket is ready. Owns the wires (TUN, sockets, their
//! buffers) and the order of reading and writing them. It decides nothing: the host is asked about every packet.

use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::time::Duration;

use crate::daemon::{Daemon, MESSAGES, RAW, TUN, UDP};
use crate::engine::Esp;
use crate::radius::RadiusSockets;
use crate::turns::{BUDGET, EIO, ERRORS, ROUNDS, SHARE, WAIT, WAITS};
use crate::workers::Report;
use anyhow::{Context, Result};
use dormouse_control::Offload;
use dormouse_io::SuperPacket;
use dormouse_io::batch::{Carriers, Opener, RxBatch, Sealer, TxBatch};
use dormouse_io::clock::BootClock;
use dormouse_io::poller::{Interest, Ready};
use dormouse_io::tun::Tun;
use dormouse_io::udp::{PathError, PathErrorKind, Sent};
use dormouse_keying::ChildId;
use dormouse_node::host::{Datagram, Host, Lend, NotSent, Order};
use dormouse_node::{Node, Train};
use dormouse_sansio::packet::{Geometry, Plan, Received, Sealed, Verdict};
use dormouse_sansio::{Deadline, Instant, Path};
use ipnet::IpNet;

/// After a packet, so long it is taken for likely that another one waits behind the next. Looking for one that is not there costs a system call.
const SOON: Duration = Duration::from_micros(200);
/// So long after a packet, packets are said to flow: no timer is set for each.
const FLOWS: Duration = Duration::from_secs(1);
/// Receptions from a socket that has messages of key management alone, where others have [`ROUNDS`]: they wait, and packets wait for nothing but the reading.
const MESSAGE_ROUNDS: usize = 4;
/// Turns in which what was on its way before a loan is taken, and things that workers have for the loop before others have their turn.
const DRAINS: usize = 64;

/// What carries packets on both sides.
pub(crate) struct Wires {
    pub(crate) tun: Tun,
    pub(crate) tun_mtu: u16,
    pub(crate) carriers: Carriers,
    /// To RADIUS servers.
    pub(crate) radius: RadiusSockets,
    /// What carries ESP under load beside the loop.
    pub(crate) engine: Esp,
    tx: TxBatch,
    rx: RxBatch,
    /// A full socket holds the TUN back: its queue is where packets wait.
    blocked: bool,
    /// When the TUN was last read, and whether there were several packets.
    read: (Instant, bool),
    /// When packets were dealt with last.
    pub(crate) moved: Instant,
}

impl Wires {
    pub(crate) fn new(tun: Tun, tun_mtu: u16, carriers: Carriers, engine: Esp) -> Self {
        Self {
            tun,
            tun_mtu,
            carriers,
            radius: RadiusSockets::default(),
            engine,
            tx: TxBatch::new(),
            rx: RxBatch::new(),
            blocked: false,
            read: (Instant::ZERO, false),
            moved: Instant::ZERO,
        }
    }

    /// Sends one datagram, or several of one size.
    pub(crate) fn send(&mut self, datagram: &Datagram, bytes: &[u8]) -> Result<(), NotSent> {
        let Datagram { path, ecn, segment, fragmentable } = datagram;
        let sent = if *fragmentable {
            self.carriers.send_fragmentable(path, bytes, *segment)
        } else {
            self.carriers.send(path, *ecn, bytes, *segment)
        };
        outcome(path, sent)
    }

    /// A datagram was in the socket when an engine took what comes: the kernel gets it from there.
    pub(crate) fn pass_on(&mut self, path: Path, datagram: &[u8]) {
        if self.engine.pass_on(path, datagram) {
            return;
        }
        let again = Path { remote: path.local, ..path };
        let _lost = self.carriers.send(&again, 0, datagram, None);
    }

    /// The socket that held the TUN back has room again.
    pub(crate) fn may_go_on(&self) -> bool {
        self.blocked && !self.tx.is_blocked()
    }
}

impl Daemon {
    /// Waits until a descriptor is ready, but not while messages wait or a deadline has passed; for `daemon.spin` after the last packet without rest.
    pub(crate) fn wait(&self, ready: &mut Vec<Ready>) -> Result<()> {
        let poller = &self.wakers.poller;
        if self.wakers.due || self.host.has_arrivals(BootClock::now()) {
            poller.wait(ready, Some(Duration::ZERO))?;
            return Ok(());
        }
        match self.settings.spin.time() {
            Some(time) => poller.wait_restlessly(ready, || BootClock::now() < self.wires.moved + time)?,
            None => poller.wait(ready, None)?,
        }
        Ok(())
    }

    /// Sets the timer; exactly, unless packets flow: where they have ended, and a radio may be off, nothing wakes the machine early. What is due already
    /// needs none: while newcomers wait for their turns something is due in each, and to set a timer took a tenth of a gateway's time.
    pub(crate) fn arm(&mut self, now: Instant, next: Option<Deadline>) -> Result<()> {
        self.wakers.due = next.is_some_and(|next| next.at <= now);
        if self.wakers.due {
            return Ok(());
        }
        if now.saturating_since(self.wires.moved) < FLOWS {
            self.wakers.timer.arm_by(next)?;
        } else {
            self.wakers.timer.arm(next, false)?;
        }
        Ok(())
    }

    /// Offloads in use, for `status`.
    pub(crate) fn offloads(&self) -> Vec<Offload> {
        let o = self.wires.tun.offloads();
        let off = |name: &str, active: bool| Offload {
            name: name.into(),
            active,
            why: (!active).then(|| {
                if self.settings.offload {
                    "refused by the kernel".into()
                } else {
                    "daemon.offload = false".into()
                }
            }),
        };
        vec![
            off("tun-tso", o.vnet),
            off("tun-uso", o.uso),
            off("tun-join-tcp", o.join_tcp),
            off("tun-join-udp", o.join_udp),
            self.wires.engine.offload(),
        ]
    }

    /// Gateway: these prefixes are reached through the tunnel, by whichever interface.
    pub(crate) fn peer_routes(&mut self, routes: &[IpNet], source: Option<IpAddr>) {
        self.machine.peer_routes(routes, source);
    }

    /// What the host wants of another engine.
    pub(crate) fn obey_lending(&mut self, now: Instant, order: Order) {
        match order {
            Order::Lend(lend) => self.lend(now, &lend),
            Order::ReadLoan { child } => self.wires.engine.read(now, &mut self.host, child),
            Order::Recall { child } => self.recall(now, child),
            Order::PassOn { path, datagram } => self.wires.pass_on(path, &datagram),
            _ => {}
        }
    }

    /// Another engine carries an SA from now on. What waits in the TUN goes first: its numbers are lower, and a peer's window may be narrow.
    fn lend(&mut self, now: Instant, lend: &Lend) {
        let Wires { engine, carriers, .. } = &mut self.wires;
        if !engine.lend(now, (&self.machine, carriers), &mut self.host, lend) {
            return;
        }
        // Unless something else is ordered that may have to be done before anything is sent, or it waits for all of that.
        if !self.host.has_orders() && !self.wires.engine.is_beginning() {
            let (wires, mut plane) = self.split(now);
            let _what = wires.tx.forward(&mut wires.tun, &mut wires.carriers, &mut plane, BUDGET);
        }
        let child = lend.loan.child;
        match self.wires.engine.lead(&mut self.machine, child) {
            Ok(()) => tracing::debug!(%child, path = %lend.loan.path, "{} carries it", self.wires.engine),
            Err(e) => {
                tracing::warn!("{}: {}", self.wires.engine, dormouse_io::causes(&*e));
                self.recall(now, child);
            }
        }
    }

    fn recall(&mut self, now: Instant, child: ChildId) {
        let Wires { engine, carriers, .. } = &mut self.wires;
        engine.recall(now, (&mut self.machine, carriers), &mut self.host, child);
    }

    /// What was on its way before an SA was lent to a worker that waits for it.
    pub(crate) fn drain_wires(&mut self, now: Instant) {
        let mut waits = WAITS;
        for _ in 0..DRAINS {
            let (wires, mut plane) = self.split(now);
            match wires.tx.forward(&mut wires.tun, &mut wires.carriers, &mut plane, BUDGET) {
                // What a full socket has not taken would be overtaken by what the worker sends.
                Ok(_) if wires.tx.is_blocked() && waits > 0 => {
                    waits -= 1;
                    std::thread::sleep(WAIT);
                }
                Ok(progress) if progress.more && !wires.tx.is_blocked() => {}
                _ => break,
            }
        }
        for index in 0..self.wires.carriers.udp.len() {
            for _ in 0..DRAINS {
                let (wires, mut plane) = self.split(now);
                let Some(socket) = wires.carriers.udp.get(index) else { break };
                if !wires.rx.receive(socket, &mut wires.tun, &mut plane).is_ok_and(|progress| progress.more) {
                    break;
                }
            }
        }
    }

    /// What workers have for the loop.
    pub(crate) fn workers_report(&mut self, now: Instant) {
        let Esp::Workers(workers) = &mut self.wires.engine else { return };
        workers.bell().clear();
        for _ in 0..DRAINS {
            let Esp::Workers(workers) = &mut self.wires.engine else { return };
            let Some(report) = workers.next() else { return };
            match report {
                Report::Datagram(from, datagram) => self.take_in(now, &from, datagram),
                Report::Error(error) => take_error(self.host.node_mut(), now, error),
                Report::TooBig(child) => self.host.batch_not_sent(now, child.spi(), NotSent::TooBig),
                Report::Ended(worker, _) => {
                    for child in workers.loans_of(worker) {
                        self.recall(now, child);
                    }
                }
            }
        }
        if let Esp::Workers(workers) = &self.wires.engine {
            workers.bell().ring();
        }
    }

    /// A datagram came to a worker's socket that is none of its loan.
    fn take_in(&mut self, now: Instant, from: &Received, mut datagram: Vec<u8>) {
        let verdict = self.host.open(now, from, &mut Train::default(), &mut datagram);
        if let Verdict::Deliver(range) = verdict {
            // Lost if the TUN's queue is full, as on any network.
            let _lost = self.wires.tun.write(&[IoSlice::new(datagram.get(range).unwrap_or_default())]);
        }
    }

    /// The wires, and what decides about what comes over them.
    fn split(&mut self, now: Instant) -> (&mut Wires, Plane<'_>) {
        (&mut self.wires, Plane { host: &mut self.host, now })
    }

    /// What came to a socket; if it has `errors`, they are read too.
    pub(crate) fn receive(&mut self, now: Instant, index: usize, errors: bool) -> Result<()> {
        let (wires, mut plane) = self.split(now);
        let Some(socket) = wires.carriers.udp.get(index) else { return Ok(()) };
        let mut bytes = 0;
        for _ in 0..ROUNDS {
            let progress = wires.rx.receive(socket, &mut wires.tun, &mut plane)?;
            bytes += progress.bytes;
            if !progress.more || bytes >= SHARE {
                break;
            }
        }
        if errors {
            read_errors(&mut plane, || socket.next_error());
        }
        Ok(())
    }

    /// As [`Self::receive`], of those sockets that have messages of key management alone. They come first: a packet may be of an SA that one of them makes.
    pub(crate) fn receive_messages(&mut self, now: Instant, ready: &[Ready]) -> Result<()> {
        let (wires, mut plane) = self.split(now);
        for event in ready.iter().filter(|event| (MESSAGES..RAW).contains(&event.token)) {
            let Some(socket) = wires.carriers.messages.get((event.token - MESSAGES) as usize) else {
                continue;
            };
            for _ in 0..MESSAGE_ROUNDS {
                if !wires.rx.receive(socket, &mut wires.tun, &mut plane)?.more {
                    break;
                }
            }
            if event.closed {
                read_errors(&mut plane, || socket.next_error());
            }
        }
        Ok(())
    }

    /// As [`Self::receive`], of a raw socket.
    pub(crate) fn receive_raw(&mut self, now: Instant, index: usize, errors: bool) -> Result<()> {
        let (wires, mut plane) = self.split(now);
        let Some(socket) = wires.carriers.raw.get(index) else { return Ok(()) };
        wires.rx.receive_raw(socket, &mut wires.tun, &mut plane)?;
        if errors {
            read_errors(&mut plane, || socket.next_error());
        }
        Ok(())
    }

    /// From the TUN to the sockets.
    pub(crate) fn forward_packets(&mut self, now: Instant) -> Result<()> {
        let (wires, mut plane) = self.split(now);
        let (before, several) = wires.read;
        // Of a lone packet the poller says whether there is another one, as it is asked anyhow.
        let budget = if several || now.saturating_since(before) < SOON { BUDGET } else { 1 };
        match wires.tx.forward(&mut wires.tun, &mut wires.carriers, &mut plane, budget) {
            Ok(progress) => wires.read = (now, progress.read > 1),
            // The interface was switched off: what it carried is lost, the daemon goes on.
            Err(e) if e.raw_os_error() == Some(EIO) => {}
            Err(e) => return Err(e).context("reading the tunnel interface"),
        }
        let blocked = wires.tx.is_blocked();
        if blocked != wires.blocked {
            wires.blocked = blocked;
            let (tun, udp) =
                if blocked { (Interest::NONE, Interest::BOTH) } else { (Interest::READ, Interest::READ) };
            self.wakers.poller.modify(&self.wires.tun, TUN, tun)?;
            for (i, socket) in self.wires.carriers.udp.iter().enumerate() {
                self.wakers.poller.modify(socket, UDP + i as u64, udp)?;
            }
        }
        Ok(())
    }
}

/// The host as the batches see it, for one turn of the loop.
struct Plane<'a> {
    host: &'a mut Host,
    now: Instant,
}

impl Sealer for Plane<'_> {
    fn plan(&mut self, packet: &mut SuperPacket<'_>) -> Plan {
        self.host.plan(self.now, packet)
    }

    fn seal(&mut self, geometry: &Geometry, slots: &mut [u8], sizes: &[usize]) -> Option<Sealed> {
        self.host.seal(self.now, geometry, slots, sizes)
    }

    fn unsent(&mut self, geometry: &Geometry, path: &Path, sent: Sent) {
        if let Err(why) = outcome(path, sent) {
            self.host.batch_not_sent(self.now, geometry.route, why);
        }
    }
}

impl Opener for Plane<'_> {
    type Train = Train;

    fn open(&mut self, from: &Received, train: &mut Train, datagram: &mut [u8]) -> Verdict {
        self.host.open(self.now, from, train, datagram)
    }
}

/// Reads ICMP errors off a socket's queue, some of them: it goes on being reported as in error until the queue is empty.
fn read_errors(plane: &mut Plane<'_>, mut next: impl FnMut() -> io::Result<Option<PathError>>) {
    for _ in 0..ERRORS {
        let Ok(Some(error)) = next() else { return };
        tracing::debug!(?error, "ICMP");
        take_error(plane.host.node_mut(), plane.now, error);
    }
}

fn take_error(node: &mut Node, now: Instant, error: PathError) {
    match error.kind {
        PathErrorKind::TooBig(mtu) => node.path_error(now, error.destination, mtu),
        // The kernel names no port.
        PathErrorKind::LinkMtu(mtu) => node.link_mtu(now, error.destination.ip(), mtu),
        _ => {}
    }
}

fn outcome(path: &Path, sent: Sent) -> Result<(), NotSent> {
    match sent {
        Sent::All => Ok(()),
        Sent::TooBig => Err(NotSent::TooBig),
        sent => {
            tracing::debug!(%path, ?sent, "not sent");
            Err(NotSent::Failed)
        }
    }
}

//! The crowd's loop: waits, receives, applies events, sends. Owns the socket's use; must never begin a task.

use std::fmt::Display;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dormouse_ike::{CloseReason, Event, SleepVerdict};
use dormouse_io::clock::BootClock;
use dormouse_io::entropy::OsEntropy;
use dormouse_io::udp::Sent;
use dormouse_keying::{ChildId, ChildSa, SaId};
use dormouse_sansio::{Instant, Path};
use dormouse_wire::esp::{NatT, classify_natt};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::child::Child;
use super::{Client, Crowd, Doing, Done, LOOK, MARKER, PING_AGAIN, STUCK, Task};

impl Crowd {
    /// Waits for a datagram, an error or a deadline, and handles it.
    pub(super) fn turn(&mut self, start: Instant, state: impl Fn() -> String) -> Result<()> {
        ensure!(!self.settings.interrupted.load(Ordering::Relaxed), "interrupted");
        let now = BootClock::now();
        ensure!(now - start < STUCK, "{} after {STUCK:?}", state());
        self.wait(now)?;
        self.receive()?;
        let now = BootClock::now();
        if self.endpoint.poll_timeout().is_some_and(|due| due.at <= now) {
            self.endpoint.handle_timeout(now);
        }
        self.events()?;
        if now - self.looked >= LOOK {
            self.looked = now;
            self.ping_again(now)?;
        }
        Ok(())
    }

    fn wait(&self, now: Instant) -> Result<()> {
        let due = self.endpoint.poll_timeout().map_or(LOOK, |due| due.at - now).min(LOOK);
        let patience = PollTimeout::try_from(due + Duration::from_millis(1)).unwrap_or(PollTimeout::ZERO);
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, patience) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        if fds.iter().any(|fd| fd.revents().is_some_and(|r| r.contains(PollFlags::POLLERR))) {
            // ICMP errors are news of a gateway that is not there: the requests are repeated anyway.
            while self.socket.next_error()?.is_some() {}
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut datagrams: Vec<(Path, Range<usize>)> = Vec::new();
        loop {
            self.socket.receive(&mut buffer, &mut datagrams)?;
            if datagrams.is_empty() {
                break;
            }
            for (path, at) in datagrams.drain(..) {
                let gateway = self.number_at(path.local.ip()).and_then(|number| self.clients.get(number));
                if gateway.is_some_and(|client| client.gateway == path.remote)
                    && let Some(datagram) = buffer.get_mut(at)
                {
                    self.datagram(path, datagram)?;
                }
            }
        }
        self.buffer = buffer;
        Ok(())
    }

    fn datagram(&mut self, path: Path, datagram: &mut [u8]) -> Result<()> {
        match classify_natt(datagram) {
            NatT::Ike(_) => {
                let message = datagram.get_mut(MARKER..).unwrap_or_default();
                let now = BootClock::now();
                self.losses.discarded +=
                    u64::from(self.endpoint.handle_datagram(now, path, message).is_err());
                self.events()?;
                if let Some(number) = self.number_at(path.local.ip()) {
                    self.look_for_update(number);
                }
            }
            NatT::Esp(_) => self.esp(datagram),
            NatT::Keepalive | NatT::Malformed => {}
        }
        Ok(())
    }

    /// An address update is over when it has been answered.
    fn look_for_update(&mut self, number: usize) {
        let Some(client) = self.clients.get(number) else { return };
        let (Some(sa), Some(doing)) = (client.sa, client.doing) else { return };
        let trips = self.endpoint.sa_stats(sa).map_or(0, |s| s.round_trips);
        if doing.task == Task::Update && doing.ready.is_none() && trips > doing.trips {
            self.ready(number);
        }
    }

    fn esp(&mut self, datagram: &mut [u8]) {
        let spi = datagram.first_chunk().map(|b| u32::from_be_bytes(*b));
        let child = spi.and_then(|spi| self.children.get_mut(&ChildId::new(spi)));
        let Some((id, sequence)) = child.and_then(|c| c.answer(datagram)) else {
            self.losses.discarded += 1;
            return;
        };
        let number = usize::from(id);
        let Some(client) = self.clients.get_mut(number).filter(|c| c.pings == sequence) else { return };
        client.heard();
        if let Some(doing) = client.doing.as_mut().filter(|d| d.answered.is_none()) {
            doing.answered = Some(BootClock::now() - doing.began);
            self.settle(number);
        }
    }

    /// The exchange of client `number` is over.
    fn ready(&mut self, number: usize) {
        if let Some(doing) = self.clients.get_mut(number).and_then(|c| c.doing.as_mut()) {
            doing.ready = Some(BootClock::now() - doing.began);
        }
        self.settle(number);
    }

    fn settle(&mut self, number: usize) {
        let Some(client) = self.clients.get_mut(number) else { return };
        let Some(Doing { ready: Some(ready), answered: Some(answered), trips, .. }) = client.doing else {
            return;
        };
        client.doing = None;
        let now = client.sa.and_then(|sa| self.endpoint.sa_stats(sa)).map_or(0, |s| s.round_trips);
        self.done.push(Done { client: number, ready, answered, round_trips: now - trips });
    }

    fn ping_again(&mut self, now: Instant) -> Result<()> {
        let late = |c: &Client| {
            c.doing.is_some_and(|d| d.answered.is_none() && d.pinged.is_some_and(|at| now - at >= PING_AGAIN))
        };
        let late: Vec<usize> =
            self.clients.iter().enumerate().filter(|(_, c)| late(c)).map(|(number, _)| number).collect();
        for number in late {
            self.losses.pings += 1;
            self.ping(number)?;
        }
        Ok(())
    }

    pub(super) fn events(&mut self) -> Result<()> {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Established(e) => {
                    let number = *self.by_sa.get(&e.sa).context("an SA of no client")?;
                    let client = self.client(number)?;
                    client.inner = e.configuration.v4;
                    let task = client.doing.map(|d| d.task).context("a session that was not asked for")?;
                    ensure!(e.resumed == (task != Task::Full), "{task:?}, resumed: {}", e.resumed);
                    ensure!(e.dormancy, "the gateway does not know the dormancy extension");
                }
                Event::Child(change) => self.child(change)?,
                Event::Ticket { sa, ticket } => {
                    if let Some(&number) = self.by_sa.get(&sa) {
                        self.client(number)?.ticket = Some(*ticket);
                    }
                }
                Event::Heard { sa } => {
                    if let Some(&number) = self.by_sa.get(&sa) {
                        self.client(number)?.heard();
                    }
                }
                Event::LoadReport { report, .. } => self.report = Some(*report),
                Event::SleepAnswered { verdict, .. } => {
                    ensure!(matches!(verdict, SleepVerdict::Held { .. }), "an announced sleep: {verdict:?}");
                    self.open -= 1;
                }
                Event::ProbeAnswered { .. } => self.open -= 1,
                Event::ProbeFailed { sa } => self.fail(sa, "no answer")?,
                Event::Failed { sa, error } | Event::ChildFailed { sa, error } => self.fail(sa, error)?,
                Event::UpdateRefused { why, .. } => bail!("an address update was refused: {why}"),
                Event::Closed { sa, reason } => {
                    // Those that were forgotten have no client any more.
                    if let CloseReason::Refused(_) = reason
                        && self.by_sa.contains_key(&sa)
                    {
                        self.fail(sa, reason)?;
                    } else if let Some(number) = self.by_sa.remove(&sa) {
                        ensure!(reason == CloseReason::Requested, "client {number}: {reason}");
                        let client = self.client(number)?;
                        (client.sa, client.child) = (None, None);
                        self.open -= 1;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A client's exchange failed, and it has no session now. Only one that is doing something may fail.
    fn fail(&mut self, sa: SaId, error: impl Display) -> Result<()> {
        let number = *self.by_sa.get(&sa).with_context(|| format!("an SA of no client: {error}"))?;
        let client = self.client(number)?;
        ensure!(client.doing.take().is_some(), "client {number}: {error}");
        (client.sa, client.child) = (None, None);
        self.by_sa.remove(&sa);
        self.endpoint.forget(BootClock::now(), sa);
        self.failed.push((number, error.to_string()));
        Ok(())
    }

    fn child(&mut self, change: ChildSa) -> Result<()> {
        match change {
            ChildSa::Install(install) => {
                let (id, sa) = (install.child, install.owner.ike());
                let number =
                    *sa.and_then(|sa| self.by_sa.get(&sa)).context("a CHILD SA without an IKE SA")?;
                self.children.insert(id, Child::new(&install, &mut OsEntropy)?);
                self.client(number)?.child = Some(id);
                self.ping(number)?;
                self.ready(number);
            }
            ChildSa::Remove { child, .. } => {
                self.children.remove(&child);
            }
            ChildSa::Remap { .. } => {}
        }
        Ok(())
    }

    /// Events first, then what is to be sent (the contract of `dormouse_sansio`). IKE goes before pings: the packet that follows
    /// an update must not overtake it.
    pub(super) fn flush(&mut self) -> Result<()> {
        self.events()?;
        let mut out = Vec::new();
        while let Some(transmit) = self.endpoint.poll_transmit(BootClock::now(), &mut out) {
            self.send(&transmit.path, &out)?;
            out.clear();
        }
        for (path, datagram) in std::mem::take(&mut self.outgoing) {
            self.send(&path, &datagram)?;
        }
        Ok(())
    }

    fn send(&mut self, path: &Path, datagram: &[u8]) -> Result<()> {
        loop {
            match self.socket.send(path, 0, datagram, None) {
                Sent::All => return Ok(()),
                Sent::Blocked { .. } => {
                    let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLOUT)];
                    poll(&mut fds, PollTimeout::from(1_000u16))?;
                }
                Sent::TooBig => bail!("a datagram of {} bytes does not fit the path {path}", datagram.len()),
                Sent::Failed(e) => return Err(e).with_context(|| format!("sending over {path}")),
            }
        }
    }
}

//! The far machine: waits for a client that knows the secret, and does what it orders, one client at a time. Owns the port, the
//! secret and, for each client, all that was ordered; must never obey before the client has proved the secret, nor leave
//! anything behind when it goes.

use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::channel::{self, Greeting, HANDSHAKE, Identity, ServerChannel};
use super::ground;
use super::message::{Answer, Order, Welcome};
use super::side::Side;
use crate::bench::campaign::Unprivileged;
use crate::bench::{link, machine};

/// It looks so often whether it should end.
const LOOK: u8 = 200;
/// What an event is about.
const OTHERS: u64 = 0;
const CLIENT: u64 = 1;
/// A client that is silent for so long, between two orders, is sent away.
const SILENT: Duration = Duration::from_secs(3_600);
/// What it has to say takes no longer to be said.
const SAY: Duration = Duration::from_secs(20);

/// A port where one may measure with this machine.
#[derive(Debug)]
pub struct Service {
    listener: TcpListener,
    identity: Identity,
    /// Whether the link to a client is one that can be measured.
    fit: fn(IpAddr) -> Result<()>,
}

impl Service {
    /// Listens at `address` (host and port).
    ///
    /// # Errors
    /// Without privileges ([`Unprivileged`]), and if the port cannot be had.
    pub fn open(address: &str) -> Result<Self> {
        if let Some(what) = link::missing() {
            return Err(anyhow::Error::new(Unprivileged)
                .context(format!("tunnels for a client are made here, and that needs {what}")));
        }
        Self::listen(address, ground::check_link)
    }

    pub(super) fn listen(address: &str, fit: fn(IpAddr) -> Result<()>) -> Result<Self> {
        let addresses: Vec<SocketAddr> =
            address.to_socket_addrs().with_context(|| format!("{address}: expected ADDRESS:PORT"))?.collect();
        let listener = TcpListener::bind(&addresses[..]).with_context(|| format!("TCP {address}"))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, identity: Identity::new()?, fit })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn address(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// What a client must know: whoever has it may measure with this machine, as long as this service lives.
    #[must_use]
    pub fn secret(&self) -> String {
        self.identity.pass.text()
    }

    /// Serves until it is interrupted. `told` hears who comes, who goes, and why.
    ///
    /// # Errors
    /// If the port is gone; what clients do wrong ends their connection alone.
    pub fn run(&self, interrupted: &AtomicBool, told: &mut dyn FnMut(&str)) -> Result<()> {
        while !interrupted.load(Ordering::Relaxed) {
            let Some((stream, from)) = self.next_client()? else { continue };
            match self.client(stream, interrupted, &mut || told(&format!("{from}: measures"))) {
                Ok(()) => told(&format!("{from}: has left")),
                Err(error) => told(&format!("{from}: sent away: {error:#}")),
            }
        }
        Ok(())
    }

    /// Whoever connects within a moment.
    fn next_client(&self) -> Result<Option<(TcpStream, SocketAddr)>> {
        let mut waiting = [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waiting, PollTimeout::from(LOOK)) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => return Ok(None),
            Ok(_) => {}
            Err(e) => return Err(e.into()),
        }
        // A client that has gone again already is none.
        Ok(self.listener.accept().ok())
    }

    /// One client, from its greeting to its going.
    fn client(&self, stream: TcpStream, interrupted: &AtomicBool, admitted: &mut dyn FnMut()) -> Result<()> {
        let (mut channel, mut side) = self.admit(&stream)?;
        admitted();
        let events = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        events.add(&self.listener, EpollEvent::new(EpollFlags::EPOLLIN, OTHERS))?;
        events.add(&stream, EpollEvent::new(EpollFlags::EPOLLRDHUP, CLIENT))?;
        let flags = Flags::default();
        std::thread::scope(|scope| {
            scope.spawn(|| self.watch(&events, &stream, interrupted, &flags));
            let ended = converse(&mut channel, &mut side, &flags.stop);
            flags.over.store(true, Ordering::Relaxed);
            if flags.stop.load(Ordering::Relaxed) { Ok(()) } else { ended }
        })
    }

    /// Lets a client in that knows the secret and stands where it can be measured with.
    fn admit(&self, stream: &TcpStream) -> Result<(ServerChannel, Side)> {
        stream.set_nonblocking(false)?;
        channel::prepare(stream)?;
        channel::greet(&mut stream.try_clone()?, Greeting::Ready)?;
        let (mut channel, hello, proof) = channel::accept(stream.try_clone()?, &self.identity)?;
        let (ours, theirs) = channel::ends(stream)?;
        let problem = if (hello.from, hello.to) == (theirs, ours) {
            (self.fit)(theirs.ip()).err().map(|error| format!("{error:#}"))
        } else {
            Some(format!(
                "a NAT stands between the two: {} to {} there, {theirs} to {ours} here",
                hello.from, hello.to
            ))
        };
        if let Some(why) = problem {
            channel.say(&Welcome::Refused(why.clone()), HANDSHAKE)?;
            bail!(why);
        }
        let side = Side::new(1, ours.ip(), theirs.ip())?;
        let machine = Box::new(machine::describe(Path::new("/")));
        let build = crate::bench::campaign::build().to_owned();
        channel.say(&Welcome::Granted { proof, machine, build }, HANDSHAKE)?;
        Ok((channel, side))
    }

    /// Beside a client's orders: sees it go in the middle of one, says to others that it is there, and ends it all when the
    /// service is interrupted.
    fn watch(&self, events: &Epoll, stream: &TcpStream, interrupted: &AtomicBool, flags: &Flags) {
        while !flags.over.load(Ordering::Relaxed) {
            let mut ready = [EpollEvent::empty(); 2];
            let n = events.wait(&mut ready, EpollTimeout::from(LOOK)).unwrap_or(0);
            let is = |token: u64| ready.iter().take(n).any(|event| event.data() == token);
            if is(CLIENT) || interrupted.load(Ordering::Relaxed) {
                flags.stop.store(true, Ordering::Relaxed);
                // Whoever reads from it or writes to it goes on from there.
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
            if is(OTHERS)
                && let Ok((mut other, _)) = self.listener.accept()
            {
                let _ = channel::greet(&mut other, Greeting::Busy);
            }
        }
    }
}

/// What a client's conversation and the one who watches it tell each other.
#[derive(Debug, Default)]
struct Flags {
    /// The client has gone, or must.
    stop: AtomicBool,
    /// The conversation is over.
    over: AtomicBool,
}

/// Orders and answers, until the client leaves.
fn converse(channel: &mut ServerChannel, side: &mut Side, stop: &AtomicBool) -> Result<()> {
    loop {
        let order = match channel.hear::<Order>(SILENT) {
            Ok(Some(order)) => order,
            Ok(None) => return Ok(()),
            Err(error) => {
                // It may be gone; if it is not, it should know what it did.
                let _ = channel.say(&Answer::Failed(format!("{error:#}")), SAY);
                return Err(error);
            }
        };
        let answer =
            side.obey(order, stop).unwrap_or_else(|error| Answer::Failed(shortened(&format!("{error:#}"))));
        channel.say(&answer, SAY)?;
    }
}

/// What fits a message in any case.
fn shortened(text: &str) -> String {
    text.chars().take(1_000).collect()
}

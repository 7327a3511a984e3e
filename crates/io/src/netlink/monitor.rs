//! What others change: a nonblocking socket that reports links, addresses and routes.

use super::message::{About, Verb};
use super::socket::{BUFFER, descriptor, parts};
use super::{Address, Error, Link, PROTOCOL, Route, query};
use netlink_packet_core::NetlinkPayload;
use netlink_sys::Socket;
use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Multicast groups of rtnetlink: links, IPv4 and IPv6 addresses, IPv4 and IPv6 routes (`RTNLGRP_*`).
const GROUPS: [u32; 5] = [1, 5, 9, 7, 11];

/// Multicast group of nfnetlink: nftables (`NFNLGRP_NFTABLES`).
const NFTABLES: u32 = 7;

/// Something changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NetworkChange {
    /// An interface appeared or changed.
    Link(Link),
    /// An interface is gone.
    LinkGone(Link),
    /// An address appeared or changed.
    Address(Address),
    /// An address is gone.
    AddressGone(Address),
    /// A route appeared or changed.
    Route(Route),
    /// A route is gone.
    RouteGone(Route),
    /// Changes were lost, because they came faster than they were read: read everything again.
    Overrun,
}

/// The monitor. Register it with the [`crate::poller::Poller`] for reading and call [`Monitor::next`] until it returns
/// `None`. Routes of our own ([`PROTOCOL`]) and what happens on an interface given to [`Monitor::ignore`] are left out.
///
/// Events are hints: a burst of them is one reason to ask [`super::Netlink::route_to`] again, not many.
#[derive(Debug)]
pub struct Monitor {
    socket: Socket,
    buffer: Vec<u8>,
    queue: VecDeque<NetworkChange>,
    ignored: BTreeSet<u32>,
}

impl Monitor {
    /// Opens it. The network namespace is that of the calling thread.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> Result<Self, Error> {
        let socket =
            listen(NETLINK_ROUTE, &GROUPS).map_err(|source| Error { what: "ip monitor".into(), source })?;
        Ok(Self {
            socket,
            buffer: Vec::with_capacity(BUFFER),
            queue: VecDeque::new(),
            ignored: BTreeSet::new(),
        })
    }

    /// Leaves out what happens on an interface of the tunnel's own.
    pub fn ignore(&mut self, index: u32) {
        self.ignored.insert(index);
    }

    /// The next change, if there is one. Never waits.
    ///
    /// # Errors
    /// The kernel's; none is expected.
    #[expect(
        clippy::should_implement_trait,
        reason = "the convention of the I/O parts: `next` never blocks and may fail"
    )]
    pub fn next(&mut self) -> Result<Option<NetworkChange>, Error> {
        loop {
            if let Some(change) = self.queue.pop_front() {
                return Ok(Some(change));
            }
            self.buffer.clear();
            match self.socket.recv(&mut self.buffer, 0) {
                Ok(_) => self.read(),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.raw_os_error() == Some(nix::errno::Errno::ENOBUFS as i32) => {
                    return Ok(Some(NetworkChange::Overrun));
                }
                Err(source) => return Err(Error { what: "ip monitor".into(), source }),
            }
        }
    }

    fn read(&mut self) {
        for part in parts(&self.buffer) {
            let Some(NetlinkPayload::InnerMessage(message)) = part.message() else { continue };
            let gone = match message.verb {
                Verb::New => false,
                Verb::Delete => true,
                Verb::Get | Verb::Set => continue,
            };
            let change = match &message.about {
                About::Link(m) if gone => Some(NetworkChange::LinkGone(query::link(m))),
                About::Link(m) => Some(NetworkChange::Link(query::link(m))),
                About::Address(m) if gone => query::address(m).map(NetworkChange::AddressGone),
                About::Address(m) => query::address(m).map(NetworkChange::Address),
                About::Route(m) if gone => query::route(m).map(NetworkChange::RouteGone),
                About::Route(m) => query::route(m).map(NetworkChange::Route),
                About::Neighbour(_) | About::Rule(_) => None,
            };
            self.queue.extend(change.filter(|c| !own(c, &self.ignored)));
        }
    }
}

fn own(change: &NetworkChange, ignored: &BTreeSet<u32>) -> bool {
    match change {
        NetworkChange::Link(l) | NetworkChange::LinkGone(l) => ignored.contains(&l.index),
        NetworkChange::Address(a) | NetworkChange::AddressGone(a) => ignored.contains(&a.index),
        NetworkChange::Route(r) | NetworkChange::RouteGone(r) => {
            r.protocol == PROTOCOL || r.index.is_some_and(|index| ignored.contains(&index))
        }
        NetworkChange::Overrun => false,
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        descriptor(&self.socket)
    }
}

/// What anyone changes in nftables, this process included: that something did, not what.
#[derive(Debug)]
pub(crate) struct FilterChanges(Socket);

impl FilterChanges {
    pub(crate) fn new() -> io::Result<Self> {
        listen(NETLINK_NETFILTER, &[NFTABLES]).map(Self)
    }

    /// Forgets what has come. A queue that was overrun is readable again.
    pub(crate) fn drain(&self) {
        let mut buffer = Vec::with_capacity(BUFFER);
        while self.0.recv(&mut buffer, 0).is_ok() {
            buffer.clear();
        }
    }
}

impl AsFd for FilterChanges {
    fn as_fd(&self) -> BorrowedFd<'_> {
        descriptor(&self.0)
    }
}

fn listen(protocol: isize, groups: &[u32]) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    for group in groups {
        socket.add_membership(*group)?;
    }
    socket.set_non_blocking(true)?;
    Ok(socket)
}

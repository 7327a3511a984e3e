//! A UDP socket that asks questions of a gateway beside the daemon: from a port of its own, outside of the tunnel, with DF on every packet, and
//! with what ICMP says of them. Owns the socket; must never look inside a datagram. Works without privileges.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use dormouse_sansio::Instant;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use socket2::{Domain, Protocol, Socket, Type};

use crate::clock::BootClock;
use crate::netlink::{Found, MARK, set_mark};
use crate::udp::{PathErrorKind, is_the_end, read_error_and_cause};

/// Largest datagram that is taken: answers are far smaller.
const LARGEST: usize = 16_384;

/// What was heard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard {
    /// A datagram.
    Datagram {
        /// Whose.
        from: SocketAddr,
        /// What.
        bytes: Vec<u8>,
    },
    /// An ICMP error about a datagram of ours. Routers do not prove who they are.
    Error {
        /// Where the datagram was going.
        to: SocketAddr,
        /// What the error says.
        why: Why,
    },
}

/// See [`Heard::Error`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// Nobody listens at that port, or a firewall says so.
    Port,
    /// Something on the way forbids it (administratively prohibited).
    Forbidden,
    /// Host or network cannot be reached, or something else.
    Unreachable,
    /// A firewall of this machine itself forbids it.
    Here,
    /// A router, or this machine's own link, wants packets of at most this many bytes.
    TooBig(u32),
}

/// See the module's text.
#[derive(Debug)]
pub struct Asker {
    socket: UdpSocket,
    local: SocketAddr,
}

/// A socket towards a gateway: its packets go `way`, also while a tunnel takes all others. With `CAP_NET_ADMIN` by the daemon's own mark, which what the
/// daemon holds lets pass; otherwise by the interface, which a kernel before 5.7 refuses to who has no `CAP_NET_RAW`, and then as all others.
fn outside(way: &Found, interface: &str, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let local = SocketAddr::new(way.source, 0);
    let socket = Socket::new(Domain::for_address(local), kind, Some(protocol))?;
    if set_mark(&socket, MARK).is_err() {
        let _ = socket.bind_device(Some(interface.as_bytes()));
    }
    socket.bind(&local.into())?;
    Ok(socket)
}

impl Asker {
    /// A socket whose packets leave by `way` over `interface`.
    ///
    /// # Errors
    /// If the address is not there any more.
    pub fn new(way: &Found, interface: &str) -> io::Result<Self> {
        let socket = outside(way, interface, Type::DGRAM, Protocol::UDP)?;
        let socket: UdpSocket = socket.into();
        socket.set_nonblocking(true)?;
        let local = socket.local_addr()?;
        if local.is_ipv4() {
            setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?;
            set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE)?;
        } else {
            setsockopt(&socket, sockopt::Ipv6RecvErr, &true)?;
            set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::PROBE)?;
            setsockopt(&socket, sockopt::Ipv6DontFrag, &true)?;
        }
        Ok(Self { socket, local })
    }

    /// From where it sends.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// Sends. What is larger than the interface takes comes back as [`Why::TooBig`].
    ///
    /// # Errors
    /// If this machine does not let it go: no route, or a firewall of its own (`PermissionDenied`).
    pub fn send(&self, to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        let once = || self.socket.send_to(datagram, to).map(drop);
        let result = once().or_else(|e| match e.raw_os_error().map(Errno::from_raw) {
            // The kernel reports the error of an earlier packet once, instead of sending.
            Some(Errno::ECONNREFUSED | Errno::EHOSTUNREACH | Errno::ENETUNREACH | Errno::EACCES) => once(),
            _ => Err(e),
        });
        match result {
            Err(e) if e.raw_os_error() == Some(Errno::EMSGSIZE as i32) => Ok(()),
            other => other,
        }
    }

    /// What is heard next; `None`: nothing until then.
    ///
    /// # Errors
    /// The kernel's.
    pub fn hear(&self, until: Instant) -> io::Result<Option<Heard>> {
        let mut buffer = vec![0; LARGEST];
        loop {
            if let Some((error, cause, from)) = read_error_and_cause(self.socket.as_raw_fd())? {
                let ours = from == Some(self.local.ip()) && error.destination.ip() != self.local.ip();
                let why = match (error.kind, cause) {
                    (PathErrorKind::TooBig(mtu) | PathErrorKind::LinkMtu(mtu), _) => Why::TooBig(mtu),
                    _ if ours => Why::Here,
                    (_, Errno::ECONNREFUSED) => Why::Port,
                    (_, Errno::EACCES) => Why::Forbidden,
                    _ => Why::Unreachable,
                };
                return Ok(Some(Heard::Error { to: error.destination, why }));
            }
            match self.socket.recv_from(&mut buffer) {
                Ok((length, from)) => {
                    let bytes = buffer.get(..length).unwrap_or_default().to_vec();
                    return Ok(Some(Heard::Datagram { from, bytes }));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if is_the_end(&e) => return Err(e),
                // The error of a packet, which is in the queue too.
                Err(_) => continue,
            }
            let left = until.saturating_since(BootClock::now());
            if left == Duration::ZERO {
                return Ok(None);
            }
            let mut waited = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
            match poll(&mut waited, timeout) {
                Err(Errno::EINTR) | Ok(_) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

/// Whether the machine at `to` answers a TCP connection, be it by a refusal: it is there.
#[must_use]
pub fn answers_tcp(way: &Found, interface: &str, to: SocketAddr, patience: Duration) -> bool {
    let Ok(socket) = outside(way, interface, Type::STREAM, Protocol::TCP) else { return false };
    match socket.connect_timeout(&to.into(), patience) {
        Ok(()) => true,
        Err(e) => e.kind() == io::ErrorKind::ConnectionRefused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn way(source: &str) -> Found {
        Found { source: source.parse().unwrap(), index: 1, gateway: None, mtu: None }
    }

    fn soon() -> Instant {
        BootClock::now() + Duration::from_secs(5)
    }

    #[test]
    fn answers_and_rejections_are_heard_with_where_they_are_from() {
        for source in ["127.0.0.1", "::1"] {
            let asker = Asker::new(&way(source), "lo").unwrap();
            let other = UdpSocket::bind((asker.local().ip(), 0)).unwrap();
            asker.send(other.local_addr().unwrap(), b"who?").unwrap();
            let mut buffer = [0; 8];
            let (length, from) = other.recv_from(&mut buffer).unwrap();
            assert_eq!((&buffer[..length], from), (&b"who?"[..], asker.local()));
            other.send_to(b"I", from).unwrap();
            let from = other.local_addr().unwrap();
            assert_eq!(asker.hear(soon()).unwrap(), Some(Heard::Datagram { from, bytes: b"I".to_vec() }));
            drop(other);
            asker.send(from, b"still?").unwrap();
            let gone = Heard::Error { to: from, why: Why::Port };
            assert_eq!(asker.hear(soon()).unwrap(), Some(gone));
            assert_eq!(asker.hear(BootClock::now()).unwrap(), None);
        }
    }

    #[test]
    fn a_machine_that_refuses_a_connection_is_there() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let answers = || answers_tcp(&way("127.0.0.1"), "lo", to, Duration::from_secs(5));
        assert!(answers());
        drop(listener);
        assert!(answers());
    }
}

//! Sockets of IP protocols 50 (ESP) and 139 (HIP), for paths without a NAT. Owns the sockets; must never look inside a packet.
//!
//! There is no segmentation offload for raw sockets: packets of a batch share a system call, but each passes the kernel on its own.
//! NAT traversal's UDP is the faster carrier, and our own ends prefer it. The ECN bits of received packets are seen on IPv4 only, where the header is
//! delivered too; those of sent packets stay 0.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use dormouse_sansio::{Carrier, Path};
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

use crate::mmsg;
use crate::udp::{PathError, Sent, may_be_icmp, outcome, read_error};

const BUFFER: usize = 4 << 20;

/// A raw socket, nonblocking. Needs `CAP_NET_RAW` to open.
pub struct Raw {
    socket: Socket,
    carrier: Carrier,
    v4: bool,
}

impl Raw {
    /// A socket for packets of one carrier to any of this machine's addresses of one family. ESP is never fragmented; HIP may be.
    ///
    /// # Errors
    /// If the privilege is missing, or the carrier is one of UDP.
    pub fn open(carrier: Carrier, v4: bool) -> io::Result<Self> {
        let (protocol, name) = match carrier {
            Carrier::RawEsp => (50, "ESP"),
            Carrier::RawHip => (139, "HIP"),
            Carrier::Ike | Carrier::NatT | Carrier::HipUdp => return Err(io::ErrorKind::InvalidInput.into()),
        };
        let named = |e: io::Error| io::Error::new(e.kind(), format!("opening a raw socket for {name}: {e}"));
        let domain = if v4 { Domain::IPV4 } else { Domain::IPV6 };
        let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(protocol))).map_err(named)?;
        socket.set_nonblocking(true)?;
        let whole = carrier == Carrier::RawEsp;
        if v4 {
            setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?;
            setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
            let discover = if whole { libc::IP_PMTUDISC_PROBE } else { libc::IP_PMTUDISC_DONT };
            discover_mtu(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, discover)?;
        } else {
            setsockopt(&socket, sockopt::Ipv6RecvErr, &true)?;
            setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
            setsockopt(&socket, sockopt::Ipv6DontFrag, &whole)?;
            let discover = if whole { libc::IPV6_PMTUDISC_PROBE } else { libc::IPV6_PMTUDISC_DONT };
            discover_mtu(&socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, discover)?;
        }
        if setsockopt(&socket, sockopt::RcvBufForce, &BUFFER).is_err() {
            socket.set_recv_buffer_size(BUFFER)?;
        }
        if setsockopt(&socket, sockopt::SndBufForce, &BUFFER).is_err() {
            socket.set_send_buffer_size(BUFFER)?;
        }
        Ok(Self { socket, carrier, v4 })
    }

    /// What it carries.
    #[must_use]
    pub const fn carrier(&self) -> Carrier {
        self.carrier
    }

    /// Whether it carries IPv4.
    #[must_use]
    pub const fn is_ipv4(&self) -> bool {
        self.v4
    }

    /// Sends one packet, or several of `segment` bytes each but the last. See [`crate::udp::Udp::send`].
    pub fn send(&mut self, path: &Path, contents: &[u8], segment: Option<usize>) -> Sent {
        let segment = segment.unwrap_or(contents.len()).max(1);
        let mut done = 0;
        while done < contents.len() {
            let rest = &contents[done..];
            // An ICMP error about something else is reported once, and then these packets were not tried.
            let sent = match self.send_some(path, rest, segment) {
                Err(e) if e.raw_os_error().map(Errno::from_raw).is_some_and(may_be_icmp) => {
                    self.send_some(path, rest, segment)
                }
                sent => sent,
            };
            match sent {
                Ok(packets) => done = contents.len().min(done + packets * segment),
                Err(e) => return outcome(e, done),
            }
        }
        Sent::All
    }

    /// Sends one packet at least, and returns how many: an error of a later one is that of the next call.
    fn send_some(&self, path: &Path, contents: &[u8], segment: usize) -> io::Result<usize> {
        let to = SocketAddr::new(path.remote.ip(), 0).into();
        mmsg::send(self.socket.as_fd(), &to, path.local.ip(), contents, segment)
    }

    /// Receives packets, one into every `each` bytes of `buf` at most. For each: the path that it took, if the kernel says, and its
    /// length.
    pub(crate) fn recv(&self, buf: &mut [u8], each: usize) -> io::Result<Vec<(Option<Path>, usize)>> {
        let path = |(local, remote)| {
            let [local, remote] = [local, remote].map(|ip| SocketAddr::new(ip, 0));
            Path { local, remote, carrier: self.carrier }
        };
        let taken = mmsg::receive(self.socket.as_fd(), buf, each)?;
        Ok(taken.iter().map(|t| (t.local.zip(t.remote).map(path), t.len)).collect())
    }

    /// Of a packet as it was received: where its contents begin, behind the IP header if there is one, and the ECN bits of that.
    pub(crate) fn contents(&self, packet: &[u8]) -> Option<(usize, u8)> {
        let (start, ecn) = match (self.v4, packet) {
            (true, [first, tos, ..]) => (usize::from(first & 15) * 4, tos & 3),
            (true, _) => return None,
            (false, _) => (0, 0),
        };
        (start < packet.len()).then_some((start, ecn))
    }

    /// Takes the next ICMP error off the socket's queue.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn next_error(&self) -> io::Result<Option<PathError>> {
        read_error(self.socket.as_raw_fd())
    }
}

/// `PROBE`: "don't fragment" on every packet, up to the interface's MTU, also where the kernel takes the path's for smaller: the path MTU is
/// ours to know. `DONT`: IP may fragment them.
fn discover_mtu(socket: &Socket, level: i32, option: i32, value: i32) -> io::Result<()> {
    let (pointer, len) = ((&raw const value).cast(), size_of_val(&value) as libc::socklen_t);
    #[expect(unsafe_code, reason = "no safe wrapper has this option")]
    // SAFETY: `pointer` is valid for reads of `len` bytes during the call; the descriptor is open.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, pointer, len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

crate::as_fd!(Raw, socket);

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Raw").field("carrier", &self.carrier).field("v4", &self.v4).finish_non_exhaustive()
    }
}

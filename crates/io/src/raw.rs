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
use crate::option::set_option;
use crate::udp::{PathError, Sent, may_be_icmp, outcome, read_error};

const BUFFER: usize = 4 << 20;
/// SPIs that a socket is kept from: the kernel takes programs of 4,096 steps.
const REFUSED_MOST: usize = 512;

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

    /// Of ESP with these SPIs, what has a higher number than the one beside it is not received from now on: the kernel opens it, and copies of it here would
    /// cost as much as opening it. Of more than some hundreds, the first ones. None: all is received again.
    ///
    /// # Errors
    /// The kernel's.
    pub fn leave(&self, lent: &[(u32, u64)]) -> io::Result<()> {
        if lent.is_empty() {
            return self.leave_nothing();
        }
        let mut program = refusing(lent, self.v4);
        let len = u16::try_from(program.len()).map_err(io::Error::other)?;
        let program = libc::sock_fprog { len, filter: program.as_mut_ptr() };
        set_option(&self.socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program)
            // The one before may refuse what is to be received now; copies only cost time.
            .or_else(|e| self.leave_nothing().and(Err(e)))
    }

    fn leave_nothing(&self) -> io::Result<()> {
        match set_option(&self.socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0i32) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
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
    set_option(socket, level, option, value)
}

/// A program for the socket that refuses ESP with one of these SPIs whose number, of which the low half is seen, is above the one beside it by less than
/// 2^31, and takes all else.
fn refusing(lent: &[(u32, u64)], v4: bool) -> Vec<libc::sock_filter> {
    use libc::{BPF_ALU, BPF_IMM, BPF_IND, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_LDX};
    use libc::{BPF_B, BPF_MSH, BPF_RET, BPF_SUB, BPF_W};
    const TAKE: u32 = u32::MAX;
    let step = |code: u32, (jt, jf): (u8, u8), k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    // X is where ESP begins: IPv4 is delivered with its header.
    let start = match v4 {
        true => step(BPF_LDX | BPF_B | BPF_MSH, (0, 0), 0),
        false => step(BPF_LDX | BPF_IMM, (0, 0), 0),
    };
    let mut all = vec![start];
    for (spi, last) in lent.iter().take(REFUSED_MOST) {
        all.push(step(BPF_LD | BPF_W | BPF_IND, (0, 0), 0));
        all.push(step(BPF_JMP | BPF_JEQ | BPF_K, (0, 5), *spi));
        all.push(step(BPF_LD | BPF_W | BPF_IND, (0, 0), 4));
        all.push(step(BPF_ALU | BPF_SUB | BPF_K, (0, 0), (*last as u32).wrapping_add(1)));
        all.push(step(BPF_JMP | BPF_JGE | BPF_K, (0, 1), 1 << 31));
        all.push(step(BPF_RET | BPF_K, (0, 0), TAKE));
        let refuse = step(BPF_RET | BPF_K, (0, 0), 0);
        all.push(refuse);
    }
    all.push(step(BPF_RET | BPF_K, (0, 0), TAKE));
    all
}

crate::as_fd!(Raw, socket);

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Raw").field("carrier", &self.carrier).field("v4", &self.v4).finish_non_exhaustive()
    }
}

//! Sockets of IP protocols 50 (ESP) and 139 (HIP), for paths without a NAT. Owns the sockets; must never look inside a packet.
//!
//! There is no segmentation offload for raw sockets: packets of a batch go out one by one. NAT traversal's UDP is the faster
//! carrier here, and the negotiation may prefer it. The ECN bits of received packets are seen on IPv4 only, where the header is
//! delivered too; those of sent packets stay 0.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::os::fd::AsRawFd;

use dormouse_sansio::packet::Received;
use dormouse_sansio::{Carrier, Path};
use nix::libc;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt,
};
use socket2::{Domain, Protocol, Socket, Type};

use crate::udp::{PathError, Sent, outcome, read_error};

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
        let mut done = 0;
        for packet in contents.chunks(segment.unwrap_or(usize::MAX).max(1)) {
            if let Err(e) = self.send_one(path, packet) {
                return outcome(e.into(), done);
            }
            done += packet.len();
        }
        Sent::All
    }

    fn send_one(&self, path: &Path, packet: &[u8]) -> nix::Result<()> {
        let to = SockaddrStorage::from(SocketAddr::new(path.remote.ip(), 0));
        // An unspecified source lets the kernel choose.
        let (v4, v6);
        let source = match path.local.ip() {
            IpAddr::V4(source) => {
                v4 = libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: libc::in_addr { s_addr: u32::from(source).to_be() },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                ControlMessage::Ipv4PacketInfo(&v4)
            }
            IpAddr::V6(source) => {
                let ipi6_addr = libc::in6_addr { s6_addr: source.octets() };
                v6 = libc::in6_pktinfo { ipi6_ifindex: 0, ipi6_addr };
                ControlMessage::Ipv6PacketInfo(&v6)
            }
        };
        let iov = [io::IoSlice::new(packet)];
        sendmsg(self.socket.as_raw_fd(), &iov, &[source], MsgFlags::empty(), Some(&to)).map(drop)
    }

    /// Receives one packet; `None` if it is empty. The range is what follows the IP header in `buf`: IPv4 delivers its header as well.
    pub(crate) fn recv(&self, buf: &mut [u8]) -> io::Result<Option<(Received, Range<usize>)>> {
        let mut space = nix::cmsg_space!(libc::in6_pktinfo, libc::in_pktinfo);
        let mut iov = [io::IoSliceMut::new(buf)];
        let message = recvmsg::<SockaddrStorage>(
            self.socket.as_raw_fd(),
            &mut iov,
            Some(&mut space),
            MsgFlags::empty(),
        )?;
        let n = message.bytes;
        let address = message.address;
        let local = message.cmsgs()?.find_map(|c| match c {
            ControlMessageOwned::Ipv4PacketInfo(p) => {
                Some(IpAddr::from(Ipv4Addr::from(u32::from_be(p.ipi_addr.s_addr))))
            }
            ControlMessageOwned::Ipv6PacketInfo(p) => Some(IpAddr::from(Ipv6Addr::from(p.ipi6_addr.s6_addr))),
            _ => None,
        });
        let remote = address.as_ref().and_then(|a| {
            let v4 = a.as_sockaddr_in().map(|a| IpAddr::from(a.ip()));
            v4.or_else(|| a.as_sockaddr_in6().map(|a| IpAddr::from(a.ip())))
        });
        let (Some(local), Some(remote)) = (local, remote) else { return Ok(None) };
        let (start, ecn) = match (self.v4, buf.get(..n)) {
            (true, Some([first, tos, ..])) => (usize::from(first & 15) * 4, tos & 3),
            (false, Some(_)) => (0, 0),
            _ => return Ok(None),
        };
        let path = Path {
            local: SocketAddr::new(local, 0),
            remote: SocketAddr::new(remote, 0),
            carrier: self.carrier,
        };
        Ok((start < n).then_some((Received { path, ecn }, start..n)))
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

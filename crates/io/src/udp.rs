//! UDP sockets for IKE and encapsulated ESP, with segmentation and receive offload, local addresses, ECN and path-MTU errors.
//! Owns the sockets and knows which offloads work; must never look inside a datagram.
//!
//! Over quinn-udp. Beyond it: a batch that the kernel refuses with segmentation offload (EIO from drivers, EINVAL) is sent again
//! datagram by datagram, so nothing is lost by the discovery; segmentation then stays off. ICMP errors are read with the
//! destination they are about, which a gateway with many peers needs.

mod apart;

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};

use dormouse_sansio::{Carrier, Path};
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt};
use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};
use socket2::{Domain, Protocol, Socket, Type};

use crate::option::set_option;
use crate::port_holder;

/// Segments in one send: the kernel's limit (`UDP_MAX_SEGMENTS` was 64 until Linux 6.9).
pub const MAX_SEGMENTS: usize = 64;
/// Bytes in one send: the most that an IP packet holds, headers of either family included.
pub const MAX_BATCH: usize = 65_535 - 40 - 8;
/// Socket buffers, in bytes: some milliseconds at 10 Gbit/s.
const BUFFER: usize = 7 << 20;

/// `SO_EE_ORIGIN_LOCAL` (linux/errqueue.h): an error of this machine.
const LOCAL: u8 = 1;

/// How a send ended.
#[derive(Debug)]
pub enum Sent {
    /// All of it is in the kernel's hands.
    All,
    /// The socket's buffer is full: wait until it is writable, then send what stands behind the first `done` bytes.
    Blocked {
        /// Bytes that were sent.
        done: usize,
    },
    /// A datagram is larger than the interface's MTU. The rest of the batch is lost.
    TooBig,
    /// The kernel cannot send there now (no route, no address, a firewall). The batch is lost.
    Failed(io::Error),
}

/// An ICMP error about what we sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathError {
    /// Where the datagram was going.
    pub destination: SocketAddr,
    /// What the error says.
    pub kind: PathErrorKind,
}

/// See [`PathError`]. What comes from routers is not authenticated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathErrorKind {
    /// A router wants packets of at most this many bytes.
    TooBig(u32),
    /// This machine's kernel says what the interface takes that the datagram would have left by, in bytes.
    LinkMtu(u32),
    /// Host, network or port cannot be reached.
    Unreachable,
    /// Anything else.
    Other,
}

/// A bound socket, nonblocking.
pub struct Udp {
    socket: UdpSocket,
    state: UdpSocketState,
    local: SocketAddr,
    /// Whose datagrams alone come here.
    peer: Option<SocketAddr>,
    carrier: Carrier,
    gso: bool,
}

impl Udp {
    /// Binds to `local`, usually an unspecified address. An IPv6 socket takes IPv6 only. `carrier` is what flows here.
    ///
    /// # Errors
    /// If the port is in use or privileged; the error names the address.
    pub fn bind(local: SocketAddr, carrier: Carrier) -> io::Result<Self> {
        Self::of(bind(local).map_err(|e| named(local, &e))?, None, carrier)
    }

    /// A socket beside those of [`Udp::bind_apart`]: what comes over this path comes here from now on, and what came before stays where it is. Until it is connected, what
    /// others send to the path's own address may come here too: look at where a datagram is from.
    ///
    /// # Errors
    /// The kernel's: `EADDRINUSE` if the other sockets do not share their port, or belong to another user.
    pub fn of_peer(path: &Path) -> io::Result<Self> {
        let socket = bind_one(path.local, true)?;
        socket.connect(path.remote)?;
        Self::of(socket, Some(path.remote), path.carrier)
    }

    fn of(socket: UdpSocket, peer: Option<SocketAddr>, carrier: Carrier) -> io::Result<Self> {
        let state = UdpSocketState::new((&socket).into())?;
        state_options(&socket, &state)?;
        let local = socket.local_addr()?;
        let gso = state.max_gso_segments() > 1;
        Ok(Self { socket, state, local, peer, carrier, gso })
    }

    /// What its peer sends comes to the other socket again; what is here already can still be received.
    ///
    /// # Errors
    /// The kernel's; none is expected.
    pub fn leave_peer(&self) -> io::Result<()> {
        self.socket.connect(self.local)
    }

    /// Whether datagrams for this one can be sent by it.
    pub(crate) fn sends_to(&self, remote: SocketAddr) -> bool {
        self.peer.is_none_or(|peer| peer == remote)
    }

    /// Gives it to this user: only sockets of one user can share a port. As root.
    ///
    /// # Errors
    /// The kernel's.
    pub fn give_to(&self, uid: u32) -> io::Result<()> {
        Ok(nix::unistd::fchown(&self.socket, Some(nix::unistd::Uid::from_raw(uid)), None)?)
    }

    /// The address it is bound to.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The kernel opens ESP that comes to this socket by its own states, and drops what it has none for; nothing but ESP is left to be received. Meanwhile datagrams
    /// are not joined: joined ones are no ESP to the kernel.
    ///
    /// # Errors
    /// The kernel's: `ENOPROTOOPT` if it has no ESP in UDP.
    pub fn set_esp_by_kernel(&self, on: bool) -> io::Result<()> {
        const UDP_ENCAP: i32 = 100;
        const UDP_ENCAP_ESPINUDP: i32 = 2;
        let encap = if on { UDP_ENCAP_ESPINUDP } else { 0 };
        // Joined ones must not come to a kernel that takes ESP.
        if on {
            self.join(false);
        }
        set_option(&self.socket, libc::SOL_UDP, UDP_ENCAP, encap)?;
        if !on {
            self.join(true);
        }
        Ok(())
    }

    /// Whether the kernel joins datagrams of one sender. One that never does need not be told.
    pub(crate) fn join(&self, joins: bool) {
        let _never = set_option(&self.socket, libc::SOL_UDP, libc::UDP_GRO, i32::from(joins));
    }

    /// What flows here.
    #[must_use]
    pub const fn carrier(&self) -> Carrier {
        self.carrier
    }

    /// Sends one datagram, or several of `segment` bytes each but the last: at most [`MAX_SEGMENTS`] and [`MAX_BATCH`] bytes.
    /// `ecn` are the two bits of the outer IP header. The source address is the path's, if it has one.
    pub fn send(&mut self, path: &Path, ecn: u8, contents: &[u8], segment: Option<usize>) -> Sent {
        let segment = segment.filter(|s| *s > 0 && *s < contents.len());
        if self.gso || segment.is_none() {
            match self.try_send(path, ecn, contents, segment) {
                Ok(()) => return Sent::All,
                Err(e) => match (e.raw_os_error().map(Errno::from_raw), segment) {
                    (Some(Errno::EIO | Errno::EINVAL), Some(_)) => {
                        tracing::info!(
                            "UDP {}: no segmentation offload ({e}); datagram by datagram",
                            self.local
                        );
                        self.gso = false;
                        self.renew_state();
                    }
                    (Some(Errno::EMSGSIZE), Some(segment)) => {
                        // Of a single datagram the kernel also says, in the error queue, what the interface takes.
                        let first = contents.get(..segment).unwrap_or_default();
                        return self
                            .try_send(path, ecn, first, None)
                            .map_or_else(|e| outcome(e, 0), |()| Sent::TooBig);
                    }
                    _ => return outcome(e, 0),
                },
            }
        }
        let mut done = 0;
        for datagram in contents.chunks(segment.unwrap_or(usize::MAX)) {
            if let Err(e) = self.try_send(path, ecn, datagram, None) {
                return outcome(e, done);
            }
            done += datagram.len();
        }
        Sent::All
    }

    /// Sends as [`Udp::send`] does, and lets IP fragment each datagram that is larger than the path's MTU: IKE messages must arrive also at
    /// peers that know no IKE fragmentation (RFC 7296 section 2), whereas ESP's packets are cut to fit before they are sealed.
    ///
    /// The socket is switched for the time of this call; datagrams that are already queued keep their DF bit. Segmentation offload takes
    /// no datagrams that must be fragmented, so each one is sent by itself.
    pub fn send_fragmentable(&mut self, path: &Path, contents: &[u8], segment: Option<usize>) -> Sent {
        if let Err(e) = self.let_fragment(true) {
            return Sent::Failed(e);
        }
        let mut sent = Sent::All;
        let mut done = 0;
        for datagram in contents.chunks(segment.filter(|s| *s > 0).unwrap_or(usize::MAX)) {
            if let Err(e) = self.try_send(path, 0, datagram, None) {
                sent = outcome(e, done);
                break;
            }
            done += datagram.len();
        }
        match self.let_fragment(false) {
            Ok(()) => sent,
            Err(e) => Sent::Failed(e),
        }
    }

    /// Whether what is larger than the path's MTU is fragmented, by this machine or (IPv4) by routers. Otherwise all packets carry DF and the
    /// kernel refuses those that are larger than the interface's MTU.
    fn let_fragment(&self, fragment: bool) -> io::Result<()> {
        use rustix::net::sockopt::{Ipv4PathMtuDiscovery as V4, Ipv6PathMtuDiscovery as V6};
        use rustix::net::sockopt::{set_ip_mtu_discover, set_ipv6_mtu_discover};
        if self.local.is_ipv4() {
            return Ok(set_ip_mtu_discover(&self.socket, if fragment { V4::DONT } else { V4::PROBE })?);
        }
        set_ipv6_mtu_discover(&self.socket, if fragment { V6::DONT } else { V6::PROBE })?;
        Ok(setsockopt(&self.socket, sockopt::Ipv6DontFrag, &!fragment)?)
    }

    fn try_send(&self, path: &Path, ecn: u8, contents: &[u8], segment: Option<usize>) -> io::Result<()> {
        let transmit = Transmit {
            destination: path.remote,
            ecn: EcnCodepoint::from_bits(ecn),
            contents,
            segment_size: segment,
            src_ip: Some(path.local.ip()).filter(|ip| !ip.is_unspecified()),
        };
        let result = self.state.try_send((&self.socket).into(), &transmit);
        let error = result.as_ref().err().and_then(io::Error::raw_os_error).map(Errno::from_raw);
        if error.is_some_and(may_be_icmp) {
            return self.state.try_send((&self.socket).into(), &transmit);
        }
        result
    }

    /// quinn-udp gives up ECN on IPv4 along with segmentation, for the sake of kernels that know neither: start over.
    fn renew_state(&mut self) {
        if let Ok(state) = UdpSocketState::new((&self.socket).into())
            && state_options(&self.socket, &state).is_ok()
        {
            self.state = state;
        }
    }

    /// Receives into `bufs`, each of 64 KiB, and says what is in each. Several datagrams of one sender may share a buffer, at
    /// the stride in its `meta`.
    pub(crate) fn recv(&self, bufs: &mut [IoSliceMut<'_>], meta: &mut [RecvMeta]) -> io::Result<usize> {
        self.state.recv((&self.socket).into(), bufs, meta)
    }

    /// Receives what is there into `buffer` (64 KiB, because the kernel may join datagrams of one sender), and says where each
    /// datagram stands in it, with the path that it took; nothing if nothing is there. For programs without a TUN: the daemon
    /// receives by [`crate::batch::RxBatch`].
    ///
    /// # Errors
    /// That the descriptor is of no use any more.
    pub fn receive(&self, buffer: &mut [u8], datagrams: &mut Vec<(Path, Range<usize>)>) -> io::Result<()> {
        datagrams.clear();
        let mut meta = [RecvMeta::default()];
        match self.recv(&mut [IoSliceMut::new(buffer)], &mut meta) {
            Ok(_) => {}
            Err(e) if is_the_end(&e) => return Err(e),
            Err(_) => return Ok(()),
        }
        let [meta] = meta;
        let path = self.path_of(&meta);
        let starts = (0..meta.len).step_by(meta.stride.max(1));
        datagrams.extend(starts.map(|at| (path, at..(at + meta.stride).min(meta.len))));
        Ok(())
    }

    /// The path of a datagram that came here.
    pub(crate) fn path_of(&self, meta: &RecvMeta) -> Path {
        let ip = meta.dst_ip.unwrap_or(self.local.ip());
        Path { local: SocketAddr::new(ip, self.local.port()), remote: meta.addr, carrier: self.carrier }
    }

    /// Takes the next ICMP error off the socket's queue; `None` when there is no more. Call when the socket polls as in error.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn next_error(&self) -> io::Result<Option<PathError>> {
        read_error(self.socket.as_raw_fd())
    }
}

/// Why a port cannot be had: who has it, where that can be seen.
fn named(local: SocketAddr, e: &io::Error) -> io::Error {
    let holders = (e.kind() == io::ErrorKind::AddrInUse).then(|| port_holder::of_udp(local.port()));
    let why = match holders {
        Some(holders) if !holders.is_empty() => format!("in use by {}", holders.join(", ")),
        _ => e.to_string(),
    };
    io::Error::new(e.kind(), format!("binding UDP {local}: {why}"))
}

/// A socket bound to `local`. One of IPv6 takes IPv6 only.
pub(crate) fn bind(local: SocketAddr) -> io::Result<UdpSocket> {
    bind_one(local, false)
}

fn bind_one(local: SocketAddr, shares: bool) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
    if local.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if shares {
        // Not SO_REUSEADDR, with which any program of the machine could take a peer's datagrams.
        socket.set_reuse_port(true)?;
    }
    socket.bind(&local.into())?;
    Ok(socket.into())
}

/// Options beyond quinn-udp's: large buffers, the error queue, no time stamps.
fn state_options(socket: &UdpSocket, state: &UdpSocketState) -> io::Result<()> {
    state.enable_transport_errors(socket.into())?;
    setsockopt(socket, sockopt::ReceiveTimestampns, &false)?;
    // Beyond the system's limit with privilege, up to it without.
    if setsockopt(socket, sockopt::RcvBufForce, &BUFFER).is_err() {
        state.set_recv_buffer_size(socket.into(), BUFFER)?;
    }
    if setsockopt(socket, sockopt::SndBufForce, &BUFFER).is_err() {
        state.set_send_buffer_size(socket.into(), BUFFER)?;
    }
    Ok(())
}

/// Whether a call failed because the descriptor is of no use any more. All else passes: nothing is there, memory is short, or an ICMP error came about
/// a packet that was sent earlier, or, if it is forged, never (the kernel reports it at the next call, and has many errors for it).
pub(crate) fn is_the_end(e: &io::Error) -> bool {
    let error = e.raw_os_error().map(Errno::from_raw);
    matches!(error, Some(Errno::EBADF | Errno::ENOTSOCK | Errno::EFAULT | Errno::EINVAL))
}

/// Whether a call may have failed by an ICMP error about something else (`icmp_err_convert` and `icmpv6_err_convert` in Linux): that is reported once,
/// and what was to be sent was not tried.
pub(crate) const fn may_be_icmp(error: Errno) -> bool {
    use Errno as E;
    matches!(
        error,
        E::ECONNREFUSED
            | E::EHOSTUNREACH
            | E::ENETUNREACH
            | E::EMSGSIZE
            | E::ENOPROTOOPT
            | E::EOPNOTSUPP
            | E::EHOSTDOWN
            | E::ENONET
            | E::EPROTO
            | E::EACCES
    )
}

pub(crate) fn outcome(e: io::Error, done: usize) -> Sent {
    match e.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EAGAIN) => Sent::Blocked { done },
        Some(Errno::EMSGSIZE) => Sent::TooBig,
        _ => Sent::Failed(e),
    }
}

/// Reads one entry of a socket's error queue (`IP_RECVERR`, ip(7)).
pub(crate) fn read_error(fd: RawFd) -> io::Result<Option<PathError>> {
    Ok(read_error_and_cause(fd)?.map(|(error, ..)| error))
}

/// The same, with what the kernel makes of the ICMP error's type and code, and who has sent it.
pub(crate) fn read_error_and_cause(fd: RawFd) -> io::Result<Option<(PathError, Errno, Option<IpAddr>)>> {
    let mut byte = [0; 1];
    let mut iov = [IoSliceMut::new(&mut byte)];
    let mut space = vec![0; 256];
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    let message = match recvmsg::<SockaddrStorage>(fd, &mut iov, Some(&mut space), flags) {
        Ok(message) => message,
        Err(Errno::EAGAIN) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let destination = message.address.as_ref().and_then(socket_addr);
    let unspecified = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let error = message.cmsgs()?.find_map(|c| match c {
        ControlMessageOwned::Ipv4RecvErr(e, _) => {
            Some((e.ee_origin == 2, e.ee_type == 3 && e.ee_code == 4, e))
        }
        ControlMessageOwned::Ipv6RecvErr(e, _) => Some((e.ee_origin == 3, e.ee_type == 2, e)),
        _ => None,
    });
    let kind = match error {
        Some((_, _, e)) if e.ee_origin == LOCAL && e.ee_errno == Errno::EMSGSIZE as u32 => {
            PathErrorKind::LinkMtu(e.ee_info)
        }
        Some((icmp, too_big, e)) if (icmp && too_big) || e.ee_errno == Errno::EMSGSIZE as u32 => {
            PathErrorKind::TooBig(e.ee_info)
        }
        Some((true, _, _)) => PathErrorKind::Unreachable,
        _ => PathErrorKind::Other,
    };
    let cause = error.map_or(0, |(.., e)| i32::try_from(e.ee_errno).unwrap_or(0));
    let from = message.cmsgs()?.find_map(|c| match c {
        ControlMessageOwned::Ipv4RecvErr(_, from) => {
            from.map(|from| IpAddr::from(Ipv4Addr::from(u32::from_be(from.sin_addr.s_addr))))
        }
        ControlMessageOwned::Ipv6RecvErr(_, from) => {
            from.map(|from| IpAddr::from(Ipv6Addr::from(from.sin6_addr.s6_addr)))
        }
        _ => None,
    });
    let error = PathError { destination: destination.unwrap_or(unspecified), kind };
    Ok(Some((error, Errno::from_raw(cause), from)))
}

pub(crate) fn socket_addr(storage: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = storage.as_sockaddr_in() {
        return Some(SocketAddrV4::new(v4.ip(), v4.port()).into());
    }
    let v6 = storage.as_sockaddr_in6()?;
    let ip: Ipv6Addr = v6.ip();
    Some(match ip.to_ipv4_mapped() {
        Some(v4) => SocketAddr::new(IpAddr::V4(v4), v6.port()),
        None => SocketAddrV6::new(ip, v6.port(), v6.flowinfo(), v6.scope_id()).into(),
    })
}

crate::as_fd!(Udp, socket);

impl fmt::Debug for Udp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Udp")
            .field("local", &self.local)
            .field("carrier", &self.carrier)
            .field("segments", &self.gso)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

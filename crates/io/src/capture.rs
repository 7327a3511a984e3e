//! Captures an interface's own traffic as pcap. Owns the packet socket; must never send a packet or look into one.
//!
//! The socket sees both directions of one interface (`AF_PACKET`, `SOCK_RAW`, all protocols). Times are those at which the
//! packets are read, so a packet may be late by a scheduling delay: far below the shortest idle period that is analysed.

use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::net::if_::if_nametoindex;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, LinkAddr, SockFlag, SockType, SockaddrLike as _, bind, recvfrom, setsockopt, socket,
    sockopt,
};

use crate::clock::{BootClock, unix_now_precise};
use crate::signal::{Signal, Signals};

/// Link type of interfaces with Ethernet framing (WiFi and veth too) and of those with bare IP packets (TUN, WireGuard).
const ETHERNET: u32 = 1;
const RAW_IP: u32 = 101;
/// ARPHRD_ETHER and ARPHRD_LOOPBACK: the loopback interface has Ethernet framing too.
const ETHERNET_LIKE: [u16; 2] = [1, 772];
/// What the kernel may queue until it is read, in bytes.
const QUEUE: usize = 8 << 20;

/// Packets between two looks at the clock and at the signals.
const BURST: usize = 64;
/// Beyond the largest packet that segmentation offload hands over.
const LARGEST: usize = 1 << 18;

/// An interface being captured.
#[derive(Debug)]
pub struct Capture {
    socket: OwnedFd,
    interface: u32,
    link: u32,
}

/// What was captured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Packets written.
    pub packets: u64,
    /// Packets that passed and were not written: they did not fit the kernel's queue, or were still in it at the end.
    pub dropped: u64,
}

impl Capture {
    /// Opens an interface by name.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] for no such interface, [`io::ErrorKind::PermissionDenied`] without `CAP_NET_RAW`.
    pub fn open(interface: &str) -> io::Result<Self> {
        let missing = |_| io::Error::new(io::ErrorKind::NotFound, format!("no interface {interface:?} here"));
        let index = if_nametoindex(interface).map_err(missing)?;
        // Without a protocol until it is bound: nothing of other interfaces arrives before.
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None).map_err(|e| match e {
            Errno::EPERM | Errno::EACCES => {
                io::Error::new(io::ErrorKind::PermissionDenied, "a packet socket needs root, or CAP_NET_RAW")
            }
            other => other.into(),
        })?;
        let _ = setsockopt(&socket, sockopt::RcvBuf, &QUEUE); // what the system allows of it
        bind(socket.as_raw_fd(), &link_address(index)?)?;
        let kind = hardware_type(&socket)?;
        let link = if ETHERNET_LIKE.contains(&kind) { ETHERNET } else { RAW_IP };
        Ok(Self { socket, interface: index, link })
    }

    /// Writes a pcap file until `limit` has passed or `stop` says so, also while packets come faster than they are written: those that
    /// are queued then are left out. To be called once. Of each packet at most `snap` bytes are kept. The output
    /// is flushed whenever the queue is empty: it ends with a whole record then.
    ///
    /// # Errors
    /// When the socket fails, the interface goes, or the output cannot be written.
    pub fn record(
        &self,
        mut out: impl Write,
        snap: u32,
        limit: Option<Duration>,
        stop: Option<&Signals>,
    ) -> io::Result<Counts> {
        header(&mut out, snap, self.link)?;
        let begin = BootClock::now();
        let mut counts = Counts::default();
        let mut packet = vec![0u8; LARGEST];
        loop {
            let mut more = true;
            for _ in 0..BURST {
                more = self.one(&mut out, &mut packet, snap, &mut counts)?;
                if !more {
                    out.flush()?;
                    break;
                }
            }
            let left = limit.map(|l| l.saturating_sub(BootClock::now() - begin));
            let stopped = stop.is_some_and(|s| matches!(s.next(), Ok(Some(Signal::Stop)) | Err(_)));
            if stopped || left.is_some_and(|l| l.is_zero()) {
                out.flush()?;
                counts.dropped = self.passed()?.saturating_sub(counts.packets);
                return Ok(counts);
            }
            if more {
                continue;
            }
            let wait = left.map_or(PollTimeout::NONE, |l| {
                PollTimeout::try_from(l.as_millis() + 1).unwrap_or(PollTimeout::MAX)
            });
            let mut waiting = vec![PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            waiting.extend(stop.map(|s| PollFd::new(s.as_fd(), PollFlags::POLLIN)));
            match poll(&mut waiting, wait) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Packets that passed since the last call, whether they fitted the queue or not (`PACKET_STATISTICS`, packet(7)).
    #[expect(unsafe_code, reason = "no safe wrapper has this option")]
    fn passed(&self) -> io::Result<u64> {
        let mut counts = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = libc::socklen_t::try_from(size_of_val(&counts)).unwrap_or(0);
        let (socket, to) = (self.socket.as_raw_fd(), (&raw mut counts).cast());
        // SAFETY: the kernel writes at most `length` bytes to `counts`, which has as many and any value of which is valid.
        let result = unsafe {
            libc::getsockopt(socket, libc::SOL_PACKET, libc::PACKET_STATISTICS, to, &raw mut length)
        };
        if result == 0 { Ok(counts.tp_packets.into()) } else { Err(io::Error::last_os_error()) }
    }

    /// Reads one packet; whether there may be more.
    fn one(
        &self,
        out: &mut impl Write,
        packet: &mut [u8],
        snap: u32,
        counts: &mut Counts,
    ) -> io::Result<bool> {
        match recvfrom::<LinkAddr>(self.socket.as_raw_fd(), packet) {
            Ok((length, Some(from))) if from.ifindex() == self.interface as usize => {
                let kept = length.min(snap as usize).min(packet.len());
                record_header(out, kept, length)?;
                out.write_all(packet.get(..kept).unwrap_or_default())?;
                counts.packets += 1;
                Ok(true)
            }
            Ok(_) | Err(Errno::EINTR) => Ok(true),
            Err(Errno::EAGAIN) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }
}

/// The address that stands for all traffic of an interface.
#[expect(unsafe_code, reason = "the library makes no link-layer address itself")]
pub(crate) fn link_address(interface: u32) -> io::Result<LinkAddr> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as libc::c_ushort,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: i32::try_from(interface).map_err(io::Error::other)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = libc::socklen_t::try_from(size_of_val(&address)).ok();
    // SAFETY: the pointer is to a whole `sockaddr_ll`, whose family says so and whose length goes along.
    let made = unsafe { LinkAddr::from_raw((&raw const address).cast(), length) };
    made.ok_or_else(|| io::Error::other("no link-layer address"))
}

/// The kind of interface that a packet socket is bound to (ARPHRD_...).
#[expect(unsafe_code, reason = "the library's wrapper refuses the short addresses that the kernel returns")]
pub(crate) fn hardware_type(socket: &OwnedFd) -> io::Result<u16> {
    // SAFETY: all zero is a valid `sockaddr_ll`.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut length = libc::socklen_t::try_from(size_of_val(&address)).unwrap_or(0);
    // SAFETY: the kernel writes at most `length` bytes to `address`, which has as many and any value of which is valid.
    let result = unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut length) };
    if result == 0 { Ok(address.sll_hatype) } else { Err(io::Error::last_os_error()) }
}

fn header(out: &mut impl Write, snap: u32, link: u32) -> io::Result<()> {
    // Nanosecond pcap, version 2.4, in little-endian order.
    out.write_all(&0xa1b2_3c4du32.to_le_bytes())?;
    out.write_all(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
    out.write_all(&snap.to_le_bytes())?;
    out.write_all(&link.to_le_bytes())
}

fn record_header(out: &mut impl Write, kept: usize, length: usize) -> io::Result<()> {
    let now = unix_now_precise();
    let seconds = u32::try_from(now.as_secs()).unwrap_or(u32::MAX);
    for field in [seconds, now.subsec_nanos(), narrow(kept), narrow(length)] {
        out.write_all(&field.to_le_bytes())?;
    }
    Ok(())
}

fn narrow(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

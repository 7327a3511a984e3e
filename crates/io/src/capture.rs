//! Captures an interface's own traffic as pcap. Owns the packet socket; must never send a packet or look into one.
//!
//! The socket sees both directions of one interface (`AF_PACKET`, `SOCK_RAW`, all protocols). Times are those at which the
//! packets are read, so a packet may be late by a scheduling delay: far below the shortest idle period anybody asks for.

use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, recvfrom, socket};

use crate::clock::{BootClock, unix_now_precise};

/// Link type of interfaces with Ethernet framing (WiFi and veth too) and of those with bare IP packets (TUN, WireGuard).
const ETHERNET: u32 = 1;
const RAW_IP: u32 = 101;
/// ARPHRD_ETHER, as the kernel says in `/sys/class/net/*/type`; the loopback interface has Ethernet framing too.
const ETHERNET_LIKE: [u32; 2] = [1, 772];

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
    /// Packets that did not fit the kernel's queue.
    pub dropped: u64,
}

impl Capture {
    /// Opens an interface by name.
    ///
    /// # Errors
    /// No such interface; no `CAP_NET_RAW`.
    pub fn open(interface: &str) -> io::Result<Self> {
        let attribute = |name: &str| -> io::Result<u32> {
            let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/{name}"))?;
            text.trim().parse().map_err(|e| io::Error::other(format!("{interface}/{name}: {e}")))
        };
        if interface.is_empty() || interface.contains('/') || interface.starts_with('.') {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{interface:?} is no interface name"),
            ));
        }
        let index = attribute("ifindex")?;
        let link = if ETHERNET_LIKE.contains(&attribute("type")?) { ETHERNET } else { RAW_IP };
        let socket = socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            SockProtocol::EthAll,
        )?;
        Ok(Self { socket, interface: index, link })
    }

    /// Writes a pcap file until `limit` has passed. Of each packet at most `snap` bytes are kept. The output is flushed whenever
    /// the queue is empty, so a process that is interrupted leaves whole records behind.
    ///
    /// # Errors
    /// When the socket fails or the output cannot be written.
    pub fn record(&self, mut out: impl Write, snap: u32, limit: Option<Duration>) -> io::Result<Counts> {
        header(&mut out, snap, self.link)?;
        let begin = BootClock::now();
        let mut counts = Counts::default();
        let mut packet = vec![0u8; LARGEST];
        loop {
            while self.one(&mut out, &mut packet, snap, &mut counts)? {}
            out.flush()?;
            let left = limit.map(|l| l.saturating_sub(BootClock::now() - begin));
            if left.is_some_and(|l| l.is_zero()) {
                return Ok(counts);
            }
            let wait = left.map_or(PollTimeout::NONE, |l| {
                PollTimeout::try_from(l.as_millis() + 1).unwrap_or(PollTimeout::MAX)
            });
            match poll(&mut [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)], wait) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
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
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(true),
            Err(nix::errno::Errno::EAGAIN) => Ok(false),
            Err(nix::errno::Errno::ENOBUFS) => {
                counts.dropped += 1;
                Ok(true)
            }
            Err(e) => Err(e.into()),
        }
    }
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

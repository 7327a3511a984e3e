//! IPv4 packets of one link, by link-layer addresses: what a part of Mobile IP needs, whose link has no IP address of its own. Owns the packet
//! socket; must never ask for a link-layer address (ARP) or look into a packet.
//!
//! The kernel sees the packets that come too: switch its forwarding off on the interface, and let it check source addresses (`rp_filter`).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::libc;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, SockaddrLike as _, bind, recvfrom, sendto, socket,
};

/// See the module. Nonblocking.
#[derive(Debug)]
pub struct LinkSocket {
    socket: OwnedFd,
    index: u32,
}

crate::as_fd!(LinkSocket, socket);

impl LinkSocket {
    /// Opens it on an interface. Needs `CAP_NET_RAW`.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] for no such interface; the kernel's for the rest.
    pub fn open(interface: &str) -> io::Result<Self> {
        let missing = |_| io::Error::new(io::ErrorKind::NotFound, format!("no interface {interface:?} here"));
        let index = if_nametoindex(interface).map_err(missing)?;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        // Without a protocol until it is bound: nothing of other interfaces arrives before.
        let socket = socket(AddressFamily::Packet, SockType::Datagram, flags, None)?;
        bind(socket.as_raw_fd(), &neighbour(index, [0; 6], libc::ETH_P_IP)?)?;
        Ok(Self { socket, index })
    }

    /// The interface's index.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Reads a packet: its length, and who sent it.
    ///
    /// # Errors
    /// The kernel's, among them `WouldBlock`, and `NetworkDown` once when the interface goes down.
    pub fn receive(&self, buf: &mut [u8]) -> io::Result<(usize, [u8; 6])> {
        let (length, from) = recvfrom::<LinkAddr>(self.socket.as_raw_fd(), buf)?;
        Ok((length, from.and_then(|from| from.addr()).unwrap_or_default()))
    }

    /// Sends a packet to a neighbour.
    ///
    /// # Errors
    /// The kernel's.
    pub fn send(&self, to: [u8; 6], packet: &[u8]) -> io::Result<()> {
        let to = neighbour(self.index, to, libc::ETH_P_IP)?;
        Ok(sendto(self.socket.as_raw_fd(), packet, &to, MsgFlags::empty()).map(drop)?)
    }
}

/// The address of a neighbour for packets of an Ethernet protocol; of all zeros, that of all that comes in.
#[expect(unsafe_code, reason = "the library makes no link-layer address itself")]
pub(crate) fn neighbour(interface: u32, address: [u8; 6], protocol: libc::c_int) -> io::Result<LinkAddr> {
    let [a, b, c, d, e, f] = address;
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as libc::c_ushort,
        sll_protocol: u16::try_from(protocol).map_err(io::Error::other)?.to_be(),
        sll_ifindex: i32::try_from(interface).map_err(io::Error::other)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr: [a, b, c, d, e, f, 0, 0],
    };
    let length = libc::socklen_t::try_from(size_of_val(&address)).ok();
    // SAFETY: the pointer is to a whole `sockaddr_ll`, whose family says so and whose length goes along.
    let made = unsafe { LinkAddr::from_raw((&raw const address).cast(), length) };
    made.ok_or_else(|| io::Error::other("no link-layer address"))
}

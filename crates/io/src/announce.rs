//! Tells the hosts of a local network that an address is reached at this machine from now on: an ARP announcement (RFC 5227 section 3), or an
//! unsolicited neighbour advertisement (RFC 4861 section 7.2.6) that overrides what they know, as a home agent's does (RFC 6275 section
//! 10.4.1). Owns the two sockets; must never announce what this machine does not answer for.

use crate::link::neighbour;
use crate::netlink::Neighbour;
use nix::libc;
use nix::net::if_::if_indextoname;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, sendto, socket};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};

const BROADCAST: [u8; 6] = [0xff; 6];
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Both sockets; one that cannot be had (no IPv6, no `CAP_NET_RAW`) is left out.
#[derive(Debug)]
pub(crate) struct Announcer {
    arp: Option<OwnedFd>,
    icmp: Option<Socket>,
}

impl Announcer {
    /// Opens them. Needs `CAP_NET_RAW`, which may be given up afterwards.
    pub(crate) fn open() -> Self {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let arp = socket(AddressFamily::Packet, SockType::Datagram, flags, None).ok();
        let icmp = || {
            let icmp = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
            // "IP Hop Limit: 255", or nobody takes it.
            icmp.set_multicast_hops_v6(255)?;
            icmp.set_multicast_loop_v6(false)?;
            icmp.set_nonblocking(true)?;
            // What comes in is the kernel's affair: nothing is read here.
            icmp.set_recv_buffer_size(0)?;
            io::Result::Ok(icmp)
        };
        Self { arp, icmp: icmp().ok() }
    }

    /// Announces one address in the network of its interface.
    ///
    /// # Errors
    /// If there is no socket for it, the interface has no Ethernet address, or the kernel refuses.
    pub(crate) fn announce(&self, Neighbour { index, address }: Neighbour) -> io::Result<()> {
        let own = hardware(index)?;
        match address {
            IpAddr::V4(address) => {
                let socket = self.arp.as_ref().ok_or_else(missing)?;
                let to = neighbour(index, BROADCAST, libc::ETH_P_ARP)?;
                Ok(sendto(socket.as_raw_fd(), &arp(own, address), &to, MsgFlags::empty()).map(drop)?)
            }
            IpAddr::V6(address) => {
                let socket = self.icmp.as_ref().ok_or_else(missing)?;
                let to = SocketAddrV6::new(ALL_NODES, 0, 0, index);
                socket.send_to(&advertisement(own, address), &to.into()).map(drop)
            }
        }
    }
}

fn missing() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "no socket to announce it by")
}

/// The Ethernet address of an interface.
fn hardware(index: u32) -> io::Result<[u8; 6]> {
    let name = if_indextoname(index)?.to_string_lossy().into_owned();
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/address"))?;
    let mut own = [0; 6];
    let mut parts = text.trim().split(':');
    let filled = own.iter_mut().all(|byte| {
        let part = parts.next().and_then(|part| u8::from_str_radix(part, 16).ok());
        part.map(|value| *byte = value).is_some()
    });
    if filled && parts.next().is_none() && own != [0; 6] {
        return Ok(own);
    }
    Err(io::Error::new(io::ErrorKind::Unsupported, format!("{name} has no Ethernet address")))
}

/// A request whose sender and target are the same address (RFC 5227 section 2.3).
fn arp(own: [u8; 6], address: Ipv4Addr) -> Vec<u8> {
    // Ethernet, IPv4, lengths of their addresses, request.
    let head = [0, 1, 8, 0, 6, 4, 0, 1];
    [&head[..], &own, &address.octets(), &[0; 6], &address.octets()].concat()
}

/// Type 136, with the override flag and the target's link-layer address; the kernel computes the checksum.
fn advertisement(own: [u8; 6], address: Ipv6Addr) -> Vec<u8> {
    let head = [136, 0, 0, 0, 0x20, 0, 0, 0];
    [&head[..], &address.octets(), &[2, 1], &own].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_has_the_form_of_the_standards() {
        let own = [2, 0, 0, 0, 0, 9];
        let request = arp(own, [10, 0, 0, 7].into());
        assert_eq!(request.len(), 28);
        assert_eq!(request[..8], [0, 1, 8, 0, 6, 4, 0, 1]);
        assert_eq!((&request[8..14], &request[14..18]), (&own[..], &[10, 0, 0, 7][..]));
        assert_eq!((&request[18..24], &request[24..]), (&[0; 6][..], &[10, 0, 0, 7][..]));
        let advertisement = advertisement(own, "fd00::7".parse().unwrap());
        assert_eq!((advertisement.len(), advertisement[0], advertisement[4]), (32, 136, 0x20));
        assert_eq!(advertisement[24..], [&[2, 1][..], &own].concat());
    }
}

//! Where a radio's packets come from and go to at one end. Owns the TUN device or the packet socket; must never look into a packet.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail};
use dormouse_io::frames::FrameSocket;
use dormouse_io::tun::{Tun, TunOptions};

use super::{MTU, Place};
use crate::host::within;

/// An interface that exists: `NAME` where this program runs, or `NETNS/NAME` in a named network namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// The namespace, as `ip netns` names it.
    pub netns: Option<String>,
    /// The interface's name there.
    pub name: String,
}

impl FromStr for Interface {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Neither name can have a slash in it.
        let (netns, name) = text.split_once('/').map_or((None, text), |(netns, name)| (Some(netns), name));
        let good = |part: &str| !part.is_empty() && !part.contains('/') && part != "." && part != "..";
        if good(name) && netns.is_none_or(good) {
            return Ok(Self { netns: netns.map(str::to_owned), name: name.to_owned() });
        }
        Err(format!("{text:?} is no interface: eth0, or NETNS/eth0"))
    }
}

/// See the module.
pub(super) enum Port {
    /// Packets of IP, with the room to read one.
    Packets(Tun, Vec<u8>),
    /// Frames of Ethernet.
    Frames(Box<FrameSocket>),
}

impl Port {
    /// Makes a TUN interface with its addresses.
    ///
    /// # Errors
    /// Without root or `/dev/net/tun`.
    pub(super) fn make((host, name, addresses): Place<'_>) -> Result<Self> {
        // Packet by packet: a radio sends no super-packets.
        let options =
            TunOptions { name: Some(name.into()), mtu: MTU, offload: false, ..TunOptions::default() };
        let tun = host.run(move || Tun::open(&options))??;
        for address in addresses {
            let nodad = if address.contains(':') { " nodad" } else { "" };
            host.ip(&format!("addr add {address} dev {name}{nodad}"))?;
        }
        Ok(Self::Packets(tun, vec![0; usize::from(u16::MAX)]))
    }

    /// Takes what comes in by an interface.
    ///
    /// # Errors
    /// If there is none, it has no frames of Ethernet, or without root.
    pub(super) fn open(interface: &Interface) -> Result<Self> {
        let name = interface.name.clone();
        let open = move || FrameSocket::open(&name);
        let socket = match &interface.netns {
            None => open(),
            Some(netns) => {
                let thread = within(netns, "open", open)?;
                thread.join().map_err(|_| anyhow!("a thread in {netns} panicked"))??
            }
        };
        let of = || format!("opening {}", interface.name);
        let socket = socket.with_context(|| match &interface.netns {
            None => of(),
            Some(netns) => format!("{} in {netns}", of()),
        })?;
        Ok(Self::Frames(Box::new(socket)))
    }

    /// The interface that the kernel has under this name or another one: its namespace's inode and its index there. `None` for one that the port has made.
    ///
    /// # Errors
    /// If the namespace is gone.
    pub(super) fn identity(&self, interface: &Interface) -> Result<Option<(u64, Option<u32>)>> {
        let Self::Frames(socket) = self else { return Ok(None) };
        let namespace = match &interface.netns {
            None => "/proc/self/ns/net".into(),
            Some(netns) => format!("/run/netns/{netns}"),
        };
        let inode = std::fs::metadata(&namespace).with_context(|| namespace.clone())?.ino();
        Ok(Some((inode, socket.index()?)))
    }

    /// Reads once, and hands out the packets that there were. False if it was something that cannot be handed out, `None` if there is nothing now.
    ///
    /// # Errors
    /// If it will read nothing any more.
    pub(super) fn read(&mut self, take: &mut impl FnMut(&[u8])) -> Result<Option<bool>> {
        let read = match self {
            Self::Packets(tun, buffer) => tun.read(buffer).map(|n| {
                take(buffer.get(..n).unwrap_or_default());
                true
            }),
            Self::Frames(socket) => socket.receive(take),
        };
        match read {
            Ok(whole) => Ok(Some(whole)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            // A bridged interface may go down and up again, as any cable.
            Err(e) if e.kind() == io::ErrorKind::NetworkDown && matches!(self, Self::Frames(_)) => Ok(None),
            Err(e) => Err(e).context("reading from an interface of a radio"),
        }
    }

    /// That a bridged interface has not been deleted.
    ///
    /// # Errors
    /// If it was.
    pub(super) fn check(&self) -> Result<()> {
        if let Self::Frames(socket) = self
            && socket.index()?.is_none()
        {
            bail!("the interface was deleted");
        }
        Ok(())
    }

    /// Sends a packet. What the interface does not take is lost, as over any radio: it is down, or full, or bits have flipped so that it is no packet.
    pub(super) fn write(&self, packet: &[u8]) {
        let _ = match self {
            Self::Packets(tun, _) => tun.write(&[IoSlice::new(packet)]),
            Self::Frames(socket) => socket.send(packet),
        };
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Packets(tun, _) => tun.as_fd(),
            Self::Frames(socket) => socket.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_by_name() {
        let of =
            |netns: Option<&str>, name: &str| Interface { netns: netns.map(Into::into), name: name.into() };
        assert_eq!("eth0".parse(), Ok(of(None, "eth0")));
        assert_eq!("router/veth0.5".parse(), Ok(of(Some("router"), "veth0.5")));
        for bad in ["", "/", "a/", "/eth0", "../eth0", "a/b/c", "."] {
            assert!(bad.parse::<Interface>().is_err(), "{bad}");
        }
    }
}

//! What this kernel and machine can do, for `dormouse doctor`. Looks, and leaves everything as it was.

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::sockopt::{UdpGroSegment, UdpGsoSegment};
use nix::sys::socket::{setsockopt, sockopt};
use std::fs::OpenOptions;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::Path;

/// The TUN device as it is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TunDevice {
    /// Packets can carry segmentation offload headers (`IFF_VNET_HDR`).
    pub vnet_header: bool,
    /// Several queues (`IFF_MULTI_QUEUE`).
    pub multi_queue: bool,
}

const IFF_VNET_HDR: u32 = 0x4000;
const IFF_MULTI_QUEUE: u32 = 0x0100;

mod ioctl {
    // TUNGETFEATURES: _IOR('T', 207, unsigned int)
    nix::ioctl_read!(tun_get_features, b'T', 207, u32);
}

/// Opens the TUN device at `path` (`/dev/net/tun`) and asks what it can do. No interface is made.
///
/// # Errors
/// `NotFound` without the device, `PermissionDenied`, or `ENODEV` without the module.
#[expect(unsafe_code, reason = "an ioctl that the libraries do not wrap")]
pub fn tun_device(path: &Path) -> io::Result<TunDevice> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut features = 0u32;
    // SAFETY: TUNGETFEATURES writes one unsigned int to the pointer, which is valid for that during the call; the descriptor
    // is open.
    unsafe { ioctl::tun_get_features(file.as_raw_fd(), &raw mut features) }?;
    Ok(TunDevice { vnet_header: features & IFF_VNET_HDR != 0, multi_queue: features & IFF_MULTI_QUEUE != 0 })
}

/// What a UDP socket can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpOffloads {
    /// Several datagrams in one call (`UDP_SEGMENT`).
    pub gso: bool,
    /// Several datagrams from one call (`UDP_GRO`).
    pub gro: bool,
}

/// Tries both offloads on a socket on loopback.
///
/// # Errors
/// If there is no UDP at all.
pub fn udp_offloads() -> io::Result<UdpOffloads> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(UdpOffloads {
        gso: setsockopt(&socket, UdpGsoSegment, &1200).is_ok(),
        gro: setsockopt(&socket, UdpGroSegment, &true).is_ok(),
    })
}

/// Whether a UDP port is free on an address, which may be a wildcard. A wildcard of a family that this machine lacks is free.
///
/// # Errors
/// `AddrInUse` if it is not, `PermissionDenied` if that cannot be found out, `AddrNotAvailable` for an address of others.
pub fn udp_port_free(address: SocketAddr) -> io::Result<()> {
    match crate::udp::bind(address) {
        Err(e) if address.ip().is_unspecified() && e.raw_os_error() == Some(libc::EAFNOSUPPORT) => Ok(()),
        bound => bound.map(drop),
    }
}

/// Whether packets can be marked, which keeps the tunnel's own packets out of the tunnel.
///
/// # Errors
/// `PermissionDenied` without `CAP_NET_ADMIN`.
pub fn can_mark() -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(setsockopt(&socket, sockopt::Mark, &crate::netlink::MARK)?)
}

/// Whether the wall clock is kept in step with the world's: certificates and tickets depend on it. `None` if the kernel does not
/// say (in some containers).
#[must_use]
#[expect(unsafe_code, reason = "a system call that the libraries do not wrap")]
pub fn clock_synchronised() -> Option<bool> {
    /// `STA_UNSYNC`.
    const UNSYNCHRONISED: i32 = 0x0040;
    // SAFETY: `timex` is plain numbers, for which zero is a valid value; zero modes make adjtimex only read.
    let mut time: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid for the whole structure during the call.
    let state = unsafe { libc::adjtimex(&raw mut time) };
    match Errno::result(state) {
        Ok(state) => Some(state != libc::TIME_ERROR && time.status & UNSYNCHRONISED == 0),
        Err(_) => None,
    }
}

/// How the kernel judges the way that packets come in by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReversePath {
    /// Interfaces with strict filtering, which drops a gateway's packets while the tunnel's routes cover its address.
    pub strict: Vec<String>,
}

/// Reads `net.ipv4.conf.*.rp_filter` below `root` (`/proc/sys`). The stricter of an interface's own value and that of `all` counts, and
/// loose (2) is the larger number.
///
/// # Errors
/// If there is no `/proc/sys`.
pub fn reverse_path(root: &Path) -> io::Result<ReversePath> {
    let conf = root.join("net/ipv4/conf");
    let value = |name: &str| number(&conf.join(name).join("rp_filter")).unwrap_or(0);
    let all = value("all");
    let mut strict = Vec::new();
    for entry in std::fs::read_dir(&conf)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !matches!(name.as_str(), "all" | "default" | "lo") && all.max(value(&name)) == 1 {
            strict.push(name);
        }
    }
    strict.sort();
    Ok(ReversePath { strict })
}

/// Connection tracking of this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conntrack {
    /// Connections tracked.
    pub count: u64,
    /// At most.
    pub max: u64,
    /// An established UDP flow is forgotten after so many seconds of silence.
    pub udp_stream_seconds: u64,
}

/// Reads it below `root` (`/proc/sys`); `None` if nothing is tracked.
#[must_use]
pub fn conntrack(root: &Path) -> Option<Conntrack> {
    let value = |name: &str| number(&root.join("net/netfilter").join(name)).ok();
    Some(Conntrack {
        count: value("nf_conntrack_count")?,
        max: value("nf_conntrack_max")?,
        udp_stream_seconds: value("nf_conntrack_udp_timeout_stream")?,
    })
}

/// A number in a file of `/proc/sys`.
///
/// # Errors
/// If it cannot be read or is no number.
pub fn number(path: &Path) -> io::Result<u64> {
    let text = std::fs::read_to_string(path)?;
    text.trim()
        .parse()
        .map_err(|_| io::Error::other(format!("{}: '{}' is not a number", path.display(), text.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_filtering_is_found_by_the_stricter_rule() {
        let root = std::env::temp_dir().join(format!("dormouse-probe-{}", std::process::id()));
        for (name, value) in
            [("all", "1\n"), ("default", "1\n"), ("lo", "0\n"), ("eth0", "0\n"), ("wlan0", "2\n")]
        {
            let directory = root.join("net/ipv4/conf").join(name);
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("rp_filter"), value).unwrap();
        }
        let found = reverse_path(&root).unwrap();
        assert_eq!(found.strict, ["eth0"], "all = 1 makes eth0 strict; wlan0 is loose");
        assert_eq!(conntrack(&root), None);
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_missing_tun_device_is_an_error_and_a_file_is_no_tun_device() {
        assert_eq!(tun_device(Path::new("/nonexistent/tun")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(tun_device(Path::new("/dev/null")).is_err());
    }

    #[test]
    fn a_port_in_use_is_found_in_its_family() {
        for (own, other) in [("0.0.0.0:0", "[::]:0"), ("[::]:0", "0.0.0.0:0")] {
            let mut own: SocketAddr = own.parse().unwrap();
            let taken = crate::udp::bind(own).unwrap();
            own.set_port(taken.local_addr().unwrap().port());
            assert_eq!(udp_port_free(own).unwrap_err().kind(), io::ErrorKind::AddrInUse);
            let mut other: SocketAddr = other.parse().unwrap();
            other.set_port(own.port());
            udp_port_free(other).expect("the other family's port is another");
        }
    }
}

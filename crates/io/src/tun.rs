//! The TUN device: whole IP packets between the kernel and us, super-packets where the kernel can (virtio-net headers). Owns
//! the device and knows which offloads work; must never look at addresses or routes (that is netlink's part) nor cut or join
//! packets itself (see [`crate::batch`]).
//!
//! With offloads the kernel hands over TCP and UDP super-packets of up to 64 KiB with their checksums still to be computed, and
//! takes such super-packets back. Each offload is tried and given up for good when the kernel refuses it: the header itself,
//! UDP segmentation (Linux 6.2), and writing joined TCP or UDP packets (some kernels answer EINVAL).

use std::fmt;
use std::io::{self, IoSlice};

use nix::sys::uio::writev;
use tun_rs::{DeviceBuilder, SyncDevice};

/// Bytes of the virtio-net header before each packet.
pub(crate) const VNET_LEN: usize = 10;
const EINVAL: i32 = nix::Error::EINVAL as i32;
/// The largest IP packet.
pub(crate) const MAX_PACKET: usize = 65_535;

/// How to open the device.
#[derive(Clone, Debug)]
pub struct TunOptions {
    /// Name of the interface; `None` lets the kernel choose one.
    pub name: Option<String>,
    /// MTU of the interface in bytes: what fits the tunnel ("inner MTU").
    pub mtu: u16,
    /// Whether to try offloads at all.
    pub offload: bool,
    /// Packets that the kernel may queue for us.
    pub queue: u32,
}

impl Default for TunOptions {
    fn default() -> Self {
        Self { name: None, mtu: 1_400, offload: true, queue: 1_000 }
    }
}

/// A TUN device, nonblocking.
pub struct Tun {
    device: SyncDevice,
    name: String,
    offloads: Offloads,
}

/// Which offloads are in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offloads {
    /// Every packet has a virtio-net header, and the kernel sends TCP super-packets.
    pub vnet: bool,
    /// The kernel sends UDP super-packets.
    pub uso: bool,
    /// The kernel takes joined TCP packets.
    pub join_tcp: bool,
    /// The kernel takes joined UDP packets.
    pub join_udp: bool,
}

impl Tun {
    /// Makes the interface and brings it up. Needs `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// If the device cannot be opened: no privilege, no `/dev/net/tun`, the name in use. The error names the interface.
    pub fn open(options: &TunOptions) -> io::Result<Self> {
        let (device, vnet) = match build(options, options.offload) {
            Ok(device) => (device, options.offload),
            // A kernel without these offloads: carry on packet by packet.
            Err(e) if options.offload && matches!(e.raw_os_error(), Some(EINVAL)) => {
                tracing::info!("the kernel refuses TUN offloads ({e}); continuing without");
                (build(options, false).map_err(|e| named(options, &e))?, false)
            }
            Err(e) => return Err(named(options, &e)),
        };
        device.set_nonblocking(true)?;
        let uso = vnet && device.udp_gso();
        Ok(Self {
            name: device.name()?,
            device,
            offloads: Offloads { vnet, uso, join_tcp: vnet, join_udp: uso },
        })
    }

    /// Name of the interface.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Index of the interface, as netlink wants it.
    ///
    /// # Errors
    /// If the interface is gone.
    pub fn index(&self) -> io::Result<u32> {
        self.device.if_index()
    }

    /// Which offloads are in use now.
    #[must_use]
    pub const fn offloads(&self) -> Offloads {
        self.offloads
    }

    /// Changes the interface's MTU, in bytes.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn set_mtu(&self, mtu: u16) -> io::Result<()> {
        self.device.set_mtu(mtu)
    }

    /// Reads one packet, or super-packet, behind its header if there are headers. The first byte of the packet is at
    /// [`Self::header_len`]: 0 without offloads.
    ///
    /// # Errors
    /// Those of the kernel, among them `WouldBlock`.
    pub fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match nix::unistd::read(&self.device, buf) {
                Err(nix::Error::EINTR) => {}
                other => return other.map_err(io::Error::from),
            }
        }
    }

    /// Bytes before each packet.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        if self.offloads.vnet { VNET_LEN } else { 0 }
    }

    /// Writes one packet, gathered from `parts`, as it is.
    ///
    /// # Errors
    /// Those of the kernel, among them `WouldBlock`, and `InvalidInput` (EINVAL) for a packet that it finds malformed.
    pub fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        const PLAIN: [u8; VNET_LEN] = [0; VNET_LEN];
        let mut all = [IoSlice::new(&[]); 4];
        all[0] = IoSlice::new(&PLAIN[..self.header_len()]);
        let Some(rest) = all.get_mut(1..=parts.len()) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "more parts than a packet has"));
        };
        rest.copy_from_slice(parts);
        self.write_raw(&all[..=parts.len()])
    }

    /// Writes `parts`, which begin with a virtio-net header if there are headers.
    pub(crate) fn write_raw(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        loop {
            match writev(&self.device, parts) {
                Ok(_) => return Ok(()),
                Err(nix::Error::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// The kernel refused a joined packet: no more of that kind.
    pub(crate) fn give_up_joining(&mut self, udp: bool) {
        let (flag, what) =
            if udp { (&mut self.offloads.join_udp, "UDP") } else { (&mut self.offloads.join_tcp, "TCP") };
        if std::mem::take(flag) {
            tracing::info!(
                "the kernel refuses joined {what} packets on {}; continuing one by one",
                self.name
            );
        }
    }
}

fn build(options: &TunOptions, offload: bool) -> io::Result<SyncDevice> {
    let mut builder = DeviceBuilder::new().mtu(options.mtu).enable(true);
    if let Some(name) = &options.name {
        builder = builder.name(name);
    }
    builder
        .with(|linux| {
            linux.offload(offload).tx_queue_len(options.queue);
        })
        .build_sync()
}

fn named(options: &TunOptions, e: &io::Error) -> io::Error {
    let name = options.name.as_deref().unwrap_or("(any name)");
    io::Error::new(e.kind(), format!("opening the TUN interface {name}: {e}"))
}

crate::as_fd!(Tun, device);

impl fmt::Debug for Tun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tun")
            .field("name", &self.name)
            .field("offloads", &self.offloads)
            .finish_non_exhaustive()
    }
}

/// The virtio-net header (Linux `virtio_net.h`), in the machine's byte order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Vnet {
    pub(crate) flags: u8,
    pub(crate) gso_type: u8,
    pub(crate) hdr_len: u16,
    pub(crate) gso_size: u16,
    pub(crate) csum_start: u16,
    pub(crate) csum_offset: u16,
}

impl Vnet {
    pub(crate) const NEEDS_CSUM: u8 = 1;
    pub(crate) const GSO_NONE: u8 = 0;
    pub(crate) const GSO_TCP4: u8 = 1;
    pub(crate) const GSO_TCP6: u8 = 4;
    pub(crate) const GSO_UDP: u8 = 5;
    /// Set in `gso_type` beside TCP when the packet carries congestion marks.
    pub(crate) const GSO_ECN: u8 = 0x80;

    pub(crate) fn from_bytes(b: [u8; VNET_LEN]) -> Self {
        let word = |i: usize| u16::from_ne_bytes([b[i], b[i + 1]]);
        Self {
            flags: b[0],
            gso_type: b[1],
            hdr_len: word(2),
            gso_size: word(4),
            csum_start: word(6),
            csum_offset: word(8),
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; VNET_LEN] {
        let mut b = [self.flags, self.gso_type, 0, 0, 0, 0, 0, 0, 0, 0];
        for (i, word) in
            [self.hdr_len, self.gso_size, self.csum_start, self.csum_offset].into_iter().enumerate()
        {
            b[2 + 2 * i..4 + 2 * i].copy_from_slice(&word.to_ne_bytes());
        }
        b
    }
}

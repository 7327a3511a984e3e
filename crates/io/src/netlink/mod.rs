//! Links, addresses, routes and policy rules of this network namespace (rtnetlink).
//!
//! [`Netlink`] asks and changes; [`Ledger`] also remembers what it installed, so that exactly that is removed, and recognises
//! what an earlier run left behind; [`Monitor`] reports what others change. All calls are synchronous: the kernel answers
//! before `sendmsg` returns, and is waited for 5 s at most if it does not. `CAP_NET_ADMIN` is needed to change anything.
//!
//! # How the tunnel's own packets stay out of the tunnel
//! The tunnel's routes lie in a table of their own ([`TABLE`]), which a policy rule consults for every packet that does not carry the
//! mark [`MARK`]; the daemon's UDP and raw sockets carry it ([`set_mark`]). The alternative, a host route to the gateway by the
//! present next hop, breaks whenever the network changes, which is what this daemon exists for, and sends other programs' packets
//! to the gateway's outer address around the tunnel. See [`tunnel_rules`]. One limit: with strict reverse-path filtering
//! (`rp_filter = 1`) the kernel judges incoming packets without the mark and would drop the gateway's; `dormouse doctor`
//! looks for it.

mod change;
mod ledger;
mod message;
mod monitor;
mod outer;
mod overlap;
mod query;
pub(crate) mod socket;
mod way_out;

pub use ledger::Ledger;
pub(crate) use monitor::FilterChanges;
pub use monitor::{Monitor, NetworkChange};
pub use overlap::{Overlap, overlaps};
pub use way_out::leave_by;

use ipnet::IpNet;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

/// Routing protocol number of everything that Dormouse installs: shown as `proto 109` by `ip`.
pub const PROTOCOL: u8 = 109;
/// Routing table of the tunnel's routes, unless another is asked for.
pub const TABLE: u32 = 25709;
/// Mark of the tunnel's own packets.
pub const MARK: u32 = 25709;
/// Priority of the tunnel's rules, give or take three: before `main` (32766) and the rules of network managers, behind `local` (0).
pub const PRIORITY: u32 = 5200;
/// The kernel's main table.
pub const MAIN: u32 = 254;

/// A request that failed.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
pub struct Error {
    /// What was asked for, in the words of `ip`.
    pub what: String,
    /// The kernel's answer.
    #[source]
    pub source: io::Error,
}

impl Error {
    /// The error number, if the kernel gave one.
    #[must_use]
    pub fn errno(&self) -> Option<nix::errno::Errno> {
        self.source.raw_os_error().map(nix::errno::Errno::from_raw)
    }

    pub(crate) fn is(&self, errno: nix::errno::Errno) -> bool {
        self.errno() == Some(errno)
    }
}

/// A network interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Switched on.
    pub up: bool,
    /// Something is at the other end: packets can go.
    pub carrier: bool,
    /// It leads nowhere else.
    pub loopback: bool,
    /// In bytes.
    pub mtu: u32,
    /// Of an interface of kind `xfrm`: what its states and policies carry.
    pub xfrm: Option<u32>,
}

/// An address of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// The interface.
    pub index: u32,
    /// Address and prefix length.
    pub net: IpNet,
    /// Good beyond the link and the machine.
    pub global: bool,
    /// Usable as a source: neither tentative, nor deprecated, nor a duplicate.
    pub preferred: bool,
    /// IPv6: made up for privacy, and gone in some hours or days.
    pub temporary: bool,
}

/// What a route does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum RouteKind {
    /// Forwards.
    #[default]
    Unicast,
    /// Refuses, and says so: keeps traffic from leaving in the clear.
    Unreachable,
    /// Anything else.
    Other,
}

/// A route.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Route {
    /// Where to.
    pub destination: IpNet,
    /// What it does.
    pub kind: RouteKind,
    /// By which next hop.
    pub gateway: Option<IpAddr>,
    /// Over which interface.
    pub index: Option<u32>,
    /// In which table.
    pub table: u32,
    /// Less is better.
    pub metric: u32,
    /// Source address for packets that have none yet.
    pub source: Option<IpAddr>,
    /// Largest packet, in bytes, if the route says so.
    pub mtu: Option<u32>,
    /// Who installed it. Ignored when adding: that is always [`PROTOCOL`].
    pub protocol: u8,
}

impl Route {
    /// A route over an interface in [`TABLE`].
    #[must_use]
    pub fn over(index: u32, destination: IpNet) -> Self {
        Self {
            destination: destination.trunc(),
            kind: RouteKind::Unicast,
            gateway: None,
            index: Some(index),
            table: TABLE,
            metric: 0,
            source: None,
            mtu: None,
            protocol: PROTOCOL,
        }
    }
}

/// The name of an interface, which need not be there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterfaceName {
    bytes: [u8; Self::MOST],
    len: u8,
}

impl InterfaceName {
    /// The kernel's bound.
    const MOST: usize = 15;

    /// `None` for what no interface is called.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let len = u8::try_from(name.len()).ok().filter(|len| *len > 0)?;
        let mut bytes = [0; Self::MOST];
        bytes.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        Some(Self { bytes, len })
    }

    /// It.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.bytes.get(..self.len.into()).and_then(|bytes| str::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

impl std::fmt::Debug for InterfaceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_str().fmt(f)
    }
}

/// A policy rule that sends packets to a table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rule {
    /// Less comes first.
    pub priority: u32,
    /// For IPv6 rather than IPv4.
    pub v6: bool,
    /// For packets with this mark.
    pub mark: Option<u32>,
    /// The condition is turned round.
    pub invert: bool,
    /// For packets to here.
    pub to: Option<IpNet>,
    /// For packets that came in by this interface.
    pub from_interface: Option<InterfaceName>,
    /// The table.
    pub table: u32,
    /// Routes with a prefix of this length or shorter do not count.
    pub suppress_prefix_length: Option<u32>,
    /// Who installed it. Ignored when adding: that is always [`PROTOCOL`].
    pub protocol: u8,
}

/// An address that this machine answers ARP or neighbour discovery for on an interface, in the place of the host that has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
pub struct Neighbour {
    /// The interface.
    pub index: u32,
    /// The address.
    pub address: IpAddr,
}

/// How a destination is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// Our address towards it.
    pub source: IpAddr,
    /// Over which interface.
    pub index: u32,
    /// By which next hop; `None` if it is a neighbour.
    pub gateway: Option<IpAddr>,
    /// Largest packet, in bytes, if the kernel has learnt one for this destination.
    pub mtu: Option<u32>,
}

/// The rules of a tunnel, for one family: packets without `mark` look into `table` first.
///
/// What the tunnel has a route to goes into it, also where the main table knows a more exact one: a neighbour with an address of
/// the other side, a network that announces routes (as any DHCP server can) would otherwise take traffic out in clear, or cut it off. The
/// tunnel's default route has one exception, local networks: [`local_rule`]. The other exception is our own side: [`own_side_rule`].
#[must_use]
pub fn tunnel_rules(v6: bool, table: u32, mark: u32) -> [Rule; 2] {
    let into = Rule {
        priority: PRIORITY + 1,
        mark: Some(mark),
        invert: true,
        table,
        suppress_prefix_length: None,
        ..main_rule(v6)
    };
    [Rule { priority: PRIORITY - 1, suppress_prefix_length: Some(0), ..into }, into]
}

/// Comes between [`tunnel_rules`]: the printers of the local network `net` stay outside of a tunnel's default route. Routes of the main
/// table that are less exact than `net` do not count: they are the network's, not the link's.
#[must_use]
pub fn local_rule(net: IpNet) -> Rule {
    let shorter = u32::from(net.prefix_len().saturating_sub(1));
    let main = main_rule(matches!(net, IpNet::V6(_)));
    Rule { to: Some(net.trunc()), suppress_prefix_length: Some(shorter), ..main }
}

/// Comes before [`tunnel_rules`]: `net` is on our own side of a tunnel whose other side is wider and contains it. What the main
/// table knows of it stays here.
#[must_use]
pub fn own_side_rule(net: IpNet) -> Rule {
    Rule { priority: PRIORITY - 2, to: Some(net.trunc()), ..main_rule(matches!(net, IpNet::V6(_))) }
}

/// Comes before all others: packets that came in by `interface`, and are not for this machine, look into the table of what is in transit
/// from there, `TABLE + 1 + side`. What comes back from where that leads is forwarded as it would have been.
#[must_use]
pub fn transit_rule(v6: bool, interface: InterfaceName, side: u32) -> Rule {
    let (priority, table) = (PRIORITY - 3, TABLE + 1 + side.min(1));
    let from_interface = Some(interface);
    Rule { priority, table, from_interface, suppress_prefix_length: None, ..main_rule(v6) }
}

/// Into the main table, its default routes left out.
fn main_rule(v6: bool) -> Rule {
    Rule {
        priority: PRIORITY,
        v6,
        mark: None,
        invert: false,
        to: None,
        from_interface: None,
        table: MAIN,
        suppress_prefix_length: Some(0),
        protocol: PROTOCOL,
    }
}

/// Marks all packets of a socket. Needs `CAP_NET_ADMIN`.
///
/// # Errors
/// The kernel's.
pub fn set_mark(socket: &impl AsFd, mark: u32) -> io::Result<()> {
    Ok(nix::sys::socket::setsockopt(socket, nix::sys::socket::sockopt::Mark, &mark)?)
}

/// The request socket.
#[derive(Debug)]
pub struct Netlink(socket::Requests);

impl Netlink {
    /// Opens it. The network namespace is that of the calling thread.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> Result<Self, Error> {
        socket::Requests::new().map(Self)
    }
}

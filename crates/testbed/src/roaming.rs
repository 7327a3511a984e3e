//! The standard world: a device that moves between two access networks, and a gateway with a server behind it.
//!
//! ```text
//!            wlan0 10.1.0.2 ── router-a ─────────┐
//!   device                                      core ── gateway 203.0.113.1 ── server 10.99.0.2
//!            wlan1 192.168.7.2 ── router-b (NAT) ┘      (inner network 10.99.0.0/24, fd99::/64)
//! ```
//! Network A also has IPv6 (`fd0a::/64`), as has the gateway (`2001:db8:3::1`). Owns addresses and routes; knows no VPN.

use crate::host::{Host, Testbed};
use anyhow::Result;
use std::net::IpAddr;

/// An access network of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Routed, IPv4 and IPv6.
    A,
    /// Behind a NAT, IPv4 only.
    B,
}

impl Access {
    fn device_interface(self) -> &'static str {
        match self {
            Self::A => "wlan0",
            Self::B => "wlan1",
        }
    }

    /// The device's address in this network.
    #[must_use]
    pub fn device_address(self) -> IpAddr {
        match self {
            Self::A => IpAddr::from([10, 1, 0, 2]),
            Self::B => IpAddr::from([192, 168, 7, 2]),
        }
    }
}

/// The gateway's outer IPv4 address.
pub const GATEWAY: &str = "203.0.113.1";
/// The gateway's outer IPv6 address.
pub const GATEWAY_V6: &str = "2001:db8:3::1";
/// The server behind the gateway.
pub const SERVER: &str = "10.99.0.2";

/// The standard world.
#[derive(Debug)]
pub struct Roaming {
    /// The mobile device.
    pub device: Host,
    /// Router of network A.
    pub router_a: Host,
    /// Router of network B: a NAT.
    pub router_b: Host,
    /// What lies between the access networks and the gateway.
    pub core: Host,
    /// The VPN gateway.
    pub gateway: Host,
    /// A server that only the gateway reaches.
    pub server: Host,
    /// Owns all of them.
    pub bed: Testbed,
}

impl Roaming {
    /// Builds the world, with the device in no network. `nat_timeout`: seconds after which router B forgets a UDP mapping.
    ///
    /// # Errors
    /// Without root, or where the kernel lacks namespaces, veth or NAT.
    pub fn new(nat_timeout: u32) -> Result<Self> {
        let mut bed = Testbed::new()?;
        let device = bed.host("device")?;
        let router_a = bed.host("router-a")?;
        let router_b = bed.host("router-b")?;
        let core = bed.host("core")?;
        let gateway = bed.host("gateway")?;
        let server = bed.host("server")?;
        bed.link((&device, "wlan0", &[]), (&router_a, "lan", &["10.1.0.1/24", "fd0a::1/64"]))?;
        bed.link((&device, "wlan1", &[]), (&router_b, "lan", &["192.168.7.1/24"]))?;
        bed.link(
            (&router_a, "uplink", &["198.51.100.2/30", "2001:db8:1::2/64"]),
            (&core, "to-a", &["198.51.100.1/30", "2001:db8:1::1/64"]),
        )?;
        bed.link((&router_b, "uplink", &["198.51.100.6/30"]), (&core, "to-b", &["198.51.100.5/30"]))?;
        bed.link(
            (&gateway, "wan", &["203.0.113.1/30", "2001:db8:3::1/64"]),
            (&core, "to-g", &["203.0.113.2/30", "2001:db8:3::2/64"]),
        )?;
        bed.link(
            (&gateway, "lan", &["10.99.0.1/24", "fd99::1/64"]),
            (&server, "eth0", &["10.99.0.2/24", "fd99::2/64"]),
        )?;
        for router in [&router_a, &router_b, &core, &gateway] {
            router.sysctl("net.ipv4.ip_forward", "1")?;
            router.sysctl("net.ipv6.conf.all.forwarding", "1")?;
        }
        router_a.ip("route add default via 198.51.100.1")?;
        router_a.ip("-6 route add default via 2001:db8:1::1")?;
        router_b.ip("route add default via 198.51.100.5")?;
        router_b.masquerade("uplink", nat_timeout)?;
        core.ip("route add 10.1.0.0/24 via 198.51.100.2")?;
        core.ip("-6 route add fd0a::/64 via 2001:db8:1::2")?;
        gateway.ip("route add default via 203.0.113.2")?;
        gateway.ip("-6 route add default via 2001:db8:3::2")?;
        server.ip("route add default via 10.99.0.1")?;
        server.ip("-6 route add default via fd99::1")?;
        device.ip("link set dev wlan0 down")?;
        device.ip("link set dev wlan1 down")?;
        Ok(Self { device, router_a, router_b, core, gateway, server, bed })
    }

    /// Brings the device into a network: link up, addresses, default routes.
    ///
    /// # Errors
    /// If `ip` refuses.
    pub fn attach(&self, network: Access) -> Result<()> {
        let d = &self.device;
        match network {
            Access::A => {
                d.ip("link set dev wlan0 up")?;
                d.ip("addr replace 10.1.0.2/24 dev wlan0")?;
                d.ip("addr replace fd0a::2/64 dev wlan0 nodad")?;
                d.ip("route replace default via 10.1.0.1 dev wlan0")?;
                d.ip("-6 route replace default via fd0a::1 dev wlan0")
            }
            Access::B => {
                d.ip("link set dev wlan1 up")?;
                d.ip("addr replace 192.168.7.2/24 dev wlan1")?;
                d.ip("route replace default via 192.168.7.1 dev wlan1")
            }
        }
    }

    /// Takes the device out of a network: its radio is off. Addresses go with the link, as they do when WiFi disconnects.
    ///
    /// # Errors
    /// If `ip` refuses.
    pub fn detach(&self, network: Access) -> Result<()> {
        let dev = network.device_interface();
        self.device.ip(&format!("link set dev {dev} down"))?;
        self.device.ip(&format!("addr flush dev {dev}"))
    }

    /// Bytes and packets that the device's radio has sent and received in a network, headers of layer 3 and up included and
    /// 14 bytes of Ethernet each.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub fn air(&self, network: Access) -> Result<Air> {
        let dev = network.device_interface();
        let read = |name: &str| -> Result<u64> {
            let text = self.device.sh(&format!("cat /sys/class/net/{dev}/statistics/{name}"))?;
            Ok(text.trim().parse()?)
        };
        Ok(Air {
            bytes: read("tx_bytes")? + read("rx_bytes")?,
            packets: read("tx_packets")? + read("rx_packets")?,
        })
    }
}

/// What went through the air.
#[derive(Clone, Copy, Debug, Default)]
pub struct Air {
    /// Bytes, both directions.
    pub bytes: u64,
    /// Packets, both directions.
    pub packets: u64,
}

//! What a device showed of itself while it was awake. Owns only that: it is bounded, and nothing in it comes from another host
//! unless the device asked for it.

pub(crate) mod dhcp;
pub(crate) mod dns;
pub(crate) mod echo;
pub(crate) mod mdns;
pub(crate) mod netbios;
pub(crate) mod tcp;

use core::net::IpAddr;

use dormouse_sansio::Instant;
use dormouse_wire::dhcp as dhcp_wire;
use dormouse_wire::dns::Message;
use dormouse_wire::ip::tcp::Tcp;
use dormouse_wire::ip::udp::Udp;
use dormouse_wire::ip::{Flow, Packet, protocol};
use dormouse_wire::netbios as netbios_wire;

pub(crate) use tcp::Share;

/// UDP port of DNS.
pub(crate) const DNS_PORT: u16 = 53;
/// UDP port of multicast DNS.
pub(crate) const MDNS_PORT: u16 = 5353;

/// All that one device showed of itself.
#[derive(Debug, Default)]
pub(crate) struct Knowledge {
    pub(crate) echo: echo::Pinged,
    pub(crate) tcp: tcp::Connections,
    pub(crate) mdns: mdns::Records,
    pub(crate) netbios: netbios::Names,
    pub(crate) dns: dns::Resolver,
    pub(crate) dhcp: dhcp::Client,
}

impl Knowledge {
    /// A packet from the device.
    pub(crate) fn observe_inbound(&mut self, now: Instant, share: Share<'_>, packet: &Packet<'_>) {
        if packet.fragment().is_some() {
            return;
        }
        match packet.protocol() {
            protocol::TCP => {
                if let Ok(tcp) = Tcp::parse(packet) {
                    self.tcp.observe_inbound(now, share, packet.flow(), &tcp);
                }
            }
            protocol::UDP => self.inbound_datagram(now, packet),
            protocol::ICMP | protocol::ICMPV6 => self.echo.observe_inbound(packet.as_bytes()),
            _ => {}
        }
    }

    fn inbound_datagram(&mut self, now: Instant, packet: &Packet<'_>) {
        let Some((src, dst)) = ports(packet) else { return };
        if !matters(src) && !matters(dst) {
            return;
        }
        let Ok(udp) = Udp::parse(packet) else { return };
        match (src, dst) {
            (MDNS_PORT, _) => {
                if let Ok(message) = Message::parse(udp.payload) {
                    self.mdns.announced(now, &message);
                }
            }
            (_, netbios_wire::NAME_PORT) => {
                if let Ok(message) = Message::parse_netbios(udp.payload) {
                    self.netbios.observe_inbound(packet.src(), &message);
                }
            }
            (dhcp_wire::CLIENT_PORT, dhcp_wire::SERVER_PORT) => self.dhcp.observe_inbound(udp.payload),
            (_, DNS_PORT) => self.dns.asked(now, packet.dst(), src, udp.payload),
            (DNS_PORT, _) => self.dns.served(udp.payload),
            _ => {}
        }
    }

    /// A packet towards the device, which is awake.
    pub(crate) fn observe_outbound(&mut self, now: Instant, share: Share<'_>, packet: &Packet<'_>) {
        if packet.fragment().is_some() {
            return;
        }
        match packet.protocol() {
            protocol::TCP => {
                if let Ok(tcp) = Tcp::parse(packet) {
                    self.tcp.observe_outbound(share, packet.flow().reversed(), &tcp);
                }
            }
            protocol::UDP => self.outbound_datagram(now, packet),
            protocol::ICMP | protocol::ICMPV6 => self.echo.observe_outbound(packet.as_bytes()),
            _ => {}
        }
    }

    fn outbound_datagram(&mut self, now: Instant, packet: &Packet<'_>) {
        let Some((src, dst)) = ports(packet) else { return };
        if !matters(src) {
            return;
        }
        let Ok(udp) = Udp::parse(packet) else { return };
        match (src, dst) {
            (DNS_PORT, _) => self.dns.answered(packet.src(), dst, udp.payload),
            (dhcp_wire::SERVER_PORT, dhcp_wire::CLIENT_PORT) => {
                self.dhcp.observe_outbound(now, packet.src(), udp.payload);
            }
            (netbios_wire::NAME_PORT, _) => {
                if let Ok(message) = Message::parse_netbios(udp.payload) {
                    self.netbios.observe_outbound(&message);
                }
            }
            _ => {}
        }
    }
}

/// Whether anything is learnt from datagrams of this port: a look at two numbers spares the rest a checksum.
const fn matters(port: u16) -> bool {
    matches!(
        port,
        MDNS_PORT | DNS_PORT | netbios_wire::NAME_PORT | dhcp_wire::CLIENT_PORT | dhcp_wire::SERVER_PORT
    )
}

/// The ports of a TCP or UDP packet.
pub(crate) fn ports(packet: &Packet<'_>) -> Option<(u16, u16)> {
    let Flow { src_port, dst_port, .. } = packet.flow();
    Some((src_port?, dst_port?))
}

/// Whether an address is for many.
pub(crate) fn is_for_many(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => a.is_multicast() || a.is_broadcast(),
        IpAddr::V6(a) => a.is_multicast(),
    }
}

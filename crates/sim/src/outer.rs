//! Datagrams as the whole IP packets that an access router sees, and back. Owns both forms, and the carrier that a packet's header says; must
//! lose nothing of a datagram, nor of what a router makes of it.

use dormouse_sansio::{Carrier, Path};
use dormouse_wire::ip::udp::{self, Udp};
use dormouse_wire::ip::{Ipv4Header, Ipv6Header, Packet, protocol};
use std::net::{IpAddr, SocketAddr};

/// The ports of the carriers in UDP.
const PORTS: [(u16, Carrier); 3] = [(4500, Carrier::NatT), (500, Carrier::Ike), (10_500, Carrier::HipUdp)];

/// The packet that carries a datagram from `path.local` to `path.remote`.
///
/// # Panics
/// If the two are of two families, or the datagram is too long for a packet: no machine of a world sends these.
pub(crate) fn packet(path: &Path, datagram: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match path.carrier {
        Carrier::RawEsp => bare(path, protocol::ESP, datagram, &mut out),
        Carrier::RawHip => bare(path, protocol::HIP, datagram, &mut out),
        Carrier::Ike | Carrier::NatT | Carrier::HipUdp => {
            udp::build(path.local, path.remote, datagram, &mut out).expect("a datagram of a world");
        }
    }
    out
}

fn bare(path: &Path, protocol: u8, payload: &[u8], out: &mut Vec<u8>) {
    match (path.local.ip(), path.remote.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let header = Ipv4Header::new(src, dst, protocol).to_bytes(payload.len());
            out.extend(header.expect("a datagram of a world"));
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let header = Ipv6Header::new(src, dst, protocol).to_bytes(payload.len());
            out.extend(header.expect("a datagram of a world"));
        }
        (src, dst) => panic!("from {src} to {dst}"),
    }
    out.extend_from_slice(payload);
}

/// The datagram in a packet, and its way; `None` if no carrier of ours carries it.
pub(crate) fn datagram(packet: &[u8]) -> Option<(Path, Vec<u8>)> {
    let view = Packet::parse(packet).ok()?;
    let path = |[src, dst]: [u16; 2], carrier| {
        let (local, remote) = (SocketAddr::new(view.src(), src), SocketAddr::new(view.dst(), dst));
        Path { local, remote, carrier }
    };
    match view.protocol() {
        protocol::ESP => Some((path([0, 0], Carrier::RawEsp), view.payload().to_vec())),
        protocol::HIP => Some((path([0, 0], Carrier::RawHip), view.payload().to_vec())),
        _ => {
            let udp = Udp::parse(&view).ok()?;
            // The port of one end may be a NAT's, or a client's own choice.
            let ports = [udp.src_port, udp.dst_port];
            let (_, carrier) = PORTS.iter().find(|(port, _)| ports.contains(port))?;
            Some((path(ports, *carrier), udp.payload.to_vec()))
        }
    }
}

/// A path as the receiver of a datagram sees it.
pub(crate) fn arrived(sent: Path) -> Path {
    let carrier = match (sent.carrier, sent.remote.port()) {
        (Carrier::RawEsp, _) => Carrier::RawEsp,
        (_, 4500) => Carrier::NatT,
        (_, 500) => Carrier::Ike,
        // To a client behind a NAT, whose own port decides: it kept the carrier that it sent with.
        (carrier, _) => carrier,
    };
    Path { local: sent.remote, remote: sent.local, carrier }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_is_what_went_in() {
        for ends in [["192.0.2.1", "198.51.100.7"], ["2001:db8::1", "2001:db8:5::7"]] {
            let [local, remote] = ends.map(|end| end.parse::<IpAddr>().expect("an address"));
            for (carrier, from, to) in [
                (Carrier::RawEsp, 0, 0),
                (Carrier::RawHip, 0, 0),
                (Carrier::Ike, 500, 500),
                (Carrier::NatT, 4500, 4500),
                (Carrier::NatT, 4500, 61_003),
                (Carrier::NatT, 61_003, 4500),
                (Carrier::HipUdp, 10_500, 40_000),
            ] {
                let path = Path {
                    local: SocketAddr::new(local, from),
                    remote: SocketAddr::new(remote, to),
                    carrier,
                };
                let whole = packet(&path, b"a datagram");
                assert_eq!(datagram(&whole), Some((path, b"a datagram".to_vec())), "{path:?}");
            }
        }
    }

    #[test]
    fn what_no_carrier_carries_is_no_datagram() {
        let [from, to] = [("192.0.2.1", 53), ("198.51.100.7", 53)]
            .map(|(host, port)| SocketAddr::new(host.parse().expect("an address"), port));
        let mut dns = Vec::new();
        udp::build(from, to, b"a question", &mut dns).expect("built");
        assert_eq!(datagram(&dns), None);
        assert_eq!(datagram(b"no packet"), None);
    }
}

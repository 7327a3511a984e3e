//! BEET mode (RFC 7402 appendix B): packets between two data planes whose inner addresses are never sent.

use std::net::IpAddr;

use crate::common::params;
use dormouse_crypto::Encr;
use dormouse_esp::{Discard, InstallError, Outer, Overhead, Sad};
use dormouse_keying::{Beet, ChildId, Install, Mode, Original, Owner, Protection, SaId, Share, SoftBounds};
use dormouse_sansio::{Carrier, Instant, Path, Seeded};
use dormouse_wire::ike::TsRange;
use dormouse_wire::ip::{self, Ecn, flow};

const ENCR: Encr = Encr::Aes128Gcm16;
const LINK_MTU: u16 = 1_500;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn order(ours: u32, theirs: u32, inner: Beet, outer: (&str, &str)) -> Install {
    let keymat = params(ENCR, None).keymat;
    let host = |address| vec![TsRange::addresses(address, address)];
    Install {
        owner: Owner::Hip(SaId::new(1)),
        child: ChildId::new(ours),
        spi_out: theirs,
        keymat_in: keymat.clone(),
        keymat_out: keymat,
        encr: ENCR,
        integ: None,
        esn: true,
        mode: Mode::Beet(inner),
        protection: Protection::Whole,
        pad_to: 0,
        ts_local: host(inner.local),
        ts_remote: host(inner.remote),
        original: None,
        path: Path {
            local: outer.0.parse().unwrap(),
            remote: outer.1.parse().unwrap(),
            carrier: Carrier::NatT,
        },
        replaces: None,
        send_now: true,
        replay_window: 1_024,
        soft: SoftBounds::NONE,
        share: Share::Rest,
    }
}

struct Pair {
    sender: Sad,
    receiver: Sad,
    outer: Outer,
}

impl Pair {
    fn new(a: &str, b: &str, outer: (&str, &str)) -> Self {
        let inner = Beet { local: ip(a), remote: ip(b) };
        let other = Beet { local: ip(b), remote: ip(a) };
        let (mut sender, mut receiver) = (Sad::new(), Sad::new());
        let mut entropy = Seeded::new(1);
        sender.install(&order(0x0a0a, 0x0b0b, inner, outer), LINK_MTU, &mut entropy).unwrap();
        receiver.install(&order(0x0b0b, 0x0a0a, other, (outer.1, outer.0)), LINK_MTU, &mut entropy).unwrap();
        let address = |text: &str| text.parse::<std::net::SocketAddr>().unwrap().ip();
        Self {
            sender,
            receiver,
            outer: Outer { source: address(outer.0), destination: address(outer.1), ecn: Ecn::Ect0 },
        }
    }

    /// ESP's datagram of a packet, and what of it is carried.
    fn seal(&mut self, packet: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        let id = self.sender.route(&flow(packet).unwrap())?;
        let tunnel = self.sender.get_mut(id).unwrap();
        let mut packet = packet.to_vec();
        let stripped = tunnel.strip(&mut packet)?;
        let carried = packet.split_off(stripped.len);
        let out = &mut tunnel.outbound;
        let mut slot = vec![0; out.sealed_len(carried.len())];
        slot[out.head_len()..][..carried.len()].copy_from_slice(&carried);
        let len = out.seal(&mut slot, carried.len(), stripped.next_header).unwrap();
        assert_eq!(len, slot.len());
        Some((slot, carried))
    }

    fn open(&mut self, mut datagram: Vec<u8>) -> Result<Vec<u8>, Discard> {
        let accepted = self.receiver.open(&mut datagram)?;
        let inner = &mut datagram[accepted.opened.inner];
        let tunnel = self.receiver.get_mut(accepted.id).unwrap();
        let rebuilt = tunnel.rebuild(accepted.opened.next_header, accepted.flow, inner, self.outer)?;
        let packet = [rebuilt.header.unwrap().as_bytes(), &inner[rebuilt.skip..]].concat();
        assert_eq!(flow(&packet), Some(rebuilt.flow));
        Ok(packet)
    }
}

const OUTER_V4: (&str, &str) = ("192.0.2.1:10500", "192.0.2.2:10500");
const OUTER_V6: (&str, &str) = ("[2001:db8::1]:10500", "[2001:db8::2]:10500");
const LSI: (&str, &str) = ("1.0.0.1", "1.0.0.2");
const HIT: (&str, &str) = ("2001:20::a", "2001:20::b");

/// A UDP packet between LSIs with IPv4 options, or none; time to live 64, ECT(0), don't fragment, no identification.
fn v4(options: &str) -> Vec<u8> {
    let options = hex::decode(options).unwrap();
    let mut packet = hex::decode("4502000000004000401100000100000101000002").unwrap();
    packet.extend_from_slice(&options);
    packet.extend_from_slice(&hex::decode("03e807d0000c0000 da7a da7a".replace(' ', "")).unwrap());
    packet[0] = 0x45 + (options.len() / 4) as u8;
    packet[3] = packet.len() as u8;
    let header = 20 + options.len();
    let sum = ip::checksum::checksum(&packet[..header]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// A UDP packet between HITs with a destination-options header; hop limit 64, ECT(0).
fn v6() -> Vec<u8> {
    let text = "60200000 0014 3c40 20010020000000000000000000000 00a 2001002000000000000000000000000b \
                1100010400000000 03e807d0000c0000da7ada7a";
    hex::decode(text.replace([' ', '\n'], "")).unwrap()
}

#[test]
fn the_inner_header_is_not_carried_and_comes_back() {
    for outer in [OUTER_V4, OUTER_V6] {
        let mut pair = Pair::new(LSI.0, LSI.1, outer);
        let (datagram, carried) = pair.seal(&v4("")).unwrap();
        assert_eq!(hex::encode(carried), "03e807d0000c0000da7ada7a");
        let packet = pair.open(datagram).unwrap();
        assert_eq!(hex::encode(&packet), "4502002000004000401138c9010000010100000203e807d0000c0000da7ada7a");
        assert_eq!(packet, v4(""));

        let mut pair = Pair::new(HIT.0, HIT.1, outer);
        let (datagram, carried) = pair.seal(&v6()).unwrap();
        assert_eq!(hex::encode(carried), "110001040000000003e807d0000c0000da7ada7a");
        assert_eq!(pair.open(datagram).unwrap(), v6());
    }
}

#[test]
fn options_travel_in_a_pseudo_header() {
    for (options, carried) in
        [("94040000", "1100000094040000"), ("9404000001010100", "11010400010101019404000001010100")]
    {
        let mut pair = Pair::new(LSI.0, LSI.1, OUTER_V6);
        let (datagram, sent) = pair.seal(&v4(options)).unwrap();
        assert_eq!(hex::encode(&sent), format!("{carried}03e807d0000c0000da7ada7a"));
        assert_eq!(pair.open(datagram).unwrap(), v4(options));
    }
}

#[test]
fn fragments_and_other_addresses_are_not_carried() {
    let mut pair = Pair::new(LSI.0, LSI.1, OUTER_V4);
    let mut fragment = v4("");
    fragment[6] = 0x20;
    assert!(pair.seal(&fragment).is_none());
    let mut elsewhere = v4("");
    elsewhere[19] = 3;
    assert!(pair.seal(&elsewhere).is_none());
}

/// A fragment of IPv6 goes with its fragment header, the first and a later one; it is put together where it is going.
#[test]
fn fragments_of_ipv6_are_carried() {
    for place in [1, 0x80] {
        let mut packet = hex::decode("60000000001020400000").unwrap()[..8].to_vec();
        packet[6] = 44;
        for hit in [HIT.0, HIT.1] {
            packet.extend_from_slice(&hit.parse::<std::net::Ipv6Addr>().unwrap().octets());
        }
        packet.extend_from_slice(&[17, 0, 0, place, 0, 0, 0, 7, 3, 0xe8, 7, 0xd0, 0x40, 0, 1, 2]);
        let mut pair = Pair::new(HIT.0, HIT.1, OUTER_V4);
        let (datagram, sent) = pair.seal(&packet).unwrap();
        assert_eq!(sent, packet[40..]);
        let opened = pair.open(datagram).unwrap();
        assert_eq!(opened[40..], packet[40..]);
        assert_eq!(opened[6], 44);
    }
}

#[test]
fn what_does_not_fit_the_tunnel_is_refused() {
    // A pseudo header that is malformed, and one where IPv6 addresses leave no room for options.
    for (inner, payload) in [(LSI, "11000400010101010000"), (HIT, "11000000940400000000")] {
        let mut pair = Pair::new(inner.0, inner.1, OUTER_V4);
        let payload = hex::decode(payload).unwrap();
        let out = &mut pair.sender.get_mut(ChildId::new(0x0a0a)).unwrap().outbound;
        let mut slot = vec![0; out.sealed_len(payload.len())];
        slot[out.head_len()..][..payload.len()].copy_from_slice(&payload);
        out.seal(&mut slot, payload.len(), 94).unwrap();
        assert_eq!(pair.open(slot), Err(Discard::Inner { len: payload.len() }));
    }
}

#[test]
fn the_largest_packet_fits_with_options_too() {
    for (inner, outer) in [(LSI, OUTER_V4), (LSI, OUTER_V6), (HIT, OUTER_V4), (HIT, OUTER_V6)] {
        let mode = Mode::Beet(Beet { local: ip(inner.0), remote: ip(inner.1) });
        let path = order(1, 2, Beet { local: ip(inner.0), remote: ip(inner.1) }, outer).path;
        let overhead = Overhead::new(ENCR, None, mode, &path);
        let largest = overhead.inner_mtu(1_500);
        let mut pair = Pair::new(inner.0, inner.1, outer);
        let packets =
            if inner == HIT { vec![v6()] } else { vec![v4(""), v4("94040000"), v4("9404000001010100")] };
        for mut packet in packets {
            packet.resize(largest, 0);
            let (datagram, _) = pair.seal(&packet).unwrap();
            assert!(datagram.len() + path.outer_overhead() <= 1_500);
        }
    }
}

/// From protocol 50 to UDP between the same addresses: eight bytes less, and what was learned of the path counts; elsewhere it does not.
#[test]
fn another_carrier_takes_its_bytes_and_keeps_the_path() {
    for outer in [OUTER_V4, OUTER_V6] {
        let mut pair = Pair::new(HIT.0, HIT.1, outer);
        let tunnel = pair.sender.get_mut(ChildId::new(0x0a0a)).unwrap();
        let (now, udp) = (Instant::ZERO, tunnel.path);
        let raw = udp.with_ports(Carrier::RawEsp, 0, 0);
        tunnel.remap(raw, LINK_MTU);
        let before = tunnel.inner_mtu(now);
        tunnel.remap(udp, LINK_MTU);
        assert_eq!(tunnel.inner_mtu(now), before - 8);
        tunnel.pmtu.lower(now, 1_400);
        let lowered = tunnel.inner_mtu(now);
        tunnel.remap(raw, LINK_MTU);
        assert_eq!(tunnel.inner_mtu(now), lowered + 8);
        let mut elsewhere = raw;
        elsewhere.local.set_ip(ip(if raw.local.is_ipv4() { "192.0.2.9" } else { "2001:db8::9" }));
        tunnel.remap(elsewhere, LINK_MTU);
        assert_eq!(tunnel.inner_mtu(now), before);
    }
}

#[test]
fn what_the_data_plane_cannot_do_is_refused_and_its_spi_given_back() {
    let mut sad = Sad::new();
    let inner = Beet { local: ip(LSI.0), remote: ip(LSI.1) };
    let mut refused = |install: Install| {
        let error = sad.install(&install, LINK_MTU, &mut Seeded::new(1)).unwrap_err();
        assert_eq!((sad.spis().in_use(), sad.iter_mut().count()), (0, 0));
        error
    };
    let wide = vec![TsRange::addresses(ip("1.0.0.0"), ip("1.0.0.255"))];
    let error = refused(Install { ts_remote: wide, ..order(300, 1, inner, OUTER_V4) });
    assert_eq!(error, InstallError::Beet(inner));
    let mixed = Beet { local: ip(LSI.0), remote: ip(HIT.1) };
    assert_eq!(refused(order(300, 1, mixed, OUTER_V4)), InstallError::Beet(mixed));
}

/// A packet between the ends of a pair: UDP or TCP of these ports, or ICMPv6.
fn of(v6: bool, protocol: u8, ports: (u16, u16), bytes: usize) -> Vec<u8> {
    let len = 20 + bytes;
    let mut payload = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
    payload.resize(len, 0xa5);
    let (ends, mut packet) = if v6 {
        (HIT, vec![0x60, 0, 0, 0, 0, 0, protocol, 64])
    } else {
        (LSI, vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0])
    };
    for end in [ends.0, ends.1] {
        match ip(end) {
            IpAddr::V4(a) => packet.extend(a.octets()),
            IpAddr::V6(a) => packet.extend(a.octets()),
        }
    }
    let (at, stated) = if v6 { (4, len) } else { (2, len + 20) };
    packet[at..at + 2].copy_from_slice(&(stated as u16).to_be_bytes());
    if !v6 {
        let sum = ip::checksum::checksum(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    packet.extend(payload);
    packet
}

#[test]
fn packets_in_rows_of_one_flow_are_rebuilt_as_alone() {
    for (v6, ends) in [(false, LSI), (true, HIT)] {
        let mut pair = Pair::new(ends.0, ends.1, OUTER_V4);
        pair.outer.ecn = Ecn::NotEct;
        let icmp = if v6 { 58 } else { 1 };
        let rows = [(6, (1_000, 2_000)), (6, (1_001, 2_000)), (17, (1_001, 2_000)), (icmp, (0x8000, 0))];
        for (protocol, ports) in rows.into_iter().chain(rows) {
            for bytes in [100, 100, 0, 1_300] {
                let packet = of(v6, protocol, ports, bytes);
                let (datagram, _) = pair.seal(&packet).unwrap();
                assert_eq!(pair.open(datagram).unwrap(), packet, "{protocol} {ports:?} {bytes}");
            }
        }
        // The congestion mark is that of each packet's own outer header.
        for (ecn, bits) in [(Ecn::Ce, 3u8), (Ecn::Ce, 3), (Ecn::NotEct, 0)] {
            pair.outer.ecn = ecn;
            let (datagram, _) = pair.seal(&of(v6, 6, (1, 2), 50)).unwrap();
            let packet = pair.open(datagram).unwrap();
            let mark = if v6 { packet[1] >> 4 } else { packet[1] };
            assert_eq!(mark, bits);
        }
    }
}

#[test]
fn transport_mode_gets_its_header_checksum_and_mark_back_behind_a_nat() {
    // The client knows itself as 10.0.0.7, the gateway sees 203.0.113.9.
    let (there, here, gateway) = (ip("10.0.0.7"), ip("203.0.113.9"), ip("192.0.2.2"));
    let host = |address| vec![TsRange::addresses(address, address)];
    let unused = Beet { local: gateway, remote: here };
    let base = || Install { mode: Mode::Transport, ..order(0x0b0b, 0x0a0a, unused, OUTER_V4) };
    let original = Some(Original { local: gateway, remote: there });
    let install = Install { original, ts_local: host(gateway), ts_remote: host(here), ..base() };
    let mut sad = Sad::new();
    sad.install(&install, LINK_MTU, &mut Seeded::new(1)).unwrap();
    let mut payload = hex::decode("03e807d0000c0000da7ada7a").unwrap();
    let sum = |payload: &[u8], from| {
        ip::checksum::pseudo_header(from, gateway, 17, payload.len()).add_bytes(payload).finish()
    };
    let sent = sum(&payload, there);
    payload[6..8].copy_from_slice(&sent.to_be_bytes());
    let tunnel = sad.get_mut(ChildId::new(0x0b0b)).unwrap();
    let outer = Outer { source: here, destination: gateway, ecn: Ecn::Ce };
    let rebuilt = tunnel.rebuild(17, None, &mut payload, outer).unwrap();
    assert_eq!((rebuilt.flow.src, rebuilt.flow.dst, rebuilt.skip), (here, gateway, 0));
    assert_eq!(rebuilt.header.unwrap().as_bytes()[1], Ecn::Ce as u8);
    assert_eq!(sum(&payload, here), 0);
    let mut options = v4("94040000");
    assert_eq!(tunnel.strip(&mut options), None, "they would have to move outside");
}

//! What others have computed: tags, and the bytes of a whole association; and what a foreign parser says to every packet.

#![expect(clippy::disallowed_methods, reason = "a test hands a file to tshark")]
#![expect(clippy::disallowed_types, reason = "a test starts tshark")]

use std::process::Command;
use std::time::Duration;

use dormouse_crypto::hip::DhGroup;
use dormouse_hip::HostConfig;
use dormouse_sansio::{Carrier, Path};
use dormouse_wire::hip::{Packet, PacketType, ParamType};
use dormouse_wire::ip::checksum;

use crate::world::{World, config, identity};

const SOON: Duration = Duration::from_secs(1);

/// Computed with Python's hashlib and the public keys that OpenSSL 3.0 writes: the prefix, then bytes 10 to 21 of SHA-256, or 18 to 29
/// of SHA-384, of the context and the encoded key (RFC 7343 section 2): for RSA 03 01 00 01 and the modulus, for ECDSA the curve and
/// the uncompressed point.
#[test]
fn tags_are_those_of_another_implementation() {
    for (kind, tag) in [
        ("known p256", "2001:22:8b3:4d8a:2b8f:79a3:12a6:f6b5"),
        ("known p384", "2001:22:f697:9129:36b8:9475:ab5c:9187"),
        ("known rsa", "2001:21:bef3:fb45:386:b9bd:cd2b:dc8d"),
    ] {
        assert_eq!(identity(kind).hit().to_string(), tag, "{kind}");
    }
}

/// A base exchange, a rekeying and an end between two known identities.
fn association(carrier: Carrier, kinds: [&str; 2], group: DhGroup) -> World {
    let one = HostConfig { groups: vec![group], ..config() };
    let mut world = World::new(7, carrier, kinds.map(|kind| (kind, one.clone())).to_vec());
    let id = world.connect(0, 1);
    world.run(SOON);
    let child = world.nodes[0].host.describe().next().and_then(|d| d.child).unwrap();
    world.act(0, |host, now| dormouse_keying::KeyManager::rekey_child(host, now, child));
    world.run(SOON);
    assert!(world.joined(0, 1), "{:?}", world.drops);
    world.act(0, |host, now| host.close(now, id));
    world.run(SOON);
    assert_eq!(world.nodes[0].host.describe().count(), 0, "{:?}", world.drops);
    world
}

/// A packet with the signature's bytes, the only ones that chance chooses, as zeros, and without checksum.
fn without_chance(bytes: &[u8]) -> Vec<u8> {
    let packet = Packet::parse(bytes).unwrap();
    let mut bytes = bytes.to_vec();
    bytes[4..6].fill(0);
    for kind in [ParamType::HipSignature, ParamType::HipSignature2] {
        if let Some(raw) = packet.find(kind) {
            bytes[raw.at + 6..raw.at + 4 + raw.contents.len()].fill(0);
        }
    }
    bytes
}

/// Every byte of an association, of which golden.txt has one packet a line. Python's hashlib, hmac and `cryptography` found in them,
/// from Kij on: the puzzle solved, the keys that make HIP_MAC and HIP_MAC_2 right, the initiator's HOST_ID in ENCRYPTED, and every
/// signature right.
#[test]
fn a_whole_association_is_golden() {
    let world = association(Carrier::RawHip, ["known p256", "known rsa"], DhGroup::Ecp256);
    let lines: Vec<String> = world.seen.iter().map(|(_, b)| hex::encode(without_chance(b))).collect();
    let golden: Vec<&str> = include_str!("../golden.txt").lines().filter(|l| !l.starts_with('#')).collect();
    for (n, line) in lines.iter().enumerate() {
        assert_eq!(Some(line.as_str()), golden.get(n).copied(), "packet {n}");
    }
    assert_eq!(lines.len(), golden.len());
}

/// An IP packet around a datagram of a world.
fn ip(path: Path, bytes: &[u8]) -> Vec<u8> {
    let (std::net::IpAddr::V4(src), std::net::IpAddr::V4(dst)) = (path.local.ip(), path.remote.ip()) else {
        panic!("an address of IPv6")
    };
    let (protocol, payload) = match path.carrier {
        Carrier::HipUdp => {
            let ports = [path.local.port().to_be_bytes(), path.remote.port().to_be_bytes()].concat();
            (17, [&ports[..], &(bytes.len() as u16 + 8).to_be_bytes(), &[0, 0], bytes].concat())
        }
        _ => (139, bytes.to_vec()),
    };
    let mut header = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
    header[2..4].copy_from_slice(&(payload.len() as u16 + 20).to_be_bytes());
    header.extend([src.octets(), dst.octets()].concat());
    let sum = checksum::Sum::default().add_bytes(&header).finish();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [header, payload].concat()
}

/// A classic pcap of raw IP.
fn pcap(packets: &[(Path, Vec<u8>)]) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend([0xa1b2_c3d4_u32.to_be_bytes(), [0, 2, 0, 4], [0; 4], [0; 4]].concat());
    file.extend([262_144_u32.to_be_bytes(), 101_u32.to_be_bytes()].concat());
    for (n, (path, bytes)) in packets.iter().enumerate() {
        let frame = ip(*path, bytes);
        let len = (frame.len() as u32).to_be_bytes();
        file.extend([(n as u32).to_be_bytes(), [0; 4], len, len].concat());
        file.extend(frame);
    }
    file
}

/// What tshark says of each packet: HIP's type, whether its checksum is right, its complaints, and whether it is malformed.
fn tshark(packets: &[(Path, Vec<u8>)], name: &str) -> String {
    let path = std::env::temp_dir().join(format!("dormouse-hip-{}-{name}.pcap", std::process::id()));
    std::fs::write(&path, pcap(packets)).unwrap();
    let output = Command::new("tshark")
        .args(["-n", "-o", "ip.check_checksum:TRUE", "-T", "fields", "-E", "separator=;"])
        .args(["-e", "hip.packet_type", "-e", "hip.checksum.status", "-e", "_ws.expert.message"])
        .args(["-e", "_ws.malformed", "-r"])
        .arg(&path)
        .output()
        .unwrap();
    std::fs::remove_file(&path).unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// tshark, a parser that others wrote, finds HIP in every packet, a good checksum, and nothing to complain of, but for HOST_ID, which it
/// (4.0) reads as version 1 has it: where version 2 has the key it looks for the algorithm.
#[test]
fn tshark_has_no_complaint() {
    if Command::new("tshark").arg("--version").output().is_err() {
        println!("SKIPPED: tshark is not installed");
        return;
    }
    for (carrier, kinds) in [
        (Carrier::RawHip, ["known p256", "known rsa"]),
        (Carrier::RawHip, ["known rsa", "known p384"]),
        (Carrier::HipUdp, ["known p384", "known p256"]),
        (Carrier::RawHip, ["v1 rsa", "v1 dsa"]),
        (Carrier::RawHip, ["v1 dsa", "v1 rsa"]),
    ] {
        let is_old = kinds[0].starts_with("v1");
        let group = if is_old { DhGroup::Modp1536 } else { DhGroup::Ecp384 };
        let world = association(carrier, kinds, group);
        let said = tshark(&world.seen, &format!("{carrier:?}"));
        let skip = if carrier == Carrier::HipUdp { 4 } else { 0 };
        let expected: Vec<String> = world
            .seen
            .iter()
            .map(|(_, b)| {
                let kind = Packet::parse(&b[skip..]).unwrap().header.kind.code();
                let remark = if kind == 2 && !is_old { "Unknown algorithm type" } else { "" };
                format!("{kind};1;{remark};")
            })
            .collect();
        assert_eq!(said.lines().collect::<Vec<_>>(), expected, "{carrier:?} {kinds:?}");
    }
}

/// The same of what goes through relays and rendezvous servers, registers at them, keeps NATs open, and tells errors.
#[test]
fn tshark_has_no_complaint_of_servers_and_notifications() {
    if Command::new("tshark").arg("--version").output().is_err() {
        println!("SKIPPED: tshark is not installed");
        return;
    }
    let mut relay = crate::relay::with_relay(51, [true, false]);
    assert!(crate::relay::ask(&mut relay));
    relay.run(crate::relay::LATER);
    let rendezvous = crate::rendezvous::found_through_the_server(52);
    let refused = refused(53);
    use ParamType as T;
    for (name, seen, skip, params) in [
        (
            "relay",
            &relay.seen,
            4,
            &[
                T::RegInfo,
                T::RegRequest,
                T::RegResponse,
                T::RegFrom,
                T::RelayFrom,
                T::RelayTo,
                T::RelayHmac,
                T::Notification,
            ][..],
        ),
        (
            "rendezvous",
            &rendezvous.seen,
            0,
            &[T::RegInfo, T::RegRequest, T::RegResponse, T::From, T::RvsHmac, T::ViaRvs],
        ),
        ("refused", &refused.seen, 0, &[T::Notification]),
    ] {
        let packets: Vec<(Path, Vec<u8>)> = seen
            .iter()
            .filter(|(_, b)| Packet::parse(b.get(skip..).unwrap_or_default()).is_ok())
            .cloned()
            .collect();
        let parsed: Vec<Packet<'_>> =
            packets.iter().map(|(_, b)| Packet::parse(&b[skip..]).unwrap()).collect();
        for kind in params {
            assert!(parsed.iter().any(|packet| packet.find(*kind).is_some()), "{name} has no {kind}");
        }
        let said = tshark(&packets, name);
        let expected: Vec<String> = parsed
            .iter()
            .map(|packet| {
                let kind = packet.header.kind.code();
                let remark = if packet.find(T::HostId).is_some() { "Unknown algorithm type" } else { "" };
                format!("{kind};1;{remark};")
            })
            .collect();
        assert_eq!(said.lines().collect::<Vec<_>>(), expected, "{name}");
    }
}

/// A host that offers no group that its peer has, and one that is denied while its I2 is under way: the exchange ends with a NOTIFY.
fn refused(seed: u64) -> World {
    let mut world =
        World::new(seed, Carrier::RawHip, vec![("known p256", config()), ("known p384", config())]);
    let peer = world.nodes[0].tag;
    world.connect(0, 1);
    while world.count(PacketType::I2) == 0 {
        let end = world.now + Duration::from_secs(1);
        world.step(end);
    }
    world.act(1, |host, now| host.deny(now, peer));
    world.run(Duration::from_secs(1));
    assert!(world.count(PacketType::Notify) > 0, "{:?}", world.drops);
    world
}

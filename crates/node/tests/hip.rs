//! HIP in a node. ESP under an unknown SPI: IKE answers where IKE is served, and HIP answers no unknown sender.
//! All timers of HIP are listed.

use dormouse_crypto::sign::SigningKey;
use dormouse_hip::{Accept, Host as Hip, HostConfig, Identity, Peer};
use dormouse_ike::EndpointConfig;
use dormouse_node::config::{parse, resolve};
use dormouse_node::{Inbound, Node, Train};
use dormouse_sansio::{Carrier, Instant, Path, Seeded};
use dormouse_wire::hip::{DomainId, Hit, Packet, PacketType};
use dormouse_wire::ike::{Message, NotifyType, Payload};
use std::net::Ipv6Addr;

const GATEWAY: &str = "[connection.office]\nrole = \"gateway\"\n\
                       [connection.office.local]\nid = \"gateway.test\"\nsecret = \"a secret of the test\"\n\
                       [connection.office.remote]\nid = \"device.test\"\nsecret = \"a secret of the test\"\n";
const STRANGER: [u8; 4] = [203, 0, 113, 9];

fn identity() -> Identity {
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("a key pair");
    let key = SigningKey::from_der(&pair.serialize_der()).expect("a key");
    Identity::new(key, DomainId::default()).expect("an identity")
}

/// A node with the connections of `toml` and HIP, which knows a peer at `at`; the peer's tag.
fn node(toml: &str, at: [u8; 4]) -> (Node, Hit) {
    let file = parse(toml).expect("TOML");
    let connections = resolve(&file, &mut |_, _| Err("no files here".into())).expect("a configuration");
    let entropy = |seed| Box::new(Seeded::new(seed));
    let mut node = Node::new(connections, EndpointConfig::default(), entropy(1), entropy(2));
    let config = HostConfig { accept: Accept::Any, ..HostConfig::default() };
    let mut hip = Hip::new(config, vec![identity()], Box::new(node.spis()), entropy(3));
    let peer = identity().hit();
    hip.set_peer(peer, Some(Peer { addresses: vec![at.into()], udp: false }));
    node.set_key_manager("hip", Box::new(hip));
    node.set_sources(Instant::ZERO, &[[192, 0, 2, 1].into()]);
    (node, peer)
}

/// What is sent when the stranger sends ESP under an SPI that is not in use.
fn answers(node: &mut Node, carrier: Carrier, port: u16) -> Vec<(Path, Vec<u8>)> {
    let path = Path { local: ([192, 0, 2, 1], port).into(), remote: (STRANGER, port).into(), carrier };
    let mut esp = [&0x0102_0304u32.to_be_bytes()[..], &[0; 60]].concat();
    let taken = node.handle_next(Instant::ZERO, path, &mut Train::default(), &mut esp);
    assert!(!matches!(taken, Ok(Inbound::Inner { .. })) && node.counters().unknown_spi() > 0, "{taken:?}");
    let mut datagram = Vec::new();
    let next = || {
        let sent = node.poll_transmit(Instant::ZERO, &mut datagram)?;
        Some((sent.path, std::mem::take(&mut datagram)))
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn a_host_without_ike_says_nothing_to_a_stranger() {
    let (mut node, _) = node("", [198, 51, 100, 7]);
    assert_eq!(answers(&mut node, Carrier::RawEsp, 0), []);
    assert_eq!(answers(&mut node, Carrier::HipUdp, 10_500), []);
}

#[test]
fn a_host_with_ike_besides_answers_as_ike_does() {
    let (mut node, _) = node(GATEWAY, [198, 51, 100, 7]);
    let sent = answers(&mut node, Carrier::RawEsp, 0);
    let [(path, datagram)] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!((path.carrier, path.local.port(), path.remote.ip()), (Carrier::Ike, 500, STRANGER.into()));
    let message = Message::parse(datagram).expect("a message of IKE");
    assert!(matches!(message.payloads.as_slice(), [Payload::Notify(n)] if n.kind == NotifyType::InvalidSpi));
    // What is in the UDP of HIP is not IKE's.
    assert_eq!(answers(&mut node, Carrier::HipUdp, 10_500), []);
}

/// A peer of the directory may have an association that this host has lost: it is called.
#[test]
fn a_known_peer_is_called_instead() {
    let (mut node, peer) = node("", STRANGER);
    let sent = answers(&mut node, Carrier::RawEsp, 0);
    let [(path, datagram)] = sent.as_slice() else { panic!("{sent:?}") };
    let i1 = Packet::parse(datagram).expect("a packet of HIP").header;
    assert_eq!((path.carrier, i1.kind, i1.receiver), (Carrier::RawHip, PacketType::I1, peer));
}

/// `dormouse status` lists what the node says: each timer of each association, not the first one alone.
#[test]
fn all_timers_of_hip_are_listed() {
    let (mut node, peer) = node("", STRANGER);
    let other = identity().hit();
    node.with_manager(Instant::ZERO, |hip: &mut Hip| {
        hip.set_peer(other, Some(Peer { addresses: vec![[203, 0, 113, 10].into()], udp: false }));
    });
    for peer in [peer, other] {
        assert!(node.want_tunnel(Instant::ZERO, (Ipv6Addr::UNSPECIFIED.into(), peer.0.into())));
    }
    let mut whys: Vec<&str> = node.deadlines().iter().map(|d| d.why).collect();
    whys.sort_unstable();
    assert_eq!(whys, ["HIP: R1 packets ahead", "HIP: no R1", "HIP: no R1"]);
    assert_eq!(node.poll_timeout(), node.deadlines().into_iter().min_by_key(|d| d.at));
}

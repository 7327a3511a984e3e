//! Entry points for fuzzing: bytes in, no panic. Not part of the interface.

use std::collections::BTreeSet;

use core::net::{Ipv6Addr, SocketAddr};
use core::time::Duration;

use dormouse_crypto::hip::v1;
use dormouse_crypto::sign::SigningKey;
use dormouse_keying::{ChildId, KeyManager};
use dormouse_sansio::{Carrier, Instant, Path, Seeded};
use dormouse_wire::hip::{DomainId, Draft, Header, Hit, PacketType, Version, set_checksum};

use crate::{Accept, Host, HostConfig, Identity, Peer, Quirk, Registrar, Registration};

mod clients;

pub use clients::clients_input;

/// Two keys that protect nothing, PKCS #8.
const KEYS: [&[u8]; 2] = [
    &[
        0x30, 0x81, 0x87, 0x02, 0x01, 0x00, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01,
        0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x04, 0x6d, 0x30, 0x6b, 0x02, 0x01, 0x01,
        0x04, 0x20, 0x0e, 0xa3, 0xa1, 0x6c, 0xfe, 0x75, 0xec, 0x37, 0xaa, 0x51, 0xc0, 0x7c, 0xb5, 0x90, 0xc9,
        0xb2, 0xb0, 0x47, 0x40, 0xd3, 0xd2, 0xe2, 0xac, 0xe4, 0x3a, 0x7f, 0xfd, 0x01, 0x71, 0x1a, 0xb4, 0x6a,
        0xa1, 0x44, 0x03, 0x42, 0x00, 0x04, 0x98, 0xbf, 0xfb, 0x21, 0x46, 0xb1, 0xb4, 0xd2, 0x4f, 0xc8, 0x42,
        0x67, 0x11, 0x9e, 0x26, 0xae, 0xc3, 0xde, 0xf0, 0xac, 0x55, 0xce, 0x0e, 0xb2, 0x11, 0x19, 0x06, 0xcb,
        0xa4, 0x2e, 0x43, 0xdc, 0x1c, 0x7d, 0x79, 0xb3, 0xfd, 0x07, 0x13, 0xc0, 0xd5, 0x69, 0x64, 0x2a, 0x39,
        0xff, 0x02, 0x9f, 0x7f, 0x52, 0xa2, 0x95, 0xdf, 0xd3, 0x69, 0x84, 0x5d, 0x1d, 0x50, 0x22, 0x11, 0x4a,
        0x95, 0x00,
    ],
    &[
        0x30, 0x81, 0x87, 0x02, 0x01, 0x00, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01,
        0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x04, 0x6d, 0x30, 0x6b, 0x02, 0x01, 0x01,
        0x04, 0x20, 0xc7, 0xf6, 0x95, 0x7a, 0x04, 0xf8, 0xe2, 0x1e, 0xcf, 0xe6, 0x36, 0x39, 0x07, 0xc5, 0xd6,
        0x9f, 0x3d, 0x16, 0xbb, 0x8c, 0xe6, 0x70, 0xfc, 0x67, 0x24, 0x9d, 0x0d, 0x1b, 0x21, 0xe2, 0x08, 0x68,
        0xa1, 0x44, 0x03, 0x42, 0x00, 0x04, 0x16, 0x18, 0x16, 0x21, 0x62, 0x23, 0xb0, 0x4b, 0x1e, 0x7c, 0xf4,
        0x25, 0x45, 0xa1, 0x1b, 0xe9, 0x07, 0x1e, 0x6b, 0x88, 0x1e, 0x79, 0x1d, 0x2b, 0xab, 0x69, 0x02, 0x56,
        0xa3, 0x46, 0xd8, 0x51, 0xaf, 0x64, 0x78, 0x14, 0x52, 0x4c, 0x19, 0x7c, 0xa5, 0x18, 0x53, 0x44, 0x9d,
        0xf0, 0x6b, 0xdb, 0x03, 0x91, 0x75, 0x77, 0xde, 0x64, 0x98, 0x78, 0x76, 0x6f, 0x77, 0x07, 0xc7, 0x37,
        0x02, 0x68,
    ],
];

pub(crate) fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, host as u8 + 1], 0))
}

pub(crate) fn path(from: usize) -> Path {
    Path { local: address(from), remote: address(1 - from), carrier: Carrier::RawHip }
}

/// Keys of version 1 that protect nothing.
const OLD_KEYS: [&[u8]; 2] =
    [include_bytes!("../tests/keys/rsa1024.pem"), include_bytes!("../tests/keys/dsa1024.pem")];

fn identity(n: usize, old: bool) -> Option<Identity> {
    if old {
        return Identity::v1(v1::SigningKey::from_file_content(OLD_KEYS[n]).ok()?, DomainId::default()).ok();
    }
    Identity::new(SigningKey::from_der(KEYS[n]).ok()?, DomainId::default()).ok()
}

/// The second is a rendezvous server, at which the first registers.
pub(crate) fn host(n: usize, old: bool) -> Option<Host> {
    let (identity, server) = (identity(n, old)?, identity(1, old)?.hit());
    let registrar = Registrar { permits: Accept::Any, longest: Duration::from_secs(300), max_clients: 1 };
    let config = HostConfig {
        accept: Accept::Any,
        multihoming: true,
        liveness: Some(Duration::from_secs(200)),
        registrar: (n == 1).then_some(registrar),
        rendezvous: if n == 0 { BTreeSet::from([server]) } else { BTreeSet::new() },
        ..HostConfig::default()
    };
    let spis = Box::new(BTreeSet::<ChildId>::new());
    Some(Host::new(config, vec![identity], spis, Box::new(Seeded::new(n as u64))))
}

/// Carries up to `budget` datagrams between the two, each at its turn; the last that was not handed over.
pub(crate) fn carry(hosts: &mut [Host; 2], now: Instant, budget: usize) -> Option<(usize, Vec<u8>)> {
    let mut left = budget;
    for from in (0..2).cycle().take(64) {
        hosts[from].handle_timeout(now);
        while hosts[from].poll_event().is_some() {}
        let mut datagram = Vec::new();
        while hosts[from].poll_transmit(now, &mut datagram).is_some() {
            if left == 0 {
                return Some((from, datagram));
            }
            left -= 1;
            let _ = hosts[1 - from].handle_datagram(now, path(1 - from), &mut datagram);
            datagram.clear();
        }
    }
    None
}

/// The first byte says after how many datagrams of a base exchange, of a rekeying and of an end the second comes in place of one: by the
/// highest bit as it is, else as a change to the real one: pairs of a place and a value. By its tens both take the other for one with all
/// quirks; from 60 on both speak version 1. The checksum is put right, because chance does not find it. Nothing may panic, and nothing may loop.
///
/// # Panics
/// If a property does not hold.
pub fn host_input(data: &[u8]) {
    let [first, rest @ ..] = data else { return };
    let old = first & 0x7f >= 60;
    let (Some(a), Some(b)) = (host(0, old), host(1, old)) else { return };
    let (ours, peer) = (a.tags().next().expect("an identity"), b.tags().next().expect("an identity"));
    let mut hosts = [a, b];
    let mut now = Instant::ZERO;
    let id = hosts[0].connect(now, ours, peer, &[path(0)]).expect("it begins");
    let mut budget = usize::from(first & 0x7f) % 10;
    if first / 10 % 2 == 1 {
        hosts[0].set_quirks(peer, Quirk::ALL.into_iter().collect());
        hosts[1].set_quirks(ours, Quirk::ALL.into_iter().collect());
    }
    let mut pending = carry(&mut hosts, now, budget);
    if pending.is_none() {
        budget = budget.saturating_sub(4);
        let child = hosts[0].describe().find_map(|d| d.child);
        child.into_iter().for_each(|child| hosts[0].rekey_child(now, child));
        pending = carry(&mut hosts, now, budget);
    }
    if pending.is_none() {
        hosts[0].close(now, id);
        pending = carry(&mut hosts, now, 0);
    }
    let (from, real) = pending.unwrap_or_default();
    let mut datagram = if first & 0x80 != 0 { rest.to_vec() } else { real };
    if first & 0x80 == 0 {
        for change in rest.chunks_exact(3) {
            let at = usize::from(u16::from_be_bytes([change[0], change[1]]));
            if let Some(byte) = datagram.get_mut(at) {
                *byte = change[2];
            }
        }
    }
    if datagram.len() >= 8 {
        set_checksum(&mut datagram, Some((address(from).ip(), address(1 - from).ip())));
    }
    let _ = hosts[1 - from].handle_datagram(now, path(1 - from), &mut datagram);
    for _ in 0..40 {
        carry(&mut hosts, now, usize::MAX);
        now += Duration::from_secs(30);
    }
    assert!(hosts.iter().all(|h| h.describe().count() <= 1), "one association with a peer");
}

/// A stranger's packet for the client of a rendezvous server: by the lowest bit of the first byte an UPDATE, else an I1; by the next handed
/// to the client itself, else to the server. The other bytes are its parameters. Nothing may panic, nothing may loop, and no more than
/// this one packet is sent on.
///
/// # Panics
/// If a property does not hold.
pub fn rendezvous_input(data: &[u8]) {
    let [first, rest @ ..] = data else { return };
    let (Some(client), Some(server)) = (host(0, false), host(1, false)) else { return };
    let (tag, at) = (client.tags().next().expect("an identity"), server.tags().next().expect("an identity"));
    let mut hosts = [client, server];
    let mut now = Instant::ZERO;
    hosts[0].set_addresses(now, &[address(0).ip()]);
    hosts[0].set_peer(at, Some(Peer { addresses: vec![address(1).ip()], udp: false }));
    carry(&mut hosts, now, usize::MAX);
    let stands = hosts[0].describe().next().map(|d| d.registration);
    assert_eq!(stands, Some(Registration::AtPeer), "the client registers");
    let kind = if first & 1 == 0 { PacketType::I1 } else { PacketType::Update };
    let sender = Hit(Ipv6Addr::new(0x2001, 0x22, 0, 0, 0, 0, 0, 1));
    let header = Header { kind, version: Version::V2, controls: 0, sender, receiver: tag };
    let Ok(mut packet) = Draft::new(&header).finish() else { return };
    packet.extend(&rest[..rest.len().min(2_000) / 8 * 8]);
    packet[1] = (packet.len() / 8 - 1) as u8;
    let to = 1 - usize::from(first >> 1 & 1);
    let path = Path { remote: SocketAddr::from(([203, 0, 113, 9], 0)), ..path(to) };
    set_checksum(&mut packet, Some((path.remote.ip(), path.local.ip())));
    let _ = hosts[to].handle_datagram(now, path, &mut packet);
    assert!(hosts[1].stats().relayed <= 1, "one packet came");
    for _ in 0..20 {
        carry(&mut hosts, now, usize::MAX);
        now += Duration::from_secs(30);
    }
    assert!(hosts.iter().all(|h| h.describe().count() <= 1), "one association with a peer");
}

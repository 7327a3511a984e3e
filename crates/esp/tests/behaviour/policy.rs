//! Which SA a packet belongs to, in both directions.

use std::net::IpAddr;

use crate::common::{SUITES, ipv4, params, seal};
use dormouse_crypto::Encr;
use dormouse_esp::{Child, Discard, IPV4_IN_IP, Inbound, Mode, Outbound, Overhead, PathMtu, Sad, Selectors};
use dormouse_sansio::{Carrier, Path, Seeded};
use dormouse_wire::ike::{TrafficSelector, TsRange};
use dormouse_wire::ip::{Flow, flow};

fn ip(s: &str) -> IpAddr {
    s.parse().unwrap()
}

fn range(a: &str, b: &str) -> TrafficSelector {
    TsRange::addresses(ip(a), ip(b)).into()
}

fn child(id: u64, remote: TrafficSelector) -> Child {
    let mut p = params(SUITES[0].0, None);
    p.spi = 0x100 + id as u32;
    let path = Path {
        local: "192.0.2.1:4500".parse().unwrap(),
        remote: "192.0.2.2:4500".parse().unwrap(),
        carrier: Carrier::NatT,
    };
    Child {
        id,
        inbound: Inbound::new(&p).unwrap(),
        outbound: Outbound::new(&p, &mut Seeded::new(id)).unwrap(),
        selectors: Selectors::new(&[range("10.0.0.0", "10.0.0.255")], &[remote]),
        original: None,
        path,
        overhead: Overhead::new(Encr::Aes128Gcm16, None, Mode::Tunnel, &path),
        pmtu: PathMtu::new(&path, 1_500),
    }
}

fn to(dst: &str) -> Flow {
    Flow { src: ip("10.0.0.1"), dst: ip(dst), protocol: 17, src_port: Some(1), dst_port: Some(2) }
}

#[test]
fn the_narrowest_policy_wins_and_the_cache_forgets() {
    let mut sad = Sad::new();
    for (id, remote) in [
        (1, range("0.0.0.0", "255.255.255.255")),
        (2, range("10.9.0.0", "10.9.255.255")),
        (3, range("10.9.0.7", "10.9.0.7")),
    ] {
        assert!(sad.insert(child(id, remote)).is_none());
        assert!(sad.activate(id));
    }
    for _ in 0..2 {
        assert_eq!(sad.route(&to("8.8.8.8")), Some(1));
        assert_eq!(sad.route(&to("10.9.3.3")), Some(2));
        assert_eq!(sad.route(&to("10.9.0.7")), Some(3));
        assert_eq!(sad.route(&to("2001:db8::1")), None);
    }
    sad.remove(3).unwrap();
    assert_eq!(sad.route(&to("10.9.0.7")), Some(2));
    sad.deactivate(2);
    assert_eq!(sad.route(&to("10.9.0.7")), Some(1));
    assert_eq!(sad.by_spi(0x102), Some(2), "it still receives");
    let outside = Flow { src: ip("10.1.0.1"), ..to("8.8.8.8") };
    assert_eq!(sad.route(&outside), None, "our side is checked too");
}

#[test]
fn a_replacement_takes_over_when_it_is_activated() {
    for remote in [range("10.9.0.0", "10.9.255.255"), range("10.9.0.7", "10.9.0.7")] {
        let mut sad = Sad::new();
        sad.insert(child(1, remote.clone()));
        sad.activate(1);
        sad.insert(child(2, remote));
        assert_eq!(sad.route(&to("10.9.0.7")), Some(1), "installed for receiving only");
        sad.activate(2);
        assert_eq!(sad.route(&to("10.9.0.7")), Some(2));
        sad.remove(1);
        assert_eq!(sad.route(&to("10.9.0.7")), Some(2));
    }
}

#[test]
fn ports_protocols_and_opaque() {
    let https =
        TsRange { protocol: 6, start_port: 443, end_port: 443, start: ip("10.9.0.0"), end: ip("10.9.0.255") };
    let any = [range("0.0.0.0", "255.255.255.255")];
    let only = Selectors::new(&any, &[https.into()]);
    let f = |protocol, dst_port| Flow { protocol, dst_port, ..to("10.9.0.5") };
    assert!(only.match_outbound(&f(6, Some(443))));
    assert!(!only.match_outbound(&f(6, Some(80))));
    assert!(!only.match_outbound(&f(17, Some(443))));
    assert!(!only.match_outbound(&f(6, None)), "a later fragment has no port to match");
    let opaque = TsRange { start_port: u16::MAX, end_port: 0, ..https };
    let opaque = Selectors::new(&any, &[opaque.into()]);
    assert!(opaque.match_outbound(&f(6, None)));
    assert!(!opaque.match_outbound(&f(6, Some(443))));
    assert!(only.match_inbound(&f(6, Some(443)).reversed()));
    assert!(!only.match_inbound(&f(6, Some(443))));
}

#[test]
fn what_comes_out_of_a_tunnel_must_belong_in_it() {
    // Packets of 10.0.0.1 -> 10.0.0.2; the receiver's side is 10.0.0.0/24.
    let mut sad = Sad::new();
    sad.insert(child(1, range("10.0.0.1", "10.0.0.1")));
    sad.insert(child(2, range("10.0.0.99", "10.0.0.99")));
    let sender = |id: u32| {
        let mut p = params(SUITES[0].0, None);
        p.spi = 0x100 + id;
        let mut out = Outbound::new(&p, &mut Seeded::new(0)).unwrap();
        seal(&mut out, &ipv4(60), IPV4_IN_IP)
    };
    let mut packet = sender(1);
    let accepted = sad.open(&mut packet).unwrap();
    assert_eq!(accepted.id, 1);
    assert_eq!(flow(&packet[accepted.opened.inner]).unwrap().dst_port, Some(2_000));
    assert_eq!(sad.open(&mut sender(2)), Err(Discard::Selectors));
    assert_eq!(sad.open(&mut sender(3)), Err(Discard::UnknownSpi { spi: 0x103 }));
    assert!(matches!(sad.open(&mut [1, 2, 3]), Err(Discard::Length { .. })));
}

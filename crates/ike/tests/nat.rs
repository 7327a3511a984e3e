//! NAT traversal (RFC 7296 section 2.23, RFC 3948): detection, the move to port 4500, and mappings that change.

mod common;

use std::time::Duration;

use common::{Nat, Pair, client_psk, gateway_psk};
use dormouse_ike::Event;
use dormouse_ike::config::{EspInUdp, Keepalive};
use dormouse_sansio::{Carrier, Path};

const HOUR: Duration = Duration::from_secs(3_600);

#[test]
fn behind_a_nat_everything_moves_to_port_4500() {
    for mobike in [true, false] {
        let mut client = client_psk();
        client.mobility.mobike = mobike;
        let mut pair = Pair::new(client, gateway_psk(), 1);
        pair.nat = Some(Nat::new("203.0.113.5", HOUR));
        let (a, b) = pair.up();
        let ike = pair.client.endpoint.path(a).expect("it is there");
        assert_eq!((ike.carrier, ike.local.port(), ike.remote.port()), (Carrier::NatT, 4500, 4500));
        let seen = pair.gateway.endpoint.path(b).expect("it is there");
        assert_eq!(seen.remote.ip().to_string(), "203.0.113.5");
        assert_eq!(pair.client.children.values().next().expect("one").path, ike);
        assert_eq!(pair.gateway.children.values().next().expect("one").path, seen);
    }
}

#[test]
fn without_a_nat_esp_is_native_even_when_mobike_moves_ike_to_4500() {
    let mut pair = Pair::psk_natively(2);
    let (a, _) = pair.up();
    assert_eq!(pair.client.endpoint.path(a).expect("it is there").carrier, Carrier::NatT);
    for side in [&pair.client, &pair.gateway] {
        let path = side.children.values().next().expect("one").path;
        assert_eq!((path.carrier, path.local.port(), path.remote.port()), (Carrier::RawEsp, 0, 0));
    }
    let mut client = client_psk();
    client.mobility.mobike = false;
    let mut pair = Pair::new(client, gateway_psk(), 3);
    let (a, _) = pair.up();
    assert_eq!(pair.client.endpoint.path(a).expect("it is there").carrier, Carrier::Ike);
}

#[test]
fn between_our_own_ends_esp_is_in_udp_without_a_nat() {
    for (mobike, dormancy, carrier) in [
        (true, true, Carrier::NatT),
        // Port 500 carries no ESP, and an end without the extension may be anybody's.
        (false, true, Carrier::RawEsp),
        (true, false, Carrier::RawEsp),
    ] {
        let (mut client, mut gateway) = (client_psk(), gateway_psk());
        client.mobility.mobike = mobike;
        gateway.dormancy = dormancy;
        let mut pair = Pair::new(client, gateway, 6);
        let (a, _) = pair.up();
        for _ in 0..2 {
            for side in [&pair.client, &pair.gateway] {
                let path = side.children.values().next().expect("one").path;
                assert_eq!(path.carrier, carrier, "{mobike} {dormancy}");
            }
            pair.client.endpoint.rekey_ike(pair.now, a);
            pair.settle();
        }
        let kept_open = pair.client.endpoint.stats().keepalives;
        pair.run_for(HOUR);
        assert_eq!(pair.client.endpoint.stats().keepalives, kept_open, "there is no NAT to keep open");
    }
}

#[test]
fn encapsulation_can_be_forced_by_either_end() {
    for by_client in [true, false] {
        let (mut client, mut gateway) = (client_psk(), gateway_psk());
        if by_client {
            client.esp_in_udp = EspInUdp::Always
        } else {
            gateway.esp_in_udp = EspInUdp::Always
        }
        let mut pair = Pair::new(client, gateway, 4);
        pair.up();
        for side in [&pair.client, &pair.gateway] {
            assert_eq!(
                side.children.values().next().expect("one").path.carrier,
                Carrier::NatT,
                "{by_client}"
            );
        }
    }
}

#[test]
fn an_authenticated_esp_packet_from_a_new_port_moves_the_mapping() {
    for mobike in [true, false] {
        let mut client = client_psk();
        client.mobility.mobike = mobike;
        let mut pair = Pair::new(client, gateway_psk(), 5);
        pair.nat = Some(Nat::new("203.0.113.5", HOUR));
        let (_, b) = pair.up();
        let mut path = pair.gateway.endpoint.path(b).expect("it is there");
        path.remote.set_port(33_333);
        pair.gateway.endpoint.observed_path(pair.now, b, path);
        pair.flush();
        assert_eq!(pair.gateway.endpoint.path(b), Some(path));
        assert_eq!(pair.gateway.children.values().next().expect("one").path, path);
        // The client, whose peer is not behind a NAT, does not follow anybody.
        let ours = pair.client.children.values().next().and_then(|c| c.owner.ike()).expect("one");
        let before = pair.client.endpoint.path(ours).expect("it is there");
        let elsewhere = Path { remote: "198.51.100.99:4500".parse().expect("an address"), ..before };
        pair.client.endpoint.observed_path(pair.now, ours, elsewhere);
        assert_eq!(pair.client.endpoint.path(ours), Some(before));
    }
}

#[test]
fn a_rebooted_nat_is_noticed_by_the_next_check_and_the_gateway_follows() {
    let mut client = client_psk();
    client.timing.keepalive = Keepalive::Auto;
    let mut pair = Pair::new(client, gateway_psk(), 6);
    pair.nat = Some(Nat::new("203.0.113.5", HOUR));
    let (_, b) = pair.up();
    pair.run_for(Duration::from_secs(200));
    let before = pair.gateway.endpoint.path(b).expect("it is there");
    pair.nat.as_mut().expect("there is one").reboot();
    pair.run_for(Duration::from_secs(300));
    let after = pair.gateway.endpoint.path(b).expect("it is there");
    assert_ne!(before.remote, after.remote);
    assert_eq!(pair.gateway.children.values().next().expect("one").path, after);
    let moved =
        pair.gateway.take(|e| matches!(e, Event::PathChanged { path, .. } if *path == after).then_some(()));
    assert!(moved.is_some());
}

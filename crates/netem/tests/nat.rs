//! The NAT: mapping, filtering, expiry and reboot.

use core::net::SocketAddr;
use core::time::Duration;

use dormouse_netem::{Filtering, Mapping, Nat, NatConfig, NatDrop};
use dormouse_sansio::{Carrier, Instant, Path};

const PHONE: &str = "192.168.1.5:4500";
const GATEWAY: &str = "203.0.113.1:4500";
const PUBLIC: &str = "198.51.100.1";

fn path(src: &str, dst: &str) -> Path {
    Path {
        local: src.parse().expect("address"),
        remote: dst.parse().expect("address"),
        carrier: Carrier::NatT,
    }
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn config() -> NatConfig {
    NatConfig::new(PUBLIC.parse().expect("address"))
}

/// The path of the answer to a datagram seen on `seen`.
fn answer(seen: Path) -> Path {
    Path { local: seen.remote, remote: seen.local, ..seen }
}

#[test]
fn out_and_back() {
    let mut nat = Nat::new(config(), 1);
    let seen = nat.outbound(at(0), path(PHONE, GATEWAY)).expect("translated");
    assert_eq!(seen.local.ip().to_string(), PUBLIC);
    assert_eq!((seen.remote.to_string(), seen.carrier), (GATEWAY.to_owned(), Carrier::NatT));
    assert_ne!(seen.local.port(), 4500);
    let back = nat.inbound(at(1), answer(seen)).expect("translated");
    assert_eq!(back, path(GATEWAY, PHONE));
    assert_eq!(nat.outbound(at(2), path(PHONE, GATEWAY)), Ok(seen), "the mapping holds");
}

#[test]
fn an_idle_mapping_expires_and_the_next_one_differs() {
    let mut nat = Nat::new(config(), 1);
    let seen = nat.outbound(at(0), path(PHONE, GATEWAY)).expect("translated");
    assert!(nat.inbound(at(29), answer(seen)).is_ok());
    let port = seen.local.port();
    assert_eq!(
        nat.inbound(at(30), answer(seen)),
        Err(NatDrop::NoMapping { port }),
        "inbound does not refresh"
    );
    let later = nat.outbound(at(31), path(PHONE, GATEWAY)).expect("translated");
    assert_ne!(later.local.port(), port);
    let port = later.local.port();
    assert_eq!(nat.inbound(at(61), answer(later)), Err(NatDrop::NoMapping { port }));
}

#[test]
fn datagrams_from_outside_can_count_as_use() {
    let mut nat = Nat::new(NatConfig { inbound_refreshes: true, ..config() }, 1);
    let seen = nat.outbound(at(0), path(PHONE, GATEWAY)).expect("translated");
    for time in [29, 58, 87] {
        assert!(nat.inbound(at(time), answer(seen)).is_ok(), "at {time} s");
    }
    assert!(nat.inbound(at(117), answer(seen)).is_err());
}

#[test]
fn a_reboot_forgets() {
    let mut nat = Nat::new(config(), 1);
    let seen = nat.outbound(at(0), path(PHONE, GATEWAY)).expect("translated");
    nat.reboot();
    assert!(matches!(nat.inbound(at(1), answer(seen)), Err(NatDrop::NoMapping { .. })));
    let after = nat.outbound(at(1), path(PHONE, GATEWAY)).expect("translated");
    assert_ne!(after.local, seen.local);
}

#[test]
fn filtering_decides_who_may_send_in() {
    let same_host = "203.0.113.1:9999";
    let stranger = "203.0.113.200:4500";
    for (filtering, host_passes, stranger_passes) in [
        (Filtering::EndpointIndependent, true, true),
        (Filtering::AddressDependent, true, false),
        (Filtering::AddressAndPortDependent, false, false),
    ] {
        let mut nat = Nat::new(NatConfig { filtering, ..config() }, 1);
        let seen = nat.outbound(at(0), path(PHONE, GATEWAY)).expect("translated");
        for (from, passes) in [(same_host, host_passes), (stranger, stranger_passes)] {
            let from: SocketAddr = from.parse().expect("address");
            let result = nat.inbound(at(1), Path { local: from, ..answer(seen) });
            if passes {
                assert_eq!(result.map(|p| p.remote.to_string()), Ok(PHONE.to_owned()), "{filtering:?}");
            } else {
                assert_eq!(result, Err(NatDrop::Filtered { from }), "{filtering:?}");
            }
        }
    }
}

#[test]
fn a_permission_to_send_in_expires_on_its_own() {
    let mut nat = Nat::new(config(), 1);
    let first = nat.outbound(at(0), path(PHONE, GATEWAY)).expect("translated");
    let second = nat.outbound(at(20), path(PHONE, "203.0.113.2:4500")).expect("translated");
    assert!(nat.inbound(at(40), answer(second)).is_ok());
    assert!(matches!(nat.inbound(at(40), answer(first)), Err(NatDrop::Filtered { .. })));
}

#[test]
fn mapping_decides_which_flows_share_a_port() {
    let other = "203.0.113.2:4500";
    let ports = |mapping| {
        let mut nat = Nat::new(NatConfig { mapping, ..config() }, 1);
        let a = nat.outbound(at(0), path(PHONE, GATEWAY)).expect("translated");
        let b = nat.outbound(at(0), path(PHONE, other)).expect("translated");
        let third = nat.outbound(at(0), path("192.168.1.6:4500", GATEWAY)).expect("translated");
        assert!(third.local != a.local && third.local != b.local, "two hosts never share a port");
        assert!(nat.inbound(at(1), answer(a)).is_ok() && nat.inbound(at(1), answer(b)).is_ok());
        (a.local, b.local)
    };
    let (a, b) = ports(Mapping::EndpointIndependent);
    assert_eq!(a, b);
    let (a, b) = ports(Mapping::AddressAndPortDependent);
    assert_ne!(a, b);
}

#[test]
fn ports_are_preserved_while_they_are_free() {
    let mut nat = Nat::new(NatConfig { preserve_ports: true, ..config() }, 1);
    let first = nat.outbound(at(0), path(PHONE, GATEWAY)).expect("translated");
    let second = nat.outbound(at(0), path("192.168.1.6:4500", GATEWAY)).expect("translated");
    assert_eq!(first.local.port(), 4500);
    assert_ne!(second.local.port(), 4500);
}

#[test]
fn ports_run_out() {
    let mut nat = Nat::new(NatConfig { ports: 2000..=2001, ..config() }, 1);
    let from = |host: u8| path(&format!("192.168.1.{host}:4500"), GATEWAY);
    let mut ports: Vec<_> =
        [1, 2].map(|h| nat.outbound(at(0), from(h)).expect("translated").local.port()).into();
    ports.sort_unstable();
    assert_eq!(ports, [2000, 2001]);
    assert_eq!(nat.outbound(at(0), from(3)), Err(NatDrop::Exhausted));
    let mut again: Vec<_> =
        [1, 2].map(|h| nat.outbound(at(0), from(h)).expect("translated").local.port()).into();
    again.sort_unstable();
    assert_eq!(again, ports, "a refused flow takes nothing away");
    assert!(nat.outbound(at(30), from(3)).is_ok(), "expired ports are free again");
}

#[test]
fn what_cannot_be_translated() {
    let mut nat = Nat::new(config(), 1);
    let esp = Path { carrier: Carrier::RawEsp, ..path(PHONE, GATEWAY) };
    assert_eq!(nat.outbound(at(0), esp), Err(NatDrop::NoPorts));
    assert_eq!(nat.outbound(at(0), path("[2001:db8::1]:4500", "[2001:db8::2]:4500")), Err(NatDrop::Family));
    assert_eq!(nat.inbound(at(0), path(GATEWAY, PHONE)), Err(NatDrop::NotOurs));
    assert_eq!(
        nat.inbound(at(0), path(GATEWAY, "198.51.100.1:4500")),
        Err(NatDrop::NoMapping { port: 4500 })
    );
}

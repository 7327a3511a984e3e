//! A DHCP lease from beyond the tunnel.

mod common;

use common::*;
use dormouse_standin::{Class, DeviceId, Kind, Limits, Service, StandIn, Verdict};
use dormouse_wire::dhcp::{Client, Dhcp, kind, renewal};
use std::net::{IpAddr, Ipv4Addr};

const LEASED: Ipv4Addr = Ipv4Addr::new(10, 55, 0, 7);
const SERVER: (IpAddr, u16) = (PEER, 67);

fn client() -> Client {
    Client { hardware: (1, 6, *b"\x02\0\0\0\0\x07\0\0\0\0\0\0\0\0\0\0"), id: Vec::new() }
}

/// A server's message: `kind`, for `seconds`.
fn served(transaction: u32, kind: u8, seconds: u32) -> Vec<u8> {
    let mut m = renewal(&client(), Ipv4Addr::UNSPECIFIED, transaction);
    m[0] = 2;
    m[16..20].copy_from_slice(&LEASED.octets());
    m.truncate(240);
    m.extend_from_slice(&[53, 1, kind, 54, 4, 10, 99, 0, 2, 51, 4]);
    m.extend_from_slice(&seconds.to_be_bytes());
    m.push(255);
    datagram(SERVER, (ADDRESS, 68), &m)
}

/// The device gets a lease of `seconds` at time 0, and sleeps for an hour.
fn leased(seconds: u32) -> StandIn {
    let mut standin = enrolled(Limits::default());
    let request = renewal(&client(), LEASED, 1_000);
    standin.observe_inbound(at(0), DEVICE, &datagram((ADDRESS, 68), SERVER, &request));
    standin.observe_outbound(at(0), DEVICE, &served(1_000, kind::ACK, seconds));
    standin.sleeps(at(0), DEVICE, Service::FULL, at(3_600_000));
    standin
}

#[test]
fn a_lease_that_would_end_during_the_sleep_is_renewed_until_it_does_not() {
    let mut standin = leased(1_000);
    let mut renewals = 0;
    while let Some(due) = standin.poll_timeout().filter(|d| d.at < at(3_600_000)) {
        standin.handle_timeout(due.at);
        let [request] = &own(&mut standin)[..] else { panic!("one request") };
        let asked = Dhcp::parse(&payload(request, (ADDRESS, 68), SERVER)).expect("DHCP");
        assert_eq!((asked.kind, asked.client_address, asked.client), (kind::REQUEST, LEASED, client()));
        let consent = served(asked.transaction, kind::ACK, 1_000);
        assert_eq!(give(&mut standin, due.at, &consent), (Verdict::Answered(Kind::Dhcp), vec![]));
        renewals += 1;
    }
    // Every 500 seconds, until the lease outlives the hour.
    assert_eq!(renewals, 6);
    assert_eq!(standin.wakes(at(3_500_000), DEVICE).len(), 0, "nothing of it concerns the device");
}

#[test]
fn a_lease_that_outlives_the_sleep_is_the_devices_own_business() {
    let mut standin = leased(4_000);
    standin.handle_timeout(at(3_599_000));
    assert!(own(&mut standin).is_empty());
}

#[test]
fn without_an_answer_it_is_asked_again_and_not_for_ever() {
    let mut standin = leased(1_000);
    let mut asked = 0;
    while let Some(due) = standin.poll_timeout().filter(|d| d.at < at(3_600_000)) {
        standin.handle_timeout(due.at);
        asked += own(&mut standin).len();
        assert!(asked < 20);
    }
    assert!(asked >= 3, "{asked}");
}

#[test]
fn refusals_and_forced_renewals_wait_for_the_device() {
    let mut standin = leased(1_000);
    standin.handle_timeout(at(500_000));
    let [request] = &own(&mut standin)[..] else { panic!("one request") };
    let asked = Dhcp::parse(&payload(request, (ADDRESS, 68), SERVER)).expect("DHCP");
    assert_eq!(
        give(&mut standin, at(500_001), &served(9, kind::FORCE_RENEW, 0)).0,
        Verdict::Buffered(Class::Control)
    );
    let refusal = served(asked.transaction, kind::NAK, 0);
    assert_eq!(give(&mut standin, at(500_010), &refusal).0, Verdict::Buffered(Class::Control));
    assert!(standin.poll_timeout().is_some_and(|d| d.at == at(3_600_000)), "nothing is asked again");
    let stranger = datagram(((Ipv4Addr::new(10, 99, 0, 66)).into(), 67), (ADDRESS, 68), &{
        let mut m = renewal(&client(), LEASED, 9);
        m[0] = 2;
        m[242] = kind::FORCE_RENEW;
        m
    });
    assert_eq!(give(&mut standin, at(500_020), &stranger).0, Verdict::Buffered(Class::Datagram));
    // The refusal is the server's last word.
    assert_eq!(standin.wakes(at(501_000), DEVICE), [refusal.into_boxed_slice(), stranger.into_boxed_slice()]);
}

#[test]
fn the_end_of_every_sleep_and_every_lease_is_a_timer() {
    let mut standin = leased(1_000);
    let (other, address) = (DeviceId(8), "10.55.0.8".parse().expect("an address"));
    assert!(standin.enrol(at(0), other, &[address]));
    assert!(standin.sleeps(at(0), other, Service::FULL, at(7_200_000)));
    let mut timers: Vec<_> = standin.timers().map(|timer| (timer.why, timer.at)).collect();
    assert_eq!(standin.poll_timeout().map(|timer| timer.at), timers.iter().map(|(_, at)| *at).min());
    timers.sort_unstable();
    let (slept, lease) = ("stand-in: a device that overslept", "stand-in: a DHCP lease to be renewed");
    assert_eq!(timers[0].0, lease);
    assert_eq!(timers[1..], [(slept, at(3_600_000)), (slept, at(7_200_000))]);
}

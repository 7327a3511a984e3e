//! The keys that a router was given, and which of them another router gets.

use super::*;
use crate::config::{IdentityPattern, RouterPolicy};
use crate::limits::{KEY_LIFETIME_MOST, KEY_MIGRATE_BURST};
use crate::mlike::router::Keyring;
use dormouse_keying::Opened;
use dormouse_wire::ike::mlike::{Excerpt, Migrate};

fn router() -> (RouterPolicy, Links) {
    let policy = RouterPolicy {
        gateways: vec![IdentityPattern::Exact(name("gw"))],
        neighbours: vec![name("r2")],
        ..RouterPolicy::default()
    };
    let mut links = Links::default();
    links.note(SaId::new(1), Some(Link { peer: name("gw"), from: GATEWAY }));
    (policy, links)
}

fn given(to_device: u32, from_device: u32) -> Given {
    let mut grant = grant(to_device, from_device);
    grant.nodes = Nodes::new(1, 16).expect("numbers");
    Given { grant, gateway: GATEWAY, here: true, lifetime: MINUTE }
}

/// SPI, number, and whether it is authentic: packets of these tests have no ciphers.
fn opens(grant: &HeaderGrant, packet: &[u8]) -> Option<Opened> {
    let word =
        |at: usize| packet.get(at..).and_then(|rest| rest.first_chunk().copied().map(u32::from_be_bytes));
    let (spi, id) = (word(0)?, grant.id());
    let known = spi == id.to_device || spi == id.from_device;
    (known && packet.get(8) == Some(&1))
        .then_some(Opened { to_device: spi == id.to_device, seq: word(4)?.into() })
}

fn request(spi: u32, seq: u32, authentic: bool) -> Migrate {
    let packet = [&spi.to_be_bytes()[..], &seq.to_be_bytes(), &[authentic.into()]].concat();
    Migrate { gateway: GATEWAY, seen: Excerpt::of(&packet).expect("a packet") }
}

fn shown(spi: u32, seq: u32) -> Migrate {
    request(spi, seq, true)
}

fn forged(spi: u32, seq: u32) -> Migrate {
    request(spi, seq, false)
}

/// Packets that have passed at a router, recorded and sent again at the next one, take no keys there.
#[test]
fn keys_move_by_a_packet_that_has_not_passed() {
    let (policy, links) = router();
    let now = Instant::ZERO;
    for spi in [1_000, 2_000] {
        let mut keyring = Keyring::default();
        let (keys, again) = (given(1_000, 2_000), given(1_000, 2_000));
        assert_eq!(keyring.take(now, &policy, &name("gw"), &keys), Ok(()));
        // The data plane has a clone.
        let HeaderGrant { to_device, from_device, .. } = keys.grant.clone();
        to_device.reached.raise(5);
        from_device.reached.raise(8);
        let last = if spi == 1_000 { 5 } else { 8 };
        let moves = |keyring: &mut Keyring, asked: Migrate| {
            let moved = keyring.migrate(now, &policy, &links, opens, &name("r2"), &asked);
            moved.map(|(given, _)| {
                [given.grant.to_device, given.grant.from_device].map(|sa| sa.reached.highest())
            })
        };
        for replayed in [0, 1, last] {
            assert_eq!(moves(&mut keyring, shown(spi, replayed)), Err(Reason::NotLeft));
        }
        assert_eq!(moves(&mut keyring, forged(spi, last + 1)), Err(Reason::NotLeft));
        assert_eq!(moves(&mut keyring, shown(3_000, 9)), Err(Reason::Unknown));
        // The gateway, which sees no numbers of routers, gives the same keys once more.
        assert_eq!(keyring.take(now, &policy, &name("gw"), &again), Ok(()));
        assert_eq!(moves(&mut keyring, shown(spi, last)), Err(Reason::NotLeft));
        let expect = if spi == 1_000 { [7, 8] } else { [5, 10] };
        assert_eq!(moves(&mut keyring, shown(spi, last + 2)), Ok(expect), "with what has passed");
        assert_eq!(keyring.len(), 0);
    }
}

/// A router that has had the keys says, when it gives them, that numbers are reached which no packet has.
#[test]
fn a_number_that_a_neighbour_only_says_stops_no_move_once_packets_pass() {
    let (policy, links) = router();
    let now = Instant::ZERO;
    for moved_by in [shown(2_000, 51), shown(1_000, 9)] {
        let (mut keyring, mut lie) = (Keyring::default(), given(1_000, 2_000));
        for sa in [&mut lie.grant.to_device, &mut lie.grant.from_device] {
            sa.reached = u64::from(u32::MAX).into();
        }
        let asked = shown(2_000, 50);
        assert_eq!(keyring.take_moved(now, &policy, opens, &asked, &name("gw"), &lie), Ok(()));
        let mut moves = |asked: &Migrate| {
            keyring.migrate(now, &policy, &links, opens, &name("r2"), asked).map(|(on, _)| on)
        };
        assert_eq!(moves(&asked).map(|_| ()), Err(Reason::NotLeft), "that packet has passed");
        assert_eq!(moves(&shown(1_000, 9)).map(|_| ()), Err(Reason::NotLeft), "none of this direction has");
        // The data plane has a clone.
        lie.grant.to_device.reached.clone().raise(8);
        assert_eq!(moves(&shown(1_000, 8)).map(|_| ()), Err(Reason::NotLeft));
        let on = moves(&moved_by).expect("keys that move");
        let reached = [&on.grant.to_device, &on.grant.from_device].map(|sa| sa.reached.highest());
        let expect = if moved_by == shown(1_000, 9) { [9, 50] } else { [8, 51] };
        assert_eq!(reached, expect, "what was opened here goes on, and not what was said");
    }
}

#[test]
fn without_extended_sequence_numbers_none_has_more_than_32_bits() {
    let most = u64::from(u32::MAX);
    for (esn, number, taken) in [(false, most, true), (false, most + 1, false), (true, most + 1, true)] {
        let mut given = given(1_000, 2_000);
        given.grant.esn = esn;
        given.grant.from_device.reached = number.into();
        assert_eq!(Given::read(View(&given.payloads())).is_ok(), taken, "{number}");
    }
}

#[test]
fn a_neighbour_gives_what_it_was_asked_for_and_in_place_of_nothing() {
    let (policy, _) = router();
    let (now, mut keyring) = (Instant::ZERO, Keyring::default());
    let mut takes =
        |asked, given: &Given| keyring.take_moved(now, &policy, opens, &asked, &name("gw"), given).is_ok();
    assert!(!takes(shown(5, 1), &given(1_000, 2_000)), "another SA");
    let elsewhere = Given { gateway: at("198.51.100.2"), ..given(1_000, 2_000) };
    assert!(!takes(shown(1_000, 1), &elsewhere), "another gateway's");
    assert!(!takes(forged(1_000, 1), &given(1_000, 2_000)), "they do not open the packet");
    assert!(takes(shown(1_000, 1), &given(1_000, 2_000)));
    assert!(!takes(shown(1_000, 2), &given(1_000, 2_000)), "those are held");
    assert!(takes(shown(2_001, 1), &given(1_001, 2_001)), "by the other direction");
    assert_eq!(keyring.len(), 2);
}

/// A neighbour can say that they last for ever.
#[test]
fn no_keys_are_held_for_longer_than_a_day() {
    let (policy, links) = router();
    for (said, held) in [(MINUTE, MINUTE), (Duration::from_secs(u32::MAX.into()), KEY_LIFETIME_MOST)] {
        let (now, mut keyring) = (Instant::ZERO + MINUTE, Keyring::default());
        let given = Given { lifetime: said, ..given(1_000, 2_000) };
        let asked = shown(1_000, 1);
        assert_eq!(keyring.take_moved(now, &policy, opens, &asked, &name("gw"), &given), Ok(()));
        assert_eq!(keyring.deadline().map(|deadline| deadline.at), Some(now + held));
        let (on, _) =
            keyring.migrate(now, &policy, &links, opens, &name("r2"), &shown(1_000, 2)).expect("a neighbour");
        assert_eq!(on.lifetime, held);
    }
}

#[test]
fn keys_are_given_on_when_the_gateway_can_be_told_to_neighbours_and_not_too_often() {
    let (policy, links) = router();
    let (now, mut keyring) = (Instant::ZERO, Keyring::default());
    assert_eq!(keyring.take(now, &policy, &name("gw"), &given(1_000, 2_000)), Ok(()));
    let mut migrate = |links: &Links, next| {
        keyring.migrate(now, &policy, links, opens, &name(next), &shown(1_000, 1)).map(|_| ())
    };
    assert_eq!(migrate(&links, "r3"), Err(Reason::NotPermitted), "it is no neighbour");
    assert_eq!(
        migrate(&Links::default(), "r2"),
        Err(Reason::NotPermitted),
        "the gateway would not learn of it"
    );
    assert_eq!(migrate(&links, "r2"), Ok(()));
    assert_eq!(migrate(&links, "r2"), Err(Reason::Unknown), "they are gone");
    let mut often = |who| (0..1_000).filter(|_| keyring.may_migrate(now, &name(who))).count();
    let most = KEY_MIGRATE_BURST as usize;
    assert_eq!((often("r2"), often("r2"), often("r3")), (most, 0, most), "each by itself");
}

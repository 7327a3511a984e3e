//! Strangers who send an access router more than it can ask about.

use super::*;

#[test]
fn a_flood_of_unknown_spis_asks_little_and_is_forgotten() {
    let (mut router, mut sa) = (router(Kind::Snoop, 0), Sa::new(7));
    let mut asked = 0;
    for spi in 0..20_000_u32 {
        let mut packet = sa.data(0);
        packet[20..24].copy_from_slice(&(5_000 + spi).to_be_bytes());
        router.handle_packet(ms(spi.into()), Side::Network, packet);
        ready(&mut router);
        asked += wishes(&mut router).len();
    }
    assert!(asked <= 101, "{asked} in 20 seconds");
    assert!(router.asked.len() <= ASKED_MOST && router.wishes.is_empty());
}

#[test]
fn forged_packets_do_not_make_it_ask_without_end() {
    let (mut router, mut sa) = (router(Kind::EspArq, 0), Sa::new(7));
    router.obey(&sa.grant());
    let mut asked = 0;
    for at in 0..60_000 {
        let mut forged = sa.data(0);
        *forged.last_mut().expect("a tag") ^= 1;
        forged[24..28].copy_from_slice(&9_u32.to_be_bytes());
        router.handle_packet(ms(at), Side::Network, forged);
        ready(&mut router);
        // The gateway gives the same keys again.
        if !wishes(&mut router).is_empty() {
            asked += 1;
            router.obey(&sa.grant());
        }
    }
    assert!((1..=6).contains(&asked), "{asked} times in a minute");
}

/// A packet with an SPI and a device's address that the router has no record of.
fn garbage(n: u32) -> Vec<u8> {
    let device = Ipv4Addr::from(0xc612_0000 + n);
    let mut packet = vec![0x5a; 80];
    packet[..4].copy_from_slice(&(5_000 + n).to_be_bytes());
    let header = Ipv4Header::new(device, GATEWAY, protocol::ESP).to_bytes(packet.len()).expect("a header");
    [&header[..], &packet].concat()
}

fn previous() -> Option<Identity> {
    Some("r1.test".parse().expect("an identity"))
}

/// The SPIs that are asked about.
fn spis(router: &mut Router) -> Vec<u32> {
    let spi = |wish| match wish {
        Wish::Missing { spi, .. } => spi,
        other => unreachable!("{other:?}"),
    };
    wishes(router).into_iter().map(spi).collect()
}

#[test]
fn a_device_that_has_come_is_asked_about_amid_garbage() {
    let (mut router, mut sa) = (router(Kind::Snoop, 0), Sa::new(7));
    let mut asked = Vec::new();
    for at in 0..3_000 {
        if at == 1_000 {
            router.device_has_come(ms(at), DEVICE.into(), previous());
        }
        router.handle_packet(ms(at), Side::Device, garbage(at as u32));
        asked.extend(spis(&mut router).into_iter().map(|spi| (at, spi)));
        if at % 50 == 0 {
            router.handle_packet(ms(at), Side::Device, sa.ack(1));
            asked.extend(spis(&mut router).into_iter().map(|spi| (at, spi)));
        }
    }
    let after: Vec<u32> = asked.iter().filter(|(at, _)| *at >= 1_000).map(|(_, spi)| *spi).collect();
    let questions = after.iter().position(|spi| *spi == 1_001);
    assert!(questions.is_some_and(|n| n < 2), "{questions:?} others came first: {after:?}");
    assert!(after.iter().any(|spi| *spi >= 5_000), "strangers have their turns: {after:?}");
    assert!(asked.len() <= 16, "{} in 3 seconds", asked.len());
}

/// One of those that have come has its address forged: it holds up no other.
#[test]
fn devices_that_have_come_have_turns_and_no_packet_waits_for_another_to_come() {
    let mut router = router(Kind::Snoop, 0);
    let devices: Vec<IpAddr> = (0..3).map(|n| Ipv4Addr::from(0xc612_0000 + n * 1_000).into()).collect();
    for device in &devices {
        router.device_has_come(ms(0), *device, previous());
    }
    router.handle_packet(ms(0), Side::Device, garbage(1));
    assert_eq!(spis(&mut router), [5_001]);
    // All others wait for the pace of questions.
    for n in 0..100_u32 {
        let mut forged = garbage(0);
        forged[20..24].copy_from_slice(&(9_000 + n).to_be_bytes());
        router.handle_packet(ms(1), Side::Device, forged);
    }
    for n in [1_000, 2_000, 2_001] {
        router.handle_packet(ms(1), Side::Device, garbage(n));
    }
    let mut asked = Vec::new();
    while let Some(due) = router.poll_timeout() {
        router.handle_timeout(due.at);
        asked.extend(spis(&mut router));
    }
    assert_eq!(asked, [9_000, 7_001, 6_000, 7_000], "by turns, strangers with the others");
}

#[test]
fn nothing_is_asked_once_the_keys_are_here_or_the_device_is_gone() {
    for gone in [true, false] {
        let (mut router, mut sa) = (router(Kind::Snoop, 0), Sa::new(7));
        router.device_has_come(ms(0), DEVICE.into(), previous());
        router.handle_packet(ms(0), Side::Device, garbage(1));
        router.handle_packet(ms(1), Side::Device, sa.ack(1));
        assert_eq!(spis(&mut router), [5_001]);
        if gone {
            router.device_has_gone(ms(2), DEVICE.into());
        } else {
            router.obey(&sa.grant());
        }
        assert_eq!(router.poll_timeout(), None);
        router.handle_timeout(ms(1_000));
        assert_eq!(wishes(&mut router), []);
    }
}

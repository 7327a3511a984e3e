//! The packets of `docs/wire/mml-ipsec.md`, byte for byte.

use crate::common::seal;
use crate::zones_spec::grant;
use dormouse_crypto::{Encr, Secret};
use dormouse_esp::{HeaderZones, IPV4_IN_IP, Inbound, Outbound, SaParams, ZoneParams};
use dormouse_keying::{HeaderOrder, Nodes, ZoneEnd, ZoneMap};
use dormouse_sansio::Seeded;
use dormouse_wire::ip::tcp;

/// The blocks of hexadecimal digits of the page.
fn blocks() -> Vec<Vec<u8>> {
    let page = include_str!("../../../../docs/wire/mml-ipsec.md");
    let packets = page.split("### A packet\n").nth(1).unwrap();
    let blocks = packets.split("```").skip(1).step_by(2).take(5);
    blocks.map(|block| hex::decode(block.split_whitespace().collect::<String>()).unwrap()).collect()
}

fn sa() -> SaParams {
    let keymat = |from: u8| Secret::from((from..from + 20).collect::<Vec<u8>>().as_slice());
    let further = vec![(Encr::Aes128Gcm16, keymat(0x20))];
    let zones = Some(ZoneParams { map: ZoneMap::default(), further });
    SaParams { zones, ..SaParams::new(0x0102_0304, Encr::Aes128Gcm16, None, keymat(0)) }
}

#[test]
fn the_page_has_the_packets_that_the_code_makes() {
    let [inner, sealed, changed, nothing, _] = blocks().try_into().unwrap();
    let mut out = Outbound::new(&sa(), &mut Seeded::new(0)).unwrap();
    for _ in 1..5 {
        seal(&mut out, &inner, IPV4_IN_IP);
    }
    let packet = seal(&mut out, &inner, IPV4_IN_IP);
    assert_eq!(hex::encode(&packet), hex::encode(&sealed));

    let mut router = HeaderZones::new();
    let other = SaParams { spi: 1, ..sa() };
    let grant = grant(&sa(), &other, Nodes::new(7, 7).unwrap());
    router.apply(&HeaderOrder::Grant(Box::new(grant))).unwrap();
    let mut through = packet;
    assert_eq!(router.change(&mut through, |header| assert!(tcp::set_window(header, 77))), Ok(true));
    assert_eq!(hex::encode(&through), hex::encode(&changed));

    for mut packet in [sealed, changed] {
        let opened = Inbound::new(&sa()).unwrap().open(&mut packet).unwrap();
        assert_eq!((opened.seq, opened.next_header), (5, IPV4_IN_IP));
        assert_eq!(packet[opened.inner][52..], *b"hello");
    }

    let mut sa = sa();
    sa.zones.as_mut().unwrap().map = ZoneMap::new(vec![ZoneEnd::At(0)]).unwrap();
    let mut out = Outbound::new(&sa, &mut Seeded::new(0)).unwrap();
    for _ in 1..5 {
        seal(&mut out, &inner, IPV4_IN_IP);
    }
    let packet = seal(&mut out, &inner, IPV4_IN_IP);
    assert_eq!(hex::encode(&packet), hex::encode(&nothing), "a first zone without bytes");
}

#[test]
fn the_page_has_the_packet_that_is_not_encrypted() {
    let [inner, .., readable] = <[Vec<u8>; 5]>::try_from(blocks()).unwrap();
    let sa = SaParams { zones: None, encr: Encr::Aes128Gmac, ..sa() };
    let mut out = Outbound::new(&sa, &mut Seeded::new(0)).unwrap();
    for _ in 1..5 {
        seal(&mut out, &inner, IPV4_IN_IP);
    }
    assert_eq!(hex::encode(seal(&mut out, &inner, IPV4_IN_IP)), hex::encode(&readable));
    assert!(readable.windows(inner.len()).any(|part| part == inner), "all on the way read it");
    for changed in 0..readable.len() {
        let mut packet = readable.clone();
        packet[changed] ^= 1;
        assert!(Inbound::new(&sa).unwrap().open(&mut packet).is_err(), "byte {changed}");
    }
    assert_eq!(Inbound::new(&sa).unwrap().open(&mut readable.clone()).unwrap().seq, 5);
}

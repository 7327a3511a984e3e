//! MSS clamping: which packets it changes, and that their checksum stays right at every alignment.

use core::net::SocketAddr;

use dormouse_wire::ip::{Packet, tcp};

fn segment(v6: bool, flags: u8, options: &[u8]) -> Vec<u8> {
    let (src, dst) = if v6 { ("[::1]:1", "[::2]:2") } else { ("10.0.0.1:1", "10.0.0.2:2") };
    let (src, dst): (SocketAddr, SocketAddr) = (src.parse().expect("address"), dst.parse().expect("address"));
    let mut out = Vec::new();
    tcp::Segment { src, dst, sequence: 77, acknowledgement: 88, flags, window: 65_535, options }
        .build(&[], &mut out)
        .expect("fits");
    out
}

fn mss_and_checksum(packet: &[u8]) -> (Option<u16>, u16) {
    let view = Packet::parse(packet).expect("a packet");
    let sum = view.pseudo_header(view.payload().len()).add_bytes(view.payload()).finish();
    let announced = tcp::Tcp::parse(&view).expect("TCP").option(2).and_then(|value| value.try_into().ok());
    (announced.map(u16::from_be_bytes), sum)
}

#[test]
fn a_syn_is_lowered_to_its_familys_limit_wherever_the_option_lies() {
    for options in [
        &[2, 4, 0x05, 0xb4][..],
        &[1, 2, 4, 0x05, 0xb4, 1, 1, 1],
        &[3, 3, 7, 2, 4, 0x05, 0xb4, 0],
        &[8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 2, 4, 0x05, 0xb4, 0, 0],
    ] {
        for (v6, limit) in [(false, 1300), (true, 1280)] {
            for flags in [tcp::SYN, tcp::SYN | tcp::ACK] {
                let mut packet = segment(v6, flags, options);
                assert_eq!(mss_and_checksum(&packet), (Some(1460), 0));
                assert!(tcp::clamp_mss(&mut packet, 1300, 1280));
                assert_eq!(mss_and_checksum(&packet), (Some(limit), 0), "{options:?}");
                assert!(!tcp::clamp_mss(&mut packet, 1300, 1280), "already low enough");
            }
        }
    }
}

#[test]
fn everything_else_is_left_alone() {
    let mss = [2, 4, 0x05, 0xb4];
    let mut fragment = segment(false, tcp::SYN, &mss);
    fragment[7] = 1;
    for (what, packet) in [
        ("no SYN", segment(false, tcp::ACK, &mss)),
        ("no option", segment(false, tcp::SYN, &[])),
        ("behind the end of options", segment(false, tcp::SYN, &[0, 1, 1, 1, 2, 4, 0x05, 0xb4])),
        ("an option of length 0", segment(false, tcp::SYN, &[9, 0, 1, 1, 2, 4, 0x05, 0xb4])),
        ("an MSS option of another length", segment(false, tcp::SYN, &[2, 3, 0xff, 0])),
        ("an option that runs out", segment(false, tcp::SYN, &[1, 1, 1, 2])),
        ("a later fragment", fragment),
        ("not a packet", vec![0x45; 30]),
    ] {
        let mut copy = packet.clone();
        assert!(!tcp::clamp_mss(&mut copy, 500, 500), "{what}");
        assert_eq!(copy, packet, "{what}");
    }
}

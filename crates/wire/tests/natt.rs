//! Telling IKE, ESP and keepalives apart on the NAT-traversal port (RFC 3948 section 2).

use dormouse_wire::esp::{Header, NatT, classify_natt};

#[test]
fn each_kind_of_datagram_is_told_apart() {
    assert_eq!(classify_natt(&[0xff]), NatT::Keepalive);
    assert_eq!(classify_natt(&[0, 0, 0, 0, 9, 8]), NatT::Ike(&[9, 8]));
    let esp = [0, 0, 1, 0, 0, 0, 0, 1];
    assert_eq!(classify_natt(&esp), NatT::Esp(&esp));
    let starts_like_a_keepalive = [0xff; 8];
    assert_eq!(classify_natt(&starts_like_a_keepalive), NatT::Esp(&starts_like_a_keepalive));
}

#[test]
fn stumps_are_malformed() {
    for stump in [&[][..], &[0], &[0xfe], &[0xff, 0xff], &[0, 0, 0, 0], &[0, 0, 0, 1], &[1, 2, 3, 4, 5, 6, 7]]
    {
        assert_eq!(classify_natt(stump), NatT::Malformed, "{stump:?}");
    }
}

#[test]
fn the_fixed_header_is_read_and_written() {
    let packet = [0xc0, 0xff, 0xee, 0x01, 0x00, 0x00, 0x00, 0x2a, 0x99];
    let header = Header { spi: 0xc0ff_ee01, sequence: 42 };
    assert_eq!(Header::parse(&packet), Ok(header));
    assert_eq!(header.to_bytes(), packet[..8]);
    for len in 0..8 {
        assert!(Header::parse(&packet[..len]).is_err());
    }
}

use dormouse_crypto::RestingKey;
use dormouse_crypto::suites::{Encr, Integ};
use dormouse_sansio::Seeded;
use dormouse_wire::ike::{ExchangeType, Flags};

use super::*;

fn channel(cbc: bool) -> Channel {
    let key = if cbc {
        RestingKey::new(Encr::Aes256Cbc, Some(Integ::HmacSha256_128), &[7; 64])
    } else {
        RestingKey::new(Encr::Aes256Gcm16, None, &[7; 36])
    };
    Channel::new(key.unwrap())
}

fn header() -> Header {
    Header::new(1, 2, ExchangeType::IkeAuth, Flags { initiator: true, ..Flags::default() }, 1)
}

fn payloads(len: usize) -> Vec<Payload> {
    let data: Vec<u8> = (0..len).map(|i| u8::try_from(i % 256).unwrap()).collect();
    vec![Payload::VendorId(data), Payload::VendorId(vec![1])]
}

fn receive(partial: &mut Reassembler, cbc: bool, datagram: &[u8]) -> Result<Option<Vec<Payload>>, OpenError> {
    let mut datagram = datagram.to_vec();
    let message = Message::parse(&datagram).unwrap();
    let whole = channel(cbc).receive(Instant::ZERO, &message, &mut datagram, partial)?;
    whole.map(|whole| whole.payloads()).transpose()
}

#[test]
fn messages_of_every_size_come_back_whole_in_any_order() {
    for cbc in [false, true] {
        for len in (1..4_000).step_by(37) {
            let mut pieces =
                channel(cbc).seal_within(600, &header(), &payloads(len), &mut Seeded::new(1)).unwrap();
            assert!(pieces.iter().all(|piece| piece.len() <= 600), "{len}");
            if len > 600 {
                assert!(pieces.len() > 1, "{len}");
            }
            pieces.reverse();
            let middle = pieces.len() / 2;
            pieces.rotate_left(middle);
            let mut partial = Reassembler::new();
            let last = pieces.pop().unwrap();
            for piece in &pieces {
                assert_eq!(receive(&mut partial, cbc, piece), Ok(None));
            }
            assert_eq!(receive(&mut partial, cbc, &last), Ok(Some(payloads(len))));
        }
    }
}

#[test]
fn what_fits_is_not_cut() {
    let whole = channel(false).seal(&header(), &payloads(100), &mut Seeded::new(1)).unwrap();
    let within = channel(false).seal_within(whole.len(), &header(), &payloads(100), &mut Seeded::new(1));
    assert_eq!(within.unwrap(), std::slice::from_ref(&whole));
    let cut = channel(false).seal_within(whole.len() - 1, &header(), &payloads(100), &mut Seeded::new(1));
    assert_eq!(cut.unwrap().len(), 2);
}

#[test]
fn a_duplicate_or_forged_fragment_changes_nothing() {
    let pieces = channel(false).seal_within(600, &header(), &payloads(1_500), &mut Seeded::new(1)).unwrap();
    let mut partial = Reassembler::new();
    receive(&mut partial, false, &pieces[0]).unwrap();
    let duplicate = FragmentError::Duplicate { message_id: 1, number: 1 };
    assert_eq!(receive(&mut partial, false, &pieces[0]), Err(OpenError::Fragment(duplicate)));
    for i in 28..pieces[1].len() {
        let mut forged = pieces[1].clone();
        forged[i] ^= 1;
        if Message::parse(&forged).is_ok() {
            assert!(receive(&mut partial, false, &forged).is_err(), "byte {i}");
        }
    }
    receive(&mut partial, false, &pieces[1]).unwrap();
    assert_eq!(receive(&mut partial, false, &pieces[2]), Ok(Some(payloads(1_500))));
}

#[test]
fn a_finer_cut_replaces_a_coarser_one_and_never_the_other_way() {
    let coarse = channel(false).seal_within(900, &header(), &payloads(2_000), &mut Seeded::new(1)).unwrap();
    let fine = channel(false).seal_within(600, &header(), &payloads(2_000), &mut Seeded::new(2)).unwrap();
    assert!(fine.len() > coarse.len());
    let mut partial = Reassembler::new();
    receive(&mut partial, false, &coarse[0]).unwrap();
    receive(&mut partial, false, &fine[0]).unwrap();
    let stale = receive(&mut partial, false, &coarse[1]);
    assert!(matches!(stale, Err(OpenError::Fragment(FragmentError::Superseded { .. }))), "{stale:?}");
    let mut last = Ok(None);
    for piece in &fine[1..] {
        last = receive(&mut partial, false, piece);
    }
    assert_eq!(last, Ok(Some(payloads(2_000))));
}

#[test]
fn memory_is_bounded() {
    let mut partial = Reassembler::new();
    let fragment = |number, total| Fragment { number, total };
    let none = PayloadType::None;
    for id in 0..PARTIAL_MAX as u32 {
        assert_eq!(partial.add(Instant::ZERO, id, fragment(1, 2), none, Vec::new(), &[0]), Ok(None));
    }
    let full = FragmentError::TooLarge { message_id: 99, what: "messages in pieces" };
    assert_eq!(partial.add(Instant::ZERO, 99, fragment(1, 2), none, Vec::new(), &[0]), Err(full));
    partial.forget_before(4);
    assert_eq!(partial.add(Instant::ZERO, 99, fragment(1, 2), none, Vec::new(), &[0]), Ok(None));
    partial.forget_before(100);

    let piece = vec![0; 40_000];
    assert_eq!(partial.add(Instant::ZERO, 50, fragment(1, 3), none, Vec::new(), &piece), Ok(None));
    let too_large = FragmentError::TooLarge { message_id: 50, what: "bytes" };
    assert_eq!(partial.add(Instant::ZERO, 50, fragment(2, 3), none, Vec::new(), &piece), Err(too_large));
    for bad in [fragment(0, 1), fragment(2, 1), fragment(0, 0)] {
        assert!(matches!(
            partial.add(Instant::ZERO, 60, bad, none, Vec::new(), &[]),
            Err(FragmentError::Number { .. })
        ));
    }
    let many = fragment(1, limits::FRAGMENTS_MAX + 1);
    assert_eq!(
        partial.add(Instant::ZERO, 60, many, none, Vec::new(), &[]),
        Err(FragmentError::TooLarge { message_id: 60, what: "fragments" })
    );
    let huge = vec![Payload::VendorId(vec![0; 60_000]); 2];
    assert!(channel(false).seal_within(600, &header(), &huge, &mut Seeded::new(1)).is_err());
}

#[test]
fn pieces_do_not_wait_for_ever() {
    let mut partial = Reassembler::new();
    let (one, two) = (Fragment { number: 1, total: 2 }, Fragment { number: 2, total: 2 });
    let none = PayloadType::None;
    assert_eq!(partial.add(Instant::ZERO, 7, one, none, Vec::new(), &[0]), Ok(None));
    let late = Instant::ZERO + limits::REASSEMBLY_TIME;
    partial.forget_stale(late);
    assert!(partial.add(late, 7, two, none, Vec::new(), &[0]).is_ok_and(|whole| whole.is_some()), "in time");
    assert_eq!(partial.add(Instant::ZERO, 8, one, none, Vec::new(), &[0]), Ok(None));
    let later = late + core::time::Duration::from_nanos(1);
    partial.forget_stale(later);
    assert_eq!(partial.add(later, 8, two, none, Vec::new(), &[0]), Ok(None), "the first piece is gone");
}

#[test]
fn the_limit_leaves_room_for_the_headers_of_the_path() {
    let path =
        |text: &str, carrier| Path { local: text.parse().unwrap(), remote: text.parse().unwrap(), carrier };
    assert_eq!(message_limit(1_280, &path("192.0.2.1:500", Carrier::Ike)), 1_280 - 28);
    assert_eq!(message_limit(1_280, &path("192.0.2.1:4500", Carrier::NatT)), 1_280 - 28 - 4);
    assert_eq!(message_limit(1_280, &path("[2001:db8::1]:4500", Carrier::NatT)), 1_280 - 48 - 4);
    assert_eq!(message_limit(1, &path("192.0.2.1:500", Carrier::Ike)), limits::FRAGMENT_SIZE_MIN - 28);
}

/// IntAuth covers the same octets at both ends, whole or in fragments of any size (RFC 9242, section 3.3.2).
#[test]
fn what_int_auth_covers_does_not_depend_on_the_cutting() {
    for cbc in [false, true] {
        for len in [0, 1, 700, 1_500] {
            let sent = authenticated(&header(), &payloads(len)).unwrap();
            assert_eq!(
                sent[24..28],
                u32::try_from(sent.len()).unwrap().to_be_bytes(),
                "no IV, padding or ICV"
            );
            for limit in [200, 600, 5_000] {
                let pieces = channel(cbc).seal_within(limit, &header(), &payloads(len), &mut Seeded::new(1));
                let mut partial = Reassembler::new();
                let mut whole = None;
                for mut piece in pieces.unwrap() {
                    let message = Message::parse(&piece).unwrap();
                    whole = channel(cbc).receive(Instant::ZERO, &message, &mut piece, &mut partial).unwrap();
                }
                assert_eq!(whole.unwrap().authenticated(), sent, "{len} bytes by {limit}");
            }
        }
    }
}

//! Conversations of EAP-MSCHAPv2 between both ends, and with others.

use crate::common::{Table, flip_everything, mschapv2_config, password, talk};
use dormouse_eap::authenticator::{self, Authenticator};
use dormouse_eap::packet::{Packet, Type};
use dormouse_eap::peer::{self, Peer};
use dormouse_eap::{Error, limits};
use dormouse_sansio::{Entropy, Seeded};
use proptest::prelude::*;

fn users() -> Table {
    Table::new(&[("alice", "correct horse"), ("bob@example.com", "naïve 🐭"), ("User", "clientPass")])
}

/// Entropy that is known beforehand.
struct Known(Vec<u8>);

impl Entropy for Known {
    fn fill(&mut self, out: &mut [u8]) {
        let rest = self.0.split_off(out.len());
        out.copy_from_slice(&std::mem::replace(&mut self.0, rest));
    }
}

#[test]
fn both_come_to_one_key() {
    for (name, secret, identity) in [
        ("alice", "correct horse", "alice"),
        ("bob@example.com", "naïve 🐭", "bob@example.com"),
        ("EXAMPLE\\alice", "correct horse", "alice"),
    ] {
        let outcome = talk(password(name, secret), &mschapv2_config(), None, &users(), |_, _| ());
        let Some(Ok(Some(msk))) = &outcome.client else { panic!("{outcome:?}") };
        assert_eq!(outcome.gateway, Some(Ok((identity.to_owned(), msk.clone()))));
        assert_eq!(
            outcome.kinds(),
            [vec![Type::IDENTITY; 2], vec![Type::MSCHAPV2; 4]].concat(),
            "identity, challenge and response, success and its answer"
        );
        assert_eq!(outcome.sent.last().map(|p| p[0]), Some(3));
    }
}

#[test]
fn an_identity_that_ike_knows_is_not_asked_for() {
    let outcome =
        talk(password("alice", "correct horse"), &mschapv2_config(), Some("alice"), &users(), |_, _| ());
    assert!(matches!(outcome.client, Some(Ok(Some(_)))));
    assert_eq!(outcome.kinds(), [Type::MSCHAPV2; 4]);
}

/// What is claimed in EAP-Identity proves nothing: the name that counts is the one of the response.
#[test]
fn the_name_is_the_one_that_is_proved() {
    let outcome =
        talk(password("alice", "correct horse"), &mschapv2_config(), None, &users(), |n, packet| {
            if n == 1 {
                packet.truncate(5);
                packet.extend(b"admin");
            }
        });
    assert!(matches!(&outcome.gateway, Some(Ok((name, _))) if name == "alice"), "{outcome:?}");
}

/// A wrong password and an unknown user look the same at the peer, in all but the challenges.
#[test]
fn wrong_passwords_and_unknown_users() {
    let shape = |name: &str| {
        let outcome = talk(password(name, "wrong"), &mschapv2_config(), None, &users(), |_, _| ());
        assert_eq!(outcome.client, Some(Err(Error::WrongPassword)));
        let failure = outcome.sent[4].clone();
        let line = String::from_utf8(failure[9..].to_vec()).expect("a line");
        assert!(line.starts_with("E=691 R=0 C=") && line[44..].starts_with(" V=3 M="), "{line}");
        (outcome.gateway, failure.len(), outcome.sent.len())
    };
    let (known, unknown) = (shape("alice"), shape("alicf"));
    assert_eq!(known.0, Some(Err(Error::WrongPassword)));
    assert_eq!(unknown.0, Some(Err(Error::UnknownUser)));
    assert_eq!((known.1, known.2), (unknown.1, unknown.2));
    // A name that is not UTF-8, and one that is only a domain, are nobody's.
    for name in [&b"\xff\xfe"[..], b"EXAMPLE\\", b""] {
        let outcome = talk(password("x", "wrong"), &mschapv2_config(), None, &users(), |n, packet| {
            if n == 3 {
                packet.pop();
                packet.extend(name);
                let len = u16::try_from(packet.len()).expect("short").to_be_bytes();
                packet[2..4].copy_from_slice(&len);
            }
        });
        assert_eq!(outcome.gateway, Some(Err(Error::UnknownUser)));
    }
}

/// Who has been refused may fall silent: the gateway knows already what it has to count.
#[test]
fn a_refusal_is_known_before_it_is_answered() {
    let mut random = Seeded::new(8);
    let (mut gateway, first) =
        Authenticator::begin(&mschapv2_config(), Some("alice".to_owned()), &mut random);
    let mut client = Peer::new(password("alice", "wrong"));
    let peer::Step::Send(response) = client.receive(&first, &mut random) else { panic!("no response") };
    assert_eq!((gateway.refusal(), client.refusal()), (None, None));
    let authenticator::Step::Send(failure) = gateway.receive(&response, &users(), &mut random) else {
        panic!("no failure")
    };
    assert_eq!(gateway.refusal(), Some(&Error::WrongPassword));
    assert!(matches!(client.receive(&failure, &mut random), peer::Step::Send(_)));
    assert_eq!(client.refusal(), Some(&Error::WrongPassword));
}

/// The example of RFC 2759 section 9.2, whole packets of both ends.
#[test]
fn the_example_of_the_rfc_byte_for_byte() {
    let config = mschapv2_config();
    let challenge = *b"[]|}{?/><,`!2&&(";
    let mut random = Known([&[0x40][..], &challenge].concat());
    let (mut gateway, request) = Authenticator::begin(&config, Some("User".to_owned()), &mut random);
    assert_eq!(request, [b"\x01\x41\x00\x21\x1a\x01\x41\x00\x1c\x10", &challenge[..], b"gateway"].concat());

    let mut client = Peer::new(password("User", "clientPass"));
    let peer_challenge = *b"!@#$%^&*()_+:3|~";
    let step = client.receive(&request, &mut Known(peer_challenge.to_vec()));
    let nt_response = hex::decode("82309ecd8d708b5ea08faa3981cd83544233114a3d85d6df").expect("digits");
    let response = [
        b"\x02\x41\x00\x3f\x1a\x02\x41\x00\x3a\x31",
        &peer_challenge[..],
        &[0; 8],
        &nt_response,
        &[0],
        b"User",
    ]
    .concat();
    assert_eq!(step, peer::Step::Send(response.clone()));

    let step = gateway.receive(&response, &users(), &mut Known(Vec::new()));
    let success =
        [&b"\x01\x42\x00\x38\x1a\x03\x41\x00\x33"[..], b"S=407A5589115FD0D6209F510FE9C04566932CDA56 M=OK"]
            .concat();
    assert_eq!(step, authenticator::Step::Send(success.clone()));
    let step = client.receive(&success, &mut Known(Vec::new()));
    assert_eq!(step, peer::Step::Send(b"\x02\x42\x00\x06\x1a\x03".to_vec()));
    let step = gateway.receive(b"\x02\x42\x00\x06\x1a\x03", &users(), &mut Known(Vec::new()));
    let authenticator::Step::Succeeded { packet, msk, .. } = step else { panic!("{step:?}") };
    assert_eq!(packet, b"\x03\x42\x00\x04");
    assert_eq!(
        hex::encode(&msk.as_bytes()[..32]),
        "d5f0e9521e3ea9589645e86051c822268b7cdc149b993a1ba118cb153f56dccb"
    );
    assert_eq!(client.receive(&packet, &mut Known(Vec::new())), peer::Step::Succeeded(Some(msk)));
}

/// What wpa_supplicant 2.10 and hostapd 2.10 have sent to us, and the keys that they have derived.
#[test]
fn conversations_with_others() {
    let bytes = |digits: &str| hex::decode(digits).expect("digits");
    let users = Table::new(&[("alice", "correct horse ü")]);
    // wpa_supplicant as client, with and without a domain: our identifier and challenge, its packets, its key.
    for (identifier, challenge, packets, key) in [
        (
            0x27,
            "d9f88805cd7f2472c9caccee80566f8b",
            [
                "0228000a01616c696365",
                "022900401a0229003b3172069cc619d1bc220244bb4b2c2e221c00000000000000007fb8d9ecebf73fe821d0de910bd12803\
                 35e19b651483fe8000616c696365",
                "022a00061a03",
            ],
            "89c3d0a2e082d57becef01099769a1e121aba7b9c537ab8cc3b4692dfa2322d9",
        ),
        (
            0x67,
            "be3b0a611d0da809812a2b13e41a4422",
            [
                "0268000e01444f4d5c616c696365",
                "026900441a0269003f31527ae2a7a863a9debb369db6519e315500000000000000001cff7b2dd57cb67c20d8f684ca597b43\
                 de60fdab4fbe811500444f4d5c616c696365",
                "026a00061a03",
            ],
            "6ac9332972cab78d458326eb7e19540b747d475ca8df364dbb92f74a5c76fa7a",
        ),
    ] {
        let mut drawn = Known([vec![identifier], bytes(challenge)].concat());
        let (mut gateway, _) = Authenticator::begin(&mschapv2_config(), None, &mut drawn);
        let mut last = authenticator::Step::Ignore;
        for packet in packets {
            last = gateway.receive(&bytes(packet), &users, &mut drawn);
        }
        let authenticator::Step::Succeeded { identity, msk, .. } = last else { panic!("{last:?}") };
        assert_eq!((identity.as_str(), hex::encode(&msk.as_bytes()[..32]).as_str()), ("alice", key));
    }
    // hostapd as server: its packets, our challenge and answer, its key.
    let mut client = Peer::new(password("alice", "correct horse ü"));
    let mut drawn = Known(bytes("04b546f6f27e7b2492dcafea170c809c"));
    for (request, response) in [
        ("017a000501", "027a000a01616c696365"),
        (
            "017b00211a017b001c10aac07527462925e664077c0b5379b0ae686f7374617064",
            "027b00401a027b003b3104b546f6f27e7b2492dcafea170c809c0000000000000000b55776f6001d8cfdb23e848310386084ab\
             abb78d0da99cd100616c696365",
        ),
        (
            "017c00381a037b0033533d38393743353742313445303835333638353941364145354130374632433631443145354242314546\
             204d3d4f4b",
            "027c00061a03",
        ),
    ] {
        assert_eq!(client.receive(&bytes(request), &mut drawn), peer::Step::Send(bytes(response)));
    }
    let end = client.receive(&bytes("037c0004"), &mut drawn);
    let peer::Step::Succeeded(Some(msk)) = end else { panic!("{end:?}") };
    let key = "d6861ccf8db44cb4c9974dcf1389055b7813bb6ddaa49d3b54b848ba4206701e";
    assert_eq!(hex::encode(&msk.as_bytes()[..32]), key);
}

#[test]
fn every_flipped_byte() {
    let config = mschapv2_config();
    let fine = flip_everything(&[1, 2, 0x80, 0xff], |way| {
        talk(password("alice", "correct horse"), &config, None, &users(), |n, packet| way(n, packet))
    });
    // Of the challenge what is not random (numbers of the method, the server's name), of the response its numbers, reserved bytes and flags; and what the
    // peer claims to be.
    let of = |number| move |(packet, at): &&(usize, usize)| *packet == number && *at > 5;
    let bytes = |number| fine.iter().filter(of(number)).map(|(_, at)| *at).collect::<Vec<_>>();
    assert!(!fine.is_empty() && bytes(2).iter().all(|at| !(9..26).contains(at)), "{fine:?}");
    assert!(bytes(3).iter().all(|at| [6..9, 26..34, 58..59].iter().any(|r| r.contains(at))), "{fine:?}");
    // Of the proof only what comes before and behind it.
    assert!(bytes(4).iter().all(|at| !(9..51).contains(at)), "{fine:?}");
}

#[test]
fn an_impostor_is_found_out() {
    // It does not know the password, and claims success all the same: in the method, or at once.
    for (turn, packet, why) in [
        (
            4,
            &b"\x01\x09\x00\x38\x1a\x03\x41\x00\x33S=407A5589115FD0D6209F510FE9C04566932CDA56 M=OK"[..],
            Error::ServerUnproven,
        ),
        (4, b"\x01\x09\x00\x0b\x1a\x03\x41\x00\x06M=", Error::ServerUnproven),
        (4, b"\x01\x09\x00\x06\x1a\x03", Error::ServerUnproven),
        (4, b"\x03\x09\x00\x04", Error::EarlySuccess),
        (2, b"\x03\x09\x00\x04", Error::EarlySuccess),
        (0, b"\x03\x09\x00\x04", Error::EarlySuccess),
    ] {
        let outcome =
            talk(password("alice", "correct horse"), &mschapv2_config(), None, &users(), |n, way| {
                if n == turn {
                    *way = packet.to_vec();
                }
            });
        assert_eq!(outcome.client, Some(Err(why)));
    }
}

#[test]
fn refusals_by_their_numbers() {
    for (line, why) in [
        ("E=691 R=1 C=00112233445566778899AABBCCDDEEFF V=3 M=no", Error::WrongPassword),
        ("E=648 R=0 C=00112233445566778899AABBCCDDEEFF V=3 M=", Error::PasswordExpired),
        ("E=647 R=0", Error::AccountDisabled),
        ("E=646 R=0", Error::Refused(Some(646))),
        ("E=4294967296", Error::Refused(None)),
        ("", Error::Refused(None)),
    ] {
        let mut client = Peer::new(password("alice", "correct horse"));
        let mut random = Seeded::new(1);
        let request = |identifier, data: &[u8]| {
            Packet::Request { identifier, kind: Type::MSCHAPV2, data }.emit().expect("short")
        };
        let challenge = [&[1, 1, 0, 21, 16][..], &[7; 16]].concat();
        assert!(matches!(client.receive(&request(1, &challenge), &mut random), peer::Step::Send(_)));
        let failure = [&[4, 1, 0, 0][..], line.as_bytes()].concat();
        let answer = client.receive(&request(2, &failure), &mut random);
        assert_eq!(answer, peer::Step::Send(b"\x02\x02\x00\x06\x1a\x04".to_vec()));
        assert_eq!(client.refusal(), Some(&why));
        assert_eq!(client.receive(b"\x04\x02\x00\x04", &mut random), peer::Step::Failed(why));
        assert_eq!(client.receive(b"\x03\x02\x00\x04", &mut random), peer::Step::Ignore);
    }
}

#[test]
fn a_password_is_not_changed() {
    let outcome = talk(password("alice", "wrong"), &mschapv2_config(), None, &users(), |n, packet| {
        if n == 5 {
            let data = [&[7, 2, 2, 74][..], &[0; 582]].concat();
            let Ok(Packet::Response { identifier, kind, .. }) = Packet::parse(packet) else {
                panic!("no response")
            };
            *packet = Packet::Response { identifier, kind, data: &data }.emit().expect("short");
        }
    });
    assert_eq!(outcome.gateway, Some(Err(Error::PasswordChange)));
}

#[test]
fn other_methods_are_refused() {
    let mut random = Seeded::new(5);
    // At the peer: a Nak that names what it has.
    let mut client = Peer::new(password("alice", "correct horse"));
    let answer = client.receive(b"\x01\x05\x00\x06\x0d\x20", &mut random);
    assert_eq!(answer, peer::Step::Send(b"\x02\x05\x00\x06\x03\x1a".to_vec()));
    let end = client.receive(b"\x04\x05\x00\x04", &mut random);
    assert_eq!(end, peer::Step::Failed(Error::OtherMethod { offered: Type::TLS, wanted: Type::MSCHAPV2 }));
    // At the authenticator: a peer that wants another, or none, or that changes its mind when the method has begun.
    for (nak, wanted) in
        [(&[13][..], vec![Type::TLS]), (&[0], vec![]), (&[26], vec![Type::MSCHAPV2]), (&[], vec![])]
    {
        let (mut gateway, first) =
            Authenticator::begin(&mschapv2_config(), Some("x".to_owned()), &mut random);
        let nak =
            Packet::Response { identifier: first[1], kind: Type::NAK, data: nak }.emit().expect("short");
        let authenticator::Step::Failed { packet, why } = gateway.receive(&nak, &users(), &mut random) else {
            panic!("not failed")
        };
        assert_eq!((why, packet), (Error::NoCommonMethod(wanted), vec![4, first[1], 0, 4]));
    }
    let outcome =
        talk(password("alice", "correct horse"), &mschapv2_config(), None, &users(), |n, packet| {
            if n == 5 {
                *packet = vec![2, packet[1], 0, 6, 3, 26];
            }
        });
    assert!(matches!(outcome.gateway, Some(Err(Error::Unexpected(_)))));
}

/// Once a method has begun at a peer, there is no other, and no other question.
#[test]
fn a_gateway_that_changes_its_mind() {
    for other in [&b"\x01\x09\x00\x06\x0d\x20"[..], b"\x01\x09\x00\x05\x01"] {
        let outcome =
            talk(password("alice", "correct horse"), &mschapv2_config(), None, &users(), |n, packet| {
                if n == 4 {
                    *packet = other.to_vec();
                }
            });
        assert!(matches!(outcome.client, Some(Err(Error::Unexpected(_)))), "{outcome:?}");
    }
}

#[test]
fn repeated_packets_notices_and_strangers() {
    let mut random = Seeded::new(6);
    let (mut gateway, ask) = Authenticator::begin(&mschapv2_config(), None, &mut random);
    let mut client = Peer::new(password("alice", "correct horse"));
    let notice = client.receive(b"\x01\x63\x00\x0a\x02hello", &mut random);
    assert_eq!(notice, peer::Step::Send(b"\x02\x63\x00\x05\x02".to_vec()));
    let peer::Step::Send(identity) = client.receive(&ask, &mut random) else { panic!("no identity") };
    let authenticator::Step::Send(challenge) = gateway.receive(&identity, &users(), &mut random) else {
        panic!("no challenge")
    };
    assert_eq!(gateway.claimed(), Some("alice"));
    // The same again: ignored at the gateway, answered as before at the client, although the challenge would be answered otherwise.
    assert_eq!(gateway.receive(&identity, &users(), &mut random), authenticator::Step::Ignore);
    let first = client.receive(&challenge, &mut random);
    assert_eq!(client.receive(&challenge, &mut random), first);
    // What only the other side sends.
    assert_eq!(client.receive(b"\x02\x01\x00\x05\x01", &mut random), peer::Step::Ignore);
    assert_eq!(gateway.receive(b"\x01\x01\x00\x05\x01", &users(), &mut random), authenticator::Step::Ignore);
}

#[test]
fn nothing_goes_on_for_ever() {
    let mut random = Seeded::new(7);
    let mut client = Peer::new(password("alice", "correct horse"));
    for turn in 0..limits::MAX_TURNS {
        let ask = [1, turn.to_le_bytes()[0], 0, 5, 1];
        assert!(matches!(client.receive(&ask, &mut random), peer::Step::Send(_)), "{turn}");
    }
    assert_eq!(client.receive(&[1, 9, 0, 5, 1], &mut random), peer::Step::Failed(Error::Endless));
    let (mut gateway, _) = Authenticator::begin(&mschapv2_config(), None, &mut random);
    let mut last = authenticator::Step::Ignore;
    for _ in 0..=limits::MAX_TURNS {
        assert_eq!(last, authenticator::Step::Ignore);
        last = gateway.receive(b"\x01\x01\x00\x05\x01", &users(), &mut random);
    }
    assert!(matches!(last, authenticator::Step::Failed { why: Error::Endless, .. }));
    // Names, identities and passwords have bounds.
    let long = "x".repeat(limits::MAX_NAME + 1);
    let outcome = talk(password(&long, "correct horse"), &mschapv2_config(), None, &users(), |_, _| ());
    assert_eq!(outcome.client, Some(Err(Error::TooLong("the user's name"))));
    let outcome = talk(password("alice", &"x".repeat(2_000)), &mschapv2_config(), None, &users(), |_, _| ());
    assert_eq!(outcome.client, Some(Err(Error::TooLong("the password"))));
}

proptest! {
    #[test]
    fn any_packets(data in prop::collection::vec(any::<u8>(), 0..512)) {
        dormouse_eap::fuzz::packets(&data);
    }

    #[test]
    fn any_edits(data in prop::collection::vec(any::<u8>(), 0..24)) {
        dormouse_eap::fuzz::conversation(&data);
    }
}

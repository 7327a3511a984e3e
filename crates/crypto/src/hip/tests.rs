use dormouse_sansio::Seeded;

use super::*;
use crate::dh::modp;

fn every() -> impl Iterator<Item = DhGroup> {
    DhGroup::ALL.into_iter().chain([1, 2].into_iter().filter_map(DhGroup::for_measurement))
}

#[test]
fn both_ends_agree_and_seeds_repeat() {
    for group in every() {
        let key = |seed| DhKey::generate(group, &mut Seeded::new(seed)).unwrap();
        let (a, b) = (key(1), key(2));
        assert_eq!(a.public_value().len(), group.public_len(), "{group:?}");
        assert_eq!(a.agree(b.public_value()).unwrap(), b.agree(a.public_value()).unwrap());
        assert_eq!(a.public_value(), key(1).public_value());
        assert_ne!(a.public_value(), b.public_value());
        assert!(a.agree(&b.public_value()[1..]).is_err());
    }
}

/// The groups that the paper measured cannot be asked for by a peer or a configuration.
#[test]
fn numbers_lead_to_groups_that_protect() {
    let ids: Vec<u8> = (0..=255).filter(|id| DhGroup::by_id(*id).is_some()).collect();
    assert_eq!(ids, [3, 4, 7, 8, 9, 11]);
    assert!(every().all(|g| DhGroup::by_id(g.id()).or(DhGroup::for_measurement(g.id())) == Some(g)));
}

/// Python's pow(2, x, p) with x the repeated byte, its length that of the exponents drawn here.
#[test]
fn short_groups_have_known_answers() {
    for (group, start) in [(Modp::M384, KNOWN_384), (Modp::M768, KNOWN_768), (Modp::M1536, KNOWN_1536)] {
        let public = Exponent::known(group, &[0xa5; 32]).public_value();
        assert_eq!(hex::encode(&public[..16]), start);
        let one_below = {
            let mut p = modp::prime(group);
            *p.last_mut().unwrap() -= 1;
            p
        };
        assert!(Exponent::known(group, &[0xa5; 32]).agree(&one_below).is_err());
    }
}

#[test]
fn ciphers_undo_themselves_and_refuse_another_key() {
    for (cipher, sizes) in [
        (HipCipher::Aes128Cbc, [(8, 32), (16, 48)]),
        (HipCipher::Aes256Cbc, [(8, 32), (16, 48)]),
        (HipCipher::Null, [(8, 8), (16, 16)]),
    ] {
        let key = vec![7; cipher.key_len()];
        for (len, expected) in sizes {
            let plain = vec![3; len];
            let sealed = cipher.encrypt(&key, &plain, &mut Seeded::new(1)).unwrap();
            assert_eq!(sealed.len(), expected, "{cipher:?}");
            assert_eq!(cipher.decrypt(&key, &sealed), Ok(plain.clone()));
            if cipher != HipCipher::Null {
                assert_ne!(cipher.decrypt(&vec![8; cipher.key_len()], &sealed), Ok(plain));
                assert_eq!(cipher.decrypt(&key, &sealed[..15]), Err(Unauthentic));
            }
        }
        assert_eq!(cipher.encrypt(&[1; 5], &[0; 8], &mut Seeded::new(1)), None, "a key of another length");
    }
}

const KNOWN_384: &str = "f17f3466afcd512b9896f2bbf2af88b9";
const KNOWN_768: &str = "796bb2c8ef118ce85d182e9d09a9a67d";
const KNOWN_1536: &str = "305f809875e49e0ab64270640d5a6722";

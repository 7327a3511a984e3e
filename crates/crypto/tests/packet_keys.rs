//! Packet protection against published packets, and what it refuses.

use dormouse_crypto::packet_key::keymat_len;
use dormouse_crypto::{Encr, Error, Integ, PacketKey, Prf, PrfKey, Unauthentic};

fn unhex(digits: &str) -> Vec<u8> {
    hex::decode(digits).expect("the vectors are hexadecimal")
}

/// Those that no text names for IKE.
const OF_HIP: [Encr; 6] =
    [Encr::Null, Encr::NullIv16, Encr::Aes128Gcm8, Encr::Aes128Gmac, Encr::Aes192Gmac, Encr::Aes256Gmac];

/// Every pairing that can be negotiated.
fn pairings() -> Vec<(Encr, Option<Integ>)> {
    let separate = |encr| Integ::ALL.map(|integ| (encr, Some(integ))).to_vec();
    Encr::ALL
        .into_iter()
        .chain(OF_HIP)
        .flat_map(|e| if e.is_aead() { vec![(e, None)] } else { separate(e) })
        .chain([(Encr::Null, Some(Integ::AesCmac96))])
        .collect()
}

fn key(encr: Encr, integ: Option<Integ>) -> PacketKey {
    let keymat: Vec<u8> = (0..keymat_len(encr, integ)).map(|i| u8::try_from(i).expect("short")).collect();
    PacketKey::new(encr, integ, &keymat).expect("a valid pairing")
}

/// Wycheproof's AES-CCM tests 264 and 336, whose nonces of 11 bytes are those of RFC 4309; ICVs of 8 and 12 bytes computed with OpenSSL.
#[test]
fn ccm() {
    let short = (
        "1d286e525ec2864d9ea6e7adfbdc49701ad448",
        "79f1947abd503dce",
        "1db0eaaaa1e2c848",
        "7b40e6c987692d0202cb6f44b423c267dd",
        "84f91f9d35b998598e50feb34dcaa0d260",
    );
    let long = (
        "b3a06e00100ffc42dbdd5317f43d2b48f8c11e4bd6e9e3edab58e9944c559278f3d24b",
        "362bf12b84b8a66a",
        "0242b5e804a79188",
        "03b03b45f6f320b99d8158ff8b00f0ad92",
        "d127fd42b2ca4beca9f9ac86b63a1622ef",
    );
    for (encr, (keymat, iv, aad, plain, sealed), icv) in [
        (Encr::Aes128Ccm16, short, "ae4e38cc4b730944bc459df85a536f4e"),
        (Encr::Aes128Ccm12, short, "cf370a3c440b26bc8ab96700"),
        (Encr::Aes128Ccm8, short, "a37f268d28c1aa10"),
        (Encr::Aes256Ccm16, long, "8a499aab9e8f4096da603c6ccfb9ac4a"),
        (Encr::Aes256Ccm12, long, "cbadce0fbadf41c24f5e4e29"),
        (Encr::Aes256Ccm8, long, "af7f08ff0bfc2c9a"),
    ] {
        let key = PacketKey::new(encr, None, &unhex(keymat)).expect("a key");
        let (iv, aad, mut data) = (unhex(iv), unhex(aad), unhex(plain));
        let mut tag = vec![0; encr.icv_len()];
        key.seal(&aad, &iv, &mut data, &[], &mut tag).expect("sealed");
        assert_eq!((hex::encode(&data), hex::encode(&tag)), (sealed.into(), icv.into()), "{encr}");
        key.open(&aad, &iv, &mut data, &[], &tag).expect("opened");
        assert_eq!(hex::encode(&data), plain, "{encr}");
        // KEYMAT is a key and three bytes of salt, no more and no less.
        for wrong in [keymat[2..].to_owned(), format!("{keymat}00")] {
            assert!(PacketKey::new(encr, None, &unhex(&wrong)).is_err(), "{encr}");
        }
    }
}

/// Ours, put together from CTR and CBC, and another implementation agree on messages and authenticated data of every length: at the edges of
/// blocks, of pieces, and where the encoding of the length changes. What was changed is refused, and nothing of it is handed out.
#[test]
fn ccm_is_that_of_another_implementation() {
    use aes::{Aes128, Aes256};
    use ccm::aead::array::Array;
    use ccm::consts::{U8, U11, U12, U16};
    type Theirs<A, M> = ccm::Ccm<A, M, U11>;
    agrees::<Theirs<Aes128, U16>>(Encr::Aes128Ccm16);
    agrees::<Theirs<Aes256, U16>>(Encr::Aes256Ccm16);
    agrees::<Theirs<Aes128, U12>>(Encr::Aes128Ccm12);
    agrees::<Theirs<Aes256, U12>>(Encr::Aes256Ccm12);
    agrees::<Theirs<Aes128, U8>>(Encr::Aes128Ccm8);
    agrees::<Theirs<Aes256, U8>>(Encr::Aes256Ccm8);

    fn agrees<K: ccm::KeyInit + ccm::AeadInOut<NonceSize = U11>>(encr: Encr) {
        let keymat: Vec<u8> = (0u8..).map(|i| i.wrapping_mul(83)).take(keymat_len(encr, None)).collect();
        let (secret, salt) = keymat.split_at(encr.key_len());
        let theirs = K::new_from_slice(secret).expect("a key");
        let ours = PacketKey::new(encr, None, &keymat).expect("a key");
        let message: Vec<u8> = (0u8..=255).cycle().take(66_000).collect();
        let short = (0..70).map(|n| (n, 12));
        let edges = [470, 479, 480, 481, 495, 496, 497, 511, 512, 513, 1_024, 1_420, 9_000].map(|n| (n, 8));
        let aads = [0, 1, 13, 14, 15, 28, 500, 0xfeff, 0xff00, 0xff01, 66_000].map(|n| (33, n));
        for (len, aad) in short.chain(edges).chain(aads) {
            let iv = (len as u64 * 7 + 1).to_be_bytes();
            let mut nonce = Array::<u8, U11>::default();
            nonce[..3].copy_from_slice(salt);
            nonce[3..].copy_from_slice(&iv);
            let (aad, plain) = (&message[..aad], &message[..len]);
            let (mut data, mut icv) = (plain.to_vec(), vec![0; encr.icv_len()]);
            ours.seal(aad, &iv, &mut data, &[], &mut icv).expect("sealed");
            let mut expected = plain.to_vec();
            let tag = theirs.encrypt_inout_detached(&nonce, aad, expected.as_mut_slice().into());
            let case = (encr, len, aad.len());
            assert_eq!((&data, &icv[..]), (&expected, &tag.expect("sealed")[..]), "{case:?}");
            let mut opened = data.clone();
            ours.open(aad, &iv, &mut opened, &[], &icv).expect("opened");
            assert_eq!(opened, plain, "{case:?}");
            *icv.last_mut().expect("an ICV") ^= 1;
            assert_eq!(ours.open(aad, &iv, &mut data, &[], &icv), Err(Unauthentic), "{case:?}");
            assert!(data.iter().all(|byte| *byte == 0), "{case:?}");
        }
    }
}

/// A packet of draft-mcgrew-gcm-test-01, with the first half of its ICV (RFC 4106 section 6).
#[test]
fn gcm_with_a_short_icv() {
    let keymat = unhex("4c80cdefbb5d10da906ac73c3613a6342e443b68");
    let key = PacketKey::new(Encr::Aes128Gcm8, None, &keymat).expect("a key");
    assert_eq!((key.iv_len(), key.icv_len(), key.block_len(), key.separate_mac()), (8, 8, 1, false));
    let (iv, aad) = (unhex("4956ed7e3b244cfe"), unhex("000043218765432100000000"));
    let plain = "45000048699a000080114db7c0a80102c0a801010a9bf15638d301000001000000000000045f736970045f756470037369700963796265726369747902646b000021000101020201";
    let sealed = "fecf537e729d5b07dc30df528dd22b768d1b98736696a6fd348509fa13ceac34cfa2436f14a3f3cf65925bf1f4a13c5d15b21e1884f5ff6247aeabb786b93bce61bc17d768fd9732";
    let (mut data, mut icv) = (unhex(plain), [0; 8]);
    key.seal(&aad, &iv, &mut data, &[], &mut icv).expect("sealed");
    assert_eq!((hex::encode(&data), hex::encode(icv)), (sealed.into(), "459018148f6cbe72".into()));
    key.open(&aad, &iv, &mut data, &[], &icv).expect("opened");
    assert_eq!(hex::encode(&data), plain);
    // The other half, which a library that truncates at the wrong end would take; and the whole.
    assert_eq!(key.open(&aad, &iv, &mut unhex(sealed), &[], &unhex("2fd04796562dfdb4")), Err(Unauthentic));
    let whole = unhex("459018148f6cbe722fd04796562dfdb4");
    assert_eq!(key.open(&aad, &iv, &mut unhex(sealed), &[], &whole), Err(Unauthentic));
}

/// The packet of draft-mcgrew-gcm-test-01 with ENCR_NULL_AUTH_AES_GMAC: the IV is authenticated, and nothing encrypted.
#[test]
fn gmac() {
    let keymat = unhex("4c80cdefbb5d10da906ac73c3613a63422433c64");
    let key = PacketKey::new(Encr::Aes128Gmac, None, &keymat).expect("a key");
    assert_eq!((key.iv_len(), key.icv_len(), key.block_len(), key.separate_mac()), (8, 16, 1, false));
    let (iv, aad) = ([0; 8], unhex("0000432100000007"));
    let plain = "45000030da3a00008001df3bc0a80005c0a800010800c6cd020007006162636465666768696a6b6c6d6e6f707172737401020201";
    let (mut data, mut icv) = (unhex(plain), [0; 16]);
    key.seal(&aad, &iv, &mut data, &[], &mut icv).expect("sealed");
    assert_eq!(
        (hex::encode(&data), hex::encode(icv)),
        (plain.into(), "f2a9a836e155106aa8dcd618e4099aaa".into())
    );
    key.open(&aad, &iv, &mut data, &[], &icv).expect("opened");
    assert_eq!(hex::encode(&data), plain);
    // The same bytes divided otherwise are another packet: the IV makes the nonce.
    let joined = [&iv[..], &unhex(plain)].concat();
    assert_eq!(key.open(&aad, &[1; 8], &mut joined.clone(), &[], &icv), Err(Unauthentic));
}

/// The same packet with longer keys; the tags computed with OpenSSL.
#[test]
fn gmac_with_longer_keys() {
    let plain = unhex(
        "45000030da3a00008001df3bc0a80005c0a800010800c6cd020007006162636465666768696a6b6c6d6e6f707172737401020201",
    );
    let keymat = "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308";
    for (encr, digits, tag) in [
        (Encr::Aes192Gmac, 48, "d4643d1903835c509b87a6c79c8f75db"),
        (Encr::Aes256Gmac, 64, "6240b53872d85e3dc537b42d44c45400"),
    ] {
        let key =
            PacketKey::new(encr, None, &unhex(&format!("{}2e443b68", &keymat[..digits]))).expect("a key");
        let (mut data, mut icv) = (plain.clone(), [0; 16]);
        key.seal(&unhex("0000432100000007"), &[0; 8], &mut data, &[], &mut icv).expect("sealed");
        assert_eq!((&data, hex::encode(icv)), (&plain, tag.to_owned()), "{encr}");
    }
}

/// RFC 4494 section 5, in the parts that a packet has: what stands before the data, the data, the high half of the sequence number.
#[test]
fn cmac() {
    let all = "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e5130c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710";
    let key = PacketKey::new(Encr::Null, Some(Integ::AesCmac96), &unhex("2b7e151628aed2a6abf7158809cf4f3c"))
        .expect("a key");
    assert_eq!((key.iv_len(), key.icv_len(), key.block_len(), key.separate_mac()), (0, 12, 1, true));
    for (len, icv) in [
        (0, "bb1d6929e95937287fa37d12"),
        (16, "070a16b46b4d4144f79bdd9d"),
        (40, "dfa66747de9ae63030ca3261"),
        (64, "51f0bebf7e3b9d92fc497417"),
    ] {
        let message = &unhex(all)[..len];
        let (front, rest) = message.split_at(len.min(8));
        let (middle, tail) = rest.split_at(rest.len().saturating_sub(4));
        let (mut data, mut made) = (middle.to_vec(), [0; 12]);
        key.seal(front, &[], &mut data, tail, &mut made).expect("sealed");
        assert_eq!((data.as_slice(), hex::encode(made)), (middle, icv.to_owned()));
        key.open(front, &[], &mut data, tail, &made).expect("opened");
    }
    let with = |encr, len| PacketKey::new(encr, Some(Integ::AesCmac96), &vec![1; len]).is_err();
    assert!(with(Encr::Aes128Cbc, 32), "RFC 7402 has it without encryption alone");
    assert!(with(Encr::NullIv16, 16) && with(Encr::Null, 15) && with(Encr::Aes128Gmac, 36));
}

/// NULL leaves the data as it is, and the MAC is over it (RFC 4868's test case 1: HMAC-SHA-256 of "Hi There").
#[test]
fn null_authenticates_alone() {
    let key = PacketKey::new(Encr::Null, Some(Integ::HmacSha256_128), &[0x0b; 32]).expect("a key");
    let (mut data, mut icv) = (*b"There", [0; 16]);
    key.seal(b"Hi ", &[], &mut data, &[], &mut icv).expect("sealed");
    assert_eq!(&data, b"There");
    assert_eq!(hex::encode(icv), "198a607eb44bfbc69903a0f1cf2bbdc5");
    assert!(PacketKey::new(Encr::Null, None, &[]).is_err(), "never without a MAC");
}

/// The same MAC uncut, with a vector that it covers: the rest of RFC 4868's test case 1.
#[test]
fn a_whole_mac_covers_a_vector_of_null_too() {
    let key = PacketKey::new(Encr::NullIv16, Some(Integ::HmacSha256Whole), &[0x0b; 32]).expect("a key");
    let whole = "198a607eb44bfbc69903a0f1cf2bbdc5ba0aa3f3d9ae3c1c7a3b1696a0b68cf7";
    assert_eq!((key.iv_len(), key.icv_len(), key.block_len()), (16, 32, 1));
    let (iv, mut data, mut icv) = ([7; 16], *b"There", [0; 32]);
    key.seal(b"Hi ", &iv, &mut data, &[], &mut icv).expect("sealed");
    assert_ne!(hex::encode(icv), whole, "the vector counts");
    key.open(b"Hi ", &iv, &mut data, &[], &icv).expect("opened");
    assert!(key.open(b"Hi ", &[8; 16], &mut data, &[], &icv).is_err());
    assert!(key.open(b"Hi ", &iv, &mut data, &[], &icv[..16]).is_err(), "half of it is not enough");
    let bare = PacketKey::new(Encr::Null, Some(Integ::HmacSha256Whole), &[0x0b; 32]).expect("a key");
    bare.seal(b"Hi ", &[], &mut data, &[], &mut icv).expect("sealed");
    assert_eq!(hex::encode(icv), whole);
}

struct Aead {
    encr: Encr,
    /// Key and salt.
    keymat: &'static str,
    iv: &'static str,
    aad: &'static str,
    plain: &'static str,
    cipher: &'static str,
    icv: &'static str,
}

fn check_aead(case: &Aead) {
    let key = PacketKey::new(case.encr, None, &unhex(case.keymat)).expect("a valid key");
    let (iv, aad) = (unhex(case.iv), unhex(case.aad));
    let (mut data, mut icv) = (unhex(case.plain), [0; 16]);
    key.seal(&aad, &iv, &mut data, &[], &mut icv).expect("sealed");
    assert_eq!(hex::encode(&data), case.cipher);
    assert_eq!(hex::encode(icv), case.icv);
    key.open(&aad, &iv, &mut data, &[], &icv).expect("opened");
    assert_eq!(hex::encode(&data), case.plain);
}

/// draft-mcgrew-gcm-test-01: ESP packets with AES-GCM, with and without extended sequence numbers.
#[test]
#[rustfmt::skip]
fn mcgrew_gcm_esp() {
    use Encr::{Aes128Gcm16, Aes256Gcm16};
    let cases = [
        Aead { encr: Aes128Gcm16, keymat: "4c80cdefbb5d10da906ac73c3613a6342e443b68", iv: "4956ed7e3b244cfe", aad: "000043218765432100000000",
            plain: "45000048699a000080114db7c0a80102c0a801010a9bf15638d301000001000000000000045f736970045f756470037369700963796265726369747902646b000021000101020201",
            cipher: "fecf537e729d5b07dc30df528dd22b768d1b98736696a6fd348509fa13ceac34cfa2436f14a3f3cf65925bf1f4a13c5d15b21e1884f5ff6247aeabb786b93bce61bc17d768fd9732",
            icv: "459018148f6cbe722fd04796562dfdb4" },
        Aead { encr: Aes128Gcm16, keymat: "feffe9928665731c6d6a8f9467308308cafebabe", iv: "facedbaddecaf888", aad: "0000a5f80000000a",
            plain: "4500003e698f000080114dccc0a80102c0a801010a980035002a2343b2d001000001000000000000037369700963796265726369747902646b00000100010001",
            cipher: "deb22cd9b07c72c16e3a65beeb8df304a5a5897d33ae530f1ba76d5d114d2a5c3de81827c10e9a4f51330d0eec416642cfbb85a5b47e48a4ec3b9ba95d918bd1",
            icv: "83b70d3aa8bc6ee4c309e9d85a41ad4a" },
        Aead { encr: Aes256Gcm16, keymat: "abbccddef00112233445566778899aababbccddef00112233445566778899aab11223344", iv: "0102030405060708", aad: "4a2cbfe300000002",
            plain: "4500003069a6400080062690c0a801029389155e0a9e008b2dc57ee0000000007002400020bf0000020405b40101040201020201",
            cipher: "ff425c9b724599df7a3bcd510194e00d6a78107f1b0b1cbf06efae9d65a5d763748a637985771d347f0545659f14e99def842d8e",
            icv: "b335f4eecfdbf831824b4c4915956c96" },
        Aead { encr: Aes128Gcm16, keymat: "0000000000000000000000000000000000000000", iv: "0000000000000000", aad: "0000000000000001",
            plain: "4500003c99c500008001cb7a40679318010101010800075c020044006162636465666768696a6b6c6d6e6f707172737475767761626364656667686901020201",
            cipher: "4688daf2f973a392732909c331d56d60f694abaa414b5e7ff5fdcdfff5e9a284456476492719ffb64de7d9dca1e1d894bc3bd57873ed4d181d19d4d5c8c18af3",
            icv: "f821d496eeb096e98ad2b69e4799c71d" },
        Aead { encr: Aes256Gcm16, keymat: "abbccddef00112233445566778899aababbccddef00112233445566778899aab73616c74", iv: "616e640169766563", aad: "17405e67156f3126dd0db99b",
            plain: "45080028732c00004006e9f90a0106120a01038f06b88023dd6bafbecb71260250101f646d540001",
            cipher: "f2d69ecdbd5a0d5b8d5ef38bad4da58d1f278fde98ef67549d524a3018d9a57ff4d3a31ce673119e",
            icv: "451626c2415771e3b7eebca614c89b35" },
        Aead { encr: Aes128Gcm16, keymat: "7d773d00c144c525ac619d18c84a3f47d9664267", iv: "43457e9182443bc6", aad: "335467aeffffffff",
            plain: "01020201", cipher: "437f866b", icv: "cb3f699fe9b0822bac961c4504bef270" },
    ];
    cases.iter().for_each(check_aead);
}

/// RFC 7634, appendix A (an ESP packet) and appendix B (an IKE SK payload).
#[test]
#[rustfmt::skip]
fn rfc7634_chacha20_poly1305() {
    let keymat = "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3";
    check_aead(&Aead { encr: Encr::ChaCha20Poly1305, keymat, iv: "1011121314151617", aad: "0102030400000005",
        plain: "45000054a6f200004001e778c6336405c000020508005b7a3a080000553bec100007362708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363701020204",
        cipher: "24039428b97f417e3c13753a4f05087b67c352e6a7fab1b982d466ef407ae5c614ee8099d52844eb61aa95dfab4c02f72aa71e7c4c4f64c9befe2facc638e8f3cbec163fac469b502773f6fb94e664da9165b82829f641e0",
        icv: "76aaa8266b7fb0f7b11b369907e1ad43" });
    check_aead(&Aead { encr: Encr::ChaCha20Poly1305, keymat, iv: "1011121314151617", aad: "c0c1c2c3c4c5c6c7d0d1d2d3d4d5d6d72e202500000000090000004529000029",
        plain: "0000000c000040010000000a00", cipher: "610394701f8d017f7c12924889", icv: "6b71bfe25236efd7cdc67066906315b2" });
}

/// Seals with every integrity algorithm; the ciphertext must be the published one, and the ICV the truncated HMAC over
/// aad | iv | ciphertext | tail.
fn check_composed(encr: Encr, encryption_keymat: &str, iv: &str, plain: &str, cipher: &str) {
    let (aad, tail) = ([0, 0, 0x43, 0x21, 0, 0, 0, 1], [0, 0, 0, 7]);
    for (integ, prf) in Integ::ALL.into_iter().zip(Prf::ALL) {
        let mac_key: Vec<u8> = vec![0x5a; integ.key_len()];
        let keymat = [unhex(encryption_keymat), mac_key.clone()].concat();
        let key = PacketKey::new(encr, Some(integ), &keymat).expect("a valid key");
        let (iv, mut data, mut icv) = (unhex(iv), unhex(plain), vec![0; key.icv_len()]);
        key.seal(&aad, &iv, &mut data, &tail, &mut icv).expect("sealed");
        assert_eq!(hex::encode(&data), cipher, "{encr} {integ}");
        let mac = PrfKey::new(prf, &mac_key).compute(&[&aad, &iv, &data, &tail]);
        assert_eq!(icv, mac.as_bytes()[..integ.icv_len()], "{integ}");
        key.open(&aad, &iv, &mut data, &tail, &icv).expect("opened");
        assert_eq!(hex::encode(&data), plain, "{encr} {integ}");
    }
}

/// RFC 3602, section 4: cases 1 to 4 are bare, 5 to 8 the payloads of ESP packets with their padding.
#[test]
#[rustfmt::skip]
fn rfc3602_aes_cbc() {
    let cases = [
        ("06a9214036b8a15b512e03d534120006", "3dafba429d9eb430b422da802c9fac41", "53696e676c6520626c6f636b206d7367", "e353779c1079aeb82708942dbe77181a"),
        ("c286696d887c9aa0611bbb3e2025a45a", "562e17996d093d28ddb3ba695a2e6f58", "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
            "d296cd94c2cccf8a3a863028b5e1dc0a7586602d253cfff91b8266bea6d61ab1"),
        ("6c3ea0477630ce21a2ce334aa746c2cd", "c782dc4c098c66cbd9cd27d825682c81",
            "5468697320697320612034382d62797465206d657373616765202865786163746c7920332041455320626c6f636b7329",
            "d0a02b3836451753d493665d33f0e8862dea54cdb293abc7506939276772f8d5021c19216bad525c8579695d83ba2684"),
        ("56e47a38c5598974bc46903dba290349", "8ce82eefbea0da3c44699ed7db51b7d9",
            "a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedf",
            "c30e32ffedc0774e6aff6af0869f71aa0f3af07a9a31a9c684db207eb0ef8e4e35907aa632c3ffdf868bb7b29d3d46ad83ce9f9a102ee99d49a53e87f4c3da55"),
        ("90d382b410eeba7ad938c46cec1a82bf", "e96e8c08ab465763fd098d45dd3ff893",
            "08000ebda70a00008e9c083db95b070008090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f30313233343536370102030405060708090a0b0c0d0e0e01",
            "f663c25d325c18c6a9453e194e120849a4870b66cc6b9965330013b4898dc856a4699e523a55db080b59ec3a8e4b7e52775b07d1db34ed9c538ab50c551b874aa269add047ad2d5913ac19b7cfbad4a6"),
        ("90d382b410eeba7ad938c46cec1a82bf", "69d08df7d203329db093fc4924e5bd80", "0800b5e8a80a0500a69c083d0b660e0077777777777777777777777701020201",
            "f51995881ec4e0c4488987ce742e8109689bb379d2d750c0d915dca346a89f75"),
        ("0123456789abcdef0123456789abcdef", "f4e765244f6407adf13dc1380f673f37",
            "45000054090400004001f988c0a87b03c0a87bc808009f76a90a0100b49c083d02a2040008090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f30313233343536370102030405060708090a0a04",
            "773b5241a4c449225e4f3ce5ed611b0c237ca96cf74a93013c1b0ea1a0cf70f8e4ecaec78ac53aad7a0f022b859243c647752e94a859352b8a4d4d2decd136e5c177f132ad3fbfb2201ac9904c74ee0a109e0ca1e4dfe9d5a100b842f1c22f0d"),
        ("0123456789abcdef0123456789abcdef", "85d47224b5f3dd5d2101d4ea8dffab22",
            "45000044090c00004001f990c0a87b03c0a87bc80800d63caa0a0200c69c083da3de0300ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff0102030405060708090a0a04",
            "15b92683819596a8047232cc00f7048fe45318e11f8a0f62ede3c3fc61203bb50f980a08c9843fd3a1b06d5c07ff9639b7eb7dfb3512e5de435e7207ed971ef3d2726d9b5ef6affc6d17a0decbb13892"),
    ];
    for (key, iv, plain, cipher) in cases {
        check_composed(Encr::Aes128Cbc, key, iv, plain, cipher);
    }
}

/// NIST SP 800-38A, appendix F.2.5.
#[test]
fn sp800_38a_aes256_cbc() {
    check_composed(
        Encr::Aes256Cbc,
        "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
        "000102030405060708090a0b0c0d0e0f",
        "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51\
         30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710",
        "f58c4c04d6e5f1ba779eabfb5f7bfbd69cfc4e967edb808d679f777bc6702c7d\
         39f23369a9d9bacfa530e26304231461b2eb05e2c39be9fcda6c19078c6a9d1b",
    );
}

/// RFC 3686, section 6: cases 1 to 3 (128 bits) and 7 to 9 (256 bits); the keying material is key | nonce.
#[test]
#[rustfmt::skip]
fn rfc3686_aes_ctr() {
    use Encr::{Aes128Ctr, Aes256Ctr};
    let (text, pt32) = ("53696e676c6520626c6f636b206d7367", "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
    let pt36 = &format!("{pt32}20212223");
    let cases = [
        (Aes128Ctr, "ae6852f8121067cc4bf7a5765577f39e00000030", "0000000000000000", text, "e4095d4fb7a7b3792d6175a3261311b8"),
        (Aes128Ctr, "7e24067817fae0d743d6ce1f32539163006cb6db", "c0543b59da48d90b", pt32, "5104a106168a72d9790d41ee8edad388eb2e1efc46da57c8fce630df9141be28"),
        (Aes128Ctr, "7691be035e5020a8ac6e618529f9a0dc00e0017b", "27777f3f4a1786f0", pt36, "c1cf48a89f2ffdd9cf4652e9efdb72d74540a42bde6d7836d59a5ceaaef3105325b2072f"),
        (Aes256Ctr, "776beff2851db06f4c8a0542c8696f6c6a81af1eec96b4d37fc1d689e6c1c10400000060", "db5672c97aa8f0b2", text, "145ad01dbf824ec7560863dc71e3e0c0"),
        (Aes256Ctr, "f6d66d6bd52d59bb0796365879eff886c66dd51a5b6a99744b50590c87a2388400faac24", "c1585ef15a43d875", pt32, "f05e231b3894612c49ee000b804eb2a9b8306b508f839d6a5530831d9344af1c"),
        (Aes256Ctr, "ff7a617ce69148e4f1726e2f43581de2aa62d9f805532edff1eed687fb54153d001cc5b7", "51a51d70a1c11148", pt36, "eb6c52821d0bbbf7ce7594462aca4faab407df866569fd07f48cc0b583d6071f1ec0e6b8"),
    ];
    for (encr, keymat, iv, plain, cipher) in cases {
        check_composed(encr, keymat, iv, plain, cipher);
    }
}

/// One bit anywhere - header, IV, ciphertext, high sequence number, ICV - and the packet is refused.
#[test]
fn every_bit_is_authenticated() {
    for (encr, integ) in pairings() {
        let key = key(encr, integ);
        let tail = if integ.is_some() { vec![1, 2, 3, 4] } else { vec![] };
        let mut parts = [vec![9; 8], vec![7; key.iv_len()], vec![5; 32], tail, vec![0; key.icv_len()]];
        let [aad, iv, data, tail, icv] = &mut parts;
        key.seal(aad, iv, data, tail, icv).expect("sealed");
        for part in 0..parts.len() {
            for byte in 0..parts[part].len() {
                let mut bad = parts.clone();
                bad[part][byte] ^= 1 << (byte % 8);
                let [aad, iv, data, tail, icv] = &mut bad;
                assert_eq!(
                    key.open(aad, iv, data, tail, icv),
                    Err(Unauthentic),
                    "{key:?}, part {part}, byte {byte}"
                );
            }
        }
        let [aad, iv, data, tail, icv] = &mut parts;
        assert_eq!(key.open(aad, iv, data, tail, icv), Ok(()), "{key:?}");
        assert_eq!(data, &[5; 32], "{key:?}");
    }
}

#[test]
fn an_empty_payload_is_a_payload() {
    for (encr, integ) in pairings() {
        let key = key(encr, integ);
        let (iv, mut icv) = (vec![0; key.iv_len()], vec![0; key.icv_len()]);
        key.seal(b"header", &iv, &mut [], &[], &mut icv).expect("sealed");
        assert_eq!(key.open(b"header", &iv, &mut [], &[], &icv), Ok(()));
    }
}

#[test]
fn wrong_lengths_are_named() {
    for (encr, integ) in pairings() {
        let key = key(encr, integ);
        let (iv_len, icv_len) = (key.iv_len(), key.icv_len());
        let (iv, mut icv) = (vec![0; iv_len], vec![0; icv_len]);
        let mut data = [0; 32];
        let error = |what, got, expected| Err(Error::Length { what, got, expected });
        let long = vec![0; iv_len + 1];
        assert_eq!(key.seal(&[], &long, &mut data, &[], &mut icv), error("IV", iv_len + 1, iv_len));
        assert_eq!(
            key.seal(&[], &iv, &mut data, &[], &mut icv[1..]),
            error("integrity check value", icv_len - 1, icv_len)
        );
        assert_eq!(key.open(&[], &iv, &mut data, &[], &icv[1..]), Err(Unauthentic));
        assert_eq!(key.open(&[], &iv, &mut data, &[], &[]), Err(Unauthentic));
        let unaligned = key.seal(&[], &iv, &mut data[..31], &[], &mut icv);
        if key.block_len() == 16 {
            assert_eq!(unaligned, Err(Error::Unaligned { got: 31, block: 16 }));
        } else {
            assert_eq!(unaligned, Ok(()));
        }
        let keymat = keymat_len(encr, integ);
        let short = PacketKey::new(encr, integ, &vec![0; keymat - 1]).err();
        assert_eq!(short, Some(Error::Length { what: "keying material", got: keymat - 1, expected: keymat }));
    }
}

#[test]
fn pairings_that_do_not_authenticate_once_are_refused() {
    for encr in Encr::ALL {
        let integ = encr.is_aead().then_some(Integ::HmacSha256_128);
        let error = PacketKey::new(encr, integ, &[0; 64]).expect_err("refused");
        assert_eq!(error, Error::Pairing { encr, integ });
        assert!(error.to_string().contains(encr.name()), "{error}");
    }
}

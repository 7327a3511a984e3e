//! Known answers for every suite, held before anything is timed. Owns the vectors; all are published: RFC 3602,
//! 3686, 7634, 2202, 4868, NIST SP 800-38A, 800-38D and 800-67, FIPS 81, Project Wycheproof (CCM). CCM's vectors for the
//! ICVs of 8 and 12 bytes, which Wycheproof lacks for the nonce of RFC 4309, were computed with OpenSSL.

use super::{Cipher, Integrity, Suite};
use crate::PacketKey;
use crate::error::Error;

/// A suite that computed something else than it should: broken, however fast.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{suite} is broken: {what} {vector}")]
pub struct WrongAnswer {
    /// The suite.
    pub suite: Suite,
    /// What went wrong.
    pub what: &'static str,
    /// On which vector.
    pub vector: &'static str,
}

/// One message. `keymat` is key and salt as [`Suite::key`] takes them, without an integrity key; `icv` is empty for ciphers
/// without one.
struct Vector {
    name: &'static str,
    ciphers: &'static [Cipher],
    keymat: &'static str,
    iv: &'static str,
    aad: &'static str,
    plain: &'static str,
    sealed: &'static str,
    icv: &'static str,
}

/// HMAC of "Hi There" under a key of bytes 0x0b as long as ESP's keys are.
struct MacVector {
    name: &'static str,
    integrity: Integrity,
    icv: &'static str,
}

const VECTORS: &[Vector] = &[
    Vector {
        name: "RFC 3602, case 2",
        ciphers: &[Cipher::Aes128Cbc],
        keymat: "c286696d887c9aa0611bbb3e2025a45a",
        iv: "562e17996d093d28ddb3ba695a2e6f58",
        aad: "",
        plain: "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
        sealed: "d296cd94c2cccf8a3a863028b5e1dc0a7586602d253cfff91b8266bea6d61ab1",
        icv: "",
    },
    Vector {
        name: "NIST SP 800-38A, F.2.5",
        ciphers: &[Cipher::Aes256Cbc],
        keymat: "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
        iv: "000102030405060708090a0b0c0d0e0f",
        aad: "",
        plain: "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51",
        sealed: "f58c4c04d6e5f1ba779eabfb5f7bfbd69cfc4e967edb808d679f777bc6702c7d",
        icv: "",
    },
    Vector {
        name: "RFC 3686, vector 2",
        ciphers: &[Cipher::Aes128Ctr],
        keymat: "7e24067817fae0d743d6ce1f32539163006cb6db",
        iv: "c0543b59da48d90b",
        aad: "",
        plain: "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
        sealed: "5104a106168a72d9790d41ee8edad388eb2e1efc46da57c8fce630df9141be28",
        icv: "",
    },
    Vector {
        name: "RFC 3686, vector 8",
        ciphers: &[Cipher::Aes256Ctr],
        keymat: "f6d66d6bd52d59bb0796365879eff886c66dd51a5b6a99744b50590c87a2388400faac24",
        iv: "c1585ef15a43d875",
        aad: "",
        plain: "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
        sealed: "f05e231b3894612c49ee000b804eb2a9b8306b508f839d6a5530831d9344af1c",
        icv: "",
    },
    Vector {
        name: "Wycheproof AES-CCM 264",
        ciphers: &[Cipher::Aes128Ccm16],
        keymat: "1d286e525ec2864d9ea6e7adfbdc49701ad448",
        iv: "79f1947abd503dce",
        aad: "1db0eaaaa1e2c848",
        plain: "7b40e6c987692d0202cb6f44b423c267dd",
        sealed: "84f91f9d35b998598e50feb34dcaa0d260",
        icv: "ae4e38cc4b730944bc459df85a536f4e",
    },
    Vector {
        name: "OpenSSL, the message of Wycheproof AES-CCM 264 with a 12-byte ICV",
        ciphers: &[Cipher::Aes128Ccm12],
        keymat: "1d286e525ec2864d9ea6e7adfbdc49701ad448",
        iv: "79f1947abd503dce",
        aad: "1db0eaaaa1e2c848",
        plain: "7b40e6c987692d0202cb6f44b423c267dd",
        sealed: "84f91f9d35b998598e50feb34dcaa0d260",
        icv: "cf370a3c440b26bc8ab96700",
    },
    Vector {
        name: "OpenSSL, the message of Wycheproof AES-CCM 264 with an 8-byte ICV",
        ciphers: &[Cipher::Aes128Ccm8],
        keymat: "1d286e525ec2864d9ea6e7adfbdc49701ad448",
        iv: "79f1947abd503dce",
        aad: "1db0eaaaa1e2c848",
        plain: "7b40e6c987692d0202cb6f44b423c267dd",
        sealed: "84f91f9d35b998598e50feb34dcaa0d260",
        icv: "a37f268d28c1aa10",
    },
    Vector {
        name: "Wycheproof AES-CCM 336",
        ciphers: &[Cipher::Aes256Ccm16],
        keymat: "b3a06e00100ffc42dbdd5317f43d2b48f8c11e4bd6e9e3edab58e9944c559278f3d24b",
        iv: "362bf12b84b8a66a",
        aad: "0242b5e804a79188",
        plain: "03b03b45f6f320b99d8158ff8b00f0ad92",
        sealed: "d127fd42b2ca4beca9f9ac86b63a1622ef",
        icv: "8a499aab9e8f4096da603c6ccfb9ac4a",
    },
    Vector {
        name: "OpenSSL, the message of Wycheproof AES-CCM 336 with a 12-byte ICV",
        ciphers: &[Cipher::Aes256Ccm12],
        keymat: "b3a06e00100ffc42dbdd5317f43d2b48f8c11e4bd6e9e3edab58e9944c559278f3d24b",
        iv: "362bf12b84b8a66a",
        aad: "0242b5e804a79188",
        plain: "03b03b45f6f320b99d8158ff8b00f0ad92",
        sealed: "d127fd42b2ca4beca9f9ac86b63a1622ef",
        icv: "cbadce0fbadf41c24f5e4e29",
    },
    Vector {
        name: "OpenSSL, the message of Wycheproof AES-CCM 336 with an 8-byte ICV",
        ciphers: &[Cipher::Aes256Ccm8],
        keymat: "b3a06e00100ffc42dbdd5317f43d2b48f8c11e4bd6e9e3edab58e9944c559278f3d24b",
        iv: "362bf12b84b8a66a",
        aad: "0242b5e804a79188",
        plain: "03b03b45f6f320b99d8158ff8b00f0ad92",
        sealed: "d127fd42b2ca4beca9f9ac86b63a1622ef",
        icv: "af7f08ff0bfc2c9a",
    },
    Vector {
        name: "draft-mcgrew-gcm-test-01, packet 3d e0 98 74",
        ciphers: &[Cipher::Aes128Gcm16],
        keymat: "3de09874b388e6491988d0c3607eae1f57690e43",
        iv: "4e280000a2fca1a3",
        aad: "42f67e3f1010101010101010",
        plain: "4500001c42a200008001441f406793b6e00000020a00f5ff01020201",
        sealed: "fba2ca845e5df9f0f22c3e6e86dd831e1fc65792cd1af9130e1379ed",
        icv: "369f071f35e034be95f112e4e7d05d35",
    },
    Vector {
        name: "draft-mcgrew-gcm-test-01, packet 6c 65 67 61",
        ciphers: &[Cipher::Aes256Gcm16],
        keymat: "6c6567616c697a656d6172696a75616e61616e64646f69746265666f726569617475726e",
        iv: "333021696765746d",
        aad: "796b6963ffffffffffffffff",
        plain: "45000030da3a00008001df3bc0a80005c0a800010800c6cd020007006162636465666768696a6b6c6d6e6f707172737401020201",
        sealed: "f97ab2aa356d8edce17644ac8c78e25dd24dedbb29ebf1b64a274b39b49c3a864cd3d78ca4ae68a32b42458fb57dbe821dcc63b9",
        icv: "d0937ba2945f669368661a329fb4c053",
    },
    Vector {
        name: "RFC 7634, appendix A",
        ciphers: &[Cipher::ChaCha20Poly1305],
        keymat: "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3",
        iv: "1011121314151617",
        aad: "0102030400000005",
        plain: "45000054a6f200004001e778c6336405c000020508005b7a3a080000553bec100007362708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363701020204",
        sealed: "24039428b97f417e3c13753a4f05087b67c352e6a7fab1b982d466ef407ae5c614ee8099d52844eb61aa95dfab4c02f72aa71e7c4c4f64c9befe2facc638e8f3cbec163fac469b502773f6fb94e664da9165b82829f641e0",
        icv: "76aaa8266b7fb0f7b11b369907e1ad43",
    },
    Vector {
        name: "NULL leaves everything as it is (RFC 2410)",
        ciphers: &[Cipher::Null],
        keymat: "",
        iv: "",
        aad: "",
        plain: "4e6f7720697320746865",
        sealed: "4e6f7720697320746865",
        icv: "",
    },
    Vector {
        name: "FIPS 81, table C1",
        ciphers: &[Cipher::Des],
        keymat: "0123456789abcdef",
        iv: "1234567890abcdef",
        aad: "",
        plain: "4e6f77206973207468652074696d6520666f7220616c6c20",
        sealed: "e5c7cdde872bf27c43e934008c389c0f683788499a7c05f6",
        icv: "",
    },
    // The appendix gives three blocks in ECB; each but the first stands here XORed with the ciphertext before it, which CBC
    // takes away again.
    Vector {
        name: "NIST SP 800-67, appendix B",
        ciphers: &[Cipher::TripleDes],
        keymat: "0123456789abcdef23456789abcdef01456789abcdef0123",
        iv: "0000000000000000",
        aad: "",
        plain: "5468652071756663c3069ffe8a4ceb7faa8d64a178500296",
        sealed: "a826fd8ce53b855fcce21c8112256fe668d5c05dd9b6b900",
        icv: "",
    },
];

const MACS: &[MacVector] = &[
    MacVector {
        name: "RFC 2202, HMAC-MD5 case 1",
        integrity: Integrity::HmacMd5_96,
        icv: "9294727a3638bb1c13f48ef8",
    },
    MacVector {
        name: "RFC 2202, HMAC-SHA1 case 1",
        integrity: Integrity::HmacSha1_96,
        icv: "b617318655057264e28bc0b6",
    },
    MacVector {
        name: "RFC 4868, AUTH256-1",
        integrity: Integrity::HmacSha256_128,
        icv: "198a607eb44bfbc69903a0f1cf2bbdc5",
    },
    MacVector {
        name: "RFC 4868, AUTH384-1",
        integrity: Integrity::HmacSha384_192,
        icv: "b6a8d5636f5c6a7224f9977dcf7ee6c7fb6d0c48cbdee973",
    },
    MacVector {
        name: "RFC 4868, AUTH512-1",
        integrity: Integrity::HmacSha512_256,
        icv: "637edc6e01dce7e6742a99451aae82df23da3e92439e590e43e761b33e910fb8",
    },
];

/// Holds `suite` against its known answers, sealing and opening; for a suite of two parts, each part and their composition.
///
/// # Errors
/// [`WrongAnswer`] with the first vector that it gets wrong, and for a suite without a vector.
pub fn verify(suite: Suite) -> Result<(), WrongAnswer> {
    verify_with(suite, |suite, keymat| suite.key(keymat))
}

/// [`verify`], with keys made by `key`: for tests of what happens to a suite that is wrong.
///
/// # Errors
/// As [`verify`].
pub fn verify_with(
    suite: Suite,
    key: impl Fn(Suite, &[u8]) -> Result<PacketKey, Error>,
) -> Result<(), WrongAnswer> {
    let mut of_cipher = VECTORS.iter().filter(|v| v.ciphers.contains(&suite.cipher())).peekable();
    if of_cipher.peek().is_none() {
        return Err(WrongAnswer { suite, what: "there is no vector for", vector: "its cipher" });
    }
    of_cipher.try_for_each(|vector| one(suite, vector, &key))?;
    let Some(integrity) = suite.integrity() else { return Ok(()) };
    let Some(vector) = MACS.iter().find(|v| v.integrity == integrity) else {
        return Err(WrongAnswer { suite, what: "there is no vector for", vector: "its MAC" });
    };
    let wrong = |what| WrongAnswer { suite, what, vector: vector.name };
    // The MAC alone stands behind NULL: what it covers is then the data as it was handed in.
    let null = Suite { cipher: Cipher::Null, integrity: Some(integrity) };
    let keymat = vec![0x0b; null.keymat_len()];
    let icv = mac(key(null, &keymat).map_err(|_| wrong("no key for"))?, &[], b"Hi There", &[])
        .ok_or(wrong("sealing failed on"))?;
    if icv == unhex(vector.icv) { Ok(()) } else { Err(wrong("another ICV than")) }
}

/// The ICV that a key without encryption makes of `data`.
fn mac(key: PacketKey, aad: &[u8], data: &[u8], tail: &[u8]) -> Option<Vec<u8>> {
    let (mut data, mut icv) = (data.to_vec(), vec![0; key.icv_len()]);
    key.seal(aad, &[], &mut data, tail, &mut icv).ok()?;
    Some(icv)
}

fn one(
    suite: Suite,
    vector: &Vector,
    key: &impl Fn(Suite, &[u8]) -> Result<PacketKey, Error>,
) -> Result<(), WrongAnswer> {
    const TAIL: [u8; 4] = [0, 0, 0, 7];
    let wrong = |what| WrongAnswer { suite, what, vector: vector.name };
    let [iv, aad, plain, sealed] = [vector.iv, vector.aad, vector.plain, vector.sealed].map(unhex);
    let mut keymat = unhex(vector.keymat);
    let mac_len = suite.keymat_len() - keymat.len();
    keymat.resize(suite.keymat_len(), 0x0b);
    let packet_key = key(suite, &keymat).map_err(|_| wrong("no key for"))?;
    // The tail is for a separate MAC alone: the high half of an extended sequence number.
    let tail = if suite.integrity().is_some() { &TAIL[..] } else { &[] };
    let expected = if suite.integrity().is_some() {
        let null = Suite { cipher: Cipher::Null, integrity: suite.integrity() };
        let null = key(null, &vec![0x0b; mac_len]).map_err(|_| wrong("no key for the MAC of"))?;
        mac(null, &aad, &[&iv[..], &sealed].concat(), tail).ok_or(wrong("no MAC for"))?
    } else {
        unhex(vector.icv)
    };

    let (mut data, mut icv) = (plain.clone(), vec![0; suite.icv_len()]);
    packet_key.seal(&aad, &iv, &mut data, tail, &mut icv).map_err(|_| wrong("sealing failed on"))?;
    if data != sealed {
        return Err(wrong("another ciphertext than"));
    }
    if icv != expected {
        return Err(wrong("another ICV than"));
    }
    packet_key.open(&aad, &iv, &mut data, tail, &icv).map_err(|_| wrong("its own packet is refused on"))?;
    if data != plain {
        return Err(wrong("opened to something else on"));
    }
    if let Some(last) = icv.last_mut() {
        *last ^= 1;
        let mut data = sealed;
        if packet_key.open(&aad, &iv, &mut data, tail, &icv).is_ok() {
            return Err(wrong("a damaged packet is accepted on"));
        }
    }
    Ok(())
}

/// The bytes of a vector of ours: well-formed by construction, which the tests prove.
fn unhex(text: &str) -> Vec<u8> {
    let nibble = |c: u8| char::from(c).to_digit(16).and_then(|d| u8::try_from(d).ok()).unwrap_or(0);
    text.as_bytes().chunks(2).map(|pair| pair.iter().fold(0, |acc, c| acc << 4 | nibble(*c))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::Encr;

    #[test]
    fn every_suite_knows_its_answers() {
        for suite in Suite::all() {
            assert_eq!(verify(suite), Ok(()));
        }
    }

    #[test]
    fn vectors_are_well_formed() {
        let hex = |text: &str| text.len().is_multiple_of(2) && text.bytes().all(|c| c.is_ascii_hexdigit());
        for v in VECTORS {
            assert!([v.keymat, v.iv, v.aad, v.plain, v.sealed, v.icv].into_iter().all(hex), "{}", v.name);
        }
        assert!(MACS.iter().all(|v| hex(v.icv)));
    }

    /// A fast wrong cipher: one that does not encrypt at all, one with the wrong MAC, one with the wrong key.
    #[test]
    fn a_wrong_suite_is_found_out() {
        let suite: Suite = "aes128gcm16".parse().unwrap();
        let other_key = |_: Suite, keymat: &[u8]| {
            PacketKey::new(Encr::Aes128Gcm16, None, &keymat.iter().map(|b| b ^ 1).collect::<Vec<_>>())
        };
        let error = verify_with(suite, other_key).unwrap_err();
        assert_eq!(error.what, "another ciphertext than");
        assert!(error.to_string().starts_with("aes128gcm16 is broken: another ciphertext than draft-mcgrew"));

        let lazy: Suite = "3des-sha1".parse().unwrap();
        let single = |suite: Suite, keymat: &[u8]| {
            if suite == lazy {
                let des: Suite = "des-sha1".parse().unwrap();
                return des.key(&[&keymat[..8], &keymat[24..]].concat());
            }
            suite.key(keymat)
        };
        assert_eq!(verify_with(lazy, single).unwrap_err().what, "another ciphertext than");

        let half: Suite = "aes128-sha256".parse().unwrap();
        let no_mac = |suite: Suite, keymat: &[u8]| {
            let mut wrong = keymat.to_vec();
            let at = wrong.len() - 1;
            wrong[at] ^= u8::from(suite == half);
            suite.key(&wrong)
        };
        assert_eq!(verify_with(half, no_mac).unwrap_err().what, "another ICV than");
    }
}

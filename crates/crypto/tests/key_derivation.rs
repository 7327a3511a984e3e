//! HMAC and the key derivation of IKEv2 against published values.

use dormouse_crypto::{Prf, PrfKey, prf_plus};

fn unhex(digits: &str) -> Vec<u8> {
    hex::decode(digits).expect("the vectors are hexadecimal")
}

/// NIST's samples for the key derivation of IKEv2 (CAVP, SP 800-135), one for each hash.
struct Derivation {
    prf: Prf,
    ni: &'static str,
    nr: &'static str,
    secret: &'static str,
    new_secret: &'static str,
    spi_i: &'static str,
    spi_r: &'static str,
    skeyseed: &'static str,
    keys: &'static str,
    rekeyed: &'static str,
}

const DERIVATIONS: [Derivation; 4] = [
    Derivation {
        prf: Prf::HmacSha1,
        ni: "32b50d5f4a3763f3",
        nr: "9206a04b26564cb1",
        secret: "4b2c1f971981a8ad8d0abeafabf38cf75fc8349c148142465ed9c8b516b8be52",
        new_secret: "863f3c9d06efd39d2b907b97f8699e5dd5251ef64a2a176f36ee40c87d4f9330",
        spi_i: "34c9e7c188868785",
        spi_r: "3ff77d760d2b2199",
        skeyseed: "a9a7b222b59f8f48645f28a1db5b5f5d7479cba7",
        keys: "a14293677cc80ff8f9cc0eee30d895da9d8f405666e30ef0dfcb63c634a46002a2a63080e514a062768b76606f9fa5e9\
               92204fc5a670bde3f10d6b027113936a5c55b648a194ae587b0088d52204b702c979fa280870d2ed41efa9c549fd1119\
               8af1670b143d384bd275c5f594cf266b05ebadca855e4249520a441a81157435a7a56cc4",
        rekeyed: "63e81194946ebd05df7df5ebf5d8750056bf1f1d",
    },
    Derivation {
        prf: Prf::HmacSha256,
        ni: "3f302be1abcb28e1",
        nr: "8c332ee006064c9b",
        secret: "0f4d257d7a58fc4545c7d7a88119eee5d5c9690c5b4c989171d3abbfd99d1d29",
        new_secret: "25f3b12d6f282739256e39bf54eda53b60ffcf379bb7bcc90c27b4c4c578616c",
        spi_i: "40dac39e1e1a8640",
        spi_r: "8619a1cf9a6e4c07",
        skeyseed: "5f00d1bd2c58ec224b1e6b71fa0f19a1faa7a193952c444411b47c1a9d8ba6fe",
        keys: "0b137d669b0947d7d026d593f0305ad401ff0c471357d695778a9c7f4b4869ece98aca531188d16041b3bb936d2dbb3b\
               4993a6e768a809160de45d0283f273a6cdf6854379e31be72b8d3d1fa990cf9c5b015ca9f918a7df6253c958114a09d4\
               e1c19bdcd4db14b29d98db1a74ad405c588662c14a04d0d36aa4ab55e90f8986d12d4aad",
        rekeyed: "2d63f6debc92048b4fef3889c4c99ca67d6496e0fac14a2bca9a2d6566ff2398",
    },
    Derivation {
        prf: Prf::HmacSha384,
        ni: "fd1b572a8e735591",
        nr: "6013b0ef88dacd3d",
        secret: "d3288cd87565101e88fe3bad918f31939d8dd26ff1071f8b2d7f447524e58d7c",
        new_secret: "3358f620539473aee8d07e779764c4c6a9aabddc79a28e136b3bac021dbde44a",
        spi_i: "2116ad07ce61f749",
        spi_r: "24880e55f11a65b7",
        skeyseed: "69fe7a1ac94adaeb711295f5fe004b1a8d6a0b65d05692758ce8ad2f7a45f59d7d0b596f51f7dfcf3330061888f6a94f",
        keys: "4f904c2025c90c817ea5ff9b662a6fdb445a73b57cdf09eacd379b95e1f03cacb04cd6deeda4f952191dd9bc1f7a9502\
               471a648d74dc06d38112de48a42501f6b1a3ad55c2099cd9a648e5f17e5bf3e34bf9b5953decb768a34f875fe2b78dca\
               0c2fcca81ec1a412006dfaed38fa06882e61f4c148105fb8e231fdb33c4d484c001721d4",
        rekeyed: "e0548c1682e13bce454026b3b1bdf42985b24e4e7408095a7c529de38c3d1fcb04c9fe6868042a34c9614c6c99e3fcea",
    },
    Derivation {
        prf: Prf::HmacSha512,
        ni: "97c41a9b0a03e74c",
        nr: "a659fd06e1746600",
        secret: "276255c3eaace5c6db32b609aa86c0ef07bba4bf2dc4c262995efd95ca607c3f",
        new_secret: "bb4015f7727b35532021336a9e4a6370ac8729b01fbb8f15d52236820fac4709",
        spi_i: "ff43c5c689b95481",
        spi_r: "e2ba607f30079bb7",
        skeyseed: "d6e74966b75fd2afab48be319d63d97c8a5d2ffe2e320763a462c664b36c3a944067d867c3a55fd8a7e5cca64b22e244\
                   15987e15549f09a81b455adaa5303df8",
        keys: "22259105314717dc73c210919ee9cb3ded774dc087e866aa3960404c0ed7b8e78e79b993888388e2e5cb238d4bfcb4cd\
               ee9da074a26e329d6c2f2f660cc9c711c941a2fb3d85a2e5d01e579c8f2c9d00fa6fabe76a137b00c7ff1b2918999065\
               88c26f073d819063238c4c844f0f8d221b65b76dbc9ed6f6368e5dba86b3e81b60eb44a1",
        rekeyed: "ecdaf3ccb990abc898a453b03fd56f9975275f150e1e571b0560b3cb2ee67289e82b899cdc2129fd821fe8aebea796f1\
                  90765c25798f5883f923526551f16a4b",
    },
];

/// SKEYSEED = prf(Ni | Nr, g^ir), the seven keys = prf+(SKEYSEED, Ni | Nr | SPIi | SPIr), and SKEYSEED of a rekeyed SA =
/// prf(SK_d, g^ir (new) | Ni | Nr) (RFC 7296, sections 2.14 and 2.18).
#[test]
fn nist_ikev2() {
    for d in DERIVATIONS {
        let (ni, nr, spi_i, spi_r) = (unhex(d.ni), unhex(d.nr), unhex(d.spi_i), unhex(d.spi_r));
        let nonces = [&ni[..], &nr[..]].concat();
        let skeyseed = PrfKey::new(d.prf, &nonces).compute(&[&unhex(d.secret)]);
        assert_eq!(hex::encode(skeyseed.as_bytes()), d.skeyseed, "{}", d.prf);
        let mut keys = vec![0; d.keys.len() / 2];
        prf_plus(d.prf, skeyseed.as_bytes(), &[&ni, &nr, &spi_i, &spi_r], &mut keys)
            .expect("within 255 outputs");
        assert_eq!(hex::encode(&keys), d.keys, "{}", d.prf);
        let sk_d = &keys[..d.prf.output_len()];
        let rekeyed = PrfKey::new(d.prf, sk_d).compute(&[&unhex(d.new_secret), &ni, &nr]);
        assert_eq!(hex::encode(rekeyed.as_bytes()), d.rekeyed, "{}", d.prf);
    }
}

fn hmac(prf: Prf, key: &[u8], data: &[u8]) -> String {
    hex::encode(PrfKey::new(prf, key).compute(&[data]).as_bytes())
}

/// RFC 2202, section 3.
#[test]
fn rfc2202_hmac_sha1() {
    let counting: Vec<u8> = (1..=25).collect();
    let cases: [(&[u8], &[u8], &str); 7] = [
        (&[0x0b; 20], b"Hi There", "b617318655057264e28bc0b6fb378c8ef146be00"),
        (b"Jefe", b"what do ya want for nothing?", "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"),
        (&[0xaa; 20], &[0xdd; 50], "125d7342b9ac11cd91a39af48aa17b4f63f175d3"),
        (&counting, &[0xcd; 50], "4c9007f4026250c6bc8414f9bf50c86c2d7235da"),
        (&[0x0c; 20], b"Test With Truncation", "4c1a03424b55e07fe7f27be1d58bb9324a9a5a04"),
        (
            &[0xaa; 80],
            b"Test Using Larger Than Block-Size Key - Hash Key First",
            "aa4ae5e15272d00e95705637ce8a3b55ed402112",
        ),
        (
            &[0xaa; 80],
            b"Test Using Larger Than Block-Size Key and Larger Than One Block-Size Data",
            "e8e99d0f45237d786d6bbaa7965c7808bbff1a91",
        ),
    ];
    for (key, data, expected) in cases {
        assert_eq!(hmac(Prf::HmacSha1, key, data), expected);
    }
}

/// RFC 4231, section 4 (case 5 is about truncation), which are also the PRF cases of RFC 4868, section 2.7.1.
#[test]
fn rfc4231_hmac_sha2() {
    let counting: Vec<u8> = (1..=25).collect();
    let long = b"This is a test using a larger than block-size key and a larger than block-size data. The key needs to \
                 be hashed before being used by the HMAC algorithm.";
    let cases: [(&[u8], &[u8], [&str; 3]); 6] = [
        (
            &[0x0b; 20],
            b"Hi There",
            [
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
                "afd03944d84895626b0825f4ab46907f15f9dadbe4101ec682aa034c7cebc59cfaea9ea9076ede7f4af152e8b2fa9cb6",
                "87aa7cdea5ef619d4ff0b4241a1d6cb02379f4e2ce4ec2787ad0b30545e17cdedaa833b7d6b8a702038b274eaea3f4e4be9d914eeb61f1702e696c203a126854",
            ],
        ),
        (
            b"Jefe",
            b"what do ya want for nothing?",
            [
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
                "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e8e2240ca5e69e2c78b3239ecfab21649",
                "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
            ],
        ),
        (
            &[0xaa; 20],
            &[0xdd; 50],
            [
                "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe",
                "88062608d3e6ad8a0aa2ace014c8a86f0aa635d947ac9febe83ef4e55966144b2a5ab39dc13814b94e3ab6e101a34f27",
                "fa73b0089d56a284efb0f0756c890be9b1b5dbdd8ee81a3655f83e33b2279d39bf3e848279a722c806b485a47e67c807b946a337bee8942674278859e13292fb",
            ],
        ),
        (
            &counting,
            &[0xcd; 50],
            [
                "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b",
                "3e8a69b7783c25851933ab6290af6ca77a9981480850009cc5577c6e1f573b4e6801dd23c4a7d679ccf8a386c674cffb",
                "b0ba465637458c6990e5a8c5f61d4af7e576d97ff94b872de76f8050361ee3dba91ca5c11aa25eb4d679275cc5788063a5f19741120c4f2de2adebeb10a298dd",
            ],
        ),
        (
            &[0xaa; 131],
            b"Test Using Larger Than Block-Size Key - Hash Key First",
            [
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
                "4ece084485813e9088d2c63a041bc5b44f9ef1012a2b588f3cd11f05033ac4c60c2ef6ab4030fe8296248df163f44952",
                "80b24263c7c1a3ebb71493c1dd7be8b49b46d1f41b4aeec1121b013783f8f3526b56d037e05f2598bd0fd2215d6a1e5295e64f73f63f0aec8b915a985d786598",
            ],
        ),
        (
            &[0xaa; 131],
            long,
            [
                "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2",
                "6617178e941f020d351e2f254e8fd32c602420feb0b8fb9adccebb82461e99c5a678cc31e799176d3860e6110c46523e",
                "e37b6a775dc87dbaa4dfa9f96e5e3ffddebd71f8867289865df5a32d20cdc944b6022cac3c4982b10d5eeb55c3e4de15134676fb6de0446065c97440fa8c6a58",
            ],
        ),
    ];
    for (key, data, expected) in cases {
        for (prf, expected) in [Prf::HmacSha256, Prf::HmacSha384, Prf::HmacSha512].into_iter().zip(expected) {
            assert_eq!(hmac(prf, key, data), expected, "{prf}");
        }
    }
}

/// RFC 4868, section 2.7.2: keys as long as the output, as the integrity algorithms have them. (That the first half is what
/// is sent is tested with the packets.)
#[test]
fn rfc4868_authentication() {
    let cases = [
        (
            Prf::HmacSha256,
            "198a607eb44bfbc69903a0f1cf2bbdc5ba0aa3f3d9ae3c1c7a3b1696a0b68cf7",
            "167f928588c5cc2eef8e3093caa0e87c9ff566a14794aa61648d81621a2a40c6",
        ),
        (
            Prf::HmacSha384,
            "b6a8d5636f5c6a7224f9977dcf7ee6c7fb6d0c48cbdee9737a959796489bddbc4c5df61d5b3297b4fb68dab9f1b582c2",
            "2c7353974f1842fd66d53c452ca42122b28c0b594cfb184da86a368e9b8e16f5349524ca4e82400cbde0686d403371c9",
        ),
        (
            Prf::HmacSha512,
            "637edc6e01dce7e6742a99451aae82df23da3e92439e590e43e761b33e910fb8ac2878ebd5803f6f0b61dbce5e251ff8789a4722c1be65aea45fd464e89f8f5b",
            "cb370917ae8a7ce28cfd1d8f4705d6141c173b2a9362c15df235dfb251b154546aa334ae9fb9afc2184932d8695e397bfa0ffb93466cfcceaae38c833b7dba38",
        ),
    ];
    for (prf, first, second) in cases {
        let len = prf.output_len();
        assert_eq!(hmac(prf, &vec![0x0b; len], b"Hi There"), first, "{prf}");
        assert_eq!(hmac(prf, &b"Jefe".repeat(len / 4), b"what do ya want for nothing?"), second, "{prf}");
    }
}

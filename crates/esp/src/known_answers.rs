//! Whole ESP packets with known answers: RFC 7634 appendix A and draft-mcgrew-gcm-test-01. (RFC 4106 has none of its own.)

use dormouse_crypto::{Encr, Secret};
use dormouse_keying::Mode;
use dormouse_sansio::Seeded;

use crate::{Inbound, Outbound, SaParams};

/// Key, nonce (salt and IV), plaintext with its trailer, authenticated data (SPI and sequence number, 64 bits of it with
/// ESN), ciphertext, ICV. The draft's AES-192 packet is left out: there is no such suite here.
const GCM: [[&str; 6]; 13] = [
    [
        "4c80cdefbb5d10da906ac73c3613a634",
        "2e443b684956ed7e3b244cfe",
        "45000048699a000080114db7c0a80102c0a801010a9bf15638d301000001000000000000045f736970045f756470037369700963796265726369747902646b000021000101020201",
        "000043218765432100000000",
        "fecf537e729d5b07dc30df528dd22b768d1b98736696a6fd348509fa13ceac34cfa2436f14a3f3cf65925bf1f4a13c5d15b21e1884f5ff6247aeabb786b93bce61bc17d768fd9732",
        "459018148f6cbe722fd04796562dfdb4",
    ],
    [
        "feffe9928665731c6d6a8f9467308308",
        "cafebabefacedbaddecaf888",
        "4500003e698f000080114dccc0a80102c0a801010a980035002a2343b2d001000001000000000000037369700963796265726369747902646b00000100010001",
        "0000a5f80000000a",
        "deb22cd9b07c72c16e3a65beeb8df304a5a5897d33ae530f1ba76d5d114d2a5c3de81827c10e9a4f51330d0eec416642cfbb85a5b47e48a4ec3b9ba95d918bd1",
        "83b70d3aa8bc6ee4c309e9d85a41ad4a",
    ],
    [
        "abbccddef00112233445566778899aababbccddef00112233445566778899aab",
        "112233440102030405060708",
        "4500003069a6400080062690c0a801029389155e0a9e008b2dc57ee0000000007002400020bf0000020405b40101040201020201",
        "4a2cbfe300000002",
        "ff425c9b724599df7a3bcd510194e00d6a78107f1b0b1cbf06efae9d65a5d763748a637985771d347f0545659f14e99def842d8e",
        "b335f4eecfdbf831824b4c4915956c96",
    ],
    [
        "00000000000000000000000000000000",
        "000000000000000000000000",
        "4500003c99c500008001cb7a40679318010101010800075c020044006162636465666768696a6b6c6d6e6f707172737475767761626364656667686901020201",
        "0000000000000001",
        "4688daf2f973a392732909c331d56d60f694abaa414b5e7ff5fdcdfff5e9a284456476492719ffb64de7d9dca1e1d894bc3bd57873ed4d181d19d4d5c8c18af3",
        "f821d496eeb096e98ad2b69e4799c71d",
    ],
    [
        "3de09874b388e6491988d0c3607eae1f",
        "57690e434e280000a2fca1a3",
        "4500003c99c300008001cb7c40679318010101010800085c020043006162636465666768696a6b6c6d6e6f707172737475767761626364656667686901020201",
        "42f67e3f1010101010101010",
        "fba2caa4853cf9f0f22cb10d86dd83b0fec75691cf1a04b00d1138ec9c35791765acbd8701ad79845bf9fe3fba487bc91755e6662b4c8d0d1f5e22739530320a",
        "e0d731cc978ecafaeae88f00e80d6e48",
    ],
    [
        "3de09874b388e6491988d0c3607eae1f",
        "57690e434e280000a2fca1a3",
        "4500001c42a200008001441f406793b6e00000020a00f5ff01020201",
        "42f67e3f1010101010101010",
        "fba2ca845e5df9f0f22c3e6e86dd831e1fc65792cd1af9130e1379ed",
        "369f071f35e034be95f112e4e7d05d35",
    ],
    [
        "abbccddef00112233445566778899aab",
        "decaf888cafedebaceface74",
        "4500004933ba00007f119106c3fb1d10c2b1d326c02831ce0035dd7b800302d500004e20001e8c18d75b81dc91baa0476b91b924b280389d92c963bac046ec959b6266c04722b14923010101",
        "000001000000000000000001",
        "18a6fd42f72cbf4ab2a2ea901f73d814e3e7f243d95412e1c349c1d2fbec168f9190feebaf2cb01984e65863965d7472b79da345e0e780191f0d2f0e0f496c226f2127b27db35724e7845d68",
        "651f57e65f354f75ff17015769623436",
    ],
    [
        "abbccddef00112233445566778899aababbccddef00112233445566778899aab",
        "73616c74616e640169766563",
        "45080028732c00004006e9f90a0106120a01038f06b88023dd6bafbecb71260250101f646d540001",
        "17405e67156f3126dd0db99b",
        "f2d69ecdbd5a0d5b8d5ef38bad4da58d1f278fde98ef67549d524a3018d9a57ff4d3a31ce673119e",
        "451626c2415771e3b7eebca614c89b35",
    ],
    [
        "3de09874b388e6491988d0c3607eae1f",
        "57690e434e280000a2fca1a3",
        "45000049333e00007f119182c3fb1d10c2b1d326c02831ce0035cb458003025b000001e0001e8c18d65759d52284a0352c71475c8880391c764d6e5ee0496b325ae270c03899493915010101",
        "42f67e3f1010101010101010",
        "fba2cad12fc1f9f00d3cebf305410db83d7784b607323d220f24b0a97d54182800cadb0f68d99ef0e0c0c89ae9bea8884e52d65bc1afd0740f742444747b5b39ab533163aad4550ee5160975",
        "cdb608c5769189609763b8e18caa81e2",
    ],
    [
        "abbccddef00112233445566778899aababbccddef00112233445566778899aab",
        "73616c74616e640169766563",
        "636973636f0172756c657301746865016e6574776501646566696e6501746865746563686e6f6c6f67696573017468617477696c6c01646566696e65746f6d6f72726f7701020201",
        "17405e67156f3126dd0db99b",
        "d4b7ed86a1777f2ea13d6973d324c69e7b43f826fb56831226508bebd2dceb18d0a6df10e5487df074113e14c641024e3e6773d91a62ee429b043a10e3efe6b012a49363412364f8",
        "c0cac587f249e56b11e24f30e44ccc76",
    ],
    [
        "7d773d00c144c525ac619d18c84a3f47",
        "d966426743457e9182443bc6",
        "01020201",
        "335467aeffffffff",
        "437f866b",
        "cb3f699fe9b0822bac961c4504bef270",
    ],
    [
        "abbccddef00112233445566778899aab",
        "decaf888cafedebaceface74",
        "746f016265016f72016e6f7401746f0162650001",
        "000001000000000000000001",
        "29c9fc69a197d038ccdd14e2ddfcaa0543332164",
        "412503524303ed3c6c5f283843af8c3e",
    ],
    [
        "6c6567616c697a656d6172696a75616e61616e64646f69746265666f72656961",
        "7475726e333021696765746d",
        "45000030da3a00008001df3bc0a80005c0a800010800c6cd020007006162636465666768696a6b6c6d6e6f707172737401020201",
        "796b6963ffffffffffffffff",
        "f97ab2aa356d8edce17644ac8c78e25dd24dedbb29ebf1b64a274b39b49c3a864cd3d78ca4ae68a32b42458fb57dbe821dcc63b9",
        "d0937ba2945f669368661a329fb4c053",
    ],
];

/// RFC 7634 appendix A: KEYMAT 80..a3, SPI 01020304, sequence number 5, no ESN.
const CHACHA: [&str; 6] = [
    "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f",
    "a0a1a2a31011121314151617",
    "45000054a6f200004001e778c6336405c000020508005b7a3a080000553bec100007362708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363701020204",
    "0102030400000005",
    "24039428b97f417e3c13753a4f05087b67c352e6a7fab1b982d466ef407ae5c614ee8099d52844eb61aa95dfab4c02f72aa71e7c4c4f64c9befe2facc638e8f3cbec163fac469b502773f6fb94e664da9165b82829f641e0",
    "76aaa8266b7fb0f7b11b369907e1ad43",
];

fn check(encr: Encr, mode: Mode, vector: [&str; 6]) {
    let [key, nonce, plaintext, aad, ciphertext, icv] = vector.map(|h| hex::decode(h).unwrap());
    let (salt, iv) = nonce.split_at(4);
    let word = |range: core::ops::Range<usize>| {
        aad[range].iter().fold(0_u64, |acc, byte| acc << 8 | u64::from(*byte))
    };
    let (spi, seq) = (word(0..4) as u32, word(4..aad.len()));
    let mut params = SaParams::new(spi, encr, None, Secret::concat(&[&key, salt]));
    params.esn = aad.len() == 12;
    params.mode = mode;
    let packet = [&aad[..4], &aad[aad.len() - 4..], iv, &ciphertext, &icv].concat();

    let [inner @ .., pad_len, next_header] = &plaintext[..] else { panic!("vector without trailer") };
    let inner = &inner[..inner.len() - usize::from(*pad_len)];

    let mut inbound = Inbound::new(&params).unwrap();
    inbound.start_at(seq - 1);
    let mut opened = packet.clone();
    let result = inbound.open(&mut opened).unwrap();
    assert_eq!((result.seq, result.next_header), (seq, *next_header));
    assert_eq!(&opened[result.inner], inner);

    let mut outbound = Outbound::new(&params, &mut Seeded::new(0)).unwrap();
    let mut slot = vec![0xaa; 8 + iv.len()];
    slot.extend_from_slice(inner);
    slot.resize(outbound.sealed_len(inner.len()), 0xaa);
    let len = outbound.seal_known(&mut slot, inner.len(), *next_header, seq, iv);
    assert_eq!(&slot[..len], &packet[..]);
}

#[test]
fn gcm_packets_of_the_draft() {
    for vector in GCM {
        let encr = if vector[0].len() == 32 { Encr::Aes128Gcm16 } else { Encr::Aes256Gcm16 };
        check(encr, Mode::Transport, vector);
    }
}

#[test]
fn the_chacha20_poly1305_packet_of_rfc_7634() {
    check(Encr::ChaCha20Poly1305, Mode::Tunnel, CHACHA);
}

//! The formats of multi-layered IPsec's key management (docs/wire/mlike.md), byte by byte.

use core::net::IpAddr;

use dormouse_wire::Result;
use dormouse_wire::ike::mlike::{
    Distribute, End, Excerpt, Map, Migrate, NAMES_MAX, Name, Opened, Reason, Refused, Request, Secret, Why,
    emit_given, emit_names, emit_neighbours, opened, parse_given, parse_names, parse_neighbours, vendor_id,
};
use dormouse_wire::ike::{Id, IdType, Notify, NotifyType, Payload, emit_payloads, parse_payloads};

fn bytes(hex: &str) -> Vec<u8> {
    hex::decode(hex.split_whitespace().collect::<String>()).expect("hexadecimal")
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn map() -> Map {
    Map { required: false, ends: vec![End { kind: 2, at: 0 }, End { kind: 3, at: 100 }] }
}

/// The content of a whole KEY_DISTRIBUTE request, as it stands inside of SK.
#[test]
fn a_distribution_is_these_bytes() {
    let told = Distribute {
        here: true,
        esn: true,
        cipher: 20,
        key_bits: 256,
        seconds: 14_400,
        nodes: (17, 24),
        gateway: address("198.51.100.1"),
    };
    let keymat: Vec<u8> = (0..36).collect();
    let secret = |from_device, spi, sequence| {
        Secret { from_device, zone: 0, spi, sequence, keymat: &keymat }.payload()
    };
    let list = [
        Payload::Notify(Notify::new(NotifyType::KeyDistribute, told.emit())),
        map().payload(),
        secret(false, 0x0a0b_0c0d, 7),
        secret(true, 0x0102_0304, 0),
    ];
    let golden = bytes(
        "d5 00 002c 00 00 d011 \
         03 00 0014 0100 0000 00003840 00000011 00000018 00000000000000000000ffffc6336401 \
         d6 00 000e 00 02 02 00 0000 03 00 0064 \
         d6 00 0038 00 00 0000 0a0b0c0d 0000000000000007 \
         000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20212223 \
         00 00 0038 01 00 0000 01020304 0000000000000000 \
         000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20212223",
    );
    let mut out = Vec::new();
    let first = emit_payloads(&list, &mut out).expect("emitted");
    assert_eq!(hex::encode(&out), hex::encode(&golden));
    let read = parse_payloads(first, &golden).expect("its own bytes");
    let [Payload::Notify(n), Payload::Unknown { body: zones, .. }, Payload::Unknown { body: down, .. }, _] =
        read.as_slice()
    else {
        panic!("{read:?}")
    };
    assert_eq!((Distribute::parse(&n.data), Map::parse(zones)), (Ok(told), Ok(map())));
    let down = Secret::parse(down).expect("a secret");
    assert_eq!(
        (down.from_device, down.spi, down.sequence, down.keymat),
        (false, 0x0a0b_0c0d, 7, &keymat[..])
    );
    assert!(!format!("{down:?}").contains("35"), "the key is not shown");
}

/// The blocks of the page's section "In bytes" behind the first, which has keys: the vendor id, then each message as it stands inside of SK.
fn blocks() -> Vec<Vec<u8>> {
    let page = include_str!("../../../docs/wire/mlike.md");
    let section = page.split("## In bytes\n").nth(1).expect("the section");
    section.split("```").skip(1).step_by(2).skip(1).map(bytes).collect()
}

/// The keying material in this line of the page's first block, counted from 0.
fn key(line: usize) -> Vec<u8> {
    let page = include_str!("../../../docs/wire/mlike.md");
    let block = page.split("## In bytes\n").nth(1).and_then(|section| section.split("```").nth(1));
    let line = block.and_then(|block| block.trim().lines().nth(line)).expect("a line");
    bytes(line.split("    ").next().expect("a key"))
}

#[test]
fn the_page_has_the_messages_that_the_code_makes() {
    let wire = |list: &[Payload]| {
        let mut out = Vec::new();
        emit_payloads(list, &mut out).expect("emitted");
        hex::encode(out)
    };
    let notify = |kind, data| Payload::Notify(Notify::new(kind, data));
    let (down, up) = (0x0a0b_0c0d, 0x0102_0304);
    let given = Distribute {
        here: true,
        esn: true,
        cipher: 20,
        key_bits: 128,
        seconds: 14_400,
        nodes: (1, 16),
        gateway: address("198.51.100.1"),
    };
    let secret =
        |from_device, spi, keymat: &[u8]| Secret { from_device, zone: 0, spi, sequence: 0, keymat }.payload();
    let name = emit_names(&[Name { to_device: down, from_device: up }]);
    let r2 = Id::new(IdType::Fqdn, *b"r2.example");
    let seen = Excerpt::of(&bytes("01020304 00000009 00010203 04050607")).expect("a packet");
    let ask = Request { why: Why::None, spi: up };
    let refused = Refused { why: Reason::NotNear, spi: up };
    let migrate = Migrate { gateway: given.gateway, seen };
    let messages = [
        vec![vendor_id(Some(&Map { required: true, ..map() }))],
        vec![map().payload()],
        vec![
            notify(NotifyType::KeyDistribute, given.emit()),
            map().payload(),
            secret(false, down, &key(3)),
            secret(true, up, &key(0)),
        ],
        vec![
            notify(NotifyType::KeyHeld, name.clone()),
            notify(NotifyType::KeyNeighbours, emit_neighbours(core::slice::from_ref(&r2))),
        ],
        vec![notify(NotifyType::KeyRequest, ask.emit())],
        vec![notify(NotifyType::KeyRequest, emit_given(up, &r2))],
        vec![notify(NotifyType::KeyRefused, refused.emit())],
        vec![notify(NotifyType::KeyRevoke, name)],
        vec![notify(NotifyType::KeyMigrate, migrate.emit())],
    ];
    assert_eq!(
        messages.map(|list| wire(&list)).to_vec(),
        blocks().iter().map(hex::encode).collect::<Vec<_>>()
    );
}

#[test]
fn notifications_are_these_bytes() {
    let names = [Name { to_device: 1, from_device: 2 }, Name { to_device: 3, from_device: 4 }];
    let golden = bytes("00000001 00000002 00000003 00000004");
    assert_eq!((emit_names(&names), parse_names(&golden)), (golden.clone(), Ok(names.to_vec())));
    let reasons =
        [Why::None, Why::Stale, Why::Exhausted, Why::Migrated, Why::Given, Why::Here, Why::Unusable];
    for (why, code) in reasons.into_iter().zip(1..) {
        let (request, golden) = (Request { why, spi: 0x01020304 }, [code, 0, 0, 0, 1, 2, 3, 4]);
        assert_eq!((request.emit(), Request::parse(&golden)), (golden.to_vec(), Ok(request)));
    }
    use Reason::{Full, NoNumbers, NotLeft, NotNear, NotPermitted, Other, Unknown, Unreadable};
    let reasons = [Unknown, NotPermitted, NotNear, NoNumbers, Full, Unreadable, NotLeft, Other(8)];
    for (why, code) in reasons.into_iter().zip(1..) {
        let (refused, golden) = (Refused { why, spi: 9 }, [code, 0, 0, 0, 0, 0, 0, 9]);
        assert_eq!((refused.emit(), Refused::parse(&golden)), (golden.to_vec(), Ok(refused)));
    }
    let seen = Excerpt::of(&bytes("00000005 00000009 aabb")).expect("a packet");
    let migrate = Migrate { gateway: address("2001:db8::1"), seen };
    let golden = bytes("20010db8000000000000000000000001 000a 0000 00000005 00000009 aabb");
    assert_eq!((migrate.emit(), Migrate::parse(&golden)), (golden, Ok(migrate)));
    let given = Id::new(IdType::Fqdn, *b"ar2.example");
    let golden = bytes("05000000 00000009 02 00 000b 6172322e6578616d706c65");
    assert_eq!((emit_given(9, &given), parse_given(&golden)), (golden.clone(), Ok(given)));
    assert_eq!(Request::parse(&golden), Ok(Request { why: Why::Given, spi: 9 }));
    let ids = [Id::new(IdType::Fqdn, *b"ar2.example"), Id::new(IdType::Ipv4Addr, [192, 0, 2, 1])];
    let golden = bytes("02 00 000b 6172322e6578616d706c65 01 00 0004 c0000201");
    assert_eq!((emit_neighbours(&ids), parse_neighbours(&golden)), (golden, Ok(ids.to_vec())));
}

/// A router that does not know the zones of a packet shows where they may lie.
#[test]
fn of_a_long_packet_its_beginning_and_its_end_are_shown() {
    for len in [4, 159, 160, 287, 288, 289, 1_400, 65_535] {
        let packet: Vec<u8> = (0..len).map(|at| (at % 251) as u8 + 1).collect();
        let seen = Excerpt::of(&packet).expect("a packet");
        assert_eq!(seen.spi(), 0x0102_0304);
        let shown = seen.packet();
        assert_eq!(shown.len(), len);
        for (at, (shown, byte)) in shown.into_iter().zip(packet).enumerate() {
            let hidden = len > 288 && (160..len - 128).contains(&at);
            assert_eq!(shown, if hidden { 0 } else { byte }, "{at} of {len}");
        }
        let asked = Migrate { gateway: address("192.0.2.1"), seen };
        assert_eq!(asked.emit().len(), 20 + len.min(288));
        assert_eq!(Migrate::parse(&asked.emit()), Ok(asked));
    }
    assert_eq!((Excerpt::of(&[1; 3]), Excerpt::of(&[1; 65_536])), (None, None));
}

#[test]
fn the_vendor_id_ends_with_the_map_that_is_wanted() {
    let head = "ed4e51df97ebe22a281c40e66fcef0e4 01";
    let plain = Payload::VendorId(bytes(head));
    assert_eq!(vendor_id(None), plain);
    let wanted = Map { required: true, ..map() };
    let with_map = Payload::VendorId(bytes(&format!("{head} 01 02 02 00 0000 03 00 0064")));
    assert_eq!(vendor_id(Some(&wanted)), with_map);
    assert_eq!(opened(&[plain]), Some(Opened { version: 1, rest: Vec::new() }));
    assert_eq!(opened(&[with_map]), Some(Opened { version: 1, rest: wanted.emit() }));
    let raw = |hex: &str| opened(&[Payload::VendorId(bytes(hex))]);
    assert_eq!(raw("ed4e51df97ebe22a281c40e66fcef0e4 09").map(|o| o.version), Some(1), "the lower counts");
    assert_eq!(raw("ed4e51df97ebe22a281c40e66fcef0e4 00"), None);
    assert_eq!(raw("ed4e51df97ebe22a281c40e66fcef0e4"), None);
    assert_eq!(raw("ed4e51df97ebe22a281c40e66fcef0e5 01"), None);
}

#[test]
fn what_is_cut_short_or_out_of_range_is_refused() {
    fn each_cut<T>(whole: &[u8], parse: impl Fn(&[u8]) -> Result<T>) {
        assert!(parse(whole).is_ok());
        for len in 0..whole.len() {
            assert!(parse(&whole[..len]).is_err(), "{len} of {}", whole.len());
        }
    }
    let gateway = address("192.0.2.1");
    let told =
        Distribute { here: false, esn: false, cipher: 20, key_bits: 128, seconds: 1, nodes: (1, 2), gateway };
    each_cut(&told.emit(), Distribute::parse);
    each_cut(&map().emit(), Map::parse);
    each_cut(&Request { why: Why::None, spi: 1 }.emit(), Request::parse);
    each_cut(&Refused { why: Reason::Full, spi: 1 }.emit(), Refused::parse);
    for len in [4, 300] {
        let seen = Excerpt::of(&vec![1; len]).expect("a packet");
        each_cut(&Migrate { gateway, seen }.emit(), Migrate::parse);
    }
    let short = [&[0; 16][..], &[0, 3, 0, 0], &[1; 300]].concat();
    assert!(Migrate::parse(&short).is_err(), "no SPI");
    let secret = |length: usize| [&[0; 16][..], &vec![1; length]].concat();
    assert!(Secret::parse(&secret(64)).is_ok() && Secret::parse(&secret(65)).is_err());
    assert!(Secret::parse(&[0; 15]).is_err() && Secret::parse(&[2; 20]).is_err());
    assert!(Map::parse(&[0, 8]).is_err() && Map::parse(&[[0, 8].as_slice(), &[1; 32]].concat()).is_err());
    assert!(Request::parse(&[0; 8]).is_err() && Request::parse(&[8, 0, 0, 0, 0, 0, 0, 1]).is_err());
    let given = emit_given(1, &Id::new(IdType::Fqdn, *b"r"));
    assert!((0..given.len()).all(|len| parse_given(&given[..len]).is_err()));
    assert!(parse_names(&[0; 12]).is_err() && parse_names(&vec![0; 8 * (NAMES_MAX + 1)]).is_err());
    assert!(
        parse_neighbours(&[1, 0, 0, 9, 1]).is_err() && parse_neighbours(&[1, 0, 0, 0].repeat(17)).is_err()
    );
}

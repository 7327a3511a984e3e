//! For every message that can be built: emission and parsing are inverse, and cutting it anywhere is a clean error.

use core::net::{Ipv4Addr, Ipv6Addr};

use dormouse_wire::ike::{
    Attribute, AttributeValue, Config, ConfigAttribute, Delete, Flags, Fragment, Header, Id, Message, Notify,
    Payload, PayloadType, Proposal, ProtocolId, Sealing, TrafficSelector, Transform, TsRange, emit_payloads,
    limits, parse_payloads,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn blob() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..40)
}

fn attribute() -> impl Strategy<Value = Attribute> {
    // 14 (key length) in the short form would be read as the transform's own key length.
    let value = prop_oneof![
        any::<u16>().prop_map(AttributeValue::Short),
        vec(any::<u8>(), 0..6).prop_map(AttributeValue::Long)
    ];
    (15..0x8000_u16, value).prop_map(|(kind, value)| Attribute { kind, value })
}

fn transform() -> impl Strategy<Value = Transform> {
    (any::<u8>(), any::<u16>(), option::of(any::<u16>()), vec(attribute(), 0..3)).prop_map(
        |(kind, id, key_length, other_attributes)| Transform {
            kind: kind.into(),
            id,
            key_length,
            other_attributes,
        },
    )
}

fn proposal() -> impl Strategy<Value = Proposal> {
    (any::<u8>(), any::<u8>(), vec(any::<u8>(), 0..9), vec(transform(), 0..6)).prop_map(
        |(number, protocol, spi, transforms)| Proposal { number, protocol: protocol.into(), spi, transforms },
    )
}

fn selector() -> impl Strategy<Value = TrafficSelector> {
    let range = |(protocol, start_port, end_port, v6, a, b): (u8, u16, u16, bool, u128, u128)| {
        let (start, end) = if v6 {
            (Ipv6Addr::from_bits(a).into(), Ipv6Addr::from_bits(b).into())
        } else {
            (Ipv4Addr::from_bits(a as u32).into(), Ipv4Addr::from_bits(b as u32).into())
        };
        TrafficSelector::Range(TsRange { protocol, start_port, end_port, start, end })
    };
    prop_oneof![
        any::<(u8, u16, u16, bool, u128, u128)>().prop_map(range),
        (9..=255_u8, any::<u8>(), blob()).prop_map(|(kind, protocol, body)| TrafficSelector::Unknown {
            kind,
            protocol,
            body
        }),
    ]
}

fn config() -> impl Strategy<Value = Config> {
    let attribute =
        (0..0x8000_u16, blob()).prop_map(|(kind, value)| ConfigAttribute { kind: kind.into(), value });
    (any::<u8>(), vec(attribute, 0..5)).prop_map(|(kind, list)| Config::new(kind.into(), list))
}

fn delete() -> impl Strategy<Value = Delete> {
    prop_oneof![
        Just(Delete::ike()),
        (2..=255_u8, vec(any::<u32>(), 0..5)).prop_map(|(p, spis)| Delete { protocol: p.into(), spis }),
        Just(Delete { protocol: ProtocolId::None, spis: Vec::new() }),
    ]
}

fn id() -> impl Strategy<Value = Id> {
    (any::<u8>(), any::<[u8; 3]>(), blob()).prop_map(|(k, reserved, data)| Id {
        kind: k.into(),
        reserved,
        data,
    })
}

fn payload() -> impl Strategy<Value = Payload> {
    let notify =
        (any::<u8>(), vec(any::<u8>(), 0..9), any::<u16>(), blob()).prop_map(|(p, spi, kind, data)| {
            Payload::Notify(Notify { protocol: p.into(), spi, kind: kind.into(), data })
        });
    let unknown = (prop_oneof![1..33_u8, 48..53_u8, 54..=255_u8], any::<bool>(), blob()).prop_filter_map(
        "has a parser",
        |(kind, critical, body)| {
            let kind = PayloadType::from(kind);
            let parsed = [PayloadType::Eap, PayloadType::PuzzleSolution];
            (!parsed.contains(&kind)).then_some(Payload::Unknown { kind, critical, body })
        },
    );
    prop_oneof![
        vec(proposal(), 1..4).prop_map(Payload::Sa),
        (any::<u16>(), blob()).prop_map(|(group, data)| Payload::Ke { group, data }),
        id().prop_map(Payload::IdI),
        id().prop_map(Payload::IdR),
        (any::<u8>(), blob()).prop_map(|(e, data)| Payload::Cert { encoding: e.into(), data }),
        (any::<u8>(), blob()).prop_map(|(e, data)| Payload::CertReq { encoding: e.into(), data }),
        (any::<u8>(), blob()).prop_map(|(m, data)| Payload::Auth { method: m.into(), data }),
        vec(any::<u8>(), limits::MIN_NONCE..=limits::MAX_NONCE).prop_map(Payload::Nonce),
        notify,
        delete().prop_map(Payload::Delete),
        blob().prop_map(Payload::VendorId),
        vec(selector(), 0..5).prop_map(Payload::TsI),
        vec(selector(), 0..5).prop_map(Payload::TsR),
        config().prop_map(Payload::Cp),
        blob().prop_map(Payload::Eap),
        blob().prop_map(Payload::PuzzleSolution),
        unknown,
    ]
}

fn header() -> impl Strategy<Value = Header> {
    (any::<(u64, u64)>(), any::<u8>(), any::<u32>(), any::<u8>()).prop_map(|((i, r), exchange, id, flags)| {
        Header::new(i, r, exchange.into(), Flags::from_byte(flags), id)
    })
}

fn fragment() -> impl Strategy<Value = Fragment> {
    (1..=limits::MAX_FRAGMENTS)
        .prop_flat_map(|total| (1..=total).prop_map(move |number| Fragment { number, total }))
}

/// Every proper prefix is refused, and so is one byte too many.
fn cut_everywhere(message: &[u8]) -> Result<(), TestCaseError> {
    for len in 0..message.len() {
        prop_assert!(Message::parse(&message[..len]).is_err(), "accepted {len} of {} bytes", message.len());
        // The same with a length field that agrees, so that the cut is found by the payloads themselves.
        if len >= 28 {
            let mut cut = message[..len].to_vec();
            cut[24..28].copy_from_slice(&(len as u32).to_be_bytes());
            prop_assert!(Message::parse(&cut).is_err(), "accepted {len} of {} bytes", message.len());
        }
    }
    prop_assert!(Message::parse(&[message, &[0]].concat()).is_err());
    Ok(())
}

proptest! {
    #[test]
    fn cleartext_messages(header in header(), payloads in vec(payload(), 0..8)) {
        let mut bytes = Vec::new();
        prop_assert_eq!(Message::emit(&header, &payloads, &mut bytes), Ok(()));
        let message = Message::parse(&bytes)?;
        prop_assert_eq!(&message.payloads, &payloads);
        prop_assert_eq!(message.header.length as usize, bytes.len());
        prop_assert_eq!(
            (message.header.spi_i, message.header.spi_r, message.header.exchange, message.header.flags),
            (header.spi_i, header.spi_r, header.exchange, header.flags)
        );
        prop_assert_eq!(message.protected, None);
        let mut again = Vec::new();
        prop_assert_eq!(Message::emit(&message.header, &message.payloads, &mut again), Ok(()));
        prop_assert_eq!(&again, &bytes);
        cut_everywhere(&bytes)?;
    }

    #[test]
    fn protected_messages(
        header in header(),
        cleartext in vec(payload(), 0..2),
        first in any::<u8>(),
        fragment in option::of(fragment()),
        body in vec(any::<u8>(), 0..64),
    ) {
        let sealing = Sealing { header: &header, cleartext: &cleartext, first: first.into(), fragment };
        let mut bytes = Vec::new();
        let range = sealing.emit(body.len(), &mut bytes)?;
        bytes[range.clone()].copy_from_slice(&body);
        let message = Message::parse(&bytes)?;
        let protected = message.protected.expect("an encrypted payload");
        prop_assert_eq!(&message.payloads, &cleartext);
        prop_assert_eq!(&bytes[protected.body.clone()], &body);
        prop_assert_eq!((protected.body, protected.first.code(), protected.fragment), (range, first, fragment));
        cut_everywhere(&bytes)?;
    }

    #[test]
    fn decrypted_chains(payloads in vec(payload(), 1..8)) {
        let mut bytes = Vec::new();
        let first = emit_payloads(&payloads, &mut bytes)?;
        prop_assert_eq!(parse_payloads(first, &bytes), Ok(payloads));
        for len in 0..bytes.len() {
            prop_assert!(parse_payloads(first, &bytes[..len]).is_err(), "accepted {} bytes", len);
        }
    }

    #[test]
    fn any_bytes_keep_the_properties_that_the_fuzz_targets_check(bytes in vec(any::<u8>(), 0..300)) {
        dormouse_wire::fuzz::ike(&bytes);
        dormouse_wire::fuzz::natt(&bytes);
    }

    #[test]
    fn so_do_messages_with_a_few_bytes_changed(
        header in header(),
        payloads in vec(payload(), 0..5),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = Vec::new();
        prop_assert_eq!(Message::emit(&header, &payloads, &mut bytes), Ok(()));
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        dormouse_wire::fuzz::ike(&bytes);
        dormouse_wire::fuzz::ike(&bytes[15..]);
    }
}

/// Every code point with a name maps to it and back, and every other is kept.
#[test]
fn code_points_are_kept() {
    use dormouse_wire::ike::{ConfigAttributeType, ExchangeType, NotifyType};
    for code in 0..=u16::MAX {
        assert_eq!(NotifyType::from(code).code(), code);
        assert_eq!(ConfigAttributeType::from(code).code(), code);
        assert_eq!(NotifyType::from(code).is_error(), code < 16_384);
    }
    for code in 0..=u8::MAX {
        assert_eq!(PayloadType::from(code).code(), code);
        assert_eq!(ExchangeType::from(code).code(), code);
    }
    for kind in NotifyType::KNOWN {
        assert_eq!(NotifyType::from(kind.code()), *kind);
        assert!(kind.label().is_some());
    }
    assert_eq!(NotifyType::from(40_960).to_string(), "NotifyType(40960)");
    assert_eq!(NotifyType::TicketNack.to_string(), "TICKET_NACK");
}

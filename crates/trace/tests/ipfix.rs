//! IPFIX as this crate reads it beside `netflow_parser`: messages that are drawn, with templates in any order of fields, options, fields of
//! variable length and of enterprises, padding, data without a template, and cut anywhere.

mod common;

use common::Temporary;
use dormouse_sansio::{Entropy as _, Seeded};
use dormouse_trace::decode::Next;
use dormouse_trace::flow::Flow;
use dormouse_trace::read::Reader;
use netflow_parser::variable_versions::field_value::{DurationValue, FieldValue};
use netflow_parser::variable_versions::ipfix::FlowSetBody;
use netflow_parser::variable_versions::ipfix::lookup::{
    IANAIPFixField, IPFixField, ReverseInformationElement,
};
use netflow_parser::{NetflowPacket, NetflowParser};

/// Seconds since 1970 of every message.
const EXPORT: u32 = 1_600_000_300;
/// Seconds between 1900 and 1970.
const NTP: u64 = 2_208_988_800;
const VARIABLE: u16 = 0xffff;
/// RFC 5103's number for the reverse direction, and two of enterprises.
const REVERSE: u32 = 29_305;
const OTHER: u32 = 6_871;
const UNKNOWN: u32 = 64_999;

/// What both say of a flow: addresses, ports, protocol, start and end in nanoseconds since 1970, packets and bytes of both directions.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Told {
    ends: [String; 2],
    ports: [u16; 2],
    protocol: u16,
    times: [u64; 2],
    packets: [u64; 2],
    bytes: [u64; 2],
}

/// Flows, and how often something was lost.
type Read = (Vec<Told>, u64);

fn ours(content: &[u8]) -> Read {
    let file = Temporary::with("ipfix.flows", content);
    let mut reader = Reader::open(&file.input(), None).expect("a recording");
    let flow = |next| match next {
        Next::Flow(flow) => told(&flow),
        other => panic!("{other:?} in an export"),
    };
    let flows = std::iter::from_fn(|| reader.record()).map(flow).collect();
    (flows, reader.losses().total())
}

fn told(flow: &Flow) -> Told {
    let f = &flow.first;
    Told {
        ends: [f.src.ip.to_string(), f.dst.ip.to_string()],
        ports: [f.src_port, f.dst_port],
        protocol: f.protocol,
        times: [f.at, flow.end],
        packets: [flow.forward, flow.back],
        bytes: [flow.forward_bytes, flow.back_bytes],
    }
}

fn theirs(messages: &[&[u8]]) -> Read {
    let mut parser = NetflowParser::default();
    let (mut flows, mut lost) = (Vec::new(), 0);
    for message in messages {
        let result = parser.parse_bytes(message);
        lost += u64::from(result.error.is_some());
        for packet in result.packets {
            let NetflowPacket::IPFix(packet) = packet else { panic!("{packet:?}") };
            for set in packet.flowsets {
                match set.body {
                    FlowSetBody::Data(data) => flows.extend(data.fields.iter().map(|r| told_by_another(r))),
                    FlowSetBody::NoTemplate(_) => lost += 1,
                    _ => {}
                }
            }
        }
    }
    (flows, lost)
}

fn number(value: &FieldValue) -> u64 {
    match value {
        FieldValue::DataNumber(n) => n.as_u64().expect("unsigned"),
        FieldValue::ProtocolType(p) => u8::from(*p).into(),
        FieldValue::Duration(DurationValue::Seconds { value, .. }) => value * 1_000_000_000,
        FieldValue::Duration(DurationValue::Millis { value, .. }) => value * 1_000_000,
        FieldValue::Duration(
            DurationValue::MicrosNtp { seconds, fraction } | DurationValue::NanosNtp { seconds, fraction },
        ) => {
            let nanos = (u128::from(*fraction) * 1_000_000_000) >> 32;
            (u64::from(*seconds) - NTP) * 1_000_000_000 + nanos as u64
        }
        other => panic!("{other:?} is no number"),
    }
}

fn told_by_another(record: &[(IPFixField, FieldValue)]) -> Told {
    use IANAIPFixField as Of;
    let mut told = Told::default();
    for (field, value) in record {
        let address = || match value {
            FieldValue::Ip4Addr(a) => a.to_string(),
            FieldValue::Ip6Addr(a) => a.to_string(),
            other => panic!("{other:?} is no address"),
        };
        let port = || u16::try_from(number(value)).expect("two bytes");
        match field {
            IPFixField::IANA(Of::SourceIpv4address | Of::SourceIpv6address) => told.ends[0] = address(),
            IPFixField::IANA(Of::DestinationIpv4address | Of::DestinationIpv6address) => {
                told.ends[1] = address();
            }
            IPFixField::IANA(Of::SourceTransportPort) => told.ports[0] = port(),
            IPFixField::IANA(Of::DestinationTransportPort) => told.ports[1] = port(),
            IPFixField::IANA(Of::ProtocolIdentifier) => told.protocol = port(),
            IPFixField::IANA(Of::OctetDeltaCount) => told.bytes[0] = number(value),
            IPFixField::IANA(Of::PacketDeltaCount) => told.packets[0] = number(value),
            IPFixField::IANA(
                Of::FlowStartSeconds
                | Of::FlowStartMilliseconds
                | Of::FlowStartMicroseconds
                | Of::FlowStartNanoseconds,
            ) => told.times[0] = number(value),
            IPFixField::IANA(
                Of::FlowEndSeconds
                | Of::FlowEndMilliseconds
                | Of::FlowEndMicroseconds
                | Of::FlowEndNanoseconds,
            ) => told.times[1] = number(value),
            IPFixField::ReverseInformationElement(ReverseInformationElement::ReverseOctetDeltaCount) => {
                told.bytes[1] = number(value);
            }
            IPFixField::ReverseInformationElement(ReverseInformationElement::ReversePacketDeltaCount) => {
                told.packets[1] = number(value);
            }
            _ => {}
        }
    }
    told
}

/// Number, enterprise (0: none) and length of a field.
type Field = (u16, u32, u16);

struct Drawn(Seeded);

impl Drawn {
    fn below(&mut self, most: u64) -> u64 {
        self.0.below(most)
    }

    fn bytes(&mut self, count: u64) -> Vec<u8> {
        (0..count).map(|_| self.below(256) as u8).collect()
    }

    /// The fields of a template, in any order.
    fn fields(&mut self) -> Vec<Field> {
        let mut fields: Vec<Field> = match self.below(2) {
            0 => vec![(8, 0, 4), (12, 0, 4)],
            _ => vec![(27, 0, 16), (28, 0, 16)],
        };
        let (first, length) = [(150, 4), (152, 8), (154, 8), (156, 8)][self.below(4) as usize];
        fields.extend([(first, 0, length), (first + 1, 0, length)]);
        // Counts may be shorter than their type: RFC 7011, section 6.2.
        let counter = [2, 4, 8][self.below(3) as usize];
        for field in [
            (4, 0, 1),
            (7, 0, 2),
            (11, 0, 2),
            (1, 0, counter),
            (2, 0, counter),
            (1, REVERSE, counter),
            (2, REVERSE, counter),
            (82, 0, VARIABLE),
            (14, OTHER, 2),
            (100, UNKNOWN, VARIABLE),
            (101, UNKNOWN, 3),
        ] {
            if self.below(3) > 0 {
                fields.push(field);
            }
        }
        for at in (1..fields.len()).rev() {
            fields.swap(at, self.below(at as u64 + 1) as usize);
        }
        fields
    }

    fn record(&mut self, fields: &[Field]) -> Vec<u8> {
        let (first, lasts) = (1_600_000_000 + self.below(200), self.below(100));
        let mut record = Vec::new();
        for (id, enterprise, length) in fields.iter().copied() {
            let time = first + if id % 2 == 0 { 0 } else { lasts };
            match (enterprise, id) {
                // Start and end: an even number, and an odd one.
                (0, 150 | 151) => record.extend((time as u32).to_be_bytes()),
                (0, 152 | 153) => {
                    record.extend((time * 1000 + u64::from(id % 2) * self.below(1000)).to_be_bytes())
                }
                (0, 154..=157) => {
                    record.extend(((time + NTP) as u32).to_be_bytes());
                    // The end's fraction is not before the start's.
                    let half = if id % 2 == 0 { 0 } else { 1 << 31 };
                    record.extend((half + self.below(1 << 31) as u32).to_be_bytes());
                }
                (_, _) if length == VARIABLE => {
                    // Not 0, which the other parser refuses.
                    let length = [1, 2, 17, 254, 255, 700][self.below(6) as usize];
                    match u8::try_from(length).ok().filter(|short| *short < 255) {
                        // RFC 7011, section 7: either form may be used for what is short.
                        Some(short) if self.below(4) > 0 => record.push(short),
                        _ => record.extend([&[255][..], &(length as u16).to_be_bytes()].concat()),
                    }
                    record.extend((0..length).map(|_| b'a'));
                }
                _ => record.extend(self.bytes(length.into())),
            }
        }
        record
    }
}

/// A set, with so much padding that its length is a multiple of four.
fn set(id: u16, body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(4), 0);
    [&id.to_be_bytes()[..], &(body.len() as u16 + 4).to_be_bytes(), &body].concat()
}

fn message(sets: &[Vec<u8>]) -> Vec<u8> {
    let sets = sets.concat();
    let length = (16 + sets.len() as u16).to_be_bytes();
    [&[0, 10][..], &length, &EXPORT.to_be_bytes(), &[0; 4], &[0, 0, 0, 7], &sets].concat()
}

fn template(id: u16, fields: &[Field]) -> Vec<u8> {
    let mut body = [id.to_be_bytes(), (fields.len() as u16).to_be_bytes()].concat();
    for (number, enterprise, length) in fields {
        match enterprise {
            0 => body.extend([number.to_be_bytes(), length.to_be_bytes()].concat()),
            _ => {
                body.extend([(number | 0x8000).to_be_bytes(), length.to_be_bytes()].concat());
                body.extend(enterprise.to_be_bytes());
            }
        }
    }
    body
}

/// Options of a metering process: the observation domain is their scope, and packets that it exported a count.
fn options() -> [Vec<u8>; 2] {
    let template = [900u16, 2, 1, 149, 4, 41, 8].map(u16::to_be_bytes).concat();
    [set(3, &template), set(900, &[0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 1, 0])]
}

/// Messages; some of them have data for a template that never comes.
fn messages(seed: u64) -> Vec<Vec<u8>> {
    let mut drawn = Drawn(Seeded::new(seed));
    let (mut known, mut out) = (Vec::<Vec<Field>>::new(), Vec::new());
    for n in 0..60 {
        let mut sets = Vec::new();
        if n % 6 == 0 {
            // One or two templates in a set.
            let fresh: Vec<Vec<Field>> = (0..=drawn.below(2)).map(|_| drawn.fields()).collect();
            let bodies = (256 + known.len() as u16..).zip(&fresh).map(|(id, fields)| template(id, fields));
            sets.push(set(2, &bodies.collect::<Vec<_>>().concat()));
            known.extend(fresh);
            sets.extend(options());
        }
        if n % 17 == 5 {
            sets.push(set(2000, &drawn.bytes(40)));
        }
        for _ in 0..=drawn.below(3) {
            let which = drawn.below(known.len() as u64) as usize;
            let records = drawn.below(5) + 1;
            let body: Vec<u8> = (0..records).flat_map(|_| drawn.record(&known[which])).collect();
            sets.push(set(256 + which as u16, &body));
        }
        out.push(message(&sets));
    }
    out
}

#[test]
fn messages_read_as_by_netflow_parser() {
    for seed in 0..20 {
        let all = messages(seed);
        let (ours, theirs) =
            (ours(&all.concat()), theirs(&all.iter().map(Vec::as_slice).collect::<Vec<_>>()));
        assert!(ours.0.len() > 200 && ours.1 == 4, "seed {seed}: {} flows, {} lost", ours.0.len(), ours.1);
        assert_eq!(ours.0.len(), theirs.0.len(), "seed {seed}");
        for (n, (ours, theirs)) in ours.0.iter().zip(&theirs.0).enumerate() {
            assert_eq!(ours, theirs, "seed {seed}, flow {n}");
        }
        assert_eq!(ours.1, theirs.1, "seed {seed}: lost");
    }
}

#[test]
fn a_file_cut_anywhere_reads_as_by_netflow_parser() {
    let all = messages(99).into_iter().take(12).collect::<Vec<_>>();
    let whole = all.concat();
    for cut in (24..whole.len()).step_by(23).chain([whole.len() - 1]) {
        let mut left = &whole[..cut];
        let mut pieces = Vec::new();
        for message in &all {
            let (this, rest) = left.split_at(message.len().min(left.len()));
            pieces.extend(Some(this).filter(|piece| !piece.is_empty()));
            left = rest;
        }
        assert_eq!(ours(&whole[..cut]), theirs(&pieces), "cut after {cut} bytes");
    }
}

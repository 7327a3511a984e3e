//! The crate's own decoders beside those of others, on the recordings and on files that are drawn: `pcap-parser`, `csv`, `netflow_parser`.

mod common;

use std::path::Path;

use common::{Temporary, recording};
use dormouse_energy::Direction;
use dormouse_sansio::{Entropy as _, Seeded};
use dormouse_trace::decode::Next;
use dormouse_trace::flow::Flow;
use dormouse_trace::generate::{Population, Recipe, write};
use dormouse_trace::input::Input;
use dormouse_trace::read::Reader;
use netflow_parser::NetflowParser;
use netflow_parser::netflow_common::NetflowCommon;
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};

fn ours(file: &Path) -> Vec<Next> {
    let mut reader = Reader::open(&Input::file(file), None).expect("a recording");
    let records = std::iter::from_fn(|| reader.record()).collect();
    assert_eq!(reader.losses().total(), 0, "{:?}", reader.losses().kept());
    records
}

/// Time in nanoseconds and length of each packet.
fn captured(file: &Path) -> Vec<(u64, u32)> {
    let seen = |next: &Next| match next {
        Next::Packet(seen) => (seen.at, seen.size),
        other => panic!("{other:?} in a capture"),
    };
    ours(file).iter().map(seen).collect()
}

/// The same by `pcap-parser`. Its files have one section with one interface.
fn captured_by_another(file: &Path) -> Vec<(u64, u32)> {
    let mut reader =
        create_reader(1 << 20, std::fs::File::open(file).expect("a recording")).expect("a capture");
    let (mut out, mut resolution) = (Vec::new(), 6);
    loop {
        let read = match reader.next() {
            Ok((read, PcapBlockOwned::Legacy(b))) => {
                out.push((u64::from(b.ts_sec) * 1_000_000_000 + u64::from(b.ts_usec) * 1000, b.origlen));
                read
            }
            Ok((read, PcapBlockOwned::NG(Block::InterfaceDescription(b)))) => {
                resolution = b.if_tsresol;
                read
            }
            Ok((read, PcapBlockOwned::NG(Block::EnhancedPacket(b)))) => {
                let units = u64::from(b.ts_high) << 32 | u64::from(b.ts_low);
                out.push((units * 10u64.pow(9 - u32::from(resolution)), b.origlen));
                read
            }
            Ok((read, _)) => read,
            Err(PcapError::Eof) => return out,
            Err(PcapError::Incomplete(_)) => {
                reader.refill().expect("the rest");
                continue;
            }
            Err(error) => panic!("{error:?}"),
        };
        reader.consume(read);
    }
}

#[test]
fn captures_read_as_by_pcap_parser() {
    let recipe = Recipe { clients: 5, days: 1, seed: 3, start: 1_700_006_400 };
    let mut made = Vec::new();
    write::pcapng(Population::new(recipe), &mut made).expect("memory");
    let made = Temporary::with("oracle.pcapng", &made);
    let mut files = vec![made.0.clone()];
    files.extend(
        ["smart-lock.pcap", "lock-hub.pcap", "camera.pcap", "messenger-day.pcap", "ipsec-day.pcap"]
            .iter()
            .filter_map(|n| recording(n)),
    );
    for file in files {
        let (ours, theirs) = (captured(&file), captured_by_another(&file));
        assert!(ours.len() > 100, "{}", file.display());
        assert!(
            ours == theirs,
            "{}: {} packets, {} by pcap-parser",
            file.display(),
            ours.len(),
            theirs.len()
        );
    }
}

/// Names that a spreadsheet would quote, and some that it would not.
const NAMES: [&str; 6] = ["phone", "a,b", "say \"hi\"", "tablet 2", "\"", "x;y"];

#[test]
fn lines_read_as_by_csv() {
    let mut random = Seeded::new(9);
    let mut draw = |most: u64| usize::try_from(random.below(most)).expect("small");
    for quotes in [csv::QuoteStyle::Necessary, csv::QuoteStyle::Always] {
        let mut writer = csv::WriterBuilder::new().quote_style(quotes).from_writer(Vec::new());
        writer.write_record(["bytes", "client", "note", "direction", "time"]).expect("memory");
        for n in 0..300 {
            let (name, way) = (NAMES[draw(6)], ["out", "in", ""][draw(3)]);
            let time = format!("{}.{:06}", 1_700_000_000 + n, draw(1_000_000));
            let (size, note) = (draw(1500).to_string(), ["", "one, two", "\"\""][draw(3)]);
            writer.write_record([size.as_str(), name, note, way, &time]).expect("memory");
        }
        let text = writer.into_inner().expect("memory");
        let file = Temporary::with("oracle.csv", &text);
        let mut reader = Reader::open(&file.input(), None).expect("a recording");
        let mut ours = Vec::new();
        while let Some(Next::Packet(seen)) = reader.record() {
            let name = reader.decoder().named(seen.name - 1).expect("a name").name;
            ours.push((name, seen.at, seen.size, seen.direction));
        }
        assert_eq!(reader.losses().total(), 0, "{:?}", reader.losses().kept());
        let mut theirs = Vec::new();
        for record in csv::Reader::from_reader(&text[..]).records() {
            let record = record.expect("a record");
            let (seconds, micros) = record[4].split_once('.').expect("a time");
            let at = seconds.parse::<u64>().expect("seconds") * 1_000_000_000
                + micros.parse::<u64>().expect("a fraction") * 1000;
            let way = match &record[3] {
                "out" => Direction::Outgoing,
                "in" => Direction::Incoming,
                _ => Direction::Unknown,
            };
            theirs.push((record[1].to_owned(), at, record[0].parse::<u32>().expect("a size"), way));
        }
        assert_eq!(ours, theirs);
    }
}

/// Milliseconds between the exporter's start and 1970, in all messages.
const BOOT: u64 = 1_599_999_000_000;

/// Addresses, ports, protocol, and first and last time in milliseconds of up-time.
type Told = ([String; 2], [u16; 2], u16, [u64; 2]);

fn told(flow: &Flow) -> Told {
    let f = &flow.first;
    let since = |at: u64| at / 1_000_000 - BOOT;
    (
        [f.src.ip.to_string(), f.dst.ip.to_string()],
        [f.src_port, f.dst_port],
        f.protocol,
        [since(f.at), since(flow.end)],
    )
}

fn exported(content: &[u8]) -> Vec<Told> {
    let file = Temporary::with("oracle.flows", content);
    let flow = |next: &Next| match next {
        Next::Flow(flow) => told(flow),
        other => panic!("{other:?} in an export"),
    };
    ours(&file.0).iter().map(flow).collect()
}

fn exported_by_another(messages: &[Vec<u8>]) -> Vec<Told> {
    let mut parser = NetflowParser::default();
    let mut out = Vec::new();
    for message in messages {
        let result = parser.parse_bytes(message);
        assert!(result.error.is_none(), "{:?}", result.error);
        for packet in &result.packets {
            for f in NetflowCommon::try_from(packet).expect("flows").flowsets {
                let address = |a: Option<std::net::IpAddr>| a.expect("an address").to_string();
                out.push((
                    [address(f.src_addr), address(f.dst_addr)],
                    [f.src_port.expect("a port"), f.dst_port.expect("a port")],
                    u16::from(f.protocol_number.expect("a protocol")),
                    [f.first_seen.expect("a time"), f.last_seen.expect("a time")],
                ));
            }
        }
    }
    out
}

/// A flow as the fields of a template with the elements 8, 12, 7, 11, 4, 22, 21; v5 has them in other places.
fn record(random: &mut Seeded) -> Vec<u8> {
    let mut bytes = vec![10, 0, 0];
    bytes.push(random.below(200) as u8 + 1);
    bytes.extend([203, 0, 113]);
    bytes.push(random.below(200) as u8 + 1);
    bytes.extend((random.below(65_535) as u16 + 1).to_be_bytes());
    bytes.extend((random.below(65_535) as u16 + 1).to_be_bytes());
    bytes.push([6, 17, 1, 50][random.below(4) as usize]);
    let first = random.below(900_000) as u32;
    bytes.extend(first.to_be_bytes());
    bytes.extend((first + random.below(100_000) as u32).to_be_bytes());
    bytes
}

/// The 21 bytes of a record in the 48 of version 5.
fn in_v5(r: &[u8]) -> Vec<u8> {
    [&r[..8], &[0; 8], &[0, 0, 0, 3, 0, 0, 1, 0], &r[13..21], &r[8..12], &[0, 0], &r[12..13], &[0; 9]]
        .concat()
}

#[test]
fn exports_read_as_by_netflow_parser() {
    let mut random = Seeded::new(21);
    let export = ((BOOT + 1_000_000) / 1000) as u32;
    let clock = [1_000_000u32.to_be_bytes(), export.to_be_bytes()].concat();
    let fields: [u16; 14] = [8, 4, 12, 4, 7, 2, 11, 2, 4, 1, 22, 4, 21, 4];
    let template = |set: u16| -> Vec<u8> {
        let head = [set, 4 + 4 + 28, 300, 7];
        head.iter().chain(&fields).flat_map(|n| n.to_be_bytes()).collect()
    };
    let (mut v5, mut v9) = (Vec::new(), Vec::new());
    for n in 0..40 {
        let records: Vec<Vec<u8>> = (0..random.below(29) + 1).map(|_| record(&mut random)).collect();
        let count = (records.len() as u16).to_be_bytes();
        let body: Vec<u8> = records.iter().flat_map(|r| in_v5(r)).collect();
        v5.push([&[0, 5][..], &count, &clock, &[0; 12], &body].concat());
        let mut body = records.concat();
        body.resize(body.len().next_multiple_of(4), 0);
        let set = [&300u16.to_be_bytes()[..], &(body.len() as u16 + 4).to_be_bytes(), &body].concat();
        let head = |count: u16| [&[0, 9][..], &count.to_be_bytes(), &clock, &[0; 4], &[0, 0, 0, 1]].concat();
        if n == 0 {
            v9.push([head(1), template(0)].concat());
        }
        v9.push([head(records.len() as u16), set].concat());
    }
    for messages in [v5, v9] {
        let (ours, theirs) = (exported(&messages.concat()), exported_by_another(&messages));
        assert!(ours.len() > 200);
        assert_eq!(ours, theirs);
    }
}

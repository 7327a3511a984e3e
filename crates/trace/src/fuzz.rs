//! Entries for the fuzz targets, one for each parser: none may panic, hang, or hold more than its limits. Owns nothing.

use std::io::Cursor;

use crate::bytes::Bytes;
use crate::decode::link::{self, LinkType};
use crate::decode::{Decoder, Format, Next};
use crate::flow::{Cursor as FlowCursor, Spread};
use crate::input::EXPORT_PORTS;
use crate::parquet_file::PeriodReader;
use crate::seen::Seen;

/// Packets of one flow that are looked at: a flow may claim 2^64 of them.
const PACKETS: u32 = 64;

/// Reads `data` as `format` to its end; the number of records. Records are bounded by the bytes that they take.
pub fn decode(format: Format, data: &[u8]) -> usize {
    let mut bytes = Bytes::new(Box::new(Cursor::new(data.to_vec())));
    let Ok(mut decoder) = Decoder::open(format, &mut bytes, &EXPORT_PORTS) else { return 0 };
    let mut records = 0;
    loop {
        match decoder.next(&mut bytes) {
            Next::End => return records,
            Next::Damaged(damage) if damage.rest => return records,
            Next::Flow(flow) => {
                for spread in [Spread::Even, Spread::Edges] {
                    let mut cursor = FlowCursor::new(*flow, spread);
                    let mut last = 0;
                    for _ in 0..PACKETS {
                        let Some(packet) = cursor.packet() else { break };
                        assert!(packet.at >= last, "a flow's packets are in order of time");
                        last = packet.at;
                        cursor.advance();
                    }
                }
            }
            _ => {}
        }
        records += 1;
        assert!(records <= data.len() * 2 + 2, "every record takes bytes");
    }
}

/// Recognises `data` and reads it.
pub fn detect(data: &[u8]) {
    if let Ok(format) = Format::detect(data)
        && format != Format::Periods
    {
        decode(format, data);
    }
}

/// Reads `data` as a file of idle periods, by way of a temporary file: the number of rows.
///
/// # Errors
/// What is wrong with it.
pub fn periods(data: &[u8]) -> Result<u64, String> {
    use std::io::{Seek as _, Write as _};
    let failed = |e: std::io::Error| e.to_string();
    let mut file = crate::input::anonymous_file().map_err(failed)?;
    file.write_all(data).and_then(|()| file.rewind()).map_err(failed)?;
    let mut reader = PeriodReader::open(file)?;
    while let Some(row) = reader.row() {
        let period = row?;
        assert!(period.packets > 0 && period.outgoing <= period.packets && period.lead <= period.packets);
    }
    Ok(reader.done())
}

/// Reads `data` as one frame of every link type.
pub fn frames(data: &[u8]) {
    for number in [0, 1, 9, 101, 105, 113, 127, 276] {
        if let Some(kind) = LinkType::from_number(number) {
            link::read(kind, data, &mut Seen::default());
        }
    }
}

/// Everything above: the body of the fuzz target.
pub fn any(data: &[u8]) {
    detect(data);
    frames(data);
    for format in [Format::Pcap, Format::Pcapng, Format::Csv, Format::Zeek, Format::Nfdump, Format::Netflow] {
        decode(format, data);
    }
}

//! Entries for the fuzz targets, one for each parser: none may panic, hang, or hold more than its limits. Owns nothing.

use std::io::Cursor;

use crate::activity::{Activity, Cursor as Layout};
use crate::bytes::Bytes;
use crate::decode::link::{self, LinkType};
use crate::decode::{Decoder, Format, Next};
use crate::flow::Spread;
use crate::input::EXPORT_PORTS;
use crate::seen::Seen;
use crate::table_file::ActivityReader;
use dormouse_energy::Direction;

/// Pieces of one flow that are looked at: a flow may last for a month.
const PIECES: u32 = 64;

fn lay_out(activity: Activity) {
    for grain in [0, 125_000_000] {
        let (mut cursor, mut last, mut packets) = (Layout::new(activity), 0, 0u64);
        for _ in 0..PIECES {
            let Some(piece) = cursor.piece(grain) else { break };
            assert!(piece.start >= last && piece.end >= piece.start, "pieces are in order of time");
            let counted: u64 = piece.moments().map(|m| m.count).sum();
            assert!(counted == piece.packets && piece.outgoing + piece.lead <= piece.packets);
            packets += counted;
            last = piece.start;
        }
        assert!(
            packets <= activity.packets.max(1)
                && (cursor.at().is_some() || packets == activity.packets.max(1))
        );
    }
}

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
                for (spread, end) in
                    [(Spread::Even, Direction::Outgoing), (Spread::Edges, Direction::Incoming)]
                {
                    lay_out(flow.activity(0, end, spread));
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
        && !matches!(format, Format::Parquet | Format::Arrow)
    {
        decode(format, data);
    }
}

/// Reads `data` as a table of activities, by way of a temporary file: the number of rows.
///
/// # Errors
/// What is wrong with it.
pub fn table(data: &[u8]) -> Result<u64, String> {
    use std::io::{Seek as _, Write as _};
    let failed = |e: std::io::Error| e.to_string();
    let mut file = crate::input::anonymous_file().map_err(failed)?;
    file.write_all(data).and_then(|()| file.rewind()).map_err(failed)?;
    let mut reader = ActivityReader::open(file)?;
    while let Some(row) = reader.row() {
        let activity = row?;
        assert!(activity == activity.consistent(), "what a file claims is put right");
        lay_out(activity);
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
    for format in [
        Format::Pcap,
        Format::Pcapng,
        Format::Csv,
        Format::Zeek,
        Format::Nfdump,
        Format::Netflow,
        Format::Argus,
        Format::Suricata,
    ] {
        decode(format, data);
    }
}

//! Columns of the text formats: what a header line names, and the cells of a line under them. Owns the names that are understood;
//! must never read a cell's value.

use super::super::record::Format;

/// What a column means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Column {
    Ignored,
    Client,
    Time,
    Bytes,
    Direction,
    Protocol,
    LocalPort,
    RemotePort,
    SourceAddress,
    DestinationAddress,
    SourcePort,
    DestinationPort,
    Duration,
    End,
    ForwardPackets,
    BackPackets,
    ForwardBytes,
    BackBytes,
    /// Both directions together.
    Packets,
    /// Both directions together.
    AllBytes,
    Connection,
}

impl Column {
    pub(super) fn named(format: Format, name: &str) -> Self {
        let name = name.trim().trim_matches('"');
        match format {
            Format::Zeek => match name {
                "ts" => Self::Time,
                "id.orig_h" => Self::SourceAddress,
                "id.resp_h" => Self::DestinationAddress,
                "id.orig_p" => Self::SourcePort,
                "id.resp_p" => Self::DestinationPort,
                "proto" => Self::Protocol,
                "duration" => Self::Duration,
                "orig_pkts" => Self::ForwardPackets,
                "resp_pkts" => Self::BackPackets,
                "orig_ip_bytes" => Self::ForwardBytes,
                "resp_ip_bytes" => Self::BackBytes,
                "uid" => Self::Connection,
                _ => Self::Ignored,
            },
            // The names that `ra` gives its columns, with and without an underline (Argus 3 and 5).
            Format::Argus => match name.to_ascii_lowercase().replace('_', "").as_str() {
                "starttime" | "stime" => Self::Time,
                "lasttime" | "ltime" => Self::End,
                "dur" => Self::Duration,
                "proto" => Self::Protocol,
                "srcaddr" | "saddr" => Self::SourceAddress,
                "dstaddr" | "daddr" => Self::DestinationAddress,
                "sport" => Self::SourcePort,
                "dport" => Self::DestinationPort,
                "srcpkts" | "spkts" => Self::ForwardPackets,
                "dstpkts" | "dpkts" => Self::BackPackets,
                "srcbytes" | "sbytes" => Self::ForwardBytes,
                "dstbytes" | "dbytes" => Self::BackBytes,
                "totpkts" | "pkts" => Self::Packets,
                "totbytes" | "bytes" => Self::AllBytes,
                _ => Self::Ignored,
            },
            Format::Nfdump => match name {
                "ts" | "firstSeen" => Self::Time,
                "te" | "lastSeen" => Self::End,
                "td" | "duration" => Self::Duration,
                "sa" | "srcAddr" => Self::SourceAddress,
                "da" | "dstAddr" => Self::DestinationAddress,
                "sp" | "srcPort" => Self::SourcePort,
                "dp" | "dstPort" => Self::DestinationPort,
                "pr" | "proto" => Self::Protocol,
                "ipkt" | "packets" | "inPackets" => Self::ForwardPackets,
                "ibyt" | "bytes" | "inBytes" => Self::ForwardBytes,
                "opkt" | "outPackets" => Self::BackPackets,
                "obyt" | "outBytes" => Self::BackBytes,
                _ => Self::Ignored,
            },
            _ => match name.to_ascii_lowercase().as_str() {
                "client" | "user" | "host" | "device" => Self::Client,
                "time" | "timestamp" | "ts" => Self::Time,
                "bytes" | "size" | "length" => Self::Bytes,
                "direction" | "dir" => Self::Direction,
                "protocol" | "proto" => Self::Protocol,
                "local_port" => Self::LocalPort,
                "remote_port" => Self::RemotePort,
                _ => Self::Ignored,
            },
        }
    }
}

/// The header line names of the plain CSV when it has none.
pub(super) const PLAIN: [Column; 4] = [Column::Client, Column::Time, Column::Bytes, Column::Direction];

/// The cells of a line without quotation marks inside, with the columns that they belong to.
pub(super) fn cells<'a>(
    columns: &[Column],
    separator: u8,
    line: &'a str,
) -> impl Iterator<Item = (Column, &'a str)> {
    let mut rest = Some(line);
    columns.iter().map_while(move |column| {
        let text = rest?;
        let cell = match text.bytes().position(|b| b == separator) {
            Some(at) => {
                rest = text.get(at + 1..);
                text.get(..at)?
            }
            None => {
                rest = None;
                text
            }
        };
        let bare = |b: Option<&u8>| b.is_none_or(|b| b.is_ascii_graphic());
        let bytes = cell.as_bytes();
        Some((*column, if bare(bytes.first()) && bare(bytes.last()) { cell } else { cell.trim() }))
    })
}

/// The cells of a line with quotation marks (RFC 4180; a line is a record, so that none has a line break).
pub(super) fn quoted(separator: u8, line: &str) -> Result<Vec<String>, String> {
    let mut reader = csv_core::ReaderBuilder::new().delimiter(separator).build();
    let (mut cells, mut cell, mut rest) = (Vec::new(), Vec::new(), line.as_bytes());
    let mut out = [0; 256];
    loop {
        let (result, read, written) = reader.read_field(rest, &mut out);
        rest = rest.get(read..).unwrap_or_default();
        cell.extend(out.get(..written).unwrap_or_default());
        match result {
            // The end of the line is the end of its last cell: said by an empty read.
            csv_core::ReadFieldResult::InputEmpty | csv_core::ReadFieldResult::OutputFull => {}
            csv_core::ReadFieldResult::Field { record_end } => {
                let text =
                    String::from_utf8(std::mem::take(&mut cell)).map_err(|_| "not UTF-8".to_owned())?;
                cells.push(text.trim().to_owned());
                if record_end {
                    return Ok(cells);
                }
            }
            csv_core::ReadFieldResult::End => return Ok(cells),
        }
    }
}

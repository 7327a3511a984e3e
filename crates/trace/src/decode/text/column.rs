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
    SourceMac,
    DestinationMac,
    Duration,
    End,
    ForwardPackets,
    BackPackets,
    ForwardBytes,
    BackBytes,
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
                "orig_l2_addr" => Self::SourceMac,
                "resp_l2_addr" => Self::DestinationMac,
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

/// The cells of a line with the columns that they belong to.
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
        let decorated = |b: Option<&u8>| b.is_some_and(|b| !b.is_ascii_graphic() || *b == b'"');
        let bytes = cell.as_bytes();
        let plain = !decorated(bytes.first()) && !decorated(bytes.last());
        Some((*column, if plain { cell } else { cell.trim().trim_matches('"') }))
    })
}

//! From bytes to packets and flows: one module for each format, all behind [`Decoder::next`].
//!
//! A decoder reads what is whole and says what is not: [`Next::Damaged`] names the record, and whether reading goes on.

pub mod exports;
pub mod link;
pub mod netflow;
pub mod pcap;
pub mod pcapng;
mod record;
pub mod text;

use crate::bytes::Bytes;
use crate::facts::Named;
use crate::table_file::{self, ARROW, ActivityReader, PARQUET};
use exports::{Exported, Exports};
pub use record::{Damage, Format, Next};

impl Format {
    /// From the first bytes of an input.
    ///
    /// # Errors
    /// A description of what was found instead.
    pub fn detect(head: &[u8]) -> Result<Self, String> {
        if let Some(&magic) = head.first_chunk::<4>() {
            let magic = u32::from_be_bytes(magic);
            if pcap::is_magic(magic) {
                return Ok(Self::Pcap);
            }
            if head.starts_with(PARQUET) {
                return Ok(Self::Parquet);
            }
            if head.starts_with(ARROW) || table_file::is_stream(head) {
                return Ok(Self::Arrow);
            }
            if magic == pcapng::SECTION_HEADER {
                return Ok(Self::Pcapng);
            }
        }
        if netflow::version(head).is_some() {
            return Ok(Self::Netflow);
        }
        text::detect(head).ok_or_else(|| {
            let shown: Vec<String> = head.iter().take(8).map(|b| format!("{b:02x}")).collect();
            if head.is_empty() {
                "the file is empty".to_owned()
            } else {
                format!("begins with {}", shown.join(" "))
            }
        })
    }
}

/// A format's reader.
pub enum Decoder {
    /// Classic pcap.
    Pcap(pcap::Pcap),
    /// pcapng.
    Pcapng(pcapng::Pcapng),
    /// The text formats.
    Text(Box<text::Text>),
    /// NetFlow and IPFIX.
    Netflow(netflow::Netflow),
    /// Tables of activities.
    Table(Box<ActivityReader>),
}

impl Decoder {
    /// Reads the input's header. In captures, exported flows are looked for on `export_ports` ([`exports`]).
    ///
    /// # Errors
    /// A description of what is wrong with it. Tables are read from the file itself: see [`ActivityReader::open`].
    pub fn open(format: Format, bytes: &mut Bytes, export_ports: &[u16]) -> Result<Self, String> {
        let exports = || Exports::on(export_ports);
        Ok(match format {
            Format::Pcap => Self::Pcap(pcap::Pcap::open(bytes, exports())?),
            Format::Pcapng => Self::Pcapng(pcapng::Pcapng::new(exports())),
            Format::Parquet | Format::Arrow => return Err("a table must be a plain file".to_owned()),
            Format::Netflow => Self::Netflow(netflow::Netflow::default()),
            Format::Csv | Format::Zeek | Format::Nfdump | Format::Argus | Format::Suricata => {
                Self::Text(Box::new(text::Text::open(format, bytes)?))
            }
        })
    }

    /// The next record.
    #[inline(always)]
    pub fn next(&mut self, bytes: &mut Bytes) -> Next {
        match self {
            Self::Pcap(d) => d.next(bytes),
            Self::Pcapng(d) => d.next(bytes),
            Self::Text(d) => d.next(bytes),
            Self::Netflow(d) => d.next(bytes),
            Self::Table(d) => match d.row() {
                None => Next::End,
                Some(Ok(activity)) => Next::Burst(Box::new(activity)),
                Some(Err(reason)) => Next::Damaged(Damage::one(d.done(), 0, reason)),
            },
        }
    }

    /// The client to which the input gives this number, counted from 0 ([`Seen::name`] minus one).
    ///
    /// [`Seen::name`]: crate::seen::Seen::name
    #[must_use]
    pub fn named(&self, number: u32) -> Option<Named> {
        match self {
            Self::Text(d) => {
                let name = d.names().get_index(number as usize)?.clone();
                Some(Named { site: String::new(), name, mac: None })
            }
            Self::Table(d) => d.names().get_index(number as usize).cloned(),
            _ => None,
        }
    }

    /// What a capture's export datagrams yielded so far.
    #[must_use]
    pub fn exported(&self) -> Exported {
        match self {
            Self::Pcap(d) => d.exported(),
            Self::Pcapng(d) => d.exported(),
            Self::Text(_) | Self::Netflow(_) | Self::Table(_) => Exported::default(),
        }
    }

    /// What the input says of its own making, if it says that it is synthetic.
    #[must_use]
    pub fn synthetic(&self) -> Option<&str> {
        match self {
            Self::Text(d) => d.synthetic(),
            Self::Table(d) => d.synthetic(),
            Self::Pcapng(d) => d.synthetic(),
            Self::Pcap(_) | Self::Netflow(_) => None,
        }
    }
}

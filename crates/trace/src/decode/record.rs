//! What a decoder yields: the next record, or the damage in its place; and the names of the formats. Owns these types; must never
//! read a byte.

use crate::activity::Activity;
use crate::flow::Flow;
use crate::seen::{Mac, Seen};

/// What the next record was.
#[derive(Clone, PartialEq, Debug)]
pub enum Next {
    /// A packet.
    Packet(Seen),
    /// Several packets of which only the start, the end and the number are known.
    Flow(Box<Flow>),
    /// A row of activities: its client's number is that of its name in the input.
    Burst(Box<Activity>),
    /// A wireless station asked its access point to let it in: counted as upkeep, and a session may begin with its next packet.
    Joins(Mac),
    /// A frame that carries no traffic (802.11 management): counted, not used.
    Upkeep,
    /// Something that could not be read.
    Damaged(Damage),
    /// The input is over.
    End,
}

/// A record that could not be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Its number, counted from 1.
    pub record: u64,
    /// Whether everything behind it is lost too.
    pub rest: bool,
    /// Bytes of it that were already consumed: it begins that far before the current offset.
    pub behind: usize,
    /// What is wrong.
    pub reason: String,
}

impl Damage {
    /// Damage after which nothing can be read: it begins at the current offset.
    #[must_use]
    pub const fn rest(record: u64, reason: String) -> Self {
        Self { record, rest: true, behind: 0, reason }
    }

    /// Damage of one record of `behind` bytes that was skipped.
    #[must_use]
    pub const fn one(record: u64, behind: usize, reason: String) -> Self {
        Self { record, rest: false, behind, reason }
    }
}

/// The formats.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
pub enum Format {
    /// Classic pcap.
    Pcap,
    /// pcapng.
    Pcapng,
    /// `client,time,bytes,direction`.
    Csv,
    /// A Zeek conn log, tab separated or JSON.
    Zeek,
    /// `nfdump -o csv`.
    Nfdump,
    /// NetFlow v5, v9 or IPFIX messages one behind the other.
    Netflow,
    /// Argus records as CSV (`ra -c ,`).
    Argus,
    /// Suricata's EVE log: its flow records.
    Suricata,
    /// Activities as Parquet.
    Parquet,
    /// Activities as Arrow IPC, a file or a stream.
    Arrow,
}

impl Format {
    /// As users write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pcap => "pcap",
            Self::Pcapng => "pcapng",
            Self::Csv => "csv",
            Self::Zeek => "zeek",
            Self::Nfdump => "nfdump",
            Self::Netflow => "netflow",
            Self::Argus => "argus",
            Self::Suricata => "suricata",
            Self::Parquet => "parquet",
            Self::Arrow => "arrow",
        }
    }
}

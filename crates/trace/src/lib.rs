//! Recorded traffic in, idle periods and savings out.
//!
//! - [`input`], [`decode`], [`read`]: files of any supported format, record by record.
//! - [`facts`], [`survey`], [`clients`]: who speaks to whom, and who of them is a client, in each recording by itself.
//! - [`activity`]: the one record, what a client did in one stretch; [`sort`], [`fold`]: by client and in order of time.
//! - [`analyse`]: the accounting of every client, on as many threads as wanted, always with the same result.
//! - [`results`]: the accounts of several machines, put together.
//! - [`report`]: table, JSON, and one HTML page.
//!
//! Recordings are hostile input: nothing here panics on them, and what cannot be read is reported with its place. Memory does not grow with
//! packets: it is bounded by stated limits ([`facts::Limits`], [`sort::HELD`], [`fold::MAX_OPEN`]), and beside them grows with clients and
//! sessions, some 500 bytes for each; what is more goes through temporary files. This crate must never capture or send a packet.

pub mod activity;
pub mod analyse;
pub mod bytes;
pub mod clients;
pub mod decode;
pub mod facts;
pub mod flow;
pub mod fold;
#[doc(hidden)]
pub mod fuzz;
pub mod generate;
pub mod index;
pub mod input;
pub mod loss;
pub mod periods;
pub mod read;
pub mod report;
pub mod results;
pub mod seen;
pub mod sort;
pub mod survey;
pub mod table;
pub mod table_file;

pub use seen::Seen;

/// How every synthetic recording begins its comment, so that no output of it can pass for a measurement.
pub const SYNTHETIC_MARK: &str = "SYNTHETIC";

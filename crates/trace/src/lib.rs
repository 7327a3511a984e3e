//! Recorded traffic in, idle periods and savings out.
//!
//! - [`input`], [`decode`], [`source`], [`merge`]: files of any supported format as one stream of packets in order of time.
//! - [`survey`], [`clients`]: who is a client.
//! - [`analyse`]: the accounting of every client, on as many threads as wanted, always with the same result.
//! - [`report`]: table, JSON, and one HTML page.
//!
//! Recordings are hostile input: nothing here panics on them, memory is bounded by the number of clients and stated limits,
//! and what cannot be read is reported with its place. This crate must never capture or send a packet.

pub mod analyse;
pub mod bytes;
pub mod clients;
pub mod decode;
pub mod flow;
#[doc(hidden)]
pub mod fuzz;
pub mod generate;
pub mod index;
pub mod input;
pub mod loss;
pub mod merge;
pub mod parquet_file;
pub mod periods;
pub mod report;
pub mod seen;
pub mod source;
pub mod survey;

pub use seen::Seen;

/// How every synthetic recording begins its comment, so that no output of it can pass for a measurement.
pub const SYNTHETIC_MARK: &str = "SYNTHETIC";

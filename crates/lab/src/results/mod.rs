//! Results of measurements: the file they are kept in, and what may be concluded from them. Owns the format and the
//! statistics; must never measure anything.

pub mod file;
pub mod format;
pub mod stats;

pub use file::{ReadError, WriteError, write_whole};
pub use format::{Results, Sample};

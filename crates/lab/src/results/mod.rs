//! Results of measurements: the file they are kept in. Owns the format; must never measure anything, nor conclude.

pub mod esp;
pub mod file;
pub mod format;
pub mod provenance;

pub use file::{ReadError, WriteError};
pub use format::{Figures, Point, Results, Round, Sample};

//! Configuration: what may be written ([`file`]) and what it means.
pub mod file;

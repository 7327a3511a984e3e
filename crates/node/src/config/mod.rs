//! Configuration: what may be written ([`file`]) and what it means ([`resolve`]).

pub mod file;
mod resolve;

pub use resolve::{ConfigError, ReadFile, Resolved, parse, resolve};

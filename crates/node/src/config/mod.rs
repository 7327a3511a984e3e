//! Configuration: what may be written ([`file`], [`sleep`]) and what it means ([`resolve`]).

pub mod file;
mod peers;
mod resolve;
pub mod sleep;
pub mod standin;
mod validate;

pub use resolve::{ConfigError, ReadFile, Resolved, parse, resolve};
pub use sleep::{ResolvedSleep, resolve_sleep};

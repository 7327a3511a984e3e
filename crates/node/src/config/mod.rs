//! Configuration: what may be written ([`file`], [`sleep`]) and what it means ([`resolve`]).

pub mod access_router;
mod audit;
pub mod block;
mod choose;
mod credentials;
mod data_path;
pub mod directory;
mod eap;
pub mod file;
mod findings;
pub mod forward;
pub mod half_open;
pub mod hip;
mod hip_algorithms;
mod hip_identities;
mod ike_words;
mod metrics;
mod opening;
mod peers;
mod place;
mod radius;
pub mod renewals;
mod resolve;
mod resumption;
pub mod sleep;
mod spin;
pub mod standin;
mod validate;
mod zones;

pub use eap::{NtHash, users};
pub use findings::{Finding, findings};
pub use hip::{ResolvedHip, resolve_hip};
pub use radius::resolve_radius;
pub use resolve::{ConfigError, OpenToken, ReadFile, Resolved, parse, resolve, resolve_with};
pub use sleep::{ResolvedSleep, resolve_sleep};
pub(crate) use zones::router;

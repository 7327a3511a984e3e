//! IKEv2 (RFC 7296) for both roles, as a sans-IO core.

pub mod auth;
pub mod config;
pub mod config_payload;
pub mod cookie;
pub mod fragment;
#[doc(hidden)]
pub mod fuzz;
pub mod keys;
pub mod limits;
pub mod natd;
pub mod proposal;
pub mod protect;
pub mod selectors;
pub mod ticket;

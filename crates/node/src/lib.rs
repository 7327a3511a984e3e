//! (in construction)
pub mod config;
pub mod ladder;

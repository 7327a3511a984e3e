//! The behaviour of ESP as its users see it, one file for each.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod batch;
mod beet;
mod common;
mod hostile;
mod lifetime;
mod measured;
mod padding;
mod policy;
mod replay;
mod round_trip;
mod zones;
mod zones_golden;
mod zones_properties;
mod zones_router;
mod zones_spec;

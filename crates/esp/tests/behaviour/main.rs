//! The behaviour of ESP as its users see it, one file for each.

mod batch;
mod common;
mod hostile;
mod lifetime;
mod padding;
mod policy;
mod replay;
mod round_trip;

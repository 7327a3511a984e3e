//! The crate against a real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod counts;
mod failover;
mod handover;
mod leases;
mod lineage;
mod loads;
mod membership;
mod support;
mod takeover;
mod users;

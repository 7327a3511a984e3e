//! The crate against a real PostgreSQL.

mod failover;
mod leases;
mod lineage;
mod membership;
mod support;

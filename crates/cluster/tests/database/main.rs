//! The crate against a real PostgreSQL.

mod lineage;
mod support;

//! Gateways that share a PostgreSQL database, under faults: real daemons, a real server, and everything that may break between and below them.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

mod clock;
mod disk;
mod kills;
mod partition;
mod relay;
mod routing;
mod standbys;
mod thief;

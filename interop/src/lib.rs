//! Real peers for the tests in `tests/`: Debian's strongSwan and our own daemons, each a process in a network namespace.
//!
//! Owns how the peers are configured, started and asked for their state. Must never touch the machine's own strongSwan: each
//! charon has its own `/run`, its own configuration and its own control socket.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

pub mod cluster;
pub mod ends;
pub mod freeradius;
pub mod meters;
pub mod mock;
pub mod scenario;
pub mod shipped;
pub mod strongswan;
pub mod vm;
pub mod witness;

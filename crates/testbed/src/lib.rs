//! Several hosts on one machine: network namespaces, links, NATs and processes for the demo, the tests against real peers and
//! the benchmarks.
//!
//! Everything has a name with this process's id in it (`dm<pid>-<n>-<host>`) and is removed when its [`Testbed`] is dropped,
//! also while a panic unwinds. What a killed process left behind is swept by the next [`Testbed::new`]. The crate must never
//! touch the machine's own interfaces, routes or firewall: all traffic stays inside the namespaces that it makes.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

pub mod browser;
pub mod crowd;
mod daemon;
pub mod forward;
pub mod hip;
mod host;
pub mod mobile;
mod pki;
pub mod postgres;
mod process;
pub mod radio;
pub mod repaired;
pub mod replay;
mod require;
mod roaming;
pub mod routers;
mod traffic;
pub mod vm;
pub mod wireguard;

pub use daemon::{Answer, Dormoused, Extra, binary};
pub use host::{Host, Testbed};
pub use pki::{Key, Pki};
pub use process::{Process, cpu_time, own_memory, resident_memory};
pub use require::{Need, require};
pub use roaming::{Access, Air, GATEWAY, GATEWAY_V6, Roaming, SERVER};
pub use traffic::{Burst, EchoServer, LongLived, Prober, Transfer};

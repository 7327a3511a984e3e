//! What each security setting costs on the machine at hand: `dormouse bench`. Owns the measurements of papers 001 and 004
//! (cryptography alone, whole packets, streams, downloads, TLS); what follows from them is the business of others, who read
//! the [`Results`](crate::results::Results) that come out.
//!
//! - [`Request`] says what is wanted, [`Bench`] plans it and is the subject of its [campaign](crate::campaign).
//! - Every suite is held against known answers before it is timed, and every tunnel against a known stream of bytes. What
//!   gives a wrong answer is reported, never timed.
//! - CPU time is that of this program's threads by their own clocks, and beside it that of the rest of the machine from
//!   `/proc/stat` (kernel, softirq, steal) above what it does at rest.
//! - Network traffic stays in namespaces of its own, or between two machines; nothing on the machine is changed
//!   but, if asked, its frequency governors, which are put back.

mod campaign;
mod child;
mod far;
pub(crate) mod forward;
mod governor;
mod joules;
pub(crate) mod link;
mod memory;
pub(crate) mod place;
mod plan;
mod runner;
mod tls;
pub(crate) mod traffic;
pub(crate) mod transfer;
mod worker;

pub use campaign::{Bench, Unprivileged};
pub use far::{Far, Lost};
pub use forward::forward;
pub use memory::{in_memory, rate};
pub use plan::{Request, known_suite, part};
pub use worker::serve;

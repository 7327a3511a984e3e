//! Worlds of hosts that speak HIP (`dormouse_hip`): two or three of them, each with a network of its own that routes and another one that
//! may be behind a NAT; and, as drawn, a rendezvous server or a relay by which they find each other.
//!
//! [`World`] is the machinery, [`Step`] what happens in it, [`Story`] a seeded story that can be told, shrunk and pasted as a test. The
//! machines, the network and the clock are those of all worlds ([`crate::Topology`]); what must be true at every step is `laws`' and `lives`', and what must be
//! true once the faults have stopped is `settled`'s.

mod ends;
mod laws;
mod lives;
mod script;
mod settings;
mod settled;
mod story;
mod world;

pub use ends::{KEYS, OLD, SERVER, identity, radio};
pub use script::{Edit, Place, Step};
pub use settings::{Lasting, Meeting, Rekeying, Settings};
pub use story::Story;
pub use world::World;

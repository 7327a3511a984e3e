//! Whole conversations in virtual time: a device, a gateway, two access networks and everything that goes wrong between them,
//! as a function of one seed.
//!
//! Owns the world's clock and its rules; must never read a real clock or draw randomness that does not follow from the seed.
//! [`World`] is the machinery, [`Script`] a seeded story, and [`World::settle_and_check`] what must be true after any story.

pub mod cluster;
mod crowd;
mod day;
mod drive;
mod ends;
mod engine;
mod fuse;
#[doc(hidden)]
pub mod fuzz;
pub mod hip;
mod invariants;
mod ledger;
mod machine;
pub mod mobile;
mod outer;
mod plot;
mod script;
mod settings;
mod settled;
mod shared;
mod shrink;
mod store;
mod story;
mod thief;
mod topology;
mod world;

pub use crowd::{Crowd, Setting};
pub use day::{Sent, day};
pub use ends::rekey_peers;
pub use ledger::{Books, Ledger, Member};
pub use machine::{Disk, Machine, Radio, Retired};
pub use script::{Edit, Script, Step};
pub use settings::{Family, Lines, Proof, Settings};
pub use shrink::Tale;
pub use store::Store;
pub use story::Story;
pub use thief::Accepted;
pub use topology::{Astray, MachineId, Moment, NetworkId, Passing, Topology, Undelivered};
pub use world::{Access, World};

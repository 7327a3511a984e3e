//! Worlds of two or three gateways behind one name, which share a store, and up to four devices. The machines, the network and the clock are
//! those of all worlds ([`crate::Topology`]); what each gateway says to the store and hears of the others is what ships (`crate::shared`), over
//! a model of the database and of the link to it.
//!
//! [`World`] is the machinery, [`Step`] what happens in it, [`Story`] a seeded story that can be told, shrunk and pasted as a test; what must be
//! true at every step is `laws`', and what must be true once the faults have stopped is `settled`'s.

mod common;
mod drains;
mod ends;
mod laws;
mod script;
mod settings;
mod settled;
mod story;
mod world;

pub use script::Step;
pub use settings::Settings;
pub use story::Story;
pub use world::World;

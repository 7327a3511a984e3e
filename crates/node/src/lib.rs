//! The node: the only place where the protocol cores meet. IKE, ESP and the wake-up ladder joined into one sans-IO machine;
//! its configuration, its address pool and its events; and beside it the [`sleeper`], which decides when the radio sleeps.
//!
//! Must never read a clock, open a socket or touch the machine: `dormoused` drives it in the world, `dormouse-sim` in virtual
//! time.

mod apply;
mod child;
mod client;
pub mod config;
mod data;
pub mod event;
#[doc(hidden)]
pub mod fuzz;
pub mod held;
pub mod host;
pub mod ladder;
mod late;
mod node;
mod peers;
pub mod pool;
mod removal;
mod sleep;
pub mod sleeper;
mod snapshot;
mod standin;
mod unconfirmed;

pub use data::Train;
pub use dormouse_ike::{LoadReport, SleepFlags};
pub use dormouse_standin::{DeviceId, Limits, Verdict};
pub use event::{Change, Event, FailureKind, Offer, SleepVerdict};
pub use node::{Counters, Discard, Inbound, Node, Route};
pub use sleep::ANNOUNCE;
pub use snapshot::{ChildInfo, ClientInfo, SessionInfo};
pub use standin::{AbsentInfo, StandInInfo};

//! The node: the only place where the protocol cores meet. IKE, ESP and the wake-up ladder joined into one sans-IO machine;
//! its configuration, its address pool and its events; and beside it the [`sleeper`], which decides when the radio sleeps.
//!
//! Must never read a clock, open a socket or touch the machine: `dormoused` drives it in the world, `dormouse-sim` in virtual
//! time.

mod accounts;
pub mod audit;
mod client;
pub mod config;
mod connections;
mod data;
mod devices;
pub mod event;
#[doc(hidden)]
pub mod fuzz;
pub mod handover;
mod headers;
pub mod hold;
pub mod host;
pub mod ladder;
pub mod lending;
mod node;
mod peers;
pub mod pool;
pub mod radius;
mod reconfigure;
mod record;
mod redirect;
mod rekey;
mod removal;
mod repair;
mod reports;
mod resend;
mod revival;
mod sending;
mod served;
mod sessions;
pub mod shared;
mod sleep;
pub mod sleeper;
mod snapshot;
pub mod tally;
mod tunnels;

pub use accounts::RadiusState;
pub use data::Train;
pub use devices::{AbsentInfo, StandInInfo};
pub use dormouse_ike::Gateway;
pub use dormouse_ike::LoadReport;
pub use dormouse_keying::{SleepFlags, SleepVerdict};
pub use dormouse_standin::{DeviceId, Limits, Verdict};
pub use event::{Change, Event, FailureKind, Kept, Offer};
pub use node::{Discard, Inbound, Node, Route};
pub use redirect::Sent;
pub use rekey::Rekey;
pub use removal::{Met, NotDone};
pub use sleep::ANNOUNCE;
pub use snapshot::{ChildInfo, ClientInfo, SessionInfo};
pub use tally::{ConnectionTally, Counters, Held};

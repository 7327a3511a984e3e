//! The control protocol between `dormouse` and `dormoused`: the words that both sides share, and nothing else.
//!
//! One JSON object a line over a Unix stream socket; the same structures are what `--json` prints. A connection carries any
//! number of requests, answered in order; [`Verb::Watch`] turns it into a stream of [`Event`]s that ends only with the
//! connection.
//!
//! ```text
//! > {"version":1,"verb":"up","connection":"office"}
//! < {"version":1,"status":"ok","result":"done"}
//! > {"version":1,"verb":"wait","connection":"office","state":"up","timeout_seconds":30.0}
//! < {"version":1,"status":"error","error":{"kind":"proposal","message":"...","offered":["..."],"acceptable":["..."],...}}
//! ```
//!
//! # Versions
//! [`VERSION`] grows when a field changes its meaning or goes away. A new field does not change it: both sides ignore fields
//! that they do not know. A daemon answers a request of another version with [`ErrorKind::Version`].
//!
//! This crate must never open a socket or read a clock.

mod block;
mod error;
mod event;
mod exit;
#[doc(hidden)]
pub mod fuzz;
mod hip;
mod radius;
mod request;
mod response;
mod router;
mod rung;
mod sa;
mod sleep;
mod standin;
mod status;

pub use block::{BlockMode, BlockStatus, InClear, Portal};
pub use error::{Error, ErrorKind};
pub use event::{Event, EventKind};
pub use exit::ExitCode;
pub use hip::{HipIdentity, HipNames, HipPeer, HipRegistration, HipState, HipStatus};
pub use radius::{RadiusServer, RadiusStatus};
pub use request::{Request, Verb};
pub use response::{Denied, Holder, Outcome, Renewal, Reply, Response};
pub use router::{HeaderKeys, RepairedFlow, RouterStatus};
pub use rung::WakeRung;
pub use sa::{KeysOf, SaStatus, Traffic};
pub use sleep::{DecisionStatus, EnergyStatus, RadioStatus, SleepMode, SleepState, SleepStatus, WakeStatus};
pub use standin::{AbsentDevice, DeviceSleep, StandIn};
pub use status::{
    Check, CheckOutcome, Connection, ConnectionState, DaemonStatus, DeadlineStatus, Gateway, LastError,
    LastWake, MOST, Nat, Offload, Role, Session, Sessions, Stats, Status, Ticket,
};

/// Version of the protocol, in every line.
pub const VERSION: u32 = 1;

/// Longest line that either side accepts, in bytes, line break included. A request is far shorter, and a status of [`MOST`] sessions is not longer.
pub const MAX_LINE: usize = 16 << 20;

/// Longest request that a daemon accepts, in bytes, line break included.
pub const MAX_REQUEST: usize = 4096;

/// Where the daemon listens unless its configuration says otherwise.
pub const DEFAULT_SOCKET: &str = "/run/dormouse/dormouse.sock";

/// One line for the wire: JSON and a line break.
///
/// # Errors
/// None for the types of this crate, whose maps have text keys; an [`ErrorKind::Other`] is returned rather than assumed away.
pub fn line<T: serde::Serialize>(value: &T) -> Result<String, Error> {
    let mut text =
        serde_json::to_string(value).map_err(|e| Error::new(ErrorKind::Other, format!("JSON: {e}")))?;
    text.push('\n');
    Ok(text)
}

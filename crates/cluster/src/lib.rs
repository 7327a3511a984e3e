//! What several gateways share, in PostgreSQL: which tickets count, the keys that seal them, which identity has which inner addresses,
//! and whom an administrator has refused. Owns the schema `dormouse`, its versions and every statement on it; must never decide what a
//! ticket or a denial means, and its caller must never wait for it in the loop that forwards packets.
//!
//! One task owns a [`Database`], on a runtime of one thread beside the daemon's loop. Each method is one transaction: done and durable, or
//! an error and not done; where the connection was lost meanwhile, it may have been done. What the database says is input, from whoever
//! can write to it: lengths and values are checked.

pub mod admin;
mod counts;
mod denials;
mod error;
mod handover;
mod join;
mod keys;
mod leases;
mod lineage;
mod link;
mod loads;
mod news;
mod orders;
mod schema;
mod server;
mod status;
mod takeover;
mod tls;
mod users;
mod viewer;

pub use denials::Denial;
pub use error::Error;
pub use handover::{Arrived, CONTENT_MOST, Other, Parcel};
pub use join::{Beat, Database, Joined, Load, Settings};
pub use keys::TicketKey;
pub use leases::{LeaseChange, Written};
pub use loads::HISTORY_MOST;
pub use news::{Lease, LeaseKey, LeaseNews, Notice};
pub use orders::Order;
pub use schema::{SCHEMA, SLOTS_MOST};
pub use status::{GatewayStatus, KeyStatus, StandbyStatus, Status};
pub use takeover::Given;
pub use users::{Content, UserEntry, UserKey, UserKind, Users};
pub use viewer::Viewer;

//! What a sleeping radio saves: the energy model, device profiles, online schedulers and the accounting that judges them.
//!
//! - [`model`]: the break-even model (paper 000, Equations 1 to 4) for every way to resume a session.
//! - [`states`], [`radio`], [`cost`]: a radio with several states, its file, and what an idle period costs with it.
//! - [`profile`]: a device's figures, each with its unit, source and spread.
//! - [`meter`]: what every energy meter promises, and the arithmetic behind it.
//! - [`schedule`]: one trait, [`schedule::Scheduler`], and every policy behind it.
//! - [`account`]: what a policy costs and saves on one client's traffic, in one pass.
//!
//! Everything here is pure: time and packets are handed in, nothing reads a clock, a file or a radio. Times inside the
//! schedulers are seconds in `f64`; a [`core::time::Duration`] or an [`dormouse_sansio::Instant`] stands at the border.

pub mod account;
pub mod cost;
pub mod exchange;
#[doc(hidden)]
pub mod fuzz;
pub mod meter;
pub mod model;
pub mod packet;
pub mod profile;
pub mod radio;
pub mod schedule;
pub mod states;

pub use packet::{Direction, PacketInfo, WakeOn};

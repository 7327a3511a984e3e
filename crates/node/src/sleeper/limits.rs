//! All times of the sleeper, and why they are what they are. Nothing here may hang: each step on the way to sleep and back has a
//! deadline.

use std::time::Duration;

/// The gateway's answer to the announcement is awaited this long. Without it the radio goes off all the same: the announcement
/// helps the gateway, the sleep does not depend on it.
pub const ANNOUNCE: Duration = Duration::from_secs(3);
/// The radio's driver must say within this time that it is off, or on: longer than the three steps that a driver may wait for
/// others, each of 10 s.
pub const RADIO: Duration = Duration::from_secs(35);
/// After the radio is on, the session is awaited this long. Later the sleeper counts as awake and leaves the rest to the ladder.
pub const SESSION: Duration = Duration::from_secs(60);
/// After a wake that no packet of ours caused, what the gateway kept gets this long to arrive before the radio goes off again.
pub const LINGER: Duration = Duration::from_secs(2);
/// An upkeep deadline this close is waited for, so that it falls into this wake and not into one of its own.
pub const COALESCE: Duration = Duration::from_secs(3);
/// For so long at most, per sleep, in steps of [`COALESCE`].
pub const COALESCE_MOST: Duration = Duration::from_secs(9);
/// A radio that could not be switched off is left alone this long.
pub const REFUSED: Duration = Duration::from_secs(600);
/// A radio that could not be switched on is tried again after this, doubled up to [`RETRY_MOST`], for ever.
pub const RETRY_FIRST: Duration = Duration::from_secs(1);
/// The longest pause between attempts to switch the radio on.
pub const RETRY_MOST: Duration = Duration::from_secs(60);
/// A session that is to be renewed before it expires is woken for this long before.
pub const RENEW_AHEAD: Duration = Duration::from_secs(60);
/// The longest sleep that is announced.
pub const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Decisions that are remembered.
pub const DECISIONS: usize = 32;
/// Wakes that are remembered.
pub const WAKES: usize = 32;
/// Ways by which the session came back that decide on the break-even time.
pub const RUNGS: usize = 8;

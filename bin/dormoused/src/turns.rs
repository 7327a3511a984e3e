//! How much is read from one interface or socket before all others have their turn: the same in the loop and in its workers' threads. Owns the numbers
//! alone; reading is theirs.

use std::time::Duration;

/// What reading an interface that is switched off ends in (`EIO`).
pub(crate) const EIO: i32 = 5;
/// Super-packets taken from an interface before sockets have their turn.
pub(crate) const BUDGET: usize = 64;
/// Receptions from one socket before interfaces and timers have their turn.
pub(crate) const ROUNDS: usize = 8;
/// Bytes received from one socket before they have it. The acknowledgements of what was just written wait in the interface: draining the socket of a whole window
/// first makes the sender stand still meanwhile, and then there is nothing to do until it has sent the next one.
pub(crate) const SHARE: usize = 256 << 10;
/// ICMP errors read from one socket before they have it: any host can send some.
pub(crate) const ERRORS: usize = 64;
/// Where an SA changes hands, a full socket is waited for so often, so long each time.
pub(crate) const WAITS: usize = 10;
pub(crate) const WAIT: Duration = Duration::from_millis(5);

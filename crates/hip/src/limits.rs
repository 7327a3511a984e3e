//! All bounds of the crate in one place. Owns numbers only.

use core::time::Duration;

/// Associations of one host in all states together, unless configured otherwise.
pub const MAX_ASSOCIATIONS: usize = 65_536;
/// Solutions that one generation of puzzles remembers, so that none is accepted twice. When they are full, the generation ends.
pub const MAX_USED_SOLUTIONS: usize = 65_536;
/// Hashes of a puzzle's search that are computed in one go: some milliseconds.
pub const PUZZLE_SLICE: u32 = 8_192;
/// A search is given up after 2^K times this many hashes: a chance of e^-16 with a solution left.
pub const PUZZLE_PATIENCE: u64 = 16;
/// Longest echo of a peer that is sent back, in bytes.
pub const MAX_ECHO: usize = 512;
/// Echoes of one packet that are sent back.
pub const MAX_ECHOES: usize = 4;
/// Addresses to which the first I1 goes at once.
/// "However, it MUST NOT send to more than three (3) Responder addresses in parallel." (RFC 7401 section 6.6.1)
pub const MAX_PARALLEL_I1: usize = 3;
/// How long the association is kept to answer what the peer sends again after its end.
pub const CLOSED_FOR: Duration = Duration::from_secs(120);
/// R1s that are sent in one second at most, to all initiators together.
pub const MAX_R1_A_SECOND: u32 = 100_000;
/// An established peer that is sent ESP and sends none is asked after this time whether it is there.
pub const SILENCE: Duration = Duration::from_secs(4);
/// Tries of that question: a peer that answers none of them has lost the association.
pub const SILENCE_TRIES: u32 = 3;

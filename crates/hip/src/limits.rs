//! All bounds of the crate in one place. Owns numbers only.

use core::time::Duration;

/// Associations of one host in all states together, unless configured otherwise.
pub const MAX_ASSOCIATIONS: usize = 65_536;
/// Solutions that one generation of puzzles remembers, so that none is accepted twice. When they are full, the generation ends.
pub const MAX_USED_SOLUTIONS: usize = 65_536;
/// Under load, a puzzle that is so many bits easier than those that are given out does not count any more.
pub const MAX_K_BEHIND: u8 = 4;
/// I2 packets with one solution that are worth a Diffie-Hellman computation.
pub const MAX_COMPUTATIONS: u32 = 8;
/// Verifications that others can cause while one exchange of ours waits: of NOTIFY packets, and of R1 packets with a newer puzzle.
pub const MAX_LOOKS: u32 = 4;
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
/// Addresses besides the one in use that are announced, or remembered of a peer, and ways that are tried when one fails.
pub const MAX_OTHER_ADDRESSES: usize = 8;
/// Registration types of one parameter that are looked at, and REG parameters of one kind in a packet.
pub const MAX_REGISTRATION_TYPES: usize = 8;
/// The shortest registration.
/// "The minimum lifetime both registrars and requesters MUST support is 10 seconds" (RFC 8003 section 5)
pub const SHORTEST_REGISTRATION: Duration = Duration::from_secs(10);
/// After so long a rendezvous server that does not answer is tried again; the wait doubles up to [`LAST_RETRY`].
pub const FIRST_RETRY: Duration = Duration::from_secs(30);
/// The longest wait between two tries.
pub const LAST_RETRY: Duration = Duration::from_secs(3_600);
/// After so long the next packet of ESP under an unknown SPI, which anyone can send, may begin another exchange with a peer.
pub const LOST_AGAIN: Duration = Duration::from_secs(60);
/// An association that was used within this time does not give way to another peer's, unless that is configured.
pub const BUSY_FOR: Duration = Duration::from_secs(60);
/// How long the association is kept to answer what the peer sends again after its end.
pub const CLOSED_FOR: Duration = Duration::from_secs(120);
/// R1s that are sent in one second at most, to all initiators together.
pub const MAX_R1_A_SECOND: u32 = 100_000;
/// An established peer that is sent ESP and sends none is asked after this time whether it is there.
pub const SILENCE: Duration = Duration::from_secs(4);
/// Tries of that question: a peer that answers none of them has lost the association.
pub const SILENCE_TRIES: u32 = 3;
/// A peer may wake so much later than it said, and a tenth of its sleep.
pub const SLEEP_GRACE: Duration = Duration::from_secs(30);

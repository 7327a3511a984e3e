//! All bounds of the crate in one place. Owns numbers only.

use core::time::Duration;

/// Associations of one host in all states together, unless configured otherwise.
pub const MAX_ASSOCIATIONS: usize = 65_536;
/// Solutions that one generation of puzzles remembers, so that none is accepted twice. When they are full, the generation ends.
pub const MAX_USED_SOLUTIONS: usize = 65_536;
/// Under load, a puzzle that is so many bits easier than those that are given out does not count any more.
pub const MAX_K_BEHIND: u8 = 4;
/// I2 packets with one solution that are worth a Diffie-Hellman computation.
pub const MAX_COMPUTATIONS: u8 = 8;
/// Bytes in which one generation counts these computations, and how many it counts before it ends: then a counter is one, on average. There are three
/// generations of an identity at most.
pub const MAX_TRIED: usize = 65_536;
/// The shortest time between two NOTIFY packets to an established peer about critical parameters that we do not know; so often, in the long run,
/// a keep-alive that is not from where a client of ours is known to be is worth a verification.
pub const NOTIFY_AGAIN: Duration = Duration::from_secs(1);
/// An established peer may begin new ESP keys so often, in the long run: each may cost a key pair and an agreement.
pub const REKEY_EVERY: Duration = Duration::from_millis(250);
/// As many as this at once.
pub const REKEY_BURST: u32 = 16;
/// New UPDATE packets of an established peer are answered so often, in the long run, those of a search for a direct way apart: each answer is signed.
pub const UPDATE_EVERY: Duration = Duration::from_millis(100);
/// As many as this at once.
pub const UPDATE_BURST: u32 = 64;
/// Kinds of R1 packets that were asked for and are signed ahead from then on, besides the best.
pub const MAX_AHEAD: usize = 8;
/// Verifications that others can cause while one exchange of ours waits: of NOTIFY packets, and of R1 packets with a newer puzzle; and of keep-alives
/// at once.
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
/// The longest wait between two tries, and between two questions of a client whether it is still registered.
pub const LAST_RETRY: Duration = Duration::from_secs(3_600);
/// After so long the next packet of ESP under an unknown SPI, which anyone can send, may begin another exchange with a peer.
/// "However, any such responses MUST be rate-limited to prevent abuse" (RFC 7401 section 4.3)
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
/// An association whose lifetime has ended while its peer slept stays for so long after the sleep: what woke the peer, and what was kept for it, goes
/// by it.
pub const PARTING: Duration = Duration::from_secs(4);
/// Answers after a sleep that lead to another question, because they came by another way or the peer asks where we are: each end asks once, and
/// one question may have crossed a move.
pub const MAX_QUESTIONS: u8 = 3;
/// Addresses at which a peer behind a NAT is looked for: those that it names, and those from which it looks for us.
/// "Following the ICE guidelines [RFC8445], it is RECOMMENDED to restrict the total number of connectivity checks to 100 for each host
/// association." (RFC 9028 section 4.6.2) With [`CHECK_TRIES`] there are 80 packets.
pub const MAX_PAIRS: usize = 16;
/// Packets that look for a peer at one address.
pub const CHECK_TRIES: u32 = 5;
/// How long each waits for its answer.
/// "A smaller value than 1000 ms for the RTO MUST NOT be used." (RFC 9028 section 4.6.2)
pub const CHECK_WAIT: Duration = Duration::from_secs(1);
/// In a minute, a search for a direct way begins anew so often at most.
pub const MAX_SEARCHES_A_MINUTE: u32 = 4;
/// Between two of them to different addresses.
/// "The minimum Ta value SHOULD be configurable, and if no value is configured, a value of 50 ms MUST be used." (RFC 9028 section 4.4)
pub const PACING: Duration = Duration::from_millis(50);
/// A peer that wants more time between them does not get more than this.
pub const SLOWEST_PACING: Duration = Duration::from_millis(500);
/// Of a peer that looks for us, so many packets are answered in a second.
pub const MAX_CHECKS_A_SECOND: u32 = 40;
/// NATs learn so often that a way is in use.
/// "Other values MAY be used, but a Tr value smaller than 15 seconds MUST NOT be used." (RFC 9028 section 4.10)
pub const KEEPALIVE: Duration = Duration::from_secs(15);
/// Of so many of these to a relay of ours, one asks it whether it still knows us, and where it sees us.
pub const KEEPALIVES_TO_ASK: u32 = 8;
/// A data relay lets a peer's ESP through for so long.
pub const PERMIT: Duration = Duration::from_secs(300);
/// The client asks again when so much of it is over.
/// "A Data Relay Client SHOULD refresh permissions 1 minute before the expiration when the permission is still needed." (RFC 9028 section
/// 4.12.1)
pub const PERMIT_RENEWED: Duration = Duration::from_secs(240);
/// Permissions of all clients of a data relay.
pub const MAX_PERMITS: usize = 65_536;
/// Permissions of one client.
pub const MAX_PERMITS_OF_ONE: usize = 256;
/// Permissions in one packet.
pub const MAX_PERMITS_AT_ONCE: usize = 8;
/// Packets of data that wait to be passed on.
pub const MAX_WAITING_DATA: usize = 4_096;

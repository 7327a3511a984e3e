//! Every bound of this crate in one place: how much a peer can make us keep, how long we wait, how far a value may go.
//! Owns numbers and the reason for each; must never hold logic. (Limits of the parser are `dormouse_wire::ike::limits`.)

use core::time::Duration;

/// Length of our own nonces, in bytes: half of the largest PRF key in use (HMAC-SHA2-512).
///
/// > Nonces used in IKEv2 MUST be randomly chosen, MUST be at least 128 bits in size, and MUST be at least half the key
/// > size of the negotiated pseudorandom function (PRF). (RFC 7296, section 2.10)
pub const NONCE_LEN: usize = 32;

/// Longest cookie that is echoed, in bytes (RFC 7296, section 2.6).
pub const COOKIE_MAX: usize = 64;
/// A cookie secret makes cookies for this long, and is honoured for as long again.
pub const COOKIE_SECRET_LIFETIME: Duration = Duration::from_secs(60);

/// Solutions of puzzles that are remembered for one cookie secret, in 8 bytes each; beyond, the secret goes.
pub const SOLUTIONS_MAX: usize = 16_384;
/// A half-open SA has at least this long, however many there are: the round trip of a slow network, and two repetitions of ours.
/// "Two seconds is probably as low a value as can realistically be used" (RFC 8019 section 4.1)
pub const HALF_OPEN_LEAST: Duration = Duration::from_secs(3);
/// So long a half-open SA is taken to be on its way: a handshake has four round trips at most, and a client that lost a message repeats it.
pub const HALF_OPEN_FRESH: Duration = Duration::from_secs(1);
/// Of so many prefixes, those with the most half-open SAs, one is looked for that gives way.
pub const PREFIXES_LOOKED_AT: usize = 16;
/// Of those who do not solve their puzzles one in so many is served at least.
pub const UNSOLVED_ONE_IN: usize = 16;
/// Zero bits of the easiest puzzle that is given: thousands of PRF calls, some milliseconds.
pub const PUZZLE_EASIEST: u8 = 10;
/// Calls of the PRF in one go while a puzzle is solved: some milliseconds.
pub const PUZZLE_SLICE: u32 = 4_096;
/// A puzzle is given up after so many times 2^difficulty calls: four times what a solution takes on average.
pub const PUZZLE_PATIENCE: u32 = 16;
/// Calls of the PRF, as a power of two, for a puzzle without a difficulty.
pub const PUZZLE_FREE_MOST: u8 = 14;
/// Between two lines in the log about first messages that were refused.
pub const REFUSALS_LOGGED_EVERY: Duration = Duration::from_secs(10);

/// Error notifications outside of any SA per second to one prefix, about ESP and about IKE each.
pub const COMPLAINTS_PER_SECOND: u32 = 64;
/// Prefixes that get any within one second.
pub const COMPLAINED_TO_MOST: usize = 4_096;

/// Largest IKE message that is reassembled or sent, in bytes. Certificate chains of several RSA-4096 certificates fit.
/// "It is NOT RECOMMENDED for this value to exceed 64 KB" (RFC 7383 section 5)
pub const MESSAGE_MAX: usize = 65_000;
/// Largest IKE_INTERMEDIATE request, in bytes: the largest public value (ML-KEM-1024, 1,568 bytes) and the names of some PPKs. Its
/// sender has proved nothing yet.
pub const INTERMEDIATE_MAX: usize = 8_192;
/// Bytes of one caller's messages that wait while the first keys are made, which may take milliseconds: its sender has proved nothing yet. An IKE_AUTH
/// request with a chain of certificates; what does not fit is repeated.
pub const EARLY_MAX: usize = 16_384;
/// Most fragments of one message (RFC 7383 allows 65,535): 65 kB in fragments of 576-byte datagrams.
pub const FRAGMENTS_MAX: u16 = dormouse_wire::ike::limits::MAX_FRAGMENTS;
/// Smallest datagram that fragmentation aims at, in bytes: a smaller setting is raised to it, so that a message never
/// needs more than [`FRAGMENTS_MAX`] pieces.
pub const FRAGMENT_SIZE_MIN: usize = 576;
/// Largest datagram that fragmentation aims at, in bytes.
pub const FRAGMENT_SIZE_MAX: usize = 9_000;

/// How long the pieces of a message wait for those that are missing: longer than a request is repeated, as RFC 7383 section 2.6
/// recommends.
pub const REASSEMBLY_TIME: Duration = Duration::from_secs(60);

/// Most traffic selectors of one side in one CHILD_SA. Narrowing keeps the first this many.
pub const SELECTORS_MAX: usize = 64;

/// Most NAT_DETECTION_SOURCE_IP hashes that are looked at (a multihomed peer may send one for each of its addresses).
pub const NATD_SOURCES_MAX: usize = 16;

/// Most CERT payloads of one message that are looked at.
/// "Implementations MUST be capable of being configured to send and accept up to four X.509 certificates in support of
/// authentication" (RFC 7296 section 3.6)
pub const CERTIFICATES_MAX: usize = 12;
/// CRLs and OCSP responders that are asked for status, and issuers that may sign what one of them says.
pub const REVOCATION_SOURCES_MAX: usize = 4_096;
/// See [`REVOCATION_SOURCES_MAX`].
pub const REVOCATION_ISSUERS_MAX: usize = 16;
/// Handshakes that wait for the status of certificates at once. Beyond, it counts as unknown.
pub const REVOCATION_WAITING_MAX: usize = 1_024;
/// A handshake waits this long for the status of certificates. Less than a device's patience with a full exchange.
pub const REVOCATION_WAIT: Duration = Duration::from_secs(5);
/// A key that is held elsewhere has this long to sign.
pub const SIGNING_WAIT: Duration = Duration::from_secs(8);
/// Signatures of ours at once for callers that prove themselves by EAP, and so have proved nothing yet: a quarter of a second of an RSA key.
pub const STRANGERS_SIGNED_FOR_MAX: usize = 256;
/// The same for a key in a token, which needs up to half a second: callers who have proved who they are wait behind these, for [`SIGNING_WAIT`] at most.
pub const STRANGERS_SIGNED_FOR_BY_TOKEN: usize = 4;
/// IKE_AUTH exchanges of one EAP conversation: certificates in pieces of one kilobyte need some twenty.
/// "[...] needs to be capable of extending the initial protocol exchange to at least ten IKE_AUTH exchanges" (RFC 7296 section 2.16)
pub const EAP_ROUNDS_MAX: u32 = 40;
/// Bytes of EAP that one end of a conversation says: chains of certificates are the most.
pub const EAP_BYTES_MAX: usize = 32_768;
/// Wrong passwords for one user from one network before the next has to wait: a second, doubled with each up to [`GUESS_WAIT_MOST`].
pub const GUESSES_FREE: u32 = 5;
/// The same from all networks together from which the user has not logged in of late, up to [`GUESS_WAIT_MOST_OF_ALL`].
pub const GUESSES_FREE_OF_ALL: u32 = 20;
/// Longest wait for a network: some 1,400 guesses a day.
pub const GUESS_WAIT_MOST: Duration = Duration::from_secs(64);
/// Longest wait for all networks: no longer, because the user may be at one that is new to us.
pub const GUESS_WAIT_MOST_OF_ALL: Duration = Duration::from_secs(30);
/// After so long without a wrong password half of those that came are forgiven.
pub const GUESSES_FORGIVEN_EVERY: Duration = Duration::from_secs(600);
/// Networks from which wrong passwords came, and users, that are remembered; beyond, the oldest are forgotten.
pub const GUESSES_REMEMBERED: usize = 4_096;
/// Networks of one user from which he has logged in that are remembered.
pub const NETWORKS_OF_USER: usize = 8;
/// Most key identifiers (20 bytes each) of one CERTREQ that are looked at.
pub const CERTREQ_AUTHORITIES_MAX: usize = 512;
/// Most DNS servers, subnets or domains taken from one configuration payload.
pub const CONFIG_ENTRIES_MAX: usize = 64;
/// Longest DNS domain taken from a configuration payload, in bytes.
pub const DOMAIN_MAX: usize = 255;

/// One identity may have CREATE_CHILD_SA requests answered so often, in the long run: each may cost a key agreement.
pub const CREATE_CHILD_EVERY: Duration = Duration::from_millis(250);
/// As many as this at once: a site with many CHILD SAs rekeys all of them in one minute.
pub const CREATE_CHILD_BURST: u32 = 128;

/// One identity may log in so often, in the long run, and resume so often besides (each lineage, where several devices share the identity):
/// each costs a signature or a write, and some lines in the log.
pub const BEGIN_EVERY: Duration = Duration::from_secs(1);
/// As many as this at once, as a device on the edge of a network may come and go often; logins, where several devices share the identity, as
/// many as they may have sessions: all may come back at once.
pub const BEGIN_BURST: usize = 256;
/// Paces that are remembered before those that make no difference any more are looked for.
pub const PACES_SWEPT_AT: usize = 1_024;
/// Handshakes of one identity that may wait at once, for the status of certificates or for our key to sign, and as many besides for the
/// store; more where several devices share the identity, as above.
pub const HANDSHAKES_WAITING: usize = 4;
/// Lines in the log that one session can cause by moving, or by breaking the protocol, in the long run.
pub const LINES_EVERY: Duration = Duration::from_secs(2);
/// As many as this at once.
pub const LINES_BURST: u32 = 8;

/// Numbers in nonces that one router gets: it can hand the keys on to as many routers one after the other as this can be halved.
pub const NODES_OF_ROUTER: u32 = 16;
/// A router's keys are good for no longer than this, also where their SA lives longer.
pub const KEY_LIFETIME_MOST: Duration = Duration::from_secs(86_400);
/// New keys for a CHILD SA are made no sooner after the last ones, however often its device moves. So long after, new keys that the device
/// has not agreed to are asked for again; twice as long each time.
pub const KEY_RENEWAL_EVERY: Duration = Duration::from_secs(10);
/// How often that doubles: to some ten minutes. As often the time between new keys of a device doubles which one router causes, by what it
/// says of where keys and device are; each ten minutes without forgive one doubling.
pub const KEY_RENEWAL_DOUBLED_MOST: u32 = 6;
/// One router may ask for keys so often, in the long run: each answer uses up numbers, and may move where a device is taken to be.
pub const KEY_REQUEST_EVERY: Duration = Duration::from_millis(100);
/// As many as this at once, as after a restart of the router.
pub const KEY_REQUEST_BURST: u32 = 1_024;
/// A neighbour may ask a router for keys so often, in the long run, as devices move between the two: what it guesses of SPIs is in vain.
pub const KEY_MIGRATE_EVERY: Duration = Duration::from_millis(100);
/// As many as this at once, as when a bus drives by.
pub const KEY_MIGRATE_BURST: u32 = 64;
/// Requests for keys that wait for their turn on one IKE SA; packets of any sender cause them.
pub const KEY_ASKS_WAITING: usize = 64;
/// Keys of SAs that are gone which routers are still to be told to forget; beyond, the oldest are left to their lifetime.
pub const KEYS_TO_REVOKE_MAX: usize = 4_096;

/// IKE SAs that silent gateways have left, and that are known here; of more, the rest log in anew.
pub const ORPHANS_MOST: usize = 65_536;
/// The store is asked for one of them so often, in the long run: each costs it a write.
pub const CLAIM_EVERY: Duration = Duration::from_millis(2);
/// As many as this at once.
pub const CLAIM_BURST: u32 = 256;
/// An IKE SA without a lifetime is forgotten after this by the store, unless it is written again.
pub const LEFT_FOR: Duration = Duration::from_secs(7 * 86_400);

/// Longest ticket that is opened or kept, in bytes. Ours stay below 1 kB; libreswan's are 856 bytes.
pub const TICKET_MAX: usize = 4_096;
/// Ticket keys that are kept after their successor took over. With daily rotation tickets live up to a week.
pub const TICKET_KEYS_RETIRED_MAX: usize = 8;
/// No ticket lives longer: as long as keys of daily rotation are kept.
pub const TICKET_LIFETIME_MOST: Duration = Duration::from_secs(TICKET_KEYS_RETIRED_MAX as u64 * 86_400);
/// Lineages of one holder that are kept: sessions of an identity, on one device or several, that can be resumed.
pub const LINEAGES_PER_HOLDER: usize = 32;
/// After so many resumed sessions in a row that heard nothing from the gateway, the device takes the full exchange: the gateway counts
/// a ticket as long as it knows the session that gave it or the one before, and not one that came two sessions later.
pub const UNHEARD_MOST: u8 = 2;
/// A lineage stays on record this long after its last ticket: tickets that are granted meanwhile need no write.
pub const LINEAGE_KEPT_BEYOND: Duration = Duration::from_secs(600);
/// How long the store may take to say whether a ticket counts, or to note that a session has ended.
pub const STORE_PATIENCE: Duration = Duration::from_secs(2);
/// So long a store that gateways share remembers that a lineage has ended which it does not know yet: a gateway that is cut off from it for
/// longer has ended its sessions long before.
pub const ENDED_KEPT: Duration = Duration::from_secs(7 * 86_400);
/// Datagrams that wait meanwhile, of one session.
pub const WAITING_MAX: usize = 64;
/// Longest identity or name inside a ticket, in bytes: as long as a ticket can be.
pub const TICKET_IDENTITY_MAX: usize = TICKET_MAX;

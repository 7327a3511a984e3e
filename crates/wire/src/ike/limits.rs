//! Every limit on what a peer may make this node hold while it reads one IKE message.
//!
//! Owns numbers only. Each is well above what real peers send and small enough that a hostile message, which is at most
//! 64 KiB, cannot make work or memory that is out of proportion to its size.

/// The longest message: what fits in a UDP datagram.
pub const MAX_MESSAGE: usize = 65_535;
/// Payloads in one message (outside and inside the encrypted payload counted separately). A full IKE_AUTH with a long
/// certificate chain and all the notifications of the RFCs has under 40.
pub const MAX_PAYLOADS: usize = 128;
/// Proposals in one SA payload. The field allows 255; clients with every suite enabled send about 20.
pub const MAX_PROPOSALS: usize = 64;
/// Attributes of one transform. One (the key length) is defined (RFC 7296 section 3.3.5).
pub const MAX_TRANSFORM_ATTRIBUTES: usize = 8;
/// Traffic selectors in one payload. The field allows 255.
pub const MAX_TRAFFIC_SELECTORS: usize = 255;
/// Attributes in one configuration payload: addresses, name servers, domains and split routes.
pub const MAX_CONFIG_ATTRIBUTES: usize = 512;
/// SPIs in one delete payload.
pub const MAX_DELETED_SPIS: usize = 4_096;
/// Fragments of one message (RFC 7383): 64 KiB in fragments of 576-byte datagrams.
pub const MAX_FRAGMENTS: u16 = 128;

/// Shortest nonce, in bytes (RFC 7296 section 3.9).
pub const MIN_NONCE: usize = 16;
/// Longest nonce, in bytes (RFC 7296 section 3.9).
pub const MAX_NONCE: usize = 256;

//! What a sender of HIP packets may choose, bounded. Owns the numbers.

/// The longest packet, in bytes: the header length field counts 8-byte units after the first in one byte.
pub const MAX_PACKET: usize = 2048;
/// Suites of one list that are looked at.
/// "[...] a recipient MUST be prepared to handle received transport parameters that contain more than six Cipher IDs by accepting
/// the first six Cipher IDs and dropping the rest" (RFC 7401 section 5.2.8)
pub const MAX_SUITES: usize = 6;
/// Locators of one LOCATOR_SET that are looked at.
pub const MAX_LOCATORS: usize = 32;

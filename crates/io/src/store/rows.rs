//! A lease and a denial as a store keeps them: in SQLite, or in no file where that is left out. Owns these types alone.

use dormouse_sansio::UnixTime;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whose a lease is: an identity as one connection knows it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StoredLessee {
    /// Name of the connection.
    pub connection: String,
    /// The identification type of RFC 7296, section 3.5, and its data.
    pub identity: (u8, Vec<u8>),
    /// Which of the devices that share the identity; 0 if it is one's alone.
    pub device: u32,
}

/// One lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredLease {
    /// Whose.
    pub holder: StoredLessee,
    /// Its IPv4 address.
    pub v4: Option<Ipv4Addr>,
    /// Its IPv6 address.
    pub v6: Option<Ipv6Addr>,
    /// When it was last in use.
    pub used: UnixTime,
}

/// A lease of schema version 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OldLease {
    /// Who, as displayed.
    pub identity: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// One denial.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredDenial {
    /// A name or a fingerprint, in the notation in which it is displayed.
    pub whom: String,
    /// Since when.
    pub since: UnixTime,
}

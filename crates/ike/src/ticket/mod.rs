//! Tickets of session resumption (RFC 5723, the standard that grew out of IPsec Gateway Failover): the gateway seals what it
//! needs to know about an IKE SA, the client keeps the sealed bytes, and the gateway keeps nothing. Owns the format, the keys
//! and the rules by which one counts on the gateway's side, and the stored form on the client's; must never run an exchange,
//! read a clock or touch a disk.
//!
//! # What protects what
//!
//! A ticket is sealed with AES-256-GCM under a key that only the gateway has; the key's id stands before it in clear and is
//! authenticated. The client never sees inside; it stores SK_d and the rest of its own state beside the ticket.
//!
//! **Stolen ticket.** The ticket travels in clear in IKE_SESSION_RESUME. An observer who copies it has no secret of it, and cannot
//! compute the new SKEYSEED (RFC 5723 section 9.1). All it can do is make the gateway open one ticket and hold one half-open SA,
//! which cookies and the half-open limits bound as for any first message. A ticket is therefore not used up when it is presented,
//! but when its owner's first authentic packet has come ([`lineage`]).
//!
//! **Copied storage.** A copy of the client's disk is the client, until one of both resumes: a ticket is accepted once, and with it
//! every earlier one of its session ends ([`lineage`]). The refusal of the other one is logged with where it came from.
//!
//! **What a ticket gives away.** [`Form::Dormouse`]: RS, which follows from SK_d of the session that got it and leads nowhere back,
//! and a key exchange of its own for each resumption, so that neither a ticket key nor a ticket opens earlier or later traffic.
//! [`Form::Plain`]: SK_d, as RFC 5723 has it, which opens the session that it was made for and the resumed one, until a
//! rekeying with a key exchange. Ticket keys rotate, live no longer than the tickets under them, and are wiped.
//!
//! **Authorization.** A ticket carries what admitted its owner ([`crate::admission::Credential`]), which is judged anew by the configuration of
//! today at each resumption; the client's stored form carries the fingerprint of the client's own configuration.
//!
//! **Forged or altered ticket.** AES-GCM. **Endless session.** The time of the last full authentication is carried from ticket to
//! ticket, so that reauthentication falls due as if nothing had been resumed ([`lifetime`]). **Identity privacy.** Identities
//! are inside; the content is padded, so that the length says little.
//!
//! **Restart.** Keys are exportable; the driver stores them, readable by itself alone, before it acts on them.

mod client;
mod content;
pub mod counted;
mod keys;
pub mod lineage;
#[cfg(test)]
mod tests;

use core::time::Duration;

use dormouse_sansio::UnixTime;

pub use crate::codec::TicketFormatError;
pub use client::ClientTicket;
pub(crate) use client::fingerprint;
pub use content::{Form, TicketChild, TicketContent};
pub use keys::{KeyExportError, SealError, SharedKey, TicketKeys};

/// Why a presented ticket is refused. The peer learns TICKET_NACK and nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TicketRefusal {
    /// Too short or too long to be ours.
    #[error("ticket of {0} bytes")]
    Length(usize),
    /// Another version of the format.
    #[error("ticket of unknown format {0}")]
    Version(u8),
    /// The key has been retired, or is another gateway's.
    #[error("ticket under unknown key {0:016x}")]
    UnknownKey(u64),
    /// Forged or damaged.
    #[error("ticket is not authentic")]
    Unauthentic,
    /// Authentic, but not understood: made by another release.
    #[error("ticket content not understood: {0}")]
    Content(#[from] TicketFormatError),
    /// Its time is over.
    #[error("ticket expired {0} s ago")]
    Expired(u64),
    /// Issued in the future: the clock was set back.
    #[error("ticket issued {0} s in the future")]
    NotYetValid(u64),
}

/// How long a ticket may live: as configured, but neither beyond the next reauthentication nor beyond the certificates that the
/// session rests on (`vouched_until`).
///
/// > The lifetime of the ticket sent by the gateway SHOULD be the minimum of the IKE SA lifetime (per the gateway's local
/// > policy) and its re-authentication time, according to RFC 4478. (RFC 5723, section 6.2)
///
/// Zero means that no ticket is due: reauthentication comes first.
/// The lifetime of an IKE SA does not enter: what bounds a sleep is reauthentication, and an SA that is rekeyed every hour may
/// be slept through for a day.
#[must_use]
pub fn lifetime(
    configured: Duration,
    reauthenticate: Option<Duration>,
    authenticated: UnixTime,
    vouched_until: Option<UnixTime>,
    now: UnixTime,
) -> Duration {
    let left = reauthenticate.map(|after| after.saturating_sub(now.saturating_since(authenticated)));
    let vouched = vouched_until.map(|until| until.saturating_since(now));
    let seconds = [left, vouched].into_iter().flatten().fold(configured, Duration::min).as_secs();
    Duration::from_secs(seconds.min(u64::from(u32::MAX)))
}

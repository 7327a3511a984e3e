//! Tickets of session resumption (RFC 5723, the standard that grew out of IPsec Gateway Failover): the gateway seals what it
//! needs to know about an IKE SA, the client keeps the sealed bytes, and the gateway keeps nothing. Owns the format, the keys
//! and the memory of spent tickets on the gateway's side, and the stored form on the client's; must never run an exchange,
//! read a clock or touch a disk.
//!
//! # What protects what
//!
//! A ticket is sealed with AES-256-GCM under a key that only the gateway has; the key's id stands before it in clear and is
//! authenticated. The client never sees inside; it stores SK_d and the rest of its own state beside the ticket.
//!
//! **Stolen ticket.** The ticket travels in clear in IKE_SESSION_RESUME. Whoever copies it there has no SK_d, cannot compute the
//! new SKEYSEED, and fails in IKE_AUTH (section 9.1). All it can do is make the gateway open one ticket and hold one half-open SA,
//! which cookies and the half-open limits bound as for any first message. Therefore a ticket is *checked* against the
//! memory of spent tickets when it is presented, but *spent* only when IKE_AUTH has proved possession of SK_d: an eavesdropper
//! who presents a copy first cannot take the session away from its owner.
//!
//! **Replay.** A recorded resumption cannot be replayed, because the gateway's nonce and SPI are fresh and go into all keys.
//! Accepting a ticket once ([`TicketGuard`]) guards against something else: a copy of the client's *storage*. After the
//! owner has resumed, the copy is worthless; and if the thief comes first, the owner's refused ticket shows up as
//! a refusal with the reason [`TicketRefusal::Spent`], which is logged. The memory is bounded; when it is full, nothing more is
//! accepted, and clients take the full exchange.
//!
//! **Forward secrecy.** Resumption derives its keys from SK_d and public nonces: there is no fresh Diffie-Hellman. Whoever
//! learns a ticket key can open every recorded ticket that was sealed under it, and from SK_d follow the session it was
//! made for (its first CHILD_SA, and successors without a key exchange of their own) and the resumed one. Hence ticket keys
//! rotate, live no longer than the tickets under them, and are wiped: the window of exposure is rotation plus ticket
//! lifetime, and it is a setting. Rekeying with a key exchange ends the exposure of what follows; RFC 5723 puts SK_d itself into
//! the derivation, so that a conforming gateway cannot do better.
//!
//! **Revoked session.** When an operator ends a peer's session, the peer may keep its ticket, and others that it never used. All of
//! them are refused ([`TicketRefusal::Revoked`]): those whose chain of resumptions began with an authentication before that moment. What
//! remains to the peer is to authenticate fully, if its credentials are still good.
//!
//! **Forged or altered ticket.** AES-GCM. **Endless session.** The time of the last full authentication is carried from ticket to
//! ticket, so that reauthentication falls due as if nothing had been resumed ([`lifetime`]). **Identity privacy.** Identities
//! are inside; the content is padded, so that the length says little.
//!
//! **Restart and clusters.** Keys and spent records are exportable; the driver stores them, readable by itself alone, before it
//! acts on them. Gateways that share both accept each other's tickets, which RFC 5723 leaves out of scope.

mod client;
mod codec;
mod content;
mod guard;
mod keys;
#[cfg(test)]
mod tests;

use core::time::Duration;

use dormouse_sansio::UnixTime;

pub use client::ClientTicket;
pub use codec::TicketFormatError;
pub(crate) use codec::{In, Out};
pub(crate) use content::Holder;
pub use content::{TicketChild, TicketContent, TicketId};
pub use guard::{SpentRecord, TicketGuard};
pub use keys::{KeyExportError, TicketKeys};

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
    /// Used before.
    #[error("ticket was used before")]
    Spent,
    /// The gateway's operator has ended the session that it stems from.
    #[error("ticket was revoked when its session was ended")]
    Revoked,
    /// The memory of spent tickets is full.
    #[error("memory of {0} spent tickets is full")]
    MemoryFull(usize),
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

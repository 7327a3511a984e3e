//! What can go wrong, in words that name the culprit and both values. Owns the error types of the API; must never hold a
//! secret: errors are printed.

use core::net::SocketAddr;
use core::time::Duration;

use dormouse_crypto::cert::Identity;
use dormouse_wire::ike::{Gateway, NotifyType};

use crate::auth::AuthError;
use crate::credential::Refusal;
use crate::proposal::{BadChoice, Mismatch};
use crate::selectors::SelectorError;

/// Why an IKE SA or a CHILD SA could not be negotiated.
#[derive(Debug, thiserror::Error)]
pub enum NegotiationError {
    /// Nothing came back, or nothing that was authentic.
    #[error("{remote} did not answer the {exchange} request within {after:?} ({sent} transmissions)")]
    Timeout {
        /// Where the requests went.
        remote: SocketAddr,
        /// Which exchange.
        exchange: &'static str,
        /// How long we waited.
        after: Duration,
        /// How often the request was sent.
        sent: u32,
    },
    /// We found no combination in the peer's proposals that our configuration accepts.
    #[error("no {what} proposal is acceptable: {mismatch}")]
    NoProposalChosen {
        /// `IKE` or `ESP`.
        what: &'static str,
        /// What was offered and what would be acceptable.
        mismatch: Box<Mismatch>,
    },
    /// The peer accepts none of our proposals. It does not say what it would accept.
    #[error("the peer accepts none of our {what} proposals; offered: {offered}")]
    ProposalsRefused {
        /// `IKE` or `ESP`.
        what: &'static str,
        /// What we offered.
        offered: String,
    },
    /// The peer chose something that we did not offer.
    #[error("the peer's choice of an {what} proposal is unusable: {why}")]
    WrongProposal {
        /// `IKE` or `ESP`.
        what: &'static str,
        /// What is wrong with it.
        why: BadChoice,
    },
    /// The peer does not believe that we are who we say.
    #[error(
        "the peer refused our authentication as {local_id} (wrong key, unknown identity, or untrusted certificate there; or it wants EAP or another PPK)"
    )]
    RefusedByPeer {
        /// Who we said we are.
        local_id: Identity,
    },
    /// The peer cannot take us now (TEMPORARY_FAILURE). It has not said that our proof is wrong.
    #[error("the peer cannot take us now: it limits sessions, or cannot ask the servers that know its users")]
    Busy,
    /// The peer did not prove to be who it should be.
    #[error("the peer's authentication failed: {0}")]
    Authentication(Box<AuthError>),
    /// Our key cannot sign in any way that the peer takes: the exchange ends before the peer sees our identity.
    #[error("we cannot authenticate to this peer (local.key): {0}")]
    CannotSign(Box<AuthError>),
    /// The peer is not one that the configuration accepts.
    #[error("the peer is {got}, not {expected}")]
    WrongIdentity {
        /// What the configuration accepts.
        expected: String,
        /// What the peer proved, or claimed.
        got: String,
    },
    /// No configured connection fits what the peer claims to be and how it proves it.
    #[error("no connection for a peer {claimed} that asks for {asked}, authenticating by {method}{}", others(*by_eap))]
    NoConnection {
        /// The peer's IDi.
        claimed: String,
        /// The IDr it asked for, or `anyone`.
        asked: String,
        /// Its method.
        method: &'static str,
        /// Whether a connection would take it by EAP alone.
        by_eap: bool,
    },
    /// The peer has proved who it is, and is not admitted.
    #[error("not admitted: {0}")]
    NotAdmitted(#[from] Refusal),
    /// EAP has failed: the other end has not proved itself, or says that we have not.
    #[error("EAP failed: {0}")]
    Eap(Box<dormouse_eap::Error>),
    /// Whom the caller says that it is by EAP is not let in, with whatever password.
    #[error("not admitted: {0}; the password was not looked at")]
    UserRefused(Refusal),
    /// A RADIUS server does not let the user in.
    #[error("the RADIUS server {0}")]
    Radius(String),
    /// No RADIUS server could be asked.
    #[error("no RADIUS server answers: {0}")]
    RadiusSilent(String),
    /// The gateway has refused us before it asked for a proof by EAP.
    #[error(
        "the peer refused {local_id} before it asked for a proof of {user}: it takes no users by EAP, or has another name than remote.id"
    )]
    NoEap {
        /// Who we said we are.
        local_id: Identity,
        /// Who was to prove that it is he.
        user: String,
    },
    /// The traffic selectors of the two ends have nothing in common.
    #[error("traffic selectors have nothing in common: offered {offered}, acceptable {acceptable}")]
    TrafficSelectors {
        /// What was offered.
        offered: String,
        /// What would be acceptable; `unknown to us` when the peer refused.
        acceptable: String,
    },
    /// The peer's narrowed traffic selectors are unusable.
    #[error("unusable traffic selectors: {0}")]
    WrongSelectors(#[from] SelectorError),
    /// The gateway has no address left, or the configuration payload is missing or unacceptable.
    #[error("no inner address: {0}")]
    Addresses(&'static str),
    /// The two ends have no post-quantum pre-shared key (PPK) in common, and one of them requires it.
    #[error("no common post-quantum pre-shared key: {0}")]
    Ppk(&'static str),
    /// The connection has no CHILD SAs, or makes them afterwards alone, and the peer wants one at once.
    #[error(
        "the peer makes no IKE SA without a CHILD SA (RFC 6023); its `childless`, or ike.childless = \"prefer\" here"
    )]
    Childless,
    /// The gateway sends us to another one, where we may go (RFC 5685).
    #[error("the gateway sends us to {0}")]
    Redirected(Gateway),
    /// The gateway sends us to another one, where we may not go.
    #[error("the gateway sends us to {0}, which ike.redirects does not name")]
    RedirectRefused(Gateway),
    /// The two ends do not agree on the zones of the CHILD SA, and one of them requires them.
    #[error("no common zones: {0}")]
    Zones(&'static str),
    /// Another identity is reached at this inner address.
    #[error("{0} is the inner address of another peer")]
    AddressHeld(core::net::IpAddr),
    /// The gateway does not take our ticket any more (RFC 5723 TICKET_NACK). Connect anew.
    #[error("the gateway refused the ticket")]
    TicketRefused,
    /// We do not take the peer's ticket. The peer learns TICKET_NACK alone.
    #[error("ticket not accepted: {0}")]
    TicketRejected(String),
    /// The ticket's lifetime is over, or the sessions that were resumed last heard nothing from the gateway; it was not sent.
    #[error("the ticket has expired")]
    TicketExpired,
    /// The configuration says something else today about who may be at either end; the ticket was not sent.
    #[error("the configuration has changed since the ticket was given")]
    TicketOutdated,
    /// The gateway may not be believed today by the certificates that it showed when the ticket was given; the ticket was not used.
    #[error("the ticket is not used: {0}")]
    TicketUntrusted(Refusal),
    /// The gateway says, under keys that only it can have, that the ticket does not count.
    #[error(
        "the ticket does not count any more: another one of its session was used, or the session has ended"
    )]
    TicketSuperseded,
    /// The peer told us that it does not know the SA.
    #[error("the peer does not know the SA (INVALID_IKE_SPI)")]
    UnknownSpi,
    /// The peer wants another Diffie-Hellman group, but not one of ours, or it keeps changing its mind.
    #[error("the peer asks for key exchange group {wanted}; offered: {offered}")]
    KeyExchangeGroup {
        /// Its wish, by IANA number.
        wanted: u16,
        /// What we offered.
        offered: String,
    },
    /// The peer keeps asking for cookies.
    #[error("the peer asked for a cookie {0} times")]
    Cookies(u8),
    /// The peer refused with a notification.
    #[error("the peer answered {0}")]
    Notified(String),
    /// The peer answered with something that does not make sense at this point.
    #[error("unusable {exchange} message from the peer: {what}")]
    Malformed {
        /// Which exchange.
        exchange: &'static str,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Encryption, key agreement or signing failed here.
    #[error("cryptography failed: {0}")]
    Crypto(String),
    /// `close` was called before the SA was established.
    #[error("cancelled")]
    Cancelled,
}

const fn others(by_eap: bool) -> &'static str {
    if by_eap { "; who may be meant is taken by EAP alone (remote.auth)" } else { "" }
}

impl From<AuthError> for NegotiationError {
    fn from(error: AuthError) -> Self {
        Self::Authentication(Box::new(error))
    }
}

/// Why a datagram was dropped. No state has changed, except for counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Discard {
    /// Not an IKE message.
    #[error("malformed message")]
    Malformed,
    /// Another major version of IKE.
    #[error("unsupported IKE version")]
    Version,
    /// Its SPIs belong to no SA.
    #[error("unknown SPI")]
    UnknownSpi,
    /// Its checksum is wrong: forged, damaged, or sealed with other keys.
    #[error("not authentic")]
    NotAuthentic,
    /// Outside of the message-id window.
    #[error("message id outside of the window")]
    OutsideWindow,
    /// An answer to nothing that is under way.
    #[error("answer to no request")]
    UnexpectedResponse,
    /// An exchange that makes no sense in this state.
    #[error("exchange type invalid in this state")]
    InappropriateExchange,
    /// In clear where only protected messages are acceptable.
    #[error("unprotected message")]
    Unprotected,
    /// A first message without the cookie that the load demands. A cookie was sent back.
    #[error("no valid cookie")]
    NoCookie,
    /// A first message without the solution of a puzzle that the load demands. A puzzle was sent back.
    #[error("no solution of a puzzle")]
    NoPuzzle,
    /// The sender of a first message was given a puzzle and has not solved it, and did not draw the lot of those who are served
    /// nevertheless.
    #[error("puzzle not solved")]
    Unsolved,
    /// Too many half-open SAs.
    #[error("too many half-open SAs")]
    TooManyHalfOpen,
    /// Too many SAs.
    #[error("too many SAs")]
    TooManySas,
    /// A fragment that does not fit its siblings, or too many of them.
    #[error("unusable fragment")]
    Fragment,
    /// No configured connection is a responder.
    #[error("no connection accepts initiators")]
    NoResponder,
    /// Unacceptable, and an error notification said so.
    #[error("refused with a notification")]
    Refused,
}

impl Discard {
    /// The name under which [`crate::Stats::discards`] counts it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Version => "version",
            Self::UnknownSpi => "unknown_spi",
            Self::NotAuthentic => "not_authentic",
            Self::OutsideWindow => "outside_window",
            Self::UnexpectedResponse => "unexpected_response",
            Self::InappropriateExchange => "inappropriate_exchange",
            Self::Unprotected => "unprotected",
            Self::NoCookie => "no_cookie",
            Self::NoPuzzle => "no_puzzle",
            Self::Unsolved => "puzzle_not_solved",
            Self::TooManyHalfOpen => "too_many_half_open",
            Self::TooManySas => "too_many_sas",
            Self::Fragment => "fragment",
            Self::NoResponder => "no_responder",
            Self::Refused => "refused",
        }
    }
}

impl NegotiationError {
    /// What a caller learns that is not let in: that its authentication failed, or that it may be let in later (RFC 7296 section 2.25).
    pub(crate) const fn told(&self) -> NotifyType {
        match self {
            Self::NotAdmitted(Refusal::TooOften(_) | Refusal::Waiting(_) | Refusal::Signatures) => {
                NotifyType::TemporaryFailure
            }
            _ => NotifyType::AuthenticationFailed,
        }
    }

    /// What was offered, and what would have been accepted, as far as it is known: in the words of the configuration.
    #[must_use]
    pub fn offer(&self) -> (Vec<String>, Vec<String>) {
        let list = |text: &str| text.split(", ").filter(|t| !t.is_empty()).map(str::to_owned).collect();
        match self {
            Self::NoProposalChosen { mismatch, .. } => {
                (mismatch.offered.clone(), mismatch.acceptable.clone())
            }
            Self::ProposalsRefused { offered, .. } => (list(offered), Vec::new()),
            Self::KeyExchangeGroup { offered, wanted } => {
                (list(offered), vec![format!("key exchange group {wanted}")])
            }
            // One side is "unknown to us" where the peer refused without a word.
            Self::TrafficSelectors { offered, acceptable } => {
                let acceptable = if acceptable.starts_with(UNKNOWN) { Vec::new() } else { list(acceptable) };
                (list(offered), acceptable)
            }
            _ => (Vec::new(), Vec::new()),
        }
    }
}

/// What a peer that refuses traffic selectors would have accepted.
const UNKNOWN: &str = "unknown to us";

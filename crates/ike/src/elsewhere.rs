//! Users whom others know: a gateway passes EAP on between a caller and a RADIUS server (RFC 3579), which its driver speaks with. Owns what the two say to each
//! other about one conversation; must never judge it.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use dormouse_crypto::Secret;
use dormouse_keying::SaId;

/// What a caller says to who knows it. The first of a conversation is its EAP-Response/Identity.
#[derive(Debug)]
pub struct Question {
    /// The half-open SA: names the conversation.
    pub sa: SaId,
    /// The connection that stands in.
    pub connection: String,
    /// Our address that the caller speaks with.
    pub local: IpAddr,
    /// Where the caller is, as its IKE_SA_INIT has proved: the sources of later packets can be forged.
    pub from: IpAddr,
    /// Its EAP packet.
    pub response: Vec<u8>,
}

/// What is said to it: given to [`crate::Endpoint::told_elsewhere`].
pub enum Verdict {
    /// It is not over: this EAP packet is for the caller.
    Continue(Vec<u8>),
    /// The caller is who it says, as far as the server is concerned.
    Accepted(Box<Accepted>),
    /// The caller is refused.
    Refused {
        /// EAP-Failure.
        packet: Vec<u8>,
        /// For the log: which server, and why.
        why: String,
    },
    /// Nobody could be asked. The caller may come again.
    Unanswered(
        /// For the log: which servers, and what became of each.
        String,
    ),
}

/// See [`Verdict::Accepted`].
pub struct Accepted {
    /// EAP-Success.
    pub packet: Vec<u8>,
    /// The user's name at the server.
    pub user: String,
    /// The conversation's key (MSK).
    pub key: Secret,
    /// What is allowed.
    pub granted: Granted,
}

/// What a server allows a user, as far as it is IKE's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Granted {
    /// How long the session may last, with all its resumptions.
    pub lasts: Option<Duration>,
    /// The inner address that the user is to have.
    pub address: Option<Ipv4Addr>,
}

impl fmt::Debug for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Continue(packet) => write!(f, "Continue({} bytes)", packet.len()),
            Self::Accepted(accepted) => write!(f, "Accepted({:?}, {:?})", accepted.user, accepted.granted),
            Self::Refused { why, .. } => write!(f, "Refused({why:?})"),
            Self::Unanswered(why) => write!(f, "Unanswered({why:?})"),
        }
    }
}

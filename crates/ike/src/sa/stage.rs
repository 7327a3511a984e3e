//! Which part of its life an established SA is in. Owns the states and what exists in one of them alone; must never send.

use core::time::Duration;

use dormouse_sansio::{Instant, Path};

use super::resumed::{Confirming, Tentative};
use super::syncing::Syncing;
use crate::event::CloseReason;

/// How long a replaced SA waits for the peer's Delete.
pub(super) const LINGER: Duration = Duration::from_secs(30);
/// How long the Delete of an SA is repeated.
pub(super) const CLOSE_FOR: Duration = Duration::from_secs(5);

/// See the module's text.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Exchanges run and CHILD SAs carry traffic.
    Live(Standing),
    /// Resumed in one round trip, and not confirmed by the client yet: nothing is sent but the answer.
    Tentative(Box<Tentative>),
    /// Taken over from another gateway; message ids are not agreed on yet, and nothing else is sent or heard.
    Syncing(Box<Syncing>),
    /// The peer has deleted it, and gets the answer once its tickets are on record as void.
    Leaving(Box<Leaving>),
    /// The peer is being told that it is over.
    Closing { reason: CloseReason, until: Instant },
    /// A successor has taken over everything, the name too; the SA waits for its deletion. `until` is set as soon as that can come.
    Superseded { until: Option<Instant> },
    /// Made by the peer's rekeying while ours was under way: which successor inherits is not decided yet.
    Heir,
    /// Over, and still to be taken down; `named` if its end is an event.
    Over { reason: CloseReason, named: bool },
}

/// See [`Stage::Leaving`].
#[derive(Debug)]
pub(crate) struct Leaving {
    /// The answer is due by then, with or without the store.
    pub(crate) until: Instant,
    /// Where the answer goes.
    pub(crate) path: Path,
    pub(crate) answer: Vec<Vec<u8>>,
    pub(crate) reason: CloseReason,
}

/// What is known of the peer's view of a live SA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// Both ends use it.
    Heard,
    /// The peer's rekeying made it and nothing has come on it yet: our answer may be lost, and the peer may not know it.
    Unheard,
    /// We resumed it in one round trip: the gateway uses it after our first authentic packet.
    Confirming(Confirming),
}

impl Stage {
    /// When the SA goes, whether or not the peer has said anything.
    pub(super) fn until(&self) -> Option<Instant> {
        match self {
            Self::Closing { until, .. } => Some(*until),
            Self::Superseded { until } => *until,
            Self::Leaving(leaving) => Some(leaving.until),
            Self::Live(_) | Self::Tentative(_) | Self::Syncing(_) | Self::Heir | Self::Over { .. } => None,
        }
    }

    /// Whether the driver knows this SA by its name, and hears of its end.
    pub(super) fn bears_name(&self) -> bool {
        match self {
            Self::Live(_)
            | Self::Tentative(_)
            | Self::Syncing(_)
            | Self::Leaving(_)
            | Self::Closing { .. } => true,
            Self::Superseded { .. } | Self::Heir => false,
            Self::Over { named, .. } => *named,
        }
    }

    /// Why a closing SA goes; `other` if it is not closing.
    pub(super) fn reason_or(&self, other: CloseReason) -> CloseReason {
        match self {
            Self::Closing { reason, .. } | Self::Over { reason, .. } => *reason,
            Self::Leaving(leaving) => leaving.reason,
            Self::Live(_) | Self::Tentative(_) | Self::Syncing(_) | Self::Superseded { .. } | Self::Heir => {
                other
            }
        }
    }
}

//! Whether the node may send. Owns this one fact: that a ladder is offline meanwhile, and that a key manager has no timer, follows from it.
//!
//! It is another fact than the state of the radio, which is the sleeper's ([`crate::sleeper`]): sending stops before the radio is switched
//! off, is allowed again only once the ways to the gateways were looked for with the radio on, and stops without any order to the
//! radio where the user or the machine puts the device to sleep.

use dormouse_sansio::Instant;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sending {
    Allowed,
    /// From [`crate::Node::suspend`] to [`crate::Node::resume`].
    Stopped {
        since: Instant,
    },
}

impl Sending {
    pub(crate) const fn is_allowed(self) -> bool {
        matches!(self, Self::Allowed)
    }

    /// Allows it. Returns since when it was stopped, if it was.
    pub(crate) const fn allow(&mut self) -> Option<Instant> {
        match core::mem::replace(self, Self::Allowed) {
            Self::Allowed => None,
            Self::Stopped { since } => Some(since),
        }
    }
}

//! Which engine a tunnel is with ([`crate::loan`]). Owns the states, and the keys that are kept for a loan.

use dormouse_crypto::Secret;
use dormouse_sansio::Instant;

use crate::lifetime::Usage;

/// What is kept of a tunnel so that it can be lent.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) inbound: Secret,
    pub(crate) outbound: Secret,
    /// So often it was lent to an engine with random IVs.
    pub(crate) loans: u8,
    /// It is not busy before.
    pub(crate) pause: Instant,
    /// Since when, and from how many, packets are counted.
    pub(crate) since: (Instant, u64),
}

/// Which engine a tunnel is with.
#[derive(Debug, Default)]
pub(crate) enum Engine {
    /// This one, always: its keys were not kept.
    #[default]
    Ours,
    /// This one.
    Here(Box<Keys>),
    /// Another one.
    Lent {
        keys: Box<Keys>,
        /// What it has said so far.
        told: Usage,
        /// The last number of the SA.
        last: u64,
    },
    /// It came back without its numbers.
    Lost,
}

impl Keys {
    pub(crate) fn new(inbound: &Secret, outbound: &Secret) -> Box<Self> {
        Box::new(Self {
            inbound: inbound.clone(),
            outbound: outbound.clone(),
            loans: 0,
            pause: Instant::ZERO,
            since: (Instant::ZERO, 0),
        })
    }
}

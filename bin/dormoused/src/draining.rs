//! What there is of a gateway that is being drained: who was told, and what is on its way. Owns that; what is done next is [`crate::drain`]'s.

use dormouse_ike::ticket::lineage::Name;
use dormouse_io::control::ClientId;
use dormouse_keying::SaId;
use dormouse_sansio::Instant;
use std::collections::BTreeSet;
use std::time::Duration;

/// A gateway that gives its devices away.
#[derive(Debug)]
pub(crate) struct Drain {
    /// Who has asked for it.
    pub(crate) client: ClientId,
    /// How long clients that are awake have, from when it is known where they can go.
    pub(crate) within: Duration,
    /// Until then; before, until then the database has to say where that is.
    pub(crate) until: Instant,
    pub(crate) look: Instant,
    /// The database has said where devices can go.
    pub(crate) begun: bool,
    /// Sessions whose clients were told, and those of clients that go nowhere.
    pub(crate) told: BTreeSet<SaId>,
    pub(crate) deaf: BTreeSet<SaId>,
    /// Devices that are being handed over.
    pub(crate) under_way: BTreeSet<Name>,
    /// Those that could not be.
    pub(crate) kept: BTreeSet<Name>,
    pub(crate) handed_over: usize,
    /// Clients that are awake are no longer waited for.
    pub(crate) sleepers: bool,
}

impl Drain {
    /// One that begins: until then the database has to answer; `look`: when it is looked at first.
    pub(crate) fn new(client: ClientId, within: Duration, until: Instant, look: Instant) -> Self {
        Self {
            client,
            within,
            until,
            look,
            begun: false,
            told: BTreeSet::new(),
            deaf: BTreeSet::new(),
            under_way: BTreeSet::new(),
            kept: BTreeSet::new(),
            handed_over: 0,
            sleepers: false,
        }
    }
}

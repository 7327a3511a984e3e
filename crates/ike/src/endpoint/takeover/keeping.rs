//! Which IKE SAs the store has been told of, and what of them. Owns the comparison: the store hears when something has changed that another
//! gateway needs, and of no message besides. Must never hold a key.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_keying::SaId;
use dormouse_sansio::Path;

use crate::keys::Spis;
use crate::sa::IkeSa;
use crate::ticket::lineage::Name;

/// What is written again when it changes. Message ids are not in it: the next owner begins far above those that were written, and the peer may
/// answer with a higher one of its own.
/// "P1 SHOULD be 1 more than the last Message ID value received from the peer, but may be any higher value." (RFC 6311 section 5.1)
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Print {
    connection: String,
    spis: Spis,
    path: Path,
    owners: u16,
    /// Inbound and outbound.
    children: Vec<(u32, u32)>,
}

impl Print {
    /// `None`: there is nothing to take over, as no CHILD SA carries anything.
    pub(crate) fn of(sa: &IkeSa) -> Option<Self> {
        let link = &sa.core.link;
        let children: Vec<(u32, u32)> = sa.children.iter().map(|c| (c.spi_in, c.spi_out)).collect();
        let owners = sa.owners.filter(|_| !children.is_empty())?;
        Some(Self { connection: link.conn.name.clone(), spis: link.spis, path: link.path, owners, children })
    }

    /// See [`IkeSa::owners`].
    pub(crate) fn owners(&self) -> u16 {
        self.owners
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Keeping {
    of: BTreeMap<SaId, Name>,
    told: BTreeMap<Name, Print>,
}

impl Keeping {
    /// This SA is of this lineage, and can be taken over; or it is gone, or cannot. What it is, and what it was.
    pub(crate) fn note(&mut self, id: SaId, lineage: Option<Name>) -> BTreeSet<Name> {
        let before = match lineage {
            Some(lineage) => self.of.insert(id, lineage),
            None => self.of.remove(&id),
        };
        lineage.into_iter().chain(before).collect()
    }

    /// Whether the store is to be told.
    pub(crate) fn changes(&self, lineage: Name, print: Option<&Print>) -> bool {
        self.told.get(&lineage) != print
    }

    /// Whether the store has something of it.
    pub(crate) fn knows(&self, lineage: Name) -> bool {
        self.told.contains_key(&lineage)
    }

    /// The store has been told, or knows.
    pub(crate) fn tell(&mut self, lineage: Name, print: Option<Print>) {
        match print {
            Some(print) => _ = self.told.insert(lineage, print),
            None => _ = self.told.remove(&lineage),
        }
    }

    /// The store has forgotten everything. The SAs that it is to hear of again.
    pub(crate) fn forget(&mut self) -> Vec<SaId> {
        self.told.clear();
        self.of.keys().copied().collect()
    }
}

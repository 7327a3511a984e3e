//! A CHILD SA as IKE knows it: SPIs, selectors and timers; and those of one IKE SA. Owns their look-up and their deadlines.
//! Must never protect a packet: keys leave through [`dormouse_keying::Install`] at once.
//!
//! [`offer`] is what we propose, [`choose`] what we answer.

pub(crate) mod choose;
pub(crate) mod offer;

use core::net::IpAddr;
use core::time::Duration;

use dormouse_sansio::{Deadline, Instant, Path};
use dormouse_wire::ike::TsRange;

use crate::config::{AddressRequest, ChildMode, Connection};
use crate::config_payload::AssignedConfig;
use crate::few::Few;
use crate::proposal::EspSuite;
use crate::{selectors, timer};
use dormouse_keying::ChildId;
use dormouse_keying::{Original, ZoneMap};

/// Deletions that are remembered until their CHILD SA comes.
const EARLY_DELETES_MAX: usize = 16;

/// A CHILD SA that the connection wants, and that the peer has refused or deleted, is asked for again after the first of these times,
/// which doubles with each refusal up to the second one. After twice that time in peace it begins with the first one again.
const AGAIN: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(3_600));

/// What is happening to a CHILD SA besides carrying traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Busy {
    No,
    /// Our rekeying of it is under way.
    Rekeying,
    /// Our deletion of it is under way or queued.
    Deleting,
    /// The peer rekeyed it and will delete it.
    Replaced,
}

/// What a CREATE_CHILD_SA of ours asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Aim {
    /// The CHILD SA with this index in the connection, if it is missing when the request is built: a rekeying whose answer was late may
    /// have brought it.
    Missing(usize),
    /// Another one with this index.
    Another(usize),
    /// One in place of this one.
    InPlaceOf(ChildId),
}

/// One CHILD SA.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) id: ChildId,
    /// Its index in the connection.
    pub(crate) config: usize,
    pub(crate) spi_in: u32,
    pub(crate) spi_out: u32,
    pub(crate) ts_local: Vec<TsRange>,
    pub(crate) ts_remote: Vec<TsRange>,
    pub(crate) suite: EspSuite,
    pub(crate) mode: ChildMode,
    pub(crate) zones: Option<ZoneMap>,
    pub(crate) busy: Busy,
    /// The data plane has it. Not so: another gateway had it, and it waits to be replaced.
    pub(crate) installed: bool,
    pub(crate) rekey_at: Option<Instant>,
    pub(crate) expire_at: Option<Instant>,
}

/// The CHILD SAs of one IKE SA.
#[derive(Debug, Default)]
pub(crate) struct Children {
    all: Few<ChildId, Child>,
    /// The one that was made with the session, or what replaced it: the one of several that both ends can tell. It may be gone.
    first: Option<ChildId>,
    /// SPIs that the peer deleted before the answer that makes them has come.
    pub(crate) early_deletes: Vec<u32>,
    /// By its index in the connection: how often the peer has refused or deleted a CHILD SA, and when it did so last.
    setbacks: Few<usize, (u32, Instant)>,
}

impl Children {
    /// "the other surviving new IKE SA MUST inherit all the Child SAs" (RFC 7296 section 2.8.2)
    pub(crate) fn inherit(&mut self, old: &mut Self) {
        let Self { all, first, early_deletes: _, setbacks } = old;
        self.all = std::mem::take(all);
        self.first = first.take();
        self.setbacks = std::mem::take(setbacks);
    }

    pub(crate) fn get(&self, id: ChildId) -> Option<&Child> {
        self.all.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: ChildId) -> Option<&mut Child> {
        self.all.get_mut(&id)
    }

    /// The CHILD SA that was made with the session, or what replaced it.
    pub(crate) fn first(&self) -> Option<&Child> {
        self.get(self.first?)
    }

    pub(crate) fn insert(&mut self, child: Child, replaces: Option<ChildId>) {
        if self.first.is_none() || self.first == replaces {
            self.first = Some(child.id);
        }
        self.all.insert(child.id, child);
    }

    pub(crate) fn remove(&mut self, id: ChildId) -> Option<Child> {
        self.all.remove(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Child> {
        self.all.values()
    }

    pub(crate) fn ids(&self) -> Vec<ChildId> {
        self.all.keys().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The one on which we send with `spi`.
    pub(crate) fn by_spi_out(&self, spi: u32) -> Option<&Child> {
        self.iter().find(|c| c.spi_out == spi)
    }

    /// Number `config` of the connection is there, and nothing else than a rekeying will end it.
    pub(crate) fn serve(&self, config: usize) -> bool {
        self.iter().any(|c| c.config == config && matches!(c.busy, Busy::No | Busy::Rekeying))
    }

    /// The peer has refused or deleted number `config` of the connection: how long it is not asked for again.
    pub(crate) fn set_back(&mut self, config: usize, now: Instant) -> Duration {
        let (times, last) = self.setbacks.get(&config).copied().unwrap_or((0, now));
        let times = if now - last > AGAIN.1 * 2 { 0 } else { times };
        let wait = AGAIN.0 * (1 << times.min(9));
        self.setbacks.insert(config, (times.saturating_add(1), now));
        wait.min(AGAIN.1)
    }

    /// Whether what is asked for is a CHILD SA that the peer has refused or deleted before.
    pub(crate) fn was_set_back(&self, aim: Aim) -> bool {
        matches!(aim, Aim::Missing(config) if self.setbacks.contains_key(&config))
    }

    /// The peer deletes a CHILD SA that is not here yet.
    pub(crate) fn note_early_delete(&mut self, spi: u32) {
        if self.early_deletes.len() < EARLY_DELETES_MAX {
            self.early_deletes.push(spi);
        }
    }

    /// The peer has replaced `id` and will delete it.
    pub(crate) fn mark_replaced(&mut self, id: ChildId) {
        if let Some(child) = self.all.get_mut(&id) {
            child.busy = Busy::Replaced;
            child.rekey_at = None;
        }
    }

    pub(crate) fn set_rekeying(&mut self, id: Option<ChildId>) {
        if let Some(child) = id.and_then(|id| self.all.get_mut(&id)) {
            child.busy = Busy::Rekeying;
        }
    }

    /// Our rekeying came to nothing. What else has been decided about the SA meanwhile, its deletion for one, stays.
    pub(crate) fn end_rekeying(&mut self, id: Option<ChildId>) {
        if let Some(child) = id.and_then(|id| self.all.get_mut(&id)).filter(|c| c.busy == Busy::Rekeying) {
            child.busy = Busy::No;
        }
    }

    pub(crate) fn deadlines(&self, conn: &Connection) -> impl Iterator<Item = Deadline> {
        self.iter().flat_map(|child| {
            let lifetime = conn.children.get(child.config).map(|c| &c.lifetime);
            timer::deadlines(child.rekey_at, child.expire_at, lifetime, "child rekey")
        })
    }

    /// Those whose lifetime is over.
    pub(crate) fn expired(&self, now: Instant) -> Vec<(ChildId, Busy)> {
        let over = self.iter().filter(|c| c.expire_at.is_some_and(|at| at <= now));
        over.map(|c| (c.id, c.busy)).collect()
    }

    /// Those whose rekeying is `due`, as it says of each and its moment: each once.
    pub(crate) fn take_rekeying_due(&mut self, due: impl Fn(&Child, Instant) -> bool) -> Vec<ChildId> {
        let mut taken = Vec::new();
        for child in self.all.values_mut() {
            if child.rekey_at.is_some_and(|at| due(child, at)) {
                child.rekey_at = None;
                taken.push(child.id);
            }
        }
        taken
    }
}

/// A CHILD SA agreed upon but not yet installed.
#[derive(Debug)]
pub(crate) struct Agreed {
    pub(crate) config: usize,
    pub(crate) spi_in: u32,
    pub(crate) spi_out: u32,
    pub(crate) suite: EspSuite,
    pub(crate) mode: ChildMode,
    pub(crate) zones: Option<ZoneMap>,
    pub(crate) tfc_padding: bool,
    pub(crate) ts_local: Vec<TsRange>,
    pub(crate) ts_remote: Vec<TsRange>,
    pub(crate) original: Option<Original>,
}

/// What stands for [`crate::config::SelectorSpec::Dynamic`] on each side.
#[derive(Clone, Debug)]
pub(crate) struct Dynamic {
    pub(crate) local: Inner,
    pub(crate) remote: Inner,
}

/// One side of [`Dynamic`].
#[derive(Clone, Debug)]
pub(crate) enum Inner {
    /// These addresses.
    Known(Vec<IpAddr>),
    /// Those that the gateway will assign.
    Asked(AddressRequest),
}

impl Inner {
    fn as_dynamic(&self) -> selectors::Dynamic<'_> {
        match self {
            Self::Known(addresses) => selectors::Dynamic::Known(addresses),
            Self::Asked(ask) => selectors::Dynamic::Any { v4: ask.v4, v6: ask.v6 },
        }
    }
}

fn between(a: &[TsRange], b: &[TsRange]) -> String {
    format!("{} to {}", selectors::show(a), selectors::show(b))
}

/// What the connection's child number `config` selects on our side and on the peer's.
pub(crate) fn policy(
    conn: &Connection,
    config: usize,
    dynamic: &Dynamic,
) -> Option<(Vec<TsRange>, Vec<TsRange>)> {
    let child = conn.children.get(config)?;
    Some((
        selectors::resolve(&child.ts_local, dynamic.local.as_dynamic()),
        selectors::resolve(&child.ts_remote, dynamic.remote.as_dynamic()),
    ))
}

/// The assigned addresses stand for the client, or the outer address where nothing was assigned.
pub(crate) fn dynamic(assigned: &AssignedConfig, client: bool, path: &Path) -> Dynamic {
    let inner = assigned.addresses();
    let (local, remote) = (Inner::Known(vec![path.local.ip()]), Inner::Known(vec![path.remote.ip()]));
    match (inner.is_empty(), client) {
        (true, _) => Dynamic { local, remote },
        (false, true) => Dynamic { local: Inner::Known(inner), remote },
        (false, false) => Dynamic { local, remote: Inner::Known(inner) },
    }
}

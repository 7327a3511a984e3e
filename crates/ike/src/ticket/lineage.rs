//! Lineages: which tickets count. A full login begins a lineage; each IKE SA of it has a name, and the store holds for each lineage
//! the name of the SA that is its tip. A ticket counts while the tip is the SA that issued it, or the one before that. Owns the
//! names, the operations on the store and their rules, and a store in memory; must never wait for a store: an endpoint hands
//! [`Operation`]s to its driver ([`crate::Event::Store`]) and gets the [`Outcome`] of those that name an SA.
//!
//! No row, no resumption: a lost row costs a full exchange. Operations take effect in the order in which they were handed out;
//! each is atomic.

use core::fmt;
use std::collections::BTreeMap;

use dormouse_crypto::cert::Identity;
use dormouse_crypto::{HashAlg, hash};
use dormouse_keying::SaId;
use dormouse_sansio::{Entropy, UnixTime};

use super::counted::Counted;
use crate::limits::{ENDED_KEPT, LINEAGES_PER_HOLDER};

/// An unguessable name of 16 bytes: of a lineage, or of an IKE SA.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub [u8; 16]);

impl Name {
    /// A fresh name.
    pub fn draw(entropy: &mut dyn Entropy) -> Self {
        let mut name = [0; 16];
        entropy.fill(&mut name);
        Self(name)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// Stands for a proved identity of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TicketHolder(pub [u8; 32]);

impl TicketHolder {
    /// The holder that `connection` knows as `peer`, in whichever of its spellings.
    #[must_use]
    pub fn of(connection: &str, peer: &Identity) -> Self {
        let (length, peer) = ((connection.len() as u64).to_be_bytes(), peer.canonical());
        let parts: [&[u8]; 4] = [b"dormouse ticket holder 2", &length, connection.as_bytes(), &peer];
        let digest = hash(HashAlg::Sha256, &parts);
        let mut holder = [0; 32];
        holder.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
        Self(holder)
    }
}

/// One lineage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// Its name.
    pub id: Name,
    /// Whose it is.
    pub holder: TicketHolder,
    /// The SA whose tickets count, and those of the SA after it.
    pub tip: Name,
    /// When the last of its tickets expires; the row may go then.
    pub ends: UnixTime,
}

/// What is to be done to the store. Those with an `sa` are answered ([`crate::Endpoint::stored`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// A session that can be resumed from now on. Nothing if its row is there. Of more than
    /// [`LINEAGES_PER_HOLDER`] rows of a holder, those that end first go.
    Insert(Row),
    /// A ticket's owner is there. "A reused ticket SHOULD be rejected by a gateway." (RFC 5723 section 4.3.1): `UPDATE … SET tip = next WHERE id = lineage AND tip IN (own, before)`.
    Confirm {
        /// Whose ticket it is, and who waits for the answer.
        sa: SaId,
        /// The ticket's lineage.
        lineage: Name,
        /// The SA that issued the ticket.
        own: Name,
        /// The one before it.
        before: Name,
        /// The SA that is resumed.
        next: Name,
        /// When the last ticket of `next` expires, so far.
        ends: UnixTime,
    },
    /// The SA was rekeyed, or (`from` is `to`) gave another ticket: `UPDATE … SET tip = to WHERE id = lineage AND tip = from`.
    Advance {
        /// The lineage.
        lineage: Name,
        /// The SA that was rekeyed.
        from: Name,
        /// Its successor.
        to: Name,
        /// When the last ticket of `to` expires, so far.
        ends: UnixTime,
    },
    /// The session is over: no ticket of its lineage counts. Only if it is this holder's; and, where several gateways share the store, only
    /// if its last session is this gateway's.
    End {
        /// The SA that waits for the answer, if one does.
        sa: Option<SaId>,
        /// The lineage.
        lineage: Name,
        /// Whose it must be.
        holder: TicketHolder,
    },
    /// After a full login, its client names this as its former lineage: no ticket of it counts, whichever gateway has the session. Only if
    /// it is this holder's. Where several gateways share the store, its insertion may come later, from one that was cut off: it is none then.
    EndFormer {
        /// The lineage.
        lineage: Name,
        /// Whose it must be.
        holder: TicketHolder,
    },
    /// No ticket of this holder counts.
    EndAll {
        /// Whose.
        holder: TicketHolder,
    },
    /// No ticket counts: what is left where more was to be ended than could be kept.
    EndEvery,
    /// Where several gateways share the store: is there room for this session of its identity? It is counted then, until [`Operation::Leave`].
    Enter {
        /// The login that waits for the answer, if one does: else the session is there, and ends if it has no room.
        sa: Option<SaId>,
        /// The session.
        session: Counted,
    },
    /// This gateway has no session of this lineage.
    Leave {
        /// The lineage.
        lineage: Name,
    },
}

impl Operation {
    /// The SA that waits for the outcome.
    #[must_use]
    pub const fn asked_by(&self) -> Option<SaId> {
        match self {
            Self::Confirm { sa, .. } => Some(*sa),
            Self::End { sa, .. } | Self::Enter { sa, .. } => *sa,
            Self::Insert(_)
            | Self::Leave { .. }
            | Self::Advance { .. }
            | Self::EndFormer { .. }
            | Self::EndAll { .. }
            | Self::EndEvery => None,
        }
    }
}

/// What became of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is done, and durable.
    Done,
    /// A [`Operation::Confirm`]: the ticket does not count (any more).
    Superseded,
    /// An [`Operation::Enter`]: the identity has as many sessions as it may have.
    Full,
    /// The store could not do it.
    Failed,
}

/// Something that keeps the lineages.
pub trait Store {
    /// Why it failed.
    type Error;

    /// Carries out operations in their order and makes them durable; `now` decides which rows may go. One outcome for each,
    /// [`Outcome::Done`], [`Outcome::Superseded`] or [`Outcome::Full`].
    ///
    /// # Errors
    /// Then none of them was carried out.
    fn run(&mut self, now: UnixTime, operations: &[Operation]) -> Result<Vec<Outcome>, Self::Error>;
}

/// A store that forgets everything with the process: for a gateway that keeps nothing on a disk, for tests, simulations and measurements, and what the rules
/// are held against. Of each holder, who has proved an identity, a bounded number of rows, until their tickets end.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    rows: BTreeMap<Name, Row>,
    /// Lineages that had ended before they were inserted, and until when that is known.
    ended: BTreeMap<(TicketHolder, Name), UnixTime>,
}

impl Memory {
    /// The rows, by their names.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    /// The lineage had ended before it was inserted.
    #[must_use]
    pub fn has_ended(&self, row: &Row) -> bool {
        self.ended.contains_key(&(row.holder, row.id))
    }

    fn remember_ended(&mut self, now: UnixTime, lineage: Name, holder: TicketHolder) {
        self.ended.entry((holder, lineage)).or_insert(now + ENDED_KEPT);
        let theirs = self.ended.iter().filter(|((of, other), _)| *of == holder && *other != lineage);
        let mut theirs: Vec<_> = theirs.map(|((_, other), until)| (*until, *other)).collect();
        theirs.sort_unstable();
        let surplus = (theirs.len() + 1).saturating_sub(LINEAGES_PER_HOLDER);
        for (_, other) in theirs.into_iter().take(surplus) {
            self.ended.remove(&(holder, other));
        }
    }

    /// Carries out one operation.
    pub fn apply(&mut self, now: UnixTime, operation: &Operation) -> Outcome {
        match *operation {
            Operation::Insert(row) => {
                self.rows.retain(|_, r| r.ends > now);
                self.ended.retain(|_, until| *until > now);
                if self.has_ended(&row) {
                    return Outcome::Done;
                }
                self.rows.entry(row.id).or_insert(row);
                let theirs = self.rows.values().filter(|r| r.holder == row.holder && r.id != row.id);
                let mut theirs: Vec<_> = theirs.map(|r| (r.ends, r.id)).collect();
                theirs.sort_unstable();
                let surplus = (theirs.len() + 1).saturating_sub(LINEAGES_PER_HOLDER);
                for (_, id) in theirs.into_iter().take(surplus) {
                    self.rows.remove(&id);
                }
                Outcome::Done
            }
            Operation::Confirm { lineage, own, before, next, ends, .. } => {
                match self.rows.get_mut(&lineage).filter(|r| [own, before].contains(&r.tip)) {
                    Some(row) => {
                        (row.tip, row.ends) = (next, row.ends.max(ends));
                        Outcome::Done
                    }
                    None => Outcome::Superseded,
                }
            }
            Operation::Advance { lineage, from, to, ends } => {
                if let Some(row) = self.rows.get_mut(&lineage).filter(|r| r.tip == from) {
                    (row.tip, row.ends) = (to, row.ends.max(ends));
                }
                Outcome::Done
            }
            Operation::EndFormer { lineage, holder } => {
                if !self.rows.contains_key(&lineage) {
                    self.remember_ended(now, lineage, holder);
                }
                self.rows.retain(|id, r| *id != lineage || r.holder != holder);
                Outcome::Done
            }
            Operation::End { lineage, holder, .. } => {
                self.rows.retain(|id, r| *id != lineage || r.holder != holder);
                Outcome::Done
            }
            // One gateway counts its sessions itself.
            Operation::Enter { .. } | Operation::Leave { .. } => Outcome::Done,
            Operation::EndAll { holder } => {
                self.rows.retain(|_, r| r.holder != holder);
                Outcome::Done
            }
            Operation::EndEvery => {
                self.rows.clear();
                Outcome::Done
            }
        }
    }
}

impl Store for Memory {
    type Error = core::convert::Infallible;

    fn run(&mut self, now: UnixTime, operations: &[Operation]) -> Result<Vec<Outcome>, Self::Error> {
        Ok(operations.iter().map(|operation| self.apply(now, operation)).collect())
    }
}

/// Where an IKE SA stands in its lineage.
#[derive(Clone, Debug)]
pub(crate) struct Descent {
    pub(crate) lineage: Name,
    /// This SA.
    pub(crate) own: Name,
    /// The one that it replaces; itself if it began the lineage.
    pub(crate) before: Name,
    /// The one before that: what the ticket said that it was resumed with.
    grandparent: Name,
    /// The store has a row of it, or is being told to.
    pub(crate) recorded: bool,
    /// When the last ticket expires that it has given.
    pub(crate) ends: UnixTime,
}

impl Descent {
    /// After a full login.
    pub(crate) fn begin(entropy: &mut dyn Entropy) -> Self {
        let (lineage, own) = (Name::draw(entropy), Name::draw(entropy));
        Self { lineage, own, before: own, grandparent: own, recorded: false, ends: UnixTime(0) }
    }

    /// Another gateway has had the session, without tickets.
    pub(crate) fn goes_on(entropy: &mut dyn Entropy, lineage: Name) -> Self {
        Self { lineage, ..Self::begin(entropy) }
    }

    /// Resumed with a ticket of `own`, before which there was `before`; the store must have a row.
    pub(crate) fn resume(entropy: &mut dyn Entropy, lineage: Name, own: Name, before: Name) -> Self {
        let next = Name::draw(entropy);
        Self { lineage, own: next, before: own, grandparent: before, recorded: true, ends: UnixTime(0) }
    }

    /// Asks, for the SA `sa`, whether the ticket counts by which it was resumed.
    pub(crate) fn confirm(&self, sa: SaId) -> Operation {
        let Self { lineage, own: next, before: own, grandparent: before, ends, .. } = *self;
        Operation::Confirm { sa, lineage, own, before, next, ends }
    }

    /// Made by a rekeying of this one.
    pub(crate) fn next(&self, entropy: &mut dyn Entropy) -> Self {
        Self { own: Name::draw(entropy), before: self.own, ..self.clone() }
    }
}

//! Sessions that gateways count together: how many one identity may have over all of them, where its connection says `keep` or `never`
//! ([`crate::config::Unique`]; those that are replaced end by [`super::lineage`]). Owns the rule by which a session has room beside others, and
//! which ones are too many where gateways that could not ask each other have let in more. Must never count a lineage that only a ticket is left
//! of: as at one gateway, sessions count while they are there, awake or asleep.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};

use dormouse_keying::SaId;
use dormouse_sansio::UnixTime;

use super::lineage::{Name, Operation, TicketHolder};

/// A session, as it is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counted {
    /// Its lineage.
    pub lineage: Name,
    /// Whose it is.
    pub holder: TicketHolder,
    /// `keep`: where its client is. `never`: `None`.
    pub from: Option<IpAddr>,
    /// Sessions that the identity may have.
    pub most: u32,
    /// Its client has just authenticated fully.
    pub login: bool,
    /// The lineage whose session it takes the place of, by the word of its client.
    pub former: Option<Name>,
    /// When it began, by the clock of its gateway; or, where others of its identity were counted then, after the last of these.
    pub began: UnixTime,
}

impl Counted {
    /// Whether there is room for it beside these of its identity: as [`crate::config::Unique`] says it of one gateway.
    #[must_use]
    pub fn has_room(&self, others: &[Self]) -> bool {
        let beside = || others.iter().filter(|o| o.lineage != self.lineage && Some(o.lineage) != self.former);
        let most = usize::try_from(self.most).unwrap_or(usize::MAX);
        match self.from {
            // From the same address it is the same device, which authenticates anew or has lost its state.
            Some(_) => {
                beside().all(|other| self.login && other.from == self.from) && beside().count() < most.max(2)
            }
            None => beside().count() < most.max(1),
        }
    }
}

/// Which of those that are `found` are too many, of the identities of `own`: of each those that began last. `own` are the sessions of one
/// gateway, among those found, and say how many there may be. What one of them has taken the place of is one too many: a store that has gone back
/// has forgotten that it was ended.
#[must_use]
pub fn excess(own: &[Counted], found: &[Counted]) -> Vec<Name> {
    let most: BTreeMap<TicketHolder, u32> = own.iter().map(|one| (one.holder, one.most)).collect();
    let former: BTreeSet<(TicketHolder, Name)> = own
        .iter()
        .filter_map(|one| Some((one.holder, one.former.filter(|former| *former != one.lineage)?)))
        .collect();
    let (replaced, mut found): (Vec<&Counted>, Vec<&Counted>) =
        found.iter().partition(|one| former.contains(&(one.holder, one.lineage)));
    found.sort_unstable_by_key(|one| (one.began, one.lineage));
    let mut stay: BTreeMap<TicketHolder, Vec<Counted>> = BTreeMap::new();
    let mut over: Vec<Name> = replaced.iter().map(|one| one.lineage).collect();
    for one in found {
        let Some(most) = most.get(&one.holder) else { continue };
        let one = Counted { most: *most, login: true, former: None, ..*one };
        let beside = stay.entry(one.holder).or_default();
        match one.has_room(beside) {
            true => beside.push(one),
            false => over.push(one.lineage),
        }
    }
    over
}

/// What the store knows of a session of this gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    /// That it is here, if the ticket counts about which it is asked: its place moves with its ticket.
    Perhaps,
    /// That it is here, and where its client is.
    Session(Option<IpAddr>),
}

/// What the store was told of this gateway's sessions.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    /// Those that are counted, or may be.
    told: BTreeMap<Name, Told>,
    /// Logins and tickets about which it is asked.
    asked: BTreeMap<SaId, Name>,
    /// Lineages whose SAs have come, moved or gone since.
    changed: Vec<Name>,
}

impl Counting {
    /// A login asks whether there is room.
    pub(crate) fn ask(&mut self, sa: SaId, session: Counted) -> Operation {
        self.told.insert(session.lineage, Told::Session(session.from));
        self.asked.insert(sa, session.lineage);
        Operation::Enter { sa: Some(sa), session }
    }

    /// A resumption asks whether its ticket counts.
    pub(crate) fn ask_ticket(&mut self, sa: SaId, lineage: Name) {
        self.told.entry(lineage).or_insert(Told::Perhaps);
        self.asked.insert(sa, lineage);
    }

    /// It asks no longer: it is answered, or its SA is gone. Does nothing if it did not ask.
    pub(crate) fn asks_no_longer(&mut self, sa: SaId) {
        self.changed.extend(self.asked.remove(&sa));
    }

    /// Something about this lineage's sessions is another.
    pub(crate) fn changed(&mut self, lineage: Name) {
        self.changed.push(lineage);
    }

    pub(crate) fn take_changed(&mut self) -> Vec<Name> {
        std::mem::take(&mut self.changed)
    }

    /// What the store is to be told, if its session of this lineage is this one now.
    pub(crate) fn tell(&mut self, lineage: Name, session: Option<Counted>) -> Option<Operation> {
        match session {
            Some(session) => {
                let told = Told::Session(session.from);
                let new = self.told.insert(lineage, told) != Some(told);
                new.then_some(Operation::Enter { sa: None, session })
            }
            None if self.asked.values().any(|asked| *asked == lineage) => {
                self.told.insert(lineage, Told::Perhaps);
                None
            }
            None => self.told.remove(&lineage).map(|_| Operation::Leave { lineage }),
        }
    }
}

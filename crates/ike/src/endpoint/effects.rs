//! What follows a command, a message or a timer: the changes that one SA asks for another, the SAs that have ended, and the indexes
//! of callers and deadlines. Owns their order; must never send by itself.

use dormouse_sansio::Instant;

use super::Endpoint;
use crate::action::Action;
use crate::callers::{Caller, Present};
use crate::claim::Claim;
use crate::config::Unique;
use crate::event::{CloseReason, Event};
use crate::handshake::Slot;
use crate::handshake::initiator::Opening;
use crate::mlike::Keys;
use crate::sa::IkeSa;
use crate::ticket::counted::Counted;
use crate::ticket::lineage::{Name, Outcome};
use dormouse_keying::SaId;

impl Endpoint {
    pub(super) fn established(&mut self, id: SaId) -> Option<&mut IkeSa> {
        match self.slots.get_mut(&id) {
            Some(Slot::Established(ike)) => Some(ike),
            _ => None,
        }
    }

    pub(crate) fn end(&mut self, id: SaId, reason: CloseReason) {
        self.touched.insert(id);
        let Some(Slot::Established(ike)) = self.slots.remove(&id) else { return };
        self.shared.callers.note(id, None);
        ike.end(&mut self.shared, reason);
        self.note_link(id, None);
    }

    /// Ends an established SA for a reason of ours: the peer gets a DELETE, unless it sleeps.
    pub(crate) fn end_for(&mut self, now: Instant, id: SaId, reason: CloseReason) {
        if self.established(id).is_some_and(|ike| ike.dormancy.is_asleep()) {
            return self.end(id, reason);
        }
        self.with_slot(now, id, |slot, shared| {
            if let Slot::Established(ike) = slot {
                ike.close(shared, now, reason);
            }
        });
    }

    /// Brings the index of callers up to date for every SA that was touched.
    fn index_callers(&mut self) {
        for id in &self.touched {
            let present = match self.slots.get(id) {
                Some(Slot::Established(ike)) if !ike.is_tentative() => {
                    let (live, from) = (ike.is_live(), ike.core.link.path.remote.ip());
                    let lineage = ike.core.descent.as_ref().map(|descent| descent.lineage);
                    ike.caller().map(|caller| Present { caller, live, from, lineage })
                }
                _ => None,
            };
            self.shared.callers.note(*id, present);
        }
    }

    /// Who opened an established SA.
    fn served(&mut self, id: SaId) -> Option<Caller> {
        self.established(id).and_then(|ike| ike.caller())
    }

    /// SAs of a caller: those that are live, or those that rekeying and closing have left.
    fn of_caller(&mut self, caller: &Caller, live: bool) -> Vec<SaId> {
        self.index_callers();
        self.shared.callers.of(caller, live).map(|(id, _)| id).collect()
    }

    /// Applies what the handlers asked for, takes down what has ended, and brings the timers up to date.
    pub(crate) fn apply_effects(&mut self, now: Instant) {
        loop {
            // First the actions: a successor must inherit before its predecessor goes.
            while let Some(action) = self.shared.actions.pop_front() {
                self.apply(now, action);
            }
            self.place_keys(now);
            if !self.shared.actions.is_empty() {
                continue;
            }
            let ended = self.touched.iter().find_map(|id| match self.slots.get(id) {
                Some(Slot::Established(ike)) => ike.is_over().map(|reason| (*id, reason)),
                _ => None,
            });
            match ended {
                Some((id, reason)) => self.end(id, reason),
                None => break,
            }
        }
        self.index_callers();
        let touched = std::mem::take(&mut self.touched);
        self.tell_left(now, &touched);
        for id in touched {
            let slot = self.slots.get(&id);
            if !slot.is_some_and(Slot::is_proven) {
                self.shared.callers.wait_no_longer(id);
                self.shared.callers.counting.asks_no_longer(id);
            }
            if !slot.is_some_and(Slot::is_working) {
                self.shared.works.forget(id);
            }
            if !slot.is_some_and(Slot::is_stranger_waiting) {
                self.shared.callers.signed_for_stranger(id);
            }
            match slot {
                Some(slot) if slot.is_proven() => self.shared.half_open.prove(id),
                Some(slot) if slot.is_half_open() => self.shared.half_open.refuse(id),
                _ => self.shared.half_open.leave(id),
            }
            if let Some(old) = self.deadlines.remove(&id) {
                self.order.remove(&(old.at + old.slack, id));
                self.starts.remove(&(old.at, id));
            }
            if let Some(deadline) = self.slots.get(&id).and_then(Slot::deadline) {
                self.order.insert((deadline.at + deadline.slack, id));
                self.starts.insert((deadline.at, id));
                self.deadlines.insert(id, deadline);
            }
        }
        while let Some((sa, order)) = self.shared.works.hand_out() {
            self.shared.event(Event::Work { sa, order });
        }
        self.tell_counted(now);
    }

    /// The store that counts sessions together with other gateways' hears of those that have come, moved or gone.
    fn tell_counted(&mut self, now: Instant) {
        for lineage in self.shared.callers.counting.take_changed() {
            let session = self.counted(now, lineage);
            let told = self.shared.callers.counting.tell(lineage, session);
            told.into_iter().for_each(|told| self.shared.event(Event::Store(told)));
        }
    }

    /// The session of a lineage, if it is one that is counted.
    fn counted(&self, now: Instant, lineage: Name) -> Option<Counted> {
        let id = self.shared.callers.live_of_lineage(lineage)?;
        let Some(Slot::Established(ike)) = self.slots.get(&id) else { return None };
        let core = &ike.core;
        self.shared.counted(now, &core.link.conn, &core.peer, core.link.path.remote.ip(), lineage)
    }

    fn apply(&mut self, now: Instant, action: Action) {
        match action {
            Action::Adopt(of) => {
                let born = self.established(of).map(|ike| ike.rekeying.take_born());
                for ike in born.into_iter().flatten() {
                    let id = ike.core.id();
                    self.slots.insert(id, Slot::Established(Box::new(ike)));
                    self.touched.insert(id);
                }
            }
            Action::Inherit { from, to } => self.inherit(now, from, to),
            Action::HeirChosen(heir) => self.let_rival_win(now, heir),
            Action::Abandon(id) => {
                if let Some(ike) = self.established(id) {
                    ike.supersede(now);
                }
                self.touched.insert(id);
            }
            Action::Delete(id) => {
                if self.sleeps_elsewhere(id) {
                    // An answer that was under way when its device announced its sleep has made it.
                    return self.end(id, CloseReason::Replaced);
                }
                self.with_slot(now, id, |slot, shared| {
                    if let Slot::Established(ike) = slot {
                        ike.close(shared, now, CloseReason::Requested);
                    }
                });
            }
            Action::FullyAuthenticated { by, alone } => self.make_unique(now, by, alone),
            Action::Resumed { by } => {
                let lineage = self.established(by).and_then(|ike| Some(ike.core.descent.as_ref()?.lineage));
                if let Some(lineage) = lineage {
                    self.end_lineage(by, lineage);
                }
            }
            Action::Refuse { sa, told } => {
                if self.sleeps_elsewhere(sa) {
                    return self.end(sa, CloseReason::Unconfirmed);
                }
                self.with_sa(now, sa, |ike, shared| ike.refuse(shared, now, told));
            }
            Action::Former { by, lineage } => {
                self.end_lineage(by, lineage);
                self.supersede_asked(now, by, Some(lineage));
            }
            Action::FormerTickets { by } => self.supersede_asked(now, by, None),
            Action::Release(id) => self.end(id, CloseReason::Released),
            Action::Sleeps(id) => self.end_beside(id),
            Action::Reauthenticate(old) => self.reauthenticate(now, old),
            Action::Ask { gateway, asked } => {
                let link = self.shared.header.links.to(&gateway);
                self.ask(now, link, Some(&gateway), Keys::Ask(asked));
            }
            Action::AskAt { gateway, asked } => {
                let link = self.shared.header.links.at(gateway);
                self.ask(now, link, None, Keys::Ask(asked));
            }
            Action::Gave { gateway, spi, to } => {
                let link = self.shared.header.links.to(&gateway);
                self.ask(now, link, Some(&gateway), Keys::Gave { spi, to });
            }
            Action::Close(id) => {
                self.with_sa(now, id, |ike, shared| ike.close(shared, now, CloseReason::Replaced));
            }
        }
    }

    /// The peer has chosen this successor, which its rekeying made while ours was under way.
    fn let_rival_win(&mut self, now: Instant, heir: SaId) {
        let old = self.slots.iter().find_map(|(&id, slot)| match slot {
            Slot::Established(ike) => (ike.rekeying.heir() == Some(heir)).then_some(id),
            _ => None,
        });
        let Some(old) = old else { return };
        self.with_slot(now, old, |slot, shared| {
            if let Slot::Established(ike) = slot {
                ike.rival_wins(shared, now);
            }
        });
    }

    /// The device of this SA sleeps: its other SAs go without a word.
    fn end_beside(&mut self, id: SaId) {
        let Some(caller) = self.served(id) else { return };
        let rival = self.established(id).and_then(|ike| ike.rekeying.heir());
        self.end_left(&caller, rival);
        // Neither is it told of sessions that this one has replaced.
        for other in self.of_caller(&caller, true).into_iter().filter(|other| *other != id) {
            if self.established(other).is_some_and(|ike| ike.upkeep.is_replaced()) {
                self.end(other, CloseReason::Replaced);
            }
        }
    }

    /// The caller of this SA sleeps by another one.
    fn sleeps_elsewhere(&mut self, id: SaId) -> bool {
        let Some(caller) = self.served(id) else { return false };
        let live = self.of_caller(&caller, true);
        let asleep = |id| self.established(id).is_some_and(|ike| ike.dormancy.is_asleep());
        live.into_iter().any(asleep)
    }

    /// What there is of a lineage of `by`'s peer, except `by`, goes without a word: its client is here.
    fn end_lineage(&mut self, by: SaId, lineage: Name) {
        let Some(caller) = self.served(by) else { return };
        let mut ended = false;
        for old in self.of_caller(&caller, true).into_iter().filter(|id| *id != by) {
            let of_it = |ike: &mut IkeSa| ike.core.descent.as_ref().is_some_and(|d| d.lineage == lineage);
            if self.established(old).is_some_and(of_it) {
                // "[...] the old SA SHOULD be silently deleted without sending a DELETE" (RFC 5723 section 4.3.4).
                self.end(old, CloseReason::Replaced);
                ended = true;
            }
        }
        if ended {
            self.end_left(&caller, Some(by));
        }
    }

    /// Resumptions of `by`'s peer, of this lineage or of all, about which the store is asked: their tickets do not count, although they may
    /// have when it was asked.
    fn supersede_asked(&mut self, now: Instant, by: SaId, lineage: Option<Name>) {
        if let Some(caller) = self.served(by) {
            self.supersede_claims(now, |claim| {
                Caller::of(claim.connection, claim.peer) == caller
                    && lineage.is_none_or(|lineage| claim.lineage == lineage)
            });
        }
    }

    /// The same, of those that are `meant`. One about which nothing is asked yet is left to the store, which obeys in order.
    pub(crate) fn supersede_claims(&mut self, now: Instant, meant: impl Fn(&Claim<'_>) -> bool) {
        let proven: Vec<SaId> = self.shared.half_open.proven().collect();
        for id in proven {
            if self.slots.get(&id).and_then(Slot::asked).is_some_and(|claim| meant(&claim)) {
                self.judge_ticket(now, id, Outcome::Superseded);
            }
        }
    }

    /// What became of an operation of the store that an SA waits for.
    pub(super) fn judge_ticket(&mut self, now: Instant, id: SaId, outcome: Outcome) {
        let Some(slot) = self.slots.remove(&id) else { return };
        self.touched.insert(id);
        if let Some(slot) = slot.stored(&mut self.shared, now, outcome) {
            self.slots.insert(id, slot);
        }
    }

    /// What rekeying and closing have left of a caller's SAs goes without a word, except `keep`: the caller has lost them, or sleeps.
    fn end_left(&mut self, caller: &Caller, keep: Option<SaId>) {
        for id in self.of_caller(caller, false).into_iter().filter(|id| Some(*id) != keep) {
            self.end(id, CloseReason::Replaced);
        }
    }

    /// What the other sessions of an identity come to, now that it has authenticated fully; `alone`: it says that it has no other.
    /// RFC 7296 section 2.4 lets the recipient of INITIAL_CONTACT delete the others without a word; not where several devices share
    /// the identity.
    fn make_unique(&mut self, now: Instant, by: SaId, alone: bool) {
        let Some(caller) = self.served(by) else { return };
        let unique = self.established(by).map(|ike| ike.core.link.conn.answering.policy.unique);
        if unique == Some(Unique::Never) {
            return;
        }
        for id in self.of_caller(&caller, true).into_iter().filter(|id| *id != by) {
            let asleep = self.established(id).is_some_and(|ike| ike.dormancy.is_asleep());
            if alone || asleep {
                self.end(id, CloseReason::Replaced);
            } else if let Some(ike) = self.established(id) {
                // It may be the device itself, which authenticates anew and goes on using it until it has deleted it.
                ike.upkeep.replaced(now);
                self.touched.insert(id);
            }
        }
        if alone {
            self.end_left(&caller, Some(by));
        }
    }

    /// The successor takes over the name and everything else; the old SA goes on under the successor's internal name.
    fn inherit(&mut self, now: Instant, from: SaId, to: SaId) {
        let both = [from, to].iter().all(|id| matches!(self.slots.get(id), Some(Slot::Established(_))));
        if !both {
            // The peer deleted the successor before it could inherit: the name ends with the SA that still bears it.
            if let Some(ike) = self.established(from) {
                ike.regain_name();
                self.touched.insert(from);
            }
            return;
        }
        let (Some(Slot::Established(mut old)), Some(Slot::Established(mut new))) = (
            both.then(|| self.slots.remove(&from)).flatten(),
            both.then(|| self.slots.remove(&to)).flatten(),
        ) else {
            return;
        };
        new.inherit(&mut old, now);
        new.advance_lineage(&mut self.shared, now);
        new.core.link.id = from;
        old.core.link.id = to;
        self.shared.by_spi.insert(new.core.link.local_spi(), from);
        self.shared.by_spi.insert(old.core.link.local_spi(), to);
        new.pump(&mut self.shared, now);
        if new.dormancy.is_asleep() {
            // Answered by a device that had announced its sleep already.
            self.shared.actions.push_back(Action::Sleeps(from));
        }
        self.slots.insert(from, Slot::Established(new));
        self.slots.insert(to, Slot::Established(old));
        self.touched.extend([from, to]);
    }

    /// Make before break (RFC 7296 section 2.8.3): a new SA beside the old one, which is deleted when the new one is up.
    /// "The initiator SHOULD delete the old IKE SA within a reasonable time of the new Auth exchange." (RFC 4478 section 2)
    fn reauthenticate(&mut self, now: Instant, old: SaId) {
        // A gateway never does it: it could not reach a client behind a NAT, and would prove itself first to any host that answers.
        let Some(ike) = self.established(old).filter(|ike| ike.core.client) else { return };
        let (conn, path) = (ike.core.link.conn.clone(), ike.core.link.path);
        let id = self.shared.new_sa();
        if let Some(ike) = self.established(old) {
            ike.upkeep.reauthenticates_by(id);
        }
        let opening = Opening::connect(&mut self.shared, now, id, conn, path, Some(old));
        self.open(now, id, opening);
    }
}

//! What follows a command, a message or a timer: the changes that one SA asks for another, the SAs that have ended, and the indexes
//! of callers and deadlines. Owns their order; must never send by itself.

use dormouse_crypto::cert::Identity;
use dormouse_sansio::Instant;

use super::Endpoint;
use crate::event::CloseReason;
use crate::handshake::Slot;
use crate::handshake::initiator::Opening;
use crate::keys::Spis;
use crate::sa::Stage;
use crate::shared::Action;
use dormouse_keying::SaId;

impl Endpoint {
    pub(super) fn end(&mut self, id: SaId, reason: CloseReason) {
        self.touched.insert(id);
        if let Some((peer, spi_i)) = self.slots.get(&id).and_then(Slot::half_open_peer) {
            self.half_open_left(peer, spi_i);
        }
        let Some(Slot::Established(ike)) = self.slots.remove(&id) else { return };
        self.index_callers();
        let others = self.callers.contains_key(&(ike.peer.clone(), true));
        ike.end(&mut self.shared, reason, !others);
    }

    /// Brings the index of callers up to date for every SA that was touched.
    fn index_callers(&mut self) {
        for id in &self.touched {
            let caller = match self.slots.get(id) {
                Some(Slot::Established(ike)) if !ike.client && ike.tentative.is_none() => {
                    Some((&ike.peer, ike.stage == Stage::Live))
                }
                _ => None,
            };
            if self.caller_of.get(id).map(|(peer, live)| (peer, *live)) == caller {
                continue;
            }
            if let Some(old) = self.caller_of.remove(id) {
                let left = self.callers.get_mut(&old).is_some_and(|ids| {
                    ids.remove(id);
                    !ids.is_empty()
                });
                if !left {
                    self.callers.remove(&old);
                }
            }
            if let Some((peer, live)) = caller {
                let caller = (peer.clone(), live);
                self.callers.entry(caller.clone()).or_default().insert(*id);
                self.caller_of.insert(*id, caller);
            }
        }
    }

    /// SAs of a caller that serve this connection: those that are live, or those that rekeying and closing have left.
    fn of_caller(&mut self, peer: &Identity, connection: &str, live: bool) -> Vec<SaId> {
        self.index_callers();
        let all = self.callers.get(&(peer.clone(), live)).into_iter().flatten();
        let serves = |id: &&SaId| self.slots.get(id).is_some_and(|slot| slot.link().conn.name == connection);
        all.filter(serves).copied().collect()
    }

    /// Applies what the handlers asked for, takes down what has ended, and brings the timers up to date.
    pub(crate) fn settle(&mut self, now: Instant) {
        loop {
            // First the actions: a successor must inherit before its predecessor goes.
            while let Some(action) = self.shared.actions.pop_front() {
                self.apply(now, action);
            }
            let ended = self.touched.iter().find_map(|id| match self.slots.get(id) {
                Some(Slot::Established(ike)) => ike.ended.map(|reason| (*id, reason)),
                _ => None,
            });
            match ended {
                Some((id, reason)) => self.end(id, reason),
                None => break,
            }
        }
        self.index_callers();
        for id in std::mem::take(&mut self.touched) {
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
    }

    fn apply(&mut self, now: Instant, action: Action) {
        if std::env::var_os("TR").is_some() {
            let n = match &action {
                Action::Spawn(i) => format!("Spawn {}", i.link.id),
                o => format!("{o:?}"),
            };
            eprintln!("{now:?} {:p} action {n}", self);
        }
        match action {
            Action::Spawn(ike) => {
                let id = ike.link.id;
                self.slots.insert(id, Slot::Established(ike));
                self.touched.insert(id);
            }
            Action::Inherit { from, to } => self.inherit(now, from, to),
            Action::HeirChosen(heir) => {
                let old = self.slots.iter().find_map(|(&id, slot)| match slot {
                    Slot::Established(ike) if ike.peer_rekey.as_ref().is_some_and(|p| p.heir == heir) => {
                        Some(id)
                    }
                    _ => None,
                });
                let Some(old) = old else { return };
                self.with_slot(now, old, |slot, shared| {
                    if let Slot::Established(ike) = slot {
                        ike.peers_rekey_wins(now, shared);
                    }
                });
            }
            Action::Abandon(id) => {
                if let Some(ike) = self.established(id) {
                    ike.supersede(now);
                }
                self.touched.insert(id);
            }
            Action::Delete(id) => {
                let Some(ike) = self.established(id) else { return };
                let (peer, connection) = (ike.peer.clone(), ike.link.conn.name.clone());
                let live = self.of_caller(&peer, &connection, true);
                if live.into_iter().any(|live| self.established(live).is_some_and(|ike| ike.asleep.is_some()))
                {
                    // An answer that was under way when its device announced its sleep has made it.
                    return self.end(id, CloseReason::Replaced);
                }
                self.with_slot(now, id, |slot, shared| {
                    if let Slot::Established(ike) = slot {
                        ike.close(shared, now, CloseReason::Requested);
                    }
                });
            }
            Action::InitialContact { by, peer, connection } => {
                let others = self.of_caller(&peer, &connection, true);
                others.into_iter().filter(|id| *id != by).for_each(|id| self.end(id, CloseReason::Replaced));
                self.end_left(&peer, &connection, &[by]);
            }
            Action::Resumed { by, old_spi, other_spi } => {
                let spis = [Spis { i: other_spi, r: old_spi }];
                let old = [old_spi, other_spi].iter().find_map(|spi| self.shared.by_spi.get(spi)).copied();
                let old = old.filter(|id| {
                    *id != by && self.slots.get(id).is_some_and(|slot| spis.contains(&slot.link().spis))
                });
                let of = old.and_then(|old| self.established(old));
                let of = of.map(|ike| (ike.peer.clone(), ike.link.conn.name.clone()));
                if let (Some(old), Some((peer, connection))) = (old, of) {
                    // "[...] the old SA SHOULD be silently deleted without sending a DELETE" (RFC 5723 section 4.3.4).
                    self.end(old, CloseReason::Replaced);
                    self.end_left(&peer, &connection, &[by]);
                }
            }
            Action::Release(id) => self.end(id, CloseReason::Released),
            Action::Sleeps(id) => {
                let Some(ike) = self.established(id) else { return };
                let heir = ike.peer_rekey.as_ref().map(|rekey| rekey.heir);
                let (peer, connection) = (ike.peer.clone(), ike.link.conn.name.clone());
                self.end_left(&peer, &connection, heir.as_slice());
            }
            Action::Reauthenticate(old) => self.reauthenticate(now, old),
            Action::Close(id) => {
                self.with_sa(now, id, |ike, shared| ike.close(shared, now, CloseReason::Replaced));
            }
        }
    }

    /// What rekeying and closing have left of a caller's SAs goes without a word, except `keep`: the caller has lost them, or sleeps.
    fn end_left(&mut self, peer: &Identity, connection: &str, keep: &[SaId]) {
        for id in self.of_caller(peer, connection, false).into_iter().filter(|id| !keep.contains(id)) {
            self.end(id, CloseReason::Replaced);
        }
    }

    /// The successor takes over the name and everything else; the old SA goes on under the successor's internal name.
    fn inherit(&mut self, now: Instant, from: SaId, to: SaId) {
        let both = [from, to].iter().all(|id| matches!(self.slots.get(id), Some(Slot::Established(_))));
        if !both {
            // The peer deleted the successor before it could inherit: the name ends with the SA that still bears it.
            if let Some(ike) = self.established(from) {
                ike.stage = Stage::Live;
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
        new.link.id = from;
        old.link.id = to;
        self.shared.by_spi.insert(new.link.local_spi(), from);
        self.shared.by_spi.insert(old.link.local_spi(), to);
        new.pump(&mut self.shared, now);
        if new.asleep.is_some() {
            // Answered by a device that had announced its sleep already.
            self.shared.actions.push_back(Action::Sleeps(from));
        }
        self.slots.insert(from, Slot::Established(new));
        self.slots.insert(to, Slot::Established(old));
        self.touched.extend([from, to]);
    }

    /// Make before break (RFC 7296 section 2.8.3): a new SA beside the old one, which is deleted when the new one is up.
    fn reauthenticate(&mut self, now: Instant, old: SaId) {
        let Some(ike) = self.established(old) else { return };
        let (conn, path) = (ike.link.conn.clone(), ike.link.path);
        let id = self.shared.new_sa();
        let opening = Opening::connect(&mut self.shared, now, id, conn, path, Some(old));
        self.open(now, id, opening);
    }
}

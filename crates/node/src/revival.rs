//! The sessions of the key manager beside IKE over a sleep of this device's radio. Owns which of them were told of it, which are on
//! their way back, and copies of what was sent to a peer that promised to hold its session and was not heard since; whether a peer still
//! has one is the key manager's to find out. Must never send anything itself.

use crate::event::{Change, Event};
use crate::hold::HoldQueue;
use crate::ladder::Rung;
use crate::node::Node;
use dormouse_ike::{SleepFlags, SleepVerdict, Sleeping};
use dormouse_keying::Owner;
use dormouse_sansio::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// What there is besides the sessions.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    /// Sessions whose peers have not answered the announcement of a sleep, and what the others have said.
    announcing: Option<(BTreeSet<Owner>, Option<SleepVerdict>)>,
    /// The addresses of this machine, if they changed while the radio slept.
    pub(crate) sources: Option<Vec<IpAddr>>,
    /// Until every session is back.
    pub(crate) revival: Option<Revival>,
    /// Sessions that were taken for held after the last sleep, and whose peers were not heard since: what was sent.
    unheard: BTreeMap<Owner, HoldQueue>,
}

/// Sessions on their way back.
#[derive(Debug)]
pub(crate) struct Revival {
    since: Instant,
    /// Inner addresses of the peers: packets for them wait.
    waits: BTreeSet<IpAddr>,
    /// What it took so far.
    rung: Rung,
}

impl Beside {
    /// Whether the session that leads to this address is on its way back.
    pub(crate) fn revives(&self, address: IpAddr) -> bool {
        self.revival.as_ref().is_some_and(|revival| revival.waits.contains(&address))
    }

    /// Whether nothing is on its way back, and nothing was sent that may be lost: else the radio stays on.
    pub(crate) fn is_settled(&self) -> bool {
        self.revival.is_none() && self.unheard.values().all(HoldQueue::is_empty)
    }

    /// A packet is about to be sealed for this session.
    pub(crate) fn copy_unheard(&mut self, now: Instant, owner: Owner, packet: &[u8]) {
        if let Some(copies) = self.unheard.get_mut(&owner) {
            let _full = copies.push(now, packet);
        }
    }

    /// The peer was heard: it has the session.
    pub(crate) fn heard(&mut self, owner: Owner) {
        self.unheard.remove(&owner);
    }
}

impl Node {
    fn beside_name(&self) -> Option<String> {
        self.manager.as_ref().map(|(id, _)| self.connections.name(*id).to_owned())
    }

    /// The inner address of the peer: a session of this kind has one.
    fn peer_of(&self, owner: Owner) -> Option<IpAddr> {
        self.sessions.get(owner)?.routes.first().map(ipnet::IpNet::addr)
    }

    // ---- to sleep -------------------------------------------------------------------------------------------------

    /// Announces to every peer that the radio goes off.
    pub(crate) fn announce_beside(&mut self, now: Instant, expect: Option<Duration>, flags: SleepFlags) {
        let (mut told, mut said) = (BTreeSet::new(), None);
        for owner in self.sessions.beside() {
            let sleeping = Sleeping { flags, expect, marks: self.marks(owner) };
            let Some((_, manager)) = &mut self.manager else { return };
            if manager.announce_sleep(now, owner, &sleeping) {
                told.insert(owner);
            } else {
                said = Some(SleepVerdict::Unsupported);
            }
        }
        self.beside.announcing = Some((told, said));
        self.ready_beside();
        self.drain_manager(now);
    }

    /// A peer has answered, or will not.
    pub(crate) fn peer_answered(&mut self, owner: Owner, verdict: SleepVerdict) {
        if let Some((waits, said)) = &mut self.beside.announcing
            && waits.remove(&owner)
        {
            *said = Some(said.map_or(verdict, |said| said.and(verdict)));
            self.ready_beside();
        }
    }

    /// Once every peer has answered, the radio may go off.
    fn ready_beside(&mut self) {
        let all = self.beside.announcing.take_if(|(waits, _)| waits.is_empty());
        if let Some(((_, said), connection)) = all.zip(self.beside_name()) {
            let verdict = said.unwrap_or(SleepVerdict::Unsupported);
            self.push(Event::SleepReady { connection, verdict });
        }
    }

    /// The radio goes off without the answers that have not come.
    pub(crate) fn announcement_lost_beside(&mut self) {
        if let Some((waits, said)) = &mut self.beside.announcing {
            waits.clear();
            *said = Some(SleepVerdict::Unanswered);
        }
        self.ready_beside();
    }

    // ---- back -----------------------------------------------------------------------------------------------------

    /// The radio is on, after a sleep or instead of one.
    pub(crate) fn revive_beside(&mut self, now: Instant, slept: bool) {
        // One that was called off.
        self.announcement_lost_beside();
        if let Some(addresses) = self.beside.sources.take() {
            self.set_sources(now, &addresses);
        }
        let mut waits = BTreeSet::new();
        for owner in self.sessions.beside() {
            let peer = self.peer_of(owner);
            let Some((_, manager)) = &mut self.manager else { return };
            let flows = manager.woke(now, owner);
            match (slept, flows) {
                (true, true) => drop(self.beside.unheard.insert(owner, HoldQueue::default())),
                (true, false) => waits.extend(peer),
                // It was told of a sleep that did not come.
                (false, _) => manager.ask(now, owner),
            }
        }
        if slept && self.manager.is_some() {
            self.beside.revival = Some(Revival { since: now, waits, rung: Rung::Held });
            self.revived_all(now);
        }
        self.drain_manager(now);
    }

    /// A session is back, by this rung.
    pub(crate) fn revived(&mut self, now: Instant, owner: Owner, by: Rung) {
        self.beside.heard(owner);
        let Some(peer) = self.peer_of(owner) else { return };
        if let Some(revival) = &mut self.beside.revival
            && revival.waits.remove(&peer)
        {
            revival.rung = revival.rung.max(by);
            self.revived_all(now);
        }
    }

    /// When the last of them is back, packets flow.
    fn revived_all(&mut self, now: Instant) {
        let done = self.beside.revival.take_if(|revival| revival.waits.is_empty());
        let Some((Revival { since, rung, .. }, connection)) = done.zip(self.beside_name()) else { return };
        if self.sessions.any_beside() {
            let took_ms = u64::try_from((now - since).as_millis()).unwrap_or(u64::MAX);
            self.changed(Change::Up { connection, rung, took_ms });
        }
        self.push(Event::Flowing);
    }

    /// A session has ended. The peer, if it was on its way back, or something was sent to it that may be lost.
    pub(crate) fn revival_lost(&mut self, now: Instant, owner: Owner) -> Option<IpAddr> {
        self.peer_answered(owner, SleepVerdict::Unanswered);
        let copies = self.beside.unheard.remove(&owner);
        let packets: Vec<Vec<u8>> =
            copies.into_iter().flat_map(|mut copies| copies.take_fresh(now)).collect();
        let lost = !packets.is_empty();
        if lost {
            self.push(Event::Resend { packets });
        }
        self.peer_of(owner).filter(|peer| lost || self.beside.revives(*peer))
    }

    /// The peer has lost the session: another one begins, and gets what waits.
    pub(crate) fn revive_anew(&mut self, now: Instant, peer: IpAddr) {
        if !self.want_tunnel(now, peer) {
            self.revival_failed_at(now, peer);
            self.push(Event::Flowing);
        }
    }

    /// Nothing was established with a peer.
    pub(crate) fn revival_failed(&mut self, now: Instant, peer: &str) {
        if let Ok(peer) = peer.parse() {
            self.revival_failed_at(now, peer);
        }
    }

    fn revival_failed_at(&mut self, now: Instant, peer: IpAddr) {
        if let Some(revival) = &mut self.beside.revival {
            revival.waits.remove(&peer);
            self.revived_all(now);
        }
    }

    /// The peers learn that this device listens.
    pub(crate) fn ask_beside(&mut self, now: Instant) {
        for owner in self.sessions.beside() {
            if let Some((_, manager)) = &mut self.manager {
                manager.ask(now, owner);
            }
        }
        self.drain_manager(now);
    }
}

//! The sessions of the key manager beside IKE over a sleep of this device's radio. Owns which of them were told of it, which are on
//! their way back, and copies of what was sent to a peer that promised to hold its session and was not heard since; whether a peer still
//! has one is the key manager's to find out. Must never send anything itself.

use crate::event::{Change, Event};
use crate::hold::HoldQueue;
use crate::ladder::Rung;
use crate::node::Node;
use crate::sessions::Session;
use dormouse_keying::{Owner, SleepFlags, SleepVerdict, Sleeping};
use dormouse_sansio::{Deadline, Instant};
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
    revival: Option<Revival>,
    /// Sessions that were taken for held after the last sleep, and whose peers were not heard since: what was sent.
    unheard: BTreeMap<Owner, HoldQueue>,
}

/// Sessions on their way back.
#[derive(Debug)]
struct Revival {
    since: Instant,
    /// Inner addresses of the peers: packets for them wait.
    waits: BTreeSet<IpAddr>,
    /// What it took so far, if a session is back.
    rung: Option<Rung>,
    /// Until then the radio stays on for those that are not back; `None`: it is over.
    patience: Option<Instant>,
    /// It was told how the sessions came back.
    told: bool,
}

impl Beside {
    /// Whether the session that leads to this address is on its way back.
    pub(crate) fn revives(&self, address: IpAddr) -> bool {
        self.revival.as_ref().is_some_and(|revival| revival.waits.contains(&address))
    }

    /// Whether nothing is on its way back that is worth a wait, and nothing was sent that may be lost: else the radio stays on.
    pub(crate) fn is_settled(&self) -> bool {
        self.patience().is_none() && self.unheard.values().all(HoldQueue::is_empty)
    }

    fn patience(&self) -> Option<Instant> {
        self.revival.as_ref()?.patience
    }

    /// When the radio no longer stays on for sessions that are not back.
    pub(crate) fn deadline(&self) -> Option<Deadline> {
        self.patience().map(|at| Deadline::strict(at, "a session is not back"))
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

/// A peer that does not answer is known to be lost after 7 s (`dormouse_hip`): then another session begins, or it is not there at all.
const PATIENCE: Duration = Duration::from_secs(8);

impl Node {
    fn beside_name(&self) -> Option<String> {
        self.manager.as_ref().map(|(id, _)| self.connections.name(*id).to_owned())
    }

    /// The inner address of the peer: a session of this kind has one.
    fn peer_of(&self, owner: Owner) -> Option<IpAddr> {
        self.sessions.get(owner)?.routes().first().map(ipnet::IpNet::addr)
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
        if let Some((_, manager)) = &mut self.manager {
            manager.radio_on(now);
        }
        if let Some(addresses) = self.beside.sources.take() {
            self.set_sources(now, &addresses);
        }
        let (mut waits, mut rung) = (BTreeSet::new(), None);
        for owner in self.sessions.beside() {
            let peer = self.peer_of(owner);
            let asleep = self.sessions.get(owner).is_some_and(Session::is_asleep);
            let Some((_, manager)) = &mut self.manager else { return };
            let flows = manager.woke(now, owner);
            match (slept, flows) {
                (true, true) => {
                    rung = Some(Rung::Held);
                    // Nothing of a peer that sleeps is missed.
                    if !asleep {
                        self.beside.unheard.insert(owner, HoldQueue::default());
                    }
                }
                (true, false) => waits.extend(peer),
                // It was told of a sleep that did not come.
                (false, _) => manager.ask(now, owner),
            }
        }
        if slept && self.manager.is_some() {
            let flows = rung.is_some();
            let patience = Some(now + PATIENCE);
            self.beside.revival = Some(Revival { since: now, waits, rung, patience, told: false });
            if !self.revived_all(now) && flows {
                // No packet waits for another peer's session.
                self.push(Event::Flowing);
            }
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
            revival.rung = revival.rung.max(Some(by));
            if !self.revived_all(now) {
                self.push(Event::Flowing);
            }
        }
    }

    /// When the last of them is back, all packets flow. False if one is not.
    fn revived_all(&mut self, now: Instant) -> bool {
        if self.beside.revival.as_ref().is_none_or(|revival| !revival.waits.is_empty()) {
            return false;
        }
        self.tell_revival(now);
        self.beside.revival = None;
        self.push(Event::Flowing);
        true
    }

    /// Says how the sessions that are back came back, and when.
    fn tell_revival(&mut self, now: Instant) {
        let Some(connection) = self.beside_name().filter(|_| self.sessions.any_beside()) else { return };
        if let Some(revival) = &mut self.beside.revival
            && let Some(rung) = revival.rung.filter(|_| !std::mem::replace(&mut revival.told, true))
        {
            let took_ms = u64::try_from((now - revival.since).as_millis()).unwrap_or(u64::MAX);
            self.changed(Change::Up { connection, rung, took_ms });
        }
    }

    /// The radio stays on no longer for those that are not back. Their packets wait on.
    pub(crate) fn revival_timeout(&mut self, now: Instant) {
        let Some(revival) = &mut self.beside.revival else { return };
        if revival.patience.take_if(|at| *at <= now).is_some() && revival.rung.is_some() {
            self.tell_revival(now);
        }
    }

    /// A session has ended. Our inner address in it and the peer's, if the peer was on its way back, or something was sent to it that may be lost: that is sent again.
    pub(crate) fn revival_lost(&mut self, now: Instant, owner: Owner) -> Option<(IpAddr, IpAddr)> {
        self.peer_answered(owner, SleepVerdict::Unanswered);
        let copies = self.beside.unheard.remove(&owner);
        let packets: Vec<Vec<u8>> =
            copies.into_iter().flat_map(|mut copies| copies.take_fresh(now)).collect();
        let lost = !packets.is_empty();
        if lost {
            self.push(Event::Resend { packets });
        }
        let peer = self.peer_of(owner).filter(|peer| lost || self.beside.revives(*peer))?;
        Some((self.sessions.get(owner)?.from?, peer))
    }

    /// A session is ended here: nothing waits for it.
    pub(crate) fn revival_ended(&mut self, now: Instant, owner: Owner) {
        self.peer_answered(owner, SleepVerdict::Unanswered);
        self.beside.heard(owner);
        if let Some(peer) = self.peer_of(owner) {
            self.push(Event::Ended { peer });
            self.revival_failed_at(now, peer);
        }
    }

    /// The peer has lost the session: another one between the same two begins, and gets what waits.
    pub(crate) fn revive_anew(&mut self, now: Instant, between: (IpAddr, IpAddr)) {
        if !self.ask_for_tunnel(now, between) {
            self.revival_failed_at(now, between.1);
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
        let waited = self.beside.revival.as_mut().is_some_and(|revival| revival.waits.remove(&peer));
        if waited {
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

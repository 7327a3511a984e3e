//! A gateway that gives its devices to the others with which it shares a store, and ends then. Owns who was told and what is on its way; must never
//! speak with the store itself, which takes what it says as [`Parcel`]s, nor end the process. Where devices go is to the least loaded gateway
//! ([`super::Balance`]).
//!
//! Clients that are awake are told first, some at a time: they come back by ticket, and their packets go through here until then. When they are gone,
//! or their time is over, devices that sleep are handed over, each with the packets that wait for it; packets
//! that come for it during the drain are sent after it. A device that wakes here during the drain is redirected as well.

use super::{Other, Parcel, SharedBalance};
use crate::host::Host;
use dormouse_ike::ticket::lineage::Name;
use dormouse_keying::SaId;
use dormouse_sansio::{Deadline, Instant};
use std::collections::BTreeSet;
use std::time::Duration;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(250);
/// Clients that are told in one look, so that they do not all come to the others at once.
const TOLD_AT_ONCE: usize = 250;
/// Devices that are on their way at once: what waits for them is in memory twice.
const UNDER_WAY: usize = 256;
/// For the store, to say where devices can go: a connection that hangs is given up before.
const ANSWER: Duration = Duration::from_secs(10);
/// For devices that sleep, after the time that the others have.
const FOR_SLEEPERS: Duration = Duration::from_secs(30);
/// A client that another gateway has on record already, and that was told to go there, has gone when it has been silent for so long.
const GONE_AFTER: Duration = Duration::from_secs(5);

/// How it is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DrainEnd {
    /// All that could go is gone, and the process ends.
    Drained {
        /// Clients that were told, and have gone.
        gone: usize,
        /// Clients that are still awake here.
        left: usize,
        /// Devices that sleep, and are another gateway's now.
        handed_over: usize,
        /// Those that could not be handed over.
        kept: usize,
    },
    /// No other gateway was heard lately: nothing has changed.
    NoOther,
    /// The store does not say where devices can go: nothing has changed.
    NoAnswer,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Drain {
    /// How long clients that are awake have, from when it is known where they can go.
    within: Duration,
    /// Until then; before, until then the store has to say where that is.
    until: Instant,
    look: Instant,
    /// The store has said where devices can go.
    begun: bool,
    /// Sessions whose clients were told, those that were while others were handed over, and those of clients that go nowhere.
    told: BTreeSet<SaId>,
    late: BTreeSet<SaId>,
    deaf: BTreeSet<SaId>,
    /// Devices that are being handed over, and those of them of which there are packets alone, as they are not here.
    under_way: BTreeSet<Name>,
    packets: BTreeSet<Name>,
    /// Those that could not be.
    kept: BTreeSet<Name>,
    /// Those that are another gateway's on record. Of one that woke here meanwhile the store does not say when it has come there.
    handed_over: BTreeSet<Name>,
    /// Clients that are awake are no longer waited for.
    sleepers: bool,
}

impl Drain {
    /// One that begins: who begins it asks the store which other gateways there are ([`super::Errand::Others`]), and says so by [`Drain::others`].
    /// `within`: how long clients that are awake have then.
    #[must_use]
    pub fn new(now: Instant, within: Duration) -> Self {
        Self {
            within,
            until: now + ANSWER,
            look: now + LOOK,
            begun: false,
            told: BTreeSet::new(),
            late: BTreeSet::new(),
            deaf: BTreeSet::new(),
            under_way: BTreeSet::new(),
            packets: BTreeSet::new(),
            kept: BTreeSet::new(),
            handed_over: BTreeSet::new(),
            sleepers: false,
        }
    }

    /// When [`Drain::go_on`] has something to do.
    #[must_use]
    pub fn due(&self) -> Deadline {
        Deadline::strict(self.look, "drain")
    }

    /// The store has said which other gateways there are.
    pub fn others(&mut self, now: Instant, others: &[Other]) -> Option<DrainEnd> {
        if self.begun {
            return None;
        }
        if others.is_empty() {
            return Some(DrainEnd::NoOther);
        }
        let to: Vec<&str> = others.iter().map(|other| other.name.as_str()).collect();
        tracing::info!(?to, "devices go to other gateways");
        (self.begun, self.until, self.look) = (true, now + self.within, now);
        None
    }

    /// Does what is due. What other gateways are to be told, and how it is over if it is. `alone`: the store cannot be asked.
    pub fn go_on(
        &mut self,
        now: Instant,
        host: &mut Host,
        balance: &SharedBalance,
        alone: bool,
    ) -> (Vec<Parcel>, Option<DrainEnd>) {
        if self.look > now {
            return (Vec::new(), None);
        }
        self.look = now + LOOK;
        if !self.begun {
            return (Vec::new(), (self.until <= now).then_some(DrainEnd::NoAnswer));
        }
        // A client that fell asleep instead is given away like any other that sleeps.
        let asleep = host.node().sleeping_clients();
        self.told.retain(|sa| asleep.binary_search(sa).is_err());
        let on_their_way = self.send_clients_away(now, host, balance);
        self.sleepers |= self.until <= now || !on_their_way;
        if self.sleepers { self.give_sleepers_away(now, host, balance, alone) } else { (Vec::new(), None) }
    }

    /// True if clients that were told have not gone yet, or there are some to tell.
    fn send_clients_away(&mut self, now: Instant, host: &mut Host, balance: &SharedBalance) -> bool {
        let awake = host.node().awake_clients();
        let known = |sa: &&SaId| self.told.contains(sa) || self.deaf.contains(sa);
        let untold: Vec<SaId> = awake.iter().filter(|sa| !known(sa)).copied().collect();
        let rest = untold.len() > TOLD_AT_ONCE;
        for sa in untold.into_iter().take(TOLD_AT_ONCE) {
            let v6 = host.node().ike().path(sa).is_some_and(|path| path.remote.is_ipv6());
            let to = balance.lock().next(v6).and_then(|to| to.place);
            let goes = to.is_some_and(|to| host.node_mut().send_away(now, sa, &to));
            if goes {
                self.late.extend(self.sleepers.then_some(sa));
                self.told.insert(sa)
            } else {
                self.deaf.insert(sa)
            };
        }
        // Who comes at this moment may be told yet: a ticket that was used here, and nothing more, would cost a login.
        let coming = host.node().coming_clients() > 0;
        rest || coming || awake.iter().any(|sa| self.told.contains(sa))
    }

    fn give_sleepers_away(
        &mut self,
        now: Instant,
        host: &mut Host,
        balance: &SharedBalance,
        alone: bool,
    ) -> (Vec<Parcel>, Option<DrainEnd>) {
        for lineage in host.node().silent_clients(now, &self.handed_over, GONE_AFTER) {
            host.node_mut().gone_elsewhere(now, lineage);
        }
        let awake = host.node().awake_clients();
        let waits = awake.iter().any(|sa| self.late.contains(sa));
        let node = host.node_mut();
        let mut untried = node.handover_candidates();
        untried.extend(node.unclaimed());
        untried.sort_unstable();
        untried.dedup();
        let tried = [&self.under_way, &self.packets, &self.kept];
        untried.retain(|name| tried.iter().all(|names| !names.contains(name)));
        // While the store is away they stay: what waits for them would be lost on the way.
        let over =
            self.under_way.is_empty() && untried.is_empty() && !waits || self.until + FOR_SLEEPERS <= now;
        untried.truncate(if alone || over { 0 } else { UNDER_WAY.saturating_sub(self.under_way.len()) });
        let mut parcels = Vec::new();
        for lineage in untried {
            let to = balance.lock().next(false).map(|to| to.name);
            if let Some(handover) = node.hand_over(now, lineage) {
                self.under_way.insert(lineage);
                self.packets.extend(handover.sleeper.is_none().then_some(lineage));
                parcels.push(Parcel { handover, to });
            }
        }
        (parcels, over.then(|| self.end(host)))
    }

    /// All that could go is gone.
    fn end(&self, host: &Host) -> DrainEnd {
        let (awake, candidates) = (host.node().awake_clients(), host.node().handover_candidates());
        // In the order of their numbers.
        let gone = self.told.iter().filter(|sa| awake.binary_search(sa).is_err()).count();
        let kept = candidates.iter().filter(|name| !self.kept.contains(name)).count() + self.kept.len();
        let (left, handed_over) = (awake.len(), self.handed_over.len());
        tracing::info!(gone, left, handed_over, kept, "drained");
        DrainEnd::Drained { gone, left, handed_over, kept }
    }

    /// What became of one that was to go to a gateway ([`super::News::HandedOver`]).
    pub fn handed_over(&mut self, now: Instant, lineage: Name, done: bool) {
        self.under_way.remove(&lineage);
        match (self.packets.contains(&lineage), done) {
            // More may come for it.
            (true, true) => _ = self.packets.remove(&lineage),
            // Its device is nowhere.
            (true, false) => {}
            (false, true) => _ = self.handed_over.insert(lineage),
            (false, false) => _ = self.kept.insert(lineage),
        }
        // Not for each: a look goes through all of them.
        if self.under_way.len() <= UNDER_WAY / 2 {
            self.look = now;
        }
    }
}

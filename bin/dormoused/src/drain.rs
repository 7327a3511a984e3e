//! `dormouse drain`: a gateway that shares its database with others gives them its devices, and ends. Owns no state: that is
//! [`crate::draining`]'s. Where devices go is to the least loaded one ([`dormouse_node::shared::Balance`]).
//!
//! Clients that are awake are told first, some at a time: they come back by ticket, and their packets go through here until then. When they are gone,
//! or their time is over, devices that sleep are handed over in the database, each with what waits for it. What comes for one meanwhile follows.
//!
//! # Timer
//! *drain*: clients that have come, or have not gone yet, are looked at again.

use crate::daemon::Daemon;
use crate::draining::Drain;
use dormouse_control::{Error, ErrorKind, Reply};
use dormouse_ike::ticket::lineage::Name;
use dormouse_io::control::ClientId;
use dormouse_keying::SaId;
use dormouse_node::handover::Handover;
use dormouse_node::shared::{Errand, Other, Parcel};
use dormouse_sansio::{Deadline, Instant};
use std::time::Duration;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(250);
/// Clients that are told in one look, so that they do not all come to the others at once.
const TOLD_AT_ONCE: usize = 250;
/// Devices that are on their way at once: what waits for them is in memory twice.
const UNDER_WAY: usize = 256;
/// For the database, to say where devices can go: a connection that hangs is given up before.
const ANSWER: Duration = Duration::from_secs(10);
/// For devices that sleep, after the time that the others have.
const FOR_SLEEPERS: Duration = Duration::from_secs(30);

impl Daemon {
    /// Begins. The answer comes when it is over.
    ///
    /// # Errors
    /// If this gateway shares nothing, is at it already, or cannot reach the database.
    pub(crate) fn drain(&mut self, now: Instant, client: ClientId, seconds: u32) -> Result<(), Error> {
        let (Some(cluster), Some(keeper)) = (&mut self.helpers.cluster, &self.helpers.keeper) else {
            let message = "this daemon shares its devices with no other gateway: there is no [cluster]";
            return Err(Error::new(ErrorKind::Request, message));
        };
        if cluster.drain.is_some() {
            return Err(Error::new(ErrorKind::Request, "it is being drained already"));
        }
        if cluster.company.share.alone {
            let message = "the database that the gateways share cannot be reached: nothing has changed";
            return Err(Error::new(ErrorKind::Other, message));
        }
        cluster.counts.drain(true);
        // Who logs in meanwhile goes too, if it follows.
        cluster.balance.lock().leave(true);
        let within = Duration::from_secs(seconds.into());
        cluster.drain = Some(Drain::new(client, within, now + ANSWER, now + LOOK));
        keeper.run(Errand::Others);
        Ok(())
    }

    fn draining(&mut self) -> Option<&mut Drain> {
        self.helpers.cluster.as_mut()?.drain.as_mut()
    }

    pub(crate) fn drain_timer(&self) -> Option<Deadline> {
        let drain = self.helpers.cluster.as_ref()?.drain.as_ref()?;
        Some(Deadline::strict(drain.look, "drain"))
    }

    /// These gateways are there.
    pub(crate) fn others_are(&mut self, now: Instant, others: Vec<Other>) {
        let Some(cluster) = &mut self.helpers.cluster else { return };
        let names: Vec<String> = others.iter().map(|other| other.name.clone()).collect();
        cluster.balance.lock().heard(others);
        let Some(drain) = cluster.drain.as_mut().filter(|drain| !drain.begun) else { return };
        if names.is_empty() {
            let message = "no other gateway was heard lately: nothing has changed";
            return self.drain_ends(Err(Error::new(ErrorKind::NotConnected, message)));
        }
        tracing::info!(to = ?names, "devices go to other gateways");
        (drain.begun, drain.until, drain.look) = (true, now + drain.within, now);
    }

    /// It stays as it was, or ends.
    fn drain_ends(&mut self, answer: Result<Reply, Error>) {
        let Some(cluster) = &mut self.helpers.cluster else { return };
        if let Some(drain) = cluster.drain.take() {
            // The others see what a gateway that ends said last.
            cluster.counts.drain(answer.is_ok());
            cluster.balance.lock().leave(answer.is_ok());
            self.stopping |= answer.is_ok();
            self.verbs.reply(drain.client, answer);
        }
    }

    /// Does what is due.
    pub(crate) fn drain_on(&mut self, now: Instant) {
        let Some(drain) = self.draining() else { return };
        if drain.look > now {
            return;
        }
        drain.look = now + LOOK;
        if !drain.begun {
            if drain.until <= now {
                let message = "the database that the gateways share does not answer: nothing has changed";
                self.drain_ends(Err(Error::new(ErrorKind::Other, message)));
            }
            return;
        }
        // A client that fell asleep instead is given away like any other that sleeps.
        let asleep = self.host.node().sleeping_clients();
        if let Some(drain) = self.draining() {
            drain.told.retain(|sa| asleep.binary_search(sa).is_err());
        }
        self.send_clients_away(now);
        self.give_sleepers_away(now);
    }

    fn send_clients_away(&mut self, now: Instant) {
        let Some(cluster) = &mut self.helpers.cluster else { return };
        let Some(drain) = cluster.drain.as_mut().filter(|drain| !drain.sleepers) else { return };
        let awake = self.host.node().awake_clients();
        let known = |sa: &&SaId| drain.told.contains(sa) || drain.deaf.contains(sa);
        let untold: Vec<SaId> = awake.iter().filter(|sa| !known(sa)).copied().collect();
        let rest = untold.len() > TOLD_AT_ONCE;
        for sa in untold.into_iter().take(TOLD_AT_ONCE) {
            let v6 = self.host.node().ike().path(sa).is_some_and(|path| path.remote.is_ipv6());
            let to = cluster.balance.lock().next(v6).and_then(|to| to.place);
            let goes = to.is_some_and(|to| self.host.node_mut().send_away(now, sa, &to));
            if goes {
                drain.told.insert(sa)
            } else {
                drain.deaf.insert(sa)
            };
        }
        let on_their_way = rest || awake.iter().any(|sa| drain.told.contains(sa));
        drain.sleepers = drain.until <= now || !on_their_way;
    }

    fn give_sleepers_away(&mut self, now: Instant) {
        let Some(cluster) = &mut self.helpers.cluster else { return };
        let alone = cluster.company.share.alone;
        let Some(drain) = cluster.drain.as_mut().filter(|drain| drain.sleepers) else { return };
        let node = self.host.node_mut();
        let tried = |name: &Name| drain.under_way.contains(name) || drain.kept.contains(name);
        let mut untried = node.handover_candidates();
        untried.retain(|name| !tried(name));
        // While the database is away they stay: what waits for them would be lost on the way.
        let over = drain.under_way.is_empty() && untried.is_empty() || drain.until + FOR_SLEEPERS <= now;
        untried.truncate(if alone || over { 0 } else { UNDER_WAY.saturating_sub(drain.under_way.len()) });
        let mut next = Vec::new();
        for lineage in untried {
            let to = cluster.balance.lock().next(false).map(|to| to.name);
            if let Some(handover) = node.hand_over(now, lineage) {
                drain.under_way.insert(lineage);
                next.push((handover, to));
            }
        }
        for (handover, to) in next {
            self.hand_over(handover, to);
        }
        if over {
            self.drained();
        }
    }

    /// All that could go is gone.
    fn drained(&mut self) {
        let (awake, candidates) = (self.host.node().awake_clients(), self.host.node().handover_candidates());
        let Some(drain) = self.draining() else { return };
        // In the order of their numbers.
        let gone = drain.told.iter().filter(|sa| awake.binary_search(sa).is_err()).count();
        let left = awake.len();
        let handed_over = drain.handed_over;
        let kept = candidates.iter().filter(|name| !drain.kept.contains(name)).count() + drain.kept.len();
        tracing::info!(gone, left, handed_over, kept, "drained");
        self.drain_ends(Ok(Reply::Drained { gone, left, handed_over, kept }));
    }

    /// Tells another gateway of a device: the one that has it, or `to`, which has it from now on.
    pub(crate) fn hand_over(&self, handover: Handover, to: Option<String>) {
        if let (Some(keeper), Some(_)) = (&self.helpers.keeper, &self.helpers.cluster) {
            keeper.run(Errand::HandOver(Box::new(Parcel { handover, to })));
        }
    }

    /// What became of one that was to go to a gateway.
    pub(crate) fn handed_over(&mut self, now: Instant, lineage: Name, done: bool) {
        let Some(drain) = self.draining() else { return };
        drain.under_way.remove(&lineage);
        if done {
            drain.handed_over += 1;
        } else {
            drain.kept.insert(lineage);
        }
        // Not for each: a look goes through all of them.
        if drain.under_way.len() <= UNDER_WAY / 2 {
            drain.look = now;
        }
    }
}

//! Devices that go to another gateway, or come from one. Owns nothing; see [`crate::handover`].

use super::{Around, Devices, Known};
use crate::connections::ConnectionId;
use crate::event::{Event, Kept};
use crate::handover::{Handover, Sleeper, Taken, Whose};
use crate::sessions::{Sessions, Who};
use dormouse_crypto::cert::Identity;
use dormouse_ike::Absent;
use dormouse_ike::ticket::lineage::Name;
use dormouse_sansio::Instant;
use dormouse_standin::{DeviceId, Slept, Waiting};
use ipnet::IpNet;
use std::sync::Arc;

impl Devices {
    /// Devices that sleep and are stood in for, by the lineage of their last session.
    pub(crate) fn sleeping_lineages(&self) -> Vec<Name> {
        let asleep = self.of_lineage.iter().filter(|(_, id)| self.stand_in.asleep(**id).is_some());
        asleep.map(|(lineage, _)| *lineage).collect()
    }

    /// Those of devices that are not known here, and for which something waits.
    pub(crate) fn unclaimed_lineages(&self) -> impl Iterator<Item = Name> {
        self.unclaimed.lineages()
    }

    /// The client of this lineage was told to go to another gateway: it may have gone, also before this one hears of it.
    pub(crate) fn goes(&mut self, lineage: Name) {
        if self.of_lineage.contains_key(&lineage) {
            self.leaving.insert(lineage);
        }
    }

    /// The device is awake, and may have gone.
    fn leaves(&self, id: DeviceId) -> bool {
        let lineage = self.known.get(&id).and_then(|known| known.lineage);
        lineage.is_some_and(|lineage| self.leaving.contains(&lineage)) && self.stand_in.asleep(id).is_none()
    }

    /// The device of this lineage is awake here.
    pub(crate) fn is_awake(&self, lineage: Name) -> bool {
        self.of_lineage.get(&lineage).is_some_and(|id| self.stand_in.asleep(*id).is_none())
    }

    /// Devices that sleep without an SA, for a store that has forgotten them. `name`: of a connection.
    pub(crate) fn absent_on_record(
        &self,
        now: Instant,
        name: impl Fn(ConnectionId) -> String,
    ) -> Vec<Absent> {
        let of_one = |id: &DeviceId| {
            let (known, asleep) = (self.known.get(id)?, self.stand_in.asleep(*id)?);
            let (kind, data) = &known.who.identity;
            let identity = Identity::from_ike(*kind, data).ok()?;
            let left = asleep.until.saturating_since(now);
            Some(Absent { lineage: known.lineage?, connection: name(known.connection), identity, left })
        };
        self.absent.keys().filter_map(of_one).collect()
    }

    /// See [`crate::Node::hand_over`].
    pub(crate) fn hand_over(
        &mut self,
        now: Instant,
        lineage: Name,
        sessions: &Sessions,
        name: impl Fn(ConnectionId) -> String,
    ) -> Option<Handover> {
        let asleep = |id: &DeviceId| Some((*id, self.stand_in.describe(now, *id)?));
        let Some((id, slept)) = self.of_lineage.get(&lineage).and_then(asleep) else {
            return self.unclaimed.take(now, lineage);
        };
        let known = self.known.get(&id)?;
        let routes = match self.absent.get(&id) {
            Some(routes) => routes.clone(),
            None => {
                let theirs = sessions.of_who(known.connection, &known.who);
                let mut routes: Vec<IpNet> = theirs.flat_map(|s| s.routes().to_vec()).collect();
                routes.sort_unstable();
                routes.dedup();
                routes
            }
        };
        let sleeper = Sleeper {
            peer: known.peer.clone(),
            addresses: known.addresses.clone(),
            routes,
            credential: known.credential.clone(),
            isolate: known.isolate,
            slept,
        };
        let whose = whose(known, name);
        let came = self.unclaimed.take(now, lineage);
        let mut waiting = came.map(|handover| handover.waiting).unwrap_or_default();
        waiting.extend(self.stand_in.take_waiting(now, id));
        Some(Handover { lineage, whose, sleeper: Some(Box::new(sleeper)), waiting })
    }

    /// Takes what waits for a device that another gateway has now. `None` if nothing does.
    pub(crate) fn left_behind(
        &mut self,
        now: Instant,
        lineage: Name,
        name: impl Fn(ConnectionId) -> String,
    ) -> Option<Handover> {
        let came = self.unclaimed.take(now, lineage);
        let Some(id) = self.of_lineage.get(&lineage).copied() else { return came };
        let mut waiting = came.map(|handover| handover.waiting).unwrap_or_default();
        waiting.extend(self.stand_in.take_waiting(now, id));
        let whose = whose(self.known.get(&id).filter(|_| !waiting.is_empty())?, name);
        Some(Handover { lineage, whose, sleeper: None, waiting })
    }

    /// See [`crate::Node::take_over`]. Also the routes that lead to the device from now on.
    pub(crate) fn take_over(
        &mut self,
        now: Instant,
        connection: Option<ConnectionId>,
        handover: Handover,
        around: &mut Around<'_>,
    ) -> (Taken, Vec<IpNet>) {
        let Some(connection) = connection else { return (Taken::Unknown, Vec::new()) };
        let Whose { identity, assigned, .. } = handover.whose.clone();
        let who = Arc::new(Who { identity, addresses: assigned });
        // It may have logged in here, which began another lineage.
        let by_who = || self.ids.get(&(connection, who.clone()));
        if let Some(id) = self.of_lineage.get(&handover.lineage).or_else(by_who).copied() {
            if self.leaves(id) {
                self.unclaimed.keep(now, connection, handover);
                return (Taken::Unknown, Vec::new());
            }
            return (self.take_waiting(now, id, handover.waiting, around), Vec::new());
        }
        let Handover { lineage, sleeper: Some(sleeper), waiting, .. } = handover else {
            self.unclaimed.keep(now, connection, handover);
            return (Taken::Unknown, Vec::new());
        };
        let Sleeper { peer, addresses, routes, credential, isolate, slept } = *sleeper;
        let known = Known { connection, who, peer, addresses, credential, isolate, lineage: Some(lineage) };
        let Some(id) = self.know(now, known) else { return (Taken::Unknown, Vec::new()) };
        let Slept { service, left, heard } = slept;
        if self.stand_in.sleeps(now, id, service, now + left.min(self.longest)) {
            self.lease_orders.push_back((id, true));
        }
        self.stand_in.learn(now, id, &heard);
        self.absent.insert(id, routes.clone());
        let taken = self.take_waiting(now, id, waiting, around);
        // What came here before it was kept for it later than that.
        self.claim(now, id, around);
        (taken, routes)
    }

    /// A device that has come gets what other gateways have sent for it before.
    pub(super) fn claim(&mut self, now: Instant, id: DeviceId, around: &mut Around<'_>) {
        let Some(known) = self.known.get(&id) else { return };
        let Known { connection, who, lineage, .. } = &**known;
        let theirs = |of: ConnectionId, whose: &Whose| {
            of == *connection && whose.identity == who.identity && whose.assigned == who.addresses
        };
        let waiting = self.unclaimed.take_of(now, *lineage, theirs);
        if !waiting.is_empty() {
            self.take_waiting(now, id, waiting, around);
        }
    }

    /// Packets that waited at another gateway, for a device that is known here.
    fn take_waiting(
        &mut self,
        now: Instant,
        id: DeviceId,
        waiting: Vec<Waiting>,
        around: &mut Around<'_>,
    ) -> Taken {
        if self.stand_in.asleep(id).is_some() {
            for packet in &waiting {
                let _counted = self.stand_in.keep_on(now, id, packet);
            }
            return Taken::Kept;
        }
        let packets = self.stand_in.pass_on(id, waiting);
        let packets: Vec<Kept> = packets.into_iter().map(|packet| Kept { device: id, packet }).collect();
        if !packets.is_empty() {
            around.events.push_back(Event::Deliver { packets });
        }
        Taken::Delivered
    }
}

/// As all gateways know it.
fn whose(known: &Known, name: impl Fn(ConnectionId) -> String) -> Whose {
    let Who { identity, addresses } = &*known.who;
    Whose { connection: name(known.connection), identity: identity.clone(), assigned: addresses.clone() }
}

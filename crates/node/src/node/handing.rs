//! A device that sleeps, or woke up, at another gateway: what waits for it here goes there. Owns nothing: what gateways tell each other is a
//! [`Handover`]. Must never send anything to the device.

use super::Node;
use crate::event::Order;
use crate::handover::{Handover, Taken};
use dormouse_ike::ticket::lineage::Name;
use dormouse_sansio::Instant;
use std::collections::BTreeSet;

impl Node {
    /// Gateway: devices that sleep, are stood in for and have a lineage, by which another gateway can take them over.
    #[must_use]
    pub fn handover_candidates(&self) -> Vec<Name> {
        self.devices.as_ref().map(|devices| devices.sleeping_lineages()).unwrap_or_default()
    }

    /// Gateway: devices that are not here, and for which something waits all the same: other gateways have sent it.
    #[must_use]
    pub fn unclaimed(&self) -> BTreeSet<Name> {
        self.devices.iter().flat_map(|devices| devices.unclaimed_lineages()).collect()
    }

    /// Gateway: the device of this lineage, which knows of sleep, is awake here.
    #[must_use]
    pub fn is_awake(&self, lineage: Name) -> bool {
        self.devices.as_ref().is_some_and(|devices| devices.is_awake(lineage))
    }

    /// Gateway: describes a device that sleeps for another gateway, which takes it over, and takes what waits for it. It is served on here until
    /// [`Node::gone_elsewhere`]. Of one that is [`Node::unclaimed`], what waits alone. `None` if there is none of this lineage that sleeps.
    pub fn hand_over(&mut self, now: Instant, lineage: Name) -> Option<Handover> {
        let connections = &self.connections;
        let sessions = &self.sessions;
        self.devices.as_mut()?.hand_over(now, lineage, sessions, |id| connections.name(id).to_owned())
    }

    /// What waits here for a device that another gateway has follows it.
    pub(crate) fn send_after(&mut self, now: Instant, lineage: Name) {
        let (devices, connections) = (self.devices.as_mut(), &self.connections);
        let left = devices.and_then(|d| d.left_behind(now, lineage, |id| connections.name(id).to_owned()));
        if let Some(handover) = left {
            self.order(Order::HandOver(Box::new(handover)));
        }
    }

    /// Gateway: another gateway hands a device over to this one, or what waited there for one that is here.
    pub fn take_over(&mut self, now: Instant, handover: Handover) -> Taken {
        let connection = self.connections.id(&handover.whose.connection);
        let mut taken = Taken::Unknown;
        let mut routes = Vec::new();
        self.with_devices(|devices, around| {
            (taken, routes) = devices.take_over(now, connection, handover, around);
        });
        if !routes.is_empty() {
            self.order(Order::PeerRoutes { routes, source: None });
        }
        taken
    }
}

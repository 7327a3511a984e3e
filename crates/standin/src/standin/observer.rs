//! What an awake device shows where its packets pass that is not the stand-in: another thread. Owns what is known of the device meanwhile; must never answer, nor keep.

use super::StandIn;
use core::cell::Cell;
use dormouse_sansio::Instant;
use dormouse_wire::ip::Packet;

use crate::device::DeviceId;
use crate::knowledge::{Knowledge, Share};
use crate::limits::CONNECTIONS_TOTAL;

/// Sees a device's packets in the stand-in's place ([`StandIn::lend`]). Lost: then the stand-in knows no more of the device than of a new one, and answers nothing that it has
/// not seen again.
#[derive(Debug)]
pub struct Observer {
    knowledge: Knowledge,
    /// TCP connections of this device.
    connections: Cell<usize>,
    /// How many it may have: what all others left when it was lent.
    most: usize,
}

impl Observer {
    /// A packet that the device sent.
    pub fn observe_inbound(&mut self, now: Instant, packet: &[u8]) {
        let share = Share { used: &self.connections, most: self.most };
        if let Ok(packet) = Packet::parse(packet) {
            self.knowledge.observe_inbound(now, share, &packet);
        }
    }

    /// A packet that the device receives.
    pub fn observe_outbound(&mut self, now: Instant, packet: &[u8]) {
        let share = Share { used: &self.connections, most: self.most };
        if let Ok(packet) = Packet::parse(packet) {
            self.knowledge.observe_outbound(now, share, &packet);
        }
    }
}

impl StandIn {
    /// The packets of an awake device pass elsewhere from now on: what is known of it goes there. `None` for one that is not known, or sleeps.
    pub fn lend(&mut self, id: DeviceId) -> Option<Observer> {
        let device = self.devices.get_mut(&id).filter(|device| device.sleep.is_none())?;
        let knowledge = core::mem::take(&mut device.knowledge);
        let connections = knowledge.tcp.len();
        let others = self.connections.get().saturating_sub(connections);
        self.connections.set(others);
        let most = CONNECTIONS_TOTAL.saturating_sub(others);
        Some(Observer { knowledge, connections: Cell::new(connections), most })
    }

    /// They pass here again. What was learnt here meanwhile goes: the observer has seen the later packets. A device that has begun to sleep since is served by what is known now.
    pub fn take_back(&mut self, now: Instant, id: DeviceId, observer: Observer) {
        let Some(device) = self.devices.get_mut(&id) else { return };
        let others = self.connections.get().saturating_sub(device.knowledge.tcp.len());
        self.connections.set(others + observer.knowledge.tcp.len());
        device.knowledge = observer.knowledge;
        if let Some(sleep) = device.sleep {
            self.sleeps(now, id, sleep.service, sleep.until);
        }
    }
}

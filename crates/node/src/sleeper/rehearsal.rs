//! A life in virtual time: what a sleeper learns from traffic that was recorded or made up, before it meets the world. Owns the
//! stage: a radio and a gateway that take no time. It must never let a rehearsal differ from the real thing in what the policy
//! sees: packets that come in while the radio sleeps are not seen here either.

use super::clock::PolicyTime;
use super::{Action, Sleeper};
use crate::ladder::Rung;
use dormouse_energy::Direction;
use dormouse_wire::ip::Flow;

/// A packet of the rehearsal.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// When, in order of time.
    pub at: PolicyTime,
    /// Which way.
    pub direction: Direction,
    /// Between whom.
    pub flow: Flow,
    /// Its bytes.
    pub size: usize,
}

impl Sleeper {
    /// Lives through `traffic`, connected all the time. For a sleeper that does nothing else: what it did is over, what it has
    /// learned can be [saved](Sleeper::save).
    pub fn rehearse(&mut self, traffic: impl IntoIterator<Item = Seen>) {
        let mut begun = false;
        for packet in traffic {
            if !std::mem::replace(&mut begun, true) {
                self.driver(packet.at, true);
                self.wanted(packet.at, true);
                self.up(packet.at, true);
                self.obey(packet.at);
            }
            while let Some(due) = self.poll_timeout().filter(|d| d.at < packet.at) {
                self.handle_timeout(due.at);
                self.obey(due.at);
            }
            self.packet(packet.at, packet.direction, &packet.flow, packet.size);
            self.obey(packet.at);
        }
        while self.poll_event().is_some() {}
    }

    fn obey(&mut self, now: PolicyTime) {
        while let Some(action) = self.poll_action() {
            match action {
                Action::Announce { .. } => self.announced(now),
                Action::SuspendSession => {}
                Action::RadioOff => self.radio_off(now),
                Action::RadioOn => self.radio_on(now),
                Action::WakeSession { .. } => {
                    self.came_up(now, Rung::Held);
                    self.flowing(now);
                }
            }
        }
    }
}

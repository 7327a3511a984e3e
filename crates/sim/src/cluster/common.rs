//! The gateways' common address, which is led to one of them, and the devices that reach them there: they have no tickets, and let their message ids be set
//! anew (RFC 6311), as a strongSwan does. Owns where the address is, and what these devices have answered; what gateways do about it is what
//! ships.

use super::ends::{COMMON, gateway_address};
use super::world::{Device, Later, World};
use crate::topology::{MachineId, Topology};
use dormouse_node::Change;
use dormouse_node::ladder::Rung;
use dormouse_sansio::{Carrier, Entropy, Path};
use dormouse_wire::esp::{NatT, classify_natt};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// When a gateway has died, its address is led to another one this much later.
const LED_AFTER: Duration = Duration::from_secs(2);

/// An exchange type, and the type of the first payload of a message that is protected and whole (RFC 7296 sections 3.1 and 3.2).
const INFORMATIONAL: u8 = 37;
const ENCRYPTED: u8 = 46;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Common {
    /// The gateway that has the address.
    at: usize,
    /// Answers to requests to set message ids anew: a request that comes again is answered alike.
    answered: BTreeMap<(MachineId, Vec<u8>), Vec<Vec<u8>>>,
}

impl Common {
    /// A process has died, and will answer nothing again.
    pub(crate) fn forget(&mut self, device: MachineId) {
        self.answered.retain(|(of, _), _| *of != device);
    }

    /// Devices answer what gateways have asked them.
    pub(crate) fn answer(&mut self, net: &mut Topology, devices: &[Device]) {
        for id in devices.iter().map(|device| device.id) {
            for (path, datagram) in net.take_heard(id) {
                self.answer_one(net, id, path, datagram);
            }
        }
    }

    fn answer_one(&mut self, net: &mut Topology, id: MachineId, path: Path, datagram: Vec<u8>) {
        let message = match (path.carrier, classify_natt(&datagram)) {
            (Carrier::Ike, _) => &datagram[..],
            (Carrier::NatT, NatT::Ike(message)) => message,
            _ => return,
        };
        let key = (id, message.to_vec());
        if !self.answered.contains_key(&key) {
            let (mut answer, message) = (None, &key.1);
            net.with(id, |now, host| answer = host.node_mut().answer_sync(now, message));
            let Some(answer) = answer else { return };
            self.answered.insert(key.clone(), answer);
        }
        let marker: &[u8] = if path.carrier == Carrier::NatT { &[0; 4] } else { &[] };
        for datagram in self.answered.get(&key).into_iter().flatten() {
            net.machine_mut(id).outbox.push_back((path, [marker, datagram].concat()));
        }
    }
}

impl World {
    /// Where a gateway is reached.
    pub(crate) fn addresses_of(&self, gateway: usize) -> Vec<IpAddr> {
        let has_common = self.settings.takeover && self.common.at == gateway;
        let common = has_common.then_some(COMMON);
        std::iter::once(gateway_address(gateway)).chain(common).collect()
    }

    /// What the common name is, in the order of this answer.
    pub(crate) fn name(&mut self) -> Vec<IpAddr> {
        let mut all: Vec<IpAddr> = (0..self.gateways.len()).map(gateway_address).collect();
        let turn = usize::try_from(self.net.rng().below(all.len() as u64)).unwrap_or(0);
        all.rotate_left(turn);
        all
    }

    /// What the gateways' name is to a device.
    pub(crate) fn name_for(&mut self, device: usize) -> Vec<IpAddr> {
        if self.settings.offers_ids(device) { vec![COMMON] } else { self.name() }
    }

    /// What a gateway says without keys about an SA that it does not know is not heard where the common address is: a strongSwan does not heed it.
    pub(crate) fn lose_complaints(&mut self, gateway: MachineId) {
        if !self.settings.takeover {
            return;
        }
        let is_bare =
            |message: &[u8]| message.get(18) == Some(&INFORMATIONAL) && message.get(16) != Some(&ENCRYPTED);
        let is_complaint = move |path: &Path, datagram: &[u8]| match (path.carrier, classify_natt(datagram)) {
            _ if path.local.ip() != COMMON => false,
            (Carrier::Ike, _) => is_bare(datagram),
            (Carrier::NatT, NatT::Ike(message)) => is_bare(message),
            _ => false,
        };
        self.net.set_astray(gateway, Some(Box::new(is_complaint)));
    }

    /// The common address is led to this gateway.
    pub(crate) fn lead(&mut self, gateway: usize) {
        let before = std::mem::replace(&mut self.common.at, gateway);
        if self.settings.takeover && before != gateway {
            for n in [before, gateway] {
                let (id, network) = (self.gateways[n].id, self.gateways[n].network);
                self.net.place(id, Some((network, self.addresses_of(n))));
            }
        }
    }

    /// A gateway has died.
    pub(crate) fn lead_away(&mut self, gateway: usize) {
        if self.settings.takeover && self.common.at == gateway {
            self.later(LED_AFTER, Later::Lead);
        }
    }

    /// The common address is led to a gateway that is there, if the one that has it is not.
    pub(crate) fn lead_to_any(&mut self) {
        let lives = |n: &usize| self.gateway(*n).host().is_some();
        let alive: Vec<usize> = (0..self.gateways.len()).filter(lives).collect();
        if alive.contains(&self.common.at) || alive.is_empty() {
            return;
        }
        let drawn = usize::try_from(self.net.rng().below(alive.len() as u64)).unwrap_or(0);
        self.lead(alive.get(drawn).copied().unwrap_or(0));
    }

    /// How often an IKE SA was given so far to the gateway that had it before, and to another one.
    #[must_use]
    pub fn taken_over(&self) -> [usize; 2] {
        self.database.borrow().taken_over
    }

    /// How often a device has logged in.
    #[must_use]
    pub fn logins(&self, device: usize) -> usize {
        let full = |change: &&Change| matches!(change, Change::Up { rung: Rung::Full, .. });
        self.device(device).changes.iter().filter(full).count()
    }
}

//! A thief with copies of the device's disk, and nothing else of it: no secret, no certificate. Owns what that machine can do in a
//! [`World`], and the law about it; it must never change what the device or the gateway do.

use crate::ends::{CONNECTION, device};
use crate::world::World;
use dormouse_ike::ticket::TicketKeys;
use dormouse_ike::ticket::lineage::Name;
use dormouse_netem::LinkConfig;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Where the thief is.
pub(crate) const DEN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 66, 0, 2));
/// IKE_SA_INIT (RFC 7296 section 3.1), which the thief has no use for: it cannot authenticate.
const IKE_SA_INIT: u8 = 34;

/// Who has a ticket from the gateway's own hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    Device,
    Thief,
}

/// How often tickets were accepted, by who presented them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Accepted {
    /// The device.
    pub device: usize,
    /// The thief.
    pub thief: usize,
}

impl World {
    /// A thief, who does nothing yet.
    pub fn add_thief(&mut self) {
        let thief = self.net.add_device(&self.settings, crate::world::DEVICE);
        self.net.machine_mut(thief).crash();
        let network = self.net.add_network(LinkConfig::default(), None);
        self.net.place(thief, Some((network, vec![DEN])));
        self.net.set_astray(
            thief,
            Some(Box::new(|_, datagram| [datagram.get(18), datagram.get(22)].contains(&Some(&IKE_SA_INIT)))),
        );
        self.thief = Some(thief);
    }

    /// The thief copies the device's disk.
    pub fn thief_copies(&mut self) {
        let copy = self.device().disk.tickets.clone();
        if let Some(thief) = self.thief {
            self.net.machine_mut(thief).disk.tickets = copy;
        }
    }

    /// The thief comes with the tickets that it has, and stays for so long.
    pub fn thief_tries(&mut self, time: Duration) {
        let Some(thief) = self.thief else { return };
        let (now, unix) = (self.now(), self.unix());
        let core = device(&self.settings, crate::world::DEVICE, self.net.rng(), now, unix);
        self.net.machine_mut(thief).restart(now, core);
        self.net.with(thief, |now, host| _ = host.up(now, CONNECTION));
        self.run(time);
        self.net.machine_mut(thief).crash();
        // The gateway gives up what it tells the thief.
        self.run(Duration::from_secs(6));
    }

    /// A ticket that was copied from the device was never accepted from the thief after the device had resumed with it or with a later
    /// one. (That each is accepted once, that there are no forks, and that none counts after the end of its session on record, is
    /// looked at all the time.)
    ///
    /// # Panics
    /// With the seed, if it was.
    pub fn check_thief(&self) -> Accepted {
        let mut owners: BTreeMap<Name, Owner> = BTreeMap::new();
        let thief = self.thief.map(|thief| self.net.machine(thief));
        for (owner, machine) in [(Owner::Device, Some(self.device())), (Owner::Thief, thief)] {
            for (unix, opaque) in machine.into_iter().flat_map(|m| &m.written) {
                let keys = self.ticket_keys().filter_map(|k| TicketKeys::import(&k, DAY, DAY).ok());
                if let Some(content) = keys.into_iter().find_map(|keys| keys.open(opaque, *unix).ok()) {
                    owners.insert(content.own, owner);
                }
            }
        }
        let tickets = self.invariants.tickets();
        let (mut count, mut of_device): (Accepted, Vec<Name>) = (Accepted::default(), Vec::new());
        for next in &tickets.accepted {
            let Some(used) = tickets.before(*next) else { continue };
            match owners.get(next) {
                Some(Owner::Device) => {
                    count.device += 1;
                    of_device.push(used);
                }
                Some(Owner::Thief) => {
                    count.thief += 1;
                    let late = of_device.iter().any(|theirs| tickets.descends(*theirs, used));
                    let copied = owners.get(&used) == Some(&Owner::Device);
                    assert!(
                        !(copied && late),
                        "seed {}: the thief used {used:?} after the device had used it or a later one",
                        self.seed
                    );
                }
                // A session that took two round trips, and whose ticket never came to a disk.
                None => {}
            }
        }
        count
    }
}

const DAY: Duration = Duration::from_secs(86_400);

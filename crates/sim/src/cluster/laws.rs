//! What must be true at every step of a world of several gateways, with all faults. Owns these laws and what has to be remembered to check
//! them; must never change what it looks at. What must be true once the faults have stopped is `settled`'s.
//!
//! - A ticket is accepted once, by whichever gateway; none of a fork is, and none after its session has ended on record ([`Tickets`]).
//! - No ESP sequence number, and no initialization vector of an IKE message, is used twice under one key, by whichever gateway.
//! - No inner address has sessions of two identities at once, at one gateway or two. Except an address whose lease a failover has forgotten,
//!   or which was taken from its holder: a gateway that did not hear of it has the old session until it is told (`docs/cluster.md`, "What
//!   happens when").
//! - No packet reaches the server from an address that the store says is another device's, nor another device than the one whose address the
//!   store says it is, with the same exception. (A device whose lease is not granted may be told of the address, and at once that its session
//!   is over: nothing is carried for it.)
//! - A gateway has no session of one that it knows to be refused, and takes no packet from him.
//! - After a gateway has heard that another one has a session, nothing of it is left ([`crate::shared::Member::hear`]).
//! - A gateway has no route but for sessions, and for devices that sleep with it.
//! - Where sessions are limited, once the faults have stopped: no identity has more at all gateways than it may have for longer than
//!   [`FOR_LONG`].
//! - A packet that an end is handed is sent, kept, answered or counted as lost; its timers are among those that the status lists.

use super::ends::identity;
use super::world::{Device, Gateway, Thief};
use crate::invariants::{Sequences, Tickets, Vectors, looks_sound};
use crate::machine::Machine;
use crate::shared::{Database, all};
use crate::topology::{MachineId, Topology};
use dormouse_ike::config_payload::{AddressPool, Lease};
use dormouse_ike::ticket::lineage::{Name, Operation};
use dormouse_node::SessionInfo;
use dormouse_node::host::Host;
use dormouse_sansio::{Carrier, Instant};
use dormouse_wire::esp::{NatT, classify_natt};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// A gateway that comes back counts within this.
const FOR_LONG: Duration = Duration::from_secs(30);

/// See the module.
pub(crate) struct Laws {
    seed: u64,
    /// Of devices, and of all gateways together.
    sequences: Sequences<Option<MachineId>>,
    vectors: Vectors<Option<MachineId>>,
    pub(crate) tickets: Tickets,
    /// How much of what the store has done was looked at.
    done: usize,
    /// The last transaction, and which lineages had ended before it.
    ended: (u64, BTreeSet<Name>),
    /// The device that each packet is of.
    packets: Vec<usize>,
    /// How much of each machine's received packets was looked at.
    read: BTreeMap<MachineId, usize>,
    /// Sessions of each gateway: who, and where inside.
    sessions: BTreeMap<usize, Vec<(String, Vec<IpAddr>)>>,
    /// How many sessions an identity may have, once the faults have stopped; and since when each has more.
    most: Option<usize>,
    excess: BTreeMap<String, Instant>,
    /// Packets that have come to where they were meant to.
    pub(crate) arrived: BTreeSet<u64>,
}

impl Laws {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            sequences: Sequences::default(),
            vectors: Vectors::default(),
            tickets: Tickets::default(),
            done: 0,
            ended: (0, BTreeSet::new()),
            packets: Vec::new(),
            read: BTreeMap::new(),
            sessions: BTreeMap::new(),
            most: None,
            excess: BTreeMap::new(),
            arrived: BTreeSet::new(),
        }
    }

    /// The faults have stopped: an identity may have so many sessions. 0: they end each other. `keep`: a second one from the same address.
    pub(crate) fn calm(&mut self, limit: u8, keep: bool) {
        let most = usize::from(limit).max(if keep { 2 } else { 1 });
        self.most = (limit > 0).then_some(most);
    }

    fn look_at_limits(&mut self, now: Instant) {
        let Some(most) = self.most else { return };
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for (peer, _) in self.sessions.values().flatten() {
            *counts.entry(peer).or_default() += 1;
        }
        self.excess.retain(|peer, _| counts.get(peer.as_str()).is_some_and(|count| *count > most));
        for (peer, count) in counts.iter().filter(|(_, count)| **count > most) {
            let since = *self.excess.entry((*peer).to_owned()).or_insert(now);
            assert!(
                now - since <= FOR_LONG,
                "too many sessions of an identity for long; seed {}: {count} of {peer} since {since:?}, {:?} at {now:?}",
                self.seed,
                self.sessions
            );
        }
    }

    /// The number of a packet from a device, or to the one whose address it goes to.
    pub(crate) fn sends(&mut self, device: usize) -> u64 {
        self.packets.push(device);
        self.packets.len() as u64 - 1
    }

    /// Something has happened.
    pub(crate) fn look(
        &mut self,
        net: &Topology,
        gateways: &[Gateway],
        devices: &[Device],
        thief: Option<&Thief>,
        database: &mut Database,
    ) {
        for done in &database.done[self.done..] {
            if self.ended.0 != done.transaction {
                self.ended = (done.transaction, self.tickets.ended.clone());
            }
            self.tickets.look(&done.operation, done.outcome);
            // A transaction that is repeated ends what it had begun itself, and begins it again.
            if let Operation::Insert(row) = done.operation
                && !self.ended.1.contains(&row.id)
            {
                self.tickets.ended.remove(&row.id);
            }
        }
        self.done = database.done.len();
        let touched: BTreeSet<MachineId> = net.touched().collect();
        for id in &touched {
            self.look_at_sent(*id, net.machine(*id));
        }
        for (n, gateway) in gateways.iter().enumerate().filter(|(_, gateway)| touched.contains(&gateway.id)) {
            self.look_at_gateway(net.now, n, net.machine(gateway.id), &database.lost);
            self.look_at_server(n, gateway.id, net.machine(gateway.id), database);
        }
        self.look_at_limits(net.now);
        let of_thief = thief.map(|thief| (thief.of, thief.id));
        let owners = devices.iter().map(|device| device.id).enumerate().chain(of_thief);
        for (n, id) in owners.filter(|(_, id)| touched.contains(id)) {
            self.look_at_device(n, id, net.machine(id), database);
        }
    }

    fn look_at_sent(&mut self, id: MachineId, machine: &Machine) {
        looks_sound("machine", machine);
        let (sender, end) = match machine.shared {
            Some(_) => (None, "gateways"),
            None => (Some(id), "machine"),
        };
        for (path, datagram) in &machine.outbox {
            match (path.carrier, classify_natt(datagram)) {
                (Carrier::Ike, _) => self.vectors.sends(sender, end, datagram),
                (Carrier::NatT, NatT::Ike(message)) => self.vectors.sends(sender, end, message),
                (Carrier::NatT, NatT::Keepalive) => {}
                (Carrier::RawEsp | Carrier::NatT, _) => _ = self.sequences.sends(sender, end, datagram),
                _ => {}
            }
        }
    }

    fn look_at_gateway(&mut self, now: Instant, n: usize, machine: &Machine, lost: &BTreeSet<IpAddr>) {
        let seed = self.seed;
        let (Some(node), Some(member)) = (machine.node(), &machine.shared) else {
            self.sessions.remove(&n);
            return;
        };
        let sessions = node.gateway_sessions(now);
        let denied = member.denied();
        // One that is being ended carries nothing any more.
        let serves = |session: &&SessionInfo| !session.children.is_empty();
        for session in sessions.iter().filter(serves) {
            assert!(
                !denied.contains(&session.peer),
                "a gateway serves one that it refuses; seed {seed}: gateway {n}, {} at {now:?}",
                session.peer
            );
        }
        let absent = node.absent_devices();
        let of_absent = |route: &IpNet| absent.iter().any(|device| device.routes.contains(route));
        for route in &machine.routes {
            let lead = |addresses: &[IpAddr]| addresses.iter().any(|address| route.contains(address));
            let led = sessions.iter().any(|session| lead(&session.addresses)) || of_absent(route);
            assert!(led, "a route leads to nobody; seed {seed}: gateway {n}, {route} at {now:?}");
        }
        // A lease that the store has not granted is told to nobody yet.
        let pool = machine.host().and_then(Host::pool);
        let granted = |session: &SessionInfo| {
            let v4 =
                session.addresses.iter().find_map(|a| if let IpAddr::V4(v4) = a { Some(*v4) } else { None });
            !pool.is_some_and(|pool| pool.is_unwritten(&Lease { v4, v6: None }))
        };
        let now_there: Vec<(String, Vec<IpAddr>)> = sessions
            .iter()
            .filter(serves)
            .filter(|s| granted(s))
            .map(|s| (s.peer.clone(), s.addresses.clone()))
            .collect();
        if self.sessions.get(&n) == Some(&now_there) {
            return;
        }
        self.sessions.insert(n, now_there);
        let mut holders: BTreeMap<IpAddr, (&str, usize)> = BTreeMap::new();
        for (at, (peer, addresses)) in
            self.sessions.iter().flat_map(|(at, all)| all.iter().map(move |s| (at, s)))
        {
            for address in addresses.iter().filter(|address| !lost.contains(address)) {
                let first = *holders.entry(*address).or_insert((peer, *at));
                assert!(
                    first.0 == peer,
                    "an address has two holders; seed {seed}: {address} of {first:?} and {:?} at {now:?}",
                    (peer, at)
                );
            }
        }
    }

    /// What came out of the tunnels at a gateway.
    fn look_at_server(&mut self, n: usize, id: MachineId, machine: &Machine, database: &Database) {
        let seed = self.seed;
        let read = self.read.entry(id).or_default();
        let denied = machine.shared.as_ref().map(|member| member.denied()).unwrap_or_default();
        for (number, from) in machine.received.iter().zip(&machine.senders).skip(*read) {
            let device = usize::try_from(*number).ok().and_then(|number| self.packets.get(number));
            let device = *device.unwrap_or_else(|| panic!("packet {number} was never sent"));
            assert!(
                !denied.contains(&identity(device)),
                "a gateway takes a packet of one that it refuses; seed {seed}: gateway {n}, packet {number}"
            );
            let holder = holder(database, *from);
            assert!(
                holder.is_none_or(|holder| holder == identity(device)) || database.lost.contains(from),
                "a packet came from an address of another's; seed {seed}: {number} of {device} from {from}"
            );
            self.arrived.insert(*number);
        }
        *read = machine.received.len();
    }

    fn look_at_device(&mut self, n: usize, id: MachineId, machine: &Machine, database: &Database) {
        let seed = self.seed;
        let read = self.read.entry(id).or_default();
        for number in machine.received.iter().skip(*read) {
            let meant = usize::try_from(*number).ok().and_then(|number| self.packets.get(number)).copied();
            assert!(
                meant == Some(n) || machine.inner.iter().any(|address| database.lost.contains(address)),
                "a packet reached another's device; seed {seed}: {number} of {meant:?} came to {n}"
            );
            self.arrived.insert(*number);
        }
        *read = machine.received.len();
    }
}

/// Whose an address is, as the store has it.
pub(crate) fn holder(database: &Database, address: IpAddr) -> Option<String> {
    let lease = database.tables.leases.iter().find(|(_, held)| all(held).any(|held| held == address));
    lease.map(|(holder, _)| String::from_utf8_lossy(&holder.identity.1).into_owned())
}

//! What must be true at every step of a world of HIP, with all faults. Owns these laws and what has to be remembered to check them; must
//! never change what it looks at, nor ask a host what only the network shows.
//!
//! - No ESP sequence number is used twice under one SPI, also by a process that has started again.
//! - No inner packet is seen in clear.
//! - A packet arrives once, where it was for, and from the address of the host that sent it; once more for each association that its
//!   sender has made since, because what it sent in doubt goes out again when an association is lost.
//! - ESP goes under an SPI that its receiver has told, and nowhere but where that receiver's HIP has come from after something was sent there.
//! - A relay passes ESP on only to who has spoken to it.
//! - A packet that a host is handed is sent, kept or counted as lost.
//! - A host has one association with a peer, of three pairs of SAs at most, and holds no more packets than it may.
//! - No timer of a host without a radio sends anything to a peer that it knows to sleep.
//! - What [`super::lives`] says of lifetimes.

use super::ends::{Ends, SERVER};
use super::lives::Lives;
use super::settings::Meeting;
use crate::engine::is_esp;
use crate::invariants::Sequences;
use crate::machine::Machine;
use crate::topology::{MachineId, Topology};
use dormouse_hip::Host as Hip;
use dormouse_node::Change;
use dormouse_node::hold::MOST_PACKETS;
use dormouse_sansio::{Carrier, Instant, Path};
use dormouse_wire::hip::{Hit, Packet, Param, ParamType};
use memchr::memmem;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// Pairs of SAs of one association: the one in use, the one that it replaced, and the one that takes its place.
const PAIRS: usize = 3;

/// What a numbered packet begins with, where it is seen: both ports are 9, and it is 16 bytes long.
const NUMBERED: [u8; 6] = [0, 9, 0, 9, 0, 16];

/// A numbered packet.
#[derive(Debug)]
struct Sent {
    from: usize,
    to: usize,
    /// How often its sender had made an association then.
    made: usize,
    times: usize,
}

/// See the module.
#[derive(Default)]
pub(super) struct Laws {
    sequences: Sequences<usize>,
    /// The machine that receives under an SPI.
    receivers: BTreeMap<u32, usize>,
    /// To where a machine has sent HIP since it began.
    asked: BTreeSet<(usize, SocketAddr)>,
    /// From where the HIP of which sender has come to a machine since it asked there.
    shown: BTreeMap<(usize, SocketAddr), BTreeSet<Hit>>,
    /// By their numbers, the first of which is 1.
    packets: Vec<Sent>,
    /// Of each machine: how many of its received packets and changes were looked at, and how many associations it has made.
    read: BTreeMap<usize, (usize, usize, usize)>,
    pub(super) lives: Lives,
    /// Of each machine, before its timers run: what waits to leave it, and the peers that it knows to sleep.
    before: BTreeMap<usize, (usize, BTreeSet<Hit>)>,
}

impl Laws {
    /// A numbered packet is sent; its number.
    pub(super) fn send(&mut self, from: usize, to: usize) -> u64 {
        let made = self.read.get(&from).map_or(0, |read| read.2);
        self.packets.push(Sent { from, to, made, times: 0 });
        self.packets.len() as u64
    }

    /// A process has died: the next one has shown nothing to itself. A relay's clients tell it anew whom it may send to.
    pub(super) fn died(&mut self, n: usize, ends: &Ends) {
        if n != ends.server() {
            self.asked.retain(|(machine, _)| *machine != n);
            self.shown.retain(|(machine, _), _| *machine != n);
        }
    }

    /// Datagrams have arrived; timers have not run.
    pub(super) fn delivered(&mut self, net: &Topology, machines: &[MachineId]) {
        let of = |(n, id): (usize, &MachineId)| {
            let machine = net.machine(*id);
            (n, (machine.outbox.len(), sleepers(machine)))
        };
        self.before = machines.iter().enumerate().map(of).collect();
    }

    /// Everything that was due has happened.
    pub(super) fn look(&mut self, net: &mut Topology, machines: &[MachineId], ends: &Ends) {
        for (n, id) in machines.iter().enumerate() {
            let heard = net.take_heard(*id);
            heard.iter().for_each(|(path, datagram)| self.hears(n, path, datagram));
        }
        for (n, id) in machines.iter().enumerate() {
            let machine = net.machine(*id);
            for (at, (path, datagram)) in machine.outbox.iter().enumerate() {
                self.sends(n, path, datagram, ends);
                self.disturbs(n, at, path, datagram, machine, ends);
            }
            self.arrives(n, machine, ends, net.now);
            if n != ends.server() {
                let vanished = machine.vanished();
                assert_eq!(vanished, 0, "packets vanished in host {n}; {vanished}");
            }
            is_bounded(n, net, machine, machines.len());
        }
        self.before.clear();
    }

    fn hears(&mut self, n: usize, path: &Path, datagram: &[u8]) {
        if let Some(packet) = hip_of(path, datagram)
            && self.asked.contains(&(n, path.remote))
        {
            self.shown.entry((n, path.remote)).or_default().insert(packet.header.sender);
        }
    }

    fn sends(&mut self, n: usize, path: &Path, datagram: &[u8], ends: &Ends) {
        let clear = memmem::find_iter(datagram, &NUMBERED).any(|at| self.is_number(datagram, at));
        assert!(!clear, "machine {n} sent an inner packet in clear; {datagram:x?}");
        if let Some(packet) = hip_of(path, datagram) {
            self.asked.insert((n, path.remote));
            // A server sends on what others say.
            if packet.header.sender == ends.tags[n]
                && let Some(Param::EspInfo(info)) = packet.read(ParamType::EspInfo)
            {
                self.receivers.insert(info.new_spi, n);
            }
        } else if is_esp(path, datagram) {
            self.sends_esp(n, path, datagram, ends);
        }
    }

    fn sends_esp(&mut self, n: usize, path: &Path, datagram: &[u8], ends: &Ends) {
        let shown = self.shown.get(&(n, path.remote));
        if n == ends.server() {
            assert!(shown.is_some(), "the relay passed ESP on to who has not spoken to it; {path:?}");
            return;
        }
        let spi = self.sequences.sends(n, "host", datagram);
        let receiver = spi.and_then(|spi| self.receivers.get(&spi));
        let Some(receiver) = receiver else {
            panic!("ESP went under an SPI that no host has told; host {n}, {spi:x?}");
        };
        // A relay in use is where the configuration says.
        let relay = ends.settings.meeting == Meeting::Relay && SERVER.contains(&path.remote.ip());
        assert!(
            relay || shown.is_some_and(|senders| senders.contains(&ends.tags[*receiver])),
            "ESP went to an address that was not verified; host {n} to {receiver}, {path:?}, {shown:?}"
        );
    }

    /// Whether a numbered packet of this world stands there.
    fn is_number(&self, datagram: &[u8], at: usize) -> bool {
        let number = datagram.get(at + 8..at + 16).and_then(|b| b.try_into().ok()).map(u64::from_be_bytes);
        number.is_some_and(|number| (1..=self.packets.len() as u64).contains(&number))
    }

    /// What a timer has sent goes to no sleeper.
    fn disturbs(&self, n: usize, at: usize, path: &Path, datagram: &[u8], machine: &Machine, ends: &Ends) {
        let Some((before, asleep)) = self.before.get(&n) else { return };
        if at < *before || ends.has_radio(n) || asleep.is_empty() {
            return;
        }
        let to = match hip_of(path, datagram) {
            Some(packet) => Some(packet.header.receiver),
            None => {
                let spi = datagram.get(..4).and_then(|b| b.try_into().ok()).map(u32::from_be_bytes);
                spi.and_then(|spi| self.receivers.get(&spi)).map(|n| ends.tags[*n])
            }
        };
        let disturbed = to.filter(|to| asleep.contains(to) && sleepers(machine).contains(to));
        assert!(
            disturbed.is_none(),
            "a timer of a host disturbed a sleeping peer; {n}, {disturbed:?}, {path:?}, {:?}",
            hip_of(path, datagram).map(|p| p.header.kind)
        );
    }

    fn arrives(&mut self, n: usize, machine: &Machine, ends: &Ends, now: Instant) {
        let (received, changes, made) = self.read.get(&n).copied().unwrap_or_default();
        let up = |c: &&Change| matches!(c, Change::PeerUp { .. });
        let news = machine.changes.get(changes..).unwrap_or_default();
        let made = made + news.iter().filter(up).count();
        self.lives.look(now, n, machine, news, ends);
        self.read.insert(n, (machine.received.len(), machine.changes.len(), made));
        for (number, sender) in machine.received.iter().zip(&machine.senders).skip(received) {
            let at = usize::try_from(*number).ok().and_then(|number| number.checked_sub(1));
            let packet = at.and_then(|at| self.packets.get_mut(at));
            let packet = packet.unwrap_or_else(|| panic!("a packet arrived that was never sent; {number}"));
            packet.times += 1;
            let from = IpAddr::from(ends.tags[packet.from].0);
            assert!(
                packet.to == n && *sender == from,
                "a packet arrived that its owner did not send so; {number} from {sender} at {n}, {packet:?}"
            );
            let since = self.read.get(&packet.from).map_or(0, |read| read.2) - packet.made;
            assert!(packet.times <= 1 + since, "a packet arrived too often; {number} at {n}, {packet:?}");
        }
    }
}

/// Peers that the host of this machine knows to sleep.
fn sleepers(machine: &Machine) -> BTreeSet<Hit> {
    let hip = machine.node().and_then(|node| node.manager::<Hip>());
    hip.map(|hip| hip.describe().filter(|d| d.peer_sleeps).map(|d| d.peer).collect()).unwrap_or_default()
}

fn is_bounded(n: usize, net: &Topology, machine: &Machine, machines: usize) {
    let (Some(host), Some(node)) = (machine.host(), machine.node()) else { return };
    let peers: Vec<Hit> =
        node.manager::<Hip>().map(|hip| hip.describe().map(|d| d.peer).collect()).unwrap_or_default();
    let different: BTreeSet<&Hit> = peers.iter().collect();
    assert!(
        peers.len() < machines && different.len() == peers.len(),
        "host {n} has too many associations; {peers:?}"
    );
    let sessions = node.gateway_sessions(net.now);
    let pairs = sessions.iter().map(|s| s.children.len()).max().unwrap_or(0);
    assert!(sessions.len() < machines && pairs <= PAIRS, "host {n} has too many SAs; {sessions:#?}");
    assert!(host.held() <= MOST_PACKETS, "host {n} holds too many packets; {}", host.held());
}

/// The HIP packet of a datagram.
pub(super) fn hip_of<'a>(path: &Path, datagram: &'a [u8]) -> Option<Packet<'a>> {
    let bytes = match path.carrier {
        Carrier::RawHip => datagram,
        Carrier::HipUdp => datagram.strip_prefix(&[0; 4])?,
        _ => return None,
    };
    Packet::parse(bytes).ok()
}

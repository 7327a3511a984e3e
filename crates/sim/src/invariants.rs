//! What must be true at every step of a world, with all faults. Owns these laws and what has to be remembered to check
//! them; must never change what it looks at. What must be true once the faults have stopped is [`crate::World::settle_and_check`].
//!
//! - No ESP sequence number, and no initialization vector of an IKE message, is used twice under one key.
//! - No inner packet is seen in clear between the two ends, of neither family.
//! - A packet arrives once; one of the device's once more for each session that it has made since, because what it sent in doubt
//!   goes out again when an SA is declared lost.
//! - A ticket is accepted once, no ticket of a fork is, and none after its session has ended on record ([`Tickets`]).
//! - What must be stored of a ticket is stored before any datagram leaves ([`crate::Machine::flush`]).
//! - A device hears of no address that is not on the gateway's disk: a crash would give it to another.
//! - A packet that either end is handed is sent, kept, answered or counted as lost.
//! - The timer that an end waits for is among those that the status lists, and makes none of them late.
//! - No timer of the gateway sends anything while its only sessions are those of devices that it knows to sleep.

use crate::machine::Machine;
use dormouse_ike::ticket::lineage::{Name, Operation, Outcome, TicketHolder};
use dormouse_node::Change;
use dormouse_node::ladder::Rung;
use dormouse_node::pool::Addresses;
use dormouse_sansio::{Carrier, Path};
use dormouse_wire::esp::{NatT, classify_natt};
use memchr::memmem;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The exchange type (RFC 9242).
const IKE_INTERMEDIATE: u8 = 43;

/// Every sequence number of ESP that was used, by sender and SPI.
pub(crate) struct Sequences<Sender>(BTreeSet<(Sender, u32, u32)>);

impl<Sender> Default for Sequences<Sender> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<Sender: Ord> Sequences<Sender> {
    /// `sender`, which is called `end`, sends this packet of ESP; its SPI.
    pub(crate) fn sends(&mut self, sender: Sender, end: &str, esp: &[u8]) -> Option<u32> {
        let word = |at: usize| esp.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
        let (spi, sequence) = (word(0)?, word(4)?);
        let fresh = self.0.insert((sender, spi, sequence));
        assert!(fresh, "the {end} used a sequence number twice; {sequence} of SPI {spi:08x}");
        Some(spi)
    }
}

/// The initialization vectors of IKE messages, by sender and SPIs, and what each was used for.
pub(crate) struct Vectors<Sender>(BTreeMap<(Sender, Vec<u8>), Vec<u8>>);

impl<Sender> Default for Vectors<Sender> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<Sender: Ord> Vectors<Sender> {
    /// `sender`, which is called `end`, sends this IKE message.
    pub(crate) fn sends(&mut self, sender: Sender, end: &str, message: &[u8]) {
        // An Encrypted payload, or an Encrypted Fragment payload (RFC 7296 section 3.14, RFC 7383 section 2.5), that comes first.
        let at = match message.get(16) {
            Some(46) => 32,
            Some(53) => 36,
            _ => return,
        };
        let (Some(spis), Some(vector)) = (message.get(..16), message.get(at..at + 8)) else { return };
        // Each IKE_INTERMEDIATE has keys of its own, and those of IKE_AUTH stay (RFC 9370 section 2.2.2).
        let round = if message.get(18) == Some(&IKE_INTERMEDIATE) { message.get(20..24) } else { None };
        let name = [spis, vector, round.unwrap_or_default()].concat();
        let before = self.0.insert((sender, name), message.to_vec());
        let same = before.is_none_or(|before| before == message);
        assert!(same, "the {end} used an initialization vector of IKE twice; {vector:x?}");
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Invariants {
    /// `true`: the device's.
    sequences: Sequences<bool>,
    vectors: Vectors<bool>,
    /// For each packet: how many sessions the device had made when it was sent, and how often it has arrived.
    packets: Vec<(usize, usize)>,
    /// How much of either end's received packets, of the device's changes and of what the store has done was looked at.
    read: (usize, usize, usize, usize),
    sessions: usize,
    tickets: Tickets,
    /// Addresses that have been on the gateway's disk, and those that the device has.
    leased: BTreeSet<IpAddr>,
    inner: Vec<IpAddr>,
}

impl Invariants {
    /// An end hands a datagram to its network.
    pub(crate) fn sends(
        &mut self,
        device: bool,
        path: &Path,
        datagram: &[u8],
        inner: &[IpAddr],
        servers: &[[IpAddr; 2]],
    ) {
        let end = if device { "device" } else { "gateway" };
        let message = match (path.carrier, classify_natt(datagram)) {
            (Carrier::Ike, _) => Some(datagram),
            (Carrier::NatT, NatT::Ike(message)) => Some(message),
            (Carrier::NatT, NatT::Keepalive) => return,
            _ => None,
        };
        match message {
            Some(message) => self.vectors.sends(device, end, message),
            None => _ = self.sequences.sends(device, end, datagram),
        }
        let clear = inner.iter().any(|own| {
            let servers = servers.iter().map(|pair| octets(pair[usize::from(own.is_ipv6())]));
            servers.into_iter().any(|server| holds_addresses(datagram, &octets(*own), &server))
        });
        assert!(!clear, "the {end} sent an inner packet in clear; {datagram:x?}");
    }

    /// Something has happened; `sent` packets were sent so far.
    pub(crate) fn look(&mut self, sent: u64, device: &Machine, gateway: &Machine) {
        let (at_gateway, at_device, changes, done) = self.read;
        let made = |c: &&Change| matches!(c, Change::Up { rung: Rung::Resume | Rung::Full, .. });
        self.sessions += device.changes.iter().skip(changes).filter(made).count();
        self.packets.resize(usize::try_from(sent).unwrap_or(usize::MAX) + 1, (self.sessions, 0));
        for (packets, from, to) in
            [(&gateway.received, at_gateway, "gateway"), (&device.received, at_device, "device")]
        {
            for number in packets.iter().skip(from) {
                let packet = usize::try_from(*number).ok().and_then(|n| self.packets.get_mut(n));
                let (sessions, times) = packet.unwrap_or_else(|| panic!("packet {number} was never sent"));
                *times += 1;
                let most = if to == "gateway" { 1 + self.sessions - *sessions } else { 1 };
                assert!(
                    *times <= most,
                    "a packet reached the {to} too often; packet {number}, {times} times"
                );
            }
        }
        for (end, machine) in [("device", device), ("gateway", gateway)] {
            looks_sound(end, machine);
        }
        self.look_at_leases(device, gateway);
        for (operation, outcome) in &gateway.store.done[done..] {
            self.tickets.look(operation, *outcome);
        }
        let done = gateway.store.done.len();
        self.read = (gateway.received.len(), device.received.len(), device.changes.len(), done);
    }

    fn look_at_leases(&mut self, device: &Machine, gateway: &Machine) {
        let addresses = |a: &Addresses| a.v4.map(IpAddr::V4).into_iter().chain(a.v6.map(IpAddr::V6));
        self.leased.extend(gateway.disk.leases.iter().flat_map(|(_, held)| addresses(held)));
        if self.inner != device.inner {
            self.inner.clone_from(&device.inner);
            let early = self.inner.iter().find(|address| !self.leased.contains(address));
            assert!(early.is_none(), "the device has an address that its gateway would forget; {early:?}");
        }
    }

    /// What became of the tickets so far.
    pub(crate) fn tickets(&self) -> &Tickets {
        &self.tickets
    }
}

/// What must be true of one machine: no packet vanishes in it, and its timers are told.
pub(crate) fn looks_sound(end: &str, machine: &Machine) {
    let vanished = machine.vanished();
    assert_eq!(vanished, 0, "packets vanished in the {end}; {vanished}");
    let Some(host) = &machine.host else { return };
    let silent = host.node().is_suspended();
    assert!(silent || !host.radio_is_off(), "the {end}'s radio is off, and its node may send");
    let (next, listed) = (host.poll_timeout(), host.deadlines());
    let latest = listed.iter().map(|timer| timer.at + timer.slack).min();
    let is_listed = next.map_or(listed.is_empty(), |next| listed.contains(&next));
    let in_time = next.map(|next| next.at) <= latest;
    assert!(is_listed && in_time, "the {end}'s timers are not listed; {next:?} of {listed:?}");
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// One of these addresses stands behind the other, as source and destination do in a header of IP.
fn holds_addresses(datagram: &[u8], a: &[u8], b: &[u8]) -> bool {
    [[a, b].concat(), [b, a].concat()].iter().any(|pair| memmem::find(datagram, pair).is_some())
}

/// What the store has said about tickets. A ticket is named by the SA that issued it.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    /// Lineages that have ended, and whose they are.
    pub(crate) ended: BTreeSet<Name>,
    holders: BTreeMap<Name, TicketHolder>,
    /// SAs of which a ticket was accepted.
    used: BTreeSet<Name>,
    /// For each SA the one before it, as tickets that were accepted, and rekeyings, have told.
    before: BTreeMap<Name, Name>,
    /// Of each lineage, the SA that was made by the last accepted ticket.
    last: BTreeMap<Name, Name>,
    /// The SAs that accepted tickets have made, in their order.
    pub(crate) accepted: Vec<Name>,
}

impl Tickets {
    pub(crate) fn look(&mut self, operation: &Operation, outcome: Outcome) {
        match *operation {
            Operation::Insert(row) => {
                self.holders.insert(row.id, row.holder);
            }
            Operation::Confirm { lineage, own, before, next, .. } if outcome == Outcome::Done => {
                assert!(self.used.insert(own), "a ticket was accepted twice; {own:?}");
                assert!(!self.ended.contains(&lineage), "accepted after the end of its session; {own:?}");
                self.before.insert(own, before);
                self.before.insert(next, own);
                if let Some(last) = self.last.insert(lineage, next) {
                    assert!(self.descends(own, last), "a fork: {own:?} does not stem from {last:?}");
                }
                self.accepted.push(next);
            }
            Operation::Confirm { .. } => {}
            Operation::Advance { from, to, .. } => {
                if from != to {
                    self.before.insert(to, from);
                }
            }
            // Of one that no gateway has written down yet, none that does so later counts.
            Operation::EndFormer { lineage, .. } if !self.holders.contains_key(&lineage) => {
                self.ended.insert(lineage);
            }
            Operation::End { lineage, holder, .. } | Operation::EndFormer { lineage, holder } => {
                if self.holders.get(&lineage) == Some(&holder) {
                    self.ended.insert(lineage);
                }
            }
            Operation::EndAll { holder } => {
                self.ended.extend(self.holders.iter().filter(|(_, h)| **h == holder).map(|(id, _)| *id));
            }
            Operation::EndEvery => self.ended.extend(self.holders.keys().copied()),
            Operation::Enter { .. } | Operation::Leave { .. } => {}
        }
    }

    /// The SA whose ticket made this one.
    pub(crate) fn before(&self, name: Name) -> Option<Name> {
        self.before.get(&name).copied()
    }

    /// Whether `late` is `early`, or was made from it.
    pub(crate) fn descends(&self, late: Name, early: Name) -> bool {
        let mut at = Some(late);
        for _ in 0..=self.before.len() {
            match at {
                Some(name) if name == early => return true,
                Some(name) => at = self.before.get(&name).copied().filter(|b| *b != name),
                None => return false,
            }
        }
        false
    }
}

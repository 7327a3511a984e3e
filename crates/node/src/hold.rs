//! Packets that wait for their session: those that a device sends while its radio sleeps, and those of a session that is on its
//! way back. Owns the bound and what gives way when it is reached; must never change a packet.
//!
//! The oldest stay: they woke the radio, and their senders wait for an answer. What has waited for longer than [`STALE`] gives way
//! to a newcomer: its sender has repeated it or given up (without a network, packets may wait for hours). And no flow keeps the others
//! out: a stream that goes on sending into a sleep fills every place, so its newest packet gives way to one of a flow that has fewer.

use dormouse_sansio::Instant;
use dormouse_wire::ip;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

/// Most bytes that are held, however few packets they are.
pub const MOST_BYTES: usize = 128 << 10;
/// Most packets that are held unless configured otherwise.
pub const MOST_PACKETS: usize = 64;
/// After so long a packet gives way to a newer one, if there is no other room.
pub const STALE: Duration = Duration::from_secs(30);

/// A packet that waits.
#[derive(Debug)]
struct Held {
    since: Instant,
    /// Parsed once: which packet gives way is asked for each newcomer of a stream that fills the queue.
    flow: Option<ip::Flow>,
    packet: Vec<u8>,
}

/// A bounded queue of whole inner packets, oldest first.
#[derive(Debug)]
pub struct HoldQueue {
    packets: VecDeque<Held>,
    /// How many of `packets` each flow has; none has 0.
    flows: BTreeMap<Option<ip::Flow>, usize>,
    bytes: usize,
    most: usize,
}

impl Default for HoldQueue {
    fn default() -> Self {
        Self::new(MOST_PACKETS)
    }
}

impl HoldQueue {
    /// Holds at most `most` packets, and [`MOST_BYTES`].
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { packets: VecDeque::new(), flows: BTreeMap::new(), bytes: 0, most }
    }

    /// Holds at most so many packets from now on; those that wait are not dropped for it.
    pub fn set_most(&mut self, most: usize) {
        self.most = most;
    }

    /// Nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Packets that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Their bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Holds a packet. Returns how many packets were lost by it: those that made room, or itself, if there was none.
    pub fn push(&mut self, now: Instant, packet: &[u8]) -> u64 {
        let flow = ip::flow(packet);
        let mut lost = 0;
        while !self.fits(packet) {
            lost += 1;
            let stale = self.packets.front().is_some_and(|held| now - held.since > STALE);
            let gives_way = if stale { Some(0) } else { self.newest_of_largest(flow) };
            if gives_way.is_none_or(|at| !self.remove(at)) {
                return lost;
            }
        }
        self.bytes += packet.len();
        *self.flows.entry(flow).or_default() += 1;
        self.packets.push_back(Held { since: now, flow, packet: packet.to_vec() });
        lost
    }

    /// Where the newest packet is of the flow that has the most, if `flow` still has fewer with one more.
    fn newest_of_largest(&self, flow: Option<ip::Flow>) -> Option<usize> {
        let own = self.flows.get(&flow).copied().unwrap_or_default();
        let most = *self.flows.values().max()?;
        (own + 1 < most)
            .then(|| self.packets.iter().rposition(|held| self.flows.get(&held.flow) == Some(&most)))?
    }

    /// Forgets one packet; whether it was there.
    fn remove(&mut self, at: usize) -> bool {
        let Some(held) = self.packets.remove(at) else { return false };
        self.bytes -= held.packet.len();
        if let Entry::Occupied(mut count) = self.flows.entry(held.flow) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        true
    }

    fn fits(&self, packet: &[u8]) -> bool {
        self.packets.len() < self.most && self.bytes + packet.len() <= MOST_BYTES
    }

    /// Takes all of them, oldest first.
    pub fn take(&mut self) -> impl Iterator<Item = Vec<u8>> + use<> {
        self.empty().into_iter().map(|held| held.packet)
    }

    /// Takes those that are not stale, oldest first; the others are gone.
    pub fn take_fresh(&mut self, now: Instant) -> impl Iterator<Item = Vec<u8>> + use<> {
        let packets = self.empty().into_iter();
        packets.filter(move |held| now - held.since <= STALE).map(|held| held.packet)
    }

    /// Holds these before all others. Returns how many packets were lost by it.
    pub fn push_first(&mut self, now: Instant, packets: Vec<Vec<u8>>) -> u64 {
        let later = self.empty().into_iter().map(|held| (held.since, held.packet));
        let first = packets.into_iter().map(|packet| (now, packet));
        first.chain(later).map(|(since, packet)| self.push(since, &packet)).sum()
    }

    /// Forgets those for this address. Returns how many there were.
    pub fn drop_for(&mut self, address: IpAddr) -> u64 {
        let before = self.packets.len();
        for at in (0..before).rev() {
            if self.packets[at].flow.is_some_and(|flow| flow.dst == address) {
                self.remove(at);
            }
        }
        (before - self.packets.len()) as u64
    }

    /// Forgets all of them. Returns how many there were.
    pub fn clear(&mut self) -> u64 {
        self.empty().len() as u64
    }

    fn empty(&mut self) -> VecDeque<Held> {
        self.bytes = 0;
        self.flows.clear();
        std::mem::take(&mut self.packets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn the_oldest_stay_and_nothing_within_the_bound_is_lost() {
        let mut queue = HoldQueue::new(3);
        let lost: Vec<u64> = (0..5u8).map(|n| queue.push(at(0), &[n])).collect();
        assert_eq!(lost, [0, 0, 0, 1, 1]);
        assert_eq!(queue.take().collect::<Vec<_>>(), [[0], [1], [2]]);
        assert!(queue.is_empty() && queue.bytes() == 0);
    }

    #[test]
    fn bytes_are_bounded_too() {
        let mut queue = HoldQueue::new(1000);
        let packet = vec![0; 60_000];
        assert_eq!([0, 1, 2].map(|_| queue.push(at(0), &packet)), [0, 0, 1]);
        assert_eq!(queue.push(at(0), &[1; 100]), 0, "a small one still fits");
        assert!(queue.bytes() <= MOST_BYTES);
    }

    #[test]
    fn a_stream_does_not_keep_other_flows_out() {
        let packet = |port: u16, n: u8| {
            let ends = [([10, 0, 0, 1], 9).into(), ([10, 0, 0, 2], port).into()];
            let mut packet = Vec::new();
            ip::udp::build(ends[0], ends[1], &[n], &mut packet).expect("it fits");
            packet
        };
        let mut queue = HoldQueue::new(4);
        let lost: Vec<u64> = (0..6).map(|n| queue.push(at(0), &packet(1, n))).collect();
        assert_eq!(lost, [0, 0, 0, 0, 1, 1], "the first of a stream stay");
        assert_eq!([2, 2, 2, 3].map(|port| queue.push(at(1), &packet(port, 0))), [1; 4]);
        let expected = [packet(1, 0), packet(1, 1), packet(2, 0), packet(3, 0)];
        assert_eq!(queue.take().collect::<Vec<_>>(), expected, "each has its share");
    }

    #[test]
    fn what_is_for_one_address_can_be_dropped() {
        let packet = |host: u8| {
            let mut packet = Vec::new();
            let ends = [([10, 0, 0, 1], 9).into(), ([10, 0, 0, host], 9).into()];
            ip::udp::build(ends[0], ends[1], b"data", &mut packet).expect("it fits");
            packet
        };
        let mut queue = HoldQueue::new(8);
        [2, 3, 2].iter().for_each(|host| assert_eq!(queue.push(at(0), &packet(*host)), 0));
        assert_eq!(queue.drop_for([10, 0, 0, 2].into()), 2);
        assert_eq!(queue.bytes(), packet(3).len());
        assert_eq!(queue.take().collect::<Vec<_>>(), [packet(3)]);
    }

    #[test]
    fn the_counts_are_those_of_what_waits() {
        let packet = |host: u8, len: usize| {
            let mut packet = Vec::new();
            let ends = [([10, 0, 0, 1], 9).into(), ([10, 0, 0, host], 9).into()];
            ip::udp::build(ends[0], ends[1], &vec![host; len], &mut packet).expect("it fits");
            packet
        };
        let mut queue = HoldQueue::new(6);
        for step in 0..400u64 {
            let host = (step * step % 7) as u8;
            match step % 23 {
                11 => assert!(queue.drop_for([10, 0, 0, host].into()) <= 6),
                17 => {
                    let all = queue.take_fresh(at(step)).collect();
                    queue.push_first(at(step), all);
                }
                22 => assert!(queue.clear() <= 6),
                _ => assert!(queue.push(at(step), &packet(host, 30_000 * usize::from(host % 2))) <= 6),
            }
            let mut flows = BTreeMap::new();
            for held in &queue.packets {
                assert_eq!(held.flow, ip::flow(&held.packet));
                *flows.entry(held.flow).or_default() += 1;
            }
            assert_eq!(queue.flows, flows);
            assert_eq!(queue.bytes, queue.packets.iter().map(|held| held.packet.len()).sum::<usize>());
            assert!(queue.len() <= 6 && queue.bytes <= MOST_BYTES);
        }
    }

    #[test]
    fn stale_packets_make_room() {
        let mut queue = HoldQueue::new(2);
        assert_eq!([0, 20].map(|t| queue.push(at(t), &[t as u8])), [0, 0]);
        assert_eq!(queue.push(at(31), &[31]), 1);
        assert_eq!(queue.push(at(32), &[32]), 1, "the one of second 20 is not stale yet");
        assert_eq!(queue.take().collect::<Vec<_>>(), [[20], [31]]);
    }
}

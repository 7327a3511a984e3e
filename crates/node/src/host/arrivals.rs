//! Messages of key management that have come and wait for their turn. Owns their order and the bounds; must never act on one.
//!
//! A message costs as much processor time as dozens of packets, one with a public-key operation as much as hundreds. So the host handles
//! one at a time ([`Host::handle_arrival`](super::Host::handle_arrival)), and packets that have come meanwhile before the next. Messages
//! of sessions and of handshakes that have begun come before those of newcomers: a crowd that comes at once delays no rekeying and no
//! question whether a peer is alive, and what has begun ends before more begins.
//!
//! Newcomers who have proved where they are wait for room among those who have begun, for as long as each of these has at least. Who
//! repeats a message that waits changes nothing.

use crate::data::Arrival;
use dormouse_ike::limits::HALF_OPEN_LEAST;
use dormouse_sansio::Instant;
use dormouse_sansio::packet::Received;
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

/// Most datagrams of each kind that wait. A crowd of so many that comes at once waits for some seconds, and repeats itself then.
const MOST: usize = 4_096;
/// Most bytes of each kind.
const MOST_BYTES: usize = 8 << 20;
/// So many messages of sessions are handled before one of a newcomer, if any waits.
const IN_A_ROW: u8 = 8;

/// Datagrams of one kind, oldest first.
#[derive(Debug, Default)]
struct Queue {
    /// With their numbers in the order in which all came.
    waiting: VecDeque<(u64, Received, Vec<u8>)>,
    bytes: usize,
}

impl Queue {
    /// False if there is no room.
    fn push(&mut self, number: u64, from: Received, datagram: &[u8]) -> bool {
        if self.waiting.len() >= MOST || self.bytes + datagram.len() > MOST_BYTES {
            return false;
        }
        self.bytes += datagram.len();
        self.waiting.push_back((number, from, datagram.to_vec()));
        true
    }

    fn oldest(&self) -> Option<u64> {
        self.waiting.front().map(|(number, ..)| *number)
    }

    fn pop(&mut self) -> Option<(Received, Vec<u8>)> {
        let (_, from, datagram) = self.waiting.pop_front()?;
        self.bytes -= datagram.len();
        Some((from, datagram))
    }
}

/// What names a first message: the initiator's SPI, and where it came from.
type First = (u64, SocketAddr);

/// Newcomers that wait for room, the first first, with the moment at which their patience ends.
#[derive(Debug, Default)]
struct Crowd {
    queue: Queue,
    until: VecDeque<(Instant, First)>,
    firsts: BTreeSet<First>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    crowd: Crowd,
    sessions: Queue,
    newcomers: Queue,
    packets: Queue,
    /// How many have come.
    come: u64,
    /// Messages of sessions since the last one of a newcomer.
    in_a_row: u8,
}

impl Arrivals {
    /// Nothing waits but newcomers for room.
    pub(super) fn is_empty(&self) -> bool {
        [&self.sessions, &self.newcomers, &self.packets].iter().all(|queue| queue.waiting.is_empty())
    }

    /// Keeps a copy of a datagram. False if there is no room: it is lost, and its sender repeats it.
    pub(super) fn push(&mut self, kind: Arrival, from: Received, datagram: &[u8]) -> bool {
        self.come += 1;
        let queue = match kind {
            Arrival::Session => &mut self.sessions,
            Arrival::Newcomer => &mut self.newcomers,
            Arrival::Packet => &mut self.packets,
        };
        queue.push(self.come, from, datagram)
    }

    /// A newcomer waits for room. False if too many do.
    pub(super) fn wait(&mut self, now: Instant, first: First, from: &Received, datagram: &[u8]) -> bool {
        let Crowd { queue, until, firsts } = &mut self.crowd;
        if firsts.contains(&first) {
            return true;
        }
        let waits = queue.push(0, *from, datagram);
        if waits {
            until.push_back((now + HALF_OPEN_LEAST, first));
            firsts.insert(first);
        }
        waits
    }

    /// When the first of those that wait for room has waited long enough.
    pub(super) fn patience(&self) -> Option<Instant> {
        self.crowd.until.front().map(|(until, _)| *until)
    }

    /// The first of those that wait for room.
    fn waited(&mut self) -> Option<(Received, Vec<u8>)> {
        let (_, first) = self.crowd.until.pop_front()?;
        self.crowd.firsts.remove(&first);
        self.crowd.queue.pop()
    }

    /// The datagram whose turn it is. `room`: those that wait for it come before other newcomers.
    pub(super) fn next(&mut self, room: bool) -> Option<(Arrival, Received, Vec<u8>)> {
        let waited = room && !self.crowd.until.is_empty();
        let message = [self.sessions.oldest(), self.newcomers.oldest()].into_iter().flatten().min();
        let packet = self.packets.oldest().filter(|packet| message.is_none_or(|message| *packet < message));
        let newcomers_turn = self.in_a_row >= IN_A_ROW && (waited || !self.newcomers.waiting.is_empty());
        let kind = if packet.is_some() {
            Arrival::Packet
        } else if self.sessions.waiting.is_empty() || newcomers_turn {
            self.in_a_row = 0;
            Arrival::Newcomer
        } else {
            self.in_a_row = self.in_a_row.saturating_add(1);
            Arrival::Session
        };
        let queue = match kind {
            Arrival::Newcomer if waited => {
                return self.waited().map(|(from, datagram)| (kind, from, datagram));
            }
            Arrival::Session => &mut self.sessions,
            Arrival::Newcomer => &mut self.newcomers,
            Arrival::Packet => &mut self.packets,
        };
        queue.pop().map(|(from, datagram)| (kind, from, datagram))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_sansio::{Carrier, Path};

    fn from(port: u16) -> Received {
        let at = |port| std::net::SocketAddr::from(([192, 0, 2, 1], port));
        Received { path: Path { local: at(4500), remote: at(port), carrier: Carrier::NatT }, ecn: 0 }
    }

    /// What comes out, by the ports that it went in with.
    fn order(arrivals: &mut Arrivals) -> Vec<u16> {
        std::iter::from_fn(|| arrivals.next(false).map(|(_, from, _)| from.path.remote.port())).collect()
    }

    #[test]
    fn sessions_come_before_newcomers_who_are_not_kept_out() {
        let mut arrivals = Arrivals::default();
        for port in 1..=2 {
            assert!(arrivals.push(Arrival::Newcomer, from(port), &[0; 100]));
        }
        for port in 11..=20 {
            assert!(arrivals.push(Arrival::Session, from(port), &[0; 100]));
        }
        assert_eq!(order(&mut arrivals), [11, 12, 13, 14, 15, 16, 17, 18, 1, 19, 20, 2]);
        assert!(arrivals.is_empty() && arrivals.next(false).is_none());
    }

    #[test]
    fn a_packet_waits_for_all_messages_that_came_before_it_and_for_no_other() {
        let mut arrivals = Arrivals::default();
        for (kind, port) in [
            (Arrival::Newcomer, 1),
            (Arrival::Packet, 2),
            (Arrival::Session, 3),
            (Arrival::Packet, 4),
            (Arrival::Newcomer, 5),
        ] {
            assert!(arrivals.push(kind, from(port), &[0; 100]));
        }
        assert_eq!(order(&mut arrivals), [3, 1, 2, 4, 5]);
    }

    #[test]
    fn who_waits_for_room_comes_before_other_newcomers_and_once() {
        let mut arrivals = Arrivals::default();
        let now = Instant::from_nanos(7);
        let wait = |arrivals: &mut Arrivals, port: u16| {
            let first = (1, from(port).path.remote);
            assert!(arrivals.wait(now, first, &from(port), &[0; 100]));
        };
        assert_eq!(arrivals.patience(), None);
        [1, 2, 1, 2, 3].iter().for_each(|port| wait(&mut arrivals, *port));
        assert_eq!(arrivals.patience(), Some(now + HALF_OPEN_LEAST));
        assert!(arrivals.is_empty() && arrivals.next(false).is_none(), "there is no room");
        for (kind, port) in [(Arrival::Newcomer, 4), (Arrival::Session, 5), (Arrival::Packet, 6)] {
            assert!(arrivals.push(kind, from(port), &[0; 100]));
        }
        let mut taken = |room| arrivals.next(room).map(|(_, from, _)| from.path.remote.port());
        assert_eq!(
            [true, true, false, true, true].map(&mut taken),
            [Some(5), Some(1), Some(4), Some(6), Some(2)]
        );
        wait(&mut arrivals, 2);
        assert_eq!(
            [(); 3].map(|()| arrivals.next(true).map(|(_, from, _)| from.path.remote.port())),
            [Some(3), Some(2), None]
        );
        assert_eq!(
            (arrivals.patience(), arrivals.crowd.firsts.len(), arrivals.crowd.queue.bytes),
            (None, 0, 0)
        );
    }

    #[test]
    fn memory_is_bounded_and_one_kind_keeps_no_other_out() {
        let mut arrivals = Arrivals::default();
        let came = |arrivals: &mut Arrivals, kind, len| {
            (0..2 * MOST).filter(|_| arrivals.push(kind, from(1), &vec![0; len])).count()
        };
        assert_eq!(came(&mut arrivals, Arrival::Newcomer, 40), MOST);
        let large = came(&mut arrivals, Arrival::Packet, 60_000);
        assert_eq!(large, MOST_BYTES / 60_000);
        assert!(arrivals.push(Arrival::Session, from(7), &[0; 100]));
        assert_eq!(arrivals.next(false).map(|(kind, ..)| kind), Some(Arrival::Session));
        assert_eq!(order(&mut arrivals).len(), MOST + large);
        let waiting = (0..2 * MOST as u64)
            .filter(|spi| arrivals.wait(Instant::ZERO, (*spi, from(1).path.remote), &from(1), &[0; 40]));
        assert_eq!(waiting.count(), MOST);
        let Arrivals { sessions, newcomers, packets, .. } = arrivals;
        assert_eq!([sessions.bytes, newcomers.bytes, packets.bytes], [0; 3]);
    }
}

//! Messages of key management that have come and wait for their turn. Owns their order and the bounds; must never act on one.
//!
//! A message costs as much processor time as dozens of packets, one with a public-key operation as much as hundreds. So the host handles
//! one at a time ([`Host::handle_arrival`](super::Host::handle_arrival)), and packets that have come meanwhile before the next. Messages
//! of sessions and of handshakes that have begun come before those of newcomers: a crowd that comes at once delays no rekeying and no
//! question whether a peer is alive, and what has begun ends before more begins.
//!
//! Newcomers who have proved where they are wait for room among those who have begun, for as long as each of these has at least. Who
//! repeats a message that waits changes nothing. Who sends another first message, with a cookie or another cookie, means the last one: it is handled
//! next after the one before it, ahead of what was sent later, and takes its place among those that wait for room.

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

/// A datagram that waits.
#[derive(Debug)]
struct Waiting {
    /// In the order in which all came.
    number: u64,
    /// What names it, if it is a first message.
    first: Option<First>,
    from: Received,
    datagram: Vec<u8>,
}

/// Datagrams of one kind, oldest first.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    bytes: usize,
}

impl Queue {
    /// False if there is no room.
    fn push(&mut self, waiting: Waiting) -> bool {
        let len = waiting.datagram.len();
        if self.waiting.len() >= MOST || self.bytes + len > MOST_BYTES {
            return false;
        }
        self.bytes += len;
        self.waiting.push_back(waiting);
        true
    }

    fn oldest(&self) -> Option<u64> {
        self.waiting.front().map(|w| w.number)
    }

    fn pop(&mut self) -> Option<Waiting> {
        self.remove(0)
    }

    /// Where the datagram of this number is.
    fn find(&self, number: u64) -> Option<usize> {
        self.waiting.binary_search_by_key(&number, |w| w.number).ok()
    }

    fn remove(&mut self, index: usize) -> Option<Waiting> {
        let waiting = self.waiting.remove(index)?;
        self.bytes -= waiting.datagram.len();
        Some(waiting)
    }

    /// Another datagram takes the place of this one; not if it is too large.
    fn replace(&mut self, index: usize, datagram: &[u8]) {
        let Some(waiting) = self.waiting.get_mut(index) else { return };
        let bytes = self.bytes - waiting.datagram.len() + datagram.len();
        if bytes <= MOST_BYTES {
            self.bytes = bytes;
            waiting.datagram = datagram.to_vec();
        }
    }
}

/// What names a first message: the initiator's SPI, and where it came from.
pub(super) type First = (u64, SocketAddr);

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
    /// First messages among `newcomers`, with their numbers.
    firsts: BTreeSet<(First, u64)>,
    /// Other first messages of the newcomer whose turn it was last.
    again: Queue,
    packets: Queue,
    /// How many have come.
    come: u64,
    /// Messages of sessions since the last one of a newcomer.
    in_a_row: u8,
}

impl Arrivals {
    /// Nothing waits but newcomers for room.
    pub(super) fn is_empty(&self) -> bool {
        [&self.sessions, &self.newcomers, &self.again, &self.packets]
            .iter()
            .all(|queue| queue.waiting.is_empty())
    }

    /// Keeps a copy of a datagram; `first`: what names it, if it is a newcomer's first message. False if there is no room: it is lost, and its
    /// sender repeats it.
    pub(super) fn push(
        &mut self,
        kind: Arrival,
        first: Option<First>,
        from: Received,
        datagram: &[u8],
    ) -> bool {
        self.come += 1;
        if first.is_some_and(|first| self.repeats(first, datagram)) {
            return true;
        }
        let waiting = Waiting { number: self.come, first, from, datagram: datagram.to_vec() };
        match kind {
            Arrival::Session => self.sessions.push(waiting),
            Arrival::Newcomer => {
                let waits = self.newcomers.push(waiting);
                self.firsts.extend(first.filter(|_| waits).map(|first| (first, self.come)));
                waits
            }
            Arrival::Packet => self.packets.push(waiting),
        }
    }

    /// The numbers of the first messages of one newcomer.
    fn of(&self, first: First) -> impl Iterator<Item = u64> {
        self.firsts.range((first, 0)..=(first, u64::MAX)).map(|(_, number)| *number)
    }

    /// Whether the same first message waits already.
    fn repeats(&self, first: First, datagram: &[u8]) -> bool {
        let waiting = |number| self.newcomers.waiting.get(self.newcomers.find(number)?);
        self.of(first).filter_map(waiting).any(|w| w.datagram == datagram)
    }

    /// A newcomer waits for room; of one that does already, this message is the one that counts. False if too many do.
    pub(super) fn wait(&mut self, now: Instant, first: First, from: &Received, datagram: &[u8]) -> bool {
        let Crowd { queue, until, firsts } = &mut self.crowd;
        if firsts.contains(&first) {
            let index = until.iter().position(|(_, other)| *other == first);
            index.into_iter().for_each(|index| queue.replace(index, datagram));
            return true;
        }
        let waits =
            queue.push(Waiting { number: 0, first: Some(first), from: *from, datagram: datagram.to_vec() });
        if waits {
            until.push_back((now + HALF_OPEN_LEAST, first));
            firsts.insert(first);
        }
        waits
    }

    /// Whether this newcomer waits for room.
    pub(super) fn waits_for_room(&self, first: First) -> bool {
        self.crowd.firsts.contains(&first)
    }

    /// When the first of those that wait for room has waited long enough.
    pub(super) fn patience(&self) -> Option<Instant> {
        self.crowd.until.front().map(|(until, _)| *until)
    }

    /// The first of those that wait for room.
    fn waited(&mut self) -> Option<Waiting> {
        let (_, first) = self.crowd.until.pop_front()?;
        self.crowd.firsts.remove(&first);
        self.crowd.queue.pop()
    }

    /// A newcomer's turn: other first messages of it are next.
    fn newcomer(&mut self) -> Option<Waiting> {
        let next = self.newcomers.pop()?;
        if let Some(first) = next.first {
            self.firsts.remove(&(first, next.number));
            for number in self.of(first).collect::<Vec<_>>() {
                self.firsts.remove(&(first, number));
                let other = self.newcomers.find(number).and_then(|index| self.newcomers.remove(index));
                let _kept = other.is_some_and(|other| self.again.push(other));
            }
        }
        Some(next)
    }

    /// The datagram whose turn it is. `room`: those that wait for it come before other newcomers.
    pub(super) fn next(&mut self, room: bool) -> Option<(Arrival, Received, Vec<u8>)> {
        let waited = room && !self.crowd.until.is_empty();
        let message =
            [&self.sessions, &self.newcomers, &self.again].into_iter().filter_map(Queue::oldest).min();
        let packet = self.packets.oldest().filter(|packet| message.is_none_or(|message| *packet < message));
        let newcomers_turn = self.in_a_row >= IN_A_ROW && (waited || !self.newcomers.waiting.is_empty());
        let (kind, next) = if packet.is_some() {
            (Arrival::Packet, self.packets.pop())
        } else if !self.again.waiting.is_empty() {
            (Arrival::Newcomer, self.again.pop())
        } else if self.sessions.waiting.is_empty() || newcomers_turn {
            self.in_a_row = 0;
            (Arrival::Newcomer, if waited { self.waited() } else { self.newcomer() })
        } else {
            self.in_a_row = self.in_a_row.saturating_add(1);
            (Arrival::Session, self.sessions.pop())
        };
        next.map(|next| (kind, next.from, next.datagram))
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
            assert!(arrivals.push(Arrival::Newcomer, None, from(port), &[0; 100]));
        }
        for port in 11..=20 {
            assert!(arrivals.push(Arrival::Session, None, from(port), &[0; 100]));
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
            assert!(arrivals.push(kind, None, from(port), &[0; 100]));
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
            assert!(arrivals.push(kind, None, from(port), &[0; 100]));
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
            (0..2 * MOST).filter(|_| arrivals.push(kind, None, from(1), &vec![0; len])).count()
        };
        assert_eq!(came(&mut arrivals, Arrival::Newcomer, 40), MOST);
        let large = came(&mut arrivals, Arrival::Packet, 60_000);
        assert_eq!(large, MOST_BYTES / 60_000);
        assert!(arrivals.push(Arrival::Session, None, from(7), &[0; 100]));
        assert_eq!(arrivals.next(false).map(|(kind, ..)| kind), Some(Arrival::Session));
        assert_eq!(order(&mut arrivals).len(), MOST + large);
        let waiting = (0..2 * MOST as u64)
            .filter(|spi| arrivals.wait(Instant::ZERO, (*spi, from(1).path.remote), &from(1), &[0; 40]));
        assert_eq!(waiting.count(), MOST);
        let Arrivals { sessions, newcomers, packets, .. } = arrivals;
        assert_eq!([sessions.bytes, newcomers.bytes, packets.bytes], [0; 3]);
    }

    #[test]
    fn of_a_newcomers_first_messages_one_follows_the_other_and_the_last_one_waits_for_room() {
        let mut arrivals = Arrivals::default();
        let push = |arrivals: &mut Arrivals, kind, port: u16, content: u8| {
            let first = (kind == Arrival::Newcomer).then(|| (9, from(port).path.remote));
            assert!(arrivals.push(kind, first, from(port), &[content; 100]));
        };
        for (port, content) in [(1, 10), (2, 20), (1, 10), (1, 11), (2, 20)] {
            push(&mut arrivals, Arrival::Newcomer, port, content);
        }
        push(&mut arrivals, Arrival::Session, 3, 30);
        let mut taken = || arrivals.next(false).map(|(kind, _, datagram)| (kind, datagram.first().copied()));
        let newcomer = |content| Some((Arrival::Newcomer, Some(content)));
        assert_eq!(
            [(); 3].map(|()| taken()),
            [Some((Arrival::Session, Some(30))), newcomer(10), newcomer(11)]
        );
        assert_eq!([taken(), taken()], [newcomer(20), None]);
        // What comes after it was taken is another message.
        push(&mut arrivals, Arrival::Newcomer, 1, 10);
        assert_eq!(arrivals.next(false).map(|(_, from, _)| from.path.remote.port()), Some(1));
        assert!(arrivals.firsts.is_empty() && arrivals.is_empty());

        let (now, first) = (Instant::ZERO, (9, from(1).path.remote));
        for content in [12, 13] {
            assert!(arrivals.wait(now, first, &from(1), &[content; 100]));
        }
        assert_eq!(arrivals.next(true).map(|(_, _, datagram)| datagram), Some(vec![13; 100]));
        assert!(arrivals.next(true).is_none());
        assert_eq!([arrivals.newcomers.bytes, arrivals.again.bytes, arrivals.crowd.queue.bytes], [0; 3]);
    }
}

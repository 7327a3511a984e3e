//! Packets of sessions that were resumed at once, which wait until the tickets are known to count. Owns the bounds; must never look into a packet.

use std::collections::BTreeMap;

use dormouse_keying::SaId;
use dormouse_sansio::Instant;

use crate::hold::{HoldQueue, MOST_PACKETS};

/// Sessions that have packets waiting, at most: a burst of clients after a gateway's restart waits for one write of its store.
const MOST_SESSIONS: usize = 4_096;
/// Packets of one of them: all that its client may have held, and what it sends meanwhile.
const MOST_OF_ONE: usize = 4 * MOST_PACKETS;
/// Bytes of all of them.
const MOST_BYTES: usize = 32 << 20;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Unconfirmed {
    of: BTreeMap<SaId, HoldQueue>,
    /// Of all queues.
    bytes: usize,
}

impl Unconfirmed {
    /// Keeps a packet of this session. Returns how many were lost by it: those that made room, or itself.
    pub(super) fn push(&mut self, now: Instant, sa: SaId, packet: &[u8]) -> u64 {
        let room = self.of.len() < MOST_SESSIONS || self.of.contains_key(&sa);
        if !room || self.bytes + packet.len() > MOST_BYTES {
            return 1;
        }
        let queue = self.of.entry(sa).or_insert_with(|| HoldQueue::new(MOST_OF_ONE));
        let before = queue.bytes();
        let lost = queue.push(now, packet);
        self.bytes = self.bytes - before + queue.bytes();
        lost
    }

    /// The packets of a session about which it is decided, oldest first.
    pub(super) fn take(&mut self, sa: SaId) -> impl Iterator<Item = Vec<u8>> + use<> {
        let queue = self.of.remove(&sa).unwrap_or_default();
        self.bytes -= queue.bytes();
        let mut queue = queue;
        queue.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_that_resumes_together_loses_nothing_and_memory_is_bounded() {
        let (mut all, now) = (Unconfirmed::default(), Instant::ZERO);
        let packet = |n: u64| {
            let mut packet = vec![0; 84];
            packet[0] = 0x45;
            packet[12..20].copy_from_slice(&n.to_be_bytes());
            packet
        };
        let lost: u64 = (1..=1_000).map(|n| all.push(now, SaId::new(n), &packet(n))).sum();
        assert_eq!(lost, 0);
        assert_eq!(all.take(SaId::new(7)).collect::<Vec<_>>(), [packet(7)]);
        assert_eq!(all.take(SaId::new(7)).count(), 0, "once");
        assert_eq!(all.bytes, 999 * 84);

        let large = vec![0; 60_000];
        (0..2_000).for_each(|n| _ = all.push(now, SaId::new(n), &large));
        assert!(all.bytes <= MOST_BYTES, "{}", all.bytes);
        assert_eq!(all.bytes, all.of.values().map(HoldQueue::bytes).sum::<usize>());
        let more =
            (0..=MOST_SESSIONS as u64).map(|n| all.push(now, SaId::new(1 << 32 | n), &[])).sum::<u64>();
        assert!(more > 0 && all.of.len() <= MOST_SESSIONS);
    }
}

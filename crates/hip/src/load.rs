//! How much others ask of us before they have proved who they are: I1 and I2 packets by the second and by the address that they come from.
//! Owns the counts and the difficulty that follows from them; must never keep anything of a sender.
//!
//! "The Responder SHOULD use heuristics to determine when it is under a denial-of-service attack, and set the puzzle difficulty value #K
//! appropriately, as explained later." (RFC 7401 section 4.1.1)
//! An I1 costs a MAC, and who sends it may not be where it says: its rate makes puzzles harder for as long as it lasts. An I2 costs
//! public-key work, and who sends it has solved a puzzle: as long as there are too many, puzzles become harder by the second, until
//! their senders cannot keep up.

use core::net::IpAddr;

use dormouse_sansio::{Entropy, Instant};

use crate::address::octets;
use crate::config::Difficulty;
use crate::limits::{MAX_K_BEHIND, MAX_R1_A_SECOND};

/// Counters by address: addresses that share one share its limit.
const BUCKETS: usize = 4_096;
/// The network part of an IPv6 address: one host may have all addresses in it.
const NETWORK: u128 = !(u64::MAX as u128);

/// Packets in the second that runs and in the one before.
#[derive(Debug)]
pub(crate) struct Meter {
    second: u64,
    now: u32,
    before: u32,
    by_address: Vec<u32>,
    /// Which address has which counter is not for others to know.
    seed: u64,
}

impl Meter {
    pub(crate) fn new(seed: u64) -> Self {
        Self { second: 0, now: 0, before: 0, by_address: vec![0; BUCKETS], seed: seed | 1 }
    }

    /// Goes on to the second of `now`: how many seconds later that is.
    fn turn(&mut self, now: Instant) -> u64 {
        let second = now.as_nanos() / 1_000_000_000;
        let later = second.saturating_sub(self.second);
        if later > 0 {
            self.before = if later == 1 { self.now } else { 0 };
            (self.second, self.now) = (second, 0);
            self.by_address.fill(0);
        }
        later
    }

    /// Counts a packet. False if too many have come in this second, from this address or in all; what is too much from one address
    /// takes nothing of the others' share.
    pub(crate) fn count(&mut self, now: Instant, from: IpAddr, from_one: u32, in_all: u32) -> bool {
        self.turn(now);
        let bits = u128::from_be_bytes(octets(from)) & if from.is_ipv6() { NETWORK } else { u128::MAX };
        let mixed = (bits as u64 ^ (bits >> 64) as u64 ^ self.seed).wrapping_mul(self.seed);
        let Some(bucket) = self.by_address.get_mut((mixed >> 52) as usize % BUCKETS) else { return false };
        *bucket = bucket.saturating_add(1);
        if *bucket > from_one {
            return false;
        }
        self.now = self.now.saturating_add(1);
        self.now <= in_all
    }
}

/// What others ask of a host.
#[derive(Debug)]
pub(crate) struct Load {
    i1: Meter,
    /// I2 packets with a right solution.
    i2: Meter,
    /// So many bits harder are puzzles because of them.
    harder: u8,
}

impl Load {
    pub(crate) fn new(entropy: &mut dyn Entropy) -> Self {
        let seed = entropy.next_u64();
        Self { i1: Meter::new(seed), i2: Meter::new(seed), harder: 0 }
    }

    /// Counts an I1. The difficulty of the puzzle that it gets; `None` if it gets no answer.
    /// "An R1 packet sender MUST have a mechanism to rate-limit R1 packets sent to an address." (RFC 7401 section 6.7)
    /// "To avoid such reflection attacks, the Responder SHOULD rate-limit the sending of R1 packets in general or SHOULD rate-limit the
    /// sending of R1 packets to a specific IP address." (RFC 7401 section 8)
    pub(crate) fn i1(&mut self, now: Instant, from: IpAddr, difficulty: &Difficulty) -> Option<u8> {
        if !self.i1.count(now, from, difficulty.to_one_address, MAX_R1_A_SECOND) {
            return None;
        }
        let rate = self.i1.now.max(self.i1.before);
        let doublings = (rate / difficulty.busy_from.max(1)).checked_ilog2().map_or(0, |n| n as u8 + 1);
        Some(self.worked_for(now, difficulty).saturating_add(doublings).min(most(difficulty)))
    }

    /// Counts an I2 whose solution is right: whether it is worth public-key work.
    pub(crate) fn i2(&mut self, now: Instant, from: IpAddr, difficulty: &Difficulty) -> bool {
        self.worked_for(now, difficulty);
        self.i2.count(now, from, difficulty.i2_from_one_address, difficulty.i2_a_second)
    }

    /// The easiest puzzle whose solution still counts: one that was given out some seconds ago does. How many I1 packets come does not
    /// matter: who sends many would end the exchanges of others by it.
    pub(crate) fn least(&mut self, now: Instant, difficulty: &Difficulty) -> u8 {
        self.worked_for(now, difficulty).saturating_sub(MAX_K_BEHIND)
    }

    /// The difficulty by the number of I2 packets: one bit more for each second with too many, one less for each without.
    fn worked_for(&mut self, now: Instant, difficulty: &Difficulty) -> u8 {
        let later = self.i2.turn(now);
        if later > 0 && self.i2.before > difficulty.i2_a_second / 4 {
            self.harder = self.harder.saturating_add(1).min(most(difficulty).saturating_sub(difficulty.idle));
        } else {
            self.harder = self.harder.saturating_sub(u8::try_from(later).unwrap_or(u8::MAX));
        }
        difficulty.idle.saturating_add(self.harder)
    }
}

fn most(difficulty: &Difficulty) -> u8 {
    difficulty.most.max(difficulty.idle)
}

#[cfg(test)]
mod tests {
    use dormouse_sansio::Seeded;

    use super::*;

    const DIFFICULTY: Difficulty = Difficulty {
        idle: 4,
        most: 8,
        busy_from: 10,
        solve: 20,
        to_one_address: u32::MAX,
        i2_a_second: 100,
        i2_from_one_address: 20,
    };

    fn at(second: u64) -> Instant {
        Instant::from_nanos(second * 1_000_000_000)
    }

    fn address(n: u32) -> IpAddr {
        core::net::Ipv4Addr::from_bits(n).into()
    }

    #[test]
    fn puzzles_become_harder_with_load_and_easier_after_it() {
        let mut load = Load::new(&mut Seeded::new(1));
        let of_second =
            |load: &mut Load, s, n: u32| (0..n).filter_map(|i| load.i1(at(s), address(i), &DIFFICULTY)).max();
        assert_eq!(of_second(&mut load, 1, 9), Some(4));
        assert_eq!(of_second(&mut load, 2, 10), Some(5));
        assert_eq!(of_second(&mut load, 3, 40), Some(7));
        assert_eq!(of_second(&mut load, 4, 1), Some(7), "the second before counts");
        assert_eq!(of_second(&mut load, 5, 10_000), Some(8), "no harder than configured");
        assert_eq!(of_second(&mut load, 7, 1), Some(4), "a quiet second ends it");
        assert_eq!(of_second(&mut load, 8, MAX_R1_A_SECOND), Some(8));
        assert_eq!(load.i1(at(8), address(0), &DIFFICULTY), None);
        assert_eq!(load.least(at(8), &DIFFICULTY), 0, "solutions count however many I1 packets come");
    }

    #[test]
    fn one_address_gets_its_share_alone() {
        let difficulty = Difficulty { busy_from: 1_000, to_one_address: 20, ..DIFFICULTY };
        for (mine, other) in [("192.0.2.7", "192.0.2.8"), ("2001:db8::7", "2001:db8:0:1::7")] {
            let [mine, other] = [mine, other].map(|a| a.parse().unwrap());
            let mut load = Load::new(&mut Seeded::new(2));
            let answered = (0..100).filter(|_| load.i1(at(1), mine, &difficulty).is_some()).count();
            assert_eq!(answered, 20);
            assert_eq!(load.i1(at(1), other, &difficulty), Some(4), "another address");
            assert_eq!(load.i1(at(2), mine, &difficulty), Some(4), "the next second");
        }
        let mut load = Load::new(&mut Seeded::new(3));
        let network = |n: u32| format!("2001:db8::{n:x}").parse().unwrap();
        let worked_for = (0..100).filter(|n| load.i2(at(1), network(*n), &difficulty)).count();
        assert_eq!(worked_for, 20, "all addresses of a network are one");
    }

    /// Those who solve puzzles in numbers get harder ones by the second, and solutions of easy ones, gathered before, no longer count.
    #[test]
    fn work_that_others_cause_is_bounded_and_makes_puzzles_harder() {
        let difficulty = Difficulty { most: 14, ..DIFFICULTY };
        let mut load = Load::new(&mut Seeded::new(4));
        for second in 1..20 {
            let worked_for = (0..500).filter(|n| load.i2(at(second), address(*n), &difficulty)).count();
            assert_eq!(worked_for, 100);
        }
        assert_eq!(load.i1(at(20), address(0), &difficulty), Some(14), "no harder than configured");
        assert_eq!(load.least(at(20), &difficulty), 14 - MAX_K_BEHIND);
        for second in 20..25 {
            let worked_for = (0..25).filter(|n| load.i2(at(second), address(*n), &difficulty)).count();
            assert_eq!(worked_for, 25);
        }
        assert_eq!(load.i1(at(25), address(0), &difficulty), Some(9), "easier by the second");
        assert_eq!(load.i1(at(60), address(0), &difficulty), Some(4));
    }
}

//! The responder before there is an association (RFC 7401 sections 4.1.1, 4.1.4 and appendix A): R1 packets that were computed and signed
//! ahead, puzzles whose random number needs no memory, and the load that makes them harder. Owns generations of puzzles with their
//! secrets, Diffie-Hellman keys and used solutions; must never keep anything of an initiator that has not solved a puzzle.
//!
//! A generation ends when its time is over or it has too many used solutions; solutions of the one before are accepted as long again.
//! Nothing needs a timer: a generation is made when a packet finds the last one over.

use std::collections::{BTreeMap, VecDeque};

use core::net::IpAddr;
use core::time::Duration;

use dormouse_crypto::hip::{DhGroup, DhKey};
use dormouse_crypto::{PrfKey, Secret, ct_eq};
use dormouse_sansio::{Entropy, Instant, Path};
use dormouse_wire::hip::{
    DhValue, Hit, Packet, PacketType, Param, ParamType, Puzzle as PuzzleParam, R1Counter, Solution,
    limits::MAX_SUITES,
};

use crate::config::{Difficulty, HostConfig};
use crate::exchange::{Around, register};
use crate::hit::{HitSuite, Identity};
use crate::limits::{MAX_COMPUTATIONS, MAX_R1_A_SECOND, MAX_USED_SOLUTIONS};
use crate::protect;
use crate::puzzle::Puzzle;

/// The random number of a PUZZLE begins here, from the start of the parameter.
const PUZZLE_I: usize = 8;
/// The receiver's tag in a packet.
const RECEIVER: core::ops::Range<usize> = 24..40;
/// The value of a puzzle's lifetime that means one second (RFC 7401 section 5.2.4).
const LIFETIME_OF_A_SECOND: u8 = 32;

/// A signed R1, but for what is filled in for each initiator.
#[derive(Debug)]
struct Template {
    group: DhGroup,
    k: u8,
    packet: Vec<u8>,
    /// Where the puzzle's random number stands.
    i_at: usize,
}

/// The puzzles of one span of time.
#[derive(Debug)]
pub(crate) struct Generation {
    number: u64,
    born: Instant,
    secret: PrfKey,
    templates: Vec<Template>,
    keys: Vec<DhKey>,
    /// Solutions that led to an association or to computations: how many more computations each is worth.
    used: BTreeMap<(Hit, Vec<u8>), u32>,
}

/// The puzzles of one identity; the newest generation first.
#[derive(Debug)]
pub(crate) struct Pool {
    generations: VecDeque<Generation>,
    next_number: u64,
}

/// Why a solution is not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BadSolution {
    /// The puzzle is not one of ours, or too old, or not solved.
    Wrong,
    /// It was accepted before, or others like it were refused too often.
    Used,
}

impl Pool {
    pub(crate) const fn new(first_generation: u64) -> Self {
        Self { generations: VecDeque::new(), next_number: first_generation }
    }

    /// Begins a generation if the newest one is over, and drops those that are too old.
    fn turn(&mut self, now: Instant, life: Duration, suite: HitSuite, entropy: &mut dyn Entropy) {
        let over = |g: &Generation| now >= g.born + life || g.used.len() >= MAX_USED_SOLUTIONS;
        if self.generations.front().is_none_or(over) {
            let mut secret = Secret::zeroed(32);
            entropy.fill(secret.as_mut_bytes());
            self.generations.push_front(Generation {
                number: self.next_number,
                born: now,
                secret: PrfKey::new(suite.prf(), secret.as_bytes()),
                templates: Vec::new(),
                keys: Vec::new(),
                used: BTreeMap::new(),
            });
            self.next_number = self.next_number.wrapping_add(1);
        }
        self.generations.truncate(2);
        self.generations.retain(|g| now < g.born + life * 2);
    }

    /// An R1 for an initiator that came by `path`. `None` if it cannot be made.
    pub(crate) fn answer(
        &mut self,
        around: &mut Around<'_>,
        (initiator, path): (Hit, Path),
        group: DhGroup,
        k: u8,
    ) -> Option<Vec<u8>> {
        let Around { now, identity, config, .. } = *around;
        self.turn(now, config.timing.generation, identity.public().suite(), around.entropy);
        let generation = self.generations.front_mut()?;
        let found = generation.templates.iter().position(|t| (t.group, t.k) == (group, k));
        let at = match found {
            Some(at) => at,
            None => {
                let template = generation.template(identity, config, group, k, around.entropy)?;
                around.stats.r1_signed += 1;
                generation.templates.push(template);
                generation.templates.len() - 1
            }
        };
        let template = generation.templates.get(at)?;
        let mut packet = template.packet.clone();
        packet.get_mut(RECEIVER)?.copy_from_slice(&initiator.octets());
        let i = generation.random_number(k, initiator, identity.hit(), path);
        packet.get_mut(template.i_at..template.i_at + i.len())?.copy_from_slice(i.as_bytes());
        Some(packet)
    }

    /// The generation whose puzzle an I2 that came by `path` has solved. The solution is not used up yet.
    pub(crate) fn judge(
        &mut self,
        around: &mut Around<'_>,
        (initiator, path): (Hit, Path),
        counter: u64,
        solution: &Solution,
    ) -> Result<&mut Generation, BadSolution> {
        let Around { now, identity, config, .. } = *around;
        let suite = identity.public().suite();
        self.turn(now, config.timing.generation, suite, around.entropy);
        let generation =
            self.generations.iter_mut().find(|g| g.number == counter).ok_or(BadSolution::Wrong)?;
        let i = generation.random_number(solution.k, initiator, identity.hit(), path);
        let (hash, responder) = (suite.hash(), identity.hit());
        let puzzle = Puzzle { hash, k: solution.k, i: solution.i.clone(), initiator, responder };
        let ours = ct_eq(i.as_bytes(), &solution.i) && solution.j.len() == hash.output_len();
        if !ours || !puzzle.is_solved_by(&solution.j) {
            return Err(BadSolution::Wrong);
        }
        // Who has seen a solution can send it with anything else around it: it is not worth work without end, and the real I2 may be late.
        let left = generation.used.entry((initiator, solution.j.clone())).or_insert(MAX_COMPUTATIONS);
        *left = left.checked_sub(1).ok_or(BadSolution::Used)?;
        Ok(generation)
    }
}

impl Generation {
    /// "#I = Ltrunc( RHASH ( S | HIT-I | HIT-R | IP-I | IP-R ), n)" (RFC 7401 appendix A), with K besides: an initiator cannot claim
    /// an easier puzzle than it was given.
    fn random_number(&self, k: u8, initiator: Hit, responder: Hit, path: Path) -> Secret {
        let (theirs, ours) = (octets(path.remote.ip()), octets(path.local.ip()));
        self.secret.compute(&[&[k], &initiator.octets(), &responder.octets(), &theirs, &ours])
    }

    /// The key of a group that this generation sent out.
    pub(crate) fn key(&self, group: u8) -> Option<&DhKey> {
        self.keys.iter().find(|key| key.group().id() == group)
    }

    /// A solution that led to an association is not accepted again.
    pub(crate) fn use_up(&mut self, initiator: Hit, solution: &Solution) {
        self.used.insert((initiator, solution.j.clone()), 0);
    }

    /// "The sender of an ESP transform parameter MUST make sure that there are no more than six (6) Suite IDs in one ESP transform parameter."
    /// (RFC 7402 section 5.1.2)
    fn template(
        &mut self,
        identity: &Identity,
        config: &HostConfig,
        group: DhGroup,
        k: u8,
        entropy: &mut dyn Entropy,
    ) -> Option<Template> {
        if self.key(group.id()).is_none() {
            self.keys.push(DhKey::generate(group, entropy)?);
        }
        let public = self.key(group.id())?.public_value().to_vec();
        let seconds = config.timing.generation.as_secs().max(1);
        let lifetime = LIFETIME_OF_A_SECOND.saturating_add(seconds.ilog2() as u8);
        let i = vec![0; identity.public().suite().hash().output_len()];
        let counter = R1Counter { reserved: 0, generation: self.number };
        let mut draft = protect::draft(PacketType::R1, identity.hit(), Hit::NULL);
        let registrar = config.registrar.as_ref().map(register::info);
        let before = [
            Param::R1Counter(ParamType::R1Counter, counter),
            Param::Puzzle(PuzzleParam { k, lifetime, opaque: [0; 2], i }),
            Param::DhGroupList(config.groups.iter().map(|g| g.id()).collect()),
            Param::DiffieHellman(vec![DhValue { group: group.id(), public }]),
            Param::Numbers(ParamType::HipCipher, config.ciphers.iter().map(|c| c.id()).collect()),
            Param::HostId(identity.public().host_id().clone()),
            Param::HitSuiteList(HitSuite::ALL.iter().map(|s| s.id() << 4).collect()),
        ];
        let after = [
            Param::Numbers(ParamType::TransportFormatList, vec![ParamType::EspTransform.code()]),
            Param::Suites(
                ParamType::EspTransform,
                config.esp_suites.iter().take(MAX_SUITES).map(|s| s.id()).collect(),
            ),
        ];
        before.iter().chain(&registrar).chain(&after).for_each(|param| draft.add(param));
        let packet = protect::finish_signed(draft, ParamType::HipSignature2, identity)?;
        let i_at = Packet::parse(&packet).ok()?.find(ParamType::Puzzle)?.at + PUZZLE_I;
        Some(Template { group, k, packet, i_at })
    }
}

/// Counters of R1 packets by address: addresses that share one share its limit.
const BUCKETS: usize = 4_096;

/// I1 packets in the second that runs and in the one before.
#[derive(Debug)]
pub(crate) struct Load {
    second: u64,
    now: u32,
    before: u32,
    to_address: Vec<u32>,
    /// Which address has which counter is not for others to know.
    seed: u64,
}

impl Load {
    pub(crate) fn new(entropy: &mut dyn Entropy) -> Self {
        Self { second: 0, now: 0, before: 0, to_address: vec![0; BUCKETS], seed: entropy.next_u64() | 1 }
    }

    /// Counts an I1. The difficulty of the puzzle that it gets; `None` if it gets no answer, because too many have come in this
    /// second.
    /// "An R1 packet sender MUST have a mechanism to rate-limit R1 packets sent to an address." (RFC 7401 section 6.7)
    pub(crate) fn count(&mut self, now: Instant, from: IpAddr, difficulty: &Difficulty) -> Option<u8> {
        let second = now.as_nanos() / 1_000_000_000;
        if second != self.second {
            self.before = if second == self.second + 1 { self.now } else { 0 };
            (self.second, self.now) = (second, 0);
            self.to_address.fill(0);
        }
        self.now = self.now.saturating_add(1);
        let bits = u128::from_be_bytes(octets(from));
        let mixed = (bits as u64 ^ (bits >> 64) as u64 ^ self.seed).wrapping_mul(self.seed);
        let bucket = self.to_address.get_mut((mixed >> 52) as usize % BUCKETS)?;
        *bucket = bucket.saturating_add(1);
        let rate = self.now.max(self.before);
        let doublings = (rate / difficulty.busy_from.max(1)).checked_ilog2().map_or(0, |n| n as u8 + 1);
        (*bucket <= difficulty.to_one_address && self.now <= MAX_R1_A_SECOND)
            .then(|| difficulty.idle.saturating_add(doublings).min(difficulty.most.max(difficulty.idle)))
    }
}

/// An address as 16 bytes.
fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
        IpAddr::V6(a) => a.octets(),
    }
}

#[cfg(test)]
mod tests {
    use dormouse_sansio::Seeded;

    use super::*;

    fn at(second: u64) -> Instant {
        Instant::from_nanos(second * 1_000_000_000)
    }

    fn address(n: u32) -> IpAddr {
        core::net::Ipv4Addr::from_bits(n).into()
    }

    #[test]
    fn puzzles_become_harder_with_load_and_easier_after_it() {
        let difficulty = Difficulty { idle: 4, most: 8, busy_from: 10, solve: 20, to_one_address: u32::MAX };
        let mut load = Load::new(&mut Seeded::new(1));
        let of_second = |load: &mut Load, s, n: u32| {
            (0..n).filter_map(|i| load.count(at(s), address(i), &difficulty)).max()
        };
        assert_eq!(of_second(&mut load, 1, 9), Some(4));
        assert_eq!(of_second(&mut load, 2, 10), Some(5));
        assert_eq!(of_second(&mut load, 3, 40), Some(7));
        assert_eq!(of_second(&mut load, 4, 1), Some(7), "the second before counts");
        assert_eq!(of_second(&mut load, 5, 10_000), Some(8), "no harder than configured");
        assert_eq!(of_second(&mut load, 7, 1), Some(4), "a quiet second ends it");
        assert_eq!(of_second(&mut load, 8, MAX_R1_A_SECOND), Some(8));
        assert_eq!(load.count(at(8), address(0), &difficulty), None);
    }

    #[test]
    fn one_address_gets_its_share_alone() {
        let difficulty = Difficulty { idle: 4, most: 8, busy_from: 1_000, solve: 20, to_one_address: 20 };
        let mut load = Load::new(&mut Seeded::new(2));
        let answered = (0..100).filter(|_| load.count(at(1), address(7), &difficulty).is_some()).count();
        assert_eq!(answered, 20);
        assert_eq!(load.count(at(1), address(8), &difficulty), Some(4), "another address");
        assert_eq!(load.count(at(2), address(7), &difficulty), Some(4), "the next second");
    }
}

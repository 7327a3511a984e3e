//! The responder before there is an association (RFC 7401 sections 4.1.1, 4.1.4 and appendix A): R1 packets that were computed and signed
//! ahead, and puzzles whose random number needs no memory. Owns generations of puzzles with their secrets, Diffie-Hellman keys and used
//! solutions; must never keep anything of an initiator whose I2 was not valid: the work that solutions have cost is counted in an array of a fixed size.
//!
//! A generation ends when its time is over, or it has too many used solutions, or too many were tried; solutions of the one before are accepted as long again.
//! The next one is always there, with its keys and signatures: its time begins when an initiator asks for it, and then the one that
//! follows is made, piece by piece while nothing else is to be done. So is the first, soon after the start of a host that may be called.
//! A host that is not called makes no other, and no timer wakes it. What is asked for and was not made ahead, another group or
//! another difficulty, is made then.

use std::collections::{BTreeSet, VecDeque};

use core::time::Duration;

use dormouse_crypto::hip::{DhGroup, DhKey};
use dormouse_crypto::{PrfKey, Secret, ct_eq};
use dormouse_sansio::{Entropy, Instant, Path};
use dormouse_wire::hip::{
    DhValue, Hit, Packet, PacketType, Param, ParamType, Puzzle as PuzzleParam, R1Counter, Solution, Version,
};

use crate::address::octets;
use crate::config::HostConfig;
use crate::exchange::{Around, candidates, register};
use crate::hit::{HitSuite, Identity};
use crate::limits::{MAX_AHEAD, MAX_COMPUTATIONS, MAX_TRIED, MAX_USED_SOLUTIONS};
use crate::protect;
use crate::puzzle::Puzzle;
use crate::quirks::{Quirk, Quirks};
use crate::version;

/// The random number of a PUZZLE begins here, from the start of the parameter.
const PUZZLE_I: usize = 8;
/// Public values of an R1 at most, in version 1.
const MAX_VALUES: usize = 2;
/// The receiver's tag in a packet.
const RECEIVER: core::ops::Range<usize> = 24..40;
/// The value of a puzzle's lifetime that means one second (RFC 7401 section 5.2.4).
const LIFETIME_OF_A_SECOND: u8 = 32;

/// A signed R1, but for what is filled in for each initiator.
#[derive(Debug)]
struct Template {
    group: DhGroup,
    k: u8,
    /// It is for peers with these, as far as they matter.
    quirks: Quirks,
    packet: Vec<u8>,
    /// Where the puzzle's random number stands.
    i_at: usize,
}

/// The puzzles of one span of time.
#[derive(Debug)]
pub(crate) struct Generation {
    number: u64,
    born: Instant,
    suite: HitSuite,
    secret: PrfKey,
    templates: Vec<Template>,
    keys: Vec<DhKey>,
    /// Marks of the solutions that led to an association.
    used: BTreeSet<Mark>,
    /// How many computations the solutions with each mark have cost: none yet, or [`MAX_TRIED`] counters of a byte. The array never grows, and
    /// says nothing of an initiator: a solution finds its counter by its mark.
    tried: Vec<u8>,
    /// Computations that it has counted.
    computations: usize,
}

/// What a solution is known by: a hash under the secret of its generation, so that an initiator cannot make two with one mark.
type Mark = [u8; 16];

/// The puzzles of one identity; the newest generation first.
#[derive(Debug)]
pub(crate) struct Pool {
    generations: VecDeque<Generation>,
    next_number: u64,
    /// What follows the newest one, as far as it is made.
    ahead: Option<Generation>,
    /// For which groups and quirks R1s are made ahead, besides the best group without any: those that were asked for.
    asked: Vec<(DhGroup, Quirks)>,
    /// Since when something is to be made ahead.
    wanted: Option<Instant>,
}

/// Why a solution is not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BadSolution {
    /// The puzzle is not one of ours, or too old, or not solved.
    Wrong,
    /// It was accepted before, or it has cost as many computations as a solution is worth.
    Used,
    /// It was too easy for the load that there is now.
    Easy,
}

impl Pool {
    pub(crate) const fn new(first_generation: u64) -> Self {
        Self {
            generations: VecDeque::new(),
            next_number: first_generation,
            ahead: None,
            asked: Vec::new(),
            wanted: None,
        }
    }

    /// The host may be called from now on: its first R1s are made soon, if there are none.
    pub(crate) fn begin(&mut self) {
        if self.generations.is_empty() && self.ahead.is_none() {
            self.wanted = Some(Instant::ZERO);
        }
    }

    /// What an R1 says has changed: those that were signed ahead are signed anew.
    pub(crate) fn sign_again(&mut self) {
        let all = self.generations.iter_mut().chain(&mut self.ahead);
        let mut some = false;
        all.for_each(|generation| some |= generation.templates.drain(..).next().is_some());
        self.wanted = self.wanted.or(some.then_some(Instant::ZERO));
    }

    /// Since when something is to be made ahead: [`Self::make_ahead`] makes one piece.
    pub(crate) const fn wanted(&self) -> Option<Instant> {
        self.wanted
    }

    /// Makes one signed R1 that is missing: of the newest generation, if that is still given out, or else of the next one.
    pub(crate) fn make_ahead(&mut self, around: &mut Around<'_>) {
        let Around { now, identity, config, .. } = *around;
        if self.wanted.is_none() {
            return;
        }
        let (life, suite, k) = (config.timing.generation, identity.public().suite(), config.difficulty.idle);
        if self.ahead.is_none() {
            self.ahead = Some(self.generation(now, suite, around.entropy));
        }
        let best = version::groups(suite.version(), config).first().map(|group| (*group, Quirks::NONE));
        let kinds = || best.iter().chain(&self.asked).copied();
        let newest = self.generations.front_mut().filter(|newest| !newest.is_over(now, life));
        let missing = newest.into_iter().chain(&mut self.ahead).find_map(|of| {
            let kind = kinds().find(|(group, quirks)| of.place((*group, k, *quirks)).is_none())?;
            Some((of, kind))
        });
        let made = missing.and_then(|(of, (group, quirks))| {
            let template = of.template(identity, config, (group, k, quirks), around.entropy)?;
            of.templates.push(template);
            Some(())
        });
        match made {
            Some(()) => around.stats.r1_signed += 1,
            None => self.wanted = None,
        }
    }

    /// Begins a generation if the newest one is over, and drops those that are too old.
    /// "The Responder MUST periodically change such a secret." (RFC 7401 section 4.1.2)
    /// "A system's local counter MUST be incremented at least as often as every time old R1s cease to be valid." (RFC 7401 section 4.1.4)
    /// "The sender SHOULD increment this counter periodically." (RFC 7401 section 5.2.3)
    /// "R1 information MUST NOT be discarded until a time period [...] after the R1 packet is no longer being offered." (RFC 7401 section
    /// 6.7.1)
    fn turn(&mut self, now: Instant, life: Duration, suite: HitSuite, entropy: &mut dyn Entropy) {
        if self.generations.front().is_none_or(|newest| newest.is_over(now, life)) {
            let next = self.ahead.take().map(|next| Generation { born: now, ..next });
            let next = next.unwrap_or_else(|| self.generation(now, suite, entropy));
            self.generations.push_front(next);
            self.wanted = self.wanted.or(Some(now));
        }
        self.generations.truncate(2);
        self.generations.retain(|g| now < g.born + life * 2);
    }

    fn generation(&mut self, now: Instant, suite: HitSuite, entropy: &mut dyn Entropy) -> Generation {
        let mut secret = Secret::zeroed(32);
        entropy.fill(secret.as_mut_bytes());
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        Generation {
            number,
            born: now,
            suite,
            secret: PrfKey::new(suite.prf(), secret.as_bytes()),
            templates: Vec::new(),
            keys: Vec::new(),
            used: BTreeSet::new(),
            tried: Vec::new(),
            computations: 0,
        }
    }

    /// An R1 for an initiator that came by `path`. `None` if it cannot be made.
    /// "The Initiator's HIT MUST match the one received in the I1 packet if the R1 is a response to an I1." (RFC 7401 section 5.3.2)
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
        let quirks = around.peers.quirks(initiator).of_r1();
        let at = match generation.place((group, k, quirks)) {
            Some(at) => at,
            None => {
                let template = generation.template(identity, config, (group, k, quirks), around.entropy)?;
                around.stats.r1_signed += 1;
                generation.templates.push(template);
                if !self.asked.contains(&(group, quirks)) && self.asked.len() < MAX_AHEAD {
                    self.asked.push((group, quirks));
                    self.wanted = self.wanted.or(Some(now));
                }
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

    /// The generation whose puzzle, of at least `least` bits, an I2 that came by `path` has solved: the one that it names, or the one whose
    /// puzzle it is. The solution is not used up yet.
    /// "Implementations MUST accept puzzles from the current generation and MAY accept puzzles from earlier generations." (RFC 7401 section
    /// 4.1.4)
    /// "[...] it is RECOMMENDED that the Responder is able to verify a valid puzzle solution at least Lifetime seconds after the puzzle
    /// secret has been deprecated." (RFC 7401 section 4.1.2)
    /// "If the generation counter in the newly received I2 packet is outside the accepted range, the I2 packet is stale (and perhaps
    /// replayed) and SHOULD be dropped." (RFC 7401 section 6.9)
    /// "The system MUST validate the solution to the puzzle by computing the hash described in Section 5.3.3 using the same RHASH
    /// algorithm." (RFC 7401 section 6.9)
    pub(crate) fn judge(
        &mut self,
        around: &mut Around<'_>,
        (initiator, path): (Hit, Path),
        counter: Option<u64>,
        solution: &Solution,
        least: u8,
    ) -> Result<&mut Generation, BadSolution> {
        let Around { now, identity, config, .. } = *around;
        let suite = identity.public().suite();
        self.turn(now, config.timing.generation, suite, around.entropy);
        let (hash, responder) = (suite.hash(), identity.hit());
        let is_its = |g: &&mut Generation| {
            let i = g.random_number(solution.k, initiator, responder, path);
            counter.is_none_or(|counter| counter == g.number) && ct_eq(i.as_bytes(), &solution.i)
        };
        let generation = self.generations.iter_mut().find(is_its).ok_or(BadSolution::Wrong)?;
        let puzzle = Puzzle { hash, k: solution.k, i: solution.i.clone(), initiator, responder };
        let puzzle = puzzle.with(around.peers.quirks(initiator));
        let ours = solution.j.len() == suite.puzzle_len();
        if !ours || !puzzle.is_solved_by(&solution.j) {
            return Err(BadSolution::Wrong);
        }
        if solution.k < least {
            return Err(BadSolution::Easy);
        }
        let mark = generation.mark(initiator, solution);
        if generation.used.contains(&mark) || generation.tries(mark) >= MAX_COMPUTATIONS {
            return Err(BadSolution::Used);
        }
        Ok(generation)
    }
}

impl Generation {
    /// Whether it is given out no more.
    fn is_over(&self, now: Instant, life: Duration) -> bool {
        now >= self.born + life || self.used.len() >= MAX_USED_SOLUTIONS || self.computations >= MAX_TRIED
    }

    /// Where the R1 of this kind is.
    fn place(&self, (group, k, quirks): (DhGroup, u8, Quirks)) -> Option<usize> {
        self.templates.iter().position(|t| (t.group, t.k, t.quirks) == (group, k, quirks))
    }

    /// "#I = Ltrunc( RHASH ( S | HIT-I | HIT-R | IP-I | IP-R ), n)" (RFC 7401 appendix A), with K besides: an initiator cannot claim
    /// an easier puzzle than it was given.
    /// "To prevent precomputation attacks, the Responder MUST select the number #I in such a way that the Initiator cannot guess it.
    /// Furthermore, the construction MUST allow the Responder to verify that the value #I was indeed selected by it and not by the
    /// Initiator." (RFC 7401 section 4.1.2)
    /// "Responder implementations SHOULD include sufficient randomness in the puzzle values so that algorithmic complexity attacks become
    /// impossible" (RFC 7401 section 4.1.1)
    fn random_number(&self, k: u8, initiator: Hit, responder: Hit, path: Path) -> Secret {
        let (theirs, ours) = (octets(path.remote.ip()), octets(path.local.ip()));
        let whole = self.secret.compute(&[&[k], &initiator.octets(), &responder.octets(), &theirs, &ours]);
        whole.as_bytes().get(..self.suite.puzzle_len()).unwrap_or_default().into()
    }

    /// The key of a group that this generation sent out.
    pub(crate) fn key(&self, group: u8) -> Option<&DhKey> {
        self.keys.iter().find(|key| key.group().id() == group)
    }

    fn mark(&self, initiator: Hit, solution: &Solution) -> Mark {
        let whole = self.secret.compute(&[b"mark", &initiator.octets(), &solution.i, &solution.j]);
        let mut mark = Mark::default();
        mark.iter_mut().zip(whole.as_bytes()).for_each(|(to, from)| *to = *from);
        mark
    }

    /// Where the counter for this mark is.
    const fn counter([a, b, ..]: Mark) -> usize {
        u16::from_be_bytes([a, b]) as usize % MAX_TRIED
    }

    /// How many computations solutions with this counter have cost.
    fn tries(&self, mark: Mark) -> u8 {
        self.tried.get(Self::counter(mark)).copied().unwrap_or(0)
    }

    /// A solution is worth public-key work now. Who has seen it can send it with anything else around it: it is not worth work without
    /// end, and the real I2 may be late. So this is counted before the MAC can be verified, in memory of a fixed size.
    pub(crate) fn spend(&mut self, initiator: Hit, solution: &Solution) {
        let at = Self::counter(self.mark(initiator, solution));
        self.tried.resize(MAX_TRIED, 0);
        self.computations = self.computations.saturating_add(1);
        if let Some(tries) = self.tried.get_mut(at) {
            *tries = tries.saturating_add(1);
        }
    }

    /// A solution that led to an association is not accepted again.
    pub(crate) fn use_up(&mut self, initiator: Hit, solution: &Solution) {
        self.used.insert(self.mark(initiator, solution));
    }

    fn template(
        &mut self,
        identity: &Identity,
        config: &HostConfig,
        (group, k, quirks): (DhGroup, u8, Quirks),
        entropy: &mut dyn Entropy,
    ) -> Option<Template> {
        let version = self.suite.version();
        let mut values = Vec::new();
        let one = quirks.has(Quirk::OneGroup);
        for group in offered(version, group, config).into_iter().take(if one { 1 } else { MAX_VALUES }) {
            if self.key(group.id()).is_none() {
                self.keys.push(DhKey::generate(group, entropy)?);
            }
            let public = self.key(group.id())?.public_value().to_vec();
            values.push(DhValue { group: group.id(), public });
        }
        let seconds = config.timing.generation.as_secs().max(1);
        let lifetime = LIFETIME_OF_A_SECOND.saturating_add(seconds.ilog2() as u8);
        let i = vec![0; self.suite.puzzle_len()];
        let counter = R1Counter { reserved: 0, generation: self.number };
        let mut draft = protect::draft(PacketType::R1, identity.hit(), Hit::NULL);
        let v2 = version == Version::V2;
        let more = !quirks.has(Quirk::KnownParametersOnly);
        let registrar = register::info(config).filter(|_| more);
        // "The Responder MUST include ICE-HIP-UDP in the NAT traversal modes." (RFC 9028 section 4.5)
        let [mode, pacing] = if more && v2 && !config.relays.is_empty() {
            candidates::offer().map(Some)
        } else {
            let relays = more && v2 && config.relay_server.is_some();
            [relays.then(candidates::encapsulation), None]
        };
        let counter =
            (!quirks.has(Quirk::Bare)).then_some(Param::R1Counter(version::counter(version), counter));
        let all = if one { &[group] } else { config.groups.as_slice() };
        let ciphers = version::ciphers(version, config);
        let ciphers = ciphers.into_iter().filter_map(|c| version::cipher_id(version, c)).collect();
        let esp = version::esp_suites(version, config).iter().map(|s| s.id()).collect();
        // "It SHOULD be included in the R1" (RFC 7401 section 5.2.3)
        // "For each listed TF type, the sender of the TRANSPORT_FORMAT_LIST parameter MUST include the respective transport format
        // parameter in the HIP packet." (RFC 7401 section 5.2.11)
        // "The Responder MUST provide at least one payload transport format type." (RFC 7401 section 6.7)
        let params = [
            counter,
            Some(Param::Puzzle(PuzzleParam { k, lifetime, opaque: [0; 2], i })),
            v2.then(|| Param::DhGroupList(all.iter().map(|g| g.id()).collect())),
            Some(Param::DiffieHellman(values)),
            Some(Param::Numbers(version::ciphers_kind(version), ciphers)),
            mode,
            pacing,
            Some(Param::HostId(identity.public().host_id().clone())),
            v2.then(|| Param::HitSuiteList(HitSuite::ALL.iter().map(|s| s.id() << 4).collect())),
            registrar,
            v2.then(|| Param::Numbers(ParamType::TransportFormatList, vec![ParamType::EspTransform.code()])),
            Some(Param::Suites(ParamType::EspTransform, esp)),
        ];
        params.iter().flatten().for_each(|param| draft.add(param));
        let packet = protect::finish_signed(draft, ParamType::HipSignature2, identity)?;
        let i_at = Packet::parse(&packet).ok()?.find(ParamType::Puzzle)?.at + PUZZLE_I;
        Some(Template { group, k, quirks, packet, i_at })
    }
}

/// The groups of which an R1 has public values: the best one and, in version 1, another for who has not that; a peer that takes one gets the best.
/// "The sender can include at most two different Diffie-Hellman public values in the DIFFIE_HELLMAN parameter." (RFC 5201 section 5.2.6)
fn offered(version: Version, best: DhGroup, config: &HostConfig) -> Vec<DhGroup> {
    let others =
        version::groups(version, config).into_iter().filter(|g| version == Version::V1 && *g != best);
    [best].into_iter().chain(others).take(MAX_VALUES).collect()
}

#[cfg(test)]
mod tests {
    use dormouse_sansio::Seeded;

    use super::*;

    fn solution(n: u32) -> Solution {
        let mut solution = Solution { k: 4, reserved: 0, opaque: [0; 2], i: vec![7; 32], j: vec![0; 32] };
        solution.j[..4].copy_from_slice(&n.to_be_bytes());
        solution
    }

    /// I2 packets that solve a puzzle and are forged behind it cost 65,536 bytes a generation, however many they are, and leave nothing of their
    /// senders; one solution is worth eight computations, and another's are not used up with them.
    #[test]
    fn forged_packets_with_solutions_fill_no_memory_and_end_the_generation() {
        let mut pool = Pool::new(1);
        let mut one = pool.generation(Instant::ZERO, HitSuite::RsaSha256, &mut Seeded::new(1));
        let life = Duration::from_secs(900);
        let (forger, honest) = (Hit("2001:21::1".parse().unwrap()), Hit("2001:21::2".parse().unwrap()));
        assert!(one.tried.is_empty(), "nothing is set aside before a puzzle is solved");
        for _ in 0..MAX_COMPUTATIONS {
            assert!(one.tries(one.mark(forger, &solution(0))) < MAX_COMPUTATIONS);
            one.spend(forger, &solution(0));
        }
        assert!(one.tries(one.mark(forger, &solution(0))) >= MAX_COMPUTATIONS);
        assert!(one.tries(one.mark(honest, &solution(0))) < MAX_COMPUTATIONS);
        let first = one.computations as u32;
        for n in first..MAX_TRIED as u32 {
            assert!(!one.is_over(Instant::ZERO, life), "{n}");
            one.spend(forger, &solution(n));
        }
        assert!(one.is_over(Instant::ZERO, life));
        assert_eq!((one.tried.len(), one.tried.capacity(), one.used.len()), (MAX_TRIED, MAX_TRIED, 0));
        // Of a thousand honest initiators with a solution each, hardly one meets a counter that is full.
        let served = |n: &u32| one.tries(one.mark(honest, &solution(*n))) < MAX_COMPUTATIONS;
        assert!((0..1_000).filter(served).count() > 990);
    }

    #[test]
    fn a_solution_that_was_used_is_known_by_its_mark_alone() {
        let mut pool = Pool::new(1);
        let mut one = pool.generation(Instant::ZERO, HitSuite::RsaSha256, &mut Seeded::new(1));
        let (peer, other) = (Hit("2001:21::1".parse().unwrap()), Hit("2001:21::2".parse().unwrap()));
        one.use_up(peer, &solution(1));
        let used = |who, n| one.used.contains(&one.mark(who, &solution(n)));
        assert!(used(peer, 1) && !used(peer, 2) && !used(other, 1));
    }
}

//! The responder before there is an association (RFC 7401 sections 4.1.1, 4.1.4 and appendix A): R1 packets that were computed and signed
//! ahead, and puzzles whose random number needs no memory. Owns generations of puzzles with their secrets, Diffie-Hellman keys and used
//! solutions; must never keep anything of an initiator that has not solved a puzzle.
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
    DhValue, Hit, Packet, PacketType, Param, ParamType, Puzzle as PuzzleParam, R1Counter, Solution, Version,
};

use crate::config::HostConfig;
use crate::exchange::{Around, candidates, register};
use crate::hit::{HitSuite, Identity};
use crate::limits::{MAX_COMPUTATIONS, MAX_USED_SOLUTIONS};
use crate::protect;
use crate::puzzle::Puzzle;
use crate::quirks::{Quirk, Quirks};
use crate::version;

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
    /// Solutions that led to an association or to computations, by initiator, I and J: how many more computations each is worth.
    used: BTreeMap<(Hit, Vec<u8>, Vec<u8>), u32>,
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
    /// It was accepted before, or was refused too often, or the puzzle has too many others.
    Used,
    /// It was too easy for the load that there is now.
    Easy,
}

impl Pool {
    pub(crate) const fn new(first_generation: u64) -> Self {
        Self { generations: VecDeque::new(), next_number: first_generation }
    }

    /// What an R1 says has changed: those that were signed ahead are signed anew.
    pub(crate) fn sign_again(&mut self) {
        self.generations.iter_mut().for_each(|generation| generation.templates.clear());
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
                suite,
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
        let quirks = around.peers.quirks(initiator).of_r1();
        let found = generation.templates.iter().position(|t| (t.group, t.k, t.quirks) == (group, k, quirks));
        let at = match found {
            Some(at) => at,
            None => {
                let template = generation.template(identity, config, (group, k, quirks), around.entropy)?;
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

    /// The generation whose puzzle, of at least `least` bits, an I2 that came by `path` has solved: the one that it names, or the one whose
    /// puzzle it is. The solution is not used up yet.
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
        match generation.used.get(&(initiator, solution.i.clone(), solution.j.clone())) {
            Some(0) => Err(BadSolution::Used),
            _ => Ok(generation),
        }
    }
}

impl Generation {
    /// "#I = Ltrunc( RHASH ( S | HIT-I | HIT-R | IP-I | IP-R ), n)" (RFC 7401 appendix A), with K besides: an initiator cannot claim
    /// an easier puzzle than it was given.
    fn random_number(&self, k: u8, initiator: Hit, responder: Hit, path: Path) -> Secret {
        let (theirs, ours) = (octets(path.remote.ip()), octets(path.local.ip()));
        let whole = self.secret.compute(&[&[k], &initiator.octets(), &responder.octets(), &theirs, &ours]);
        whole.as_bytes().get(..self.suite.puzzle_len()).unwrap_or_default().into()
    }

    /// The key of a group that this generation sent out.
    pub(crate) fn key(&self, group: u8) -> Option<&DhKey> {
        self.keys.iter().find(|key| key.group().id() == group)
    }

    /// A solution is worth public-key work now. Who has seen it can send it with anything else around it: it is not worth work without
    /// end, and the real I2 may be late.
    pub(crate) fn spend(&mut self, initiator: Hit, solution: &Solution) {
        let key = (initiator, solution.i.clone(), solution.j.clone());
        let left = self.used.entry(key).or_insert(MAX_COMPUTATIONS);
        *left = left.saturating_sub(1);
    }

    /// A solution that led to an association is not accepted again.
    pub(crate) fn use_up(&mut self, initiator: Hit, solution: &Solution) {
        self.used.insert((initiator, solution.i.clone(), solution.j.clone()), 0);
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
        for group in offered(version, group, config) {
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
            [None, None]
        };
        let counter =
            (!quirks.has(Quirk::Bare)).then_some(Param::R1Counter(version::counter(version), counter));
        let all = if quirks.has(Quirk::OneGroup) { &[group] } else { config.groups.as_slice() };
        let ciphers = version::ciphers(version, config);
        let ciphers = ciphers.into_iter().filter_map(|c| version::cipher_id(version, c)).collect();
        let esp = version::esp_suites(version, config).iter().map(|s| s.id()).collect();
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

/// The groups of which an R1 has public values: the best one and, in version 1, another for who has not that.
/// "The sender can include at most two different Diffie-Hellman public values in the DIFFIE_HELLMAN parameter." (RFC 5201 section 5.2.6)
fn offered(version: Version, best: DhGroup, config: &HostConfig) -> Vec<DhGroup> {
    let others =
        version::groups(version, config).into_iter().filter(|g| version == Version::V1 && *g != best);
    [best].into_iter().chain(others).take(2).collect()
}

/// An address as 16 bytes.
pub(crate) fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
        IpAddr::V6(a) => a.octets(),
    }
}

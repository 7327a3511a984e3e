//! The puzzle (RFC 7401 section 4.1.2): an initiator works before the responder does. Owns its arithmetic and the search for a solution,
//! which is done in slices; must never decide who gets one.

use dormouse_crypto::{HashAlg, hash_one};
use dormouse_sansio::Entropy;
use dormouse_wire::hip::Hit;

use crate::limits::{PUZZLE_PATIENCE, PUZZLE_SLICE};
use crate::quirks::{Quirk, Quirks};

/// What is hashed, but for the solution.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Puzzle {
    /// RHASH of the responder's tag.
    pub hash: HashAlg,
    /// Zero bits of a solution.
    pub k: u8,
    /// The responder's random number.
    pub i: Vec<u8>,
    /// Who solves it.
    pub initiator: Hit,
    /// Who asks for it.
    pub responder: Hit,
}

impl Puzzle {
    /// As a peer with these quirks hashes it.
    #[must_use]
    pub fn with(self, quirks: Quirks) -> Self {
        let Self { hash, k, i, initiator, responder } = self;
        match quirks.has(Quirk::PuzzleHitsSwapped) {
            true => Self { hash, k, i, initiator: responder, responder: initiator },
            false => Self { hash, k, i, initiator, responder },
        }
    }

    /// Whether `j` solves it: "Ltrunc( RHASH( I2.I | I2.hit_i | I2.hit_r | I2.J ), #K )" is 0 (RFC 7401 appendix A), the lowest K bits.
    #[must_use]
    /// "The lowest-order #K bits of the result MUST be zeros." (RFC 7401 section 4.1.2)
    /// "In a valid response puzzle, the #K low-order bits of the resulting RHASH digest MUST be zero." (RFC 7401 section 6.3)
    /// "All the data in the hash input MUST be in network byte order." (RFC 7401 section 6.3)
    pub fn is_solved_by(&self, j: &[u8]) -> bool {
        self.accepts(&self.input(j))
    }

    /// What is hashed.
    fn input(&self, j: &[u8]) -> Vec<u8> {
        [&self.i, &self.initiator.octets()[..], &self.responder.octets(), j].concat()
    }

    fn accepts(&self, input: &[u8]) -> bool {
        let digest = hash_one(self.hash, input);
        let mut zeros = 0;
        for byte in digest.as_ref().iter().rev() {
            zeros += byte.trailing_zeros();
            if *byte != 0 {
                break;
            }
        }
        zeros >= u32::from(self.k)
    }
}

/// A search that is under way.
#[derive(Debug)]
pub struct Solver {
    puzzle: Puzzle,
    /// What is hashed, with the number that is tried behind `fixed` bytes: one buffer for all trials.
    input: Vec<u8>,
    fixed: usize,
    left: u64,
}

/// How far a search has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Search {
    /// It is not at its end.
    GoesOn,
    /// The solution J.
    Solved(Vec<u8>),
    /// None was found with the work that is allowed.
    GivenUp,
}

impl Solver {
    /// A search that begins at a random number; `None` if the puzzle is harder than `hardest`.
    #[must_use]
    pub fn new(puzzle: Puzzle, hardest: u8, entropy: &mut dyn Entropy) -> Option<Self> {
        if puzzle.k > hardest {
            return None;
        }
        let mut j = vec![0; puzzle.i.len()];
        entropy.fill(&mut j);
        let left = 1u64.checked_shl(puzzle.k.into()).map_or(u64::MAX, |n| n.saturating_mul(PUZZLE_PATIENCE));
        let input = puzzle.input(&j);
        Some(Self { fixed: input.len() - j.len(), puzzle, input, left })
    }

    /// Does a bounded part of the work: some milliseconds.
    pub fn advance(&mut self) -> Search {
        for _ in 0..PUZZLE_SLICE {
            if self.puzzle.accepts(&self.input) {
                return Search::Solved(self.input.split_off(self.fixed));
            }
            self.left = self.left.saturating_sub(1);
            if self.left == 0 {
                return Search::GivenUp;
            }
            for byte in self.input.iter_mut().skip(self.fixed).rev() {
                *byte = byte.wrapping_add(1);
                if *byte != 0 {
                    break;
                }
            }
        }
        Search::GoesOn
    }
}

#[cfg(test)]
mod tests {
    use dormouse_sansio::Seeded;

    use super::*;

    fn puzzle(k: u8) -> Puzzle {
        let hit = |text: &str| Hit(text.parse().unwrap());
        let (initiator, responder) = (hit("2001:21::1"), hit("2001:21::2"));
        Puzzle { hash: HashAlg::Sha256, k, i: vec![0xa5; 32], initiator, responder }
    }

    /// Computed with Python's hashlib: the first numbers, as 32 bytes, whose hash ends in 12 and 16 zero bits; with the tags in their order,
    /// and swapped.
    #[test]
    fn solutions_are_those_of_another_implementation() {
        for (k, swapped, first) in KNOWN {
            let quirks = swapped.then_some(Quirk::PuzzleHitsSwapped).into_iter().collect();
            let puzzle = puzzle(k).with(quirks);
            let solves = |n: u64| {
                let mut j = vec![0; 24];
                j.extend_from_slice(&n.to_be_bytes());
                puzzle.is_solved_by(&j)
            };
            assert_eq!((0..=first).find(|n| solves(*n)), Some(first));
        }
    }

    #[test]
    fn a_search_ends_with_a_solution_for_these_tags_alone() {
        for k in [0, 1, 10, 14] {
            let mut solver = Solver::new(puzzle(k), 20, &mut Seeded::new(k.into())).unwrap();
            let j = loop {
                match solver.advance() {
                    Search::GoesOn => {}
                    Search::Solved(j) => break j,
                    Search::GivenUp => panic!("K {k}"),
                }
            };
            assert!(puzzle(k).is_solved_by(&j));
            let swapped =
                Puzzle { initiator: puzzle(k).responder, responder: puzzle(k).initiator, ..puzzle(k) };
            assert!(k < 10 || !swapped.is_solved_by(&j));
        }
    }

    #[test]
    fn what_is_too_hard_is_not_begun_and_nothing_is_searched_for_ever() {
        assert!(Solver::new(puzzle(21), 20, &mut Seeded::new(1)).is_none());
        let mut hopeless = Solver::new(puzzle(255), 255, &mut Seeded::new(1)).unwrap();
        hopeless.left = 5;
        assert_eq!(hopeless.advance(), Search::GivenUp);
    }

    const KNOWN: [(u8, bool, u64); 4] =
        [(12, false, 1581), (16, false, 10891), (12, true, 3031), (16, true, 10209)];
}

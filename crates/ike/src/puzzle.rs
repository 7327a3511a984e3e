//! Client puzzles (RFC 8019): finding keys under which a PRF's results for a given string end in zero bits, and counting the zero
//! bits of keys that another end has found. Owns the work of one puzzle, which is done in slices; must never decide who gets one.

use dormouse_crypto::PrfKey;
use dormouse_crypto::suites::Prf;
use dormouse_wire::ike::{PUZZLE_KEYS, puzzle_keys};

use crate::limits::{PUZZLE_FREE_MOST, PUZZLE_PATIENCE, PUZZLE_SLICE};

/// Bytes of the keys that we try: all that [`PUZZLE_PATIENCE`] allows can be counted in them, and every PRF takes them.
type Key = [u8; 4];

/// A puzzle whose PRF we have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Puzzle {
    pub(crate) prf: Prf,
    /// Zero bits; 0: as many as the solver can afford.
    pub(crate) difficulty: u8,
}

impl Puzzle {
    pub(crate) fn on_wire(self) -> dormouse_wire::ike::Puzzle {
        dormouse_wire::ike::Puzzle { prf: self.prf.id(), difficulty: self.difficulty }
    }
}

/// Zero bits at the end of the PRF's result.
fn zero_bits(prf: Prf, key: &[u8], string: &[u8]) -> u8 {
    let result = PrfKey::new(prf, key).compute(&[string]);
    let mut bits = 0u8;
    for byte in result.as_bytes().iter().rev() {
        let zeros = u8::try_from(byte.trailing_zeros()).unwrap_or(8);
        bits = bits.saturating_add(zeros);
        if zeros < 8 {
            break;
        }
    }
    bits
}

/// The zero bits that a solution is worth; `None` if it is malformed.
/// "The Responder MUST check all of the four returned keys." (RFC 8019 section 7.1.4)
/// "The Responder MUST take the smallest number of trailing zero bits among the checked results and count it as the number of zero
/// bits the Initiator solved for." (RFC 8019 section 7.1.4)
/// "If the agreed upon PRF accepts keys of any size, then the size of each key MUST be between 1 octet and the preferred key length of
/// the PRF (inclusive)." (RFC 8019 section 8.2)
pub(crate) fn worth(prf: Prf, string: &[u8], solution: &[u8]) -> Option<u8> {
    let keys = puzzle_keys(solution)?;
    let sized = keys.iter().all(|key| key.len() <= prf.output_len());
    sized.then(|| keys.iter().map(|key| zero_bits(prf, key, string)).min())?
}

/// A search that is under way.
#[derive(Debug)]
pub(crate) struct Solver {
    puzzle: Puzzle,
    string: Vec<u8>,
    /// The best keys so far, the best one last.
    best: Vec<(u8, Key)>,
    next: u32,
    /// It is given up here.
    end: u32,
}

/// How far a search has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Search {
    GoesOn,
    /// The data of the PS payload.
    Solved(Vec<u8>),
    /// No solution was found with the work that is allowed.
    GivenUp,
}

impl Solver {
    /// A search for keys for `string`; `None` if the puzzle is harder than `hardest`.
    /// "Initiators SHOULD set a maximum difficulty level beyond which they won't try to solve the puzzle" (RFC 8019 section 9)
    pub(crate) fn new(puzzle: Puzzle, string: Vec<u8>, hardest: u8) -> Option<Self> {
        if hardest == 0 || puzzle.difficulty > hardest {
            return None;
        }
        let end = match puzzle.difficulty {
            0 => 1 << hardest.min(PUZZLE_FREE_MOST),
            difficulty => (1u32 << difficulty.min(31)).saturating_mul(PUZZLE_PATIENCE),
        };
        Some(Self { puzzle, string, best: Vec::new(), next: 0, end })
    }

    /// Does a bounded part of the work: some milliseconds.
    pub(crate) fn advance(&mut self) -> Search {
        for _ in 0..PUZZLE_SLICE {
            if self.next == self.end {
                return if self.puzzle.difficulty == 0 { self.solution() } else { Search::GivenUp };
            }
            let key = self.next.to_be_bytes();
            self.next += 1;
            let bits = zero_bits(self.puzzle.prf, &key, &self.string);
            if bits < self.puzzle.difficulty {
                continue;
            }
            let at = self.best.partition_point(|(other, _)| *other < bits);
            self.best.insert(at, (bits, key));
            if self.best.len() > PUZZLE_KEYS {
                self.best.remove(0);
            }
            if self.puzzle.difficulty > 0 && self.best.len() == PUZZLE_KEYS {
                return self.solution();
            }
        }
        Search::GoesOn
    }

    fn solution(&self) -> Search {
        Search::Solved(self.best.iter().flat_map(|(_, key)| *key).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cookie of RFC 8019 section 4.4.
    const COOKIE: [u8; 20] = [
        0x73, 0x9a, 0xe7, 0x49, 0x2d, 0x8a, 0x81, 0x0c, 0xf5, 0xe8, 0xdc, 0x0f, 0x96, 0x26, 0xc9, 0xdd, 0xa7,
        0x73, 0xc5, 0xa3,
    ];
    const PRF: Prf = Prf::HmacSha256;

    fn solve(difficulty: u8, hardest: u8) -> (Search, u32) {
        let mut solver = Solver::new(Puzzle { prf: PRF, difficulty }, COOKIE.to_vec(), hardest).unwrap();
        loop {
            match solver.advance() {
                Search::GoesOn => {}
                search => return (search, solver.next),
            }
        }
    }

    /// Computed with Python's `hmac`. (The results that RFC 8019 section 4.4 prints for its keys are not HMAC-SHA2-256's of that cookie.)
    #[test]
    fn zero_bits_are_those_of_another_implementation() {
        let sha256 = [(223u32, 13), (10_423, 13), (11_985, 12), (13_322, 12)];
        for (key, bits) in sha256 {
            assert_eq!(zero_bits(PRF, &key.to_be_bytes(), &COOKIE), bits, "{key}");
        }
        assert_eq!(worth(PRF, &COOKIE, &sha256.map(|(key, _)| key.to_be_bytes()).concat()), Some(12));
        let sha1 = [0, 0xdc, 0xaf, 1, 0x59, 0x67, 0, 0xb3, 0xef, 0, 0xc1, 0x17];
        assert_eq!(worth(Prf::HmacSha1, &COOKIE, &sha1), Some(14));
        // The search finds the first four.
        let (Search::Solved(solution), tried) = solve(12, 18) else { panic!("not solved") };
        assert_eq!((worth(PRF, &COOKIE, &solution), tried), (Some(12), 13_323));
    }

    #[test]
    fn a_solution_is_worth_what_was_asked_for() {
        for difficulty in [9, 12] {
            let (Search::Solved(solution), tried) = solve(difficulty, 18) else { panic!("not solved") };
            let bits = worth(PRF, &COOKIE, &solution).unwrap();
            assert!(bits >= difficulty, "{bits} of {difficulty} bits after {tried}");
            assert!(worth(PRF, b"another cookie", &solution).unwrap() < difficulty);
        }
    }

    #[test]
    fn without_a_difficulty_the_work_is_bounded_and_the_best_is_kept() {
        let (Search::Solved(solution), tried) = solve(0, 10) else { panic!("not solved") };
        assert_eq!(tried, 1 << 10);
        assert!((5..12).contains(&worth(PRF, &COOKIE, &solution).unwrap()));
        assert_eq!(solve(0, 30).1, 1 << PUZZLE_FREE_MOST);
    }

    #[test]
    fn what_is_too_hard_is_not_begun() {
        let new = |difficulty, hardest| Solver::new(Puzzle { prf: PRF, difficulty }, vec![1], hardest);
        assert!(new(19, 18).is_none() && new(0, 0).is_none() && new(1, 0).is_none());
        assert!(new(18, 18).is_some() && new(255, 255).is_some());
        // No key has 255 zero bits: the work ends nevertheless.
        assert_eq!(new(255, 255).unwrap().end, u32::MAX);
    }

    #[test]
    fn malformed_solutions_are_worth_nothing() {
        for bad in [&b""[..], b"abc", b"aaaa", &[7; 4 * 33]] {
            assert_eq!(worth(PRF, &COOKIE, bad), None, "{bad:?}");
        }
        let long: Vec<u8> = (0..4u8).flat_map(|n| [n; 33]).collect();
        assert_eq!(worth(PRF, &COOKIE, &long), None, "longer than the PRF's own keys");
    }
}

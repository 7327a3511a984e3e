//! Stateless cookies (RFC 7296, section 2.6): a peer under load proves that it receives at the address it sends from, before
//! anything is kept for it. Owns the secret and its rotation; must never remember a peer that has not worked.
//!
//! `Cookie = version | puzzle | HMAC-SHA2-256(secret of that version, SPIi | address | port | puzzle | Ni)`. The version names one of two
//! secrets: the current one, and its predecessor, so that a cookie lives for one to two lifetimes of a secret. The secret changes only
//! when a cookie is made, so that an endpoint without load has no timer. `puzzle` says which one came with the cookie, so that nothing has
//! to be remembered until it is solved: of what "the Responder SHOULD be able to learn the following information" (RFC 8019 section
//! 7.1.1.3) lists, whether there was one and how hard it was, and not how many there were and how long they took.
//! "[...] the Responder MUST make it integrity protected, so that any intended or accidental alteration of this information in the
//! returned cookie is detectable" (RFC 8019 section 7.1.1.3)
//!
//! A solution counts once: its cookie is remembered as long as its secret lives, by 8 bytes of its MAC.
//! "[...] MUST ensure that an attacker gains no or insignificant benefit from reusing puzzle solutions in several requests" (RFC 8019
//! section 7.1.1.3)

use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeSet;

use dormouse_crypto::suites::Prf;
use dormouse_crypto::{PrfKey, Secret, ct_eq};
use dormouse_sansio::{Entropy, Instant};

use crate::limits::{COOKIE_MAX, COOKIE_SECRET_LIFETIME, SOLUTIONS_MAX};
use crate::puzzle::Puzzle;

/// The puzzle in a cookie: whether there is one, its PRF, its difficulty.
const PUZZLE_LEN: usize = 1 + 2 + 1;
/// Length of our cookies in bytes: version, puzzle and HMAC.
pub(crate) const COOKIE_LEN: usize = 1 + PUZZLE_LEN + 32;
const _: () = assert!(COOKIE_LEN <= COOKIE_MAX);

struct Generation {
    version: u8,
    born: Instant,
    key: PrfKey,
    /// Cookies whose puzzles were solved, by the beginning of their MACs.
    solved: BTreeSet<u64>,
}

/// The request that a cookie is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// The initiator's SPI.
    pub(crate) spi_i: u64,
    /// Where it came from.
    pub(crate) from: SocketAddr,
    /// Its nonce.
    pub(crate) ni: &'a [u8],
}

/// What a cookie that we made says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Given {
    /// The puzzle that came with it.
    pub(crate) puzzle: Option<Puzzle>,
    /// Its solution has been used.
    pub(crate) used: bool,
}

/// Makes and checks cookies.
#[derive(Default)]
pub(crate) struct CookieJar {
    current: Option<Generation>,
    previous: Option<Generation>,
}

impl core::fmt::Debug for CookieJar {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("CookieJar").field("version", &self.current.as_ref().map(|g| g.version)).finish()
    }
}

impl CookieJar {
    /// A jar without a secret yet: the first cookie makes one.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The cookie that the sender of this first message must return, with the puzzle that it is given.
    /// "The data associated with this notification MUST be between 1 and 64 octets in length (inclusive)" (RFC 7296 section
    /// 2.6)
    pub(crate) fn issue(
        &mut self,
        now: Instant,
        entropy: &mut dyn Entropy,
        asked: &Asked<'_>,
        puzzle: Option<Puzzle>,
    ) -> Vec<u8> {
        let stale = |g: &Generation| now.saturating_since(g.born) >= COOKIE_SECRET_LIFETIME;
        let generation = match self.current.take() {
            Some(current) if !stale(&current) => self.current.insert(current),
            old => {
                let version = old.as_ref().map_or(0, |g| g.version.wrapping_add(1));
                self.previous = old;
                let (key, solved) = (fresh_key(entropy), BTreeSet::new());
                self.current.insert(Generation { version, born: now, key, solved })
            }
        };
        let puzzle = encode(puzzle);
        let mut cookie = Vec::with_capacity(COOKIE_LEN);
        cookie.push(generation.version);
        cookie.extend_from_slice(&puzzle);
        cookie.extend_from_slice(generation.mac(asked, &puzzle).as_bytes());
        cookie
    }

    /// What `cookie` says, if it was issued to this address for this SPI and nonce, not too long ago. Constant time in the
    /// cookie's secret part.
    pub(crate) fn open(&self, now: Instant, cookie: &[u8], asked: &Asked<'_>) -> Option<Given> {
        let (version, puzzle, mac) = parts(cookie)?;
        [&self.current, &self.previous].into_iter().flatten().find_map(|generation| {
            let good = generation.version == version
                && now.saturating_since(generation.born) < COOKIE_SECRET_LIFETIME * 2
                && ct_eq(generation.mac(asked, puzzle).as_bytes(), mac);
            good.then(|| Given { puzzle: decode(*puzzle), used: generation.solved.contains(&beginning(mac)) })
        })
    }

    /// The solution that came with this cookie counts no more.
    pub(crate) fn use_up(&mut self, cookie: &[u8]) {
        let Some((version, _, mac)) = parts(cookie) else { return };
        for slot in [&mut self.current, &mut self.previous] {
            let Some(generation) = slot.as_mut().filter(|g| g.version == version) else { continue };
            generation.solved.insert(beginning(mac));
            if generation.solved.len() > SOLUTIONS_MAX {
                // More than is remembered: no cookie of this secret counts any more.
                *slot = None;
            }
        }
    }
}

/// Version, puzzle and MAC of what may be a cookie of ours.
fn parts(cookie: &[u8]) -> Option<(u8, &[u8; PUZZLE_LEN], &[u8])> {
    let (&version, rest) = cookie.split_first()?;
    let (puzzle, mac) = rest.split_first_chunk()?;
    Some((version, puzzle, mac))
}

fn beginning(mac: &[u8]) -> u64 {
    mac.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

fn encode(puzzle: Option<Puzzle>) -> [u8; PUZZLE_LEN] {
    let Some(Puzzle { prf, difficulty }) = puzzle else { return [0; PUZZLE_LEN] };
    let [high, low] = prf.id().to_be_bytes();
    [1, high, low, difficulty]
}

fn decode([given, high, low, difficulty]: [u8; PUZZLE_LEN]) -> Option<Puzzle> {
    let prf = Prf::by_id(u16::from_be_bytes([high, low])).filter(|_| given != 0)?;
    Some(Puzzle { prf, difficulty })
}

fn fresh_key(entropy: &mut dyn Entropy) -> PrfKey {
    let mut secret = Secret::zeroed(32);
    entropy.fill(secret.as_mut_bytes());
    PrfKey::new(Prf::HmacSha256, secret.as_bytes())
}

impl Generation {
    fn mac(&self, asked: &Asked<'_>, puzzle: &[u8; PUZZLE_LEN]) -> Secret {
        let ip = match asked.from.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let (spi_i, port) = (asked.spi_i.to_be_bytes(), asked.from.port().to_be_bytes());
        self.key.compute(&[&spi_i, &ip.octets(), &port, puzzle, asked.ni])
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use dormouse_sansio::Seeded;

    use super::*;

    const NI: &[u8] = &[7; 32];
    const PUZZLE: Puzzle = Puzzle { prf: Prf::HmacSha256, difficulty: 12 };

    fn asked(from: &str) -> Asked<'static> {
        Asked { spi_i: 5, from: from.parse().unwrap(), ni: NI }
    }

    #[test]
    fn a_cookie_is_good_for_its_sender_only() {
        let (mut jar, mut entropy) = (CookieJar::new(), Seeded::new(1));
        let a = asked("192.0.2.1:500");
        let cookie = jar.issue(Instant::ZERO, &mut entropy, &a, None);
        assert_eq!(cookie.len(), COOKIE_LEN);
        let good = |asked: &Asked<'_>| jar.open(Instant::ZERO, &cookie, asked).is_some();
        assert!(good(&a));
        assert!(!good(&Asked { spi_i: 6, ..a }), "another SPI");
        assert!(!good(&asked("192.0.2.2:500")), "another address");
        assert!(!good(&asked("192.0.2.1:501")), "another port");
        assert!(!good(&Asked { ni: &[8; 32], ..a }), "another nonce");
    }

    #[test]
    fn every_changed_or_missing_byte_is_refused() {
        let (mut jar, mut entropy) = (CookieJar::new(), Seeded::new(2));
        let a = asked("[2001:db8::1]:4500");
        for puzzle in [None, Some(PUZZLE)] {
            let cookie = jar.issue(Instant::ZERO, &mut entropy, &a, puzzle);
            assert_eq!(jar.open(Instant::ZERO, &cookie, &a), Some(Given { puzzle, used: false }));
            for i in 0..cookie.len() {
                let mut bad = cookie.clone();
                bad[i] ^= 1;
                assert_eq!(jar.open(Instant::ZERO, &bad, &a), None, "byte {i}");
                assert_eq!(jar.open(Instant::ZERO, &cookie[..i], &a), None, "cut to {i}");
            }
        }
    }

    #[test]
    fn one_rotation_is_survived_and_two_lifetimes_are_the_end() {
        let (mut jar, mut entropy) = (CookieJar::new(), Seeded::new(3));
        let a = asked("192.0.2.1:500");
        let first = jar.issue(Instant::ZERO, &mut entropy, &a, None);
        let later = Instant::ZERO + COOKIE_SECRET_LIFETIME;
        let second = jar.issue(later, &mut entropy, &a, None);
        assert_ne!(first, second);
        let good = |at, cookie: &[u8]| jar.open(at, cookie, &a).is_some();
        assert!(good(later, &first) && good(later, &second));
        let end = later + COOKIE_SECRET_LIFETIME + Duration::from_nanos(1);
        assert!(!good(end, &first));
        assert!(good(end, &second));
    }

    #[test]
    fn a_jar_that_never_made_a_cookie_accepts_none() {
        let a = asked("192.0.2.1:500");
        assert_eq!(CookieJar::new().open(Instant::ZERO, &[0; COOKIE_LEN], &a), None);
    }

    #[test]
    fn a_solution_counts_once_and_what_is_remembered_is_bounded() {
        let (mut jar, mut entropy) = (CookieJar::new(), Seeded::new(4));
        let cookie_of = |jar: &mut CookieJar, entropy: &mut Seeded, spi_i| {
            let asked = Asked { spi_i, ..asked("192.0.2.1:500") };
            (jar.issue(Instant::ZERO, entropy, &asked, Some(PUZZLE)), asked)
        };
        let (first, a) = cookie_of(&mut jar, &mut entropy, 5);
        let (other, b) = cookie_of(&mut jar, &mut entropy, 6);
        jar.use_up(&first);
        assert!(jar.open(Instant::ZERO, &first, &a).unwrap().used);
        assert!(!jar.open(Instant::ZERO, &other, &b).unwrap().used);
        for spi_i in 0..SOLUTIONS_MAX as u64 {
            let (cookie, _) = cookie_of(&mut jar, &mut entropy, 100 + spi_i);
            jar.use_up(&cookie);
        }
        assert_eq!(jar.open(Instant::ZERO, &first, &a), None, "forgotten with its secret");
    }
}

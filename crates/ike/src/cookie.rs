//! Stateless cookies (RFC 7296, section 2.6): a peer under load proves that it receives at the address it sends from, before
//! anything is kept for it. Owns the secret and its rotation; must never remember a peer.
//!
//! `Cookie = version | HMAC-SHA2-256(secret of that version, SPIi | address | port | Ni)`. The version names one of two secrets:
//! the current one, and its predecessor, so that a cookie lives for one to two lifetimes of a secret. The secret changes only
//! when a cookie is made, so that an endpoint without load has no timer.

use core::net::{IpAddr, SocketAddr};

use dormouse_crypto::suites::Prf;
use dormouse_crypto::{PrfKey, Secret, ct_eq};
use dormouse_sansio::{Entropy, Instant};

use crate::limits::{COOKIE_MAX, COOKIE_SECRET_LIFETIME};

/// Length of our cookies in bytes: version and HMAC.
pub const COOKIE_LEN: usize = 1 + 32;
const _: () = assert!(COOKIE_LEN <= COOKIE_MAX);

struct Generation {
    version: u8,
    born: Instant,
    key: PrfKey,
}

/// Makes and checks cookies.
#[derive(Default)]
pub struct CookieJar {
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
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The cookie that the sender of this first message must return.
    /// "The data associated with this notification MUST be between 1 and 64 octets in length (inclusive)" (RFC 7296 section
    /// 2.6)
    pub fn issue(
        &mut self,
        now: Instant,
        entropy: &mut dyn Entropy,
        spi_i: u64,
        from: SocketAddr,
        ni: &[u8],
    ) -> Vec<u8> {
        let stale = |g: &Generation| now.saturating_since(g.born) >= COOKIE_SECRET_LIFETIME;
        let generation = match self.current.take() {
            Some(current) if !stale(&current) => self.current.insert(current),
            old => {
                let version = old.as_ref().map_or(0, |g| g.version.wrapping_add(1));
                self.previous = old;
                self.current.insert(Generation { version, born: now, key: fresh_key(entropy) })
            }
        };
        let mut cookie = Vec::with_capacity(COOKIE_LEN);
        cookie.push(generation.version);
        cookie.extend_from_slice(generation.mac(spi_i, from, ni).as_bytes());
        cookie
    }

    /// Whether `cookie` was issued to this address for this SPI and nonce, not too long ago. Constant time in the cookie's
    /// secret part.
    #[must_use]
    pub fn verify(&self, now: Instant, cookie: &[u8], spi_i: u64, from: SocketAddr, ni: &[u8]) -> bool {
        let Some((&version, mac)) = cookie.split_first() else { return false };
        [&self.current, &self.previous].into_iter().flatten().any(|generation| {
            generation.version == version
                && now.saturating_since(generation.born) < COOKIE_SECRET_LIFETIME * 2
                && ct_eq(generation.mac(spi_i, from, ni).as_bytes(), mac)
        })
    }
}

fn fresh_key(entropy: &mut dyn Entropy) -> PrfKey {
    let mut secret = Secret::zeroed(32);
    entropy.fill(secret.as_mut_bytes());
    PrfKey::new(Prf::HmacSha256, secret.as_bytes())
}

impl Generation {
    fn mac(&self, spi_i: u64, from: SocketAddr, ni: &[u8]) -> Secret {
        let ip = match from.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        self.key.compute(&[&spi_i.to_be_bytes(), &ip.octets(), &from.port().to_be_bytes(), ni])
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use dormouse_sansio::Seeded;

    use super::*;

    const NI: &[u8] = &[7; 32];

    fn from(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_cookie_is_good_for_its_sender_only() {
        let (mut jar, mut entropy) = (CookieJar::new(), Seeded::new(1));
        let a = from("192.0.2.1:500");
        let cookie = jar.issue(Instant::ZERO, &mut entropy, 5, a, NI);
        assert_eq!(cookie.len(), COOKIE_LEN);
        assert!(jar.verify(Instant::ZERO, &cookie, 5, a, NI));
        assert!(!jar.verify(Instant::ZERO, &cookie, 6, a, NI), "another SPI");
        assert!(!jar.verify(Instant::ZERO, &cookie, 5, from("192.0.2.2:500"), NI), "another address");
        assert!(!jar.verify(Instant::ZERO, &cookie, 5, from("192.0.2.1:501"), NI), "another port");
        assert!(!jar.verify(Instant::ZERO, &cookie, 5, a, &[8; 32]), "another nonce");
    }

    #[test]
    fn every_changed_or_missing_byte_is_refused() {
        let (mut jar, mut entropy) = (CookieJar::new(), Seeded::new(2));
        let a = from("[2001:db8::1]:4500");
        let cookie = jar.issue(Instant::ZERO, &mut entropy, 5, a, NI);
        for i in 0..cookie.len() {
            let mut bad = cookie.clone();
            bad[i] ^= 1;
            assert!(!jar.verify(Instant::ZERO, &bad, 5, a, NI), "byte {i}");
            assert!(!jar.verify(Instant::ZERO, &cookie[..i], 5, a, NI), "cut to {i}");
        }
    }

    #[test]
    fn one_rotation_is_survived_and_two_lifetimes_are_the_end() {
        let (mut jar, mut entropy) = (CookieJar::new(), Seeded::new(3));
        let a = from("192.0.2.1:500");
        let first = jar.issue(Instant::ZERO, &mut entropy, 5, a, NI);
        let later = Instant::ZERO + COOKIE_SECRET_LIFETIME;
        let second = jar.issue(later, &mut entropy, 5, a, NI);
        assert_ne!(first, second);
        assert!(jar.verify(later, &first, 5, a, NI) && jar.verify(later, &second, 5, a, NI));
        let end = later + COOKIE_SECRET_LIFETIME + Duration::from_nanos(1);
        assert!(!jar.verify(end, &first, 5, a, NI));
        assert!(jar.verify(end, &second, 5, a, NI));
    }

    #[test]
    fn a_jar_that_never_made_a_cookie_accepts_none() {
        assert!(!CookieJar::new().verify(Instant::ZERO, &[0; COOKIE_LEN], 5, from("192.0.2.1:500"), NI));
    }
}

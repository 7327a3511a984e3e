//! What the standards say about an algorithm in ESP: the hard filter of the adviser. Owns the table with level and citation,
//! also for what this program cannot configure; must never be softened by a measurement.
//!
//! `dormouse_crypto::suites` has the levels of what can be negotiated; this table covers in addition what was measured for a
//! comparison, forbidden algorithms above all. A test holds the two against each other.

use dormouse_crypto::suites::{Encr, Integ};
use serde::{Serialize, Serializer};

/// A requirement level, the worst first. MUST- stands below MAY: it is required of implementations and on its way out, and
/// the adviser counts it as discouraged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// MUST NOT be implemented.
    MustNot,
    /// SHOULD NOT be implemented.
    ShouldNot,
    /// MUST be implemented still; expected to be retired.
    MustMinus,
    /// MAY, or not mentioned (RFC 8221, section 1.2).
    May,
    /// SHOULD.
    Should,
    /// MUST.
    Must,
}

impl Level {
    /// In the words of the standards.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MustNot => "MUST NOT",
            Self::ShouldNot => "SHOULD NOT",
            Self::MustMinus => "MUST-",
            Self::May => "MAY",
            Self::Should => "SHOULD",
            Self::Must => "MUST",
        }
    }
}

impl Serialize for Level {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}

/// What one standard says about one algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Ruling {
    /// The algorithm, as in a proposal.
    pub algorithm: &'static str,
    /// The level.
    pub level: Level,
    /// Where that is said.
    pub citation: &'static str,
}

const fn says(algorithm: &'static str, level: Level, citation: &'static str) -> Ruling {
    Ruling { algorithm, level, citation }
}

const ENCR: &str = "RFC 8221, section 5";
const INTEG: &str = "RFC 8221, section 6";
const UNMENTIONED: &str = "RFC 8221, section 1.2: not mentioned";
const RETIRED: &str = "RFC 8221, section 5; deprecated by RFC 9395, section 5";

/// Ciphers of ESP.
#[rustfmt::skip]
const CIPHERS: [Ruling; 23] = [
    says("aes128gcm16",      Level::Must,      ENCR),
    says("aes256gcm16",      Level::Must,      ENCR),
    says("aes192gcm16",      Level::May,       ENCR),
    says("aes128",           Level::Must,      ENCR),
    says("aes256",           Level::Must,      ENCR),
    says("aes192",           Level::May,       ENCR),
    says("chacha20poly1305", Level::Should,    ENCR),
    says("aes128ccm8",       Level::Should,    "RFC 8221, section 5 (for IoT)"),
    says("aes256ccm8",       Level::May,       "RFC 8221, section 5: only 128-bit keys are at SHOULD"),
    says("aes128ccm12",      Level::May,       UNMENTIONED),
    says("aes256ccm12",      Level::May,       UNMENTIONED),
    says("aes128ccm16",      Level::May,       UNMENTIONED),
    says("aes256ccm16",      Level::May,       UNMENTIONED),
    says("aes128ctr",        Level::May,       "RFC 8221, section 8: not mentioned, so MAY"),
    says("aes256ctr",        Level::May,       "RFC 8221, section 8: not mentioned, so MAY"),
    says("3des",             Level::ShouldNot, ENCR),
    says("des",              Level::MustNot,   "RFC 8221, section 5; RFC 8247, section 2.1"),
    says("blowfish128",      Level::MustNot,   RETIRED),
    says("cast128",          Level::MustNot,   "deprecated by RFC 9395, section 5"),
    says("idea",             Level::MustNot,   "deprecated by RFC 9395, section 5"),
    says("rc5",              Level::MustNot,   "deprecated by RFC 9395, section 5"),
    says("3idea",            Level::MustNot,   RETIRED),
    // MUST be implemented, for ESP that only authenticates; it hides nothing, and a VPN that hides nothing is not advised.
    says("null",             Level::MustNot,   "does not encrypt (RFC 8221, section 5, keeps it for ESP that only authenticates)"),
];

/// Integrity algorithms of ESP.
#[rustfmt::skip]
const INTEGRITIES: [Ruling; 7] = [
    says("sha256",   Level::Must,      INTEG),
    says("sha512",   Level::Should,    INTEG),
    says("sha384",   Level::May,       UNMENTIONED),
    says("aesxcbc",  Level::May,       "RFC 8221, section 6 (SHOULD for IoT)"),
    says("aescmac",  Level::May,       UNMENTIONED),
    says("sha1",     Level::MustMinus, INTEG),
    says("md5",      Level::MustNot,   "RFC 8221, section 6; RFC 8247, section 2.3"),
];

const UNAUTHENTICATED: Ruling =
    says("no integrity", Level::MustNot, "RFC 8221, section 4: encryption must be authenticated");
const UNPROTECTED: Ruling = says("none", Level::MustNot, "RFC 4303, section 3.2: no protection at all");

/// What the standards say about a suite: the worst of its parts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Judgement {
    /// The worst level.
    pub level: Level,
    /// What is said about each part.
    pub rulings: Vec<Ruling>,
}

/// May it be recommended?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Permission {
    /// Yes.
    Allowed,
    /// Only with `--allow-discouraged`: SHOULD NOT, or MUST-.
    OnRequest,
    /// Never.
    Forbidden,
}

impl Judgement {
    /// Of a suite as a proposal names it. `None` for a suite of which nothing is known: it is not recommended either.
    #[must_use]
    pub fn of(suite: &str) -> Option<Self> {
        if suite == "none" {
            return Some(Self { level: UNPROTECTED.level, rulings: vec![UNPROTECTED] });
        }
        let (cipher, integrity) = parts(suite);
        let find = |table: &[Ruling], name: &str| table.iter().find(|r| r.algorithm == name).copied();
        let mut rulings = vec![find(&CIPHERS, cipher)?];
        match integrity {
            Some(name) => rulings.push(find(&INTEGRITIES, name)?),
            None if is_aead(cipher) => {}
            None => rulings.push(UNAUTHENTICATED),
        }
        let level = rulings.iter().map(|r| r.level).min()?;
        Some(Self { level, rulings })
    }

    /// Whether it may be recommended.
    #[must_use]
    pub const fn permission(&self) -> Permission {
        match self.level {
            Level::MustNot => Permission::Forbidden,
            Level::ShouldNot | Level::MustMinus => Permission::OnRequest,
            Level::May | Level::Should | Level::Must => Permission::Allowed,
        }
    }

    /// The ruling that decides, in words: `md5 is MUST NOT (RFC 8221, section 6; ...)`.
    #[must_use]
    pub fn reason(&self) -> String {
        let worst = self.rulings.iter().min_by_key(|r| r.level);
        worst.map_or_else(String::new, |r| match r.algorithm {
            "null" | "none" | "no integrity" => format!("{}: {}", r.algorithm, r.citation),
            _ => format!("{} is {} ({})", r.algorithm, r.level.name(), r.citation),
        })
    }
}

/// Cipher and integrity algorithm of a suite's name.
#[must_use]
pub fn parts(suite: &str) -> (&str, Option<&str>) {
    suite.split_once('-').map_or((suite, None), |(cipher, integrity)| (cipher, Some(integrity)))
}

/// Whether a cipher authenticates by itself.
fn is_aead(cipher: &str) -> bool {
    cipher.contains("gcm") || cipher.contains("ccm") || cipher == "chacha20poly1305"
}

/// Whether the daemon can be configured with it, and so the adviser may recommend it.
#[must_use]
pub fn configurable(suite: &str) -> bool {
    let (cipher, integrity) = parts(suite);
    match (Encr::by_name(cipher), integrity.map(Integ::by_name)) {
        (Some(encr), None) => encr.is_aead(),
        (Some(encr), Some(Some(_))) => !encr.is_aead(),
        _ => false,
    }
}

/// Bytes that ESP adds to an inner packet of `packet` bytes: SPI, sequence number, IV, padding, trailer and ICV (RFC 4303,
/// section 2); without the outer headers. `None` for a suite that cannot be configured.
#[must_use]
pub fn overhead(suite: &str, packet: u32) -> Option<u32> {
    let (cipher, integrity) = parts(suite);
    let encr = Encr::by_name(cipher)?;
    let icv = integrity.map_or(Some(encr.icv_len()), |name| Integ::by_name(name).map(Integ::icv_len))?;
    let align = u32::try_from(encr.block_len().max(4)).ok()?;
    let padded = (packet.checked_add(2)?).next_multiple_of(align);
    Some(8 + u32::try_from(encr.iv_len() + icv).ok()? + padded - packet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_negotiated_is_ruled_and_not_forbidden() {
        for encr in Encr::ALL {
            let ruling = CIPHERS.iter().find(|r| r.algorithm == encr.name()).expect("listed");
            assert_ne!(ruling.level, Level::MustNot, "{encr}");
            assert_eq!(is_aead(encr.name()), encr.is_aead(), "{encr}");
        }
        for integ in Integ::ALL {
            let ruling = INTEGRITIES.iter().find(|r| r.algorithm == integ.name()).expect("listed");
            assert_ne!(ruling.level, Level::MustNot, "{integ}");
        }
    }

    /// What is recommended is what the configuration takes, and its figures are those of the very code that the daemon runs.
    #[test]
    fn what_can_be_configured_is_measured_as_it_is_used() {
        let all = dormouse_crypto::measure::Suite::all();
        for suite in &all {
            assert_eq!(configurable(&suite.to_string()), suite.negotiable().is_some(), "{suite}");
            assert!(Judgement::of(&suite.to_string()).is_some(), "{suite}");
        }
        for encr in Encr::ALL {
            assert!(all.iter().any(|suite| suite.negotiable().is_some_and(|(e, _)| e == encr)), "{encr}");
        }
        assert!(configurable("aes256ccm12") && overhead("aes256ccm12", 40) == Some(8 + 8 + 12 + 4));
    }

    #[test]
    fn the_worst_part_decides() {
        let of = |suite: &str| Judgement::of(suite).map(|j| (j.level, j.permission()));
        use Permission::{Allowed, Forbidden, OnRequest};
        for (suite, expected) in [
            ("aes128gcm16", Some((Level::Must, Allowed))),
            ("chacha20poly1305", Some((Level::Should, Allowed))),
            ("aes256-sha512", Some((Level::Should, Allowed))),
            ("aes128ctr-sha256", Some((Level::May, Allowed))),
            ("aes128-sha1", Some((Level::MustMinus, OnRequest))),
            ("3des-sha1", Some((Level::ShouldNot, OnRequest))),
            ("3des-md5", Some((Level::MustNot, Forbidden))),
            ("des-sha1", Some((Level::MustNot, Forbidden))),
            ("aes128-md5", Some((Level::MustNot, Forbidden))),
            ("null-sha256", Some((Level::MustNot, Forbidden))),
            ("aes128", Some((Level::MustNot, Forbidden))),
            ("none", Some((Level::MustNot, Forbidden))),
            ("rot13-sha1", None),
            ("aes128gcm16-rot13", None),
        ] {
            assert_eq!(of(suite), expected, "{suite}");
        }
        assert!(Judgement::of("des-md5").expect("known").reason().contains("RFC 8221"));
    }

    #[test]
    fn every_algorithm_is_ruled_once_and_with_a_citation() {
        for table in [&CIPHERS[..], &INTEGRITIES[..]] {
            for (n, ruling) in table.iter().enumerate() {
                assert!(ruling.citation.contains("RFC "), "{ruling:?}");
                assert!(table.iter().skip(n + 1).all(|r| r.algorithm != ruling.algorithm), "{ruling:?}");
            }
        }
    }

    #[test]
    fn overheads_follow_the_formats() {
        // 40 bytes: SPI and sequence number 8, IV 8, ICV 16, and 42 padded to 44.
        assert_eq!(overhead("aes128gcm16", 40), Some(8 + 8 + 16 + 4));
        // CBC: IV 16, and 42 padded to 48; SHA1-96 12.
        assert_eq!(overhead("aes128-sha1", 40), Some(8 + 16 + 12 + 8));
        assert_eq!(overhead("aes128ctr-sha256", 42), Some(8 + 8 + 16 + 2));
        assert_eq!(overhead("3des-sha1", 40), None);
    }
}

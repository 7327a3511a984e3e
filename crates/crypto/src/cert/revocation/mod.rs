//! Whether certificates are revoked, by CRLs (RFC 5280, section 5) and OCSP answers (RFC 6960). Owns their verification and what is
//! believed of a certificate at a time; must never fetch anything or read a clock.
//!
//! A list or an answer is kept only when its signature verifies under the issuer's key, by the rules for signatures in chains. That a
//! certificate is revoked is believed from then on, because it does not become good again (but for a hold, which counts while the
//! list is fresh); that it is good is believed only as long as the list or answer is fresh, and covers the certificate.

mod crl;
mod der;
mod ocsp;

pub use crl::Crl;
pub(super) use crl::point;
pub use ocsp::{NONCE_LEN, OcspAnswer, OcspRequest};

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;

use dormouse_sansio::UnixTime;

use super::{Certificate, Issued, utc};

/// Clocks of authorities may be ahead of ours by this much.
const SKEW: Duration = Duration::from_secs(300);
/// Lists that are kept: one for each issuer and part of its certificates.
const MAX_LISTS: usize = 256;
/// OCSP answers that are kept: one for each certificate.
const MAX_ANSWERS: usize = 65_536;

/// A CRL or OCSP answer that is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RevocationError {
    /// Not what it should be.
    #[error("malformed {what}: {why}")]
    Malformed {
        /// CRL or OCSP answer.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// Of a kind that cannot be used to find a status.
    #[error("{0}")]
    Unsupported(String),
    /// It speaks for another issuer.
    #[error("issued by \"{found}\", not by \"{wanted}\"")]
    Issuer {
        /// Who issued it.
        found: String,
        /// Whose it should be.
        wanted: String,
    },
    /// The signature does not verify, or is of an algorithm that is not accepted.
    #[error("the signature is not that of \"{0}\", or of an algorithm that is not accepted")]
    Signature(String),
    /// Its signer may not sign it.
    #[error("\"{0}\" may not sign it")]
    MayNotSign(String),
    /// From the future.
    #[error("it is of {}, and it is {} here", utc(*this_update), utc(*now))]
    NotYetValid {
        /// When it was made.
        this_update: UnixTime,
        /// The time of the check.
        now: UnixTime,
    },
    /// It is out of date on arrival.
    #[error("it was good until {}, and it is {} here", utc(*next_update), utc(*now))]
    Expired {
        /// When a newer one was to be there.
        next_update: UnixTime,
        /// The time of the check.
        now: UnixTime,
    },
    /// An OCSP answer without the status that was asked for.
    #[error("the responder says: {0}")]
    Responder(&'static str),
    /// An OCSP answer to another question.
    #[error("the answer is to another question: {0}")]
    OtherQuestion(&'static str),
}

/// What is known of certificates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Not revoked, by fresh lists or answers for each of them.
    Good,
    /// One is revoked.
    Revoked(Reason),
    /// Of one, nothing fresh is known.
    Unknown,
}

/// Why a certificate was revoked: a CRLReason (RFC 5280, section 5.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reason(pub u8);

impl Reason {
    const HOLD: Self = Self(6);
    const REMOVED: Self = Self(8);
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            1 => "its key was compromised",
            2 => "its CA's key was compromised",
            3 => "its owner's affiliation changed",
            4 => "it was superseded",
            5 => "it is no longer needed",
            6 => "it is on hold",
            9 => "its owner's privilege was withdrawn",
            10 => "its attribute authority was compromised",
            _ => "no reason is given",
        })
    }
}

/// When a list or answer was made, and until when it is the last word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Times {
    this_update: UnixTime,
    next_update: Option<UnixTime>,
}

impl Times {
    fn check(self, now: UnixTime) -> Result<(), RevocationError> {
        if self.this_update > now + SKEW {
            return Err(RevocationError::NotYetValid { this_update: self.this_update, now });
        }
        match self.next_update {
            Some(next_update) if next_update < now => Err(RevocationError::Expired { next_update, now }),
            _ => Ok(()),
        }
    }

    fn is_fresh(self, now: UnixTime) -> bool {
        self.next_update.is_some() && self.check(now).is_ok()
    }
}

/// Without leading zeros, as numbers are compared.
fn number(serial: &[u8]) -> &[u8] {
    let zeros = serial.iter().take_while(|b| **b == 0).count();
    serial.get(zeros..).unwrap_or_default()
}

/// Everything that is known about revoked certificates. Bounded: what is stale makes room first.
#[derive(Clone, Default, Debug)]
pub struct Revocations {
    /// By the issuer's key and what part of its certificates the list is about.
    lists: BTreeMap<([u8; 32], Vec<u8>), Crl>,
    answers: BTreeMap<Issued, OcspAnswer>,
    points: BTreeMap<Issued, Vec<String>>,
}

impl Revocations {
    /// Keeps a verified list. False if a later one of the same kind is there, or if there is no room.
    pub fn add_list(&mut self, list: Crl, at: UnixTime) -> bool {
        let key = (list.issuer_key, list.scope.clone());
        if self.lists.get(&key).is_some_and(|old| old.times.this_update >= list.times.this_update) {
            return false;
        }
        if self.lists.len() >= MAX_LISTS {
            self.lists.retain(|_, old| old.times.is_fresh(at));
        }
        let room = self.lists.len() < MAX_LISTS || self.lists.contains_key(&key);
        if room {
            self.lists.insert(key, list);
        }
        room
    }

    /// Keeps a verified answer. False if a later one is there, or if there is no room.
    pub fn add_answer(&mut self, answer: OcspAnswer, at: UnixTime) -> bool {
        if self.answers.get(&answer.about).is_some_and(|old| old.times.this_update > answer.times.this_update)
        {
            return false;
        }
        if self.answers.len() >= MAX_ANSWERS {
            self.answers.retain(|_, old| old.times.is_fresh(at));
        }
        let room = self.answers.len() < MAX_ANSWERS || self.answers.contains_key(&answer.about);
        if room {
            self.answers.insert(answer.about.clone(), answer);
        }
        room
    }

    /// Takes note of the distribution points of a certificate, where one of its issuer's lists is about a part of the issuer's
    /// certificates: of one that is only known by its name (in a ticket), such a list shows that it is revoked, not that it is good.
    pub fn learn(&mut self, issued: &Issued, certificate: &Certificate) {
        if self.lists_of(issued).any(Crl::is_by_points)
            && !certificate.crl_urls().is_empty()
            && (self.points.len() < MAX_ANSWERS || self.points.contains_key(issued))
        {
            self.points.insert(issued.clone(), certificate.crl_urls().to_vec());
        }
    }

    fn lists_of(&self, issued: &Issued) -> impl Iterator<Item = &Crl> {
        let key = issued.issuer_key;
        let lists = self.lists.range((key, Vec::new())..).take_while(move |((k, _), _)| *k == key);
        lists.map(|(_, list)| list)
    }

    /// The status of a chain, the peer's own certificate first, at the time `at`.
    #[must_use]
    pub fn status(&self, chain: &[Issued], at: UnixTime) -> Status {
        let mut status = Status::Good;
        for (depth, issued) in chain.iter().enumerate() {
            match self.status_of(issued, depth > 0, at) {
                Status::Revoked(reason) => return Status::Revoked(reason),
                Status::Unknown => status = Status::Unknown,
                Status::Good => {}
            }
        }
        status
    }

    /// The status of one certificate; `ca`: it is an authority's.
    #[must_use]
    pub fn status_of(&self, issued: &Issued, ca: bool, at: UnixTime) -> Status {
        let points = self.points.get(issued).map_or(&[][..], Vec::as_slice);
        let mut good = false;
        let mut judge = |found: Option<Reason>, times: Times, covers: bool| {
            let fresh = times.is_fresh(at);
            good |= found.is_none() && fresh && covers;
            found.filter(|reason| fresh || *reason != Reason::HOLD)
        };
        for list in self.lists_of(issued) {
            if let Some(reason) = judge(list.find(&issued.serial), list.times, list.covers(ca, points)) {
                return Status::Revoked(reason);
            }
        }
        if let Some(answer) = self.answers.get(issued)
            && let Some(reason) = judge(answer.revoked, answer.times, true)
        {
            return Status::Revoked(reason);
        }
        if good { Status::Good } else { Status::Unknown }
    }
}

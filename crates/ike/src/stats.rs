//! Counters, for each SA and for the whole endpoint. Owns numbers that only grow; must never influence the protocol.

use std::collections::BTreeMap;

use crate::error::Discard;

/// What an exchange was for, as counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// IKE_SA_INIT, each with its COOKIE and INVALID_KE_PAYLOAD repetitions.
    Init,
    /// IKE_SESSION_RESUME.
    Resume,
    /// IKE_INTERMEDIATE, each.
    Intermediate,
    /// IKE_AUTH.
    Auth,
    /// CREATE_CHILD_SA for an additional CHILD SA.
    CreateChild,
    /// CREATE_CHILD_SA that rekeys a CHILD SA.
    RekeyChild,
    /// CREATE_CHILD_SA that rekeys the IKE SA.
    RekeyIke,
    /// IKE_FOLLOWUP_KE, each.
    FollowUp,
    /// INFORMATIONAL with Delete payloads.
    Delete,
    /// Empty INFORMATIONAL: liveness.
    Liveness,
    /// INFORMATIONAL with UPDATE_SA_ADDRESSES or address lists.
    Mobike,
    /// INFORMATIONAL that announces a sleep (`docs/wire/dormancy.md`).
    Sleep,
    /// INFORMATIONAL with keys for a router, or a request for them (`docs/wire/mlike.md`).
    Keys,
    /// Any other INFORMATIONAL.
    Informational,
}

/// Counters of one SA or of the endpoint. The endpoint's include everything that no SA is charged for.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Stats {
    /// Datagrams received for IKE, repeated and discarded ones included.
    pub datagrams_in: u64,
    /// Their bytes, without IP and UDP headers.
    pub bytes_in: u64,
    /// IKE datagrams sent, retransmissions included.
    pub datagrams_out: u64,
    /// Their bytes, without IP and UDP headers.
    pub bytes_out: u64,
    /// NAT keepalives sent (one byte each, not in `datagrams_out`).
    pub keepalives: u64,
    /// Datagrams among `datagrams_out` that repeat an earlier one.
    pub retransmissions: u64,
    /// Answers received to our own requests: network round trips spent.
    pub round_trips: u64,
    /// Exchanges that we began, by kind.
    pub begun: BTreeMap<Kind, u64>,
    /// Exchanges that the peer began and we answered, by kind.
    pub answered: BTreeMap<Kind, u64>,
    /// Half-open SAs that gave way to others, or ended early because there were many.
    pub half_open_displaced: u64,
    /// Puzzles that were given to callers (RFC 8019).
    pub puzzles_given: u64,
    /// Solutions of callers that counted.
    pub puzzles_solved: u64,
    /// Tickets that were given to peers (RFC 5723).
    pub tickets_issued: u64,
    /// Datagrams dropped, by reason.
    pub discards: BTreeMap<&'static str, u64>,
}

impl Stats {
    /// First messages that were dropped because there were too many half-open SAs.
    #[must_use]
    pub fn newcomers_refused(&self) -> u64 {
        let of = |reason: Discard| self.discards.get(reason.name()).copied().unwrap_or(0);
        of(Discard::TooManyHalfOpen) + of(Discard::Unsolved)
    }

    /// Cookies that were sent to callers, with a puzzle or without.
    #[must_use]
    pub fn cookies_sent(&self) -> u64 {
        let of = |reason: Discard| self.discards.get(reason.name()).copied().unwrap_or(0);
        of(Discard::NoCookie) + of(Discard::NoPuzzle)
    }

    pub(crate) fn received(&mut self, bytes: usize) {
        self.datagrams_in += 1;
        self.bytes_in += bytes as u64;
    }

    pub(crate) fn sent(&mut self, bytes: usize) {
        self.datagrams_out += 1;
        self.bytes_out += bytes as u64;
    }

    pub(crate) fn begin(&mut self, kind: Kind) {
        *self.begun.entry(kind).or_default() += 1;
    }

    pub(crate) fn answer(&mut self, kind: Kind) {
        *self.answered.entry(kind).or_default() += 1;
    }

    pub(crate) fn discard(&mut self, reason: &'static str) {
        *self.discards.entry(reason).or_default() += 1;
    }
}

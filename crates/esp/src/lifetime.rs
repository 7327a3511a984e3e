//! Lifetime by volume (RFC 4301 section 4.4.2.1): what an SA may carry, and what it has carried; and what several SAs have carried together.
//! Holds no key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How much one direction of an SA may carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Volume {
    /// Packets.
    pub packets: u64,
    /// Bytes of what is protected: inner packets in tunnel mode, without padding.
    pub bytes: u64,
}

impl Volume {
    /// No limit.
    pub const UNLIMITED: Self = Self { packets: u64::MAX, bytes: u64::MAX };
}

/// Lifetime by volume (RFC 4301 section 4.4.2.1). Lifetime by time belongs to IKE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Where [`Life::Soft`] is reported, so that a replacement can be negotiated.
    pub soft: Volume,
    /// Where the SA stops.
    pub hard: Volume,
}

impl Default for Limits {
    fn default() -> Self {
        Self { soft: Volume::UNLIMITED, hard: Volume::UNLIMITED }
    }
}

/// How far an SA has used its lifetime up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Life {
    /// Below the soft limit.
    Fresh,
    /// Beyond the soft limit: rekey.
    Soft,
    /// At the hard limit: nothing passes any more.
    Hard,
}

/// What went through one direction of an SA.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Packets, dummies included.
    pub packets: u64,
    /// Bytes of what was protected, without padding.
    pub bytes: u64,
}

impl Counters {
    /// Both together.
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets.saturating_add(other.packets),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    /// What came to these since they were `before`.
    pub(crate) const fn since(self, before: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(before.packets),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }

    pub(crate) fn life(&self, limits: &Limits) -> Life {
        let reached = |v: &Volume| self.packets >= v.packets || self.bytes >= v.bytes;
        if reached(&limits.hard) {
            Life::Hard
        } else if reached(&limits.soft) {
            Life::Soft
        } else {
            Life::Fresh
        }
    }
}

/// What one direction of several SAs has carried, also of SAs that are gone: clones are one sum. It is kept as packets pass, so that to read it costs
/// the same for one SA as for a hundred thousand. One thread adds to it: that of the node whose SAs they are.
#[derive(Clone, Debug, Default)]
pub struct Total(Arc<(AtomicU64, AtomicU64)>);

impl Total {
    /// The sum.
    #[must_use]
    pub fn get(&self) -> Counters {
        Counters { packets: self.0.0.load(Ordering::Relaxed), bytes: self.0.1.load(Ordering::Relaxed) }
    }

    fn add(&self, more: Counters) {
        let sum = self.get().plus(more);
        // No addition in one step: there is one writer, and this costs no more than an ordinary number.
        self.0.0.store(sum.packets, Ordering::Relaxed);
        self.0.1.store(sum.bytes, Ordering::Relaxed);
    }
}

/// What another engine has done with a loan so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// What it has sent.
    pub sent: Counters,
    /// What it has accepted.
    pub received: Counters,
}

/// What one direction of an SA has carried, and the sum that it is a part of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carried {
    own: Counters,
    total: Option<Total>,
}

impl Carried {
    pub(crate) const fn counters(&self) -> Counters {
        self.own
    }

    /// One more packet.
    pub(crate) fn count(&mut self, bytes: u64) {
        self.add(Counters { packets: 1, bytes });
    }

    /// More packets.
    pub(crate) fn add(&mut self, counters: Counters) {
        self.own = self.own.plus(counters);
        if let Some(total) = &self.total {
            total.add(counters);
        }
    }

    /// It is a part of this sum from now on, with what it has carried already.
    pub(crate) fn join(&mut self, total: &Total) {
        total.add(self.own);
        self.total = Some(total.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_has_each_packet_once_and_keeps_those_of_sas_that_are_gone() {
        let (total, mut first, mut second) = (Total::default(), Carried::default(), Carried::default());
        first.count(100);
        first.join(&total);
        second.join(&total);
        second.count(20);
        first.count(3);
        drop(second);
        // Another engine has carried some.
        first.add(Counters { packets: 10, bytes: 1_000 });
        assert_eq!(first.counters(), Counters { packets: 12, bytes: 1_103 });
        assert_eq!(total.get(), Counters { packets: 13, bytes: 1_123 });
    }
}

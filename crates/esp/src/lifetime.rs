//! Lifetime by volume (RFC 4301 section 4.4.2.1): what an SA may carry, and what it has carried. Holds no key.

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

//! One device: who it is, whether it sleeps, what is known of it. Owns no packet; those are in [`crate::buffer::Room`].

use core::net::IpAddr;

use dormouse_sansio::Instant;

use crate::counters::Counters;
use crate::knowledge::Knowledge;
use crate::limits::{Bucket, Limits};

/// Names a device to its stand-in. The driver chooses it, and keeps it when the device's SA changes or goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceId(pub u64);

/// What a device was granted for its sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Service {
    /// It is answered for.
    pub answer: bool,
    /// Packets are kept for it.
    pub keep: bool,
}

impl Service {
    /// Both.
    pub const FULL: Self = Self { answer: true, keep: true };
}

/// A sleep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sleep {
    pub(crate) since: Instant,
    pub(crate) until: Instant,
    pub(crate) service: Service,
}

#[derive(Debug)]
pub(crate) struct Device {
    /// Its own addresses: only for these is anything answered.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) sleep: Option<Sleep>,
    pub(crate) knowledge: Knowledge,
    pub(crate) counters: Counters,
    pub(crate) answers: Bucket,
    pub(crate) tcp_answers: Bucket,
}

impl Device {
    pub(crate) fn new(now: Instant, limits: &Limits) -> Self {
        Self {
            addresses: Vec::new(),
            sleep: None,
            knowledge: Knowledge::default(),
            counters: Counters::default(),
            answers: Bucket::full(now, limits.answers),
            tcp_answers: Bucket::full(now, limits.tcp_answers),
        }
    }
}

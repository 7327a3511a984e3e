//! The contexts in which the policy learns separately: what it knows when an idle period begins. Owns the features; must
//! never look at the present period's length.

use super::Tuning;
use super::recurrence::{Expected, Recurrences};
use crate::packet::PacketInfo;

/// Number of contexts that are consulted, the general one included.
pub(super) const CONTEXTS: usize = 13;

/// The context that each one refines: where it has little experience, that of the parent counts.
pub(super) const PARENT: [usize; CONTEXTS] = [0, 0, 1, 1, 3, 0, 5, 6, 2, 0, 9, 9, 1];

/// What is remembered of the traffic.
#[derive(Clone, Debug, Default)]
pub(super) struct Features {
    /// Time since the client was first seen, in seconds (always positive once there was a packet).
    pub(super) now: f64,
    pub(super) last_class: u16,
    /// Signature of the packets since the last idle period.
    pub(super) burst: u64,
    pub(super) burst_packets: u8,
    /// The last three idle periods, latest first, on a logarithmic scale.
    pub(super) idle: [u8; 3],
    pub(super) hour: u8,
    /// When the last packet came that is not one of the recurring ones.
    pub(super) last_active: f64,
    pub(super) recurrences: Recurrences,
}

/// A logarithmic scale: `x` in steps of a factor of `e^(1/steps)` from a quarter of a second on.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=255 before")]
pub(super) fn scale(x: f64, steps: f64) -> u8 {
    ((x.max(0.25) / 0.25).ln() * steps).min(255.0) as u8
}

fn join(a: u64, b: u64) -> u64 {
    (a ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15)).rotate_left(23).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

impl Features {
    /// Of a client that was not seen yet.
    pub(super) fn new(tuning: &Tuning) -> Self {
        Self { recurrences: Recurrences::new(tuning), ..Self::default() }
    }

    /// A packet, `now` seconds after the client was first seen.
    pub(super) fn packet(&mut self, now: f64, packet: &PacketInfo, tuning: &Tuning) {
        self.now = now;
        self.last_class = packet.class();
        if self.burst_packets < tuning.burst {
            self.burst_packets += 1;
            self.burst = join(self.burst, u64::from(self.last_class));
        }
        // 24: unknown, so that clients without a clock learn one hour and not a wrong one.
        self.hour = packet.time_of_day.and_then(|s| u8::try_from(s / 3600).ok()).unwrap_or(24);
        if !self.recurrences.observe(self.last_class, now, tuning) {
            self.last_active = now;
        }
    }

    /// An idle period of so many seconds has ended.
    pub(super) fn idle(&mut self, seconds: f64, tuning: &Tuning) {
        self.idle = [scale(seconds, tuning.idle_steps), self.idle[0], self.idle[1]];
        (self.burst, self.burst_packets) = (0, 0);
    }

    /// The key of each context, now.
    pub(super) fn keys(&self, tuning: &Tuning) -> [u64; CONTEXTS] {
        let class = u64::from(self.last_class);
        let [a, b, c] = self.idle.map(u64::from);
        let (ab, due) = (join(a, b), due_key(self.recurrences.next(self.now, tuning), tuning));
        let keys = [
            0,
            class,
            join(class, a),
            self.burst,
            join(self.burst, a),
            a,
            ab,
            join(ab, c),
            join(class, ab),
            due,
            join(due, class),
            join(due, u64::from(scale(self.now - self.last_active, tuning.since_steps))),
            join(u64::from(self.hour), class),
        ];
        let mut i = 0;
        keys.map(|key| {
            i += 1;
            join(key, i)
        })
    }
}

/// What is due next, on its scale.
fn due_key(next: Option<Expected>, tuning: &Tuning) -> u64 {
    next.map_or(u64::MAX, |e| u64::from(scale(f64::from(e.within) + 0.25, tuning.due_steps)))
}

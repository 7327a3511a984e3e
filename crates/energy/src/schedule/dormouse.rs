//! Ours: a learned time-out with a guarantee. (First form: follow the leader over a grid of time-outs.)

use core::time::Duration;

use super::{Decision, Scheduler, StateError};
use crate::packet::PacketInfo;
use dormouse_sansio::Instant;

/// Time-outs to choose from: 0.25 s, each further one a quarter longer, the last one never.
const GRID: usize = 32;

/// The default policy.
#[derive(Clone, Debug)]
pub struct Dormouse {
    break_even: f64,
    cost: [f64; GRID],
}

fn time_out(i: usize) -> f64 {
    if i + 1 == GRID { f64::INFINITY } else { 0.25 * 1.25f64.powi(i32::try_from(i).unwrap_or(0)) }
}

impl Dormouse {
    /// A fresh client with a break-even time in seconds.
    #[must_use]
    pub fn new(break_even: f64) -> Self {
        Self { break_even, cost: [0.0; GRID] }
    }
}

impl Scheduler for Dormouse {
    fn name(&self) -> &'static str {
        "dormouse"
    }

    fn observe(&mut self, _at: Instant, _packet: &PacketInfo) {}

    fn decide(&mut self) -> Decision {
        let best = (0..GRID).min_by(|a, b| self.cost[*a].total_cmp(&self.cost[*b])).unwrap_or(0);
        Decision::after_seconds(time_out(best))
    }

    fn learn(&mut self, idle: Duration) {
        let idle = idle.as_secs_f64();
        for (i, cost) in self.cost.iter_mut().enumerate() {
            let t = time_out(i);
            *cost += if idle > t { t + self.break_even } else { idle };
        }
    }

    fn set_break_even(&mut self, seconds: f64) {
        self.break_even = seconds;
    }

    fn state_bytes(&self) -> usize {
        size_of::<Self>()
    }

    fn save(&self, out: &mut Vec<u8>) {
        self.cost.iter().for_each(|c| out.extend(c.to_le_bytes()));
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), StateError> {
        if state.len() != 8 * GRID {
            return Err(StateError::Length { expected: 8 * GRID, found: state.len() });
        }
        for (cost, bytes) in self.cost.iter_mut().zip(state.chunks_exact(8)) {
            *cost = f64::from_le_bytes(bytes.try_into().unwrap_or_default());
        }
        Ok(())
    }
}

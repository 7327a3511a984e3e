//! What the benchmarks measure with.

#![expect(clippy::disallowed_methods, reason = "a benchmark owns its clock")]

use std::time::Instant;

/// Processor time of this process and its finished children, and the clock on the wall.
pub(crate) struct Clocks {
    cpu: f64,
    wall: Instant,
}

#[derive(Clone, Copy)]
pub(crate) struct Took {
    pub(crate) cpu: f64,
    pub(crate) wall: f64,
}

impl Clocks {
    pub(crate) fn now() -> Self {
        Self { cpu: processor_seconds(), wall: Instant::now() }
    }

    pub(crate) fn elapsed(&self) -> Took {
        Took { cpu: processor_seconds() - self.cpu, wall: self.wall.elapsed().as_secs_f64() }
    }
}

/// utime, stime, cutime and cstime of /proc/self/stat, in ticks of a hundredth of a second.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind = stat.rsplit(") ").next().unwrap_or_default();
    behind.split(' ').skip(11).take(4).filter_map(|t| t.parse::<f64>().ok()).sum::<f64>() / 100.0
}

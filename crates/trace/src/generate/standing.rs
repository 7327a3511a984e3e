//! The hidden state of a synthetic client, on which the law of its next packet depends and which its packets do not show. The bound on what a policy can
//! save is computed from it; it must never hold what is drawn later.

use super::{TIMERS, User};

/// How a client stands at its last packet: all that the law of its next one depends on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Standing {
    /// By how much longer than others it waits between two flows.
    pub pace: f64,
    /// Seconds between two arrivals that it did not ask for, on average.
    pub noise: f64,
    /// Seconds since the last flow began, or the session before the first; `None` if no other follows in this session.
    pub since_flow: Option<f64>,
    /// Seconds until the next packet of what has begun (flows, and the answers to timers): of any, and of one that it sends.
    pub begun: [Option<f64>; 2],
    /// The timers that it has.
    pub timers: [Option<Timer>; 4],
    /// Seconds for which it is present; timers and unasked arrivals end then. Below 0: it has left.
    pub left: f64,
    /// Seconds until its next session begins; `None` if that was the last.
    pub next: Option<f64>,
}

/// A timer of a client.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Timer {
    /// Its period in seconds.
    pub period: f64,
    /// Seconds since it fired last; before the first time, since the session began.
    pub since: f64,
    /// Whether it has not fired in this session: it does then for the first time at any moment of its period.
    pub first: bool,
}

impl Standing {
    pub(super) fn of(user: &User) -> Option<Self> {
        let (last, now) = (user.last?, user.now);
        let timer = |((period, ..), (on, fired)): (&(f64, u16, u16), (&bool, &Option<f64>))| {
            on.then(|| Timer { period: *period, since: now - fired.unwrap_or(0.0), first: fired.is_none() })
        };
        let mut timers = TIMERS.iter().zip(user.timers.iter().zip(&user.fired)).map(timer);
        let begun = |sent: bool| {
            let begun = user.packets.iter().filter(|p| p.began <= now && (!sent || p.info.is_outgoing()));
            Some((begun.map(|p| p.at).next()? - last) as f64 / 1e9)
        };
        let left = user.stay - now;
        // One that would begin before this one is over begins with its end.
        let next = user.starts.back().map(|start| (start.saturating_sub(last) as f64 / 1e9).max(left));
        Some(Self {
            pace: user.pace,
            noise: user.noise,
            since_flow: (!user.flows.is_empty()).then_some(now - user.began),
            begun: [begun(false), begun(true)],
            timers: std::array::from_fn(|_| timers.next().flatten()),
            left,
            next,
        })
    }
}

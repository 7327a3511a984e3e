//! What the tests about sleeping radios share.

mod number;

pub(crate) use number::number;

use dormouse_energy::model::Resumption;
use dormouse_energy::profile::Profile;
use dormouse_energy::schedule::Policy;
use dormouse_node::sleeper::{Mode, Settings};
use std::time::Duration;

/// A laptop with the figures of paper 000.
pub(crate) fn laptop(mode: Mode, policy: Policy, wake_every: Option<Duration>) -> Settings {
    Settings {
        mode,
        policy,
        min_idle: Duration::from_millis(250),
        wake_every,
        renew: false,
        latency: Duration::from_secs(3),
        lost_per_hour: 20,
        model: Profile::shipped("laptop-000").and_then(|p| p.model().ok()).expect("it ships"),
        profile: "laptop-000".into(),
        resumption: Resumption::HeldSa,
    }
}

/// The whims of device number `n`: which policy, which mode, and whether it looks by the clock.
pub(crate) fn whims(n: u64) -> Settings {
    let policy = if n % 4 == 3 { Policy::PAPER } else { Policy::Dormouse };
    let mode = if n % 3 == 2 { Mode::Balanced } else { Mode::Energy };
    laptop(mode, policy, (n % 5 == 4).then(|| Duration::from_secs(900)))
}

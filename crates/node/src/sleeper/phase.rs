//! What the sleeper is doing, with all that it must know of it: [`super::State`] is what others see.

use super::clock::PolicyTime;
use super::{Cause, Reason};
use dormouse_wire::ip::Flow;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    Awake,
    Preparing {
        until: PolicyTime,
        reason: Reason,
    },
    SwitchingOff {
        until: PolicyTime,
        then: Then,
    },
    /// `off`: the radio was ordered off, and is not known to be on.
    Asleep {
        since: PolicyTime,
        reason: Reason,
        off: bool,
    },
    Waking {
        since: PolicyTime,
        cause: Cause,
        step: Step,
    },
}

/// What follows once the radio is off.
#[derive(Clone, Copy, Debug)]
pub(super) enum Then {
    Sleep(Reason),
    Wake(Cause, Option<Flow>),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// The radio is being switched on; after another failure it gets a pause of `pause`.
    Radio { until: PolicyTime, pause: Duration },
    /// It failed, and is tried again at `at`.
    Pause { at: PolicyTime, next: Duration },
    /// The session is on its way.
    Session { until: PolicyTime },
}

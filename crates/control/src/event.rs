//! Events: what `watch` streams.

use crate::{ConnectionState, Error, SleepMode, WakeRung};
use serde::{Deserialize, Serialize};

/// Something that happened.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// When, in seconds since 1970-01-01 UTC.
    pub at_unix: f64,
    /// The connection that it concerns; absent for what concerns the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
    /// The event.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum EventKind {
    /// The state as the watch begins.
    Snapshot {
        /// It.
        state: ConnectionState,
    },
    /// The session is up.
    Up {
        /// How it came up.
        rung: WakeRung,
        /// Milliseconds from the wake, or the first attempt.
        took_ms: u64,
    },
    /// A rung of the ladder failed; the next one is tried, or after the last a pause is made.
    RungFailed {
        /// The rung that succeeded.
        rung: WakeRung,
        /// The reason.
        error: Error,
    },
    /// The session is down.
    Down {
        /// The reason.
        why: String,
    },
    /// The device was put to sleep: `dormouse suspend`, or the machine.
    Suspended,
    /// It is back: `dormouse resume`, or the machine.
    Resumed,
    /// The radio was switched off.
    Asleep {
        /// After so long a silence.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        time_out_seconds: Option<f64>,
        /// Who had the last word: see [`crate::DecisionStatus::by`].
        by: String,
        /// What is expected to be saved by it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        saving_joules: Option<f64>,
    },
    /// The radio is being switched on.
    Waking {
        /// Why: see [`crate::WakeStatus::cause`].
        cause: String,
        /// The flow that caused it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        flow: Option<String>,
        /// Slept before it.
        slept_seconds: f64,
    },
    /// Packets flow again.
    Awake {
        /// Why it woke.
        cause: String,
        /// Milliseconds since it began to wake; absent if the session did not come back in time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        took_ms: Option<u64>,
    },
    /// A packet called a sleep off before the radio was off.
    SleepCalledOff,
    /// The mode was changed.
    Mode {
        /// To this.
        mode: SleepMode,
    },
    /// The way to the gateway changed; absent without a network.
    Network {
        /// Our outer address.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        local: Option<String>,
        /// The gateway's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remote: Option<String>,
    },
    /// Gateway: a client came.
    PeerUp {
        /// The identity of the peer.
        peer: String,
        /// By ticket?
        resumed: bool,
    },
    /// Gateway: a client went.
    PeerDown {
        /// The identity of the peer.
        peer: String,
        /// The reason.
        why: String,
    },
    /// HIP: a peer that was called was not reached.
    PeerFailed {
        /// The identity of the peer.
        peer: String,
        /// Why.
        error: crate::Error,
    },
    /// Gateway: an initiator was refused.
    PeerRefused {
        /// From which address.
        from: String,
        /// Who it said it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        claimed: Option<String>,
        /// The reason.
        why: String,
    },
    /// Something that needs attention, without ending anything: an offload that switched itself off, a full disk.
    Warning {
        /// The text.
        message: String,
    },
    /// The daemon stops.
    Stopping,
    /// An event that this version does not know.
    #[serde(other)]
    Unknown,
}

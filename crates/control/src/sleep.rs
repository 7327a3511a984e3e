//! The radio's sleep as `status` and `watch` report it. Times are in seconds; a missing field is not known.

use crate::rung::WakeRung;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How much sleep is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SleepMode {
    /// The policy decides.
    Energy,
    /// The policy decides within bounds on latency and loss.
    Balanced,
    /// The radio stays on.
    #[default]
    Performance,
}

impl SleepMode {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Energy => "energy",
            Self::Balanced => "balanced",
            Self::Performance => "performance",
        }
    }
}

/// What the device is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SleepState {
    /// The radio is on.
    #[default]
    Awake,
    /// It is about to be switched off.
    Preparing,
    /// It is off.
    Asleep,
    /// It is being switched on, or the session is on its way.
    Waking,
}

impl SleepState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Awake, Self::Preparing, Self::Asleep, Self::Waking];

    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Awake => "awake",
            Self::Preparing => "preparing",
            Self::Asleep => "asleep",
            Self::Waking => "waking",
        }
    }
}

/// Everything about the radio's sleep.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SleepStatus {
    /// The mode.
    pub mode: SleepMode,
    /// What the device is doing.
    pub state: SleepState,
    /// Why it sleeps (`idle`, `user`, `machine`) or wakes (see [`WakeStatus::cause`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// For how long it has slept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asleep_seconds: Option<f64>,
    /// The driver that switches the radio.
    pub radio: RadioStatus,
    /// The policy that decides.
    pub policy: String,
    /// The profile whose figures are used.
    pub profile: String,
    /// The shortest silence that is worth a sleep.
    pub break_even_seconds: f64,
    /// Clients that the gateway serves at once, as it says; 1 if it says nothing.
    pub gateway_load: u32,
    /// The latest decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionStatus>,
    /// Wakes by cause, since the daemon's start.
    pub wakes_by_cause: BTreeMap<String, u64>,
    /// The latest wakes, latest first.
    pub wakes: Vec<WakeStatus>,
    /// Sleeps since the daemon's start.
    pub sleeps: u64,
    /// Sleeps that a packet called off before the radio was off.
    pub called_off: u64,
    /// Radio commands that failed.
    pub radio_failures: u64,
    /// Packets that wait for the session.
    pub held_packets: usize,
    /// Packets that were lost because the radio was off, as far as it is known.
    pub lost_packets: u64,
    /// `balanced`: how far sleeping has backed off, 0 to 8.
    pub backoff_level: u32,
    /// `balanced`: packets lost within the last hour.
    pub lost_last_hour: u64,
    /// Joules.
    pub energy: EnergyStatus,
}

/// The driver that switches the radio.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RadioStatus {
    /// `networkmanager`, `rfkill`, `link`, `command`; absent if none works here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Why that one, or why none.
    pub why: String,
}

/// One decision of the policy.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct DecisionStatus {
    /// Seconds since then.
    pub ago_seconds: f64,
    /// The policy.
    pub policy: String,
    /// The radio goes off after so long a silence; absent: it stays on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_out_seconds: Option<f64>,
    /// What the policy asked for before the mode had its say; absent: to stay on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted_seconds: Option<f64>,
    /// The break-even time that it was taken with.
    pub break_even_seconds: f64,
    /// What is expected to be saved by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saving_joules: Option<f64>,
    /// What decided: `learned`, `break-even`, `caution`, `guard`, `not worth it`, `rule`, `back-off`,
    /// `back-off: lost packets`.
    pub by: String,
}

/// One wake.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct WakeStatus {
    /// Seconds since then.
    pub ago_seconds: f64,
    /// `traffic`, `schedule`, `deadline`, `machine`, `user`, `mode`, `released`, `foreign`, `refused`.
    pub cause: String,
    /// The flow that caused it: `tcp 10.9.0.2:41000 -> 10.1.0.1:443`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<String>,
    /// Slept before it.
    pub slept_seconds: f64,
    /// Milliseconds until packets could flow; absent as long as they cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// How the session came back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rung: Option<WakeRung>,
}

/// Joules used and saved since the daemon's start.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct EnergyStatus {
    /// Where the figures come from: `profile NAME` or `meter NAME`.
    pub source: String,
    /// Of a meter: by how much it may be wrong over the whole time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncertainty_joules: Option<f64>,
    /// Used.
    pub used_joules: f64,
    /// What a radio would have used that is always active.
    pub always_on_joules: f64,
    /// What it would have used in 802.11 power-save mode; always after the profile.
    pub power_save_joules: f64,
    /// `always_on_joules` less `used_joules`; negative if sleeping has cost more than it saved.
    pub saved_joules: f64,
    /// Switched off and on so often.
    pub cycles: u64,
    /// On.
    pub awake_seconds: f64,
    /// On, and about to be switched off.
    pub preparing_seconds: f64,
    /// Off.
    pub asleep_seconds: f64,
    /// Being switched on, until packets flowed.
    pub waking_seconds: f64,
    /// The whole machine was suspended: counts neither as used nor as saved.
    pub suspended_seconds: f64,
}

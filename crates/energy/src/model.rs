//! The break-even model of paper 000, section 3.1: Equations 1 to 4 and what follows from them. Pure arithmetic on a
//! device's figures; must never learn or decide.
//!
//! | here | paper | unit |
//! |---|---|---|
//! | [`Radio::idle_power`] | WiFi_M | W |
//! | [`Radio::cycle_energy`] | WiFi_C + WiFi_D | J |
//! | [`Radio::association_time`] | WiFi_t | s |
//! | [`Exchange::energy`] | IPsec_C + IPsec_D | J |
//! | [`Exchange::time`] | IPsec_t, a function of the gateway's load | s |
//! | [`Model::break_even_instant`] | dt_tau', Eq. 2 | s |
//! | [`Model::break_even`] | dt_tau, Eq. 3 | s |

use core::str::FromStr;

pub use crate::cost::SleepCost;
pub use crate::exchange::{Exchange, Exchanges, Latency, Resumption, UnknownResumption};
use crate::states::RadioStates;

/// How long the gateway remembers a silent client before its liveness check gives up, unless configured otherwise, in
/// seconds. Until then MOBIKE resumes the session; later the hybrids fall back. (Paper 000, section 3.4.)
pub const LIVENESS_TIMEOUT: f64 = 120.0;

/// The radio's figures.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Radio {
    /// Idle and associated, power saving off (WiFi_M), in watts.
    pub idle_power: f64,
    /// Idle in 802.11 power-save mode, in watts.
    pub power_save_power: f64,
    /// Switching off, on, and associating again (WiFi_C + WiFi_D), in joules.
    pub cycle_energy: f64,
    /// Time to associate (WiFi_t), in seconds.
    pub association_time: f64,
}

/// What the radio does while it is not switched off: the state that a sleep is compared with.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Baseline {
    /// Always active, as in paper 000.
    #[default]
    Active,
    /// 802.11 power-save mode.
    PowerSave,
    /// A measured power, in watts.
    Watts(f64),
    /// A radio that walks through states of its own.
    States(RadioStates),
}

/// No such baseline.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown baseline {found:?}, expected active or psm")]
pub struct UnknownBaseline {
    found: String,
}

impl FromStr for Baseline {
    type Err = UnknownBaseline;

    /// `active` or `psm`; a measured one comes from [`crate::profile::Profile::baseline`].
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s {
            "active" => Ok(Self::Active),
            "psm" => Ok(Self::PowerSave),
            _ => Err(UnknownBaseline { found: s.to_owned() }),
        }
    }
}

/// A device's figures put into the equations.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Model {
    /// The radio.
    pub radio: Radio,
    /// The exchanges.
    pub exchanges: Exchanges,
    /// What a sleep is compared with.
    pub baseline: Baseline,
    /// The gateway's liveness timeout, in seconds: where the hybrids change over.
    pub liveness_timeout: f64,
}

impl Model {
    /// Compared with an always active radio, liveness timeout [`LIVENESS_TIMEOUT`].
    #[must_use]
    pub const fn new(radio: Radio, exchanges: Exchanges) -> Self {
        Self { radio, exchanges, baseline: Baseline::Active, liveness_timeout: LIVENESS_TIMEOUT }
    }

    /// Power of the idle radio that does not sleep, in watts; with states of its own, of that in which it settles.
    #[must_use]
    pub fn baseline_power(&self) -> f64 {
        match self.baseline {
            Baseline::Active => self.radio.idle_power,
            Baseline::PowerSave => self.radio.power_save_power,
            Baseline::Watts(power) => power,
            Baseline::States(states) => states.settled_power(),
        }
    }

    /// Sum of WiFi_C, WiFi_D, IPsec_C and IPsec_D (the numerator of Eq. 2), in joules.
    fn switching_energy(&self, exchange: Exchange) -> f64 {
        self.radio.cycle_energy + exchange.energy
    }

    /// Eq. 2 (`dt_tau'`): break-even time if connecting took no time, in seconds.
    #[must_use]
    pub fn break_even_instant(&self, exchange: Exchange) -> f64 {
        self.switching_energy(exchange) / self.baseline_power()
    }

    /// Eq. 3 (`dt_tau`): break-even time in seconds with one exchange, the gateway serving `load` clients at once.
    ///
    /// While it associates and waits for the gateway, the radio is active. Against an active radio this is the paper's
    /// `dt_tau' + WiFi_t + IPsec_t`; against a cheaper baseline those seconds count for more, in proportion of the powers.
    #[must_use]
    pub fn break_even_with(&self, exchange: Exchange, load: u32) -> f64 {
        let waiting = self.radio.association_time + exchange.time.at(load);
        self.break_even_instant(exchange) + waiting * self.radio.idle_power / self.baseline_power()
    }

    /// What a sleep costs under `resumption` with `load` clients at the gateway, in seconds of the baseline.
    #[must_use]
    pub fn sleep_cost(&self, resumption: Resumption, load: u32) -> SleepCost {
        if let Baseline::States(states) = self.baseline {
            return states.sleep_cost(&self.exchanges, resumption, load, self.liveness_timeout);
        }
        let (within, beyond) = self.exchanges.of(resumption);
        let (within, beyond) = (self.break_even_with(within, load), self.break_even_with(beyond, load));
        if within == beyond {
            SleepCost::constant(within)
        } else {
            SleepCost::hybrid(within, beyond, self.liveness_timeout)
        }
    }

    /// The shortest idle period that is worth a sleep, in seconds (`dt_tau`, Eq. 3).
    #[must_use]
    pub fn break_even(&self, resumption: Resumption, load: u32) -> f64 {
        self.sleep_cost(resumption, load).break_even()
    }
}

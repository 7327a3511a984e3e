//! A radio with several states: active, power save, off; and what switching it off costs. Owns the lower envelope of Irani, Shukla
//! and Gupta (2003); must never read a file.
//!
//! State `i` draws power `p_i`; going there from active and back costs `b_i` joules, the active power during both transitions
//! included. An idle period of `t` seconds costs at least `min_i (b_i + p_i t)`: the lower envelope of straight lines. The
//! online policy walks down the envelope, changing state where the lines cross, and pays at most twice that.

use crate::cost::{Awake, MAX_STEPS, SleepCost, Walk};
use crate::exchange::{Exchange, Exchanges, Resumption};

/// One state of the radio.
#[derive(Clone, PartialEq, Debug)]
pub struct State {
    /// Its name.
    pub name: String,
    /// Power while in it, in watts.
    pub power: f64,
    /// Energy to go there from the active state, in joules.
    pub enter_energy: f64,
    /// Energy to come back, protected session included, in joules.
    pub leave_energy: f64,
    /// Time to go there, in seconds, at active power.
    pub enter_time: f64,
    /// Time until packets flow again, in seconds, at active power.
    pub leave_time: f64,
}

/// The states that are worth entering, in order, and when.
#[derive(Clone, PartialEq, Debug)]
pub struct Envelope {
    steps: Vec<Step>,
}

/// One state on the envelope.
#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    /// The state's name.
    pub name: String,
    /// Enter it when the idle period is this old, in seconds; 0 for the first.
    pub from: f64,
    /// Power while in it, in watts.
    pub power: f64,
    /// Cost of going there and back, transition times included, in joules.
    pub overhead: f64,
}

/// Figures that cannot be a radio.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum StatesError {
    /// Nothing to choose from.
    #[error("a radio needs at least one state")]
    Empty,
    /// A negative or infinite figure.
    #[error("state {state}: {figure} is {value}, expected a finite number of at least 0")]
    Figure {
        /// The state.
        state: String,
        /// The figure.
        figure: &'static str,
        /// Its value.
        value: f64,
    },
}

impl Envelope {
    /// The lower envelope of `states`. The state of the highest power is the active one: its transitions cost nothing, and
    /// transition times are charged at its power.
    ///
    /// # Errors
    /// [`StatesError`] for no states, or a figure that is negative or not finite.
    pub fn new(states: &[State]) -> Result<Self, StatesError> {
        states.iter().try_for_each(check)?;
        let active = states.iter().map(|s| s.power).fold(f64::NEG_INFINITY, f64::max);
        let mut lines: Vec<Step> = states
            .iter()
            .map(|s| Step {
                name: s.name.clone(),
                from: 0.0,
                power: s.power,
                overhead: if s.power < active {
                    s.enter_energy + s.leave_energy + (s.enter_time + s.leave_time) * active
                } else {
                    0.0
                },
            })
            .collect();
        if lines.is_empty() {
            return Err(StatesError::Empty);
        }
        lines.sort_by(|a, b| a.overhead.total_cmp(&b.overhead).then(a.power.total_cmp(&b.power)));
        let mut steps: Vec<Step> = Vec::new();
        for mut line in lines {
            if steps.last().is_some_and(|last| line.power >= last.power) {
                continue; // costs more to enter and no less to stay in
            }
            while let Some(last) = steps.last() {
                line.from = (line.overhead - last.overhead) / (last.power - line.power);
                if line.from > last.from || steps.len() == 1 {
                    break;
                }
                steps.pop(); // never the cheapest
            }
            steps.push(line);
        }
        Ok(Self { steps })
    }

    /// The states worth entering, the one with the highest power first. The active state itself is missing where a cheaper
    /// one is free to enter.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The radio that walks down the envelope by itself, changing state where the lines cross: it pays at most twice
    /// [`Awake::optimal`], because the energy spent until then follows the envelope, and the way back adds at most as much. `None`
    /// for more than [`MAX_STEPS`] states.
    #[must_use]
    pub fn awake(&self) -> Option<Awake> {
        let walk = |s: &Step| Walk { from: s.from, power: s.power, overhead: s.overhead };
        Awake::new(&self.steps.iter().map(walk).collect::<Vec<_>>())
    }
}

/// What the radio does while it is left alone, and what switching it off costs; powers in watts, energies in joules, times in
/// seconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RadioStates {
    awake: Awake,
    /// The highest power of all.
    active: f64,
    off_power: f64,
    off_energy: f64,
    off_time: f64,
}

/// Why a file does not describe a radio.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum RadioError {
    /// Not such a file.
    #[error("radio states do not parse: {0}")]
    Syntax(String),
    /// A unit that is unknown, or that does not fit the figure.
    #[error("state {state}: {figure} is given in {unit:?}, expected {expected}")]
    Unit {
        /// The state.
        state: String,
        /// The figure.
        figure: &'static str,
        /// The unit found.
        unit: String,
        /// The units that fit.
        expected: &'static str,
    },
    /// None, or several, of the states are off.
    #[error("{found} states are marked off = true, expected exactly one")]
    Off {
        /// How many.
        found: usize,
    },
    /// Too many states to walk through.
    #[error("{found} states beside off, expected 1 to {MAX_STEPS}")]
    Count {
        /// How many.
        found: usize,
    },
    /// Being off saves nothing.
    #[error("off draws {off} W and {state} only {power} W: a sleep could never pay")]
    Pointless {
        /// Power while off, in watts.
        off: f64,
        /// The state that draws least of the others.
        state: String,
        /// Its power, in watts.
        power: f64,
    },
    /// A figure that cannot be.
    #[error(transparent)]
    State(#[from] StatesError),
}

impl RadioStates {
    /// From the states that the radio walks through while it is left on, and the one in which it is off.
    ///
    /// # Errors
    /// [`RadioError`] for no or too many states, a figure that cannot be, or an off state that draws as much as another.
    pub fn new(on: &[State], off: &State) -> Result<Self, RadioError> {
        if !(1..=MAX_STEPS).contains(&on.len()) {
            return Err(RadioError::Count { found: on.len() });
        }
        Envelope::new(core::slice::from_ref(off))?;
        let envelope = Envelope::new(on)?;
        let active = on.iter().map(|s| s.power).fold(0.0, f64::max);
        if let Some(least) = envelope.steps().last()
            && least.power <= off.power
        {
            return Err(RadioError::Pointless {
                off: off.power,
                state: least.name.clone(),
                power: least.power,
            });
        }
        let awake = envelope.awake().ok_or(RadioError::Count { found: envelope.steps.len() })?;
        Ok(Self {
            awake,
            active,
            off_power: off.power,
            off_energy: off.enter_energy + off.leave_energy,
            off_time: off.enter_time + off.leave_time,
        })
    }

    /// Power of the state that the radio settles in, in watts: the unit of [`RadioStates::sleep_cost`] is a second of it.
    #[must_use]
    pub fn settled_power(&self) -> f64 {
        self.awake.settled().power
    }

    /// Energy of switching off and on and of one exchange with `load` clients at the gateway, waiting included, in joules.
    fn price(&self, exchange: Exchange, load: u32) -> f64 {
        self.off_energy + exchange.energy + (self.off_time + exchange.time.at(load)) * self.active
    }

    /// What sleeping costs, in seconds of the settled radio.
    #[must_use]
    pub fn sleep_cost(
        &self,
        exchanges: &Exchanges,
        resumption: Resumption,
        load: u32,
        liveness_timeout: f64,
    ) -> SleepCost {
        let unit = self.settled_power();
        let (within, beyond) = exchanges.of(resumption);
        let (within, beyond) = (self.price(within, load) / unit, self.price(beyond, load) / unit);
        let mut walk = [Walk::default(); MAX_STEPS];
        for (to, from) in walk.iter_mut().zip(self.awake.steps()) {
            *to = Walk { from: from.from, power: from.power / unit, overhead: from.overhead / unit };
        }
        let walk = walk.get(..self.awake.steps().len()).unwrap_or_default();
        let awake = Awake::new(walk).unwrap_or(Awake::ALWAYS_ACTIVE);
        SleepCost::hybrid(within, beyond, liveness_timeout).with_states(awake, self.off_power / unit)
    }
}

fn check(state: &State) -> Result<(), StatesError> {
    let figures = [
        ("power", state.power),
        ("enter_energy", state.enter_energy),
        ("leave_energy", state.leave_energy),
        ("enter_time", state.enter_time),
        ("leave_time", state.leave_time),
    ];
    match figures.into_iter().find(|(_, v)| !(v.is_finite() && *v >= 0.0)) {
        None => Ok(()),
        Some((figure, value)) => Err(StatesError::Figure { state: state.name.clone(), figure, value }),
    }
}

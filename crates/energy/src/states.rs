//! A radio with several states: active, power save, off. Owns the lower envelope of Irani, Shukla and Gupta (2003).
//!
//! State `i` draws power `p_i`; going there from active and back costs `b_i` joules, the active power during both transitions
//! included. An idle period of `t` seconds costs at least `min_i (b_i + p_i t)`: the lower envelope of straight lines. The
//! online policy walks down the envelope, changing state where the lines cross, and pays at most twice that.

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

    /// The least energy for an idle period whose length is known beforehand, in joules.
    #[must_use]
    pub fn optimal(&self, idle: f64) -> f64 {
        self.steps.iter().map(|s| s.overhead + s.power * idle).fold(f64::INFINITY, f64::min)
    }

    /// Energy of the online policy that enters each state where the lines cross, in joules: at most twice
    /// [`Envelope::optimal`], because the energy spent until then follows the envelope, and the way back adds at most as much.
    #[must_use]
    pub fn online(&self, idle: f64) -> f64 {
        let mut energy = 0.0;
        let mut steps = self.steps.iter().peekable();
        while let Some(step) = steps.next() {
            match steps.peek() {
                Some(next) if next.from < idle => energy += step.power * (next.from - step.from),
                _ => return energy + step.power * (idle - step.from) + step.overhead,
            }
        }
        energy
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

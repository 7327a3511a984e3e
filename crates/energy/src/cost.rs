//! What an idle period costs: with the radio left on, and slept through. Pure arithmetic; must never learn or decide.
//!
//! The unit is one second of the radio that is left on, in the state that it settles in. A radio of one state costs `g` for an
//! idle period of `g` seconds. One with a power-save mode walks down its own states first ([`Awake`]) and still costs more
//! than nothing when it is off ([`SleepCost::with_states`]).

/// States that an idle radio may walk through while it is left on.
pub const MAX_STEPS: usize = 4;

/// One state of the idle radio's walk.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Walk {
    /// Entered when the idle period is this old, in seconds.
    pub from: f64,
    /// Cost of one second in it.
    pub power: f64,
    /// Cost of going there from the active state and back.
    pub overhead: f64,
}

/// A radio that is left on: the states that it walks through by itself.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Awake {
    steps: [Walk; MAX_STEPS],
    length: usize,
}

impl Awake {
    /// One state, at a cost of one for each second.
    pub const ALWAYS_ACTIVE: Self = {
        let rest = Walk { from: 0.0, power: 1.0, overhead: 0.0 };
        Self { steps: [rest; MAX_STEPS], length: 1 }
    };

    /// A walk, in the order of the states; `None` for no state, too many, or ages that do not rise from zero.
    #[must_use]
    pub fn new(walk: &[Walk]) -> Option<Self> {
        let mut steps = [Walk::default(); MAX_STEPS];
        steps.get_mut(..walk.len())?.copy_from_slice(walk);
        let rising = walk.windows(2).all(|w| matches!(w, [a, b] if a.from < b.from));
        (rising && walk.first()?.from == 0.0).then_some(Self { steps, length: walk.len() })
    }

    /// The states in the order in which they are entered.
    #[must_use]
    pub fn steps(&self) -> &[Walk] {
        self.steps.get(..self.length).unwrap_or_default()
    }

    /// The state that the radio settles in.
    #[must_use]
    pub fn settled(&self) -> Walk {
        self.steps().last().copied().unwrap_or_default()
    }

    /// Cost of the first `age` seconds, and what going back to the active state adds then.
    fn until(&self, age: f64) -> (f64, f64) {
        let [first, ..] = self.steps;
        if self.length == 1 {
            return (age * first.power, first.overhead);
        }
        let (mut spent, mut overhead) = (0.0, 0.0);
        let ends = self.steps().iter().skip(1).map(|s| s.from).chain([f64::INFINITY]);
        for (step, end) in self.steps().iter().zip(ends) {
            spent += (age.min(end) - step.from) * step.power;
            overhead = step.overhead;
            if age <= end {
                break;
            }
        }
        (spent, overhead)
    }

    /// Cost of an idle period of `idle` seconds.
    #[must_use]
    pub fn cost(&self, idle: f64) -> f64 {
        let (spent, overhead) = self.until(idle);
        spent + overhead
    }

    /// Least cost of an idle period whose length is known beforehand: in the best one of the states from its beginning.
    #[must_use]
    pub fn optimal(&self, idle: f64) -> f64 {
        self.steps().iter().map(|s| s.overhead + s.power * idle).fold(f64::INFINITY, f64::min)
    }
}

/// What staying on and sleeping cost. For the hybrids the price of a sleep depends on how long the client was silent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SleepCost {
    within: f64,
    beyond: f64,
    limit: f64,
    awake: Awake,
    off_power: f64,
}

impl SleepCost {
    /// The same for every sleep: a break-even time in seconds, positive.
    #[must_use]
    pub const fn constant(break_even: f64) -> Self {
        Self::hybrid(break_even, break_even, f64::INFINITY)
    }

    /// `within` for idle periods up to `limit` seconds, `beyond` for longer ones.
    #[must_use]
    pub const fn hybrid(within: f64, beyond: f64, limit: f64) -> Self {
        Self { within, beyond, limit, awake: Awake::ALWAYS_ACTIVE, off_power: 0.0 }
    }

    /// For a radio that is left in states of its own, and that costs `off_power` for each second while it is off (less than 1).
    #[must_use]
    pub const fn with_states(self, awake: Awake, off_power: f64) -> Self {
        Self { awake, off_power, ..self }
    }

    /// The price of a sleep in an idle period of `idle` seconds, beyond what was spent until the radio went off.
    #[must_use]
    pub fn of(&self, idle: f64) -> f64 {
        if idle <= self.limit { self.within } else { self.beyond }
    }

    /// Cost of an idle period through which the radio is left on.
    #[must_use]
    pub fn awake(&self, idle: f64) -> f64 {
        self.awake.cost(idle)
    }

    /// Cost of an idle period in which the radio is off from the age `after` on.
    #[must_use]
    pub fn asleep(&self, idle: f64, after: f64) -> f64 {
        self.awake.until(after).0 + self.of(idle) + self.off_power * (idle - after)
    }

    /// Least cost with the radio on, of an idle period whose length is known beforehand.
    #[must_use]
    pub fn best_awake(&self, idle: f64) -> f64 {
        self.awake.optimal(idle)
    }

    /// Least cost of an idle period whose length is known beforehand.
    #[must_use]
    pub fn best(&self, idle: f64) -> f64 {
        self.best_awake(idle).min(self.asleep(idle, 0.0))
    }

    /// How long an idle period must still last to be worth a sleep, once the radio has settled: what a scheduler is given as
    /// break-even time.
    #[must_use]
    pub fn break_even(&self) -> f64 {
        let settled = self.awake.settled();
        let seconds = |price: f64| ((price - settled.overhead) / (settled.power - self.off_power)).max(0.0);
        let (within, beyond) = (seconds(self.within), seconds(self.beyond));
        if within <= self.limit { within } else { beyond.max(self.limit) }
    }
}

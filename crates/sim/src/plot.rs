//! Stories whose world is drawn from their seed. Owns what all of them have in common: a seed, steps and settings, and the stories that are simpler;
//! must never know what happens in one.

use crate::shrink::{Tale, fewer, milder};
use std::fmt::Debug;

/// What stories of one kind are about.
pub trait Plot: Clone + Debug {
    /// Something that happens.
    type Step: Clone + Debug;
    /// How the world is configured.
    type Settings: Clone + Debug;

    /// What happens in the world of a seed, and how that is configured.
    fn draw(seed: u64) -> (Vec<Self::Step>, Self::Settings);

    /// Lets it happen, and checks how it ends.
    ///
    /// # Panics
    /// If something is not as it must be.
    fn happen(story: &Story<Self>);

    /// Settings that are simpler by one change.
    fn simpler_settings(settings: &Self::Settings) -> Vec<Self::Settings>;

    /// Steps that are simpler by one change.
    fn simpler_steps(step: &Self::Step) -> Vec<Self::Step>;

    /// As [`Tale::as_test`].
    fn as_test(story: &Story<Self>) -> String;
}

/// A world's seed, its configuration and what happens in it.
#[derive(Clone, Debug)]
pub struct Story<P: Plot> {
    /// Seed of the world.
    pub seed: u64,
    /// What happens.
    pub steps: Vec<P::Step>,
    /// How the world is configured.
    pub settings: P::Settings,
}

impl<P: Plot> Story<P> {
    /// The story of `seed`.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        let (steps, settings) = P::draw(seed);
        Self { seed, steps, settings }
    }
}

impl<P: Plot> Tale for Story<P> {
    fn tell(&self) {
        P::happen(self);
    }

    fn simpler(&self) -> Vec<Self> {
        let with = |steps| Self { steps, ..self.clone() };
        let mut stories: Vec<Self> = fewer(&self.steps).into_iter().map(with).collect();
        let settings = P::simpler_settings(&self.settings);
        stories.extend(settings.into_iter().map(|settings| Self { settings, ..self.clone() }));
        stories.extend(milder(&self.steps, P::simpler_steps).into_iter().map(with));
        stories
    }

    fn as_test(&self) -> String {
        P::as_test(self)
    }
}

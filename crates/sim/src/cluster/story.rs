//! Stories of several gateways: the seed, what happens, and how the world is configured. Owns what is simpler than a given one, and its form as
//! a test.

use super::script::{self, Step};
use super::settings::Settings;
use super::world::World;
use crate::shrink::{Tale, fewer, milder};
use std::fmt::Write;

/// A world's seed, its configuration and what happens in it.
#[derive(Clone, Debug)]
pub struct Story {
    /// Seed of the world.
    pub seed: u64,
    /// What happens.
    pub steps: Vec<Step>,
    /// How the world is configured.
    pub settings: Settings,
}

impl Story {
    /// The story of `seed`.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        Self { seed, steps: script::random(seed), settings: Settings::random(seed) }
    }

    /// The story of `seed` in a world where sessions of an identity are limited, and thieves come often.
    #[must_use]
    pub fn limited(seed: u64) -> Self {
        Self { seed, steps: script::with_thieves(seed), settings: Settings::limited(seed) }
    }
}

impl Tale for Story {
    fn tell(&self) {
        let mut world = World::new(self.seed, &self.settings);
        world.play(&self.steps);
        world.settle_and_check();
    }

    fn simpler(&self) -> Vec<Self> {
        let with = |steps| Self { steps, ..self.clone() };
        let mut stories: Vec<Self> = fewer(&self.steps).into_iter().map(with).collect();
        stories.extend(self.settings.simpler().into_iter().map(|settings| Self { settings, ..self.clone() }));
        stories.extend(milder(&self.steps, script::simpler).into_iter().map(with));
        stories
    }

    fn as_test(&self) -> String {
        let Self { seed, steps, settings } = self;
        let mut test = format!("#[test]\nfn the_story_of_seed_{seed}() {{\n    let steps = vec![\n");
        for step in steps {
            let _ = writeln!(test, "        Step::{step:?},");
        }
        let _ = writeln!(
            test,
            "    ];\n    let settings = {settings:?};\n    Story {{ seed: {seed}, steps, settings }}.tell();\n}}"
        );
        test
    }
}

//! Stories of several gateways. Owns how one is drawn and told, and its form as a test.

use super::script::{self, Step};
use super::settings::Settings;
use super::world::World;
use crate::plot::{self, Plot};
use std::fmt::Write;

/// A story of several gateways.
pub type Story = plot::Story<Gateways>;

/// What they are about.
#[derive(Clone, Debug)]
pub struct Gateways;

impl Plot for Gateways {
    type Step = Step;
    type Settings = Settings;

    fn draw(seed: u64) -> (Vec<Step>, Settings) {
        (script::random(seed), Settings::random(seed))
    }

    fn happen(story: &Story) {
        let mut world = World::new(story.seed, &story.settings);
        world.play(&story.steps);
        world.settle_and_check();
    }

    fn simpler_settings(settings: &Settings) -> Vec<Settings> {
        settings.simpler()
    }

    fn simpler_steps(step: &Step) -> Vec<Step> {
        script::simpler(step)
    }

    fn as_test(story: &Story) -> String {
        let Story { seed, steps, settings } = story;
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

impl Story {
    /// The story of `seed` in a world where sessions of an identity are limited, and thieves come often.
    #[must_use]
    pub fn limited(seed: u64) -> Self {
        Self { seed, steps: script::with_thieves(seed), settings: Settings::limited(seed) }
    }

    /// The story of `seed`, in which gateways are drained besides.
    #[must_use]
    pub fn drained(seed: u64) -> Self {
        Self { seed, steps: script::with_drains(seed), settings: Settings::drained(seed) }
    }

    /// The story of `seed` with devices that have no tickets.
    #[must_use]
    pub fn ticketless(seed: u64) -> Self {
        Self { seed, steps: script::with_drains(seed), settings: Settings::ticketless(seed) }
    }

    /// The story of `seed` with devices that have no tickets, and gateways that take their sessions over.
    #[must_use]
    pub fn taken_over(seed: u64) -> Self {
        Self { seed, steps: script::with_takeovers(seed), settings: Settings::taken_over(seed) }
    }

    /// A story in which gateways are drained, and nothing goes wrong: what is kept for a device that sleeps comes to it.
    #[must_use]
    pub fn drained_in_calm(seed: u64) -> Self {
        Self { seed, steps: script::drains_alone(seed), settings: Settings::drained_in_calm(seed) }
    }
}

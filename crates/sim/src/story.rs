//! The stories of IKEv2: the seed, what happens, and how the two ends are configured. Owns what is simpler than a given one, and its form
//! as a test.

use crate::script::{Edit, Script, Step};
use crate::settings::Settings;
use crate::shrink::{Tale, fewer, milder, shorter, time};
use crate::world::World;
use std::fmt::Write;

/// A world's seed, its configuration and what happens in it.
#[derive(Clone, Debug)]
pub struct Story {
    /// Seed of the world.
    pub seed: u64,
    /// What happens.
    pub script: Script,
    /// How the two ends and the network are configured.
    pub settings: Settings,
}

impl Story {
    /// The story of `seed` in a world of these settings.
    #[must_use]
    pub fn new(seed: u64, settings: Settings) -> Self {
        Self { seed, script: Script::random(seed), settings }
    }
}

impl Tale for Story {
    fn tell(&self) {
        let mut world = World::new(self.seed, self.settings.clone());
        world.play(&self.script);
        world.settle_and_check();
    }

    fn simpler(&self) -> Vec<Self> {
        let with = |steps| Self { script: Script(steps), ..self.clone() };
        let mut stories: Vec<Self> = fewer(&self.script.0).into_iter().map(with).collect();
        let settings = simpler_settings(&self.settings);
        stories.extend(settings.into_iter().map(|settings| Self { settings, ..self.clone() }));
        stories.extend(milder(&self.script.0, simpler_steps).into_iter().map(with));
        stories
    }

    fn as_test(&self) -> String {
        let Settings {
            outer,
            inner,
            proof,
            delay,
            nat_idle,
            lag,
            other_pool,
            device,
            gateway,
            hold,
            engine,
            stand_in,
        } = &self.settings;
        let mut test = format!("#[test]\nfn the_story_of_seed_{}() {{\n", self.seed);
        test += "    let mut settings = Settings::default();\n";
        let _ = writeln!(test, "    settings.proof = Proof::{proof:?};");
        let _ =
            writeln!(test, "    (settings.outer, settings.inner) = (Family::{outer:?}, Family::{inner:?});");
        let _ = writeln!(test, "    settings.engine = {engine};");
        let _ = writeln!(test, "    settings.delay = {};", time(*delay));
        let _ = writeln!(test, "    settings.nat_idle = {};", time(*nat_idle));
        let _ = writeln!(test, "    (settings.lag, settings.other_pool) = ({}, {other_pool});", time(*lag));
        for (end, lines) in [("device", device), ("gateway", gateway)] {
            let _ = writeln!(test, "    settings.{end} = vec![");
            for (section, line) in lines {
                let _ = writeln!(test, "        ({section:?}, {line:?}.into()),");
            }
            test += "    ];\n";
        }
        let _ = writeln!(
            test,
            "    (settings.hold.most, settings.hold.longest) = ({}, {});",
            hold.most,
            time(hold.longest)
        );
        if let Some((_, longest)) = stand_in {
            let _ = writeln!(
                test,
                "    settings.hold.services = SleepFlags {{ stand_in: true, buffering: true }};"
            );
            let _ = writeln!(test, "    settings.stand_in = Some((Limits::default(), {}));", time(*longest));
        }
        test += "    let script = Script(vec![\n";
        for step in &self.script.0 {
            let _ = writeln!(test, "        {},", code(*step));
        }
        let _ = writeln!(test, "    ]);\n    Story {{ seed: {}, script, settings }}.tell();\n}}", self.seed);
        test
    }
}

/// The settings of the default world, one at a time.
fn simpler_settings(settings: &Settings) -> Vec<Settings> {
    let default = Settings::default();
    let mut simpler = Vec::new();
    if settings.delay != default.delay {
        simpler.push(Settings { delay: default.delay, ..settings.clone() });
    }
    if settings.nat_idle != default.nat_idle {
        simpler.push(Settings { nat_idle: default.nat_idle, ..settings.clone() });
    }
    if settings.lag != default.lag {
        simpler.push(Settings { lag: default.lag, ..settings.clone() });
    }
    if settings.outer != default.outer {
        simpler.push(Settings { outer: default.outer, ..settings.clone() });
    }
    if settings.inner != default.inner {
        simpler.push(Settings { inner: default.inner, ..settings.clone() });
    }
    if settings.proof != default.proof {
        simpler.push(Settings { proof: default.proof, ..settings.clone() });
    }
    if settings.hold != default.hold || settings.stand_in.is_some() {
        simpler.push(Settings { hold: default.hold, stand_in: None, ..settings.clone() });
    }
    for at in 0..settings.device.len() {
        let mut less = settings.clone();
        less.device.remove(at);
        simpler.push(less);
    }
    // The check of the end counts on the first line: how soon the gateway gives a silent device up.
    for at in 1..settings.gateway.len() {
        let mut less = settings.clone();
        less.gateway.remove(at);
        simpler.push(less);
    }
    // A line for both ends goes from both.
    for line in settings.device.iter().filter(|line| settings.gateway.contains(line)) {
        let mut less = settings.clone();
        less.device.retain(|l| l != line);
        less.gateway.retain(|l| l != line);
        simpler.push(less);
    }
    simpler
}

/// Shorter times, rounder times, and fewer things at once.
fn simpler_steps(step: &Step) -> Vec<Step> {
    let step = *step;
    match step {
        Step::Pause(time) => shorter(time).map(Step::Pause).collect(),
        Step::Sleep(time, access) => shorter(time).map(|t| Step::Sleep(t, access)).collect(),
        Step::Nap(time, access) => shorter(time).map(|t| Step::Nap(t, access)).collect(),
        Step::GatewayCrash(time, keys) => shorter(time).map(|t| Step::GatewayCrash(t, keys)).collect(),
        Step::DeviceCrash(time) => shorter(time).map(Step::DeviceCrash).collect(),
        Step::DownUp(time) => shorter(time).map(Step::DownUp).collect(),
        Step::Fuse { gateway, outputs, down } => {
            shorter(down).map(|down| Step::Fuse { gateway, outputs, down }).collect()
        }
        Step::Stop { gateway, away } => shorter(away).map(|away| Step::Stop { gateway, away }).collect(),
        Step::Reload { gateway, edit: Edit::Pool | Edit::Rekey(_) } => {
            vec![Step::Reload { gateway, edit: Edit::Nothing }]
        }
        Step::Weather { loss, duplication, reordering } => {
            let calm = |loss, duplication, reordering| Step::Weather { loss, duplication, reordering };
            let simpler = [
                calm(0.0, duplication, reordering),
                calm(loss, 0.0, reordering),
                calm(loss, duplication, 0.0),
            ];
            simpler.into_iter().filter(|s| *s != step).collect()
        }
        Step::Data(packets) if packets > 1 => vec![Step::Data(1), Step::Data(packets / 2)],
        Step::RekeyChild(true) => vec![Step::RekeyChild(false)],
        Step::RekeyIke(true) => vec![Step::RekeyIke(false)],
        _ => Vec::new(),
    }
}

fn code(step: Step) -> String {
    match step {
        Step::Pause(t) => format!("Step::Pause({})", time(t)),
        Step::Sleep(t, access) => format!("Step::Sleep({}, Access::{access:?})", time(t)),
        Step::Nap(t, access) => format!("Step::Nap({}, Access::{access:?})", time(t)),
        Step::GatewayCrash(t, keys) => format!("Step::GatewayCrash({}, {keys})", time(t)),
        Step::DeviceCrash(t) => format!("Step::DeviceCrash({})", time(t)),
        Step::DownUp(t) => format!("Step::DownUp({})", time(t)),
        Step::Fuse { gateway, outputs, down } => {
            format!("Step::Fuse {{ gateway: {gateway}, outputs: {outputs}, down: {} }}", time(down))
        }
        Step::Enter(access) => format!("Step::Enter(Access::{access:?})"),
        Step::Stop { gateway, away } => format!("Step::Stop {{ gateway: {gateway}, away: {} }}", time(away)),
        Step::Reload { gateway, edit } => {
            format!("Step::Reload {{ gateway: {gateway}, edit: Edit::{edit:?} }}")
        }
        other => format!("Step::{other:?}"),
    }
}

//! Stories as values: the seed, what happens and how the two ends are configured; and the shortest story that still fails. Owns the
//! search and the form in which a story is pasted as a test; must never know what a story is about.

use crate::script::{Edit, Script, Step};
use crate::settings::Settings;
use crate::world::World;
use std::any::Any;
use std::cell::Cell;
use std::fmt::Write;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::time::Duration;

/// Stories that a search tells at most: a bound on its time, not on its result.
const TRIES: usize = 3_000;

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

    /// Tells the story, and checks how it ends.
    ///
    /// # Panics
    /// If something is not as it must be, at any step or at the end.
    pub fn tell(&self) {
        let mut world = World::new(self.seed, self.settings.clone());
        world.play(&self.script);
        world.settle_and_check();
    }

    /// Tells the story silently; what it panicked with, if it did.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let told = silently(|| catch_unwind(AssertUnwindSafe(|| self.tell())));
        told.err().map(|payload| message(payload.as_ref()))
    }

    /// The shortest story found that fails in the same way as this one; this one, if it does not fail.
    #[must_use]
    pub fn shrunk(&self) -> Self {
        let Some(failure) = self.failure() else { return self.clone() };
        let (wanted, mut least, mut tries) = (kind(&failure), self.clone(), 0);
        let mut fails_so = |story: &Self| {
            tries += 1;
            tries < TRIES && story.failure().is_some_and(|failure| kind(&failure) == wanted)
        };
        while let Some(story) = least.simpler().into_iter().find(&mut fails_so) {
            least = story;
        }
        least
    }

    /// Stories that are simpler by one change, the boldest first.
    fn simpler(&self) -> Vec<Self> {
        let mut stories = Vec::new();
        let steps = &self.script.0;
        let mut chunk = steps.len().div_ceil(2);
        while chunk > 0 {
            for at in (0..steps.len()).step_by(chunk) {
                let mut left = steps.clone();
                left.drain(at..(at + chunk).min(steps.len()));
                stories.push(Self { script: Script(left), ..self.clone() });
            }
            chunk /= 2;
        }
        let settings = simpler_settings(&self.settings);
        stories.extend(settings.into_iter().map(|settings| Self { settings, ..self.clone() }));
        for (at, step) in steps.iter().enumerate() {
            for simple in simpler_steps(*step) {
                let mut changed = steps.clone();
                changed[at] = simple;
                stories.push(Self { script: Script(changed), ..self.clone() });
            }
        }
        stories
    }

    /// The story as a test that can be pasted into `crates/sim/tests`.
    #[must_use]
    pub fn as_test(&self) -> String {
        let Settings {
            outer,
            inner,
            certificates,
            delay,
            nat_idle,
            lag,
            other_pool,
            device,
            gateway,
            hold,
            stand_in,
        } = &self.settings;
        let mut test = format!("#[test]\nfn the_story_of_seed_{}() {{\n", self.seed);
        test += "    let mut settings = Settings::default();\n";
        let _ = writeln!(test, "    settings.certificates = {certificates};");
        let _ =
            writeln!(test, "    (settings.outer, settings.inner) = (Family::{outer:?}, Family::{inner:?});");
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
    if settings.certificates {
        simpler.push(Settings { certificates: false, ..settings.clone() });
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
fn simpler_steps(step: Step) -> Vec<Step> {
    let shorter = |time: Duration| {
        let halved = Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX) / 2);
        let whole = Duration::from_secs(time.as_secs());
        [halved, whole].into_iter().filter(move |t| *t < time)
    };
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

fn time(time: Duration) -> String {
    format!("Duration::from_millis({})", time.as_millis())
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

/// What went wrong, without the figures of this one story: all that stands before its details.
fn kind(failure: &str) -> String {
    let first = failure.lines().next().unwrap_or_default();
    first.split(';').next().unwrap_or_default().chars().filter(|c| !c.is_ascii_digit()).collect()
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without words".into())
}

thread_local! {
    static SILENT: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f`; a panic of this thread prints nothing meanwhile.
fn silently<T>(f: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !SILENT.get() {
                usual(info);
            }
        }));
    });
    SILENT.set(true);
    let result = f();
    SILENT.set(false);
    result
}

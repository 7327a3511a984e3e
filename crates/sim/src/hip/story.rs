//! The stories of HIP. Owns how one is drawn and told, what is simpler than its settings and steps, and its form as a test.

use super::script::{self, Edit, Place, Step};
use super::settings::{Lasting, Settings};
use super::world::World;
use crate::plot::{self, Plot};
use crate::settings::Family;
use crate::shrink::{shorter, time};
use crate::world::Access;
use std::fmt::Write;

/// A story of hosts that speak HIP.
pub type Story = plot::Story<Hosts>;

/// What they are about.
#[derive(Clone, Debug)]
pub struct Hosts;

impl Plot for Hosts {
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
        simpler_settings(settings)
    }

    fn simpler_steps(step: &Step) -> Vec<Step> {
        simpler_steps(step)
    }

    fn as_test(story: &Story) -> String {
        let mut test =
            format!("#[test]\nfn the_story_of_seed_{}() {{\n    let settings = Settings {{\n", story.seed);
        test += &settings(&story.settings);
        test += "        ..Settings::default()\n    };\n    let steps = vec![\n";
        for step in &story.steps {
            let _ = writeln!(test, "        {},", code(*step));
        }
        let _ = writeln!(test, "    ];\n    Story {{ seed: {}, steps, settings }}.tell();\n}}", story.seed);
        test
    }
}

/// The fields that are not those of the default world.
fn settings(settings: &Settings) -> String {
    let (it, default) = (settings, Settings::default());
    let field = |differs: bool, name: &str, value: String| {
        if differs { format!("        {name}: {value},\n") } else { String::new() }
    };
    let liveness = it.liveness.map_or("None".into(), |t| format!("Some({})", time(t)));
    [
        field(it.hosts != default.hosts, "hosts", format!("{}", it.hosts)),
        field(it.meeting != default.meeting, "meeting", format!("Meeting::{:?}", it.meeting)),
        field(it.mutual != default.mutual, "mutual", format!("{}", it.mutual)),
        field(it.v1 != default.v1, "v1", format!("{}", it.v1)),
        field(it.udp != default.udp, "udp", format!("{}", it.udp)),
        field(it.outer != default.outer, "outer", format!("Family::{:?}", it.outer)),
        field(it.behind != default.behind, "behind", format!("{:?}", it.behind)),
        field(it.symmetric != default.symmetric, "symmetric", format!("{}", it.symmetric)),
        field(it.delay != default.delay, "delay", time(it.delay)),
        field(it.nat_idle != default.nat_idle, "nat_idle", time(it.nat_idle)),
        field(it.lag != default.lag, "lag", time(it.lag)),
        field(it.radios != default.radios, "radios", format!("{:?}", it.radios)),
        field(it.stand_in != default.stand_in, "stand_in", format!("{}", it.stand_in)),
        field(it.multihoming != default.multihoming, "multihoming", format!("{}", it.multihoming)),
        field(it.liveness != default.liveness, "liveness", liveness),
        field(it.listed != default.listed, "listed", format!("{}", it.listed)),
        field(it.rekeying != default.rekeying, "rekeying", format!("{:?}", it.rekeying)),
        field(it.registration != default.registration, "registration", time(it.registration)),
        field(it.lasting != default.lasting, "lasting", lasting(it.lasting)),
        field(it.esp_in_udp != default.esp_in_udp, "esp_in_udp", format!("{}", it.esp_in_udp)),
    ]
    .concat()
}

fn lasting(Lasting { unused, lifetimes }: Lasting) -> String {
    let lifetimes = lifetimes.map(|t| t.map_or("None".into(), |t| format!("Some({})", time(t)))).join(", ");
    format!("Lasting {{ unused: {}, lifetimes: [{lifetimes}] }}", time(unused))
}

/// The settings with those of the default world, one at a time; how hosts meet, and what carries that, stays.
fn simpler_settings(settings: &Settings) -> Vec<Settings> {
    let default = Settings::default();
    let changes: [fn(&mut Settings, &Settings); 18] = [
        |s, d| s.hosts = d.hosts,
        |s, d| s.v1 = d.v1,
        |s, d| s.outer = d.outer,
        |s, d| s.symmetric = d.symmetric,
        |s, d| s.delay = d.delay,
        |s, d| s.nat_idle = d.nat_idle,
        |s, d| s.lag = d.lag,
        |s, d| s.radios = d.radios,
        |s, d| s.stand_in = d.stand_in,
        |s, d| s.multihoming = d.multihoming,
        |s, d| s.liveness = d.liveness,
        |s, d| s.listed = d.listed,
        |s, d| s.rekeying.after = d.rekeying.after,
        |s, d| s.rekeying.with_dh = d.rekeying.with_dh,
        |s, d| s.registration = d.registration,
        |s, d| s.lasting.unused = d.lasting.unused,
        |s, d| s.lasting.lifetimes = d.lasting.lifetimes,
        |s, d| s.esp_in_udp = d.esp_in_udp,
    ];
    let mut all: Vec<Settings> = changes
        .iter()
        .map(|change| {
            let mut simpler = settings.clone();
            change(&mut simpler, &default);
            simpler
        })
        .collect();
    for n in 0..settings.radios.len() {
        let mut less = settings.clone();
        less.radios[n] = false;
        all.push(less);
        let mut less = settings.clone();
        less.behind[n] = false;
        all.push(less);
        let mut less = settings.clone();
        less.lasting.lifetimes[n] = None;
        all.push(less);
    }
    if !settings.has_server() {
        all.push(Settings { mutual: true, ..settings.clone() });
        all.push(Settings { udp: false, behind: default.behind, ..settings.clone() });
    }
    all.retain(|simpler| simpler != settings);
    all
}

const HOME: Place = Place { access: Access::A, number: 0, family: Family::Both, astray: false };

fn simpler_places(place: Place) -> impl Iterator<Item = Place> {
    let simpler = [
        HOME,
        Place { access: HOME.access, ..place },
        Place { number: HOME.number, ..place },
        Place { family: HOME.family, ..place },
        Place { astray: HOME.astray, ..place },
    ];
    simpler.into_iter().filter(move |simpler| *simpler != place)
}

/// Shorter times, rounder times, and fewer things at once.
fn simpler_steps(step: &Step) -> Vec<Step> {
    match *step {
        Step::Pause(time) => shorter(time).map(Step::Pause).collect(),
        Step::Data { from, to, count } if count > 1 => {
            vec![Step::Data { from, to, count: 1 }, Step::Data { from, to, count: count / 2 }]
        }
        Step::Replay { to, number, elsewhere } if number > 0 => {
            [0, number / 2, number - 1].map(|number| Step::Replay { to, number, elsewhere }).into()
        }
        Step::Enter(n, place) => simpler_places(place).map(|place| Step::Enter(n, place)).collect(),
        Step::BothEnter([a, b]) => {
            let of = |(n, place): (usize, Place)| simpler_places(place).map(move |place| (n, place));
            let both = of(a).map(|a| [a, b]).chain(of(b).map(|b| [a, b])).map(Step::BothEnter);
            [a, b].map(|(n, place)| Step::Enter(n, place)).into_iter().chain(both).collect()
        }
        Step::Weather { loss, duplication, reordering } => {
            let calm = |loss, duplication, reordering| Step::Weather { loss, duplication, reordering };
            let simpler = [
                calm(0.0, duplication, reordering),
                calm(loss, 0.0, reordering),
                calm(loss, duplication, 0.0),
            ];
            simpler.into_iter().filter(|simpler| simpler != step).collect()
        }
        Step::Crash(n, time) => shorter(time).map(|time| Step::Crash(n, time)).collect(),
        Step::Fuse { who, outputs, down } => {
            shorter(down).map(|down| Step::Fuse { who, outputs, down }).collect()
        }
        Step::Stop(n, away) => shorter(away).map(|away| Step::Stop(n, away)).collect(),
        Step::ServerGone(time) => shorter(time).map(Step::ServerGone).collect(),
        Step::Sleep(n, time, place) => {
            let times = shorter(time).map(|time| Step::Sleep(n, time, place));
            times.chain(simpler_places(place).map(|place| Step::Sleep(n, time, place))).collect()
        }
        Step::Nap(n, time, place) => {
            let times = shorter(time).map(|time| Step::Nap(n, time, place));
            times.chain(simpler_places(place).map(|place| Step::Nap(n, time, place))).collect()
        }
        Step::Reload(n, edit) if edit != Edit::Nothing => vec![Step::Reload(n, Edit::Nothing)],
        _ => Vec::new(),
    }
}

fn place(place: Place) -> String {
    let Place { access, number, family, astray } = place;
    format!(
        "Place {{ access: Access::{access:?}, number: {number}, family: Family::{family:?}, astray: {astray} }}"
    )
}

fn code(step: Step) -> String {
    match step {
        Step::Pause(t) => format!("Step::Pause({})", time(t)),
        Step::Enter(n, at) => format!("Step::Enter({n}, {})", place(at)),
        Step::BothEnter([(a, at), (b, there)]) => {
            format!("Step::BothEnter([({a}, {}), ({b}, {})])", place(at), place(there))
        }
        Step::Crash(n, t) => format!("Step::Crash({n}, {})", time(t)),
        Step::Fuse { who, outputs, down } => {
            format!("Step::Fuse {{ who: {who}, outputs: {outputs}, down: {} }}", time(down))
        }
        Step::Stop(n, t) => format!("Step::Stop({n}, {})", time(t)),
        Step::ServerGone(t) => format!("Step::ServerGone({})", time(t)),
        Step::Sleep(n, t, at) => format!("Step::Sleep({n}, {}, {})", time(t), place(at)),
        Step::Nap(n, t, at) => format!("Step::Nap({n}, {}, {})", time(t), place(at)),
        Step::Reload(n, edit) => format!("Step::Reload({n}, Edit::{edit:?})"),
        other => format!("Step::{other:?}"),
    }
}

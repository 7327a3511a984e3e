//! Paper 001's own stack: an inner address by L2TP and PPP above IPsec with a pre-shared key, beside no IPsec and beside the inner address that
//! IKEv2 assigns itself. How long each takes to set up, how many bytes it adds to a packet, and how much a device receives. Debian's xl2tpd and
//! pppd run above the transport mode of our daemons. Owns the plan; the hosts are [`world`]'s, and where this machine has no PPP or may not be
//! changed, [`machine`] repeats the same command in a virtual one.

mod machine;
mod report;
mod world;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::STREAM_SECONDS;
use crate::campaign::{self, Campaign, Subject};
use crate::experiment::{Context, Experiment, Report, Source, Takes};
use crate::results::{self, Figures, Results};
use world::World;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "paper-001-l2tp",
    title: "Paper 001: its own stack, L2TP/IPsec with a pre-shared key, beside IKEv2's own inner address (section 4, Figure 4)",
    source: Source::Elsewhere { missing },
    takes: [Takes::measured(85), Takes::estimated(8_300)],
    lacks: || None,
    run: of,
};

/// The paper's repetitions, in both forms.
const ROUNDS: u32 = 5;
/// How long a stream lasts in the short form. In the full one as long as the paper's, [`STREAM_SECONDS`].
const SHORT_STREAM_SECONDS: f64 = 0.3;
/// The paper's sizes: bytes in a datagram of UDP.
const SIZES: [u32; 3] = [256, 512, 1_024];

/// What gives the device the address that it uses, and what protects its packets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Way {
    /// Its address on the cable; nothing is protected.
    Plain,
    /// IKEv2 assigns an address; ESP in tunnel mode.
    Ikev2,
    /// PPP assigns an address, in L2TP; ESP in transport mode.
    L2tp,
}

impl Way {
    const ALL: [Self; 3] = [Self::Plain, Self::Ikev2, Self::L2tp];
    /// Those with something to set up.
    const PROTECTED: [Self; 2] = [Self::Ikev2, Self::L2tp];

    const fn words(self) -> &'static str {
        match self {
            Self::Plain => "without a VPN",
            Self::Ikev2 => "IKEv2's own inner address",
            Self::L2tp => "L2TP/IPsec",
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
enum Point {
    /// From the command until the first packet inside is answered.
    SetUp { way: Way },
    /// One datagram on the cable.
    Packet { way: Way, bytes: u32 },
    /// As many datagrams to the device as its gateway can send.
    Stream { way: Way, bytes: u32 },
}

impl Point {
    /// In the order of the tables.
    fn all() -> Vec<Self> {
        let set_up = Way::PROTECTED.map(|way| Self::SetUp { way });
        let sized = |of: fn(Way, u32) -> Self| {
            Way::ALL.into_iter().flat_map(move |way| SIZES.map(|bytes| of(way, bytes)))
        };
        let packets = sized(|way, bytes| Self::Packet { way, bytes });
        let streams = sized(|way, bytes| Self::Stream { way, bytes });
        set_up.into_iter().chain(packets).chain(streams).collect()
    }

    const fn way(&self) -> Way {
        match *self {
            Self::SetUp { way } | Self::Packet { way, .. } | Self::Stream { way, .. } => way,
        }
    }
}

impl results::Point for Point {
    const EXPERIMENT: &'static str = EXPERIMENT.name;
    const QUANTITIES: &'static [(&'static str, &'static str)] = &[
        // From the command that begins a session until a packet to the gateway's inner address is answered, and until the session is there.
        ("set_up", "s"),
        ("session", "s"),
        // Of Ethernet without its checksum, for one datagram.
        ("on_cable", "B"),
        // Bits of payload that arrived in a second, and datagrams.
        ("rate", "bit/s"),
        ("sent", "count"),
        ("received", "count"),
    ];

    fn label(&self) -> String {
        let way = self.way().words();
        match self {
            Self::SetUp { .. } => format!("set-up, {way}"),
            Self::Packet { bytes, .. } => format!("a packet of {bytes} bytes, {way}"),
            Self::Stream { bytes, .. } => format!("a stream of {bytes} bytes, {way}"),
        }
    }
}

/// What is missing here, and for the virtual machine that could take its place.
fn missing() -> Option<String> {
    let here = world::missing()?;
    let there = machine::missing()?;
    Some(format!("{here}; or, for a virtual machine that has all of it, {there}"))
}

fn of(context: &Context) -> Result<Report> {
    Ok(report::of(&context.results(measured)?))
}

fn measured(context: &Context) -> Result<Results<Point>> {
    if let Some(path) = &context.resume {
        let kept = Results::read(path).with_context(|| path.display().to_string())?;
        // A virtual machine's is whole, or not there at all.
        if kept.finished.is_some() {
            return Ok(kept);
        }
    }
    match world::missing() {
        None => {
            let campaign = Campaign::of(context, || Ok(plan(context)))?;
            let mut stage = Stage::new(&campaign.results)?;
            campaign.finish(&mut stage, context)
        }
        Some(what) if context.resume.is_some() => bail!("it goes on only where it began, with {what}"),
        Some(_) => machine::measured(context),
    }
}

fn plan(context: &Context) -> campaign::Plan<Point> {
    let stream = if context.short { SHORT_STREAM_SECONDS } else { STREAM_SECONDS };
    campaign::Plan {
        name: context.plan().to_owned(),
        points: Point::all(),
        rounds: ROUNDS,
        seed: context.seed,
        settings: json!({ "stream_seconds": stream, "suite": world::SUITE }),
        skipped: Vec::new(),
    }
}

/// The hosts of each way, from the set-up that a round begins with to that of the next round.
struct Stage {
    worlds: BTreeMap<Way, World>,
    stream: Duration,
}

impl Stage {
    fn new(results: &Results<Point>) -> Result<Self> {
        let seconds = results.settings["stream_seconds"].as_f64();
        let seconds = seconds.filter(|s| (0.0..=3_600.0).contains(s));
        let stream = seconds.context("the file does not say how long a stream lasts")?;
        Ok(Self { worlds: BTreeMap::new(), stream: Duration::from_secs_f64(stream) })
    }

    /// The hosts of a way, with their session.
    fn world(&mut self, way: Way) -> Result<&mut World> {
        match self.worlds.get_mut(&way).filter(|world| world.is_up()) {
            Some(world) => Ok(world),
            None => bail!("nothing was prepared"),
        }
    }
}

impl Subject for Stage {
    type Point = Point;
    type Stage = bool;
    type Group = Way;
    /// A round begins with hosts that have nothing behind them: there is nothing to warm up.
    const WARMS_UP: bool = false;

    fn stage(point: &Point) -> bool {
        !matches!(point, Point::SetUp { .. })
    }

    fn group(point: &Point) -> Way {
        point.way()
    }

    fn prepare(&mut self, point: &Point) -> Result<()> {
        let way = point.way();
        let anew = matches!(point, Point::SetUp { .. });
        if anew {
            // A session that has been there leaves a ticket, and its successor would take a shorter way.
            self.worlds.remove(&way);
        }
        let world = match self.worlds.entry(way) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(place) => place.insert(World::start(way)?),
        };
        if anew || world.is_up() { Ok(()) } else { world.set_up().map(drop) }
    }

    fn measure(&mut self, point: &Point, _: u32) -> Result<Figures> {
        let stream = self.stream;
        match *point {
            Point::SetUp { way } => self.worlds.get_mut(&way).context("nothing was prepared")?.set_up(),
            Point::Packet { way, bytes } => self.world(way)?.packet(bytes),
            Point::Stream { way, bytes } => self.world(way)?.stream(bytes, stream),
        }
    }

    fn clear(&mut self) -> Result<()> {
        // Namespaces and programs go with their owners.
        self.worlds.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::stats::MIN_ROUNDS;
    use crate::paper_001;

    /// Seconds of all streams of a plan.
    fn streams(plan: &campaign::Plan<Point>) -> f64 {
        let streams = plan.points.iter().filter(|p| matches!(p, Point::Stream { .. })).count();
        let seconds = plan.settings["stream_seconds"].as_f64().expect("its length");
        f64::from(plan.rounds) * streams as f64 * seconds
    }

    /// Streams are as long as the paper's, no plan is stated to take less than its streams alone, and the virtual machine has time for it.
    #[test]
    fn the_full_plan_has_streams_as_long_as_those_of_paper_001() {
        let of = |short| plan(&Context { short, ..Context::default() });
        let full = of(false);
        assert_eq!(full.settings["stream_seconds"], paper_001::needs(false, 1).stream_seconds);
        for (n, short) in [true, false].into_iter().enumerate() {
            let plan = of(short);
            assert!(usize::try_from(plan.rounds).expect("few") >= MIN_ROUNDS, "{}", plan.rounds);
            let takes = f64::from(EXPERIMENT.takes[n].seconds);
            assert!(takes > streams(&plan), "{takes} s for {} s of streams", streams(&plan));
            assert!(f64::from(machine::LIMITS[n]) > 2.0 * takes, "{takes} s");
        }
    }
}

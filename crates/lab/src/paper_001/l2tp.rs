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

use crate::campaign::{self, Campaign, Subject};
use crate::experiment::{Context, Experiment, Report, Source, Takes};
use crate::results::{self, Figures, Results};
use world::World;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "paper-001-l2tp",
    title: "Paper 001: its own stack, L2TP/IPsec with a pre-shared key, beside IKEv2's own inner address (section 4, Figure 4)",
    source: Source::Elsewhere { missing },
    takes: [Takes::estimated(80), Takes::estimated(1_200)],
    lacks: || None,
    run: of,
};

const ROUNDS: u32 = 10;
const SHORT_ROUNDS: u32 = 5;
/// How long a stream lasts. The paper's last three minutes, on hosts that do nothing else.
const STREAM: Duration = Duration::from_secs(10);
const SHORT_STREAM: Duration = Duration::from_millis(300);
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
    let (rounds, stream) = if context.short { (SHORT_ROUNDS, SHORT_STREAM) } else { (ROUNDS, STREAM) };
    campaign::Plan {
        name: context.plan().to_owned(),
        points: Point::all(),
        rounds,
        seed: context.seed,
        settings: json!({ "stream_seconds": stream.as_secs_f64(), "suite": world::SUITE }),
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

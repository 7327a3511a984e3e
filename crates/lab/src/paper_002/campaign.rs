//! The points of paper 002 and how each is measured. Owns the plan, the keys and the pair in use; must never conclude anything.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dormouse_crypto::hip::DhGroup;
use serde::{Deserialize, Serialize};

use super::hosts::{self, Hosts};
use super::key_pairs::{self, Algorithm};
use super::many;
use super::pair::{ENDS, Key, Pair, STAGES, Setup};
use crate::campaign::{self, Subject};
use crate::results::format::Skipped;
use crate::results::{self, Figures};

/// Rounds.
const ROUNDS: u32 = 5;
/// Associations at one responder, at most.
pub(super) const MOST: u32 = 10_000;
/// Exchanges of one round at a point.
const REPEATS: usize = 10;
/// The same where the puzzle decides how long it takes, which is a matter of luck.
const MANY: usize = 30;
/// From this difficulty on.
const HARD: u8 = 12;
/// From this one on it takes so long that there are fewer.
const HARDEST: u8 = 18;
/// The difficulty that RFC 5201 appendix A proposes, and the group that the paper's programs had by default.
pub(super) const PAPER: (u8, u8) = (3, 10);
/// The daemons' keys where it is not keys that are compared: what `dormouse hip keygen` makes unless told otherwise.
const LIVE: Key = Key::P256;
/// Our own defaults: the first group of the list, and the difficulty without load.
pub(super) const OURS: (u8, u8) = (8, 4);

/// How HIP and ESP travel between the daemons.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Carrier {
    /// As IP protocols 139 and 50: the paper's.
    Ip,
    /// In UDP.
    Udp,
}

impl Carrier {
    pub(super) const ALL: [Self; 2] = [Self::Ip, Self::Udp];

    /// As the configuration has it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::Udp => "udp",
        }
    }
}

/// What is held fixed while one thing is measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub(super) enum Point {
    /// I1, R1, I2, R2 with this Diffie-Hellman group and puzzle.
    BaseExchange { key: Key, group: u8, k: u8 },
    /// A new address of the initiator's, until the responder has verified it.
    Update { key: Key },
    /// A key pair of so many bits.
    KeyPair { algorithm: Algorithm, bits: u32 },
    /// So many initiators, one after the other, all of which the responder keeps.
    Responder { key: Key, associations: u32 },
    /// So many initiators at once, and the shipped daemon as their responder, which keeps all of them.
    Server { associations: u32 },
    /// One TCP stream from the device to the server, with `hip` through daemons of their own.
    Transfer {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hip: Option<Carrier>,
        #[serde(flatten)]
        link: Link,
    },
    /// The device's daemon, when it starts, in exchanges, in moves, and idle.
    Daemon { key: Key },
}

/// The air between the daemons' hosts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) struct Link {
    /// Encrypted below IP.
    pub(super) encrypted: bool,
    /// As fast as the WLAN of the paper's laptop; else without a limit.
    pub(super) limited: bool,
}

impl Link {
    pub(super) const ALL: [Self; 4] = [
        Self { encrypted: false, limited: true },
        Self { encrypted: true, limited: true },
        Self { encrypted: false, limited: false },
        Self { encrypted: true, limited: false },
    ];
}

impl Point {
    /// Whether it is measured on daemons.
    const fn is_live(self) -> bool {
        matches!(self, Self::Server { .. } | Self::Transfer { .. } | Self::Daemon { .. })
    }
}

impl results::Point for Point {
    const EXPERIMENT: &'static str = super::EXPERIMENT.name;
    const QUANTITIES: &'static [(&'static str, &'static str)] = &[
        // Processor time of the stages of a base exchange, a number for each exchange.
        ("i1", "ms"),
        ("r1", "ms"),
        ("t2", "ms"),
        ("t3", "ms"),
        ("t4", "ms"),
        // Of the end that moves, and of its peer.
        ("mover", "ms"),
        ("peer", "ms"),
        // Of a key pair, and of the program that makes it, or its parameters, when it makes nothing.
        ("created", "ms"),
        ("started", "ms"),
        // Of the responder for all its associations.
        ("responder", "ms"),
        // Elapsed until it has all of them, and by how much its memory has grown then.
        ("associated", "ms"),
        ("held_memory", "B"),
        // Of a TCP stream, and the daemons' CPU time for it.
        ("throughput", "B/s"),
        ("device_per_byte", "ns/B"),
        ("server_per_byte", "ns/B"),
        // Until the device's daemon answers its control socket; its CPU time and resident memory then.
        ("ready", "ms"),
        ("start_cpu", "ms"),
        ("start_memory", "B"),
        // Elapsed until a TCP connection is answered whose first packet waits for a base exchange, and both daemons' CPU time for it.
        ("answered", "ms"),
        ("device_cpu", "ms"),
        ("server_cpu", "ms"),
        ("exchange_memory", "B"),
        // Elapsed from a change of the device's address until a packet from its new one is answered.
        ("moved", "ms"),
        // CPU time of each second.
        ("idle_cpu", "1"),
        ("idle_memory", "B"),
        ("own_memory", "B"),
    ];

    fn label(&self) -> String {
        match *self {
            Self::BaseExchange { key, group, k } => {
                format!("base exchange, {}, group {group}, K = {k}", key.words())
            }
            Self::Update { key } => format!("UPDATE, {}", key.words()),
            Self::KeyPair { algorithm, bits } => format!("key pair, {algorithm:?}-{bits}"),
            Self::Responder { key, associations } => format!("{associations} associations, {}", key.words()),
            Self::Server { associations } => format!("{associations} associations at one daemon"),
            Self::Transfer { hip, link } => {
                let mut words = match hip {
                    None => "TCP",
                    Some(Carrier::Ip) => "TCP with HIP",
                    Some(Carrier::Udp) => "TCP with HIP in UDP",
                }
                .to_owned();
                words += if link.encrypted { ", encrypted below" } else { "" };
                words + if link.limited { ", as fast as a laptop's WLAN" } else { "" }
            }
            Self::Daemon { key } => format!("daemon, {}", key.words()),
        }
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        match *self {
            Self::BaseExchange { group: id, .. } if group(id).is_none() => {
                Err(("group", format!("{id} is no group of HIP")))
            }
            Self::BaseExchange { k, .. } if k > MOST_K => Err(("k", format!("{k} is more than {MOST_K}"))),
            Self::Responder { associations, .. } | Self::Server { associations }
                if !(1..=MOST).contains(&associations) =>
            {
                Err(("associations", format!("{associations}: 1 to {MOST}")))
            }
            _ => Ok(()),
        }
    }
}

/// The hardest puzzle of the paper's campaign.
const MOST_K: u8 = 20;

/// Also those that protect nothing, and that the paper measured.
fn group(id: u8) -> Option<DhGroup> {
    DhGroup::by_id(id).or_else(|| DhGroup::for_measurement(id))
}

/// With so few associations at most it is a look at the short form: everything once, and no conclusion.
const LOOK: u32 = 100;
/// Associations of the short form, which has nothing that takes long.
pub(super) const SHORT_MOST: u32 = 1_000;
/// The hardest puzzle of that, and its longest key pair in bits.
const SHORT_OF: (u8, u32) = (16, 1_024);
/// Associations with the paper's keys, which take longer to make than to use.
pub(super) const PAPERS_MOST: u32 = 100;

/// Up to `most` associations at the responder.
pub(super) fn plan(name: &str, most: u32, short: bool, seed: u64) -> campaign::Plan<Point> {
    let look = most <= LOOK;
    let short = short || look;
    let (hardest, longest) = if short { SHORT_OF } else { (MOST_K, 2_048) };
    let exchange = |key, (group, k)| Point::BaseExchange { key, group, k };
    let mut points: Vec<Point> = Key::ALL
        .into_iter()
        .flat_map(|key| key.settings().iter().map(move |with| exchange(key, *with)))
        .collect();
    // Of primes alone in version 1, which has other groups by the other numbers, or none; today's in version 2.
    points.extend([1, 2, PAPER.0, 4].map(|group| exchange(Key::Rsa1024V1, (group, PAPER.1))));
    points.extend([PAPER.0, 11, 4, 7, 8, 9].map(|group| exchange(Key::Rsa2048, (group, PAPER.1))));
    // Each difficulty, and in the short form every fourth.
    let step = if short { 4 } else { 1 };
    points.extend((0..=hardest).step_by(step).map(|k| exchange(Key::Rsa1024V1, (PAPER.0, k))));
    points.extend(Key::ALL.map(|key| Point::Update { key }));
    let lengths = [512, 1_024, 2_048].into_iter().filter(|bits| *bits <= longest);
    points.extend(lengths.flat_map(|bits| {
        [Algorithm::Rsa, Algorithm::Dsa].map(|algorithm| Point::KeyPair { algorithm, bits })
    }));
    let sizes: Vec<u32> = [100, 1_000, MOST].into_iter().filter(|n| *n < most).chain([most]).collect();
    points.extend(sizes.iter().map(|&associations| Point::Responder { key: Key::P256, associations }));
    points.push(Point::Responder { key: Key::Rsa1024V1, associations: most.min(PAPERS_MOST) });
    let mut skipped = Vec::new();
    match hosts::missing() {
        None => {
            let ways = [None].into_iter().chain(Carrier::ALL.map(Some));
            points.extend(
                Link::ALL
                    .into_iter()
                    .flat_map(|link| ways.clone().map(move |hip| Point::Transfer { hip, link })),
            );
            points.extend(sizes.iter().map(|&associations| Point::Server { associations }));
            points.extend([Key::Rsa2048, Key::P256].map(|key| Point::Daemon { key }));
        }
        Some(what) => {
            let reason = format!("network namespaces need {what}");
            skipped.push(Skipped::new("throughput, CPU and memory of the daemons", reason));
        }
    }
    points.sort_unstable();
    points.dedup();
    campaign::Plan {
        name: name.to_owned(),
        points,
        rounds: if look { 1 } else { ROUNDS },
        seed,
        settings: serde_json::Value::Null,
        skipped,
    }
}

/// Keys and hosts.
pub(super) struct Bench {
    seed: u64,
    /// The keys of both ends, by kind: made once, so that making them is in no other measurement.
    keys: Vec<(Key, [Vec<u8>; 2])>,
    /// The paper's keys of many initiators, which take long to make.
    others: Vec<Vec<u8>>,
    pair: Option<Pair>,
    /// Where the daemons run.
    hosts: Option<Hosts>,
}

impl Bench {
    pub(super) const fn new(seed: u64) -> Self {
        Self { seed, keys: Vec::new(), others: Vec::new(), pair: None, hosts: None }
    }

    fn keys(&mut self, kind: Key) -> Result<&[Vec<u8>; 2]> {
        let at = match self.keys.iter().position(|(k, _)| *k == kind) {
            Some(at) => at,
            None => {
                let [a, b] = ENDS.map(|_| kind.generate());
                self.keys.push((kind, [a?, b?]));
                self.keys.len() - 1
            }
        };
        self.keys.get(at).map(|(_, keys)| keys).context("the key that was made")
    }

    fn pair(&mut self, key: Key, id: u8, k: u8) -> Result<Pair> {
        let seed = self.seed;
        let group = group(id).context("no such group")?;
        let [a, b] = self.keys(key)?;
        Pair::new(Setup { key: a, group, k }, Setup { key: b, group, k }, seed)
    }

    fn hosts(&mut self) -> Result<&mut Hosts> {
        if self.hosts.is_none() {
            self.hosts = Some(Hosts::new()?);
        }
        self.hosts.as_mut().context("no hosts were made")
    }

    fn standing(&mut self) -> Result<&mut Pair> {
        self.pair.as_mut().context("no hosts were prepared")
    }

    fn exchanges(&mut self, repeats: usize) -> Result<Figures> {
        let pair = self.standing()?;
        let all = (0..repeats).map(|_| pair.base_exchange()).collect::<Result<Vec<_>>>()?;
        Ok(STAGES.into_iter().enumerate().fold(Figures::default(), |figures, (at, name)| {
            figures.with_all(name, all.iter().filter_map(|stages| stages.get(at)).map(|t| millis(*t)))
        }))
    }

    fn updates(&mut self) -> Result<Figures> {
        let pair = self.standing()?;
        let all = (0..REPEATS).map(|_| pair.update()).collect::<Result<Vec<_>>>()?;
        Ok(Figures::default()
            .with_all("mover", all.iter().map(|[mover, _]| millis(*mover)))
            .with_all("peer", all.iter().map(|[_, peer]| millis(*peer))))
    }

    fn initiators_key(&mut self, key: Key, number: usize) -> Result<Vec<u8>> {
        if key != Key::Rsa1024V1 {
            return key.generate();
        }
        while self.others.len() <= number {
            self.others.push(key.generate()?);
        }
        self.others.get(number).cloned().context("the key that was made")
    }

    fn responder(&mut self, key: Key, associations: u32) -> Result<Figures> {
        let with = *key.settings().last().context("no setting")?;
        let mut pair = self.pair(key, with.0, with.1)?;
        let group = group(with.0).context("no such group")?;
        let mut spent = Duration::ZERO;
        for n in 0..associations {
            let fresh = self.initiators_key(key, n as usize)?;
            let setup = Setup { key: &fresh, group, k: with.1 };
            let address = Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 1).to_bits() + n);
            pair.replace_initiator(setup, address, self.seed ^ u64::from(n))?;
            let [_, r1, _, t3, _] = pair.base_exchange()?;
            spent += r1 + t3;
        }
        ensure!(pair.held() == associations as usize, "the responder has {} of {associations}", pair.held());
        Ok(Figures::default().with("responder", millis(spent)))
    }
}

pub(super) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl Subject for Bench {
    type Point = Point;
    /// What runs in this process first: nothing else is there then.
    type Stage = bool;
    type Group = Point;

    fn stage(point: &Point) -> bool {
        point.is_live()
    }

    fn group(point: &Point) -> Point {
        *point
    }

    fn begin_round(&mut self, _: u32) {
        self.hosts = None;
    }

    fn prepare(&mut self, point: &Point) -> Result<()> {
        self.pair = match *point {
            Point::BaseExchange { key, group, k } => Some(self.pair(key, group, k)?),
            Point::Update { key } => {
                let (group, k) = *key.settings().last().context("no setting")?;
                Some(self.pair(key, group, k)?)
            }
            Point::KeyPair { .. } | Point::Server { .. } => None,
            Point::Responder { key, associations } => {
                self.keys(key)?;
                self.initiators_key(key, associations.saturating_sub(1) as usize)?;
                None
            }
            Point::Transfer { hip, link } => {
                let hosts = self.hosts()?;
                hosts.set(link)?;
                hosts.verify(hip.map(|carrier| (LIVE, carrier)))?;
                None
            }
            Point::Daemon { .. } => {
                self.hosts()?.set(Link { encrypted: false, limited: false })?;
                None
            }
        };
        if let Some(pair) = &mut self.pair {
            // The first exchange also makes the responder's group key and signs its R1, which the paper has ahead.
            pair.base_exchange()?;
        }
        Ok(())
    }

    fn measure(&mut self, point: &Point, round: u32) -> Result<Figures> {
        match *point {
            Point::BaseExchange { k, .. } => self.exchanges(match k {
                _ if round == 0 => 1,
                HARD..HARDEST => MANY,
                _ => REPEATS,
            }),
            Point::Update { .. } => self.updates(),
            Point::KeyPair { algorithm, bits } => key_pairs::measure(algorithm, bits, round == 0),
            Point::Responder { key, associations } => {
                self.responder(key, if round == 0 { associations.min(10) } else { associations })
            }
            Point::Server { associations } => {
                many::measure(if round == 0 { associations.min(10) } else { associations }, self.seed)
            }
            Point::Transfer { hip, link } => {
                let hip = hip.map(|carrier| (LIVE, carrier));
                self.hosts()?.transfer(hip, link.limited, round == 0)
            }
            Point::Daemon { key } => self.hosts()?.daemon(key, if round == 0 { 1 } else { REPEATS }),
        }
    }

    fn clear(&mut self) -> Result<()> {
        (self.pair, self.hosts) = (None, None);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::{Algorithm, Bench, Key, Point, plan};
    use crate::campaign::{Campaign, Ended};
    use crate::judge::Finding;
    use crate::paper_002::report;

    #[test]
    fn every_kind_of_point_is_measured_and_what_is_missing_is_not_judged() {
        let mut plan = plan("chosen", 5, false, 7);
        plan.rounds = 2;
        plan.points = vec![
            Point::BaseExchange { key: Key::P256, group: 7, k: 1 },
            Point::BaseExchange { key: Key::P384, group: 1, k: 0 },
            Point::Update { key: Key::P256 },
            Point::Update { key: Key::Rsa1024V1 },
            Point::KeyPair { algorithm: Algorithm::Dsa, bits: 512 },
            Point::KeyPair { algorithm: Algorithm::Rsa, bits: 512 },
            Point::Responder { key: Key::P256, associations: 5 },
            Point::Responder { key: Key::Rsa1024V1, associations: 2 },
        ];
        let mut campaign = Campaign::new(plan, None).unwrap();
        let ended = campaign.run(&mut Bench::new(7), &AtomicBool::new(false), &mut |_| ()).unwrap();
        assert_eq!(ended, Ended::Finished);
        let results = campaign.results;
        assert!(results.discarded.is_empty(), "{:?}", results.discarded);
        results.check().unwrap();
        let names = [
            &["i1", "r1", "t2", "t3", "t4"][..],
            &["mover", "peer"],
            &["created", "started"],
            &["responder"],
        ];
        for sample in &results.samples {
            let measured = names.iter().find(|names| sample.all(names[0]).next().is_some());
            let measured = measured.unwrap_or_else(|| panic!("{:?}", sample.point));
            assert!(measured.iter().all(|name| sample.all(name).all(|ms| ms > 0.0)), "{sample:?}");
        }
        assert_eq!(results.samples[0].all("t2").count(), 20);
        // Neither the paper's key nor its puzzle is among them.
        let report = report::of(&results).unwrap();
        let findings: Vec<_> = report.claims.iter().filter_map(|c| c.finding).collect();
        assert!(
            !findings.is_empty() && findings.iter().all(|f| *f == Finding::NotMeasurable),
            "{findings:?}"
        );
    }
}

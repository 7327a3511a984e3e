//! What is true of numbered packets behind an access router with esp-arq, after any losses, moves and crashes. A packet arrives once; it waits at the device no longer
//! than is said; and while the radio is repaired, all that the router has sent arrive, in their order.
//!
//! That the radio is repaired is seen from outside: the router answers the device's reports about an SA again and again, and these come without a pause.

use crate::scene::{RADIO, Scene, UNDER_WAY};
use dormouse_sansio::Instant;
use dormouse_snoop::arq::Limits;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A router answers twice a second; some answers are lost.
const ROW: Duration = Duration::from_millis(1_600);
/// A device that knows of a router reports sooner, as long as packets come; one that asks for a router does not. It asks too where nothing else is to be seen: its
/// session has confirmed its path anew.
const PAUSE: Duration = Duration::from_millis(150);
/// Of one packet on the radio, and of others before it.
const AIR_TIME: Duration = Duration::from_millis(20);
/// A report that is lost, or a repetition, costs this much; a repair goes on for so long.
const REPAIR: Duration = Duration::from_secs(1);

/// Times in which the packets of an SA were repaired: from the second answer of a row on, until the last, or until something happens.
#[derive(Debug)]
pub(crate) struct Repaired(Vec<(u32, Instant, Instant)>);

impl Repaired {
    pub(crate) fn of(scene: &Scene) -> Self {
        let mut rows: BTreeMap<u32, Vec<Instant>> = BTreeMap::new();
        let air = scene.air();
        for (at, spi) in &air.answers {
            rows.entry(*spi).or_default().push(*at);
        }
        let mut pauses: BTreeMap<u32, Vec<(Instant, Instant)>> = BTreeMap::new();
        let mut last: BTreeMap<u32, Instant> = BTreeMap::new();
        for (at, _, report) in &air.reports {
            let spi = u32::from_be_bytes(*report[12..].first_chunk().expect("an SPI"));
            let before = last.insert(spi, *at).filter(|before| *at - *before > PAUSE);
            pauses.entry(spi).or_default().extend(before.map(|before| (before, *at)));
        }
        let trouble = |from: Instant, to: Instant| scene.troubles.iter().any(|at| (from..=to).contains(at));
        let mut all = Vec::new();
        for (spi, answers) in rows {
            let paused = |from: Instant, to: Instant| {
                pauses.get(&spi).into_iter().flatten().any(|(begin, end)| *begin < to && from < *end)
            };
            let breaks = |pair: &[Instant]| {
                pair[1] - pair[0] > ROW || trouble(pair[0], pair[1]) || paused(pair[0], pair[1])
            };
            for row in answers.chunk_by(|a, b| !breaks(&[*a, *b])) {
                if let [_, second, .., last] = row {
                    all.push((spi, *second, *last));
                }
            }
        }
        Self(all)
    }

    /// Whether the packets of an SA were, from one time to another.
    fn is(&self, spi: u32, from: Instant, to: Instant) -> bool {
        self.0.iter().any(|(of, begin, end)| *of == spi && *begin <= from && to <= *end)
    }
}

impl Scene {
    /// See the module. How many packets were repaired times or not, and how many of the others were lost.
    pub(crate) fn assert_laws(&mut self, seed: u64) -> usize {
        self.run(Duration::from_secs(5));
        for arrived in [&self.to_device.arrived, &self.to_gateway.arrived] {
            let once: BTreeSet<u64> = arrived.iter().map(|(number, _)| *number).collect();
            assert_eq!(once.len(), arrived.len(), "one arrived twice; seed {seed}");
        }
        let repaired = Repaired::of(self);
        let air = self.air();
        let arrivals: BTreeMap<u64, Instant> = self.to_device.arrived.iter().copied().collect();
        let hold = Limits::default().hold;
        let mut counted = 0;
        for (number, way) in &air.ways {
            let (Some(first), Some(last)) = (way.passed.first(), way.passed.last()) else { continue };
            let arrival = arrivals.get(number);
            if let Some(arrival) = arrival {
                let waited = *arrival - *last;
                assert!(waited <= RADIO + AIR_TIME + hold, "{number} waited for {waited:?}; seed {seed}");
            }
            let safe = repaired.is(way.spi, *first, *first + REPAIR);
            counted += usize::from(safe);
            let given_up = way.passed.len() > Limits::default().tries as usize;
            assert!(
                !safe || arrival.is_some() || given_up,
                "{number} was repeated {} times, and is lost; seed {seed}",
                way.passed.len()
            );
        }
        self.assert_order(&repaired, &air.ways, seed);
        counted
    }

    /// Where the radio loses nothing, packets are lost by what happens to a world alone, and soon after it.
    pub(crate) fn assert_nothing_is_lost(&self, seed: u64) {
        for (way, what) in [(&self.to_device, "to the device"), (&self.to_gateway, "to the gateway")] {
            let arrived: BTreeSet<u64> = way.arrived.iter().map(|(number, _)| *number).collect();
            for (number, sent) in (0..).zip(&way.sent) {
                let mut losses = self.losses.iter();
                let excused = losses.any(|(from, to)| *sent + UNDER_WAY >= *from && sent <= to);
                let came = arrived.contains(&number);
                assert!(came || excused, "{number} {what}, sent at {sent:?}, is lost; seed {seed}");
            }
        }
    }

    /// Those of each SA in order, but for packets that came after the device had waited for them long enough.
    fn assert_order(&self, repaired: &Repaired, ways: &BTreeMap<u64, crate::air::Way>, seed: u64) {
        let mut highest: BTreeMap<u32, u64> = BTreeMap::new();
        for (number, arrival) in &self.to_device.arrived {
            let Some(way) = ways.get(number) else { continue };
            let highest = highest.entry(way.spi).or_insert(*number);
            if *number >= *highest {
                *highest = *number;
                continue;
            }
            let Some(first) = way.passed.first() else { continue };
            let waited = *arrival - *first;
            let safe = repaired.is(way.spi, *first, *arrival);
            let hold = Limits::default().hold;
            assert!(
                !safe || waited >= hold,
                "{number} came {waited:?} after it was sent, behind {highest}; seed {seed}"
            );
        }
    }
}

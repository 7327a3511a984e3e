//! Stories: what happens to the two ends, drawn from a seed. Owns the odds; the world owns what each step means.

use crate::world::Access;
use dormouse_sansio::{Entropy, Seeded};
use std::time::Duration;

/// One thing that happens.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Step {
    /// Time passes.
    Pause(Duration),
    /// The device enters a network, leaving the one that it was in.
    Enter(Access),
    /// The device is in no network.
    Leave,
    /// The device suspends for this long, then wakes in a network.
    Sleep(Duration, Access),
    /// The same, but the device announces it to the gateway first.
    Nap(Duration, Access),
    /// The NAT forgets its mappings.
    NatForgets,
    /// From now on the links lose, duplicate and reorder with these probabilities.
    Weather {
        /// Probability of loss.
        loss: f64,
        /// Probability of duplication.
        duplication: f64,
        /// Probability of reordering.
        reordering: f64,
    },
    /// The gateway dies and is back after this long. Its ticket keys survive if the flag is set.
    GatewayCrash(Duration, bool),
    /// The device's daemon dies and is back after this long.
    DeviceCrash(Duration),
    /// Packets through the tunnel, from the device and from behind the gateway.
    Data(u8),
    /// The device rekeys its CHILD SAs; the gateway too if the flag is set, at the same moment.
    RekeyChild(bool),
    /// The device rekeys its IKE SA; the gateway too if the flag is set, at the same moment.
    RekeyIke(bool),
    /// The gateway deletes a CHILD SA, of those that it has the one of this number.
    DeleteChild(u8),
    /// An end's process dies instead of carrying out what it wants done after so many outputs more, and is back after this long.
    Fuse {
        /// The gateway; otherwise the device.
        gateway: bool,
        /// Outputs that it still carries out.
        outputs: u32,
        /// How long it is away.
        down: Duration,
    },
    /// The user disconnects, and connects again after this long.
    DownUp(Duration),
    /// An end's daemon is stopped, in order, and is back after this long.
    Stop {
        /// The gateway's; otherwise the device's.
        gateway: bool,
        /// How long it is away.
        away: Duration,
    },
    /// An end's daemon reads its configuration again.
    Reload {
        /// The gateway's; otherwise the device's.
        gateway: bool,
        /// What has changed in it.
        edit: Edit,
    },
}

/// What a reload finds in the configuration.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Edit {
    /// What was there.
    Nothing,
    /// The gateway's other pool.
    Pool,
    /// Another lifetime of the first CHILD SA, in seconds.
    Rekey(u32),
}

/// A story.
#[derive(Clone, PartialEq, Debug)]
pub struct Script(pub Vec<Step>);

impl Script {
    /// The story of `seed`: between 4 and 24 steps, and in every second one up to two of an administrator.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        let mut rng = Seeded::new(seed ^ 0x5c21_9700_51ee_9000);
        let steps = 4 + rng.below(21);
        let mut steps: Vec<Step> = (0..steps).map(|_| step(&mut rng)).collect();
        // Beside the others: the stories of the other seeds stay what they were.
        let mut rng = Seeded::new(seed ^ 0x0ad3_1215_7a70_0000);
        if rng.below(2) == 0 {
            for _ in 0..1 + rng.below(2) {
                let at = usize::try_from(rng.below(steps.len() as u64 + 1)).unwrap_or(0);
                steps.insert(at, administration(&mut rng));
            }
        }
        Self(steps)
    }
}

fn administration(rng: &mut Seeded) -> Step {
    let gateway = rng.below(2) == 0;
    match rng.below(5) {
        0..=1 => Step::Stop { gateway, away: seconds(rng, 32) },
        2 => Step::Reload { gateway, edit: Edit::Nothing },
        3 => Step::Reload { gateway: true, edit: Edit::Pool },
        _ => Step::Reload { gateway, edit: Edit::Rekey([10, 60, 3_600][rng.below(3) as usize % 3]) },
    }
}

/// Up to so many seconds, short and long alike.
pub(crate) fn seconds(rng: &mut Seeded, most: u64) -> Duration {
    // The exponent is uniform.
    let exponent = rng.below(u64::from(most.max(2).ilog2()) + 1);
    Duration::from_millis(rng.below(1000 << exponent))
}

fn access(rng: &mut Seeded) -> Access {
    if rng.below(2) == 0 { Access::A } else { Access::B }
}

/// A probability.
pub(crate) fn share(rng: &mut Seeded, most: u64) -> f64 {
    rng.below(most) as f64 / 100.0
}

fn step(rng: &mut Seeded) -> Step {
    match rng.below(17) {
        0..=2 => Step::Pause(seconds(rng, 64)),
        3..=4 => Step::Enter(access(rng)),
        5 => Step::Leave,
        6 => Step::Sleep(seconds(rng, 1024), access(rng)),
        7 => Step::Nap(seconds(rng, 8192), access(rng)),
        8 => Step::NatForgets,
        9 => Step::Weather { loss: share(rng, 50), duplication: share(rng, 30), reordering: share(rng, 30) },
        10 => Step::GatewayCrash(seconds(rng, 32), rng.below(3) > 0),
        11 => Step::DeviceCrash(seconds(rng, 32)),
        12..=13 => Step::Data(1 + rng.below(8) as u8),
        14 => {
            let both = rng.below(2) == 0;
            match rng.below(5) {
                0..=1 => Step::RekeyChild(both),
                2..=3 => Step::RekeyIke(both),
                _ => Step::DeleteChild(rng.below(4) as u8),
            }
        }
        15 => Step::DownUp(seconds(rng, 16)),
        _ => Step::Fuse {
            gateway: rng.below(2) == 0,
            outputs: u32::try_from(rng.below(40)).unwrap_or(0),
            down: seconds(rng, 16),
        },
    }
}

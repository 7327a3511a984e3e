//! What happens in a world of several gateways, drawn from a seed. Owns the odds; the world owns what each step means.

use dormouse_sansio::{Entropy, Seeded};

/// One thing that happens. Gateways and devices are named by numbers, of which the world takes the rest by how many it has. What has a time
/// `ms` goes on for so many milliseconds, while the story goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Time passes.
    Pause {
        /// So much.
        ms: u64,
    },
    /// Packets through the tunnel, from each device and to it.
    Data {
        /// So many.
        count: u8,
    },
    /// A device is in its other network.
    Move {
        /// Which.
        device: u8,
    },
    /// A device sleeps.
    Sleep {
        /// Which.
        device: u8,
        /// How long.
        ms: u64,
        /// It says so before.
        announced: bool,
    },
    /// A device's process dies, and is back.
    DeviceCrash {
        /// Which.
        device: u8,
        /// How long it is away.
        ms: u64,
    },
    /// A user disconnects, and connects again.
    DownUp {
        /// Of which device.
        device: u8,
        /// How long it is away.
        ms: u64,
    },
    /// A device asks for a new IKE SA in the place of the one that it has.
    Rekey {
        /// Which.
        device: u8,
    },
    /// A gateway's process dies, and is back as soon as it can be.
    GatewayCrash {
        /// Which.
        gateway: u8,
        /// How long it is away.
        ms: u64,
    },
    /// A gateway's daemon is stopped in order, and is back as soon as it can be.
    GatewayStop {
        /// Which.
        gateway: u8,
        /// How long it is away.
        ms: u64,
    },
    /// A gateway is drained: its devices go to the others, it stops, and is back as soon as it can be.
    Drain {
        /// Which.
        gateway: u8,
        /// How long clients that are awake have.
        within_ms: u64,
        /// How long it is away then.
        ms: u64,
    },
    /// The gateways' common address is led to this one.
    Lead {
        /// Which.
        gateway: u8,
    },
    /// Devices do not reach a gateway, nor it them.
    Deaf {
        /// Which.
        gateway: u8,
        /// How long.
        ms: u64,
    },
    /// A gateway does not reach the store, and hears nothing of why.
    Cut {
        /// Which.
        gateway: u8,
        /// How long.
        ms: u64,
    },
    /// A gateway's connection to the store breaks.
    Break {
        /// Which.
        gateway: u8,
    },
    /// Of so many in a hundred statements a gateway's connection breaks, before the commit or after.
    Flaky {
        /// In a hundred.
        percent: u8,
    },
    /// From now on statements take up to so long.
    Slow {
        /// There and back.
        ms: u64,
    },
    /// The store is gone, and comes back as it was.
    StoreDown {
        /// How long.
        ms: u64,
    },
    /// Another server takes over.
    Failover {
        /// Commits of the last so many milliseconds are lost.
        lost_ms: u64,
        /// How long until it does.
        ms: u64,
    },
    /// Datagrams of devices and gateways are lost.
    Weather {
        /// Of a hundred.
        loss: u8,
    },
    /// An administrator refuses a device.
    Deny {
        /// At which gateway.
        gateway: u8,
        /// Which.
        device: u8,
    },
    /// And takes it back, if the gateway can tell the others.
    Allow {
        /// At which gateway.
        gateway: u8,
        /// Which.
        device: u8,
    },
    /// A thief copies a device's disk.
    Copy {
        /// Of which.
        device: u8,
    },
    /// The thief comes with what the disk had.
    Thief {
        /// How long.
        ms: u64,
    },
}

impl Step {
    /// Nothing goes wrong by it. A move may: what waits is sent when the device is heard, which may be before its new address is.
    pub(crate) fn is_calm(&self) -> bool {
        matches!(
            self,
            Self::Pause { .. }
                | Self::Data { .. }
                | Self::Sleep { .. }
                | Self::Rekey { .. }
                | Self::Drain { .. }
        )
    }
}

/// The story of `seed`: between 4 and 28 steps.
pub(crate) fn random(seed: u64) -> Vec<Step> {
    let mut rng = Seeded::new(seed ^ 0x5c21_c105_7e20_9000);
    let count = 4 + rng.below(25);
    (0..count).map(|_| step(&mut rng)).collect()
}

/// The same, with a thief more often.
pub(crate) fn with_thieves(seed: u64) -> Vec<Step> {
    let mut rng = Seeded::new(seed ^ 0x7e1e_0000_0000_0000);
    let mut steps = random(seed);
    for _ in 0..=rng.below(3) {
        let at = usize::try_from(rng.below(steps.len() as u64 + 1)).unwrap_or(0);
        let (device, ms) = (u8::try_from(rng.below(12)).unwrap_or(0), 500 + up_to(&mut rng, 256));
        steps.splice(at..at, [Step::Copy { device }, Step::Thief { ms }]);
    }
    steps
}

/// The same, and gateways are drained: one or two, of devices that sleep or do not. What else happens is what it was without.
pub(crate) fn with_drains(seed: u64) -> Vec<Step> {
    let mut rng = Seeded::new(seed ^ 0xd4a1_0000_0000_0000);
    let mut steps = random(seed);
    for _ in 0..=rng.below(2) {
        let at = usize::try_from(rng.below(steps.len() as u64 + 1)).unwrap_or(0);
        steps.splice(at..at, drain(&mut rng));
    }
    steps
}

/// The same, and gateways die for so long that others notice, or come back at once; the common address is led elsewhere, also for nothing.
pub(crate) fn with_takeovers(seed: u64) -> Vec<Step> {
    let mut rng = Seeded::new(seed ^ 0x7a4e_0000_0000_0000);
    let mut steps = random(seed);
    for _ in 0..=rng.below(3) {
        let at = usize::try_from(rng.below(steps.len() as u64 + 1)).unwrap_or(0);
        let gateway = u8::try_from(rng.below(6)).unwrap_or(0);
        let after = Step::Pause { ms: 30_000 + up_to(&mut rng, 32) };
        let fault = match rng.below(6) {
            0 => vec![Step::Lead { gateway }],
            1 => vec![Step::Cut { gateway, ms: 60_000 }, Step::Lead { gateway: gateway + 1 }, after],
            2 => vec![Step::GatewayCrash { gateway, ms: up_to(&mut rng, 2) }],
            _ => vec![Step::GatewayCrash { gateway, ms: 30_000 + up_to(&mut rng, 64) }, after],
        };
        steps.splice(at..at, fault);
    }
    steps
}

/// Gateways are drained, some again and again, and nothing goes wrong.
pub(crate) fn drains_alone(seed: u64) -> Vec<Step> {
    let mut rng = Seeded::new(seed ^ 0xca13_d4a1_0000_0000);
    let count = 4 + rng.below(16);
    let steps = (0..count).flat_map(|_| {
        let device = u8::try_from(rng.below(12)).unwrap_or(0);
        match rng.below(8) {
            0..=1 => vec![Step::Pause { ms: up_to(&mut rng, 64) }],
            2..=3 => vec![Step::Data { count: u8::try_from(rng.below(4)).unwrap_or(0) + 1 }],
            4..=5 => vec![Step::Sleep { device, announced: rng.below(4) > 0, ms: up_to(&mut rng, 256) }],
            6 => vec![Step::Rekey { device }],
            _ => drain(&mut rng),
        }
    });
    steps.collect()
}

/// A gateway is drained, mostly of a device that sleeps and gets something.
fn drain(rng: &mut Seeded) -> Vec<Step> {
    let mut steps = Vec::new();
    if rng.below(4) > 0 {
        let device = u8::try_from(rng.below(12)).unwrap_or(0);
        steps.push(Step::Sleep { device, announced: true, ms: 8_000 + up_to(rng, 128) });
        steps.push(Step::Pause { ms: 2_500 });
        steps.push(Step::Data { count: 1 });
    }
    let gateway = u8::try_from(rng.below(6)).unwrap_or(0);
    let within_ms = [0, 1_000, 5_000, 30_000][usize::try_from(rng.below(4)).unwrap_or(0)];
    steps.push(Step::Drain { gateway, within_ms, ms: up_to(rng, 64) });
    if rng.below(2) == 0 {
        steps.push(Step::Pause { ms: up_to(rng, 8) });
        steps.push(Step::Data { count: 2 });
    }
    steps
}

/// Up to so many seconds, short and long alike; in milliseconds.
fn up_to(rng: &mut Seeded, most: u64) -> u64 {
    let exponent = rng.below(u64::from(most.max(2).ilog2()) + 1);
    rng.below(1_000 << exponent)
}

fn step(rng: &mut Seeded) -> Step {
    let mut below = |most: u64| u8::try_from(rng.below(most)).unwrap_or(0);
    let (kind, gateway, device) = (below(32), below(6), below(12));
    match kind {
        0..=4 => Step::Pause { ms: up_to(rng, 64) },
        5..=7 => Step::Data { count: below(4) + 1 },
        8 => Step::Move { device },
        9..=11 => Step::Sleep { device, announced: below(2) == 0, ms: up_to(rng, 256) },
        12 => Step::DeviceCrash { device, ms: up_to(rng, 16) },
        13 => Step::DownUp { device, ms: up_to(rng, 16) },
        14 => Step::Rekey { device },
        15..=16 => Step::GatewayCrash { gateway, ms: up_to(rng, 64) },
        17 => Step::GatewayStop { gateway, ms: up_to(rng, 64) },
        18..=19 => Step::Deaf { gateway, ms: up_to(rng, 128) },
        20..=21 => Step::Cut { gateway, ms: up_to(rng, 256) },
        22 => Step::Break { gateway },
        23 => Step::Flaky { percent: [0, 5, 30][usize::from(below(3))] },
        24 => Step::Slow { ms: [2, 100, 1_000, 3_000][usize::from(below(4))] },
        25 => Step::StoreDown { ms: up_to(rng, 64) },
        26 => Step::Failover { lost_ms: up_to(rng, 16), ms: up_to(rng, 32) },
        27 => Step::Weather { loss: [0, 5, 30][usize::from(below(3))] },
        28 => Step::Deny { gateway, device },
        29 => Step::Allow { gateway, device },
        30 => Step::Copy { device },
        _ => Step::Thief { ms: 500 + up_to(rng, 16) },
    }
}

/// Shorter times, and fewer things at once.
pub(crate) fn simpler(step: &Step) -> Vec<Step> {
    let shorter = |ms: u64| [ms / 2, ms / 1_000 * 1_000].into_iter().filter(move |shorter| *shorter < ms);
    let step = *step;
    match step {
        Step::Pause { ms } => shorter(ms).map(|ms| Step::Pause { ms }).collect(),
        Step::Data { count } if count > 1 => vec![Step::Data { count: 1 }],
        Step::Sleep { device, ms, announced } => {
            shorter(ms).map(|ms| Step::Sleep { device, ms, announced }).collect()
        }
        Step::DeviceCrash { device, ms } => shorter(ms).map(|ms| Step::DeviceCrash { device, ms }).collect(),
        Step::DownUp { device, ms } => shorter(ms).map(|ms| Step::DownUp { device, ms }).collect(),
        Step::GatewayCrash { gateway, ms } => {
            shorter(ms).map(|ms| Step::GatewayCrash { gateway, ms }).collect()
        }
        Step::GatewayStop { gateway, ms } => {
            let crash = std::iter::once(Step::GatewayCrash { gateway, ms });
            shorter(ms).map(|ms| Step::GatewayStop { gateway, ms }).chain(crash).collect()
        }
        Step::Drain { gateway, within_ms, ms } => {
            let stop = std::iter::once(Step::GatewayStop { gateway, ms });
            shorter(ms).map(|ms| Step::Drain { gateway, within_ms, ms }).chain(stop).collect()
        }
        Step::Deaf { gateway, ms } => shorter(ms).map(|ms| Step::Deaf { gateway, ms }).collect(),
        Step::Cut { gateway, ms } => shorter(ms).map(|ms| Step::Cut { gateway, ms }).collect(),
        Step::StoreDown { ms } => shorter(ms).map(|ms| Step::StoreDown { ms }).collect(),
        Step::Failover { lost_ms, ms } => {
            let later = shorter(ms).map(|ms| Step::Failover { lost_ms, ms });
            later.chain(shorter(lost_ms).map(|lost_ms| Step::Failover { lost_ms, ms })).collect()
        }
        Step::Thief { ms } => shorter(ms).map(|ms| Step::Thief { ms }).collect(),
        _ => Vec::new(),
    }
}

//! What happens in a world of HIP, drawn from a seed. Owns the odds; the world owns what each step means.

use super::settings::HOSTS;
use crate::script::{seconds, share};
use crate::settings::Family;
use crate::world::Access;
use dormouse_sansio::{Entropy, Seeded};
use std::time::Duration;

/// A place in the network of a host.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Place {
    /// In which of its networks.
    pub access: Access,
    /// Which of the addresses there.
    pub number: u8,
    /// Of these families, as far as the world has them.
    pub family: Family,
    /// The host takes another address for its own, to which nothing comes and from which nothing gets away.
    pub astray: bool,
}

/// One thing that happens. Hosts are called by their numbers; in a world with a server, the last number is the server's where it may be
/// meant.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Step {
    /// Time passes.
    Pause(Duration),
    /// Packets from one host to another, some time apart.
    Data {
        /// From this one.
        from: usize,
        /// To this one.
        to: usize,
        /// So many.
        count: u8,
    },
    /// A packet of one host with another's inner address, for a third or for that one itself.
    Forge {
        /// Who sends it.
        by: usize,
        /// Whose address it has.
        of: usize,
        /// For whom it is.
        to: usize,
    },
    /// A datagram that a machine has heard comes to it once more, from where it came or from a stranger.
    Replay {
        /// To this one, or the server.
        to: usize,
        /// Of the last ones the one of this number.
        number: u8,
        /// From a stranger.
        elsewhere: bool,
    },
    /// A host enters a network.
    Enter(usize, Place),
    /// Two hosts move at one moment.
    BothEnter([(usize, Place); 2]),
    /// A host is in no network.
    Leave(usize),
    /// The NAT of a host forgets its mappings.
    NatForgets(usize),
    /// From now on the links lose, duplicate and reorder with these probabilities.
    Weather {
        /// Probability of loss.
        loss: f64,
        /// Probability of duplication.
        duplication: f64,
        /// Probability of reordering.
        reordering: f64,
    },
    /// A process, or the server's, dies and is back after this long.
    Crash(usize, Duration),
    /// A process, or the server's, dies instead of carrying out what it wants done after so many outputs more.
    Fuse {
        /// Whose.
        who: usize,
        /// Outputs that it still carries out.
        outputs: u32,
        /// How long it is away.
        down: Duration,
    },
    /// A daemon, or the server's, is stopped in order, and is back after this long.
    Stop(usize, Duration),
    /// The server is in no network for this long.
    ServerGone(Duration),
    /// A host sleeps for this long without a word, and wakes at a place.
    Sleep(usize, Duration, Place),
    /// The same, but it has the time to announce it.
    Nap(usize, Duration, Place),
    /// A host rekeys all its associations.
    Rekey(usize),
    /// A host ends all its associations.
    Close(usize),
    /// A daemon reads its configuration again.
    Reload(usize, Edit),
}

/// What a reload finds in the configuration.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Edit {
    /// What was there when the world began.
    Nothing,
    /// Multihoming is the other way round than it was when the world began.
    Multihoming,
    /// Peers are asked after so many seconds whether they are there.
    Liveness(u32),
    /// There is no server to register at.
    Unregistered,
    /// No peer is known, and none is accepted.
    Alone,
}

/// The steps of `seed`: between 4 and 20.
pub(crate) fn random(seed: u64) -> Vec<Step> {
    let mut rng = Seeded::new(seed ^ 0x4173_0719_c0de_0000);
    let steps = 4 + rng.below(17);
    (0..steps).map(|_| step(&mut rng)).collect()
}

fn host(rng: &mut Seeded) -> usize {
    usize::try_from(rng.below(HOSTS as u64)).unwrap_or(0)
}

/// A host or, as likely as a host, the server.
fn machine(rng: &mut Seeded) -> usize {
    usize::try_from(rng.below(HOSTS as u64 + 1)).unwrap_or(0)
}

fn place(rng: &mut Seeded) -> Place {
    Place {
        access: if rng.below(2) == 0 { Access::A } else { Access::B },
        number: rng.below(4) as u8,
        family: [Family::Both, Family::Both, Family::V4, Family::V6][rng.below(4) as usize % 4],
        astray: rng.below(4) == 0,
    }
}

fn step(rng: &mut Seeded) -> Step {
    match rng.below(24) {
        0..=2 => Step::Pause(seconds(rng, 64)),
        3..=6 => Step::Data { from: host(rng), to: host(rng), count: 1 + rng.below(8) as u8 },
        7 => Step::Forge { by: host(rng), of: host(rng), to: host(rng) },
        8 => Step::Replay { to: machine(rng), number: rng.below(32) as u8, elsewhere: rng.below(2) == 0 },
        9..=10 => Step::Enter(host(rng), place(rng)),
        11 => Step::BothEnter([(host(rng), place(rng)), (host(rng), place(rng))]),
        12 => Step::Leave(host(rng)),
        13 => Step::NatForgets(host(rng)),
        14 => Step::Weather { loss: share(rng, 50), duplication: share(rng, 30), reordering: share(rng, 30) },
        15 => Step::Crash(machine(rng), seconds(rng, 32)),
        16..=17 => Step::Fuse {
            who: machine(rng),
            outputs: u32::try_from(rng.below(40)).unwrap_or(0),
            down: seconds(rng, 16),
        },
        18 => Step::Stop(machine(rng), seconds(rng, 32)),
        19 => Step::ServerGone(seconds(rng, 1024)),
        20 => Step::Sleep(host(rng), seconds(rng, 1024), place(rng)),
        21 => Step::Nap(host(rng), seconds(rng, 8192), place(rng)),
        22 => match rng.below(3) {
            0 => Step::Close(host(rng)),
            _ => Step::Rekey(host(rng)),
        },
        _ => Step::Reload(
            host(rng),
            match rng.below(5) {
                0 => Edit::Nothing,
                1 => Edit::Multihoming,
                2 => Edit::Liveness([10, 100][rng.below(2) as usize % 2]),
                3 => Edit::Unregistered,
                _ => Edit::Alone,
            },
        ),
    }
}

//! A file goes to the device by TCP, through a tunnel whose headers the access router reads: SNOOP repairs the radio, and the sender hears nothing of it.

use crate::scene::Scene;
use crate::tcp::{Receiver, Sender};
use crate::zoned::{Keys, SECRET, SERVER};
use dormouse_node::config::access_router::Repair;
use dormouse_sansio::{Entropy, Seeded};
use std::net::SocketAddr;
use std::time::Duration;

/// In bytes.
const FILE: usize = 600_000;
/// How often the ends look for what has come.
const TICK: Duration = Duration::from_millis(1);
/// Virtual time after which it does not end.
const PATIENCE: Duration = Duration::from_secs(300);

/// What became of a file.
#[derive(Debug)]
struct Carried {
    /// What the sender sent again: by acknowledgements, and by its timer.
    again: (usize, usize),
    /// At the routers.
    repeated: u64,
    suppressed: u64,
}

impl Scene {
    /// Carries a file to the device; `each` sees how much of it has come.
    fn carry(&mut self, seed: u64, mut each: impl FnMut(&mut Self, usize)) -> Carried {
        let mut draw = Seeded::new(seed);
        let mut file: Vec<u8> = (0..FILE).map(|_| draw.below(256) as u8).collect();
        // Every segment has it, so that one in clear is noticed.
        file.chunks_mut(256)
            .filter(|part| part.len() > SECRET.len())
            .for_each(|part| part[..SECRET.len()].copy_from_slice(SECRET));
        let (server, device) = (SocketAddr::new(SERVER, 80), SocketAddr::new(self.inner(), 40_000));
        let mut sender = Sender::new([server, device], file.clone());
        let mut receiver = Receiver::new([device, server]);
        let end = self.net.now + PATIENCE;
        while !sender.is_done() {
            assert!(self.net.now < end, "{} of {FILE} bytes have come; seed {seed}", receiver.data.len());
            let now = self.net.now;
            let come = |scene: &mut Self, at| {
                scene.net.machine_mut(at).inside.replace(Vec::new()).unwrap_or_default()
            };
            let mut out = Vec::new();
            for packet in come(self, self.gateway) {
                out.extend(sender.take(now, &packet));
            }
            out.extend(std::iter::from_fn(|| sender.poll(now)));
            out.into_iter().for_each(|packet| self.net.machine_mut(self.gateway).forward(now, packet));
            for packet in come(self, self.device) {
                let acknowledgement = receiver.take(&packet);
                acknowledgement
                    .into_iter()
                    .for_each(|packet| self.net.machine_mut(self.device).forward(now, packet));
            }
            self.run(TICK);
            each(self, receiver.data.len());
        }
        assert!(receiver.data == file, "the file is another one; seed {seed}");
        let suppressed = (0..self.routers.len()).map(|at| self.info(at).snoop.suppressed).sum();
        Carried { again: sender.again, repeated: self.done().1, suppressed }
    }
}

/// One wrong bit in so many: one packet in seven.
const BIT_ERRORS: f64 = 1.0 / 65_536.0;

#[test]
fn a_sender_hears_of_few_losses_that_the_router_repairs() {
    for seed in crate::seeds(4) {
        println!("seed {seed}");
        let [alone, snooped] = [Repair::None, Repair::Snoop]
            .map(|repair| Scene::new(seed, Keys::There, repair, BIT_ERRORS, true).carry(seed, |_, _| {}));
        assert_eq!((alone.repeated, alone.suppressed), (0, 0), "seed {seed}");
        assert!(snooped.repeated > 20 && snooped.suppressed > 20, "{snooped:?}; seed {seed}");
        let [alone, snooped] = [&alone, &snooped].map(|of| of.again.0 + of.again.1);
        assert!(snooped * 4 < alone, "sent again: {snooped}, without repair {alone}; seed {seed}");
    }
}

/// The file comes whole, by way of three routers, each of which repairs some of it once it has the keys.
#[test]
fn a_file_comes_whole_by_way_of_three_routers() {
    for (seed, keys) in crate::seeds(6).zip([Keys::Ahead, Keys::There, Keys::Moved].into_iter().cycle()) {
        println!("seed {seed}, keys {keys:?}");
        let mut scene = Scene::new(seed, keys, Repair::Snoop, BIT_ERRORS, true);
        let mut moves = vec![(FILE / 3, 1), (FILE * 2 / 3, 2)];
        scene.carry(seed, |scene, come| {
            if let Some((_, to)) = moves.first().copied().filter(|(at, _)| come >= *at) {
                moves.remove(0);
                scene.enter(to);
            }
        });
        let repeated = [0, 1, 2].map(|at| scene.info(at).snoop.repeated);
        assert!(repeated.iter().all(|times| *times > 0), "{repeated:?}; {keys:?}, seed {seed}");
    }
}

//! Two peers behind one relay that have chosen the same SPI: the relay could not tell them apart.

use std::collections::BTreeSet;
use std::time::Duration;

use dormouse_hip::Host;
use dormouse_keying::{ChildId, SpiSource};
use dormouse_sansio::{Entropy, Seeded};

use crate::relay::{ASKS, CLIENT, INSIDE, ask, way, with_relay};
use crate::relay::{RELAY, data_passes};
use crate::world::{Plane, config, identity};

const SOON: Duration = Duration::from_secs(2);

/// This SPI first, then others.
struct First(Option<ChildId>, BTreeSet<ChildId>);

impl SpiSource for First {
    fn reserve(&mut self, entropy: &mut dyn Entropy) -> ChildId {
        self.0.take().unwrap_or_else(|| self.1.reserve(entropy))
    }

    fn claim(&mut self, spi: ChildId) -> bool {
        self.1.claim(spi)
    }

    fn release(&mut self, spi: ChildId) {
        self.1.release(spi);
    }
}

/// Who comes with the SPI of another one finds no way, and takes another SPI; meanwhile the first one's data is not sent to it.
#[test]
fn who_takes_the_spi_of_another_gets_none_of_its_data() {
    let mut world = with_relay(60, [true; 2]);
    assert!(ask(&mut world));
    world.run(SOON);
    assert!(data_passes(&mut world) && way(&world, CLIENT, ASKS).1);
    let taken = *world.nodes[ASKS].plane.installed.keys().next().unwrap();
    let (first, installed) = (world.nodes[ASKS].tag, std::mem::take(&mut world.nodes[ASKS].plane));
    let newcomer = identity("p256");
    let spis = Box::new(First(Some(taken), BTreeSet::new()));
    world.nodes[ASKS].tag = newcomer.hit();
    world.nodes[ASKS].host = Host::new(config(), vec![newcomer], spis, Box::new(Seeded::new(5)));
    world.place(ASKS, INSIDE[ASKS]);
    let (client, at) = (world.nodes[CLIENT].tag, world.whereabouts(RELAY));
    world.act(ASKS, |host, _| host.set_relays_of(client, at.addresses.clone()));
    assert!(ask(&mut world));
    world.run(SOON);
    assert_eq!(world.nodes[ASKS].host.describe().count(), 0, "no way for data");
    assert!(ask(&mut world), "with another SPI");
    world.run(SOON);
    assert!(world.joined(ASKS, CLIENT) && data_passes(&mut world), "{:?}", world.drops);
    // What the client sends to the first goes on as before.
    let newcomer = std::mem::replace(&mut world.nodes[ASKS].tag, first);
    world.nodes[ASKS].plane = Plane { installed: installed.installed, ..Plane::default() };
    world.data.clear();
    world.send_data(CLIENT, ASKS);
    world.run(SOON);
    assert_eq!(world.data.len(), 1);
    assert_ne!(newcomer, first);
}

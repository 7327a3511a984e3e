//! A device that sleeps is handed to another gateway, with what waits for it; and what waits for one that woke elsewhere follows it. The other
//! gateway here is the same machine, from which everything of the device is gone before.

use dormouse_ike::config::HoldPolicy;
use dormouse_ike::ticket::lineage::Name;
use dormouse_node::handover::{Handover, Taken};
use dormouse_node::ladder::Rung;
use dormouse_node::pool::Addresses;
use dormouse_node::{Change, Limits, SleepFlags};
use dormouse_sansio::Instant;
use dormouse_sim::{Access, Settings, World};
use std::net::IpAddr;
use std::time::Duration;

const BOTH: SleepFlags = SleepFlags { stand_in: true, buffering: true };

/// A device that sleeps, for ten minutes at most, at a gateway that holds `most` sessions and stands in; and its lineage.
fn asleep(seed: u64, most: usize) -> (World, Name) {
    let hold = HoldPolicy { most, services: BOTH, ..HoldPolicy::default() };
    let stand_in = Some((Limits::default(), Duration::from_secs(3_600)));
    let mut world = World::new(seed, Settings { hold, stand_in, ..Settings::default() });
    world.run(Duration::from_secs(2));
    world.send_up();
    world.announce_sleep(Some(Duration::from_secs(600)), BOTH);
    let lineage = world.gateway().disk.lineages.rows().next().expect("a session").id;
    (world, lineage)
}

/// As it comes out at the other gateway.
fn carried(handover: &Handover) -> Handover {
    let bytes = handover.encode().expect("it fits");
    let read = Handover::decode(&bytes).expect("what was written");
    assert_eq!(read.encode().as_deref(), Ok(&bytes[..]));
    assert!((0..bytes.len()).all(|len| Handover::decode(&bytes[..len]).is_err()), "cut short");
    read
}

/// Everything of the device goes from the gateway.
fn gone(world: &mut World, now: Instant, lineage: Name) -> Vec<Handover> {
    let node = world.gateway_mut().node_mut().expect("it runs");
    assert!(node.gone_elsewhere(now, lineage));
    world.gateway_mut().flush(now);
    assert!(world.gateway().routes.is_empty());
    std::mem::take(&mut world.gateway_mut().handed_over)
}

#[test]
fn a_sleeper_that_is_handed_over_finds_its_packets_at_the_other_gateway() {
    for most in [10, 0] {
        let (mut world, lineage) = asleep(11, most);
        let mut sent = vec![world.send_down()];
        world.run(Duration::from_secs(20));
        let now = world.now();
        let node = world.gateway_mut().node_mut().expect("it runs");
        assert_eq!(node.handover_candidates(), [lineage]);
        let first = node.hand_over(now, lineage).expect("it sleeps");
        assert!(first.sleeper.is_some() && first.waiting.len() == 1, "held: {}", most > 0);
        // Until the other gateway has it, packets still come here.
        sent.push(world.send_down());
        let rest = gone(&mut world, now, lineage);
        assert_eq!(
            rest.iter().map(|h| (h.sleeper.is_some(), h.waiting.len())).collect::<Vec<_>>(),
            [(false, 1)]
        );

        let node = world.gateway_mut().node_mut().expect("it runs");
        // It waits for the device, which is not handed over yet.
        assert_eq!(node.take_over(now, carried(&rest[0])), Taken::Unknown);
        assert_eq!(node.take_over(now, carried(&first)), Taken::Kept);
        assert_eq!(node.absent_count(), 1);
        world.gateway_mut().flush(now);
        assert_eq!(world.gateway().routes.len(), 1, "its packets are led here");
        sent.push(world.send_down());
        world.run(Duration::from_secs(20));
        let handed = world.gateway_mut().node_mut().expect("it runs").handover_candidates();
        assert_eq!(handed, [lineage], "it can go on to a third gateway");

        world.wake(Access::A);
        world.send_up();
        world.run(Duration::from_secs(20));
        assert_eq!(last_rung(&world), Some(Rung::Resume), "{:#?}", world.device().changes);
        let received: Vec<u64> =
            world.device().received.iter().filter(|n| sent.contains(n)).copied().collect();
        assert_eq!(received, sent, "held: {}", most > 0);
        assert_eq!(world.gateway().node().expect("it runs").absent_count(), 0);
        world.settle_and_check();
    }
}

#[test]
fn what_waits_for_a_device_that_is_back_elsewhere_follows_it() {
    for most in [10, 0] {
        let (mut world, lineage) = asleep(12, most);
        let number = world.send_down();
        world.run(Duration::from_secs(20));
        let now = world.now();
        let rest = gone(&mut world, now, lineage);
        let [Handover { sleeper: None, waiting, .. }] = &rest[..] else { panic!("{rest:?}") };
        assert_eq!(waiting.len(), 1);
        world.wake(Access::A);
        world.send_up();
        world.run(Duration::from_secs(20));
        assert_eq!(last_rung(&world), Some(Rung::Resume), "{:#?}", world.device().changes);
        assert!(!world.device().received.contains(&number));
        let now = world.now();
        let node = world.gateway_mut().node_mut().expect("it runs");
        // It is known by what it is, also after a login that began another lineage; with other addresses it is another.
        let before = Handover { lineage: Name([9; 16]), ..carried(&rest[0]) };
        let mut another = before.clone();
        another.whose.assigned = vec!["10.0.0.1".parse().expect("an address")];
        assert_eq!(node.take_over(now, another), Taken::Unknown);
        let handover = if most > 0 { carried(&rest[0]) } else { before };
        assert_eq!(node.take_over(now, handover), Taken::Delivered);
        world.gateway_mut().flush(now);
        world.run(Duration::from_secs(1));
        assert!(world.device().received.contains(&number), "held: {}", most > 0);
        world.settle_and_check();
    }
}

#[test]
fn nothing_leads_to_a_device_that_sleeps_once_its_address_is_anothers() {
    for most in [10, 0] {
        let (mut world, lineage) = asleep(13, most);
        let number = world.send_down();
        world.run(Duration::from_secs(20));
        assert_eq!(world.gateway().routes.len(), 1);
        let IpAddr::V4(address) = world.device().inner[0] else { panic!("an IPv4 address") };
        let now = world.now();
        let node = world.gateway_mut().node_mut().expect("it runs");
        let ended = node.end_sessions_at(now, Addresses { v4: Some(address), v6: None });
        assert_eq!(ended, usize::from(most > 0), "its SA, if it is held");
        assert_eq!((node.absent_count(), node.handover_candidates()), (0, Vec::new()));
        assert!(node.gateway_sessions(now).is_empty(), "it does not wait for the device");
        world.gateway_mut().flush(now);
        assert!(world.gateway().routes.is_empty(), "held: {}", most > 0);

        // The device finds out when it wakes, and logs in.
        world.wake(Access::A);
        world.send_up();
        world.run(Duration::from_secs(20));
        let rung = if most > 0 { Rung::Full } else { Rung::Resume };
        assert_eq!(last_rung(&world), Some(rung), "{lineage:?} {:#?}", world.device().changes);
        assert!(!world.device().received.contains(&number), "it was another's by then");
        world.settle_and_check();
    }
}

fn last_rung(world: &World) -> Option<Rung> {
    let up = |c: &Change| if let Change::Up { rung, .. } = c { Some(*rung) } else { None };
    world.device().changes.iter().rev().find_map(up)
}

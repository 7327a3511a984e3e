//! A device with two peers, of which one cannot answer: packets for the other do not wait for it, and the radio does not stay on for it.

use std::time::Duration;

use dormouse_hip::{Hold, Host as Hip, HostConfig, Peer, Phase};
use dormouse_node::Limits;
use dormouse_node::sleeper::{Mode, Reason, Settings};
use dormouse_sim::hip::radio;
use dormouse_sim::{Machine, MachineId};

use super::sleep::{BOTH, HOUR};
use super::{SECOND, SERVER, Story, core_with, ip, tag};

const HOME: [&str; 2] = ["203.0.113.7", "2001:db8:7::7"];
const OTHER: &str = "192.0.2.50";

struct Three {
    story: Story,
    other: MachineId,
}

impl Three {
    /// A device, its peer at these addresses, and another one that stays. `alike`: the first peer is a device too, and holds.
    fn new(seed: u64, first: &[&str], alike: bool) -> Self {
        let mut story = Story::new(seed, false, 0.0);
        let now = story.net.now;
        let hold = Hold { longest: 4 * HOUR, services: BOTH };
        let known =
            |addresses: &[&str]| Peer { addresses: addresses.iter().map(|a| ip(a)).collect(), udp: false };
        for n in [0, 1] {
            let is_device = n == 0 || alike;
            let config =
                HostConfig { may_sleep: is_device, hold: is_device.then_some(hold), ..HostConfig::default() };
            let mut host = core_with(n, config, now, story.net.rng(), |hip| {
                if n == 0 {
                    hip.set_peer(tag(1), Some(known(first)));
                    hip.set_peer(tag(2), Some(known(&[OTHER])));
                }
            });
            host.node_mut().stand_in_for_sleepers(Limits::default(), 4 * HOUR);
            let machine = story.net.machine_mut(story.machines[n]);
            machine.crash();
            machine.restart(now, host);
            if is_device {
                // The peer sleeps on the order of the test.
                let mode = if n == 0 { Mode::Energy } else { Mode::Performance };
                machine.let_sleep(now, Settings { mode, ..radio() }, 1, BOTH);
            }
        }
        let host = core_with(2, HostConfig::default(), now, story.net.rng(), |_| {});
        let other = story.net.add_machine(Machine::new(host));
        story.net.place(other, Some((story.networks[0], vec![ip(OTHER)])));
        story.place(1, 0, &SERVER);
        story.place(0, 1, &HOME);
        let mut it = Self { story, other };
        it.story.send(0);
        it.send_to_other();
        it.story.run(SECOND);
        it
    }

    fn send_to_other(&mut self) -> u64 {
        self.story.number += 1;
        let (now, number) = (self.story.net.now, self.story.number);
        let device = self.story.machines[0];
        self.story.net.machine_mut(device).send(now, tag(0).0.into(), tag(2).0.into(), number);
        number
    }

    fn sleeps(&self) -> bool {
        self.story.net.machine(self.story.machines[0]).is_asleep(self.story.net.now)
    }

    /// A packet for the other peer wakes the device; it arrives, and the device sleeps again.
    fn other_is_reached(&mut self, what: &str) {
        assert!(self.sleeps(), "{what}");
        let number = self.send_to_other();
        self.story.run(SECOND * 3);
        assert!(self.story.net.machine(self.other).received.contains(&number), "{what}: it waits");
        self.story.run(SECOND * 22);
        let changes = &self.story.net.machine(self.story.machines[0]).changes;
        assert!(self.sleeps(), "{what}: the radio stays on: {changes:#?}");
    }

    fn phases(&self) -> Vec<Phase> {
        let node = self.story.net.machine(self.story.machines[0]).node().expect("it runs");
        node.manager::<Hip>().expect("HIP").describe().filter(|d| d.peer == tag(1)).map(|d| d.phase).collect()
    }
}

#[test]
fn a_peer_that_is_gone_holds_up_no_other() {
    let mut three = Three::new(40, &SERVER, false);
    three.story.run(SECOND * 30);
    three.story.net.machine_mut(three.story.machines[1]).crash();
    three.other_is_reached("a dead peer");
}

#[test]
fn a_peer_without_an_address_of_our_family_holds_up_no_other() {
    let mut three = Three::new(41, &SERVER[1..], false);
    three.story.run(SECOND * 30);
    three.story.place(0, 1, &HOME[..1]);
    three.other_is_reached("no network of its family");
    // Its packets wait until there is one.
    let waits = three.story.send(0);
    three.story.run(SECOND * 25);
    assert!(three.sleeps() && !three.story.has(1, waits));
    three.story.place(0, 1, &HOME);
    three.send_to_other();
    three.story.run(SECOND * 3);
    assert!(three.story.has(1, waits));
}

#[test]
fn a_peer_that_sleeps_too_holds_up_no_other() {
    let mut three = Three::new(42, &SERVER, true);
    let peer = three.story.machines[1];
    three.story.net.with(peer, |now, host| {
        host.suspend(now, Reason::User);
    });
    three.story.run(SECOND * 30);
    three.other_is_reached("a peer that sleeps");
    // What is sent to it waits here for its wake, and does not keep the radio on.
    let waits = three.story.send(0);
    three.story.run(SECOND * 25);
    assert!(three.sleeps() && !three.story.has(1, waits));
}

/// It was relied upon after our sleep, and sent a packet that it did not answer. That it says that it sleeps shows that it has the session.
#[test]
fn a_peer_that_falls_asleep_after_our_wake_holds_up_no_other() {
    let mut three = Three::new(44, &SERVER, true);
    three.story.run(SECOND * 30);
    assert!(three.sleeps());
    let sent = three.story.send(0);
    three.story.run(SECOND * 3);
    assert!(three.story.has(1, sent));
    let peer = three.story.machines[1];
    three.story.net.with(peer, |now, host| {
        host.suspend(now, Reason::User);
    });
    three.story.run(SECOND * 25);
    assert!(three.sleeps());
}

/// A command ends an association that is on its way back: no other one begins.
#[test]
fn what_is_ended_by_a_command_does_not_begin_anew() {
    let mut three = Three::new(43, &SERVER, false);
    three.story.run(SECOND * 30);
    let (device, peer) = (three.story.machines[0], three.story.machines[1]);
    three.story.net.machine_mut(peer).crash();
    three.story.send(0);
    three.story.run(SECOND * 2);
    assert_eq!(three.phases(), [Phase::Established], "it is being asked");
    three.story.net.with(device, |now, host| {
        host.node_mut().with_manager(now, |hip: &mut Hip| {
            let all: Vec<_> = hip.describe().map(|d| d.id).collect();
            all.into_iter().for_each(|id| hip.close(now, id));
        });
    });
    three.story.run(Duration::from_millis(10));
    assert_eq!(three.phases(), [Phase::Closing]);
}

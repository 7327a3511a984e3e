//! A device with nothing but HIP, whose radio sleeps: the server keeps what comes for it and is kept waiting itself; the radio wakes for
//! the first packet, and the association goes on, wherever the device is by then. If the server has lost it, another one begins, and
//! what was sent in vain is sent again.

use std::time::Duration;

use dormouse_hip::{Hold, Host as Hip, HostConfig, Peer};
use dormouse_keying::KeyManager;
use dormouse_node::ladder::Rung;
use dormouse_node::sleeper::Reason;
use dormouse_node::{Change, Limits, SleepFlags, SleepVerdict};
use dormouse_sim::hip::radio;

use super::{SECOND, SERVER, Story, core_with, ip, tag};

pub(super) const BOTH: SleepFlags = SleepFlags { stand_in: true, buffering: true };
pub(super) const HOUR: Duration = Duration::from_secs(3_600);
const HOME: [&str; 2] = ["203.0.113.7", "2001:db8:7::7"];

/// Gives an end what its daemon has: the device a radio, the server a stand-in.
fn equip(story: &mut Story, n: usize, holds: bool) {
    let now = story.net.now;
    let addresses = if n == 0 { SERVER.map(ip).to_vec() } else { Vec::new() };
    let known = Peer { addresses, udp: story.udp };
    let hold = (n == 1 && holds).then_some(Hold { longest: 4 * HOUR, services: BOTH });
    let config = HostConfig { may_sleep: n == 0, hold, ..HostConfig::default() };
    let mut host = core_with(n, config, now, story.net.rng(), |hip| {
        hip.set_peer(tag(1 - n), Some(known));
    });
    if n == 1 {
        host.node_mut().stand_in_for_sleepers(Limits::default(), 4 * HOUR);
    }
    let machine = story.net.machine_mut(story.machines[n]);
    machine.crash();
    machine.restart(now, host);
    if n == 0 {
        machine.let_sleep(now, radio(), 1, BOTH);
    }
    story.place(n, 1 - n, if n == 0 { &HOME } else { &SERVER });
}

/// An association that has carried packets, and a radio that is off for the silence since.
pub(super) fn asleep(seed: u64, udp: bool, holds: bool) -> Story {
    let mut story = Story::new(seed, udp, 0.0);
    equip(&mut story, 0, holds);
    equip(&mut story, 1, holds);
    story.send(0);
    story.run(SECOND);
    story.exchange("awake");
    story.run(SECOND * 30);
    let device = story.net.machine(story.machines[0]);
    assert!(device.is_asleep(story.net.now) && !device.radio_is_on(), "UDP {udp}: {:#?}", device.changes);
    assert!(device.host().is_some_and(|h| h.poll_timeout().is_none()), "nothing wakes it but a packet");
    story
}

/// Numbers of packets that the server sends while the device sleeps.
fn send_down(story: &mut Story) -> Vec<u64> {
    (0..5)
        .map(|_| {
            story.run(SECOND);
            story.send(1)
        })
        .collect()
}

fn wake(story: &mut Story) {
    story.send(0);
    story.run(SECOND * 3);
}

fn rung(story: &Story) -> Option<Rung> {
    let up = |c: &Change| if let Change::Up { rung, .. } = c { Some(*rung) } else { None };
    story.net.machine(story.machines[0]).changes.iter().rev().find_map(up)
}

#[test]
fn what_comes_for_a_sleeping_device_waits_at_its_peer() {
    for udp in [false, true] {
        let mut story = asleep(20, udp, true);
        let said = story.net.machine(story.machines[0]).sleep;
        assert!(matches!(said, Some(SleepVerdict::Held { flags: BOTH, .. })), "{said:?}");
        let sent = story.net.undelivered;
        story.run(HOUR);
        let down = send_down(&mut story);
        story.run(SECOND * 20);
        assert!(story.net.machine(story.machines[0]).is_asleep(story.net.now), "nothing has woken it");
        assert_eq!(story.net.undelivered.deaf, sent.deaf, "nothing was sent to it");
        let up = story.send(0);
        story.run(SECOND * 3);
        assert!(story.has(1, up), "the packet that woke it");
        assert!(down.iter().all(|n| story.has(0, *n)), "UDP {udp}");
        assert_eq!((rung(&story), [story.logins(0), story.logins(1)]), (Some(Rung::Held), [1, 1]));
        story.exchange("awake again");
    }
}

/// It wakes in another network: another address, another family, behind a NAT.
#[test]
fn what_waits_follows_the_device_to_its_new_address() {
    for (seed, udp, network, address) in
        [(21, false, 2, "198.51.100.99"), (22, false, 1, "2001:db8:7::9"), (23, true, 2, "10.0.0.5")]
    {
        let mut story = asleep(seed, udp, true);
        story.run(SECOND * 600);
        let down = send_down(&mut story);
        story.place(0, network, &[address]);
        let up = story.send(0);
        story.run(SECOND * 3);
        assert!(story.has(1, up), "{address}: what woke it waited for the answer");
        assert!(down.iter().all(|n| story.has(0, *n)), "{address}");
        assert_eq!((rung(&story), [story.logins(0), story.logins(1)]), (Some(Rung::Move), [1, 1]));
        story.exchange("awake again");
    }
}

/// The server has replaced the pair of SAs just before the radio goes off: what is left of the old one is forgotten after the sleep.
#[test]
fn a_replaced_pair_wakes_no_device() {
    let mut story = asleep(27, false, true);
    wake(&mut story);
    let [device, server] = story.machines;
    story.net.with(server, |now, host| {
        host.node_mut().with_manager(now, |hip: &mut Hip| {
            let all: Vec<_> = hip.describe().filter_map(|d| d.child).collect();
            all.into_iter().for_each(|child| hip.rekey_child(now, child));
        });
    });
    story.run(Duration::from_millis(200));
    story.net.with(device, |now, host| _ = host.suspend(now, Reason::User));
    story.run(SECOND);
    let host = story.net.machine(device).host().expect("it runs");
    assert!(story.net.machine(device).is_asleep(story.net.now));
    assert_eq!(host.poll_timeout(), None);
}

/// A server of another kind was not told, and does not hold: the device asks it, and its packet waits for the answer.
#[test]
fn a_peer_that_does_not_hold_is_asked() {
    let mut story = asleep(24, false, false);
    assert_eq!(story.net.machine(story.machines[0]).sleep, Some(SleepVerdict::Unsupported));
    story.run(SECOND * 600);
    let up = story.send(0);
    story.run(SECOND * 3);
    assert!(story.has(1, up));
    assert_eq!((rung(&story), story.logins(0)), (Some(Rung::Held), 1));
}

/// The server's process has started again and knows nothing: what it had promised does not count, but nothing is lost by it.
#[test]
fn a_server_that_forgot_the_association_gets_another_and_every_packet() {
    for holds in [true, false] {
        let mut story = asleep(25, false, holds);
        equip(&mut story, 1, holds);
        let first = story.send(0);
        // 4 s of silence if it was relied upon, and three tries in 7 s.
        story.run(SECOND * 16);
        assert!(story.has(1, first), "held: {holds}");
        assert_eq!(story.logins(0), 2);
        if !holds {
            assert_eq!(rung(&story), Some(Rung::Full));
        }
        wake(&mut story);
        story.exchange("anew");
    }
}

/// A peer without an association, for which the first packet comes while the radio is off: that packet wakes it too.
#[test]
fn the_first_packet_for_a_peer_wakes_the_radio() {
    let mut story = Story::new(26, false, 0.0);
    equip(&mut story, 0, true);
    equip(&mut story, 1, true);
    let device = story.machines[0];
    story.net.with(device, |now, host| _ = host.suspend(now, Reason::User));
    story.run(SECOND * 10);
    story.net.place(device, None);
    let first = story.send(0);
    story.run(SECOND * 10);
    assert!(!story.has(1, first));
    assert_eq!(story.net.machine(device).nowhere(), 0, "it waits");
    story.place(0, 1, &HOME);
    story.net.with(device, |now, host| host.resume(now, dormouse_node::sleeper::Cause::User));
    story.run(SECOND);
    assert!(story.has(1, first));
}

/// Hours of sleep, with loss in every second round: in the end the two reach each other, if need be by another association.
#[test]
fn nights_and_losses_pass() {
    for seed in 0..20 {
        let mut story = asleep(seed, seed % 2 == 0, seed % 4 < 3);
        for round in 0..6_u32 {
            let loss = if round % 2 == 0 { 0.3 } else { 0.0 };
            for network in story.networks.clone() {
                story.net.set_link(network, |c| dormouse_netem::LinkConfig { loss, ..*c });
            }
            story.send(0);
            story.run(SECOND * 40);
            story.send(1);
            story.run(HOUR / 2);
        }
        // The last round was without loss; an association that was given up meanwhile begins anew.
        story.send(0);
        story.run(SECOND * 20);
        wake(&mut story);
        story.exchange(&format!("seed {seed}"));
    }
}

//! HIP beside IKE in the same core and under the same clock: two hosts carry packets by tag, over protocol 139 and in UDP through a NAT;
//! the first packet begins the association and is not lost; one of them moves, across families too; a responder that has lost
//! everything is found again. A rendezvous server brings two devices together, and together again when both move at once; without it
//! they go on.

mod lsi;
mod sleep;
mod stories;
#[path = "../common/tales.rs"]
mod tales;
mod two_peers;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use dormouse_hip::{Accept, Host as Hip, HostConfig, Peer, Phase, Registrar};
use dormouse_ike::EndpointConfig;
use dormouse_netem::{LinkConfig, NatConfig};
use dormouse_node::host::Host;
use dormouse_node::{Change, Node};
use dormouse_sansio::{Carrier, Entropy, Instant, Seeded};
use dormouse_sim::hip::{OLD, identity};
use dormouse_sim::{Machine, MachineId, NetworkId, Topology};
use dormouse_wire::hip::Hit;

const SERVER: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
const SECOND: Duration = Duration::from_secs(1);

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn tag(n: usize) -> Hit {
    identity(n).hit()
}

/// A core whose second key manager is HIP; the device knows where the server is.
/// `first`: the key of the device, behind which that of the server is.
fn core(n: usize, first: usize, udp: bool, now: Instant, rng: &mut Seeded) -> Host {
    let peer = Peer { addresses: SERVER.map(ip).to_vec(), udp };
    core_with(first + n, HostConfig::default(), now, rng, |hip| {
        if n == 0 {
            hip.set_peer(tag(first + 1), Some(peer));
        }
    })
}

fn core_with(
    n: usize,
    config: HostConfig,
    now: Instant,
    rng: &mut Seeded,
    tell: impl FnOnce(&mut Hip),
) -> Host {
    let mut entropy = || -> Box<dyn Entropy> { Box::new(rng.fork()) };
    let mut node = Node::new(Vec::new(), EndpointConfig::default(), entropy(), entropy());
    // As it ships: ESP in UDP where both ends have shown that.
    let config =
        HostConfig { accept: Accept::Any, first_generation: now.as_nanos(), esp_in_udp: true, ..config };
    let mut hip = Hip::new(config, vec![identity(n)], Box::new(node.spis()), entropy());
    tell(&mut hip);
    node.set_key_manager("hip", Box::new(hip));
    Host::new(now, node, None)
}

struct Story {
    net: Topology,
    machines: [MachineId; 2],
    networks: Vec<NetworkId>,
    udp: bool,
    /// The device's key.
    first: usize,
    number: u64,
}

impl Story {
    /// The server in a network of its own; the device in the first of two others, of which the second is behind a NAT in UDP.
    fn new(seed: u64, udp: bool, loss: f64) -> Self {
        Self::with(0, seed, udp, loss)
    }

    /// With the keys from this one on.
    fn with(first: usize, seed: u64, udp: bool, loss: f64) -> Self {
        let mut net = Topology::new(seed);
        let link = LinkConfig { delay: Duration::from_millis(15), loss, ..LinkConfig::default() };
        let nat = udp.then(|| NatConfig::new(ip("198.51.100.1")));
        let networks: Vec<_> = [None, None, nat].map(|nat| net.add_network(link, nat)).into();
        let machines = [0, 1].map(|n| {
            let host = core(n, first, udp, Instant::ZERO, net.rng());
            net.add_machine(Machine::new(host))
        });
        let mut story = Self { net, machines, networks, udp, first, number: 0 };
        story.place(1, 0, &SERVER);
        story.place(0, 1, &["203.0.113.7", "2001:db8:7::7"]);
        story
    }

    fn place(&mut self, machine: usize, network: usize, addresses: &[&str]) {
        let addresses = addresses.iter().map(|a| ip(a)).collect();
        self.net.place(self.machines[machine], Some((self.networks[network], addresses)));
    }

    /// The process ends without a word and starts again, knowing nothing.
    fn crash(&mut self, n: usize) {
        let now = self.net.now;
        let fresh = core(n, self.first, self.udp, now, self.net.rng());
        let machine = self.net.machine_mut(self.machines[n]);
        machine.crash();
        machine.restart(now, fresh);
        match n {
            0 => self.place(0, 1, &["203.0.113.7", "2001:db8:7::7"]),
            _ => self.place(1, 0, &SERVER),
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.net.now + time;
        self.net.run_until(end, |_, _| false);
    }

    /// Sends a packet from one tag to the other; its number.
    fn send(&mut self, from: usize) -> u64 {
        self.number += 1;
        let (now, number) = (self.net.now, self.number);
        let [ours, peer] = [from, 1 - from].map(|n| tag(self.first + n).0.into());
        self.net.machine_mut(self.machines[from]).send(now, ours, peer, number);
        number
    }

    fn has(&self, at: usize, number: u64) -> bool {
        self.net.machine(self.machines[at]).received.contains(&number)
    }

    fn exchange(&mut self, what: &str) {
        let numbers = [self.send(0), self.send(1)];
        self.run(SECOND);
        let changes = self.machines.map(|m| self.net.machine(m).changes.clone());
        assert!(self.has(1, numbers[0]) && self.has(0, numbers[1]), "{what}, UDP {}: {changes:#?}", self.udp);
    }

    /// ESP of both ends goes in UDP if HIP does, and between two of version 2 in any case.
    fn has_carriers(&self, what: &str) {
        for machine in self.machines {
            let host = self.net.machine(machine).host().expect("it runs");
            let sessions = host.node().gateway_sessions(self.net.now);
            let carriers: Vec<Carrier> = sessions.iter().map(|s| s.path.carrier).collect();
            let in_udp = self.udp || self.first < OLD;
            assert_eq!(carriers, [if in_udp { Carrier::HipUdp } else { Carrier::RawEsp }], "{what}");
        }
    }

    fn logins(&self, at: usize) -> usize {
        let changes = &self.net.machine(self.machines[at]).changes;
        changes.iter().filter(|c| matches!(c, Change::PeerUp { .. })).count()
    }
}

#[test]
fn the_first_packet_begins_the_association_and_arrives() {
    for udp in [false, true] {
        let mut story = Story::new(1, udp, 0.0);
        let first = [story.send(0), story.send(0)];
        story.run(SECOND);
        assert!(first.iter().all(|n| story.has(1, *n)), "what waited was sent: UDP {udp}");
        story.exchange("both ways");
        assert_eq!([story.logins(0), story.logins(1)], [1, 1]);
    }
}

#[test]
fn a_tag_that_is_not_known_is_not_waited_for() {
    let mut story = Story::new(2, false, 0.0);
    // The server does not know where the device is, and nothing has come from it.
    story.send(1);
    story.run(SECOND);
    let host = story.net.machine(story.machines[1]).host().expect("it runs");
    assert_eq!((host.held(), host.counters().no_policy), (0, 1));
}

/// A command calls again a peer that refuses: a new exchange takes the place of the one that is refused, and does not wait for its next try.
#[test]
fn a_peer_that_refuses_is_called_anew() {
    let mut story = Story::new(9, false, 0.0);
    let accept = |story: &mut Story, accept: Accept| {
        let server = story.machines[1];
        story.net.with(server, |now, host| {
            host.node_mut().with_manager(now, |hip: &mut Hip| hip.set_accept(now, accept, Accept::Any));
        });
    };
    let call = |story: &mut Story| {
        let (device, mut begun) = (story.machines[0], None);
        story.net.with(device, |now, host| {
            begun = host.node_mut().with_manager(now, |hip: &mut Hip| hip.call(now, tag(1)));
        });
        story.run(SECOND);
        let hip = story.net.machine(device).node().and_then(|node| node.manager::<Hip>());
        let all: Vec<_> = hip.expect("HIP").describe().filter(|d| d.phase != Phase::Closing).collect();
        let [one] = all.as_slice() else { panic!("{all:?}") };
        (begun.expect("HIP").expect("a way"), one.id, one.phase, one.refusal.is_some())
    };
    accept(&mut story, Accept::Listed(BTreeSet::new()));
    let refused = call(&mut story);
    assert_eq!((refused.0, refused.2, refused.3), (true, Phase::Connecting, true));
    accept(&mut story, Accept::Any);
    let admitted = call(&mut story);
    assert_eq!((admitted.0, admitted.2, admitted.3), (true, Phase::Established, false));
    assert_ne!(refused.1, admitted.1);
    assert_eq!(call(&mut story), (false, admitted.1, Phase::Established, false), "it is there");
}

/// The association outlives changes of network: another address, IPv6 alone, and a NAT.
#[test]
fn packets_go_on_when_the_device_moves() {
    for (udp, first) in [(false, 0), (true, 0), (false, OLD), (true, OLD)] {
        let mut story = Story::with(first, 3, udp, 0.0);
        story.send(0);
        story.run(SECOND);
        story.place(0, 1, &["203.0.113.8", "2001:db8:7::7"]);
        story.run(SECOND);
        story.exchange("another address");
        story.has_carriers("another address");
        story.place(0, 1, &["2001:db8:7::9"]);
        story.run(SECOND);
        story.exchange("another family");
        story.has_carriers("another family");
        story.place(0, 2, &[if udp { "10.0.0.5" } else { "203.0.113.99" }]);
        story.run(SECOND);
        story.exchange("back, behind a NAT if in UDP");
        story.has_carriers("back");
        assert_eq!([story.logins(0), story.logins(1)], [1, 1], "one association for all of it");
    }
}

/// Under loss too: a move whose packets are lost is announced again.
#[test]
fn moves_survive_loss() {
    for seed in 0..20 {
        let first = if seed % 4 < 2 { 0 } else { OLD };
        let mut story = Story::with(first, seed, seed % 2 == 0, 0.2);
        story.send(0);
        story.run(SECOND * 40);
        for last in 8..12 {
            story.place(0, 1, &[&format!("203.0.113.{last}")]);
            story.run(SECOND * 40);
        }
        for network in story.networks.clone() {
            story.net.set_link(network, |c| LinkConfig { loss: 0.0, ..*c });
        }
        // What was given up is begun anew by the next packet.
        story.send(0);
        story.run(SECOND * 40);
        story.exchange("after the loss");
    }
}

/// The server's process starts again and knows nothing: the device, which is not answered, asks, and begins anew.
#[test]
fn a_peer_that_has_lost_the_association_is_noticed() {
    for udp in [false, true] {
        let mut story = Story::new(6, udp, 0.0);
        story.send(0);
        story.run(SECOND);
        story.crash(1);
        story.send(0);
        // 4 s of silence, and three tries in 7 s.
        story.run(SECOND * 12);
        story.send(0);
        story.run(SECOND);
        story.exchange("after the silence");
    }
}

/// The device's process starts again: what the server sends shows that there was an association, and the device knows where the server is.
#[test]
fn who_starts_again_is_shown_what_it_has_lost() {
    for udp in [false, true] {
        let mut story = Story::new(7, udp, 0.0);
        story.send(0);
        story.run(SECOND);
        story.crash(0);
        let lost = story.send(1);
        story.run(SECOND);
        assert!(!story.has(0, lost));
        story.exchange("after the first packet of the server");
    }
}

/// The server's process starts again and knows nothing; the device's next association replaces the old one.
#[test]
fn a_server_that_starts_again_is_found_again() {
    let mut story = Story::new(5, false, 0.0);
    story.send(0);
    story.run(SECOND);
    story.exchange("before");
    story.crash(1);
    let lost = story.send(0);
    story.run(SECOND);
    assert!(!story.has(1, lost), "the server has no keys");
    // A change of address is not acknowledged by who knows nothing: the association is given up.
    story.place(0, 1, &["203.0.113.9"]);
    story.run(SECOND * 120);
    story.send(0);
    story.run(SECOND);
    story.exchange("after");
    assert_eq!(story.logins(0), 2);
}

/// The server does not know the device: the association lasts as long as there is user data, in one direction too, and ends an hour later.
/// The device's next packet begins another.
#[test]
fn an_association_with_a_stranger_ends_when_it_is_not_used() {
    for udp in [false, true] {
        let mut story = Story::new(8, udp, 0.0);
        for _ in 0..12 {
            story.send(0);
            story.run(SECOND * 600);
        }
        story.exchange("after two hours with a packet in ten minutes");
        assert_eq!([story.logins(0), story.logins(1)], [1, 1]);
        let gone = |story: &Story| {
            let changes = &story.net.machine(story.machines[1]).changes;
            changes.iter().filter(|c| matches!(c, Change::PeerDown { .. })).count()
        };
        story.run(SECOND * 3_500);
        assert_eq!(gone(&story), 0);
        story.run(SECOND * 300);
        assert_eq!(gone(&story), 1);
        story.send(0);
        story.run(SECOND);
        story.exchange("after the end");
        assert_eq!([story.logins(0), story.logins(1)], [2, 2]);
    }
}

/// Devices 0 and 1, which know of each other by the rendezvous server alone, at which both register: it is machine 2.
struct Meeting {
    net: Topology,
    machines: [MachineId; 3],
    networks: Vec<NetworkId>,
    number: u64,
}

impl Meeting {
    fn new(seed: u64) -> Self {
        let mut net = Topology::new(seed);
        let link = LinkConfig { delay: Duration::from_millis(15), ..LinkConfig::default() };
        let networks: Vec<_> = (0..3).map(|_| net.add_network(link, None)).collect();
        let machines = [0, 1, 2].map(|n| {
            let at = Peer { addresses: vec![ip(SERVER[0])], udp: false };
            let registrar =
                Registrar { permits: Accept::Any, longest: Duration::from_secs(3_600), max_clients: 10 };
            let config = match n {
                2 => HostConfig { registrar: Some(registrar), ..HostConfig::default() },
                _ => HostConfig { rendezvous: [tag(2)].into(), ..HostConfig::default() },
            };
            let host = core_with(n, config, Instant::ZERO, net.rng(), |hip| {
                if n < 2 {
                    hip.set_peer(tag(2), Some(at.clone()));
                    hip.set_rendezvous_of(tag(1 - n), Some(at));
                }
            });
            net.add_machine(Machine::new(host))
        });
        let mut meeting = Self { net, machines, networks, number: 0 };
        for (n, address) in [(2, SERVER[0]), (0, "203.0.113.7"), (1, "198.51.100.7")] {
            meeting.place(n, address);
        }
        meeting.run(SECOND);
        meeting
    }

    fn place(&mut self, n: usize, address: &str) {
        self.net.place(self.machines[n], Some((self.networks[n], vec![ip(address)])));
    }

    fn run(&mut self, time: Duration) {
        let end = self.net.now + time;
        self.net.run_until(end, |_, _| false);
    }

    /// Sends both ways, and says what arrived in this time.
    fn exchange(&mut self, time: Duration) -> [bool; 2] {
        let numbers = [0, 1].map(|from: usize| {
            self.number += 1;
            let (now, number) = (self.net.now, self.number);
            let (ours, peer) = (tag(from).0.into(), tag(1 - from).0.into());
            self.net.machine_mut(self.machines[from]).send(now, ours, peer, number);
            number
        });
        self.run(time);
        [0, 1].map(|from: usize| self.net.machine(self.machines[1 - from]).received.contains(&numbers[from]))
    }

    /// How often the two have proved themselves to each other.
    fn logins(&self) -> usize {
        let changes = &self.net.machine(self.machines[0]).changes;
        changes
            .iter()
            .filter(|c| matches!(c, Change::PeerUp { peer, .. } if *peer == tag(1).to_string()))
            .count()
    }
}

#[test]
fn devices_meet_through_a_rendezvous_server_and_after_moving_at_once() {
    for seed in 0..5 {
        let mut meeting = Meeting::new(seed);
        assert_eq!(meeting.exchange(SECOND), [true; 2], "seed {seed}");
        for last in 8..11 {
            meeting.place(0, &format!("203.0.113.{last}"));
            meeting.place(1, &format!("198.51.100.{last}"));
            meeting.run(SECOND * 20);
            assert_eq!(meeting.exchange(SECOND), [true; 2], "seed {seed}, address {last}");
        }
        assert_eq!(meeting.logins(), 1, "one association for all of it");
    }
}

/// While the server is gone the two go on, and one of them may move; when it is back, they meet as before.
#[test]
fn a_rendezvous_server_may_be_gone() {
    let mut meeting = Meeting::new(6);
    assert_eq!(meeting.exchange(SECOND), [true; 2]);
    meeting.net.place(meeting.machines[2], None);
    meeting.place(0, "203.0.113.8");
    meeting.run(SECOND * 200);
    assert_eq!(meeting.exchange(SECOND), [true; 2]);
    meeting.place(0, "203.0.113.9");
    meeting.place(1, "198.51.100.9");
    meeting.run(SECOND * 200);
    assert_eq!(meeting.exchange(SECOND), [false; 2], "neither knows where the other is");
    meeting.place(2, SERVER[0]);
    meeting.run(SECOND * 7_200);
    meeting.exchange(SECOND);
    assert_eq!(meeting.exchange(SECOND), [true; 2], "they met again");
}

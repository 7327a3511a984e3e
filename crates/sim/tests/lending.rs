//! SAs that another engine carries under load: lent and called back without a packet lost or repeated, through sleeps, rekeyings, crashes, and an
//! engine that has lost its numbers. That no sequence number is used twice is looked at in every step of every world.

use dormouse_netem::LinkConfig;
use dormouse_node::host::{Engine, InUdp};
use dormouse_node::ladder::State;
use dormouse_sansio::Instant;
use dormouse_sim::{Access, Crowd, Machine, MachineId, Setting, Settings, Step, Topology, World};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A device and a gateway that are connected, with ESP in UDP or as a protocol of its own. Stood in for, the device's SAs are not lent at the gateway.
fn connected(seed: u64, esp_in_udp: &str) -> World {
    let mut settings = Settings { engine: true, ..Settings::default() };
    for end in [&mut settings.device, &mut settings.gateway] {
        end.push(("ike", format!("esp_in_udp = {esp_in_udp:?}")));
    }
    let mut world = World::new(seed, settings);
    // No NAT is before it there.
    world.enter(Access::A);
    world.run(2 * SECOND);
    assert_eq!(world.device_state(), State::Up, "{:#?}", world.device().changes);
    world
}

/// Packets in both directions for a while, of which each arrives once, but for `lost` at most.
fn load(world: &mut World, rounds: u32, lost: usize) {
    let before = (world.gateway().received.len(), world.device().received.len());
    let (mut up, mut down) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..rounds {
        up.insert(world.send_up());
        down.insert(world.send_down());
        world.run(Duration::from_millis(10));
    }
    world.run(Duration::from_millis(500));
    for (sent, received) in
        [(up, &world.gateway().received[before.0..]), (down, &world.device().received[before.1..])]
    {
        let once: BTreeSet<u64> = received.iter().copied().collect();
        assert_eq!(once.len(), received.len(), "a packet came twice");
        let missing = sent.difference(&once).count();
        assert!(missing <= lost, "{missing} packets of {} are lost", sent.len());
    }
}

/// So many SAs are lent by the device and the gateway.
fn out(world: &World) -> [usize; 2] {
    [world.device(), world.gateway()].map(|m| m.node().map_or(0, |node| node.loans().count()))
}

fn begun(world: &World) -> [u64; 2] {
    [world.device(), world.gateway()].map(|m| m.node().map_or(0, dormouse_node::Node::loans_begun))
}

#[test]
fn under_load_another_engine_carries_packets_and_gives_them_back_when_it_is_idle() {
    // As a protocol of its own, the first two thousand that come stay here.
    for (carrier, rounds) in [("nat", 6_000), ("always", 100)] {
        let mut world = connected(1, carrier);
        assert_eq!(out(&world), [0, 0]);
        load(&mut world, rounds, 0);
        assert_eq!(out(&world), [1, 1], "{carrier}");
        let carried = world.device().carried_elsewhere();
        assert!(carried > u64::from(rounds) * 3 / 2, "{carrier}: {carried}");
        world.run(4 * SECOND);
        assert_eq!(out(&world), [0, 0], "{carrier}: nothing is carried");
        let timers = world.device().node().map(dormouse_node::Node::deadlines).unwrap_or_default();
        assert!(timers.iter().all(|d| d.why != "another engine's counters"), "{timers:?}");
        load(&mut world, 20, 0);
        world.settle_and_check();
    }
}

#[test]
fn counters_and_liveness_do_not_depend_on_who_carries_the_packets() {
    let mut world = connected(2, "nat");
    for _ in 0..40 {
        load(&mut world, 50, 0);
    }
    let [lent, _] = begun(&world);
    assert_eq!(lent, 1, "load has no pause");
    let session = |world: &World| {
        let infos = world.device().node().map(|n| n.client_infos(world.now())).unwrap_or_default();
        infos.into_iter().find_map(|i| i.session).expect("a session")
    };
    let quiet = session(&world).quiet;
    assert!(quiet < 3 * SECOND, "the gateway is heard all the time: {quiet:?}");
    world.run(4 * SECOND);
    assert_eq!(out(&world), [0, 0]);
    let children = session(&world).children;
    let (sent, received) =
        children.iter().fold((0, 0), |(o, i), c| (o + c.sent.packets, i + c.received.packets));
    assert!(sent >= 2_000 && received >= 2_000, "{sent} sent, {received} received of 2,000");
    world.settle_and_check();
}

#[test]
fn a_sleep_is_announced_once_every_sa_is_back() {
    for carrier in ["nat", "always"] {
        let mut world = connected(3, carrier);
        load(&mut world, 50, 0);
        assert_eq!(out(&world)[0], 1);
        world.announce_sleep(Some(60 * SECOND), dormouse_node::SleepFlags::default());
        assert_eq!(out(&world), [0, 0], "{carrier}: neither end's is lent");
        assert!(matches!(world.device().sleep, Some(dormouse_node::SleepVerdict::Held { .. })), "{carrier}");
        world.run(30 * SECOND);
        world.wake(Access::A);
        world.run(SECOND);
        load(&mut world, 50, 0);
        assert_eq!(world.rungs().last(), Some(&dormouse_node::ladder::Rung::Held), "{carrier}");
        assert_eq!(out(&world)[0], 1, "{carrier}: lent again");
        world.settle_and_check();
    }
}

#[test]
fn new_keys_are_negotiated_here_and_lent_again() {
    for both in [false, true] {
        let mut world = connected(4, "nat");
        load(&mut world, 50, 0);
        let before = begun(&world);
        world.step(Step::RekeyChild(both));
        load(&mut world, 800, 0);
        assert_eq!(out(&world), [1, 1], "the new SA is lent");
        assert!(begun(&world)[0] > before[0]);
        world.settle_and_check();
    }
}

#[test]
fn an_engine_that_has_lost_its_numbers_costs_new_keys_and_no_session() {
    let mut world = connected(5, "nat");
    load(&mut world, 50, 0);
    world.device_mut().lose_loans();
    world.run(5 * SECOND);
    assert_eq!(out(&world), [0, 0]);
    load(&mut world, 50, 0);
    assert_eq!(world.rungs().len(), 1, "the session went on: {:?}", world.rungs());
    world.settle_and_check();
}

#[test]
fn a_process_that_dies_leaves_no_number_behind_that_is_used_again() {
    for gateway in [false, true] {
        let mut world = connected(6, "nat");
        load(&mut world, 50, 0);
        world.step(if gateway { Step::GatewayCrash(SECOND, true) } else { Step::DeviceCrash(SECOND) });
        world.run(30 * SECOND);
        load(&mut world, 50, 100);
        world.settle_and_check();
    }
}

/// Packets between the gateway and these devices, in both directions for a while; how many of them were lost.
fn both_ways(crowd: &mut Crowd, devices: &[usize]) -> usize {
    let before = (
        crowd.gateway().received.len(),
        devices.iter().map(|n| crowd.device(*n).received.len()).sum::<usize>(),
    );
    let mut sent = 0;
    for _ in 0..50 {
        for n in devices {
            crowd.send_up(*n);
            crowd.send_down(*n);
            sent += 2;
        }
        crowd.run(Duration::from_millis(10));
    }
    crowd.run(Duration::from_millis(500));
    let up = crowd.gateway().received.len() - before.0;
    let down = devices.iter().map(|n| crowd.device(*n).received.len()).sum::<usize>() - before.1;
    sent - up - down
}

fn lent_by_gateway(crowd: &Crowd) -> (usize, u64) {
    crowd.gateway().node().map_or((0, 0), |node| (node.loans().count(), node.loans_begun()))
}

/// A pool gives each client addresses of its own.
#[test]
fn a_gateway_lends_the_sas_of_several_sessions_and_others_come_and_go_beside_them() {
    let mut crowd = Crowd::in_setting(7, 4, Setting { engine: true, ..Setting::default() });
    crowd.run(2 * SECOND);
    assert_eq!((crowd.sessions(), lent_by_gateway(&crowd)), (4, (0, 0)));
    assert_eq!(both_ways(&mut crowd, &[0, 1]), 0, "no packet is lost");
    assert_eq!(lent_by_gateway(&crowd), (2, 2), "those under load");
    let carried = crowd.gateway().carried_elsewhere();
    assert_eq!(both_ways(&mut crowd, &[0, 1, 2]), 0);
    assert_eq!(lent_by_gateway(&crowd), (3, 3));
    assert!(crowd.gateway().carried_elsewhere() >= carried + 100, "not by the process");
    crowd.with_machine(3, |now, machine| machine.with(now, |host| _ = host.down(now, "office")));
    assert_eq!(both_ways(&mut crowd, &[0, 1, 2]), 0, "one goes");
    crowd.with_machine(3, |now, machine| machine.with(now, |host| assert!(host.up(now, "office"))));
    assert_eq!(both_ways(&mut crowd, &[0, 1, 2]), 0, "and comes");
    assert_eq!((crowd.sessions(), lent_by_gateway(&crowd)), (4, (3, 3)), "none was called back");
    crowd.kill(1);
    assert_eq!(both_ways(&mut crowd, &[0, 2]), 0);
    assert_eq!(both_ways(&mut crowd, &[0, 2]), 0);
    assert_eq!(lent_by_gateway(&crowd), (2, 3), "nothing passes to one that died");
    assert_eq!(both_ways(&mut crowd, &[0, 2, 3]), 0);
    assert_eq!(lent_by_gateway(&crowd), (3, 4));
    crowd.run(4 * SECOND);
    assert_eq!(lent_by_gateway(&crowd), (0, 4), "nothing is carried");
    assert_eq!(both_ways(&mut crowd, &[3, 0]), 0);
}

/// A gateway between a network behind one peer and hosts of it that come by themselves.
struct Sites {
    net: Topology,
    gateway: MachineId,
    peers: Vec<MachineId>,
    sent: u64,
}

impl Sites {
    fn new(seed: u64, sites: &[(&str, &str)]) -> Self {
        const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1));
        let connection = |name: &str, role: &str, [own, peer]: [&str; 2], child: &str| {
            let secret = "secret = \"a secret of the simulation\"\n";
            let reached = if role == "client" { format!("gateway = \"{GATEWAY}\"\n") } else { String::new() };
            format!(
                "[connection.{name}]\nrole = \"{role}\"\n{reached}[connection.{name}.local]\nid = \"{own}.sim\"\n{secret}\
                 [connection.{name}.remote]\nid = \"{peer}.sim\"\n{secret}[connection.{name}.ike]\nesp_in_udp = \"nat\"\n\
                 [connection.{name}.child]\n{child}\n"
            )
        };
        let mut net = Topology::new(seed);
        let link = LinkConfig { delay: Duration::from_millis(5), ..LinkConfig::default() };
        let network = net.add_network(link, None);
        let served = sites.iter().map(|(name, prefix)| {
            let child = format!("local = [\"10.99.0.0/24\"]\nremote = [\"{prefix}\"]");
            connection(name, "gateway", ["gateway", name], &child)
        });
        let mut add = |file: &str, reaches: Option<&str>| {
            let mut machine = Machine::new(net.host_of(file));
            machine.gateways.extend(reaches.map(|name| (name.to_owned(), vec![GATEWAY])));
            machine.with(Instant::ZERO, |host| {
                host.set_engine(Engine { raw: true, udp: InUdp::Alone, load: 2, ours: false })
            });
            net.add_machine(machine)
        };
        let gateway = add(&served.collect::<String>(), None);
        let peers = sites.iter().map(|(name, prefix)| {
            let child =
                format!("local = [\"{prefix}\"]\nremote = [\"10.99.0.0/24\"]\nrequest_address = \"none\"");
            add(&connection(name, "client", [name, "gateway"], &child), Some(name))
        });
        let peers: Vec<MachineId> = peers.collect();
        net.place(gateway, Some((network, vec![GATEWAY])));
        for (peer, last) in peers.iter().zip(1..) {
            net.place(*peer, Some((network, vec![Ipv4Addr::new(10, 1, 0, last).into()])));
        }
        Self { net, gateway, peers, sent: 0 }
    }

    fn up(&mut self, peer: usize, name: &str) {
        self.net.with(self.peers[peer], |now, host| assert!(host.up(now, name)));
    }

    fn run(&mut self, time: Duration) {
        let end = self.net.now + time;
        self.net.run_until(end, |_, _| false);
    }

    fn loans(&self) -> usize {
        self.net.machine(self.gateway).node().map_or(0, |node| node.loans().count())
    }

    /// Packets from the gateway to this address for a while; which peer has how many of them.
    fn load(&mut self, to: &str) -> Vec<usize> {
        let before: Vec<usize> =
            self.peers.iter().map(|peer| self.net.machine(*peer).received.len()).collect();
        for _ in 0..50 {
            self.sent += 1;
            let (now, number) = (self.net.now, self.sent);
            let (from, to) = (Ipv4Addr::new(10, 99, 0, 2).into(), to.parse().expect("an address"));
            self.net.machine_mut(self.gateway).send(now, from, to, number);
            self.run(Duration::from_millis(10));
        }
        self.run(Duration::from_millis(100));
        let counts = self.peers.iter().zip(before);
        counts.map(|(peer, before)| self.net.machine(*peer).received.len() - before).collect()
    }
}

/// The engine takes all that routes lead to the peer's side of an SA.
#[test]
fn an_sa_is_called_back_before_another_session_has_addresses_within_its_traffic() {
    let mut sites =
        Sites::new(9, &[("net", "10.7.0.0/16"), ("host", "10.7.0.5/32"), ("other", "10.8.0.0/16")]);
    sites.up(0, "net");
    sites.up(2, "other");
    sites.run(2 * SECOND);
    // What it sends first proves how it is reached.
    for (peer, from) in [(0, [10, 7, 0, 5]), (2, [10, 8, 0, 5])] {
        let (now, to) = (sites.net.now, Ipv4Addr::new(10, 99, 0, 2).into());
        sites.net.machine_mut(sites.peers[peer]).send(now, Ipv4Addr::from(from).into(), to, 1_000);
    }
    sites.run(SECOND);
    assert_eq!(sites.load("10.7.0.5"), [50, 0, 0]);
    assert_eq!((sites.load("10.8.0.5"), sites.loans()), (vec![0, 0, 50], 2), "two networks apart");
    sites.load("10.7.0.5");
    sites.up(1, "host");
    sites.run(Duration::from_millis(500));
    assert_eq!(sites.load("10.7.0.5"), [0, 50, 0], "the host's own, from the first packet on");
    assert_eq!(sites.load("10.7.0.6"), [50, 0, 0]);
    assert_eq!(sites.loans(), 0, "neither of the two that meet");
    assert_eq!((sites.load("10.8.0.5"), sites.loans()), (vec![0, 0, 50], 1), "which the third does not");
    sites.net.with(sites.peers[1], |now, host| _ = host.down(now, "host"));
    sites.run(2 * SECOND);
    assert_eq!((sites.load("10.7.0.5"), sites.loans()), (vec![50, 0, 0], 1), "it has gone");
}

/// Workers begin with a loan when all is sent and handed to them that came before, and end it when all that came meanwhile is.
#[test]
fn no_packet_overtakes_another_where_workers_begin_and_end() {
    for seed in 20..30 {
        let mut world = connected(seed, "always");
        for _ in 0..6 {
            let before = (world.gateway().received.len(), world.device().received.len());
            let mut sent = 0;
            for round in 0..60 {
                for _ in 0..=round % 7 {
                    world.send_up();
                    world.send_down();
                    sent += 1;
                }
                world.run(Duration::from_millis(1 + round % 5));
            }
            assert_eq!(out(&world)[1], 1, "lent by the gateway");
            world.run(4 * SECOND);
            assert_eq!(out(&world), [0, 0]);
            for received in [&world.gateway().received[before.0..], &world.device().received[before.1..]] {
                assert_eq!(received.len(), sent, "seed {seed}");
                assert!(received.is_sorted(), "seed {seed}: {received:?}");
            }
        }
        world.settle_and_check();
    }
}

/// A peer whose NAT forgets it comes from another port, which its next packet shows to the host alone.
#[test]
fn a_gateways_loan_is_called_back_when_its_peer_comes_another_way() {
    let mut world = connected(31, "always");
    world.enter(Access::B);
    world.run(4 * SECOND);
    load(&mut world, 50, 0);
    assert_eq!(out(&world)[1], 1);
    let begun_before = begun(&world)[1];
    world.step(Step::NatForgets);
    load(&mut world, 100, 100);
    assert_eq!(out(&world)[1], 0, "here for a second: a stranger could have sent what came another way");
    world.run(SECOND);
    load(&mut world, 50, 0);
    assert_eq!(out(&world)[1], 1, "lent on the new path");
    assert!(begun(&world)[1] > begun_before);
    world.settle_and_check();
}

/// Each end chooses how it sends: what comes as a protocol of its own would not come to an engine that sends in UDP.
#[test]
fn an_end_whose_peer_sends_by_another_carrier_lends_nothing() {
    let mut settings = Settings { engine: true, ..Settings::default() };
    settings.gateway.push(("ike", "esp_in_udp = \"nat\"".into()));
    let mut world = World::new(17, settings);
    world.enter(Access::A);
    world.run(2 * SECOND);
    load(&mut world, 100, 0);
    assert_eq!(out(&world), [0, 0]);
    world.settle_and_check();
}

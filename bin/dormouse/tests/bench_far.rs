//! `dormouse bench --serve` and `--peer`, each in a network namespace of its own as if it were a machine of its own: figures
//! of both, and nothing left in either, however one of them ends.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use dormouse_lab::results::Results;
use dormouse_lab::results::format::{Direction, Encapsulation, Engine, What};
use dormouse_testbed::{Host, Need, Process, Testbed, require};
use nix::sys::signal::Signal;

const BENCH: &str = env!("CARGO_BIN_EXE_dormouse");
const SERVICE: &str = "192.0.2.2:7000";
const PATIENCE: Duration = Duration::from_secs(120);

/// Two machines with a link between them; the second one serves.
struct World {
    // In this order: what runs goes before what it runs in.
    service: Process,
    device: Host,
    far: Host,
    secret: PathBuf,
    _testbed: Testbed,
}

impl World {
    fn new() -> Self {
        let mut testbed = Testbed::new().unwrap();
        let (device, far) = (testbed.host("device").unwrap(), testbed.host("far").unwrap());
        testbed.link((&device, "eth0", &["192.0.2.1/24"]), (&far, "eth0", &["192.0.2.2/24"])).unwrap();
        let secret = testbed.dir().join("secret");
        let service = Self::serve(&far, &secret);
        Self { service, device, far, secret, _testbed: testbed }
    }

    fn serve(far: &Host, secret: &Path) -> Process {
        let args = ["bench", "--serve", SERVICE, "--secret", secret.to_str().unwrap()];
        let service = far.spawn("serve", BENCH, &args).unwrap();
        // Its log may hold the words of the one before.
        far.eventually(&format!("test -s {}", secret.display()), PATIENCE).unwrap();
        service
    }

    fn bench(&self, more: &[&str]) -> Command {
        let mut command = self.device.command(BENCH);
        command.args(["bench", "--peer", SERVICE, "--secret", self.secret.to_str().unwrap(), "--quick"]);
        command.args(more);
        command
    }

    /// A campaign long enough to be interrupted, at work: both ends of its tunnel are there.
    fn at_work(&self, out: &Path, what: &str) -> Process {
        let mut command = self.bench(&["--what", what, "--suites", "aes128gcm16", "--sizes", "1400"]);
        command.args(["--cores", "1", "--files", "2000000000"]);
        command.args(["--repeat", "500", "--out", out.to_str().unwrap()]);
        let log = self.device.dir().join("bench.log");
        let _ = std::fs::remove_file(&log);
        let process = Process::spawn("bench", &mut command, &log).unwrap();
        for host in [&self.device, &self.far] {
            host.eventually("ip link show dev dmbench0", PATIENCE).unwrap();
        }
        process
    }

    /// That neither machine has a device, an address, a route or a process that it did not have before.
    fn is_clean(&self, serves: bool) {
        for host in [&self.device, &self.far] {
            host.eventually("! ip link show dev dmbench0 2>/dev/null", PATIENCE).unwrap();
            assert_eq!(host.sh("ip -o addr | grep -c 198.18 || true").unwrap().trim(), "0");
            assert_eq!(host.sh("ip route show table all | grep -c 198.18 || true").unwrap().trim(), "0");
            assert_eq!(host.sh("cat /sys/class/net/eth0/mtu").unwrap().trim(), "1500");
        }
        let pids = |host: &Host| {
            let out = Command::new("ip").args(["netns", "pids", host.netns()]).output().unwrap();
            String::from_utf8_lossy(&out.stdout).split_whitespace().count()
        };
        for (host, expected) in [(&self.device, 0), (&self.far, usize::from(serves))] {
            let mut found = pids(host);
            for _ in 0..200 {
                if found <= expected {
                    break;
                }
                std::thread::sleep(Duration::from_millis(50));
                found = pids(host);
            }
            assert_eq!(found, expected, "processes on {}", host.name());
        }
    }
}

fn skipped(test: &str) -> bool {
    !require(test, &[Need::Root, Need::Program("ip"), Need::File("/dev/net/tun")])
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_campaign_between_two_machines_has_the_figures_of_both_and_leaves_nothing() {
    if skipped("measuring between two machines") {
        return;
    }
    let world = World::new();
    let out = world.device.dir().join("results.json");
    let args = ["--what", "path,streams,downloads", "--suites", "aes128gcm16,null-sha256", "--sizes", "1400"];
    let done = world
        .bench(&args)
        .args(["--cores", "1", "--files", "50000", "--rates", "2e6", "--repeat", "2"])
        .args(["--out", out.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(done.status.success(), "{}\n{}", errors(&done), world.service.log());
    let results = Results::read(&out).unwrap();
    assert!(results.finished.is_some() && results.far.as_ref().is_some_and(|far| !far.kernel.is_empty()));
    for suite in ["aes128gcm16", "null-sha256"] {
        for what in [What::Path, What::Stream, What::Download] {
            let ours = |s: &&dormouse_lab::results::format::Sample| {
                (s.what, s.engine, s.suite.as_str()) == (what, Engine::Dormouse, suite)
                    && s.encapsulation != Encapsulation::None
            };
            let points: Vec<_> = results.samples.iter().filter(ours).collect();
            assert!(!points.is_empty(), "{what:?} of {suite}: {:?}", results.skipped);
            if what == What::Path {
                for direction in [Direction::Out, Direction::In] {
                    assert!(points.iter().any(|s| s.direction == direction), "{suite} {direction:?}");
                }
            }
        }
    }
    for sample in &results.samples {
        assert!(sample.verified && sample.rounds.len() == 2, "{sample:?}");
        for round in &sample.rounds {
            let figures = [round.throughput, round.elapsed, round.cpu_thread, round.far_cpu_thread];
            assert!(figures.iter().all(|f| f.is_some_and(|f| f > 0.0)), "{sample:?}");
            if sample.what != What::Download {
                assert!(round.loss.is_some() && round.packets_received > Some(0), "{sample:?}");
            }
        }
    }
    world.is_clean(true);
    let advice = Command::new(BENCH).args(["advise", out.to_str().unwrap()]).output().unwrap();
    // Two rounds are too few for a recommendation: that, and nothing else, is in its way.
    assert!(errors(&advice).contains("only 2 rounds"), "{}", errors(&advice));
}

/// Of what a link loses, the far machine's count is what the device reports, and the other way round.
#[test]
fn what_the_link_loses_is_counted_where_it_does_not_arrive() {
    if skipped("measuring a link that loses packets")
        || !require("measuring a link that loses packets", &[Need::Program("nft")])
    {
        return;
    }
    let world = World::new();
    let every_fourth = "table ip lossy { chain input { type filter hook input priority 0; \
                        udp dport 7001 numgen inc mod 4 0 drop; }; }";
    world.device.nft(every_fourth).unwrap();
    let out = world.device.dir().join("loss.json");
    let done = world
        .bench(&["--what", "streams", "--suites", "aes128gcm16", "--sizes", "1000", "--rates", "4e6"])
        .args(["--repeat", "2", "--out", out.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(done.status.success(), "{}\n{}", errors(&done), world.service.log());
    let results = Results::read(&out).unwrap();
    let offered: Vec<_> = results.samples.iter().filter(|s| s.offered.is_some()).collect();
    for sample in &offered {
        for round in &sample.rounds {
            let loss = round.loss.unwrap();
            match sample.engine {
                // One more or less: the count of the rule goes on from round to round.
                Engine::Plain => assert!((loss - 0.25).abs() < 0.03, "{sample:?}"),
                // What comes out of the tunnel is counted in bursts: of how many packets cannot be known.
                _ => assert!(loss > 0.05, "{sample:?}"),
            }
        }
    }
    assert!(offered.len() >= 2, "{:?}", results.skipped);
    world.is_clean(true);
}

#[test]
fn a_client_that_is_killed_leaves_nothing_and_the_next_one_is_served() {
    if skipped("measuring between two machines, killed") {
        return;
    }
    let world = World::new();
    let out = world.device.dir().join("killed.json");
    for what in ["path", "downloads"] {
        let mut bench = world.at_work(&out, what);
        bench.kill();
        world.is_clean(true);
    }
    let next = world
        .bench(&["--what", "streams", "--suites", "aes128gcm16", "--sizes", "1400", "--rates", "2e6"])
        .args(["--repeat", "1"])
        .output()
        .unwrap();
    assert!(next.status.success(), "{}\n{}", errors(&next), world.service.log());
    world.is_clean(true);
}

#[test]
fn a_service_that_is_killed_ends_the_campaign_which_goes_on_with_the_next_one() {
    if skipped("measuring between two machines, interrupted") {
        return;
    }
    let mut world = World::new();
    let out = world.device.dir().join("lost.json");
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut bench = world.at_work(&out, "path");
        world.service.signal(signal);
        let status = bench.wait(PATIENCE).expect("it notices");
        assert_eq!(status.code(), Some(1), "{}", bench.log());
        assert!(bench.log().contains("the connection to 192.0.2.2:7000 is lost"), "{}", bench.log());
        assert!(world.service.wait(PATIENCE).is_some());
        world.is_clean(false);
        // Killed, it could not take its secret away.
        assert_eq!(world.secret.exists(), signal == Signal::SIGKILL);
        let _ = std::fs::remove_file(&world.secret);
        world.service = World::serve(&world.far, &world.secret);
    }
    let results = Results::read(&out).unwrap();
    assert!(results.finished.is_none() && results.far.is_some());
    let alone =
        world.device.command(BENCH).args(["bench", "--resume", out.to_str().unwrap()]).output().unwrap();
    assert!(errors(&alone).contains("measured between two machines: --peer is needed"), "{}", errors(&alone));
    // To go on is to need no plan: it is in the file.
    let mut command = world.device.command(BENCH);
    command.args(["bench", "--resume", out.to_str().unwrap(), "--peer", SERVICE]);
    command.env("DORMOUSE_BENCH_SECRET", std::fs::read_to_string(&world.secret).unwrap());
    let mut again = Process::spawn("again", &mut command, &world.device.dir().join("again.log")).unwrap();
    world.device.eventually("ip link show dev dmbench0", PATIENCE).unwrap();
    again.signal(Signal::SIGINT);
    assert_eq!(again.wait(PATIENCE).and_then(|s| s.code()), Some(1), "{}", again.log());
    assert!(again.log().contains("--peer 192.0.2.2:7000 continues"), "{}", again.log());
    world.is_clean(true);
}

#[test]
fn what_is_in_the_way_is_said() {
    if skipped("measuring between two machines, refused") {
        return;
    }
    let world = World::new();
    let args =
        ["--what", "path", "--suites", "aes128gcm16", "--sizes", "1400", "--cores", "1", "--repeat", "1"];
    let refused = |change: &dyn Fn(), world: &World| {
        change();
        errors(&world.bench(&args).output().unwrap())
    };
    // The prefix is in use elsewhere: the bare link is measured, no tunnel is made.
    world.far.ip("addr add 198.18.88.9/15 dev eth0").unwrap();
    let out = world.bench(&args).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.contains("on the far machine: 198.18.88.0/30 is needed for the tunnel and"), "{text}");
    assert!(text.contains("path none (plain) 1400 B out"), "{text}");
    world.far.ip("addr del 198.18.88.9/15 dev eth0").unwrap();
    // A link that carries too little, no route, no server, no secret.
    let text = refused(&|| world.far.ip("link set dev eth0 mtu 1400").unwrap(), &world);
    assert!(
        text.contains("it refuses: eth0 carries 1400 bytes to 192.0.2.1: expected at least 1500"),
        "{text}"
    );
    world.far.ip("link set dev eth0 mtu 1500").unwrap();
    let ask = |address: &str| {
        let mut command = world.device.command(BENCH);
        command.args(["bench", "--peer", address, "--secret", world.secret.to_str().unwrap()]);
        errors(&command.output().unwrap())
    };
    assert!(ask("198.51.100.1:7000").contains("no route to the peer 198.51.100.1:7000"));
    assert!(ask("192.0.2.2:7009").contains("nobody serves at 192.0.2.2:7009"));
    assert!(ask("nonsense").contains("nonsense: expected ADDRESS:PORT"));
    let out = world.device.command(BENCH).args(["bench", "--peer", SERVICE]).output().unwrap();
    assert!(errors(&out).contains("--peer needs the secret"), "{}", errors(&out));
    world.is_clean(true);
}

//! `dormouse bench --far`, from one network namespace to another as if each were a machine of its own: figures of both, and
//! nothing left in either, however one of them ends. The `ssh` of these tests enters the other namespace; the worker that it runs there
//! is the real one.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use dormouse_lab::results::Results;
use dormouse_lab::results::esp::{Direction, Encapsulation, Engine, What};
use dormouse_testbed::{Host, Need, Process, Testbed, require};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const BENCH: &str = env!("CARGO_BIN_EXE_dormouse");
const PATIENCE: Duration = Duration::from_secs(120);

/// Two machines with a link between them, and an `ssh` from the first to the second.
struct World {
    device: Host,
    far: Host,
    _testbed: Testbed,
}

impl World {
    fn new() -> Self {
        let mut testbed = Testbed::new().unwrap();
        let (device, far) = (testbed.host("device").unwrap(), testbed.host("far").unwrap());
        testbed.link((&device, "eth0", &["192.0.2.1/24"]), (&far, "eth0", &["192.0.2.2/24"])).unwrap();
        let world = Self { device, far, _testbed: testbed };
        world.ssh("192.0.2.1 50022 192.0.2.2 22");
        world
    }

    /// An `ssh` whose connection has these ends.
    fn ssh(&self, connection: &str) {
        let path = self.device.dir().join("ssh");
        let script = format!(
            "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nhost=$2\nshift 2\n\
             [ \"$host\" = far ] || {{ echo \"ssh: no host $host\" >&2; exit 255; }}\n\
             export SSH_CONNECTION=\"{connection}\"\nexec ip netns exec {} sh -c \"exec $*\"\n",
            self.far.netns()
        );
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    fn run(&self, args: &[&str]) -> Command {
        let mut command = self.device.command(BENCH);
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", self.device.dir().display()));
        command.arg("bench").args(args).args(["--far-command", BENCH]);
        command
    }

    fn bench(&self, more: &[&str]) -> Command {
        let mut command = self.run(&["--far", "far", "--quick"]);
        command.args(more);
        command
    }

    /// Processes on a host.
    fn pids(host: &Host) -> Vec<Pid> {
        let out = Command::new("ip").args(["netns", "pids", host.netns()]).output().unwrap();
        String::from_utf8_lossy(&out.stdout)
            .split_whitespace()
            .map(|p| Pid::from_raw(p.parse().unwrap()))
            .collect()
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
    fn is_clean(&self) {
        for host in [&self.device, &self.far] {
            host.eventually("! ip link show dev dmbench0 2>/dev/null", PATIENCE).unwrap();
            assert_eq!(host.sh("ip -o addr | grep -c 198.18 || true").unwrap().trim(), "0");
            assert_eq!(host.sh("ip route show table all | grep -c 198.18 || true").unwrap().trim(), "0");
            assert_eq!(host.sh("cat /sys/class/net/eth0/mtu").unwrap().trim(), "1500");
        }
        for host in [&self.device, &self.far] {
            let mut left = Self::pids(host);
            for _ in 0..200 {
                if left.is_empty() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(50));
                left = Self::pids(host);
            }
            assert!(left.is_empty(), "processes on {}: {left:?}", host.name());
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
    assert!(done.status.success(), "{}", errors(&done));
    let results = <Results>::read(&out).unwrap();
    assert!(results.finished.is_some() && results.far.as_ref().is_some_and(|far| !far.kernel.is_empty()));
    for suite in ["aes128gcm16", "null-sha256"] {
        for what in [What::Path, What::Stream, What::Download] {
            let ours = |s: &&dormouse_lab::results::Sample| {
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
            let of = |name| round.figures.one(name);
            let figures = ["throughput", "elapsed", "cpu_thread", "far_cpu_thread"].map(of);
            assert!(figures.iter().all(|f| *f > Some(0.0)), "{sample:?}");
            if sample.what != What::Download {
                assert!(of("loss").is_some() && of("packets_received") > Some(0.0), "{sample:?}");
            }
        }
    }
    world.is_clean();
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
    assert!(done.status.success(), "{}", errors(&done));
    let results = <Results>::read(&out).unwrap();
    let offered: Vec<_> = results.samples.iter().filter(|s| s.offered.is_some()).collect();
    for sample in &offered {
        for round in &sample.rounds {
            let loss = round.figures.one("loss").unwrap();
            match sample.engine {
                // One more or less: the count of the rule goes on from round to round.
                Engine::Plain => assert!((loss - 0.25).abs() < 0.03, "{sample:?}"),
                // What comes out of the tunnel is counted in bursts: of how many packets cannot be known.
                _ => assert!(loss > 0.05, "{sample:?}"),
            }
        }
    }
    assert!(offered.len() >= 2, "{:?}", results.skipped);
    world.is_clean();
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
        world.is_clean();
    }
    let next = world
        .bench(&["--what", "streams", "--suites", "aes128gcm16", "--sizes", "1400", "--rates", "2e6"])
        .args(["--repeat", "1"])
        .output()
        .unwrap();
    assert!(next.status.success(), "{}", errors(&next));
    world.is_clean();
}

#[test]
fn a_connection_that_is_lost_ends_the_campaign_which_can_go_on() {
    if skipped("measuring between two machines, interrupted") {
        return;
    }
    let world = World::new();
    let out = world.device.dir().join("lost.json");
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut bench = world.at_work(&out, "path");
        for pid in World::pids(&world.far) {
            // Of several, one may have ended with another.
            let _ = kill(pid, signal);
        }
        let status = bench.wait(PATIENCE).expect("it notices");
        assert_eq!(status.code(), Some(1), "{}", bench.log());
        assert!(bench.log().contains("the connection to far is lost"), "{}", bench.log());
        world.is_clean();
    }
    let results = <Results>::read(&out).unwrap();
    assert!(results.finished.is_none() && results.far.is_some());
    let alone =
        world.device.command(BENCH).args(["bench", "--resume", out.to_str().unwrap()]).output().unwrap();
    assert!(errors(&alone).contains("measured between two machines: --far is needed"), "{}", errors(&alone));
    // To go on is to need no plan: it is in the file.
    let mut command = world.run(&["--far", "far", "--resume", out.to_str().unwrap()]);
    let mut again = Process::spawn("again", &mut command, &world.device.dir().join("again.log")).unwrap();
    world.device.eventually("ip link show dev dmbench0", PATIENCE).unwrap();
    again.signal(Signal::SIGINT);
    assert_eq!(again.wait(PATIENCE).and_then(|s| s.code()), Some(1), "{}", again.log());
    assert!(again.log().contains("--far far continues"), "{}", again.log());
    world.is_clean();
}

#[test]
fn what_is_in_the_way_is_said() {
    if skipped("measuring between two machines, refused") {
        return;
    }
    let world = World::new();
    let args =
        ["--what", "path", "--suites", "aes128gcm16", "--sizes", "1400", "--cores", "1", "--repeat", "1"];
    // The prefix is in use elsewhere: the bare link is measured, no tunnel is made.
    world.far.ip("addr add 198.18.88.9/15 dev eth0").unwrap();
    let out = world.bench(&args).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.contains("on the far machine: 198.18.88.0/30 is needed for the tunnel and"), "{text}");
    assert!(text.contains("path none (plain) 1400 B out"), "{text}");
    world.far.ip("addr del 198.18.88.9/15 dev eth0").unwrap();
    let said = |command: &mut Command| errors(&command.output().unwrap());
    // A link that carries too little, a NAT, this very machine, no such host, another program.
    world.far.ip("link set dev eth0 mtu 1400").unwrap();
    let text = said(&mut world.bench(&args));
    assert!(text.contains("on far: eth0 carries 1400 bytes to 192.0.2.1: expected at least 1500"), "{text}");
    world.far.ip("link set dev eth0 mtu 1500").unwrap();
    world.ssh("192.0.2.77 50022 192.0.2.2 22");
    let text = said(&mut world.bench(&args));
    assert!(text.contains("in between: far sees 192.0.2.77, which is not ours"), "{text}");
    world.ssh("192.0.2.2 50022 192.0.2.2 22");
    let text = said(&mut world.bench(&args));
    assert!(text.contains("192.0.2.2 is this machine: two of them are needed"), "{text}");
    let text = said(&mut world.run(&["--far", "nowhere"]));
    assert!(text.contains("ssh: no host nowhere") && text.contains("the child ended"), "{text}");
    let mut command = world.device.command(BENCH);
    command.env("PATH", format!("{}:{}", world.device.dir().display(), std::env::var("PATH").unwrap()));
    command.args(["bench", "--far", "far", "--far-command", "echo hello; exit;"]);
    let text = said(&mut command);
    assert!(text.contains("the child answered \"hello\\n\""), "{text}");
    world.is_clean();
}

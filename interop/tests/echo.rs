//! What an echo costs the daemons that it passes: a look at the tunnel for each packet and no more, and no sleep between two packets where `daemon.spin`
//! forbids it. Counted by the kernel, for the thread that carries packets.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Context, Result, bail};
use dormouse_interop::ends::{PATIENCE, device, gateway};
use dormouse_testbed::{Access, Dormoused, Need, Roaming, SERVER, require};
use std::fs;
use std::time::{Duration, Instant};

const NEEDS: [Need; 4] =
    [Need::Root, Need::File("/dev/net/tun"), Need::Program("nft"), Need::File("/proc/self/io")];
/// Echoes of one count.
const ECHOES: u64 = 100;

/// A file of the kernel's about the thread that carries packets, the first of its process.
fn about(daemon: &mut Dormoused, file: &str) -> Result<String> {
    let pid = daemon.process().pid();
    let path = format!("/proc/{pid}/task/{pid}/{file}");
    fs::read_to_string(&path).context(path)
}

/// The number behind `key` in such a file.
fn count(daemon: &mut Dormoused, file: &str, key: &str) -> Result<u64> {
    let text = about(daemon, file)?;
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    line.with_context(|| format!("no {key} in {text}"))?.trim().parse().context(text)
}

/// Both daemons with the tunnel up, the device's first; the gateway with a line of its own.
fn world(line: &str) -> Result<(Roaming, [Dormoused; 2])> {
    let world = Roaming::new(30)?;
    world.attach(Access::A)?;
    let pool = "\"10.55.0.0/24\", \"fd55::/64\"";
    let gateway = Dormoused::start(&world.gateway, &format!("dns = \"off\"\n{line}"), &gateway(pool, ""))?;
    let device = Dormoused::start(&world.device, "dns = \"off\"", &device("mode = \"performance\""))?;
    device.ok(&["up", "peer"])?;
    world.device.sh(&format!("ping -c 2 -i 0.2 -W 5 {SERVER}")).with_context(|| device.log())?;
    Ok((world, [device, gateway]))
}

/// How much a count of each daemon grows by [`ECHOES`] echoes, one each 5 ms.
fn grows(world: &Roaming, daemons: &mut [Dormoused; 2], file: &str, key: &str) -> Result<[u64; 2]> {
    let [device, gateway] = daemons;
    let before = [count(device, file, key)?, count(gateway, file, key)?];
    world.device.sh(&format!("ping -q -c {ECHOES} -i 0.005 -W 5 {SERVER}"))?;
    let after = [count(device, file, key)?, count(gateway, file, key)?];
    Ok([0, 1].map(|i| after[i] - before[i]))
}

#[test]
fn each_packet_of_an_echo_is_one_read_of_the_tunnel() -> Result<()> {
    if !require("reads of the tunnel", &NEEDS) {
        return Ok(());
    }
    let (world, mut daemons) = world("")?;
    let reads = grows(&world, &mut daemons, "io", "syscr")?;
    // With a look for another packet behind each it is two. Some are the timer's, and of packets that the machine was too busy for at their time.
    assert!(reads.iter().all(|reads| (ECHOES..ECHOES * 3 / 2).contains(reads)), "{reads:?}");
    Ok(())
}

#[test]
fn with_daemon_spin_a_daemon_does_not_sleep_between_packets_but_behind_the_last() -> Result<()> {
    if !require("daemon.spin", &NEEDS) {
        return Ok(());
    }
    let (world, mut daemons) = world("spin = \"10ms\"")?;
    let [device, gateway] = grows(&world, &mut daemons, "status", "voluntary_ctxt_switches")?;
    assert!(device >= ECHOES, "the device's sleeps before each packet: {device}");
    assert!(gateway < device / 2, "the gateway slept {gateway} times, the device {device}");
    let until = Instant::now() + PATIENCE;
    loop {
        let stat = about(&mut daemons[1], "stat")?;
        // The state stands behind the name, which ends with a bracket. A thread that looks without rest runs, or waits for a processor.
        if stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S')) {
            return Ok(());
        }
        if Instant::now() > until {
            bail!("it never sleeps again: {stat}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

//! `dormouse lab link` as a user calls it: a transfer over its bad radio arrives whole with each repair, the report says what the router repeated,
//! and nothing is left when it ends, by itself, by Ctrl-C, or because the command failed.

#![expect(clippy::disallowed_methods, reason = "waits for real processes by the real clock")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use dormouse_testbed::{Host, Need, Process, Testbed, binary, require};
use nix::sys::signal::Signal;
use serde_json::Value;

const NEEDS: [Need; 5] = [
    Need::Root,
    Need::File("/dev/net/tun"),
    Need::Program("ip"),
    Need::Program("curl"),
    Need::File("/usr/bin/python3"),
];
/// A repaired transfer takes a second, one that is not some ten, and a busy machine its time.
const PATIENCE: Duration = Duration::from_secs(120);
/// Bytes of the file: some 200 packets, of which one in ten is lost.
const BYTES: usize = 300_000;
const RADIO: [&str; 6] = ["--rate", "10M", "--wire-delay", "5ms", "--bit-errors", "1/128k"];

/// One call of it, with a directory of its own. When it is dropped it is asked to end, and takes its namespaces with it; what it could not
/// take the next [`Testbed`] sweeps.
struct Lab {
    process: Process,
    bed: Testbed,
}

impl Lab {
    /// Starts it with `arguments`; the command in the device's namespace, if there is one, is a shell that obeys `script` in that directory.
    fn start(bed: Testbed, arguments: &[&str], script: Option<&str>) -> Result<Self> {
        // Its report on standard output, apart from what else is said.
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" lab link \"$@\" >report"]).arg(binary("dormouse")).args(arguments);
        command.args(script.map(|script| ["--", "sh", "-c", script]).into_iter().flatten());
        command.current_dir(bed.dir());
        let log = bed.dir().join("lab-link.log");
        Ok(Self { process: Process::spawn("dormouse lab link", &mut command, &log)?, bed })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.bed.dir().join(name)
    }

    /// Waits for its end; how it ended, and what it said on standard output.
    fn ends(&mut self) -> Result<(ExitStatus, String)> {
        let ended = self.process.wait(PATIENCE);
        let ended = ended.with_context(|| format!("it does not end:\n{}", self.process.log()))?;
        Ok((ended, fs::read_to_string(self.file("report"))?))
    }

    /// Nothing that bears its name is left: namespaces with their interfaces, files, and processes that its command has started, which all
    /// have `$DORMOUSE_FIXED`.
    fn leaves_nothing(&self) -> Result<()> {
        let name = format!("dm{}-", self.process.pid());
        let files = (std::env::temp_dir(), format!("dormouse-{name}"));
        let namespaces =
            ["/run/netns", "/etc/netns"].map(|directory| (PathBuf::from(directory), name.clone()));
        for (directory, prefix) in namespaces.into_iter().chain([files]) {
            let left: Vec<_> =
                names(&directory).into_iter().filter(|entry| entry.starts_with(&prefix)).collect();
            ensure!(left.is_empty(), "{}: {left:?}", directory.display());
        }
        ensure!(!Path::new("/sys/class/net/radio0").exists(), "an interface in the machine's own network");
        // A killed process takes a moment to go.
        let until = Instant::now() + PATIENCE;
        while let Some(process) = started_by(&name) {
            ensure!(Instant::now() < until, "still runs: {process}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The command line of a process whose `$DORMOUSE_FIXED` begins like this, if there is one.
fn started_by(name: &str) -> Option<String> {
    let variable = format!("DORMOUSE_FIXED={name}");
    names(Path::new("/proc")).into_iter().find_map(|id| {
        let process = Path::new("/proc").join(id);
        // Of a process that is gone, or only waits to be counted, it is empty.
        let environment = fs::read(process.join("environ")).ok()?;
        environment.split(|byte| *byte == 0).find(|entry| entry.starts_with(variable.as_bytes()))?;
        Some(String::from_utf8_lossy(&fs::read(process.join("cmdline")).ok()?).replace('\0', " "))
    })
}

/// A file that looks like no other part of itself.
fn content() -> Vec<u8> {
    let next = |state: &mut u32| {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some((*state >> 24) as u8)
    };
    let mut state = 1;
    std::iter::from_fn(move || next(&mut state)).take(BYTES).collect()
}

/// The fixed host serves the file, and the device fetches it. Server and daemons are left to run.
const FETCH: &str = "set -e
ip netns exec \"$DORMOUSE_FIXED\" /usr/bin/python3 -m http.server --directory served 8000 >server.log 2>&1 &
curl -sS --max-time 110 --retry 50 --retry-connrefused --retry-delay 1 -o fetched http://10.77.0.1:8000/file
echo fetched";

/// Writes the configurations of two daemons, whose tunnel goes from the device's end of the radio to the fixed host's; what brings it up.
fn tunnel(bed: &Testbed) -> Result<String> {
    let end = |own: &str, peer: &str, connection: &str, child: &str| {
        let secret = "secret = \"the two ends of a bad radio, which everyone may read\"";
        let path = |name: &str| bed.dir().join(format!("{own}{name}"));
        let text = format!(
            "[daemon]\nstate_dir = {:?}\nsocket = {:?}\nuser = \"root\"\ndns = \"off\"\n[connection.office]\n{connection}\n\
             [connection.office.local]\nid = \"{own}.test\"\n{secret}\n[connection.office.remote]\nid = \"{peer}.test\"\n{secret}\n\
             [connection.office.child]\n{child}\n",
            path(".state"),
            path(".sock"),
        );
        let file = path(".toml");
        fs::write(&file, text)?;
        fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600))
    };
    let pool = "role = \"gateway\"\npool = { addresses = [\"10.55.0.0/24\"] }";
    end("fixed", "device", pool, "local = [\"10.77.0.1/32\"]\nremote = [\"dynamic\"]")?;
    let client = "role = \"client\"\ngateway = \"10.77.0.1\"";
    end("device", "fixed", client, "remote = [\"10.77.0.1/32\"]\nrequest_address = \"ipv4\"")?;
    let [ours, daemon] = ["dormouse", "dormoused"].map(|name| binary(name).display().to_string());
    Ok(format!(
        "set -e
ip netns exec \"$DORMOUSE_FIXED\" '{daemon}' --config fixed.toml >fixed.log 2>&1 &
'{daemon}' --config device.toml >device.log 2>&1 &
for end in fixed device; do until '{ours}' --socket $end.sock status >/dev/null 2>&1; do sleep 0.1; done; done
'{ours}' --socket device.sock up office --timeout 60
"
    ))
}

/// Fetches the file over a link with this repair; the report.
fn fetched(repair: &str) -> Result<Value> {
    let bed = Testbed::new()?;
    fs::create_dir(bed.dir().join("served"))?;
    fs::write(bed.dir().join("served/file"), content())?;
    let prepared = if repair == "esp-arq" { tunnel(&bed)? } else { String::new() };
    let arguments: Vec<&str> = RADIO.into_iter().chain(["--repair", repair, "--json"]).collect();
    let mut lab = Lab::start(bed, &arguments, Some(&(prepared + FETCH)))?;
    let (ended, report) = lab.ends()?;
    ensure!(ended.success(), "{repair}: {ended}: {}", lab.process.log());
    // All that it says on standard output is the report: what the command says is beside it.
    let report: Value = serde_json::from_str(&report).with_context(|| report.clone())?;
    let origin = &report["provenance"];
    ensure!(
        origin["settings"]["repair"] == repair
            && origin["settings"]["wire_delay"] == 0.005
            && origin["seed"] == 1
            && ["dormouse", "commit", "executable"].iter().all(|what| origin["versions"][*what].is_string())
            && origin["command"].as_array().is_some_and(|c| c.iter().any(|word| word == "--bit-errors"))
            && origin["machine"]["kernel"].is_string(),
        "{repair}: {origin}"
    );
    ensure!(lab.process.log().contains("fetched\n"), "{repair}: {}", lab.process.log());
    ensure!(fs::read(lab.file("fetched"))? == content(), "{repair}: another file arrived");
    lab.leaves_nothing()?;
    let [all, broken] = ["packets", "corrupted"].map(|name| report["to_device"][name].as_u64());
    ensure!(
        all > Some(BYTES as u64 / 1_500) && broken > Some(0),
        "{repair}: a radio without errors: {report}"
    );
    Ok(report)
}

#[test]
fn without_a_repair_the_ends_alone_bring_a_file_over() -> Result<()> {
    if !require("dormouse lab link --repair none", &NEEDS) {
        return Ok(());
    }
    let report = fetched("none")?;
    assert_eq!(report["repair"], Value::Null, "{report}");
    Ok(())
}

#[test]
fn snoop_repeats_what_the_radio_loses_of_tcp() -> Result<()> {
    if !require("dormouse lab link --repair snoop", &NEEDS) {
        return Ok(());
    }
    let report = fetched("snoop")?;
    let repair = &report["repair"];
    assert_eq!(repair["how"], "snoop", "{report}");
    assert!(repair["repeated"].as_u64() > Some(0) && repair["kept"].as_u64() > Some(100), "{report}");
    Ok(())
}

#[test]
fn esp_arq_repeats_what_the_radio_loses_of_a_tunnel() -> Result<()> {
    if !require("dormouse lab link --repair esp-arq", &NEEDS) {
        return Ok(());
    }
    let report = fetched("esp-arq")?;
    let repair = &report["repair"];
    assert_eq!(repair["how"], "esp-arq", "{report}");
    assert!(repair["repeated"].as_u64() > Some(0) && repair["reports"].as_u64() > Some(0), "{report}");
    Ok(())
}

/// Hosts of the test's own, with veth pairs as the kernel makes them, offloads and all, and the bridge's machine between.
struct Bridged {
    lab: Lab,
    far: Host,
    _server: Process,
}

impl Bridged {
    /// Begins to fetch the file from this address over the bridge.
    fn start(address: &str, repair: &str) -> Result<Self> {
        let mut bed = Testbed::new()?;
        fs::create_dir(bed.dir().join("served"))?;
        fs::write(bed.dir().join("served/file"), content())?;
        let (far, between, near) = (bed.host("far")?, bed.host("between")?, bed.host("near")?);
        // A bridge's kernel says nothing of its own there.
        between.sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
        let [[a4, a6], [b4, b6]] = [["10.77.0.1/24", "fd77::1/64"], ["10.77.0.2/24", "fd77::2/64"]];
        bed.link((&far, "eth0", &[a4, a6]), (&between, "fixed0", &[]))?;
        bed.link((&between, "device0", &[]), (&near, "eth0", &[b4, b6]))?;
        let served = bed.dir().join("served").display().to_string();
        let arguments = ["-m", "http.server", "--bind", "::", "--directory", &served, "8000"];
        let server = far.spawn("server", "/usr/bin/python3", &arguments)?;
        let ends = ["fixed0", "device0"].map(|interface| format!("{}/{interface}", between.netns()));
        let bridge = ["--bridge", &ends[0], &ends[1], "--repair", repair, "--json"];
        let arguments: Vec<&str> = RADIO.into_iter().chain(bridge).collect();
        let fetch = format!(
            "ip netns exec {} curl -g -sS --max-time 110 --retry 50 --retry-connrefused --retry-delay 1 -o fetched http://{address}:8000/file",
            near.netns()
        );
        Ok(Self { lab: Lab::start(bed, &arguments, Some(&fetch))?, far, _server: server })
    }

    /// The report, and how often the far host's TCP has sent something again.
    fn fetched(mut self) -> Result<(Value, u64)> {
        let (ended, report) = self.lab.ends()?;
        ensure!(ended.success(), "{ended}: {}", self.lab.process.log());
        ensure!(fs::read(self.lab.file("fetched"))? == content(), "another file arrived");
        let counters = self.far.sh("cat /proc/net/snmp")?;
        let mut lines = counters.lines().filter(|line| line.starts_with("Tcp:")).map(str::split_whitespace);
        let (heads, values) = lines.next().zip(lines.next()).context("no counters of TCP")?;
        let again = heads.zip(values).find(|(head, _)| *head == "RetransSegs");
        let again = again.and_then(|(_, value)| value.parse().ok()).context("no counter")?;
        Ok((serde_json::from_str(&report).with_context(|| report.clone())?, again))
    }
}

#[test]
fn a_bridge_carries_frames_of_the_kernels_own_tcp_and_snoop_repairs_them() -> Result<()> {
    if !require("dormouse lab link --bridge", &NEEDS) {
        return Ok(());
    }
    for address in ["10.77.0.1", "[fd77::1]"] {
        let (report, again) = Bridged::start(address, "none")?.fetched()?;
        let [all, broken] = ["packets", "corrupted"].map(|name| report["to_device"][name].as_u64());
        assert!(all > Some(BYTES as u64 / 1_500) && broken > Some(5), "{address}: {report}");
        // What the kernel joins went as single frames: no lost one took others along.
        assert!(Some(again) >= broken.map(|n| n / 2), "{address}: {again} sent again: {report}");

        let (report, again) = Bridged::start(address, "snoop")?.fetched()?;
        let repair = &report["repair"];
        assert!(repair["repeated"].as_u64() > Some(5) && repair["kept"].as_u64() > Some(100), "{report}");
        let broken = report["to_device"]["corrupted"].as_u64();
        assert!(Some(again) < broken.map(|n| n / 2), "{address}: {again} sent again: {report}");
    }
    Ok(())
}

#[test]
fn a_bridge_says_why_it_cannot_begin() -> Result<()> {
    if !require("dormouse lab link --bridge that cannot be", &NEEDS) {
        return Ok(());
    }
    let mut bed = Testbed::new()?;
    let (between, far) = (bed.host("between")?, bed.host("far")?);
    bed.link((&between, "eth0", &[]), (&far, "eth0", &[]))?;
    between.ip("link property add dev eth0 altname another")?;
    let [real, loopback, nothing] = ["eth0", "lo", "eth7"].map(|name| format!("{}/{name}", between.netns()));
    for (end, more, why) in [
        ("dormouse-none/eth0", ["--repair", "none"], "no network namespace \"dormouse-none\""),
        (&nothing, ["--repair", "none"], "no interface \"eth7\" here"),
        (&loopback, ["--repair", "none"], "no frames of Ethernet"),
        (&loopback, ["--repair", "esp-arq"], "a bridge has no part in the device"),
        (&real, ["--repair", "none"], "both names are the same one's"),
        (&real, ["--queue", "1500"], "takes no full frame"),
        ("a/b/c", ["--repair", "none"], "is no interface"),
    ] {
        let mut command = Command::new(binary("dormouse"));
        let twice = end.replace("eth0", "another");
        let output = command.args(["lab", "link", "--bridge", end, &twice]).args(more).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{end}: {said}");
    }
    Ok(())
}

#[test]
fn a_bridge_outlives_a_cable_that_is_out_for_a_while_and_ends_with_an_interface_that_is_deleted() -> Result<()>
{
    if !require("dormouse lab link --bridge whose interface is deleted", &NEEDS) {
        return Ok(());
    }
    let mut bed = Testbed::new()?;
    let (far, between, near) = (bed.host("far")?, bed.host("between")?, bed.host("near")?);
    bed.link((&far, "eth0", &["10.77.0.1/24"]), (&between, "fixed0", &[]))?;
    bed.link((&between, "device0", &[]), (&near, "eth0", &["10.77.0.2/24"]))?;
    let ends = ["fixed0", "device0"].map(|interface| format!("{}/{interface}", between.netns()));
    let mut lab = Lab::start(bed, &["--bridge", &ends[0], &ends[1]], None)?;
    lab.process.wait_for("The bridge works", PATIENCE)?;
    let reaches = "ping -c 1 -W 1 10.77.0.1 >/dev/null";
    near.eventually(reaches, PATIENCE)?;
    between.ip("link set device0 down")?;
    ensure!(near.sh(reaches).is_err(), "a cable that is out carries frames");
    between.ip("link set device0 up")?;
    near.eventually(reaches, PATIENCE)?;
    between.ip("link del device0")?;
    let (ended, _) = lab.ends()?;
    let said = lab.process.log();
    ensure!(!ended.success() && said.contains("the interface was deleted"), "{ended}: {said}");
    Ok(())
}

#[test]
fn a_link_without_a_command_stays_until_it_is_interrupted() -> Result<()> {
    if !require("dormouse lab link, interrupted", &NEEDS) {
        return Ok(());
    }
    let mut lab = Lab::start(Testbed::new()?, &["--bit-errors", "0"], None)?;
    lab.process.wait_for("Ctrl-C takes it away", PATIENCE)?;
    // The invitation names both hosts, and they reach each other.
    let said = lab.process.log();
    let device = said.split_whitespace().find(|word| word.ends_with("-device")).context("no device")?;
    let ping = Command::new("ip").args(["netns", "exec", device, "ping", "-c", "2", "10.77.0.1"]).output()?;
    assert!(ping.status.success(), "{}", String::from_utf8_lossy(&ping.stdout));
    lab.process.signal(Signal::SIGINT);
    let (ended, report) = lab.ends()?;
    assert!(ended.success(), "{ended}: {}", lab.process.log());
    assert!(report.starts_with("to the device: ") && report.contains("from the device: "), "{report}");
    lab.leaves_nothing()
}

#[test]
fn an_interrupted_link_ends_what_its_command_has_started() -> Result<()> {
    if !require("dormouse lab link, interrupted with a command", &NEEDS) {
        return Ok(());
    }
    let script = "ip netns exec \"$DORMOUSE_FIXED\" sleep 600 & sleep 600 & echo begun; wait";
    let mut lab = Lab::start(Testbed::new()?, &["--json"], Some(script))?;
    lab.process.wait_for("begun", PATIENCE)?;
    let name = format!("dm{}-", lab.process.pid());
    assert!(started_by(&name).is_some(), "the test finds no process of the command");
    lab.process.signal(Signal::SIGINT);
    let (ended, report) = lab.ends()?;
    assert!(!ended.success(), "the command has not come to its end: {ended}");
    let report: Value = serde_json::from_str(&report).with_context(|| report.clone())?;
    assert_eq!(report["version"], 1);
    lab.leaves_nothing()
}

#[test]
fn a_link_ends_as_its_command_does() -> Result<()> {
    if !require("dormouse lab link with a command that fails", &NEEDS) {
        return Ok(());
    }
    let mut lab = Lab::start(Testbed::new()?, &[], Some("sleep 600 & echo 'what it says'; exit 3"))?;
    let (ended, report) = lab.ends()?;
    assert_eq!(ended.code(), Some(3), "{}", lab.process.log());
    // Without --json the command has the same standard output.
    assert!(report.starts_with("what it says\nto the device: "), "{report}");
    lab.leaves_nothing()
}

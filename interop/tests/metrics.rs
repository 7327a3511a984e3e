//! `daemon.metrics` as a scraper sees it: at a gateway and at a device, with the rights that the shipped unit leaves; and `dormouse top` on a terminal.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Context, Result, bail, ensure};
use dormouse_interop::ends::{NET, PATIENCE, POOL, SECRET, by_secret};
use dormouse_interop::shipped::confined;
use dormouse_interop::vm;
use dormouse_testbed::{Access, Dormoused, Extra, Host, Need, Roaming, SERVER, binary, require};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

const NEEDS: [Need; 3] = [Need::Root, Need::File("/dev/net/tun"), Need::Program("nft")];
const PORT: u16 = 9_717;
const PROMETHEUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/vm/prometheus");
const REQUEST: &str =
    "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: application/openmetrics-text\r\n\r\n";

/// Samples by name and labels, as they are written.
type Samples = BTreeMap<String, f64>;

struct Pair {
    device: Dormoused,
    gateway: Dormoused,
    world: Roaming,
}

/// `gateway`: more lines of its section `daemon`.
fn pair(gateway: &str) -> Result<Pair> {
    let world = Roaming::new(30)?;
    world.attach(Access::A)?;
    let dir = world.gateway.dir();
    let extra = Extra { user: "nobody".to_owned(), confined_by: confined(dir)?, ..Extra::default() };
    let daemon = format!("dns = \"off\"\n{gateway}");
    let toml = format!("[standin]\n{}", by_secret("gateway", "gateway.test", "*.test", SECRET, POOL));
    let gateway = Dormoused::start_with(&world.gateway, extra, &daemon, &toml)?;
    let socket = world.device.dir().join("metrics.sock");
    let daemon = format!("dns = \"off\"\nmetrics = {socket:?}");
    let toml = format!(
        "[sleep]\nradio = \"none\"\n{}",
        by_secret("client", "device.test", "gateway.test", SECRET, NET)
    );
    let device = Dormoused::start(&world.device, &daemon, &toml)?;
    device.ok(&["up", "peer"])?;
    ping(&world.device)?;
    Ok(Pair { device, gateway, world })
}

fn ping(device: &Host) -> Result<()> {
    device.sh(&format!("ping -c 5 -i 0.05 -W 5 {SERVER}")).map(drop)
}

/// What is answered to `request` at the port of a host.
fn asked(host: &Host, request: &'static str) -> Result<String> {
    host.run(move || {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", PORT))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok::<_, std::io::Error>(answer)
    })?
    .map_err(Into::into)
}

fn asked_at(path: &Path) -> Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.write_all(REQUEST.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn body(answer: &str) -> Result<&str> {
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    ensure!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    ensure!(
        head.contains("\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"),
        "{head}"
    );
    Ok(body)
}

/// The samples of a text, which must keep the rules of OpenMetrics 1.0: each family once and whole, with its type and help before its samples, counters with `_total`
/// and never negative, labels in quotes, no sample twice, and the mark at the end.
fn samples(text: &str) -> Result<Samples> {
    let mut found = Samples::new();
    let (mut families, mut family, mut counter, mut helped) = (BTreeSet::new(), "", false, "");
    let text = text.strip_suffix("# EOF\n").context("no mark at the end")?;
    let name_fits = |n: &str| {
        !n.is_empty() && n.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            helped = rest.split(' ').next().unwrap_or_default();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').context("a type")?;
            ensure!(families.insert(name) && helped == name && name_fits(name), "{line}");
            (family, counter) = (name, kind == "counter");
            ensure!(counter || kind == "gauge", "{line}");
        } else {
            let (series, value) = line.rsplit_once(' ').with_context(|| line.to_owned())?;
            let name = series.split('{').next().unwrap_or_default();
            let expected = if counter { format!("{family}_total") } else { family.to_owned() };
            ensure!(name == expected, "{line}, not {expected}");
            if let Some(labels) = series.strip_prefix(name).filter(|l| !l.is_empty()) {
                let labels = labels
                    .strip_prefix('{')
                    .and_then(|l| l.strip_suffix('}'))
                    .with_context(|| line.to_owned())?;
                for label in labels.split(',') {
                    let (key, value) = label.split_once('=').with_context(|| line.to_owned())?;
                    let value = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
                    ensure!(name_fits(key) && value.is_some_and(|v| !v.contains(['"', '\\'])), "{line}");
                }
            }
            let value: f64 = value.parse().with_context(|| line.to_owned())?;
            ensure!(value.is_finite() && (!counter || value >= 0.0), "{line}");
            ensure!(found.insert(series.to_owned(), value).is_none(), "twice: {line}");
        }
    }
    Ok(found)
}

/// Waits until the samples are as wanted: they are a second old at most.
fn until(scrape: impl Fn() -> Result<String>, wanted: impl Fn(&Samples) -> bool) -> Result<Samples> {
    let end = Instant::now() + PATIENCE;
    loop {
        let found = samples(body(&scrape()?)?)?;
        if wanted(&found) {
            return Ok(found);
        }
        if Instant::now() > end {
            bail!("not in time: {found:#?}");
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
}

fn get(samples: &Samples, series: &str) -> f64 {
    samples.get(series).copied().unwrap_or(f64::NAN)
}

/// What the status says that the session of the gateway's one client has carried.
fn carried(gateway: &Dormoused) -> Result<[f64; 4]> {
    let status = gateway.ok(&["status", "--json"])?.json;
    let of = |key: &str| {
        let at = format!("/result/status/gateway/sessions/0/traffic/{key}");
        status.pointer(&at).and_then(Value::as_f64).context(at)
    };
    Ok([of("bytes_in")?, of("bytes_out")?, of("packets_in")?, of("packets_out")?])
}

#[test]
fn a_gateway_and_a_device_show_what_they_hold_and_carry() -> Result<()> {
    if !require("metrics of both ends", &NEEDS) {
        return Ok(());
    }
    let pair = pair("metrics = \"127.0.0.1:9717\"")?;
    let gateway = || asked(&pair.world.gateway, REQUEST);
    let one = |s: &Samples| get(s, r#"dormouse_sessions{connection="peer",role="gateway"}"#) == 1.0;
    let found = until(gateway, one).map_err(|e| e.context(pair.gateway.log()))?;
    for (series, value) in [
        ("ipsec_up", 1.0),
        ("ipsec_ike_sas", 1.0),
        ("ipsec_half_open_ike_sas", 0.0),
        (r#"dormouse_sessions_asleep{connection="peer",role="gateway"}"#, 0.0),
        (r#"dormouse_sessions_begun_total{connection="peer",how="full"}"#, 1.0),
        (r#"dormouse_tickets_total{outcome="issued"}"#, 1.0),
        ("dormouse_stand_in_devices", 0.0),
    ] {
        assert_eq!(get(&found, series), value, "{series} in {found:#?}");
    }
    // The same numbers as the status has, by another way.
    let now = carried(&pair.gateway)?;
    let names = ["bytes_in", "bytes_out", "packets_in", "packets_out"]
        .map(|name| format!("ipsec_child_sa_{name}{{ike_sa_name=\"peer\"}}"));
    assert!(now.iter().all(|n| *n > 0.0), "{now:?}");
    until(gateway, |s| names.iter().zip(now).all(|(name, n)| get(s, name) == n))?;

    // A client that goes and comes again by another session: what it carried before still counts.
    pair.device.ok(&["down", "peer"])?;
    until(gateway, |s| get(s, r#"dormouse_sessions{connection="peer",role="gateway"}"#) == 0.0)?;
    pair.device.ok(&["up", "peer"])?;
    ping(&pair.world.device)?;
    let more = until(gateway, one)?;
    let again = carried(&pair.gateway)?;
    let sum =
        until(gateway, |s| names.iter().zip(now).zip(again).all(|((name, a), b)| get(s, name) == a + b))?;
    assert_eq!(get(&more, r#"dormouse_sessions_begun_total{connection="peer",how="full"}"#), 2.0);
    assert_eq!(get(&sum, r#"dormouse_sessions_ended_total{connection="peer"}"#), 1.0);

    let path = pair.world.device.dir().join("metrics.sock");
    let device = || asked_at(&path);
    let found = until(device, |s| get(s, r#"dormouse_wakes_total{connection="peer",rung="full"}"#) == 2.0)?;
    for (series, value) in [
        (r#"dormouse_connection_state{connection="peer",state="up"}"#, 1.0),
        (r#"dormouse_connection_state{connection="peer",state="asleep"}"#, 0.0),
        (r#"dormouse_ticket_held{connection="peer"}"#, 1.0),
        (r#"dormouse_radio_state{state="awake"}"#, 1.0),
    ] {
        assert_eq!(get(&found, series), value, "{series} in {found:#?}");
    }
    let used = found.iter().find(|(series, _)| series.starts_with("dormouse_energy_joules{of=\"used\""));
    assert!(used.is_some_and(|(_, joules)| *joules > 0.0), "{found:#?}");
    assert!(!found.contains_key("dormouse_absent_devices"), "a device is no gateway");

    // Asleep: its session is held, and no label says whose it is.
    pair.device.ok(&["suspend"])?;
    let asleep = r#"dormouse_sessions_asleep{connection="peer",role="gateway"}"#;
    let found = until(gateway, |s| get(s, asleep) == 1.0)?;
    assert_eq!(get(&found, "dormouse_stand_in_devices"), 1.0);
    assert!(
        found.keys().all(|series| !series.contains("device.test") && !series.contains("10.55.")),
        "{found:#?}"
    );
    until(device, |s| get(s, r#"dormouse_radio_state{state="asleep"}"#) == 1.0)?;
    pair.device.ok(&["resume"])?;
    until(gateway, |s| get(s, asleep) == 0.0)?;
    until(device, |s| get(s, r#"dormouse_wakes_total{connection="peer",rung="held"}"#) == 1.0)?;
    Ok(())
}

/// Debian's promtool reads the older text format, in which a counter's family has the name of its samples.
fn promtool(text: &str) -> Result<()> {
    let counters: BTreeSet<&str> =
        text.lines().filter_map(|l| l.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let older = |line: &str| {
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        if let Some(name) =
            words.get_mut(2).filter(|n| line.starts_with("# ") && counters.contains(n.as_str()))
        {
            name.push_str("_total");
        }
        words.join(" ") + "\n"
    };
    let older: String = text.lines().filter(|line| *line != "# EOF").map(older).collect();
    let mut check = Command::new(PROMETHEUS)
        .args(["promtool", "check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    check.stdin.take().context("its input")?.write_all(older.as_bytes())?;
    let said = check.wait_with_output()?;
    ensure!(said.status.success(), "{}\n{older}", String::from_utf8_lossy(&said.stderr));
    Ok(())
}

#[test]
fn prometheus_itself_reads_them_and_promtool_finds_nothing_wrong() -> Result<()> {
    let fetched = vm::fetched(&["prometheus", "check"], "Prometheus (interop/vm/prometheus fetch)");
    if !require("Prometheus", &NEEDS.into_iter().chain([fetched]).collect::<Vec<_>>()) {
        return Ok(());
    }
    let pair = pair("metrics = \"127.0.0.1:9717\"")?;
    let host = &pair.world.gateway;
    promtool(body(&asked(host, REQUEST)?)?)?;
    let config = host.dir().join("prometheus.yml");
    std::fs::write(
        &config,
        "global: {scrape_interval: 1s}\nscrape_configs:\n  - job_name: dormouse\n    static_configs: [{targets: [\"127.0.0.1:9717\"]}]\n",
    )?;
    let [config, data] = [
        format!("--config.file={}", config.display()),
        format!("--storage.tsdb.path={}", host.dir().join("tsdb").display()),
    ];
    let mut server = host.spawn(
        "prometheus",
        PROMETHEUS,
        &["prometheus", &config, &data, "--web.listen-address=127.0.0.1:9090"],
    )?;
    let query = |query: &'static str| -> Result<Option<f64>> {
        let request = format!("GET /api/v1/query?query={query} HTTP/1.0\r\n\r\n");
        let answer = host.run(move || {
            let mut stream = std::net::TcpStream::connect(("127.0.0.1", 9_090))?;
            stream.write_all(request.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok::<_, std::io::Error>(answer)
        })?;
        // It may only be starting.
        let Ok(answer) = answer else { return Ok(None) };
        let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
        if head.lines().next().is_some_and(|line| line.contains(" 503 ")) {
            return Ok(None);
        }
        let answer: Value = serde_json::from_str(body)?;
        let value = answer.pointer("/data/result/0/value/1").and_then(Value::as_str);
        Ok(value.and_then(|v| v.parse().ok()))
    };
    let end = Instant::now() + PATIENCE;
    // What it has read of us, and its verdict on the whole.
    while query("dormouse_sessions_begun_total%7Bhow=%22full%22%7D")? != Some(1.0)
        || query("up")? != Some(1.0)
    {
        ensure!(server.ended().is_none() && Instant::now() < end, "{}", server.log());
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    Ok(())
}

/// An interface that comes up later, or the tunnel itself, has no address when the daemon starts.
#[test]
fn an_address_that_comes_later_is_served_then_and_a_directory_that_is_missing_is_named() -> Result<()> {
    if !require("metrics at an address that comes later", &NEEDS) {
        return Ok(());
    }
    let made = pair("metrics = \"192.0.2.77:9717\"\nmetrics_from = [\"192.0.2.77/32\"]")?;
    made.world.gateway.ip("address add 192.0.2.77/32 dev lo")?;
    let answer = made.world.gateway.run(|| {
        let mut stream = std::net::TcpStream::connect(("192.0.2.77", PORT))?;
        stream.write_all(REQUEST.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok::<_, std::io::Error>(answer)
    })??;
    samples(body(&answer)?)?;
    drop(made);
    let missing = pair("metrics = \"/nowhere/metrics.sock\"");
    let said = format!("{:#}", missing.err().context("it started")?);
    assert!(said.contains("/nowhere/metrics.sock"), "{said}");
    Ok(())
}

#[test]
fn a_crowd_of_idle_clients_keeps_neither_a_scraper_nor_packets_waiting() -> Result<()> {
    if !require("metrics and a crowd", &NEEDS) {
        return Ok(());
    }
    let pair = pair("metrics = \"127.0.0.1:9717\"")?;
    let crowd = pair.world.gateway.run(|| {
        let connect = |_| std::net::TcpStream::connect(("127.0.0.1", PORT));
        (0..200).map(connect).collect::<Result<Vec<_>, _>>()
    })??;
    samples(body(&asked(&pair.world.gateway, REQUEST)?)?)?;
    ping(&pair.world.device)?;
    drop(crowd);
    for (request, status) in [
        ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421"),
        ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", "405"),
    ] {
        let answer = asked(&pair.world.gateway, request)?;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    let out = pair.gateway.cli(&["top"])?;
    assert!(out.code == 2 && out.text.contains("top needs a terminal"), "{}", out.text);
    top(&pair)
}

/// `dormouse top` on a terminal of its own: `script` gives it one, a key ends it, and the terminal is as it was.
fn top(pair: &Pair) -> Result<()> {
    let socket = Dormoused::socket_in(&pair.world.gateway);
    let line = format!(
        "stty rows 24 cols 80; {} --socket {} top; echo ended $?; stty -a",
        binary("dormouse").display(),
        socket.display()
    );
    let mut script = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut keys = script.stdin.take().context("its input")?;
    let mut seen = script.stdout.take().context("its output")?;
    let (mut shown, mut chunk, end) = (Vec::new(), [0; 4096], Instant::now() + PATIENCE);
    let text = |shown: &[u8]| String::from_utf8_lossy(shown).into_owned();
    while !text(&shown).contains("device.test") {
        let n = seen.read(&mut chunk)?;
        ensure!(n > 0 && Instant::now() < end, "{}", text(&shown));
        shown.extend_from_slice(chunk.get(..n).unwrap_or_default());
    }
    keys.write_all(b"q")?;
    seen.read_to_end(&mut shown)?;
    let shown = text(&shown);
    assert!(shown.contains("sessions,") && shown.contains("10.55.0."), "{shown}");
    let (_, after) = shown.split_once("ended 0").with_context(|| shown.clone())?;
    assert!(
        shown.contains("\u{1b}[?1049h") && shown.contains("\u{1b}[?1049l") && shown.contains("\u{1b}[?25h"),
        "{shown}"
    );
    assert!(after.contains(" icanon") && after.contains(" echo "), "{after}");
    ensure!(script.wait()?.success());
    Ok(())
}

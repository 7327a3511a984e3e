//! The README's gateway and device, by its very lines: what it tells an administrator to write and to run is taken out of README.md, each end is
//! a network namespace with an `/etc`, `/run` and `/var/lib` of its own, and traffic and DNS questions must pass.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Context, Result, ensure};
use dormouse_interop::ends::another;
use dormouse_testbed::{Access, Host, Need, Process, Roaming, binary, require};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const NEEDS: [Need; 5] = [
    Need::Root,
    Need::File("/dev/net/tun"),
    Need::Program("nft"),
    Need::Program("dnsmasq"),
    Need::Program("sysctl"),
];
/// The name server that the gateway uses itself, and the one of the device's access network.
const DNS: [&str; 2] = ["9.9.9.9", "192.0.2.53"];
/// A server in both families, and where the gateway is.
const WEB: [&str; 2] = ["198.51.100.80", "2001:db8:80::80"];
const PATIENCE: Duration = Duration::from_secs(20);

/// The code blocks of a document, each with its language.
fn blocks(document: &str) -> Result<Vec<(String, String)>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(document);
    let text = std::fs::read_to_string(path)?;
    let mut found = Vec::new();
    let mut rest = text.as_str();
    while let Some((_, after)) = rest.split_once("\n```") {
        let (language, body) = after.split_once('\n').context("an unfinished block")?;
        let (body, after) = body.split_once("\n```").context("an unfinished block")?;
        found.push((language.to_owned(), body.to_owned() + "\n"));
        rest = after;
    }
    Ok(found)
}

/// The one block of a language in a document that contains `word`.
fn block_of(document: &str, language: &str, word: &str) -> Result<String> {
    let mut fit = blocks(document)?.into_iter().filter(|(l, body)| l == language && body.contains(word));
    let found = fit.next().with_context(|| format!("no {language} block with {word} in {document}"))?.1;
    ensure!(fit.next().is_none(), "several {language} blocks with {word} in {document}");
    Ok(found)
}

/// The same of README.md.
fn block(language: &str, word: &str) -> Result<String> {
    block_of("README.md", language, word)
}

/// A machine of its own: what runs in it sees its directories in the place of the test machine's.
struct Machine {
    host: Host,
    dir: PathBuf,
}

impl Machine {
    fn new(host: &Host) -> Result<Self> {
        let dir = host.dir().join("machine");
        for name in ["etc", "run", "lib"] {
            std::fs::create_dir_all(dir.join(name))?;
        }
        let copied = Command::new("cp").args(["-a", "/etc/."]).arg(dir.join("etc")).status()?;
        ensure!(copied.success(), "copying /etc");
        let new = Self { host: host.clone(), dir };
        // What `make install` makes.
        for (file, line) in
            [("passwd", "dormouse:x:64109:64109::/:/bin/false\n"), ("group", "dormouse:x:64109:\n")]
        {
            new.append(file, line)?;
        }
        std::fs::create_dir_all(new.dir.join("etc/dormouse"))?;
        let _link = std::fs::remove_file(new.dir.join("etc/resolv.conf"));
        new.append("resolv.conf", &format!("nameserver {}\n", DNS[1]))?;
        std::fs::write(new.dir.join("etc/nsswitch.conf"), "passwd: files\ngroup: files\nhosts: files dns\n")?;
        Ok(new)
    }

    /// Adds to a file below `/etc`.
    fn append(&self, name: &str, text: &str) -> Result<()> {
        let path = self.dir.join("etc").join(name);
        let mut file = std::fs::File::options().create(true).append(true).open(&path)?;
        file.write_all(text.as_bytes()).with_context(|| path.display().to_string())
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = self.host.command("sh");
        let places = "mount --bind $0/etc /etc && mount --bind /etc/resolv.conf /etc/resolv.conf && mount --bind $0/run /run && \
                      mount --bind $0/lib /var/lib && exec \"$@\"";
        command.args(["-c", places]).arg(&self.dir).arg(program);
        command
    }

    fn sh(&self, line: &str) -> Result<String> {
        let out = self.command("sh").args(["-c", line]).output()?;
        let text =
            format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        ensure!(out.status.success(), "{}: `{line}`: {text}", self.host.name());
        Ok(text)
    }

    /// The outcome of a check of `dormouse doctor`, and the line that it says to change.
    fn doctor(&self, name: &str) -> Result<Option<(String, String)>> {
        let out = self.command(binary("dormouse")).args(["doctor", "--json"]).output()?;
        let answer: Value = serde_json::from_slice(&out.stdout)?;
        let checks = answer.pointer("/result/doctor").and_then(Value::as_array).context("no checks")?;
        let text =
            |check: &Value, key: &str| check.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let found = checks.iter().find(|c| text(c, "name") == name);
        Ok(found.map(|c| (text(c, "outcome"), text(c, "change"))))
    }

    /// Waits until this is the name server, alone.
    fn name_server(&self, address: &str) -> Result<()> {
        let wanted = format!("nameserver {address}");
        let read = || std::fs::read_to_string(self.dir.join("etc/resolv.conf")).unwrap_or_default();
        let alone = || read().lines().filter(|l| l.starts_with("nameserver")).eq([wanted.as_str()]);
        ensure!(until(alone), "not {wanted}: {}", read());
        Ok(())
    }

    fn start(&self) -> Result<Process> {
        let log = self.dir.join("dormoused.log");
        let mut process = Process::spawn("dormoused", &mut self.command(binary("dormoused")), &log)?;
        let socket = self.dir.join("run/dormouse/dormouse.sock");
        ensure!(
            until(|| socket.exists() || process.ended().is_some()) && socket.exists(),
            "{}",
            process.log()
        );
        Ok(process)
    }
}

/// Whether it comes true in time.
fn until(mut done: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + PATIENCE;
    while !done() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// A block of commands of the README, but for what the service manager would do: that is the test's part.
fn commands(word: &str) -> Result<String> {
    let lines = block("sh", word)?;
    let programs = binary("dormouse").parent().context("no folder")?.display().to_string();
    let ours = lines.lines().filter(|line| !line.starts_with("systemctl ")).collect::<Vec<_>>().join("; ");
    ensure!(lines.lines().any(|line| line.starts_with("systemctl enable --now dormoused")), "{lines}");
    Ok(format!("export PATH={programs}:$PATH; set -e; cd /run; {ours}"))
}

/// Everything beyond the gateway and the access networks: name servers, and a server that says from where it is asked.
fn internet(world: &Roaming) -> Result<Process> {
    for address in [DNS[0], DNS[1], WEB[0]] {
        world.core.ip(&format!("addr add {address}/32 dev lo"))?;
    }
    world.core.ip(&format!("addr add {}/128 dev lo", WEB[1]))?;
    let listen = DNS.map(|a| format!("--listen-address={a}")).join(" ");
    let arguments = format!(
        "--keep-in-foreground --no-resolv --no-hosts --conf-file=/dev/null --user=root --pid-file --bind-interfaces {listen} \
         --log-queries --log-facility=- --address=/vpn.example.org/203.0.113.1 --address=/www.example.net/{}",
        WEB[0]
    );
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    let mut dnsmasq = world.core.spawn("dnsmasq", "dnsmasq", &arguments)?;
    dnsmasq.wait_for("started", PATIENCE)?;
    Ok(dnsmasq)
}

/// From where the server sees a connection that the device makes, which also carries data both ways.
fn seen_from(world: &Roaming, server: &str) -> Result<IpAddr> {
    let address: SocketAddr = SocketAddr::new(server.parse()?, 80);
    let (ready, listening) = std::sync::mpsc::channel();
    let server = world.core.within(move || -> Result<IpAddr> {
        let listener = TcpListener::bind(address)?;
        ready.send(())?;
        let (mut stream, peer) = listener.accept()?;
        let mut data = Vec::new();
        (&mut stream).take(200_000).read_to_end(&mut data)?;
        stream.write_all(&data)?;
        Ok(peer.ip())
    })?;
    listening.recv_timeout(PATIENCE)?;
    let client = world.device.within(move || -> Result<()> {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&vec![7; 200_000])?;
        let mut back = Vec::new();
        stream.read_to_end(&mut back)?;
        ensure!(back == vec![7; 200_000], "{} bytes came back", back.len());
        Ok(())
    })?;
    client.join().expect("the client's thread")??;
    server.join().expect("the server's thread")?
}

#[test]
fn the_readmes_gateway_carries_traffic_and_answers_dns_questions() -> Result<()> {
    if !require("the README's gateway", &NEEDS) {
        return Ok(());
    }
    let mut world = Roaming::new(60)?;
    world.attach(Access::A)?;
    // As an installed machine is.
    let switches = ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"];
    for key in switches {
        world.gateway.sysctl(key, "0")?;
    }
    let dnsmasq = internet(&world)?;
    let (gateway, device) = (Machine::new(&world.gateway)?, Machine::new(&world.device)?);
    std::fs::write(gateway.dir.join("etc/resolv.conf"), format!("nameserver {}\n", DNS[0]))?;
    let said = gateway.sh(&commands("gateway init")?)?;
    assert!(said.contains("10.10.0.0/24") && said.contains(DNS[0]) && said.contains("undo:"), "{said}");
    std::fs::copy(gateway.dir.join("run/laptop.dormouse"), device.dir.join("run/laptop.dormouse"))?;
    let said = device.sh(&commands("dormouse join")?)?;
    assert!(said.contains("laptop.vpn.example.org"), "{said}");
    // What the README says of other gateways is what was written.
    let written = std::fs::read_to_string(device.dir.join("etc/dormouse/dormouse.toml"))?;
    assert!(written.ends_with(&block("toml", "role = \"client\"")?), "{written}");

    // Nothing is asked of a device, and of a gateway no more than that its daemon runs.
    assert_eq!(gateway.doctor("configuration")?.context("not checked")?.0, "ok");
    for forwarding in ["IPv4 forwarding", "IPv6 forwarding"] {
        assert_eq!(gateway.doctor(forwarding)?.context("not checked")?.0, "skipped");
        assert_eq!(device.doctor(forwarding)?, None);
    }
    for (server, outside) in [(WEB[0], Access::A.device_address()), (WEB[1], "fd0a::2".parse()?)] {
        assert_eq!(seen_from(&world, server)?, outside, "without the tunnel");
    }
    let gateway_daemon = gateway.start()?;
    for check in ["IPv4 forwarding", "IPv6 forwarding", "forwarding", "firewall", "users"] {
        assert_eq!(gateway.doctor(check)?.context(check)?.0, "ok", "{check}");
    }
    let device_daemon = device.start()?;
    let logs = || format!("device:\n{}\ngateway:\n{}", device_daemon.log(), gateway_daemon.log());
    let dormouse = binary("dormouse");
    device.sh(&format!("{} wait office --timeout 20", dormouse.display())).with_context(logs)?;
    for (server, own) in [(WEB[0], "203.0.113.1"), (WEB[1], "2001:db8:3::1")] {
        let seen = seen_from(&world, server).with_context(logs)?;
        assert_eq!(seen, own.parse::<IpAddr>()?, "the gateway's address");
    }

    // DNS is installed and restored by a helper process, a moment later.
    device.name_server(DNS[0]).with_context(logs)?;
    let answer = device.sh("getent ahostsv4 www.example.net").with_context(logs)?;
    assert!(answer.contains(WEB[0]), "{answer}");
    let asked = dnsmasq.log();
    assert!(asked.contains("www.example.net from 203.0.113.1"), "through the tunnel: {asked}");

    // The gateway's certificate is renewed, and the session goes on; another device comes by the new one.
    let renewed = gateway.sh(&format!("{} gateway renew", dormouse.display())).with_context(logs)?;
    assert!(renewed.contains("the daemon uses it from now on"), "{renewed}");
    seen_from(&world, WEB[0]).with_context(logs)?;
    let (tablet, _) = another(&mut world, "tablet", 2)?;
    let tablet = Machine::new(&tablet)?;
    gateway.sh(&format!("cd /run && {} user add tablet", dormouse.display()))?;
    std::fs::copy(gateway.dir.join("run/tablet.dormouse"), tablet.dir.join("run/tablet.dormouse"))?;
    tablet.sh(&format!("{} join /run/tablet.dormouse --name office", dormouse.display()))?;
    let tablet_daemon = tablet.start()?;
    let wait = format!("{} wait office --timeout 20", dormouse.display());
    tablet.sh(&wait).with_context(|| tablet_daemon.log())?;

    // What dormouse-renewals.service runs, and what dormouse-renew.timer would.
    let log = gateway.dir.join("renewals.log");
    let mut command = gateway.command(&dormouse);
    command.args(["gateway", "renewals"]);
    let mut service = Process::spawn("renewals", &mut command, &log)?;
    service.wait_for("certificates are renewed at 10.10.0.1:4510", PATIENCE)?;
    assert_eq!(gateway.doctor("renewals")?.context("renewals")?.0, "ok");
    let said = device.sh(&format!("{} renew --if-due", dormouse.display()))?;
    assert!(said.contains("office: not due"), "{said}");
    let renewed = device.sh(&format!("{} renew", dormouse.display())).with_context(|| service.log())?;
    assert!(renewed.contains("office: laptop.vpn.example.org until"), "{renewed}");
    seen_from(&world, WEB[0]).with_context(logs)?;
    service.stop();
    assert_eq!(gateway.doctor("renewals")?.context("renewals")?.0, "warning");

    // Who is removed is out at once and does not come again; others go on.
    let removed = gateway.sh(&format!("{} user remove laptop", dormouse.display())).with_context(logs)?;
    assert!(removed.contains("2 certificate(s) denied, 1 session(s) ended"), "{removed}");
    let refused = device.sh(&wait).err().context("it is out")?.to_string();
    assert!(refused.contains("the peer refused our authentication as laptop.vpn.example.org"), "{refused}");
    assert!(device.sh(&format!("ping -c 1 -W 2 {}", WEB[0])).is_err(), "nothing leaves in clear either");
    let status = gateway.sh(&format!("{} --json status", dormouse.display()))?;
    assert!(status.contains("tablet.vpn.example.org") && !status.contains("laptop."), "{status}");
    tablet.sh(&format!("ping -c 2 -i 0.2 -W 5 {}", WEB[0])).with_context(|| tablet_daemon.log())?;
    drop(tablet_daemon);
    let log = device_daemon.log();
    drop(device_daemon);
    device.name_server(DNS[1]).context(log)?;
    drop(gateway_daemon);
    for key in switches {
        assert_eq!(world.gateway.sh(&format!("sysctl -n {key}"))?.trim(), "0", "as it was");
    }
    assert!(!world.gateway.sh("nft list tables")?.contains("dormouse"), "the table goes with the daemon");
    Ok(())
}

/// docs/hip.md, where only the two HITs are those of the keys that are made.
#[test]
fn the_hosts_of_the_page_about_hip_reach_each_other_by_name() -> Result<()> {
    const PAGE: &str = "docs/hip.md";
    if !require("the hosts of docs/hip.md", &[NEEDS[0], NEEDS[1], NEEDS[2]]) {
        return Ok(());
    }
    let world = Roaming::new(60)?;
    world.attach(Access::A)?;
    let (server, laptop) = (Machine::new(&world.gateway)?, Machine::new(&world.device)?);
    let programs = binary("dormouse").parent().context("no folder")?.display().to_string();
    let path = |line: &str| format!("export PATH={programs}:$PATH; set -e; {line}");
    let keygen = path(&block_of(PAGE, "sh", "keygen")?);
    let hits = [server.sh(&keygen)?, laptop.sh(&keygen)?];
    let real = |text: String| {
        let written = ["2001:22:1111:1111:1111:1111:1111:1111", "2001:22:2222:2222:2222:2222:2222:2222"];
        written.iter().zip(&hits).fold(text, |text, (written, real)| text.replace(written, real.trim()))
    };
    server.append("dormouse/dormouse.toml", &real(block_of(PAGE, "toml", "[connection.server]")?))?;
    laptop.append("dormouse/dormouse.toml", &real(block_of(PAGE, "toml", "[connection.laptop]")?))?;
    laptop.append("dormouse/hip.hosts", &real(block_of(PAGE, "text", "names")?))?;
    for machine in [&server, &laptop] {
        assert_eq!(machine.doctor("HITs")?.context("not checked")?.0, "ok");
        assert_eq!(machine.doctor("configuration")?.context("not checked")?.0, "ok");
    }
    let daemons = [server.start()?, laptop.start()?];
    let logs = || daemons.each_ref().map(|d| d.log()).join("\nlaptop:\n");
    let said = laptop.sh(&path(&block_of(PAGE, "sh", "ping -c 1 server.hip")?)).with_context(logs)?;
    assert!(said.contains("1 received") && said.contains("203.0.113.1"), "{said}");
    assert!(
        laptop.sh("ping -c 1 -W 5 server").with_context(logs)?.contains("1 received"),
        "by its name alone"
    );
    // What is written there by hand counts with the next reload.
    laptop.append("dormouse/hip.hosts", "2001:22:3333:3333:3333:3333:3333:3333 printer\n")?;
    laptop.sh(&path("dormouse reload"))?;
    assert!(laptop.sh("getent ahosts printer.hip")?.starts_with("2001:22:3333:"));
    assert_eq!(laptop.doctor("name servers")?.context("not checked")?.0, "ok");
    assert_eq!(server.doctor("HIP")?.context("not checked")?.0, "ok");
    Ok(())
}

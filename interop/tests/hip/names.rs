//! Names of peers, as programs find them without a line in any file of theirs: the machine asks the daemon about names of its domain, and
//! no other machine is answered.

use super::{Listed, NEEDS, end, keygen};
use anyhow::{Context, Result, ensure};
use dormouse_interop::ends::{PATIENCE, rewrite};
use dormouse_testbed::{Access, Dormoused, Extra, GATEWAY, GATEWAY_V6, Host, Need, Roaming, require};
use dormouse_wire::dns::{A, AUTHORITATIVE, Header, IN, Message, Name, Question, RESPONSE};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

/// The machine's own list of name servers, with what must come back as it was.
const BEFORE: &str = "# by hand\nnameserver 127.0.0.1\noptions timeout:1 attempts:1";
/// What its name server knows.
const ELSEWHERE: [u8; 4] = [192, 0, 2, 77];

/// A daemon as it comes: an ordinary user, and DNS as the machine has it.
fn start(host: &Host, toml: &str) -> Result<Dormoused> {
    let extra = Extra { user: "nobody".to_owned(), ..Extra::default() };
    let daemon = Dormoused::start_with(host, extra, "log = \"debug\"", toml)?;
    daemon.ok(&["status"])?;
    Ok(daemon)
}

/// What `getent` says of a name in `host`, its addresses in their order; none if it is not found.
fn found(host: &Host, name: &str) -> Vec<String> {
    let said = host.sh(&format!("getent ahosts {name} | awk '$2 == \"STREAM\" {{ print $1 }}'"));
    said.unwrap_or_default().lines().map(str::to_owned).collect()
}

/// A name server of the machine's own, which knows one name, and says how often it was asked for names in `hip` or for those of addresses.
fn name_server(host: &Host) -> Result<std::sync::Arc<std::sync::atomic::AtomicUsize>> {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let asked = std::sync::Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let socket = host.run(|| UdpSocket::bind("127.0.0.1:53"))??;
    std::thread::spawn(move || -> Result<()> {
        let (known, mut buffer) = (Name::from_labels(["elsewhere", "test"])?, [0; 1_500]);
        loop {
            let (length, from) = socket.recv_from(&mut buffer)?;
            let Ok(message) = Message::parse(&buffer[..length]) else { continue };
            let [Question { name, kind, .. }] = message.questions.as_slice() else { continue };
            let name_lower = name.as_bytes().to_ascii_lowercase();
            if name_lower.ends_with(b"\x03hip\0") || name_lower.ends_with(b"\x04arpa\0") {
                count.fetch_add(1, Ordering::Relaxed);
            }
            let hit = name.matches(&known) && *kind == A;
            let code = if name.matches(&known) { 0 } else { 3 };
            let (mut out, flags) = (Vec::new(), RESPONSE | AUTHORITATIVE | code);
            Header { id: message.header.id, flags, questions: 1, answers: hit.into(), ..Header::default() }
                .emit(&mut out);
            message.questions[0].emit(&mut out);
            if hit {
                out.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4]);
                out.extend_from_slice(&ELSEWHERE);
            }
            socket.send_to(&out, from)?;
        }
    });
    Ok(asked)
}

#[test]
fn programs_find_peers_by_name() -> Result<()> {
    if !require("names of HIP's peers", &[NEEDS[0], NEEDS[1], NEEDS[2], Need::Program("getent")]) {
        return Ok(());
    }
    let world = Roaming::new(30)?;
    world.attach(Access::A)?;
    let (device, server) = (&world.device, &world.gateway);
    device.etc("resolv.conf", BEFORE)?;
    device.etc("hosts", "127.0.0.1 localhost\n")?;
    device.etc("nsswitch.conf", "hosts: files dns\n")?;
    let asked = name_server(device)?;
    let hits = [keygen(device, "ecdsa-p256")?, keygen(server, "ecdsa-p256")?];
    let listed = |name: &str, more: &str| {
        let peer: Listed<'_> = (&hits[1], "server", &[GATEWAY]);
        end(device, more, &[peer]).replace("name = \"server\"", &format!("name = \"{name}\""))
    };
    let of_server =
        Dormoused::start(server, "dns = \"off\"", &end(server, "", &[(&hits[0], "device", &[])]))?;
    let mut daemon = start(device, &listed("server", ""))?;
    let logs = || format!("{}\n{}", of_server.log(), device.sh("cat /etc/resolv.conf").unwrap_or_default());
    device
        .eventually("getent ahosts server.hip", PATIENCE)
        .with_context(|| daemon.log())
        .with_context(logs)?;
    // Both ways of writing it, either case; the first packet begins the association.
    for name in ["server.hip", "server", "SERVER.HIP."] {
        ensure!(found(device, name) == [hits[1].clone()], "{name}: {:?}\n{}", found(device, name), logs());
    }
    device.sh("ping -c 1 -W 5 server").with_context(|| daemon.log())?;
    let named = device.sh(&format!("getent hosts {}", hits[1]))?;
    ensure!(named.contains("server.hip"), "{named}");
    // What is not the daemon's is asked of the machine's own server, which does not hear of the daemon's.
    ensure!(found(device, "elsewhere.test") == [IpAddr::from(ELSEWHERE).to_string()], "{}", logs());
    ensure!(found(device, "stranger.hip").is_empty());
    ensure!(asked.load(std::sync::atomic::Ordering::Relaxed) == 0, "names of peers were told to others");
    let said = daemon.ok(&["hip", "status"])?.text;
    ensure!(said.contains("NAME.hip"), "{said}");
    // A reload counts at once.
    rewrite(device, &listed("renamed", "lsi = \"1.0.0.0/8\""))?;
    daemon.ok(&["reload"])?;
    ensure!(found(device, "renamed.hip") == [hits[1].clone()] && found(device, "server.hip").is_empty());
    rewrite(device, &listed("renamed", "domain = \"peers.example\""))?;
    daemon.ok(&["reload"])?;
    device.eventually("getent ahosts renamed.peers.example", PATIENCE)?;
    ensure!(found(device, "renamed.hip").is_empty());
    rewrite(device, &listed("renamed", "domain = \"\""))?;
    daemon.ok(&["reload"])?;
    device.eventually("! grep -q dormouse /etc/resolv.conf", PATIENCE)?;
    // With LSIs a name leads to both, and programs of IPv4 find it.
    rewrite(device, &listed("server", "lsi = \"1.0.0.0/8\""))?;
    daemon.restart()?;
    device.eventually("getent ahostsv4 server.hip", PATIENCE)?;
    let both = found(device, "server.hip");
    ensure!(
        both.len() == 2 && both.contains(&hits[1]) && both.iter().any(|a| a.starts_with("1.")),
        "{both:?}"
    );
    device.sh("ping -4 -c 1 -W 5 server.hip").with_context(|| daemon.log())?;
    // However it ends, the machine's file is as it was.
    let as_before = || device.eventually(&format!("test \"$(cat /etc/resolv.conf)\" = '{BEFORE}'"), PATIENCE);
    daemon.process().kill();
    as_before()?;
    daemon.restart()?;
    device.eventually("getent ahosts server.hip", PATIENCE)?;
    daemon.process().stop();
    as_before()?;
    Ok(())
}

/// The one who asks is a program of this host: neither a neighbour who sends to the address, nor one who pretends to be this host, nor a peer
/// in the tunnel gets an answer.
#[test]
fn others_are_not_answered() -> Result<()> {
    if !require("who may ask for HIP's peers", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(30)?;
    world.attach(Access::A)?;
    let (device, server, core) = (&world.device, &world.gateway, &world.core);
    let hits = [keygen(device, "ecdsa-p256")?, keygen(server, "ecdsa-p256")?];
    // The server is a router, and holds nothing: nothing but the daemon itself keeps others out.
    let block = |toml: String| toml.replacen("role = ", "block = \"off\"\nrole = ", 1);
    let of_server =
        Dormoused::start(server, "dns = \"off\"", &block(end(server, "", &[(&hits[0], "device", &[])])))?;
    let _of_device = Dormoused::start(
        device,
        "dns = \"off\"",
        &block(end(device, "", &[(&hits[1], "server", &[GATEWAY])])),
    )?;
    // A daemon that has just begun may not have its routes yet.
    let ping = format!("ping -c 1 -W 5 {}", hits[1]);
    device.eventually(&ping, PATIENCE).with_context(|| of_server.log())?;
    server.sysctl("net.ipv6.conf.all.forwarding", "1")?;
    let mut question = Vec::new();
    Header { id: 5, questions: 1, ..Header::default() }.emit(&mut question);
    Question { name: Name::from_labels(["device", "hip"])?, kind: 28, class: IN }.emit(&mut question);
    let ask = |host: &Host, from: &str, to: &str| -> Result<bool> {
        let (from, to): (SocketAddr, SocketAddr) = (from.parse()?, to.parse()?);
        let question = question.clone();
        host.run(move || -> Result<bool> {
            let socket = UdpSocket::bind(from)?;
            socket.set_read_timeout(Some(Duration::from_secs(2)))?;
            socket.send_to(&question, to)?;
            Ok(socket.recv_from(&mut [0; 1_500]).is_ok())
        })?
    };
    let resolver = "[2001:20::53]:53";
    let own = format!("[{}]:0", hits[1]);
    ensure!(ask(server, &own, resolver)?, "a program of this host\n{}", of_server.log());
    // No socket listens, at any address.
    ensure!(!server.sh("ss -Hlnu")?.contains(":53 "), "a socket listens");
    core.ip(&format!("-6 route add 2001:20::53/128 via {GATEWAY_V6}"))?;
    ensure!(!ask(core, "[::]:0", resolver)?, "a neighbour by the server's outer address");
    core.ip(&format!("addr add {}/128 dev lo nodad", hits[1]))?;
    ensure!(!ask(core, &own, resolver)?, "one who pretends to be this host");
    // A peer has a resolver at this address of its own; that of the server is not in the tunnel.
    let theirs = format!("[{}]:53", hits[1]);
    ensure!(!ask(device, "[::]:0", &theirs)?, "a peer");
    Ok(())
}

//! The gateway stands in for a device whose radio is off: what the network behind the gateway notices of it, and what the device
//! finds when it is back.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Context, Result, bail};
use dormouse_testbed::{Access, Dormoused, GATEWAY, Host, Need, Roaming, SERVER, require};
use dormouse_wire::dns::{AUTHORITATIVE, Header, IN, Name, Question, RESPONSE, Record, Section};
use dormouse_wire::ip::checksum::checksum;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

const NEEDS: [Need; 3] = [Need::Root, Need::File("/dev/net/tun"), Need::Program("nft")];
const PORT: u16 = 7_070;
const PATIENCE: Duration = Duration::from_secs(20);

struct Pair {
    device: Dormoused,
    gateway: Dormoused,
    /// The device's address in the tunnel.
    inner: IpAddr,
    world: Roaming,
}

/// A device and a gateway, connected; `standin` are lines of the gateway's section of this name.
fn connected(standin: &str) -> Result<Pair> {
    let world = Roaming::new(60)?;
    world.attach(Access::A)?;
    let end = |role: &str, own: &str, peer: &str, more: &str| {
        format!(
            "[connection.peer]\nrole = \"{role}\"\n{more}\n[connection.peer.local]\nid = \"{own}\"\nsecret = \"standing in\"\n\
             [connection.peer.remote]\nid = \"{peer}\"\nsecret = \"standing in\"\n"
        )
    };
    let gateway = end("gateway", "gateway.test", "*.test", "")
        + "[connection.peer.child]\nlocal = [\"10.99.0.0/24\", \"10.55.0.0/24\"]\nremote = [\"dynamic\"]\n\
           [connection.peer.pool]\naddresses = [\"10.55.0.0/24\"]\n"
        + &format!("[standin]\n{standin}\n");
    let device = end("client", "device.test", "gateway.test", &format!("gateway = \"{GATEWAY}\""))
        + "[connection.peer.child]\nremote = [\"10.99.0.0/24\", \"10.55.0.0/24\"]\n[sleep]\nradio = \"none\"\n";
    let gateway = Dormoused::start(&world.gateway, "dns = \"off\"", &gateway)?;
    let device = Dormoused::start(&world.device, "dns = \"off\"", &device)?;
    device.ok(&["up", "peer"])?;
    let status = device.ok(&["status", "--json"])?;
    let inner = find(&status.json, "addresses").and_then(|a| a.get(0)?.as_str()?.parse().ok());
    Ok(Pair { device, gateway, inner: inner.with_context(|| status.text)?, world })
}

/// The first value called `key`, wherever it stands.
fn find<'a>(json: &'a serde_json::Value, key: &str) -> Option<&'a serde_json::Value> {
    match json {
        serde_json::Value::Object(map) => {
            map.get(key).filter(|v| !v.is_null()).or_else(|| map.values().find_map(|v| find(v, key)))
        }
        serde_json::Value::Array(list) => list.iter().find_map(|v| find(v, key)),
        _ => None,
    }
}

impl Pair {
    /// The device's socket at `address`, which waits at most [`PATIENCE`], and one of the server.
    fn sockets(&self, address: SocketAddr) -> Result<(UdpSocket, UdpSocket)> {
        let receiver = within(&self.world.device, move || UdpSocket::bind(address))?;
        receiver.set_read_timeout(Some(PATIENCE))?;
        Ok((receiver, within(&self.world.server, move || UdpSocket::bind((SERVER, 0)))?))
    }

    /// The radio goes off, and the gateway knows.
    fn sleep(&self) -> Result<()> {
        self.device.ok(&["suspend"])?;
        self.gateway_says(|stand_in| stand_in.get("asleep").is_some())?;
        self.world.detach(Access::A)
    }

    fn wake(&self) -> Result<()> {
        self.world.attach(Access::A)?;
        self.device.ok(&["resume"]).map(drop)
    }

    /// Waits until what the gateway says of its stand-in is so, and returns it.
    fn gateway_says(&self, so: impl Fn(&serde_json::Value) -> bool) -> Result<serde_json::Value> {
        let until = Instant::now() + PATIENCE;
        loop {
            let status = self.gateway.ok(&["status", "--json"])?;
            match find(&status.json, "stand_in").filter(|s| so(s)) {
                Some(stand_in) => return Ok(stand_in.clone()),
                None if Instant::now() > until => bail!("{}\n{}", status.text, self.gateway.log()),
                None => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }
}

/// Runs `work` inside `host`.
fn within<T: Send + 'static>(
    host: &Host,
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T> {
    Ok(host.within(work)?.join().map_err(|_| anyhow::anyhow!("the thread panicked"))???)
}

fn count(stand_in: &serde_json::Value, of: &str, name: &str) -> u64 {
    stand_in.get(of).and_then(|by| by.get(name)?.as_u64()).unwrap_or(0)
}

#[test]
fn datagrams_wait_and_come_in_order() -> Result<()> {
    if !require("buffering for a sleeping device", &NEEDS) {
        return Ok(());
    }
    let pair = connected("")?;
    let (inner, address) = (pair.inner, SocketAddr::new(pair.inner, PORT));
    let (receiver, sender) = pair.sockets(address)?;
    // What it does itself while it is awake is done for it.
    pair.world.server.eventually(&format!("ping -c 1 -W 1 {inner}"), PATIENCE)?;
    pair.sleep()?;
    pair.world.server.sh(&format!("ping -c 2 -i 0.2 -W 3 {inner}"))?;
    for n in 0..40_u8 {
        sender.send_to(&[n; 200], address)?;
    }
    let waiting = |s: &serde_json::Value| s["asleep"]["packets"].as_u64() == Some(40);
    let stand_in = pair.gateway_says(waiting)?;
    assert!(count(&stand_in, "answered", "echo") >= 2, "{stand_in}");
    pair.wake()?;
    let mut buf = [0; 2_048];
    for n in 0..40_u8 {
        let len = receiver.recv(&mut buf).with_context(|| format!("datagram {n}\n{}", pair.gateway.log()))?;
        assert_eq!((len, buf[0]), (200, n));
    }
    let stand_in = pair.gateway_says(|s| s.get("asleep").is_none())?;
    assert_eq!(stand_in["delivered"].as_u64(), Some(40), "{stand_in}");
    Ok(())
}

#[test]
fn a_connection_with_keep_alives_and_data_outlives_the_sleep() -> Result<()> {
    if !require("TCP across a sleep", &NEEDS) {
        return Ok(());
    }
    let pair = connected("")?;
    let server: SocketAddr = (SERVER.parse::<IpAddr>()?, PORT).into();
    let listener = within(&pair.world.server, move || TcpListener::bind(server))?;
    let mut device = within(&pair.world.device, move || TcpStream::connect_timeout(&server, PATIENCE))?;
    let (mut peer, _) = listener.accept()?;
    // Four seconds of silence end it.
    let keep_alive = TcpKeepalive::new()
        .with_time(Duration::from_secs(1))
        .with_interval(Duration::from_secs(1))
        .with_retries(3);
    SockRef::from(&peer).set_tcp_keepalive(&keep_alive)?;
    device.set_read_timeout(Some(PATIENCE))?;
    device.write_all(b"hello")?;
    let mut buf = [0; 64];
    peer.read_exact(&mut buf[..5])?;

    pair.sleep()?;
    pair.gateway_says(|s| count(s, "answered", "tcp-keep-alive") >= 6)?;
    assert!(peer.take_error()?.is_none(), "the connection broke");
    peer.write_all(b"are you there?")?;
    pair.gateway_says(|s| count(s, "answered", "tcp-hold") >= 1)?;
    // Nothing was acknowledged that did not arrive: it is all still in the sender's queue.
    let queue = pair.world.server.sh(&format!("ss -tnH src {server}"))?;
    let unacknowledged = queue.split_whitespace().nth(2);
    assert_eq!(unacknowledged, Some("14"), "{queue}");
    // Its sender repeats it, and gets the same answer each time.
    pair.gateway_says(|s| count(s, "answered", "tcp-hold") >= 4)?;
    assert!(peer.take_error()?.is_none(), "the connection broke");

    pair.wake()?;
    device.read_exact(&mut buf[..14])?;
    assert_eq!(&buf[..14], b"are you there?");
    device.write_all(b"yes")?;
    peer.set_read_timeout(Some(PATIENCE))?;
    peer.read_exact(&mut buf[..3])?;
    peer.set_nonblocking(true)?;
    let more = peer.read(&mut buf).map_err(|e| e.kind());
    assert_eq!(more, Err(ErrorKind::WouldBlock));
    Ok(())
}

#[test]
fn a_gateway_that_may_not_stand_in_says_nothing() -> Result<()> {
    if !require("no stand-in", &NEEDS) {
        return Ok(());
    }
    let pair = connected("enabled = false")?;
    pair.device.ok(&["suspend"])?;
    pair.world.detach(Access::A)?;
    let ping = pair.world.server.sh(&format!("ping -c 2 -i 0.2 -W 1 {}", pair.inner));
    assert!(ping.is_err(), "an answer came");
    pair.wake()?;
    pair.world.server.eventually(&format!("ping -c 1 -W 1 {}", pair.inner), PATIENCE)?;
    Ok(())
}

/// A message of multicast DNS that names the device: its announcement, or the question about it.
fn multicast_dns(inner: IpAddr, announces: bool) -> Result<Vec<u8>> {
    let IpAddr::V4(address) = inner else { bail!("an IPv6 address") };
    let name = Name::from_labels(["laptop", "local"]).context("a name")?;
    let mut message = Vec::new();
    if announces {
        Header { flags: RESPONSE | AUTHORITATIVE, answers: 1, ..Header::default() }.emit(&mut message);
        let data = address.octets().to_vec();
        let record = Record { section: Section::Answer, name, kind: 1, class: IN, ttl: 120, data };
        record.emit(record.ttl, &mut message)?;
    } else {
        Header { id: 77, questions: 1, ..Header::default() }.emit(&mut message);
        Question { name, kind: 1, class: IN }.emit(&mut message);
    }
    Ok(message)
}

#[test]
fn for_a_device_that_would_not_have_answered_nothing_is_answered() -> Result<()> {
    if !require("what a device would not have answered", &NEEDS) {
        return Ok(());
    }
    let pair = connected("")?;
    let (inner, server) = (pair.inner, &pair.world.server);
    let device = SocketAddr::new(inner, 5_353);
    // A host on the devices' own link, as other clients are, and one that is not.
    const NEIGHBOUR: &str = "10.55.0.200";
    server.ip(&format!("addr add {NEIGHBOUR}/32 dev lo"))?;
    pair.world.gateway.ip(&format!("route add {NEIGHBOUR}/32 via {SERVER}"))?;
    let [near, far] = [NEIGHBOUR, SERVER].map(|from| within(server, move || UdpSocket::bind((from, 0))));
    let (near, far) = (near?, far?);
    for socket in [&near, &far] {
        socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    }
    let announcer = within(&pair.world.device, move || UdpSocket::bind(device))?;
    announcer.send_to(&multicast_dns(inner, true)?, (SERVER, 5_353))?;
    // It answers pings, and then no more.
    server.eventually(&format!("ping -c 1 -W 1 {inner}"), PATIENCE)?;
    pair.world.device.sysctl("net.ipv4.icmp_echo_ignore_all", "1")?;
    let ping = format!("ping -c 6 -i 0.1 -W 1 {inner}");
    assert!(server.sh(&ping).is_err(), "the device answers");

    pair.sleep()?;
    assert!(server.sh(&ping).is_err(), "a ping is answered in its place");
    let question = multicast_dns(inner, false)?;
    let mut buf = [0; 512];
    far.send_to(&question, device)?;
    near.send_to(&question, device)?;
    near.recv(&mut buf).with_context(|| pair.gateway.log())?;
    assert!(far.recv(&mut buf).is_err(), "a host that is not on the device's link is answered");
    let stand_in = pair.gateway_says(|s| count(s, "answered", "mdns") == 1)?;
    assert_eq!(count(&stand_in, "answered", "echo"), 0, "{stand_in}");
    Ok(())
}

/// An ICMP error (port unreachable) about a datagram that the device may have sent from port `port`.
fn icmp_error(inner: IpAddr, port: u16) -> Result<Vec<u8>> {
    let (IpAddr::V4(inner), IpAddr::V4(server)) = (inner, SERVER.parse()?) else { bail!("an IPv6 address") };
    let mut datagram = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
    datagram.extend(inner.octets());
    datagram.extend(server.octets());
    let header = checksum(&datagram).to_be_bytes();
    datagram.splice(10..12, header);
    datagram.extend(port.to_be_bytes());
    datagram.extend([0, 53, 0, 8, 0, 0]);
    let mut error = vec![3, 3, 0, 0, 0, 0, 0, 0];
    error.extend(datagram);
    let sum = checksum(&error).to_be_bytes();
    error.splice(2..4, sum);
    Ok(error)
}

#[test]
fn a_flood_of_icmp_errors_displaces_nothing_that_is_kept() -> Result<()> {
    if !require("a flood of ICMP errors at a sleeping device", &NEEDS) {
        return Ok(());
    }
    let pair = connected("")?;
    let (inner, address) = (pair.inner, SocketAddr::new(pair.inner, PORT));
    let (receiver, sender) = pair.sockets(address)?;
    let raw = within(&pair.world.server, || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)))?;
    pair.sleep()?;
    let send = |from: u8| (from..from + 20).try_for_each(|n| sender.send_to(&[n; 200], address).map(drop));
    send(0)?;
    // Twice as many as there is room for, each about another connection.
    for port in 20_000..20_600 {
        raw.send_to(&icmp_error(inner, port)?, &SocketAddr::new(inner, 0).into())?;
        std::thread::sleep(Duration::from_micros(500));
    }
    send(20)?;
    let stand_in = pair.gateway_says(|s| s["handled"].as_u64() >= Some(640))?;
    assert!(count(&stand_in, "dropped", "evicted") > 0, "there was room for all: {stand_in}");
    pair.wake()?;
    let mut buf = [0; 2_048];
    for n in 0..40_u8 {
        let len = receiver.recv(&mut buf).with_context(|| format!("datagram {n}\n{stand_in}"))?;
        assert_eq!((len, buf[0]), (200, n));
    }
    Ok(())
}

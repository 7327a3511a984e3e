//! Many handshakes at once at a real gateway: a flood out of one IPv6 network, by hosts that answer cookies and leave what they have begun;
//! and honest clients behind one address.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Context, Result, bail};
use dormouse_crypto::Secret;
use dormouse_crypto::cert::Identity;
use dormouse_ike::Endpoint;
use dormouse_ike::EndpointConfig;
use dormouse_ike::config::{Connection, IdentityPattern, LocalAuth, RemoteAuth, Retransmission};
use dormouse_interop::ends::{PATIENCE, another, by_secret, peers};
use dormouse_io::udp::Udp;
use dormouse_sansio::{Carrier, Path, Seeded};
use dormouse_testbed::crowd::{Crowd, DOMAIN, GATEWAY_NAME, Pki, Settings, Task};
use dormouse_testbed::{Access, Dormoused, GATEWAY, GATEWAY_V6, Host, Need, Roaming, SERVER, require};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const NEEDS: [Need; 2] = [Need::Root, Need::File("/dev/net/tun")];
/// Hosts of the flood, in one /64.
const FLOODERS: u16 = 18;
const SECRET: &str = "a secret that the flood has not";
const IKE_SA_INIT: u8 = 34;
const PORT: u16 = 5_500;

fn end(role: &str, own: &str, peer: &str, more: &str) -> String {
    format!(
        "[connection.peer]\nrole = \"{role}\"\n{more}\n[connection.peer.local]\nid = \"{own}\"\nsecret = \"{SECRET}\"\n\
         [connection.peer.remote]\nid = \"{peer}\"\nsecret = \"{SECRET}\"\n[sleep]\nradio = \"none\"\n"
    )
}

/// One host of the flood.
struct Flooder {
    endpoint: Endpoint,
    socket: UdpSocket,
    conn: Arc<Connection>,
    path: Path,
}

impl Flooder {
    fn new(n: u16) -> Result<Self> {
        let local = SocketAddr::new(Ipv6Addr::new(0x2001, 0xdb8, 0x66, 0, 0, 0, 0, n).into(), PORT);
        let socket = UdpSocket::bind(local)?;
        socket.set_nonblocking(true)?;
        let id: Identity = "flooder.test".parse()?;
        let secret = || Secret::from(&b"whatever it is"[..]);
        let mut conn = Connection::new(
            "flood",
            id,
            LocalAuth::Psk(secret()),
            IdentityPattern::Any,
            RemoteAuth::Psk(secret()),
        );
        conn.opening.hardest_puzzle = 0;
        let remote = SocketAddr::new(GATEWAY_V6.parse()?, 500);
        Ok(Self {
            endpoint: Endpoint::new(EndpointConfig::default(), Box::new(Seeded::new(n.into()))),
            socket,
            conn: Arc::new(conn),
            path: Path { local, remote, carrier: Carrier::Ike },
        })
    }

    /// Begins some sessions, and answers cookies; what comes after that is not sent.
    fn go_on(&mut self, now: dormouse_sansio::Instant) -> Result<()> {
        for _ in 0..4 {
            self.endpoint.connect(now, self.conn.clone(), self.path);
        }
        let mut buf = [0; 4_096];
        while let Ok(len) = self.socket.recv(&mut buf) {
            let datagram = buf.get_mut(..len).context("a datagram")?;
            let _discard = self.endpoint.handle_datagram(now, self.path, datagram);
        }
        let mut bytes = Vec::new();
        while self.endpoint.poll_transmit(now, &mut bytes).is_some() {
            let datagram = std::mem::take(&mut bytes);
            if datagram.get(18) == Some(&IKE_SA_INIT) {
                self.socket.send_to(&datagram, self.path.remote)?;
            }
        }
        while self.endpoint.poll_event().is_some() {}
        Ok(())
    }
}

fn flood(stop: &AtomicBool) -> Result<()> {
    let mut flooders = (1..=FLOODERS).map(Flooder::new).collect::<Result<Vec<_>>>()?;
    let begun = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let now = dormouse_sansio::Instant::ZERO + begun.elapsed();
        for flooder in &mut flooders {
            flooder.go_on(now)?;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn half_open(gateway: &Dormoused) -> Result<u64> {
    let status = gateway.ok(&["status", "--json"])?;
    status.json.pointer("/result/status/gateway/half_open").and_then(Value::as_u64).context(status.text)
}

fn counter(daemon: &Dormoused, name: &str) -> Result<u64> {
    let stats = daemon.ok(&["stats", "--json"])?;
    let all = stats.json.pointer("/result/stats/counters").context(stats.text.clone())?;
    Ok(all.get(name).and_then(Value::as_u64).unwrap_or(0))
}

/// Whether a client comes up, without its first messages being left unanswered.
fn comes_up(host: &Host, id: &str, gateway: &str, log: &Dormoused) -> Result<Dormoused> {
    let client = end("client", id, "gateway.test", &format!("gateway = \"{gateway}\""))
        + "[connection.peer.child]\nremote = [\"10.99.0.0/24\"]\n";
    let client = Dormoused::start(host, "dns = \"off\"", &client)?;
    client.ok(&["up", "peer"]).with_context(|| log.log())?;
    // A machine that is busy may delay an answer for the first of them. Those who are shut out repeat theirs until places expire.
    let again = counter(&client, "ike.retransmissions")?;
    if again > 2 {
        bail!("{id} had to send its messages {again} times more\n{}\n{}", client.log(), log.log());
    }
    Ok(client)
}

/// Before, 18 addresses of one /64 took all places, and clients elsewhere waited 14 seconds in the mean.
#[test]
fn eighteen_hosts_of_one_network_keep_no_client_waiting() -> Result<()> {
    if !require("a flood of handshakes", &NEEDS) {
        return Ok(());
    }
    let mut world = Roaming::new(60)?;
    world.attach(Access::A)?;
    let flooders = world.bed.host("flood")?;
    world
        .bed
        .link((&flooders, "eth0", &["2001:db8:66::fe/64"]), (&world.core, "to-f", &["2001:db8:66::ff/64"]))?;
    for n in 1..=FLOODERS {
        flooders.ip(&format!("addr add 2001:db8:66::{n:x}/64 dev eth0 nodad"))?;
    }
    flooders.ip("-6 route add default via 2001:db8:66::ff")?;
    let gateway = end("gateway", "gateway.test", "*.test", "")
        + "[connection.peer.child]\nlocal = [\"10.99.0.0/24\"]\nremote = [\"dynamic\"]\n\
           [connection.peer.pool]\naddresses = [\"10.55.0.0/24\"]\n";
    let gateway = Dormoused::start(&world.gateway, "dns = \"off\"", &gateway)?;
    flooders.eventually(&format!("ping -c 1 -W 1 -I 2001:db8:66::1 {GATEWAY_V6}"), PATIENCE)?;

    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let thread = flooders.within(move || flood(&flag))?;
    let until = Instant::now() + PATIENCE;
    while half_open(&gateway)? < 300 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(100));
    }
    let result = half_open(&gateway).and_then(|there| {
        assert!(there >= 300, "no flood: {there} half open\n{}", gateway.log());
        let _elsewhere = comes_up(&world.device, "device.test", GATEWAY, &gateway)?;
        // A host of the same network is asked for work, and served for it.
        let _neighbour = comes_up(&flooders, "neighbour.test", GATEWAY_V6, &gateway)?;
        Ok(())
    });
    stop.store(true, Ordering::Relaxed);
    let flooded = thread.join().map_err(|_| anyhow::anyhow!("the flood panicked"))?;
    result?;
    flooded??;
    assert!(counter(&gateway, "ike.puzzles_solved")? >= 1, "{}", gateway.log());
    let refused = gateway.ok(&["status", "--json"])?;
    let refused = refused.json.pointer("/result/status/gateway/refused").and_then(Value::as_u64);
    assert!(refused > Some(0), "those that did not work were all served");
    assert!(gateway.log().contains("newcomers are refused"), "{}", gateway.log());
    Ok(())
}

/// Clients behind one address that begin at once. Before, 963 of a thousand came up. More than one answer of the daemon's lists.
const CROWD: usize = 1_100;
/// A request, and four repetitions. All of the clients are on this machine and solve their puzzles there: they take their time.
const PATIENT: Retransmission = Retransmission {
    initial: Duration::from_secs(2),
    factor_percent: 180,
    longest: Duration::from_secs(16),
    jitter_percent: 20,
    tries: 5,
};

#[test]
fn a_thousand_clients_behind_one_address_all_come_up_and_are_listed() -> Result<()> {
    if !require("a crowd behind one address", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(120)?;
    world.attach(Access::B)?;
    // Each has an address of its own behind the NAT of network B.
    let homes = [Ipv4Addr::new(10, 1, 0, 0), Ipv4Addr::new(10, 2, 0, 0)];
    for home in homes {
        world.device.ip(&format!("route add local {home}/16 dev lo"))?;
    }
    world.router_b.ip(&format!("route add {}/16 via {}", homes[0], Access::B.device_address()))?;
    let child = "local = [\"10.99.0.0/24\"]\nremote = [\"dynamic\"]\n[connection.peer.pool]\naddresses = [\"10.64.0.0/16\"]";
    let gateway = by_secret("gateway", GATEWAY_NAME, &format!("*.{DOMAIN}"), SECRET, child);
    let gateway = Dormoused::start(&world.gateway, "dns = \"off\"", &gateway)?;
    let socket = world.device.run(|| Udp::bind((Ipv4Addr::UNSPECIFIED, 4_500).into(), Carrier::NatT))??;
    let settings = Settings {
        count: CROWD,
        gateway: SocketAddr::new(GATEWAY.parse()?, 4_500),
        homes,
        networks: 1,
        server: SERVER.parse()?,
        retransmission: PATIENT,
        interrupted: Arc::default(),
    };
    let mut crowd = Crowd::new(&Pki::Psk(Secret::from(SECRET.as_bytes())), socket, settings)?;
    let done = crowd.run(CROWD, Task::Full).with_context(|| gateway.log())?;
    let listed: BTreeSet<String> = peers(&gateway)?.into_iter().collect();
    assert_eq!((done.len(), listed.len()), (CROWD, CROWD));
    let shown = gateway.ok(&["status"])?.text;
    let more = format!("and {} more", CROWD - 50);
    assert!(shown.contains(&format!("{CROWD} sessions")) && shown.contains(&more), "{shown}");
    assert!(shown.contains(" timers more"), "{shown}");
    // Those beyond the share of one address were not left unanswered: they worked for their place.
    assert!(counter(&gateway, "ike.puzzles_solved")? > 0, "{}", gateway.log());
    Ok(())
}

/// INVALID_SPI is answered to each prefix by a budget of its own, so that one stranger does not keep it from a client that asks for its
/// session.
#[test]
fn a_flood_of_unknown_spis_is_answered_by_a_budget_of_its_own() -> Result<()> {
    if !require("a flood of unknown SPIs", &NEEDS) {
        return Ok(());
    }
    let mut world = Roaming::new(60)?;
    world.attach(Access::A)?;
    let (stranger, _) = another(&mut world, "stranger", 2)?;
    let child = "local = [\"10.99.0.0/24\"]\nremote = [\"dynamic\"]";
    let gateway = by_secret("gateway", "gateway.test", "*.test", SECRET, child);
    let gateway = Dormoused::start(&world.gateway, "dns = \"off\"", &gateway)?;
    let socket = |host: &Host| -> Result<UdpSocket> {
        let socket = host.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))??;
        socket.connect((GATEWAY, 4_500))?;
        Ok(socket)
    };
    let (stranger, client) = (socket(&stranger)?, socket(&world.device)?);
    client.set_read_timeout(Some(Duration::from_secs(5)))?;
    stranger.set_nonblocking(true)?;
    let esp = |spi: u32| [&spi.to_be_bytes()[..], &[0; 60]].concat();
    let (mut sent, mut answered, mut buf) = (0_u32, 0_u32, [0; 256]);
    for round in 0..4 {
        for spi in 0..500 {
            stranger.send(&esp(0x1000_0000 + spi))?;
            sent += 1;
        }
        client.send(&esp(0x2000_0000 + round))?;
        let len = client.recv(&mut buf).with_context(|| format!("no answer; {}", gateway.log()))?;
        let spi = (0x2000_0000 + round).to_be_bytes();
        assert!(buf.get(..len).is_some_and(|b| b.ends_with(&spi)), "{:?}", buf.get(..len));
        while stranger.recv(&mut buf).is_ok() {
            answered += 1;
        }
    }
    assert!(answered > 0 && answered < sent / 10, "{answered} of {sent} were answered");
    Ok(())
}

//! The whole data path between two hosts: real TUN devices, real sockets, with and without ESP, over both outer families. What
//! goes in at one end comes out at the other, with every offload in between.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use dormouse_testbed::{Host, Need, Process, Testbed, require};

const LIMIT: Duration = Duration::from_secs(20);
const BULK: usize = 24 << 20;

struct Tunnel {
    a: Host,
    b: Host,
    ends: [Process; 2],
    _testbed: Testbed,
}

fn tunnel(mode: &str, outer: [&str; 2]) -> Tunnel {
    let mut testbed = Testbed::new().unwrap();
    let (a, b) = (testbed.host("a").unwrap(), testbed.host("b").unwrap());
    testbed.link((&a, "eth0", &["192.0.2.1/24"]), (&b, "eth0", &["192.0.2.2/24"])).unwrap();
    for (host, n) in [(&a, 1), (&b, 2)] {
        host.sh(&format!("ip addr add 2001:db8::{n}/64 dev eth0 nodad")).unwrap();
    }
    let exe = std::env::current_exe().unwrap();
    let forward = exe.parent().unwrap().parent().unwrap().join("examples/forward");
    assert!(forward.is_file(), "no {}: cargo build -p dormouse-io --example forward", forward.display());
    let start = |host: &Host, side, local, remote| {
        let mut process = host.spawn("forward", &forward, &[mode, side, "tun0", local, remote]).unwrap();
        process.wait_for("inner MTU", LIMIT).unwrap();
        process
    };
    let ends = [start(&a, "a", outer[0], outer[1]), start(&b, "b", outer[1], outer[0])];
    for (host, n) in [(&a, 1), (&b, 2)] {
        host.sh(&format!("ip addr add 10.99.0.{n}/24 dev tun0; ip addr add fd99::{n}/64 dev tun0 nodad"))
            .unwrap();
    }
    Tunnel { a, b, ends, _testbed: testbed }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Sends bulk both ways at once over one TCP connection and compares what arrived.
fn tcp(t: &Tunnel, server: &str) {
    let address: SocketAddr = server.parse().unwrap();
    let exchange = |mut stream: TcpStream| {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut sender = stream.try_clone().unwrap();
        let sending = std::thread::spawn(move || sender.write_all(&pattern(BULK)).unwrap());
        let mut got = vec![0; BULK];
        stream.read_exact(&mut got).unwrap();
        sending.join().unwrap();
        assert!(got == pattern(BULK), "the stream was damaged");
    };
    let (ready, listening) = std::sync::mpsc::channel();
    let serve = t.b.within(move || {
        let listener = TcpListener::bind(address).unwrap();
        ready.send(()).unwrap();
        exchange(listener.accept().unwrap().0);
    });
    listening.recv_timeout(LIMIT).unwrap();
    let connect = t.a.within(move || exchange(TcpStream::connect_timeout(&address, LIMIT).unwrap()));
    connect.unwrap().join().unwrap().unwrap();
    serve.unwrap().join().unwrap().unwrap();
}

/// Sends datagrams of many sizes, up to some that IP must fragment, and compares their echoes.
fn udp(t: &Tunnel, server: &str) {
    let address: SocketAddr = server.parse().unwrap();
    let (ready, listening) = std::sync::mpsc::channel();
    let echo = t.b.within(move || {
        let socket = UdpSocket::bind(address).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        ready.send(()).unwrap();
        let mut buf = vec![0; 65_536];
        loop {
            let (n, from) = socket.recv_from(&mut buf).unwrap();
            if n == 0 {
                return;
            }
            socket.send_to(&buf[..n], from).unwrap();
        }
    });
    listening.recv_timeout(LIMIT).unwrap();
    let send = t.a.within(move || {
        let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        let mut buf = vec![0; 65_536];
        for size in [1, 2, 63, 64, 512, 1_380, 1_390, 1_410, 1_411, 3_000, 9_000, 40_000] {
            let data = pattern(size);
            socket.send_to(&data, address).unwrap();
            let (n, _) = socket.recv_from(&mut buf).unwrap();
            assert!(buf[..n] == data[..], "{size} bytes came back as {n}");
        }
        socket.send_to(&[], address).unwrap();
    });
    send.unwrap().join().unwrap().unwrap();
    echo.unwrap().join().unwrap().unwrap();
}

fn everything(mode: &str, outer: [&str; 2]) {
    let mut t = tunnel(mode, outer);
    t.a.eventually("ping -c 1 -W 1 10.99.0.2 && ping -c 1 -W 1 fd99::2", LIMIT).unwrap();
    for server in ["10.99.0.2:5000", "[fd99::2]:5000"] {
        tcp(&t, server);
        udp(&t, server);
    }
    for end in &mut t.ends {
        assert!(end.ended().is_none(), "{}", end.log());
    }
}

fn possible(test: &str) -> bool {
    require(
        test,
        &[
            Need::Root,
            Need::Program("ip"),
            Need::Program("ping"),
            Need::Program("tc"),
            Need::File("/dev/net/tun"),
        ],
    )
}

#[test]
fn plain_packets_pass() {
    if possible("plain_packets_pass") {
        everything("--plain", ["192.0.2.1:4500", "192.0.2.2:4500"]);
    }
}

#[test]
fn esp_over_ipv4() {
    if possible("esp_over_ipv4") {
        everything("--esp", ["192.0.2.1:4500", "192.0.2.2:4500"]);
    }
}

#[test]
fn esp_over_ipv6() {
    if possible("esp_over_ipv6") {
        everything("--esp", ["[2001:db8::1]:4500", "[2001:db8::2]:4500"]);
    }
}

#[test]
fn esp_as_protocol_50() {
    if possible("esp_as_protocol_50") {
        everything("--raw", ["192.0.2.1:0", "192.0.2.2:0"]);
        everything("--raw", ["[2001:db8::1]:0", "[2001:db8::2]:0"]);
    }
}

#[test]
fn packets_too_big_for_the_tunnel_are_answered() {
    if !possible("packets_too_big_for_the_tunnel_are_answered") {
        return;
    }
    let t = tunnel("--esp", ["192.0.2.1:4500", "192.0.2.2:4500"]);
    // The interface takes more than the tunnel carries: the tunnel itself must say so.
    for host in [&t.a, &t.b] {
        host.ip("link set tun0 mtu 9000").unwrap();
    }
    t.a.eventually("ping -c 1 -W 1 -M do -s 1410 10.99.0.2", LIMIT).unwrap();
    let refused = t.a.sh("ping -c 1 -W 2 -M do -s 1411 10.99.0.2; true").unwrap();
    assert!(refused.contains("mtu = 1438") || refused.contains("mtu=1438"), "{refused}");
    // TCP needs no such answer: it is cut to what fits, and its MSS was clamped.
    tcp(&t, "10.99.0.2:5000");
}

#[test]
fn a_full_socket_holds_the_tunnel_back_and_damages_nothing() {
    if !possible("a_full_socket_holds_the_tunnel_back_and_damages_nothing") {
        return;
    }
    let t = tunnel("--esp", ["192.0.2.1:4500", "192.0.2.2:4500"]);
    t.a.eventually("ping -c 1 -W 1 10.99.0.2", LIMIT).unwrap();
    // A queue that holds more than the socket's buffer: what is too much must wait in front of the tunnel.
    t.a.sh("tc qdisc add dev eth0 root tbf rate 8mbit burst 256kb limit 60mb").unwrap();
    let flood = t.a.within(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let data = pattern(1_300);
        for _ in 0..40_000 {
            let _full = socket.send_to(&data, "10.99.0.2:9");
        }
    });
    flood.unwrap().join().unwrap().unwrap();
    t.a.sh("tc qdisc change dev eth0 root tbf rate 4gbit burst 1mb limit 60mb").unwrap();
    tcp(&t, "10.99.0.2:5000");
    let [a, b] = &t.ends;
    assert!(a.log().contains("socket full: true"), "{}", a.log());
    assert!(a.log().contains("socket full: false"), "{}", a.log());
    assert!(!b.log().contains("integrity"), "{}", b.log());
}
